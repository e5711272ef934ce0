use std::fmt;
use std::path::Path;

use crate::Error;

/// A value of a configuration that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// The path of the key, as `test_config.poolDistributions[1].getRatio`; empty for the file as a whole.
    key: String,
    reason: String,
}

impl Refusal {
    pub(super) fn new(key: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { key: key.into(), reason: reason.into() }
    }

    /// This refusal with its key inside a section: the path grows at its front.
    pub(super) fn within(self, section: &str) -> Self {
        let key = if self.key.is_empty() { section.to_owned() } else { format!("{section}.{}", self.key) };
        Self { key, ..self }
    }

    pub(super) fn of_file(self, path: &Path) -> Error {
        Error::Refused { path: path.display().to_string(), reason: self.to_string() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key.is_empty() {
            true => write!(f, "{}", self.reason),
            false => write!(f, "{}: {}", self.key, self.reason),
        }
    }
}
