//! The connection that watches a server.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use super::line::{self, EventStream};
use super::load::{CountedLoad, LoadMeter};
use super::recorder::Recorder;
use crate::Error;
use crate::progress::Progress;
use crate::top::StatsSource;

/// Time limit of a connection and of an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// After a signal, and once the server does not answer, the lines that have arrived are read, at most for this time.
const PATIENCE_AT_END: Duration = Duration::from_secs(1);
/// Timeout of a read, after which the clock is checked.
const PAUSE: Duration = Duration::from_millis(100);
/// A longer line is no line of a watched server: keys have 250 bytes, encoded three times as many.
const MAX_LINE: u64 = 4096;

/// Why a capture ended.
#[derive(Debug)]
pub(super) enum Ended {
    Time,
    Full,
    Interrupted,
    /// The server closed the connection, the connection failed, or the server stopped answering.
    Closed(String),
}

/// The end of a capture, and the load until then.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) ended: Ended,
    pub(super) took: Duration,
    pub(super) load: CountedLoad,
}

pub(super) struct Watching {
    input: BufReader<TcpStream>,
    target: String,
    stream: EventStream,
}

impl Watching {
    /// Requests the events of the server; of an Ebbtide server, those of one key of `sample`.
    pub(super) fn start(target: &str, is_ours: bool, sample: u32) -> Result<Self, Error> {
        let failed = |source| Error::Connection { target: target.to_owned(), source };
        let mut input = BufReader::with_capacity(256 << 10, connect(target).map_err(failed)?);
        let commands = [
            (EventStream::Detailed, format!("watch fetchers mutations sample={sample}\r\n")),
            (EventStream::WithDeletions, "watch fetchers mutations deletions\r\n".to_owned()),
            (EventStream::Plain, "watch fetchers mutations\r\n".to_owned()),
        ];
        let mut refusal = String::new();
        for (stream, command) in &commands[usize::from(!is_ours)..] {
            input.get_mut().write_all(command.as_bytes()).map_err(failed)?;
            let mut answer = Vec::new();
            input.by_ref().take(MAX_LINE).read_until(b'\n', &mut answer).map_err(failed)?;
            refusal = answer.trim_ascii().escape_ascii().to_string();
            match refusal.as_str() {
                "OK" => {
                    input.get_ref().set_read_timeout(Some(PAUSE)).map_err(failed)?;
                    return Ok(Self { input, target: target.to_owned(), stream: *stream });
                }
                "ERROR" => {}
                _ => break,
            }
        }
        let reason = format!("`{refusal}` to watch; a server started with -W, or with passwords, cannot be captured");
        Err(Error::Protocol { target: target.to_owned(), reason })
    }

    pub(super) fn stream(&self) -> EventStream {
        self.stream
    }

    /// Records events for this time, or until enough requests, an interrupt by the user, or the end of the connection.
    /// `source` is asked in the meantime: a server that does not answer it ends the capture, too.
    pub(super) fn read(
        &mut self,
        limit: Duration,
        max_requests: usize,
        recorder: &mut Recorder,
        source: StatsSource,
    ) -> Result<Watched, Error> {
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // After the first signal, or after the capture, a signal ends the program.
            flag::register_conditional_default(signal, Arc::clone(&interrupted))?;
            flag::register(signal, Arc::clone(&interrupted))?;
        }
        let meter = LoadMeter::start(source)?;
        let started = Instant::now();
        let progress = Progress::new("requests", limit.as_secs());
        let mut line = Vec::new();
        let mut drain_began: Option<Instant> = None;
        let ended = loop {
            if started.elapsed() >= limit {
                break Ended::Time;
            }
            let is_interrupted = interrupted.load(Ordering::Relaxed);
            let is_ending = is_interrupted || meter.has_failed();
            if is_ending && drain_began.get_or_insert_with(Instant::now).elapsed() >= PATIENCE_AT_END {
                break Ended::Interrupted;
            }
            if recorder.requests() >= max_requests {
                break Ended::Full;
            }
            progress.show(recorder.requests() as u64, started.elapsed().as_secs());
            match self.next_line(&mut line) {
                Ok(true) => {
                    recorder.note(&line::parse(&line));
                    line.clear();
                }
                Ok(false) if is_ending => break Ended::Interrupted,
                Ok(false) => {}
                Err(error) => break Ended::Closed(error.to_string()),
            }
        };
        progress.finish();
        interrupted.store(true, Ordering::Relaxed);
        let took = started.elapsed();
        let (load, failure) = meter.finish();
        let ended = match (ended, failure) {
            (Ended::Closed(reason), _) => Ended::Closed(reason),
            (_, Some(failure)) => Ended::Closed(failure),
            (ended, None) => ended,
        };
        Ok(Watched { ended, took, load })
    }

    /// Adds to `line`; true once it is whole. False if none came in the meantime.
    fn next_line(&mut self, line: &mut Vec<u8>) -> io::Result<bool> {
        let left = MAX_LINE.saturating_sub(line.len() as u64);
        match self.input.by_ref().take(left).read_until(b'\n', line) {
            Ok(_) if line.last() == Some(&b'\n') => Ok(true),
            Ok(0) if left > 0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection")),
            Ok(_) if line.len() as u64 >= MAX_LINE => {
                Err(io::Error::other(format!("{} sent no lines of events", self.target)))
            }
            Ok(_) => Ok(false),
            Err(error) if is_pause(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn is_pause(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

fn connect(target: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in target.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => {
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}
