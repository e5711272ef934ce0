//! The binary protocol: consecutive gets form runs, everything else is executed packet by packet.

use ebbtide_protocol::binary::{self, After, BinaryCommand, PacketStep, reply};

use crate::execute::Executor;
use crate::execute::binary::{BinaryRun, PacketNext, PutBody, Sasl};
use crate::output::Output;
use crate::session::{INLINE_VALUE_BYTES, SessionProgress, StopReason};

pub struct BinarySession {
    /// The value that is being received.
    body: Option<PutBody>,
    /// Bytes that are to be taken off the stream and dropped.
    skip: u32,
    sasl: Sasl,
    /// The connection's number in `stats conns`.
    id: usize,
}

impl BinarySession {
    pub fn new(id: usize, sasl: Sasl) -> Self {
        Self { body: None, skip: 0, sasl, id }
    }

    /// True while the value of a storage command is being received.
    pub fn is_receiving(&self) -> bool {
        self.body.is_some() || self.skip > 0
    }

    /// As `Session::process`.
    pub fn process(&mut self, executor: &Executor, input: &[u8], output: &mut Output) -> SessionProgress {
        let mut run = BinaryRun::new();
        let mut consumed = 0;
        let mut requests = 0;
        let stop = loop {
            let (count, received) = self.receive(executor, &input[consumed..], output);
            consumed += count;
            if let Err(stop) = received {
                break stop;
            }
            if output.is_full() {
                break StopReason::OutputFull;
            }
            let position = consumed;
            let (step, used) = binary::next(&input[consumed..], INLINE_VALUE_BYTES);
            let step = self.admitted(step);
            consumed += used;
            if let PacketStep::Request(head, BinaryCommand::Get { key, with_key }) = step {
                requests += 1;
                if run.is_full() {
                    if let Err(unanswered) = executor.binary_run(&mut run, output) {
                        consumed = unanswered;
                        break executor.stop_reason();
                    }
                    if output.is_full() {
                        consumed = position;
                        break StopReason::OutputFull;
                    }
                }
                run.push(head, key, with_key, position);
                continue;
            }
            if let Err(unanswered) = executor.binary_run(&mut run, output) {
                consumed = unanswered;
                break executor.stop_reason();
            }
            match self.step(executor, step, output) {
                None => requests += 1,
                Some(StopReason::Parked) => {
                    consumed = position;
                    break StopReason::Parked;
                }
                Some(stop) => break stop,
            }
        };
        SessionProgress { consumed, requests, stop }
    }

    /// Takes off the front of `input` what belongs to a packet before: how many bytes that was, and why nothing behind
    /// it can be done yet.
    fn receive(&mut self, executor: &Executor, input: &[u8], output: &mut Output) -> (usize, Result<(), StopReason>) {
        if let Some(mut body) = self.body.take() {
            if executor.put_waits_for_memory(&mut body) {
                self.body = Some(body);
                return (0, Err(StopReason::Parked));
            }
            let (count, complete) = body.feed(input);
            let obstacle = match complete {
                _ if executor.put_waits_for_memory(&mut body) => StopReason::Parked,
                true if executor.put_waits_for_flash(&mut body) || !executor.finish_put(&mut body, output) => {
                    StopReason::Parked
                }
                true => return (count, Ok(())),
                false => StopReason::NeedInput,
            };
            self.body = Some(body);
            return (count, Err(obstacle));
        }
        let count = input.len().min(self.skip as usize);
        self.skip -= count as u32;
        (count, if self.skip == 0 { Ok(()) } else { Err(StopReason::NeedInput) })
    }

    /// The step, or its refusal as long as the client may not take it.
    fn admitted<'a>(&self, step: PacketStep<'a>) -> PacketStep<'a> {
        let head = match step {
            PacketStep::Request(head, _) => head,
            // Whose lengths contradict each other has no command that could be refused.
            PacketStep::Reject { status: reply::Status::UnknownCommand, after: After::Close, .. } => return step,
            PacketStep::Reject { head, .. } => head,
            PacketStep::NeedMore | PacketStep::Close => return step,
        };
        match self.sasl.admits(head.opcode) {
            true => step,
            false => PacketStep::Reject { head, status: reply::Status::AuthError, after: After::Close },
        }
    }

    /// Executes anything but a get.
    fn step(&mut self, executor: &Executor, step: PacketStep<'_>, output: &mut Output) -> Option<StopReason> {
        match step {
            PacketStep::Request(head, command) => {
                match executor.execute_binary(head, command, self.id, &mut self.sasl, output) {
                    PacketNext::Continue => {}
                    PacketNext::Parked => return Some(StopReason::Parked),
                    PacketNext::Receive(body) => self.body = Some(body),
                    PacketNext::Skip(length) => self.skip = length,
                    PacketNext::Close => return Some(StopReason::Close),
                }
            }
            PacketStep::Reject { head, status, after } => {
                reply::error(output.bytes(), head, status);
                match after {
                    After::Skip(length) => self.skip = length,
                    After::Close => return Some(StopReason::Close),
                }
            }
            PacketStep::NeedMore => return Some(StopReason::NeedInput),
            PacketStep::Close => return Some(StopReason::Close),
        }
        None
    }
}
