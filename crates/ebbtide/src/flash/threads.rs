//! The threads of flash, and the end of a cache's flash with them.

use crate::clock::Clock;
use crate::flash::tier::FlashTier;
use ebbtide_flash::Error;
use ebbtide_flash::device::Device;
use std::cell::Cell;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long the end of a cache waits for threads that a device may keep, and how often it looks.
const MAX_THREAD_WAIT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_micros(200);
/// How long it waits until flash has what the next start must know: a hundredth of it may be written.
const MAX_CLOSE_WAIT: Duration = Duration::from_secs(30);

thread_local! {
    /// Whether the thread is one of flash, of any cache: such a one waits for no end, which may wait for it.
    static IS_FLASH_THREAD: Cell<bool> = const { Cell::new(false) };
}

fn spawn(name: String, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name).spawn(|| {
        IS_FLASH_THREAD.set(true);
        work();
    })
}

/// The threads that move a device's transfers on. They start before the tier does, which reads what flash holds. Dropping it stops the device and
/// ends them.
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
        self.threads.drain(..).for_each(|thread| end(thread, deadline));
    }
}

/// Those, and with the system's clock the thread of the upkeep. Dropping it leaves on flash what the next start must know, and ends them, so
/// that the device is free for whoever comes next.
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
        self.maintenance.take().into_iter().for_each(|thread| end(thread, Instant::now() + MAX_THREAD_WAIT));
        let flash = Arc::clone(&self.flash);
        if let Ok(closing) = thread::Builder::new().name("ebbtide-close".into()).spawn(move || flash.close_tier()) {
            end(closing, Instant::now() + MAX_CLOSE_WAIT);
        }
    }
}

/// Waits for the end of a thread, unless the device keeps it: then it ends when the device answers, if ever.
fn end(thread: JoinHandle<()>, deadline: Instant) {
    thread.thread().unpark();
    while !thread.is_finished() && Instant::now() < deadline {
        thread::sleep(POLL_INTERVAL);
    }
    if thread.is_finished() {
        thread.join().expect("a thread of flash has panicked");
    }
}

/// The end of a cache's flash, which more than one may ask for; without flash it does nothing.
#[derive(Default)]
pub(crate) struct FlashShutdown(Option<Arc<Shutdown>>);

struct Shutdown {
    flash: Arc<FlashTier>,
    stage: Mutex<Stage>,
    /// Nobody closes flash any more.
    closed: Condvar,
}

struct Stage {
    /// Until someone closes flash.
    threads: Option<FlashThreads>,
    /// Someone does so now, and lets go of the files if that is asked for meanwhile.
    is_closing: bool,
    /// The files are for others then.
    releases_files: bool,
}

impl FlashShutdown {
    pub fn of(threads: FlashThreads) -> Self {
        let flash = Arc::clone(&threads.flash);
        let stage = Mutex::new(Stage { threads: Some(threads), is_closing: false, releases_files: false });
        Self(Some(Arc::new(Shutdown { flash, stage, closed: Condvar::new() })))
    }

    /// Leaves on flash what the next start must know, once; what is being fetched is a miss. With the last clone of the cache nobody is left who
    /// changes anything: then others may have the files, though something may hold the cache for longer. Waits for whoever is at it already.
    pub fn close(&self, is_last: bool) {
        let Some(ending) = &self.0 else { return };
        let is_flash_thread = IS_FLASH_THREAD.get();
        match ending.begin(is_last) {
            Some(threads) => {
                let closing = ClosingGuard(Arc::clone(ending));
                let close = move || {
                    let _closing = closing;
                    drop(threads);
                };
                if is_flash_thread {
                    // Whoever answers a fetch may have the last clone.
                    drop(thread::Builder::new().name("ebbtide-end".into()).spawn(close));
                } else {
                    close();
                }
            }
            None if !is_flash_thread => {
                let most = 2 * MAX_THREAD_WAIT + MAX_CLOSE_WAIT;
                drop(ending.closed.wait_timeout_while(ending.stage(), most, |stage| stage.is_closing));
            }
            None => {}
        }
        ending.flash.cancel_reads();
    }
}

/// Of whoever closes flash: dropping it is the end of that, also if a thread of flash has panicked.
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
    /// The threads, if they have not ended; none at all while another one sees to it.
    fn begin(&self, is_last: bool) -> Option<Option<FlashThreads>> {
        let mut stage = self.stage();
        stage.releases_files |= is_last;
        let is_another_at_it = std::mem::replace(&mut stage.is_closing, true);
        (!is_another_at_it).then(|| stage.threads.take())
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().expect("nobody panics with it")
    }
}
