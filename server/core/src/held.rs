//! What each group holds of a block, where answers are compressed: an answer is then the difference
//! to it, and what its rounding left out is in the next difference (Tang et al. 2019,
//! "DoubleSqueeze", algorithm 1, the server's side; the error is carried by what is held here).

use std::collections::BTreeMap;
use std::sync::Arc;

use tradewind_common::finite::all_finite;
use tradewind_common::{Compression, GroupId};

use super::askers::Fresh;

/// Values as a group has them after an answer.
#[derive(Debug)]
struct Held {
    /// Version of the answer.
    version: u64,
    values: Vec<f32>,
}

/// What the groups hold of one block: a copy of its values for each of them.
#[derive(Debug, Default)]
pub struct Holdings {
    /// The version with which this primary began, if it is not the first one.
    began: Option<u64>,
    groups: BTreeMap<GroupId, Held>,
}

impl Holdings {
    /// Those of a primary that goes on with the values of version `began`. Groups may hold what
    /// another one has made of it and of those before, and of none after it.
    pub fn begun_at(began: u64) -> Self {
        Self {
            began: Some(began),
            groups: BTreeMap::new(),
        }
    }

    /// Forgets a group.
    pub fn forget(&mut self, group: GroupId) {
        self.groups.remove(&group);
    }

    /// The answer that brings `group`, which says that it holds the answer of version `holds`, to
    /// `values`. They are sent whole to a group that holds nothing or another answer than the last
    /// one, which may have been lost, and where a difference would not be finite.
    ///
    /// A version names one state of a group's values, whichever of several answers of that version
    /// it takes in: the same frame may be answered twice, and nobody knows which answer arrives.
    /// So an answer of the version that was answered last carries what is held, whole, and what
    /// another primary may have answered in another state never counts as held.
    ///
    /// What `most` groups hold is kept; others are sent values whole.
    pub fn answer(
        &mut self,
        (group, holds): (GroupId, Option<u64>),
        (version, values): (u64, &Arc<Vec<f32>>),
        compression: Compression,
        most: usize,
    ) -> Fresh {
        if Some(version) <= self.began {
            return Fresh::Values(values.clone());
        }
        if let Some(held) = self.groups.get_mut(&group) {
            if held.version == version {
                return Fresh::Values(Arc::new(held.values.clone()));
            }
            if Some(held.version) == holds
                && let Some(encoded) = held.approach(values, compression)
            {
                held.version = version;
                return Fresh::Difference(compression, encoded);
            }
        }
        if self.groups.contains_key(&group) || self.groups.len() < most {
            let held = Held {
                version,
                values: values.to_vec(),
            };
            self.groups.insert(group, held);
        }
        Fresh::Values(values.clone())
    }
}

impl Held {
    fn approach(&mut self, values: &[f32], compression: Compression) -> Option<Vec<u8>> {
        let difference = values.iter().zip(&self.values).map(|(x, held)| x - held);
        let difference: Vec<f32> = difference.collect();
        if !all_finite(&difference) {
            return None;
        }
        let mut encoded = Vec::with_capacity(compression.encoded_max(values.len()));
        compression.encode(&difference, None, &mut encoded);
        // As the group does, bit for bit.
        let added = compression.decode_add(&encoded, &mut self.values);
        added.is_ok().then_some(encoded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: GroupId = GroupId(0);
    const OTHER: GroupId = GroupId(1);
    const MOST: usize = 2;
    const LOSSY: [Compression; 3] = [
        Compression::Bf16,
        Compression::Int8,
        Compression::TopK { fraction: 0.1 },
    ];

    /// A group that takes answers in.
    #[derive(Clone, Debug, Default)]
    struct Taker {
        holds: Option<u64>,
        values: Vec<f32>,
    }

    impl Taker {
        fn take(&mut self, version: u64, fresh: &Fresh) {
            match fresh {
                Fresh::Nothing => panic!("values were asked for"),
                Fresh::Values(values) => self.values = values.to_vec(),
                Fresh::Difference(form, encoded) => {
                    form.decode_add(encoded, &mut self.values).unwrap();
                }
            }
            self.holds = Some(version);
        }
    }

    fn whole(fresh: &Fresh) -> bool {
        matches!(fresh, Fresh::Values(_))
    }

    /// Values that move by whole steps of different sizes.
    fn moved(values: &mut Arc<Vec<f32>>, round: u64) {
        for (index, x) in Arc::make_mut(values).iter_mut().enumerate() {
            let step = (index as f32 * 0.7 + round as f32 * 1.3).sin();
            *x += step.powi(3) / (1 + round) as f32;
        }
    }

    fn initial() -> Arc<Vec<f32>> {
        Arc::new((0..1030).map(|i| (i as f32).cos()).collect())
    }

    fn furthest(a: &[f32], b: &[f32]) -> f32 {
        assert_eq!(a.len(), b.len());
        let distances = a.iter().zip(b).map(|(a, b)| (a - b).abs());
        distances.fold(0.0, f32::max)
    }

    #[test]
    fn a_group_follows_and_gets_what_was_left_out() {
        for form in LOSSY {
            let (mut holdings, mut values) = (Holdings::default(), initial());
            let mut taker = Taker::default();
            let mut answer = |version, values: &Arc<Vec<f32>>| {
                let fresh = holdings.answer((GROUP, taker.holds), (version, values), form, MOST);
                assert_eq!(whole(&fresh), version == 0, "{form} at {version}");
                taker.take(version, &fresh);
                taker.values.clone()
            };
            assert_eq!(answer(0, &values), *values);
            let mut furthest_off = 0f32;
            for round in 1..20 {
                moved(&mut values, round);
                furthest_off = furthest_off.max(furthest(&answer(round, &values), &values));
            }
            assert!(furthest_off > 0.0, "{form} leaves something out");
            // Versions go on, values do not: ten rounds of a tenth of the values are all of them.
            let mut last = f32::INFINITY;
            for round in 20..32 {
                let off = furthest(&answer(round, &values), &values);
                assert!(off <= last, "{form}: {off} after {last}");
                last = off;
            }
            assert!(last <= 1e-6, "{form}: {last} is still left out");
        }
    }

    #[test]
    fn a_lost_answer_is_followed_by_a_whole_one() {
        for form in LOSSY {
            let (mut holdings, mut values) = (Holdings::default(), initial());
            let mut taker = Taker::default();
            taker.take(0, &holdings.answer((GROUP, None), (0, &values), form, MOST));
            moved(&mut values, 1);
            let lost = holdings.answer((GROUP, Some(0)), (1, &values), form, MOST);
            assert!(!whole(&lost));
            moved(&mut values, 2);
            let fresh = holdings.answer((GROUP, taker.holds), (2, &values), form, MOST);
            assert_eq!(fresh, Fresh::Values(values.clone()), "{form}");
            taker.take(2, &fresh);
            moved(&mut values, 3);
            let fresh = holdings.answer((GROUP, taker.holds), (3, &values), form, MOST);
            assert!(!whole(&fresh), "{form}: differences again");
        }
    }

    /// Two answers of one version, and either may be the one that arrives.
    #[test]
    fn a_version_names_one_state() {
        for (form, first_arrives) in LOSSY.into_iter().flat_map(|f| [(f, true), (f, false)]) {
            let (mut holdings, mut values) = (Holdings::default(), initial());
            let mut taker = Taker::default();
            taker.take(0, &holdings.answer((GROUP, None), (0, &values), form, MOST));
            moved(&mut values, 1);
            let first = holdings.answer((GROUP, Some(0)), (1, &values), form, MOST);
            let second = holdings.answer((GROUP, Some(0)), (1, &values), form, MOST);
            assert!(!whole(&first) && whole(&second), "{form}");
            // One that comes much later and has held nothing yet.
            assert_eq!(
                holdings.answer((GROUP, None), (1, &values), form, MOST),
                second
            );
            taker.take(1, if first_arrives { &first } else { &second });
            moved(&mut values, 2);
            let fresh = holdings.answer((GROUP, Some(1)), (2, &values), form, MOST);
            assert!(!whole(&fresh), "{form}");
            taker.take(2, &fresh);
            let held = &holdings.groups[&GROUP];
            assert_eq!((held.version, &held.values), (2, &taker.values), "{form}");
        }
    }

    #[test]
    fn groups_have_holdings_of_their_own() {
        let form = Compression::Int8;
        let (mut holdings, mut values) = (Holdings::default(), initial());
        let mut takers = [GROUP, OTHER].map(|group| (group, Taker::default()));
        for version in 0..9 {
            // One asks every time, the other every third time.
            for (group, taker) in &mut takers[..1 + usize::from(version % 3 == 0)] {
                let fresh = holdings.answer((*group, taker.holds), (version, &values), form, MOST);
                assert_eq!(whole(&fresh), version == 0, "{group} at {version}");
                taker.take(version, &fresh);
            }
            moved(&mut values, version);
        }
        for (group, taker) in &takers {
            assert_eq!(holdings.groups[group].values, taker.values, "{group}");
        }
        assert_ne!(takers[0].1.values, takers[1].1.values);
        holdings.forget(GROUP);
        let fresh = holdings.answer((GROUP, Some(8)), (9, &values), form, MOST);
        assert_eq!(fresh, Fresh::Values(values.clone()), "it is forgotten");
        let fresh = holdings.answer((OTHER, Some(6)), (9, &values), form, MOST);
        assert!(!whole(&fresh), "the other one is not");
    }

    #[test]
    fn what_no_difference_can_reach_is_sent_whole() {
        // Infinite, NaN, too far away for f32, and no sum of what is held with a finite step.
        let far = [f32::INFINITY, f32::NAN, f32::MAX, 3e38];
        for (form, far) in LOSSY.into_iter().flat_map(|f| far.map(|x| (f, x))) {
            let mut holdings = Holdings::default();
            let start = Arc::new(vec![-3e38, 1.0]);
            holdings.answer((GROUP, None), (0, &start), form, MOST);
            let values = Arc::new(vec![far, 2.0]);
            let fresh = holdings.answer((GROUP, Some(0)), (1, &values), form, MOST);
            let Fresh::Values(got) = fresh else {
                panic!("{form}: a difference to {far}")
            };
            assert!(Arc::ptr_eq(&got, &values), "{form}");
        }
        // The difference is finite; rounded to bf16 it is 2^127, and the sum is not.
        let mut holdings = Holdings::default();
        let (start, form) = (Arc::new(vec![2f32.powi(127)]), Compression::Bf16);
        holdings.answer((GROUP, None), (0, &start), form, MOST);
        let values = Arc::new(vec![f32::MAX]);
        let fresh = holdings.answer((GROUP, Some(0)), (1, &values), form, MOST);
        assert_eq!(fresh, Fresh::Values(values));
        assert_eq!(holdings.groups[&GROUP].values, [f32::MAX]);
    }

    #[test]
    fn what_no_more_groups_hold_than_may_is_kept() {
        let (mut holdings, mut values) = (Holdings::default(), initial());
        let third = GroupId(2);
        let form = Compression::Int8;
        for group in [GROUP, OTHER, third] {
            assert!(whole(&holdings.answer(
                (group, None),
                (0, &values),
                form,
                MOST
            )));
        }
        moved(&mut values, 1);
        let mut answer = |group| holdings.answer((group, Some(0)), (1, &values), form, MOST);
        assert!(!whole(&answer(GROUP)) && !whole(&answer(OTHER)));
        assert_eq!(answer(third), Fresh::Values(values.clone()), "whole");
        // One that leaves makes room.
        holdings.forget(OTHER);
        holdings.answer((third, Some(1)), (1, &values), form, MOST);
        moved(&mut values, 2);
        let fresh = holdings.answer((third, Some(1)), (2, &values), form, MOST);
        assert!(!whole(&fresh) && holdings.groups.len() == MOST);
    }
}
