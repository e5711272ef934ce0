//! Text on standard output.

use std::io::Write;

/// Unlike `print!`, does not mind a reader that has seen enough.
pub fn show(text: &str) {
    let _ = writeln!(std::io::stdout(), "{}", text.trim_end());
}
