//! Other pools while the server runs.
//!
//! ```text
//! check --> route without the removed pools --> remove, resize, add --> route to all --> sweep
//! ```
//! A pool is removed only when it gets no more keys, and an added one exists before it gets keys: no client sees an
//! error, but for one whose value still arrives in pieces when its key gets another pool (`finish_upload`). If the
//! check fails, nothing changes. If a later step fails, for lack of memory, the present pools stay, and are swept.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use ebbtide::memcached::{Error as CacheError, PoolOptions};

use super::{PoolRule, PoolSet, sweep};
use crate::Error;
use crate::inbox::Inbox;
use crate::shared::Shared;
use crate::sync::lock;

/// How long a reload waits for the threads to take its pools over, and for memory of an added pool.
const PATIENCE: Duration = if cfg!(test) { Duration::from_millis(100) } else { Duration::from_secs(30) };
const INTERVAL: Duration = Duration::from_millis(5);
/// More pools of a list are told by their number.
const MAX_NAMES: usize = 16;

/// Pools that a reload has changed, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolChanges {
    /// Their entries are gone.
    pub removed: Vec<String>,
    pub added: Vec<String>,
    /// They have other options or prefixes.
    pub changed: Vec<String>,
}

impl PoolChanges {
    fn between(before: &PoolSet, rules: &[PoolRule]) -> Self {
        let old = |name: &str| before.rules().find(|rule| rule.name == name);
        let is_gone = |name: &str| rules.iter().all(|rule| rule.name != name);
        let names = |is_meant: &dyn Fn(&PoolRule) -> bool| {
            rules.iter().filter(|rule| is_meant(rule)).map(|rule| rule.name.clone()).collect()
        };
        Self {
            removed: before.rules().map(|rule| rule.name.clone()).filter(|name| is_gone(name)).collect(),
            added: names(&|rule| old(&rule.name).is_none()),
            changed: names(&|rule| old(&rule.name).is_some_and(|old| old != rule)),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.added.is_empty() && self.changed.is_empty()
    }
}

impl fmt::Display for PoolChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lists = [("removed with their entries", &self.removed), ("added", &self.added), ("changed", &self.changed)];
        let mut separator = "pools ";
        for (what, names) in lists.into_iter().filter(|(_, names)| !names.is_empty()) {
            write!(f, "{separator}{what}: {}", names[..names.len().min(MAX_NAMES)].join(", "))?;
            if names.len() > MAX_NAMES {
                write!(f, " and {} others", names.len() - MAX_NAMES)?;
            }
            separator = "; ";
        }
        Ok(())
    }
}

/// A reload of the pools.
pub struct Reload<'a> {
    pub shared: &'a Arc<Shared>,
    /// The threads that route keys.
    pub inboxes: &'a [Arc<Inbox>],
}

fn refuse(name: &str, reason: impl Into<String>) -> Error {
    Error::Pool { name: name.escape_debug().to_string(), reason: reason.into() }
}

/// Names the pool where the cache does.
fn refused(error: CacheError) -> Error {
    match error {
        CacheError::Configuration { option: "pool", value, reason } => Error::Pool { name: value, reason },
        other => Error::Cache(other),
    }
}

impl Reload<'_> {
    /// Changes the pools to those of these rules. The rules of the pool `default` are among them.
    ///
    /// # Errors
    /// `Pool`, `Cache`: nothing was changed, unless the message names a change.
    pub fn run(&self, rules: &[PoolRule]) -> Result<PoolChanges, Error> {
        let shared = self.shared;
        let _alone = lock(&shared.pools.reloading);
        let before = shared.pools.current();
        if before.rules().eq(PoolRule::in_order(rules)) {
            return Ok(PoolChanges::default());
        }
        self.check(&before, rules)?;
        let changes = PoolChanges::between(&before, rules);
        let prefixes = |rule: &PoolRule| (rule.name.clone(), rule.prefixes.clone());
        let is_routed_anew = !before.rules().map(prefixes).eq(PoolRule::in_order(rules).map(prefixes));
        drop(before);
        if is_routed_anew {
            shared.cache.begin_rerouting(&PoolRule::routing(rules)).map_err(refused)?;
        }
        let changed = self.change(rules, &changes.removed);
        // Also where the change has ended half-way: the present pools may have entries whose keys belong to others.
        if is_routed_anew {
            shared.pools.current().flush_compact();
        }
        changed.and(sweep::start(shared)).map(|()| changes)
    }

    /// Changes the pools to those of checked rules, without these.
    fn change(&self, rules: &[PoolRule], removed: &[String]) -> Result<(), Error> {
        let (shared, before) = (self.shared, self.shared.pools.current());
        let exists = |rule: &&PoolRule| before.rules().any(|other| other.name == rule.name);
        let kept: Vec<PoolRule> = rules.iter().filter(exists).cloned().collect();
        let added: Vec<&PoolRule> = rules.iter().filter(|rule| !exists(rule)).collect();
        let has_other_policy =
            |rule: &&PoolRule| before.rules().any(|other| other.name == rule.name && other.policy != rule.policy);
        let switched: Vec<PoolRule> = kept.iter().filter(has_other_policy).cloned().collect();
        drop(before);
        shared.pools.announce_leaving(removed);
        self.publish(&kept)?;
        shared.pools.remove_leaving(&shared.cache).map_err(refused)?;
        self.resize(&kept)?;
        self.switch_policies(&switched)?;
        for rule in added {
            self.add(rule)?;
        }
        self.publish(rules)
    }

    fn check(&self, before: &PoolSet, rules: &[PoolRule]) -> Result<(), Error> {
        PoolRule::check_all(rules)?;
        if self.shared.pools.is_sweeping.load(Ordering::Relaxed) {
            let reason = "entries that the last reload gave to other pools are still being deleted; try again later";
            return Err(refuse("default", reason));
        }
        for present in before.rules() {
            let fixed = |rule: &PoolRule| (rule.objective, rule.compact);
            let differs = |rule: &PoolRule| fixed(rule) != fixed(present);
            if rules.iter().any(|rule| rule.name == present.name && differs(rule)) {
                let reason = "its objective, kind and lengths cannot change while the server runs; restart, or give the pool \
                              another name";
                return Err(refuse(&present.name, reason));
            }
        }
        let options: Vec<PoolOptions> = rules.iter().map(PoolRule::options).collect();
        self.shared.cache.check_pools(&options).map_err(refused)
    }

    /// Has all threads route keys by these rules, and waits until they do.
    fn publish(&self, rules: &[PoolRule]) -> Result<(), Error> {
        let shared = self.shared;
        let current = shared.pools.current();
        let set = current.successor(&shared.cache, rules, &shared.counters)?;
        let is_known = |name: &str| current.entries.iter().any(|entry| entry.rule.name == name);
        let mut added = set.entries.iter().filter(|entry| !is_known(&entry.rule.name));
        added.try_for_each(|entry| shared.evictions.listen(entry)).map_err(refused)?;
        drop(current);
        shared.pools.publish(set);
        for inbox in self.inboxes {
            inbox.waker.wake().map_err(Error::Poll)?;
        }
        let deadline = Instant::now() + PATIENCE;
        while !shared.pools.is_taken_over() && !shared.is_stopping() {
            if Instant::now() > deadline {
                return Err(refuse("default", "a thread does not take the pools over; the reload is not complete"));
            }
            thread::sleep(INTERVAL);
        }
        Ok(())
    }

    /// Gives the pools their bounds and weights: smaller minimums first, because larger ones need their memory.
    fn resize(&self, rules: &[PoolRule]) -> Result<(), Error> {
        let set = |rule: &PoolRule| {
            let (cache, options) = (&self.shared.cache, rule.options());
            match rule.compact {
                Some(_) => cache.compact_pool(&rule.name).and_then(|pool| pool.configure(&options)).map_err(refused),
                None => cache.pool(&rule.name).and_then(|pool| pool.configure(&options)).map_err(refused),
            }
        };
        let mut waiting: Vec<&PoolRule> = rules.iter().collect();
        // Ends: each round sets at least one pool, or is the last.
        loop {
            let before = waiting.len();
            let mut refused = None;
            waiting.retain(|rule| match set(rule) {
                Ok(()) => false,
                Err(error) => {
                    refused = Some(error);
                    true
                }
            });
            match refused {
                None => return Ok(()),
                Some(error) if waiting.len() == before => return Err(error),
                Some(_) => {}
            }
        }
    }

    /// Gives pools the policies of these rules. A policy of the controller stays if the pool's rule is unchanged.
    fn switch_policies(&self, rules: &[PoolRule]) -> Result<(), Error> {
        for rule in rules {
            let Some(policy) = rule.policy else { continue };
            let pool = self.shared.cache.pool(&rule.name).map_err(refused)?;
            pool.set_policy(policy).map_err(refused)?;
        }
        Ok(())
    }

    /// Adds a pool. The memory of removed pools is not free at once.
    fn add(&self, rule: &PoolRule) -> Result<(), Error> {
        let shared = self.shared;
        let deadline = Instant::now() + PATIENCE;
        loop {
            match shared.cache.add_pool(&rule.options()) {
                Ok(()) => break,
                // Of a reload that has failed behind it: no key belongs to it.
                Err(CacheError::PoolExists { .. }) => shared.cache.remove_pool(&rule.name).map_err(refused)?,
                Err(CacheError::Configuration { .. }) if Instant::now() < deadline && !shared.is_stopping() => {
                    thread::sleep(INTERVAL);
                }
                Err(error) => return Err(refused(error)),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_server::server;
    use super::*;

    /// Otherwise the second would route keys to pools that the first is about to sweep.
    #[test]
    fn two_reloads_at_once_follow_each_other() {
        let (_cache, server, rules) = server();
        let shared = &server.acceptor.shared;
        let late = shared.pools.current();
        let version = shared.pools.version();
        thread::scope(|scope| {
            let first = scope.spawn(|| Reload { shared, inboxes: &[] }.run(&rules[..1]));
            // It waits for the late thread next.
            while shared.pools.version() == version {
                thread::yield_now();
            }
            let second = Reload { shared, inboxes: &[] }.run(&rules).expect_err("a sweep is under way");
            assert!(second.to_string().contains("still being deleted"), "{second}");
            assert!(first.join().expect("no panic").is_err());
        });
        drop(late);
    }

    /// Without an end of the pool, a start with the rules of before would find its entries.
    #[test]
    fn a_late_thread_keeps_no_removed_pool() {
        let (cache, server, rules) = server();
        let shared = &server.acceptor.shared;
        let late = shared.pools.current();
        let reload = Reload { shared, inboxes: &[] };
        let refused = reload.run(&rules[..1]).expect_err("a thread uses the old pools");
        assert!(refused.to_string().contains("does not take the pools over"), "{refused}");
        assert!(cache.pool("a").is_ok(), "the thread may write to it");
        drop(late);
        // Ends: the sweep does.
        while shared.pools.is_sweeping.load(Ordering::Relaxed) {
            thread::sleep(INTERVAL);
        }
        assert!(cache.pool("a").is_err());
        reload.run(&rules).expect("there is memory");
        while shared.pools.is_sweeping.load(Ordering::Relaxed) {
            thread::sleep(INTERVAL);
        }
        assert!(cache.pool("a").is_ok());
    }
}
