//! Steps between exchanges that are left out, and what their forward has made of buffers.

use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

/// A weight, and a statistic that every forward adds 1 to. That of the second step makes it NaN, and the
/// gradient, too.
fn normalized() -> Box<dyn Task> {
    let mean = Tensor::zeros([4], (Kind::Float, Device::Cpu));
    let steps = AtomicU32::new(0);
    Box::new(Fake {
        tensors: vec![
            ("weight", weight(), TensorKind::Parameter),
            ("mean", mean, TensorKind::Buffer),
        ],
        loss: move |tensors: &[(&str, Tensor, TensorKind)]| {
            let (weight, mean) = (&tensors[0].1, &tensors[1].1);
            let bad = steps.fetch_add(1, Ordering::Relaxed) == 1;
            let factor = if bad { f64::NAN } else { 1.0 };
            let made = (mean + 1.0) * factor;
            mean.shallow_clone().copy_(&made);
            (weight * factor).sum(Kind::Float)
        },
    })
}

#[test]
fn a_step_that_is_left_out_leaves_nothing_in_the_statistics() {
    for staged in [false, true] {
        let overrides = ["local.algorithm=\"diloco\"", "local.steps=3"];
        let (heard, steps, ended) = train(normalized(), staged, 0, &overrides);
        ended.unwrap();
        assert_eq!((steps[0].skipped, steps[0].local_skipped), (false, 1));
        // From the 1 that the shard has, by the two other steps.
        let pushed = |values: &Vec<f32>| heard.iter().any(|(_, v)| v.as_ref() == Some(values));
        assert!(pushed(&vec![3.0; 4]), "{staged} {heard:?}");
    }
}
