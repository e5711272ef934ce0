//! Writes a workload as a trace.
//!
//! The csv format has one line per request. oracleGeneral has records as drawn in `trace/oracle.rs`; each tells the
//! position of the key's next request, so the requests are made twice: first to link them, then to write them.

use std::collections::HashMap;
use std::io::{self, Write};

use super::args::ExportFormat;
use super::report::OperationCounts;
use super::workload::Workload;
use crate::progress::Progress;
use crate::trace::{CSV_HEADER, Request, oracle_record, write_csv_line};

/// Time of the next request if the key has none.
const NEVER: i64 = -1;

/// Number of requests between two updates of the progress.
const PROGRESS_REQUESTS: u64 = 1 << 16;

/// Writes all requests; about `expected` of them, if that is known.
pub(super) fn write(
    workload: &Workload,
    out: &mut impl Write,
    format: ExportFormat,
    expected: u64,
) -> io::Result<OperationCounts> {
    let mut counts = OperationCounts::default();
    let progress = Progress::new("requests", expected);
    let note = |counts: &OperationCounts| {
        if counts.requests.is_multiple_of(PROGRESS_REQUESTS) {
            progress.show(counts.requests, counts.requests);
        }
    };
    match format {
        ExportFormat::Csv => write_csv(workload, out, |request| {
            counts.add(request);
            note(&counts);
        })?,
        ExportFormat::OracleGeneral => {
            let next = next_positions(workload.requests().map(|request| request.key));
            for (request, &next) in workload.requests().zip(&next) {
                counts.add(&request);
                note(&counts);
                out.write_all(&oracle_record(&request, next))?;
            }
        }
    }
    progress.finish();
    Ok(counts)
}

/// Writes all requests as csv; calls `written` before each.
pub(super) fn write_csv(
    workload: &Workload,
    out: &mut impl Write,
    mut written: impl FnMut(&Request),
) -> io::Result<()> {
    out.write_all(CSV_HEADER)?;
    out.write_all(if workload.has_pools() { b",pool\n" } else { b"\n" })?;
    for request in workload.requests() {
        written(&request);
        write_csv_line(&request, workload.pool_of(&request).as_deref(), out)?;
    }
    Ok(())
}

/// For each request the position of the next one of the same key.
fn next_positions(keys: impl Iterator<Item = u64>) -> Vec<i64> {
    let mut next = Vec::with_capacity(keys.size_hint().0);
    let mut last: HashMap<u64, usize> = HashMap::new();
    for (position, key) in keys.enumerate() {
        if let Some(before) = last.insert(key, position) {
            next[before] = position as i64;
        }
        next.push(NEVER);
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_knows_the_next_of_its_key() {
        assert_eq!(next_positions([5, 7, 5, 5, 7].into_iter()), [2, 4, 3, NEVER, NEVER]);
    }
}
