//! The stores of a start with what the last run left on the device, or the reason why they start empty.

use super::{LogContinuation, OpenedStores, Opening};
use crate::Error;
use crate::deletion_log::{DeletionLog, Incarnations, LogContents, Unreadable};
use crate::large::LargeLog;
use crate::recovery::RecoveryInput;
use crate::small::{self, SmallStore};
use crate::tier::layout::TierLayout;
use crate::tier::pool_names::TierPools;
use crate::tier::superblock::{Partition, RunState, Superblock, random_id};
use crate::tier::token_section::{self, PoolTokens};
use std::sync::Arc;

const UNCERTAIN: &str = "its checkpoint is damaged, and it has no deletion log";
const ANOTHER_RUN: &str =
    "its deletion log belongs to another run of it: one of the two files was put back from an earlier time";
/// Maximum seconds that the clock may be set back. Until the clock has caught up, flash uses the later time.
const MAX_BACK: u32 = 600;

impl Opening {
    /// Adopts the division of the last run, where the options name no other.
    fn adopt_partition(&mut self, before: &Partition) {
        let is_ours = (before.identity, before.capacity) == (self.shape.identity, self.shape.capacity);
        if let Some(layout) = is_ours.then(|| TierLayout::as_before(before, &self.options)).flatten() {
            (self.shape, self.layout) = (*before, layout);
        }
    }

    /// The objects on flash, or the reason why their state is not certain.
    pub(super) fn resume(
        &mut self,
        before: &Superblock,
        deletion_log: Option<&DeletionLog>,
        now: u32,
    ) -> Result<OpenedStores, String> {
        let fresh = (self.layout.clone(), self.shape);
        self.adopt_partition(&before.shape);
        let resumed = self.resume_from(before, deletion_log, now);
        if resumed.is_err() {
            (self.layout, self.shape) = fresh;
        }
        resumed
    }

    fn resume_from(
        &mut self,
        before: &Superblock,
        deletion_log: Option<&DeletionLog>,
        now: u32,
    ) -> Result<OpenedStores, String> {
        if let Some(difference) = self.shape.difference(&before.shape) {
            return Err(difference);
        }
        let has_log = !matches!(before.state, RunState::Clean { is_logged: false, .. } | RunState::Running { boot: 0 });
        let contents = match deletion_log.filter(|_| has_log) {
            Some(deletion_log) => deletion_log.read(before.incarnations, before.run).map_err(Some),
            None => Err(None),
        };
        let not_stopped = |why| Err(format!("it was not stopped, and {why}"));
        match (before.state, &contents) {
            (RunState::Running { boot: 0 }, _) => return not_stopped("it had no deletion log that has everything"),
            (RunState::Running { boot }, _) if Some(boot) != self.boot => {
                return not_stopped("the machine was started anew since");
            }
            (RunState::Running { .. }, Err(why)) => {
                return not_stopped(match why {
                    None => "it has no deletion log",
                    Some(Unreadable::Missing) => "its deletion log is missing, or of another time",
                    Some(Unreadable::OtherRun) => ANOTHER_RUN,
                    Some(Unreadable::Damaged) => "its deletion log is damaged",
                    Some(Unreadable::WithoutWalBuffer) => "what its deletion log had in memory (/dev/shm) is gone",
                });
            }
            // The log has the removals since the stop, unless the owner of the file has deleted it.
            (RunState::Clean { is_logged: true, .. }, Err(why)) if !self.is_log_away(deletion_log) => {
                return Err(match why {
                    Some(Unreadable::OtherRun) => ANOTHER_RUN.to_owned(),
                    _ => "its deletion log is damaged, or of another time".to_owned(),
                });
            }
            (RunState::Clean { .. }, _) | (RunState::Running { .. }, Ok(_)) => {}
        }
        if contents.as_ref().is_ok_and(|contents| contents.flush_is_pending) {
            return Err("a flush was to come when it ended".to_owned());
        }
        let latest = before.latest.max(contents.as_ref().map_or(0, |contents| contents.latest));
        if latest > now.saturating_add(MAX_BACK) {
            return Err(format!("the clock went back by {} seconds", latest - now));
        }
        let stores = self.recover(before, contents.ok(), latest.max(now))?;
        let stop = if matches!(before.state, RunState::Clean { .. }) { "a stop" } else { "a crash" };
        let age = age_of(now.saturating_sub(latest));
        let objects = stores.large.stats().objects + stores.small.as_ref().map_or(0, |small| small.stats().objects());
        self.notices.push(format!("flash is warm after {stop}: {objects} objects, written last {age} ago"));
        Ok(stores)
    }

    /// Whether the deletion log is a new file, or no file was named.
    fn is_log_away(&self, deletion_log: Option<&DeletionLog>) -> bool {
        deletion_log.map_or(self.deletion_log.is_none(), DeletionLog::is_created)
    }

    fn recover(
        &mut self,
        before: &Superblock,
        contents: Option<LogContents>,
        now: u32,
    ) -> Result<OpenedStores, String> {
        let is_logged = contents.is_some();
        let of_before = (before.incarnations.large, matches!(before.state, RunState::Clean { .. }));
        let pools = TierPools::before(&*self.device, of_before, self.table_area(), contents.as_ref())?;
        let (mut small, mut large) = contents.map_or_else(
            || (Some(RecoveryInput::default()), RecoveryInput::default()),
            |contents| (contents.small, contents.large),
        );
        if let RunState::Clean { large_checkpoint, .. } = before.state {
            let (area, _) = self.layout.checkpoint_and_table().ok_or(UNCERTAIN)?;
            small.iter_mut().for_each(|small| small.checkpoint = Some(area.start..large_checkpoint));
            large.checkpoint = Some(large_checkpoint..area.end);
        }
        let tokens = self.tokens_of(before);
        let (area, options) = (self.layout.large_area(), self.large_options(before.incarnations));
        let (large, found) =
            LargeLog::recover_pools(self.device(), area, (options, Arc::clone(&pools.live)), &large, now)
                .map_err(unreadable)?;
        if !is_logged && !found.from_checkpoint {
            return Err(UNCERTAIN.to_owned());
        }
        // Its index may hold more than a new division would give it.
        self.layout.leave_to_large(large.index_bytes() / 4 * 5);
        large.limit_index(self.layout.large_options.index_bytes);
        let is_small_logged = small.is_some();
        let (small, incarnations) =
            self.recover_small((before.incarnations, &pools), small.as_ref(), is_logged, now)?;
        let log = if !is_logged {
            LogContinuation::Restart(small.as_ref().map_or(0, SmallStore::next_order), large.next_order())
        } else if incarnations != before.incarnations || !is_small_logged {
            LogContinuation::ContinueLarge
        } else {
            LogContinuation::Continue
        };
        Ok(OpenedStores { large, small, incarnations, pools, latest: now, log, tokens })
    }

    /// The CAS tokens that a clean stop kept. Whatever becomes of the objects, a token is valid for the object that the
    /// stop left, and that of an object which the start does not find matches nothing.
    fn tokens_of(&self, before: &Superblock) -> Vec<PoolTokens> {
        match (before.state, self.layout.checkpoint_and_table()) {
            (RunState::Clean { .. }, Some((area, _))) => token_section::read(&*self.device, &area, before.run),
            _ => Vec::new(),
        }
    }

    /// The small objects, if the capacity is divided; empty and with a new incarnation if their removals are unknown or
    /// a scan would read too many bytes.
    fn recover_small(
        &mut self,
        (incarnations, pools): (Incarnations, &TierPools),
        known: Option<&RecoveryInput>,
        is_logged: bool,
        now: u32,
    ) -> Result<(Option<SmallStore>, Incarnations), String> {
        let Some(options) = self.small_options(incarnations, pools) else { return Ok((None, incarnations)) };
        let Some(known) = known else {
            pools.live.clear_small();
            return self.discard_small(incarnations, options, "what was removed is not known");
        };
        let area = self.layout.small_area();
        let resumed = SmallStore::resume(self.device(), area.clone(), options.clone(), known).map_err(unreadable)?;
        if resumed.is_some() {
            return Ok((resumed, incarnations));
        }
        if !is_logged {
            return Err(UNCERTAIN.to_owned());
        }
        // The scan counts the small objects again.
        pools.live.clear_small();
        let bytes = area.end - area.start;
        if bytes > self.options.scan_bytes {
            return self.discard_small(incarnations, options, &format!("{bytes} bytes would have to be read"));
        }
        let (small, _) = SmallStore::recover(self.device(), area, options, known, now).map_err(unreadable)?;
        Ok((Some(small), incarnations))
    }

    fn discard_small(
        &mut self,
        incarnations: Incarnations,
        options: small::Options,
        why: &str,
    ) -> Result<(Option<SmallStore>, Incarnations), String> {
        self.notices.push(format!("small objects on flash are given up: {why}"));
        let incarnations = Incarnations { small: random_id(), ..incarnations };
        let small = self.empty_small(small::Options { salt: incarnations.small, ..options }).map_err(unreadable)?;
        small.erase_marks().map_err(unreadable)?;
        Ok((Some(small), incarnations))
    }
}

/// An age in words for the operator.
fn age_of(seconds: u32) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

fn unreadable(error: Error) -> String {
    format!("it cannot be read: {error}")
}
