//! What the supervisor knows of one member.

/// Pause before a member is started again, by its deaths without progress.
const PAUSES_MS: [u64; 5] = [0, 1_000, 2_000, 4_000, 8_000];

/// Where a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemberState {
    /// It has died, and is started again at this time.
    Down { until_ms: u64 },
    /// It shall be started.
    Begun,
    /// A server that does not listen yet.
    Starting,
    /// It does its work.
    Up,
    /// It has done its part and is not started again.
    Done,
}

/// A member, as its supervisor knows it.
#[derive(Clone, Debug)]
pub(super) struct Supervised {
    /// Which life of the member it is in, from 1.
    pub(super) number: u64,
    pub(super) state: MemberState,
    /// Deaths since it has last made progress.
    pub(super) deaths: u32,
    /// How it died last.
    pub(super) how: String,
    pub(super) started_ms: u64,
    /// Since when it listens.
    pub(super) up_ms: Option<u64>,
    /// When a server has answered last, or a rank was last in its group.
    pub(super) heard_ms: u64,
    /// Since when a rank is known to have been in its group.
    pub(super) present_since_ms: Option<u64>,
    /// It was told that this rank has never been in its group.
    pub(super) told_never_joined: bool,
    /// Why it was killed; its death is then no surprise.
    pub(super) killed: Option<String>,
    /// It was asked to end so that another begins in its place; its end is then no death.
    pub(super) renews: bool,
}

impl Supervised {
    pub(super) fn up(number: u64, now_ms: u64) -> Self {
        Self {
            number,
            state: MemberState::Up,
            deaths: 0,
            how: String::new(),
            started_ms: now_ms,
            up_ms: Some(now_ms),
            heard_ms: now_ms,
            present_since_ms: None,
            told_never_joined: false,
            killed: None,
            renews: false,
        }
    }

    pub(super) fn started(&mut self, server: bool, now_ms: u64) {
        let (number, deaths) = (self.number, self.deaths);
        let how = std::mem::take(&mut self.how);
        *self = Self {
            deaths,
            how,
            ..Self::up(number, now_ms)
        };
        if server {
            self.state = MemberState::Starting;
            self.up_ms = None;
        }
    }

    pub(super) fn is_up(&mut self, now_ms: u64) {
        if self.state == MemberState::Starting {
            self.state = MemberState::Up;
            self.up_ms = Some(now_ms);
            self.heard_ms = now_ms;
        }
    }

    /// Counts a death; how long to wait before the next life.
    pub(super) fn down(&mut self, how: String, now_ms: u64) -> u64 {
        let pause_ms = PAUSES_MS[(self.deaths as usize).min(PAUSES_MS.len() - 1)];
        self.deaths += 1;
        self.how = how;
        self.up_ms = None;
        self.present_since_ms = None;
        self.state = MemberState::Down {
            until_ms: now_ms + pause_ms,
        };
        pause_ms
    }

    /// Another begins in its place at once, as if it were the first.
    pub(super) fn renew(&mut self, now_ms: u64) {
        self.renews = false;
        self.deaths = 0;
        self.how = "was asked to begin anew".into();
        self.up_ms = None;
        self.present_since_ms = None;
        self.state = MemberState::Down { until_ms: now_ms };
    }

    /// Nothing could be heard for so long.
    pub(super) fn forgive(&mut self, gap_ms: u64) {
        self.heard_ms += gap_ms;
    }
}
