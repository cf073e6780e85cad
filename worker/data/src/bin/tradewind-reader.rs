//! A reader of samples that is a process of its own: see `tradewind_data::processes`.

use std::process::ExitCode;

fn main() -> ExitCode {
    tradewind_process::run(|| {
        // A warning of the cache is nobody else's to tell. Standard output is memory, but the log is no output.
        tradewind_process::log::start(|_| ());
        let arguments = std::env::args_os().skip(1);
        match tradewind_data::processes::run(arguments) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                tradewind_process::complain!("{error}");
                ExitCode::FAILURE
            }
        }
    })
}
