//! The files of a workload: made once, and kept where a folder is named.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, bail};
use clap::ValueEnum;
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use serde::Serialize;
use tradewind_data::packed::Settings;
use tradewind_data::walk::{self, Packing};
use tradewind_data::{Memory, Source, hdf5, read_batch};
use tradewind_process::complain;

use super::workload::{Drawn, Workload};
use crate::Stop;

/// Packed files of a folder; as few as make a reader's turns between files visible.
const PACKED_FILES: usize = 4;

/// Files need so much more than their samples, at most: heads and indices.
const FILE_BYTES: u64 = 4096;

/// In which form samples are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// As `tradewind data pack` does.
    Packed,
    /// An HDF5 file of each sample, not compressed.
    Hdf5,
}

impl Form {
    /// As it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Packed => "packed",
            Self::Hdf5 => "hdf5",
        }
    }
}

/// What files there are to be.
#[derive(Clone, Copy, Debug)]
pub struct Files {
    pub workload: Workload,
    pub form: Form,
    pub samples: usize,
}

/// Files that are there.
#[derive(Clone, Debug)]
pub struct Made {
    /// The folder that has them.
    pub folder: PathBuf,
    pub form: Form,
    /// Bytes of the fields of all samples.
    pub bytes: u64,
    /// Written now, not before.
    pub now: bool,
}

impl Files {
    fn within(&self, parent: &Path) -> PathBuf {
        let (workload, form) = (self.workload.name(), self.form.name());
        parent.join(format!("{workload}-{form}-{}", self.samples))
    }

    fn drawn(&self) -> Drawn {
        Drawn::new(self.workload, self.samples)
    }

    /// Refuses files for which there is no room, and tells how much they need.
    pub fn fit(&self, parent: &Path) -> Result<(), Stop> {
        if self.within(parent).exists() {
            return Ok(());
        }
        let absolute = std::path::absolute(parent).context("cannot tell the folder's path")?;
        // The folder itself may have to be made.
        let there = absolute.ancestors().find(|folder| folder.exists());
        let found = rustix::fs::statvfs(there.unwrap_or(parent));
        let found = found.with_context(|| format!("cannot look at {}", parent.display()))?;
        let free = found.f_bavail.saturating_mul(found.f_frsize);
        let needed = self.drawn().bytes() + self.samples as u64 * FILE_BYTES;
        let what = format!(
            "{} samples of {} need {} in {}",
            self.samples,
            self.workload.name(),
            HumanBytes(needed),
            parent.display()
        );
        if needed > free {
            return Err(Stop::Input(format!(
                "{what}, which has {} free; lower --bytes, or name another --folder",
                HumanBytes(free)
            )));
        }
        complain!("{what}");
        Ok(())
    }

    /// Makes them in a folder of their own, unless they are there.
    pub async fn made(self, parent: &Path) -> anyhow::Result<Made> {
        let folder = self.within(parent);
        let now = !folder.exists();
        if now {
            std::fs::create_dir_all(parent)
                .with_context(|| format!("cannot create {}", parent.display()))?;
            let (to, drawn) = (folder.clone(), self.drawn());
            // Ctrl-C is heard meanwhile, and drops this.
            let _stops = drawn.stops();
            tokio::task::spawn_blocking(move || self.make(&to, drawn)).await??;
        }
        Ok(Made {
            folder,
            form: self.form,
            bytes: self.drawn().bytes(),
            now,
        })
    }

    fn make(&self, folder: &Path, drawn: Drawn) -> anyhow::Result<()> {
        let style = "writing [{bar:30}] {pos}/{len} samples, {eta} left";
        let style = ProgressStyle::with_template(style).expect("the template is right");
        let bar = ProgressBar::new(self.samples as u64).with_style(style);
        let drawn: Arc<dyn Source> = Arc::new(drawn);
        match self.form {
            Form::Packed => {
                let packing = Packing {
                    files: PACKED_FILES.min(self.samples),
                    readers: 1,
                    settings: Settings::default(),
                    leave_out: false,
                };
                let at = &mut |samples, _| bar.set_position(samples as u64);
                walk::pack(&drawn, folder, packing, at, &AtomicBool::new(false))?;
            }
            Form::Hdf5 => hdf5_files(&*drawn, folder, &bar)?,
        }
        bar.finish_and_clear();
        Ok(())
    }
}

/// A file of each sample, in a folder that is there when it is whole.
fn hdf5_files(drawn: &dyn Source, folder: &Path, bar: &ProgressBar) -> anyhow::Result<()> {
    let part = folder.with_extension("part");
    if part.exists() {
        bail!(
            "{} is there: an attempt was killed; delete it",
            part.display()
        );
    }
    std::fs::create_dir(&part).with_context(|| format!("cannot create {}", part.display()))?;
    let written = (0..drawn.len()).try_for_each(|sample| {
        let read = read_batch(drawn, &[sample], &mut Memory {})?;
        let values: Vec<_> = read.columns.into_iter().map(|is| is.values).collect();
        bar.inc(1);
        hdf5::write_sample(
            &part.join(format!("{sample:07}.h5")),
            drawn.fields(),
            &values,
        )
    });
    if let Err(error) = written {
        let _ = std::fs::remove_dir_all(&part);
        return Err(error.into());
    }
    std::fs::rename(&part, folder).with_context(|| format!("cannot create {}", folder.display()))
}
