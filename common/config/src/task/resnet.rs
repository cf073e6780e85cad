//! Kinds of synthetic images.

use crate::task;

task! {
    /// A residual network on images that follow from the seed.
    "resnet50" ("a residual network that classifies synthetic images, for measurements")
    measures "validation error" is Resnet {
        /// Number of bottleneck blocks in each of the four stages. The default is ResNet-50.
        blocks: [u32; 4] = "model.blocks", Ints { min: 1, max: 64, length: Some(4) }, default "[3, 4, 6, 3]";
        /// Number of channels of the first layer, 64 in ResNet-50. The last stage has 32 times as many.
        width: u32 = "model.width", int(1, 1024), default "64";
        /// Height and width of the synthetic images, in pixels.
        image_size: u32 = "data.image_size", int(8, 1024), default "224";
        /// Number of classes of the synthetic images.
        classes: u32 = "data.classes", int(2, 65_536), default "1000";
        /// Number of synthetic images for training. There are a tenth as many for validation, and as many
        /// again for the final metric.
        samples: u32 = "data.samples", int(1, 1_000_000_000), default "12800";
    }
}
