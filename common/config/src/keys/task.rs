//! What is trained, and on what: sections `model` and `data`.

use super::{Key, MANY, forecast, int, key, mnist, resnet};
use crate::value::Kind::{Bool, Choice, Ints, Text, Texts};

pub(super) const KEYS: &[Key] = &[
    key(
        "model.name",
        Choice(&["forecast", "mnist", "resnet50"]),
        Some("\"forecast\""),
        "the task: model, data, loss and metric; `mnist` learns handwritten digits, `resnet50` synthetic images",
    ),
    forecast(key(
        "model.channels",
        int(1, 1024),
        Some("16"),
        "channels of the hidden layers",
    )),
    forecast(key(
        "model.depth",
        int(0, 64),
        Some("3"),
        "residual convolutions between the first layer and the last",
    )),
    forecast(key(
        "model.anomalies",
        Bool,
        Some("true"),
        "the network sees and tells departures from the mean of the history; `false`: whole fields, whose climate it has to learn first",
    )),
    resnet(key(
        "model.blocks",
        Ints {
            min: 1,
            max: 64,
            length: Some(4),
        },
        Some("[3, 4, 6, 3]"),
        "bottleneck blocks of each of the four stages; the default is ResNet-50",
    )),
    resnet(key(
        "model.width",
        int(1, 1024),
        Some("64"),
        "channels of the first layer; the last stage has 32 times as many",
    )),
    forecast(key(
        "data.files",
        Texts,
        None,
        "NetCDF-4 or HDF5 files, relative to the configuration file",
    )),
    forecast(key(
        "data.variable",
        Text,
        None,
        "name of a variable of shape [time, y, x] in each file",
    )),
    forecast(key(
        "data.history",
        int(1, 1024),
        Some("8"),
        "time steps that the forecast sees",
    )),
    forecast(key(
        "data.validation",
        Ints {
            min: 0,
            max: MANY,
            length: Some(2),
        },
        None,
        "half-open range of time indices for validation; all before it are for training",
    )),
    forecast(key(
        "data.held_out",
        Ints {
            min: 0,
            max: MANY,
            length: Some(2),
        },
        None,
        "half-open range of time indices for the final metric",
    )),
    forecast(key(
        "data.time_origin",
        int(-MANY, MANY),
        Some("0"),
        "label of time index 0, such as a year",
    )),
    forecast(key(
        "data.step_name",
        Text,
        Some("\"step\""),
        "what a time step is called, such as `year`",
    )),
    forecast(key(
        "data.memory_bytes",
        int(0, MANY),
        Some("268435456"),
        "data up to this size are held in memory, larger ones are read as needed",
    )),
    mnist(key(
        "data.folder",
        Text,
        None,
        "folder of the four IDX files of MNIST, relative to the configuration file",
    )),
    resnet(key(
        "data.image_size",
        int(8, 1024),
        Some("224"),
        "height and width of the images, pixels",
    )),
    resnet(key(
        "data.classes",
        int(2, 65_536),
        Some("1000"),
        "kinds of images",
    )),
    resnet(key(
        "data.samples",
        int(1, 1_000_000_000),
        Some("12800"),
        "images for training; a tenth as many each for validation and for the final metric",
    )),
];
