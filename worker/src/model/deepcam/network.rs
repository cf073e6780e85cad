//! DeepLabv3+ on Xception, without data.

use tch::{Device, Kind, Tensor};
use tradewind_common::layout::TensorKind;

use super::super::layer::{Scaling, rectified};
use super::super::norm::Norm;
use super::super::random::normal;

const ON_CPU: (Kind, Device) = (Kind::Float, Device::Cpu);

/// The last two extents of a map.
const OVER_CELLS: [i64; 2] = [2, 3];

/// The network; its parts are in the order in which a map goes through them.
pub(super) struct Network {
    /// What comes first.
    pub(super) input: Scaling,
    first: Vec<Layer>,
    /// Those of the entry, the middle, and the first of the exit.
    blocks: Vec<Block>,
    /// How many times smaller maps are in the middle, along an edge.
    smaller: i64,
    exit: Vec<Layer>,
    context: Vec<Layer>,
    pooled: Pooled,
    joined: Layer,
    detail: Layer,
    /// Up to the size of the first block's map.
    larger: Vec<Layer>,
    decoder: Vec<Layer>,
    mixed: Convolution,
    /// Makes up for the stride of the first layer, if that has one.
    largest: Option<Layer>,
    last: Convolution,
}

/// Named tensors of a kind.
pub(super) type Tensors = Vec<(String, Tensor, TensorKind)>;

/// Where the tensors of a part are put: parameters, and buffers behind them.
struct Named<'a> {
    prefix: String,
    parameters: &'a mut Tensors,
    buffers: &'a mut Tensors,
}

/// What a convolution does besides its weights.
#[derive(Clone, Copy)]
struct Shape {
    /// Edge of the kernel.
    kernel: i64,
    /// Every how many cells.
    stride: i64,
    /// Distance of the cells that it looks at.
    rate: i64,
}

/// 3×3 cells.
const THREE: Shape = Shape {
    kernel: 3,
    stride: 1,
    rate: 1,
};

/// One cell.
const ONE: Shape = Shape { kernel: 1, ..THREE };

/// A convolution of maps with zeros beyond the edge.
struct Convolution {
    /// `[out, into / groups, kernel, kernel]`; `[into, out, 3, 3]` of a transposed one.
    weight: Tensor,
    /// `[out]`, if it has one.
    bias: Option<Tensor>,
    shape: Shape,
    groups: i64,
    transposed: bool,
}

/// A convolution of each channel by itself, then of one cell.
struct Separable {
    depth: Convolution,
    point: Convolution,
}

enum Kernel {
    Plain(Convolution),
    Separable(Separable),
}

/// A convolution with batch normalisation, if it has one.
struct Layer {
    kernel: Kernel,
    norm: Option<Norm>,
}

/// A chain of layers, which is added to what came in.
struct Block {
    layers: Vec<Layer>,
    /// What comes in has another shape.
    skip: Option<Layer>,
    /// Whether a rectifier comes first.
    rectified: bool,
}

/// The mean of a map, with a scale and a bias of their own in the place of a normalisation.
struct Pooled {
    kernel: Convolution,
    /// `[out]`.
    weight: Tensor,
    /// `[out]`.
    bias: Tensor,
}

impl Network {
    /// From maps of `channels` to `classes`.
    pub(super) fn new(settings: &tradewind_config::Deepcam, channels: i64, classes: i64) -> Self {
        let mut into = channels;
        let mut first = Vec::new();
        for (number, &out) in settings.first.iter().enumerate() {
            let stride = if number == 0 { settings.stride } else { 1 };
            first.push(Layer::plain(out, into, Shape { stride, ..THREE }));
            into = out;
        }
        let mut blocks = Vec::new();
        for (number, &out) in settings.entry.iter().enumerate() {
            blocks.push(Block::halving(out, into, number > 0));
            into = out;
        }
        blocks.extend((0..settings.middle).map(|_| Block::keeping(into)));
        let (&out, rest) = settings.exit.split_first().expect("it is not empty");
        blocks.push(Block::growing(out, into));
        into = out;
        let mut exit = Vec::new();
        for &out in rest {
            exit.push(Layer::separable(out, into, Shape { rate: 2, ..THREE }));
            into = out;
        }
        let (wide, fine) = (settings.context, settings.detail);
        let mut context = vec![Layer::plain(wide, into, ONE)];
        let rates = settings.rates.iter();
        context.extend(rates.map(|&rate| Layer::plain(wide, into, Shape { rate, ..THREE })));
        let branches = context.len() as i64 + 1;
        let halvings = settings.entry.len() - 1;
        let bias = || Tensor::zeros([wide], ON_CPU).set_requires_grad(true);
        let mut mixed = Convolution::new(wide, wide, ONE, 1);
        mixed.bias = Some(bias());
        // Small, so that at first all classes are about as likely.
        let mut last = Convolution::transposed(classes, wide);
        last.weight = normal(&last.weight.size(), 0.01).set_requires_grad(true);
        Self {
            input: Scaling::new(channels),
            first,
            blocks,
            smaller: settings.stride << settings.entry.len(),
            exit,
            context,
            pooled: Pooled {
                kernel: Convolution::new(wide, into, ONE, 1),
                weight: Tensor::ones([wide], ON_CPU).set_requires_grad(true),
                bias: bias(),
            },
            joined: Layer::plain(wide, branches * wide, ONE),
            detail: Layer::plain(fine, settings.entry[0], ONE),
            larger: (0..halvings).map(|_| Layer::larger(wide)).collect(),
            decoder: vec![
                Layer::plain(wide, wide + fine, THREE),
                Layer::plain(wide, wide, THREE),
            ],
            mixed,
            largest: (settings.stride > 1).then(|| Layer::larger(wide)),
            last,
        }
    }

    /// How many times smaller maps are in the middle, along an edge.
    pub(super) fn smaller(&self) -> i64 {
        self.smaller
    }

    /// From maps `[samples, channels, y, x]` to logarithms of unnormalised probabilities `[samples, classes, y, x]`,
    /// in f32. In training statistics are the batch's and move the running ones.
    pub(super) fn forward(&self, image: &Tensor, train: bool) -> Tensor {
        let through = |layers: &[Layer], map: Tensor| {
            layers
                .iter()
                .fold(map, |map, layer| layer.forward(&map, train).relu())
        };
        let mut map = through(&self.first, self.input.scaled(image));
        let mut fine = None;
        for block in &self.blocks {
            map = block.forward(&map, train);
            // Behind the first one.
            fine.get_or_insert_with(|| map.shallow_clone());
        }
        let fine = fine.expect("there is a block");
        map = through(&self.exit, map);
        let mut views: Vec<Tensor> = self
            .context
            .iter()
            .map(|layer| layer.forward(&map, train).relu())
            .collect();
        views.push(self.pooled.forward(&map));
        map = self.joined.forward(&Tensor::cat(&views, 1), train).relu();
        map = through(&self.larger, map);
        let fine = self.detail.forward(&fine, train).relu();
        map = through(&self.decoder, Tensor::cat(&[map, fine], 1));
        map = self.mixed.forward(&map);
        if let Some(largest) = &self.largest {
            map = largest.forward(&map, train).relu();
        }
        // Under autocast too, what is told is f32.
        self.last.forward(&map).to_kind(Kind::Float)
    }

    pub(super) fn device(&self) -> Device {
        self.last.weight.device()
    }

    /// Parameters first, so that all statistics are in one bucket.
    pub(super) fn tensors(&self) -> Tensors {
        let (mut parameters, mut buffers) = (Vec::new(), Vec::new());
        let mut all = Named {
            prefix: String::new(),
            parameters: &mut parameters,
            buffers: &mut buffers,
        };
        let lists = [
            ("first", &self.first),
            ("exit", &self.exit),
            ("context", &self.context),
            ("larger", &self.larger),
            ("decoder", &self.decoder),
        ];
        for (name, layers) in lists {
            for (number, layer) in layers.iter().enumerate() {
                layer.tensors(&mut all.part(&format!("{name}.{number}")));
            }
        }
        for (number, block) in self.blocks.iter().enumerate() {
            block.tensors(&mut all.part(&format!("blocks.{number}")));
        }
        let singles = [("joined", &self.joined), ("detail", &self.detail)];
        let largest = self.largest.iter().map(|layer| ("largest", layer));
        for (name, layer) in singles.into_iter().chain(largest) {
            layer.tensors(&mut all.part(name));
        }
        self.pooled.tensors(&mut all.part("pooled"));
        self.mixed.tensors(&mut all.part("mixed"));
        self.last.tensors(&mut all.part("last"));
        let mut input = all.part("input");
        for (name, tensor) in self.input.buffers() {
            input.buffer(name, tensor);
        }
        parameters.extend(buffers);
        parameters
    }
}

impl Named<'_> {
    fn part(&mut self, name: &str) -> Named<'_> {
        Named {
            prefix: format!("{}{name}.", self.prefix),
            parameters: self.parameters,
            buffers: self.buffers,
        }
    }

    fn parameter(&mut self, name: &str, tensor: &Tensor) {
        let name = format!("{}{name}", self.prefix);
        let handle = (name, tensor.shallow_clone(), TensorKind::Parameter);
        self.parameters.push(handle);
    }

    fn buffer(&mut self, name: &str, tensor: &Tensor) {
        let name = format!("{}{name}", self.prefix);
        let handle = (name, tensor.shallow_clone(), TensorKind::Buffer);
        self.buffers.push(handle);
    }
}

impl Convolution {
    /// Normal weights that keep the size of values through a rectifier.
    fn new(out: i64, into: i64, shape: Shape, groups: i64) -> Self {
        let size = [out, into / groups, shape.kernel, shape.kernel];
        let inputs = size[1..].iter().product();
        let weight = normal(&size, rectified(inputs, 0.0));
        Self {
            weight: weight.set_requires_grad(true),
            bias: None,
            shape,
            groups,
            transposed: false,
        }
    }

    /// Makes maps twice as large along an edge.
    fn transposed(out: i64, into: i64) -> Self {
        // A cell of the result is the sum over a quarter of the 3×3 numbers.
        let deviation = 2.0 * rectified(9 * into, 0.0);
        let weight = normal(&[into, out, 3, 3], deviation);
        Self {
            weight: weight.set_requires_grad(true),
            bias: None,
            shape: Shape { stride: 2, ..THREE },
            groups: 1,
            transposed: true,
        }
    }

    /// From `[samples, into, y, x]` to `[samples, out, y / stride, x / stride]`, or twice as large.
    fn forward(&self, map: &Tensor) -> Tensor {
        let Shape {
            kernel,
            stride,
            rate,
        } = self.shape;
        let (weight, bias) = (&self.weight, self.bias.as_ref());
        match self.transposed {
            true => map.conv_transpose2d(weight, bias, stride, 1, 1, self.groups, 1),
            false => {
                let beyond = rate * (kernel - 1) / 2;
                map.conv2d(weight, bias, stride, beyond, rate, self.groups)
            }
        }
    }

    fn tensors(&self, named: &mut Named<'_>) {
        named.parameter("weight", &self.weight);
        if let Some(bias) = &self.bias {
            named.parameter("bias", bias);
        }
    }
}

impl Layer {
    fn plain(out: i64, into: i64, shape: Shape) -> Self {
        Self {
            kernel: Kernel::Plain(Convolution::new(out, into, shape, 1)),
            norm: Some(Norm::new(out)),
        }
    }

    fn separable(out: i64, into: i64, shape: Shape) -> Self {
        Self {
            kernel: Kernel::Separable(Separable {
                depth: Convolution::new(into, into, shape, into),
                point: Convolution::new(out, into, ONE, 1),
            }),
            norm: Some(Norm::new(out)),
        }
    }

    fn larger(channels: i64) -> Self {
        Self {
            kernel: Kernel::Plain(Convolution::transposed(channels, channels)),
            norm: Some(Norm::new(channels)),
        }
    }

    fn without_norm(self) -> Self {
        Self { norm: None, ..self }
    }

    fn forward(&self, map: &Tensor, train: bool) -> Tensor {
        let map = match &self.kernel {
            Kernel::Plain(convolution) => convolution.forward(map),
            Kernel::Separable(Separable { depth, point }) => point.forward(&depth.forward(map)),
        };
        match &self.norm {
            Some(norm) => norm.forward(&map, train),
            None => map,
        }
    }

    fn tensors(&self, named: &mut Named<'_>) {
        match &self.kernel {
            Kernel::Plain(convolution) => convolution.tensors(&mut named.part("conv")),
            Kernel::Separable(Separable { depth, point }) => {
                depth.tensors(&mut named.part("depth"));
                point.tensors(&mut named.part("point"));
            }
        }
        if let Some(norm) = &self.norm {
            let name = format!("{}norm", named.prefix);
            norm.tensors(&name, named.parameters, named.buffers);
        }
    }
}

impl Block {
    /// Makes maps half as large along an edge.
    fn halving(out: i64, into: i64, rectified: bool) -> Self {
        let stride = Shape { stride: 2, ..THREE };
        Self {
            layers: vec![
                Layer::separable(out, into, THREE),
                Layer::separable(out, out, THREE),
                Layer::separable(out, out, stride).without_norm(),
            ],
            skip: Some(Layer::plain(out, into, Shape { stride: 2, ..ONE })),
            rectified,
        }
    }

    fn keeping(channels: i64) -> Self {
        Self {
            layers: (0..3)
                .map(|_| Layer::separable(channels, channels, THREE))
                .collect(),
            skip: None,
            rectified: true,
        }
    }

    /// The first of the exit, whose second layer has more channels.
    fn growing(out: i64, into: i64) -> Self {
        Self {
            layers: vec![
                Layer::separable(into, into, THREE),
                Layer::separable(out, into, THREE),
                Layer::separable(out, out, THREE).without_norm(),
            ],
            skip: (out != into).then(|| Layer::plain(out, into, ONE)),
            rectified: true,
        }
    }

    fn forward(&self, map: &Tensor, train: bool) -> Tensor {
        let into = match self.rectified {
            true => map.relu(),
            false => map.shallow_clone(),
        };
        let mut own = into.shallow_clone();
        for (number, layer) in self.layers.iter().enumerate() {
            // The first one was rectified, or is not to be; one without norm follows the norm before it.
            if number > 0 && layer.norm.is_some() {
                own = own.relu();
            }
            own = layer.forward(&own, train);
        }
        match &self.skip {
            Some(skip) => own + skip.forward(&into, train),
            None => own + into,
        }
    }

    fn tensors(&self, named: &mut Named<'_>) {
        for (number, layer) in self.layers.iter().enumerate() {
            layer.tensors(&mut named.part(&format!("layers.{number}")));
        }
        if let Some(skip) = &self.skip {
            skip.tensors(&mut named.part("skip"));
        }
    }
}

impl Pooled {
    /// From `[samples, into, y, x]` to `[samples, out, y, x]`, the same in all cells.
    fn forward(&self, map: &Tensor) -> Tensor {
        let mean = map.mean_dim(OVER_CELLS.as_slice(), true, map.kind());
        let channels = |tensor: &Tensor| tensor.view([1, -1, 1, 1]);
        let told = self.kernel.forward(&mean) * channels(&self.weight) + channels(&self.bias);
        let size = map.size();
        told.relu().expand([-1, -1, size[2], size[3]], false)
    }

    fn tensors(&self, named: &mut Named<'_>) {
        self.kernel.tensors(&mut named.part("conv"));
        named.parameter("weight", &self.weight);
        named.parameter("bias", &self.bias);
    }
}
