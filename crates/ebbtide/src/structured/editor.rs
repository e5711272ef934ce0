//! Reads and edits of the structured value of one key.

use crate::error::Error;
use crate::library::{InsertOptions, Pool, Value};
use ebbtide_store::{Edit, Editable};

/// A key of a pool.
#[derive(Clone, Debug)]
pub struct Editor {
    pool: Pool,
    key: Box<[u8]>,
}

impl Editor {
    pub fn new(pool: &Pool, key: &[u8]) -> Self {
        Self { pool: pool.clone(), key: key.into() }
    }

    /// Reads the content where it lies. `None` if the key is absent.
    pub fn read<R>(&self, read: impl FnOnce(&[u8]) -> Result<R, Error>) -> Result<Option<R>, Error> {
        self.pool.with(&self.key, read).transpose()
    }

    /// The content at this moment, which stays as it is.
    pub fn snapshot(&self) -> Option<Value> {
        self.pool.get(&self.key)
    }

    /// Edits the value. `decide` is called again if the value has changed meanwhile; only the answer of its last call
    /// counts. The options are those of a new entry.
    pub fn edit<R>(
        &self,
        options: InsertOptions,
        mut decide: impl FnMut(Option<Editable<'_>>) -> Result<(Edit, R), Error>,
    ) -> Result<R, Error> {
        let mut answer = None;
        self.pool.edit(&self.key, options, &mut |found| match decide(found) {
            Ok((edit, given)) => {
                answer = Some(Ok(given));
                edit
            }
            Err(error) => {
                answer = Some(Err(error));
                Edit::Keep
            }
        })?;
        answer.expect("an edit decides")
    }

    /// Stores a value if the key is absent. False, with nothing changed, if it is present.
    pub fn create(&self, options: InsertOptions, content: &[u8], spare: usize) -> Result<bool, Error> {
        self.edit(options, |found| {
            Ok(match found {
                Some(_) => (Edit::Keep, false),
                None => (Edit::Store { content: content.to_vec(), spare }, true),
            })
        })
    }
}
