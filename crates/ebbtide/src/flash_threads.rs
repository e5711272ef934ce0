//! The threads that move a device's transfers on. They start before the tier does, which reads what flash holds.

use crate::hybrid::{END_MOST, end};
use ebbtide_flash::Error;
use ebbtide_flash::device::Device;
use std::sync::Arc;
use std::thread::{self, JoinHandle, Thread};
use std::time::Instant;

/// Dropping it stops the device and ends them.
pub(crate) struct IoThreads {
    device: Arc<dyn Device>,
    threads: Vec<JoinHandle<()>>,
}

impl IoThreads {
    pub fn start(device: Arc<dyn Device>) -> Result<Self, Error> {
        let mut started = Self { device, threads: Vec::new() };
        for number in 0..started.device.threads() {
            let device = Arc::clone(&started.device);
            let spawned = thread::Builder::new().name(format!("ebbtide-flash{number}")).spawn(move || device.serve());
            started.threads.push(spawned.map_err(|source| Error::Engine { source })?);
        }
        Ok(started)
    }

    pub fn threads(&self) -> impl Iterator<Item = &Thread> {
        self.threads.iter().map(JoinHandle::thread)
    }
}

impl Drop for IoThreads {
    fn drop(&mut self) {
        self.device.stop();
        let deadline = Instant::now() + END_MOST;
        self.threads.drain(..).for_each(|thread| end(thread, deadline));
    }
}
