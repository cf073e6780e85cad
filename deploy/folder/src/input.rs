//! Wrong input: what a verb was given and cannot use.

use std::fmt;

use tradewind_common::exit::Exit;
use tradewind_config::ConfigError;

/// What was named on the command line is not there, or is something else; nothing was begun.
#[derive(Debug)]
pub struct BadInput(pub String);

impl fmt::Display for BadInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadInput {}

/// What a verb ends with when it has failed: it tells wrong input from everything else.
pub fn exit(error: &anyhow::Error) -> Exit {
    match error.is::<BadInput>() || error.is::<ConfigError>() {
        true => Exit::BadInput,
        false => Exit::Failed,
    }
}
