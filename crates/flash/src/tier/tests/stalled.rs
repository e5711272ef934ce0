//! A device that does not answer.

use super::{get, put, tier_on};
use crate::Error;
use crate::device::{Account, BLOCK, Buffer, Delivery, Device, Direction, Faults, Faulty, Health, Request, read};
use std::sync::Arc;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

/// Takes reads and never ends them, from when it holds them.
struct Stalled {
    device: Faulty,
    held: Mutex<Option<Vec<Request>>>,
}

impl Stalled {
    fn held(&self) -> usize {
        self.held.lock().unwrap().as_ref().map_or(0, Vec::len)
    }
}

impl Device for Stalled {
    fn capacity(&self) -> u64 {
        self.device.capacity()
    }

    fn submit(&self, request: Request) -> Result<(), Request> {
        match (&mut *self.held.lock().unwrap(), request.direction) {
            (Some(held), Direction::Read) => held.push(request),
            _ => return self.device.submit(request),
        }
        Ok(())
    }

    fn wait_for_room(&self) {}

    fn sync(&self) -> Result<(), Error> {
        self.device.sync()
    }

    fn discard(&self, _offset: u64, _bytes: u64) -> Result<(), Error> {
        Ok(())
    }

    fn account(&self) -> &Account {
        self.device.account()
    }
}

#[test]
fn who_waits_for_a_device_that_failed_is_let_go() {
    let device = Arc::new(Stalled { device: Faulty::new(8 << 20, 1, Delivery::AtOnce), held: Mutex::new(None) });
    let tier = tier_on(Arc::clone(&device) as Arc<dyn Device>);
    for i in 0..700u32 {
        put(&tier, &i.to_le_bytes(), &[1; 5000], 1).unwrap();
        tier.maintain(1);
    }
    *device.held.lock().unwrap() = Some(Vec::new());
    let waiting = thread::spawn({
        let tier = Arc::clone(&tier);
        move || (0..700u32).find(|i| get(&tier, &i.to_le_bytes(), 1).is_none())
    });
    let deadline = Instant::now() + Duration::from_secs(60);
    while device.held() == 0 && Instant::now() < deadline {
        thread::yield_now();
    }
    device.device.set(Faults { read_errors: 1, ..Faults::default() });
    while device.account().observe(Instant::now()) != Health::Failed {
        assert!(read(&device.device, 0, Buffer::zeroed(BLOCK)).is_err() && Instant::now() < deadline);
    }
    while !waiting.is_finished() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(10));
    }
    assert!(waiting.is_finished(), "it waits for ever");
    assert!(waiting.join().unwrap().is_some(), "what the device keeps is a miss");
}
