//! Typed caches of plain types, which are read where they lie.

use ebbtide::{ByteSize, Cache, Error, TypedCache, ZeroCopy};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Its alignment is 1.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq)]
#[repr(C)]
struct Packed {
    id: U64,
    counts: [U32; 7],
    tag: [u8; 3],
}

/// Its alignment is 16.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq)]
#[repr(C)]
struct Aligned {
    wide: u128,
    words: [u64; 4],
}

fn cache() -> Cache {
    Cache::builder().memory(ByteSize::mib(16)).build().unwrap()
}

fn packed(id: u64) -> Packed {
    Packed { id: id.into(), counts: [(id as u32).into(); 7], tag: [id as u8; 3] }
}

fn aligned(id: u64) -> Aligned {
    Aligned { wide: u128::from(id) << 70, words: [id, id + 1, id + 2, id + 3] }
}

#[test]
fn a_value_without_alignment_is_read_in_place() {
    let cache = cache();
    let values: TypedCache<u64, Packed, ZeroCopy> = cache.typed_with(ZeroCopy);
    for id in 0..1000 {
        values.insert(&id, &packed(id)).unwrap();
    }
    for id in 0..1000_u64 {
        let lies_at = cache.get_ref(id.to_ne_bytes()).unwrap().as_ptr();
        let read = values.with(&id, |value| (std::ptr::from_ref(value).cast(), *value)).unwrap().unwrap();
        assert_eq!(read, (lies_at, packed(id)));
        let borrowed = values.get_ref(&id).unwrap().unwrap();
        assert_eq!((std::ptr::from_ref(&*borrowed).cast(), *borrowed), (lies_at, packed(id)));
        assert_eq!(values.get(&id), Ok(Some(packed(id))));
    }
    assert!(values.get_ref(&1000).unwrap().is_none() && values.with(&1000, |_| ()) == Ok(None));
}

/// Keys of all lengths move the values to all addresses.
#[test]
fn aligned_values_are_read_at_any_address() {
    fn check<const LENGTH: usize>(cache: &Cache, in_place: &mut usize) {
        let values: TypedCache<[u8; LENGTH], Aligned, ZeroCopy> = cache.typed_with(ZeroCopy);
        for id in 0..50_u8 {
            let (key, value) = ([id; LENGTH], aligned(id.into()));
            values.insert(&key, &value).unwrap();
            let lies_at = cache.get_ref(key).unwrap().as_ptr();
            let read = values.with(&key, |value| (std::ptr::from_ref(value), *value)).unwrap().unwrap();
            assert!(read.0.is_aligned() && read.1 == value);
            assert_eq!(read.0.cast() == lies_at, lies_at.cast::<Aligned>().is_aligned());
            *in_place += usize::from(read.0.cast() == lies_at);
            let borrowed = values.get_ref(&key).unwrap().unwrap();
            assert!(std::ptr::from_ref(&*borrowed).is_aligned() && *borrowed == value);
        }
    }
    let (cache, mut in_place) = (cache(), 0);
    check::<1>(&cache, &mut in_place);
    check::<2>(&cache, &mut in_place);
    check::<3>(&cache, &mut in_place);
    check::<5>(&cache, &mut in_place);
    check::<7>(&cache, &mut in_place);
    check::<11>(&cache, &mut in_place);
    check::<16>(&cache, &mut in_place);
    assert!((1..350).contains(&in_place), "{in_place} of 350: both are tested");
}

#[test]
fn values_of_another_length_are_refused() {
    let cache = cache();
    let values: TypedCache<u64, Packed, ZeroCopy> = cache.typed_with(ZeroCopy);
    cache.typed_with::<u64, [u8; 40], _>(ZeroCopy).insert(&1, &[7; 40]).unwrap();
    let reason = "40 bytes, and the type has 39: it was written as another type".to_owned();
    let refused = Error::Codec { part: "value", reason };
    assert_eq!(values.get(&1), Err(refused.clone()));
    assert_eq!(values.with(&1, |value| *value), Err(refused.clone()));
    assert_eq!(values.get_ref(&1).map(|_| ()), Err(refused));
    assert_eq!(
        refused_text(&values),
        "the codec refuses the value: 40 bytes, and the type has 39: it was written as another type"
    );
    assert_eq!(values.get_or_insert_with(&1, || packed(1)), Ok(packed(1)), "a load replaces it");
    assert_eq!(values.get(&1), Ok(Some(packed(1))));
}

fn refused_text(values: &TypedCache<u64, Packed, ZeroCopy>) -> String {
    values.get(&1).unwrap_err().to_string()
}

/// A value in several segments is joined first.
#[test]
fn a_value_longer_than_a_segment_is_read() {
    let cache = Cache::builder().memory(ByteSize::mib(64)).max_value(ByteSize::mib(8)).build().unwrap();
    let values: TypedCache<u64, [u64; 1 << 19], ZeroCopy> = cache.typed_with(ZeroCopy);
    cache.insert(1_u64.to_ne_bytes(), (0..1_u64 << 19).flat_map(u64::to_ne_bytes).collect::<Vec<u8>>()).unwrap();
    let reads = |value: &[u64; 1 << 19]| (0..).zip(value).all(|(number, word)| number == *word);
    assert_eq!(values.get_ref(&1).unwrap().map(|value| reads(&value)), Some(true));
}
