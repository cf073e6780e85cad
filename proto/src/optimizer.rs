//! What is done with a gradient: for the wire and from it.

use tradewind_common::pieces::Norms;
use tradewind_common::spec::DecayExempt;

use crate::malformed::{Malformed, malformed};
use crate::v1;

impl From<Norms> for v1::Norms {
    fn from(Norms { values, gradient }: Norms) -> Self {
        Self { values, gradient }
    }
}

impl From<v1::Norms> for Norms {
    fn from(v1::Norms { values, gradient }: v1::Norms) -> Self {
        Self { values, gradient }
    }
}

impl From<DecayExempt> for v1::DecayExempt {
    fn from(exempt: DecayExempt) -> Self {
        match exempt {
            DecayExempt::None => Self::None,
            DecayExempt::Vectors => Self::Vectors,
        }
    }
}

pub(crate) fn decay_exempt(wire: i32) -> Result<DecayExempt, Malformed> {
    match v1::DecayExempt::try_from(wire) {
        Ok(v1::DecayExempt::None) => Ok(DecayExempt::None),
        Ok(v1::DecayExempt::Vectors) => Ok(DecayExempt::Vectors),
        Err(_) => Err(malformed(
            "decay_exempt",
            format!("{wire} is none that is known"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_travels_comes_back() {
        for exempt in [DecayExempt::None, DecayExempt::Vectors] {
            let wire = v1::DecayExempt::from(exempt).into();
            assert_eq!(decay_exempt(wire), Ok(exempt));
        }
        let unknown = decay_exempt(7).unwrap_err();
        assert_eq!(unknown.field, "decay_exempt");
    }
}
