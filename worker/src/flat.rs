//! The values of a model as views into one contiguous f32 buffer, in the order of its layout, on the
//! device that the model computes on.

use std::borrow::Cow;
use std::ops::Range;

use tch::{Device, Kind, Tensor};
use tradewind_common::layout::{Layout, TensorKind};

use crate::c10d;

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

/// All parameters and buffers of a model in one contiguous f32 vector: the model's tensors are
/// views into it, so that writing the vector changes the model. In main memory it can be read and
/// written as a slice; on a device only by operations, in the order of their streams.
///
/// The slices that it lends point to memory that the model's tensors share. Whoever holds one
/// neither runs forward or backward nor changes a tensor in place; and values are not written
/// between a forward and its backward, because backward reads them again.
#[derive(Debug)]
pub struct Flat {
    /// Owns the memory.
    storage: Tensor,
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
        let main = Tensor::f_zeros([layout.elements() as i64], (Kind::Float, Device::Cpu))?;
        tch::no_grad(|| {
            for (tensor, view) in tensors.iter().zip(&mut views(layout, &main)?) {
                view.f_copy_(tensor)?;
            }
            // One copy to a device, none to main memory.
            let storage = main.f_to_device(device)?;
            for (mut tensor, view) in tensors.into_iter().zip(&views(layout, &storage)?) {
                tensor.f_set_data(view)?;
            }
            Ok(Self { storage })
        })
    }

    /// Where it is.
    pub fn device(&self) -> Device {
        self.storage.device()
    }

    /// The whole vector: of one dimension, f32, contiguous.
    pub fn storage(&self) -> &Tensor {
        &self.storage
    }

    /// The whole vector, to be written by operations.
    pub fn storage_mut(&mut self) -> &mut Tensor {
        &mut self.storage
    }

    /// Views of ranges of elements.
    pub fn ranges(&self, ranges: &[Range<usize>]) -> Result<Vec<Tensor>, FlatError> {
        let view = |range: &Range<usize>| {
            let (start, length) = (range.start as i64, range.len() as i64);
            Ok(self.storage.f_narrow(0, start, length)?)
        };
        ranges.iter().map(view).collect()
    }

    /// The values in main memory: as they are there, or copied from the device, which is waited for.
    pub fn read(&self) -> Cow<'_, [f32]> {
        match c10d::values(&self.storage) {
            Some(values) => Cow::Borrowed(values),
            None => {
                let main = self.storage.to_device(Device::Cpu);
                let values = c10d::values(&main).expect("contiguous, f32 and not empty");
                Cow::Owned(values.to_vec())
            }
        }
    }

    /// The whole vector.
    ///
    /// # Panics
    /// If it is not in main memory; this and the next two.
    pub fn values(&self) -> &[f32] {
        c10d::values(&self.storage).expect(IN_MAIN_MEMORY)
    }

    /// The whole vector, to be written.
    pub fn values_mut(&mut self) -> &mut [f32] {
        c10d::values_mut(&mut self.storage).expect(IN_MAIN_MEMORY)
    }

    /// A range of elements, such as a block's.
    pub fn block(&self, elements: &Range<usize>) -> &[f32] {
        &self.values()[elements.clone()]
    }
}

const IN_MAIN_MEMORY: &str = "contiguous, f32 and not empty; the caller knows it is no device's";

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

/// Views of `flat`, one for each tensor of the layout, in its order and shapes.
pub(crate) fn views(layout: &Layout, flat: &Tensor) -> Result<Vec<Tensor>, FlatError> {
    let view = |placed: &tradewind_common::layout::PlacedTensor| {
        let shape: Vec<i64> = placed
            .spec
            .shape
            .iter()
            .map(|&extent| extent as i64)
            .collect();
        let range = &placed.elements;
        Ok(flat
            .f_narrow(0, range.start as i64, range.len() as i64)?
            .f_view(&shape[..])?)
    };
    layout.tensors.iter().map(view).collect()
}

#[cfg(test)]
mod tests {
    use tradewind_common::layout::TensorSpec;

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
        Layout::new(&specs, 1 << 20, 8).unwrap()
    }

    #[test]
    fn the_models_tensors_are_views_of_the_vector() {
        let (layout, model) = (layout(), model());
        let mut flat = Flat::new(&layout, &model, Device::Cpu).unwrap();
        let want = [10.0, 11.0, 12.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, -0.0, 20.0];
        assert_eq!(flat.values(), want);
        assert!(flat.values()[9].is_sign_negative(), "bits are kept");
        assert!(model[0].1.requires_grad() && model[0].1.is_leaf());

        flat.values_mut()[3] = 7.0;
        assert_eq!(model[0].1.double_value(&[0, 0]), 7.0);
        let _ = tch::no_grad(|| model[1].1.shallow_clone().fill_(1.5));
        assert_eq!(flat.block(&(0..3)), [1.5; 3]);
    }

    #[test]
    fn training_through_the_views_follows_the_vector() {
        let (layout, model) = (layout(), model());
        let mut flat = Flat::new(&layout, &model, Device::Cpu).unwrap();
        let loss = |x: f32| (&model[0].1 * f64::from(x)).sum(Kind::Float);
        assert_eq!(loss(2.0).double_value(&[]), 30.0);
        flat.values_mut()[3..9].fill(1.0);
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
