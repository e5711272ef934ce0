//! Connections of the admin interface, and its clock: all counters are read once a second.
//!
//! Nothing that a client does takes more than a bounded share of this thread or of memory: connections, the bytes of a
//! request's head, the time to send it and the time that a connection lasts are limited.

use std::sync::Arc;
use std::time::Duration;
use std::{io, net};

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::routes;
use super::state::AdminState;
use crate::observe::HistoryFile;
use crate::shared::Shared;

/// Connections at a time; more are closed at once. Enough for a few browsers and scrapers.
const CONNECTIONS: usize = 64;
/// Bytes of a request's head.
const HEAD_BYTES: usize = 16 << 10;
/// How long a client may take for a request's head, and idle before it.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// How long a connection lasts, however busy; then it ends with the answer it is at.
const CONNECTION_TIME: Duration = Duration::from_secs(60);
/// How long a client may take for that answer.
const LAST_ANSWER_TIME: Duration = Duration::from_secs(5);
/// Pause after a failure to accept, for example for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
const SECOND: Duration = Duration::from_secs(1);

/// Serves until `stop` is dropped.
pub async fn serve(
    listener: net::TcpListener,
    shared: Arc<Shared>,
    history: Option<HistoryFile>,
    mut stop: oneshot::Receiver<()>,
) -> io::Result<()> {
    let address = listener.local_addr()?;
    let listener = TcpListener::from_std(listener)?;
    let state = Arc::new(AdminState::new(shared, address, history));
    let router = routes::router(Arc::clone(&state));
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    let mut ticks = interval(SECOND);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = &mut stop => return Ok(()),
            _ = ticks.tick() => state.observe(),
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    if let Ok(slot) = Arc::clone(&slots).try_acquire_owned() {
                        tokio::spawn(converse(stream, router.clone(), slot));
                    }
                }
                Err(_) => sleep(ACCEPT_PAUSE).await,
            },
        }
    }
}

/// Serves a router until the listener fails, with the same limits.
pub async fn accept_all(listener: TcpListener, router: axum::Router) -> io::Result<()> {
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                if let Ok(slot) = Arc::clone(&slots).try_acquire_owned() {
                    tokio::spawn(converse(stream, router.clone(), slot));
                }
            }
            Err(_) => sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// One connection, which holds its slot until it ends.
async fn converse(stream: TcpStream, router: axum::Router, _slot: OwnedSemaphorePermit) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = std::pin::pin!(connection);
    // How a client's connection ends is the client's business.
    if timeout(CONNECTION_TIME, connection.as_mut()).await.is_err() {
        connection.as_mut().graceful_shutdown();
        let _ = timeout(LAST_ANSWER_TIME, connection).await;
    }
}
