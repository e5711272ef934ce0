//! AppendBuffer: records of bytes, appended one after the other.
//!
//! ```text
//! head: structure; then records: bytes of the record u32, the record
//! ```

use super::editor::Editor;
use super::head::{Structure, take_u32};
use super::sorted_log::spare_of;
use crate::error::Error;
use crate::library::{InsertOptions, Pool, Value};
use ebbtide_store::Edit;

/// A list of records in one value of the cache, at most a segment long; made by [`Pool::append_buffer`]. A clone is of
/// the same key.
///
/// ```
/// # use ebbtide::{ByteSize, Cache};
/// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
/// let events = cache.append_buffer("events:42");
/// events.append("login")?;
/// events.append("logout")?;
/// let records = events.records()?.expect("nothing has removed it");
/// assert!(records.iter().eq([b"login".as_slice(), b"logout"]));
/// # Ok::<(), ebbtide::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct AppendBuffer {
    editor: Editor,
}

/// The records of a buffer at one moment.
#[derive(Clone, Debug)]
pub struct Records {
    content: Value,
}

impl Pool {
    /// The append buffer of a key. Nothing is created by this call.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// let events = cache.append_buffer("events");
    /// assert!(events.records()?.is_none());
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn append_buffer(&self, key: impl AsRef<[u8]>) -> AppendBuffer {
        AppendBuffer { editor: Editor::new(self, key.as_ref()) }
    }
}

/// The records behind the head; `None` behind the last whole one.
fn records(rest: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = rest;
    std::iter::from_fn(move || {
        let (length, after) = take_u32(rest)?;
        let (record, after) = after.split_at_checked(length as usize)?;
        rest = after;
        Some(record)
    })
}

impl AppendBuffer {
    /// Appends a record. An absent buffer is created, with the cache's default TTL.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// let events = cache.append_buffer("events");
    /// events.append("login")?;
    /// assert_eq!(events.records()?.unwrap().iter().next(), Some(&b"login"[..]));
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `WrongStructure`; `StructureTooLarge`: see `retain_last`; `KeyLength`, `OutOfMemory`.
    pub fn append(&self, record: impl AsRef<[u8]>) -> Result<(), Error> {
        self.append_with(record, InsertOptions::new())
    }

    /// As `append`; an absent buffer is created with these options. A present one keeps its TTL.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, InsertOptions};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// let events = cache.append_buffer("events");
    /// let a_minute = InsertOptions::new().ttl(std::time::Duration::from_secs(60));
    /// events.append_with("login", a_minute)?;
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `append`.
    pub fn append_with(&self, record: impl AsRef<[u8]>, options: InsertOptions) -> Result<(), Error> {
        let record = record.as_ref();
        let Ok(length) = u32::try_from(record.len()) else {
            let limit = u32::MAX.into();
            return Err(Error::StructureTooLarge { length: record.len() as u64, limit });
        };
        let bytes = [&length.to_le_bytes()[..], record].concat();
        self.editor.edit(options, |found| {
            let mut content = match found {
                None => Structure::AppendBuffer.head(&[]),
                Some(found) => {
                    Structure::AppendBuffer.open(found.content, &[])?;
                    if bytes.len() <= found.spare {
                        return Ok((Edit::Append(bytes.clone()), ()));
                    }
                    found.content.to_vec()
                }
            };
            content.extend_from_slice(&bytes);
            let spare = spare_of(&content);
            Ok((Edit::Store { content, spare }, ()))
        })
    }

    /// Removes all records but the last `count`. Returns how many were removed.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// let events = cache.append_buffer("events");
    /// ["a", "b", "c"].iter().try_for_each(|record| events.append(record))?;
    /// assert_eq!(events.retain_last(1)?, 2);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `WrongStructure`; `OutOfMemory`.
    pub fn retain_last(&self, count: usize) -> Result<usize, Error> {
        self.editor.edit(InsertOptions::new(), |found| {
            let Some(found) = found else { return Ok((Edit::Keep, 0)) };
            let rest = Structure::AppendBuffer.open(found.content, &[])?;
            let removed = records(rest).count().saturating_sub(count);
            if removed == 0 {
                return Ok((Edit::Keep, 0));
            }
            let removed_bytes: usize = records(rest).take(removed).map(|record| 4 + record.len()).sum();
            let content = [&Structure::AppendBuffer.head(&[])[..], &rest[removed_bytes..]].concat();
            let spare = spare_of(&content);
            Ok((Edit::Store { content, spare }, removed))
        })
    }

    /// The records at this moment: later edits do not change them. `None` if the buffer is absent.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// let events = cache.append_buffer("events");
    /// events.append("login")?;
    /// assert_eq!(events.records()?.unwrap().iter().count(), 1);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `WrongStructure`.
    pub fn records(&self) -> Result<Option<Records>, Error> {
        let Some(content) = self.editor.snapshot() else { return Ok(None) };
        let rest = Structure::AppendBuffer.open(&content, &[])?;
        let whole: usize = records(rest).map(|record| 4 + record.len()).sum();
        if whole != rest.len() {
            return Err(Structure::AppendBuffer.damaged());
        }
        Ok(Some(Records { content }))
    }
}

impl Records {
    /// The records, the oldest first.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// let events = cache.append_buffer("events");
    /// events.append("login")?;
    /// let records = events.records()?.unwrap();
    /// assert!(records.iter().eq([b"login"]));
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        records(Structure::AppendBuffer.open(&self.content, &[]).expect("it was checked"))
    }
}

#[cfg(test)]
mod tests {
    use crate::{ByteSize, Cache};

    #[test]
    fn the_format_has_the_documented_bytes() {
        let cache = Cache::builder().memory(ByteSize::mib(8)).build().unwrap();
        cache.append_buffer("k").append("ab").unwrap();
        cache.append_buffer("k").append("").unwrap();
        assert_eq!(cache.get("k").unwrap(), [0xEB, 0x7D, 5, 1, 2, 0, 0, 0, b'a', b'b', 0, 0, 0, 0]);
    }
}
