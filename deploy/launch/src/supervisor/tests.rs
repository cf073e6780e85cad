use tradewind_common::exit::Exit;

use super::*;

const LEASE_MS: u64 = 10_000;
const AWAY_MS: u64 = 70_000;
const RULES: Rules = Rules {
    progress: Progress::Clocks { lease_ms: LEASE_MS },
    silence: Some(Silence {
        lease_ms: LEASE_MS,
        ping_ms: 1_000,
        away_ms: AWAY_MS,
        listen_ms: 30_000,
    }),
    finds_host: true,
    servers_finish: false,
};
const RANK: Member = Member::Rank { group: 0, rank: 0 };
const PEER: Member = Member::Rank { group: 0, rank: 1 };

/// How a process ends of which a task has panicked: it is started again like any other.
const PANICKED: i32 = Exit::TaskEnded.number() as i32;

/// Servers, and a group of two ranks.
fn supervisor(servers: u32) -> Supervisor {
    let servers = (0..servers).map(Member::Server);
    let members = servers.chain([RANK, PEER]).map(|member| (member, 1));
    Supervisor::new(RULES, members, 0)
}

fn death(how: &str) -> Death {
    Death {
        status: None,
        how: how.into(),
    }
}

fn ended(status: i32) -> Death {
    Death {
        status: Some(status),
        how: format!("ended with status {status}"),
    }
}

/// What shall be done, without what is only told.
fn deeds(supervisor: &mut Supervisor) -> Vec<Action> {
    let all = std::iter::from_fn(|| supervisor.poll_action());
    all.filter(|a| !matches!(a, Action::Tell(_))).collect()
}

/// What is told.
fn told(supervisor: &mut Supervisor) -> Vec<(&'static str, String, bool)> {
    let all = std::iter::from_fn(|| supervisor.poll_action());
    all.filter_map(|action| match action {
        Action::Tell(notice) => Some((notice.kind, notice.text, notice.show)),
        _ => None,
    })
    .collect()
}

fn start(member: Member, life: u64, coordinate: bool) -> Action {
    Action::Start {
        member,
        life,
        coordinate,
    }
}

fn give_up(member: Member, why: String, exit: Exit) -> Action {
    Action::GiveUp { member, why, exit }
}

/// Everybody answers until then, many times in a lease.
fn all_answer(supervisor: &mut Supervisor, servers: &[(u32, u64, bool)], from: u64, to: u64) {
    for now in (from..to).step_by(500) {
        for &(server, life, coordinates) in servers {
            supervisor.handle_pong(server, life, coordinates, now);
        }
        supervisor.tick(now);
    }
}

#[test]
fn a_dead_rank_is_started_again_and_told_in_one_line() {
    let mut s = supervisor(1);
    s.handle_death(RANK, &death("was killed by signal 9"), 5);
    assert_eq!(deeds(&mut s), [start(RANK, 2, false)]);
    s.handle_started(RANK, 6);
    let line = "rank 0 of group 0 was killed by signal 9; restarted";
    assert_eq!(told(&mut s), [("process_restarted", line.to_owned(), true)]);
    assert!(!s.ranks_done());
}

#[test]
fn deaths_without_progress_come_to_an_end() {
    let mut s = supervisor(1);
    let mut now = 0;
    let mut pauses = Vec::new();
    for life in 2..=6 {
        s.handle_death(RANK, &ended(PANICKED), now);
        let died = now;
        while deeds(&mut s) != [start(RANK, life, false)] {
            now += 100;
            s.handle_pong(0, 1, true, now);
            s.tick(now);
        }
        pauses.push(now - died);
        s.handle_started(RANK, now);
        s.poll_action();
        now += 10;
    }
    assert_eq!(pauses, [0, 1_000, 2_000, 4_000, 8_000]);
    s.handle_death(RANK, &ended(PANICKED), now);
    let why = "ended with status 9, 6 times without progress".to_owned();
    assert_eq!(deeds(&mut s), [give_up(RANK, why, Exit::Failed)]);
    s.tick(now + 100_000);
    assert_eq!(deeds(&mut s), [], "nothing follows");
}

#[test]
fn progress_is_a_clock_that_the_rank_had_part_in() {
    let mut s = supervisor(1);
    let both = BTreeSet::from([(0, 0), (0, 1)]);
    let peer = BTreeSet::from([(0, 1)]);
    let mut crash = |now: u64, present: &BTreeSet<(u32, u32)>| {
        s.handle_death(RANK, &death("crashed"), now);
        let deaths = s.members[&RANK].deaths;
        for later in (now..now + 9_000).step_by(500) {
            s.handle_pong(0, 1, true, later);
            s.tick(later);
        }
        if !deeds(&mut s).is_empty() {
            s.handle_started(RANK, now + 9_000);
        }
        s.handle_present(present, now + 9_000);
        s.handle_clock(0, now + 9_100);
        deaths
    };
    assert_eq!(crash(0, &peer), 1);
    assert_eq!(crash(10_000, &peer), 2, "the group went on without it");
    assert_eq!(crash(20_000, &both), 3);
    assert_eq!(crash(30_000, &both), 1, "it had part in a clock");
}

#[test]
fn a_rank_that_gave_up_ends_the_run() {
    for status in [4, 6, 7] {
        let mut s = supervisor(1);
        s.handle_death(PEER, &ended(status), 5);
        let why = format!("ended with status {status}");
        let exit = Exit::of(status).unwrap();
        assert_eq!(deeds(&mut s), [give_up(PEER, why, exit)]);
    }
}

#[test]
fn nobody_replaces_a_rank_once_the_budget_is_applied() {
    let mut s = supervisor(1);
    s.handle_death(RANK, &ended(0), 5);
    assert!(!s.ranks_done());
    s.handle_death(PEER, &death("was killed by signal 9"), 6);
    assert_eq!(deeds(&mut s), []);
    assert!(s.ranks_done());
}

#[test]
fn nobody_replaces_a_rank_whose_group_has_left() {
    let mut s = supervisor(1);
    s.handle_death(RANK, &ended(Exit::Left.number().into()), 5);
    assert!(!s.all_left(), "its peer is still there");
    s.handle_death(PEER, &ended(Exit::Left.number().into()), 6);
    assert_eq!(deeds(&mut s), []);
    assert!(s.ranks_done() && s.all_left());
}

#[test]
fn the_only_server_comes_back_with_the_coordinator() {
    let mut s = supervisor(1);
    s.handle_death(Member::Server(0), &death("was killed by signal 9"), 5);
    assert_eq!(deeds(&mut s), [start(Member::Server(0), 2, true)]);
    s.handle_started(Member::Server(0), 6);
    s.handle_listening(0, 7);
    assert_eq!(deeds(&mut s), []);
}

#[test]
fn survivors_are_asked_to_host_the_coordinator_one_by_one() {
    let mut s = supervisor(4);
    let ask = |server| Action::Host { server, life: 1 };
    s.handle_death(Member::Server(0), &death("was killed by signal 9"), 5);
    let first = [ask(1), start(Member::Server(0), 2, false)];
    assert_eq!(deeds(&mut s), first);
    s.handle_hosted(1, 1, false, 6);
    assert_eq!(deeds(&mut s), [ask(2)]);
    s.handle_death(Member::Server(2), &death("was killed by signal 9"), 7);
    let next = [ask(3), start(Member::Server(2), 2, false)];
    assert_eq!(deeds(&mut s), next);
    s.handle_hosted(2, 1, true, 8);
    assert_eq!(deeds(&mut s), [], "whoever is not asked any more");
    s.handle_hosted(3, 1, true, 9);
    let line = "server 3 hosts the coordinator now: server 0 was killed by signal 9";
    assert_eq!(told(&mut s), [("coordinator_moved", line.to_owned(), true)]);
}

#[test]
fn when_none_could_host_it_all_are_asked_again() {
    let mut s = supervisor(2);
    s.handle_death(Member::Server(0), &death("crashed"), 5);
    deeds(&mut s);
    s.handle_hosted(1, 1, false, 6);
    assert_eq!(deeds(&mut s), []);
    s.handle_started(Member::Server(0), 7);
    s.handle_listening(0, 600);
    let again = [Action::Host { server: 0, life: 2 }];
    assert_eq!(deeds(&mut s), again);
}

#[test]
fn without_a_survivor_the_first_to_start_hosts_the_coordinator() {
    let mut s = supervisor(2);
    s.handle_death(Member::Server(1), &death("crashed"), 5);
    assert_eq!(deeds(&mut s), [start(Member::Server(1), 2, false)]);
    s.handle_started(Member::Server(1), 6);
    s.handle_death(Member::Server(0), &death("crashed"), 7);
    assert_eq!(deeds(&mut s), [start(Member::Server(0), 2, true)]);
    s.handle_listening(1, 8);
    assert_eq!(deeds(&mut s), []);
}

#[test]
fn a_server_that_answers_no_ping_for_a_lease_is_killed_once() {
    let mut s = supervisor(2);
    all_answer(&mut s, &[(0, 1, true)], 0, LEASE_MS + 1_000);
    assert_eq!(deeds(&mut s), []);
    all_answer(&mut s, &[(0, 1, true)], LEASE_MS + 1_000, LEASE_MS + 2_000);
    let member = Member::Server(1);
    assert_eq!(deeds(&mut s), [Action::Kill { member }]);
    s.handle_death(member, &death("was killed by signal 9"), 12_000);
    assert_eq!(deeds(&mut s), [start(member, 2, false)]);
    s.handle_started(member, 12_000);
    let line = "server 1 answered no ping for 10000 ms and was killed; restarted";
    assert_eq!(told(&mut s)[0].1, line);
    // The answers of its previous life count for nothing, and it has time to begin.
    s.handle_pong(1, 1, false, 12_000);
    all_answer(&mut s, &[(0, 1, true)], 12_000, 41_000);
    assert_eq!(deeds(&mut s), []);
    all_answer(&mut s, &[(0, 1, true)], 41_000, 43_000);
    assert_eq!(
        deeds(&mut s),
        [Action::Kill { member }],
        "it never listened"
    );
}

#[test]
fn a_launcher_that_was_asleep_blames_nobody() {
    let mut s = supervisor(2);
    all_answer(&mut s, &[(0, 1, true), (1, 1, false)], 0, 5_000);
    s.tick(3_600_000);
    assert_eq!(deeds(&mut s), []);
}

#[test]
fn a_server_that_hosts_the_coordinator_no_longer_is_replaced() {
    let mut s = supervisor(2);
    all_answer(&mut s, &[(0, 1, false), (1, 1, false)], 0, LEASE_MS);
    assert_eq!(deeds(&mut s), []);
    all_answer(&mut s, &[(0, 1, false), (1, 1, false)], LEASE_MS, 12_000);
    assert_eq!(deeds(&mut s), [Action::Host { server: 0, life: 1 }]);
    // Another one may have taken over already.
    let mut s = supervisor(2);
    all_answer(&mut s, &[(0, 1, false), (1, 1, true)], 0, 30_000);
    assert_eq!(deeds(&mut s), []);
}

#[test]
fn a_silent_rank_is_killed_but_not_its_successor() {
    let mut s = supervisor(1);
    s.handle_silent(0, 0, LEASE_MS - 1);
    assert_eq!(deeds(&mut s), [], "it was another process");
    s.handle_silent(0, 0, LEASE_MS);
    s.handle_silent(0, 0, LEASE_MS + 1);
    assert_eq!(deeds(&mut s), [Action::Kill { member: RANK }]);
    s.handle_silent(7, 7, LEASE_MS);
    assert_eq!(deeds(&mut s), []);
}

#[test]
fn a_coordinator_that_was_asleep_is_not_believed_at_once() {
    let mut s = supervisor(1);
    all_answer(&mut s, &[(0, 1, true)], 0, 20_000);
    all_answer(&mut s, &[], 20_000, 26_000);
    s.handle_pong(0, 1, true, 26_000);
    s.handle_silent(0, 0, 26_001);
    assert_eq!(deeds(&mut s), [], "it has heard nobody for a while");
    all_answer(&mut s, &[(0, 1, true)], 26_000, 40_000);
    s.handle_silent(0, 0, 40_000);
    assert_eq!(deeds(&mut s), [Action::Kill { member: RANK }]);
}

#[test]
fn a_rank_that_does_not_end_with_its_group_is_killed() {
    let mut s = supervisor(1);
    s.handle_death(RANK, &ended(0), 5_000);
    all_answer(&mut s, &[(0, 1, true)], 5_000, 5_000 + AWAY_MS);
    assert_eq!(deeds(&mut s), []);
    all_answer(&mut s, &[(0, 1, true)], 75_000, 76_000);
    assert_eq!(deeds(&mut s), [Action::Kill { member: PEER }]);
    s.handle_death(PEER, &death("was killed by signal 9"), 76_000);
    assert!(s.ranks_done());
}

#[test]
fn a_rank_that_does_not_come_back_to_its_group_is_killed() {
    let mut s = supervisor(1);
    let nobody = BTreeSet::new();
    let there = BTreeSet::from([(0, 0)]);
    s.handle_present(&there, 1_000);
    s.handle_present(&nobody, 1_000 + AWAY_MS - 1);
    assert_eq!(deeds(&mut s), []);
    s.handle_present(&there, 80_000);
    s.handle_present(&nobody, 80_000 + AWAY_MS);
    // The other one has never been there: it may still be reading its data.
    assert_eq!(deeds(&mut s), [Action::Kill { member: RANK }]);
}

#[test]
fn what_cannot_be_started_is_tried_again_and_given_up() {
    let mut s = supervisor(1);
    s.handle_death(RANK, &death("crashed"), 0);
    let mut now = 0;
    let mut tries = 0;
    loop {
        match deeds(&mut s).pop() {
            Some(Action::GiveUp { why, .. }) => {
                let want = "could not be started: no more processes, 6 times without progress";
                assert_eq!(why, want);
                break;
            }
            Some(Action::Start { .. }) => {
                tries += 1;
                s.handle_not_started(RANK, "no more processes", now);
            }
            _ => {
                now += 100;
                s.handle_pong(0, 1, true, now);
                s.tick(now);
            }
        }
    }
    assert_eq!(tries, 5);
}

#[test]
fn a_group_that_stops_for_good_is_not_replaced() {
    let mut s = supervisor(1);
    s.handle_stop(1);
    assert_eq!(deeds(&mut s), [], "there is no such group");
    s.handle_stop(0);
    let kill = |member| Action::Kill { member };
    assert_eq!(deeds(&mut s), [kill(RANK), kill(PEER)]);
    s.handle_stop(0);
    s.handle_death(RANK, &death("was killed by signal 9"), 5);
    s.handle_death(PEER, &death("was killed by signal 9"), 5);
    assert_eq!(deeds(&mut s), [], "it is told once");
    assert!(s.ranks_done());
}

/// What a task of Slurm goes by, which has started one process.
fn task(member: Member) -> Supervisor {
    let rules = Rules {
        progress: Progress::Uptime { ms: 2 * LEASE_MS },
        silence: None,
        finds_host: false,
        servers_finish: true,
    };
    Supervisor::new(rules, [(member, 1)], 0)
}

#[test]
fn where_nothing_but_uptime_is_known_it_is_progress() {
    let mut s = task(RANK);
    let mut now = 0;
    // The third process runs for long.
    for (runs_ms, pause_ms) in [(1, 0), (1, 1_000), (2 * LEASE_MS + 1, 0), (1, 1_000)] {
        now += runs_ms;
        s.handle_death(RANK, &death("crashed"), now);
        let died = now;
        while !matches!(deeds(&mut s)[..], [Action::Start { .. }]) {
            now += 100;
            s.tick(now);
        }
        assert_eq!(now - died, pause_ms, "after {runs_ms} ms");
        s.handle_started(RANK, now);
    }
    s.tick(now + 100 * LEASE_MS);
    assert_eq!(deeds(&mut s), [], "nobody is silent where nobody is asked");
}

#[test]
fn a_task_ends_with_its_process() {
    let check = |member, status: Exit, over: Option<Exit>| {
        let mut s = task(member);
        s.handle_death(member, &ended(status.number().into()), 10);
        let deeds = deeds(&mut s);
        match over {
            Some(Exit::Done) => {
                assert!(s.all_done(), "{member}, {status:?}");
                assert_eq!(deeds, []);
            }
            Some(exit) => {
                let why = format!("ended with status {}", status.number());
                assert_eq!(deeds, [give_up(member, why, exit)]);
            }
            None => {
                assert!(!s.all_done());
                assert_eq!(deeds, [start(member, 2, false)], "{member}, {status:?}");
            }
        }
    };
    check(RANK, Exit::Done, Some(Exit::Done));
    check(RANK, Exit::Left, Some(Exit::Done));
    check(RANK, Exit::GivenUp, Some(Exit::GivenUp));
    check(RANK, Exit::Diverged, Some(Exit::Diverged));
    check(RANK, Exit::Lost, Some(Exit::Lost));
    check(RANK, Exit::Failed, None);
    check(RANK, Exit::Fenced, None);
    let server = Member::Server(0);
    check(server, Exit::Done, Some(Exit::Done));
    check(server, Exit::Failed, None);
    check(server, Exit::TaskEnded, None);
}

#[test]
fn who_is_told_to_end_is_not_started_again() {
    let mut s = task(RANK);
    s.handle_end();
    s.handle_end();
    assert_eq!(
        deeds(&mut s),
        [
            Action::Terminate { member: RANK },
            Action::Terminate { member: RANK }
        ]
    );
    assert!(!s.all_done());
    // However it ends.
    s.handle_death(RANK, &ended(Exit::Lost.number().into()), 20);
    assert!(s.all_done());
    assert_eq!(deeds(&mut s), []);

    // Between two processes there is nobody to be told.
    let mut s = task(RANK);
    s.handle_death(RANK, &death("crashed"), 10);
    s.handle_started(RANK, 10);
    s.handle_death(RANK, &death("crashed"), 20);
    deeds(&mut s);
    s.handle_end();
    assert!(s.all_done());
    s.tick(100_000);
    assert_eq!(deeds(&mut s), []);
}

#[test]
fn a_process_that_is_renewed_has_not_died() {
    let mut s = task(RANK);
    for life in 2..=20 {
        s.handle_renewal(RANK);
        assert_eq!(deeds(&mut s), [Action::Terminate { member: RANK }]);
        s.handle_death(RANK, &ended(Exit::Left.number().into()), life);
        assert_eq!(deeds(&mut s), [start(RANK, life, false)]);
        s.handle_started(RANK, life);
    }
    let line = "rank 0 of group 0 was asked to begin anew; restarted";
    assert_eq!(told(&mut s).pop().unwrap().1, line);
    s.handle_death(RANK, &death("crashed"), 30);
    assert_eq!(deeds(&mut s), [start(RANK, 21, false)], "at once");
}

#[test]
fn a_rank_that_never_joins_is_told_once_a_life() {
    let mut s = supervisor(1);
    let answers = |s: &mut Supervisor, from, to| all_answer(s, &[(0, 1, true)], from, to);
    s.handle_present(&BTreeSet::from([(0, 1)]), 1_000);
    answers(&mut s, 0, NEVER_JOINED_MS);
    assert_eq!(told(&mut s), []);
    answers(&mut s, NEVER_JOINED_MS, 3 * NEVER_JOINED_MS);
    let [(kind, text, show)] = &told(&mut s)[..] else {
        panic!("it is told once, and of one rank")
    };
    assert_eq!((*kind, *show), ("not_joined", true));
    assert!(
        text.starts_with("rank 0 of group 0 has run for 60 s and has not joined"),
        "{text}"
    );
    s.handle_death(RANK, &death("was killed by signal 9"), 3 * NEVER_JOINED_MS);
    s.handle_started(RANK, 3 * NEVER_JOINED_MS);
    let again = 4 * NEVER_JOINED_MS + 1_000;
    answers(&mut s, 3 * NEVER_JOINED_MS, again);
    let kinds: Vec<_> = told(&mut s).into_iter().map(|(kind, ..)| kind).collect();
    assert_eq!(kinds, ["process_died", "process_restarted", "not_joined"]);
}
