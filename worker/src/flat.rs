//! The values of a model as views into one f32 buffer, in the order of its layout, on the device that the
//! model computes on.

use std::ops::Range;
use std::ptr;

use tch::{Device, Kind, Tensor};
use tradewind_common::layout::{Layout, Memory, PlacedTensor, TensorKind};

/// Why a model's tensors do not fit a layout.
#[derive(Debug, thiserror::Error)]
pub enum FlatError {
    /// Not as many tensors as the layout has.
    #[error("the model has {got} tensors, the layout {want}")]
    Count {
        /// Tensors of the model.
        got: usize,
        /// Tensors of the layout.
        want: usize,
    },
    /// Another tensor than the layout has in this place.
    #[error("tensor {got:?} stands where the layout has {want:?}")]
    Name {
        /// The model's name.
        got: String,
        /// The layout's name.
        want: String,
    },
    /// A tensor that is not what the layout says.
    #[error("tensor {name:?}: {why}")]
    Tensor {
        /// The tensor.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// libtorch refused.
    #[error("{0}")]
    Torch(#[from] tch::TchError),
}

/// All parameters and buffers of a model in one f32 vector: the model's tensors are views into it, so
/// that writing the vector changes the model. Each begins at a multiple of
/// [`ALIGN_BYTES`](tradewind_common::layout::ALIGN_BYTES) of one allocation, on every device; the gaps behind
/// them are 0. In main memory its values are copied [out](Self::get) and [in](Self::put); on a device only by
/// operations, in the order of their streams.
///
/// It lends no slices, because the model's tensors share its memory: a copy is an operation in place like
/// libtorch's own, on the thread that computes with the model. Values are not written between a forward and
/// its backward, because backward reads them again.
#[derive(Debug)]
pub struct Flat {
    /// Owns the memory.
    storage: Tensor,
    memory: Memory,
}

impl Flat {
    /// Moves the values of `tensors`, a model's own, named and in its order of creation, into one
    /// vector on `device` laid out as `layout` says, and makes each tensor a view of its range: the
    /// model moves with them. Values are preserved. To be called before the group is made and
    /// before any forward; libtorch then makes what accumulates gradients anew, on that device.
    ///
    /// Fails, with no tensor changed, unless names and shapes are the layout's and every tensor
    /// is an f32 leaf in main memory that requires a gradient exactly if it is a parameter.
    pub fn new(
        layout: &Layout,
        tensors: &[(String, Tensor)],
        device: Device,
    ) -> Result<Self, FlatError> {
        let tensors = in_layout_order(layout, tensors)?;
        let main = |tensor: &Tensor| tensor.device() == Device::Cpu;
        if let Some(at) = tensors.iter().position(|tensor| !main(tensor)) {
            return Err(FlatError::Tensor {
                name: layout.tensors[at].spec.name.clone(),
                why: format!("it is on {:?}, not in main memory", tensors[at].device()),
            });
        }
        let memory = Memory::of(layout);
        let main = Tensor::f_zeros([memory.len() as i64], (Kind::Float, Device::Cpu))?;
        let view = |storage: &Tensor, placed: &PlacedTensor| {
            let mut whole = memory.stretches(&placed.elements);
            let whole = whole.next().expect("no tensor is empty");
            view(storage, placed, whole.memory.start)
        };
        tch::no_grad(|| {
            for (tensor, placed) in tensors.iter().zip(&layout.tensors) {
                view(&main, placed)?.f_copy_(tensor)?;
            }
            // One copy to a device, none to main memory.
            let storage = main.f_to_device(device)?;
            for (mut tensor, placed) in tensors.into_iter().zip(&layout.tensors) {
                tensor.f_set_data(&view(&storage, placed)?)?;
            }
            Ok(storage)
        })
        .map(|storage| Self { storage, memory })
    }

    /// Where it is.
    pub fn device(&self) -> Device {
        self.storage.device()
    }

    /// The whole vector with its gaps: of one dimension, f32, contiguous.
    pub fn storage(&self) -> &Tensor {
        &self.storage
    }

    /// Where elements are in [`storage`](Self::storage).
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Views of ranges of [`storage`](Self::storage).
    pub fn ranges(&self, ranges: &[Range<usize>]) -> Result<Vec<Tensor>, FlatError> {
        let view = |range: &Range<usize>| {
            let (start, length) = (range.start as i64, range.len() as i64);
            Ok(self.storage.f_narrow(0, start, length)?)
        };
        ranges.iter().map(view).collect()
    }

    /// Views of a range of elements, in order: one where there is no gap in it.
    pub fn views(&self, elements: &Range<usize>) -> Result<Vec<Tensor>, FlatError> {
        let stretches = self.memory.stretches(elements);
        self.ranges(&stretches.map(|stretch| stretch.memory).collect::<Vec<_>>())
    }

    /// All elements, in main memory, copied; a device is waited for.
    pub fn read(&self) -> Vec<f32> {
        let main = self.storage.to_device(Device::Cpu);
        let mut values = Vec::with_capacity(self.memory.len());
        for stretch in self.memory.stretches(&(0..usize::MAX)) {
            let start = values.len();
            values.resize(start + stretch.memory.len(), 0.0);
            copy_out(&main, stretch.memory.start, &mut values[start..]);
        }
        values
    }

    /// Makes these all elements.
    ///
    /// # Panics
    /// If they are fewer.
    pub fn write(&mut self, values: &[f32]) -> Result<(), FlatError> {
        let length = self.memory.len() as i64;
        let mut main = Tensor::f_zeros([length], (Kind::Float, Device::Cpu))?;
        for stretch in self.memory.stretches(&(0..usize::MAX)) {
            copy_in(&mut main, stretch.memory.start, &values[stretch.elements]);
        }
        tch::no_grad(|| self.storage.f_copy_(&main))?;
        Ok(())
    }

    /// Copies what [`storage`](Self::storage) holds from its element `from` on.
    ///
    /// # Panics
    /// If it is not in main memory, or ends before.
    pub fn get(&self, from: usize, to: &mut [f32]) {
        copy_out(&self.storage, from, to);
    }

    /// Copies into [`storage`](Self::storage) from its element `to` on.
    ///
    /// # Panics
    /// If it is not in main memory, or ends before.
    pub fn put(&mut self, to: usize, from: &[f32]) {
        copy_in(&mut self.storage, to, from);
    }
}

fn copy_out(storage: &Tensor, from: usize, to: &mut [f32]) {
    let from = address(storage, from, to.len());
    // SAFETY: `address` has checked that so many values are there; `to` is no part of them, because nobody is lent
    // a slice of a flat vector.
    unsafe { ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) }
}

fn copy_in(storage: &mut Tensor, to: usize, from: &[f32]) {
    let to = address(storage, to, from.len());
    // SAFETY: as in `copy_out`.
    unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) }
}

/// Of `length` values from the element `start` on, in a contiguous f32 tensor in main memory.
fn address(storage: &Tensor, start: usize, length: usize) -> *mut f32 {
    assert_eq!(storage.device(), Device::Cpu, "a vector in main memory");
    assert!(storage.kind() == Kind::Float && storage.is_contiguous());
    let end = start.checked_add(length);
    assert!(end.is_some_and(|end| end <= storage.numel()));
    storage.data_ptr().cast::<f32>().wrapping_add(start)
}

/// Handles to a model's tensors, given in its order of creation, in the order of the layout,
/// after checking all that [`Flat::new`] promises, but for the device, which is one for all.
pub(crate) fn in_layout_order(
    layout: &Layout,
    tensors: &[(String, Tensor)],
) -> Result<Vec<Tensor>, FlatError> {
    if tensors.len() != layout.tensors.len() {
        return Err(FlatError::Count {
            got: tensors.len(),
            want: layout.tensors.len(),
        });
    }
    let mut ordered = Vec::with_capacity(tensors.len());
    for placed in &layout.tensors {
        let (name, tensor) = &tensors[placed.created];
        if *name != placed.spec.name {
            return Err(FlatError::Name {
                got: name.clone(),
                want: placed.spec.name.clone(),
            });
        }
        let trained = placed.spec.kind == TensorKind::Parameter;
        let shape: Vec<i64> = placed
            .spec
            .shape
            .iter()
            .map(|&extent| extent as i64)
            .collect();
        let why = if tensor.size() != shape {
            format!("its shape is {:?}, the layout's {shape:?}", tensor.size())
        } else if tensor.f_kind()? != Kind::Float {
            format!("its values are {:?}, not f32", tensor.f_kind()?)
        } else if tensor.device() != tensors[0].1.device() {
            let others = tensors[0].1.device();
            format!("it is on {:?}, others on {others:?}", tensor.device())
        } else if !tensor.is_leaf() {
            "it is the result of a computation, not a leaf".into()
        } else if tensor.requires_grad() != trained {
            format!(
                "it is a {:?}, but requires_grad is {}",
                placed.spec.kind, !trained
            )
        } else {
            ordered.push(tensor.shallow_clone());
            continue;
        };
        return Err(FlatError::Tensor {
            name: name.clone(),
            why,
        });
    }
    Ok(ordered)
}

/// A view of `all` with the shape of a tensor, from its element `start` on.
pub(crate) fn view(all: &Tensor, placed: &PlacedTensor, start: usize) -> Result<Tensor, FlatError> {
    let extents = placed.spec.shape.iter();
    let shape: Vec<i64> = extents.map(|extent| *extent as i64).collect();
    let own = all.f_narrow(0, start as i64, placed.elements.len() as i64)?;
    Ok(own.f_view(&shape[..])?)
}

#[cfg(test)]
mod tests {
    use tradewind_common::layout::{ALIGN_BYTES, TensorSpec};

    use super::*;

    fn model() -> Vec<(String, Tensor)> {
        let options = (Kind::Float, Device::Cpu);
        let weight = Tensor::arange(6, options)
            .reshape([3, 2])
            .set_requires_grad(true);
        let bias = Tensor::from_slice(&[10f32, 11.0, 12.0]).set_requires_grad(true);
        vec![
            ("weight".into(), weight),
            ("bias".into(), bias),
            ("mean".into(), Tensor::from_slice(&[-0.0f32, 20.0])),
        ]
    }

    fn layout() -> Layout {
        let spec = |name: &str, shape: &[u64], kind| TensorSpec {
            name: name.into(),
            shape: shape.into(),
            kind,
        };
        let specs = [
            spec("weight", &[3, 2], TensorKind::Parameter),
            spec("bias", &[3], TensorKind::Parameter),
            spec("mean", &[2], TensorKind::Buffer),
        ];
        Layout::new(&specs, 8).unwrap()
    }

    #[test]
    fn the_models_tensors_are_views_of_the_vector() {
        let (layout, model) = (layout(), model());
        let mut flat = Flat::new(&layout, &model, Device::Cpu).unwrap();
        let want = [10.0, 11.0, 12.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, -0.0, 20.0];
        assert_eq!(flat.read(), want);
        assert!(flat.read()[9].is_sign_negative(), "bits are kept");
        assert!(model[0].1.requires_grad() && model[0].1.is_leaf());

        flat.put(64, &[7.0]);
        assert_eq!(model[0].1.double_value(&[0, 0]), 7.0);
        let _ = tch::no_grad(|| model[1].1.shallow_clone().fill_(1.5));
        assert_eq!(flat.read()[..4], [1.5, 1.5, 1.5, 7.0]);

        let values: Vec<f32> = (0..11).map(|at| at as f32).collect();
        flat.write(&values).unwrap();
        assert_eq!(flat.read(), values);
        assert_eq!(model[2].1.double_value(&[1]), 10.0);
        let sum = flat.storage().sum(Kind::Double);
        assert_eq!(sum.double_value(&[]), 55.0, "gaps are 0");
    }

    #[test]
    fn each_tensor_is_where_an_allocation_of_its_own_would_be() {
        let (layout, model) = (layout(), model());
        let flat = Flat::new(&layout, &model, Device::Cpu).unwrap();
        let address = |tensor: &Tensor| tensor.data_ptr() as usize;
        for (name, tensor) in &model {
            let from = address(tensor) - address(flat.storage());
            assert_eq!(from % ALIGN_BYTES, 0, "{name}");
        }
        let lengths = flat.views(&(2..10)).unwrap();
        let lengths: Vec<_> = lengths.iter().map(Tensor::numel).collect();
        assert_eq!(lengths, [1, 6, 1]);
    }

    #[test]
    fn training_through_the_views_follows_the_vector() {
        let (layout, model) = (layout(), model());
        let mut flat = Flat::new(&layout, &model, Device::Cpu).unwrap();
        let loss = |x: f32| (&model[0].1 * f64::from(x)).sum(Kind::Float);
        assert_eq!(loss(2.0).double_value(&[]), 30.0);
        flat.put(64, &[1.0; 6]);
        let loss = loss(2.0);
        assert_eq!(loss.double_value(&[]), 12.0);
        loss.backward();
        assert_eq!(
            Vec::<f32>::try_from(model[0].1.grad().view([-1])).unwrap(),
            [2.0; 6]
        );
    }

    #[test]
    fn refused() {
        type Model = Vec<(String, Tensor)>;
        let check = |change: &dyn Fn(&mut Model), want: &str| {
            let mut tensors = model();
            change(&mut tensors);
            let error = Flat::new(&layout(), &tensors, Device::Cpu)
                .unwrap_err()
                .to_string();
            assert!(error.contains(want), "{error}");
        };
        check(&|t| drop(t.pop()), "2 tensors, the layout 3");
        check(&|t| t[1].0 = "bios".into(), "\"bios\" stands where");
        check(
            &|t| t[1].1 = t[1].1.detach().reshape([3, 1]),
            "its shape is [3, 1]",
        );
        check(
            &|t| t[2].1 = t[2].1.to_kind(Kind::Double),
            "values are Double",
        );
        check(
            &|t| t[2].1 = t[2].1.set_requires_grad(true),
            "requires_grad is true",
        );
        check(&|t| t[1].1 = t[1].1.detach(), "requires_grad is false");
        check(&|t| t[1].1 = &t[1].1 * 2.0, "not a leaf");
    }
}
