//! What can be told of a map without looking at it.

use tch::{Device, Kind, Tensor};

use super::super::detection::{IOU_MIN, Place, Told};
use super::{ClimateBoxes, DataError, Dataset, EVENTS, Split};
use crate::data::spread;

/// Labelled training maps that are looked at where there are more.
const MAPS_MAX: usize = 256;

/// Boxes of a class that are told of a map, as many as are counted in the benchmark COCO.
const BOXES_MAX: usize = 100;

/// What labelled training maps have in common.
pub(super) struct Climatology {
    /// Of each class the places where there are events most often, with the part of maps that have one there.
    pub(super) boxes: [Vec<Told>; EVENTS],
    /// Their mean, `[channels, y, x]`, scaled, on the CPU.
    pub(super) mean: Tensor,
}

impl Climatology {
    /// Of labelled maps that lie evenly over all of them, [`MAPS_MAX`] at most.
    pub(super) fn of(task: &ClimateBoxes) -> Result<Self, DataError> {
        let all = 0..task.maps.samples.len(Split::Train);
        let all: Vec<usize> = all.filter(|map| task.labelled[*map]).collect();
        let count = all.len().min(MAPS_MAX);
        let [channels, y, x] = [task.maps.channels, task.maps.y, task.maps.x];
        let mut sum = Tensor::zeros([channels, y, x], (Kind::Double, Device::Cpu));
        let mut places: [Vec<Place>; EVENTS] = Default::default();
        for number in spread(all.len(), count) {
            let batch = task.maps.one(Split::Train, all[number])?;
            for (class, place) in task.events(&batch).concat() {
                places[class].push(place);
            }
            sum += task.on_cpu(&batch).select(0, 0);
        }
        Ok(Self {
            boxes: places.map(|places| frequent(&places, count)),
            mean: (sum / count as f64).to_kind(Kind::Float),
        })
    }
}

/// The place that most others are as, then the one of those that are left, and so on, [`BOXES_MAX`] at most. The score is
/// the number of places that are as it, over that of maps.
fn frequent(places: &[Place], maps: usize) -> Vec<Told> {
    let as_it = |place: &Place| {
        let others = places.iter().enumerate();
        let others = others.filter(|(_, other)| other.iou(place) >= IOU_MIN);
        others.map(|(at, _)| at).collect::<Vec<usize>>()
    };
    let as_each: Vec<Vec<usize>> = places.iter().map(as_it).collect();
    let mut is_left = vec![true; places.len()];
    let mut told = Vec::new();
    while told.len() < BOXES_MAX {
        let left = |at: usize| as_each[at].iter().filter(|other| is_left[**other]).count();
        // The first of equal ones.
        let most = (0..places.len()).rev().max_by_key(|at| left(*at));
        let Some(most) = most.filter(|at| left(*at) > 0) else {
            break;
        };
        told.push(Told {
            place: places[most],
            score: left(most) as f64 / maps as f64,
        });
        for other in &as_each[most] {
            is_left[*other] = false;
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_frequent_places_come_first() {
        let place = |x: f64| Place {
            y: 0.0,
            x,
            height: 4.0,
            width: 4.0,
        };
        // Three about column 10, two at 30, one at 50.
        let places = [30.0, 9.0, 10.0, 11.0, 30.0, 50.0].map(place);
        let told = frequent(&places, 4);
        let want = [(10.0, 0.75), (30.0, 0.5), (50.0, 0.25)].map(|(x, score)| Told {
            place: place(x),
            score,
        });
        assert_eq!(told, want);
        assert_eq!(frequent(&[], 4), []);
        let many: Vec<Place> = (0..200)
            .map(|number| place(10.0 * f64::from(number)))
            .collect();
        assert_eq!(frequent(&many, 4).len(), BOXES_MAX);
    }
}
