//! Where fresh values come, beside the values that the model computes with.

use std::ops::Range;

use tch::{Device, Kind, Tensor};
use tradewind_client::destination::Destination;
use tradewind_common::Layout;
use tradewind_common::layout::Stretch;

use super::HostError;
use crate::c10d::C10dError;
use crate::flat::Flat;
use crate::stream::{Event, PageLocked, Stream, copy, copy_each, torch};

/// A vector of the elements, without gaps, of which only a rank's slice is in use. What comes is in the model
/// once it is [loaded](Self::load).
pub trait Fresh: Destination + Send {
    /// Makes the slice as last pulled the model's. On a device that is in the order of the current
    /// stream; all that has arrived is there when this returns.
    fn load(&mut self, flat: &mut Flat) -> Result<(), HostError>;
}

/// In main memory.
pub(super) struct Beside {
    slice: Vec<Stretch>,
    values: Vec<f32>,
}

impl Beside {
    /// For a slice of a flat vector.
    pub(super) fn new(layout: &Layout, slice: Vec<Stretch>) -> Self {
        Self {
            slice,
            values: vec![0.0; layout.elements()],
        }
    }
}

impl Fresh for Beside {
    fn load(&mut self, flat: &mut Flat) -> Result<(), HostError> {
        for Stretch { elements, memory } in &self.slice {
            flat.put(memory.start, &self.values[elements.clone()]);
        }
        Ok(())
    }
}

impl Destination for Beside {
    fn values(&mut self) -> &mut [f32] {
        &mut self.values
    }
}

/// The way to a device. Each block is copied when it arrives, so that nothing but a copy on the
/// device is left to do between two steps.
pub(super) struct Double {
    device: Device,
    stream: Stream,
    values: PageLocked,
    /// Views of `values`' double on the device, and of the flat vector, for each stretch of the slice.
    double: Tensor,
    from: Vec<Tensor>,
    to: Vec<Tensor>,
    failed: Option<C10dError>,
}

impl Double {
    /// For a slice of `flat`, which is on a device or plays one.
    pub(super) fn new(layout: &Layout, slice: &[Stretch], flat: &Flat) -> Result<Self, HostError> {
        let device = flat.device();
        let elements = layout.elements();
        let double = Tensor::f_zeros([elements as i64], (Kind::Float, device));
        let double = double.map_err(torch("making a double of the parameters"))?;
        let stream = Stream::new(device)?;
        stream.after(Event::now(device)?)?;
        Ok(Self {
            device,
            stream,
            values: PageLocked::new(elements, Kind::Float, device)?,
            from: slice
                .iter()
                .map(|stretch| part(&double, &stretch.elements))
                .collect::<Result<_, _>>()?,
            to: flat.ranges(&slice.iter().map(|s| s.memory.clone()).collect::<Vec<_>>())?,
            double,
            failed: None,
        })
    }

    fn copy_to_device(&mut self, elements: &Range<usize>) -> Result<(), C10dError> {
        // SAFETY: the copy only reads; what has `arrived` is not written before `load` has waited for it.
        let from = part(unsafe { self.values.tensor() }, elements)?;
        let to = part(&self.double, elements)?;
        self.stream.enqueue(move || copy(&to, &from))
    }
}

impl Fresh for Double {
    fn load(&mut self, _flat: &mut Flat) -> Result<(), HostError> {
        if let Some(error) = self.failed.take() {
            return Err(error.into());
        }
        // The next exchange writes main memory from the host: its copies must have been read.
        self.stream.event()?.wait()?;
        copy_each(&self.to, &self.from)?;
        // And it writes the double.
        Ok(self.stream.after(Event::now(self.device)?)?)
    }
}

impl Drop for Double {
    /// The memory is free for others only when nothing is copied there any more.
    fn drop(&mut self) {
        let _ = self.stream.event().and_then(|event| event.wait());
    }
}

impl Destination for Double {
    fn values(&mut self) -> &mut [f32] {
        self.values.f32_mut()
    }

    fn arrived(&mut self, elements: &Range<usize>) {
        if let Err(error) = self.copy_to_device(elements) {
            self.failed.get_or_insert(error);
        }
    }
}

fn part(all: &Tensor, range: &Range<usize>) -> Result<Tensor, C10dError> {
    let narrow = all.f_narrow(0, range.start as i64, range.len() as i64);
    narrow.map_err(torch("a range of the flat vector"))
}
