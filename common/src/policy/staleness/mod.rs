//! What is done about a gradient by its delay τ: updates applied to the block between the pull that it
//! was computed on and its own application. One file a policy; the rule of each is in
//! `server/core/src/delay/`.

mod compensate;
mod compensate_adaptive;
mod drop;
mod none;
mod polynomial;
mod scale;

pub use compensate::Compensate;
pub use compensate_adaptive::CompensateAdaptive;
pub use drop::Drop;
pub use none::None;
pub use polynomial::Polynomial;
pub use scale::Scale;

use crate::choices;

choices! {
    /// What is done about a gradient by its delay. Of parameters: of buffers it only decides whether
    /// they are dropped.
    "staleness policy" is StalenessSpec, of which one may ask Ask {
        None,
        Scale,
        Polynomial,
        Drop,
        Compensate,
        CompensateAdaptive,
    }
}

/// What other settings may ask of a staleness policy, so that none of them needs to know its name.
pub trait Ask {
    /// Whether it does anything.
    fn acts(&self) -> bool {
        true
    }

    /// Whether a gradient may count less than once, by its delay.
    fn reweights(&self) -> bool {
        false
    }

    /// Whether it leaves gradients out.
    fn drops(&self) -> bool {
        false
    }

    /// Whether it brings a gradient to the present values, for which blocks keep the values that each
    /// group was sent.
    fn compensates(&self) -> bool {
        false
    }
}

impl StalenessSpec {
    /// Delay compensation, with a constant λ, or with one that follows the mean square of the gradients
    /// and keeps the part m of what that was.
    pub fn compensating(lambda: f64, mean_square_decay: Option<f64>) -> Self {
        match mean_square_decay {
            Option::None => Compensate { lambda }.into(),
            Some(mean_square_decay) => CompensateAdaptive {
                lambda,
                mean_square_decay,
            }
            .into(),
        }
    }
}

impl Default for StalenessSpec {
    fn default() -> Self {
        None {}.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As records have it since the first version; a constant λ was written with a decay of `null`.
    #[test]
    fn records_of_before_are_read() {
        let check = |text: &str, want: StalenessSpec| {
            let read: StalenessSpec = serde_json::from_str(text).unwrap();
            assert_eq!(read, want, "{text}");
            let written = serde_json::to_string(&read).unwrap();
            let again: StalenessSpec = serde_json::from_str(&written).unwrap();
            assert_eq!(again, want, "{written}");
        };
        check(r#""None""#, StalenessSpec::default());
        check(r#""Scale""#, Scale {}.into());
        check(r#"{"Drop":{"beyond":4}}"#, Drop { beyond: 4 }.into());
        check(
            r#"{"Compensate":{"lambda":0.5,"mean_square_decay":null}}"#,
            StalenessSpec::compensating(0.5, Option::None),
        );
        check(
            r#"{"Compensate":{"lambda":2.0,"mean_square_decay":0.75}}"#,
            StalenessSpec::compensating(2.0, Some(0.75)),
        );
    }
}
