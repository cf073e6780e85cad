//! The way of one bucket's gradient from where it is computed to main memory.

use std::ops::Range;
use std::sync::Arc;

use tch::{Device, Kind, Tensor};
use tradewind_common::compress::SUM_MAX;

use super::giver::Landing;
use crate::c10d::C10dError;
use crate::stream::{Event, Stream, check_and_scale, copy, copy_each, in_use, torch};

/// One bucket, of which a rank pushes what its own blocks have.
pub(super) struct Outgoing {
    device: Device,
    /// What they have, as ranges of the bucket.
    own: Vec<Range<usize>>,
    /// Room on the device for them one after the other, and a view for each, unless they are so.
    packed: Option<(Tensor, Vec<Tensor>)>,
    feedback: Option<Feedback>,
    /// 1 if the gradient is not finite.
    flag: Tensor,
    /// Where it goes, in turn.
    landings: Vec<Arc<Landing>>,
}

/// Error feedback in bf16 as the shards' other clients do it
/// ([`compress`](tradewind_common::compress)), bit for bit.
struct Feedback {
    kept: Tensor,
    /// What is kept from now on, if the step is pushed.
    next: Tensor,
    encoded: Tensor,
}

impl Outgoing {
    /// `flag` is one f32 on `device`; `landings` hold bf16 if so asked, else f32.
    pub(super) fn new(
        own: &[Range<usize>],
        flag: Tensor,
        device: Device,
        bf16: bool,
        landings: Vec<Landing>,
    ) -> Result<Self, C10dError> {
        let length: usize = own.iter().map(Range::len).sum();
        let room = |kind| {
            let room = Tensor::f_zeros([length as i64], (kind, device));
            room.map_err(torch("making room for a bucket"))
        };
        let packed = match own.len() {
            0 | 1 => None,
            _ => {
                let all = room(Kind::Float)?;
                let mut start = 0;
                let views = own.iter().map(|run| {
                    let from = start;
                    start += run.len();
                    part(&all, &(from..start))
                });
                let views = views.collect::<Result<_, _>>()?;
                Some((all, views))
            }
        };
        let feedback = || {
            Ok::<_, C10dError>(Feedback {
                kept: room(Kind::Float)?,
                next: room(Kind::Float)?,
                encoded: room(Kind::BFloat16)?,
            })
        };
        Ok(Self {
            device,
            own: own.to_vec(),
            packed,
            feedback: bf16.then(feedback).transpose()?,
            flag,
            landings: landings.into_iter().map(Arc::new).collect(),
        })
    }

    /// Multiplies the gradient by `factor` where it is, and says whether it is finite.
    pub(super) fn check(&self, gradient: &Tensor, factor: &Tensor) -> Result<(), C10dError> {
        check_and_scale(gradient, &self.flag, factor)
    }

    /// The gradient, multiplied by `factor` where it is, leaves on `out`. It is final in the order
    /// of the current stream, and not written before `out` has come so far. Where it goes, and from
    /// when on it is there.
    ///
    /// # Safety
    /// The landing is read only once the event has been waited for.
    pub(super) unsafe fn leave(
        &mut self,
        gradient: &Tensor,
        factor: &Tensor,
        turn: usize,
        out: &Stream,
    ) -> Result<(Arc<Landing>, Event), C10dError> {
        self.check(gradient, factor)?;
        let landing = Arc::get_mut(&mut self.landings[turn]).ok_or_else(|| C10dError::Torch {
            what: "staging a gradient",
            message: "an exchange still reads the memory that it would be copied to".into(),
        })?;
        // SAFETY: nobody else has the landing now, nor reads it before the event: the caller's.
        let (to, flag_to) = unsafe { (landing.values.tensor(), landing.flag.tensor()) };
        let (to, flag_to) = (to.shallow_clone(), flag_to.shallow_clone());
        let flag = self.flag.shallow_clone();
        let gradient = gradient.shallow_clone();
        let pieces = self.own.iter().map(|run| part(&gradient, run));
        let pieces = pieces.collect::<Result<Vec<_>, _>>()?;
        let packed = self.packed.as_ref().map(|(all, views)| {
            let views: Vec<_> = views.iter().map(Tensor::shallow_clone).collect();
            (all.shallow_clone(), views)
        });
        let feedback = self.feedback.as_ref().map(Feedback::handles);
        out.after(Event::now(self.device)?)?;
        out.enqueue(move || {
            in_use(&gradient)?;
            let own = match &packed {
                Some((all, views)) => {
                    copy_each(views, &pieces)?;
                    Some(all)
                }
                None => pieces.first(),
            };
            match (own, &feedback) {
                (Some(own), Some(feedback)) => copy(&to, feedback.encode(own)?)?,
                (Some(own), None) => copy(&to, own)?,
                (None, _) => {}
            }
            copy(&flag_to, &flag)
        })?;
        Ok((self.landings[turn].clone(), out.event()?))
    }

    /// What left last is pushed, so that what was left out of it is kept. A step that is skipped
    /// keeps what was kept before.
    pub(super) fn all_pushed(&mut self) {
        if let Some(feedback) = &mut self.feedback {
            std::mem::swap(&mut feedback.kept, &mut feedback.next);
        }
    }

    /// The same of all but some ranges of what left, one after the other: those keep what was kept before.
    pub(super) fn pushed(&mut self, but: &[Range<usize>]) -> Result<(), C10dError> {
        self.all_pushed();
        let Some(feedback) = &self.feedback else {
            return Ok(());
        };
        but.iter().try_for_each(|range| {
            let (kept, before) = (part(&feedback.kept, range)?, part(&feedback.next, range)?);
            copy(&kept, &before)
        })
    }
}

impl Feedback {
    fn handles(&self) -> Self {
        Self {
            kept: self.kept.shallow_clone(),
            next: self.next.shallow_clone(),
            encoded: self.encoded.shallow_clone(),
        }
    }

    /// p = values + kept, limited; encoded = bf16(p), to the nearest, ties to even; next = p −
    /// encoded.
    fn encode(&self, own: &Tensor) -> Result<&Tensor, C10dError> {
        let mut sum = self.next.shallow_clone();
        let limit = f64::from(SUM_MAX);
        let encoded = tch::no_grad(|| {
            let _ = self.kept.f_add_out(&sum, own)?;
            let _ = sum.f_clamp_(-limit, limit)?;
            self.encoded.shallow_clone().f_copy_(&sum)?;
            sum.f_sub_(&self.encoded)
        });
        let _ = encoded.map_err(torch("encoding a gradient"))?;
        Ok(&self.encoded)
    }
}

fn part(all: &Tensor, range: &Range<usize>) -> Result<Tensor, C10dError> {
    let narrow = all.f_narrow(0, range.start as i64, range.len() as i64);
    narrow.map_err(torch("a range of a bucket"))
}

#[cfg(test)]
mod tests {
    use tradewind_client::parts::{Lent, Values};
    use tradewind_common::Compression;

    use super::*;

    /// Over many magnitudes, the smallest and largest included, other ones each `round`.
    fn gradient(round: usize, length: usize) -> Vec<f32> {
        let value = |at: usize| {
            let x = ((at * 31 + round * 17) as f32).sin();
            x * (((at + round) % 250) as f32 - 135.0).exp2()
        };
        let mut values: Vec<f32> = (0..length).map(value).collect();
        let last = [f32::MAX, f32::MIN, -0.0, 1e-45, 1.0 + 1.0 / 256.0];
        values[..last.len()].copy_from_slice(&last);
        values
    }

    /// Rounds 0, 1, 3 are pushed, 2 is skipped.
    fn check(own: &[Range<usize>], length: usize) {
        let device = Device::Cpu;
        let (flag, factor) = (Tensor::from_slice(&[0f32]), Tensor::from_slice(&[0.5f32]));
        let landings = Landing::each(&[own.iter().map(Range::len).sum()], Kind::BFloat16, device);
        let landings = landings.unwrap();
        let mut outgoing =
            Outgoing::new(own, flag.shallow_clone(), device, true, landings).expect("room");
        let out = Stream::new(device).unwrap();
        let mut residual = vec![0.0; own.iter().map(Range::len).sum()];
        for round in 0..4 {
            let doubled = gradient(round, length);
            let halved: Vec<f32> = doubled.iter().map(|x| x * 0.5).collect();
            let of_slice: Vec<f32> = own
                .iter()
                .flat_map(|r| &halved[r.clone()])
                .copied()
                .collect();
            let mut want = Vec::new();
            let mut left = residual.clone();
            Compression::Bf16.encode(&of_slice, Some(&mut left), &mut want);

            let left_device = Tensor::from_slice(&doubled);
            // SAFETY: waited for below, before it is read.
            let gone = unsafe { outgoing.leave(&left_device, &factor, 0, &out) };
            let (landing, event) = gone.unwrap();
            event.wait().unwrap();
            let Values::Bf16(got) = landing.values() else {
                panic!("encoded");
            };
            let got: Vec<u8> = got.iter().flat_map(|x| x.to_le_bytes()).collect();
            assert!(got == want, "{own:?}, round {round}");
            if round != 2 {
                residual = left;
                outgoing.all_pushed();
            }
        }
        assert_eq!(flag.double_value(&[0]), 0.0);
    }

    #[test]
    fn a_bucket_is_encoded_as_a_host_would_and_a_skip_keeps_what_was_kept() {
        check(std::slice::from_ref(&(0..2000)), 2000);
        check(&[0..700, 700..900, 1300..1999], 2000);
        check(&[], 10);
    }
}
