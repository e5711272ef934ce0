//! A condition from an operation's lookup holds while neighbours in the bucket change, and fails once its item changes:
//! each operation is interrupted between its lookup and its publication.

use super::delete::Successor;
use super::number::{Change, Count};
use super::write::{Changed, Mode, Write};
use crate::condition::{Condition, Outcome, SeenWord};
use crate::epoch::Participant;
use crate::index::Found;
use crate::item::{Extension, Kind};
use crate::ops::Item;
use crate::options::Options;
use crate::store::{Head, Store};
use crate::time::Moment;
use crate::ttl::{Lifetime, Ttl};
use std::cell::Cell;

const NOW_MS: u64 = 1000;
const MOMENT: Moment = Moment { ms: NOW_MS, quantum: 0 };
const KEY: &[u8] = b"key";

struct Bucket {
    store: Store,
    participant: Participant,
    neighbour: [u8; 4],
}

impl Bucket {
    /// A store with this value of the key, numeric if it is a number, and with a numeric neighbour.
    fn new(value: &[u8]) -> Self {
        let store = Store::new(Options::default()).unwrap();
        let participant = store.participate();
        let mut bucket = Self { store, participant, neighbour: [0; 4] };
        bucket.set(KEY, value);
        if value[0].is_ascii_digit() {
            bucket.count(KEY);
        }
        let is_near = |key: &[u8; 4]| {
            bucket.set(key, b"100");
            bucket.count(key);
            let before = bucket.look().token();
            bucket.count(key);
            before != bucket.look().token()
        };
        bucket.neighbour = (0..8000u32).map(u32::to_le_bytes).find(is_near).expect("one of them is a neighbour");
        bucket
    }

    fn set(&self, key: &[u8], value: &[u8]) {
        let write = Write {
            key,
            hash: self.store.hash(key),
            value,
            flags: 0.into(),
            ttl: Ttl::Never,
            mode: Mode::Set,
            token: None,
        };
        self.store.write(&self.participant, &write, NOW_MS).unwrap();
    }

    fn count(&self, key: &[u8]) {
        let count = Count::plain(Change::Add(1));
        let target = (key, self.store.hash(key));
        assert!(matches!(self.store.change_number(&self.participant, target, &count, NOW_MS), Ok(Changed::Done(_))));
    }

    fn look(&self) -> Item<'_> {
        self.store.peek(&self.participant, KEY, self.target().1, NOW_MS).expect("the key is there")
    }

    fn found(&self) -> Found {
        self.store.index.find(self.target().1, |slot| self.store.is_key(slot, KEY)).expect("the key is there")
    }

    fn target(&self) -> (&'static [u8], u64) {
        (KEY, self.store.hash(KEY))
    }

    fn value(&self) -> String {
        let mut value = Vec::new();
        self.look().copy_to(&mut value);
        String::from_utf8(value).expect("text")
    }

    fn overwrite(&self, condition: Condition) -> Outcome {
        let (life, extension, kind) = (Lifetime::NEVER, Extension::default(), Kind::Plain);
        let head = Head { key: KEY, flags: 0.into(), extension, exact: None, kind, value_length: 3 };
        let outcome =
            self.store.write_plain(&self.participant, &head, self.target(), b"new", (life, condition), MOMENT);
        outcome.unwrap()
    }

    fn terms(&self, mode: Mode) -> Condition {
        self.store.terms(self.target(), mode, Ttl::Never, None, MOMENT).expect("the write may go on").condition
    }
}

#[test]
fn an_append_depends_on_its_number_only() {
    for (value, mode) in [("text", Mode::Append), ("100", Mode::Prepend)] {
        let bucket = Bucket::new(value.as_bytes());
        let condition = bucket.look().unchanged_for(mode);
        bucket.count(&bucket.neighbour);
        assert!(bucket.overwrite(condition).is_done(), "{value}");
    }
    let bucket = Bucket::new(b"100");
    let condition = bucket.look().unchanged_for(Mode::Append);
    bucket.count(KEY);
    assert_eq!(bucket.overwrite(condition), Outcome::Present);
    assert_eq!(bucket.value(), "102");
}

/// The change comes while the predicate decides.
#[test]
fn a_predicate_removes_only_what_it_saw() {
    for (changes_key, removed, calls) in [(true, Changed::Exists, 2), (false, Changed::Done(()), 1)] {
        let bucket = Bucket::new(b"text");
        let seen = Cell::new(0);
        let accepts = |item: &Item<'_>| {
            let mut value = Vec::new();
            item.copy_to(&mut value);
            seen.set(seen.get() + 1);
            match changes_key {
                true if seen.get() == 1 => bucket.set(KEY, b"newer"),
                true => {}
                false => bucket.count(&bucket.neighbour),
            }
            value == b"text"
        };
        let answer = bucket.store.delete_accepted(&bucket.participant, bucket.target(), NOW_MS, accepts);
        assert_eq!((answer, seen.get()), (Ok(removed), calls));
        assert!(!changes_key || bucket.value() == "newer");
    }
}

#[test]
fn an_item_stored_again_is_another_one() {
    let bucket = Bucket::new(b"text");
    let hit = bucket.look();
    bucket.set(KEY, b"text");
    assert_eq!(bucket.overwrite(hit.unchanged()), Outcome::Present);
}

#[test]
fn a_removal_depends_on_its_item_only() {
    let bucket = Bucket::new(b"text");
    let hit = bucket.look();
    bucket.count(&bucket.neighbour);
    assert!(bucket.store.remove(&bucket.participant, bucket.target(), hit.unchanged(), MOMENT).is_done());
    let bucket = Bucket::new(b"100");
    let hit = bucket.look();
    bucket.count(KEY);
    let removed = bucket.store.remove(&bucket.participant, bucket.target(), hit.unchanged(), MOMENT);
    assert_eq!((removed, bucket.value().as_str()), (Outcome::Present, "102"));
}

#[test]
fn a_copy_gets_the_present_number() {
    let bucket = Bucket::new(b"100");
    let hit = bucket.look();
    let item = hit.item_at();
    let life = bucket.store.lifetime_until(Some(101), MOMENT);
    let (word, flags, extension) = (SeenWord::Any, hit.flags(), Extension::default());
    let successor = Successor { of: &item, word, life, flags, extension, keeps_token: true };
    bucket.count(&bucket.neighbour);
    bucket.count(KEY);
    assert!(
        bucket.store.publish_successor(&bucket.participant, bucket.target(), &successor, MOMENT).unwrap().is_done()
    );
    assert_eq!((bucket.value().as_str(), bucket.look().expiry_seconds()), ("102", Some(101)));
    drop(hit);
    bucket.store.verify(&bucket.participant, NOW_MS);
}

#[test]
fn a_copying_incr_stands_beside_a_neighbour() {
    let bucket = Bucket::new(b"100");
    let count = Count { ttl: Some(Ttl::seconds(100)), ..Count::plain(Change::Add(1)) };
    let _pin = bucket.participant.pin();
    let found = bucket.found();
    bucket.count(&bucket.neighbour);
    let changed = bucket.store.replace_number(&bucket.participant, bucket.target(), &found, &count, MOMENT);
    assert!(matches!(changed, Ok(Some(Changed::Done(number))) if number.value == 102));
}

#[test]
fn a_stale_write_stands_beside_a_neighbour() {
    let bucket = Bucket::new(b"text");
    let _pin = bucket.participant.pin();
    let token = bucket.look().token();
    let condition = bucket.terms(Mode::CasOrStale(token));
    bucket.count(&bucket.neighbour);
    assert!(bucket.overwrite(condition).is_done());
    bucket.count(&bucket.neighbour);
    let condition = bucket.terms(Mode::CasOrStale(token));
    bucket.count(&bucket.neighbour);
    assert!(bucket.overwrite(condition).is_done());
}

/// A number may be incremented and decremented between lookup and publication: it is equal, but its token is not.
#[test]
fn any_increment_invalidates_a_token() {
    let bucket = Bucket::new(b"100");
    let _pin = bucket.participant.pin();
    let token = bucket.look().token();
    let conditions = [bucket.terms(Mode::CasOrStale(token)), bucket.look().unchanged_for(Mode::AppendIf(token))];
    bucket.count(KEY);
    let back = Count::plain(Change::Subtract(1));
    assert!(matches!(
        bucket.store.change_number(&bucket.participant, bucket.target(), &back, NOW_MS),
        Ok(Changed::Done(number)) if number.value == 101
    ));
    for condition in conditions {
        assert_eq!(bucket.overwrite(condition), Outcome::Present);
    }
}
