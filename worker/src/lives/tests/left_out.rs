//! Steps between exchanges that are left out, and what their forward has made of buffers.

use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

/// A weight, and a statistic that every forward adds 1 to. That of the second step makes it NaN, and the
/// gradient, too.
struct Normalized {
    weight: Tensor,
    mean: Tensor,
    steps: AtomicU32,
}

impl Task for Normalized {
    fn tensors(&self) -> Vec<(String, Tensor, TensorKind)> {
        let (weight, mean) = (self.weight.shallow_clone(), self.mean.shallow_clone());
        vec![
            ("weight".into(), weight, TensorKind::Parameter),
            ("mean".into(), mean, TensorKind::Buffer),
        ]
    }

    fn dataset(&self) -> Arc<dyn Dataset> {
        Arc::new(Ones)
    }

    fn loss(&self, _: &Batch) -> Tensor {
        let bad = self.steps.fetch_add(1, Ordering::Relaxed) == 1;
        let factor = if bad { f64::NAN } else { 1.0 };
        let made = (&self.mean + 1.0) * factor;
        self.mean.shallow_clone().copy_(&made);
        (&self.weight * factor).sum(Kind::Float)
    }

    fn measure(&self, _: Split) -> Result<Measure, TaskError> {
        Err(TaskError::Data(DataError::NoFiles))
    }

    fn evaluate(&self) -> Result<Report, TaskError> {
        Err(TaskError::Data(DataError::NoFiles))
    }

    fn notes(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }
}

#[test]
fn a_step_that_is_left_out_leaves_nothing_in_the_statistics() {
    for staged in [false, true] {
        let task = Box::new(Normalized {
            weight: weight(),
            mean: Tensor::zeros([4], (Kind::Float, Device::Cpu)),
            steps: AtomicU32::new(0),
        });
        let overrides = ["local.algorithm=\"diloco\"", "local.steps=3"];
        let (heard, steps, ended) = train(task, staged, 0, &overrides);
        ended.unwrap();
        assert_eq!((steps[0].skipped, steps[0].local_skipped), (false, 1));
        // From the 1 that the shard has, by the two other steps.
        let pushed = |values: &Vec<f32>| heard.iter().any(|(_, v)| v.as_ref() == Some(values));
        assert!(pushed(&vec![3.0; 4]), "{staged} {heard:?}");
    }
}
