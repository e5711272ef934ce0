//! Structured values: words, maps, arrays and buffers that are found, read and edited without decoding the whole.
//!
//! ```text
//! Map, RangeMap --> sorted_log --+
//! FixedArray, AppendBuffer ------+--> head.rs: the first bytes of every content
//! Words, TypedHandle ------------+
//!      |
//!      +--> editor.rs: reads and edits of one key --> Access --> ebbtide_store::Store::edit
//! ```
//! A structured value is bytes with a head that names its structure and version; `ebbtide_store`, `structured.rs`,
//! draws them, and each structure draws its part at the top of its file. A plain get answers the bytes, a plain insert
//! of such bytes stores a structured value, and flash holds them. Every reader checks what it reads: bytes of another
//! structure or damaged ones are [`crate::Error::WrongStructure`].

mod append_buffer;
mod editor;
mod fixed_array;
mod flat;
mod head;
mod map;
mod range_map;
mod sorted_log;
mod words;

pub use append_buffer::{AppendBuffer, Records};
pub use fixed_array::FixedArray;
pub use flat::{Fixed, Flat, Ordered};
pub use map::{Map, MapSnapshot, WithoutOrder};
pub use range_map::{InKeyOrder, RangeMap};
pub use words::{Counters, TypedHandle, Words};
