//! A rank through all incarnations of its group: it enters, trains, and where an incarnation ends before the
//! run does, enters the next one; without a restart of its process.

use tradewind_client::membership::End;

use crate::enter::enter;
use crate::member::Member;
use crate::verdict::verdict;

/// Trains until the run's budget is applied or the group is asked to leave, through all incarnations of the
/// group that it takes.
pub fn live(member: &mut Member) -> anyhow::Result<End> {
    loop {
        let error = match once(member) {
            Ok(end) => return Ok(end),
            Err(error) => error,
        };
        let verdict = verdict(&error);
        match member.process.again(error, verdict)? {
            Some(pause) => std::thread::sleep(pause),
            None => return Ok(End::Left),
        }
    }
}

/// One incarnation, from joining to leaving.
pub fn once(member: &mut Member) -> anyhow::Result<End> {
    let store_address = member.store_address();
    let membership = member.process.join(&store_address)?;
    let mut entered = enter(member, membership)?;
    let worker = &mut entered.worker;
    match worker.train(entered.pulled) {
        Ok(end) => {
            worker.membership.leave(worker.feed.take_finished())?;
            Ok(end)
        }
        Err(error) => {
            worker.membership.break_off();
            drop(entered);
            Err(error.into())
        }
    }
}

#[cfg(test)]
mod tests;
