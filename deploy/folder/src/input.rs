//! Wrong input: what a verb was given and cannot use.

use std::fmt;

use tradewind_common::exit::Exit;
use tradewind_config::ConfigError;
use tradewind_process::{Docs, complain};

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

/// Complains about what made a verb fail, and names the page of the documentation that has more. Returns what
/// [`exit`] says.
pub fn fail(error: &anyhow::Error, page: Docs) -> Exit {
    tell(error, page);
    exit(error)
}

/// The same of a verb that has not begun, because of what it was given.
pub fn refuse(error: &anyhow::Error, page: Docs) -> Exit {
    tell(error, page);
    Exit::BadInput
}

/// Of a configuration the page has a section for each that is wrong.
fn tell(error: &anyhow::Error, page: Docs) {
    complain!("{error:#}");
    let sections = error.downcast_ref().map(ConfigError::sections);
    match sections.unwrap_or_default().as_slice() {
        [] => page.point(),
        sections => Docs::CONFIGURATION.point_to(sections),
    }
}
