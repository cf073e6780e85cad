//! Where fresh values arrive.

use std::ops::Range;

/// Main memory laid out as the flat vector, into which an exchange writes the blocks of its slice.
pub trait Destination {
    /// The whole vector.
    fn values(&mut self) -> &mut [f32];

    /// The values of a block, which has this range, are all here and are not written again in this
    /// exchange.
    fn arrived(&mut self, elements: &Range<usize>) {
        let _ = elements;
    }
}

impl Destination for [f32] {
    fn values(&mut self) -> &mut [f32] {
        self
    }
}

impl Destination for Vec<f32> {
    fn values(&mut self) -> &mut [f32] {
        self
    }
}

impl<D: Destination + ?Sized> Destination for Box<D> {
    fn values(&mut self) -> &mut [f32] {
        (**self).values()
    }

    fn arrived(&mut self, elements: &Range<usize>) {
        (**self).arrived(elements);
    }
}

impl<D: Destination + ?Sized> Destination for &mut D {
    fn values(&mut self) -> &mut [f32] {
        (**self).values()
    }

    fn arrived(&mut self, elements: &Range<usize>) {
        (**self).arrived(elements);
    }
}
