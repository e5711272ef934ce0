//! One connection with requests in flight. Buffers are kept, so that in steady state no request allocates.
//!
//! `pending` holds the requests in the order they were sent, `numbers` the keys of the gets among them. A server
//! answers a get with the values that it has in the order of the keys: each VALUE line takes keys off `numbers` up to
//! its own, those before it missed, and so did those left at END. Bodies are passed over without being collected.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::time::Instant;

use mio::net::TcpStream;

use super::Plan;
use super::drive::Meter;
use super::load::{Kind, Load};
use super::report::{Tally, record};
use crate::keys::KeyBuffer;
use ebbtide_protocol::client::{self, Reply};

const READ_BUFFER: usize = 64 << 10;

/// A request that waits for its answer.
#[derive(Clone, Copy)]
struct Pending {
    sent: Instant,
    operation: Operation,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    /// With so many keys still without an answer.
    Get(u16),
    Set,
    Fill,
}

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

pub(super) struct Connection {
    pub(super) stream: TcpStream,
    output: Vec<u8>,
    written: usize,
    input: Box<[u8]>,
    /// Bytes of `input` that are filled and not yet parsed: the start of a line.
    filled: usize,
    /// Bytes of a value and its line end that are still to come.
    body_left: u64,
    pending: VecDeque<Pending>,
    numbers: VecDeque<u64>,
    fills: VecDeque<u64>,
    key: KeyBuffer,
}

impl Connection {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            output: Vec::new(),
            written: 0,
            input: vec![0; READ_BUFFER].into_boxed_slice(),
            filled: 0,
            body_left: 0,
            pending: VecDeque::new(),
            numbers: VecDeque::new(),
            fills: VecDeque::new(),
            key: KeyBuffer::default(),
        }
    }

    /// No answer is outstanding.
    pub(super) fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }

    /// Puts new requests in flight until there are `depth` of them, and sends them.
    pub(super) fn send(
        &mut self,
        load: &mut Load,
        depth: usize,
        plan: &Plan,
        meter: &Meter<'_>,
        now: Instant,
    ) -> Result<(), Broken> {
        while self.pending.len() < depth {
            let operation = if let Some(number) = self.fills.pop_front() {
                self.write_set(number, plan);
                Operation::Fill
            } else {
                match load.next(meter.stop) {
                    None => break,
                    Some((Kind::Set, _)) => {
                        self.write_set(load.number(), plan);
                        Operation::Set
                    }
                    Some((Kind::Get, keys)) => {
                        self.write_get(load, keys, plan);
                        Operation::Get(keys)
                    }
                }
            };
            self.pending.push_back(Pending { sent: now, operation });
        }
        self.flush()
    }

    /// Reads what has arrived, up to one buffer, and takes the answers off. False when nothing more is there now.
    pub(super) fn receive(&mut self, plan: &Plan, tally: &mut Tally) -> Result<bool, Broken> {
        let room = self.input.len() - self.filled;
        let read = match self.stream.read(&mut self.input[self.filled..]) {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(true),
            Err(error) => return Err(error.into()),
        };
        self.filled += read;
        self.take_answers(plan, tally, Instant::now())?;
        // Less than was asked for: whatever comes later raises an event of its own.
        Ok(read == room)
    }

    /// Writes out what is buffered, as far as the socket takes it.
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

    fn write_set(&mut self, number: u64, plan: &Plan) {
        let key = plan.objects.write_key(number, &mut self.key);
        client::set(&mut self.output, key, plan.objects.ttl_seconds(number), plan.objects.value_size(number));
    }

    fn write_get(&mut self, load: &mut Load, keys: u16, plan: &Plan) {
        client::begin_get(&mut self.output);
        for _ in 0..keys {
            let number = load.number();
            let key = plan.objects.write_key(number, &mut self.key);
            client::add_key(&mut self.output, key);
            self.numbers.push_back(number);
        }
        client::end_line(&mut self.output);
    }

    fn take_answers(&mut self, plan: &Plan, tally: &mut Tally, now: Instant) -> Result<(), Broken> {
        let input = std::mem::take(&mut self.input);
        let mut at = 0;
        let outcome = loop {
            let skipped = self.body_left.min((self.filled - at) as u64);
            self.body_left -= skipped;
            at += skipped as usize;
            match client::parse(&input[at..self.filled]) {
                Ok(None) => break Ok(()),
                Ok(Some((reply, taken))) => {
                    at += taken;
                    if let Err(reason) = self.take_reply(&reply, plan, tally, now) {
                        break Err(Broken::Protocol(reason));
                    }
                }
                Err(reason) => break Err(Broken::Protocol(reason)),
            }
        };
        self.input = input;
        self.input.copy_within(at..self.filled, 0);
        self.filled -= at;
        outcome
    }

    fn take_reply(&mut self, reply: &Reply<'_>, plan: &Plan, tally: &mut Tally, now: Instant) -> Result<(), String> {
        let Some(&Pending { sent, operation }) = self.pending.front() else {
            return Err("an answer without a request".into());
        };
        match (operation, reply) {
            (Operation::Get(left), &Reply::Value { key, length }) => {
                self.body_left = length + 2;
                return self.take_hit(left, key, plan, tally);
            }
            (Operation::Get(left), Reply::End) => {
                self.take_misses(left, plan, tally);
                record(&mut tally.get_latency, now - sent);
            }
            (Operation::Get(left), Reply::Refused(line)) => {
                tally.error(|| line.escape_ascii().to_string());
                tally.gets += u64::from(left);
                self.numbers.drain(..usize::from(left));
            }
            (Operation::Set | Operation::Fill, Reply::Stored | Reply::Refused(_)) => {
                if let Reply::Refused(line) = reply {
                    tally.error(|| line.escape_ascii().to_string());
                }
                match operation {
                    Operation::Fill => tally.fills += 1,
                    _ => tally.sets += 1,
                }
                record(&mut tally.set_latency, now - sent);
            }
            (Operation::Get(_), Reply::Stored) => return Err("STORED to a get".into()),
            (_, Reply::Value { .. } | Reply::End) => return Err("values to a set".into()),
        }
        self.pending.pop_front();
        Ok(())
    }

    /// A value of the get in front, which still has `left` keys without an answer.
    fn take_hit(&mut self, left: u16, key: &[u8], plan: &Plan, tally: &mut Tally) -> Result<(), String> {
        let position = (0..left).find(|&position| {
            let number = self.numbers[usize::from(position)];
            plan.objects.write_key(number, &mut self.key) == key
        });
        let Some(misses) = position else {
            return Err(format!("a value of `{}`", key.escape_ascii()));
        };
        self.take_misses(misses, plan, tally);
        self.numbers.pop_front();
        tally.gets += 1;
        tally.hits += 1;
        if let Some(front) = self.pending.front_mut() {
            front.operation = Operation::Get(left - misses - 1);
        }
        Ok(())
    }

    fn take_misses(&mut self, count: u16, plan: &Plan, tally: &mut Tally) {
        tally.gets += u64::from(count);
        let missed = self.numbers.drain(..usize::from(count));
        if plan.args.fill {
            self.fills.extend(missed);
        }
    }
}
