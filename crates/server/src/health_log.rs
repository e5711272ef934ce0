//! Reports on stderr when the flash device becomes worse or better, and when it was so far behind that objects were
//! lost.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ebbtide::flash::{DeviceStats, Health};
use ebbtide::message;

use crate::Error;
use crate::shared::Shared;

/// Interval of checks, which is that of the device's own health check.
const INTERVAL: Duration = Duration::from_secs(1);

/// Min interval between messages about lost objects.
const LOSSES_INTERVAL: Duration = Duration::from_secs(60);

/// The thread that checks; it ends when this is dropped.
pub struct HealthLog {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl HealthLog {
    /// Starts the thread; `None` without flash.
    pub fn start(shared: Arc<Shared>) -> Result<Option<Self>, Error> {
        if !shared.cache.has_flash() {
            return Ok(None);
        }
        let (stop, stopped) = mpsc::channel();
        let look = move || {
            let mut report = HealthReport::new(&shared.options.flash_paths);
            while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                let Some(tier) = shared.cache.flash_stats().map(|flash| flash.tier) else { continue };
                let lost = report.losses_line(tier.drops.behind, shared.uptime());
                let health_line = (tier.device.health != report.health)
                    .then(|| report.health_line(tier.device.health, errors(&tier.device)));
                for line in lost.into_iter().chain(health_line) {
                    message!("ebbtide: {line}");
                }
            }
        };
        let thread = thread::Builder::new().name("flash-health".to_owned()).spawn(look).map_err(Error::Thread)?;
        Ok(Some(Self { stop: Some(stop), thread: Some(thread) }))
    }
}

impl Drop for HealthLog {
    fn drop(&mut self) {
        drop(self.stop.take());
        // A panic of the thread has been printed already.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn errors(device: &DeviceStats) -> u64 {
    device.reads.errors + device.writes.errors + device.sync_errors
}

/// The state that was reported last.
struct HealthReport {
    paths: String,
    health: Health,
    /// Errors at the time of the last healthy report.
    errors: u64,
    /// Reported number of objects lost because the device was behind.
    lost: u64,
    /// Time of that report.
    losses_reported_at: Option<Duration>,
}

impl HealthReport {
    fn new(paths: &[PathBuf]) -> Self {
        let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
        Self { paths: paths.join(", "), health: Health::Healthy, errors: 0, lost: 0, losses_reported_at: None }
    }

    /// The message about lost objects; `lost` is their total, `uptime` the time since the start. Max one a minute.
    fn losses_line(&mut self, lost: u64, uptime: Duration) -> Option<String> {
        let more = lost - self.lost;
        let is_said = self.losses_reported_at.is_some_and(|said| uptime.saturating_sub(said) < LOSSES_INTERVAL);
        if more == 0 || is_said {
            return None;
        }
        (self.lost, self.losses_reported_at) = (lost, Some(uptime));
        let paths = &self.paths;
        Some(format!(
            "warning: flash is behind: {paths}: {more} evicted objects were lost, as it did not take them within \
             --flash-demotion-wait, or too many long values came at once; ebbtide_flash_drops_total counts them. Give \
             it less to write (--flash-admission) or more time"
        ))
    }

    /// The message about a change of health; `errors` is the total.
    fn health_line(&mut self, health: Health, errors: u64) -> String {
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
    fn losses_give_one_line_per_minute() {
        let mut report = HealthReport::new(&["/mnt/a".into()]);
        let mut line = |lost, seconds| report.losses_line(lost, Duration::from_secs(seconds));
        assert_eq!(line(0, 1), None);
        assert!(
            line(3, 2).is_some_and(|line| line.contains("/mnt/a: 3 evicted objects were lost") && !line.contains('\n'))
        );
        assert_eq!((line(7, 3), line(9, 61)), (None, None));
        assert!(line(10, 62).is_some_and(|line| line.contains(": 7 evicted objects")));
        assert_eq!((line(10, 200), line(11, 201).is_some()), (None, true));
    }

    #[test]
    fn each_change_names_its_cause_and_a_tool() {
        let mut report = HealthReport::new(&["/mnt/a".into(), "/dev/b".into()]);
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
            let line = report.health_line(health, errors);
            assert!(parts.iter().all(|part| line.contains(part)) && !line.contains('\n'), "{line}");
            assert_eq!(report.health, health);
        }
    }
}
