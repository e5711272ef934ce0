//! Tests of bounds in real time on machines that stall.
//!
//! A product's bound in time, such as the two seconds that a write waits for memory, is also exceeded when the machine
//! stops the test for as long. An attempt that fails then proves nothing, and is repeated.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

/// Attempts before a failure counts in any case: a machine that stalls during each of them is no use.
const ATTEMPTS: usize = 20;

/// Runs an attempt until one succeeds. One that panics is repeated if it took longer than `max`, which is less than any
/// bound in time that the attempt depends on; a faster one fails the test.
pub fn repeat_after_stalls(max: Duration, mut attempt: impl FnMut()) {
    for number in 1.. {
        let started = Instant::now();
        let Err(panic) = catch_unwind(AssertUnwindSafe(&mut attempt)) else { return };
        let taken = started.elapsed();
        if taken <= max || number == ATTEMPTS {
            resume_unwind(panic);
        }
        println!("attempt {number} took {taken:?}, longer than {max:?}: it is repeated");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_failure_after_a_stall_is_repeated() {
        let (mut slow, mut quick, max) = (0, 0, Duration::from_millis(50));
        repeat_after_stalls(max, || {
            slow += 1;
            if slow < 3 {
                std::thread::sleep(2 * max);
                resume_unwind(Box::new("a stall"));
            }
        });
        assert_eq!(slow, 3);
        let long = Duration::from_secs(3600);
        let fails = || {
            repeat_after_stalls(long, || {
                quick += 1;
                resume_unwind(Box::new("a bug"));
            })
        };
        assert!(catch_unwind(AssertUnwindSafe(fails)).is_err());
        assert_eq!(quick, 1);
    }
}
