//! The coordinators' processes: each takes one message after the other, and lets nobody hear of what it
//! has decided before that is written down.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use tradewind_common::holders::Holders;
use tradewind_common::loss::Loss;
use tradewind_common::{Generation, GroupId, Incarnation, RunId, ServerId};
use tradewind_core::ReplyTo;
use tradewind_core::answer::{Answer, Refused};
use tradewind_core::coordinator::{self, Coordinator};
use tradewind_core::event;
use tradewind_core::order::{Order, Server, ShardReport};
use tradewind_core::run::{Beat, Join};
use tradewind_core::saved::{ManifestData, Saved};

use super::event::{Address, Life, Told, Up};
use super::store::Writing;
use crate::group::{Call, Common, Directory, Primary};
use crate::scenario::GroupPlan;

/// A coordinator that was held up for longer heard nobody meanwhile.
const GAP_MS: u64 = 100;

/// Every so many ticks it looks whether a later one has claimed, though it has nothing to write.
const LOOKS: u64 = 10;

/// The processes, by number; a later one follows those before it.
#[derive(Default)]
pub(super) struct Coordinators {
    hosts: BTreeMap<u64, Host>,
    /// Those that have claimed and not yet read.
    reading: BTreeSet<u64>,
    /// What the run goes on from, once it has been resumed.
    resume: Option<Saved>,
}

impl Coordinators {
    /// One has claimed, and reads what the one before it wrote.
    pub(super) fn claimed(&mut self, n: u64) {
        self.reading.insert(n);
    }

    /// What it has read; `false` if it has ended meanwhile.
    pub(super) fn has_read(&mut self, n: u64) -> bool {
        self.reading.remove(&n)
    }

    /// One begins.
    pub(super) fn begin(&mut self, n: u64, host: Host) {
        self.hosts.insert(n, host);
    }

    /// One ends; its process, if it had begun.
    pub(super) fn end(&mut self, n: u64) -> Option<Host> {
        self.reading.remove(&n);
        self.hosts.remove(&n)
    }

    /// Those that have begun, and those that have only claimed.
    pub(super) fn all(&self) -> Vec<u64> {
        self.hosts.keys().chain(&self.reading).copied().collect()
    }

    pub(super) fn get(&self, n: u64) -> Option<&Host> {
        self.hosts.get(&n)
    }

    pub(super) fn get_mut(&mut self, n: u64) -> Option<&mut Host> {
        self.hosts.get_mut(&n)
    }

    pub(super) fn is_up(&self, n: u64) -> bool {
        self.hosts.contains_key(&n)
    }

    /// The last one, if any is up.
    pub(super) fn last(&self) -> Option<(u64, &Host)> {
        let (n, host) = self.hosts.last_key_value()?;
        Some((*n, host))
    }

    /// Which one has a connection with a server.
    pub(super) fn of_bond(&self, bond: u64) -> Option<u64> {
        let mut hosts = self.hosts.iter();
        let has = |host: &Host| host.bonds.values().any(|of| *of == bond);
        hosts.find(|(_, host)| has(host)).map(|(n, _)| *n)
    }

    /// The connections with a server, and whose each is.
    pub(super) fn bonds_with(&self, server: ServerId) -> Vec<(u64, u64)> {
        let bond = |(n, host): (&u64, &Host)| Some((*n, *host.bonds.get(&server)?));
        self.hosts.iter().filter_map(bond).collect()
    }

    /// The run goes on from a snapshot, whoever begins next.
    pub(super) fn resume(&mut self, saved: Saved) {
        self.resume = Some(saved);
    }

    /// What the run goes on from, once it has been resumed.
    pub(super) fn resumes(&self) -> Option<&Saved> {
        self.resume.as_ref()
    }
}

/// A call of a rank: who waits for its answer, the number that the rank gave it, and in which life of its
/// group the rank called.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) from: Address,
    pub(super) number: u64,
    pub(super) life: Incarnation,
}

/// What a coordinator's process wants done.
pub(super) enum Out {
    /// A call is answered, along with who answers for the shards.
    Answer(Asked, Result<Option<Answer>, Refused>, Arc<Directory>),
    /// A rank is told that its group shall leave, in this life of it.
    Leave(Address, Incarnation),
    /// A group like this has been given a number.
    Attached(GroupId, GroupPlan),
    /// An order leaves.
    Order(Box<Order>),
    /// A server is refused, and its connection ended.
    Refuse(Life, u64),
    /// What left of blocks before is of a run that is no more.
    DropMarks,
    /// People are told something.
    Tell(event::Event),
    /// A manifest is to be written.
    Manifest(Box<ManifestData>),
    /// A snapshot is to be deleted.
    Delete(u64),
    /// It is time to look whether a later one has claimed.
    Look,
}

/// A coordinator's process.
pub(super) struct Host {
    core: Coordinator,
    run: RunId,
    /// How many calls there were, which numbers them.
    arrivals: u64,
    calls: BTreeMap<ReplyTo, Asked>,
    /// Groups that a person has asked for.
    attaching: BTreeMap<ReplyTo, GroupPlan>,
    /// The connections on which orders go out.
    bonds: BTreeMap<ServerId, u64>,
    /// What servers have said last that they follow.
    followed: BTreeMap<ServerId, Generation>,
    inbox: VecDeque<Told>,
    unsaved: bool,
    /// What is being written; nothing else is done meanwhile.
    writing: Option<Writing>,
    /// What was written last may not be there: all has to be written.
    all_unsaved: bool,
    looking: bool,
    ticks: u64,
    ticked_ms: u64,
    /// What ranks are told: nothing that is not written down.
    directory: Arc<Directory>,
}

impl Host {
    pub(super) fn new(core: Coordinator, run: RunId, now_ms: u64) -> Self {
        Self {
            core,
            run,
            arrivals: 0,
            calls: BTreeMap::new(),
            attaching: BTreeMap::new(),
            bonds: BTreeMap::new(),
            followed: BTreeMap::new(),
            inbox: VecDeque::new(),
            unsaved: false,
            writing: None,
            all_unsaved: true,
            looking: false,
            ticks: 0,
            ticked_ms: now_ms,
            directory: Arc::default(),
        }
    }

    pub(super) fn core(&self) -> &Coordinator {
        &self.core
    }

    /// The connection on which orders to a server go out.
    pub(super) fn bond(&self, server: ServerId) -> Option<u64> {
        self.bonds.get(&server).copied()
    }

    /// Something is told to it; answers what it takes now. The rest waits, but for ticks.
    pub(super) fn hear(&mut self, told: Told) -> Option<Told> {
        let ticks = matches!(told, Told::Tick);
        self.ticks += u64::from(ticks);
        if self.writing.is_none() && !self.looking {
            return Some(told);
        }
        if !ticks {
            self.inbox.push_back(told);
        }
        None
    }

    /// What has waited longest.
    pub(super) fn next_told(&mut self) -> Option<Told> {
        self.inbox.pop_front()
    }

    /// Takes a message; what follows from it at once.
    pub(super) fn take(&mut self, told: Told, common: &Common, now_ms: u64) -> Vec<Out> {
        let gap_ms = now_ms - self.ticked_ms;
        if gap_ms > GAP_MS {
            self.core.forgive(gap_ms);
            self.ticked_ms = now_ms;
        }
        match told {
            Told::Call(from, number, call) => {
                let life = call.incarnation();
                let asked = Asked { from, number, life };
                return self.call(asked, call, common, now_ms);
            }
            Told::RankLost(caller) => self.core.rank_lost(&self.run, caller, now_ms),
            Told::Server(life, bond, up) => {
                let refused = self.reported(life, bond, up, now_ms).is_err();
                return Vec::from_iter(refused.then_some(Out::Refuse(life, bond)));
            }
            Told::ServerLost(life, bond) => {
                if self.bonds.get(&life.server) == Some(&bond) {
                    self.bonds.remove(&life.server);
                    let (server, incarnation) = (life.server, life.incarnation);
                    self.core.server_lost(server, incarnation, now_ms);
                }
            }
            Told::Attach(plan) => {
                let to = self.arrives();
                self.attaching.insert(to, plan);
                self.core.attach(&self.run, &[plan.size], to, now_ms);
            }
            // Whether it was asked stands in the answers to its beats.
            Told::Drain(group) => {
                let to = self.arrives();
                self.core.ask_to_leave(&self.run, &[group], to, now_ms);
            }
            Told::Manifest(number, result) => {
                self.core.written(&self.run, number, result, now_ms);
            }
            Told::Tick => {
                self.ticked_ms = now_ms;
                self.core.tick(now_ms);
                let looks = self.ticks.is_multiple_of(LOOKS);
                return Vec::from_iter(looks.then_some(Out::Look));
            }
        }
        Vec::new()
    }

    /// Every arrival is a call of its own, a duplicate too.
    fn arrives(&mut self) -> ReplyTo {
        self.arrivals += 1;
        ReplyTo(self.arrivals)
    }

    fn call(&mut self, asked: Asked, call: Call, common: &Common, now_ms: u64) -> Vec<Out> {
        let (to, from, run) = (self.arrives(), asked.from, self.run.clone());
        let answer = match call {
            Call::Join { life } => {
                self.calls.insert(to, asked);
                let join = Join {
                    group: from.group,
                    rank: from.rank,
                    life,
                    store_address: String::new(),
                };
                self.core.join(run, common.spec.clone(), join, to, now_ms);
                return Vec::new();
            }
            Call::AwaitReady(caller, created) => {
                self.calls.insert(to, asked);
                self.core.await_ready(&run, caller, created, to, now_ms);
                return Vec::new();
            }
            Call::Heartbeat(caller, clock) => {
                let beat = Beat {
                    clock,
                    steps_per_second: 0.0,
                };
                self.core.heartbeat(&run, caller, beat, now_ms).map(Some)
            }
            Call::Leave(caller) => self.core.leave(&run, caller, &[], now_ms).map(|()| None),
        };
        let leaves = answer.as_ref().is_ok_and(|b| b.is_some_and(|b| b.leave));
        let mut outs = Vec::from_iter(leaves.then_some(Out::Leave(from, asked.life)));
        let directory = self.directory.clone();
        outs.push(Out::Answer(asked, answer.map(|_| None), directory));
        outs
    }

    fn reported(&mut self, life: Life, bond: u64, up: Up, now_ms: u64) -> Result<(), Refused> {
        let (core, run, server) = (&mut self.core, &self.run, life.server);
        match up {
            Up::Register => {
                let about = Server {
                    incarnation: life.incarnation,
                    address: format!("{server}-{}", life.incarnation),
                    host: format!("host{server}"),
                };
                let known = self.bonds.insert(server, bond);
                let registered = core.register(server, about, now_ms);
                if registered.is_err() {
                    self.bonds.remove(&server);
                    self.bonds.extend(known.map(|known| (server, known)));
                }
                // The last word of its former life may have been held up, as in every other life of it.
                let late = self.followed.remove(&server);
                if registered.is_ok() && life.incarnation.0.is_multiple_of(2) && late.is_some() {
                    return core.followed(server, run, late);
                }
                registered
            }
            Up::Followed(generation) => {
                self.followed
                    .extend(generation.map(|generation| (server, generation)));
                core.followed(server, run, generation)
            }
            Up::Beat => core.server_beat(server, life.incarnation, now_ms),
            Up::Report(report) => core.report(server, run, *report, now_ms),
            Up::Captured(shard, number, result) => {
                core.captured(server, run, shard, number, result, now_ms)
            }
        }
    }

    /// Broken on purpose: a server is taken to have said this.
    pub(super) fn believe(&mut self, server: ServerId, report: ShardReport, now_ms: u64) {
        let _ = self.core.report(server, &self.run, report, now_ms);
    }

    /// Whether something was decided that is not written down.
    pub(super) fn has_decided(&mut self) -> bool {
        self.unsaved |= self.core.take_dirty();
        self.unsaved
    }

    /// Begins to write what was decided.
    pub(super) fn write(&mut self) {
        self.writing = Some(match self.all_unsaved {
            true => Writing::All(Box::new(self.core.take_durable())),
            false => Writing::Change(Box::new(self.core.take_change())),
        });
        // Until it is known to be there.
        self.all_unsaved = true;
    }

    /// It has been written, or could not be: what it was.
    pub(super) fn wrote(&mut self) -> Writing {
        self.writing.take().expect("it was being written")
    }

    /// It has been written: what changes can be written behind it.
    pub(super) fn is_written(&mut self) {
        self.all_unsaved = false;
    }

    /// It looks for later claims, now that it has written.
    pub(super) fn look(&mut self) {
        self.looking = true;
    }

    /// There are none: what was decided may be acted on.
    pub(super) fn looked(&mut self) {
        (self.looking, self.unsaved) = (false, false);
    }

    /// What was being written when it ended.
    pub(super) fn torn(self) -> Option<Writing> {
        self.writing
    }

    /// From now on ranks are told who answers for the shards as it is decided now.
    pub(super) fn publish_directory(&mut self) {
        let Ok(run) = self.core.run(&self.run) else {
            return;
        };
        let primary = |holders: &Holders| {
            holders.primary.map(|primary| Primary {
                server: primary.server,
                since: primary.since,
            })
        };
        if run.generation() > self.directory.generation {
            self.directory = Arc::new(Directory {
                generation: run.generation(),
                primaries: run.holders().map(primary).collect(),
            });
        }
    }

    /// The next thing that follows from what was decided.
    pub(super) fn poll(&mut self) -> Option<Out> {
        loop {
            return Some(match self.core.poll_output()? {
                coordinator::Output::Reply(to, answer) => {
                    let plan = self.attaching.remove(&to);
                    if let (Some(plan), Ok(Answer::Attached(id))) = (plan, &answer) {
                        return Some(Out::Attached(*id, plan));
                    }
                    let Some(asked) = self.calls.remove(&to) else {
                        continue;
                    };
                    Out::Answer(asked, answer.map(Some), self.directory.clone())
                }
                // Runs are not removed here, nobody is revoked, and ranks hear of the end of a life at their beats.
                coordinator::Output::Runs(..)
                | coordinator::Output::Revoked(..)
                | coordinator::Output::Over(..) => continue,
                coordinator::Output::Order(order) => Out::Order(order),
                coordinator::Output::DropMarks(_) => Out::DropMarks,
                coordinator::Output::Event(event) => Out::Tell(event),
                coordinator::Output::Manifest(manifest) => Out::Manifest(manifest),
                coordinator::Output::Delete { number, .. } => Out::Delete(number),
            });
        }
    }

    /// How much loss it tells: nothing before what it knows is written down, if it `writes` at all.
    pub(super) fn told(&self, writes: bool) -> Option<Loss> {
        let run = self.core.run(&self.run).ok()?;
        let written = !self.unsaved && self.writing.is_none() && !self.looking;
        (written || !writes).then(|| run.lost())
    }
}
