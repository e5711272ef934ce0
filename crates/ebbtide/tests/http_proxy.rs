//! The HTTP proxy among the examples, between curl and an origin.

#[path = "../examples/http_proxy/proxy/mod.rs"]
mod proxy;

use ebbtide::{ByteSize, Cache, CacheBuilder, Clock};
use http_body_util::channel::Channel;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use proxy::{Proxy, Stop};
use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::ops::Range;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Longer than any wait should be, on a disk that stalls, too.
const PATIENCE_SECONDS: &str = "300";
const LONG: usize = 3_000_000;

/// The origin: it counts the requests of each path.
struct Origin {
    requests: Mutex<HashMap<String, u64>>,
    version: AtomicU64,
    /// Responses of `/gated` and pieces of `/slow` wait for permits.
    gate: Arc<Semaphore>,
    knows_ranges: AtomicBool,
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length as u64).map(|i| (i.wrapping_mul(0x9E37_79B9) >> 16) as u8).collect()
}

fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).boxed_unsync()
}

impl Origin {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let path = request.uri().path().to_owned();
        *self.requests.lock().unwrap().entry(format!("{} {path}", request.method())).or_default() += 1;
        let mut response = Response::builder();
        if request.method() == Method::PUT {
            self.version.fetch_add(1, Ordering::SeqCst);
            return response.status(StatusCode::NO_CONTENT).body(full("")).unwrap();
        }
        let version = self.version.load(Ordering::SeqCst);
        response = response.header("etag", format!("\"{version}\"")).header("x-origin", "yes");
        if path != "/unnamed" {
            response = response.header("cache-control", "max-age=3600");
        }
        let range = request.headers().get("range").filter(|_| self.knows_ranges.load(Ordering::SeqCst));
        match path.as_str() {
            "/gated" => {
                self.gate.acquire().await.unwrap().forget();
                response.body(full("gated")).unwrap()
            }
            "/slow" => {
                let (mut sender, body) = Channel::<Bytes, Infallible>::new(1);
                let gate = Arc::clone(&self.gate);
                tokio::spawn(async move {
                    for piece in bytes(LONG).chunks(400_000) {
                        gate.acquire().await.unwrap().forget();
                        sender.send_data(piece.to_vec().into()).await.unwrap();
                    }
                });
                response.header("content-length", LONG).body(body.boxed_unsync()).unwrap()
            }
            "/long" => match range.and_then(|range| range.to_str().ok()?.strip_prefix("bytes=")?.split_once('-')) {
                Some((first, last)) => {
                    let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
                    let range = format!("bytes {first}-{last}/{LONG}");
                    let response = response.status(StatusCode::PARTIAL_CONTENT).header("content-range", range);
                    response.body(full(bytes(LONG)[first..=last].to_vec())).unwrap()
                }
                None => response.body(full(bytes(LONG))).unwrap(),
            },
            "/absent" => response.status(StatusCode::NOT_FOUND).body(full("absent")).unwrap(),
            "/private" => response.header("cache-control", "private").body(full("private")).unwrap(),
            "/cookie" => response.header("set-cookie", "a=b").body(full("cookie")).unwrap(),
            "/vary" => response.header("vary", "cookie").body(full("vary")).unwrap(),
            _ => response.header("age", "100").body(full(format!("{path} {version}"))).unwrap(),
        }
    }
}

async fn serve_origin(origin: Arc<Origin>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let origin = Arc::clone(&origin);
            let answer = service_fn(move |request| {
                let origin = Arc::clone(&origin);
                async move { Ok::<_, Infallible>(origin.answer(request).await) }
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
        }
    });
    address
}

/// A proxy before an origin, both in this process.
struct Setup {
    runtime: Runtime,
    origin: Arc<Origin>,
    origin_address: SocketAddr,
    cache: Cache,
    address: SocketAddr,
    stop: Stop,
    serving: JoinHandle<()>,
    _folder: tempfile::TempDir,
}

/// A response as curl has received it.
#[derive(Debug)]
struct Answer {
    /// curl's exit status: 18 for a body that is shorter than announced.
    exit: i32,
    status: u16,
    headers: HashMap<String, String>,
    body: Vec<u8>,
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

impl Setup {
    /// With all objects in memory; time moves with `maintain` alone.
    fn new() -> Self {
        Self::with(Cache::builder(), tempfile::tempdir().unwrap())
    }

    fn with_flash() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // No object is lost, however slow the device is.
        let builder = Cache::builder().engine(|engine| engine.flash_demotion_wait(Duration::from_secs(60)));
        Self::with(builder.flash(folder.path().join("flash"), ByteSize::mib(64)), folder)
    }

    fn with(builder: CacheBuilder, folder: tempfile::TempDir) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let cache = builder.memory(ByteSize::mib(16)).clock(Clock::Manual).build().unwrap();
        let gate = Arc::new(Semaphore::new(0));
        let origin = Arc::new(Origin {
            requests: Mutex::default(),
            version: AtomicU64::new(1),
            gate,
            knows_ranges: AtomicBool::new(true),
        });
        let (origin_address, stop) = (runtime.block_on(serve_origin(Arc::clone(&origin))), Stop::default());
        let proxy = Proxy::new(cache.clone(), &format!("http://{origin_address}"), 16 << 20).unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let serving = runtime.spawn(proxy.serve(listener, stop.clone()));
        Self { runtime, origin, origin_address, cache, address, stop, serving, _folder: folder }
    }

    fn curl(&self, path: &str, arguments: &[&str]) -> Answer {
        let url = format!("http://{}{path}", self.address);
        let mut command = Command::new("curl");
        command.args(["--silent", "--include", "--noproxy", "*", "--max-time", PATIENCE_SECONDS]);
        let output = command.args(arguments).arg(url).output().expect("curl is installed");
        let end = output.stdout.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap_or(output.stdout.len());
        let head = String::from_utf8_lossy(&output.stdout[..end]).into_owned();
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).unwrap_or(0);
        let headers = lines.filter_map(|line| line.split_once(": ")).map(|(name, value)| (name.into(), value.into()));
        let body = output.stdout.get(end + 4..).unwrap_or_default().to_vec();
        Answer { exit: output.status.code().unwrap(), status, headers: headers.collect(), body }
    }

    fn get(&self, path: &str) -> Answer {
        let answer = self.curl(path, &[]);
        assert_eq!(answer.exit, 0, "{path}");
        answer
    }

    /// Ends the proxy and checks the cache.
    fn finish(self) {
        self.stop.stop();
        self.runtime.block_on(self.serving).unwrap();
        // Transfers that still run.
        drop(self.runtime);
        self.cache.verify();
    }

    /// Requests of this kind that have reached the origin.
    fn requests(&self, request: &str) -> u64 {
        self.origin.requests.lock().unwrap().get(request).copied().unwrap_or(0)
    }
}

fn wait_for(what: &str, mut is_true: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_true() {
        assert!(start.elapsed() < Duration::from_secs(300), "{what} has not happened");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_second_request_is_a_hit() {
    let setup = Setup::new();
    let (first, second) = (setup.get("/a?b=c"), setup.get("/a?b=c"));
    assert_eq!((first.status, &first.body[..]), (200, &b"/a 1"[..]));
    assert_eq!((second.status, &second.body), (200, &first.body));
    assert_eq!(first.header("cache-status"), "ebbtide; fwd=uri-miss; stored");
    assert_eq!(second.header("cache-status"), "ebbtide; hit");
    assert_eq!((second.header("x-origin"), second.header("content-length")), ("yes", "4"));
    assert!(second.header("age").parse::<u64>().unwrap() >= 100, "the age at the origin counts: {second:?}");
    let head = setup.curl("/a?b=c", &["--head"]);
    assert_eq!((head.status, head.header("content-length"), head.body.len()), (200, "4", 0));
    assert_eq!(head.header("cache-status"), "ebbtide; hit");
    assert_eq!((setup.requests("GET /a"), setup.requests("HEAD /a")), (1, 0));
    // A query is part of the name.
    setup.get("/a?b=d");
    assert_eq!(setup.requests("GET /a"), 2);
    assert_eq!(setup.get("/absent").status, 404);
    assert_eq!((setup.get("/absent").status, setup.requests("GET /absent")), (404, 1));
    setup.finish();
}

#[test]
fn max_age_is_the_time_to_live() {
    let setup = Setup::new();
    setup.get("/a");
    // An entry may expire early, by 1.6 % of its TTL.
    setup.cache.maintain(Duration::from_secs(3400));
    assert_eq!(setup.get("/a").header("cache-status"), "ebbtide; hit");
    // 100 of the 3600 seconds had gone at the origin.
    setup.cache.maintain(Duration::from_secs(3501));
    assert_eq!(setup.get("/a").header("cache-status"), "ebbtide; fwd=uri-miss; stored");
    assert_eq!(setup.requests("GET /a"), 2);
    setup.finish();
}

#[test]
fn conditional_requests_are_answered_from_the_cache() {
    let setup = Setup::new();
    setup.get("/a");
    for (tag, status, length) in [("\"1\"", 304, 0), ("W/\"1\", \"2\"", 304, 0), ("*", 304, 0), ("\"2\"", 200, 4)] {
        let answer = setup.curl("/a", &["--header", &format!("If-None-Match: {tag}")]);
        assert_eq!((answer.status, answer.body.len()), (status, length), "{tag}");
        assert_eq!(answer.header("etag"), "\"1\"");
    }
    assert_eq!(setup.requests("GET /a"), 1);
    setup.finish();
}

#[test]
fn ranges_are_cut_from_the_cached_object() {
    let (setup, whole) = (Setup::new(), bytes(LONG));
    let first = setup.curl("/long", &["--range", "262100-262199"]);
    assert_eq!(first.header("cache-status"), "ebbtide; fwd=uri-miss; stored");
    for (range, expected) in [
        ("262100-262199", 262_100..262_200),
        ("0-0", 0..1),
        ("5-262143", 5..262_144),
        ("700000-1999999", 700_000..2_000_000),
        ("2999990-", 2_999_990..LONG),
        ("-7", LONG - 7..LONG),
        ("0-99999999", 0..LONG),
    ] {
        let answer = setup.curl("/long", &["--range", range]);
        assert_eq!((answer.exit, answer.status), (0, 206), "{range}");
        let content_range = format!("bytes {}-{}/{LONG}", expected.start, expected.end - 1);
        assert_eq!(answer.header("content-range"), content_range);
        assert!(answer.body == whole[expected], "{range}");
    }
    let beyond = setup.curl("/long", &["--range", "3000000-"]);
    assert_eq!((beyond.status, beyond.header("content-range")), (416, "bytes */3000000"));
    assert!(setup.get("/long").body == whole);
    for (tag, status) in [("\"1\"", 206), ("\"2\"", 200)] {
        let answer = setup.curl("/long", &["--range", "0-9", "--header", &format!("If-Range: {tag}")]);
        assert_eq!(answer.status, status, "{tag}");
    }
    assert_eq!(setup.requests("GET /long"), 1, "one response has served all");
    setup.finish();
}

#[test]
fn requests_that_miss_together_load_once() {
    const CLIENTS: u64 = 6;
    let setup = Setup::new();
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(|| setup.get("/gated"))).collect();
        wait_for("all have missed", || setup.cache.stats().misses >= CLIENTS);
        setup.origin.gate.add_permits(1);
        for client in clients {
            assert_eq!(client.join().unwrap().body, b"gated");
        }
    });
    assert_eq!(setup.requests("GET /gated"), 1);
    setup.finish();
}

#[test]
fn long_bodies_reach_clients_while_loading() {
    let (setup, whole) = (Setup::new(), bytes(LONG));
    let range = |range: Range<usize>| {
        let answer = setup.curl("/slow", &["--range", &format!("{}-{}", range.start, range.end - 1)]);
        assert_eq!((answer.exit, answer.status), (0, 206));
        assert!(answer.body == whole[range]);
    };
    // The origin sends the start of the body and waits.
    setup.origin.gate.add_permits(1);
    range(0..100_000);
    range(100_000..200_000);
    std::thread::scope(|scope| {
        let misses = setup.cache.stats().misses;
        scope.spawn(|| range(200_000..1_000_000));
        wait_for("a client waits for a part", || setup.cache.stats().misses > misses);
        setup.origin.gate.add_permits(10);
    });
    range(0..LONG);
    assert_eq!(setup.requests("GET /slow"), 1);
    setup.finish();
}

/// Removes the parts of long bodies, as an eviction may.
fn evict_parts(cache: &Cache) {
    let keys: Vec<Vec<u8>> = cache.iter().unwrap().map(|(key, _)| key.to_vec()).collect();
    let parts: Vec<_> = keys.iter().filter(|key| key[0] != b'/').collect();
    assert_eq!(parts.len(), LONG.div_ceil(256 << 10) - 1);
    parts.into_iter().for_each(|key| assert!(cache.remove(key)));
}

#[test]
fn evicted_parts_are_loaded_again() {
    let (setup, whole) = (Setup::new(), bytes(LONG));
    assert!(setup.get("/long").body == whole);
    evict_parts(&setup.cache);
    assert!(setup.curl("/long", &["--range", "600000-600099"]).body == whole[600_000..600_100]);
    assert_eq!(setup.requests("GET /long"), 2);
    assert!(setup.get("/long").body == whole);
    assert_eq!(setup.requests("GET /long"), 12, "one range for each part that was missing");
    // An origin that knows no ranges.
    setup.origin.knows_ranges.store(false, Ordering::SeqCst);
    evict_parts(&setup.cache);
    assert!(setup.get("/long").body == whole);
    // Parts of another version do not follow: the client learns it, and the next request loads the object.
    evict_parts(&setup.cache);
    setup.origin.version.store(2, Ordering::SeqCst);
    let torn = setup.curl("/long", &[]);
    assert_eq!((torn.exit, torn.status), (18, 200));
    wait_for("the object is forgotten", || setup.get("/long").header("etag") == "\"2\"");
    assert!(setup.get("/long").body == whole);
    setup.finish();
}

#[test]
fn responses_that_must_not_be_kept_pass() {
    let setup = Setup::new();
    for path in ["/private", "/cookie", "/vary", "/unnamed"] {
        for n in 1..=3 {
            let answer = setup.get(path);
            assert_eq!(answer.status, 200, "{path}");
            assert!(!answer.header("cache-status").contains("hit"), "{path}: {answer:?}");
            assert_eq!(setup.requests(&format!("GET {path}")), n, "{path}");
        }
    }
    for header in ["Authorization: Basic eA==", "Cache-Control: no-cache"] {
        setup.get("/a");
        assert_eq!(setup.curl("/a", &["--header", header]).header("cache-status"), "ebbtide; fwd=bypass");
    }
    assert_eq!(setup.requests("GET /a"), 3);
    setup.finish();
}

#[test]
fn a_change_through_the_proxy_removes_the_object() {
    let setup = Setup::new();
    assert_eq!(setup.get("/a").body, b"/a 1");
    assert_eq!(setup.curl("/a", &["--request", "PUT", "--data", "x"]).status, 204);
    assert_eq!(setup.get("/a").body, b"/a 2");
    assert_eq!((setup.requests("PUT /a"), setup.requests("GET /a")), (1, 2));
    setup.finish();
}

#[test]
fn objects_that_memory_evicts_are_on_flash() {
    let (setup, whole) = (Setup::with_flash(), bytes(LONG));
    // Twice the memory.
    for n in 0..12 {
        assert!(setup.get(&format!("/long?{n}")).body == whole, "{n}");
    }
    // Memory may refuse an object while flash is slow: then it is loaded again.
    wait_for("flash has answered", || {
        (0..12).for_each(|n| assert!(setup.get(&format!("/long?{n}")).body == whole, "{n}"));
        setup.cache.memcached().flash_stats().unwrap().tier.hits_large > 0
    });
    setup.finish();
}

#[test]
fn an_origin_that_is_gone_is_an_error() {
    let setup = Setup::new();
    setup.get("/a");
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let proxy = Proxy::new(setup.cache.clone(), &format!("http://{free}"), 1 << 20).unwrap();
    let listener = setup.runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    setup.runtime.spawn(proxy.serve(listener, setup.stop.clone()));
    let setup = Setup { address, ..setup };
    assert_eq!(setup.get("/a").status, 200, "the cache has it");
    let answer = setup.get("/b");
    assert_eq!(answer.status, 502);
    assert!(answer.body.starts_with(b"the origin cannot be reached: "), "{answer:?}");
    for url in ["https://a", "a", "http://a/b", ""] {
        assert!(Proxy::new(setup.cache.clone(), url, 1).is_err(), "{url}");
    }
    assert_ne!(setup.address, setup.origin_address);
    setup.finish();
}
