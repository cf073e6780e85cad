//! Whether a collision at a collider shows new physics.

use std::path::PathBuf;

use crate::task;

task! {
    /// A convolutional network that tells signal from background by images of collisions.
    "hep" ("a convolutional network that tells new physics from background by images of collisions, as that of Kurth et al. 2017 does")
    measures "validation 1 - AUC" is Hep {
        /// Folder with the folders `train`, `validation` and `held_out`, each of which has samples in any form that
        /// `tradewind data` understands: fields `data` (or `image`), numbers of shape `[3, y, x]`, the energy in a cell
        /// of the calorimeters, the part of it that is electromagnetic, and the number of tracks, in rows of equal η
        /// and columns of equal φ; and `label` of 2 classes, 1 for signal. A field `jets` with features of jets is
        /// for baselines. The path is relative to the configuration file.
        folder: PathBuf = "data.folder", Path;
        /// Whether training images are turned around the beam by any angle and mirrored along η and φ, at random.
        augment: bool = "data.augment", Bool, default "true";
        /// Number of channels of each 3×3 convolution, 128 in the paper.
        width: i64 = "model.width", int(1, 1024), default "64";
        /// Number of 3×3 convolutions. Behind each one but the last a maximum over 2×2 cells is taken.
        layers: u32 = "model.layers", int(1, 16), default "5";
        /// Whether batch normalisation comes behind each convolution, which then has no bias.
        norm: bool = "model.norm", Bool, default "false";
        /// Part of the numbers behind each maximum that training leaves out at random.
        dropout: f64 = "model.dropout", float(0.0, 0.99), default "0.5";
    }
}
