//! The threads of flash, and the end of a cache's flash with them.

use crate::hybrid::Hybrid;
use crate::time::Clock;
use ebbtide_flash::Error;
use ebbtide_flash::device::Device;
use std::cell::Cell;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long the end of a cache waits for threads that a device may keep, and how often it looks.
const END_MOST: Duration = Duration::from_secs(5);
const END_STEP: Duration = Duration::from_micros(200);
/// How long it waits until flash has what the next start must know: a hundredth of it may be written.
const CLOSE_MOST: Duration = Duration::from_secs(30);

thread_local! {
    /// Whether the thread is one of flash, of any cache: such a one waits for no end, which may wait for it.
    static IS_OF_FLASH: Cell<bool> = const { Cell::new(false) };
}

fn spawn(name: String, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name).spawn(|| {
        IS_OF_FLASH.set(true);
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
        let deadline = Instant::now() + END_MOST;
        self.threads.drain(..).for_each(|thread| end(thread, deadline));
    }
}

/// Those, and with the system's clock the thread of the upkeep. Dropping it leaves on flash what the next start must know, and ends them, so
/// that the device is free for whoever comes next.
pub(crate) struct FlashThreads {
    hybrid: Arc<Hybrid>,
    upkeep: Option<JoinHandle<()>>,
    _io: IoThreads,
}

impl FlashThreads {
    pub fn start(hybrid: &Arc<Hybrid>, io: IoThreads) -> io::Result<Self> {
        let mut started = Self { hybrid: Arc::clone(hybrid), upkeep: None, _io: io };
        if hybrid.clock == Clock::System {
            let hybrid = Arc::clone(hybrid);
            started.upkeep = Some(spawn("ebbtide-flash".into(), move || hybrid.keep_up())?);
        }
        Ok(started)
    }
}

impl Drop for FlashThreads {
    fn drop(&mut self) {
        self.hybrid.end_upkeep();
        self.upkeep.take().into_iter().for_each(|thread| end(thread, Instant::now() + END_MOST));
        let hybrid = Arc::clone(&self.hybrid);
        if let Ok(closing) = thread::Builder::new().name("ebbtide-close".into()).spawn(move || hybrid.close_tier()) {
            end(closing, Instant::now() + CLOSE_MOST);
        }
    }
}

/// Waits for the end of a thread, unless the device keeps it: then it ends when the device answers, if ever.
fn end(thread: JoinHandle<()>, deadline: Instant) {
    thread.thread().unpark();
    while !thread.is_finished() && Instant::now() < deadline {
        thread::sleep(END_STEP);
    }
    if thread.is_finished() {
        thread.join().expect("a thread of flash has panicked");
    }
}

/// The end of a cache's flash, which more than one may ask for; without flash it does nothing.
#[derive(Default)]
pub(crate) struct FlashEnd(Option<Arc<Ending>>);

struct Ending {
    hybrid: Arc<Hybrid>,
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
    lets_go: bool,
}

impl FlashEnd {
    pub fn of(threads: FlashThreads) -> Self {
        let hybrid = Arc::clone(&threads.hybrid);
        let stage = Mutex::new(Stage { threads: Some(threads), is_closing: false, lets_go: false });
        Self(Some(Arc::new(Ending { hybrid, stage, closed: Condvar::new() })))
    }

    /// Leaves on flash what the next start must know, once; what is being fetched is a miss. With the last clone of the cache nobody is left who
    /// changes anything: then others may have the files, though something may hold the cache for longer. Waits for whoever is at it already.
    pub fn close(&self, is_last: bool) {
        let Some(ending) = &self.0 else { return };
        let is_of_flash = IS_OF_FLASH.get();
        match ending.begin(is_last) {
            Some(threads) => {
                let closing = Closing(Arc::clone(ending));
                let close = move || {
                    let _closing = closing;
                    drop(threads);
                };
                if is_of_flash {
                    // Whoever answers a fetch may have the last clone.
                    drop(thread::Builder::new().name("ebbtide-end".into()).spawn(close));
                } else {
                    close();
                }
            }
            None if !is_of_flash => {
                let most = 2 * END_MOST + CLOSE_MOST;
                drop(ending.closed.wait_timeout_while(ending.stage(), most, |stage| stage.is_closing));
            }
            None => {}
        }
        ending.hybrid.give_fetches_up();
    }
}

/// Of whoever closes flash: dropping it is the end of that, also if a thread of flash has panicked.
struct Closing(Arc<Ending>);

impl Drop for Closing {
    fn drop(&mut self) {
        let mut stage = self.0.stage();
        stage.is_closing = false;
        if stage.lets_go {
            self.0.hybrid.tier.let_go();
        }
        self.0.closed.notify_all();
    }
}

impl Ending {
    /// The threads, if they have not ended; none at all while another one sees to it.
    fn begin(&self, is_last: bool) -> Option<Option<FlashThreads>> {
        let mut stage = self.stage();
        stage.lets_go |= is_last;
        let is_another_at_it = std::mem::replace(&mut stage.is_closing, true);
        (!is_another_at_it).then(|| stage.threads.take())
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().expect("nobody panics with it")
    }
}
