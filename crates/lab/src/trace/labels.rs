//! Labels of requests: the pool that a csv trace names in its seventh column, or the prefix of a key that is text.
//!
//! A label is a small number; its name is in the reader's table. Labels are off unless they are asked for, since most
//! commands do not need them.

use std::collections::HashMap;

use super::Format;

/// What requests are labelled by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelBy {
    /// The column `pool` of a csv trace.
    Pool,
    /// The text of a key up to the first such byte. Only the formats `twitter` and `kvcache` have keys of text.
    Prefix(u8),
}

/// The name of the label of keys without the delimiter, and of requests without a pool.
pub const NO_LABEL: &str = "(none)";

/// Names and numbers of the labels seen.
#[derive(Debug)]
pub(super) struct Labels {
    pub(super) by: LabelBy,
    numbers: HashMap<Vec<u8>, u32>,
    names: Vec<String>,
    last: u32,
}

impl Labels {
    /// The error says what the trace lacks.
    pub(super) fn new(by: LabelBy, format: Format, has_pool: bool) -> Result<Self, String> {
        match by {
            LabelBy::Pool if !has_pool => {
                Err("the trace has no column `pool`; only csv traces may have one".to_owned())
            }
            LabelBy::Prefix(_) if !matches!(format, Format::Twitter | Format::Kvcache) => {
                Err(format!("keys of the format {} are numbers and have no prefix", format.name()))
            }
            _ => Ok(Self { by, numbers: HashMap::new(), names: Vec::new(), last: 0 }),
        }
    }

    /// Notes the label of a request from the text that holds it: the pool, or the key.
    pub(super) fn note(&mut self, text: &[u8]) {
        let name = match self.by {
            LabelBy::Pool => text.trim_ascii(),
            LabelBy::Prefix(delimiter) => {
                let end = text.iter().position(|&byte| byte == delimiter);
                end.map_or(&text[..0], |end| &text[..end])
            }
        };
        if let Some(&number) = self.numbers.get(name) {
            self.last = number;
            return;
        }
        self.last = self.names.len() as u32;
        self.numbers.insert(name.to_vec(), self.last);
        self.names.push(if name.is_empty() { NO_LABEL.to_owned() } else { name.escape_ascii().to_string() });
    }

    pub(super) fn last(&self) -> u32 {
        self.last
    }

    pub(super) fn names(&self) -> &[String] {
        &self.names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_end_at_the_first_delimiter() {
        let mut labels = Labels::new(LabelBy::Prefix(b':'), Format::Twitter, false).unwrap();
        let mut of = |key: &[u8]| {
            labels.note(key);
            labels.last()
        };
        assert_eq!([of(b"user:1"), of(b"plain"), of(b"user:2:x"), of(b":y"), of(b"\xFF:")], [0, 1, 0, 1, 2]);
        assert_eq!(labels.names(), ["user", NO_LABEL, "\\xff"]);
    }

    #[test]
    fn traces_without_labels_are_refused() {
        assert!(Labels::new(LabelBy::Pool, Format::Csv, true).is_ok());
        assert!(Labels::new(LabelBy::Pool, Format::Csv, false).unwrap_err().contains("no column `pool`"));
        assert!(Labels::new(LabelBy::Prefix(b':'), Format::Csv, true).unwrap_err().contains("are numbers"));
    }
}
