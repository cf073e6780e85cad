//! Synchronous training is plain training (rule 3): real servers and real workers beside loops
//! over tch alone.

mod buckets;
mod layerwise;
mod overlap;
mod plain;
mod ramp;
mod statistics;

/// ‖a − b‖ / ‖b‖
fn distance(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let square = |x: f64| x * x;
    let differences = a.iter().zip(b).map(|(a, b)| f64::from(*a) - f64::from(*b));
    let size: f64 = b.iter().map(|b| square(f64::from(*b))).sum();
    (differences.map(square).sum::<f64>() / size).sqrt()
}
