//! Definitions of tasks as JSON: what a worker program tells of its own ones, and what is kept in the
//! folder of a run that trains one of them.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::TaskDefinition;
use crate::key::Key;
use crate::value::Kind;

#[derive(Serialize, Deserialize)]
struct Answer {
    /// The version of Tradewind that the program is built with.
    tradewind: String,
    tasks: Vec<TaskIs>,
}

#[derive(Serialize, Deserialize)]
struct TaskIs {
    name: String,
    about: String,
    validation_metric: String,
    keys: Vec<KeyIs>,
}

#[derive(Serialize, Deserialize)]
struct KeyIs {
    name: String,
    #[serde(flatten)]
    kind: KindIs,
    #[serde(skip_serializing_if = "Option::is_none")]
    default: Option<String>,
    meaning: String,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum KindIs {
    Int {
        min: i64,
        max: i64,
    },
    Float {
        min: f64,
        max: f64,
    },
    Bool,
    Text,
    Path,
    Choice {
        of: Vec<String>,
    },
    Ints {
        min: i64,
        max: i64,
        length: Option<usize>,
    },
    IntsOrNone {
        min: i64,
        max: i64,
    },
    FloatsOrNone {
        min: f64,
        max: f64,
    },
    Pairs {
        min: [i64; 2],
        max: [i64; 2],
    },
    Texts,
    TextsOrNone,
    Paths,
}

impl From<Kind> for KindIs {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Int { min, max } => Self::Int { min, max },
            Kind::Float { min, max } => Self::Float { min, max },
            Kind::Bool => Self::Bool,
            Kind::Text => Self::Text,
            Kind::Path => Self::Path,
            Kind::Choice(of) => Self::Choice {
                of: of.iter().map(|name| (*name).to_owned()).collect(),
            },
            Kind::Ints { min, max, length } => Self::Ints { min, max, length },
            Kind::IntsOrNone { min, max } => Self::IntsOrNone { min, max },
            Kind::FloatsOrNone { min, max } => Self::FloatsOrNone { min, max },
            Kind::Pairs { min, max } => Self::Pairs { min, max },
            Kind::Texts => Self::Texts,
            Kind::TextsOrNone => Self::TextsOrNone,
            Kind::Paths => Self::Paths,
        }
    }
}

impl From<KindIs> for Kind {
    fn from(kind: KindIs) -> Self {
        match kind {
            KindIs::Int { min, max } => Self::Int { min, max },
            KindIs::Float { min, max } => Self::Float { min, max },
            KindIs::Bool => Self::Bool,
            KindIs::Text => Self::Text,
            KindIs::Path => Self::Path,
            KindIs::Choice { of } => {
                let of: Vec<&'static str> = of.into_iter().map(leak).collect();
                Self::Choice(of.leak())
            }
            KindIs::Ints { min, max, length } => Self::Ints { min, max, length },
            KindIs::IntsOrNone { min, max } => Self::IntsOrNone { min, max },
            KindIs::FloatsOrNone { min, max } => Self::FloatsOrNone { min, max },
            KindIs::Pairs { min, max } => Self::Pairs { min, max },
            KindIs::Texts => Self::Texts,
            KindIs::TextsOrNone => Self::TextsOrNone,
            KindIs::Paths => Self::Paths,
        }
    }
}

/// Definitions live as long as the process. A process reads few of them: those of the programs and
/// recorded runs that a person has named.
fn leak(text: String) -> &'static str {
    text.leak()
}

/// The definitions as JSON, with the version of Tradewind that knows them.
pub fn description<'a>(tasks: impl Iterator<Item = &'a TaskDefinition>) -> String {
    let key = |key: &Key| KeyIs {
        name: key.name.into(),
        kind: key.kind.into(),
        default: key.default.map(str::to_owned),
        meaning: key.meaning.into(),
    };
    let answer = Answer {
        tradewind: env!("CARGO_PKG_VERSION").into(),
        tasks: tasks
            .map(|task| TaskIs {
                name: task.name.into(),
                about: task.about.into(),
                validation_metric: task.validation_metric.into(),
                keys: task.keys.iter().map(key).collect(),
            })
            .collect(),
    };
    serde_json::to_string(&answer).expect("text and numbers")
}

/// Reads what [`description`] writes.
///
/// # Errors
/// It is something else.
pub fn described(text: &str) -> Result<Vec<TaskDefinition>, String> {
    /// By their text. An experiment reads the same one again and again.
    static KNOWN: Mutex<BTreeMap<String, Vec<TaskDefinition>>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = known.get(text) {
        return Ok(known.clone());
    }
    let definitions = read(text)?;
    known.insert(text.to_owned(), definitions.clone());
    Ok(definitions)
}

fn read(text: &str) -> Result<Vec<TaskDefinition>, String> {
    let answer: Answer = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let task = |task: TaskIs| {
        let name = leak(task.name);
        let keys = task.keys.into_iter().map(|key| Key {
            name: leak(key.name),
            kind: key.kind.into(),
            default: key.default.map(leak),
            tasks: vec![name].leak(),
            meaning: leak(key.meaning),
        });
        TaskDefinition {
            name,
            about: leak(task.about),
            validation_metric: leak(task.validation_metric),
            keys: keys.collect::<Vec<Key>>().leak(),
        }
    };
    Ok(answer.tasks.into_iter().map(task).collect())
}
