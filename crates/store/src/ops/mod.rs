//! The operations on entries. Each is linearizable per key, at the instant when its slot is changed or read.

mod allocation;
mod delete;
mod edit;
mod extend;
#[cfg(not(loom))]
mod handle;
mod load;
mod meta_flags;
#[cfg(all(test, not(loom)))]
mod neighbour_tests;
mod number;
mod read;
mod replace_if;
mod scan;
mod upload;
mod value_slices;
mod write;

pub use allocation::Allocation;
pub use edit::{Edit, Editable, IfAbsent, NewEntry};
#[cfg(not(loom))]
pub use handle::Handle;
pub use meta_flags::{Creation, MetaFlags, MetaFlagsChange, MetaFlagsLookup, MetaFlagsOutcome};
pub use number::{Change, Count, Number};
pub use read::{BATCH, Item};
pub use scan::{Scan, Scanned};
pub use upload::Upload;
pub use write::{Changed, Mode, Stored, Write, Written};
