//! The pools in a memory file, as a stream.
//!
//! ```text
//! stream    pools u32 | pool, pool, ... | compact pools u32 | compact pool, compact pool, ...
//! pool      bytes of the name u32 | name | the image of its store            the pool `default` first
//! compact pool                             the same with the image of its table
//! ```
//! A start tells pools by name. A pool that is not configured any more, or a compact one with other lengths, is read
//! past; a new one begins empty. A stream may end before the number of compact pools: there are none.

use crate::compact_state::CompactState;
use crate::pool_budgets::shrink;
use crate::pool_plan::Plan;
use crate::pool_state::PoolState;
use crate::pools::MAX_POOLS;
use ebbtide_store::{
    CompactTable, EngineMemory, Error, ImageError, OnThreads, Participant, Saved, SegmentBytes, Store,
};
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::thread;

/// Bytes of the longest name, of 64 characters.
const NAME_BYTES_MAX: u32 = 256;

/// Threads that check segments, at most: the bandwidth of the memory is used up with fewer.
const THREADS_MAX: usize = 8;

/// Contents of a stream.
pub(super) struct LoadedPools {
    pub memory: EngineMemory,
    /// In the order of the plan.
    pub stores: Vec<Store>,
    /// The tables of compact pools in the order of the plan, those that the stream has.
    pub tables: Vec<Option<CompactTable>>,
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

/// `None` at the end of the stream.
fn read_u32_or_end(source: &mut impl Read) -> io::Result<Option<u32>> {
    let mut first = [0];
    if source.read(&mut first)? == 0 {
        return Ok(None);
    }
    let mut bytes = [first[0], 0, 0, 0];
    source.read_exact(&mut bytes[1..])?;
    Ok(Some(u32::from_le_bytes(bytes)))
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

fn write_name(name: &str, out: &mut impl Write) -> io::Result<()> {
    out.write_all(&(name.len() as u32).to_le_bytes())?;
    out.write_all(name.as_bytes())
}

/// Pools that no thread changes any more, the pool `default` first.
pub(crate) struct QuietPools {
    pub stores: Vec<Arc<PoolState>>,
    pub compact: Vec<Arc<CompactState>>,
}

/// Writes all pools.
pub(super) fn save(
    pools: &QuietPools,
    participant: &Participant,
    now_ms: u64,
    out: &mut impl Write,
    keep: &mut impl FnMut(u64, &[u8]) -> io::Result<()>,
) -> io::Result<Saved> {
    let mut sum = Saved::default();
    let mut add = |saved: Saved| {
        sum.items += saved.items;
        sum.bytes += saved.bytes;
    };
    out.write_all(&(pools.stores.len() as u32).to_le_bytes())?;
    for pool in &pools.stores {
        write_name(&pool.name, out)?;
        add(pool.store.save(participant, now_ms, out, keep)?);
    }
    out.write_all(&(pools.compact.len() as u32).to_le_bytes())?;
    for pool in &pools.compact {
        write_name(&pool.name, out)?;
        add(pool.table.save(out, keep)?);
    }
    Ok(sum)
}

/// Makes the stores of a plan: those that the stream has from it, the others empty; and the tables that it has.
/// `reserve` answers memory for all pools, of which one may have this many bytes. `read` reads the bytes of segments
/// and frames, unless they are in that memory: unchanged since the save, if `are_unchanged`.
pub(super) fn load(
    plan: &Plan,
    source: &mut impl Read,
    reserve: impl Fn(u64) -> Result<EngineMemory, Error>,
    (mut read, are_unchanged): (Option<impl FnMut(u64, &mut [u8]) -> io::Result<()>>, bool),
) -> Result<LoadedPools, ImageError> {
    let is_alone = plan.is_single();
    let mut memory: Option<EngineMemory> = None;
    let mut stores: Vec<Option<Store>> = plan.stores.iter().map(|_| None).collect();
    let (mut objects, mut dropped) = (0, Vec::new());
    for _ in 0..checked_count(read_u32(source)?)? {
        let name = read_name(source)?;
        let Some(at) = plan.stores.iter().position(|pool| pool.name() == name) else {
            Store::skip_image(source)?;
            dropped.push(name);
            continue;
        };
        let reserve = |max_bytes| match &memory {
            Some(memory) => Ok(memory.clone()),
            None => Ok(memory.insert(reserve(max_bytes)?).clone()),
        };
        let options = &plan.stores[at].options;
        let bytes = (segment_bytes(&mut read, are_unchanged), &on_threads as OnThreads<'_>);
        let (store, loaded) = Store::load_in(options, source, is_alone, bytes, reserve)?;
        bring_within(&store, options.memory_bytes, is_alone)?;
        objects += loaded.items;
        if stores[at].replace(store).is_some() {
            return Err(damaged("two pools have one name"));
        }
    }
    let memory = memory.ok_or_else(|| damaged("it has no pool that there is now"))?;
    // Before a store is built that is not in the stream: it must not take the frames of a table.
    let mut tables: Vec<Option<CompactTable>> = plan.compact.iter().map(|_| None).collect();
    for _ in 0..checked_count(read_u32_or_end(source)?.unwrap_or(0))? {
        let name = read_name(source)?;
        let Some(at) = plan.compact.iter().position(|(share, _)| share.name == name) else {
            CompactTable::skip_image(source)?;
            dropped.push(name);
            continue;
        };
        let bytes = (segment_bytes(&mut read, are_unchanged), &on_threads as OnThreads<'_>);
        let loaded = CompactTable::load(plan.compact[at].1.sizes, source, bytes, &memory)?;
        let Some((table, items)) = loaded else {
            dropped.push(name);
            continue;
        };
        objects += items;
        if tables[at].replace(table).is_some() {
            return Err(damaged("two pools have one name"));
        }
    }
    let mut built = Vec::new();
    for (store, pool) in stores.into_iter().zip(&plan.stores) {
        // The memory of pools that shrink is not free yet.
        built.push(store.map_or_else(|| Store::build(pool.first_options(), &memory), Ok)?);
    }
    // The saved pool had segments beside the histories of all of its policies, the loaded one has one history. Now that
    // each has its own frames, segments get the rest. A refusal leaves all as it is.
    built.iter().for_each(|store| drop(store.resize(store.memory_bytes())));
    Ok(LoadedPools { memory, stores: built, tables, objects, dropped })
}

fn checked_count(count: u32) -> Result<u32, ImageError> {
    if count > MAX_POOLS { Err(damaged("it has more pools than any cache")) } else { Ok(count) }
}

/// Where the bytes are: `read` reads them, or they are in place.
fn segment_bytes<R: FnMut(u64, &mut [u8]) -> io::Result<()>>(
    read: &mut Option<R>,
    are_unchanged: bool,
) -> SegmentBytes<'_> {
    match read {
        Some(read) => SegmentBytes::Read(read),
        None if are_unchanged => SegmentBytes::Unchanged,
        None => SegmentBytes::InPlace,
    }
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

/// Gives a loaded store the budget of the plan. If its index needs more, the store gets the smallest budget that holds
/// the index, and maintenance lowers it as the index contracts. Among several pools a store grows later, when others
/// have shrunk.
fn bring_within(store: &Store, memory_bytes: u64, is_alone: bool) -> Result<(), ImageError> {
    let has_bytes = store.memory_bytes();
    if has_bytes > memory_bytes {
        // The division of the pools tries again what this one refuses, and tells it.
        let _ = shrink(store, has_bytes - memory_bytes);
    } else if is_alone && has_bytes < memory_bytes {
        store.resize(memory_bytes)?;
    }
    Ok(())
}
