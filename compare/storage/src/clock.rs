//! The time of the trace as the time of the process.
//!
//! The crate asks the system's clock for the time, in whole seconds, and has no way to give it another one. A program
//! may define `clock_gettime` itself: then the linker takes that for everyone in it, and every clock shows this time.

use std::sync::atomic::{AtomicI64, Ordering};

/// A moment of the clock that is not its zero, so that an age can be subtracted from it.
const START_SECONDS: i64 = 1_000_000;

static SECONDS: AtomicI64 = AtomicI64::new(START_SECONDS);

/// Sets all clocks to this number of seconds after the start of the trace.
pub fn set(seconds: u64) {
    SECONDS.store(START_SECONDS + seconds as i64, Ordering::Relaxed);
}

/// `struct timespec` where `time_t` and `long` have 64 bits.
#[repr(C)]
pub struct TimeSpec {
    seconds: i64,
    nanoseconds: i64,
}

/// # Safety
/// `time` is null or may be written to, as the system's function has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(_clock: i32, time: *mut TimeSpec) -> i32 {
    // SAFETY: the caller's promise.
    if let Some(time) = unsafe { time.as_mut() } {
        *time = TimeSpec { seconds: SECONDS.load(Ordering::Relaxed), nanoseconds: 0 };
    }
    0
}
