//! What the C side says of a call.

use std::ffi::{CStr, c_char};
use std::ptr::NonNull;

use super::{C10dError, ffi};

/// What a call returns: nothing, or why it failed. Only the C side makes one with a text, so that whoever has a
/// message needs no promise to read it.
#[repr(transparent)]
pub(crate) struct Message(Option<NonNull<c_char>>);

impl Message {
    fn text(&self) -> Option<String> {
        let text = self.0?;
        // SAFETY: a C string that the C side has handed over; it lives until this is dropped.
        let text = unsafe { CStr::from_ptr(text.as_ptr()) };
        Some(text.to_string_lossy().into_owned())
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        if let Some(text) = self.0 {
            // SAFETY: it came from the C side and is freed once.
            unsafe { ffi::tradewind_message_free(text.as_ptr()) }
        }
    }
}

/// An error if a call failed that was to do `what`.
pub(crate) fn check(what: &'static str, message: Message) -> Result<(), C10dError> {
    message.text().map_or(Ok(()), |text| {
        Err(C10dError::Torch {
            what,
            message: without_stack(&text),
        })
    })
}

/// What a call has made that leaves it where it was told to.
pub(crate) fn made<T>(
    what: &'static str,
    message: Message,
    object: *mut T,
) -> Result<NonNull<T>, C10dError> {
    check(what, message)?;
    NonNull::new(object).ok_or_else(|| C10dError::Torch {
        what,
        message: "no object".into(),
    })
}

/// The text of a libtorch exception without the C++ stack that may follow it.
pub(crate) fn without_stack(text: &str) -> String {
    let end = text.find("\nException raised from").unwrap_or(text.len());
    text[..end].trim().to_owned()
}
