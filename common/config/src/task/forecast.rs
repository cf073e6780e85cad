//! The next map of a series.

use std::ops::Range;
use std::path::PathBuf;

use super::Wrong;
use crate::key::MANY;
use crate::task;

task! {
    /// A convolutional network on a series of maps.
    "forecast" ("a small convolutional network that forecasts the next map of a time series")
    measures "validation RMSE" is Forecast {
        /// Number of channels of the hidden layers.
        channels: i64 = "model.channels", int(1, 1024), default "16";
        /// Number of residual 3×3 convolutions between the first layer and the last one.
        depth: i64 = "model.depth", int(0, 64), default "3";
        /// `true`: the network gets and forecasts differences from the mean of the input maps, cell by cell.
        /// `false`: the network gets and forecasts whole fields; it has to learn the climate first, which
        /// takes many more updates.
        anomalies: bool = "model.anomalies", Bool, default "true";
        /// NetCDF-4 or HDF5 files, each one time series, all on one grid. Paths are relative to the
        /// configuration file.
        files: Vec<PathBuf> = "data.files", Paths;
        /// Name of the variable to forecast, which has the shape `[time, y, x]` in each file.
        variable: String = "data.variable", Text;
        /// Number of time steps before the forecast that the network gets as input.
        history: usize = "data.history", int(1, 1024), default "8";
        /// Time indices for validation: the first one, and the one after the last. All indices before them are
        /// for training.
        validation: Range<usize> = "data.validation", Ints { min: 0, max: MANY, length: Some(2) };
        /// Time indices for the final metric: the first one, which is not before the end of `data.validation`,
        /// and the one after the last.
        held_out: Range<usize> = "data.held_out", Ints { min: 0, max: MANY, length: Some(2) };
        /// Label of time index 0, such as the year 1860. Reports and pictures count from it.
        time_origin: i64 = "data.time_origin", int(-MANY, MANY), default "0";
        /// Word for a time step in reports, such as `year`.
        step_name: String = "data.step_name", Text, default "\"step\"";
        /// Largest size of the data, in bytes as f32, at which each rank holds them in memory. Larger data are
        /// read from the files batch by batch.
        memory_bytes: u64 = "data.memory_bytes", int(0, MANY), default "268435456";
    }
    checked by fits
}

fn fits(forecast: &Forecast, wrong: &mut Wrong<'_>) {
    let Forecast {
        validation,
        held_out,
        ..
    } = forecast;
    for (key, range) in [("data.validation", validation), ("data.held_out", held_out)] {
        if range.is_empty() {
            wrong(
                key,
                "is an empty range; give [begin, end) with begin < end".into(),
            );
        }
    }
    if held_out.start < validation.end {
        wrong(
            "data.held_out",
            "begins before data.validation has ended".into(),
        );
    }
}
