//! Other rules for which pool a key belongs to: what a memory file and flash keep of their change.

use crate::builder::CacheBuilder;
use crate::cache::Cache;
use crate::error::Error;
use crate::memory_file::MemoryFile;
use ebbtide_flash::KeyRouting;

impl CacheBuilder {
    /// The rules by which the caller divides keys among pools, in any form that is equal for equal rules; empty for
    /// none, as by default. After a start that finds entries of other rules, [`Cache::is_rerouting`] is true.
    pub fn key_routing(mut self, rules: &[u8]) -> Self {
        self.key_routing = KeyRouting::of(rules);
        self
    }
}

impl Cache {
    /// Whether entries may be in pools that their keys have left. They are not found there, but would be after a change
    /// back, although newer values were written to other pools meanwhile. So the caller deletes them and then calls
    /// [`Cache::end_rerouting`]. Until that, a start with yet other rules is cold; after two changes without an end
    /// each start is.
    pub fn is_rerouting(&self) -> bool {
        self.key_routings().any(KeyRouting::is_unfinished)
    }

    /// The caller is about to divide keys among pools by these rules. Waits for flash.
    ///
    /// # Errors
    /// `Configuration` if flash does not take it: keep to the present rules.
    pub fn begin_rerouting(&self, rules: &[u8]) -> Result<(), Error> {
        let key_routing = KeyRouting::of(rules);
        if let Some(flash) = self.engine().flash() {
            flash.tier.set_key_routing(key_routing.started_after(flash.tier.key_routing())).map_err(|error| {
                Error::Configuration {
                    option: "flash",
                    value: "the rules of pools".to_owned(),
                    reason: error.to_string(),
                }
            })?;
        }
        let begin = |file: &MemoryFile| file.set_key_routing(key_routing.started_after(file.key_routing()));
        self.engine().memory_file.iter().for_each(begin);
        Ok(())
    }

    /// Keys are divided among pools by these rules, and no entry that can be found is in a pool that its key has left.
    /// Flash keeps that unless it may have entries that cannot be found now and a later start could find: then
    /// [`Cache::is_rerouting`] stays true.
    pub fn end_rerouting(&self, rules: &[u8]) {
        let key_routing = KeyRouting::of(rules);
        if let Some(flash) = self.engine().flash().filter(|flash| !flash.tier.hides_objects()) {
            // If flash does not take it, the next start looks for such entries again.
            let _ = flash.tier.set_key_routing(key_routing);
        }
        self.engine().memory_file.iter().for_each(|file| file.set_key_routing(key_routing));
    }

    fn key_routings(&self) -> impl Iterator<Item = KeyRouting> {
        let of_file = self.engine().memory_file.as_ref().map(|file| file.key_routing());
        of_file.into_iter().chain(self.engine().flash().map(|flash| flash.tier.key_routing()))
    }
}
