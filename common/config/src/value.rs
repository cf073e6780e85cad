//! Values of configuration keys: types, ranges, and their form in TOML.

use std::fmt;
use std::path::Path;

use toml_edit::{Item, Value as Toml};

/// Type and range of a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// An integer.
    Int {
        /// The least.
        min: i64,
        /// The most.
        max: i64,
    },
    /// A number.
    Float {
        /// The least.
        min: f64,
        /// The most.
        max: f64,
    },
    /// `true` or `false`.
    Bool,
    /// Text.
    Text,
    /// A path, which in a file is relative to the file's folder; `""` is none.
    Path,
    /// One of these.
    Choice(&'static [&'static str]),
    /// A list of integers, not empty.
    Ints {
        /// The least of each.
        min: i64,
        /// The most of each.
        max: i64,
        /// How many, if that is fixed.
        length: Option<usize>,
    },
    /// A list of integers that may be empty.
    IntsOrNone {
        /// The least of each.
        min: i64,
        /// The most of each.
        max: i64,
    },
    /// A list of numbers that may be empty.
    FloatsOrNone {
        /// The least of each.
        min: f64,
        /// The most of each.
        max: f64,
    },
    /// A list of pairs of integers that may be empty.
    Pairs {
        /// The least of the first and of the second.
        min: [i64; 2],
        /// The most of them.
        max: [i64; 2],
    },
    /// A list of texts, not empty.
    Texts,
    /// A list of texts that may be empty.
    TextsOrNone,
    /// A list of paths, not empty, which in a file are relative to the file's folder.
    Paths,
}

/// A value that its kind allows.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// An integer.
    Int(i64),
    /// A number.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// Text or a choice.
    Text(String),
    /// A list of integers.
    Ints(Vec<i64>),
    /// A list of numbers.
    Floats(Vec<f64>),
    /// A list of pairs of integers.
    Pairs(Vec<[i64; 2]>),
    /// A list of texts.
    Texts(Vec<String>),
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int { min, max } => write!(f, "integer, {} to {}", Bound(*min), Bound(*max)),
            Self::Float { min, max } => write!(f, "number, {min} to {max}"),
            Self::Bool => f.write_str("true or false"),
            Self::Text => f.write_str("text"),
            Self::Path => f.write_str("path"),
            Self::Choice(choices) => {
                let quoted: Vec<_> = choices.iter().map(|c| format!("`{c}`")).collect();
                f.write_str(&quoted.join(", "))
            }
            Self::Ints { min, max, length } => {
                let many = length.map_or("list of".to_owned(), |n| format!("list of {n}"));
                write!(f, "{many} integers, {} to {}", Bound(*min), Bound(*max))
            }
            Self::IntsOrNone { min, max } => {
                let (min, max) = (Bound(*min), Bound(*max));
                write!(f, "list of integers, {min} to {max}, may be empty")
            }
            Self::FloatsOrNone { min, max } => {
                write!(f, "list of numbers, {min} to {max}, may be empty")
            }
            Self::Pairs { min, max } => {
                let bounds = |at: usize| format!("{} to {}", Bound(min[at]), Bound(max[at]));
                let (first, second) = (bounds(0), bounds(1));
                write!(
                    f,
                    "list of pairs of integers, [{first}, {second}], may be empty"
                )
            }
            Self::Texts => f.write_str("list of texts"),
            Self::TextsOrNone => f.write_str("list of texts, may be empty"),
            Self::Paths => f.write_str("list of paths"),
        }
    }
}

/// Large round bounds read better as powers.
struct Bound(i64);

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            i64::MAX => f.write_str("2^63 − 1"),
            1_000_000_000_000 => f.write_str("10^12"),
            -1_000_000_000_000 => f.write_str("−10^12"),
            n => write!(f, "{n}"),
        }
    }
}

impl Kind {
    /// Whether its values are paths, which may differ between machines.
    pub(super) fn is_path(self) -> bool {
        matches!(self, Self::Path | Self::Paths)
    }

    /// The value of TOML text, or what is wrong with it.
    pub(super) fn read_text(self, text: &str) -> Result<Value, String> {
        let value: Toml = text.parse().map_err(|_| format!("is no TOML: {text}"))?;
        self.read(&Item::Value(value))
    }

    /// The value of a TOML item, or what is wrong with it, to stand behind the name of its key.
    pub(super) fn read(self, item: &Item) -> Result<Value, String> {
        let toml = item
            .as_value()
            .ok_or_else(|| format!("is a table; it takes {}", self.wanted()))?;
        let found = || {
            let (found, wanted) = (describe(toml), self.wanted());
            format!("{found}; it takes {wanted}{}", self.hint(toml))
        };
        let in_range = |n: i64, min, max| {
            if (min..=max).contains(&n) {
                Ok(n)
            } else {
                Err(found())
            }
        };
        let float = |toml: &Toml, min: f64, max: f64| {
            let number = toml.as_float();
            let number = number.or_else(|| toml.as_integer().map(|n| n as f64));
            let number = number.filter(|number| (min..=max).contains(number));
            number.ok_or_else(found)
        };
        match self {
            Self::Int { min, max } => Ok(Value::Int(in_range(
                toml.as_integer().ok_or_else(found)?,
                min,
                max,
            )?)),
            Self::Float { min, max } => Ok(Value::Float(float(toml, min, max)?)),
            Self::FloatsOrNone { min, max } => {
                let list = toml.as_array().ok_or_else(found)?;
                let floats = list.iter().map(|number| float(number, min, max));
                Ok(Value::Floats(floats.collect::<Result<_, _>>()?))
            }
            Self::Bool => toml.as_bool().map(Value::Bool).ok_or_else(found),
            Self::Text | Self::Path => toml
                .as_str()
                .map(|s| Value::Text(s.to_owned()))
                .ok_or_else(found),
            Self::Choice(choices) => match toml.as_str() {
                Some(text) if choices.contains(&text) => Ok(Value::Text(text.to_owned())),
                Some(text) => Err(found() + &suggestion(text, choices.iter().copied(), 0.75)),
                None => Err(found()),
            },
            Self::IntsOrNone { min, max } => {
                let list = toml.as_array().ok_or_else(found)?;
                let int = |v: &Toml| in_range(v.as_integer().ok_or_else(found)?, min, max);
                Ok(Value::Ints(list.iter().map(int).collect::<Result<_, _>>()?))
            }
            Self::Ints { min, max, length } => {
                let list = toml.as_array().ok_or_else(found)?;
                if list.is_empty() || length.is_some_and(|n| n != list.len()) {
                    return Err(found());
                }
                let int = |v: &Toml| in_range(v.as_integer().ok_or_else(found)?, min, max);
                Ok(Value::Ints(list.iter().map(int).collect::<Result<_, _>>()?))
            }
            Self::Pairs { min, max } => {
                let int = |v: &Toml, at: usize| {
                    in_range(v.as_integer().ok_or_else(found)?, min[at], max[at])
                };
                let pair = |v: &Toml| {
                    let pair = v.as_array().filter(|pair| pair.len() == 2);
                    let mut pair = pair.ok_or_else(found)?.iter();
                    let mut next = |at| int(pair.next().expect("two of them"), at);
                    Ok::<_, String>([next(0)?, next(1)?])
                };
                let list = toml.as_array().ok_or_else(found)?;
                Ok(Value::Pairs(
                    list.iter().map(pair).collect::<Result<_, _>>()?,
                ))
            }
            Self::Texts | Self::TextsOrNone | Self::Paths => {
                let may_be_empty = self == Self::TextsOrNone;
                let list = toml
                    .as_array()
                    .filter(|list| may_be_empty || !list.is_empty())
                    .ok_or_else(found)?;
                let text = |v: &Toml| v.as_str().map(str::to_owned).ok_or_else(found);
                Ok(Value::Texts(
                    list.iter().map(text).collect::<Result<_, _>>()?,
                ))
            }
        }
    }
}

impl Value {
    /// A value of this kind in which paths are absolute.
    pub(super) fn absolute(&self, kind: Kind, folder: &Path) -> Self {
        let absolute = |path: &String| match path.as_str() {
            "" => String::new(),
            path => folder.join(path).to_string_lossy().into_owned(),
        };
        match self {
            Self::Text(path) if kind == Kind::Path => Self::Text(absolute(path)),
            Self::Texts(paths) if kind == Kind::Paths => {
                Self::Texts(paths.iter().map(absolute).collect())
            }
            other => other.clone(),
        }
    }
}

impl Kind {
    /// What a key of this kind takes, in a sentence.
    fn wanted(self) -> String {
        match self {
            Self::Int { min, max } => {
                format!("an integer from {} to {}", Bound(min), Bound(max))
            }
            Self::Float { min, max } => format!("a number from {min} to {max}"),
            Self::Bool => "true or false".into(),
            Self::Text => "text".into(),
            Self::Path => "a path".into(),
            Self::Choice(choices) => {
                let quoted: Vec<_> = choices.iter().map(|c| format!("{c:?}")).collect();
                format!("one of {}", quoted.join(", "))
            }
            Self::Ints { min, max, length } => {
                let many = length.map_or(String::new(), |n| format!("{n} "));
                let (min, max) = (Bound(min), Bound(max));
                format!("a list of {many}integers from {min} to {max}")
            }
            Self::IntsOrNone { min, max } => {
                let (min, max) = (Bound(min), Bound(max));
                format!("a list of integers from {min} to {max}, or []")
            }
            Self::FloatsOrNone { min, max } => {
                format!("a list of numbers from {min} to {max}, or []")
            }
            Self::Pairs { min, max } => {
                let bounds = |at: usize| format!("{} to {}", Bound(min[at]), Bound(max[at]));
                let (first, second) = (bounds(0), bounds(1));
                format!("a list of pairs of integers, each [{first}, {second}], or []")
            }
            Self::Texts => "a list of texts".into(),
            Self::Paths => "a list of paths".into(),
            Self::TextsOrNone => "a list of texts, or []".into(),
        }
    }

    /// How to write what was meant, where that is plain.
    fn hint(self, found: &Toml) -> String {
        match (self, found) {
            (Self::Int { .. }, Toml::Float(number)) => {
                let number = *number.value();
                let whole = number.fract() == 0.0 && number.abs() < 1e15;
                whole.then(|| format!("; write {number:.0}"))
            }
            (Self::Ints { length: None, .. } | Self::IntsOrNone { .. }, Toml::Integer(number)) => {
                let number = number.value();
                Some(format!(", such as [{number}, {number}]"))
            }
            (Self::Texts | Self::TextsOrNone | Self::Paths, Toml::String(text)) => {
                let list = Value::Texts(vec![text.value().clone()]);
                Some(format!(
                    "; write {list}, on the command line in single quotes"
                ))
            }
            (Self::Text | Self::Path, other) if !other.is_array() && !other.is_inline_table() => {
                Some("; write it in quotes".into())
            }
            _ => None,
        }
        .unwrap_or_default()
    }
}

impl fmt::Display for Value {
    /// As TOML.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted = |text: &String| Toml::from(text.as_str()).to_string();
        match self {
            Self::Int(n) => write!(f, "{n}"),
            Self::Float(x) => write!(f, "{x:?}"),
            Self::Bool(b) => write!(f, "{b}"),
            Self::Text(text) => f.write_str(&quoted(text)),
            Self::Ints(list) => write!(f, "{list:?}"),
            Self::Floats(list) => write!(f, "{list:?}"),
            Self::Pairs(list) => write!(f, "{list:?}"),
            Self::Texts(list) => {
                write!(
                    f,
                    "[{}]",
                    list.iter().map(quoted).collect::<Vec<_>>().join(", ")
                )
            }
        }
    }
}

fn describe(toml: &Toml) -> String {
    let text = toml.clone().decorated("", "").to_string();
    if text.chars().count() > 60 {
        format!("is a long {}", toml.type_name())
    } else {
        format!("= {text}")
    }
}

/// `; did you mean "x"?` if one of `candidates` has at least this Jaro-Winkler similarity.
pub(super) fn suggestion<'a>(
    word: &str,
    candidates: impl Iterator<Item = &'a str>,
    least: f64,
) -> String {
    let near = |candidate: &'a str| (strsim::jaro_winkler(word, candidate), candidate);
    let best = candidates.map(near).max_by(|a, b| a.0.total_cmp(&b.0));
    match best {
        Some((similarity, candidate)) if similarity >= least => {
            format!("; did you mean {candidate:?}?")
        }
        _ => String::new(),
    }
}
