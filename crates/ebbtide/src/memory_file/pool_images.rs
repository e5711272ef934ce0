//! The pools in a memory file, as a stream.
//!
//! ```text
//! stream    pools u32 | pool, pool, ...              the pool `default` first
//! pool      bytes of the name u32 | name | the image of its store
//! ```
//! A start tells pools by name. A pool that is not configured any more is read past; a new one begins empty.

use crate::pool_budgets::shrink;
use crate::pools::{MAX_POOLS, PlannedPool};
use ebbtide_store::{EngineMemory, Error, ImageError, OnThreads, Participant, Saved, SegmentBytes, Store};
use std::io::{self, Read, Write};
use std::thread;

/// Bytes of the longest name, of 64 characters.
const NAME_BYTES_MAX: u32 = 256;

/// Threads that check segments, at most: the bandwidth of the memory is used up with fewer.
const THREADS_MAX: usize = 8;

/// What a stream held.
pub(super) struct LoadedPools {
    pub memory: EngineMemory,
    /// In the order of the plan.
    pub stores: Vec<Store>,
    pub objects: u64,
    /// Names of pools that the plan does not have.
    pub dropped: Vec<String>,
}

fn damaged(what: &str) -> ImageError {
    ImageError::Damaged(what.to_owned())
}

fn read_u32(source: &mut impl Read) -> io::Result<u32> {
    let mut bytes = [0; 4];
    source.read_exact(&mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

fn read_name(source: &mut impl Read) -> Result<String, ImageError> {
    let length = read_u32(source)?;
    if length > NAME_BYTES_MAX {
        return Err(damaged("the name of a pool is longer than any"));
    }
    let mut name = vec![0; length as usize];
    source.read_exact(&mut name)?;
    String::from_utf8(name).map_err(|_| damaged("the name of a pool is no text"))
}

/// Writes stores that nobody changes any more, the one of the pool `default` first.
pub(super) fn save<'a>(
    pools: impl ExactSizeIterator<Item = (&'a str, &'a Store)>,
    participant: &Participant,
    now_ms: u64,
    out: &mut impl Write,
    keep: &mut impl FnMut(u64, &[u8]) -> io::Result<()>,
) -> io::Result<Saved> {
    out.write_all(&(pools.len() as u32).to_le_bytes())?;
    let mut sum = Saved::default();
    for (name, store) in pools {
        out.write_all(&(name.len() as u32).to_le_bytes())?;
        out.write_all(name.as_bytes())?;
        let saved = store.save(participant, now_ms, out, keep)?;
        sum.items += saved.items;
        sum.bytes += saved.bytes;
    }
    Ok(sum)
}

/// Makes the stores of a plan: those that the stream has from it, the others empty. `reserve` answers memory for all
/// pools, of which one may have this many bytes. `read` reads the bytes of segments, unless they are in that memory.
pub(super) fn load(
    plan: &[PlannedPool],
    source: &mut impl Read,
    reserve: impl Fn(u64) -> Result<EngineMemory, Error>,
    mut read: Option<impl FnMut(u64, &mut [u8]) -> io::Result<()>>,
) -> Result<LoadedPools, ImageError> {
    let is_alone = plan.len() == 1;
    let mut memory: Option<EngineMemory> = None;
    let mut stores: Vec<Option<Store>> = plan.iter().map(|_| None).collect();
    let (mut objects, mut dropped) = (0, Vec::new());
    let count = read_u32(source)?;
    if count > MAX_POOLS {
        return Err(damaged("it has more pools than any cache"));
    }
    for _ in 0..count {
        let name = read_name(source)?;
        let Some(at) = plan.iter().position(|pool| pool.name() == name) else {
            Store::skip_image(source)?;
            dropped.push(name);
            continue;
        };
        let reserve = |max_bytes| match &memory {
            Some(memory) => Ok(memory.clone()),
            None => Ok(memory.insert(reserve(max_bytes)?).clone()),
        };
        let bytes = match &mut read {
            Some(read) => SegmentBytes::Read(read),
            None => SegmentBytes::InPlace,
        };
        let bytes = (bytes, &on_threads as OnThreads<'_>);
        let (store, loaded) = Store::load_in(&plan[at].options, source, is_alone, bytes, reserve)?;
        bring_within(&store, plan[at].options.memory_bytes, is_alone)?;
        objects += loaded.items;
        if stores[at].replace(store).is_some() {
            return Err(damaged("two pools have one name"));
        }
    }
    let memory = memory.ok_or_else(|| damaged("it has no pool that there is now"))?;
    let store = |(store, pool): (Option<Store>, &PlannedPool)| match store {
        Some(store) => Ok(store),
        // The memory of pools that shrink is not free yet.
        None => Store::build(pool.first_options(), &memory),
    };
    let stores = stores.into_iter().zip(plan).map(store).collect::<Result<_, _>>()?;
    Ok(LoadedPools { memory, stores, objects, dropped })
}

/// Calls `work` on one thread per processor. With fewer threads, where the system refuses some, it takes longer.
fn on_threads(work: &(dyn Fn() + Sync)) {
    let count = thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    thread::scope(|scope| {
        let spawn = || thread::Builder::new().name("ebbtide-load".to_owned()).spawn_scoped(scope, work);
        let others: Vec<_> = (1..count).map_while(|_| spawn().ok()).collect();
        work();
        drop(others);
    });
}

/// Gives a loaded store the budget of the plan. Beside others it grows when these have shrunk.
fn bring_within(store: &Store, memory_bytes: u64, is_alone: bool) -> Result<(), ImageError> {
    let has_bytes = store.memory_bytes();
    if is_alone && has_bytes != memory_bytes {
        store.resize(memory_bytes)?;
    } else if has_bytes > memory_bytes {
        shrink(store, has_bytes - memory_bytes);
    }
    Ok(())
}
