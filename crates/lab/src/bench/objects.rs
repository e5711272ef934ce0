//! What the keys of a load are, by their number: drawn as the arguments say, or those of a recording: a trace, or a
//! workload of `ebbtide generate`.
//!
//! Of a recording its time and its deletes are left out: gets and writes follow each other as fast as they can. An
//! object is what the first request of a key says; 24 bytes of memory per object and 4 per request hold it all.

use std::collections::HashMap;
use std::sync::Arc;

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

/// The gets and writes of a trace or a workload.
#[derive(Debug)]
pub(super) struct Recording {
    objects: Vec<BenchObject>,
    steps: Vec<RequestStep>,
}

#[derive(Clone, Copy, Debug)]
struct BenchObject {
    key: u64,
    key_size: u32,
    value_size: u32,
    ttl_seconds: u32,
}

/// An object's number, and in the lowest bit whether it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestStep(u32);

impl RequestStep {
    pub(super) fn object(self) -> u64 {
        u64::from(self.0 >> 1)
    }

    pub(super) fn writes(self) -> bool {
        self.0 & 1 == 1
    }
}

/// Numbers of objects have 31 bits in a step.
const MAX_OBJECTS: usize = 1 << 31;

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
            None => refuse("it has no get and no write".into()),
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
                buffer.write(object.key, object.key_size)
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
            return Self::of(std::iter::from_fn(|| reader.next_request().transpose()));
        }
        let workload = WorkloadArgs {
            preset: args.preset,
            cachebench: args.cachebench.clone(),
            requests: Some(args.generated),
            seed: args.seed,
            ..WorkloadArgs::default()
        };
        Self::of(Workload::new(&workload)?.requests().map(Ok))
    }

    /// Ends behind one object too many.
    fn of(requests: impl Iterator<Item = Result<Request, Error>>) -> Result<Self, Error> {
        let mut numbers: HashMap<(u64, u32), u32> = HashMap::new();
        let (mut objects, mut steps) = (Vec::new(), Vec::new());
        for request in requests {
            let Request { key, key_size, value_size, op, ttl_seconds, .. } = request?;
            if op == Op::Delete {
                continue;
            }
            let number = *numbers.entry((key, key_size)).or_insert_with(|| {
                objects.push(BenchObject { key, key_size, value_size, ttl_seconds });
                objects.len() as u32 - 1
            });
            if objects.len() > MAX_OBJECTS {
                break;
            }
            let writes = !matches!(op, Op::Get | Op::Gets);
            steps.push(RequestStep(number << 1 | u32::from(writes)));
        }
        Ok(Self { objects, steps })
    }

    /// The request at this place; behind the last comes the first again.
    pub(super) fn step(&self, place: u64) -> RequestStep {
        self.steps[(place % self.steps.len() as u64) as usize]
    }

    fn object(&self, number: u64) -> &BenchObject {
        &self.objects[number as usize]
    }
}
