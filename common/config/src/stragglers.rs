//! Sections `stragglers` and `evaluation`.

use super::{Values, choice};
use tradewind_common::ids::GroupId;
use tradewind_common::straggler::{Dials, Profile, Stragglers, Who};

/// What the configuration says of stragglers; `wrong` hears what does not fit together. A profile
/// stands for values of the other keys; one of those that is given, and not as its default, wins over it.
pub(super) fn read(
    values: &Values<'_>,
    groups: &[u32],
    wrong: &mut dyn FnMut(&str, String),
) -> Stragglers {
    let seed = values.int("run.seed") as u64;
    let ranks = groups
        .iter()
        .fold(0u32, |sum, size| sum.saturating_add(*size));
    let samples = values.int("train.samples") as u64;
    let profile: Profile = choice::read(values, "stragglers.profile");
    let mut found = profile.stragglers(seed, groups.to_vec(), samples);
    let Dials {
        jitter, pause_rate, ..
    } = found.dials;
    let mut dials: Dials = choice::together(values);
    let or = |given: f64, of_profile: f64| if given == 0.0 { of_profile } else { given };
    dials.jitter = or(dials.jitter, jitter);
    dials.pause_rate = or(dials.pause_rate, pause_rate);
    found.dials = dials;
    let slow = items(values.text("stragglers.slow"), slow, SLOW);
    let among = items(values.text("stragglers.among"), who, AMONG);
    let slowed = slow.iter().flatten().map(|(who, _)| who);
    let named = slowed.map(|who| ("stragglers.slow", who));
    let touched = among.iter().flatten();
    for (key, who) in named.chain(touched.map(|who| ("stragglers.among", who))) {
        let (number, count, what) = match *who {
            Who::Group(GroupId(number)) => (number, groups.len() as u32, "groups"),
            Who::Rank(number) => (number, ranks, "ranks"),
        };
        if number >= count {
            let text = format!("names number {number}, but cluster.groups has {count} {what}");
            wrong(key, text);
        }
    }
    match slow {
        Ok(slow) if slow.is_empty() => {}
        Ok(slow) => found.slow = slow,
        Err(what) => wrong("stragglers.slow", what),
    }
    match among {
        Ok(among) => found.among = among,
        Err(what) => wrong("stragglers.among", what),
    }
    let every = dials.spell_every;
    if every > 0 && dials.spell_steps > every {
        let text = format!("is more than stragglers.spell_every = {every}");
        wrong("stragglers.spell_steps", text);
    }
    if found.dying.is_some() && groups.len() == 1 {
        wrong(
            "stragglers.profile",
            "would leave nobody: cluster.groups has one group".into(),
        );
    }
    let slows = dials.act() || !found.slow.is_empty();
    if slows && values.float("pace.step_seconds") == 0.0 {
        wrong(
            "pace.step_seconds",
            "is no pace: a slow step lasts a multiple of it".into(),
        );
    }
    found
}

/// How the items of `stragglers.slow` look.
const SLOW: &str = "\"rank 7: 2, group 0: 1.5\" with factors from 1 to 1000";

/// How those of `stragglers.among` look.
const AMONG: &str = "\"rank 7, group 0\"";

/// Such as `rank 7`.
fn who(text: &str) -> Option<Who> {
    let (kind, number) = text.trim().split_once(' ')?;
    let number = number.trim().parse().ok()?;
    match kind {
        "group" => Some(Who::Group(GroupId(number))),
        "rank" => Some(Who::Rank(number)),
        _ => None,
    }
}

/// Such as `rank 7: 2`.
fn slow(text: &str) -> Option<(Who, f64)> {
    let (named, factor) = text.split_once(':')?;
    let factor: f64 = factor.trim().parse().ok()?;
    let sound = (1.0..=1000.0).contains(&factor);
    sound.then_some((who(named)?, factor))
}

/// What stands between commas; or what cannot be read, beside an example.
fn items<T>(text: &str, read: impl Fn(&str) -> Option<T>, example: &str) -> Result<Vec<T>, String> {
    let items = text.split(',').map(str::trim);
    items
        .filter(|item| !item.is_empty())
        .map(|item| read(item).ok_or_else(|| format!("says {item:?}, not such as {example}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::Config;
    use tradewind_common::ids::{GroupId, Rank};
    use tradewind_common::straggler::Who;

    const BASE: &str = "run.name = \"r\"\ndata.files = [\"x\"]\ndata.variable = \"x\"\n\
        data.validation = [1, 2]\ndata.held_out = [2, 3]\ntrain.samples = 80\n\
        optimizer.learning_rate = 0.1\npace.step_seconds = 0.1\ncluster.groups = [2, 1]\n";

    fn config(set: &[&str]) -> Result<Config, String> {
        let set: Vec<String> = set.iter().map(|s| (*s).to_owned()).collect();
        Config::parse(BASE, "c", Path::new("/"), &set).map_err(|error| error.to_string())
    }

    #[test]
    fn profiles_are_what_the_documentation_says() {
        let of = |profile: &str| {
            let set = format!("stragglers.profile={profile}");
            config(&[&set]).unwrap().stragglers
        };
        assert_eq!(of("none").factor(GroupId(1), Rank(0), 3), 1.0);
        assert_eq!(of("jitter").dials.jitter, 0.1);
        assert_eq!(
            (
                of("pauses").dials.pause_rate,
                of("pauses").dials.pause_factor
            ),
            (0.01, 10.0)
        );
        let slow = of("one-slow");
        assert_eq!(slow.factor(GroupId(1), Rank(0), 3), 2.0);
        assert_eq!(slow.factor(GroupId(0), Rank(1), 3), 1.0);
        let dying = of("dying");
        assert!(dying.dead(GroupId(1), 40) && !dying.dead(GroupId(1), 39));
        assert!(!dying.dead(GroupId(0), 80));
    }

    #[test]
    fn a_key_wins_over_the_profile() {
        let set = [
            "stragglers.profile=one-slow",
            "stragglers.slow=rank 0: 3, group 1: 1.5",
        ];
        let slow = config(&set).unwrap().stragglers;
        let factors = [(0, 0), (0, 1), (1, 0)].map(|(g, r)| slow.factor(GroupId(g), Rank(r), 0));
        assert_eq!(factors, [3.0, 1.0, 1.5]);
        let of = |set: &[&str]| {
            let found = config(set).unwrap().stragglers.dials;
            (found.pause_rate, found.pause_factor)
        };
        let factor = "stragglers.pause_factor=5";
        assert_eq!(of(&["stragglers.profile=pauses", factor]), (0.01, 5.0));
        let rate = "stragglers.pause_rate=0.1";
        assert_eq!(of(&["stragglers.profile=pauses", rate]), (0.1, 10.0));
        assert_eq!(of(&[rate, factor]), (0.1, 5.0));
    }

    #[test]
    fn what_is_random_can_be_somebodys() {
        let set = [
            "stragglers.profile=pauses",
            "stragglers.among=group 1, rank 0",
        ];
        let among = config(&set).unwrap().stragglers.among;
        assert_eq!(among, [Who::Group(GroupId(1)), Who::Rank(0)]);
        let nobody = config(&["stragglers.profile=pauses"])
            .unwrap()
            .stragglers
            .among;
        assert!(nobody.is_empty(), "for everyone: {nobody:?}");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let check = |set: &[&str], wanted: &str| {
            let error = config(set).unwrap_err();
            assert!(error.contains(wanted), "{set:?}: {error}");
        };
        check(
            &["stragglers.slow=rank 3: 2"],
            "stragglers.slow = \"rank 3: 2\" names number 3, but cluster.groups has 3 ranks",
        );
        check(
            &["stragglers.slow=rank 0: 0.5"],
            "says \"rank 0: 0.5\", not such as",
        );
        check(
            &["stragglers.slow=somebody"],
            "says \"somebody\", not such as",
        );
        check(
            &["stragglers.among=rank 0: 2"],
            "stragglers.among = \"rank 0: 2\" says \"rank 0: 2\", not such as \"rank 7, group 0\"",
        );
        check(
            &["stragglers.among=group 2"],
            "stragglers.among = \"group 2\" names number 2, but cluster.groups has 2 groups",
        );
        check(
            &["stragglers.profile=jitter", "pace.step_seconds=0"],
            "pace.step_seconds = 0.0 is no pace: a slow step lasts a multiple of it",
        );
        check(
            &["stragglers.spell_every=10", "stragglers.spell_steps=11"],
            "stragglers.spell_steps = 11 is more than stragglers.spell_every = 10",
        );
        check(
            &["stragglers.profile=dying", "cluster.groups=[3]"],
            "would leave nobody: cluster.groups has one group",
        );
        assert!(config(&["stragglers.profile=dying", "pace.step_seconds=0"]).is_ok());
    }
}
