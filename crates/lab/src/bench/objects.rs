//! What the keys of a load are, by their number: drawn as the arguments say, or those of a recording: a trace, or a
//! workload of `ebbtide generate`.
//!
//! Of a recording its time is left out: gets, writes and deletes follow each other as fast as they can. An object is
//! what the first request of a key with a value says, for a delete knows no size; 24 bytes of memory per object and 4
//! per request hold it all.

use std::collections::HashMap;
use std::sync::Arc;

use super::load_kind::LoadKind;
use super::{BenchArgs, MAX_RELATIVE_TTL};
use crate::Error;
use crate::generate::{Workload, WorkloadArgs};
use crate::keys::KeyBuffer;
use crate::trace::{Op, Request, TraceReader};
use crate::workload::SizeDistribution;

/// The objects that a load asks for.
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
}

#[derive(Clone, Copy, Debug)]
struct BenchObject {
    key: u64,
    key_size: u32,
    value_size: u32,
    ttl_seconds: u32,
    /// [`NO_POOL`] where the workload has one pool.
    pool: u8,
}

const NO_POOL: u8 = u8::MAX;

/// An object's number, and in the two lowest bits what is done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestStep(u32);

impl RequestStep {
    fn new(number: u32, kind: LoadKind) -> Self {
        let kind = match kind {
            LoadKind::Get => 0,
            LoadKind::Set => 1,
            LoadKind::Delete => 2,
        };
        Self(number << 2 | kind)
    }

    pub(super) fn object(self) -> u64 {
        u64::from(self.0 >> 2)
    }

    pub(super) fn kind(self) -> LoadKind {
        match self.0 & 3 {
            0 => LoadKind::Get,
            1 => LoadKind::Set,
            _ => LoadKind::Delete,
        }
    }
}

/// Numbers of objects have 30 bits in a step.
const MAX_OBJECTS: usize = 1 << 30;

impl Objects {
    pub(super) fn new(args: &BenchArgs) -> Result<Self, Error> {
        let Some((option, name)) = args.recorded() else {
            return Ok(Self::Drawn {
                keys: args.keys,
                key_size: args.key_size,
                value_size: args.value_size,
                ttl_seconds: args.ttl,
                seed: args.seed,
            });
        };
        let refuse = |reason: String| Err(Error::Configuration { option, value: name.clone(), reason });
        let recording = Recording::new(args)?;
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

    pub(super) fn value_size(&self, number: u64) -> usize {
        match self {
            Self::Drawn { value_size, seed, .. } => value_size.size_of(*seed, number) as usize,
            Self::Recorded(recording) => recording.object(number).value_size as usize,
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
            return Self::of(std::iter::from_fn(|| reader.next_request().transpose()), |_| None);
        }
        let workload = WorkloadArgs {
            preset: args.preset,
            cachebench: args.cachebench.clone(),
            requests: Some(args.generated),
            seed: args.seed,
            ..WorkloadArgs::default()
        };
        let workload = Workload::new(&workload)?;
        Self::of(workload.requests().map(Ok), |request| workload.pool_of(request))
    }

    /// Ends behind one object too many.
    fn of(
        requests: impl Iterator<Item = Result<Request, Error>>,
        pool_of: impl Fn(&Request) -> Option<String>,
    ) -> Result<Self, Error> {
        let mut pools: Vec<String> = Vec::new();
        let mut numbers: HashMap<(u64, u32), u32> = HashMap::new();
        let (mut objects, mut steps) = (Vec::new(), Vec::new());
        for request in requests {
            let request = request?;
            let Request { key, key_size, value_size, op, ttl_seconds, .. } = request;
            let kind = match op {
                Op::Get | Op::Gets => LoadKind::Get,
                Op::Delete => LoadKind::Delete,
                _ => LoadKind::Set,
            };
            let number = *numbers.entry((key, key_size)).or_insert_with(|| {
                let place = pool_of(&request).map(|name| match pools.iter().position(|known| *known == name) {
                    Some(place) => place as u8,
                    None => {
                        pools.push(name);
                        pools.len() as u8 - 1
                    }
                });
                objects.push(BenchObject { key, key_size, value_size, ttl_seconds, pool: place.unwrap_or(NO_POOL) });
                objects.len() as u32 - 1
            });
            if objects.len() > MAX_OBJECTS {
                break;
            }
            // A key whose first request is a delete gets its size from the next one.
            let object = &mut objects[number as usize];
            if kind != LoadKind::Delete && object.value_size == 0 {
                (object.value_size, object.ttl_seconds) = (value_size, ttl_seconds);
            }
            steps.push(RequestStep::new(number, kind));
        }
        Ok(Self { objects, steps, pools })
    }

    /// The request at this place; behind the last comes the first again.
    pub(super) fn step(&self, place: u64) -> RequestStep {
        self.steps[(place % self.steps.len() as u64) as usize]
    }

    fn object(&self, number: u64) -> &BenchObject {
        &self.objects[number as usize]
    }
}
