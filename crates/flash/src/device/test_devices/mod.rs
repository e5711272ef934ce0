//! Devices for tests, benches and examples: only the feature `test-devices` and the crate's own tests have them.
//!
//! | where | what |
//! |---|---|
//! | `faulty_device` | memory that fails as devices do, repeatably |
//! | `memory_device`, `compressed_device` | memory; memory that keeps its blocks compressed |

mod compressed_device;
mod faulty_device;
mod memory_device;

pub use compressed_device::CompressedDevice;
pub use faulty_device::{Delivery, Faults, FaultyDevice};
pub use memory_device::MemoryDevice;
