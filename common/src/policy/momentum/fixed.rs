use super::Ask;
use crate::choice;

choice! {
    /// It is the optimizer's.
    "fixed" ("it is that value") is Fixed {}
}

impl Ask for Fixed {
    fn acts(&self) -> bool {
        false
    }
}
