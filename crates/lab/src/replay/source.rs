//! Source of a replay: a trace, or the workload of a CacheBench configuration, which also sets memory and pools.

use std::path::Path;

use ebbtide::{ByteSize, memcached};
use ebbtide_control::Share;

use super::ReplayArgs;
use super::pool_file::{self, PoolSpec};
use super::pools::{Divide, Pools};
use crate::Error;
use crate::generate::{PlainArgs, Workload, WorkloadArgs, pool_name, stream};
use crate::trace::{STANDARD_INPUT, TraceReader};

/// Weight of all memory, where a configuration has shares of it.
const WEIGHT_OF_ALL: f64 = 1e6;

impl ReplayArgs {
    /// Opens the trace, or makes it.
    pub(super) fn open(&self) -> Result<TraceReader, Error> {
        match self.workload()? {
            Some(workload) => TraceReader::from_read(self.source_name(), Box::new(stream(workload)), None),
            None => TraceReader::open(self.trace.as_deref().unwrap_or(Path::new(STANDARD_INPUT)), self.format),
        }
    }

    /// The trace as the arguments name it, or the configuration.
    pub(super) fn source_name(&self) -> String {
        let path = self.cachebench.as_ref().or(self.trace.as_ref());
        path.map_or_else(|| STANDARD_INPUT.to_owned(), |path| path.display().to_string())
    }

    /// Whether the trace can be read once only.
    pub(super) fn is_standard_input(&self) -> bool {
        self.source_name() == STANDARD_INPUT
    }

    /// Name of the format of the source.
    pub(super) fn format_name(&self, reader: &TraceReader) -> &'static str {
        if self.cachebench.is_some() { "cachebench" } else { reader.format().name() }
    }

    /// The memory that the configuration gives all pools together.
    pub(super) fn configured_memory(&self) -> Result<Vec<ByteSize>, Error> {
        let Some(workload) = self.workload()? else { return Ok(Vec::new()) };
        let bytes: u64 = workload.configured_memory().map_err(|reason| self.refused(reason))?.iter().sum();
        Ok(vec![ByteSize::bytes(bytes.max(memcached::MEMORY_BYTES_MIN))])
    }

    /// The pools of the file, or else of the configuration; `None` where one cache takes all.
    pub(super) fn pools(&self) -> Result<Option<Pools>, Error> {
        if let Some(file) = &self.pools {
            return Ok(Some(Pools { specs: pool_file::read(file)? }));
        }
        let Some(workload) = self.workload()? else { return Ok(None) };
        let shares = workload.pool_shares().map_err(|reason| self.refused(reason))?;
        if shares.is_empty() {
            return match self.divide {
                Divide::Static => Ok(None),
                _ => Err(self.refused("it has one pool, and nothing to divide; leave --divide out".into())),
            };
        }
        if self.flash.path.is_some() || self.segments.is_some() {
            let option = if self.segments.is_some() { "--segments" } else { "--flash" };
            return Err(self.refused(format!("it has {} pools, and {option} is for one cache", shares.len())));
        }
        let spec = |(number, share): (usize, &f64)| PoolSpec {
            share: Share { weight: (share * WEIGHT_OF_ALL).max(1.0) as u32, ..Share::named(pool_name(number)) },
            prefixes: Vec::new(),
            policy: None,
        };
        Ok(Some(Pools { specs: shares.iter().enumerate().map(spec).collect() }))
    }

    /// The workload of the configuration.
    pub(super) fn workload(&self) -> Result<Option<Workload>, Error> {
        let Some(path) = &self.cachebench else { return Ok(None) };
        let args = WorkloadArgs {
            cachebench: Some(path.clone()),
            requests: self.requests,
            seed: self.seed,
            plain: PlainArgs { keys: self.keys, ..PlainArgs::default() },
            ..WorkloadArgs::default()
        };
        Workload::new(&args).map(Some)
    }

    fn refused(&self, reason: String) -> Error {
        Error::Configuration { option: "--cachebench", value: self.source_name(), reason }
    }
}
