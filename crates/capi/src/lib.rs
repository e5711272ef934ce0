//! The C interface of the cache: `include/ebbtide.h`, a shared and a static library.
//!
//! A cache or a pool is an opaque pointer to [`ebbtide_cache`], a hit one to [`ebbtide_value`]. A mistake that a
//! function can detect (a null pointer, a wrong length of a string, a closed cache) is answered by a status. A mistake
//! that no function can detect (a freed pointer, a length beyond the buffer) breaks the caller's promise, which the
//! functions' safety sections name. No panic crosses the boundary: it is a status of its own.
#![allow(non_camel_case_types)]
#![warn(missing_docs)]

mod append_buffer;
mod array;
mod cache;
mod compact;
mod lookup;
mod options;
mod pool;
mod range_map;
mod statistics;
mod status;
mod structured;
mod value;

pub use append_buffer::{
    ebbtide_buffer_append, ebbtide_buffer_each, ebbtide_buffer_retain_last, ebbtide_record_visitor,
};
pub use array::{
    EBBTIDE_ELEMENT_F32, EBBTIDE_ELEMENT_F64, EBBTIDE_ELEMENT_I8, EBBTIDE_ELEMENT_I16, EBBTIDE_ELEMENT_I32,
    EBBTIDE_ELEMENT_I64, EBBTIDE_ELEMENT_U8, EBBTIDE_ELEMENT_U16, EBBTIDE_ELEMENT_U32, EBBTIDE_ELEMENT_U64,
    ebbtide_array_create, ebbtide_array_edit, ebbtide_array_get, ebbtide_array_set, ebbtide_element_editor,
};
pub use cache::{
    ebbtide_cache, ebbtide_close, ebbtide_contains, ebbtide_decrement, ebbtide_free, ebbtide_get, ebbtide_get_into,
    ebbtide_increment, ebbtide_insert, ebbtide_invalidate_all, ebbtide_open, ebbtide_remove, ebbtide_resize,
    ebbtide_touch,
};
pub use compact::{
    ebbtide_compact, ebbtide_compact_add, ebbtide_compact_free, ebbtide_compact_get, ebbtide_compact_insert,
    ebbtide_compact_insert_negative, ebbtide_compact_insert_negative_since, ebbtide_compact_invalidate_all,
    ebbtide_compact_pool, ebbtide_compact_remove, ebbtide_compact_remove_negative, ebbtide_compact_statistics,
    ebbtide_compact_stats, ebbtide_compact_take_ticket, ebbtide_compact_ticket,
};
pub use lookup::{ebbtide_compare_and_swap, ebbtide_get_many, ebbtide_get_range, ebbtide_insert_if_absent};
pub use options::{ebbtide_options, ebbtide_options_init};
pub use pool::{
    ebbtide_pool, ebbtide_pool_add, ebbtide_pool_options, ebbtide_pool_options_init, ebbtide_pool_remove,
    ebbtide_pool_resize,
};
pub use range_map::{
    ebbtide_range_map_each, ebbtide_range_map_get, ebbtide_range_map_insert, ebbtide_range_map_remove,
};
pub use statistics::{ebbtide_flash_statistics, ebbtide_flash_stats, ebbtide_statistics, ebbtide_stats};
pub use status::{ebbtide_last_error, ebbtide_status};
pub use structured::{
    EBBTIDE_WORDS_MAX, ebbtide_map_each, ebbtide_map_get, ebbtide_map_insert, ebbtide_map_remove, ebbtide_map_visitor,
    ebbtide_words_add, ebbtide_words_edit, ebbtide_words_editor, ebbtide_words_get,
};
pub use value::{ebbtide_value, ebbtide_value_data, ebbtide_value_free, ebbtide_value_length};
