//! Code shared by the programs that measure peers with flash.

use std::error::Error;
use std::process::ExitCode;

pub type Failure = Box<dyn Error + Send + Sync>;

/// Exit code of a program; an error is printed.
pub fn exit(result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
