//! Number of seeds of a test of random operations: few in `make test`, all in `make soak`.

use std::ops::Range;

/// The seeds of a test: the first `short` ones, or all `whole` where the variable `EBBTIDE_SOAK` is set.
///
/// Conclusions that a test draws over all its seeds are to be proportional to their number.
pub fn seeds(short: u64, whole: u64) -> Range<u64> {
    0..if std::env::var_os("EBBTIDE_SOAK").is_some() { whole.max(short) } else { short }
}
