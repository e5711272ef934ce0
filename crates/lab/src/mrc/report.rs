//! Output of `ebbtide mrc`.

use std::fmt::Write as _;
use std::io::{self, Write};

use ebbtide::ByteSize;
use ebbtide_control::{Cliff, Curve, miss_entropy};
use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};

use super::group::RequestGroup;
use crate::report::rounded;
use crate::trace::loaded::LoadedTrace;

/// Share of the gets below which hits of a captured server that are misses here change no conclusion.
const NEGLIGIBLE: f64 = 0.01;
/// Number of curves beside each other in the table.
const COLUMNS: usize = 4;

/// A curve and whose it is.
pub(super) struct Labelled {
    pub(super) policy: String,
    /// The group of requests that it is of, where each has a curve.
    pub(super) group: Option<RequestGroup>,
    pub(super) curve: Curve,
    /// Gets behind the curve, and the mean size of their objects.
    pub(super) gets: f64,
    pub(super) mean_bytes: f64,
    /// Remark on the curve for the reader.
    pub(super) note: Option<String>,
}

/// The names of the fields are the names in the JSON object.
#[derive(Serialize)]
pub(super) struct Report {
    trace: String,
    format: &'static str,
    requests: usize,
    /// After the warmup.
    gets: u64,
    /// Requests at the beginning that do not count.
    warmup_requests: usize,
    objects: usize,
    /// Bytes of keys and values of all objects.
    footprint_bytes: u64,
    malformed_lines: u64,
    exact: bool,
    /// Limitations of the result.
    caveats: Vec<String>,
    /// First gets are misses here that were hits of the captured server: where memory stops to earn hits is unknown.
    #[serde(skip)]
    has_first_hits: bool,
    /// Of the misses by group, each group with a cache of the median size.
    #[serde(skip_serializing_if = "Option::is_none")]
    miss_entropy: Option<f64>,
    pub(super) curves: Vec<Labelled>,
}

impl Serialize for Labelled {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let points: Vec<_> = self.curve.points().iter().map(PointRow::of).collect();
        let hull: Vec<_> = self.curve.hull().iter().map(PointRow::of).collect();
        let cliffs: Vec<_> = self.curve.cliffs().into_iter().map(CliffRow::of).collect();
        let mut row = serializer.serialize_struct("curve", 6)?;
        row.serialize_field("policy", &self.policy)?;
        if let Some(group) = &self.group {
            row.serialize_field(group.by.name(), &group.name)?;
        }
        row.serialize_field("points", &points)?;
        row.serialize_field("hull", &hull)?;
        row.serialize_field("cliffs", &cliffs)?;
        row.serialize_field("note", &self.note)?;
        row.end()
    }
}

#[derive(Serialize)]
struct PointRow {
    memory_bytes: u64,
    miss_ratio: f64,
    low: f64,
    high: f64,
    byte_miss_ratio: f64,
    byte_low: f64,
    byte_high: f64,
}

impl PointRow {
    fn of(point: &ebbtide_control::Point) -> Self {
        Self {
            memory_bytes: point.memory_bytes,
            miss_ratio: rounded(point.miss_ratio),
            low: rounded(point.low),
            high: rounded(point.high),
            byte_miss_ratio: rounded(point.byte_miss_ratio),
            byte_low: rounded(point.byte_low),
            byte_high: rounded(point.byte_high),
        }
    }
}

#[derive(Serialize)]
struct CliffRow {
    from_bytes: u64,
    to_bytes: u64,
    height: f64,
}

impl CliffRow {
    fn of(cliff: ebbtide_control::Cliff) -> Self {
        Self { from_bytes: cliff.from_bytes, to_bytes: cliff.to_bytes, height: rounded(cliff.height) }
    }
}

impl Labelled {
    /// The name of the curve in tables and plots: the group, and the policy unless it is the usual one.
    pub(super) fn name(&self) -> String {
        match &self.group {
            Some(group) if self.policy == "lru" => group.name.clone(),
            Some(group) => format!("{} {}", group.name, self.policy),
            None => self.policy.clone(),
        }
    }
}

impl Report {
    pub(super) fn new(workload: &LoadedTrace, exact: bool, curves: Vec<Labelled>) -> Self {
        Self {
            trace: workload.trace.clone(),
            format: workload.format,
            requests: workload.steps.len(),
            gets: workload.gets(),
            warmup_requests: workload.warmup,
            objects: workload.objects(),
            footprint_bytes: workload.footprint_bytes,
            malformed_lines: workload.malformed_lines,
            exact,
            caveats: caveats(workload, &curves),
            has_first_hits: workload.first_gets().hits as f64 > workload.gets() as f64 * NEGLIGIBLE,
            miss_entropy: entropy(&curves).map(rounded),
            curves,
        }
    }

    /// Title of the curves, in one line.
    pub(super) fn title(&self) -> String {
        let name = self.trace.rsplit('/').next().unwrap_or(&self.trace);
        format!("{name}: {} gets, {} objects, {}", self.gets, self.objects, ByteSize::bytes(self.footprint_bytes))
    }

    /// The smallest and the largest size of all curves; the two always differ.
    pub(super) fn memory_range(&self) -> (f64, f64) {
        let sizes = || self.curves.iter().flat_map(|one| one.curve.points()).map(|point| point.memory_bytes as f64);
        let min = sizes().fold(f64::INFINITY, f64::min);
        let max = sizes().fold(0.0, f64::max);
        if min < max { (min, max) } else { (max.max(2.0) / 2.0, max.max(2.0) * 2.0) }
    }

    /// The upper end of an axis that holds all curves.
    pub(super) fn highest_miss_ratio(&self) -> f64 {
        let ratios = self.curves.iter().flat_map(|one| one.curve.points()).map(|point| point.high);
        (ratios.fold(0.0, f64::max) * 10.0).ceil().max(1.0) / 10.0
    }

    /// One line a point.
    pub(super) fn csv(&self) -> String {
        let mut text =
            String::from("policy,group,memory_bytes,miss_ratio,low,high,byte_miss_ratio,byte_low,byte_high\n");
        for labelled in &self.curves {
            let group = labelled.group.as_ref().map_or_else(String::new, |group| quoted(&group.name));
            for point in labelled.curve.points() {
                let ratios =
                    [point.miss_ratio, point.low, point.high, point.byte_miss_ratio, point.byte_low, point.byte_high];
                let ratios = ratios.map(|ratio| format!("{ratio:.6}")).join(",");
                writeln!(text, "{},{group},{},{ratios}", labelled.policy, point.memory_bytes)
                    .expect("a string takes all");
            }
        }
        text
    }

    /// The conclusion of the curves of all requests.
    pub(super) fn conclusion(&self) -> Option<String> {
        if self.has_first_hits {
            return None;
        }
        let whole = self.curves.iter().filter(|labelled| labelled.group.is_none());
        let curves: Vec<_> = whole.map(|labelled| (labelled.policy.as_str(), &labelled.curve)).collect();
        crate::conclusion::sentence(&curves)
    }

    /// A row for each size and a column for each curve.
    pub(super) fn table(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(
            out,
            "{}: {} requests, {} gets, {} objects of {} in all",
            self.trace,
            self.requests,
            self.gets,
            self.objects,
            ByteSize::bytes(self.footprint_bytes)
        )?;
        if let Some(entropy) = self.miss_entropy {
            writeln!(out, "miss entropy {entropy:.2} bits")?;
        }
        let mut sizes: Vec<u64> =
            self.curves.iter().flat_map(|one| one.curve.points()).map(|p| p.memory_bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        for columns in self.curves.chunks(COLUMNS) {
            block(columns, &sizes, out)?;
        }
        self.remarks(out)
    }

    /// Caveats, cliffs and notes, a line each.
    fn remarks(&self, out: &mut impl Write) -> io::Result<()> {
        for caveat in &self.caveats {
            writeln!(out, "note: {caveat}")?;
        }
        for labelled in &self.curves {
            for cliff in labelled.curve.cliffs().iter().filter(|cliff| is_flat_before(&labelled.curve, cliff)) {
                let (from, to) = (ByteSize::bytes(cliff.from_bytes), ByteSize::bytes(cliff.to_bytes));
                writeln!(out, "{}: a cliff; memory between {from} and {to} earns little before {to}", labelled.name())?;
            }
            if let Some(note) = &labelled.note {
                writeln!(out, "{}: {note}", labelled.name())?;
            }
        }
        Ok(())
    }
}

/// Part of the gain of a cliff that its points before the end may have.
const LITTLE: f64 = 0.25;

/// Whether the points inside a cliff show that memory earns little before the end of it.
fn is_flat_before(curve: &Curve, cliff: &Cliff) -> bool {
    let points = curve.points();
    let at = |bytes: u64| points.iter().find(|point| point.memory_bytes == bytes).map(|point| point.miss_ratio);
    let (Some(from), Some(to)) = (at(cliff.from_bytes), at(cliff.to_bytes)) else { return false };
    let inside =
        points.iter().filter(|point| cliff.from_bytes < point.memory_bytes && point.memory_bytes < cliff.to_bytes);
    let min = inside.map(|point| point.miss_ratio).reduce(f64::min);
    min.is_some_and(|min| from - min <= (from - to) * LITTLE)
}

fn caveats(workload: &LoadedTrace, curves: &[Labelled]) -> Vec<String> {
    let of_trace = workload.caveats().into_iter().chain(workload.about_first_hits());
    of_trace.chain(small_groups(curves)).collect()
}

/// The rows of some curves, which fit beside each other.
fn block(columns: &[Labelled], sizes: &[u64], out: &mut impl Write) -> io::Result<()> {
    let names: Vec<String> = columns.iter().map(Labelled::name).collect();
    let width = |name: &String| name.chars().count().max(15);
    write!(out, "{:<12}", "memory")?;
    for name in &names {
        write!(out, "  {name:>0$}", width(name))?;
    }
    writeln!(out)?;
    for &size in sizes {
        write!(out, "{:<12}", ByteSize::bytes(size).to_string())?;
        for (labelled, name) in columns.iter().zip(&names) {
            let point = labelled.curve.points().iter().find(|point| point.memory_bytes == size);
            let cell = point.map_or("-".to_owned(), |point| {
                let half = (point.high - point.low) / 2.0;
                if half > 0.0 {
                    format!("{:.4} +-{half:.4}", point.miss_ratio)
                } else {
                    format!("{:.4}", point.miss_ratio)
                }
            });
            write!(out, "  {cell:>0$}", width(name))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// A cell of a csv file.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

/// Objects that the cache of a group must hold for the entropy to say that another division would help.
const MIN_HELD_OBJECTS: f64 = 100.0;

/// Whether the entropy misleads: a group with a tenth of the misses in whose cache hardly an object fits. Its misses
/// count as those of a group that competes, but no division of so little memory helps it.
fn small_groups(curves: &[Labelled]) -> Option<String> {
    let all: f64 = curves.iter().map(|labelled| labelled.gets).sum();
    let held = |labelled: &Labelled| {
        let point = labelled.curve.points().get(labelled.curve.points().len() / 2)?;
        let is_small = (point.memory_bytes as f64) < MIN_HELD_OBJECTS * labelled.mean_bytes;
        (is_small && point.miss_ratio * labelled.gets > all / 10.0).then_some(point.memory_bytes)
    };
    let of_groups = curves.iter().filter(|labelled| labelled.group.is_some());
    let found = of_groups.filter_map(|labelled| held(labelled).map(|bytes| (labelled, bytes))).next();
    found.map(|(labelled, bytes)| {
        let size = ByteSize::bytes(bytes);
        format!("the entropy says little: {size} hold fewer than 100 objects of {}", labelled.name())
    })
}

/// Entropy of the misses over the groups under the first policy, each with the middle one of the sizes; `None` if there
/// are no groups.
fn entropy(curves: &[Labelled]) -> Option<f64> {
    let policy = &curves.first()?.policy;
    let of_groups = curves.iter().filter(|labelled| labelled.group.is_some() && labelled.policy == *policy);
    let misses: Vec<f64> = of_groups
        .filter_map(|labelled| {
            let points = labelled.curve.points();
            points.get(points.len() / 2).map(|point| point.miss_ratio * labelled.gets)
        })
        .collect();
    (!misses.is_empty()).then(|| miss_entropy(misses))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebbtide_control::Point;

    #[test]
    fn a_cliff_is_told_behind_points_that_stay() {
        let told = |misses: [f64; 5]| {
            let points = misses.iter().zip(1..).map(|(&misses, mib)| Point::exact(mib << 20, misses, misses));
            let curve = Curve::new(points.collect());
            let cliffs = curve.cliffs();
            assert!(!cliffs.is_empty(), "{misses:?}");
            cliffs.iter().filter(|cliff| is_flat_before(&curve, cliff)).count()
        };
        assert_eq!(told([0.9, 0.88, 0.87, 0.86, 0.1]), 1);
        assert_eq!(told([0.82, 0.64, 0.56, 0.23, 0.002]), 0);
    }
}
