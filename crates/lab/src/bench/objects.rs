//! Objects of a load, by number: drawn from the arguments, or from a recording: a trace, or a workload of
//! `ebbtide generate`.
//!
//! The times of a recording are ignored: gets, writes and deletes follow each other at full speed. The first request of
//! a key with a value sets the sizes of its object, because a delete has no size; appended bytes have a separate size.
//! The value of a key with incr or decr is a number. A recording takes 32 bytes per object and 4 per request.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::args::{BenchArgs, Dialect, MAX_RELATIVE_TTL};
use super::load_kind::LoadKind;
use crate::Error;
use crate::generate::{Pace, PlayedBy, Workload, WorkloadArgs};
use crate::keys::KeyBuffer;
use crate::trace::{Request, TraceReader};
use crate::workload::SizeDistribution;

/// The objects of a load.
#[derive(Clone, Debug)]
pub(super) enum Objects {
    Drawn { keys: u64, key_size: SizeDistribution, value_size: SizeDistribution, ttl_seconds: u32, seed: u64 },
    Recorded(Arc<Recording>),
}

/// The gets, writes and deletes of a trace or a workload.
#[derive(Debug)]
pub(super) struct Recording {
    objects: Vec<BenchObject>,
    steps: Vec<RequestStep>,
    /// The names of its pools; none where it has one.
    pools: Vec<String>,
    /// The shares of the pools; none where the configuration has none.
    pool_shares: Vec<f64>,
    /// The load by the configuration: a set after each miss, a set of each key at the start, and a rate.
    pub(super) fills_misses: bool,
    pub(super) prepopulates: bool,
    pub(super) pace: Option<Pace>,
    /// Keys of the configuration without effect.
    ignored: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
struct BenchObject {
    key: u64,
    key_size: u32,
    value_size: u32,
    /// Bytes that an append or a prepend adds.
    extension_size: u32,
    ttl_seconds: u32,
    /// [`NO_POOL`] where the workload has one pool.
    pool: u8,
    is_counter: bool,
    /// Whether the configuration never asks for it again.
    is_lone: bool,
}

const NO_POOL: u8 = u8::MAX;

/// Byte of a value without a meaning, and of a value that is a number.
const FILLER: u8 = b'.';
const DIGIT: u8 = b'1';
/// The longest number that all servers take.
const MAX_DIGITS: u32 = 18;

/// An object's number, and in the four lowest bits its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestStep(u32);

impl RequestStep {
    fn new(number: u32, kind: LoadKind) -> Self {
        Self(number << KIND_BITS | kind as u32)
    }

    pub(super) fn object(self) -> u64 {
        u64::from(self.0 >> KIND_BITS)
    }

    pub(super) fn kind(self) -> LoadKind {
        LoadKind::ALL[(self.0 & ((1 << KIND_BITS) - 1)) as usize]
    }
}

const KIND_BITS: u32 = 4;
/// Numbers of objects have the other bits of a step.
const MAX_OBJECTS: usize = 1 << (u32::BITS - KIND_BITS);

impl Objects {
    pub(super) fn new(args: &BenchArgs) -> Result<Self, Error> {
        let Some((option, name)) = args.recorded() else {
            return Ok(Self::Drawn {
                keys: args.keys.0,
                key_size: args.key_size,
                value_size: args.value_size,
                ttl_seconds: args.ttl,
                seed: args.seed,
            });
        };
        let refuse = |reason: String| Err(Error::Configuration { option, value: name.clone(), reason });
        let recording = Recording::new(args)?;
        if args.protocol == Dialect::Redis && recording.steps.iter().any(|step| step.kind() == LoadKind::Prepend) {
            return refuse("it has a prepend, and Redis has no such command".into());
        }
        let longest = recording.objects.iter().map(|object| object.ttl_seconds).max();
        match longest {
            None => refuse("it has no get, no write and no delete".into()),
            Some(_) if recording.objects.len() > MAX_OBJECTS => {
                refuse(format!("it has more than {MAX_OBJECTS} objects"))
            }
            Some(ttl) if args.target.is_some() && ttl > MAX_RELATIVE_TTL => refuse(format!(
                "it has a TTL of {ttl} s, and servers read more than {MAX_RELATIVE_TTL} s as an absolute time"
            )),
            Some(_) => Ok(Self::Recorded(Arc::new(recording))),
        }
    }

    /// How many there are, numbered from 0.
    pub(super) fn count(&self) -> u64 {
        match self {
            Self::Drawn { keys, .. } => *keys,
            Self::Recorded(recording) => recording.objects.len() as u64,
        }
    }

    pub(super) fn write_key<'a>(&self, number: u64, buffer: &'a mut KeyBuffer) -> &'a [u8] {
        match self {
            Self::Drawn { key_size, seed, .. } => buffer.write(number, key_size.size_of(*seed, number)),
            Self::Recorded(recording) => {
                let object = recording.object(number);
                match recording.pools.get(usize::from(object.pool)) {
                    Some(pool) => buffer.write_after(format!("{pool}:").as_bytes(), object.key, object.key_size),
                    None => buffer.write(object.key, object.key_size),
                }
            }
        }
    }

    /// The names of the pools; none where there is one.
    pub(super) fn pools(&self) -> &[String] {
        match self {
            Self::Drawn { .. } => &[],
            Self::Recorded(recording) => &recording.pools,
        }
    }

    /// The shares of the pools in the memory; none where the load has none.
    pub(super) fn pool_shares(&self) -> &[f64] {
        match self {
            Self::Drawn { .. } => &[],
            Self::Recorded(recording) => &recording.pool_shares,
        }
    }

    /// Keys of the configuration without effect.
    pub(super) fn ignored(&self) -> &[String] {
        match self {
            Self::Drawn { .. } => &[],
            Self::Recorded(recording) => &recording.ignored,
        }
    }

    /// The place of an object's pool among the names.
    pub(super) fn pool(&self, number: u64) -> Option<usize> {
        match self {
            Self::Drawn { .. } => None,
            Self::Recorded(recording) => {
                let pool = recording.object(number).pool;
                (pool != NO_POOL).then_some(pool.into())
            }
        }
    }

    /// How many bytes a write of this kind has, and which byte they all are.
    pub(super) fn value(&self, number: u64, kind: LoadKind) -> (usize, u8) {
        match self {
            Self::Drawn { value_size, seed, .. } => (value_size.size_of(*seed, number) as usize, FILLER),
            Self::Recorded(recording) => match recording.object(number) {
                object if kind.extends() => (object.extension_size as usize, FILLER),
                object if object.is_counter => (object.value_size.clamp(1, MAX_DIGITS) as usize, DIGIT),
                object => (object.value_size as usize, FILLER),
            },
        }
    }

    /// 0 is no expiry.
    pub(super) fn ttl_seconds(&self, number: u64) -> u32 {
        match self {
            Self::Drawn { ttl_seconds, .. } => *ttl_seconds,
            Self::Recorded(recording) => recording.object(number).ttl_seconds,
        }
    }

    pub(super) fn largest_value(&self) -> u64 {
        match self {
            Self::Drawn { value_size, .. } => u64::from(value_size.largest()),
            Self::Recorded(recording) => {
                recording.objects.iter().map(|object| u64::from(object.value_size)).max().unwrap_or(0)
            }
        }
    }
}

impl Recording {
    fn new(args: &BenchArgs) -> Result<Self, Error> {
        if let Some(path) = &args.trace {
            let mut reader = TraceReader::open(path, None)?;
            return Self::of(std::iter::from_fn(|| reader.next_request().transpose()), Vec::new(), |_| (None, false));
        }
        let workload = WorkloadArgs {
            preset: args.preset,
            cachebench: args.cachebench.clone(),
            requests: Some(args.generated),
            seed: args.seed,
            ..WorkloadArgs::default()
        };
        let workload = Workload::new(&workload)?;
        let of_object = |request: &Request| (workload.pool_of(request), workload.is_lone(request.key));
        let recording = Self::of(workload.requests().map(Ok), workload.pool_names(), of_object)?;
        if args.cachebench.is_none() {
            return Ok(recording);
        }
        let by = if args.target.is_some() { PlayedBy::RemoteBench } else { PlayedBy::Bench };
        Ok(Self {
            // A server has pools of its own, and a configuration may leave the sizes out.
            pool_shares: match by {
                PlayedBy::RemoteBench => Vec::new(),
                _ => workload.pool_shares().map(<[f64]>::to_vec).unwrap_or_default(),
            },
            fills_misses: workload.fills_misses(),
            prepopulates: workload.prepopulates(),
            pace: workload.pace(),
            ignored: workload.ignored(by),
            ..recording
        })
    }

    /// Ends behind one object too many.
    fn of(
        requests: impl Iterator<Item = Result<Request, Error>>,
        pools: Vec<String>,
        of_object: impl Fn(&Request) -> (Option<String>, bool),
    ) -> Result<Self, Error> {
        let mut numbers: HashMap<(u64, u32), u32> = HashMap::new();
        let (mut objects, mut steps) = (Vec::new(), Vec::new());
        for request in requests {
            let request = request?;
            let Request { key, key_size, value_size, op, ttl_seconds, .. } = request;
            let kind = LoadKind::of(op);
            let number = *numbers.entry((key, key_size)).or_insert_with(|| {
                let (name, is_lone) = of_object(&request);
                let place = name.and_then(|name| pools.iter().position(|known| *known == name));
                objects.push(BenchObject {
                    key,
                    key_size,
                    value_size: 0,
                    extension_size: 0,
                    ttl_seconds,
                    pool: place.map_or(NO_POOL, |place| place as u8),
                    is_counter: false,
                    is_lone,
                });
                objects.len() as u32 - 1
            });
            if objects.len() > MAX_OBJECTS {
                break;
            }
            let object = &mut objects[number as usize];
            object.is_counter |= kind.counts();
            if kind.extends() {
                object.extension_size = object.extension_size.max(value_size);
            } else if kind != LoadKind::Delete && object.value_size == 0 {
                // A key whose first request is a delete gets its size from the next one.
                (object.value_size, object.ttl_seconds) = (value_size, ttl_seconds);
            }
            steps.push(RequestStep::new(number, kind));
        }
        Ok(Self {
            objects,
            steps,
            pools,
            pool_shares: Vec::new(),
            fills_misses: false,
            prepopulates: false,
            pace: None,
            ignored: Vec::new(),
        })
    }

    /// The numbers of the objects that the keys of a prefill are: all but those that are asked for once by design.
    pub(super) fn lasting(&self, numbers: Range<u64>) -> Vec<u32> {
        numbers.filter(|&number| !self.object(number).is_lone).map(|number| number as u32).collect()
    }

    /// The request at this place; the first follows the last.
    pub(super) fn step(&self, place: u64) -> RequestStep {
        self.steps[(place % self.steps.len() as u64) as usize]
    }

    fn object(&self, number: u64) -> &BenchObject {
        &self.objects[number as usize]
    }
}
