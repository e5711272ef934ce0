//! The thread that updates the profiles of a cache once a second, as the buffers of samples are short; with a manual
//! clock each maintenance does. It holds the engine weakly, and ends with it.

use crate::engine::Engine;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

const INTERVAL: Duration = Duration::from_secs(1);

impl Engine {
    pub fn update_profiles(&self) {
        if let Some(profiles) = self.profiles.get() {
            profiles.update(&self.pools.present(), self.pools.memory_bytes());
        }
    }
}

/// Starts the thread that updates the profiles.
pub(crate) fn start(engine: &Arc<Engine>) -> std::io::Result<()> {
    let weak = Arc::downgrade(engine);
    thread::Builder::new().name("ebbtide-profile".into()).spawn(move || update_often(&weak)).map(drop)
}

fn update_often(weak: &Weak<Engine>) {
    loop {
        thread::park_timeout(INTERVAL);
        let Some(engine) = weak.upgrade() else { return };
        engine.update_profiles();
    }
}
