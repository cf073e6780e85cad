//! From a value to the words of a command line. The name of an argument is that of its field, as clap
//! has it: `--lease-ms=5000` of `lease_ms`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Something that stands on a command line under the name of its field.
pub(crate) trait Render {
    /// Appends its words; none if it is not given.
    fn render(&self, field: &str, words: &mut Vec<OsString>);
}

/// The words of fields, in the order in which they are named.
macro_rules! render {
    ($($field:ident),* $(,)?) => {{
        let mut words = Vec::new();
        $($crate::render::Render::render($field, stringify!($field), &mut words);)*
        words
    }};
}
pub(crate) use render;

/// `--field=value`, in one word: a value that begins with a dash is no other argument then.
fn option(field: &str, value: impl Into<OsString>) -> OsString {
    let mut word = OsString::from(format!("--{}=", field.replace('_', "-")));
    word.push(value.into());
    word
}

macro_rules! by_display {
    ($($type:ty),*) => {$(
        impl Render for $type {
            fn render(&self, field: &str, words: &mut Vec<OsString>) {
                words.push(option(field, self.to_string()));
            }
        }
    )*};
}

by_display!(i32, u32, u64, usize, String, SocketAddr);

impl Render for PathBuf {
    fn render(&self, field: &str, words: &mut Vec<OsString>) {
        words.push(option(field, self));
    }
}

impl<T: Render> Render for Option<T> {
    fn render(&self, field: &str, words: &mut Vec<OsString>) {
        if let Some(value) = self {
            value.render(field, words);
        }
    }
}

/// A flag: its name, or nothing.
impl Render for bool {
    fn render(&self, field: &str, words: &mut Vec<OsString>) {
        if *self {
            words.push(format!("--{}", field.replace('_', "-")).into());
        }
    }
}
