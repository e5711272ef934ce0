//! Caches in one process, side by side: the same requests, the same memory, the hit ratio beside the speed.
//!
//! `measure` does one measurement in this process and prints it; `compare` starts a process for each measurement of a
//! whole table, so that each begins with clean memory, and takes the medians of several rounds; `check` runs every
//! engine for a moment.
//!
//! It does not measure latencies of single requests, values of mixed sizes, and expiry.
#![forbid(unsafe_code)]

mod calibration;
mod compare;
mod engine;
mod measure;
mod plan;
mod process;
mod table;
mod workload;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::compare::Comparison;
use crate::engine::{EngineName, Mode};
use crate::measure::Outcome;
use crate::plan::{Mix, Plan, Sharing};

/// Caches in one process, side by side.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// One measurement in this process.
    Measure(Plan),
    /// Many, each in a process of its own; medians go to a CSV file.
    Compare(Comparison),
    /// Every engine in every mode for a moment: does each answer with the right values?
    Check,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("{0}")]
    Plan(String),
    #[error("{engine} does not start: {reason}")]
    Build { engine: EngineName, reason: String },
    #[error("{engine} answered {wrong} gets with a value that is not the key's")]
    WrongValues { engine: EngineName, wrong: u64 },
    #[error("{engine} answered no get at all with a hit")]
    NoHits { engine: EngineName },
    #[error("{action}: {error}")]
    System {
        action: &'static str,
        #[source]
        error: std::io::Error,
    },
    #[error("the measurement `{arguments}` failed")]
    Child { arguments: String },
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Measure(plan) => measure::run(&plan).map(|outcome| println!("{outcome}")),
        Command::Compare(comparison) => compare::run(&comparison),
        Command::Check => check(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("throughput: {error}");
            ExitCode::FAILURE
        }
    }
}

/// All engines, modes, mixes and ways to share, small enough for a second each.
fn check() -> Result<(), Error> {
    for engine in EngineName::ALL {
        for mode in Mode::ALL {
            for mix in Mix::ALL {
                for sharing in Sharing::ALL {
                    let plan = Plan { engine, mode, mix, sharing, ..Plan::small() };
                    let Outcome { hit_ratio, .. } = measure::run(&plan)?;
                    if hit_ratio == 0.0 {
                        return Err(Error::NoHits { engine });
                    }
                }
            }
        }
        println!("{engine}: ok");
    }
    Ok(())
}
