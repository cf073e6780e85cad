//! What is drawn from libtorch's generator. It belongs to the whole process: what one thread draws would be missing from
//! what another has seeded it for, so that all of the models' draws are made here, and one thread's at a time.

use parking_lot::{ReentrantMutex, ReentrantMutexGuard};
use tch::{Device, Kind, Tensor};
use tradewind_common::mix::mixed;
use tradewind_common::{GroupId, Rank};

/// Held while anything is drawn: by a thread that has seeded the generator until it has drawn all that follows.
static GENERATOR: ReentrantMutex<()> = ReentrantMutex::new(());

/// "steps" in ASCII: keeps these draws apart from others of the run's seed.
const STEPS: u64 = 0x73_7465_7073;

fn alone() -> ReentrantMutexGuard<'static, ()> {
    GENERATOR.lock()
}

/// Runs `make` with libtorch's generator seeded, while no other thread draws.
pub fn seeded<T>(seed: u64, make: impl FnOnce() -> T) -> T {
    let _alone = alone();
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place that seeds libtorch"
    )]
    tch::manual_seed(seed as i64);
    make()
}

/// Seeds libtorch's generators, of the CPU and of GPUs, for a step of a rank: what its forward draws, such as
/// dropout's masks, follows from the arguments alone. `step` counts the steps of the run.
pub fn seed_step(seed: u64, group: GroupId, rank: Rank, step: u64) {
    let parts = [STEPS, group.0.into(), rank.0.into(), step];
    seeded(mixed(seed, parts), || ());
}

/// Normal numbers of mean 0 and this deviation, in f32 and main memory.
pub(super) fn normal(size: &[i64], deviation: f64) -> Tensor {
    let _alone = alone();
    Tensor::randn(size, (Kind::Float, Device::Cpu)) * deviation
}

/// In training, `part` of the numbers is 0 and the others grow by as much (Srivastava et al. 2014, "Dropout: A Simple
/// Way to Prevent Neural Networks from Overfitting"); otherwise they are as they were.
pub(super) fn dropout(hidden: &Tensor, part: f64, train: bool) -> Tensor {
    let _alone = alone();
    hidden.dropout(part, train)
}
