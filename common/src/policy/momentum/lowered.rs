use super::Ask;
use crate::choice;

choice! {
    /// It is what remains of the optimizer's when the live groups have had their part (Mitliagkas et al.
    /// 2016, "Asynchrony begets Momentum", theorem 3).
    "lowered" ("it is what remains of that value when the part that so many live groups add is taken away") is Lowered {}
}

impl Ask for Lowered {}
