//! Models of maintenance against operations: relocation, unlinking, expiry, and which segments a choice may claim. See
//! `crate::loom_tests`.

mod held_heads;

use super::jobs::Job;
use super::maintenance::Caller;
use crate::chains::Seal;
use crate::epoch::Participant;
use crate::loom_tests::{Client, Did, OperationLog, model, store};
use crate::segment::{Purpose, SegmentId, State};
use crate::store::Store;
use crate::sync::Ordering;
use crate::time::Moment;
use crate::ttl::Ttl;
use crate::{Mode, Stored, Write};
use loom::thread;
use std::sync::Arc;

const KEY: &[u8] = b"k";
const OTHER: &[u8] = b"o";
const MAINTENANCE: Caller = Caller::Maintenance { may_evict: true };

impl Store {
    /// Chooses a run and empties it. False if there is none.
    pub(crate) fn drop_one(&self, participant: &Participant, moment: Moment) -> bool {
        let Some(mut job) = self.plan_job(participant, moment, true) else { return false };
        while !job.run(self, participant, moment, u32::MAX) {}
        true
    }
}

impl Client<'_> {
    fn moment(&self) -> Moment {
        self.store.moment(self.now_ms)
    }

    fn seal(&self) {
        self.store.seal_open(Seal::All);
    }

    /// A value that has a body.
    fn set_long(&self, key: &[u8], digit: u8) {
        let hash = self.store.hash(key);
        let value = &[digit; 70];
        let write = Write { key, hash, value, flags: 0.into(), ttl: Ttl::Never, mode: Mode::Set, token: None };
        let written = self.store.write(&self.participant, &write, self.now_ms);
        assert_eq!(written.map(|written| written.stored), Ok(Stored::Stored));
    }

    fn get_long(&self, key: &[u8]) -> Option<Vec<u8>> {
        let item = self.store.get(&self.participant, key, self.store.hash(key), self.now_ms)?;
        let mut value = Vec::new();
        item.copy_to(&mut value);
        Some(value)
    }

    /// Two neighbours of which the first holds `KEY`; their items fit one segment.
    fn with_two_neighbours(self, value: u64) -> Self {
        self.set(KEY, value);
        self.seal();
        self.set(OTHER, 0);
        self.seal();
        self
    }

    /// The job that compacts two neighbours.
    fn compaction(&self) -> Job {
        let job = self.store.plan_job(&self.participant, self.moment(), true).expect("two neighbours fit one segment");
        assert_eq!(job.sources().len(), 2);
        job
    }

    /// The relocation of the segment of a key. `None` if the key or the segment is absent.
    fn compaction_of(&self, key: &[u8]) -> Option<Job> {
        let item = self.store.get(&self.participant, key, self.store.hash(key), self.now_ms)?;
        self.store.claim_relocation(item.item_at().at.segment(), self.moment())
    }

    /// `KEY` in an open destination of a compaction, and another item in a sealed segment.
    fn with_open_destination(self, value: u64) -> Self {
        self.set(KEY, value);
        self.seal();
        self.run(self.compaction_of(KEY).expect("nothing evicts it"));
        self.store.segments.reclaim();
        self.set(OTHER, 0);
        self.store.chains.seal_open(&self.store.segments, Seal::All);
        assert_eq!(self.store.open_destination_count(), 1);
        self
    }

    fn expire(&self) {
        while self.store.expire_due(&self.participant, self.moment()) {}
    }

    fn run(&self, mut job: Job) {
        while !job.run(self.store, &self.participant, self.moment(), u32::MAX) {}
    }
}

/// Runs `operations` on the key while a compaction relocates it, then asserts that the answers and the final value are
/// consistent.
fn against_a_move(
    preemptions: usize,
    start: u64,
    operations: impl Fn(&Client<'_>, &OperationLog) + Send + Sync + Clone + 'static,
) {
    model(preemptions, move || {
        let store = store(5, 0);
        let log = OperationLog::default();
        let client = Client::new(&store).with_two_neighbours(start);
        let job = client.compaction();
        let operator = {
            let (store, log, operations) = (Arc::clone(&store), log.clone(), operations.clone());
            thread::spawn(move || operations(&Client::new(&store), &log))
        };
        client.run(job);
        operator.join().unwrap();
        log.explain(Some(start), client.get(KEY));
        assert_eq!(client.get(OTHER), Some(0), "nothing is lost in a compaction");
        client.verify();
    });
}

#[test]
fn a_moved_key_is_never_missed() {
    against_a_move(1, 1, |client, log| {
        log.note(0, Did::Get(client.get(KEY)));
        log.note(0, Did::Get(client.get(KEY)));
    });
}

#[test]
fn a_move_loses_no_overwrite() {
    against_a_move(1, 1, |client, log| {
        client.set(KEY, 2);
        log.note(0, Did::Set(2));
        log.note(0, Did::Get(client.get(KEY)));
    });
}

#[test]
fn a_move_resurrects_nothing() {
    against_a_move(1, 1, |client, log| {
        log.note(0, Did::Delete(client.delete(KEY)));
        log.note(0, Did::Get(client.get(KEY)));
    });
}

/// A relocation does not change the value, but may look like a change.
#[test]
fn a_cas_succeeds_or_fails_across_a_move() {
    against_a_move(1, 1, |client, log| {
        let (seen, token) = client.gets(KEY).expect("the key is always there");
        assert_eq!(seen, 1);
        match client.write(KEY, 2, Mode::Cas(token)) {
            Stored::Stored => log.note(0, Did::Set(2)),
            answer => assert_eq!(answer, Stored::Exists),
        }
    });
}

/// Items of an open destination may be overwritten while a compaction continues in it.
#[test]
fn a_compaction_continues_in_a_visible_segment() {
    model(2, || {
        let store = store(5, 0);
        let log = OperationLog::default();
        let client = Client::new(&store).with_open_destination(1);
        let job = client.compaction_of(OTHER).expect("nothing evicts it");
        assert_eq!(store.open_destination_count(), 0, "the job has it");
        let operator = {
            let (store, log) = (Arc::clone(&store), log.clone());
            thread::spawn(move || {
                let client = Client::new(&store);
                client.set(KEY, 2);
                log.note(0, Did::Set(2));
                log.note(0, Did::Get(client.get(KEY)));
            })
        };
        client.run(job);
        operator.join().unwrap();
        log.explain(Some(1), client.get(KEY));
        assert_eq!(client.get(OTHER), Some(0), "nothing is lost in a compaction");
        client.verify();
    });
}

/// An eviction seals the open destination of a compaction, or the next compaction continues in it: one of the two.
#[test]
fn an_open_destination_is_sealed_or_continued() {
    model(2, || {
        let store = store(6, 0);
        let client = Client::new(&store).with_open_destination(1);
        let compactor = {
            let store = Arc::clone(&store);
            thread::spawn(move || {
                let client = Client::new(&store);
                if let Some(job) = client.compaction_of(OTHER) {
                    client.run(job);
                }
            })
        };
        store.drop_one(&client.participant, client.moment());
        compactor.join().unwrap();
        for (key, value) in [(KEY, 1), (OTHER, 0)] {
            assert!(client.get(key).is_none_or(|found| found == value));
        }
        client.verify();
    });
}

#[test]
fn a_move_loses_no_increment() {
    model(2, || {
        let store = store(5, 0);
        let log = OperationLog::default();
        let client = Client::new(&store);
        client.set(KEY, 1);
        assert_eq!(client.add_to(KEY, 1), Some(2), "the item is numeric now");
        client.seal();
        client.set(OTHER, 0);
        client.seal();
        let job = client.compaction();
        let adder = {
            let (store, log) = (Arc::clone(&store), log.clone());
            thread::spawn(move || {
                let client = Client::new(&store);
                log.note(0, Did::Add(3, client.add_to(KEY, 3)));
            })
        };
        client.run(job);
        log.note(1, Did::Add(1, client.add_to(KEY, 1)));
        adder.join().unwrap();
        log.explain(Some(2), client.get(KEY));
        assert_eq!(client.get(KEY), Some(6));
        client.verify();
    });
}

/// A relocation copies a log while bytes are appended to it.
#[test]
fn a_move_loses_no_append() {
    model(2, || {
        let store = store(5, 0);
        let client = Client::new(&store);
        assert!(client.append_to_log(KEY, 1, Some(2)));
        client.seal();
        client.set(OTHER, 0);
        client.seal();
        let job = client.compaction();
        let other = {
            let store = Arc::clone(&store);
            thread::spawn(move || assert!(Client::new(&store).append_to_log(KEY, 2, None)))
        };
        client.run(job);
        other.join().unwrap();
        assert_eq!(client.log(KEY), Some(vec![1, 2]));
        assert!(client.append_to_log(KEY, 3, None));
        client.verify();
    });
}

#[test]
fn a_move_loses_no_edit_of_words() {
    model(1, || {
        let store = store(5, 0);
        let client = Client::new(&store);
        assert_eq!(client.add_to_word(KEY, 1), 1);
        client.seal();
        // A merge of two segments that nearly fill one might evict the item.
        let job = client.compaction_of(KEY).expect("nothing evicts it");
        let other = {
            let store = Arc::clone(&store);
            thread::spawn(move || assert_eq!(Client::new(&store).add_to_word(KEY, 10), 11))
        };
        client.run(job);
        other.join().unwrap();
        assert_eq!(client.add_to_word(KEY, 100), 111);
        client.verify();
    });
}

/// An overwrite leaves a segment, which is then emptied, freed and reused: the counts of its next use are right.
#[test]
fn counts_belong_to_one_use_of_a_segment() {
    model(2, || {
        let store = store(3, 0);
        let client = Client::new(&store);
        client.set(KEY, 1);
        client.seal();
        let overwriter = {
            let store = Arc::clone(&store);
            thread::spawn(move || Client::new(&store).delete(KEY))
        };
        store.drop_one(&client.participant, client.moment());
        store.segments.reclaim();
        client.set(OTHER, 2);
        overwriter.join().unwrap();
        assert_eq!(client.get(KEY), None);
        assert_eq!(client.get(OTHER), Some(2));
        client.verify();
    });
}

/// A body is not taken for a segment of dead items, whatever the segment was before.
#[test]
fn a_choice_claims_no_body() {
    model(2, || {
        let store = store(4, 0);
        let uploader = {
            let store = Arc::clone(&store);
            thread::spawn(move || {
                Client::new(&store).set_long(KEY, b'7');
            })
        };
        let client = Client::new(&store);
        store.drop_one(&client.participant, client.moment());
        uploader.join().unwrap();
        assert!(client.get_long(KEY).is_none_or(|value| value == [b'7'; 70]));
        client.verify();
    });
}

/// A segment that was seen expired may be reused when it is claimed.
#[test]
fn expiry_spares_a_reused_segment() {
    model(2, || {
        let store = store(3, 0);
        let mut client = Client::new(&store);
        let write = Write {
            key: KEY,
            hash: store.hash(KEY),
            value: b"1",
            flags: 0.into(),
            ttl: Ttl::Seconds(1),
            mode: Mode::Set,
            token: None,
        };
        let written = store.write(&client.participant, &write, client.now_ms);
        assert_eq!(written.map(|written| written.stored), Ok(Stored::Stored));
        client.seal();
        client.now_ms = 10_000;
        let expirer = {
            let store = Arc::clone(&store);
            thread::spawn(move || {
                let client = Client { now_ms: 10_000, ..Client::new(&store) };
                client.expire();
            })
        };
        client.expire();
        store.segments.reclaim();
        client.set(OTHER, 2);
        client.seal();
        expirer.join().unwrap();
        assert_eq!(client.get(OTHER), Some(2), "it was written after the expiry");
        client.verify();
    });
}

/// A segment whose expired items are counted may be emptied meanwhile, and reused.
#[test]
fn a_count_ignores_a_reused_segment() {
    model(2, || {
        let store = store(3, 0);
        let mut client = Client::new(&store);
        for (key, now_ms) in [(KEY, 1900), (OTHER, 2000)] {
            let (hash, ttl) = (store.hash(key), Ttl::Seconds(1));
            let write = Write { key, hash, value: b"1", flags: 0.into(), ttl, mode: Mode::Set, token: None };
            store.write(&client.participant, &write, now_ms).expect("there is free memory");
        }
        client.seal();
        let counter = {
            let store = Arc::clone(&store);
            thread::spawn(move || {
                let client = Client { now_ms: 2500, ..Client::new(&store) };
                client.expire();
            })
        };
        client.now_ms = 3000;
        client.expire();
        store.segments.reclaim();
        client.set(OTHER, 2);
        client.seal();
        counter.join().unwrap();
        let item = store.get(&client.participant, OTHER, store.hash(OTHER), client.now_ms).expect("it is there");
        let header = store.segments.header(item.item_at().at.segment());
        assert_eq!((header.expired_written_bytes(), header.next_expiry_seconds()), (0, u64::MAX));
        drop(item);
        client.verify();
    });
}

/// Flushed items stay absent, though an eviction is relocating them.
#[test]
fn a_move_carries_nothing_over_a_flush() {
    model(2, || {
        let store = store(4, 0);
        let client = Client::new(&store);
        client.set(KEY, 1);
        client.set(OTHER, 1);
        client.seal();
        assert_eq!(client.get(KEY), Some(1), "it is used more than the other");
        let job = store.plan_job(&client.participant, client.moment(), true).expect("a segment is sealed");
        assert_eq!(job.sources().len(), 1);
        let flusher = {
            let store = Arc::clone(&store);
            thread::spawn(move || store.flush(1000, 0))
        };
        client.run(job);
        flusher.join().unwrap();
        assert_eq!(client.get(KEY), None);
        client.set(OTHER, 3);
        assert_eq!(client.get(KEY), None);
        client.verify();
    });
}

/// A choice that began before a flush claims no segment written after it.
#[test]
fn a_choice_spares_items_written_after_a_flush() {
    model(2, || {
        let store = store(5, 0);
        let client = Client::new(&store);
        let writer = {
            let store = Arc::clone(&store);
            thread::spawn(move || {
                let client = Client::new(&store);
                store.flush(1000, 0);
                client.set(KEY, 2);
                client.seal();
            })
        };
        if let Some(job) = store.plan_job(&client.participant, client.moment(), false) {
            client.run(job);
        }
        writer.join().unwrap();
        assert_eq!(client.get(KEY), Some(2), "it was stored after the flush, and nothing may be evicted");
        client.verify();
    });
}

/// A choice beside an open destination that a compaction started after the flush.
#[test]
fn a_choice_spares_open_destinations_after_a_flush() {
    model(2, || {
        let store = store(5, 0);
        let client = Client::new(&store);
        let writer = {
            let store = Arc::clone(&store);
            thread::spawn(move || {
                let client = Client::new(&store);
                store.flush(1000, 0);
                client.set(KEY, 2);
                client.seal();
                if let Some(job) = client.compaction_of(KEY) {
                    client.run(job);
                }
            })
        };
        if let Some(job) = store.plan_job(&client.participant, client.moment(), false) {
            client.run(job);
        }
        writer.join().unwrap();
        assert_eq!(client.get(KEY), Some(2), "it was stored after the flush, and nothing may be evicted");
        client.verify();
    });
}

/// A store that shall have a segment less, and its topmost one, which is the first to be taken.
fn store_to_shrink() -> (Arc<Store>, SegmentId) {
    let store = store(6, 0);
    let all: Vec<_> = std::iter::from_fn(|| store.segments.take(Purpose::Merge)).collect();
    all.iter().for_each(|segment| store.segments.retire(*segment));
    assert_eq!(store.segments.reclaim().freed, 6, "the topmost is on top of the stack now");
    store.budget.target.store(5, Ordering::Relaxed);
    (store, all[5])
}

/// The topmost segment must be emptied, a body of a value that is deleted meanwhile; then it may be a body of another
/// value, which is moved.
#[test]
fn shrinking_touches_only_the_owner_of_a_body() {
    model(2, || {
        let (store, _) = store_to_shrink();
        let client = Client::new(&store);
        client.set_long(KEY, b'1');
        let writer = {
            let store = Arc::clone(&store);
            thread::spawn(move || {
                let client = Client::new(&store);
                client.delete(KEY);
                store.segments.reclaim();
                client.set_long(OTHER, b'2');
            })
        };
        store.shrink_top(&client.participant, client.moment(), MAINTENANCE);
        writer.join().unwrap();
        assert_eq!(client.get_long(KEY), None);
        assert_eq!(client.get_long(OTHER).as_deref(), Some(&[b'2'; 70][..]));
        client.verify();
    });
}

/// A long value is moved while another thread changes its key.
fn against_a_value_move(
    operation: impl Fn(&Client<'_>) + Send + Sync + Copy + 'static,
    expected: Option<&'static [u8]>,
) {
    model(2, move || {
        let (store, top) = store_to_shrink();
        let client = Client::new(&store);
        client.set_long(KEY, b'1');
        let body = store.segments.header(top);
        assert_eq!(body.state(), State::Body);
        let operator = {
            let store = Arc::clone(&store);
            thread::spawn(move || operation(&Client::new(&store)))
        };
        store.shrink_top(&client.participant, client.moment(), MAINTENANCE);
        operator.join().unwrap();
        assert_eq!(client.get_long(KEY).as_deref(), expected);
        // A flush amid the move ends the move: the value is dead at the next step.
        store.shrink_top(&client.participant, client.moment(), MAINTENANCE);
        assert_eq!(client.get_long(KEY).as_deref(), expected);
        assert_ne!(body.state(), State::Body, "nobody uses the topmost segment");
        client.verify();
    });
}

#[test]
fn a_value_move_keeps_a_write() {
    against_a_value_move(|client| client.set(KEY, 2), Some(b"2"));
}

#[test]
fn a_value_move_keeps_a_delete() {
    against_a_value_move(|client| assert!(client.delete(KEY)), None);
}

#[test]
fn a_value_move_keeps_a_flush() {
    against_a_value_move(|client| client.store.flush(1000, 0), None);
}

/// Reclaiming meanwhile frees the old body, if no reader is pinned.
#[test]
fn readers_see_moved_values_whole() {
    let read = |client: &Client<'_>| {
        assert_eq!(client.get_long(KEY).as_deref(), Some(&[b'1'; 70][..]));
        client.store.segments.reclaim();
        client.set(OTHER, 3);
    };
    against_a_value_move(read, Some(&[b'1'; 70]));
}

/// A body that was freed and is a body of another value by now is never taken for a segment of items.
#[test]
fn a_choice_claims_no_reused_body() {
    model(2, || {
        let store = store(5, 0);
        let client = Client::new(&store);
        client.set_long(KEY, b'1');
        let writer = {
            let store = Arc::clone(&store);
            thread::spawn(move || {
                let client = Client::new(&store);
                client.delete(KEY);
                store.segments.reclaim();
                client.set_long(OTHER, b'2');
            })
        };
        if let Some(job) = store.plan_job(&client.participant, client.moment(), false) {
            client.run(job);
        }
        writer.join().unwrap();
        assert_eq!(client.get_long(OTHER).as_deref(), Some(&[b'2'; 70][..]), "nothing is evicted");
        client.verify();
    });
}
