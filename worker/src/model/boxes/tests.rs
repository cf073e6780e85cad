use std::path::Path;

use tradewind_data::packed::{Settings, Writer};
use tradewind_data::{Field, Kind as Number};

use super::super::trained::{count, descend};
use super::*;
use crate::data::Asked;

const ROWS: usize = 16;
const COLUMNS: usize = 32;

fn settings(folder: &Path) -> tradewind_config::ClimateBoxes {
    tradewind_config::ClimateBoxes {
        folder: folder.into(),
        augment: false,
        event_cells: 4,
        labelled: 1.0,
        unlabelled: true,
        reconstruction: 1.0,
        encoder: vec![6, 8],
        norm: false,
    }
}

/// Where the events of map `n` are: the first row and column, height, width, and class.
fn drawn(n: usize) -> [([usize; 4], u8); 2] {
    [
        ([n % 3, 2 + 3 * n % 12, 4, 4], 1),
        ([8 + n % 2, 16 + n % 5, 3, 7], 2),
    ]
}

/// Maps of two channels, of which the second is high where there is an event, and one cell that is too small for one.
fn write(folder: &Path, part: &str, samples: usize) {
    let fields = [
        Field::new("image", Number::F32, &[2, ROWS, COLUMNS]),
        Field::new("mask", Number::U8, &[ROWS, COLUMNS]).classes(3),
    ];
    std::fs::create_dir_all(folder.join(part)).unwrap();
    let path = folder.join(part).join("0.pack");
    let mut writer = Writer::create(&path, &fields, Settings::default()).unwrap();
    for n in 0..samples {
        let mut image = vec![1000f32; 2 * ROWS * COLUMNS];
        let mut mask = vec![0u8; ROWS * COLUMNS];
        mask[15 * COLUMNS] = 1;
        for ([top, left, height, width], class) in drawn(n) {
            for y in top..top + height {
                for x in left..left + width {
                    mask[y * COLUMNS + x] = class;
                    image[(ROWS + y) * COLUMNS + x] = 1000.0 + 10.0 * f32::from(class);
                }
            }
        }
        let image: Vec<u8> = image
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect();
        writer.push(&n.to_string(), &[&image, &mask]).unwrap();
    }
    writer.finish().unwrap();
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (part, samples) in [("train", 12), ("validation", 4), ("held_out", 4)] {
        write(folder.path(), part, samples);
    }
    folder
}

fn task(change: impl FnOnce(&mut tradewind_config::ClimateBoxes)) -> ClimateBoxes {
    let folder = folder();
    let mut settings = settings(folder.path());
    change(&mut settings);
    ClimateBoxes::new(&settings, 1, &Reading::default()).unwrap()
}

fn batch(task: &ClimateBoxes, samples: &[usize]) -> Batch {
    let asked = Asked::of(Split::Train, samples);
    task.maps.samples.batch(asked).unwrap()
}

const ALL: [usize; 12] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11];

#[test]
fn the_papers_network_has_the_known_number_of_parameters() {
    let channels = [128, 256, 512, 768, 1024, 1280];
    let [encoder, heads] = [66_406_400 + 3_968, 9 * 1280 + 1];
    for (classes, want) in [(4, 66_525_578), (2, 66_502_536)] {
        let network = Network::new(&channels, false, 16, classes);
        assert_eq!(count(&network.tensors()), want);
        assert_eq!(want, encoder + (4 + 2 + classes as usize) * heads);
        assert_eq!(network.smaller(), 64);
    }
}

#[test]
fn every_cell_tells_a_box_and_maps_are_decoded_to_their_size() {
    let task = task(|_| ());
    let image = &batch(&task, &[0, 1, 2])["image"];
    let network = &task.network;
    tch::no_grad(|| {
        let coarsest = network.encode(&network.input.scaled(image), false);
        assert_eq!(coarsest.size(), [3, 8, 4, 8]);
        assert_eq!(network.decode(&coarsest).size(), image.size());
        let heads = network.heads(&coarsest);
        assert_eq!(heads.place.size(), [3, 4, 4, 8]);
        assert_eq!(heads.object.size(), [3, 2, 4, 8]);
        assert_eq!(heads.class.size(), [3, 2, 4, 8]);
        // Nothing is learned yet: a box of 4 × 4 cells about the corner of each cell, as likely of each class.
        let told = &task.told(&heads)[0];
        assert!(told[0].iter().all(|told| (told.score - 0.25).abs() < 1e-6));
        let whole = told[0].iter().filter(|told| told.place.area() == 16.0);
        assert!(whole.count() > 0, "{told:?}");
    });
}

#[test]
fn what_the_heads_are_to_tell_is_told_as_the_boxes_that_are_true() {
    let task = task(|_| ());
    let batch = batch(&task, &ALL);
    let targets = task.targets(&batch);
    // Heads that are certain of it.
    let is_event = targets.narrow(1, 4, 1);
    let both = |first: &Tensor| Tensor::cat(&[first * 40.0, (1.0 - first) * 40.0], 1);
    let heads = Heads {
        place: targets.narrow(1, 0, 4),
        object: both(&is_event),
        class: both(&(1.0 - targets.narrow(1, 5, 1))),
    };
    for (n, told) in task.told(&heads).iter().enumerate() {
        for ([top, left, height, width], class) in drawn(n) {
            let sure = &told[usize::from(class) - 1][0];
            let want = [top, left, height, width].map(|side| side as f64);
            let Place {
                y,
                x,
                height,
                width,
            } = sure.place;
            let near = |(a, b): (f64, f64)| (a - b).abs() < 1e-5;
            let got = [y, x, height, width];
            assert!(
                got.into_iter().zip(want).all(near),
                "{n}: {got:?}, {want:?}"
            );
            assert!(sure.score > 0.99);
        }
    }
    let mut score = Score::default();
    for (told, events) in task.told(&heads).iter().zip(task.events(&batch)) {
        assert_eq!(events.len(), 2, "the single cell is none");
        score.boxes(told, &events);
    }
    assert!((score.precision().unwrap() - 1.0).abs() < 1e-9);
    let losses = box_losses(&heads, &targets);
    assert!(losses.abs().max().double_value(&[]) < 1e-6, "{losses:?}");
}

#[test]
fn the_loss_of_boxes_by_hand() {
    let tensor = |values: &[f32], shape: &[i64]| Tensor::from_slice(values).view(shape);
    // Two cells, the first with an event of class 1.
    let targets = tensor(
        &[0.5, 0., 0.5, 0., 1., 0., 2., 0., 1., 0., 1., 0.],
        &[1, 6, 1, 2],
    );
    let heads = Heads {
        // Distances of 0.5, 0, 1 and 3 in the first cell.
        place: tensor(&[0., 9., 0.5, 9., 0., 9., -1., 9.], &[1, 4, 1, 2]),
        object: tensor(&[0.; 4], &[1, 2, 1, 2]),
        class: tensor(&[0.; 4], &[1, 2, 1, 2]),
    };
    let half = 2f64.ln();
    let places = 5.0 * 0.125 + 7.0 * (0.5 + 2.5);
    let want = places + half + half + 0.5 * half;
    let got = box_losses(&heads, &targets).double_value(&[0]);
    assert!((got - want).abs() < 1e-5, "{got} is not {want}");
}

#[test]
fn the_same_part_of_maps_is_labelled_everywhere() {
    let some = labelled(1000, 0.1, 7);
    assert_eq!(some.iter().filter(|is| **is).count(), 100);
    assert_eq!(some, labelled(1000, 0.1, 7));
    assert_ne!(some, labelled(1000, 0.1, 8));
    // With more of them those that were labelled stay so.
    let more = labelled(1000, 0.2, 7);
    assert!(some.iter().zip(&more).all(|(some, more)| !some || *more));
    assert_eq!(labelled(5, 0.1, 7).iter().filter(|is| **is).count(), 1);
    assert_eq!(labelled(5, 1.0, 7), [true; 5]);
}

#[test]
fn maps_that_are_not_labelled_teach_reconstruction_alone() {
    let task_of = |unlabelled, reconstruction| {
        task(|settings| {
            settings.labelled = 0.25;
            settings.unlabelled = unlabelled;
            settings.reconstruction = reconstruction;
        })
    };
    let all = task_of(true, 1.0);
    let [known, unknown] = [true, false].map(|known| {
        let maps = ALL.into_iter().filter(|map| all.labelled[*map] == known);
        maps.collect::<Vec<usize>>()
    });
    assert_eq!(known.len(), 3);
    assert_eq!(
        all.targets(&batch(&all, &unknown))
            .abs()
            .max()
            .double_value(&[]),
        0.0
    );
    let loss =
        |task: &ClimateBoxes, maps: &[usize]| task.loss(&batch(task, maps)).double_value(&[]);
    let boxes = task_of(true, 0.0);
    assert_eq!(loss(&boxes, &unknown), 0.0);
    assert!(loss(&all, &unknown) > 0.0);
    assert_eq!(loss(&task_of(false, 1.0), &unknown), 0.0);
    // The mean over all maps is that of labelled ones for the boxes, and that of all for the reconstruction.
    let one = task(|settings| settings.reconstruction = 0.0);
    assert!((loss(&boxes, &ALL) - loss(&one, &known)).abs() < 1e-4);
    let reconstruction = loss(&all, &ALL) - loss(&boxes, &ALL);
    let of = |map: usize| {
        let scaled = all.network.input.scaled(&batch(&all, &[map])["image"]);
        let errors = all.network.decode(&all.network.encode(&scaled, true)) - scaled;
        errors.square().mean(Kind::Double).double_value(&[])
    };
    let want = ALL.map(of).iter().sum::<f64>() / 12.0;
    assert!(
        (reconstruction - want).abs() < 1e-4,
        "{reconstruction}, {want}"
    );
    // Without the others the mean is over labelled ones.
    let alone = loss(&task_of(false, 1.0), &ALL) - loss(&boxes, &ALL);
    let want = known.iter().map(|map| of(*map)).sum::<f64>() / 3.0;
    assert!((alone - want).abs() < 1e-4, "{alone}, {want}");
}

#[test]
fn statistics_are_of_training_alone() {
    let task = task(|settings| settings.norm = true);
    let scaled = task.network.input.scaled(&batch(&task, &ALL)["image"]);
    let coarsest = |train| tch::no_grad(|| task.network.encode(&scaled, train));
    let before = coarsest(false);
    assert_eq!(before, coarsest(false));
    drop(coarsest(true));
    assert_ne!(before, coarsest(false));
}

#[test]
fn every_parameter_has_a_gradient_whatever_the_batch() {
    for reconstruction in [0.0, 1.0] {
        let task = task(|settings| {
            settings.norm = true;
            settings.labelled = 0.25;
            settings.reconstruction = reconstruction;
        });
        let unknown = ALL.into_iter().find(|map| !task.labelled[*map]).unwrap();
        task.loss(&batch(&task, &[unknown])).backward();
        for (name, tensor, kind) in task.tensors() {
            let defined = tensor.grad().defined();
            assert_eq!(defined, kind == TensorKind::Parameter, "{name}");
        }
    }
}

#[test]
fn it_learns_where_events_are_and_what_maps_look_like() {
    let task = task(|settings| settings.norm = true);
    let before = task.score(Split::HeldOut).unwrap().relative_error();
    let batch = batch(&task, &ALL);
    let losses = descend(&task, &batch, 150, 0.01);
    assert!(losses[149] < 0.2 * losses[0], "{losses:?}");
    let report = task.evaluate().unwrap();
    let names: Vec<&str> = report.parts.iter().map(|part| part.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "tropical cyclone",
            "atmospheric river",
            "reconstruction error"
        ]
    );
    assert!(report.metric.value > 0.8, "{report:?}");
    assert!(
        report.metric.value > report.baselines[0].value,
        "{report:?}"
    );
    let mean = report.parts[..2].iter().map(|part| part.value).sum::<f64>() / 2.0;
    assert!((report.metric.value - mean).abs() < 1e-12);
    let after = report.parts[2].value;
    assert!(after < 0.9 * before, "{after}, {before} before");
    let picture = report.picture.unwrap();
    assert_eq!(picture.truth.len(), ROWS * COLUMNS);
    let [truth, told] = picture.outlines;
    assert_eq!(truth.len(), 2);
    assert!(!told.is_empty());
    // Map 0: rows 0 to 4 of 16, columns 2 to 6 of 32.
    let south = truth.iter().find(|outline| outline.class == 1).unwrap();
    assert!(south.latitude[0] >= -90.0 && south.longitude[1] - south.longitude[0] == 45.0);
}

#[test]
fn without_reconstruction_none_is_told() {
    let task = task(|settings| settings.reconstruction = 0.0);
    let report = task.evaluate().unwrap();
    assert_eq!(report.parts.len(), 2);
    let picture = report.picture.unwrap();
    assert_eq!(picture.truth, picture.forecast);
}

#[test]
fn maps_that_do_not_fit_are_named() {
    let folder = folder();
    let refused = |change: fn(&mut tradewind_config::ClimateBoxes)| {
        let mut settings = settings(folder.path());
        change(&mut settings);
        let task = ClimateBoxes::new(&settings, 1, &Reading::default());
        let error = match task {
            Err(error) => error,
            Ok(task) => task.evaluate().unwrap_err(),
        };
        error.to_string()
    };
    let text = refused(|settings| settings.encoder = vec![1; 5]);
    assert!(
        text.contains("multiples of 2^5") && text.contains("16 × 32"),
        "{text}"
    );
    let text = refused(|settings| settings.encoder = vec![1; 64]);
    assert!(text.contains("multiples of 2^64"), "{text}");
    let text = refused(|settings| settings.event_cells = 1000);
    assert!(
        text.contains("held_out") && text.contains("data.event_cells"),
        "{text}"
    );
}
