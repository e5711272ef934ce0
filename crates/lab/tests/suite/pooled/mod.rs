//! Replays with the pools of a file.

use std::io::Write;
use std::path::Path;

use clap::Parser;
use ebbtide_lab::Error;
use ebbtide_lab::replay::{ReplayArgs, ReplayReport, replay};
use tempfile::NamedTempFile;

use crate::line::Line;

pub const MIB: u64 = 1 << 20;

pub fn file(text: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

pub fn replay_file(trace: &Path, pools: &str, flags: &str) -> Result<ReplayReport, Error> {
    let pools = file(pools);
    let paths = [trace.to_str().unwrap(), "--pools", pools.path().to_str().unwrap()];
    let line = ["replay"].into_iter().chain(paths).chain(flags.split_whitespace());
    let args = Line::<ReplayArgs>::parse_from(line).args;
    replay(&args, args.cells().unwrap()[0])
}

/// The memory of each pool at the end.
pub fn memory(report: &ReplayReport) -> Vec<u64> {
    report.pools.as_ref().unwrap().iter().map(|pool| pool.memory_bytes).collect()
}
