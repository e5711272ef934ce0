//! Events as requests.
//!
//! memcached looks a key up before it stores or deletes it, and writes a line for that, too. All lines of a connection
//! are in order, so the lookup is the last event of the connection before the store: it is left out. A delete that the
//! server reports turns the last lookup of its key into a delete.
//!
//! The event of a miss has neither size nor TTL: the get takes those of the next store of its key, the load after the
//! miss. The event of a hit has the size; the get takes the TTL of the last store. If that store was before the
//! capture, Ebbtide's event has the remaining TTL, and for memcached the next store counts.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use super::line::{Event, EventKind, EventStream, decoded};
use crate::trace::{Labels, Op, Request};

/// A size or TTL that no event has reported.
const UNKNOWN: u32 = u32::MAX;
const NO_REQUEST: u32 = u32::MAX;

pub(super) struct Recorder {
    stream: EventStream,
    /// Of the ids in the trace. Random, and kept nowhere.
    salt: RandomState,
    /// Of the sample; another one, so that ids stay spread evenly.
    sample_salt: RandomState,
    max_hash: u64,
    requests: Vec<Recorded>,
    left_out: usize,
    numbers: HashMap<u64, u32>,
    keys: Vec<Key>,
    /// The last request of each connection.
    last_of_connection: HashMap<u64, u32>,
    origin: Option<u64>,
    latest: u32,
    pub(super) skipped_lines: u64,
    decoded: Vec<u8>,
    /// Labels of the keys, if their prefixes are recorded.
    labels: Option<Labels>,
}

struct Key {
    id: u64,
    size: u32,
    last_get: u32,
    /// The TTL of the last store that was seen.
    stored_ttl: Option<u32>,
    label: u32,
}

/// A request; `op` is `None` for a lookup that is left out.
struct Recorded {
    time: u32,
    key: u32,
    op: Option<Op>,
    /// Whether the server had the object, of a lookup.
    found: Option<bool>,
    size: u32,
    ttl_seconds: u32,
}

/// Requests of a capture, in their order.
#[derive(Default)]
pub(crate) struct RecordedTrace {
    pub(crate) requests: Vec<Request>,
    /// For each get, whether the server had the object.
    pub(crate) found: Vec<Option<bool>>,
    /// The label of each request, an index into their names; nothing without labels.
    pub(crate) labels: Vec<u32>,
    pub(crate) label_names: Vec<String>,
}

impl Recorder {
    /// `sample`: one key in this number is recorded, if the server does not sample itself.
    pub(super) fn new(stream: EventStream, sample: u32, labels: Option<Labels>) -> Self {
        let max_hash = if stream == EventStream::Detailed { u64::MAX } else { u64::MAX / u64::from(sample) };
        Self {
            stream,
            salt: RandomState::new(),
            sample_salt: RandomState::new(),
            max_hash,
            requests: Vec::new(),
            left_out: 0,
            numbers: HashMap::new(),
            keys: Vec::new(),
            last_of_connection: HashMap::new(),
            origin: None,
            latest: 0,
            skipped_lines: 0,
            decoded: Vec::new(),
            labels,
        }
    }

    /// Requests so far, without those left out.
    pub(super) fn requests(&self) -> usize {
        self.requests.len() - self.left_out
    }

    pub(super) fn keys(&self) -> usize {
        self.keys.len()
    }

    /// Requests with an operation, by whether it is a get.
    pub(super) fn gets(&self) -> usize {
        self.requests.iter().filter(|request| request.op == Some(Op::Get)).count()
    }

    pub(super) fn note(&mut self, event: &Event<'_>) {
        match event.kind {
            EventKind::Skipped => self.skipped_lines += event.skipped,
            EventKind::Fetch | EventKind::Store | EventKind::Delete if !event.key.is_empty() => {
                decoded(event.key, &mut self.decoded);
                if self.sample_salt.hash_one(&self.decoded) > self.max_hash {
                    // The lookup before a store of this connection is not one of a sampled key.
                    self.last_of_connection.remove(&event.connection);
                    return;
                }
                let key = self.key_number();
                match event.kind {
                    EventKind::Fetch => self.fetch(key, event),
                    EventKind::Store => self.store(key, event),
                    _ => self.delete(key),
                }
            }
            _ => {}
        }
    }

    fn key_number(&mut self) -> u32 {
        let id = self.salt.hash_one(&self.decoded);
        let size = u32::try_from(self.decoded.len()).unwrap_or(u32::MAX);
        let (labels, key) = (&mut self.labels, &self.decoded);
        *self.numbers.entry(id).or_insert_with(|| {
            let label = labels.as_mut().map_or(0, |labels| {
                labels.note(key);
                labels.last()
            });
            self.keys.push(Key { id, size, last_get: NO_REQUEST, stored_ttl: None, label });
            (self.keys.len() - 1) as u32
        })
    }

    fn fetch(&mut self, key: u32, event: &Event<'_>) {
        let op = match event.command {
            b"incr" => Op::Incr,
            b"delete" => Op::Delete,
            _ => Op::Get,
        };
        let is_hit = event.status == b"found";
        let size = if is_hit { event.size } else { UNKNOWN };
        let of_key = &mut self.keys[key as usize];
        of_key.last_get = self.requests.len() as u32;
        // A deleted object has no TTL.
        let told = event.ttl_seconds.filter(|_| op != Op::Delete);
        let ttl = of_key.stored_ttl.or(told).filter(|_| is_hit).unwrap_or(UNKNOWN);
        self.push(key, op, (size, ttl), Some(is_hit), event);
    }

    fn store(&mut self, key: u32, event: &Event<'_>) {
        let before = self.last_of_connection.get(&event.connection).copied();
        if let Some(before) = before.filter(|_| self.stream != EventStream::Detailed) {
            let lookup = &mut self.requests[before as usize];
            if lookup.key == key && lookup.op == Some(Op::Get) {
                lookup.op = None;
                self.left_out += 1;
            }
        }
        if event.status == b"stored" {
            self.keys[key as usize].stored_ttl = event.ttl_seconds;
        }
        // The value was refused, and another cache would refuse it, too.
        if !matches!(event.status, b"too_large" | b"no_memory") {
            let op = Op::from_name(event.command).unwrap_or(Op::Set);
            self.push(key, op, (event.size, event.ttl_seconds.unwrap_or(0)), None, event);
        }
    }

    fn delete(&mut self, key: u32) {
        let last = self.keys[key as usize].last_get;
        if let Some(request) = self.requests.get_mut(last as usize)
            && request.op == Some(Op::Get)
        {
            request.op = Some(Op::Delete);
        }
    }

    fn push(&mut self, key: u32, op: Op, (size, ttl_seconds): (u32, u32), found: Option<bool>, event: &Event<'_>) {
        let origin = *self.origin.get_or_insert(event.seconds);
        // The threads of a server are a little out of step; a trace's time does not fall.
        self.latest = u32::try_from(event.seconds.saturating_sub(origin)).unwrap_or(u32::MAX).max(self.latest);
        self.last_of_connection.insert(event.connection, self.requests.len() as u32);
        self.requests.push(Recorded { time: self.latest, key, op: Some(op), found, size, ttl_seconds });
    }

    /// Gets whose size, and whose TTL, no event has reported.
    pub(super) fn fill_in(&mut self) -> (u64, u64) {
        let mut known = vec![(UNKNOWN, UNKNOWN); self.keys.len()];
        let fill = |request: &mut Recorded, known: &mut [(u32, u32)]| {
            let (size, ttl_seconds) = &mut known[request.key as usize];
            for (own, of_key) in [(&mut request.size, size), (&mut request.ttl_seconds, ttl_seconds)] {
                if *own == UNKNOWN {
                    *own = *of_key;
                } else {
                    *of_key = *own;
                }
            }
        };
        // From the end, so that a miss finds the store after it; then the remaining ones from the store before.
        self.requests.iter_mut().rev().for_each(|request| fill(request, &mut known));
        known.fill((UNKNOWN, UNKNOWN));
        self.requests.iter_mut().for_each(|request| fill(request, &mut known));
        let (mut sizeless, mut without_ttl) = (0, 0);
        for request in &mut self.requests {
            let is_get = request.op == Some(Op::Get);
            sizeless += u64::from(is_get && request.size == UNKNOWN);
            without_ttl += u64::from(is_get && request.size != UNKNOWN && request.ttl_seconds == UNKNOWN);
            request.size = if request.size == UNKNOWN { 0 } else { request.size };
            request.ttl_seconds = if request.ttl_seconds == UNKNOWN { 0 } else { request.ttl_seconds };
        }
        (sizeless, without_ttl)
    }

    /// The trace. Call [`Self::fill_in`] first.
    pub(super) fn into_trace(self) -> RecordedTrace {
        let label_names = self.labels.map_or_else(Vec::new, |labels| labels.names().to_vec());
        let mut trace = RecordedTrace { label_names, ..RecordedTrace::default() };
        for recorded in self.requests {
            let (key, Some(op)) = (&self.keys[recorded.key as usize], recorded.op) else { continue };
            trace.requests.push(Request {
                time_seconds: u64::from(recorded.time),
                key: key.id,
                key_size: key.size,
                value_size: recorded.size,
                op,
                ttl_seconds: recorded.ttl_seconds,
            });
            trace.found.push(recorded.found.filter(|_| op == Op::Get));
            if !trace.label_names.is_empty() {
                trace.labels.push(key.label);
            }
        }
        trace
    }
}

#[cfg(test)]
mod tests {
    use super::super::line::parse;
    use super::*;

    /// Operation, size and TTL of each request, and the gets of unknown size and of unknown TTL.
    type Summary = (Vec<(Op, u32, u32)>, (u64, u64));

    fn recorded(stream: EventStream, lines: &str) -> Summary {
        let mut recorder = Recorder::new(stream, 1, None);
        lines.lines().for_each(|line| recorder.note(&parse(line.as_bytes())));
        let unknown = recorder.fill_in();
        let RecordedTrace { requests, .. } = recorder.into_trace();
        (requests.iter().map(|request| (request.op, request.value_size, request.ttl_seconds)).collect(), unknown)
    }

    /// A miss, the load after it, a hit, and a delete of a key: of memcached, with the lookups that it makes.
    const LIVE: &str = "\
        ts=1.0 gid=1 type=item_get key=a status=not_found clsid=0 cfd=4 size=0\n\
        ts=1.1 gid=2 type=item_get key=b status=found clsid=1 cfd=5 size=9\n\
        ts=1.2 gid=3 type=item_get key=a status=not_found clsid=0 cfd=4 size=0\n\
        ts=1.3 gid=4 type=item_store key=a status=stored cmd=set ttl=60 clsid=1 cfd=4 size=3\n\
        ts=1.4 gid=5 type=item_get key=a status=found clsid=1 cfd=5 size=3\n\
        ts=1.5 gid=6 type=item_get key=a status=found clsid=1 cfd=4 size=3\n";

    #[test]
    fn store_lookups_are_dropped_misses_get_load_sizes() {
        let (requests, unknown) = recorded(EventStream::Plain, LIVE);
        let expected = [(Op::Get, 3, 60), (Op::Get, 9, 0), (Op::Set, 3, 60), (Op::Get, 3, 60), (Op::Get, 3, 60)];
        assert_eq!(requests, expected);
        assert_eq!(unknown, (0, 1), "the TTL of b");
    }

    #[test]
    fn gets_keep_the_answer_of_the_server() {
        let mut recorder = Recorder::new(EventStream::Plain, 1, None);
        LIVE.lines().for_each(|line| recorder.note(&parse(line.as_bytes())));
        let answers = [Some(false), Some(true), None, Some(true), Some(true)];
        assert_eq!(recorder.into_trace().found, answers);
    }

    #[test]
    fn a_told_delete_is_the_last_lookup() {
        let lines = format!("{LIVE}ts=1.6 gid=7 type=deleted key=a cmd=delete clsid=1 size=3\n");
        let (requests, _) = recorded(EventStream::WithDeletions, &lines);
        assert_eq!(requests.iter().map(|request| request.0).collect::<Vec<_>>()[3..], [Op::Get, Op::Delete]);
    }

    #[test]
    fn details_tell_commands_and_ttls() {
        let (requests, unknown) = recorded(
            EventStream::Detailed,
            "ts=1.0 gid=1 type=item_get key=a status=not_found clsid=0 cfd=4 size=0 ttl=0 cmd=get\n\
             ts=1.0 gid=2 type=item_store key=a status=stored cmd=set ttl=60 clsid=1 cfd=4 size=3\n\
             ts=1.0 gid=3 type=item_get key=b status=found clsid=1 cfd=4 size=5 ttl=7 cmd=get\n\
             ts=1.0 gid=4 type=item_get key=b status=found clsid=1 cfd=4 size=5 ttl=7 cmd=delete\n\
             ts=1.0 gid=5 type=item_get key=c status=not_found clsid=0 cfd=4 size=0 ttl=0 cmd=get\n",
        );
        assert_eq!(requests[..3], [(Op::Get, 3, 60), (Op::Set, 3, 60), (Op::Get, 5, 7)]);
        assert_eq!(requests[3..], [(Op::Delete, 5, 7), (Op::Get, 0, 0)]);
        assert_eq!(unknown, (1, 0), "c was never stored");
    }

    #[test]
    fn a_sample_has_all_requests_of_its_keys() {
        let mut recorder = Recorder::new(EventStream::Plain, 4, None);
        for number in 0..4000 {
            let key = number % 1000;
            let line = format!("ts=1.0 gid=1 type=item_get key=k{key} status=found clsid=1 cfd=4 size=5");
            recorder.note(&parse(line.as_bytes()));
        }
        assert!((180..320).contains(&recorder.keys()), "{}", recorder.keys());
        assert_eq!(recorder.requests(), recorder.keys() * 4);
    }
}
