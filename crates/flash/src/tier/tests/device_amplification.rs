//! The writes of the tier through a simulated drive: the drive writes at most the estimate.

use super::put;
use crate::device::{BLOCK, Device, DeviceMonitor, Direction, MemoryDevice, TransferRequest, page_amplification};
use crate::{Error, Tier, TierOptions};
use ebbtide_testkit::Ftl;
use std::sync::{Arc, Mutex};

/// A request for a page.
#[derive(Clone, Copy)]
enum Step {
    Write(u32),
    Discard(u32),
}

/// A device that remembers which pages are written and discarded.
struct RecordingDevice {
    device: MemoryDevice,
    steps: Mutex<Vec<Step>>,
}

impl RecordingDevice {
    fn record(&self, offset: u64, bytes: u64, step: impl Fn(u32) -> Step) {
        let block = BLOCK as u64;
        self.steps.lock().unwrap().extend((offset / block..(offset + bytes) / block).map(|page| step(page as u32)));
    }
}

impl Device for RecordingDevice {
    fn capacity(&self) -> u64 {
        self.device.capacity()
    }

    fn submit(&self, request: TransferRequest) -> Result<(), TransferRequest> {
        if request.direction == Direction::Write {
            self.record(request.offset, request.buffer.len() as u64, Step::Write);
        }
        self.device.submit(request)
    }

    fn wait_for_slot(&self) {
        self.device.wait_for_slot();
    }

    fn sync(&self) -> Result<(), Error> {
        self.device.sync()
    }

    fn discard(&self, offset: u64, bytes: u64) -> Result<(), Error> {
        self.record(offset, bytes, Step::Discard);
        self.device.discard(offset, bytes)
    }

    fn monitor(&self) -> &DeviceMonitor {
        self.device.monitor()
    }
}

const CAPACITY: usize = 32 << 20;

/// The writes of a tier whose contents are replaced several times, and the share of set pages in them.
fn recorded(discard: bool) -> (Vec<Step>, f64) {
    let device = Arc::new(RecordingDevice { device: MemoryDevice::new(CAPACITY), steps: Mutex::default() });
    let options = TierOptions {
        small_share: Some(0.5),
        memory_bytes: 3 << 20,
        discard,
        warm_restart: false,
        ..TierOptions::default()
    };
    let tier = Tier::on(Arc::clone(&device) as _, &options).unwrap();
    for number in 0..60_000_u64 {
        put(&tier, &number.to_le_bytes(), &[number as u8; 600], 1);
        if number.is_multiple_of(16) {
            put(&tier, &(number | 1 << 63).to_le_bytes(), &[number as u8; 9000], 1);
            tier.maintain(1);
        }
    }
    let written = tier.stats().written;
    let page_writes = written.small_pages as f64 / written.recurring() as f64;
    (std::mem::take(&mut *device.steps.lock().unwrap()), page_writes)
}

#[test]
fn a_simulated_drive_writes_at_most_its_estimate() {
    for discard in [false, true] {
        let (steps, page_writes) = recorded(discard);
        assert!((0.1..0.9).contains(&page_writes), "both kinds: {page_writes}");
        assert_eq!(steps.iter().any(|step| matches!(step, Step::Discard(_))), discard);
        for spare_percent in [7, 28, 50] {
            let mut drive = Ftl::new((CAPACITY / BLOCK) as u32, spare_percent, 64);
            for (number, step) in steps.iter().enumerate() {
                match *step {
                    Step::Write(page) => drive.write(page),
                    Step::Discard(page) => drive.discard(page),
                }
                if number == steps.len() / 2 {
                    drive.reset_counts();
                }
            }
            drive.verify();
            let in_pages = page_amplification(f64::from(spare_percent) / 100.0);
            let (found, estimate) = (drive.amplification(), (1.0 - page_writes) + page_writes * in_pages);
            println!("{spare_percent} % spare, discards {discard}: {found:.2} written, {estimate:.2} estimated");
            assert!((estimate / 2.0..estimate).contains(&found), "{spare_percent} %: {found}, not {estimate}");
        }
    }
}
