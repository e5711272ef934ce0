//! The look-aside cache among the examples, before a real PostgreSQL that the test starts.

#[path = "../examples/look_aside_postgres/users.rs"]
mod users;

use ebbtide::{ByteSize, Cache, Clock};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio_postgres::{Client, NoTls};
use users::{User, Users};

const NOBODY: u32 = 65_534;
/// Longer than any wait should be.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server on a Unix socket in a temporary folder.
struct Postgres {
    folder: TempDir,
    process: Child,
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // A killed server would leave its shared memory.
        let pid = rustix::process::Pid::from_child(&self.process);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        let start = Instant::now();
        while self.process.try_wait().is_ok_and(|status| status.is_none()) {
            if start.elapsed() > PATIENCE {
                let _ = self.process.kill();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The newest of Debian's versions, which are not on the path.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    versions.map(|path| path.join("bin")).filter(|path| path.join("postgres").exists()).max()
}

/// PostgreSQL refuses root: then its programs run as `nobody`.
fn command(program: &Path, folder: &TempDir) -> Command {
    let mut command = Command::new(program);
    if rustix::process::geteuid().is_root() {
        chown(folder.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        command.uid(NOBODY).gid(NOBODY);
    }
    command.current_dir(folder.path());
    command
}

fn start() -> Option<Postgres> {
    let programs = programs()?;
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let made = command(&programs.join("initdb"), &folder)
        .args(["--username=test", "--auth=trust", "--no-sync", "--no-locale", "--encoding=UTF8", "-D"])
        .arg(&data)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let process = command(&programs.join("postgres"), &folder)
        .arg("-D")
        .arg(&data)
        .arg("-k")
        .arg(folder.path())
        .args(["-c", "listen_addresses=", "-c", "fsync=off", "-c", "shared_buffers=4MB"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    Some(Postgres { folder, process })
}

impl Postgres {
    async fn client(&self) -> Client {
        let parameters = format!("host={} user=test dbname=postgres", self.folder.path().display());
        let start = Instant::now();
        loop {
            match tokio_postgres::connect(&parameters, NoTls).await {
                Ok((client, connection)) => {
                    tokio::spawn(connection);
                    return client;
                }
                Err(error) => assert!(start.elapsed() < PATIENCE, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn user(name: &str, logins: i64) -> User {
    User { name: name.to_owned(), logins }
}

async fn exercise(postgres: &Postgres) {
    // Another program, which the cache does not see.
    let (client, other) = (postgres.client().await, postgres.client().await);
    other.batch_execute("CREATE TABLE users (id bigint PRIMARY KEY, name text, logins bigint)").await.unwrap();
    let cache = Cache::builder().memory(ByteSize::mib(16)).clock(Clock::Manual).build().unwrap();
    let users = Arc::new(Users::new(client, &cache));

    users.save(1, &user("Ada", 1)).await.unwrap();
    assert_eq!(users.find(1).await.unwrap(), Some(user("Ada", 1)));
    other.execute("UPDATE users SET name = 'unseen'", &[]).await.unwrap();
    assert_eq!(users.find(1).await.unwrap(), Some(user("Ada", 1)), "the cache answers");
    users.save(1, &user("Grace", 2)).await.unwrap();
    assert_eq!(users.find(1).await.unwrap(), Some(user("Grace", 2)), "a write invalidates");
    users.delete(1).await.unwrap();
    assert_eq!(users.find(1).await.unwrap(), None, "a removal invalidates");

    // The absent user is remembered, but for a shorter time.
    other.execute("INSERT INTO users VALUES (1, 'Edsger', 3), (2, 'Barbara', 4)", &[]).await.unwrap();
    assert_eq!(users.find(1).await.unwrap(), None);
    assert_eq!(users.find(2).await.unwrap(), Some(user("Barbara", 4)));
    cache.maintain(Duration::from_secs(6));
    assert_eq!(users.find(1).await.unwrap(), Some(user("Edsger", 3)));
    other.execute("DELETE FROM users", &[]).await.unwrap();
    assert_eq!(users.find(2).await.unwrap(), Some(user("Barbara", 4)), "a user who exists is remembered for longer");
    cache.maintain(Duration::from_secs(700));
    assert_eq!(users.find(2).await.unwrap(), None);

    // While the table is locked, every query waits.
    other.batch_execute("BEGIN; LOCK TABLE users; INSERT INTO users VALUES (3, 'Donald', 5)").await.unwrap();
    let (loads, misses) = (cache.stats().loads, cache.stats().misses);
    let tasks: Vec<_> =
        (0..8).map(|_| Arc::clone(&users)).map(|users| tokio::spawn(async move { users.find(3).await })).collect();
    let start = Instant::now();
    while cache.stats().misses < misses + 8 {
        assert!(start.elapsed() < PATIENCE, "all have missed");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    other.batch_execute("COMMIT").await.unwrap();
    for task in tasks {
        assert_eq!(task.await.unwrap().unwrap(), Some(user("Donald", 5)));
    }
    assert_eq!(cache.stats().loads - loads, 1, "one of eight has asked the database");

    // A failed query is an error of its caller, and nothing is remembered.
    other.batch_execute("ALTER TABLE users RENAME TO people").await.unwrap();
    assert!(users.find(4).await.is_err());
    other.batch_execute("ALTER TABLE people RENAME TO users").await.unwrap();
    assert_eq!(users.find(4).await.unwrap(), None);
    drop(users);
    cache.verify();
}

#[test]
fn reads_load_and_writes_invalidate() {
    let Some(postgres) = start() else {
        eprintln!("skipped: PostgreSQL is not installed (Debian's package postgresql)");
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(exercise(&postgres));
}
