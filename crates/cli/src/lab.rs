//! The commands beside the server: those of the lab, whose arguments are the lab's own, and the page of a fleet.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::{examined, fleet, health};
use clap::{CommandFactory, FromArgMatches, Parser};
use ebbtide_lab::{advise, bench, capture, doctor, generate, mrc, replay, top, trace_command};
use ebbtide_server::ebbtide::message;

#[derive(Parser)]
#[command(name = "ebbtide", disable_help_subcommand = true)]
enum LabCommand {
    /// Replay a trace look-aside, in the trace's own time, and report its miss ratio
    Replay(replay::ReplayArgs),
    /// Show the miss ratio by the memory of the cache, under one policy or several
    Mrc(mrc::MrcArgs),
    /// Say how much DRAM and flash a workload deserves, what that costs and what it saves
    Advise(advise::AdviseArgs),
    /// Capture a sampled, hashed trace from a live server, Ebbtide or any memcached
    Capture(capture::CaptureArgs),
    /// Show what the workload of a trace is like; convert, filter, sample and merge traces
    Trace(trace_command::TraceArgs),
    /// Write a synthetic workload as a trace: Twitter-like, by CacheBench's configuration, or zipf, uniform, scan
    #[command(override_usage = GENERATE_USAGE)]
    Generate(generate::GenerateArgs),
    /// Load the engine, or any memcached server, with a synthetic workload and report throughput and latency
    Bench(bench::BenchArgs),
    /// Show what a live server does, Ebbtide or any memcached, in the terminal
    Top(top::TopArgs),
    /// Examine this machine for what a server of a given size should have otherwise
    #[command(override_usage = "ebbtide doctor [OPTIONS] [FLAGS OF THE SERVER]")]
    Doctor(doctor::DoctorArgs),
    /// Show several servers on one page: verdict, hits, memory and skew of each
    Dashboard(fleet::FleetArgs),
    /// Say whether the server in this container serves, for its health check
    Health(health::HealthArgs),
}

/// One line of it would be wider than a terminal.
const GENERATE_USAGE: &str = "ebbtide generate [OPTIONS] --output <FILE>
       <--preset <PRESET>|--cluster <NUMBER>|--cachebench <FILE>>";

/// Columns of the help at most.
const WIDTH: usize = 80;

/// The commands of clap.
pub fn command() -> clap::Command {
    LabCommand::command().max_term_width(WIDTH)
}

/// Runs the command that `args` begins with.
pub fn run(args: &[OsString]) -> ExitCode {
    let program = OsString::from("ebbtide");
    let args = if args[0] == "doctor" { examined::arranged(args) } else { args.to_vec() };
    let matches = command().try_get_matches_from(std::iter::once(&program).chain(&args));
    let command = match matches.and_then(|mut matches| LabCommand::from_arg_matches_mut(&mut matches)) {
        Ok(command) => command,
        Err(refusal) => refusal.exit(),
    };
    let result = match command {
        LabCommand::Replay(args) => replay::run(args),
        LabCommand::Mrc(args) => mrc::run(&args),
        LabCommand::Advise(args) => advise::run(&args),
        LabCommand::Capture(args) => capture::run(&args),
        LabCommand::Trace(args) => trace_command::run(&args),
        LabCommand::Generate(args) => generate::run(args),
        LabCommand::Bench(args) => bench::run(args),
        LabCommand::Top(args) => top::run(args),
        LabCommand::Doctor(args) => match examined::server(&args) {
            Ok(server) => doctor::run(&server, args.json),
            Err(error) => {
                message!("ebbtide: {error}");
                return error.exit_code();
            }
        },
        LabCommand::Dashboard(args) => return fleet::run(args),
        LabCommand::Health(args) => return health::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is_closed_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            message!("ebbtide: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::knows;

    #[test]
    fn the_arguments_hold_together() {
        LabCommand::command().debug_assert();
        for name in LabCommand::command().get_subcommands().map(|c| c.get_name()) {
            assert!(knows(&name.into()), "{name}");
        }
    }
}
