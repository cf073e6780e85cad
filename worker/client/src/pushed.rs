//! What an exchange pushes.

use std::borrow::Cow;

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
