//! What the check of data and model has found.

use std::collections::BTreeSet;

use anyhow::Context;
use serde::Deserialize;
use tradewind_common::run_files::CHECK_LOG;

use tradewind_folder::run::RunFolder;

/// What ranks compute on: a part of the line that `tradewind-worker check` prints.
#[derive(Debug, Deserialize)]
pub(super) struct Found {
    /// Of each rank on this machine: `cpu`, or `cuda:N`.
    devices: Vec<String>,
    /// The name of each rank's GPU; empty on the CPU.
    gpus: Vec<String>,
}

impl Found {
    /// From the log of a check that has passed; a resumed run has several.
    pub(super) fn read(folder: &RunFolder) -> anyhow::Result<Self> {
        let path = folder.file(CHECK_LOG);
        let text = std::fs::read_to_string(&path);
        let text = text.with_context(|| format!("reading {}", path.display()))?;
        Self::parse(&text).with_context(|| {
            format!(
                "{} does not tell what ranks compute on; is tradewind-worker of this version?",
                path.display()
            )
        })
    }

    fn parse(log: &str) -> anyhow::Result<Self> {
        let told = log.lines().rfind(|line| line.starts_with('{'));
        Ok(serde_json::from_str(told.context("no line of JSON")?)?)
    }

    /// Whether ranks compute on GPUs: all of them, or none.
    pub(super) fn on_gpus(&self) -> bool {
        !self.gpus.is_empty()
    }

    /// Such as `4 ranks on 4 GPUs (NVIDIA H200)`.
    pub(super) fn text(&self) -> String {
        let ranks = count(self.devices.len(), "rank");
        if !self.on_gpus() {
            return format!("{ranks} on the CPU");
        }
        let gpus: BTreeSet<_> = self.devices.iter().collect();
        let names: BTreeSet<_> = self.gpus.iter().map(String::as_str).collect();
        let names: Vec<_> = names.into_iter().collect();
        format!(
            "{ranks} on {} ({})",
            count(gpus.len(), "GPU"),
            names.join(", ")
        )
    }
}

/// Such as `1 rank` and `2 ranks`.
pub(super) fn count(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ranks_compute_on_is_told() {
        let check = |devices: &[&str], gpus: &[&str], want: &str| {
            let line = serde_json::json!({"parameters": 7, "devices": devices, "gpus": gpus});
            let log = format!("{{\"devices\": []}}\nINFO words {{\n{line}\n");
            let found = Found::parse(&log).unwrap();
            assert_eq!(found.text(), want);
            assert_eq!(found.on_gpus(), !want.ends_with("the CPU"));
        };
        check(&["cpu"], &[], "1 rank on the CPU");
        check(&["cpu", "cpu"], &[], "2 ranks on the CPU");
        check(
            &["cuda:0", "cuda:1"],
            &["H200", "H200"],
            "2 ranks on 2 GPUs (H200)",
        );
        check(
            &["cuda:1", "cuda:1"],
            &["H200", "H200"],
            "2 ranks on 1 GPU (H200)",
        );
        check(
            &["cuda:0", "cuda:1"],
            &["H200", "A100"],
            "2 ranks on 2 GPUs (A100, H200)",
        );
        assert!(Found::parse("INFO nothing\n").is_err());
        assert!(Found::parse("{\"parameters\": 7}\n").is_err());
    }
}
