//! Where on a map of the weather there are events, as boxes, told by a network that learns from unlabelled maps, too.

use std::path::PathBuf;

use crate::key::MANY;
use crate::task;

task! {
    /// A semi-supervised network that finds extreme weather as boxes on maps.
    "climate-boxes" ("a semi-supervised network that finds tropical cyclones and atmospheric rivers as boxes on maps of the weather, as that of Kurth et al. 2017 does")
    measures "validation 1 - AP" is ClimateBoxes {
        /// Folder with the folders `train`, `validation` and `held_out`, each of which has samples in any form that
        /// `tradewind data` understands: fields `image`, numbers of shape `[channels, y, x]` or `[y, x, channels]`, and
        /// `mask`, class numbers of shape `[y, x]`: 0 for background, 1 for tropical cyclones, 2 for atmospheric rivers.
        /// The path is relative to the configuration file.
        folder: PathBuf = "data.folder", Path;
        /// Whether training maps are turned around the globe by any angle, at random: for maps that go round it, with
        /// the channels first.
        augment: bool = "data.augment", Bool, default "true";
        /// Least number of cells of an event: what the mask marks in fewer that touch each other is left out.
        event_cells: usize = "data.event_cells", int(1, MANY), default "8";
        /// Part of the training maps whose events are known. All others have a part in the reconstruction alone, whatever
        /// their masks say.
        labelled: f64 = "model.labelled", float(0.000_001, 1.0), default "0.1";
        /// Whether maps that are not labelled have a part in the loss. Without them it is that of labelled ones, in as
        /// many steps.
        unlabelled: bool = "model.unlabelled", Bool, default "true";
        /// Weight of the reconstruction error in the loss. With 0 nothing is reconstructed.
        reconstruction: f64 = "model.reconstruction", float(0.0, 1_000_000.0), default "10.0";
        /// Number of channels of each 5×5 convolution. Each looks at every second cell, so that with n of them maps are
        /// 2^n times smaller along an edge; height and width of maps are multiples of that.
        encoder: Vec<i64> = "model.encoder", Ints { min: 1, max: 65_536, length: None }, default "[128, 256, 512, 768, 1024, 1280]";
        /// Whether batch normalisation comes behind each convolution, which then has no bias.
        norm: bool = "model.norm", Bool, default "false";
    }
}
