//! Sections whose fields are read as they stand in the file: [`section!`] says once what a key is called, what it
//! takes, what it means, and which field it is read into.

use super::{Typed, Values};

/// Defines a section as a struct. A key is documented by the comment of its field, which has to be understood
/// without others; what is worth saying to those who read the field alone stands in the type.
macro_rules! section {
    (
        $(#[$doc:meta])*
        $Type:ident {
            $(
                $(#[doc = $field_doc:literal])+
                $field:ident: $type:ty = $key:literal, $kind:expr, default $default:literal;
            )*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $Type {
            $( $(#[doc = $field_doc])+ pub $field: $type ),*
        }

        impl $Type {
            /// Its keys.
            pub(crate) const KEYS: &'static [$crate::key::Key] = {
                #[allow(unused_imports, reason = "a section has keys of some kinds")]
                use $crate::{Kind::*, key::{float, int}};
                &[ $(
                    $crate::key::key($key, $kind, Some($default), concat!($($field_doc),+).trim_ascii())
                ),* ]
            };

            /// From the values of its keys.
            pub(crate) fn of(values: &$crate::Values<'_>) -> Self {
                Self { $( $field: $crate::section::typed(values, $key) ),* }
            }
        }
    };
}

pub(crate) use section;

/// The value of a key as its field's type.
pub(crate) fn typed<T: Typed>(values: &Values<'_>, key: &str) -> T {
    let value = T::typed(values.get(key));
    value.expect("a field can have what its key takes")
}
