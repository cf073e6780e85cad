use std::path::Path;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use tradewind_worker::c10d::{Nccl, NcclError};

use super::played::{LIBTORCH, bound_at_once, skip};

/// What a GPU machine binds: a symbol that is missing would be told there, and not before.
#[test]
fn every_symbol_is_there() {
    let test = "gpu::bound::every_symbol_is_there";
    bound_at_once(test, || {
        let cuda = Path::new(LIBTORCH.unwrap()).join("libtorch_cuda.so");
        // SAFETY: as the worker loads it.
        let loaded = unsafe { Library::open(Some(cuda), RTLD_NOW | RTLD_GLOBAL) };
        std::mem::forget(loaded.unwrap());
        match Nccl::load() {
            Ok(nccl) => assert_eq!(nccl.version(), (2, 28, 9)),
            Err(missing @ NcclError::Missing { .. }) => skip(&format!("{test}: {missing}")),
            Err(error) => panic!("{error}"),
        }
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let runtime = maps.lines().find(|line| line.contains("/libcudart.so"));
        let runtime = runtime.unwrap();
        assert!(!runtime.contains(env!("CARGO_TARGET_TMPDIR")), "{runtime}");
    });
}
