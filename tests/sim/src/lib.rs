//! The simulated world: the real cores of coordinator, shards and sessions under virtual time, over
//! a network that delays, loses, repeats and reorders, on processes that die, hang and come back,
//! over disks that are slow and fail. One seed decides everything, so a schedule that breaks a rule
//! can be replayed.

pub mod checker;
pub mod group;
pub mod malformed;
pub mod net;
pub mod party;
pub mod report;
pub mod scenario;
pub mod seeds;
pub mod values;
mod world;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

pub use party::Party;
pub use report::Report;
pub use scenario::{Fault, GroupPlan, NetworkPlan, Planned, Sabotage, Scenario, Stall};
pub use world::World;

/// A world is many small values for a short time: with the system's allocator a fifth of its time goes there.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Randomness for one use. Uses do not disturb each other: a drawn delay more does not change the
/// faults.
fn random_stream(seed: u64, purpose: u64) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(purpose);
    rng
}
