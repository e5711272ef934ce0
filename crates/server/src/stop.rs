//! Stopping a server.

use std::sync::Arc;
use std::thread;

use crate::shared::Shared;

/// A server with one worker less would leave its connections hanging: better that it ends.
pub struct StopOnPanic(pub StopHandle);

impl Drop for StopOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.stop();
        }
    }
}

/// Stops a server: no new connections, no further commands, answers that are pending are sent.
#[derive(Clone)]
pub struct StopHandle {
    pub(crate) shared: Arc<Shared>,
}

impl StopHandle {
    /// Returns at once; the server's `run`, or `join`, returns when it has stopped. Any number of calls does.
    pub fn stop(&self) {
        self.shared.stop();
    }
}
