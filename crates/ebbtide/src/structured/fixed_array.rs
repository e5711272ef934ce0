//! FixedArray: as many elements as it was created with, each of as many bytes.
//!
//! ```text
//! head: structure, type u32, bytes of an element u32, n u32; then n elements
//! log:  records: index u32, element
//! ```
//! The last record of an index counts. An element costs no more than its bytes, a changed one four bytes more until the
//! array is written again.

use super::editor::Editor;
use super::flat::{Fixed, bytes_of};
use super::head::{Structure, take_u32};
use super::sorted_log::spare_of;
use crate::error::Error;
use crate::library::{InsertOptions, Pool};
use ebbtide_store::Edit;
use std::fmt::Debug;
use std::marker::PhantomData;

/// An array in one value of the cache, at most a segment long; made by [`Pool::fixed_array`]. A clone is of the same
/// key.
///
/// ```
/// # use ebbtide::{ByteSize, Cache, InsertOptions};
/// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
/// let scores = cache.fixed_array::<u32>("scores");
/// scores.create(&[0; 100], InsertOptions::new())?;
/// scores.set(7, &42)?;
/// assert_eq!(scores.get(7)?, Some(42));
/// # Ok::<(), ebbtide::Error>(())
/// ```
pub struct FixedArray<T> {
    editor: Editor,
    types: PhantomData<fn() -> T>,
}

impl Pool {
    /// The array of a key. Nothing is created by this call.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// let scores = cache.fixed_array::<u32>("scores");
    /// assert_eq!(scores.len()?, None);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn fixed_array<T: Fixed>(&self, key: impl AsRef<[u8]>) -> FixedArray<T> {
        FixedArray { editor: Editor::new(self, key.as_ref()), types: PhantomData }
    }
}

/// The bytes of an array.
struct Elements<'a> {
    base: &'a [u8],
    records: &'a [u8],
    length: usize,
    bytes: usize,
}

impl<'a> Elements<'a> {
    fn open<T: Fixed>(content: &'a [u8]) -> Result<Self, Error> {
        let rest = Structure::FixedArray.open(content, &[T::TYPE])?;
        let parts = || {
            let (bytes, rest) = take_u32(rest)?;
            let (length, rest) = take_u32(rest)?;
            let (bytes, length) = (bytes as usize, length as usize);
            let (base, records) = rest.split_at_checked(bytes.checked_mul(length)?)?;
            let is_whole = bytes == T::BYTES && records.len().is_multiple_of(4 + bytes);
            is_whole.then_some(Self { base, records, length, bytes })
        };
        parts().ok_or_else(|| Structure::FixedArray.damaged())
    }

    fn check(&self, index: usize) -> Result<(), Error> {
        if index < self.length { Ok(()) } else { Err(Error::OutOfBounds { index, length: self.length }) }
    }

    /// The changes, the oldest first.
    fn changes(&self) -> impl DoubleEndedIterator<Item = (usize, &'a [u8])> {
        self.records.chunks_exact(4 + self.bytes).map(|record| {
            let (index, element) = take_u32(record).expect("a record has an index");
            (index as usize, element)
        })
    }

    fn get(&self, index: usize) -> &'a [u8] {
        let changed = self.changes().rev().find(|(changed, _)| *changed == index);
        changed.map_or_else(|| &self.base[index * self.bytes..][..self.bytes], |(_, element)| element)
    }

    /// The elements with all changes.
    fn merged(&self) -> Result<Vec<u8>, Error> {
        let mut merged = self.base.to_vec();
        for (index, element) in self.changes() {
            let place = merged.chunks_exact_mut(self.bytes).nth(index);
            place.ok_or_else(|| Structure::FixedArray.damaged())?.copy_from_slice(element);
        }
        Ok(merged)
    }
}

fn encode<T: Fixed>(elements: &[u8]) -> Vec<u8> {
    let length = elements.len() / T::BYTES;
    let mut content = Structure::FixedArray.head(&[T::TYPE, T::BYTES as u32, length as u32]);
    content.extend_from_slice(elements);
    content
}

fn decode<T: Fixed>(bytes: &[u8]) -> Result<T, Error> {
    T::read(bytes).ok_or_else(|| Structure::FixedArray.damaged())
}

impl<T: Fixed> FixedArray<T> {
    /// Stores an array if the key is absent. False, with nothing changed, if it is present.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, InsertOptions};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// let scores = cache.fixed_array::<u32>("scores");
    /// assert!(scores.create(&[1, 2, 3], InsertOptions::new())?);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `StructureTooLarge`, `KeyLength`, `OutOfMemory`.
    pub fn create(&self, elements: &[T], options: InsertOptions) -> Result<bool, Error> {
        let mut bytes = Vec::with_capacity(elements.len() * T::BYTES);
        elements.iter().for_each(|element| element.write(&mut bytes));
        let content = encode::<T>(&bytes);
        self.editor.create(options, &content, spare_of(&content))
    }

    /// How many elements there are. `None` if the array is absent.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, InsertOptions};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// let scores = cache.fixed_array::<u32>("scores");
    /// scores.create(&[1, 2, 3], InsertOptions::new())?;
    /// assert_eq!(scores.len()?, Some(3));
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `WrongStructure`.
    pub fn len(&self) -> Result<Option<usize>, Error> {
        self.editor.read(|content| Ok(Elements::open::<T>(content)?.length))
    }

    /// An element. `None` if the array is absent.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, InsertOptions};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// let scores = cache.fixed_array::<u32>("scores");
    /// scores.create(&[1, 2, 3], InsertOptions::new())?;
    /// assert_eq!(scores.get(1)?, Some(2));
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `OutOfBounds`; `WrongStructure`.
    pub fn get(&self, index: usize) -> Result<Option<T>, Error> {
        self.editor.read(|content| {
            let elements = Elements::open::<T>(content)?;
            elements.check(index)?;
            decode(elements.get(index))
        })
    }

    /// All elements, from one moment. `None` if the array is absent.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, InsertOptions};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// let scores = cache.fixed_array::<u32>("scores");
    /// scores.create(&[1, 2, 3], InsertOptions::new())?;
    /// assert_eq!(scores.elements()?, Some(vec![1, 2, 3]));
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `WrongStructure`.
    pub fn elements(&self) -> Result<Option<Vec<T>>, Error> {
        self.editor.read(|content| {
            let merged = Elements::open::<T>(content)?.merged()?;
            merged.chunks_exact(T::BYTES).map(decode).collect()
        })
    }

    /// Writes an element. False, with nothing changed, if the array is absent.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, InsertOptions};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// let scores = cache.fixed_array::<u32>("scores");
    /// scores.create(&[1, 2, 3], InsertOptions::new())?;
    /// assert!(scores.set(0, &7)?);
    /// assert_eq!(scores.get(0)?, Some(7));
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `OutOfBounds`; `WrongStructure`; `OutOfMemory`.
    pub fn set(&self, index: usize, element: &T) -> Result<bool, Error> {
        let bytes = bytes_of(element);
        self.change(index, |_| Ok((bytes.clone(), ()))).map(|changed| changed.is_some())
    }

    /// Replaces an element by what `update` makes of it, as one operation, and answers it. `None` if the array is
    /// absent. `update` runs again if another edit comes first, and should be brief: see
    /// [`Words::edit`](super::Words::edit).
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, InsertOptions};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// let scores = cache.fixed_array::<u32>("scores");
    /// scores.create(&[1, 2, 3], InsertOptions::new())?;
    /// assert_eq!(scores.update(2, |score| score + 10)?, Some(13));
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `set`.
    pub fn update(&self, index: usize, mut update: impl FnMut(T) -> T) -> Result<Option<T>, Error> {
        self.change(index, |old| {
            let new = update(decode(old)?);
            Ok((bytes_of(&new), new))
        })
    }

    fn change<R>(
        &self,
        index: usize,
        mut change: impl FnMut(&[u8]) -> Result<(Vec<u8>, R), Error>,
    ) -> Result<Option<R>, Error> {
        self.editor.edit(InsertOptions::new(), |found| {
            let Some(found) = found else { return Ok((Edit::Keep, None)) };
            let elements = Elements::open::<T>(found.content)?;
            elements.check(index)?;
            let (element, answer) = change(elements.get(index))?;
            let record = [&(index as u32).to_le_bytes()[..], &element].concat();
            if record.len() <= found.spare {
                return Ok((Edit::Append(record), Some(answer)));
            }
            let mut merged = elements.merged()?;
            merged[index * T::BYTES..][..T::BYTES].copy_from_slice(&element);
            let content = encode::<T>(&merged);
            let spare = spare_of(&content);
            Ok((Edit::Store { content, spare }, Some(answer)))
        })
    }
}

impl<T> Clone for FixedArray<T> {
    fn clone(&self) -> Self {
        Self { editor: self.editor.clone(), types: PhantomData }
    }
}

impl<T> Debug for FixedArray<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FixedArray").field("editor", &self.editor).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_has_the_documented_bytes() {
        let content = [encode::<u16>(&[0, 1, 0, 2]), vec![1, 0, 0, 0, 0, 9]].concat();
        let expected: &[&[u8]] =
            &[&[0xEB, 0x7D, 2, 1], &[3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0], &[0, 1, 0, 2], &[1, 0, 0, 0, 0, 9]];
        assert_eq!(content, expected.concat());
        let elements = Elements::open::<u16>(&content).unwrap();
        assert_eq!((elements.get(0), elements.get(1)), (&[0, 1][..], &[0, 9][..]));
        assert_eq!(elements.merged(), Ok(vec![0, 1, 0, 9]));
    }
}
