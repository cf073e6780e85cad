//! Types of the fields of tasks and sections, from the values of their keys.

use std::ops::Range;
use std::path::PathBuf;

use crate::Value;

/// The type of a field in Rust.
pub trait Typed: Sized {
    /// From a value; `None` if the type cannot have it.
    fn typed(value: &Value) -> Option<Self>;
}

macro_rules! whole {
    ($($type:ty),*) => { $(
        impl Typed for $type {
            fn typed(value: &Value) -> Option<Self> {
                let Value::Int(number) = value else { return None };
                (*number).try_into().ok()
            }
        }
    )* };
}

whole!(i64, u32, u64, usize);

impl Typed for f64 {
    fn typed(value: &Value) -> Option<Self> {
        let Value::Float(number) = value else {
            return None;
        };
        Some(*number)
    }
}

impl Typed for bool {
    fn typed(value: &Value) -> Option<Self> {
        let Value::Bool(flag) = value else {
            return None;
        };
        Some(*flag)
    }
}

impl Typed for String {
    fn typed(value: &Value) -> Option<Self> {
        let Value::Text(text) = value else {
            return None;
        };
        Some(text.clone())
    }
}

impl Typed for PathBuf {
    fn typed(value: &Value) -> Option<Self> {
        String::typed(value).map(Self::from)
    }
}

impl Typed for Vec<String> {
    fn typed(value: &Value) -> Option<Self> {
        let Value::Texts(list) = value else {
            return None;
        };
        Some(list.clone())
    }
}

impl Typed for Vec<PathBuf> {
    fn typed(value: &Value) -> Option<Self> {
        let list = Vec::<String>::typed(value)?;
        Some(list.into_iter().map(PathBuf::from).collect())
    }
}

impl Typed for Vec<i64> {
    fn typed(value: &Value) -> Option<Self> {
        let Value::Ints(list) = value else {
            return None;
        };
        Some(list.clone())
    }
}

impl Typed for Vec<u32> {
    fn typed(value: &Value) -> Option<Self> {
        let list = Vec::<i64>::typed(value)?.into_iter();
        list.map(|number| number.try_into().ok()).collect()
    }
}

/// `None` is written as an empty text.
impl Typed for Option<String> {
    fn typed(value: &Value) -> Option<Self> {
        String::typed(value).map(|text| Some(text).filter(|text| !text.is_empty()))
    }
}

/// `None` is written as 0.
impl Typed for Option<u32> {
    fn typed(value: &Value) -> Option<Self> {
        u32::typed(value).map(|number| Some(number).filter(|number| *number > 0))
    }
}

/// Of a list of so many numbers.
impl<const N: usize> Typed for [u32; N] {
    fn typed(value: &Value) -> Option<Self> {
        Vec::<u32>::typed(value)?.try_into().ok()
    }
}

/// Of a list of two numbers: the first, and the one after the last.
impl Typed for Range<usize> {
    fn typed(value: &Value) -> Option<Self> {
        let [begin, end] = Vec::<i64>::typed(value)?.try_into().ok()?;
        Some(begin.try_into().ok()?..end.try_into().ok()?)
    }
}
