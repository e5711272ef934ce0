//! A whole table: every measurement in a process of its own, the engines one after the other in each round, so that a
//! slow minute of the machine strikes all of them.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::str::FromStr;

use clap::Args;

use crate::Error;
use crate::calibration::Calibration;
use crate::engine::{EngineName, Mode};
use crate::measure::Outcome;
use crate::plan::{Distribution, Mix, Plan, Sharing};
use crate::table::{Row, Table};

/// Parameters of a comparison. Lists are separated by commas; every combination is measured.
#[derive(Args)]
pub struct Comparison {
    #[arg(long, value_delimiter = ',', default_value = "ebbtide,segcache,quick_cache,moka,foyer,map")]
    engines: Vec<EngineName>,
    #[arg(long, value_delimiter = ',', default_value = "get,fill,93/7,50/50,10/90")]
    mixes: Vec<Mix>,
    /// Zipf exponents; with `:N`, N new keys per request.
    #[arg(long, value_delimiter = ',', default_value = "1.0,0.7:0.02,0.55:0.02")]
    distributions: Vec<Distribution>,
    /// Bytes of a value, and MiB of memory for it.
    #[arg(long, value_delimiter = ',', default_value = "230:1024,45:256")]
    values: Vec<Values>,
    #[arg(long, default_value_t = 10_000_000)]
    keys: u32,
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    threads: Vec<u32>,
    /// For more than one thread. Private caches are measured of Ebbtide only.
    #[arg(long, value_delimiter = ',', default_value = "shared,disjoint,private")]
    sharing: Vec<Sharing>,
    /// Measured requests of each thread.
    #[arg(long, default_value_t = 8_000_000)]
    requests: u32,
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    #[arg(long)]
    csv: PathBuf,
}

#[derive(Clone, Copy, Debug)]
struct Values {
    bytes: u32,
    memory_bytes: u64,
}

impl FromStr for Values {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once(':').and_then(|(bytes, mib)| Some((bytes.parse().ok()?, mib.parse::<u32>().ok()?)));
        let (bytes, mib) = parts.ok_or_else(|| format!("`{text}` is not BYTES:MIB"))?;
        Ok(Self { bytes, memory_bytes: u64::from(mib) << 20 })
    }
}

pub fn run(comparison: &Comparison) -> Result<(), Error> {
    let mut calibration = Calibration::default();
    let mut table = Table::new(&comparison.csv);
    for cell in comparison.cells() {
        let mut rows = comparison
            .rows(&cell)
            .into_iter()
            .map(|plan| Ok(Row::new(calibration.apply(plan)?)))
            .collect::<Result<Vec<_>, Error>>()?;
        for _ in 0..comparison.rounds {
            for row in &mut rows {
                row.outcomes.push(in_own_process(&row.plan)?);
            }
        }
        table.add(rows)?;
    }
    Ok(())
}

impl Comparison {
    /// Plans on which engines and modes are compared. The caller replaces their engine and mode.
    fn cells(&self) -> Vec<Plan> {
        let mut cells = Vec::new();
        for values in &self.values {
            for &distribution in &self.distributions {
                for &mix in &self.mixes {
                    for &threads in &self.threads {
                        let alone = [Sharing::Shared];
                        for &sharing in if threads == 1 { &alone } else { self.sharing.as_slice() } {
                            cells.push(Plan {
                                engine: EngineName::Ebbtide,
                                mode: Mode::Get,
                                mix,
                                distribution,
                                keys: self.keys,
                                value_bytes: values.bytes,
                                memory_bytes: values.memory_bytes,
                                capacity_bytes: None,
                                threads,
                                sharing,
                                requests: self.requests,
                                seconds: None,
                                ttls: 0,
                            });
                        }
                    }
                }
            }
        }
        // Everything fits, and nothing is to be gained by new keys that nobody sets.
        cells.retain(|cell| cell.mix != Mix::Get || cell.distribution.churn == 0.0);
        cells
    }

    /// The engines of a cell, Ebbtide where most requests are gets in all of its modes.
    fn rows(&self, cell: &Plan) -> Vec<Plan> {
        let mut rows = Vec::new();
        for &engine in &self.engines {
            if cell.sharing == Sharing::Private && engine != EngineName::Ebbtide {
                continue;
            }
            rows.push(Plan { engine, ..cell.clone() });
            if engine == EngineName::Ebbtide && cell.mix.gets() > 90 {
                rows.extend([Mode::Batch, Mode::ZeroCopy].map(|mode| Plan { engine, mode, ..cell.clone() }));
            }
        }
        rows
    }
}

/// Starts this program again for one measurement.
pub fn in_own_process(plan: &Plan) -> Result<Outcome, Error> {
    let failed = |error| Error::System { action: "starting a measurement", error };
    let arguments = plan.arguments();
    let output = Command::new(std::env::current_exe().map_err(failed)?)
        .args(&arguments)
        .stderr(Stdio::inherit())
        .output()
        .map_err(failed)?;
    let outcome = output.status.success().then(|| Outcome::parse(&String::from_utf8_lossy(&output.stdout))).flatten();
    outcome.ok_or_else(|| Error::Child { arguments: arguments.join(" ") })
}
