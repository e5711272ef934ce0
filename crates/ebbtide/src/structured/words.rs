//! Words: 1 to 64 numbers of 64 bits that are read and changed together.
//!
//! ```text
//! head: structure, type tag u32; then n x u64, little-endian
//! ```
//! The tag is 0 for plain words, and [`Counters::TYPE`] for those of a type.

use super::editor::Editor;
use super::head::Structure;
use crate::error::Error;
use crate::library::{InsertOptions, Pool};
use ebbtide_store::{Edit, WORDS_MAX};
use std::fmt::Debug;
use std::marker::PhantomData;

/// A value of 1 to 64 numbers of 64 bits, read and changed together: no reader sees a part of an edit. Made by
/// [`Pool::words`]; a clone is of the same key.
///
/// ```
/// # use ebbtide::{ByteSize, Cache, InsertOptions};
/// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
/// let visits = cache.words("visits");
/// visits.create(&[0, 0], InsertOptions::new())?;
/// visits.edit(|words| {
///     words[0] += 1;
///     words[1] += 500;
/// })?;
/// assert_eq!(visits.get()?, Some(vec![1, 500]));
/// # Ok::<(), ebbtide::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Words {
    editor: Editor,
    tag: u32,
}

impl Pool {
    /// The words of a key. Nothing is created by this call.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// let visits = cache.words("visits");
    /// assert_eq!(visits.get()?, None);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn words(&self, key: impl AsRef<[u8]>) -> Words {
        Words { editor: Editor::new(self, key.as_ref()), tag: 0 }
    }

    /// The words of a key as fields of a type. Nothing is created by this call.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// ebbtide::counters! {
    ///     struct Usage(1) { calls, bytes }
    /// }
    /// let usage = cache.typed_handle::<Usage>("client");
    /// assert_eq!(usage.get()?, None);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn typed_handle<T: Counters>(&self, key: impl AsRef<[u8]>) -> TypedHandle<T> {
        TypedHandle { words: Words { editor: Editor::new(self, key.as_ref()), tag: T::TYPE }, types: PhantomData }
    }
}

impl Words {
    /// Stores words if the key is absent. False, with nothing changed, if it is present.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, InsertOptions};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// let visits = cache.words("visits");
    /// assert!(visits.create(&[0, 0], InsertOptions::new())?);
    /// assert!(!visits.create(&[1, 1], InsertOptions::new())?);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `WordCount` if there are no words or more than 64; `KeyLength`, `OutOfMemory`.
    pub fn create(&self, words: &[u64], options: InsertOptions) -> Result<bool, Error> {
        let content = self.encode(words)?;
        self.editor.create(options, &content, 0)
    }

    /// The words at one moment. `None` if the key is absent.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, InsertOptions};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// let visits = cache.words("visits");
    /// visits.create(&[1, 2], InsertOptions::new())?;
    /// assert_eq!(visits.get()?, Some(vec![1, 2]));
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `WrongStructure`.
    pub fn get(&self) -> Result<Option<Vec<u64>>, Error> {
        self.editor.read(|content| self.decode(content))
    }

    /// Changes the words as one operation. `None` if the key is absent. `edit` runs without a lock, and again if
    /// another edit comes first: only its last run counts. It should be brief: in a full cache the writes of all
    /// threads wait for its end, and fail after two seconds.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, InsertOptions};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// let visits = cache.words("visits");
    /// visits.create(&[1], InsertOptions::new())?;
    /// let before = visits.edit(|words| std::mem::replace(&mut words[0], 7))?;
    /// assert_eq!((before, visits.get()?), (Some(1), Some(vec![7])));
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `WrongStructure`; `OutOfMemory`; `RecursiveEdit` if it is called by the closure of an edit of the same key.
    pub fn edit<R>(&self, mut edit: impl FnMut(&mut [u64]) -> R) -> Result<Option<R>, Error> {
        self.editor.edit(InsertOptions::new(), |found| {
            let Some(found) = found else { return Ok((Edit::Keep, None)) };
            let mut words = self.decode(found.content)?;
            let answer = edit(&mut words);
            Ok((Edit::Store { content: self.encode(&words)?, spare: 0 }, Some(answer)))
        })
    }

    /// As `edit`; words of an absent key are created, and edited, with these options.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, InsertOptions};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// let visits = cache.words("visits");
    /// visits.edit_or_create(&[0], InsertOptions::new(), |words| words[0] += 1)?;
    /// assert_eq!(visits.get()?, Some(vec![1]));
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `create` and `edit`.
    pub fn edit_or_create<R>(
        &self,
        initial: &[u64],
        options: InsertOptions,
        mut edit: impl FnMut(&mut [u64]) -> R,
    ) -> Result<R, Error> {
        self.editor.edit(options, |found| {
            let mut words = match found {
                Some(found) => self.decode(found.content)?,
                None => initial.to_vec(),
            };
            let answer = edit(&mut words);
            Ok((Edit::Store { content: self.encode(&words)?, spare: 0 }, answer))
        })
    }

    fn encode(&self, words: &[u64]) -> Result<Vec<u8>, Error> {
        if words.is_empty() || words.len() > WORDS_MAX {
            return Err(Error::WordCount { count: words.len(), limit: WORDS_MAX });
        }
        let mut content = Structure::Words.head(&[self.tag]);
        words.iter().for_each(|word| content.extend(word.to_le_bytes()));
        Ok(content)
    }

    fn decode(&self, content: &[u8]) -> Result<Vec<u64>, Error> {
        let (words, rest) = Structure::Words.open(content, &[self.tag])?.as_chunks::<8>();
        if words.is_empty() || words.len() > WORDS_MAX || !rest.is_empty() {
            return Err(Structure::Words.damaged());
        }
        Ok(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
    }
}

/// A flat type of named counters, each a word. [`crate::counters!`] writes the implementation.
pub trait Counters: Sized {
    /// The number of the type, from 1 on: values of another number are refused.
    const TYPE: u32;
    /// How many words it has, 1 to 64.
    const COUNT: usize;

    /// The fields as words, in their order.
    fn to_words(&self) -> Vec<u64>;

    /// The value of `COUNT` words.
    fn from_words(words: &[u64]) -> Self;
}

/// Defines a struct of `u64` fields and implements [`crate::structured::Counters`] for it.
///
/// ```
/// ebbtide::counters! {
///     /// Of one client.
///     pub struct Usage(1) { calls, bytes }
/// }
/// let usage = Usage { calls: 1, bytes: 500 };
/// assert_eq!(usage.calls, 1);
/// ```
#[macro_export]
macro_rules! counters {
    ($(#[$attribute:meta])* $visibility:vis struct $name:ident($number:expr) { $($field:ident),+ $(,)? }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        $visibility struct $name {
            $(pub $field: u64),+
        }

        impl $crate::structured::Counters for $name {
            const TYPE: u32 = $number;
            const COUNT: usize = [$(stringify!($field)),+].len();

            fn to_words(&self) -> Vec<u64> {
                vec![$(self.$field),+]
            }

            fn from_words(words: &[u64]) -> Self {
                let mut words = words.iter().copied();
                Self { $($field: words.next().expect("as many words as fields")),+ }
            }
        }
    };
}

/// Named counters of one key, read and changed together; made by [`Pool::typed_handle`].
pub struct TypedHandle<T> {
    words: Words,
    types: PhantomData<fn() -> T>,
}

impl<T: Counters> TypedHandle<T> {
    /// Stores a value if the key is absent. False, with nothing changed, if it is present.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, InsertOptions};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// ebbtide::counters! {
    ///     struct Usage(1) { calls, bytes }
    /// }
    /// let usage = cache.typed_handle::<Usage>("client");
    /// assert!(usage.create(&Usage { calls: 1, bytes: 500 }, InsertOptions::new())?);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Words::create`].
    pub fn create(&self, value: &T, options: InsertOptions) -> Result<bool, Error> {
        self.words.create(&value.to_words(), options)
    }

    /// The value at one moment. `None` if the key is absent.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, InsertOptions};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// ebbtide::counters! {
    ///     struct Usage(1) { calls, bytes }
    /// }
    /// let usage = cache.typed_handle::<Usage>("client");
    /// usage.create(&Usage { calls: 1, bytes: 500 }, InsertOptions::new())?;
    /// assert_eq!(usage.get()?.map(|usage| usage.bytes), Some(500));
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `WrongStructure`, also for words of another type.
    pub fn get(&self) -> Result<Option<T>, Error> {
        self.words.get()?.map(|words| read(&words)).transpose()
    }

    /// Changes the value as one operation: see [`Words::edit`].
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// ebbtide::counters! {
    ///     struct Usage(1) { calls, bytes }
    /// }
    /// let usage = cache.typed_handle::<Usage>("client");
    /// assert_eq!(usage.edit(|usage| usage.calls += 1)?, None, "it is absent");
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Words::edit`].
    pub fn edit<R>(&self, mut edit: impl FnMut(&mut T) -> R) -> Result<Option<R>, Error> {
        self.words.edit(|words| edit_words(words, &mut edit))?.transpose()
    }

    /// As `edit`; an absent key begins with `initial`, and these options.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, InsertOptions};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// ebbtide::counters! {
    ///     struct Usage(1) { calls, bytes }
    /// }
    /// let usage = cache.typed_handle::<Usage>("client");
    /// usage.edit_or_create(&Usage::default(), InsertOptions::new(), |usage| usage.calls += 1)?;
    /// assert_eq!(usage.get()?.map(|usage| usage.calls), Some(1));
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Words::edit_or_create`].
    pub fn edit_or_create<R>(
        &self,
        initial: &T,
        options: InsertOptions,
        mut edit: impl FnMut(&mut T) -> R,
    ) -> Result<R, Error> {
        self.words.edit_or_create(&initial.to_words(), options, |words| edit_words(words, &mut edit))?
    }
}

fn read<T: Counters>(words: &[u64]) -> Result<T, Error> {
    if words.len() == T::COUNT { Ok(T::from_words(words)) } else { Err(Structure::Words.damaged()) }
}

fn edit_words<T: Counters, R>(words: &mut [u64], edit: &mut impl FnMut(&mut T) -> R) -> Result<R, Error> {
    let mut value: T = read(words)?;
    let answer = edit(&mut value);
    words.copy_from_slice(&value.to_words());
    Ok(answer)
}

impl<T> Clone for TypedHandle<T> {
    fn clone(&self) -> Self {
        Self { words: self.words.clone(), types: PhantomData }
    }
}

impl<T> Debug for TypedHandle<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TypedHandle").field("words", &self.words).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ByteSize, Cache};

    #[test]
    fn words_have_the_documented_bytes() {
        let cache = Cache::builder().memory(ByteSize::mib(8)).build().unwrap();
        cache.words("k").create(&[1, 0x0203], InsertOptions::new()).unwrap();
        let expected: &[&[u8]] = &[&[0xEB, 0x7D, 1, 1], &[0; 4], &[1, 0, 0, 0, 0, 0, 0, 0], &[3, 2, 0, 0, 0, 0, 0, 0]];
        assert_eq!(cache.get("k").unwrap(), expected.concat());
    }
}
