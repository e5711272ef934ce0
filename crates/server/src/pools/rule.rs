//! Configuration of a pool by an operator.

use std::collections::HashMap;

use ebbtide::memcached::{ByteSize, CompactSizes, HitRatio, Objective, Policy, PoolOptions};

use super::DEFAULT_POOL;
use crate::Error;

/// Keys of a pool, and its options (`--pool`, `[[pool]]`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolRule {
    /// 1 to 64 printable characters without blanks. `default` changes the pool of all other keys.
    pub name: String,
    /// Keys that begin with one of these belong to the pool; the longest prefix of a key decides.
    pub prefixes: Vec<Vec<u8>>,
    /// Memory that the pool has in any case.
    pub min_bytes: u64,
    /// Memory that the pool never exceeds. Default: no bound.
    pub max_bytes: Option<u64>,
    /// Its part of the memory between the bounds of all pools.
    pub weight: u32,
    /// The worth of a hit of the pool to the controller, relative to hits of other pools.
    pub hit_value: u32,
    /// The hit ratio for which the controller gives the pool memory before others share the rest.
    pub target_hit_ratio: Option<HitRatio>,
    /// Default: that of the cache.
    pub policy: Option<Policy>,
    /// The objective of its evictions. Default: that of the cache.
    pub objective: Option<Objective>,
    /// Percent of flash that the pool may have while flash is full. Default: a part of the share that other pools
    /// leave, divided as the memory is.
    pub flash_percent: Option<u8>,
    /// Of a compact pool (`kind=compact`): the lengths of its keys and values.
    pub compact: Option<CompactSizes>,
}

impl PoolRule {
    /// A pool of weight 1 without prefixes and bounds.
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            prefixes: Vec::new(),
            min_bytes: 0,
            max_bytes: None,
            weight: 1,
            hit_value: 1,
            target_hit_ratio: None,
            policy: None,
            objective: None,
            flash_percent: None,
            compact: None,
        }
    }

    /// Which keys belong to which of these pools, equal for equal prefixes; empty without prefixes.
    pub fn routing<'r>(rules: impl IntoIterator<Item = &'r Self>) -> Vec<u8> {
        let prefixes = rules.into_iter().flat_map(|rule| rule.prefixes.iter().map(|prefix| (&*rule.name, prefix)));
        let mut all: Vec<_> = prefixes.collect();
        all.sort();
        // Names have no blanks and lengths no other characters: each text has one meaning.
        all.iter()
            .flat_map(|(name, prefix)| [format!("{name} {} ", prefix.len()).as_bytes(), prefix].concat())
            .collect()
    }

    /// The options of the pool in the cache.
    pub fn options(&self) -> PoolOptions {
        let options =
            PoolOptions::named(&self.name).min(ByteSize::bytes(self.min_bytes)).max(self.max()).weight(self.weight);
        let options = options.hit_value(self.hit_value);
        let options = match self.target_hit_ratio {
            Some(ratio) => options.target_hit_ratio(ratio),
            None => options,
        };
        let options = match self.policy {
            Some(policy) => options.policy(policy),
            None => options,
        };
        let options = match self.objective {
            Some(objective) => options.objective(objective),
            None => options,
        };
        let options = match self.flash_percent {
            Some(percent) => options.flash_share(percent),
            None => options,
        };
        match self.compact {
            Some(CompactSizes { key_bytes, value_bytes, has_ttl: true }) => {
                options.compact_with_ttl(key_bytes, value_bytes)
            }
            Some(CompactSizes { key_bytes, value_bytes, has_ttl: false }) => options.compact(key_bytes, value_bytes),
            None => options,
        }
    }

    pub(crate) fn max(&self) -> ByteSize {
        ByteSize::bytes(self.max_bytes.unwrap_or(u64::MAX))
    }

    pub(crate) fn is_default(&self) -> bool {
        self.name == DEFAULT_POOL
    }

    /// These rules in the order of a [`super::PoolSet`]: compact pools last.
    pub(crate) fn in_order(rules: &[Self]) -> impl Iterator<Item = &Self> {
        let of_kind = |is_compact: bool| rules.iter().filter(move |rule| rule.compact.is_some() == is_compact);
        of_kind(false).chain(of_kind(true))
    }

    /// Whether the rules fit together; the cache checks names and shares.
    ///
    /// # Errors
    /// `Pool`: a duplicate name or prefix, or a pool without keys.
    pub fn check_all(rules: &[Self]) -> Result<(), Error> {
        let refuse =
            |rule: &Self, reason: String| Err(Error::Pool { name: rule.name.escape_debug().to_string(), reason });
        let mut owners: HashMap<&[u8], &str> = HashMap::new();
        for (at, rule) in rules.iter().enumerate() {
            if rules[..at].iter().any(|other| other.name == rule.name) {
                return refuse(rule, "two pools have this name; give each pool another one".to_owned());
            }
            if rule.prefixes.is_empty() && !rule.is_default() {
                return refuse(rule, "no key belongs to it; give it a prefix, as prefix=users:".to_owned());
            }
            if rule.compact.is_some() && rule.is_default() {
                let reason = "the pool default has keys of all lengths; give the compact pool another name";
                return refuse(rule, reason.to_owned());
            }
            for prefix in &rule.prefixes {
                if let Some(sizes) = rule.compact.filter(|sizes| sizes.key_bytes < prefix.len()) {
                    let (shown, key) = (prefix.escape_ascii(), sizes.key_bytes);
                    return refuse(
                        rule,
                        format!("keys have {key} bytes, the prefix `{shown}` has more; give key=NUM of whole keys"),
                    );
                }
                let shown = prefix.escape_ascii();
                if prefix.is_empty() || prefix.len() > ebbtide_protocol::MAX_KEY {
                    let (bytes, max) = (prefix.len(), ebbtide_protocol::MAX_KEY);
                    return refuse(rule, format!("the prefix `{shown}` has {bytes} bytes; give one of 1 to {max}"));
                }
                if let Some(owner) = owners.insert(prefix, &rule.name) {
                    let other = owner.escape_debug();
                    return refuse(rule, format!("the prefix `{shown}` belongs to the pool `{other}` as well"));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_contradict_each_other_are_refused() {
        let rule = |name: &str, prefixes: &[&str]| PoolRule {
            prefixes: prefixes.iter().map(|prefix| prefix.as_bytes().to_vec()).collect(),
            ..PoolRule::named(name)
        };
        assert!(PoolRule::check_all(&[rule("a", &["a:", "b"]), rule("default", &[]), rule("c", &["b:"])]).is_ok());
        let long = "x".repeat(251);
        let sizes = CompactSizes { key_bytes: 4, value_bytes: 0, has_ttl: false };
        let compact = |rule: PoolRule| PoolRule { compact: Some(sizes), ..rule };
        for (rules, part) in [
            (vec![rule("a", &["a:"]), rule("a", &["b:"])], "two pools"),
            (vec![rule("a", &[])], "no key belongs to it"),
            (vec![rule("a", &["x"]), rule("b", &["y", "x"])], "the prefix `x` belongs to the pool `a`"),
            (vec![rule("a", &["x", "x"])], "the prefix `x` belongs to the pool `a`"),
            (vec![rule("a", &[""])], "1 to 250"),
            (vec![rule("a", &[&long])], "251 bytes"),
            (vec![compact(rule("default", &[]))], "another name"),
            (vec![compact(rule("a", &["users:"]))], "keys have 4 bytes, the prefix `users:` has more"),
        ] {
            let message = PoolRule::check_all(&rules).unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        }
    }
}
