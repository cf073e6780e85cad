//! Where the groups stand at one block, and what follows from it. Every figure that a policy asks for is derived
//! from the clocks of the groups: the rows and what is derived from them are one value, and change together. So
//! a push costs as much among ten thousand groups as among ten.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};

use tradewind_common::{Clock, GroupId, Incarnation};

use super::ranked::Ranked;
use super::view::Rights;

/// Where a group that is live, or has joined and will be, stands at one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The group.
    pub group: GroupId,
    /// The first clock of its life; the earliest possible one if it has joined.
    pub start: Clock,
    /// The clock that the block decides next for it, or a later one.
    pub next: Clock,
    /// Whether its contribution of that clock, a gradient or a skip, is here.
    pub arrived: bool,
    /// Whether that is a gradient.
    pub gradient: bool,
    /// When it arrived, microseconds; 0 if it has not.
    pub since_us: u64,
}

/// What is known of the contribution of a live group at its next clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    /// The group is not live.
    #[default]
    Absent,
    /// Values were restored since the group was last heard: it may stand further than is known.
    Silent,
    /// It has not come.
    Due,
    /// It waits.
    Waits { gradient: bool },
    /// It is in what is gathered for the next update.
    Gathered { gradient: bool },
}

/// One group at the block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Row {
    life: Incarnation,
    start: Clock,
    next: Clock,
    /// When its contribution arrived, microseconds.
    since_us: u64,
    place: Place,
}

/// Where a row is counted, if it is.
impl Row {
    fn is_live(self) -> bool {
        self.place != Place::Absent
    }

    /// Whether its contribution, which has come, is a gradient.
    fn arrived(self) -> Option<bool> {
        match self.place {
            Place::Waits { gradient } | Place::Gathered { gradient } => Some(gradient),
            Place::Absent | Place::Silent | Place::Due => None,
        }
    }

    fn heard(self) -> Option<Clock> {
        let heard = !matches!(self.place, Place::Absent | Place::Silent);
        heard.then_some(self.next)
    }

    fn silent(self) -> Option<Clock> {
        (self.place == Place::Silent).then_some(self.next)
    }

    fn begun(self) -> Option<Clock> {
        self.heard().map(|_| self.start)
    }

    fn came(self) -> Option<Clock> {
        self.arrived().map(|_| self.next)
    }

    fn skips(self) -> Option<Clock> {
        (self.arrived() == Some(false)).then_some(self.next)
    }

    fn waits(self) -> Option<Clock> {
        matches!(self.place, Place::Waits { .. }).then_some(self.next)
    }

    fn arrival_us(self) -> Option<u64> {
        self.arrived().map(|_| self.since_us)
    }
}

/// Bytes of a clock in a tally, in a node that is half full.
const TALLY_BYTES: usize = 2 * (size_of::<Clock>() + size_of::<u32>());

/// How many stand at each clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Tally {
    at: BTreeMap<Clock, u32>,
    all: usize,
}

impl Tally {
    fn add(&mut self, clock: Clock) {
        *self.at.entry(clock).or_default() += 1;
        self.all += 1;
    }

    fn remove(&mut self, clock: Clock) {
        let count = self.at.get_mut(&clock).expect("it was added");
        *count -= 1;
        if *count == 0 {
            self.at.remove(&clock);
        }
        self.all -= 1;
    }

    /// What stood at one clock stands at another.
    fn change(&mut self, (before, after): (Option<Clock>, Option<Clock>)) {
        if before != after {
            before.into_iter().for_each(|clock| self.remove(clock));
            after.into_iter().for_each(|clock| self.add(clock));
        }
    }

    fn least(&self) -> Option<Clock> {
        self.at.first_key_value().map(|(clock, _)| *clock)
    }

    fn greatest(&self) -> Option<Clock> {
        self.at.last_key_value().map(|(clock, _)| *clock)
    }

    fn at(&self, clock: Clock) -> usize {
        self.at.get(&clock).map_or(0, |count| *count as usize)
    }

    /// How many stand at this clock or before it. Clocks beyond are walked, of which there are few: nobody is
    /// further than the staleness bound and who has joined let it be.
    fn up_to(&self, clock: Clock) -> usize {
        let beyond = self.at.range((Excluded(clock), Unbounded));
        self.all - beyond.map(|(_, count)| *count as usize).sum::<usize>()
    }
}

/// The groups at one block by their clocks. It is the primary's alone: elsewhere nobody is there.
#[derive(Clone, Debug, Default)]
pub struct Standings {
    /// By GroupId.
    rows: Vec<Row>,
    live: usize,
    /// Incarnations that have joined, with the earliest clock that they may start at. The others
    /// wait for them as for live ones, or a joiner would find itself behind by more than the
    /// staleness bound, and clocks of its own already made without it.
    joined: BTreeMap<GroupId, (Incarnation, Clock)>,
    // All that follows is derived from these.
    /// Next clocks of live groups that were heard, of those that were not, and of those that have joined.
    heard: Tally,
    silent: Tally,
    expected: Tally,
    /// First clocks of those that were heard or have joined.
    starts: Tally,
    /// Next clocks of those whose contributions have come, and of those among them that are skips.
    came: Tally,
    skips: Tally,
    /// Those whose contributions have come and wait.
    waiting: BTreeSet<(Clock, GroupId)>,
    /// Those whose contributions have come, by time.
    arrivals: Ranked<(u64, GroupId)>,
}

impl Standings {
    /// How many groups are live.
    pub(crate) fn live(&self) -> usize {
        self.live
    }

    pub(crate) fn is_live(&self, group: GroupId) -> bool {
        self.row(group).is_some()
    }

    /// The incarnation of a live group.
    pub(crate) fn life(&self, group: GroupId) -> Option<Incarnation> {
        self.row(group).map(|row| row.life)
    }

    /// The clock at which a live group stands.
    pub(crate) fn next(&self, group: GroupId) -> Option<Clock> {
        self.row(group).map(|row| row.next)
    }

    /// Whether a live group was not heard since values were restored.
    pub(crate) fn is_silent(&self, group: GroupId) -> bool {
        self.row(group)
            .is_some_and(|row| row.place == Place::Silent)
    }

    /// Whether the contribution of a live group has come.
    pub(crate) fn has_come(&self, group: GroupId) -> bool {
        self.row(group).is_some_and(|row| row.arrived().is_some())
    }

    /// Whether it was gathered for the next update.
    pub(crate) fn is_gathered(&self, group: GroupId) -> bool {
        self.row(group)
            .is_some_and(|row| matches!(row.place, Place::Gathered { .. }))
    }

    /// The incarnation of a group that is live, or has joined.
    pub(crate) fn incarnation(&self, group: GroupId) -> Option<Incarnation> {
        let joined = || self.joined.get(&group).map(|(life, _)| *life);
        self.life(group).or_else(joined)
    }

    /// How far a group is behind the fastest live group, in exchanges.
    pub(crate) fn lag(&self, group: GroupId) -> u64 {
        let fastest = self.heard.greatest().max(self.silent.greatest());
        let behind = self.next(group).zip(fastest);
        behind.map_or(0, |(own, fastest)| fastest.0 - own.0)
    }

    /// How many contributions wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// That of which the clock is furthest, and of equal ones the group.
    pub(crate) fn furthest(&self) -> Option<GroupId> {
        self.waiting.last().map(|(_, group)| *group)
    }

    /// One group.
    pub(crate) fn of(&self, group: GroupId) -> Option<Standing> {
        let live = self.row(group).map(|row| Standing {
            group,
            start: row.start,
            next: row.next,
            arrived: row.arrived().is_some(),
            gradient: row.arrived() == Some(true),
            since_us: row.since_us,
        });
        let joined = || {
            self.joined.get(&group).map(|(_, earliest)| Standing {
                group,
                start: *earliest,
                next: *earliest,
                arrived: false,
                gradient: false,
                since_us: 0,
            })
        };
        live.or_else(joined)
    }

    fn row(&self, group: GroupId) -> Option<&Row> {
        let row = self.rows.get(group.0 as usize);
        row.filter(|row| row.is_live())
    }

    /// Changes one row, and with it what is derived from it.
    fn set(&mut self, group: GroupId, after: Row) {
        let at = group.0 as usize;
        if at >= self.rows.len() {
            self.rows.resize(at + 1, Row::default());
        }
        let before = std::mem::replace(&mut self.rows[at], after);
        let change = |of: fn(Row) -> Option<Clock>| (of(before), of(after));
        self.live = self.live + usize::from(after.is_live()) - usize::from(before.is_live());
        self.heard.change(change(Row::heard));
        self.silent.change(change(Row::silent));
        self.starts.change(change(Row::begun));
        self.came.change(change(Row::came));
        self.skips.change(change(Row::skips));
        let (waited, waits) = change(Row::waits);
        if waited != waits {
            if let Some(clock) = waited {
                self.waiting.remove(&(clock, group));
            }
            if let Some(clock) = waits {
                self.waiting.insert((clock, group));
            }
        }
        let (arrived, arrives) = (before.arrival_us(), after.arrival_us());
        if arrived != arrives {
            if let Some(at_us) = arrived {
                self.arrivals.remove(&(at_us, group));
            }
            if let Some(at_us) = arrives {
                self.arrivals.insert((at_us, group));
            }
        }
    }

    /// Makes room for so many groups.
    pub(crate) fn reserve(&mut self, groups: usize) {
        reserve(&mut self.rows, groups);
    }

    /// Bytes of what is kept while nothing waits.
    pub(crate) fn bytes(&self) -> usize {
        let tallies = [&self.heard, &self.silent, &self.expected, &self.starts];
        let clocks: usize = tallies.map(|tally| tally.at.len()).iter().sum();
        self.rows.capacity() * size_of::<Row>() + clocks * TALLY_BYTES
    }

    /// A group is live, from this clock on. It stands at `next`, or further if it is `silent`.
    pub(crate) fn enter(
        &mut self,
        group: GroupId,
        (life, start): (Incarnation, Clock),
        next: Clock,
        silent: bool,
    ) {
        let row = Row {
            life,
            start,
            next,
            since_us: 0,
            place: if silent { Place::Silent } else { Place::Due },
        };
        self.set(group, row);
    }

    /// The contribution of a live group comes, at this clock.
    pub(crate) fn arrive(&mut self, group: GroupId, next: Clock, gradient: bool, since_us: u64) {
        let before = self.rows[group.0 as usize];
        let row = Row {
            next,
            since_us,
            place: Place::Waits { gradient },
            ..before
        };
        self.set(group, row);
    }

    /// A contribution that waits is gathered for the next update.
    pub(crate) fn gather(&mut self, group: GroupId) {
        let before = self.rows[group.0 as usize];
        let gradient = before.arrived().expect("it has come");
        let place = Place::Gathered { gradient };
        self.set(group, Row { place, ..before });
    }

    /// A contribution that has come is decided: its group goes on to the next clock. Which one it was.
    pub(crate) fn decide(&mut self, group: GroupId) -> Clock {
        let before = self.rows[group.0 as usize];
        let (next, place) = (before.next.tick(), Place::Due);
        self.set(
            group,
            Row {
                next,
                place,
                ..before
            },
        );
        before.next
    }

    /// A contribution that waits is sent away, as if it had not come.
    pub(crate) fn withdraw(&mut self, group: GroupId) {
        let before = self.rows[group.0 as usize];
        let place = Place::Due;
        self.set(group, Row { place, ..before });
    }

    /// What each group is that is live or has joined, as the view says it.
    pub(crate) fn rights(&self) -> BTreeMap<GroupId, Rights> {
        let rows = (0..).map(GroupId).zip(&self.rows);
        let live = rows.filter(|(_, row)| row.is_live());
        let live = live.map(|(group, row)| (group, Rights::Live(row.life, row.start)));
        let joined = self.joined.iter();
        let joined = joined.map(|(group, (life, _))| (*group, Rights::Joined(*life)));
        live.chain(joined).collect()
    }

    /// A group is not live any more.
    pub(crate) fn leave(&mut self, group: GroupId) {
        self.set(group, Row::default());
    }

    /// A life of a group has joined, and does not start before `earliest` if that is new.
    pub(crate) fn expect(&mut self, group: GroupId, life: Incarnation, earliest: Clock) {
        if self
            .joined
            .get(&group)
            .is_some_and(|(known, _)| *known == life)
        {
            return;
        }
        self.expect_no_more(group);
        self.joined.insert(group, (life, earliest));
        self.expected.add(earliest);
        self.starts.add(earliest);
    }

    /// A group is not one any more that has joined and may not push yet.
    pub(crate) fn expect_no_more(&mut self, group: GroupId) {
        if let Some((_, clock)) = self.joined.remove(&group) {
            self.expected.remove(clock);
            self.starts.remove(clock);
        }
    }

    /// The first group behind another in GroupId order, or of all, that stands at this clock or before it.
    fn next_due(&self, clock: Clock, behind: Option<GroupId>) -> Option<GroupId> {
        let first = behind.map_or(0, |group| group.0 + 1);
        let rows = (first..).zip(self.rows.iter().skip(first as usize));
        let due = |row: &Row| row.is_live() && row.next <= clock;
        let live = rows
            .filter(|(_, row)| due(row))
            .map(|(group, _)| GroupId(group))
            .next();
        if self.expected.least().is_none_or(|least| least > clock) {
            return live;
        }
        let mut joined = self.joined.range(GroupId(first)..);
        let joined = joined.find(|(_, (_, earliest))| *earliest <= clock);
        live.into_iter()
            .chain(joined.map(|(group, _)| *group))
            .min()
    }
}

/// Makes room for so many rows: for all that are new at once where those are many, and where one comes after the
/// other for an eighth more, so that not all are copied for each.
pub(crate) fn reserve<T>(rows: &mut Vec<T>, wanted: usize) {
    if wanted > rows.capacity() {
        let most = wanted.max(rows.capacity() + rows.capacity() / 8);
        rows.reserve_exact(most - rows.len());
    }
}

/// A block as a policy sees it.
#[derive(Clone, Copy, Debug)]
pub struct Scene<'a> {
    /// Where the groups stand.
    pub standings: &'a Standings,
    /// Whether those count that were not heard since values were restored. Where they stand is not known, and
    /// they may wait elsewhere for just those that would wait for them here.
    pub everybody: bool,
    /// What is gathered for the next update, if something is.
    pub gathered: Option<Gathered>,
    /// The highest clock that was decided of any group, live or not.
    pub highest: Option<Clock>,
    /// The present time, microseconds.
    pub now_us: u64,
    /// The mean gap between arrivals at the block, microseconds; `None` before the second one.
    pub gap_us: Option<u64>,
}

/// Contributions whose values are summed before their update is made. They are in it, though their groups are
/// gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gathered {
    /// The clock of the first.
    pub clock: Clock,
    /// Whose was the last.
    pub last: GroupId,
}

impl Scene<'_> {
    /// The clock at which the slowest group stands; `None` while nobody is there.
    pub fn slowest(&self) -> Option<Clock> {
        let standings = self.standings;
        let known = [standings.heard.least(), standings.expected.least()];
        let silent = standings.silent.least().filter(|_| self.everybody);
        known.into_iter().flatten().chain(silent).min()
    }

    /// The clock that a block makes next: past every one that was decided of anybody, and no group
    /// that could contribute to an earlier one. `None` while nobody is there.
    pub fn present(&self) -> Option<Clock> {
        let slowest = self.slowest()?;
        let made = self.highest.map(Clock::tick);
        Some(made.map_or(slowest, |made| made.max(slowest)))
    }

    /// How many groups stand at this clock or before it.
    pub fn due(&self, clock: Clock) -> usize {
        let standings = self.standings;
        let silent = if self.everybody {
            standings.silent.up_to(clock)
        } else {
            0
        };
        standings.heard.up_to(clock) + standings.expected.up_to(clock) + silent
    }

    /// How many groups, of those that were heard or have joined, begin at this clock or before it.
    pub fn begun(&self, clock: Clock) -> usize {
        self.standings.starts.up_to(clock)
    }

    /// Of how many live groups the contribution of this clock has come.
    pub fn came(&self, clock: Clock) -> usize {
        self.standings.came.at(clock)
    }

    /// Of how many live groups that of this clock or an earlier one has come.
    pub fn came_up_to(&self, clock: Clock) -> usize {
        self.standings.came.up_to(clock)
    }

    /// How many of those of this clock are gradients.
    pub fn gradients(&self, clock: Clock) -> usize {
        self.came(clock) - self.standings.skips.at(clock)
    }

    /// The contribution that waits at the smallest clock, and of equal ones that of the first group.
    pub fn first(&self) -> Option<(Clock, GroupId)> {
        self.standings.waiting.first().copied()
    }

    /// Whose contributions of this clock wait, in GroupId order.
    pub fn waiting_at(&self, clock: Clock) -> impl Iterator<Item = GroupId> + '_ {
        let all = (clock, GroupId(0))..=(clock, GroupId(u32::MAX));
        self.standings.waiting.range(all).map(|(_, group)| *group)
    }

    /// Whose contributions of earlier clocks wait, by clock.
    pub fn waiting_before(&self, clock: Clock) -> impl Iterator<Item = GroupId> + '_ {
        let all = ..(clock, GroupId(0));
        self.standings.waiting.range(all).map(|(_, group)| *group)
    }

    /// Whose contributions of this clock or an earlier one wait, in GroupId order.
    pub fn waiting_up_to(&self, clock: Clock) -> Vec<GroupId> {
        let all = ..=(clock, GroupId(u32::MAX));
        let waiting = self.standings.waiting.range(all);
        let mut waiting: Vec<_> = waiting.map(|(_, group)| *group).collect();
        waiting.sort_unstable();
        waiting
    }

    /// When the contribution came before which so many others had come, all of them of this clock or an earlier
    /// one, microseconds.
    pub fn arrival_us(&self, place: usize, up_to: Clock) -> Option<u64> {
        let arrivals = &self.standings.arrivals;
        let arrival = match self.came_up_to(up_to) == arrivals.len() {
            true => arrivals.nth(place),
            // Those that are further ahead wait as values, of which there are few.
            false => {
                let next = |group: GroupId| self.standings.rows[group.0 as usize].next;
                let mut within = arrivals.iter().filter(|(_, group)| next(*group) <= up_to);
                within.nth(place)
            }
        };
        arrival.map(|(at_us, _)| at_us)
    }

    /// Whether the contributions of all groups that come before this one in GroupId order, and stand at this
    /// clock or before it, are gathered.
    pub fn is_next(&self, group: GroupId, clock: Clock) -> bool {
        let last = self.gathered.map(|gathered| gathered.last);
        self.standings.next_due(clock, last) == Some(group)
    }

    /// Whether a group was not heard since values were restored.
    pub fn has_silent(&self) -> bool {
        self.standings.silent.all > 0
    }
}

#[cfg(test)]
mod tests {
    use tradewind_common::mix::mixed;

    use super::*;

    const GROUPS: u64 = 40;

    /// Draws one number after the other.
    struct Random(u64, u64);

    impl Random {
        fn below(&mut self, bound: u64) -> u64 {
            self.1 += 1;
            mixed(self.0, [self.1]) % bound
        }
    }

    /// All that is told by walking over the groups, as a reader of the rows alone would.
    fn compare(standings: &Standings, everybody: bool, gathered: Option<Gathered>, seed: u64) {
        let scene = Scene {
            standings,
            everybody,
            gathered,
            highest: None,
            now_us: 0,
            gap_us: None,
        };
        let known = |group: u64| standings.of(GroupId(group as u32));
        let all: Vec<Standing> = (0..GROUPS).filter_map(known).collect();
        let silent = |of: &Standing| standings.is_silent(of.group);
        let seen: Vec<&Standing> = all.iter().filter(|of| everybody || !silent(of)).collect();
        let live = all.iter().filter(|of| standings.is_live(of.group));
        assert_eq!(standings.live(), live.clone().count(), "seed {seed}");
        assert_eq!(
            scene.slowest(),
            seen.iter().map(|of| of.next).min(),
            "seed {seed}"
        );
        assert_eq!(scene.has_silent(), all.iter().any(silent));
        let fastest = live.clone().map(|of| of.next).max();
        for of in live {
            assert_eq!(standings.lag(of.group), fastest.unwrap().0 - of.next.0);
        }
        let waits = |of: &&&Standing| of.arrived && !standings.is_gathered(of.group);
        let mut waiting: Vec<_> = seen
            .iter()
            .filter(waits)
            .map(|of| (of.next, of.group))
            .collect();
        waiting.sort_unstable();
        assert_eq!(scene.first(), waiting.first().copied(), "seed {seed}");
        assert_eq!(standings.waiting(), waiting.len());
        assert_eq!(
            standings.furthest(),
            waiting.last().map(|(_, group)| *group)
        );
        for clock in (0..20).map(Clock) {
            let count = |of: &dyn Fn(&Standing) -> bool| seen.iter().filter(|s| of(s)).count();
            assert_eq!(
                scene.due(clock),
                count(&|s| s.next <= clock),
                "seed {seed}: {clock}"
            );
            let begun = count(&|s| s.start <= clock && !silent(s));
            assert_eq!(scene.begun(clock), begun, "seed {seed}: {clock}");
            assert_eq!(scene.came(clock), count(&|s| s.arrived && s.next == clock));
            assert_eq!(
                scene.came_up_to(clock),
                count(&|s| s.arrived && s.next <= clock)
            );
            assert_eq!(
                scene.gradients(clock),
                count(&|s| s.gradient && s.next == clock)
            );
            let of = |wanted: &dyn Fn(Clock) -> bool| -> Vec<GroupId> {
                let found = waiting.iter().filter(|(next, _)| wanted(*next));
                found.map(|(_, group)| *group).collect()
            };
            assert!(scene.waiting_at(clock).eq(of(&|next| next == clock)));
            assert!(scene.waiting_before(clock).eq(of(&|next| next < clock)));
            let mut up_to = of(&|next| next <= clock);
            up_to.sort_unstable();
            assert_eq!(scene.waiting_up_to(clock), up_to);
            let came = seen.iter().filter(|s| s.arrived && s.next <= clock);
            let mut times: Vec<u64> = came.map(|s| s.since_us).collect();
            times.sort_unstable();
            for place in 0..=times.len() {
                assert_eq!(scene.arrival_us(place, clock), times.get(place).copied());
            }
            let behind = gathered.map(|gathered| gathered.last);
            let due = all.iter().filter(|of| of.next <= clock).map(|of| of.group);
            let next = due.filter(|group| Some(*group) > behind).min();
            for group in (0..GROUPS as u32).map(GroupId) {
                assert_eq!(
                    scene.is_next(group, clock),
                    next == Some(group),
                    "seed {seed}"
                );
            }
        }
    }

    /// Groups come, wait, are gathered, decided, sent away and leave, in any order.
    #[test]
    fn what_is_derived_is_what_a_walk_over_all_groups_finds() {
        for seed in 0..12 {
            let mut random = Random(seed, 0);
            let (mut standings, mut now_us) = (Standings::default(), 0);
            for _ in 0..300 {
                now_us += random.below(3);
                let group = GroupId(random.below(GROUPS) as u32);
                let came = standings.has_come(group);
                match random.below(10) {
                    0 if standings.is_live(group) => standings.leave(group),
                    1 => {
                        let earliest = Clock(random.below(20));
                        for other in (0..GROUPS as u32).map(GroupId) {
                            if !standings.is_live(other) && random.below(5) == 0 {
                                let life = Incarnation(1 + random.below(2));
                                standings.expect(other, life, earliest);
                            } else {
                                standings.expect_no_more(other);
                            }
                        }
                    }
                    2 if came && !standings.is_gathered(group) => standings.withdraw(group),
                    3..5 if came && !standings.is_gathered(group) => standings.gather(group),
                    3..6 if came => {
                        let next = standings.next(group).unwrap();
                        assert_eq!(standings.decide(group), next);
                    }
                    _ if came => {}
                    _ if standings.is_live(group) => {
                        let next = standings.next(group).unwrap();
                        let gap = if random.below(4) == 0 {
                            random.below(3)
                        } else {
                            0
                        };
                        let gradient = random.below(3) > 0;
                        standings.arrive(group, Clock(next.0 + gap), gradient, now_us);
                    }
                    _ => {
                        let start = Clock(random.below(12));
                        let next = Clock(start.0 + random.below(3));
                        let life = (Incarnation(1), start);
                        if standings.incarnation(group).is_none() {
                            standings.enter(group, life, next, random.below(4) == 0);
                        }
                    }
                }
                let gathered = (random.below(2) == 0).then(|| Gathered {
                    clock: Clock(0),
                    last: GroupId(random.below(GROUPS) as u32),
                });
                compare(&standings, random.below(2) == 0, gathered, seed);
            }
        }
    }

    /// What a push looks at is counted: it is as much with a thousand times as many groups.
    #[test]
    fn few_clocks_are_kept_however_many_groups_stand_there() {
        let mut standings = Standings::default();
        for group in (0..10_000).map(GroupId) {
            standings.enter(group, (Incarnation(1), Clock(0)), Clock(0), false);
        }
        for group in (0..10_000).rev().map(GroupId) {
            standings.arrive(group, Clock(0), true, 0);
            let clocks = standings.heard.at.len() + standings.came.at.len();
            assert!(
                clocks <= 3,
                "where they stand, where one comes, and where it goes"
            );
            standings.decide(group);
        }
        let (heard, starts) = (&standings.heard.at, &standings.starts.at);
        assert_eq!((heard.len(), starts.len()), (1, 1));
        assert_eq!((standings.came.all, standings.waiting()), (0, 0));
    }
}
