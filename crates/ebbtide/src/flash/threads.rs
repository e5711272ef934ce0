//! The threads of flash, and the shutdown of a flash tier.
//!
//! A flash tier is shut down once, by `close_flash` or with the last handle of its cache. The first caller does it;
//! others wait for the end. A thread of any flash tier never waits: the shutdown may be waiting for that thread.

use crate::clock::{Clock, EngineClock};
use crate::flash::memory_split::MemorySplit;
use crate::flash::promotion::FlashPromotion;
use crate::flash::tier::{FlashTier, FlashWaits, seconds_of_flash};
use ebbtide_flash::device::Device;
use ebbtide_flash::{DeviceRuns, Error, Opening};
use std::cell::Cell;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long a shutdown waits for threads that the device may block, and how often it looks.
const MAX_THREAD_WAIT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_micros(200);
/// How long it waits for the writes that the next start needs: up to a hundredth of flash.
const MAX_CLOSE_WAIT: Duration = Duration::from_secs(30);

/// The longest shutdown.
pub(crate) const MAX_SHUTDOWN: Duration = Duration::from_secs(40);
const _: () = assert!(MAX_SHUTDOWN.as_secs() == 2 * MAX_THREAD_WAIT.as_secs() + MAX_CLOSE_WAIT.as_secs());

thread_local! {
    /// Whether the thread belongs to a flash tier of any cache: such a thread never waits for a shutdown.
    static IS_FLASH_THREAD: Cell<bool> = const { Cell::new(false) };
}

fn spawn(name: String, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name).spawn(|| {
        IS_FLASH_THREAD.set(true);
        work();
    })
}

/// The threads that complete a device's transfers. They start before the tier, which reads flash at its start. Dropping
/// them stops the device and ends them.
pub(crate) struct IoThreads {
    device: Arc<dyn Device>,
    threads: Vec<JoinHandle<()>>,
}

impl IoThreads {
    pub fn start(device: Arc<dyn Device>) -> Result<Self, Error> {
        let mut started = Self { device, threads: Vec::new() };
        for number in 0..started.device.threads() {
            let device = Arc::clone(&started.device);
            let spawned = spawn(format!("ebbtide-flash{number}"), move || device.serve());
            started.threads.push(spawned.map_err(|source| Error::Engine { source })?);
        }
        Ok(started)
    }
}

impl Drop for IoThreads {
    fn drop(&mut self) {
        self.device.stop();
        let deadline = Instant::now() + MAX_THREAD_WAIT;
        self.threads.drain(..).for_each(|thread| join(thread, deadline));
    }
}

/// Starts the I/O threads and the tier, with the objects on flash; waits for the device. `compare`: see
/// `Opening::start_beside`.
pub(crate) fn start_tier(
    opening: Opening,
    memory_split: MemorySplit,
    promotion: FlashPromotion,
    (clock, time): (Clock, &EngineClock),
    waits: FlashWaits,
    compare: impl FnOnce(DeviceRuns) -> Option<String>,
) -> Result<(Arc<FlashTier>, IoThreads), Error> {
    let io = IoThreads::start(opening.device())?;
    let now = seconds_of_flash(time.epoch_seconds(), time.now_ms());
    let started = opening.start_beside(now, compare)?;
    Ok((FlashTier::new(started, memory_split, promotion, (clock, time), waits), io))
}

/// The I/O threads, and with the system's clock the maintenance thread. Dropping them leaves on flash the state that
/// the next start needs, and ends them: then the device is free.
pub(crate) struct FlashThreads {
    flash: Arc<FlashTier>,
    maintenance: Option<JoinHandle<()>>,
    _io: IoThreads,
}

impl FlashThreads {
    pub fn start(flash: &Arc<FlashTier>, io: IoThreads) -> io::Result<Self> {
        let mut started = Self { flash: Arc::clone(flash), maintenance: None, _io: io };
        if flash.clock == Clock::System {
            let flash = Arc::clone(flash);
            started.maintenance = Some(spawn("ebbtide-flash".into(), move || flash.run_maintenance())?);
        }
        Ok(started)
    }
}

impl Drop for FlashThreads {
    fn drop(&mut self) {
        self.flash.stop_maintenance();
        self.maintenance.take().into_iter().for_each(|thread| join(thread, Instant::now() + MAX_THREAD_WAIT));
        let flash = Arc::clone(&self.flash);
        if let Ok(closing) = thread::Builder::new().name("ebbtide-close".into()).spawn(move || flash.close_tier()) {
            join(closing, Instant::now() + MAX_CLOSE_WAIT);
        }
    }
}

/// Waits for the end of a thread, unless the device blocks it: then it ends when the device answers, if ever.
fn join(thread: JoinHandle<()>, deadline: Instant) {
    thread.thread().unpark();
    while !thread.is_finished() && Instant::now() < deadline {
        thread::sleep(POLL_INTERVAL);
    }
    if thread.is_finished() {
        thread.join().expect("a thread of flash has panicked");
    }
}

/// The shutdown of a flash tier; without flash it does nothing.
#[derive(Default)]
pub(crate) struct FlashShutdown(Option<Arc<Shutdown>>);

struct Shutdown {
    flash: Arc<FlashTier>,
    stage: Mutex<Stage>,
    /// Signalled when a close has ended.
    closed: Condvar,
}

struct Stage {
    /// Until the first close.
    threads: Option<FlashThreads>,
    /// A close is running. It also releases the files if that was asked for meanwhile.
    is_closing: bool,
    /// Other caches may have the files afterwards.
    releases_files: bool,
}

impl FlashShutdown {
    pub fn of(threads: FlashThreads) -> Self {
        let flash = Arc::clone(&threads.flash);
        let stage = Mutex::new(Stage { threads: Some(threads), is_closing: false, releases_files: false });
        Self(Some(Arc::new(Shutdown { flash, stage, closed: Condvar::new() })))
    }

    /// Leaves on flash the state that the next start needs, once; pending reads are answered as misses. With the last
    /// handle of the cache (`is_last`) the files are released, though a thread may hold the engine for longer. Waits
    /// for a close that is running.
    pub fn close(&self, is_last: bool) {
        let Some(shutdown) = &self.0 else { return };
        let is_flash_thread = IS_FLASH_THREAD.get();
        match shutdown.start_close(is_last) {
            Some(threads) => {
                let closing = ClosingGuard(Arc::clone(shutdown));
                let close = move || {
                    let _closing = closing;
                    drop(threads);
                };
                if is_flash_thread {
                    // The callback of a read may drop the last handle.
                    drop(thread::Builder::new().name("ebbtide-end".into()).spawn(close));
                } else {
                    close();
                }
            }
            None if !is_flash_thread => {
                drop(shutdown.closed.wait_timeout_while(shutdown.stage(), MAX_SHUTDOWN, |stage| stage.is_closing));
            }
            None => {}
        }
        shutdown.flash.reads.cancel();
    }
}

/// Ends a close when it is dropped, also if a thread of flash has panicked.
struct ClosingGuard(Arc<Shutdown>);

impl Drop for ClosingGuard {
    fn drop(&mut self) {
        let mut stage = self.0.stage();
        stage.is_closing = false;
        if stage.releases_files {
            self.0.flash.tier.release();
        }
        self.0.closed.notify_all();
    }
}

impl Shutdown {
    /// The threads, for the first close. `None` while another close is running.
    fn start_close(&self, is_last: bool) -> Option<Option<FlashThreads>> {
        let mut stage = self.stage();
        stage.releases_files |= is_last;
        let is_running = std::mem::replace(&mut stage.is_closing, true);
        (!is_running).then(|| stage.threads.take())
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().expect("nobody panics with it")
    }
}
