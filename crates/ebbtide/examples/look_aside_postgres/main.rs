//! A look-aside cache before PostgreSQL: one load for all tasks that miss, invalidation on writes, negative results.
//!
//! `cargo run --example look_aside_postgres -- "host=/run/postgresql user=me dbname=test"`
//!
//! It creates a table `users` for the time of its connection.

mod users;

use ebbtide::{ByteSize, Cache};
use std::error::Error;
use std::time::Instant;
use tokio_postgres::NoTls;
use users::{User, Users};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let parameters = std::env::args().nth(1).ok_or("say how to connect, as in \"host=/run/postgresql user=me\"")?;
    let (client, connection) = tokio_postgres::connect(&parameters, NoTls).await?;
    tokio::spawn(connection);
    client.batch_execute("CREATE TEMPORARY TABLE users (id bigint PRIMARY KEY, name text, logins bigint)").await?;
    let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    let users = Users::new(client, &cache);
    users.save(42, &User { name: "Ada".to_owned(), logins: 1 }).await?;
    for look in ["from the database", "from the cache"] {
        let start = Instant::now();
        println!("{:?} {look} in {:?}", users.find(42).await?, start.elapsed());
    }
    users.save(42, &User { name: "Grace".to_owned(), logins: 2 }).await?;
    println!("{:?} after a change, and {:?} is absent", users.find(42).await?, users.find(7).await?);
    users.delete(42).await?;
    // For a table that other programs change, too: call this when one says so.
    users.forget(7)?;
    println!("{:?} after the removal\n{}", users.find(42).await?, cache.stats());
    Ok(())
}
