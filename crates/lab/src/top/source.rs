use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use crate::Error;

/// Time limit of an answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// Bytes of one answer: more than those of the statistics of as many pools as a server can have.
const MAX_ANSWER_BYTES: u64 = 8 << 20;

/// Where the connection to the server leads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reached {
    pub peer: Option<IpAddr>,
    /// The server runs on this host, or in the same network namespace.
    pub is_this_host: bool,
}

/// Statistics of the server at one moment.
#[derive(Clone, Debug)]
pub struct StatsSample {
    pub taken: Instant,
    pub reached: Reached,
    stats: BTreeMap<String, String>,
    /// The answer to `stats ebbtide`; empty for other servers.
    own: BTreeMap<String, String>,
    /// The answer to `stats pools`; empty for other servers.
    pools: BTreeMap<String, String>,
}

impl StatsSample {
    #[cfg(test)]
    pub fn from_lines(taken: Instant, stats: &str, own: &str) -> Self {
        let parse = |text: &str| text.lines().filter_map(|line| stat(&format!("STAT {line}"))).collect();
        Self { taken, reached: Reached::default(), stats: parse(stats), own: parse(own), pools: BTreeMap::new() }
    }

    #[cfg(test)]
    pub fn with_pools(self, pools: &str) -> Self {
        let pools = pools.lines().filter_map(|line| stat(&format!("STAT {line}"))).collect();
        Self { pools, ..self }
    }

    pub fn number(&self, name: &str) -> Option<u64> {
        self.stats.get(name)?.parse().ok()
    }

    pub fn decimal(&self, name: &str) -> Option<f64> {
        self.stats.get(name)?.parse().ok()
    }

    /// The sum of the numbers that the server reports; `None` if it reports none of them.
    pub fn sum(&self, names: &[&str]) -> Option<u64> {
        sum(&self.stats, names)
    }

    /// From `stats ebbtide`.
    pub fn own_number(&self, name: &str) -> Option<u64> {
        self.own.get(name)?.parse().ok()
    }

    /// From `stats ebbtide`.
    pub fn own_decimal(&self, name: &str) -> Option<f64> {
        self.own.get(name)?.parse().ok()
    }

    /// From `stats ebbtide`.
    pub fn own_text(&self, name: &str) -> Option<String> {
        self.own.get(name).cloned()
    }

    /// Whether it is an Ebbtide server.
    pub fn is_ours(&self) -> bool {
        !self.own.is_empty()
    }

    /// Commands that look a key up or store it.
    pub fn requests(&self) -> u64 {
        requests_of(&self.stats)
    }

    /// The names of the pools, sorted.
    pub fn pools(&self) -> impl Iterator<Item = &str> {
        self.pools.keys().filter_map(|name| name.strip_suffix(":class"))
    }

    /// From `stats pools`.
    pub fn pool_number(&self, pool: &str, field: &str) -> Option<u64> {
        self.pools.get(&format!("{pool}:{field}"))?.parse().ok()
    }

    /// From `stats pools`.
    pub fn pool_decimal(&self, pool: &str, field: &str) -> Option<f64> {
        self.pools.get(&format!("{pool}:{field}"))?.parse().ok()
    }

    /// The prefixes of keys that belong to pools, URI-encoded, each with its pool.
    pub fn pool_prefixes(&self) -> impl Iterator<Item = (&str, &str)> {
        let of_pool = self.pools.iter().filter_map(|(field, list)| Some((field.strip_suffix(":prefixes")?, list)));
        of_pool.flat_map(|(pool, list)| list.split(',').map(move |prefix| (prefix, pool)))
    }

    /// `ebbtide 0.1.0`, `memcached 1.6.18`
    pub fn server(&self) -> String {
        let version = |stats: &BTreeMap<String, String>| stats.get("version").cloned();
        match version(&self.own) {
            Some(version) => format!("ebbtide {version}"),
            None => format!("memcached {}", version(&self.stats).as_deref().unwrap_or("-")),
        }
    }
}

/// Requests that a server has counted until a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestCounts {
    pub(crate) taken: Instant,
    pub(crate) requests: u64,
    /// Of gets.
    pub(crate) hits: u64,
    pub(crate) misses: u64,
}

/// The connection to the server. After a failure the next sample opens a new one.
pub struct StatsSource {
    target: String,
    connection: Option<StatsConnection>,
}

struct StatsConnection {
    stream: BufReader<TcpStream>,
    reached: Reached,
    /// Whether the server supports `stats ebbtide`.
    is_ours: bool,
}

impl StatsSource {
    pub fn new(target: String) -> Self {
        Self { target, connection: None }
    }

    pub fn target(&self) -> &str {
        &self.target
    }

    /// Asks the server, for at most a few seconds.
    pub fn sample(&mut self) -> Result<StatsSample, Error> {
        let mut connection = self.connected()?;
        let stats = self.ask(&mut connection, "stats")?.map_err(|reason| self.unexpected(reason))?;
        let (mut own, mut pools) = (BTreeMap::new(), BTreeMap::new());
        if connection.is_ours {
            match self.ask(&mut connection, "stats ebbtide")? {
                Ok(stats) => own = stats,
                Err(_) => connection.is_ours = false,
            }
        }
        if connection.is_ours {
            // An older server has no pools.
            pools = self.ask(&mut connection, "stats pools")?.unwrap_or_default();
        }
        let reached = connection.reached;
        self.connection = Some(connection);
        Ok(StatsSample { taken: Instant::now(), reached, stats, own, pools })
    }

    /// [`StatsSample::requests`], hits, and when the server answered; it is asked only for `stats`. A connection that
    /// was closed, as after an idle time, is opened once more.
    pub fn requests(&mut self) -> Result<RequestCounts, Error> {
        match self.ask_requests() {
            Err(Error::Connection { source, .. }) if source.kind() != io::ErrorKind::TimedOut => self.ask_requests(),
            answer => answer,
        }
    }

    fn ask_requests(&mut self) -> Result<RequestCounts, Error> {
        let mut connection = self.connected()?;
        let stats = self.ask(&mut connection, "stats")?.map_err(|reason| self.unexpected(reason))?;
        self.connection = Some(connection);
        let number = |name| sum(&stats, &[name]).unwrap_or(0);
        let (requests, hits, misses) = (requests_of(&stats), number("get_hits"), number("get_misses"));
        Ok(RequestCounts { taken: Instant::now(), requests, hits, misses })
    }

    fn connected(&mut self) -> Result<StatsConnection, Error> {
        match self.connection.take() {
            Some(connection) => Ok(connection),
            None => self.connect().map_err(|source| Error::Connection { target: self.target.clone(), source }),
        }
    }

    fn connect(&self) -> io::Result<StatsConnection> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in self.target.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, PATIENCE) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(PATIENCE))?;
                    stream.set_write_timeout(Some(PATIENCE))?;
                    let (peer, local) = (address.ip(), stream.local_addr()?.ip());
                    let reached = Reached { peer: Some(peer), is_this_host: peer.is_loopback() || peer == local };
                    return Ok(StatsConnection { stream: BufReader::new(stream), reached, is_ours: true });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// The statistics, or the line with which the server refuses them.
    fn ask(
        &self,
        connection: &mut StatsConnection,
        command: &str,
    ) -> Result<Result<BTreeMap<String, String>, String>, Error> {
        converse(&mut connection.stream, command).map_err(|source| {
            let source = match source.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                    io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {} s", PATIENCE.as_secs()))
                }
                _ => source,
            };
            Error::Connection { target: self.target.clone(), source }
        })
    }

    fn unexpected(&self, reason: String) -> Error {
        Error::Protocol { target: self.target.clone(), reason: format!("`{reason}` to stats") }
    }
}

fn converse(stream: &mut BufReader<TcpStream>, command: &str) -> io::Result<Result<BTreeMap<String, String>, String>> {
    stream.get_mut().write_all(format!("{command}\r\n").as_bytes())?;
    read_stats(&mut stream.take(MAX_ANSWER_BYTES))
}

fn read_stats(input: &mut impl BufRead) -> io::Result<Result<BTreeMap<String, String>, String>> {
    let mut stats = BTreeMap::new();
    let mut bytes = Vec::new();
    // An answer that trickles in could take for ever, one byte within each timeout.
    let started = Instant::now();
    loop {
        bytes.clear();
        if input.read_until(b'\n', &mut bytes)? == 0 || bytes.last() != Some(&b'\n') {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection"));
        }
        if started.elapsed() > PATIENCE {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let line = String::from_utf8_lossy(&bytes);
        let line = line.trim_end();
        if line == "END" {
            return Ok(Ok(stats));
        }
        match stat(line) {
            Some((name, value)) => drop(stats.insert(name, value)),
            None => return Ok(Err(printable(line.chars().take(80)))),
        }
    }
}

fn sum(stats: &BTreeMap<String, String>, names: &[&str]) -> Option<u64> {
    names.iter().filter_map(|name| stats.get(*name)?.parse().ok()).reduce(u64::saturating_add)
}

fn requests_of(stats: &BTreeMap<String, String>) -> u64 {
    let of_hits = ["delete_hits", "delete_misses", "incr_hits", "incr_misses", "decr_hits", "decr_misses"];
    sum(stats, &["cmd_get", "cmd_set", "cmd_touch"]).unwrap_or(0) + sum(stats, &of_hits).unwrap_or(0)
}

/// `STAT <name> <value>`; the value may be empty.
fn stat(line: &str) -> Option<(String, String)> {
    let mut words = line.strip_prefix("STAT ")?.splitn(2, ' ');
    let name = words.next()?.to_owned();
    Some((name, printable(words.next().unwrap_or_default().chars())))
}

/// The text without terminal control characters.
fn printable(text: impl Iterator<Item = char>) -> String {
    text.map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(mut text: &[u8]) -> io::Result<Result<BTreeMap<String, String>, String>> {
        read_stats(&mut text)
    }

    #[test]
    fn answers_are_read_to_their_end() {
        let stats =
            read(b"STAT pid 7\r\nSTAT version 1.6\x1b[2J\r\nSTAT empty \r\nEND\r\nSTAT pid 8\r\n").unwrap().unwrap();
        assert_eq!(stats["pid"], "7");
        assert_eq!(stats["version"], "1.6?[2J");
        assert_eq!(stats["empty"], "");
        assert_eq!(read(b"ERROR\r\n").unwrap().unwrap_err(), "ERROR");
        for cut in [&b""[..], b"STAT pid 7\r\n", b"STAT pid 7\r\nEN"] {
            assert_eq!(read(cut).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
    }

    #[test]
    fn sums_take_what_is_there() {
        let sample = StatsSample::from_lines(Instant::now(), "a 1\nb 2\nbroken x", "");
        assert_eq!(sample.sum(&["a", "b", "missing"]), Some(3));
        assert_eq!(sample.sum(&["missing", "broken"]), None);
        assert_eq!(sample.server(), "memcached -");
    }
}
