//! `ebbtide replay --pools`: a trace of several tenants, each with a part of the memory for itself.
//!
//! A request belongs to the pool that its row names in the column `pool`, or to the pool with the longest prefix of its
//! key; without either to the pool `default`. Pools share nothing but the total: each is a cache of its own.

use std::collections::HashMap;

use ebbtide::{ByteSize, Objective};
use ebbtide_control::{Share, divide};
use serde::Serialize;

use super::auto_division::optimal;
use super::pool_file::PoolSpec;
use crate::Error;
use crate::trace::{Op, PoolRules, Request, TraceReader};

/// The pool of requests that no other pool claims.
const DEFAULT_POOL: &str = "default";
/// The smallest cache that is worth a replay.
pub(super) const FLOOR_BYTES: u64 = 1 << 20;

/// How `--divide` divides the memory. Minimum and maximum of a pool hold in all ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Divide {
    /// By the weights of the file.
    #[default]
    Static,
    /// Equal memory for each pool.
    Equal,
    /// By the bytes of the distinct objects of each pool in the trace, which is read twice.
    Proportional,
    /// By the weights at first; then a controller moves memory where it earns hits.
    Auto,
    /// Where it earns most hits over the whole trace, which is read twice.
    Optimal,
}

/// Results of one pool; the names of the fields are the names in the JSON object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PoolReport {
    pub name: String,
    /// Requests of every operation.
    pub requests: u64,
    /// Gets only, as are misses.
    pub hits: u64,
    pub misses: u64,
    /// The pool's part of the memory.
    pub memory_bytes: u64,
    /// Memory for the target hit ratio of the pool, in words, at the last decision of `--divide auto`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

/// The pools of a replay.
#[derive(Clone, Debug)]
pub(super) struct Pools {
    pub(super) specs: Vec<PoolSpec>,
}

/// Assigns a pool to each request of a trace.
pub(super) struct Router {
    reader: TraceReader,
    /// The pool of each label of the reader, as far as known.
    pools: Vec<usize>,
    numbers: HashMap<String, usize>,
}

impl Pools {
    pub(super) fn names(&self) -> Vec<String> {
        self.specs.iter().map(|spec| spec.share.name.clone()).collect()
    }

    /// Bytes of each pool.
    ///
    /// # Errors
    /// Shares that do not fit, with all numbers.
    pub(super) fn divide(
        &self,
        memory: ByteSize,
        floor_bytes: u64,
        weights: Option<&[u32]>,
    ) -> Result<Vec<ByteSize>, Error> {
        let weighted = |(number, spec): (usize, &PoolSpec)| Share {
            weight: weights.map_or(spec.share.weight, |weights| weights[number]),
            floor_bytes,
            ..spec.share.clone()
        };
        let shares: Vec<_> = self.specs.iter().enumerate().map(weighted).collect();
        let bytes = divide(memory.as_bytes(), &shares).map_err(|error| Error::Configuration {
            option: "--memory",
            value: memory.to_string(),
            reason: error.to_string(),
        })?;
        Ok(bytes.into_iter().map(ByteSize::bytes).collect())
    }

    /// The weights that a division in another way than by the file has. `open` opens the trace.
    pub(super) fn weights(
        &self,
        way: Divide,
        (memory, floor_bytes, objective): (ByteSize, u64, Objective),
        open: impl FnOnce() -> Result<Router, Error>,
    ) -> Result<Option<Vec<u32>>, Error> {
        match way {
            Divide::Static | Divide::Auto => Ok(None),
            Divide::Equal => Ok(Some(vec![1; self.specs.len()])),
            Divide::Proportional => Ok(Some(scaled(&open()?.footprints(self.specs.len())?))),
            Divide::Optimal => {
                let mut router = open()?;
                Ok(Some(scaled(&optimal(&self.specs, floor_bytes, (memory, objective), || router.next_request())?)))
            }
        }
    }

    /// Routes the requests of a trace to these pools.
    ///
    /// # Errors
    /// A trace without pools.
    pub(super) fn route(&self, mut reader: TraceReader) -> Result<Router, Error> {
        let rules = PoolRules::new(
            self.specs
                .iter()
                .flat_map(|spec| spec.prefixes.iter().map(|prefix| (prefix.clone(), spec.share.name.clone()))),
        );
        let trace = reader.name().to_owned();
        reader.label_by_pools(rules).map_err(|reason| Error::Configuration {
            option: "--pools",
            value: trace,
            reason,
        })?;
        let names = self.specs.iter().map(|spec| spec.share.name.clone());
        Ok(Router { reader, pools: Vec::new(), numbers: names.zip(0..).collect() })
    }
}

/// The number of the pool of this name, else of `default`, else the first.
pub(super) fn place(names: &[String], name: &str) -> usize {
    let number = |wanted: &str| names.iter().position(|known| known == wanted);
    number(name).or_else(|| number(DEFAULT_POOL)).unwrap_or(0)
}

impl Router {
    /// The next request and the number of its pool.
    ///
    /// # Errors
    /// Those of the reader, and a request of a pool that the file does not list.
    pub(super) fn next_request(&mut self) -> Result<Option<(Request, usize)>, Error> {
        let Some(request) = self.reader.next_request()? else { return Ok(None) };
        let label = self.reader.label() as usize;
        while self.pools.len() <= label {
            let name = &self.reader.label_names()[self.pools.len()];
            let number = self.numbers.get(name).or_else(|| self.numbers.get(DEFAULT_POOL));
            let number = *number.ok_or_else(|| Error::Configuration {
                option: "--pools",
                value: self.reader.name().to_owned(),
                reason: format!(
                    "a request belongs to `{name}`, which is not in the file; list that pool, or one named {DEFAULT_POOL}"
                ),
            })?;
            self.pools.push(number);
        }
        Ok(Some((request, self.pools[label])))
    }

    pub(super) fn name(&self) -> &str {
        self.reader.name()
    }

    /// Bytes of the distinct objects of each pool, each with its largest size. Malformed lines are passed over.
    fn footprints(mut self, pools: usize) -> Result<Vec<u64>, Error> {
        let mut sizes: HashMap<(usize, u64), u64> = HashMap::new();
        loop {
            match self.next_request() {
                Ok(Some((request, _))) if request.op == Op::Delete => {}
                Ok(Some((request, pool))) => {
                    let bytes = u64::from(request.key_size) + u64::from(request.value_size);
                    let size = sizes.entry((pool, request.key)).or_default();
                    *size = bytes.max(*size);
                }
                Ok(None) => break,
                Err(Error::Malformed { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let mut footprints = vec![0; pools];
        sizes.into_iter().for_each(|((pool, _), bytes)| footprints[pool] += bytes);
        Ok(footprints)
    }
}

/// Numbers of bytes as weights: the same proportions in 32 bits. A number other than 0 stays so.
fn scaled(bytes: &[u64]) -> Vec<u32> {
    let largest = bytes.iter().copied().max().unwrap_or(0);
    let shift = (u64::BITS - largest.leading_zeros()).saturating_sub(u32::BITS);
    let weight = |bytes: u64| u32::try_from(bytes >> shift).expect("shifted to 32 bits");
    bytes.iter().map(|&bytes| weight(bytes).max(u32::from(bytes > 0))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_keep_the_proportions_of_bytes() {
        assert_eq!(scaled(&[0, 1, 500]), [0, 1, 500]);
        assert_eq!(scaled(&[1 << 40, 3 << 39, 0, 7]), [1 << 31, 3 << 30, 0, 1]);
        assert_eq!(scaled(&[]), [0u32; 0]);
    }
}
