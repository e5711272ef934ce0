//! Storage layers in one process, one thread: a workload in a closed loop, as the Segcache paper's Figs. 6, 7 and 9
//! have it. A get that misses is followed by a set; a set stores without counting as a get; a delete deletes. Values
//! are copied in and out, and compared.
//!
//! `convert` makes the compact form of a trace that `replay` reads. `replay` plays the whole trace and prints the miss
//! ratio; with `--seconds` it measures the speed from the middle of the trace on, after a fill (`fill.rs`). A speed
//! wants more objects than the processor's caches have memory for: `--copies` plays the trace for several sets of keys.
//!
//! It cannot see a server's protocol and sockets, nor what several threads do to each other.

mod clock;
mod engine;
mod fill;
mod measure;
mod player;
mod requests;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::engine::EngineName;
use crate::requests::Requests;

/// Storage layers in one process, one thread.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write a trace in the compact form, and print the bytes of all its keys and values
    Convert {
        /// Trace file, as of `ebbtide replay`
        trace: PathBuf,
        output: PathBuf,
    },
    /// Replay a converted trace
    Replay(Replay),
}

#[derive(clap::Args)]
struct Replay {
    /// Converted trace
    requests: PathBuf,
    #[arg(long, value_enum)]
    engine: EngineName,
    /// Bytes for each copy of the keys; several with commas between them are replayed one after the other
    #[arg(long, value_delimiter = ',', required = true)]
    memory: Vec<u64>,
    /// Sets of keys that the trace is played for
    #[arg(long, default_value_t = 1)]
    copies: u32,
    /// Measure for this time, after a warm-up of half of it; else replay the whole trace
    #[arg(long)]
    seconds: Option<f64>,
    /// Requests between two reconfigurations of LHD
    #[arg(long, default_value_t = 1 << 20)]
    lhd_period: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Convert { trace, output } => {
            requests::convert(&trace, &output).map(|footprint| println!("{footprint}"))
        }
        Command::Replay(replay) => run(&replay),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("storage: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(replay: &Replay) -> Result<(), String> {
    let requests = Requests::read(&replay.requests)?;
    for &memory in &replay.memory {
        let report = engine::run(replay, &requests, memory)?;
        println!("{}", if replay.json { report.json() } else { report.text() });
    }
    Ok(())
}
