//! Bytes of the cache, and the headers of the items in them.
//!
//! ```text
//! 0     8     16       20     24            28          29          32                              header's end
//! chain | CAS | expiry | used | value bytes | key bytes | flags     | fields of the eviction ...   | key | value
//! ```
//! A free chunk has the neighbours of its class's free list in `CHAIN` and `CAS`.

use std::marker::PhantomData;

/// Offset of an item's first byte. The originals have pointers of as many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item(pub u64);

/// No item.
pub const NONE: Item = Item(u64::MAX);

/// A field of the header.
#[derive(Clone, Copy, Debug)]
pub struct Field<T> {
    offset: usize,
    number: PhantomData<T>,
}

impl<T> Field<T> {
    pub const fn at(offset: usize) -> Self {
        Self { offset, number: PhantomData }
    }

    pub fn is(self, other: Self) -> bool {
        self.offset == other.offset
    }
}

pub const CHAIN: Field<u64> = Field::at(0);
pub const CAS: Field<u64> = Field::at(8);
pub const EXPIRY: Field<u32> = Field::at(16);
/// Time of the last use, in the unit of the eviction.
pub const USED: Field<u32> = Field::at(20);
pub const VALUE_BYTES: Field<u32> = Field::at(24);
pub const KEY_BYTES: Field<u8> = Field::at(28);
pub const FLAGS: Field<u8> = Field::at(29);
/// Where the fields of the eviction begin.
pub const OWN_FIELDS: usize = 32;

/// The chunk has an item.
pub const LIVE: u8 = 1;

/// A number in a header.
pub trait Number: Copy {
    fn read(bytes: &[u8]) -> Self;
    fn write(self, bytes: &mut [u8]);
}

macro_rules! number {
    ($($kind:ty),*) => {$(
        impl Number for $kind {
            #[inline(always)]
            fn read(bytes: &[u8]) -> Self {
                Self::from_le_bytes(*bytes.first_chunk().expect("fields lie within the memory"))
            }

            #[inline(always)]
            fn write(self, bytes: &mut [u8]) {
                *bytes.first_chunk_mut().expect("fields lie within the memory") = self.to_le_bytes();
            }
        }
    )*};
}

number!(u8, u16, u32, u64);

#[derive(Debug)]
pub struct Memory(Vec<u8>);

impl Memory {
    pub fn new(bytes: usize) -> Self {
        Self(vec![0; bytes])
    }

    #[inline(always)]
    pub fn get<T: Number>(&self, item: Item, field: Field<T>) -> T {
        T::read(&self.0[item.0 as usize + field.offset..])
    }

    #[inline(always)]
    pub fn put<T: Number>(&mut self, item: Item, field: Field<T>, value: T) {
        value.write(&mut self.0[item.0 as usize + field.offset..]);
    }

    #[inline(always)]
    pub fn bytes(&self, start: usize, length: usize) -> &[u8] {
        &self.0[start..start + length]
    }

    #[inline(always)]
    pub fn write(&mut self, start: usize, bytes: &[u8]) {
        self.0[start..start + bytes.len()].copy_from_slice(bytes);
    }

    pub fn copy(&mut self, from: Item, to: Item, length: usize) {
        self.0.copy_within(from.0 as usize..from.0 as usize + length, to.0 as usize);
    }

    #[inline(always)]
    pub fn has(&self, item: Item, flag: u8) -> bool {
        self.get(item, FLAGS) & flag != 0
    }

    #[inline(always)]
    pub fn set_flag(&mut self, item: Item, flag: u8, on: bool) {
        let flags = self.get(item, FLAGS);
        self.put(item, FLAGS, if on { flags | flag } else { flags & !flag });
    }
}
