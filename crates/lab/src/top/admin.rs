//! The admin HTTP of an Ebbtide server: latencies, hot keys, and memory by prefix, TTL and size.
//!
//! The server names its address in `stats ebbtide`. A loopback address is used only for a server on this host: there
//! may be another server behind the same port here. The process id in the answer must be that of `stats`, too.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::source::StatsSample;

/// Time for both requests together.
const PATIENCE: Duration = Duration::from_secs(3);
/// Upper bound of one answer: larger than an overview of the maximum number of pools.
const MAX_ANSWER_BYTES: usize = 8 << 20;

/// Argument of `--admin`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminChoice {
    /// The address that the server names.
    Named,
    Off,
    At(String),
}

impl AdminChoice {
    pub fn parse(text: Option<&str>) -> Self {
        match text {
            None => Self::Named,
            Some("off") => Self::Off,
            Some(address) => Self::At(address.to_owned()),
        }
    }
}

/// Latencies of one kind of command in microseconds, of the last minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CommandLatency {
    pub count: u64,
    pub mean: Option<f64>,
    pub p50: Option<f64>,
    pub p90: Option<f64>,
    pub p99: Option<f64>,
    pub p999: Option<f64>,
    pub max: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HotKey {
    pub key: String,
    pub share: f64,
    pub per_second: f64,
    /// Of its gets that were sampled.
    pub hit_ratio: Option<f64>,
    /// Of the object in memory; `None` where it is not there.
    pub bytes: Option<u64>,
    pub ttl_seconds: Option<u64>,
}

/// Memory, accesses and evictions of the keys with one prefix.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PrefixUse {
    pub prefix: String,
    pub bytes: f64,
    pub memory_share: Option<f64>,
    pub items: f64,
    pub unread_share: Option<f64>,
    pub gets_per_second: f64,
    pub hit_ratio: Option<f64>,
    pub sets_per_second: f64,
    pub evictions_per_second: f64,
    /// Mean times from the last use, and from the write, to the eviction.
    pub evicted_idle_seconds: Option<f64>,
    pub evicted_age_seconds: Option<f64>,
    pub evicted_unread_share: Option<f64>,
}

/// Memory of the segments of one range of TTLs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TtlUse {
    pub ttl_seconds_min: u64,
    /// `None` for objects that never expire.
    pub ttl_seconds_max: Option<u64>,
    pub segment_bytes: u64,
    pub live_bytes: u64,
    pub items: u64,
}

/// Memory of the objects of one octave of sizes, from a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SizeUse {
    pub bytes_min: u64,
    pub bytes_max: u64,
    pub bytes: f64,
    pub items: f64,
    pub unread_share: Option<f64>,
}

/// One of the largest objects of a sample.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LargeObject {
    pub key: String,
    pub bytes: u64,
    pub ttl_seconds: Option<u64>,
    pub idle_seconds: u64,
    pub unread: bool,
    /// Of its gets that were sampled.
    pub hit_ratio: Option<f64>,
}

/// The part of a report from the admin HTTP.
#[derive(Clone, Debug, Default, Serialize)]
pub struct AdminReport {
    /// Why there is no data: in words, with the remedy.
    pub missing: Option<String>,
    /// Why keys and prefixes are hidden.
    pub keys_hidden: Option<String>,
    pub latency_us: BTreeMap<String, CommandLatency>,
    pub hot_keys: Vec<HotKey>,
    pub prefixes: Vec<PrefixUse>,
    pub ttl_buckets: Vec<TtlUse>,
    pub sizes: Vec<SizeUse>,
    pub largest: Vec<LargeObject>,
}

impl AdminReport {
    fn without(reason: impl Into<String>) -> Self {
        Self { missing: Some(reason.into()), ..Self::default() }
    }

    /// Asks the server that `stats` came from. An error becomes the reason in the report: `stats` are shown without.
    pub fn read(choice: &AdminChoice, stats: &StatsSample) -> Self {
        let address = match address(choice, stats) {
            Ok(address) => address,
            Err(reason) => return Self::without(reason),
        };
        Self::ask(&address, stats.number("pid"))
            .unwrap_or_else(|reason| Self::without(format!("admin HTTP at {address}: {reason}")))
    }

    fn ask(address: &str, pid: Option<u64>) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Overview {
            pid: u64,
            #[serde(default)]
            latency_us: BTreeMap<String, CommandLatency>,
            #[serde(default)]
            hot_keys: Vec<HotKey>,
            hot_keys_hidden: Option<String>,
            #[serde(default)]
            ttl_buckets: Vec<TtlUse>,
        }
        #[derive(Deserialize)]
        struct Keys {
            #[serde(default)]
            prefixes: Vec<PrefixUse>,
            #[serde(default)]
            sizes: Vec<SizeUse>,
            #[serde(default)]
            largest: Vec<LargeObject>,
        }
        let until = Instant::now() + PATIENCE;
        let overview: Overview = get(address, "/api/overview", until)?;
        if pid.is_some_and(|pid| pid != overview.pid) {
            return Err("this is another server; name the right one with --admin HOST:PORT".to_owned());
        }
        let Keys { prefixes, sizes, largest } = get(address, "/api/keys", until)?;
        let Overview { latency_us, hot_keys, hot_keys_hidden: keys_hidden, ttl_buckets, .. } = overview;
        Ok(Self { missing: None, keys_hidden, latency_us, hot_keys, prefixes, ttl_buckets, sizes, largest })
    }
}

fn address(choice: &AdminChoice, stats: &StatsSample) -> Result<String, String> {
    let named = match choice {
        AdminChoice::Off => return Err("not asked for (--admin off)".to_owned()),
        AdminChoice::At(address) => return Ok(address.clone()),
        AdminChoice::Named => stats.own_text("admin_address"),
    };
    let named = match named {
        _ if !stats.is_ours() => return Err("only Ebbtide tells this".to_owned()),
        None => return Err("the server has no admin HTTP (--admin off); start it with --admin ADDRESS:PORT".to_owned()),
        Some(named) => named,
    };
    let Ok(address) = named.parse::<SocketAddr>() else { return Ok(named) };
    match address.ip() {
        ip if ip.is_loopback() && !stats.reached.is_this_host => Err(format!(
            "the admin HTTP listens on {address} of the server's host: forward that port, and name it with --admin"
        )),
        ip if ip.is_unspecified() => {
            let ip = stats.reached.peer.unwrap_or(IpAddr::from([127, 0, 0, 1]));
            Ok(SocketAddr::new(ip, address.port()).to_string())
        }
        _ => Ok(named),
    }
}

fn get<T: DeserializeOwned>(address: &str, path: &str, until: Instant) -> Result<T, String> {
    let answer = exchange(address, path, until).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => format!("no answer within {} s", PATIENCE.as_secs()),
        _ => error.to_string(),
    })?;
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let (head, body) = answer.split_at(end.map_or(answer.len(), |end| end + 4));
    match head.split(|byte| *byte == b' ').nth(1) {
        Some(b"200") => serde_json::from_slice(body).map_err(|_| "the answer is not that of a server".to_owned()),
        _ => Err("this is not the admin HTTP of a server (its port is by default 11212)".to_owned()),
    }
}

/// One request by HTTP/1.0: the end of the connection ends the answer.
fn exchange(address: &str, path: &str, until: Instant) -> io::Result<Vec<u8>> {
    let left = || Some(until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1)));
    let socket = address.to_socket_addrs()?.next().ok_or(io::ErrorKind::NotFound)?;
    let mut stream = TcpStream::connect_timeout(&socket, left().unwrap_or(PATIENCE))?;
    stream.set_write_timeout(left())?;
    // A server on the loopback interface answers only requests that name it so.
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes())?;
    let (mut answer, mut piece) = (Vec::new(), vec![0; 64 << 10]);
    // Ends: each read adds bytes up to the bound, and the reads together have until `until`.
    while answer.len() < MAX_ANSWER_BYTES {
        if Instant::now() >= until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(left())?;
        match stream.read(&mut piece)? {
            0 => break,
            read => answer.extend_from_slice(&piece[..read]),
        }
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::source::Reached;

    fn sample(own: &str, reached: Reached) -> StatsSample {
        let mut sample = StatsSample::from_lines(Instant::now(), "pid 7", own);
        sample.reached = reached;
        sample
    }

    #[test]
    fn a_loopback_address_is_for_this_host_only() {
        let own = "version 1\nadmin_address 127.0.0.1:11212";
        let far = Reached { peer: Some(IpAddr::from([10, 0, 0, 1])), is_this_host: false };
        let near = Reached { is_this_host: true, ..far };
        assert!(address(&AdminChoice::Named, &sample(own, far)).unwrap_err().contains("--admin"));
        assert_eq!(address(&AdminChoice::Named, &sample(own, near)).unwrap(), "127.0.0.1:11212");
        assert_eq!(address(&AdminChoice::At("x:1".into()), &sample(own, far)).unwrap(), "x:1");
        let all = sample("version 1\nadmin_address 0.0.0.0:80", far);
        assert_eq!(address(&AdminChoice::Named, &all).unwrap(), "10.0.0.1:80");
    }

    #[test]
    fn what_is_missing_is_said_with_the_reason() {
        let none = sample("version 1", Reached::default());
        assert!(AdminReport::read(&AdminChoice::Named, &none).missing.unwrap().contains("no admin HTTP"));
        let other = sample("", Reached::default());
        assert_eq!(AdminReport::read(&AdminChoice::Named, &other).missing.unwrap(), "only Ebbtide tells this");
        let refused = AdminReport::read(&AdminChoice::At("127.0.0.1:1".into()), &other).missing.unwrap();
        assert!(refused.starts_with("admin HTTP at 127.0.0.1:1: "), "{refused}");
    }
}
