//! Gradients that are too long are shortened (Pascanu, Mikolov and Bengio 2013, "On the difficulty of training recurrent
//! neural networks", algorithm 1), as by `torch.nn.utils.clip_grad_norm_`.

use tch::{Device, Kind, Tensor};

use crate::group::Group;
use crate::host::HostError;
use crate::stream::torch;

/// Shortens the mean gradient of a group, all parameters together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clip {
    most: f64,
    buckets: usize,
}

impl Clip {
    /// The largest L2 norm that a gradient may have, and how many buckets it is in.
    pub(crate) fn new(most: f64, buckets: usize) -> Self {
        Self { most, buckets }
    }

    /// What the group's gradient is to be multiplied by: 1 unless it is too long. Its norm is summed in f64; from a
    /// device one copy brings it.
    pub(crate) fn factor(self, group: &dyn Group) -> Result<f64, HostError> {
        let norm = |bucket| {
            let gradient = group.gradient(bucket);
            gradient.f_norm_scalaropt_dtype(2, Kind::Double)
        };
        let norms: Result<Vec<_>, _> = (0..self.buckets).map(norm).collect();
        let norm = norms.and_then(|norms| {
            let norm = Tensor::f_stack(&norms, 0)?.f_norm()?;
            f64::try_from(norm.f_to_device(Device::Cpu)?)
        });
        let norm = norm.map_err(torch("the norm of the gradient"))?;
        Ok(if norm > self.most {
            self.most / norm
        } else {
            1.0
        })
    }
}
