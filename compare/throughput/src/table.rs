//! Medians of several rounds, as they are written to a CSV file.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::Error;
use crate::measure::Outcome;
use crate::plan::Plan;

const HEADER: &str = "engine,mode,mix,distribution,value_bytes,threads,sharing,ops_per_second,ops_per_second_min,\
ops_per_second_max,hit_ratio,rss_bytes,rounds,keys,memory_bytes,capacity_bytes,cpu_ns_per_op,failed_sets";

/// One measurement with the outcome of each round.
pub struct Row {
    pub plan: Plan,
    pub outcomes: Vec<Outcome>,
}

impl Row {
    pub fn new(plan: Plan) -> Self {
        Self { plan, outcomes: Vec::new() }
    }

    fn line(&self) -> String {
        let Plan { engine, mode, mix, distribution, value_bytes, threads, sharing, keys, memory_bytes, .. } =
            &self.plan;
        let of = |part: fn(&Outcome) -> f64| {
            let mut values: Vec<f64> = self.outcomes.iter().map(part).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        let speeds = of(|outcome| outcome.ops_per_second);
        let (min, max) = (speeds[0], speeds[speeds.len() - 1]);
        let (speed, rss) = (median(&speeds), median(&of(|outcome| outcome.rss_bytes as f64)));
        let hit_ratio = median(&of(|outcome| outcome.hit_ratio));
        let cpu_ns = median(&of(|outcome| outcome.cpu_ns_per_op));
        let failed = median(&of(|outcome| outcome.failed_sets as f64));
        let (capacity, rounds) = (self.plan.capacity_bytes(), self.outcomes.len());
        format!(
            "{engine},{mode},{mix},{distribution},{value_bytes},{threads},{sharing},{speed:.0},{min:.0},{max:.0},\
             {hit_ratio:.4},{rss:.0},{rounds},{keys},{memory_bytes},{capacity},{cpu_ns:.1},{failed:.0}"
        )
    }
}

/// Of sorted values, of which there is at least one.
fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}

/// The file, rewritten after each cell, so that results survive an interruption.
pub struct Table {
    path: PathBuf,
    text: String,
}

impl Table {
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), text: format!("{HEADER}\n") }
    }

    pub fn add(&mut self, rows: Vec<Row>) -> Result<(), Error> {
        let failed = |error| Error::System { action: "writing the table", error };
        for row in rows {
            let line = row.line();
            println!("{line}");
            self.text += &line;
            self.text.push('\n');
        }
        let mut file = std::fs::File::create(&self.path).map_err(failed)?;
        file.write_all(self.text.as_bytes()).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_a_value_for_each_column() {
        let outcome = Outcome { ops_per_second: 2.0, hit_ratio: 0.5, rss_bytes: 3, cpu_ns_per_op: 4.0, failed_sets: 0 };
        let faster = Outcome { ops_per_second: 4.0, ..outcome };
        let line = Row { plan: Plan::small(), outcomes: vec![faster, outcome] }.line();
        assert_eq!(line.split(',').count(), HEADER.split(',').count());
        assert!(line.contains(",3,2,4,"), "{line}");
    }
}
