//! What TensorBoard shows of a run, as whoever leads it writes it down. That it cannot be written is told once, and
//! costs training nothing.

use std::path::Path;

use tradewind_common::record::{Evaluation, StepRecord};
use tradewind_config::Config;
use tradewind_folder::clock::wall;
use tradewind_folder::records;
use tradewind_report::tensorboard::Board;

/// Event files of a run, if its configuration asks for them.
#[derive(Debug)]
pub(crate) struct RunBoard(Option<Board>);

impl RunBoard {
    pub(crate) fn new(config: &Config, run: &Path) -> Self {
        let is_wanted = config.telemetry.tensorboard;
        let board = || Board::new(run, config.resolved(), config.train.samples);
        Self(is_wanted.then(board))
    }

    /// Takes in what groups have written down; what is to be said of it.
    pub(crate) fn take(&mut self, records: &[StepRecord]) -> Option<String> {
        let written = self.0.as_mut()?.take(records);
        written.err().map(unwritten)
    }
}

/// Writes what was measured: on the way, and at the end; what is to be said of it.
pub(crate) fn measured(config: &Config, run: &Path, evaluation: &Evaluation) -> Option<String> {
    if !config.telemetry.tensorboard {
        return None;
    }
    let at_the_end = (config.train.samples, wall());
    let written = records::measured(run, evaluation, at_the_end).and_then(|all| {
        let all: Vec<_> = all
            .iter()
            .map(|it| (it.samples, it.wall, &it.measure))
            .collect();
        Board::measured(run, &all)
    });
    written.err().map(unwritten)
}

fn unwritten(error: std::io::Error) -> String {
    format!("nothing more is written for TensorBoard: {error}")
}

#[cfg(test)]
mod tests {
    use tradewind_common::record::fixture::run;

    use super::*;

    const CONFIG: &str = r#"
        [run]
        name = "r"
        [data]
        files = ["t.nc"]
        variable = "t"
        validation = [20, 25]
        held_out = [30, 40]
        [train]
        samples = 100
        [optimizer]
        learning_rate = 0.1
    "#;

    #[test]
    fn it_is_written_where_it_is_asked_for() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path();
        for (wanted, is_there) in [("false", false), ("true", true)] {
            let set = [format!("telemetry.tensorboard={wanted}")];
            let config = Config::parse(CONFIG, "c", folder, &set).unwrap();
            let mut board = RunBoard::new(&config, folder);
            assert_eq!(board.take(&run(1, 2)), None);
            assert_eq!(folder.join("tensorboard/group-0").is_dir(), is_there);
        }
    }

    #[test]
    fn a_full_disk_is_a_line_for_people() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("tensorboard"), "in the way").unwrap();
        let set = ["telemetry.tensorboard=true".to_owned()];
        let config = Config::parse(CONFIG, "c", root.path(), &set).unwrap();
        let mut board = RunBoard::new(&config, root.path());
        let told = board.take(&run(1, 2)).unwrap();
        assert!(
            told.starts_with("nothing more is written for TensorBoard: "),
            "{told}"
        );
        assert_eq!(board.take(&run(1, 2)), None);
    }
}
