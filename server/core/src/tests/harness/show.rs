//! How a harness prints answers and orders.

use tradewind_common::holders::Holders;
use tradewind_common::{Clock, Generation, Incarnation};

use super::outcome::all_of;
use crate::answer::{Answer, Refused};
use crate::order::Order;
use crate::view::View;

pub(super) fn word(answer: &Answer) -> String {
    match answer {
        Answer::Joined {
            incarnation,
            store_address,
            group_size,
            group_rank,
            origin,
        } => {
            let mut text = format!("joined as {incarnation}");
            // A group of one rank says no more.
            if *group_size > 1 || *group_rank > 0 {
                text += &format!(" {group_rank}/{group_size} at {store_address}");
            }
            if *origin != (Clock(0), 0) {
                text += &format!(" from {} at {}", origin.1, origin.0);
            }
            text
        }
        Answer::Create => "create".into(),
        Answer::Ready { start, .. } => format!("start at {start}"),
        Answer::Attached(first) => format!("attached {first}"),
        Answer::Draining => "draining".into(),
        Answer::Removed => "removed".into(),
        Answer::Resumes => "resumes".into(),
        Answer::Revoked { .. } => "revoked".into(),
        Answer::Snapshot { number } => format!("snapshot {number}"),
    }
}

/// An answer, or the name of the refusal.
pub(super) fn said(answer: Result<String, Refused>) -> String {
    let name = |refused: Refused| {
        let text = match refused {
            Refused::Refusal(refusal) => format!("{refusal:?}"),
            other => format!("{other:?}"),
        };
        let end = text.find(['(', ' ']).unwrap_or(text.len());
        format!("refused {}", &text[..end])
    };
    answer.unwrap_or_else(name)
}

pub(super) fn show(before: Option<&Order>, order: &Order) -> String {
    let mut text = show_view(all_of(order));
    if before.is_some_and(|before| before.holders != order.holders) {
        text += &format!(" | {}", show_holders(&order.holders));
    }
    let mut restores: Vec<_> = order.restore.clone();
    restores.sort_by_key(|restore| restore.shard);
    for restore in restores {
        let from = if restore.only { "=" } else { "<=" };
        text += &format!(" | restore {}{from}{}", restore.shard, restore.newest);
    }
    let mut captures: Vec<_> = order.capture.clone();
    captures.sort_by_key(|capture| capture.shard);
    for capture in captures {
        let at = capture.at_clock.map_or("now".into(), |c| c.to_string());
        text += &format!(" | capture {}:{} at {at}", capture.number, capture.shard);
    }
    text
}

pub(super) fn show_holders(holders: &[Holders]) -> String {
    let show = |(shard, holders): (usize, &Holders)| {
        let primary = holders.primary.map(|p| format!("{}@{}", p.server, p.since));
        let mut text = format!("{shard}:{}", primary.unwrap_or_else(|| "-".into()));
        for copy in &holders.copies {
            let full = if copy.full { "*" } else { "" };
            text += &format!("+{}@{}{full}", copy.server, copy.since);
        }
        if let Some(heir) = holders.heir {
            text += &format!(">{}@{}", heir.server, heir.since);
        }
        for candidate in &holders.candidates {
            text += &format!("?{}", candidate.server);
        }
        if holders.lineage > Generation(0) {
            text += &format!("^{}", holders.lineage);
        }
        text
    };
    let shown: Vec<String> = holders.iter().enumerate().map(show).collect();
    shown.join(" ")
}

pub(super) fn show_view(view: &View) -> String {
    let live = view
        .live
        .iter()
        .map(|(g, (life, start))| format!("{g}@{life}:{start} "));
    let joined = view.joined.iter().map(|(g, life)| format!("{g}@{life} "));
    let creator = match view.creator {
        None => "nobody".into(),
        Some((_, Incarnation(0))) => "none yet".into(),
        Some((group, life)) => format!("{group}@{life}"),
    };
    let (live, joined) = (live.collect::<String>(), joined.collect::<String>());
    format!("view {} {live}+ {joined}by {creator}", view.generation)
}
