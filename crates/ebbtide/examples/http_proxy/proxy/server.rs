//! Connections: one task for each, until the client or the program ends it.

use super::handler::Handler;
use super::origin::{NoOrigin, Origin};
use ebbtide::Cache;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// How long a client may take for the headers of its next request.
const HEADER_PATIENCE: Duration = Duration::from_secs(60);
/// How long the answers that have started may take after a stop.
const STOP_PATIENCE: Duration = Duration::from_secs(10);
/// Between two tries to accept while the process has no file descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Ends a proxy. A clone ends the same one.
#[derive(Clone, Default)]
pub struct Stop(watch::Sender<bool>);

impl Stop {
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

pub struct Proxy {
    handler: Arc<Handler>,
}

impl Proxy {
    /// A proxy before one origin, `http://host:port`. Longer objects than `max_object_bytes` are not cached.
    ///
    /// # Errors
    /// `NoOrigin` if the URL has another form.
    pub fn new(cache: Cache, origin: &str, max_object_bytes: u64) -> Result<Self, NoOrigin> {
        let origin = Arc::new(Origin::new(origin)?);
        Ok(Self { handler: Arc::new(Handler::new(cache, origin, max_object_bytes)) })
    }

    /// Accepts connections until the stop, and then waits for the answers that have started.
    pub async fn serve(self, listener: TcpListener, stop: Stop) {
        let (mut connections, mut stopped) = (JoinSet::new(), stop.0.subscribe());
        loop {
            tokio::select! {
                () = wait_for_stop(&mut stopped) => break,
                Some(_) = connections.join_next() => {}
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        let connection = connection(Arc::clone(&self.handler), stream, stop.0.subscribe());
                        drop(connections.spawn(connection));
                    }
                    Err(_) => sleep(ACCEPT_PAUSE).await,
                },
            }
        }
        let ended = async { while connections.join_next().await.is_some() {} };
        // Dropping the set ends the tasks that remain.
        let _ = timeout(STOP_PATIENCE, ended).await;
    }
}

async fn wait_for_stop(stopped: &mut watch::Receiver<bool>) {
    // An error says that nothing can stop the proxy any more.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

async fn connection(handler: Arc<Handler>, stream: TcpStream, mut stopped: watch::Receiver<bool>) {
    let _ = stream.set_nodelay(true);
    let answer = service_fn(|request| {
        let handler = Arc::clone(&handler);
        async move { Ok::<_, Infallible>(handler.answer(request).await) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADER_PATIENCE);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), answer));
    // A connection that ends with an error concerns its client alone, which sees it closed.
    tokio::select! {
        _ = connection.as_mut() => return,
        () = wait_for_stop(&mut stopped) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}
