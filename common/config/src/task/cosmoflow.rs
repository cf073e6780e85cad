//! Which universe a cube of matter comes from.

use std::path::PathBuf;

use crate::task;

task! {
    /// A convolutional network that tells parameters of simulated universes from cubes of matter.
    "cosmoflow" ("a 3D convolutional network that tells cosmological parameters from cubes of matter, as CosmoFlow of MLPerf HPC does")
    measures "validation MAE" is Cosmoflow {
        /// Folder with the folders `train`, `validation` and `held_out`, each of which has samples in any form that
        /// `tradewind data` understands: fields `volume`, counts of shape `[redshifts, n, n, n]`, and `target`, the
        /// scaled parameters. `tradewind data make cosmology` makes such a folder. The path is relative to the
        /// configuration file.
        folder: PathBuf = "data.folder", Path;
        /// Names of the numbers of `target`, in their order, for reports.
        parameters: Vec<String> = "data.parameters", Texts, default "[\"omega_m\", \"sigma_8\", \"n_s\", \"h\"]";
        /// Whether training cubes are turned and mirrored at random, in one of the 48 ways that a cube has.
        augment: bool = "data.augment", Bool, default "true";
        /// Number of channels of each 3×3×3 convolution. Behind each one come LeakyReLU and, except behind a stem,
        /// pooling over 2×2×2 cells.
        convolutions: Vec<i64> = "model.convolutions", Ints { min: 1, max: 65_536, length: None }, default "[32, 64, 128, 256, 512]";
        /// How cells are pooled. `max`: the largest of 2×2×2 cells, as in the paper. `mean`: their mean, and behind the
        /// last convolution the mean of all cells, for networks that are to tell what holds for the whole cube.
        pooling: String = "model.pooling", Choice(&["max", "mean"]), default "\"max\"";
        /// Number of units of each hidden layer behind the convolutions.
        hidden: Vec<i64> = "model.hidden", Ints { min: 1, max: 65_536, length: None }, default "[128, 64]";
        /// Whether the first convolution is a stem: it looks at every second cell and no pooling comes behind it,
        /// which takes an eighth of the time.
        stem: bool = "model.stem", Bool, default "false";
        /// Whether batch normalisation comes behind each convolution, which then has no bias.
        norm: bool = "model.norm", Bool, default "false";
        /// Part of the units of each hidden layer that training leaves out at random.
        dropout: f64 = "model.dropout", float(0.0, 0.99), default "0.5";
    }
}
