//! `tradewind-history FILE`: judges a history and says what was found.

use std::fs::File;
use std::process::ExitCode;

use tradewind_history::{History, check};

fn main() -> ExitCode {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("usage: tradewind-history FILE");
        return ExitCode::from(2);
    };
    let history = File::open(&path)
        .map_err(Into::into)
        .and_then(History::read);
    match history.map(|history| check(&history)) {
        Err(unreadable) => {
            eprintln!("{path}: {unreadable}");
            ExitCode::from(2)
        }
        Ok(Err(violation)) => {
            println!("{violation}");
            ExitCode::FAILURE
        }
        Ok(Ok(report)) => {
            println!("{report:#?}");
            ExitCode::SUCCESS
        }
    }
}
