//! One file with the model's tensors.

use std::collections::HashMap;
use std::fs;

use super::*;
use crate::snapshot::export::{ExportError, export};

#[test]
fn names_shapes_and_values_are_the_models() {
    for shards in [1, 3] {
        let world = World::new();
        let states = world.snapshot(1, shards);
        let mut flat = vec![0.0; world.layout.elements()];
        for (block, state) in world.layout.blocks.iter().zip(&states) {
            flat[block.elements.clone()].copy_from_slice(&state.values);
        }
        let target = world.folder.root().join("model.safetensors");
        let notes = HashMap::from([("model".to_owned(), "forecast".to_owned())]);
        let (folder, run, layout) = (&world.folder, &world.run, &world.layout);
        export(folder, run, 1, layout, notes, &target).unwrap();

        let bytes = fs::read(&target).unwrap();
        let (_, header) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
        assert_eq!(header.metadata().as_ref().unwrap()["model"], "forecast");
        let mut names: Vec<_> = layout.tensors.iter().map(|t| t.spec.name.clone()).collect();
        names.sort();
        assert_eq!(header.offset_keys(), names, "in name order");
        let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        for tensor in &layout.tensors {
            let read = file.tensor(&tensor.spec.name).unwrap();
            let shape: Vec<u64> = read.shape().iter().map(|extent| *extent as u64).collect();
            assert_eq!(shape, tensor.spec.shape);
            let want: &[u8] = bytemuck::cast_slice(&flat[tensor.elements.clone()]);
            assert_eq!(read.data(), want, "{}", tensor.spec.name);
        }
    }
}

#[test]
fn a_damaged_snapshot_is_not_exported_and_leaves_what_was_there() {
    let world = World::new();
    world.snapshot(1, 2);
    let (folder, run, layout) = (&world.folder, &world.run, &world.layout);
    let path = folder.snapshot(run, 1).join("shard-0001.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, bytes).unwrap();
    let target = folder.root().join("model.safetensors");
    fs::write(&target, b"former").unwrap();
    let error = export(folder, run, 1, layout, HashMap::new(), &target).unwrap_err();
    assert!(
        matches!(&error, ExportError::Damaged(damaged) if damaged.path == path),
        "{error}"
    );
    assert_eq!(fs::read(&target).unwrap(), b"former");
    let mut names = crate::disk::names(folder.root()).unwrap();
    names.sort();
    assert_eq!(names, ["model.safetensors", "snapshots"]);
}
