//! A rank's process: it joins its group, and where an incarnation of that ends before the run does, joins
//! again; without a restart.

use std::sync::Arc;
use std::time::Duration;

use tradewind_common::Incarnation;
use tradewind_process::supervise;
use tradewind_proto::refusal::{self, Reason};
use tradewind_proto::renewal::Attempt;

use crate::coordinator::MembershipError;
use crate::leaving::Leaving;
use crate::membership::Membership;
use crate::network::PAUSE;
use crate::rank_settings::RankSettings;
use crate::verdict::Verdict;

/// A rank that has entered so many incarnations in a row, none of which finished an exchange, gives up.
pub const FRUITLESS_MAX: u32 = 20;

/// A rank's process, through all incarnations of its group.
pub struct RankProcess {
    /// What it is.
    pub settings: RankSettings,
    /// Whether it was asked to leave.
    pub leaving: Leaving,
    /// Grows with every incarnation that was in vain: others may be slower to see what has happened.
    pub pause: Duration,
    /// The incarnation that was joined last; 0 before the first.
    last: Incarnation,
    /// How many in a row have ended without an exchange.
    fruitless: u32,
}

impl RankProcess {
    /// Nothing is sent to servers yet. From now on the certificate is kept valid, if there is one that is renewed.
    pub fn new(settings: RankSettings) -> Self {
        if let Some(renewing) = settings.reach.credentials.renewing() {
            let keeping = renewing.keep(|attempt| match attempt {
                Attempt::Renewed => tracing::info!("the certificate was renewed"),
                Attempt::Failed(why) => tracing::warn!("{why}; it is tried again"),
            });
            let _within = settings.runtime.enter();
            supervise("the renewal of the certificate", keeping);
        }
        Self {
            settings,
            leaving: Leaving::default(),
            pause: PAUSE,
            last: Incarnation(0),
            fruitless: 0,
        }
    }

    /// Enters the group, in a later incarnation than before; returns when it is formed. `store_address`
    /// (host:port) is where the group may meet, if this rank serves such a place; it does so at that of the
    /// first rank that has one.
    pub fn join(&mut self, store_address: &str) -> Result<Membership, MembershipError> {
        // Until it has made an exchange.
        self.fruitless += 1;
        let RankSettings {
            coordinator,
            id,
            life,
            spec,
            layout: layout_of_run,
            runtime,
            ..
        } = &mut self.settings;
        let join = coordinator.join(id, *life, spec, store_address, self.last);
        let joined = runtime.block_on(join)?;
        if joined.bucket_bytes.is_some() {
            // Blocks of a run that is older than this program.
            let layout = spec.layout_within(joined.bucket_bytes);
            *layout_of_run = Arc::new(layout.expect("the coordinator has made the same"));
        }
        self.last = joined.incarnation;
        let (incarnation, size) = (joined.incarnation, joined.group_size);
        tracing::info!(%incarnation, group_size = size, group_rank = %joined.group_rank, "joined");
        let (settings, leaving) = (self.settings.clone(), self.leaving.clone());
        Ok(Membership::new(settings, leaving, joined))
    }

    /// The incarnation at hand has made an exchange.
    pub fn exchanged(&mut self) {
        self.fruitless = 0;
    }

    /// After an incarnation that has ended in an error with this verdict: after which pause the rank joins
    /// again, or `None` if it has been asked to leave meanwhile, and has left, or was shut out.
    ///
    /// # Errors
    /// The same error if the process is at its end; and after [`FRUITLESS_MAX`] incarnations in vain.
    pub fn again(
        &mut self,
        error: anyhow::Error,
        verdict: Verdict,
    ) -> anyhow::Result<Option<Duration>> {
        if was_drained(&error) {
            return Ok(None);
        }
        if verdict == Verdict::ShutOut {
            tracing::warn!("the group does not come back: {error:#}");
            return Ok(None);
        }
        if verdict != Verdict::Again {
            return Err(error);
        }
        if self.leaving.is_asked() {
            tracing::warn!("this incarnation ended before the group could leave: {error:#}");
            return Ok(None);
        }
        let Self {
            last, fruitless, ..
        } = *self;
        if fruitless == FRUITLESS_MAX {
            let text =
                format!("{FRUITLESS_MAX} incarnations of the group ended without an exchange");
            return Err(anyhow::anyhow!("{error:#}").context(text));
        }
        tracing::warn!(incarnation = %last, fruitless, "entering the group again: {error:#}");
        Ok(Some(self.pause * fruitless))
    }
}

/// Whether the group was asked to leave while it was not together.
fn was_drained(error: &anyhow::Error) -> bool {
    let refused = error.downcast_ref::<MembershipError>();
    refused.is_some_and(|error| match error {
        MembershipError::Refused { status, .. } => {
            refusal::reason(status) == Some(Reason::Drained.word())
        }
        MembershipError::Unreachable { .. } => false,
    })
}
