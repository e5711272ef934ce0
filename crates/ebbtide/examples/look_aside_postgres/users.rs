//! Users of a database, read through a cache.

use ebbtide::{Cache, Error, InsertOptions, LoadError, Postcard, TypedCache};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tokio_postgres::Client;

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct User {
    pub name: String,
    pub logins: i64,
}

/// How long a change that another program makes in the database may stay unseen.
const TTL: Duration = Duration::from_secs(600);
/// How long an absent user is remembered: less, because another program may add one.
const ABSENT_TTL: Duration = Duration::from_secs(5);

pub struct Users {
    client: Client,
    /// `None` stands for a user who does not exist.
    cache: TypedCache<i64, Option<User>, Postcard>,
}

impl Users {
    pub fn new(client: Client, cache: &Cache) -> Self {
        Self { client, cache: cache.typed() }
    }

    /// Of several tasks that miss a user, one asks the database.
    pub async fn find(&self, id: i64) -> Result<Option<User>, LoadError<tokio_postgres::Error>> {
        let load = async {
            let row = self.client.query_opt("SELECT name, logins FROM users WHERE id = $1", &[&id]).await?;
            let user = row.map(|row| User { name: row.get(0), logins: row.get(1) });
            let ttl = if user.is_some() { TTL } else { ABSENT_TTL };
            Ok((user, InsertOptions::new().ttl(ttl)))
        };
        self.cache.try_get_or_insert_with_async(&id, load).await
    }

    /// The database first, then the removal: a load that has started before is not published after it.
    pub async fn save(&self, id: i64, user: &User) -> Result<(), LoadError<tokio_postgres::Error>> {
        let statement = "INSERT INTO users (id, name, logins) VALUES ($1, $2, $3)
            ON CONFLICT (id) DO UPDATE SET name = excluded.name, logins = excluded.logins";
        let saved = self.client.execute(statement, &[&id, &user.name, &user.logins]).await;
        // After an error, too: the connection may have failed after the change.
        self.forget(id)?;
        saved.map(drop).map_err(LoadError::Loader)
    }

    pub async fn delete(&self, id: i64) -> Result<(), LoadError<tokio_postgres::Error>> {
        let deleted = self.client.execute("DELETE FROM users WHERE id = $1", &[&id]).await;
        self.forget(id)?;
        deleted.map(drop).map_err(LoadError::Loader)
    }

    /// For changes by another program, which it announces.
    pub fn forget(&self, id: i64) -> Result<(), Error> {
        self.cache.remove(&id).map(drop)
    }
}
