//! Where on a map of the weather there is a cyclone or a river of vapour.

use std::path::PathBuf;

use crate::task;

task! {
    /// A segmentation network that finds extreme weather on maps.
    "deepcam" ("a segmentation network that finds tropical cyclones and atmospheric rivers on maps of the weather, as DeepCAM of MLPerf HPC does")
    measures "validation 1 - IoU" is Deepcam {
        /// Folder with the folders `train`, `validation` and `held_out`, each of which has samples in any form that
        /// `tradewind data` understands: fields `image`, numbers of shape `[channels, y, x]` or `[y, x, channels]`, and
        /// `mask`, class numbers of shape `[y, x]`: 0 for background, 1 for tropical cyclones, 2 for atmospheric rivers.
        /// `tradewind data make climate` makes such a folder. The path is relative to the configuration file.
        folder: PathBuf = "data.folder", Path;
        /// Whether training maps are turned around the globe by any angle, at random: for maps that go round it, with
        /// the channels first.
        augment: bool = "data.augment", Bool, default "true";
        /// Every how many cells the first convolution looks at: 2 as in the paper, or 1 for maps of few cells, on which
        /// a step takes four times as long and events are as narrow as a cell. With 1 the last step but one, which
        /// makes maps twice as large, is not there.
        stride: i64 = "model.stride", int(1, 2), default "2";
        /// Number of channels of the first two 3×3 convolutions.
        first: Vec<i64> = "model.first", Ints { min: 1, max: 65_536, length: Some(2) }, default "[32, 64]";
        /// Number of channels of each block behind those. Each looks at every second cell, so that with n blocks
        /// maps are `model.stride` 2^n times smaller along an edge; height and width of maps are multiples of that.
        entry: Vec<i64> = "model.entry", Ints { min: 1, max: 65_536, length: None }, default "[128, 256, 728]";
        /// Number of blocks in the middle, of as many channels as the last of `model.entry`.
        middle: u32 = "model.middle", int(0, 256), default "16";
        /// Number of channels of the last block, and of the convolutions behind it.
        exit: Vec<i64> = "model.exit", Ints { min: 1, max: 65_536, length: None }, default "[1024, 1536, 1536, 2048]";
        /// Distance between the cells that each of the wide 3×3 convolutions looks at, in cells of the smallest maps.
        rates: Vec<i64> = "model.rates", Ints { min: 1, max: 1024, length: None }, default "[6, 12, 18]";
        /// Number of channels behind the wide convolutions, and of those that make maps larger again.
        context: i64 = "model.context", int(1, 65_536), default "256";
        /// Number of channels of the fine map, that of the first block, which are put beside them.
        detail: i64 = "model.detail", int(1, 65_536), default "48";
        /// Exponent of the weights of classes in the loss: cells of a class that is the part f of all cells count
        /// f^-balance. 0 weighs all cells alike.
        balance: f64 = "model.balance", float(0.0, 1.0), default "0.125";
    }
}
