//! Labels of requests: the pool that a csv trace names in its seventh column, or the prefix of a key that is text.
//!
//! A label is a small number; its name is in the reader's table. Labels are off by default, since most commands do not
//! need them.

use std::collections::HashMap;

use super::Format;

/// Source of the labels of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelBy {
    /// The column `pool` of a csv trace.
    Pool,
    /// The text of a key up to the first such byte. Only the formats `twitter` and `kvcache` have keys of text.
    Prefix(u8),
}

/// Groups of requests that may be pools of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum PoolsBy {
    /// Keys that begin with the same text up to --delimiter
    Prefix,
    /// The pools of the trace, or of the live server
    Pool,
}

impl PoolsBy {
    pub(crate) fn labels(self, delimiter: u8) -> LabelBy {
        match self {
            Self::Prefix => LabelBy::Prefix(delimiter),
            Self::Pool => LabelBy::Pool,
        }
    }
}

/// The name of the label of keys without the delimiter, and of requests without a pool.
pub const NO_LABEL: &str = "(none)";

/// Names and numbers of the labels seen.
#[derive(Debug)]
pub(crate) struct Labels {
    pub(super) by: LabelBy,
    numbers: HashMap<Vec<u8>, u32>,
    names: Vec<String>,
    last: u32,
    rules: Option<PoolRules>,
}

/// Prefixes of keys, each with the name of the pool that its keys belong to.
#[derive(Debug)]
pub(crate) struct PoolRules(Vec<(Vec<u8>, String)>);

impl PoolRules {
    pub(crate) fn new(rules: impl IntoIterator<Item = (Vec<u8>, String)>) -> Self {
        let mut rules: Vec<_> = rules.into_iter().collect();
        rules.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        Self(rules)
    }

    /// The pool with the longest prefix of a key; empty if there is none.
    fn pool_of(&self, key: &[u8]) -> &[u8] {
        let rule = self.0.iter().find(|(prefix, _)| key.starts_with(prefix));
        rule.map_or(&[], |(_, pool)| pool.as_bytes())
    }
}

impl Labels {
    /// The error names the missing part of the trace.
    pub(super) fn new(by: LabelBy, format: Format, has_pool: bool) -> Result<Self, String> {
        match by {
            LabelBy::Pool if !has_pool => {
                Err("the trace has no column `pool`; only csv traces may have one".to_owned())
            }
            LabelBy::Prefix(_) if !matches!(format, Format::Twitter | Format::Kvcache) => {
                Err(format!("keys of the format {} are numbers and have no prefix", format.name()))
            }
            _ => Ok(Self { by, numbers: HashMap::new(), names: Vec::new(), last: 0, rules: None }),
        }
    }

    /// Labels of keys that are text: by their prefix, or by the pools that claim prefixes.
    pub(crate) fn of_keys(by: LabelBy, rules: PoolRules) -> Self {
        let rules = (by == LabelBy::Pool).then_some(rules);
        Self { by, numbers: HashMap::new(), names: Vec::new(), last: 0, rules }
    }

    /// Labels by the pool in the trace, or by pools with prefixes of keys. The error names the missing part of the
    /// trace.
    pub(super) fn of_pools(rules: PoolRules, format: Format, has_pool: bool) -> Result<Self, String> {
        if has_pool {
            return Self::new(LabelBy::Pool, format, has_pool);
        }
        if !matches!(format, Format::Twitter | Format::Kvcache) {
            let format = format.name();
            return Err(format!("the trace has no column `pool`, and keys of the format {format} have no prefix"));
        }
        if rules.0.is_empty() {
            return Err("the trace has no column `pool`, and no pool has a prefix".to_owned());
        }
        let rules = Some(rules);
        Ok(Self { by: LabelBy::Pool, numbers: HashMap::new(), names: Vec::new(), last: 0, rules })
    }

    /// Notes the label of a request from the text that holds it: the pool, or the key.
    pub(crate) fn note(&mut self, text: &[u8]) {
        let name = match (&self.rules, self.by) {
            (Some(rules), _) => rules.pool_of(text),
            (None, LabelBy::Pool) => text.trim_ascii(),
            (None, LabelBy::Prefix(delimiter)) => {
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
        self.names.push(match std::str::from_utf8(name) {
            Ok("") => NO_LABEL.to_owned(),
            Ok(text) if !text.contains(char::is_control) => text.to_owned(),
            _ => name.escape_ascii().to_string(),
        });
    }

    pub(crate) fn last(&self) -> u32 {
        self.last
    }

    pub(crate) fn names(&self) -> &[String] {
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
    fn the_longest_matching_prefix_decides_the_pool() {
        let rule = |prefix: &str, pool: &str| (prefix.as_bytes().to_vec(), pool.to_owned());
        let rules = || PoolRules::new([rule("u", "short"), rule("user:", "long"), rule("x", "short")]);
        let mut labels = Labels::of_pools(rules(), Format::Twitter, false).unwrap();
        let mut of = |key: &[u8]| {
            labels.note(key);
            labels.last()
        };
        assert_eq!([of(b"user:1"), of(b"use"), of(b"xyz"), of(b"none"), of(b"user:")], [0, 1, 1, 2, 0]);
        assert_eq!(labels.names(), ["long", "short", NO_LABEL]);
        assert!(Labels::of_pools(rules(), Format::Csv, false).unwrap_err().contains("no column `pool`"));
        assert!(
            Labels::of_pools(PoolRules::new([]), Format::Twitter, false).unwrap_err().contains("no pool has a prefix")
        );
        assert!(Labels::of_pools(rules(), Format::Csv, true).is_ok());
    }

    #[test]
    fn traces_without_labels_are_refused() {
        assert!(Labels::new(LabelBy::Pool, Format::Csv, true).is_ok());
        assert!(Labels::new(LabelBy::Pool, Format::Csv, false).unwrap_err().contains("no column `pool`"));
        assert!(Labels::new(LabelBy::Prefix(b':'), Format::Csv, true).unwrap_err().contains("are numbers"));
    }
}
