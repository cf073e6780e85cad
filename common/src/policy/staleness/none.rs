use super::Ask;
use crate::choice;

choice! {
    /// A gradient is applied as it is, whatever its delay.
    "none" ("applies it as it is") is None {}
}

impl Ask for None {
    fn acts(&self) -> bool {
        false
    }
}
