//! Which device a rank takes, from what is asked for and what the node shows.

use tch::Device;
use tradewind_config::DeviceChoice;

use super::driver::{Gpu, Seen};

/// Why a rank has no device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChooseError {
    /// A GPU is asked for where there is none.
    #[error(
        "compute.device = \"{asked}\", but no GPU was found: {why}; run where there is one, or set compute.device = \"cpu\""
    )]
    NoGpu {
        /// The key's value.
        asked: String,
        /// What was found instead.
        why: String,
    },
    /// There is a driver, but it fails, so that there may be GPUs or not.
    #[error(
        "compute.device = \"{asked}\", and NVIDIA's driver is there but fails: {why}; mend it (`nvidia-smi` may tell more), or set compute.device = \"cpu\" to do without GPUs"
    )]
    Failing {
        /// The key's value.
        asked: String,
        /// What the driver says.
        why: String,
    },
    /// Fewer GPUs than ranks.
    #[error(
        "{who} for GPU {number}, but {} found: {}; start fewer ranks here, set compute.device = \"cuda:0\" to let all share GPU 0, or \"cpu\"", were(.found), list(.found)
    )]
    TooFew {
        /// Such as `rank 3 of this node asks`.
        who: String,
        /// The highest number that is asked for.
        number: u32,
        /// What there is.
        found: Vec<String>,
    },
    /// No GPU of the configured number.
    #[error("compute.device = \"cuda:{number}\", but {} found: {}; take one of these numbers", were(.found), list(.found))]
    NoSuch {
        /// The configured number.
        number: u32,
        /// What there is.
        found: Vec<String>,
    },
}

/// The device of the rank that is `local_rank` on its node. Who sees exactly one GPU takes it,
/// whatever its number: schedulers show each rank its own.
pub fn choose(asked: DeviceChoice, seen: &Seen, local_rank: u32) -> Result<Device, ChooseError> {
    let too_few = || (format!("rank {local_rank} of this node asks"), local_rank);
    of(asked, seen, |gpus| match gpus {
        1 => Some(0),
        _ => (local_rank < gpus).then_some(local_rank),
    })
    .map_err(|why| why.or_too_few(too_few, seen))
}

/// The devices of all ranks of a node, who see the same GPUs: one for each, unless a number is
/// configured, which all of them share.
pub fn choose_all(
    asked: DeviceChoice,
    seen: &Seen,
    ranks: u32,
) -> Result<Vec<Device>, ChooseError> {
    let too_few = || {
        (
            format!("the last of {ranks} ranks on this node asks"),
            ranks - 1,
        )
    };
    (0..ranks)
        .map(|rank| {
            let own = of(asked, seen, |gpus| (ranks <= gpus).then_some(rank));
            own.map_err(|why| why.or_too_few(too_few, seen))
        })
        .collect()
}

/// An error, or that `pick` had none to take.
enum Why {
    Error(ChooseError),
    TooFew,
}

impl Why {
    fn or_too_few(self, who: impl Fn() -> (String, u32), seen: &Seen) -> ChooseError {
        match self {
            Self::Error(error) => error,
            Self::TooFew => {
                let (who, number) = who();
                let found = names(seen.gpus());
                ChooseError::TooFew { who, number, found }
            }
        }
    }
}

/// What is asked for; `pick` tells the number to take among so many.
fn of(asked: DeviceChoice, seen: &Seen, pick: impl Fn(u32) -> Option<u32>) -> Result<Device, Why> {
    if asked == DeviceChoice::Cpu {
        return Ok(Device::Cpu);
    }
    let gpus = match seen {
        Seen::Gpus { gpus, .. } => gpus,
        Seen::None { .. } if asked == DeviceChoice::Auto => return Ok(Device::Cpu),
        Seen::None { why } => {
            let (asked, why) = (asked.to_string(), why.clone());
            return Err(Why::Error(ChooseError::NoGpu { asked, why }));
        }
        Seen::Failing { why } => {
            let (asked, why) = (asked.to_string(), why.clone());
            return Err(Why::Error(ChooseError::Failing { asked, why }));
        }
    };
    match asked {
        DeviceChoice::CudaAt(number) if (number as usize) < gpus.len() => {
            Ok(Device::Cuda(number as usize))
        }
        DeviceChoice::CudaAt(number) => {
            let found = names(gpus);
            Err(Why::Error(ChooseError::NoSuch { number, found }))
        }
        DeviceChoice::Auto | DeviceChoice::Cuda | DeviceChoice::Cpu => {
            match pick(gpus.len() as u32) {
                Some(number) => Ok(Device::Cuda(number as usize)),
                None => Err(Why::TooFew),
            }
        }
    }
}

fn names(gpus: &[Gpu]) -> Vec<String> {
    gpus.iter().map(|gpu| gpu.name.clone()).collect()
}

fn were(found: &[String]) -> String {
    match found.len() {
        1 => "1 GPU was".into(),
        count => format!("{count} GPUs were"),
    }
}

fn list(found: &[String]) -> String {
    let numbered = found.iter().enumerate();
    let numbered = numbered.map(|(number, name)| format!("{number} ({name})"));
    numbered.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use DeviceChoice::{Auto, Cpu, Cuda, CudaAt};

    use super::*;

    fn gpus(count: u8) -> Seen {
        let gpu = |number| Gpu {
            name: "H200".into(),
            uuid: [number; 16],
        };
        Seen::Gpus {
            gpus: (0..count).map(gpu).collect(),
            cuda: (13, 0),
        }
    }

    fn none() -> Seen {
        let why = "libcuda.so.1: no such file".into();
        Seen::None { why }
    }

    fn failing() -> Seen {
        let why = "cuInit: system not yet initialized".into();
        Seen::Failing { why }
    }

    /// What is wanted: `cpu`, `cuda:N`, or a part of the message.
    fn compare<T>(got: Result<T, ChooseError>, word: impl Fn(T) -> String, want: &str, case: &str) {
        match got {
            Ok(devices) => assert_eq!(word(devices), want, "{case}"),
            Err(error) => {
                let text = error.to_string();
                let is = !want.starts_with("cpu") && !want.starts_with("cuda:");
                assert!(is && text.contains(want), "{case}: {text:?}, want {want:?}");
            }
        }
    }

    fn word(device: Device) -> String {
        match device {
            Device::Cuda(number) => format!("cuda:{number}"),
            _ => "cpu".into(),
        }
    }

    #[test]
    fn a_rank_alone() {
        let cases: &[(DeviceChoice, Seen, u32, &str)] = &[
            (Cpu, none(), 0, "cpu"),
            (Cpu, gpus(2), 1, "cpu"),
            (Cpu, failing(), 0, "cpu"),
            (Auto, none(), 0, "cpu"),
            (Auto, gpus(1), 0, "cuda:0"),
            (Auto, gpus(1), 5, "cuda:0"),
            (Auto, gpus(4), 3, "cuda:3"),
            (
                Auto,
                gpus(2),
                3,
                "rank 3 of this node asks for GPU 3, but 2 GPUs were found: 0 (H200), 1 (H200); start fewer",
            ),
            (Auto, failing(), 0, "fails: cuInit: system not yet"),
            (
                Cuda,
                none(),
                0,
                "compute.device = \"cuda\", but no GPU was found: libcuda.so.1: no such file",
            ),
            (Cuda, none(), 0, "set compute.device = \"cpu\""),
            (Cuda, failing(), 0, "compute.device = \"cuda\", and"),
            (Cuda, gpus(1), 5, "cuda:0"),
            (Cuda, gpus(4), 0, "cuda:0"),
            (Cuda, gpus(4), 4, "asks for GPU 4, but 4 GPUs"),
            (CudaAt(1), gpus(2), 0, "cuda:1"),
            (CudaAt(1), gpus(2), 7, "cuda:1"),
            (
                CudaAt(1),
                gpus(1),
                0,
                "compute.device = \"cuda:1\", but 1 GPU was found: 0 (H200); take",
            ),
            (CudaAt(0), none(), 0, "\"cuda:0\", but no GPU was found"),
            (CudaAt(0), failing(), 0, "\"cuda:0\", and"),
        ];
        for (asked, seen, local_rank, want) in cases {
            let case = format!("{asked:?} {seen:?} {local_rank}");
            compare(choose(*asked, seen, *local_rank), word, want, &case);
        }
    }

    #[test]
    fn all_ranks_of_a_node() {
        let cases: &[(DeviceChoice, Seen, u32, &str)] = &[
            (Cpu, gpus(1), 2, "cpu cpu"),
            (Auto, none(), 2, "cpu cpu"),
            (Auto, gpus(1), 1, "cuda:0"),
            (Auto, gpus(3), 2, "cuda:0 cuda:1"),
            (
                Auto,
                gpus(1),
                2,
                "the last of 2 ranks on this node asks for GPU 1, but 1 GPU was found: 0 (H200)",
            ),
            (
                Cuda,
                gpus(2),
                4,
                "the last of 4 ranks on this node asks for GPU 3",
            ),
            (
                Cuda,
                gpus(2),
                4,
                "set compute.device = \"cuda:0\" to let all share",
            ),
            (Cuda, none(), 2, "no GPU was found"),
            (CudaAt(1), gpus(2), 3, "cuda:1 cuda:1 cuda:1"),
            (CudaAt(2), gpus(2), 3, "\"cuda:2\", but 2 GPUs were found"),
        ];
        for (asked, seen, ranks, want) in cases {
            let case = format!("{asked:?} {seen:?} {ranks}");
            let words = |devices: Vec<Device>| {
                let words: Vec<_> = devices.into_iter().map(word).collect();
                words.join(" ")
            };
            compare(choose_all(*asked, seen, *ranks), words, want, &case);
        }
    }
}
