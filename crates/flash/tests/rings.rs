//! Reads by rings of single threads, permanent or for a wait, on real files. Without support
//! in the kernel the tests print a message.

use ebbtide_flash::device::{
    BLOCK, BlockingRing, Buffer, Device, Direction, Disk, DiskOptions, MIN_SINGLE_PATH_BYTES, OnTransfer, ThreadRing,
    TransferOutcome, TransferRequest, read, write,
};
use ebbtide_testkit::{Random, repeat_after_stalls};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{Write, stderr};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const BLOCKS: u64 = 64;
const DEPTH: usize = 16;
/// Longer than a read may take.
const LONG: Duration = Duration::from_secs(60);
/// Less than the time after which the end of a ring abandons pending reads.
const MAX_ATTEMPT: Duration = Duration::from_millis(500);
const PATIENCE: Timespec = Timespec { tv_sec: LONG.as_secs() as i64, tv_nsec: 0 };

/// A block whose every word tells its number.
fn block(number: u64) -> Buffer {
    let mut buffer = Buffer::zeroed(BLOCK);
    buffer.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&number.to_le_bytes()));
    buffer
}

/// With a disk that is served, whose first blocks are numbered.
fn with_disk(test: impl FnOnce(&Arc<Disk>) + Send) {
    with_disk_of(DEPTH, test);
}

fn with_disk_of(queue_depth: usize, test: impl FnOnce(&Arc<Disk>) + Send) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let options = DiskOptions { queue_depth, ..DiskOptions::default() };
    let disk = Arc::new(Disk::open(&[(folder.path().join("disk"), MIN_SINGLE_PATH_BYTES)], &options).unwrap().disk);
    thread::scope(|scope| {
        let serving: Vec<_> = (0..disk.threads()).map(|_| scope.spawn(|| disk.serve())).collect();
        (0..BLOCKS).for_each(|number| drop(write(&*disk, number * BLOCK as u64, block(number)).unwrap()));
        let tested = scope.spawn(|| test(&disk)).join();
        disk.stop();
        serving.into_iter().for_each(|thread| thread.join().unwrap());
        tested.unwrap();
    });
    assert_eq!(disk.monitor().stats().under_way, 0);
}

fn thread_ring(disk: &Arc<Disk>) -> Option<ThreadRing> {
    told(Arc::clone(disk).thread_ring())
}

fn blocking_ring(disk: &Arc<Disk>) -> Option<BlockingRing> {
    told(Arc::clone(disk).blocking_ring())
}

fn told<R>(ring: Option<R>) -> Option<R> {
    if ring.is_none() {
        // Not by `eprintln`, which is shown for tests that fail.
        let _ = writeln!(stderr(), "not tested: a thread has no ring here");
    }
    ring
}

fn request(number: u64, done: OnTransfer) -> TransferRequest {
    TransferRequest { direction: Direction::Read, offset: number * BLOCK as u64, buffer: Buffer::zeroed(BLOCK), done }
}

/// Submits a read to the thread's ring, which tells whether it went well.
fn submit(disk: &Arc<Disk>, number: u64, over: &Sender<bool>) {
    let over = over.clone();
    let done = Box::new(move |outcome: TransferOutcome| over.send(outcome.result.is_ok()).unwrap());
    assert!(disk.submit_local(request(number, done)).is_ok());
}

/// Sleeps until the ring has something to do.
fn sleep(ring: &ThreadRing) {
    let events = poll(&mut [PollFd::new(ring, PollFlags::IN)], Some(&PATIENCE)).unwrap();
    assert_eq!(events, 1, "nothing was completed");
    rustix::io::read(ring, &mut [0; 8]).unwrap();
}

#[test]
fn a_thread_ring_completes_its_own_reads() {
    with_disk(|disk| {
        let Some(ring) = thread_ring(disk) else { return };
        assert!(Arc::clone(disk).thread_ring().is_none(), "one a thread");
        let here = thread::current().id();
        let (sender, over) = channel();
        let submit = |number| {
            let sender = sender.clone();
            let done = Box::new(move |outcome: TransferOutcome| {
                outcome.result.unwrap();
                assert_eq!(thread::current().id(), here);
                sender.send((number, outcome.buffer)).unwrap();
            });
            disk.submit_local(request(number, done))
        };
        thread::scope(|scope| {
            // They share the queue's depth with this one.
            scope.spawn(|| (0..200).for_each(|i| assert!(*read(&**disk, 0, block(i)).unwrap() == *block(0))));
            let mut random = Random::new(1);
            let (mut started, mut ended) = (0, 0);
            while ended < 1000 {
                while started < 1000 && submit(random.uniform(BLOCKS)).is_ok() {
                    started += 1;
                }
                if ring.has_completions() {
                    ring.turn();
                } else if started > ended {
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
fn the_device_starts_reads_before_a_turn() {
    with_disk(|disk| {
        let Some(ring) = thread_ring(disk) else { return };
        let (sender, over) = channel();
        let submit = |number| submit(disk, number, &sender);
        submit(0);
        submit(1);
        assert!(ring.has_completions(), "two reads are not worth an entry into the kernel");
        submit(2);
        assert!(!ring.has_completions());
        // Without a turn before.
        sleep(&ring);
        assert_eq!(over.try_iter().count(), 0, "completions are called in a turn");
        submit(3);
        let mut ended = 0;
        while ended < 4 {
            ring.turn();
            ended += over.try_iter().inspect(|is_well| assert!(is_well)).count();
            if ended < 4 {
                sleep(&ring);
            }
        }
    });
}

/// The kernel hands over a few at a time, and tells only of those that come. A read of a slow disk may be over between
/// the turn and the look: then the attempt is repeated.
#[test]
fn one_turn_ends_all_that_is_over() {
    const ATTEMPTS: usize = 20;
    let ends_all = (0..ATTEMPTS).any(|_| turns_end_all());
    assert!(ends_all, "something is due after a turn, in each of {ATTEMPTS} attempts");
}

/// Whether nothing was due after each turn.
fn turns_end_all() -> bool {
    const READS: usize = 64;
    let ends_all = AtomicBool::new(true);
    with_disk_of(READS, |disk| {
        let Some(ring) = thread_ring(disk) else { return };
        let (sender, over) = channel();
        for number in 0..READS as u64 {
            submit(disk, number, &sender);
        }
        while disk.monitor().stats().reads.transfers < READS as u64 {
            sleep(&ring);
            // All that are under way are over by then, as good as always.
            thread::sleep(Duration::from_millis(200));
            ring.turn();
            if ring.is_due() {
                ends_all.store(false, Ordering::Relaxed);
                ring.turn();
            }
        }
        assert!(!ring.is_reading());
        assert_eq!(over.try_iter().filter(|is_well| *is_well).count(), READS);
    });
    ends_all.into_inner()
}

/// A submission of other reads makes the kernel post its completions: their event may have been seen before.
#[test]
fn completions_reaped_by_a_submission_are_due() {
    with_disk(|disk| {
        let Some(ring) = thread_ring(disk) else { return };
        let (sender, over) = channel();
        let submit = |number| submit(disk, number, &sender);
        let mut seen = 0;
        for _ in 0..50 {
            submit(0);
            ring.turn();
            sleep(&ring);
            // A fast device is done within the turn.
            let mut ended = over.try_iter().count();
            // The event may have been of the round before: the device may not be done.
            let deadline = Instant::now() + LONG;
            while ended == 0 && !ring.is_due() {
                assert!(Instant::now() < deadline, "nothing was completed");
                thread::sleep(Duration::from_micros(100));
            }
            (1..4).for_each(submit);
            if ended == 0 {
                seen += 1;
                assert!(!ring.has_completions() && ring.is_due());
            }
            while ended < 4 {
                ring.turn();
                ended += over.try_iter().inspect(|is_well| assert!(is_well)).count();
            }
            assert!(!ring.is_due() && !ring.is_reading());
        }
        if seen == 0 {
            let _ = writeln!(stderr(), "not tested: the device is done within each turn");
        }
    });
}

#[test]
fn completions_may_submit_to_their_ring() {
    fn chain(disk: &Arc<Disk>, left: u64, sender: Sender<u64>) {
        let next = Arc::clone(disk);
        let done: OnTransfer = Box::new(move |outcome| match left {
            0 => sender.send(u64::from_le_bytes(outcome.buffer[..8].try_into().unwrap())).unwrap(),
            _ => chain(&next, left - 1, sender),
        });
        assert!(disk.submit_local(request(left, done)).is_ok(), "the one before is over");
    }
    with_disk(|disk| {
        let Some(ring) = thread_ring(disk) else { return };
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
        let Some(ring) = thread_ring(disk) else { return };
        let outcomes = Arc::new(Mutex::new(0));
        for number in 0..DEPTH {
            let outcomes = Arc::clone(&outcomes);
            let done = Box::new(move |outcome: TransferOutcome| {
                outcome.result.unwrap();
                *outcomes.lock().unwrap() += 1;
                // Not by `panic`, whose message would be shown.
                resume_unwind(Box::new("a completion"));
            });
            assert!(disk.submit_local(request(number as u64, done)).is_ok());
        }
        let mut panics = 0;
        let deadline = Instant::now() + LONG;
        while panics < DEPTH && Instant::now() < deadline {
            panics += usize::from(catch_unwind(AssertUnwindSafe(|| ring.turn())).is_err());
            // So that several are over at once.
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!((*outcomes.lock().unwrap(), panics), (DEPTH, DEPTH));
    });
}

#[test]
fn dropping_a_ring_completes_its_started_reads() {
    let attempt = |disk: &Arc<Disk>| {
        let Some(ring) = thread_ring(disk) else { return };
        let outcomes = Arc::new(Mutex::new(Vec::new()));
        let submit = |number| {
            let outcomes = Arc::clone(&outcomes);
            let done = Box::new(move |outcome: TransferOutcome| outcomes.lock().unwrap().push(outcome.result.is_ok()));
            disk.submit_local(request(number, done)).is_ok()
        };
        assert!((0..DEPTH as u64).all(submit) && !submit(0), "as many as the queue is deep");
        drop(ring);
        assert_eq!(*outcomes.lock().unwrap(), [true; DEPTH]);
        let Some(_ring) = thread_ring(disk) else { panic!("the thread had one before") };
        disk.stop();
        assert!(submit(0));
        assert_eq!(outcomes.lock().unwrap().last(), Some(&false), "the disk has stopped");
    };
    repeat_after_stalls(MAX_ATTEMPT, || with_disk(attempt));
}

/// Waits until nothing is under way.
fn wait_for_all(ring: &mut BlockingRing) {
    while !ring.is_empty() {
        assert!(ring.wait(LONG), "nothing was completed");
    }
}

#[test]
fn waiting_threads_complete_reads_and_pass_rings_on() {
    with_disk(|disk| {
        let run = |seed| {
            let here = thread::current().id();
            let mut random = Random::new(seed);
            for _ in 0..200 {
                let Some(mut ring) = blocking_ring(disk) else { return };
                assert!(
                    Arc::clone(disk).blocking_ring().is_none() && Arc::clone(disk).thread_ring().is_none(),
                    "one a thread"
                );
                let (sender, over) = channel();
                let numbers: Vec<u64> = (0..3).map(|_| random.uniform(BLOCKS)).collect();
                for &number in &numbers {
                    let sender = sender.clone();
                    let done = Box::new(move |outcome: TransferOutcome| {
                        outcome.result.unwrap();
                        assert_eq!(thread::current().id(), here);
                        sender.send((number, outcome.buffer)).unwrap();
                    });
                    assert!(disk.submit_local(request(number, done)).is_ok(), "the queue is deep enough");
                }
                drop(sender);
                wait_for_all(&mut ring);
                let mut found: Vec<u64> = over
                    .iter()
                    .map(|(number, found)| {
                        assert!(*found == *block(number), "block {number}");
                        number
                    })
                    .collect();
                found.sort_unstable();
                let mut asked = numbers;
                asked.sort_unstable();
                assert_eq!(found, asked);
            }
        };
        thread::scope(|scope| (0..5).for_each(|seed| _ = scope.spawn(move || run(seed))));
    });
}

#[test]
fn reads_beyond_a_waiting_ring_use_the_disk() {
    with_disk_of(128, |disk| {
        let Some(mut ring) = blocking_ring(disk) else { return };
        let here = thread::current().id();
        let (sender, over) = channel();
        for number in 0..BLOCKS {
            let (sender, next) = (sender.clone(), Arc::clone(disk));
            let done: OnTransfer = Box::new(move |outcome| {
                outcome.result.unwrap();
                sender.send((true, thread::current().id() == here)).unwrap();
                let again: OnTransfer = Box::new(move |outcome| {
                    assert!(*outcome.buffer == *block(number));
                    sender.send((false, thread::current().id() == here)).unwrap();
                });
                assert!(next.submit_local(request(number, again)).is_ok());
            });
            assert!(disk.submit_local(request(number, done)).is_ok());
        }
        drop(sender);
        wait_for_all(&mut ring);
        drop(ring);
        let mut here_first = 0;
        for (is_first, is_here) in over {
            assert!(is_first || !is_here, "what completions submit is not waited for");
            here_first += usize::from(is_first && is_here);
        }
        assert_eq!(here_first, 32, "as many as the ring takes");
    });
}

#[test]
fn dropping_a_waiting_ring_completes_its_reads() {
    let attempt = |disk: &Arc<Disk>| {
        let Some(ring) = blocking_ring(disk) else { return };
        let (sender, over) = channel();
        for number in 0..DEPTH as u64 {
            let sender = sender.clone();
            let done = Box::new(move |outcome: TransferOutcome| sender.send(outcome.result.is_ok()).unwrap());
            assert!(disk.submit_local(request(number, done)).is_ok());
        }
        drop((sender, ring));
        assert_eq!(over.iter().collect::<Vec<_>>(), [true; DEPTH]);
        assert!(blocking_ring(disk).is_some(), "the thread may have another");
    };
    repeat_after_stalls(MAX_ATTEMPT, || with_disk(attempt));
}

#[test]
fn a_panic_during_a_wait_loses_no_completion() {
    with_disk(|disk| {
        let Some(mut ring) = blocking_ring(disk) else { return };
        let (sender, over) = channel();
        for number in 0..DEPTH as u64 {
            let sender = sender.clone();
            let done = Box::new(move |outcome: TransferOutcome| {
                sender.send(outcome.result.is_ok()).unwrap();
                // Not by `panic`, whose message would be shown.
                resume_unwind(Box::new("a completion"));
            });
            assert!(disk.submit_local(request(number, done)).is_ok());
        }
        drop(sender);
        let panics = (0..DEPTH).filter(|_| catch_unwind(AssertUnwindSafe(|| ring.wait(LONG))).is_err()).count();
        assert_eq!((panics, ring.is_empty()), (DEPTH, true));
        assert_eq!(over.iter().collect::<Vec<_>>(), [true; DEPTH]);
    });
}

/// Sends whether a read went well, and panics.
fn panicking(sender: &Sender<bool>) -> OnTransfer {
    let sender = sender.clone();
    Box::new(move |outcome: TransferOutcome| {
        sender.send(outcome.result.is_ok()).unwrap();
        // Not by `panic`, whose message would be shown.
        resume_unwind(Box::new("a completion"));
    })
}

#[test]
fn a_panic_during_a_drop_loses_no_completion() {
    with_disk(|disk| {
        // Requests that have not started, and completions that have not been delivered.
        for has_started in [false, true] {
            let Some(mut ring) = blocking_ring(disk) else { return };
            let (sender, over) = channel();
            for number in 0..DEPTH as u64 {
                assert!(disk.submit_local(request(number, panicking(&sender))).is_ok());
            }
            drop(sender);
            if has_started {
                assert!(catch_unwind(AssertUnwindSafe(|| ring.wait(LONG))).is_err());
            }
            assert!(catch_unwind(AssertUnwindSafe(|| drop(ring))).is_err());
            assert_eq!(over.iter().count(), DEPTH);
        }
        let Some(ring) = thread_ring(disk) else { return };
        let (sender, over) = channel();
        for number in 0..DEPTH as u64 {
            assert!(disk.submit_local(request(number, panicking(&sender))).is_ok());
        }
        drop(sender);
        assert!(catch_unwind(AssertUnwindSafe(|| drop(ring))).is_err());
        assert_eq!(over.iter().count(), DEPTH);
    });
}

#[test]
fn panics_during_unwinding_of_a_ring_are_caught() {
    with_disk(|disk| {
        let (sender, over) = channel();
        let waits = || {
            let Some(_ring) = blocking_ring(disk) else { return false };
            for number in 0..DEPTH as u64 {
                assert!(disk.submit_local(request(number, panicking(&sender))).is_ok());
            }
            resume_unwind(Box::new("who waits"));
        };
        let is_tested = catch_unwind(AssertUnwindSafe(waits)).is_err();
        drop(sender);
        assert_eq!(over.iter().count(), if is_tested { DEPTH } else { 0 });
    });
}
