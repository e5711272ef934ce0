//! Reads and edits of the structured value of one key.

use crate::debug::Key;
use crate::error::Error;
use crate::library::{InsertOptions, Pool, Value};
use crate::pool_state::PoolState;
use ebbtide_store::{Edit, Editable};
use std::cell::RefCell;
use std::sync::Arc;

/// A key of a pool.
#[derive(Clone, Debug)]
pub struct Editor {
    pool: Pool,
    key: Arc<[u8]>,
}

/// Target of an edit: a pool, by its address, and a key.
type Target = (*const PoolState, Arc<[u8]>);

thread_local! {
    /// The edits that decide on this thread now, the outermost first.
    static DECIDING: RefCell<Vec<Target>> = const { RefCell::new(Vec::new()) };
}

/// An edit decides. Its closure may be the caller's, and edit other keys.
struct Deciding;

impl Deciding {
    fn start(pool: *const PoolState, key: &Arc<[u8]>) -> Self {
        DECIDING.with_borrow_mut(|edits| edits.push((pool, Arc::clone(key))));
        Self
    }
}

impl Drop for Deciding {
    fn drop(&mut self) {
        let _edit = DECIDING.with_borrow_mut(Vec::pop);
    }
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
    ///
    /// An edit that `decide` makes of the same key is refused: the change would have the outer edit decide again, and
    /// make the same change, for ever.
    pub fn edit<R>(
        &self,
        options: InsertOptions,
        mut decide: impl FnMut(Option<Editable<'_>>) -> Result<(Edit, R), Error>,
    ) -> Result<R, Error> {
        let pool = self.pool.state();
        let is_inner = |(outer, key): &Target| *outer == pool && *key == self.key;
        if DECIDING.with_borrow(|edits| edits.iter().any(is_inner)) {
            return Err(Error::RecursiveEdit { key: format!("{:?}", Key(&self.key)) });
        }
        let mut answer = None;
        self.pool.edit(&self.key, options, &mut |found| {
            let deciding = Deciding::start(pool, &self.key);
            let decided = decide(found);
            drop(deciding);
            match decided {
                Ok((edit, given)) => {
                    answer = Some(Ok(given));
                    edit
                }
                Err(error) => {
                    answer = Some(Err(error));
                    Edit::Keep
                }
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
