//! What is trained, and on what: sections `model` and `data`.

use super::{MANY, Section, forecast, int, key, mnist, resnet};
use crate::value::Kind::{Bool, Choice, Ints, Text, Texts};

pub(super) fn sections() -> Vec<Section> {
    vec![model(), data()]
}

fn model() -> Section {
    Section {
        name: "model",
        about: "Chooses one of the models that are compiled into the worker, and its size. A model comes with its own data, loss and metric.",
        example: r#"[model]
name = "forecast"
channels = 32
depth = 4
"#,
        keys: vec![
            key(
                "model.name",
                Choice(&["forecast", "mnist", "resnet50"]),
                Some("\"forecast\""),
                "Model, with its data, loss and metric. `forecast` is a small convolutional network that forecasts the next map of a time series. `mnist` is a small convolutional network that recognizes handwritten digits. `resnet50` is a residual network that classifies synthetic images, for measurements.",
            ),
            forecast(key(
                "model.channels",
                int(1, 1024),
                Some("16"),
                "Number of channels of the hidden layers.",
            )),
            forecast(key(
                "model.depth",
                int(0, 64),
                Some("3"),
                "Number of residual 3×3 convolutions between the first layer and the last one.",
            )),
            forecast(key(
                "model.anomalies",
                Bool,
                Some("true"),
                "`true`: the network gets and forecasts differences from the mean of the input maps, cell by cell. `false`: the network gets and forecasts whole fields; it has to learn the climate first, which takes many more updates.",
            )),
            resnet(key(
                "model.blocks",
                Ints {
                    min: 1,
                    max: 64,
                    length: Some(4),
                },
                Some("[3, 4, 6, 3]"),
                "Number of bottleneck blocks in each of the four stages. The default is ResNet-50.",
            )),
            resnet(key(
                "model.width",
                int(1, 1024),
                Some("64"),
                "Number of channels of the first layer, 64 in ResNet-50. The last stage has 32 times as many.",
            )),
        ],
    }
}

fn data() -> Section {
    Section {
        name: "data",
        about: "Says which data the model trains on, and which part of them is for training, for validation and for the final metric. `model.name` decides which of these keys are used ([your own data](data.md)).",
        example: r#"[data]
files = ["temperature.nc"]
variable = "t2m"
history = 12
validation = [400, 440]    # 400 to 439; 0 to 399 are for training
held_out = [440, 480]
step_name = "month"
"#,
        keys: vec![
            forecast(key(
                "data.files",
                Texts,
                None,
                "NetCDF-4 or HDF5 files, each one time series, all on one grid. Paths are relative to the configuration file.",
            )),
            forecast(key(
                "data.variable",
                Text,
                None,
                "Name of the variable to forecast, which has the shape `[time, y, x]` in each file.",
            )),
            forecast(key(
                "data.history",
                int(1, 1024),
                Some("8"),
                "Number of time steps before the forecast that the network gets as input.",
            )),
            forecast(key(
                "data.validation",
                Ints {
                    min: 0,
                    max: MANY,
                    length: Some(2),
                },
                None,
                "Time indices for validation: the first one, and the one after the last. All indices before them are for training.",
            )),
            forecast(key(
                "data.held_out",
                Ints {
                    min: 0,
                    max: MANY,
                    length: Some(2),
                },
                None,
                "Time indices for the final metric: the first one, which is not before the end of `data.validation`, and the one after the last.",
            )),
            forecast(key(
                "data.time_origin",
                int(-MANY, MANY),
                Some("0"),
                "Label of time index 0, such as the year 1860. Reports and pictures count from it.",
            )),
            forecast(key(
                "data.step_name",
                Text,
                Some("\"step\""),
                "Word for a time step in reports, such as `year`.",
            )),
            forecast(key(
                "data.memory_bytes",
                int(0, MANY),
                Some("268435456"),
                "Largest size of the data, in bytes as f32, at which each rank holds them in memory. Larger data are read from the files batch by batch.",
            )),
            mnist(key(
                "data.folder",
                Text,
                None,
                "Folder with the four files of MNIST in IDX format, or with others of the same form and names. The path is relative to the configuration file.",
            )),
            resnet(key(
                "data.image_size",
                int(8, 1024),
                Some("224"),
                "Height and width of the synthetic images, in pixels.",
            )),
            resnet(key(
                "data.classes",
                int(2, 65_536),
                Some("1000"),
                "Number of classes of the synthetic images.",
            )),
            resnet(key(
                "data.samples",
                int(1, 1_000_000_000),
                Some("12800"),
                "Number of synthetic images for training. There are a tenth as many for validation, and as many again for the final metric.",
            )),
        ],
    }
}
