//! `cargo xtask tidy`: the rules of the house that the compiler does not check.
#![forbid(unsafe_code)]

mod tidy;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies one level below the repository root");
    match std::env::args().nth(1).as_deref() {
        Some("tidy") => match tidy::run(root) {
            Ok(problems) if problems.is_empty() => ExitCode::SUCCESS,
            Ok(problems) => {
                for problem in &problems {
                    eprintln!("{problem}");
                }
                eprintln!("tidy: {} problem(s)", problems.len());
                ExitCode::FAILURE
            }
            Err(error) => {
                eprintln!("tidy: {error}");
                ExitCode::FAILURE
            }
        },
        _ => {
            eprintln!("usage: cargo xtask tidy");
            ExitCode::from(2)
        }
    }
}
