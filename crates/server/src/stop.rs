//! Stopping a server.

use std::sync::Arc;
use std::thread;

use crate::shared::Shared;

/// Stops the server when its thread panics: the connections of a lost worker would hang.
pub struct StopOnPanic(pub StopHandle);

impl Drop for StopOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.stop();
        }
    }
}

/// Stops a server: no new connections and no further commands; pending answers are sent.
#[derive(Clone)]
pub struct StopHandle {
    pub(crate) shared: Arc<Shared>,
}

impl StopHandle {
    /// Returns at once; the server's `run` or `join` returns when it has stopped. May be called several times.
    pub fn stop(&self) {
        self.shared.stop();
    }
}
