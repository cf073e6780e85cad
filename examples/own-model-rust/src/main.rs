//! A model of one's own: a network that tells on which of two rings a point of the plane is.

use std::collections::BTreeMap;
use std::f64::consts::TAU;
use std::process::ExitCode;
use std::sync::Arc;

use tch::nn::{self, Module};
use tch::{Device, Kind, Reduction, Tensor};
use tradewind_worker::data::{Asked, Batch, DataError, Dataset, Field, Kind as Number, Split};
use tradewind_worker::model::*;

const ON_CPU: (Kind, Device) = (Kind::Float, Device::Cpu);

task! {
    /// What a run can say of it.
    "rings" ("a small network that tells on which of two rings a point of the plane is")
    measures "validation error" is Rings {
        /// Number of units of the hidden layer.
        width: u32 = "rings.width", int(1, 4096), default "16";
        /// Standard deviation of the noise of a point's radius. The rings have the radii 1 and 2.
        noise: f64 = "rings.noise", float(0.0, 10.0), default "0.1";
    }
    checked by fits
}

fn fits(rings: &Rings, wrong: &mut Wrong<'_>) {
    if rings.noise > 0.5 {
        wrong("rings.noise", "makes the rings one; give 0 to 0.5".into());
    }
}

impl TaskKind for Rings {
    fn build(&self, seed: u64, _: &Reading) -> Result<Box<dyn Task>, TaskError> {
        Ok(Box::new(seeded(seed, || {
            let variables = nn::VarStore::new(Device::Cpu);
            let (root, width) = (variables.root(), self.width.into());
            let hidden = nn::linear(&root / "hidden", 2, width, Default::default());
            let out = nn::linear(&root / "out", width, 1, Default::default());
            Network {
                layers: nn::seq().add(hidden).add_fn(Tensor::relu).add(out),
                variables,
                points: Arc::new(Points([4000, 1000, 1000].map(|n| draw(n, self.noise)))),
            }
        })))
    }
}

/// Coordinates of points, and the ring of each: 0 or 1.
fn draw(count: i64, noise: f64) -> Vec<[f32; 3]> {
    let ring = Tensor::randint(2, [count], ON_CPU);
    let radius = &ring + 1.0 + Tensor::randn([count], ON_CPU) * noise;
    let angle = Tensor::rand([count], ON_CPU) * TAU;
    let all = Tensor::stack(&[&radius * angle.cos(), &radius * angle.sin(), ring], 1);
    let all = Vec::<f32>::try_from(all.flatten(0, -1)).expect("they are f32");
    let point = |of: &[f32]| [of[0], of[1], of[2]];
    all.chunks_exact(3).map(point).collect()
}

/// Those for training, for validation and for the final metric.
struct Points([Vec<[f32; 3]>; 3]);

impl Points {
    fn of(&self, split: Split) -> &[[f32; 3]] {
        match split {
            Split::Train => &self.0[0],
            Split::Validation => &self.0[1],
            Split::HeldOut => &self.0[2],
        }
    }
}

impl Dataset for Points {
    fn fields(&self) -> Vec<Field> {
        vec![
            Field::new("point", Number::F32, &[2]),
            Field::new("outer", Number::F32, &[]),
        ]
    }

    fn len(&self, split: Split) -> usize {
        self.of(split).len()
    }

    fn batch(&self, asked: Asked<'_>) -> Result<Batch, DataError> {
        let Asked { split, samples, .. } = asked;
        let all = self.of(split);
        let values: Vec<f32> = samples.iter().flat_map(|sample| all[*sample]).collect();
        let rows = Tensor::from_slice(&values).view([-1, 3]);
        Ok(Batch::of(samples)
            .with("point", rows.narrow(1, 0, 2))
            .with("outer", rows.select(1, 2)))
    }
}

struct Network {
    layers: nn::Sequential,
    variables: nn::VarStore,
    points: Arc<Points>,
}

impl Network {
    /// From points `[samples, 2]` to `[samples]`: above 0 for the outer ring.
    fn forward(&self, points: &Tensor) -> Tensor {
        self.layers.forward(points).squeeze_dim(-1)
    }
}

impl Task for Network {
    fn tensors(&self) -> Vec<(String, Tensor, TensorKind)> {
        // In an order that all ranks have.
        let all: BTreeMap<_, _> = self.variables.variables().into_iter().collect();
        let named = |(name, tensor)| (name, tensor, TensorKind::Parameter);
        all.into_iter().map(named).collect()
    }

    fn dataset(&self) -> Arc<dyn Dataset> {
        self.points.clone()
    }

    fn loss(&self, batch: &Batch) -> Tensor {
        let told = self.forward(&batch["point"]);
        told.binary_cross_entropy_with_logits::<Tensor>(
            &batch["outer"],
            None,
            None,
            Reduction::Mean,
        )
    }

    fn measure(&self, split: Split) -> Result<Measure, TaskError> {
        let all: Vec<usize> = (0..self.points.len(split)).collect();
        let device = self.variables.trainable_variables()[0].device();
        let batch = self.points.batch(Asked::of(split, &all))?.to(device)?;
        let outer = tch::no_grad(|| self.forward(&batch["point"])).gt(0.0);
        let wrong = outer
            .ne_tensor(&batch["outer"].gt(0.5))
            .to_kind(Kind::Float);
        let name = match split {
            Split::Validation => Rings::VALIDATION_METRIC,
            Split::Train | Split::HeldOut => "error",
        };
        Ok(Measure {
            name: name.into(),
            unit: "%".into(),
            value: 100.0 * wrong.mean(Kind::Float).double_value(&[]),
        })
    }

    fn evaluate(&self) -> Result<Report, TaskError> {
        let validation = self.measure(Split::Validation)?;
        Ok(Report::of(
            self.measure(Split::HeldOut)?,
            Better::Lower,
            validation,
        ))
    }
}

fn main() -> ExitCode {
    tradewind_worker::main([TaskEntry::of::<Rings>()])
}
