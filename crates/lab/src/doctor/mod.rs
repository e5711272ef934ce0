//! `ebbtide doctor`: settings of this machine that a server of a given size should change, and how.
//!
//! | file | finds out |
//! |---|---|
//! | `machine` | files of the kernel |
//! | `memory` | whether the memory is there, and how it is managed |
//! | `limits` | open files, backlog, cores, clock |
//! | `network` | settings of TCP, tracked connections, queues of the cards, dropped packets |
//! | `neighbours` | processor time that others take, and the limit of the control group |
//! | `storage` | the file system of the flash path, and the drive under it |
//! | `memory_file` | where the memory file is, and whether a start would take it |
//! | `memory_monitor` | whether its limits fit the host and the control group |
//! | `probes` | features that need a trial: direct I/O, io_uring, membarrier |

mod finding;
mod limits;
mod machine;
mod memory;
mod memory_file;
mod memory_monitor;
mod neighbours;
mod network;
mod probes;
mod storage;

use std::io;
use std::path::PathBuf;

use ebbtide::{ByteSize, PressureOptions};

pub use finding::{Finding, Verdict};
use machine::Machine;

use crate::Error;
use crate::generate::counted;

/// Arguments of `ebbtide doctor`.
#[derive(Clone, Debug, clap::Args)]
pub struct DoctorArgs {
    /// The server's memory (its -m): megabytes, or with k, m or g
    #[arg(long, short = 'm', value_name = "SIZE", default_value = "64", value_parser = server_memory)]
    pub memory: ByteSize,
    /// The server's connections (its -c)
    #[arg(long, short = 'c', value_name = "NUM", default_value_t = 1024, value_parser = counted::<u64>)]
    pub connections: u64,
    /// The server's backlog (its -b)
    #[arg(long, short = 'b', value_name = "NUM", default_value_t = 1024, value_parser = counted::<u64>)]
    pub backlog: u64,
    /// The server's threads (its -t) [default: the cores, at most 4]
    #[arg(long, short = 't', value_name = "NUM")]
    pub threads: Option<u64>,
    /// The folder of --flash: direct I/O, file system and drive
    #[arg(long, value_name = "DIR")]
    pub path: Option<PathBuf>,
    /// The server's memory file (its -e)
    #[arg(long, short = 'e', value_name = "FILE")]
    pub memory_file: Option<PathBuf>,
    /// The server's memory monitor (its --memory-monitor), as free,lower=SIZE,upper=SIZE
    #[arg(long, value_name = "OPTIONS")]
    pub memory_monitor: Option<String>,
    /// One JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// The value of the server's `-m`: a number without a unit is megabytes, as for the server.
fn server_memory(text: &str) -> Result<ByteSize, String> {
    match text.parse::<u32>() {
        Ok(megabytes) => Ok(ByteSize::mib(megabytes.into())),
        Err(_) => text.parse::<ByteSize>().map_err(|error| error.to_string()),
    }
}

/// Prints the findings; an error if any of them is a problem. `monitor`: the parsed `args.memory_monitor`.
pub fn run(args: DoctorArgs, monitor: Option<PressureOptions>) -> Result<(), Error> {
    let findings = examine(&args, monitor.as_ref(), &Machine::this());
    let printed = finding::print(&findings, args.json, &mut io::stdout().lock());
    // A reader that has seen enough does not change the verdict.
    match findings.iter().filter(|finding| finding.verdict == Verdict::Problem).count() {
        0 => Ok(printed?),
        problems => Err(Error::Problems { problems }),
    }
}

fn examine(args: &DoctorArgs, monitor: Option<&PressureOptions>, machine: &Machine) -> Vec<Finding> {
    let threads = args.threads.unwrap_or(machine.cores.min(4));
    let mut findings = vec![
        limits::open_files(machine, args.connections, threads),
        limits::backlog(machine, args.backlog),
        limits::cores(machine, threads),
        limits::nodes(machine),
        limits::clock(machine),
        neighbours::steal(machine),
        neighbours::throttling(machine),
        network::tcp(machine, args.backlog),
        network::conntrack(machine, args.connections),
        network::queues(machine),
        network::drops(machine),
        memory::fits(machine, args.memory),
        memory::address_space(machine, args.memory),
        memory::swap(machine),
        memory::huge_pages(machine),
        probes::membarrier(),
        probes::io_uring(machine),
    ];
    if let Some(path) = &args.path {
        findings.extend([probes::direct_io(path), storage::filesystem(machine, path), storage::drive(path)]);
    }
    findings.extend(monitor.map(|options| memory_monitor::examine(machine, args.memory, options)));
    findings.extend(args.memory_file.as_deref().map(|path| memory_file::examine(path, args.memory)));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct TestArgs {
        #[command(flatten)]
        args: DoctorArgs,
    }

    #[test]
    fn all_checks_run_and_non_ok_ones_advise() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        let args = TestArgs::parse_from(["doctor", "-m", "100t", "-c", "100000000", "--path", path]).args;
        let monitor = PressureOptions::new(ebbtide::PressureMode::Free, 1 << 30, 2 << 30);
        let findings = examine(&args, Some(&monitor), &Machine::this());
        assert_eq!(findings.len(), 21);
        for finding in &findings {
            assert_eq!(finding.advice.is_none(), finding.verdict == Verdict::Ok, "{finding:?}");
            assert!(!finding.found.is_empty());
        }
        let verdict = |name| findings.iter().find(|finding| finding.name == name).unwrap().verdict;
        assert_eq!(verdict("memory"), Verdict::Problem);
        assert_eq!(verdict("open files"), Verdict::Problem);
    }
}
