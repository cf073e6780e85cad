//! The messages of OTLP that traces need, as opentelemetry-proto 1 has them; fields that are not used are left out.
//! The crates of OpenTelemetry would make numbers of spans at random, where these follow from the step.

use prost::{Enumeration, Message, Oneof};

/// Where traces are sent to.
pub const PATH: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// Spans, sent together.
#[derive(Clone, PartialEq, Message)]
pub struct ExportRequest {
    /// By process.
    #[prost(message, repeated, tag = "1")]
    pub resource_spans: Vec<ResourceSpans>,
}

/// What a collector says to that.
#[derive(Clone, PartialEq, Message)]
pub struct ExportResponse {
    /// Where it has not taken all of them.
    #[prost(message, optional, tag = "1")]
    pub partial_success: Option<PartialSuccess>,
}

/// What a collector has not taken.
#[derive(Clone, PartialEq, Message)]
pub struct PartialSuccess {
    /// How many spans.
    #[prost(int64, tag = "1")]
    pub rejected_spans: i64,
    /// Why.
    #[prost(string, tag = "2")]
    pub error_message: String,
}

/// Spans of one process.
#[derive(Clone, PartialEq, Message)]
pub struct ResourceSpans {
    /// Which.
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    /// The spans.
    #[prost(message, repeated, tag = "2")]
    pub scope_spans: Vec<ScopeSpans>,
}

/// A process.
#[derive(Clone, PartialEq, Message)]
pub struct Resource {
    /// What it is.
    #[prost(message, repeated, tag = "1")]
    pub attributes: Vec<KeyValue>,
}

/// Spans that one library tells of.
#[derive(Clone, PartialEq, Message)]
pub struct ScopeSpans {
    /// Which.
    #[prost(message, optional, tag = "1")]
    pub scope: Option<Scope>,
    /// The spans.
    #[prost(message, repeated, tag = "2")]
    pub spans: Vec<SpanMessage>,
}

/// A library.
#[derive(Clone, PartialEq, Message)]
pub struct Scope {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its version.
    #[prost(string, tag = "2")]
    pub version: String,
}

/// A span.
#[derive(Clone, PartialEq, Message)]
pub struct SpanMessage {
    /// 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub trace_id: Vec<u8>,
    /// 8 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub span_id: Vec<u8>,
    /// 8 bytes; empty of the first of a trace.
    #[prost(bytes = "vec", tag = "4")]
    pub parent_span_id: Vec<u8>,
    /// Such as `forward`.
    #[prost(string, tag = "5")]
    pub name: String,
    /// Which side it is.
    #[prost(enumeration = "SpanKind", tag = "6")]
    pub kind: i32,
    /// Nanoseconds since the Unix epoch.
    #[prost(fixed64, tag = "7")]
    pub start_time_unix_nano: u64,
    /// The same.
    #[prost(fixed64, tag = "8")]
    pub end_time_unix_nano: u64,
    /// What there is to say of it.
    #[prost(message, repeated, tag = "9")]
    pub attributes: Vec<KeyValue>,
}

/// Which side of a call a span is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum SpanKind {
    /// Not said.
    Unspecified = 0,
    /// Inside a process.
    Internal = 1,
    /// Of who is asked.
    Server = 2,
}

/// Something by a name.
#[derive(Clone, PartialEq, Message)]
pub struct KeyValue {
    /// The name.
    #[prost(string, tag = "1")]
    pub key: String,
    /// What.
    #[prost(message, optional, tag = "2")]
    pub value: Option<AnyValue>,
}

/// A value.
#[derive(Clone, PartialEq, Message)]
pub struct AnyValue {
    /// It.
    #[prost(oneof = "Value", tags = "1, 3")]
    pub value: Option<Value>,
}

/// A text or a number.
#[derive(Clone, PartialEq, Oneof)]
pub enum Value {
    /// A text.
    #[prost(string, tag = "1")]
    Text(String),
    /// A number.
    #[prost(int64, tag = "3")]
    Number(i64),
}

impl KeyValue {
    /// A text by a name.
    pub fn text(key: &str, text: impl Into<String>) -> Self {
        Self::of(key, Value::Text(text.into()))
    }

    /// A number by a name.
    pub fn number(key: &str, number: u64) -> Self {
        Self::of(
            key,
            Value::Number(i64::try_from(number).unwrap_or(i64::MAX)),
        )
    }

    fn of(key: &str, value: Value) -> Self {
        Self {
            key: key.to_owned(),
            value: Some(AnyValue { value: Some(value) }),
        }
    }
}
