//! What the programs that measure peers with flash share.

use std::error::Error;
use std::process::ExitCode;

pub type Failure = Box<dyn Error + Send + Sync>;

/// How a program ends, which says what it failed of.
pub fn exit(result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
