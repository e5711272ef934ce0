//! Replays of one trace in several sizes and under several policies, some at the same time.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use ebbtide_control::{Curve, Point};

use super::ReplayArgs;
use super::cell::Cell;
use super::report::{AuditReport, ReplayReport};
use super::run::replay;
use crate::Error;
use crate::format;
use crate::progress::Progress;
use crate::report;
use crate::trace::{ReportFile, STANDARD_INPUT, check_is_no_input};

impl ReplayArgs {
    /// Every size under every policy, in the order of the arguments.
    ///
    /// # Errors
    /// A share of a trace that cannot be read, or only once.
    pub fn cells(&self) -> Result<Vec<Cell>, Error> {
        let under = |memory| self.policy.iter().map(move |&policy| Cell { number: None, memory, policy });
        let mut cells: Vec<Cell> = self.memory_sizes()?.into_iter().flat_map(under).collect();
        if cells.len() > 1 {
            (0..).zip(&mut cells).for_each(|(number, cell)| cell.number = Some(number));
        }
        Ok(cells)
    }

    fn jobs(&self) -> usize {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        self.jobs.map_or_else(|| cores / usize::from(self.threads), usize::from).max(1)
    }
}

/// `ebbtide replay`: prints a report for each cell, in their order, and fails if an audit does.
pub fn run(args: ReplayArgs) -> Result<(), Error> {
    args.flash.warn_of_old_spellings();
    let inputs = [&args.trace, &args.cachebench, &args.pools];
    let inputs: Vec<&Path> = inputs.into_iter().flatten().map(PathBuf::as_path).collect();
    args.segments.iter().try_for_each(|path| check_is_no_input("--segments", path, &inputs))?;
    let csv = ReportFile::open("--csv", args.csv.as_deref(), args.overwrite, &inputs)?;
    let mut out = std::io::stdout().lock();
    let cells = args.cells()?;
    if cells.len() > 1 && args.is_standard_input() {
        let reason = "standard input can be read once: give one --memory and one --policy, or a file".to_owned();
        return Err(Error::Configuration { option: "the trace", value: STANDARD_INPUT.to_owned(), reason });
    }
    if let Some(path) = args.segments.as_ref().filter(|_| cells.len() > 1) {
        let reason = "the file is for one replay: give one --memory and one --policy".to_owned();
        return Err(Error::Configuration { option: "--segments", value: path.display().to_string(), reason });
    }
    if cells.len() > 1 && !args.json {
        writeln!(out, "{}", head())?;
    }
    let mut verdict = Ok(());
    let mut ignored = String::new();
    let mut rows: Vec<ReplayReport> = Vec::new();
    let mut found: BTreeMap<&str, Vec<Point>> = BTreeMap::new();
    let progress = (cells.len() > 1).then(|| Progress::new("replays", cells.len() as u64));
    each_in_order(
        cells.len(),
        args.jobs(),
        |index| replay(&args, cells[index]),
        |index, report| {
            let report = report?;
            // Segments are recorded without gets, too.
            if report.gets == 0 && args.segments.is_none() {
                let (trace, requests) = (report.trace, report.requests as usize);
                return Err(Error::NoGets { trace, requests });
            }
            if index == 0 && cells.len() > 1 && !args.json && !report.ignored.is_empty() {
                ignored = format!("ignored: {}", report.ignored.join(", "));
            }
            if let Some(progress) = &progress {
                progress.show(index as u64 + 1, index as u64 + 1);
            }
            found.entry(report.policy).or_default().push(point(cells[index], &report));
            match cells.len() > 1 && !args.json {
                true => writeln!(out, "{}", row(cells[index], &report))?,
                false => report::print(&report, args.json, &mut out)?,
            }
            if let Some(Err(broken)) = report.audit.as_ref().map(AuditReport::verdict) {
                verdict = Err(broken);
            }
            rows.extend(csv.is_some().then_some(report));
            Ok(())
        },
    )?;
    if let Some(progress) = &progress {
        progress.finish();
    }
    if !ignored.is_empty() {
        writeln!(out, "{ignored}")?;
    }
    if let Some(sentence) = conclusion(found).filter(|_| !args.json) {
        writeln!(out, "{sentence}")?;
    }
    if let Some(csv) = csv {
        csv.write(report::csv(&rows)?.as_bytes())?;
    }
    verdict
}

fn point(cell: Cell, report: &ReplayReport) -> Point {
    Point::exact(cell.memory.as_bytes(), report.miss_ratio, report.byte_miss_ratio)
}

/// The conclusion of the replays of each policy at several sizes.
fn conclusion(found: BTreeMap<&str, Vec<Point>>) -> Option<String> {
    let curves: Vec<(&str, Curve)> = found
        .into_iter()
        .map(|(policy, mut points)| {
            points.sort_by_key(|point| point.memory_bytes);
            points.dedup_by_key(|point| point.memory_bytes);
            (policy, Curve::new(points))
        })
        .collect();
    let curves: Vec<(&str, &Curve)> = curves.iter().map(|(policy, curve)| (*policy, curve)).collect();
    crate::conclusion::sentence(&curves)
}

/// Columns of the longest name of a policy.
const POLICY_WIDTH: usize = 17;

fn columns(cells: [&str; 7]) -> String {
    let [memory, policy, misses, by_bytes, objects, evictions, rate] = cells;
    let left = format!("{memory:<9}{policy:<POLICY_WIDTH$}");
    format!("{left}{misses:>11}{by_bytes:>10}{objects:>9}{evictions:>11}{rate:>11}")
}

fn head() -> String {
    columns(["memory", "policy", "miss ratio", "by bytes", "objects", "evictions", "ops/s"])
}

/// Numbers as in the report of one replay; `--json` and `--csv` have all digits.
fn row(cell: Cell, report: &ReplayReport) -> String {
    let percent = |ratio: f64| format!("{} %", format::digits(ratio * 100.0));
    columns([
        &cell.memory.to_string(),
        report.policy,
        &percent(report.miss_ratio),
        &percent(report.byte_miss_ratio),
        &format::count(Some(report.objects)),
        &format::count(Some(report.evictions)),
        &format::rate(Some(report.ops_per_second)),
    ])
}

/// Runs `0..count` on several threads and passes on the results in order, each as soon as its predecessors are done.
/// The first error ends it after the started jobs.
pub(crate) fn each_in_order<T: Send>(
    count: usize,
    threads: usize,
    work: impl Fn(usize) -> T + Sync,
    mut take: impl FnMut(usize, T) -> Result<(), Error>,
) -> Result<(), Error> {
    let next = AtomicUsize::new(0);
    let (done, results) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..threads.min(count) {
            let (done, next, work) = (done.clone(), &next, &work);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count || done.send((index, work(index))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(done);
        let mut waiting = BTreeMap::new();
        let mut taken = 0;
        // Owned, so that an early return closes the channel before the threads are waited for.
        for (index, result) in results {
            waiting.insert(index, result);
            while let Some(result) = waiting.remove(&taken) {
                take(taken, result)?;
                taken += 1;
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn results_come_in_order() {
        let mut taken = Vec::new();
        let slow_first = |index: usize| {
            thread::sleep(Duration::from_millis(if index.is_multiple_of(3) { 5 } else { 0 }));
            index * 10
        };
        each_in_order(20, 4, slow_first, |index, result| {
            taken.push((index, result));
            Ok(())
        })
        .unwrap();
        assert_eq!(taken, (0..20).map(|index| (index, index * 10)).collect::<Vec<_>>());
    }

    #[test]
    fn an_error_ends_the_work() {
        let started = AtomicUsize::new(0);
        let work = |_| {
            thread::sleep(Duration::from_millis(1));
            started.fetch_add(1, Ordering::Relaxed)
        };
        let refuse = |index, _| match index {
            0 => Err(Error::Audit { late_hits: 1, wrong_values: 0, lost: 0 }),
            _ => panic!("what is behind the error is not wanted"),
        };
        assert!(each_in_order(1_000_000, 2, work, refuse).is_err());
        assert!(started.load(Ordering::Relaxed) < 1_000_000);
    }
}
