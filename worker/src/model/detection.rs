//! Boxes around events: those of a mask, how much two overlap, and how well boxes that are told find those that are
//! true.

/// Two boxes are of one event where their intersection over union is at least this.
pub(super) const IOU_MIN: f64 = 0.5;

/// A rectangle on a map, in cells; row 0 begins at 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Place {
    pub(super) y: f64,
    pub(super) x: f64,
    pub(super) height: f64,
    pub(super) width: f64,
}

/// A box that is told.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Told {
    pub(super) place: Place,
    /// The higher the surer.
    pub(super) score: f64,
}

impl Place {
    /// Around a middle, without what lies beyond the edges of a map of `y` × `x` cells.
    pub(super) fn around([y, x]: [f64; 2], [height, width]: [f64; 2], map: [f64; 2]) -> Self {
        let span = |middle: f64, length: f64, end: f64| {
            let begin = (middle - length / 2.0).clamp(0.0, end);
            [begin, (middle + length / 2.0).clamp(0.0, end) - begin]
        };
        let ([y, height], [x, width]) = (span(y, height, map[0]), span(x, width, map[1]));
        Self {
            y,
            x,
            height,
            width,
        }
    }

    /// Row and column, which need not be whole.
    pub(super) fn middle(&self) -> [f64; 2] {
        [self.y + self.height / 2.0, self.x + self.width / 2.0]
    }

    pub(super) fn area(&self) -> f64 {
        self.height * self.width
    }

    /// Intersection over union, from 0 to 1; 0 where one is empty or has a side that is no number.
    pub(super) fn iou(&self, other: &Self) -> f64 {
        let shared = |a: f64, a_length: f64, b: f64, b_length: f64| {
            ((a + a_length).min(b + b_length) - a.max(b)).max(0.0)
        };
        let both = shared(self.y, self.height, other.y, other.height)
            * shared(self.x, self.width, other.x, other.width);
        let either = self.area() + other.area() - both;
        // Also without a number.
        if either > 0.0 { both / either } else { 0.0 }
    }
}

/// The boxes of a mask of `width` columns, row by row, with their classes: around each part of the same class, not 0,
/// whose cells touch each other along an edge or at a corner, and which has at least `cells_min` cells. The map ends
/// at its edges.
pub(super) fn events(mask: &[u8], width: usize, cells_min: usize) -> Vec<(usize, Place)> {
    let mut seen = vec![false; mask.len()];
    let mut found = Vec::new();
    let mut next = Vec::new();
    for first in 0..mask.len() {
        if mask[first] == 0 || seen[first] {
            continue;
        }
        seen[first] = true;
        next.push(first);
        let (mut cells, mut rows, mut columns) = (0, [usize::MAX, 0], [usize::MAX, 0]);
        while let Some(cell) = next.pop() {
            let (y, x) = (cell / width, cell % width);
            cells += 1;
            rows = [rows[0].min(y), rows[1].max(y)];
            columns = [columns[0].min(x), columns[1].max(x)];
            for y in y.saturating_sub(1)..(y + 2).min(mask.len() / width) {
                for x in x.saturating_sub(1)..(x + 2).min(width) {
                    let other = y * width + x;
                    if mask[other] == mask[first] && !seen[other] {
                        seen[other] = true;
                        next.push(other);
                    }
                }
            }
        }
        if cells >= cells_min {
            let length = |[first, last]: [usize; 2]| (last + 1 - first) as f64;
            let place = Place {
                y: rows[0] as f64,
                x: columns[0] as f64,
                height: length(rows),
                width: length(columns),
            };
            found.push((mask[first].into(), place));
        }
    }
    found
}

/// Of boxes of one class on one map those that do not overlap a surer one by [`IOU_MIN`] or more, the surest first:
/// non-maximum suppression.
pub(super) fn suppressed(mut told: Vec<Told>) -> Vec<Told> {
    told.sort_by(|a, b| b.score.total_cmp(&a.score));
    let mut kept: Vec<Told> = Vec::new();
    for one in told {
        if kept.iter().all(|kept| kept.place.iou(&one.place) < IOU_MIN) {
            kept.push(one);
        }
    }
    kept
}

/// How well boxes of one class that are told find the true ones.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Found {
    /// Of each box that was told its score, and whether it is that of an event.
    told: Vec<(f64, bool)>,
    events: usize,
}

impl Found {
    /// Takes in one map. The surest box finds first: the event that it overlaps most, if that is by [`IOU_MIN`] or more
    /// and none has found it before. So an event that is told twice counts once, and the second box is wrong
    /// (Everingham et al. 2010, "The Pascal Visual Object Classes (VOC) Challenge", section 4.2).
    pub(super) fn add(&mut self, told: &[Told], events: &[Place]) {
        let mut order: Vec<&Told> = told.iter().collect();
        order.sort_by(|a, b| b.score.total_cmp(&a.score));
        let mut is_found = vec![false; events.len()];
        for one in order {
            let overlaps = events.iter().map(|event| event.iou(&one.place)).enumerate();
            let most = overlaps.max_by(|a, b| a.1.total_cmp(&b.1));
            let hit = most.filter(|(event, iou)| *iou >= IOU_MIN && !is_found[*event]);
            if let Some((event, _)) = hit {
                is_found[event] = true;
            }
            self.told.push((one.score, hit.is_some()));
        }
        self.events += events.len();
    }

    /// The area under precision over recall, over all thresholds of the score: of each recall the highest precision
    /// that some threshold with at least that recall has, as in PASCAL VOC since 2010. Boxes of equal scores pass a
    /// threshold together. `None` without events; no number if a score is none.
    pub(super) fn average_precision(&self) -> Option<f64> {
        if self.events == 0 {
            return None;
        }
        if self.told.iter().any(|(score, _)| score.is_nan()) {
            return Some(f64::NAN);
        }
        let mut told = self.told.clone();
        told.sort_by(|a, b| b.0.total_cmp(&a.0));
        // Right ones and all that pass each threshold, from the highest on.
        let (mut right, mut all) = (0, 0);
        let passing = told.chunk_by(|a, b| a.0 == b.0).map(|equal| {
            right += equal.iter().filter(|(_, is_right)| *is_right).count();
            all += equal.len();
            (right, all)
        });
        let mut passing: Vec<(usize, usize)> = passing.collect();
        passing.insert(0, (0, 0));
        let (mut area, mut precision) = (0.0, 0.0f64);
        for pair in passing.windows(2).rev() {
            let [(before, _), (right, all)] = [pair[0], pair[1]];
            precision = precision.max(right as f64 / all as f64);
            area += precision * (right - before) as f64 / self.events as f64;
        }
        Some(area)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(y: f64, x: f64, height: f64, width: f64) -> Place {
        Place {
            y,
            x,
            height,
            width,
        }
    }

    #[test]
    fn overlap_by_hand() {
        let one = place(0.0, 0.0, 4.0, 4.0);
        let check = |other: Place, want: f64| {
            assert!((one.iou(&other) - want).abs() < 1e-12, "{other:?}");
            assert_eq!(one.iou(&other), other.iou(&one));
        };
        check(one, 1.0);
        check(place(0.0, 2.0, 4.0, 4.0), 8.0 / 24.0);
        check(place(1.0, 1.0, 2.0, 2.0), 4.0 / 16.0);
        check(place(4.0, 0.0, 4.0, 4.0), 0.0);
        check(place(9.0, 9.0, 0.0, 0.0), 0.0);
        check(place(0.0, 0.0, f64::NAN, 4.0), 0.0);
    }

    #[test]
    fn boxes_end_at_the_edges_of_the_map() {
        let map = [10.0, 20.0];
        assert_eq!(
            Place::around([1.0, 19.0], [4.0, 4.0], map),
            place(0.0, 17.0, 3.0, 3.0)
        );
        let whole = Place::around([5.0, 10.0], [f64::INFINITY, f64::INFINITY], map);
        assert_eq!(whole, place(0.0, 0.0, 10.0, 20.0));
        assert_eq!(whole.middle(), [5.0, 10.0]);
    }

    #[test]
    fn events_are_parts_of_one_class_that_touch() {
        let rows = [
            "1...22..1", //
            ".1..22...",
            "..1.....2",
            "....11..2",
            "2.......2",
            "22...1...",
        ];
        let mask: Vec<u8> = rows
            .concat()
            .bytes()
            .map(|cell| if cell == b'.' { 0 } else { cell - b'0' })
            .collect();
        let diagonal = (1, place(0.0, 0.0, 3.0, 3.0));
        let square = (2, place(0.0, 4.0, 2.0, 2.0));
        let right = (2, place(2.0, 8.0, 3.0, 1.0));
        let left = (2, place(4.0, 0.0, 2.0, 2.0));
        assert_eq!(events(&mask, 9, 3), [diagonal, square, right, left]);
        assert_eq!(events(&mask, 9, 4), [square]);
        assert_eq!(events(&mask, 9, 1).len(), 7);
        // One event of two classes is two.
        assert_eq!(events(&[1, 2, 1, 2], 2, 2).len(), 2);
        assert_eq!(events(&[0; 6], 3, 1), []);
    }

    #[test]
    fn a_surer_box_suppresses_those_that_overlap_it() {
        let told = |score: f64, x: f64| Told {
            place: place(0.0, x, 4.0, 4.0),
            score,
        };
        // By 12 of 20, 8 of 24, and not at all.
        let boxes = vec![
            told(0.2, 1.0),
            told(0.9, 0.0),
            told(0.5, 2.0),
            told(0.1, 9.0),
        ];
        let kept = suppressed(boxes);
        assert_eq!(kept, [told(0.9, 0.0), told(0.5, 2.0), told(0.1, 9.0)]);
    }

    /// A map of one row: events and told boxes are squares of 4 cells that begin at a column, told ones with a score.
    type Row = (&'static [f64], &'static [(f64, f64)]);

    fn found(maps: &[Row]) -> Found {
        let mut found = Found::default();
        for (events, told) in maps {
            let told: Vec<Told> = (told.iter())
                .map(|(score, x)| Told {
                    place: place(0.0, *x, 4.0, 4.0),
                    score: *score,
                })
                .collect();
            let events: Vec<Place> = events.iter().map(|x| place(0.0, *x, 4.0, 4.0)).collect();
            found.add(&told, &events);
        }
        found
    }

    #[test]
    fn average_precision_by_hand() {
        let check = |maps: &[Row], want: Option<f64>| {
            let got = found(maps).average_precision();
            let near = got.zip(want).map(|(got, want)| (got - want).abs() < 1e-12);
            assert!(near.unwrap_or(got == want), "{maps:?}: {got:?}");
        };
        check(&[(&[], &[(0.5, 0.0)])], None);
        check(&[(&[0.0], &[])], Some(0.0));
        check(&[(&[0.0, 50.0], &[(0.9, 0.0), (0.8, 50.0)])], Some(1.0));
        // Off by one column is 12 of 20, by two 8 of 24.
        check(&[(&[0.0], &[(0.9, 1.0)])], Some(1.0));
        check(&[(&[0.0], &[(0.9, 2.0)])], Some(0.0));
        // Told twice: the second is wrong, also where it fits better.
        check(&[(&[0.0], &[(0.9, 1.0), (0.8, 0.0)])], Some(1.0));
        check(
            &[(&[0.0, 50.0], &[(0.9, 1.0), (0.8, 0.0), (0.7, 50.0)])],
            Some(0.5 + 0.5 * 2.0 / 3.0),
        );
        // Right, wrong, right, wrong, right of four events on two maps: precisions 1, 2/3, 3/5.
        check(
            &[
                (&[0.0, 50.0], &[(0.9, 0.0), (0.8, 20.0), (0.7, 50.0)]),
                (&[0.0, 50.0], &[(0.6, 20.0), (0.5, 0.0)]),
            ],
            Some((1.0 + 2.0 / 3.0 + 3.0 / 5.0) / 4.0),
        );
        // A precision that rises again holds for lower recalls, too.
        check(
            &[(&[0.0, 50.0], &[(0.9, 20.0), (0.8, 0.0), (0.7, 50.0)])],
            Some(2.0 / 3.0),
        );
        // Equal scores pass together, whatever their order.
        check(&[(&[0.0], &[(0.9, 20.0), (0.9, 0.0)])], Some(0.5));
        check(&[(&[0.0], &[(0.9, 0.0), (0.9, 20.0)])], Some(0.5));
        // A box finds only events of its own map.
        check(&[(&[0.0], &[]), (&[], &[(0.9, 0.0)])], Some(0.0));
        let none = found(&[(&[0.0], &[(f64::NAN, 0.0)])]);
        assert!(none.average_precision().unwrap().is_nan());
    }
}
