//! What an exchange pushes.

use std::borrow::Cow;
use std::sync::Arc;

use tradewind_common::BlockId;

use crate::parts::Parts;

/// A block's values to push.
pub type Source<'a, 'v> = &'a (dyn Fn(BlockId) -> Cow<'v, [f32]> + 'a);

/// Where the values to push come from.
#[derive(Clone, Copy)]
pub(crate) enum Pushed<'a, 'v> {
    /// All of them are there.
    Whole(Source<'a, 'v>),
    /// They come bucket by bucket.
    Parts(&'a Parts),
}

/// What a group contributes with one rank's slice.
pub struct Contribution<'a> {
    /// The gradient is the mean over so many samples.
    pub samples: u32,
    /// The gradient, and what the steps have made of buffers.
    pub values: Contributed<'a>,
}

/// Where the values of a contribution are, or come.
pub enum Contributed<'a> {
    /// All of them are there: a block's as this says, until the call that pushes them returns.
    Whole(Box<dyn Fn(BlockId) -> Cow<'a, [f32]> + 'a>),
    /// They come bucket by bucket.
    Parts(Arc<Parts>),
}
