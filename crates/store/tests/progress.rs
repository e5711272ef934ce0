//! An operation repeats only when its key has changed, however busy its neighbours in the index are.

use ebbtide_store::{
    Change, Changed, Count, Item, MetaFlags, MetaFlagsChange, MetaFlagsLookup, MetaFlagsOutcome, Mode, Options,
    Participant, Progress, Store, Stored, Ttl, Write,
};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const NOW_MS: u64 = 1000;
const KEY: &[u8] = b"key";

struct Client {
    store: Arc<Store>,
    participant: Participant,
}

impl Client {
    fn new(store: &Arc<Store>) -> Self {
        Self { store: Arc::clone(store), participant: store.participate() }
    }

    fn write(&self, key: &[u8], value: &[u8], mode: Mode) -> Stored {
        let hash = self.store.hash(key);
        let write = Write { key, hash, value, flags: 0.into(), ttl: Ttl::Never, mode, token: None };
        loop {
            match self.store.write(&self.participant, &write, NOW_MS) {
                Ok(written) => return written.stored,
                Err(_) => assert_ne!(self.store.evict(&self.participant, NOW_MS), Progress::Stuck),
            }
        }
    }

    fn peek(&self) -> Item<'_> {
        let item = self.store.peek(&self.participant, KEY, self.store.hash(KEY), NOW_MS);
        item.expect("the key is there")
    }

    fn add_one(&self, key: &[u8]) -> u64 {
        let count = Count::plain(Change::Add(1));
        match self.store.change_number(&self.participant, (key, self.store.hash(key)), &count, NOW_MS).unwrap() {
            Changed::Done(number) => number.value,
            changed => panic!("{changed:?}"),
        }
    }

    /// A counter whose increments in place change the token of `KEY`.
    fn neighbour(&self) -> [u8; 4] {
        let is_near = |key: &[u8; 4]| {
            self.write(key, b"1000000", Mode::Set);
            self.add_one(key);
            let before = self.peek().token();
            self.add_one(key);
            before != self.peek().token()
        };
        (0..8000u32).map(u32::to_le_bytes).find(is_near).expect("one of them is a neighbour")
    }
}

#[test]
fn an_append_ends_beside_a_busy_neighbour() {
    let store = Arc::new(Store::new(Options { memory_bytes: 64 << 20, ..Options::default() }).unwrap());
    let client = Client::new(&store);
    client.write(KEY, &[7; 900_000], Mode::Set);
    let neighbour = client.neighbour();
    let (is_busy, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    let uploads = store.uploads_ended();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let client = Client::new(&store);
            // Bounded: the test must end also if the append repeats each time.
            for _ in 0..20_000_000 {
                client.add_one(&neighbour);
                is_busy.store(true, Ordering::Release);
                if is_over.load(Ordering::Acquire) {
                    break;
                }
            }
        });
        while !is_busy.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        for _ in 0..10 {
            assert_eq!(client.write(KEY, b"more", Mode::Append), Stored::Stored);
        }
        is_over.store(true, Ordering::Release);
    });
    assert_eq!(client.peek().len(), 900_040);
    assert_eq!(store.uploads_ended() - uploads, 10, "each append has copied the value once");
    store.verify(&store.participate(), NOW_MS);
}

#[test]
fn a_meta_lookup_ignores_changing_neighbours() {
    let store = Arc::new(Store::new(Options::default()).unwrap());
    let (client, other) = (Client::new(&store), Client::new(&store));
    client.write(KEY, b"value", Mode::Set);
    let neighbour = client.neighbour();
    let (target, lookup) = ((KEY, store.hash(KEY)), MetaFlagsLookup { create: None, counts: true });
    let mut looks = 0;
    let outcome = store.update_meta_flags(&client.participant, target, lookup, NOW_MS, |_| {
        looks += 1;
        if looks < 100 {
            other.add_one(&neighbour);
        }
        Some(MetaFlagsChange { ttl: None, flags: MetaFlags::Stale { token: None } })
    });
    assert!(matches!(outcome, Ok(MetaFlagsOutcome::Found { .. })));
    assert_eq!(looks, 1);
    assert!(client.peek().extension().stale);
}

#[test]
fn a_meta_lookup_of_a_changed_number_repeats() {
    let store = Arc::new(Store::new(Options::default()).unwrap());
    let (client, other) = (Client::new(&store), Client::new(&store));
    client.write(KEY, b"100", Mode::Set);
    client.add_one(KEY);
    let neighbour = client.neighbour();
    let (target, lookup) = ((KEY, store.hash(KEY)), MetaFlagsLookup { create: None, counts: true });
    let mut looks = 0;
    let outcome = store.update_meta_flags(&client.participant, target, lookup, NOW_MS, |_| {
        looks += 1;
        if looks == 1 {
            other.add_one(&neighbour);
            other.add_one(KEY);
        }
        Some(MetaFlagsChange { ttl: None, flags: MetaFlags::Stale { token: None } })
    });
    let Ok(MetaFlagsOutcome::Found { item, .. }) = outcome else { panic!("the key is there") };
    let mut value = Vec::new();
    item.copy_to(&mut value);
    assert_eq!((looks, &value[..]), (2, &b"102"[..]));
    assert_eq!(client.add_one(KEY), 103);
}

#[test]
fn a_swap_depends_on_its_item_only() {
    let store = Arc::new(Store::new(Options { memory_bytes: 64 << 20, ..Options::default() }).unwrap());
    let (client, other) = (Client::new(&store), Client::new(&store));
    let long = vec![7; 900_000];
    for (new, new_in_turn) in [(&b"new"[..], &long[..]), (&long, b"new")] {
        client.write(KEY, b"old", Mode::Set);
        let neighbour = client.neighbour();
        let looks = Cell::new(0);
        let swap = |value, change: &dyn Fn()| {
            let hash = store.hash(KEY);
            let write =
                Write { key: KEY, hash, value, flags: 0.into(), ttl: Ttl::Never, mode: Mode::Replace, token: None };
            store.replace_if(&client.participant, &write, NOW_MS, |item| {
                looks.set(looks.get() + 1);
                if looks.get() < 100 {
                    change();
                }
                item.slices().flatten().eq(b"old")
            })
        };
        let swapped = swap(new, &|| _ = other.add_one(&neighbour));
        assert_eq!((swapped, looks.take()), (Ok(Stored::Stored), 1));
        assert_eq!(client.peek().len(), new.len());
        client.write(KEY, b"old", Mode::Set);
        // The bytes decide: an equal value is accepted, and read again.
        let is_first = Cell::new(true);
        let swapped = swap(new, &|| _ = is_first.take().then(|| other.write(KEY, b"old", Mode::Set)));
        assert_eq!((swapped, looks.take()), (Ok(Stored::Stored), 2));
        client.write(KEY, b"old", Mode::Set);
        let is_first = Cell::new(true);
        let swapped = swap(new, &|| _ = is_first.take().then(|| other.write(KEY, new_in_turn, Mode::Set)));
        assert_eq!((swapped, looks.take()), (Ok(Stored::NotStored), 2));
        assert_eq!(client.peek().len(), new_in_turn.len());
    }
    store.verify(&store.participate(), NOW_MS);
}

#[test]
fn a_swap_of_a_changed_number_repeats() {
    let store = Arc::new(Store::new(Options::default()).unwrap());
    let (client, other) = (Client::new(&store), Client::new(&store));
    client.write(KEY, b"100", Mode::Set);
    client.add_one(KEY);
    let (hash, is_first) = (store.hash(KEY), Cell::new(true));
    let write =
        Write { key: KEY, hash, value: b"1", flags: 0.into(), ttl: Ttl::Never, mode: Mode::Replace, token: None };
    let swapped = store.replace_if(&client.participant, &write, NOW_MS, |item| {
        if is_first.take() {
            other.add_one(KEY);
        }
        item.slices().flatten().eq(b"101")
    });
    assert_eq!(swapped, Ok(Stored::NotStored));
    assert_eq!(client.add_one(KEY), 103);
}
