//! The tests of the store's interface, in one binary: a binary for each file would be linked for each. Beside this one
//! are those that count the heap and the memory of their process, or hold up its threads.

mod common;

mod budget;
mod cost;
mod engine_memory;
mod exact_expiry;
mod expired_memory;
mod flush;
mod full_memory;
mod growth;
mod image;
mod index;
mod lifetimes;
mod lower_tier;
mod model;
mod removal;
mod value_lengths;
