//! Says on stderr when the device of flash got worse or better: whether or not anybody looks at the admin HTTP.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ebbtide::flash::{DeviceStats, Health};

use crate::Error;
use crate::shared::Shared;

/// As often as the device is judged.
const LOOK: Duration = Duration::from_secs(1);

/// The thread that looks; it ends when this is dropped.
pub struct HealthLog {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl HealthLog {
    /// Starts the thread; none without flash.
    pub fn start(shared: Arc<Shared>) -> Result<Option<Self>, Error> {
        if !shared.cache.has_flash() {
            return Ok(None);
        }
        let (stop, stopped) = mpsc::channel();
        let look = move || {
            let mut watch = Watch::new(&shared.options.flash_paths);
            while stopped.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                let Some(health) = shared.cache.flash_health().filter(|&health| health != watch.health) else {
                    continue;
                };
                let errors = shared.cache.flash_stats().map_or(0, |flash| errors(&flash.tier.device));
                eprintln!("ebbtide: {}", watch.change(health, errors));
            }
        };
        let thread = thread::Builder::new().name("flash-health".to_owned()).spawn(look).map_err(Error::Thread)?;
        Ok(Some(Self { stop: Some(stop), thread: Some(thread) }))
    }
}

impl Drop for HealthLog {
    fn drop(&mut self) {
        drop(self.stop.take());
        // If it has panicked it has said so, and the server did without.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn errors(device: &DeviceStats) -> u64 {
    device.reads.errors + device.writes.errors + device.sync_errors
}

/// What was said last.
struct Watch {
    paths: String,
    health: Health,
    /// When it was healthy.
    errors: u64,
}

impl Watch {
    fn new(paths: &[PathBuf]) -> Self {
        let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
        Self { paths: paths.join(", "), health: Health::Healthy, errors: 0 }
    }

    /// The line for another health, with as many errors as there were up to now.
    fn change(&mut self, health: Health, errors: u64) -> String {
        let cause = match errors - self.errors {
            0 => "nothing came back for seconds".to_owned(),
            more => format!("{more} reads, writes or syncs failed"),
        };
        self.health = health;
        if health == Health::Healthy {
            self.errors = errors;
        }
        let paths = &self.paths;
        match health {
            Health::Healthy => format!("flash is healthy again: {paths}: no error and no stall for a minute"),
            Health::Degraded => format!(
                "warning: flash is degraded: {paths}: {cause}; it is used on. Look at the system's log (dmesg) and at what the drive says \
                 of itself (smartctl)"
            ),
            Health::Failed => format!(
                "warning: flash has failed: {paths}: {cause}; it is not used any more, and all is served from memory. Look at the system's \
                 log (dmesg), replace the drive and restart"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_told_with_its_cause_and_where_to_look() {
        let mut watch = Watch::new(&["/mnt/a".into(), "/dev/b".into()]);
        for (health, errors, parts) in [
            (
                Health::Degraded,
                2,
                ["is degraded: /mnt/a, /dev/b: 2 reads, writes or syncs failed; it is used on", "dmesg"],
            ),
            (Health::Healthy, 2, ["is healthy again: /mnt/a, /dev/b", "for a minute"]),
            (Health::Degraded, 2, ["nothing came back for seconds", "smartctl"]),
            (Health::Failed, 9, ["has failed: /mnt/a, /dev/b: 7 reads", "replace the drive and restart"]),
            (Health::Healthy, 20, ["is healthy again", ""]),
            (Health::Degraded, 25, ["is degraded: /mnt/a, /dev/b: 5 reads", ""]),
            (Health::Failed, 25, ["has failed: /mnt/a, /dev/b: 5 reads", ""]),
        ] {
            let line = watch.change(health, errors);
            assert!(parts.iter().all(|part| line.contains(part)) && !line.contains('\n'), "{line}");
            assert_eq!(watch.health, health);
        }
    }
}
