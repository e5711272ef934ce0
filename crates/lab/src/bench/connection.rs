//! One connection with requests in flight. Buffers are kept, so that in steady state no request allocates.

use std::io::{self, Read, Write};
use std::time::Instant;

use mio::net::TcpStream;

use super::answers::{Answers, Ledger, SentOperation};
use super::args::Dialect;
use super::drive::Meter;
use super::feed::{Feed, Task};
use super::load_kind::LoadKind;
use super::plan::Plan;
use super::tally::{LatencyTally, record};
use crate::keys::KeyBuffer;

const READ_BUFFER: usize = 64 << 10;

/// Why a connection cannot go on.
pub(super) enum Broken {
    Io(io::Error),
    Protocol(String),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Broken::Io(error)
    }
}

pub(super) struct BenchConnection {
    pub(super) stream: TcpStream,
    output: Vec<u8>,
    written: usize,
    input: Box<[u8]>,
    /// Bytes of `input` that are filled and not yet parsed: the start of a line.
    filled: usize,
    answers: Answers,
    key: KeyBuffer,
}

impl BenchConnection {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            output: Vec::new(),
            written: 0,
            input: vec![0; READ_BUFFER].into_boxed_slice(),
            filled: 0,
            answers: Answers::default(),
            key: KeyBuffer::default(),
        }
    }

    /// Requests without an answer.
    pub(super) fn in_flight(&self) -> usize {
        self.answers.awaited()
    }

    /// Takes one request that is due into the output. False if there is none.
    pub(super) fn add(
        &mut self,
        feed: &mut Feed,
        plan: &Plan,
        meter: &Meter<'_>,
        tally: &mut LatencyTally,
        now: Instant,
    ) -> bool {
        let Some((task, since)) = feed.next(now, meter.stop) else {
            return false;
        };
        let before = self.output.len();
        let operation = match task {
            Task::Fill(number) => {
                self.write(LoadKind::Set, number, plan);
                SentOperation::Fill
            }
            Task::Write(kind) => {
                let number = feed.load.number();
                self.write(kind, number, plan);
                SentOperation::Write(kind, number)
            }
            Task::Get(keys) => self.write_get(feed, keys, plan),
        };
        tally.bytes_sent += (self.output.len() - before) as u64;
        if feed.is_paced() {
            record(&mut tally.delay, now.duration_since(since));
        }
        self.answers.expect(operation, since);
        true
    }

    /// Reads arrived bytes, up to one buffer, and takes the answers off. False when no more bytes are available.
    pub(super) fn receive(&mut self, feed: &mut Feed, plan: &Plan, tally: &mut LatencyTally) -> Result<bool, Broken> {
        let space = self.input.len() - self.filled;
        let read = match self.stream.read(&mut self.input[self.filled..]) {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(true),
            Err(error) => return Err(error.into()),
        };
        self.filled += read;
        tally.bytes_received += read as u64;
        let mut ledger = Ledger { plan, tally, fills: &mut feed.fills, now: Instant::now() };
        let taken = self.answers.take(&self.input[..self.filled], &mut ledger).map_err(Broken::Protocol)?;
        self.input.copy_within(taken..self.filled, 0);
        self.filled -= taken;
        // After a short read, later bytes cause another event.
        Ok(read == space)
    }

    /// Writes as many buffered bytes as the socket accepts.
    pub(super) fn flush(&mut self) -> Result<(), Broken> {
        while self.written < self.output.len() {
            match self.stream.write(&self.output[self.written..]) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
                Ok(written) => self.written += written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.output.clear();
        self.written = 0;
        Ok(())
    }

    fn write(&mut self, kind: LoadKind, number: u64, plan: &Plan) {
        plan.args.protocol.write(kind, &mut self.output, &plan.objects, number, &mut self.key);
    }

    fn write_get(&mut self, feed: &mut Feed, keys: u16, plan: &Plan) -> SentOperation {
        let dialect = plan.args.protocol;
        dialect.begin_get(&mut self.output, keys);
        for _ in 0..keys {
            let number = feed.load.number();
            dialect.add_key(&mut self.output, plan.objects.write_key(number, &mut self.key));
            self.answers.expect_key(number);
        }
        dialect.end_get(&mut self.output);
        match dialect {
            Dialect::Redis if keys > 1 => SentOperation::List(keys),
            _ => SentOperation::Get(keys),
        }
    }
}
