//! The text protocol: consecutive gets form runs, everything else is executed command by command.

use ebbtide_protocol::{Get, Meta, MetaCommand, Parser, Request, Step};

use crate::execute::{
    Body, DumpProgress, Executor, GetRun, Next, Rest, SliceEnd, Unanswered, end_get, line_of, position_in,
};
use crate::output::Output;
use crate::session::{INLINE_VALUE_BYTES, SessionProgress, StopReason};
use crate::watch::Watch;

pub struct TextSession {
    parser: Parser,
    /// The value that is being received.
    body: Option<Box<Body>>,
    /// The dump that is being answered.
    dump: Option<DumpProgress>,
    /// The connection watches from now on.
    watch: Option<Watch>,
    /// An error has taken the place of the rest of a get's answer.
    get_failed: bool,
    /// The connection's number in `stats conns`.
    id: usize,
}

impl TextSession {
    pub fn new(id: usize) -> Self {
        Self { parser: Parser::new(INLINE_VALUE_BYTES), body: None, dump: None, watch: None, get_failed: false, id }
    }

    /// True while the value of a storage command is being received.
    pub fn is_receiving(&self) -> bool {
        self.body.is_some()
    }

    /// What the connection watches from now on, if it has just started.
    pub fn take_watch(&mut self) -> Option<Watch> {
        self.watch.take()
    }

    /// Executes what is in `input`, until it has no complete command any more or the output is full. What was not
    /// consumed must be given again, followed by what has arrived since.
    pub fn process(&mut self, executor: &Executor, input: &[u8], output: &mut Output) -> SessionProgress {
        let mut run = GetRun::new(input);
        let mut consumed = 0;
        let mut requests = 0;
        let stop = loop {
            if let Some(body) = &mut self.body {
                if executor.body_waits_for_memory(body) {
                    break StopReason::Parked;
                }
                let (count, complete) = body.feed(&input[consumed..]);
                consumed += count;
                if executor.body_waits_for_memory(body) {
                    break StopReason::Parked;
                }
                if !complete {
                    break StopReason::NeedInput;
                }
                if executor.body_waits_for_flash(body) || !executor.finish(body, output) {
                    break StopReason::Parked;
                }
                self.body = None;
                requests += 1;
            }
            if output.is_full() {
                break StopReason::OutputFull;
            }
            if let Some(stop) = self.continue_dump(executor, output) {
                break stop;
            }
            let position = consumed;
            let (step, used) = self.parser.next(&input[consumed..]);
            consumed += used;
            let step = match step {
                Step::Request(Request::Meta { command: MetaCommand::Get, meta }) if meta.is_plain_get() => {
                    requests += 1;
                    match self.meta_get(executor, &meta, input, &mut run, output) {
                        Ok(()) => continue,
                        Err(unanswered) => {
                            consumed = self.resume(unanswered);
                            break executor.stop_reason();
                        }
                    }
                }
                Step::Request(Request::Get(get)) if get.touch.is_none() => {
                    requests += 1;
                    match self.get(executor, &get, &mut run, input, output) {
                        Ok(()) => continue,
                        Err(unanswered) => {
                            consumed = self.resume(unanswered);
                            break executor.stop_reason();
                        }
                    }
                }
                step => step,
            };
            if let Err(unanswered) = executor.get_run(&mut run, &mut self.get_failed, output) {
                consumed = self.resume(unanswered);
                break executor.stop_reason();
            }
            match self.step(executor, step, (input, position), output) {
                Ok(None) => requests += 1,
                Ok(Some(stop)) => break stop,
                Err(unanswered) => {
                    consumed = self.resume(unanswered);
                    break executor.stop_reason();
                }
            }
        };
        SessionProgress { consumed, requests, stop }
    }

    /// Why to stop for a dump that has not ended.
    fn continue_dump(&mut self, executor: &Executor, output: &mut Output) -> Option<StopReason> {
        let (sliced, rest) = executor.dump_slice(self.dump.take()?, output);
        self.dump = rest;
        match sliced {
            SliceEnd::More => Some(StopReason::Yield),
            SliceEnd::Parked => Some(StopReason::Parked),
            SliceEnd::Finished => None,
        }
    }

    /// Adds a plain mg to the run, which is answered whenever it is full.
    fn meta_get<'a>(
        &mut self,
        executor: &Executor,
        meta: &Meta<'a>,
        input: &'a [u8],
        run: &mut GetRun<'a>,
        output: &mut Output,
    ) -> Result<(), Unanswered> {
        if run.is_full() {
            executor.get_run(run, &mut self.get_failed, output)?;
            if output.is_full() {
                return Err(Unanswered { position: line_of(input, meta.key_word()), rest: Rest::Line });
            }
        }
        run.push_meta(meta);
        Ok(())
    }

    /// Adds a get to the run, which is answered whenever it is full.
    fn get<'a>(
        &mut self,
        executor: &Executor,
        get: &Get<'a>,
        run: &mut GetRun<'a>,
        input: &'a [u8],
        output: &mut Output,
    ) -> Result<(), Unanswered> {
        for key in get.keys.clone() {
            if run.is_full() {
                // A key that is pushed later is not answered either, so none is skipped: the first one tells.
                executor.get_run(run, &mut self.get_failed, output)?;
                if output.is_full() {
                    let rest = Rest::Keys { with_cas: get.with_cas, touch: None };
                    return Err(Unanswered { position: position_in(input, key), rest });
                }
            }
            run.push(key, position_in(input, key), get.with_cas);
        }
        if !get.last {
            return Ok(());
        }
        // The last part of a long get may have no key of its own: what is in the run is of other commands then.
        if get.keys.is_empty() {
            executor.get_run(run, &mut self.get_failed, output)?;
            end_get(&mut self.get_failed, output);
        } else {
            run.end_command();
        }
        Ok(())
    }

    /// Executes anything but a get or gets. It begins at a position of the input.
    fn step(
        &mut self,
        executor: &Executor,
        step: Step<'_>,
        (input, position): (&[u8], usize),
        output: &mut Output,
    ) -> Result<Option<StopReason>, Unanswered> {
        match step {
            Step::Request(Request::Get(get)) => {
                let exptime = get.touch.unwrap_or_default();
                executor.get_and_touch(&get, exptime, input, &mut self.get_failed, output)?;
            }
            Step::Request(request) => match executor.execute(request, self.id, output) {
                Next::Continue => {}
                Next::Dump(dump) => self.dump = Some(dump),
                Next::Watch(watch) => {
                    self.watch = Some(watch);
                    return Ok(Some(StopReason::NeedInput));
                }
                Next::Parked => return Err(Unanswered { position, rest: Rest::Line }),
                Next::Receive(body) => self.body = Some(Box::new(body)),
                Next::Close => return Ok(Some(StopReason::Close)),
            },
            Step::Reject { rejection, noreply } => {
                self.get_failed = false;
                executor.reject(rejection, noreply, output);
            }
            Step::NeedMore => return Ok(Some(StopReason::NeedInput)),
            Step::Close => return Ok(Some(StopReason::NotTheProtocol)),
        }
        Ok(None)
    }

    fn resume(&mut self, unanswered: Unanswered) -> usize {
        match unanswered.rest {
            Rest::Line => self.parser.resume_line(),
            Rest::Keys { with_cas, touch } => self.parser.resume_keys(with_cas, touch),
        }
        unanswered.position
    }
}
