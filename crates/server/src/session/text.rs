//! The text protocol: consecutive gets form runs, everything else is executed command by command.

use ebbtide_protocol::{Get, Meta, MetaCommand, Parser, Request, Step};

use crate::execute::{Body, Dumping, Executor, GetRun, Next, Rest, Sliced, Unanswered, end_get, line_of, position_in};
use crate::output::Output;
use crate::session::{INLINE_VALUE_BYTES, Progress, Stopped};
use crate::watch::Watch;

pub struct TextSession {
    parser: Parser,
    /// The value that is being received.
    body: Option<Box<Body>>,
    /// The dump that is being answered.
    dump: Option<Dumping>,
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

    /// What the connection watches from now on, if it has just begun.
    pub fn take_watch(&mut self) -> Option<Watch> {
        self.watch.take()
    }

    /// Executes what is in `input`, until it has no complete command any more or the output is full. What was not
    /// consumed must be given again, followed by what has arrived since.
    pub fn process(&mut self, executor: &Executor, input: &[u8], output: &mut Output) -> Progress {
        let mut run = GetRun::new(input);
        let mut consumed = 0;
        let mut requests = 0;
        let stopped = loop {
            if let Some(body) = &mut self.body {
                if executor.body_is_blocked(body) {
                    break Stopped::Below;
                }
                let (count, complete) = body.feed(&input[consumed..]);
                consumed += count;
                if executor.body_is_blocked(body) {
                    break Stopped::Below;
                }
                if !complete {
                    break Stopped::Starved;
                }
                if executor.body_awaits(body) || !executor.finish(body, output) {
                    break Stopped::Below;
                }
                self.body = None;
                requests += 1;
            }
            if output.is_full() {
                break Stopped::Full;
            }
            if let Some(stopped) = self.go_on_dumping(executor, output) {
                break stopped;
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
                            break executor.why_unanswered();
                        }
                    }
                }
                Step::Request(Request::Get(get)) if get.touch.is_none() => {
                    requests += 1;
                    match self.get(executor, &get, &mut run, input, output) {
                        Ok(()) => continue,
                        Err(unanswered) => {
                            consumed = self.resume(unanswered);
                            break executor.why_unanswered();
                        }
                    }
                }
                step => step,
            };
            if let Err(unanswered) = executor.get_run(&mut run, &mut self.get_failed, output) {
                consumed = self.resume(unanswered);
                break executor.why_unanswered();
            }
            match self.step(executor, step, (input, position), output) {
                Ok(None) => requests += 1,
                Ok(Some(stopped)) => break stopped,
                Err(unanswered) => {
                    consumed = self.resume(unanswered);
                    break executor.why_unanswered();
                }
            }
        };
        Progress { consumed, requests, stopped }
    }

    /// Why to stop for a dump that has not ended.
    fn go_on_dumping(&mut self, executor: &Executor, output: &mut Output) -> Option<Stopped> {
        let (sliced, rest) = executor.dump_slice(self.dump.take()?, output);
        self.dump = rest;
        match sliced {
            Sliced::Turn => Some(Stopped::Turn),
            Sliced::Parked => Some(Stopped::Below),
            Sliced::End => None,
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
    ) -> Result<Option<Stopped>, Unanswered> {
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
                    return Ok(Some(Stopped::Starved));
                }
                Next::Below => return Err(Unanswered { position, rest: Rest::Line }),
                Next::Receive(body) => self.body = Some(Box::new(body)),
                Next::Close => return Ok(Some(Stopped::Close)),
            },
            Step::Reject { rejection, noreply } => {
                self.get_failed = false;
                executor.reject(rejection, noreply, output);
            }
            Step::NeedMore => return Ok(Some(Stopped::Starved)),
            Step::Close => return Ok(Some(Stopped::Refused)),
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
