//! `ebbtide dashboard`: several servers on one read-only page.
//!
//! One task for each node asks its admin HTTP for `/api/overview` once a second, with a bound on the time and on the
//! bytes of an answer. A node that hangs is shown as silent; the tasks of the others continue.

mod client;
mod node;

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::State as FromState;
use axum::http::{HeaderValue, header};
use axum::middleware::from_fn_with_state;
use axum::response::{Html, IntoResponse};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::sync::lock;
use crate::unix_time::unix_now;
use crate::{Error, admin};
use node::Node;

/// Interval of the requests to a node, and the time limit of an answer.
const INTERVAL: Duration = Duration::from_secs(1);
const ANSWER_TIME: Duration = Duration::from_secs(3);

/// Which nodes, and where the page is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetOptions {
    pub listen: SocketAddr,
    /// `HOST:PORT` of each node's admin HTTP.
    pub nodes: Vec<String>,
}

type Nodes = Arc<Vec<Mutex<Node>>>;

/// Serves the page until the process ends. `started` gets the address.
///
/// # Errors
/// The address cannot be listened on.
pub fn run(options: &FleetOptions, started: impl FnOnce(SocketAddr)) -> Result<(), Error> {
    let failed = |source| Error::Admin { address: options.listen, source };
    let listener = TcpListener::bind(options.listen).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let nodes: Nodes = Arc::new(options.nodes.iter().map(|name| Mutex::new(Node::new(name))).collect());
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build().map_err(Error::Thread)?;
    let served = runtime.block_on(async move {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        for number in 0..nodes.len() {
            tokio::spawn(watch(Arc::clone(&nodes), number));
        }
        let router = router(nodes, address.ip().is_loopback());
        started(address);
        admin::accept_all(listener, router).await
    });
    served.map_err(failed)
}

fn router(nodes: Nodes, checks_host: bool) -> Router {
    Router::new()
        .route("/", get(page))
        .route("/api/fleet", get(fleet))
        .layer(from_fn_with_state(checks_host, admin::guard))
        .with_state(nodes)
}

/// Asks one node for ever.
async fn watch(nodes: Nodes, number: usize) {
    let name = lock(&nodes[number]).name.clone();
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let answer = match timeout(ANSWER_TIME, client::get_json(&name, "/api/overview")).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("no answer within {} s", ANSWER_TIME.as_secs())),
        };
        let now_unix_ms = unix_now().as_millis() as u64;
        let mut node = lock(&nodes[number]);
        match answer {
            Ok(overview) => node.take(overview, now_unix_ms),
            Err(reason) => node.miss(reason),
        }
    }
}

async fn fleet(FromState(nodes): FromState<Nodes>) -> impl IntoResponse {
    let rows: Vec<Value> = nodes.iter().map(|node| lock(node).row()).collect();
    Json(json!({ "time_unix_ms": unix_now().as_millis() as u64, "nodes": rows, "skew": node::skew(&rows) }))
}

const PAGE: &str = include_str!("page/index.html");
const STYLE: &str = include_str!("../admin/dashboard/style.css");
const SCRIPT: &str = concat!(include_str!("../admin/dashboard/format.js"), include_str!("page/fleet.js"));

/// The policy is that of the dashboard of one server: no outside resources, and names of nodes as text.
async fn page() -> impl IntoResponse {
    let nonce = admin::nonce();
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let policy = HeaderValue::from_str(&policy).expect("the policy is ASCII");
    let page = PAGE.replace("{{nonce}}", &nonce).replace("{{style}}", STYLE).replace("{{script}}", SCRIPT);
    ([(header::CONTENT_SECURITY_POLICY, policy)], Html(page))
}
