//! Samples of somebody's own files, read as a model would.

use std::path::PathBuf;

use crate::key::MANY;
use crate::task;

task! {
    /// A linear map of the mean values of samples' fields, behind which a step computes nothing but waits.
    "replay" ("no model but a measurement of how fast samples in files of your own are read: it learns to tell the mean of each field of a sample, and its steps last as long as `pace.step_seconds` says")
    measures "validation error" is Replay {
        /// Packed file, folder or manifest with the samples, in any form that `tradewind data` understands. The
        /// path is relative to the configuration file.
        folder: PathBuf = "data.folder", Path;
        /// Which data sets of HDF5 files become which fields, as of `tradewind data inspect --layout`. `""` takes
        /// the layout that fits.
        layout: String = "data.layout", Text, default "\"\"";
        /// Number of samples for validation: the last ones but those for the final metric.
        validation_samples: usize = "data.validation_samples", int(1, MANY), default "8";
        /// Number of samples for the final metric: the last ones.
        held_out_samples: usize = "data.held_out_samples", int(1, MANY), default "8";
        /// Least number of parameters of the model, so that exchanges move as many bytes as those of the network
        /// that it stands for. Parameters beyond those of its linear map have the gradient 0.
        parameters: u64 = "model.parameters", int(0, 100_000_000_000), default "0";
    }
}
