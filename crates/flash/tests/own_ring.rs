//! Reads by a ring that a thread has of its own, on real files. Where the system has none, that is told.

use ebbtide_flash::device::{
    BLOCK, Buffer, Device, Direction, Disk, DiskOptions, Done, LEAST_ALONE, Outcome, Request, ThreadRing, read, write,
};
use ebbtide_testkit::Random;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{Write, stderr};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const BLOCKS: u64 = 64;
const DEPTH: usize = 16;
/// More than all reads need.
const TURNS: usize = 4000;
/// Longer than a read may take.
const PATIENCE: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

/// A block whose every word tells its number.
fn block(number: u64) -> Buffer {
    let mut buffer = Buffer::zeroed(BLOCK);
    buffer.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&number.to_le_bytes()));
    buffer
}

/// With a disk that is served, whose first blocks are numbered.
fn with_disk(test: impl FnOnce(&Arc<Disk>) + Send) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let options = DiskOptions { queue_depth: DEPTH, ..DiskOptions::default() };
    let disk = Arc::new(Disk::open(&[(folder.path().join("disk"), LEAST_ALONE)], &options).unwrap().disk);
    thread::scope(|scope| {
        let serving: Vec<_> = (0..disk.threads()).map(|_| scope.spawn(|| disk.serve())).collect();
        (0..BLOCKS).for_each(|number| drop(write(&*disk, number * BLOCK as u64, block(number)).unwrap()));
        let tested = scope.spawn(|| test(&disk)).join();
        disk.stop();
        serving.into_iter().for_each(|thread| thread.join().unwrap());
        tested.unwrap();
    });
    assert_eq!(disk.account().stats().under_way, 0);
}

fn own_ring(disk: &Arc<Disk>) -> Option<ThreadRing> {
    let ring = Arc::clone(disk).own_ring();
    if ring.is_none() {
        // Not by `eprintln`, which is shown for tests that fail.
        let _ = writeln!(stderr(), "not tested: a thread has no ring of its own here");
    }
    ring
}

fn request(number: u64, done: Done) -> Request {
    Request { direction: Direction::Read, offset: number * BLOCK as u64, buffer: Buffer::zeroed(BLOCK), done }
}

/// Sleeps until the ring has something to do.
fn sleep(ring: &ThreadRing) {
    let events = poll(&mut [PollFd::new(ring, PollFlags::IN)], Some(&PATIENCE)).unwrap();
    assert_eq!(events, 1, "nothing was completed");
    rustix::io::read(ring, &mut [0; 8]).unwrap();
}

#[test]
fn a_thread_moves_its_own_reads_beside_those_of_others() {
    with_disk(|disk| {
        let Some(ring) = own_ring(disk) else { return };
        assert!(Arc::clone(disk).own_ring().is_none(), "one a thread");
        let here = thread::current().id();
        let (sender, over) = channel();
        let submit = |number| {
            let sender = sender.clone();
            let done = Box::new(move |outcome: Outcome| {
                outcome.result.unwrap();
                assert_eq!(thread::current().id(), here);
                sender.send((number, outcome.buffer)).unwrap();
            });
            disk.submit_here(request(number, done))
        };
        thread::scope(|scope| {
            // They share the queue's depth with this one.
            scope.spawn(|| (0..200).for_each(|i| assert!(*read(&**disk, 0, block(i)).unwrap() == *block(0))));
            let mut random = Random::new(1);
            let (mut begun, mut ended) = (0, 0);
            while ended < 1000 {
                while begun < 1000 && submit(random.below(BLOCKS)).is_ok() {
                    begun += 1;
                }
                if ring.has_news() {
                    ring.turn();
                } else if begun > ended {
                    sleep(&ring);
                    ring.turn();
                }
                for (number, found) in over.try_iter() {
                    assert!(*found == *block(number), "block {number}");
                    ended += 1;
                }
            }
        });
    });
}

#[test]
fn a_completion_may_submit_to_the_ring_that_called_it() {
    fn chain(disk: &Arc<Disk>, left: u64, sender: Sender<u64>) {
        let next = Arc::clone(disk);
        let done: Done = Box::new(move |outcome| match left {
            0 => sender.send(u64::from_le_bytes(outcome.buffer[..8].try_into().unwrap())).unwrap(),
            _ => chain(&next, left - 1, sender),
        });
        assert!(disk.submit_here(request(left, done)).is_ok(), "the one before is over");
    }
    with_disk(|disk| {
        let Some(ring) = own_ring(disk) else { return };
        let (sender, over) = channel();
        chain(disk, BLOCKS - 1, sender);
        ring.turn();
        while over.try_recv() != Ok(0) {
            sleep(&ring);
            ring.turn();
        }
    });
}

#[test]
fn a_completion_that_panics_loses_no_other() {
    with_disk(|disk| {
        let Some(ring) = own_ring(disk) else { return };
        let outcomes = Arc::new(Mutex::new(0));
        for number in 0..DEPTH {
            let outcomes = Arc::clone(&outcomes);
            let done = Box::new(move |outcome: Outcome| {
                outcome.result.unwrap();
                *outcomes.lock().unwrap() += 1;
                // Not by `panic`, whose message would be shown.
                resume_unwind(Box::new("a completion"));
            });
            assert!(disk.submit_here(request(number as u64, done)).is_ok());
        }
        let mut panics = 0;
        for _ in 0..TURNS {
            panics += usize::from(catch_unwind(AssertUnwindSafe(|| ring.turn())).is_err());
            if panics == DEPTH {
                break;
            }
            // So that several are over at once.
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!((*outcomes.lock().unwrap(), panics), (DEPTH, DEPTH));
    });
}

#[test]
fn the_end_of_a_ring_and_of_its_disk_end_all_that_was_begun() {
    with_disk(|disk| {
        let Some(ring) = own_ring(disk) else { return };
        let outcomes = Arc::new(Mutex::new(Vec::new()));
        let submit = |number| {
            let outcomes = Arc::clone(&outcomes);
            let done = Box::new(move |outcome: Outcome| outcomes.lock().unwrap().push(outcome.result.is_ok()));
            disk.submit_here(request(number, done)).is_ok()
        };
        assert!((0..DEPTH as u64).all(submit) && !submit(0), "as many as the queue is deep");
        drop(ring);
        assert_eq!(*outcomes.lock().unwrap(), [true; DEPTH]);
        let Some(_ring) = own_ring(disk) else { panic!("the thread had one before") };
        disk.stop();
        assert!(submit(0));
        assert_eq!(outcomes.lock().unwrap().last(), Some(&false), "the disk has stopped");
    });
}
