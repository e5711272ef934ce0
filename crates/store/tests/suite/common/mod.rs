//! A store as the subject of a random run: time is an argument, and evictions are run explicitly.

use ebbtide_store::{
    Change, Changed, Count, Error, Extension, Handle, Item, MetaFlags, MetaFlagsChange, MetaFlagsLookup,
    MetaFlagsOutcome, Mode, Options, Participant, Progress, Store, Stored, Ttl,
};
use ebbtide_testkit::{Answer, Hit, Life, Operation, Subject, Write};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Attempts without progress after which a write counts as refused.
const STUCK_TRIES: u32 = 3;

/// The store, the participant of the thread, and the handles that it holds.
pub struct StoreSubject {
    pub store: Arc<Store>,
    pub participant: Participant,
    held: Vec<(Handle, Vec<u8>)>,
    /// The latest time of an operation: the time of the store.
    latest_ms: u64,
}

impl StoreSubject {
    pub fn new(options: Options) -> Self {
        let store = Arc::new(Store::new(options).expect("the options can work"));
        let participant = store.participate();
        Self { store, participant, held: Vec::new(), latest_ms: 0 }
    }

    /// Repeats a write with evictions until there is memory.
    pub fn retry_with_eviction<T>(&self, now_ms: u64, mut write: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
        let mut stuck = 0;
        loop {
            let count = match write() {
                Err(Error::NeedSegment) => 1,
                Err(Error::NeedSegments { count }) => count,
                done => return done,
            };
            match self.store.evict_for(&self.participant, now_ms, count) {
                Progress::Ready | Progress::Working => stuck = 0,
                Progress::Waiting(_) | Progress::Stuck => stuck += 1,
            }
            if stuck > STUCK_TRIES {
                return Err(Error::NeedSegment);
            }
        }
    }

    pub fn get(&self, key: &[u8], now_ms: u64) -> Option<Hit> {
        self.store.get(&self.participant, key, self.store.hash(key), now_ms).map(|item| hit(&item))
    }

    fn hold(&mut self, key: &[u8], now_ms: u64) -> Answer {
        let Some(item) = self.store.get(&self.participant, key, self.store.hash(key), now_ms) else {
            return Answer::Lookup(None);
        };
        let hit = hit(&item);
        match item.to_handle(&self.store) {
            Ok(handle) => self.held.push((handle, hit.value.clone())),
            Err(Error::PinnedLimit { .. }) => {}
            Err(other) => panic!("{other}"),
        }
        Answer::Lookup(Some(hit))
    }

    fn ttl(&self, life: Life, now_ms: u64) -> Ttl {
        match life {
            Life::Never => Ttl::Never,
            Life::Past => Ttl::Expired,
            Life::Seconds(seconds) => Ttl::seconds(seconds),
            Life::Exactly(seconds) => Ttl::Until(self.latest_ms.max(now_ms) / 1000 + u64::from(seconds)),
        }
    }

    /// A write; a set that fails leaves no old value.
    pub fn write(&self, write: &Write, now_ms: u64) -> Result<Stored, Error> {
        let (store, participant) = (&self.store, &self.participant);
        let (key, hash) = (&*write.key, store.hash(&write.key));
        let (flags, ttl, mode) = (write.flags.into(), self.ttl(write.life, now_ms), mode(write.mode));
        let in_pieces = write
            .pieces
            .filter(|_| !mode.extends() && write.value.len() > store.contiguous_value_bytes(write.key.len()));
        let outcome = match in_pieces {
            None => self.retry_with_eviction(now_ms, || {
                store.write(
                    participant,
                    &ebbtide_store::Write { key, hash, value: &write.value, flags, ttl, mode, token: None },
                    now_ms,
                )
            }),
            Some(bytes) => store.upload(key, hash, flags, write.value.len() as u64).and_then(|mut upload| {
                for mut piece in write.value.chunks(bytes) {
                    self.retry_with_eviction(now_ms, || upload.write(&mut piece))?;
                }
                self.retry_with_eviction(now_ms, || upload.finish(participant, ttl, mode, None, now_ms))
            }),
        };
        if outcome.is_err() && mode == Mode::Set {
            store.delete(participant, key, hash, now_ms);
        }
        outcome.map(|written| written.stored)
    }

    fn change(&self, key: &[u8], change: Change, now_ms: u64) -> Result<Answer, Error> {
        let target = (key, self.store.hash(key));
        let count = Count::plain(change);
        let change = || self.store.change_number(&self.participant, target, &count, now_ms);
        Ok(Answer::Number(match self.retry_with_eviction(now_ms, change)? {
            Changed::Done(number) => Some(number.value),
            Changed::Absent => None,
            Changed::Exists => panic!("no token was given"),
        }))
    }

    fn touch(&self, key: &[u8], life: Life, now_ms: u64) -> Result<bool, Error> {
        let (hash, ttl) = (self.store.hash(key), self.ttl(life, now_ms));
        self.retry_with_eviction(now_ms, || self.store.touch(&self.participant, key, hash, ttl, now_ms))
    }

    fn change_meta_flags(
        &self,
        key: &[u8],
        now_ms: u64,
        mut mark: impl FnMut(&Item<'_>) -> MetaFlags,
    ) -> Result<bool, Error> {
        let (target, lookup) = ((key, self.store.hash(key)), MetaFlagsLookup { create: None, counts: true });
        self.retry_with_eviction(now_ms, || {
            let change = |item: &Item<'_>| Some(MetaFlagsChange { ttl: None, flags: mark(item) });
            let outcome = self.store.update_meta_flags(&self.participant, target, lookup, now_ms, change)?;
            Ok(!matches!(outcome, MetaFlagsOutcome::Absent))
        })
    }

    fn try_apply(&mut self, operation: &Operation, now_ms: u64) -> Result<Answer, Error> {
        let (store, participant) = (&self.store, &self.participant);
        Ok(match operation {
            Operation::Get(key) => Answer::Lookup(self.get(key, now_ms)),
            Operation::GetBatch(keys) => {
                let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
                let mut hits = Vec::new();
                store.get_batch(
                    participant,
                    &keys,
                    now_ms,
                    |_| false,
                    |_, item| {
                        hits.push(item.map(|item| hit(&item)));
                        ControlFlow::Continue(())
                    },
                );
                Answer::Lookups(hits)
            }
            Operation::Hold(key) => self.hold(key, now_ms),
            Operation::Release => {
                self.look_at_held();
                self.held.clear();
                Answer::Done
            }
            Operation::Write(write) => match self.write(write, now_ms)? {
                Stored::Stored => Answer::Stored,
                Stored::NotStored => Answer::NotStored,
                Stored::Exists => Answer::Exists,
                Stored::NotFound => Answer::NotFound,
            },
            Operation::Abandon { key, length, written } => {
                let mut upload = store.upload(key, store.hash(key), 0.into(), (*length).max(1) as u64)?;
                let bytes = vec![1; *written];
                let mut rest = &*bytes;
                self.retry_with_eviction(now_ms, || upload.write(&mut rest))?;
                Answer::Done
            }
            Operation::Delete(key) => Answer::Was(store.delete(participant, key, store.hash(key), now_ms)),
            Operation::Touch(key, life) => Answer::Was(self.touch(key, *life, now_ms)?),
            Operation::GetAndTouch(key, life) => {
                let before = self.get(key, now_ms);
                let was = self.touch(key, *life, now_ms)?;
                assert_eq!(was, before.is_some(), "get and touch agree");
                Answer::Lookup(if *life == Life::Past { before } else { self.get(key, now_ms) })
            }
            Operation::Increment(key, delta) => self.change(key, Change::Add(*delta), now_ms)?,
            Operation::Decrement(key, delta) => self.change(key, Change::Subtract(*delta), now_ms)?,
            Operation::MarkStale(key, token) => {
                Answer::Was(self.change_meta_flags(key, now_ms, |_| MetaFlags::Stale { token: *token })?)
            }
            Operation::Win(key) => {
                let mut wins = false;
                let found = self.change_meta_flags(key, now_ms, |item| {
                    wins = !item.extension().won;
                    MetaFlags::Won
                })?;
                Answer::Won(found.then_some(wins))
            }
            Operation::Flush { delay_ms } => {
                store.flush(now_ms, *delay_ms);
                Answer::Done
            }
            Operation::Maintain => {
                while store.maintain(participant, now_ms) == Progress::Working {}
                Answer::Done
            }
        })
    }

    fn look_at_held(&self) {
        for (handle, value) in &self.held {
            let mut at = 0;
            while at < handle.len() {
                let slice = handle.slice_at(at);
                assert_eq!(slice, &value[at..at + slice.len()], "a handle keeps its value");
                at += slice.len();
            }
        }
    }
}

fn hit(item: &Item<'_>) -> Hit {
    let mut value = Vec::new();
    item.copy_to(&mut value);
    let expiry_ms = item.expiry_seconds().map(|seconds| seconds * 1000);
    let Extension { stale, won, .. } = item.extension();
    Hit { value, flags: item.flags().of_client(), token: item.token(), stale, won, expiry_ms }
}

impl Subject for StoreSubject {
    fn apply(&mut self, operation: &Operation, now_ms: u64) -> Answer {
        // Handles and uploads take no time: a get passes it.
        self.get(b"no such key", now_ms);
        self.latest_ms = self.latest_ms.max(now_ms);
        match self.try_apply(operation, now_ms) {
            Ok(answer) => answer,
            Err(Error::TooLarge { .. }) => Answer::TooLarge,
            Err(Error::NeedSegment | Error::UploadLimit { .. }) => Answer::Full,
            Err(Error::NotNumeric) => Answer::NotNumeric,
            Err(other) => panic!("{other}"),
        }
    }

    fn verify(&mut self, now_ms: u64) {
        self.look_at_held();
        self.store.verify(&self.participant, now_ms);
    }
}

fn mode(mode: ebbtide_testkit::Mode) -> Mode {
    use ebbtide_testkit::Mode as Asked;
    match mode {
        Asked::Set => Mode::Set,
        Asked::Add => Mode::Add,
        Asked::Replace => Mode::Replace,
        Asked::Append => Mode::Append,
        Asked::Prepend => Mode::Prepend,
        Asked::Cas(token) => Mode::Cas(token),
    }
}
