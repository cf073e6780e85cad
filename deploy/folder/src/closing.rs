//! What `tradewind run` prints at its end.

use std::fmt::Write;
use std::path::Path;

use tradewind_common::exit::Exit;
use tradewind_common::record::{Better, Evaluation};
use tradewind_common::run_files;

use crate::summary::Summary;

/// The metric beside the baselines, for each part and for all together.
pub fn metric(evaluation: &Evaluation) -> String {
    let metric = &evaluation.metric;
    let parts = &evaluation.parts;
    let names =
        std::iter::once("network").chain(evaluation.baselines.iter().map(|b| b.name.as_str()));
    let width = names
        .clone()
        .map(|name| name.chars().count())
        .max()
        .unwrap_or(0);
    let unit = match metric.unit.as_str() {
        "" => String::new(),
        unit => format!(" ({unit})"),
    };
    let mut text = format!("\n{}{unit}\n{:width$}", metric.name, "");
    for name in parts.iter().map(|part| part.name.as_str()).chain(["all"]) {
        let _ = write!(text, "  {name:>8}");
    }
    text += match evaluation.better {
        _ if evaluation.baselines.is_empty() => "\n",
        Better::Lower => "    network's error is lower by\n",
        Better::Higher => "    network is higher by\n",
    };
    for (row, name) in names.enumerate() {
        let _ = write!(text, "{name:width$}");
        for part in parts {
            let value = if row == 0 {
                part.value
            } else {
                part.baselines[row - 1]
            };
            let _ = write!(text, "  {value:8.3}");
        }
        if row == 0 {
            let _ = writeln!(text, "  {:8.3}", metric.value);
        } else {
            let baseline = evaluation.baselines[row - 1].value;
            let better = match evaluation.better {
                Better::Lower => format!("{:.1} %", 100.0 * (1.0 - metric.value / baseline)),
                Better::Higher if metric.unit == "%" => {
                    format!("{:.1} points", metric.value - baseline)
                }
                Better::Higher => format!("{:.3}", metric.value - baseline),
            };
            let _ = writeln!(text, "  {baseline:8.3}    {better}");
        }
    }
    text
}

/// How the run ended, and where its files are.
pub fn closing(summary: &Summary, folder: &Path) -> String {
    let status = match summary.exit() {
        Exit::DoneWithLosses => "completed with losses".to_owned(),
        Exit::Lost => "stopped at a loss".to_owned(),
        _ => format!("{:?}", summary.status).to_lowercase(),
    };
    let (train, wall) = (summary.train_seconds, summary.wall_seconds);
    let time = match summary.resumed_from {
        None => format!("{train:.1} s of training, {wall:.1} s in all"),
        // Training began in a former part, and there may have been a long pause.
        Some(number) => format!("this part took {wall:.1} s, from snapshot {number} on"),
    };
    let overflows = match summary.overflowed() {
        0 => String::new(),
        count => format!("; {count} steps were skipped because scaled gradients overflowed"),
    };
    let lost = summary.lost().map(|lost| format!("; {lost}"));
    let lost = lost.unwrap_or_default();
    // Where it goes on, if that takes somebody's consent.
    let consent = match (summary.exit(), summary.snapshot()) {
        (Exit::Lost, Some(number)) => format!(
            "; everything in {} is as it was: `--resume` goes on from snapshot {number} and accepts the loss",
            folder.display()
        ),
        _ => String::new(),
    };
    let path = folder.join(run_files::SUMMARY);
    format!(
        "{status}: {time}{overflows}{lost}{consent}; see {}",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use tradewind_common::record::{Measure, Part};

    use super::*;

    #[test]
    fn the_metric_stands_beside_its_baselines() {
        let measure = |name: &str, value| Measure {
            name: name.into(),
            unit: "K".into(),
            value,
        };
        let evaluation = Evaluation {
            metric: measure("held-out RMSE", 0.75),
            better: Better::Lower,
            validation: measure("validation RMSE", 0.8),
            baselines: vec![measure("persistence", 1.0)],
            parts: vec![Part {
                name: "A1B".into(),
                value: 0.5,
                baselines: vec![0.9],
            }],
            params_digest: String::new(),
            parameters: 1,
            libtorch: String::new(),
            curves: Vec::new(),
            scatters: Vec::new(),
            picture: String::new(),
        };
        let want = "\nheld-out RMSE (K)\n                  A1B       all    network's error is lower by\nnetwork         0.500     0.750\npersistence     0.900     1.000    25.0 %\n";
        assert_eq!(metric(&evaluation), want);
        let mut accurate = Evaluation {
            better: Better::Higher,
            ..evaluation
        };
        assert!(metric(&accurate).ends_with("1.000    -0.250\n"));
        accurate.metric.unit = "%".into();
        assert!(metric(&accurate).ends_with("1.000    -0.2 points\n"));
        let alone = Evaluation {
            metric: Measure {
                unit: String::new(),
                ..measure("accuracy", 0.98)
            },
            baselines: Vec::new(),
            parts: Vec::new(),
            ..accurate
        };
        assert_eq!(
            metric(&alone),
            "\naccuracy\n              all\nnetwork     0.980\n"
        );
    }
}
