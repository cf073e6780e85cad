//! A coordinator that dies after every call goes on as if it had not, through long random scripts.

use super::desk::{Desk, run_of};
use crate::core::run::{GroupState, Phase};

const SERVERS: u64 = 3;
const SIZES: [u32; 2] = [2, 1];

/// Steele et al. 2014, "Fast Splittable Pseudorandom Number Generators", figure 16.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ z >> 31) % n
    }
}

fn desk() -> Desk {
    let mut spec = run_of(&SIZES);
    spec.faults.replication = 2;
    spec.faults.snapshot_ms = 0;
    spec.lease_ms = 1_000_000;
    Desk::new(spec, SERVERS as u32, true)
}

/// Something that may happen next.
fn line(dice: &mut Dice, desk: &Desk, lives: &mut [u64], clock: &mut u64) -> String {
    let group = dice.below(2);
    let rank = dice.below(u64::from(SIZES[group as usize]));
    let server = dice.below(SERVERS);
    let Some(run) = desk.run() else {
        return format!("join {group}.{rank} a");
    };
    let row = run
        .rows(0)
        .into_iter()
        .find(|row| u64::from(row.group.0) == group);
    let life = row.as_ref().map_or(0, |row| row.incarnation.0);
    let live = row.is_some_and(|row| row.state == GroupState::Live);
    let who = format!("{group}.{rank}@{life}");
    let up = desk.is_up(server as u32);
    let ready = matches!(run.phase(), Phase::Ready);
    match dice.below(40) {
        0..4 => format!(
            "join {group}.{rank} {}",
            ["a", "b"][(dice.below(8) / 7) as usize]
        ),
        // Who speaks as a life of the group knows that it has joined.
        4..9 if desk.joins(&format!("{group}.{rank}")) => "live 9".into(),
        4..7 if desk.creators.contains(&who) => format!("await {who} created"),
        4..7 => format!("await {who}"),
        7 if live => format!("beat {who} {clock}"),
        8 if dice.below(3) == 0 => format!("lost {who}"),
        9 if dice.below(8) == 0 => format!("leave {who}"),
        10..12 if live => format!("lease {who}"),
        12..16 if !up => {
            // One that was killed comes back as another life, one that was cut off as itself.
            lives[server as usize] += dice.below(2);
            format!("up {server} life {}", lives[server as usize])
        }
        12 | 13 if dice.below(2) == 0 => format!("down {server}"),
        16..22 if up => format!("captured {server}"),
        22..26 if !desk.manifests.is_empty() => "written".into(),
        26..29 if up => format!("ack {server} complete full {}", dice.below(SERVERS)),
        29 if up && ready => {
            *clock += dice.below(3);
            format!("ack {server} complete saw {clock}")
        }
        30..40 if up => format!("ack {server} complete restored 1"),
        _ => "live 9".into(),
    }
}

#[test]
fn a_coordinator_that_dies_after_every_call_goes_on_as_if_it_had_not() {
    let (mut ready, mut promoted, mut restored, mut lives_of_groups) = (0, 0, 0, 0);
    for seed in 0..16 {
        let mut dice = Dice(seed);
        let (mut steady, mut dying) = (desk(), desk());
        let (mut lives, mut clock) = ([1; SERVERS as usize], 0);
        let mut script = String::new();
        for _ in 0..300 {
            let line = line(&mut dice, &steady, &mut lives, &mut clock);
            if line == "live 9" {
                continue;
            }
            let said = steady.happen(&line);
            script += &format!("{line} => {said}\n");
            let same = dying.happen(&line);
            assert!(
                said == same,
                "seed {seed}: after recoveries it says {same:?}\n{script}"
            );
            if let Err(other) = dying.recover() {
                panic!("seed {seed}: recovered, it goes on differently:\n{script}{other}");
            }
            let events = steady.happen("events");
            promoted += events.matches("promoted").count();
            restored += events.matches("restored").count();
            lives_of_groups += events.matches("group_formed").count();
            if matches!(steady.run().map(|run| run.phase()), Some(Phase::Failed(_))) {
                break;
            }
        }
        let phase = steady.run().map(|run| run.phase().clone());
        ready += u32::from(phase == Some(Phase::Ready));
    }
    let all = (ready, promoted, restored, lives_of_groups);
    assert!(
        ready > 8 && promoted > 20 && restored > 5 && lives_of_groups > 100,
        "{all:?}"
    );
}
