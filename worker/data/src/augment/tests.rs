use std::collections::BTreeSet;

use super::*;
use crate::{Column, Kind};

fn moves(extents: usize, roll: &[usize], mirror: &[usize], turn: bool) -> Moves {
    Moves {
        extents,
        roll: roll.into(),
        mirror: mirror.into(),
        turn,
    }
}

fn moved(motion: Motion, extents: [usize; 3], values: &[[u8; 4]]) -> Vec<[u8; 4]> {
    let mut to = vec![[0; 4]; values.len()];
    motion.apply(extents, values, &mut to);
    to
}

/// Each number is where it is.
fn numbered(count: usize) -> Vec<[u8; 4]> {
    (0..count as u32).map(u32::to_le_bytes).collect()
}

/// By the formula, number by number.
fn naive(motion: Motion, extents: [usize; 3], values: &[[u8; 4]]) -> Vec<[u8; 4]> {
    let mut to = Vec::new();
    let volume: usize = extents.iter().product();
    for at in 0..values.len() {
        let within = at % volume;
        let place = [
            within / (extents[1] * extents[2]),
            within / extents[2] % extents[1],
            within % extents[2],
        ];
        let mut from = [0; 3];
        for axis in 0..3 {
            let mut source = place[axis];
            if motion.mirrored[axis] {
                source = extents[axis] - 1 - source;
            }
            source = (source + motion.rolled[axis]) % extents[axis];
            from[motion.from[axis]] = source;
        }
        let from = (from[0] * extents[1] + from[1]) * extents[2] + from[2];
        to.push(values[at - within + from]);
    }
    to
}

#[test]
fn symmetries_are_a_group() {
    for (extents, side, count) in [(2, [1, 4, 4], 8), (3, [4, 4, 4], 48)] {
        let values = numbered(side.iter().product());
        let symmetries = Motion::symmetries(extents);
        assert_eq!((symmetries.len(), symmetries[0]), (count, Motion::NONE));
        let images: Vec<_> = symmetries
            .iter()
            .map(|motion| moved(*motion, side, &values))
            .collect();
        let distinct: BTreeSet<_> = images.iter().collect();
        assert_eq!(distinct.len(), count);
        for (motion, image) in symmetries.iter().zip(&images) {
            assert_eq!(image, &naive(*motion, side, &values));
            assert_eq!(moved(motion.inverse(side), side, image), values);
            let mut sorted = image.clone();
            sorted.sort_unstable_by_key(|one| u32::from_le_bytes(*one));
            assert_eq!(sorted, values);
            // Two after each other are one of them.
            for other in &symmetries {
                assert!(distinct.contains(&moved(*other, side, image)));
            }
        }
        // Neighbours stay neighbours: faces of a cube go to faces.
        let is_corner = |at: usize| {
            let [z, y, x] = [at / 16, at / 4 % 4, at % 4];
            [z, y, x][3 - extents..]
                .iter()
                .all(|place| *place == 0 || *place == 3)
        };
        for image in &images {
            let corners = (0..values.len()).filter(|at| is_corner(*at));
            assert!({ corners }.all(|at| is_corner(u32::from_le_bytes(image[at]) as usize)));
        }
    }
}

#[test]
fn rolling_and_mirroring_follow_the_formula_whatever_the_extents() {
    let fields = [Field::new("x", Kind::F32, &[2, 3, 4, 5])];
    let values = numbered(2 * 60);
    let cases = [
        (moves(3, &[0, 1, 2], &[], false), [3, 4, 5]),
        (moves(3, &[2], &[0, 2], false), [3, 4, 5]),
        (moves(2, &[1], &[0], false), [1, 4, 5]),
        (moves(1, &[0], &[0], false), [1, 1, 5]),
    ];
    for (moves, extents) in cases {
        let augmentation = Augmentation::new(&fields, &["x"], moves.clone()).unwrap();
        let mut motions = Vec::new();
        for sample in 0..200 {
            let motion = augmentation.motion(1, 2, sample);
            let image = moved(motion, extents, &values);
            assert_eq!(image, naive(motion, extents, &values), "{motion:?}");
            assert_eq!(moved(motion.inverse(extents), extents, &image), values);
            let mut bytes = values.as_flattened().to_vec();
            augmentation.apply(motion, &fields[0], &mut bytes, &mut vec![9]);
            assert_eq!(bytes, image.as_flattened());
            for axis in 0..3 {
                let asked = |axes: &[usize]| axes.iter().any(|of| of + 3 - moves.extents == axis);
                assert!(!motion.mirrored[axis] || asked(&moves.mirror));
                assert!(motion.rolled[axis] == 0 || asked(&moves.roll));
            }
            if !motions.contains(&motion) {
                motions.push(motion);
            }
        }
        // All of them come, those of the first case for the greater part.
        let all = |axes: &[usize], of: &dyn Fn(usize) -> usize| {
            axes.iter().map(|axis| of(*axis)).product::<usize>()
        };
        let first = 3 - moves.extents;
        let all = all(&moves.roll, &|axis| extents[first + axis]) * all(&moves.mirror, &|_| 2);
        assert!(motions.len() * 10 >= all * 9, "{} of {all}", motions.len());
    }
}

#[test]
fn how_a_sample_is_moved_follows_from_seed_epoch_and_number() {
    let fields = [Field::new("x", Kind::U8, &[64, 64, 64])];
    let all = moves(3, &[0, 1, 2], &[], true);
    let make = || Augmentation::new(&fields, &["x"], all.clone()).unwrap();
    let motion = make().motion(1, 2, 3);
    assert_eq!(motion, make().motion(1, 2, 3));
    for other in [
        make().motion(2, 2, 3),
        make().motion(1, 3, 3),
        make().motion(1, 2, 4),
        make().motion(2, 1, 3),
    ] {
        assert_ne!(motion, other);
    }
    // Pinned, so that versions agree.
    let pinned = Motion {
        from: [2, 1, 0],
        mirrored: [false, true, false],
        rolled: [3, 35, 9],
    };
    assert_eq!(motion, pinned);
    // Each symmetry comes about equally: 100 times each, with a standard deviation of 10.
    let turned = Augmentation::new(&fields, &["x"], moves(3, &[], &[], true)).unwrap();
    let mut seen = [0; 48];
    for sample in 0..4800 {
        let motion = turned.motion(7, 0, sample);
        let at = Motion::symmetries(3).iter().position(|one| *one == motion);
        seen[at.unwrap()] += 1;
    }
    assert!(
        seen.iter().all(|count| (55..150).contains(count)),
        "{seen:?}"
    );
}

#[test]
fn image_and_mask_are_moved_together_whatever_their_kinds() {
    for kind in Kind::ALL {
        let image = Field::new("image", kind, &[2, 6, 6]);
        let mask = Field::new("mask", Kind::U8, &[6, 6]);
        let label = Field::new("label", Kind::U8, &[]);
        let fields = [image, label, mask];
        let augmentation =
            Augmentation::new(&fields, &["image", "mask"], moves(2, &[0, 1], &[], true)).unwrap();
        let samples = vec![5, 0, 9];
        // Each number of an image has the place of its pixel in its last byte, and its channel in the first.
        let numbers = |channel: usize| (0..36).map(move |pixel| (channel, pixel as u8));
        let number = |(channel, pixel)| {
            let mut number = vec![0; kind.bytes()];
            number[0] = channel as u8;
            *number.last_mut().unwrap() = pixel;
            number
        };
        let one: Vec<u8> = (0..2).flat_map(numbers).flat_map(number).collect();
        let values = [
            one.repeat(3),
            vec![1, 2, 3],
            (0..36).collect::<Vec<u8>>().repeat(3),
        ];
        let columns = fields
            .iter()
            .zip(values.clone())
            .map(|(field, values)| Column {
                field: field.clone(),
                values,
                offsets: None,
            });
        let mut batch = Batch {
            samples,
            columns: columns.collect(),
        };
        augmentation.batch(&mut batch, 3, 4);
        let [image, label, mask] = &batch.columns[..] else {
            panic!("{batch:?}");
        };
        assert_eq!(label.values, [1, 2, 3]);
        let pixels: Vec<u8> = image
            .values
            .chunks(kind.bytes())
            .map(|one| *one.last().unwrap())
            .collect();
        for (sample, mask) in mask.values.chunks(36).enumerate() {
            for channel in 0..2 {
                let begin = (2 * sample + channel) * 36;
                assert_eq!(&pixels[begin..begin + 36], mask, "{kind:?}");
            }
            assert_ne!(mask, &values[2][..36]);
        }
        assert_ne!(mask.values[..36], mask.values[36..72]);
        if kind.bytes() > 1 {
            let channels = image.values.chunks(kind.bytes()).map(|one| one[0]);
            let want = (0..3 * 72).map(|at| (at / 36 % 2) as u8);
            assert!(channels.eq(want));
        }
    }
}

#[test]
fn what_cannot_be_moved_is_said() {
    let fields = [
        Field::new("image", Kind::F32, &[4, 6, 8]),
        Field::new("mask", Kind::U8, &[6, 8]),
        Field::new("small", Kind::U8, &[3, 3]),
        Field::varying("boxes", Kind::F32, &[6, 8], 5),
    ];
    let check = |names: &[&str], moves: Moves, want: &str| {
        let error = Augmentation::new(&fields, names, moves)
            .unwrap_err()
            .to_string();
        assert!(error.contains(want), "{error}");
    };
    let two = || moves(2, &[1], &[], false);
    Augmentation::new(&fields, &["image", "mask"], two()).unwrap();
    check(
        &["image", "mask"],
        moves(2, &[], &[], true),
        "mask cannot be turned: its last extents are [6, 8]",
    );
    check(
        &["image", "small"],
        two(),
        "small has the last extents [3, 3], and image has [6, 8]",
    );
    check(
        &["mask"],
        moves(3, &[], &[], false),
        "mask u8 [6, 8] cannot be moved: it must have 3 extents",
    );
    check(&["boxes"], two(), "boxes f32 [≤ 5, 6, 8] cannot be moved");
    check(
        &["masks"],
        two(),
        "there is no field \"masks\" to move; there are image, mask",
    );
    check(
        &["mask"],
        moves(2, &[2], &[], false),
        "along extents 0..2, asked for 2",
    );
    check(
        &["mask"],
        moves(4, &[], &[], false),
        "along 1 to 3 extents, asked for 4",
    );
    check(&[], two(), "there is no field to move");
    check(
        &["small"],
        moves(1, &[], &[], true),
        "small cannot be turned",
    );
}
