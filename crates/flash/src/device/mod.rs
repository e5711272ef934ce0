//! Devices: whole blocks of bytes at offsets, moved asynchronously.
//!
//! ```text
//! submit(Request) -> queue -> transfer -> done(Outcome)      exactly once for each request that was taken
//! ```
//!
//! A submit never waits for the device: a full queue gives the request back. A completion may run on any thread, also
//! before `submit` or `wait_for_slot` returns; so the caller must not hold a lock that the completion takes. It must
//! not block, so it may submit, but not wait for space.
//!
//! A device starts no thread. If it needs threads, its owner calls `serve` on [`Device::threads`] of them; until then
//! requests are accepted and wait.
//!
//! | where | what |
//! |---|---|
//! | `interface`; `blocking_transfer` | what a device does, and its requests; transfers that are waited for |
//! | `disk` | the device of files and block devices |
//! | `path`, `label`, `open_error` | opening one path, its label, messages for the operator |
//! | `dry_run` | whether paths could be opened |
//! | `stripes` | several paths as one capacity |
//! | `transfer`, `queue` | a request in pieces, the bounded queue of them |
//! | `uring`, `thread_pool` | engines that serve the queue: io_uring, threads |
//! | `thread_ring`, `blocking_ring` | rings that threads have for their own reads: for good, or while they wait |
//! | `fiemap` | reserved but unwritten space of a file |
//! | `drive`, `amplification` | logs of NVMe drives; their estimated write amplification |
//! | `stats`, `histogram`, `health` | counters, latencies, health of the device |
//! | `test_devices` | devices for tests, with the feature of this name |

mod amplification;
mod blocking_ring;
mod blocking_transfer;
mod buffer;
mod disk;
mod drive;
mod dry_run;
mod fiemap;
mod health;
mod histogram;
mod interface;
mod label;
mod open_error;
mod path;
mod queue;
mod stats;
mod stripes;
#[cfg(any(test, feature = "test-devices"))]
mod test_devices;
mod thread_pool;
mod thread_ring;
mod transfer;
mod uring;

pub use amplification::page_amplification;
pub use blocking_ring::BlockingRing;
pub use blocking_transfer::{read, write};
pub use buffer::{BLOCK, Buffer};
pub use disk::{Disk, DiskOptions, Engine, OpenedDisk};
pub use drive::{DriveLog, NoDriveLog, drive_log_under};
pub(crate) use dry_run::check_beside;
pub use fiemap::UnwrittenRanges;
pub use health::Health;
pub use histogram::LatencyHistogram;
use interface::stopped;
pub use interface::{Device, Direction, OnTransfer, TransferOutcome, TransferRequest};
pub use open_error::{Notice, OpenError};
pub use path::{MIN_SINGLE_PATH_BYTES, MIN_STRIPED_PATH_BYTES, stores_nothing};
pub(crate) use path::{lock, unlock};
pub use stats::{DeviceMonitor, DeviceStats, LaneStats};
pub use stripes::STRIPE;
#[cfg(any(test, feature = "test-devices"))]
pub use test_devices::{CompressedDevice, Delivery, Faults, FaultyDevice, MemoryDevice};
pub use thread_ring::ThreadRing;
