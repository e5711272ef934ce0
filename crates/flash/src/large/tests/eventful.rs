//! A device that calls the test at a chosen transfer.

use crate::Error;
use crate::device::{BLOCK, Device, DeviceMonitor, Direction, MemoryDevice, TransferRequest};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

type Event = Box<dyn FnOnce() + Send>;

/// A `MemoryDevice` that runs an event within one transfer, or when a region was marked as dead.
pub struct Eventful {
    memory: MemoryDevice,
    /// The kind of transfer, the number of them to skip, and the event.
    pub event: Mutex<Option<(Direction, usize, Event)>>,
    pub at_mark: Mutex<Option<Event>>,
    /// The queue has no space for writes of more than a block.
    pub is_busy: AtomicBool,
}

impl Eventful {
    pub fn new(bytes: usize) -> Arc<Self> {
        let memory = MemoryDevice::new(bytes);
        Arc::new(Self { memory, event: Mutex::default(), at_mark: Mutex::default(), is_busy: AtomicBool::new(false) })
    }

    pub fn at_next(&self, direction: Direction, event: impl FnOnce() + Send + 'static) {
        self.after(0, direction, event);
    }

    pub fn after(&self, transfers: usize, direction: Direction, event: impl FnOnce() + Send + 'static) {
        *self.event.lock().unwrap() = Some((direction, transfers, Box::new(event)));
    }
}

impl Device for Eventful {
    fn capacity(&self) -> u64 {
        self.memory.capacity()
    }

    fn submit(&self, request: TransferRequest) -> Result<(), TransferRequest> {
        let is_due = |event: &mut (Direction, usize, Event)| {
            let fits = event.0 == request.direction;
            let is_due = fits && event.1 == 0;
            event.1 -= usize::from(fits && !is_due);
            is_due
        };
        let event = self.event.lock().unwrap().take_if(is_due);
        if let Some((.., event)) = event {
            event();
        }
        let is_long = request.direction == Direction::Write && request.buffer.len() > BLOCK;
        if is_long && self.is_busy.load(Relaxed) {
            return Err(request);
        }
        let is_mark = request.direction == Direction::Write && request.buffer.len() == BLOCK;
        let submitted = self.memory.submit(request);
        if let Some(event) = is_mark.then(|| self.at_mark.lock().unwrap().take()).flatten() {
            event();
        }
        submitted
    }

    fn wait_for_slot(&self) {}

    fn monitor(&self) -> &DeviceMonitor {
        self.memory.monitor()
    }

    fn sync(&self) -> Result<(), Error> {
        Ok(())
    }

    fn discard(&self, _offset: u64, _bytes: u64) -> Result<(), Error> {
        Ok(())
    }
}
