//! Negative results: that a user does not exist is remembered, too, but for a shorter time.
//!
//! `cargo run --example negative_results`

use ebbtide::{ByteSize, Cache, Clock, InsertOptions, LoadError, TypedCache};
use serde::{Deserialize, Serialize};
use std::convert::Infallible;
use std::time::Duration;

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
struct User {
    name: String,
    age: u8,
}

type Users = TypedCache<u64, Option<User>, ebbtide::Postcard>;

/// `None` stands for a user who does not exist.
fn find(users: &Users, id: u64, queries: &mut u32) -> Result<Option<User>, LoadError<Infallible>> {
    users.try_get_or_insert_with(&id, || {
        *queries += 1;
        let user = (id == 42).then(|| User { name: "Ada".to_owned(), age: 36 });
        let seconds = if user.is_some() { 3600 } else { 5 };
        Ok((user, InsertOptions::new().ttl(Duration::from_secs(seconds))))
    })
}

pub fn main() -> Result<(), LoadError<Infallible>> {
    // A manual clock, so that the example does not wait.
    let cache = Cache::builder().memory(ByteSize::mib(16)).clock(Clock::Manual).build()?;
    let (users, mut queries): (Users, _) = (cache.typed(), 0);
    for _ in 0..100 {
        assert!(find(&users, 42, &mut queries)?.is_some_and(|user| user.age == 36));
        assert_eq!(find(&users, 7, &mut queries)?, None);
    }
    assert_eq!(queries, 2, "one for each user, the absent one included");
    cache.maintain(Duration::from_secs(5));
    find(&users, 42, &mut queries)?;
    find(&users, 7, &mut queries)?;
    assert_eq!(queries, 3, "the negative result has expired");
    println!("{queries} queries for 202 lookups");
    Ok(())
}
