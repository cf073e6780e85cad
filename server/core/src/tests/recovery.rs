//! A coordinator that dies after every call goes on as if it had not, through long random scripts.

use tradewind_common::{Incarnation, RunId, ServerId};

use super::harness::{Harness, SERVER_LEASE_MS, at, play, run_of};
use crate::ReplyTo;
use crate::answer::Refused;
use crate::coordinator::{Coordinator, Output};
use crate::event::EVENTS_MAX;
use crate::run::{GroupState, Phase};

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

fn harness() -> Harness {
    let mut spec = run_of(&SIZES);
    spec.faults.replication = 2;
    spec.faults.snapshot_ms = 0;
    spec.lease_ms = 1_000_000;
    spec.faults.patience_ms = 2_000_000;
    Harness::new(spec, SERVERS as u32, true)
}

/// Something that may happen next.
fn line(dice: &mut Dice, harness: &Harness, lives: &mut [u64], clock: &mut u64) -> String {
    let group = dice.below(2);
    let rank = dice.below(u64::from(SIZES[group as usize]));
    let server = dice.below(SERVERS);
    let Some(run) = harness.run() else {
        return format!("join {group}.{rank} a");
    };
    let row = run
        .rows(0)
        .into_iter()
        .find(|row| u64::from(row.group.0) == group);
    let life = row.as_ref().map_or(0, |row| row.incarnation.0);
    let live = row.is_some_and(|row| row.state == GroupState::Live);
    let who = format!("{group}.{rank}@{life}");
    let up = harness.is_up(server as u32);
    let ready = matches!(run.phase(), Phase::Ready);
    match dice.below(40) {
        0..4 => format!(
            "join {group}.{rank} {}",
            ["a", "b"][(dice.below(8) / 7) as usize]
        ),
        // Who speaks as a life of the group knows that it has joined.
        4..9 if harness.joins(&format!("{group}.{rank}")) => "live 9".into(),
        4..7 if harness.creators.contains(&who) => format!("await {who} created"),
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
        22..26 if !harness.manifests.is_empty() => "written".into(),
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
    for seed in 0..10 {
        let mut dice = Dice(seed);
        let (mut steady, mut dying) = (harness(), harness());
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
        ready > 4 && promoted > 10 && restored > 2 && lives_of_groups > 60,
        "{all:?}"
    );
}

/// A fleet of two in which everything has two holders and one group of one rank trains.
fn training() -> Harness {
    let mut spec = run_of(&[1]);
    spec.faults.replication = 2;
    let mut harness = Harness::new(spec, 2, true);
    play(
        &mut harness,
        "
        join 0.0 a => view 2 + 0@1 by 0@1
        ack 0 complete =>
        ack 1 complete => 0.0 joined as 1, view 2 + 0@1 by 0@1 | capture 1:0 at now | capture 1:1 at now
        captured 0 =>
        captured 1 => manifest 1
        written => view 4 0@1:0 + by nobody
        ack 0 full 1 => view 5 0@1:0 + by nobody | 0:0@0+1@0* 1:1@0+0@0
        ack 1 full 0 => view 6 0@1:0 + by nobody | 0:0@0+1@0* 1:1@0+0@0*
        ",
    );
    harness
}

/// Another goes on with what was written down, some time later; nobody has registered there yet.
fn successor(harness: &Harness, now_ms: u64) -> Coordinator {
    let durable = serde_json::to_string(&harness.coordinator.durable()).unwrap();
    let durable = serde_json::from_str(&durable).unwrap();
    Coordinator::recover(2, true, SERVER_LEASE_MS, durable, now_ms)
}

fn events(coordinator: &Coordinator) -> Vec<&'static str> {
    let events = coordinator.recent_events();
    events.map(|event| event.kind.word()).collect()
}

#[test]
fn after_a_recovery_everybody_has_one_lease_to_show_up() {
    let mut coordinator = successor(&training(), 5_000);
    coordinator.tick(5_099);
    assert_eq!(events(&coordinator), ["coordinator"]);
    coordinator.tick(5_100);
    assert_eq!(events(&coordinator), ["coordinator", "rank_lost"]);
    let back = at(ServerId(0), Incarnation(1));
    coordinator.register(ServerId(0), back, 5_999).unwrap();
    coordinator.tick(6_000);
    let told = [
        "coordinator",
        "rank_lost",
        "server_up",
        "server_lost",
        "heir",
    ];
    assert_eq!(events(&coordinator), told);
}

#[test]
fn a_server_that_comes_to_the_successor_as_another_life_has_lost_what_it_held() {
    let mut coordinator = successor(&training(), 0);
    let back = at(ServerId(0), Incarnation(2));
    coordinator.register(ServerId(0), back, 10).unwrap();
    // The other one has not registered yet, but holds a full copy.
    let told = [
        "coordinator",
        "server_lost",
        "orphaned",
        "copy_removed",
        "server_up",
    ];
    assert_eq!(events(&coordinator)[..5], told);
    let back = at(ServerId(1), Incarnation(1));
    coordinator.register(ServerId(1), back, 20).unwrap();
    assert_eq!(
        events(&coordinator)[5..],
        ["copy_added", "server_up", "heir"]
    );
}

#[test]
fn a_manifest_that_was_being_written_is_written_again() {
    let mut harness = training();
    harness.happen("shot x");
    harness.happen("captured 0");
    assert_eq!(harness.happen("captured 1"), "manifest 2");
    let mut coordinator = successor(&harness, 0);
    let mut outputs = std::iter::from_fn(|| coordinator.poll_output());
    let manifest = outputs.find_map(|output| match output {
        Output::Manifest(manifest) => Some(*manifest),
        _ => None,
    });
    let text = |manifest| serde_json::to_string(manifest).unwrap();
    let before = harness.manifests.last().unwrap();
    assert_eq!(text(&manifest.unwrap()), text(before));
}

#[test]
fn what_waits_and_what_is_told_has_a_bound() {
    let mut harness = training();
    harness.happen("shot x");
    for _ in 0..63 {
        assert_eq!(harness.happen("shot x"), "");
    }
    assert_eq!(harness.happen("shot x"), "x refused TooManyWaiting");
    for life in 1..60 {
        harness.happen(&format!("up 1 life {}", life + 1));
    }
    assert_eq!(harness.coordinator.recent_events().count(), EVENTS_MAX);
    let numbers: Vec<u64> = harness
        .coordinator
        .recent_events()
        .map(|e| e.number)
        .collect();
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1));
}

#[test]
fn what_a_fleet_without_a_folder_cannot_do_is_refused() {
    let harness = training();
    let mut coordinator = Coordinator::new(1, false, SERVER_LEASE_MS);
    let saved = crate::saved::Saved {
        manifest: harness.manifests[0].clone(),
        numbers: vec![1],
        damaged: vec![],
        recorded: tradewind_common::Generation(0),
    };
    let run = RunId::new("r").unwrap();
    assert_eq!(
        coordinator.resume(run.clone(), saved),
        Err(Refused::NoFolder)
    );
    coordinator.snapshot(&run, ReplyTo(1), 0);
    assert!(matches!(
        coordinator.poll_output(),
        Some(Output::Reply(ReplyTo(1), Err(Refused::Refusal(_))))
    ));
    let mut harness = Harness::new(run_of(&[1]), 1, false);
    harness.happen("join 0.0 a");
    assert_eq!(harness.happen("shot x"), "x refused NoFolder");
}

#[test]
fn a_broken_connection_of_a_former_life_says_nothing() {
    let mut harness = training();
    harness.happen("up 1 life 2");
    let before = harness
        .coordinator
        .run(&RunId::new("r").unwrap())
        .unwrap()
        .generation();
    harness
        .coordinator
        .server_lost(ServerId(1), Incarnation(1), 0);
    assert!(harness.coordinator.fleet().is_up(ServerId(1)));
    let beat = harness
        .coordinator
        .server_beat(ServerId(1), Incarnation(1), 0);
    assert!(matches!(beat, Err(Refused::StaleServer { .. })));
    let after = harness
        .coordinator
        .run(&RunId::new("r").unwrap())
        .unwrap()
        .generation();
    assert_eq!(before, after);
}

#[test]
fn who_waited_to_join_counts_when_it_has_called_the_successor() {
    let mut harness = Harness::new(run_of(&[2]), 2, true);
    play(&mut harness, "join 0.0 a =>");
    let mut coordinator = successor(&harness, 0);
    for id in 0..2 {
        let id = ServerId(id);
        coordinator.register(id, at(id, Incarnation(1)), 0).unwrap();
    }
    harness.coordinator = coordinator;
    play(
        &mut harness,
        "
        join 0.1 b => view 0 + by none yet
        join 0.0 a => view 2 + 0@1 by 0@1
        ",
    );
}
