//! Epoch protection: readers pin, and memory that they may read is not reused until a grace period is over.
//!
//! A reader pins by writing the current epoch into its cell, and unpins by writing zero. A thread that has unlinked
//! something takes a ticket (the epoch, which is then incremented) and may reuse the memory once no cell holds an epoch
//! at most equal to the ticket. The race to exclude is store-buffering: the reader writes its cell and then reads the
//! index, the retirer writes the index and then reads the cells; at least one must see the other. That needs a full
//! fence on both sides. The expensive half is on the rare side: the reader has a compiler fence only, and the retirer
//! makes every thread of the process execute a barrier (membarrier, private expedited). If the system refuses
//! membarrier, the reader executes a fence.
//!
//! A change of the store uses the same race: the writer sets its cell and then reads whether changes are refused, the
//! closer refuses changes and then reads the cells. A change that was not refused is seen, and the closer waits for its
//! end.
//!
//! A reader that wrote an older epoch than it could have read only delays reuse. A pin must not be held across a system
//! call that can block, nor while the thread waits for a free segment.

use crate::pause_point::{PausePoint, pause_point};
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering, Padded, fence, lock};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

/// The cell of an unpinned thread.
const UNPINNED: u64 = 0;

/// The readers of one store, and its epoch.
pub struct Domain {
    epoch: AtomicU64,
    readers: Mutex<Readers>,
    /// Whether only the retirer executes the fence.
    asymmetric: bool,
    /// A fence was executed after every ticket lower than this was taken. One thread at a time makes a fence; others
    /// that come meanwhile share the next.
    fenced: AtomicU64,
    fencing: Mutex<()>,
    /// Whether changes are refused, for good.
    refuses_changes: AtomicBool,
    #[cfg(loom)]
    fences: AtomicU64,
}

/// The participants.
#[derive(Default)]
struct Readers {
    /// The cell of the participant with number `n` is at `n - 1`; `None` if that thread has left.
    cells: Vec<Option<Arc<ReaderCell>>>,
    /// The number of participants ever.
    joined: u64,
}

/// The state of a reader that the retirer reads.
#[derive(Default)]
struct ReaderCell {
    epoch: Padded<AtomicU64>,
    /// 1 while the thread changes the store. The closer reads it.
    changing: Padded<AtomicU64>,
}

/// The time of an unlinking; the unlinked memory is free when every pin is younger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

impl Domain {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            epoch: AtomicU64::new(UNPINNED + 1),
            readers: Mutex::new(Readers::default()),
            asymmetric: barrier::register(),
            fenced: AtomicU64::new(UNPINNED),
            fencing: Mutex::new(()),
            refuses_changes: AtomicBool::new(false),
            #[cfg(loom)]
            fences: AtomicU64::new(0),
        })
    }

    /// Registers the calling thread as a reader. It gets the smallest unused number: numbers are bounded by the
    /// threads, and two present participants have different ones.
    pub fn participate(self: &Arc<Self>) -> Participant {
        let cell = Arc::new(ReaderCell::default());
        let mut readers = lock(&self.readers);
        let free = readers.cells.iter().position(Option::is_none);
        let at = free.unwrap_or(readers.cells.len());
        if free.is_none() {
            readers.cells.push(None);
        }
        readers.cells[at] = Some(Arc::clone(&cell));
        readers.joined += 1;
        let (number, joined) = (at + 1, readers.joined);
        drop(readers);
        Participant(Rc::new(Reader {
            domain: Arc::clone(self),
            cell,
            number,
            depth: Cell::new(0),
            changes: Cell::new(0),
            // Not from the participant's number: short-lived threads would all draw the same.
            random: Cell::new(0x5851_F42D_4C95_7F2D_u64.wrapping_mul(2 * joined + 1)),
        }))
    }

    /// A ticket for memory that was unlinked before this call.
    pub fn retire(&self) -> Ticket {
        // Release pairs with the Acquire in `pin`: a reader that pins a later epoch, which does not hold the ticket
        // back, sees the unlinking. The barrier in `fence_after` is for readers that pin this epoch or an older one.
        Ticket(self.epoch.fetch_add(1, Ordering::Release))
    }

    /// Refuses changes that begin from now on.
    pub fn refuse_changes(&self) {
        // Release pairs with the Acquire in `begin_change`: for changes that begin after the fence of `has_changes`.
        self.refuses_changes.store(true, Ordering::Release);
    }

    pub fn has_refused_changes(&self) -> bool {
        self.refuses_changes.load(Ordering::Relaxed)
    }

    /// After `refuse_changes`: whether a change may be in progress. False stays false.
    pub fn has_changes(&self) -> bool {
        if !self.asymmetric {
            self.fence();
        } else if !barrier::all_threads() {
            return true;
        }
        // Acquire pairs with the Release at the end of a change, for its writes.
        lock(&self.readers).cells.iter().flatten().any(|cell| cell.changing.load(Ordering::Acquire) != 0)
    }

    fn fence(&self) {
        // Loom tries all orders of accesses to a word, but not of fences: this word orders them.
        #[cfg(loom)]
        self.fences.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Memory with a lower ticket than the answer is free. Executes a fence for `youngest`, unless there was one.
    pub fn safe_below(&self, youngest: Ticket) -> Ticket {
        let fenced = self.fence_after(youngest);
        let readers = lock(&self.readers);
        // Acquire pairs with the Release of the unpin: the last read of the reader.
        let epochs = readers.cells.iter().flatten().map(|cell| cell.epoch.load(Ordering::Acquire));
        let pinned = epochs.filter(|epoch| *epoch != UNPINNED);
        Ticket(pinned.min().map_or(fenced, |oldest| oldest.min(fenced)))
    }

    /// Executes a fence after this ticket was taken, if possible. Returns the ticket up to which fences were executed.
    fn fence_after(&self, ticket: Ticket) -> u64 {
        // Acquire pairs with the Release at the end: the reads of the cells come after the fence.
        let fenced = || self.fenced.load(Ordering::Acquire);
        if ticket.0 < fenced() {
            return fenced();
        }
        let _fencing = lock(&self.fencing);
        if ticket.0 < fenced() {
            return fenced();
        }
        // Acquire pairs with the Release in `retire`: the unlinking comes before the fence.
        let epoch = self.epoch.load(Ordering::Acquire);
        if !self.asymmetric {
            self.fence();
        } else if !barrier::all_threads() {
            return fenced();
        }
        self.fenced.store(epoch, Ordering::Release);
        epoch
    }
}

/// A thread's membership in a domain: cheap to clone, and bound to the thread.
#[derive(Clone)]
pub struct Participant(Rc<Reader>);

struct Reader {
    domain: Arc<Domain>,
    cell: Arc<ReaderCell>,
    number: usize,
    depth: Cell<u32>,
    changes: Cell<u32>,
    random: Cell<u64>,
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut readers = lock(&self.domain.readers);
        readers.cells[self.number - 1] = None;
        while readers.cells.pop_if(|last| last.is_none()).is_some() {}
    }
}

impl Participant {
    /// Protects everything that the thread reads until the pin is dropped. Pins nest.
    #[inline(always)]
    pub fn pin(&self) -> Pin {
        let reader = &*self.0;
        let depth = reader.depth.get();
        if depth == 0 {
            // Pairs with the Release in `retire`.
            let epoch = reader.domain.epoch.load(Ordering::Acquire);
            // Release pairs with the Acquire in `safe_below`, because this store replaces that of the unpin before it.
            reader.cell.epoch.store(epoch, Ordering::Release);
            // Pairs with the barrier in `fence_after`.
            if reader.domain.asymmetric {
                barrier::this_thread();
            } else {
                reader.domain.fence();
            }
        }
        reader.depth.set(depth + 1);
        pause_point(PausePoint::Pin);
        Pin(self.clone())
    }

    /// Begins a change of the store, which lasts until the answer is dropped. `None` after `refuse_changes`. Changes
    /// nest. A thread that waits without a bound in time must not be in one.
    #[inline(always)]
    pub fn begin_change(&self) -> Option<ChangeGuard<'_>> {
        let reader = &*self.0;
        let depth = reader.changes.get();
        if depth == 0 {
            reader.cell.changing.store(1, Ordering::Relaxed);
            // Pairs with the fence in `has_changes`.
            if reader.domain.asymmetric {
                barrier::this_thread();
            } else {
                reader.domain.fence();
            }
            // Acquire pairs with the Release in `refuse_changes`.
            if reader.domain.refuses_changes.load(Ordering::Acquire) {
                reader.cell.changing.store(0, Ordering::Release);
                return None;
            }
        }
        reader.changes.set(depth + 1);
        Some(ChangeGuard(reader))
    }

    /// Whether this thread holds a pin.
    pub fn is_pinned(&self) -> bool {
        self.0.depth.get() > 0
    }

    /// A small unique number, to spread threads over stripes.
    #[inline(always)]
    pub fn number(&self) -> usize {
        self.0.number
    }

    /// A uniform random number: the high half of a linear congruential generator modulo 2^64 (Knuth's MMIX), whose low
    /// bits are poor.
    #[inline(always)]
    pub fn random(&self) -> u32 {
        let next = self.0.random.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0.random.set(next);
        (next >> 32) as u32
    }
}

/// A change of the store in progress.
pub struct ChangeGuard<'p>(&'p Reader);

impl Drop for ChangeGuard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        let depth = self.0.changes.get() - 1;
        self.0.changes.set(depth);
        if depth == 0 {
            // Pairs with the Acquire in `has_changes`.
            self.0.cell.changing.store(0, Ordering::Release);
        }
    }
}

/// As long as it exists, no memory that its thread can reach is reused.
pub struct Pin(Participant);

impl Clone for Pin {
    fn clone(&self) -> Self {
        self.0.pin()
    }
}

impl Drop for Pin {
    #[inline(always)]
    fn drop(&mut self) {
        let reader = &*self.0.0;
        let depth = reader.depth.get() - 1;
        reader.depth.set(depth);
        if depth == 0 {
            // Pairs with the Acquire in `safe_below`.
            reader.cell.epoch.store(UNPINNED, Ordering::Release);
        }
    }
}

#[cfg(all(target_os = "linux", not(loom)))]
mod barrier {
    use std::sync::atomic::{Ordering, compiler_fence};

    /// Registers the process for private expedited barriers. False if the system refuses.
    pub fn register() -> bool {
        membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) && all_threads()
    }

    /// Makes every running thread of the process execute a full barrier.
    pub fn all_threads() -> bool {
        membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)
    }

    #[inline(always)]
    pub fn this_thread() {
        compiler_fence(Ordering::SeqCst);
    }

    fn membarrier(command: libc::c_int) -> bool {
        // SAFETY: membarrier takes numbers only.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
    }
}

#[cfg(any(not(target_os = "linux"), loom))]
mod barrier {
    pub fn register() -> bool {
        false
    }

    pub fn all_threads() -> bool {
        false
    }

    pub fn this_thread() {
        unreachable!("without barriers of all threads, a reader fences itself");
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_pin_delays_later_retirements() {
        let domain = Domain::new();
        let participant = domain.participate();
        let before = domain.retire();
        let pin = participant.pin();
        let nested = participant.pin();
        let after = domain.retire();
        assert!(before < domain.safe_below(after), "retired before the pin");
        assert!(after >= domain.safe_below(after), "retired under the pin");
        drop(pin);
        assert!(after >= domain.safe_below(after) && participant.is_pinned(), "pins nest");
        drop(nested);
        assert!(after < domain.safe_below(after) && !participant.is_pinned());
    }

    #[test]
    fn a_reader_that_leaves_holds_nothing_back() {
        let domain = Domain::new();
        let participant = domain.participate();
        let pin = participant.pin();
        drop(participant);
        let ticket = domain.retire();
        assert!(ticket >= domain.safe_below(ticket));
        drop(pin);
        assert!(ticket < domain.safe_below(ticket));
        assert!(lock(&domain.readers).cells.is_empty());
    }

    #[test]
    fn changes_end_before_a_store_is_quiet() {
        let domain = Domain::new();
        let participant = domain.participate();
        let change = participant.begin_change().unwrap();
        domain.refuse_changes();
        let nested = participant.begin_change().expect("part of the one in progress");
        assert!(domain.has_changes());
        drop(nested);
        assert!(domain.has_changes());
        drop(change);
        assert!(!domain.has_changes() && participant.begin_change().is_none());
        assert!(!domain.has_changes(), "a refused change is none");
    }

    #[test]
    fn participants_at_the_same_time_share_no_number() {
        let domain = Domain::new();
        let mut all: Vec<_> = (0..5).map(|_| domain.participate()).collect();
        all.swap_remove(1);
        all.swap_remove(2);
        all.extend((0..3).map(|_| domain.participate()));
        let mut numbers: Vec<_> = all.iter().map(Participant::number).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn short_lived_threads_draw_different_numbers() {
        let domain = Domain::new();
        let draws: std::collections::HashSet<_> = (0..100).map(|_| domain.participate().random()).collect();
        assert!(draws.len() > 95, "{} of 100 differ", draws.len());
    }

    #[test]
    fn a_fence_covers_earlier_retirements_only() {
        let domain = Domain::new();
        let (first, second) = (domain.retire(), domain.retire());
        assert!(second < domain.safe_below(first), "it came after both");
        let third = domain.retire();
        assert!(third >= domain.safe_below(second), "none has come since");
        assert!(third < domain.safe_below(third));
    }

    #[test]
    fn random_numbers_are_spread_over_all_bits() {
        let participant = Domain::new().participate();
        let mut ones = [0u32; 32];
        for _ in 0..4096 {
            let draw = participant.random();
            for (bit, count) in ones.iter_mut().enumerate() {
                *count += draw >> bit & 1;
            }
        }
        assert!(ones.iter().all(|count| (1800..2300).contains(count)), "{ones:?}");
    }
}
