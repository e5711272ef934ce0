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

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use ebbtide::{ByteSize, PressureOptions};

pub use finding::{Finding, Verdict};
use machine::Machine;

use crate::Error;
use crate::generate::counted;

/// Arguments of `ebbtide doctor`; those that are given take precedence over the server's flags.
#[derive(Clone, Debug, clap::Args)]
pub struct DoctorArgs {
    /// The server's memory (its -m): megabytes, or with k, m or g [default: 64]
    #[arg(long, short = 'm', value_name = "SIZE", value_parser = server_memory)]
    pub memory: Option<ByteSize>,
    /// The server's connections (its -c) [default: 1024]
    #[arg(long, short = 'c', value_name = "NUM", value_parser = counted::<u64>)]
    pub connections: Option<u64>,
    /// The server's backlog (its -b) [default: 1024]
    #[arg(long, short = 'b', value_name = "NUM", value_parser = counted::<u64>)]
    pub backlog: Option<u64>,
    /// The server's threads (its -t) [default: the cores, at most 4]
    #[arg(long, short = 't', value_name = "NUM")]
    pub threads: Option<u64>,
    /// A folder for --flash: direct I/O, file system and drive
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
    /// Any other flag of the server, as --flags-file FILE, --config FILE or --flash PATH:SIZE
    #[arg(value_name = "FLAGS", last = true)]
    pub flags: Vec<OsString>,
}

/// The server for which the machine is examined.
#[derive(Clone, Debug)]
pub struct Server {
    pub memory: ByteSize,
    pub connections: u64,
    pub backlog: u64,
    pub threads: u64,
    /// Folders, files and block devices of flash.
    pub flash: Vec<PathBuf>,
    pub memory_file: Option<PathBuf>,
    pub memory_monitor: Option<PressureOptions>,
}

/// The value of the server's `-m`: a number without a unit is megabytes, as for the server.
fn server_memory(text: &str) -> Result<ByteSize, String> {
    match text.parse::<u32>() {
        Ok(megabytes) => Ok(ByteSize::mib(megabytes.into())),
        Err(_) => text.parse::<ByteSize>().map_err(|error| error.to_string()),
    }
}

/// Prints the findings; an error if any of them is a problem.
pub fn run(server: &Server, json: bool) -> Result<(), Error> {
    let findings = examine(server, &Machine::this());
    let printed = finding::print(&findings, json, &mut io::stdout().lock());
    // A reader that has seen enough does not change the verdict.
    match findings.iter().filter(|finding| finding.verdict == Verdict::Problem).count() {
        0 => Ok(printed?),
        problems => Err(Error::Problems { problems }),
    }
}

fn examine(server: &Server, machine: &Machine) -> Vec<Finding> {
    let mut findings = vec![
        limits::open_files(machine, server.connections, server.threads),
        limits::backlog(machine, server.backlog),
        limits::cores(machine, server.threads),
        limits::nodes(machine),
        limits::clock(machine),
        neighbours::steal(machine),
        neighbours::throttling(machine),
        network::tcp(machine, server.backlog),
        network::conntrack(machine, server.connections),
        network::queues(machine),
        network::drops(machine),
        memory::fits(machine, server.memory),
        memory::address_space(machine, server.memory),
        memory::swap(machine),
        memory::huge_pages(machine),
        probes::membarrier(),
        probes::io_uring(machine),
    ];
    findings.extend(server.flash.iter().flat_map(|path| flash(machine, path)));
    findings
        .extend(server.memory_monitor.iter().map(|options| memory_monitor::examine(machine, server.memory, options)));
    findings.extend(server.memory_file.iter().map(|path| memory_file::examine(path, server.memory)));
    findings
}

/// Findings on a path of flash: a file stands for its folder; a block device has no file system.
fn flash(machine: &Machine, path: &Path) -> Vec<Finding> {
    if path.metadata().is_ok_and(|metadata| metadata.file_type().is_block_device()) {
        return vec![storage::drive(path)];
    }
    let folder = match path.parent() {
        _ if path.is_dir() => path,
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    vec![probes::direct_io(folder), storage::filesystem(machine, folder), storage::drive(folder)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(flash: &[&Path]) -> Server {
        let memory_monitor = Some(PressureOptions::new(ebbtide::PressureMode::Free, 1 << 30, 2 << 30));
        let flash = flash.iter().map(|path| path.to_path_buf()).collect();
        Server {
            memory: server_memory("100t").unwrap(),
            connections: 100_000_000,
            backlog: 1024,
            threads: 4,
            flash,
            memory_file: None,
            memory_monitor,
        }
    }

    #[test]
    fn all_checks_run_and_non_ok_ones_advise() {
        let folder = tempfile::tempdir().unwrap();
        let findings = examine(&server(&[folder.path()]), &Machine::this());
        assert_eq!(findings.len(), 21);
        for finding in &findings {
            assert_eq!(finding.advice.is_none(), finding.verdict == Verdict::Ok, "{finding:?}");
            assert!(!finding.found.is_empty());
        }
        let verdict = |name| findings.iter().find(|finding| finding.name == name).unwrap().verdict;
        assert_eq!(verdict("memory"), Verdict::Problem);
        assert_eq!(verdict("open files"), Verdict::Problem);
    }

    #[test]
    fn a_file_of_flash_stands_for_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("flash");
        let of = |path| {
            let findings = flash(&Machine::this(), path);
            findings.into_iter().map(|finding| (finding.name, finding.found)).collect::<Vec<_>>()
        };
        assert_eq!(of(&file).len(), 3);
        assert_eq!(of(&file), of(folder.path()));
        std::fs::write(&file, "").unwrap();
        assert_eq!(of(&file), of(folder.path()));
    }
}
