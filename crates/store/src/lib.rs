//! The DRAM engine of Ebbtide: items in TTL-indexed segments, their index, expiry and eviction.
//!
//! It maps its own memory and does no other I/O, starts no thread and reads no clock: time comes in as an argument, and
//! maintenance is called. Objects that will expire together are written to the same segment; they expire together and
//! are evicted together by merging (Segcache, NSDI'21).
//!
//! | where | what |
//! |---|---|
//! | `store`, `publish` | the `Store`; publication: the one function that changes the item of a key |
//! | `ops` | the operations: get, set, delete, touch, incr, append, uploads, handles |
//! | `item`, `structured`, `segment`, `index` | the formats, each drawn at the top of its file |
//! | `chains`, `ttl` | TTL buckets, open segments, chains |
//! | `evict` | expiry, eviction, compaction; policies |
//! | `compact` | tables of small objects of one length, without an index |
//! | `access_samples` | sampled accesses, for miss-ratio curves |
//! | `lower_tier` | the tier that takes evicted items |
//! | `epoch` | protection of readers without locks |
//! | `budget`, `memory` | the memory budget and its changes |
//! | `model` | a store without payload, for what another memory or policy would do |
//! | `verify` | every invariant, asserted |

// Loom models do not lend bytes of the arena, so some functions have no users.
#![cfg_attr(loom, allow(dead_code))]

mod access_samples;
mod arena;
mod budget;
mod chains;
#[cfg(all(any(test, feature = "coherence"), not(loom)))]
pub mod coherence;
mod compact;
mod condition;
mod contraction;
mod demotion;
mod engine_memory;
mod epoch;
mod error;
mod evict;
mod flags;
#[cfg(not(loom))]
mod frame_file;
mod frames;
mod gauges;
mod growth;
mod hash;
mod held_stripe;
#[cfg(not(loom))]
mod image;
mod index;
mod issued_tokens;
mod item;
mod item_header;
#[cfg(not(loom))]
mod kept_tokens;
mod kill_point;
mod load_tickets;
#[cfg(all(test, loom))]
mod loom_tests;
mod lower_copy;
mod lower_tier;
mod mapping;
mod memory;
#[cfg(not(loom))]
mod model;
mod ops;
mod options;
mod pause_point;
#[cfg(all(test, not(loom)))]
mod preemption_tests;
mod process;
mod publish;
mod segment;
mod stats;
mod store;
mod structured;
mod sync;
mod time;
mod token_table;
mod ttl;
mod verify;

pub use access_samples::{AccessSample, SampledAccess};
pub use compact::{CompactLookup, CompactMode, CompactSizes, CompactStats, CompactTable, CompactWrite, MissTicket};
pub use engine_memory::EngineMemory;
pub use epoch::{Participant, Pin};
pub use error::Error;
pub use evict::{
    Blocker, Cause, InsertionPoint, Objective, Policy, Progress, Removed, UnknownObjective, UnknownPolicy, cost_class,
};
#[cfg(not(loom))]
pub use evict::{Drain, IdleDemotion};
#[cfg(not(loom))]
pub use flags::Flags;
pub use frames::FRAME_BYTES;
#[cfg(not(loom))]
pub use image::{ImageError, Loaded, OnThreads, Saved, SegmentBytes};
pub use item::{Extension, KEY_LIMIT};
#[cfg(not(loom))]
pub use kept_tokens::KeptTokens;
#[cfg(feature = "kill-points")]
pub use kill_point::arm_kill;
pub use kill_point::{KillPoint, kill_point};
pub use lower_copy::LowerCopy;
pub use lower_tier::LowerTier;
#[cfg(not(loom))]
pub use model::{MIN_OBJECTS, MIN_OBJECTS_PER_SEGMENT, SegmentModel};
#[cfg(not(loom))]
pub use ops::Handle;
pub use ops::{
    Allocation, BATCH, Change, Changed, Count, Creation, Edit, Editable, IfAbsent, Item, MetaFlags, MetaFlagsChange,
    MetaFlagsLookup, MetaFlagsOutcome, Mode, NewEntry, Number, Scan, Scanned, Stored, Upload, Write, Written,
};
pub use options::{MEMORY_BYTES_MAX, MEMORY_BYTES_MIN, MERGE_RUN_MAX, Options, VALUE_BYTES_LIMIT};
#[cfg(all(feature = "pause-points", not(loom)))]
pub use pause_point::{PausePoint, set_pauses};
pub use process::Process;
pub use stats::{CounterSnapshot, SegmentSnapshot, SegmentView, Stats, TtlBucketSnapshot};
pub use store::Store;
pub use structured::{
    STRUCTURE_HEAD_BYTES, STRUCTURE_MAGIC, STRUCTURE_VERSION, WORDS_HEAD_BYTES, WORDS_MAX, WORDS_STRUCTURE,
};
pub use ttl::Ttl;
