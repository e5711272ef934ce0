//! The interface of the memcached-compatible server and of the lab: borrowed hits, CAS tokens, client flags, meta
//! flags, uploads in pieces, and reads of flash that do not wait.

pub use crate::builder::{CacheBuilder, FlashMemory};
pub use crate::byte_size::ByteSize;
pub use crate::cache::{Cache, WeakCache};
pub use crate::clock::Clock;
pub use crate::close::CloseReport;
pub use crate::compact_pool::CompactPool;
pub use crate::curve_joints::corrected as corrected_curve;
pub use crate::error::{Error, WaitReason};
pub use crate::flash::drain::{DrainEnd, FlashDrained};
pub use crate::flash::options::{
    FlashAdmission, FlashLimits, FlashReclaim, FlashReinsertion, FlashSmallObjects, NotAReclaim, NotAnAdmission,
    NotSmallObjects,
};
pub use crate::flash::promotion::{FlashPromotion, NotAPromotion};
pub use crate::flash::read::{FlashProbe, FlashReads, ReadWake};
pub use crate::flash::resolve::{ReadOutcome, ReadPurpose};
pub use crate::flash::tier::FlashStats;
pub use crate::insert::Insert;
pub use crate::lookup::{Handle, Item, Lookup};
pub use crate::memory_file::{MemoryFileMode, MemorySaved, MemoryStart, is_memory_file_held};
pub use crate::memory_monitor::{
    InvalidPressure, MemoryMonitorStats, MonitorReason, MonitorStep, PressureMode, PressureOptions,
};
pub use crate::message::write_message;
pub use crate::meta_flags::MetaFlagsOutcome;
pub use crate::policy_models::PolicyModels;
pub use crate::pool::Pool;
pub use crate::pool_controller::{
    ControllerMode, ControllerOptions, InvalidController, PoolController, PoolDecision, PoolMove, PoolTarget,
    PoolTargetState,
};
pub use crate::pool_options::PoolOptions;
pub use crate::pool_plan::min_pool_bytes;
pub use crate::pool_policies::PoolPolicyChange;
pub use crate::pool_refusals::BudgetRefusal;
pub use crate::profile::{CacheCurve, CacheProfile, CurveCliff, CurvePoint, Verdict};
pub use crate::removal::{Cause, Removal};
pub use crate::retry::Patience;
pub use crate::scan::{Entry, Scan};
pub use crate::upload::Upload;
pub use ebbtide_control::{HitRatio, InvalidHitRatio, PolicyChange};
pub use ebbtide_flash::{PoolStats as FlashPoolStats, TierOptions as FlashOptions};
pub use ebbtide_store::{
    Change, Changed, CompactLookup, CompactMode, CompactSizes, CompactStats, Count, CounterSnapshot, Creation,
    MEMORY_BYTES_MAX, MEMORY_BYTES_MIN, MetaFlags, MetaFlagsChange, MetaFlagsLookup, Mode, Number, Objective,
    Options as StoreOptions, Policy, SegmentModel, SegmentSnapshot, SegmentView, Stats, Stored, Ttl, TtlBucketSnapshot,
    UnknownObjective, UnknownPolicy, Written,
};
#[cfg(feature = "pause-points")]
#[doc(hidden)]
pub use ebbtide_store::{PausePoint, set_pauses};
