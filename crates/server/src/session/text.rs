//! The text protocol: consecutive gets form runs, and so do consecutive changes of keys. Everything else is executed
//! command by command.

use std::ops::Range;

use ebbtide_protocol::{Get, Meta, MetaCommand, Parser, Request, Step};

use crate::dump_thread::DumpProgress;
use crate::execute::{Body, Executor, GetRun, Next, Rest, SliceEnd, Unanswered, end_get, line_of, position_in};
use crate::output::Output;
use crate::session::change_run::{ChangeRun, PendingChange, changed_key};
use crate::session::progress::{INLINE_VALUE_BYTES, SessionProgress, StopReason};
use crate::watch::Watch;

pub struct TextSession {
    parser: Parser,
    /// The value that is being received.
    body: Option<Box<Body>>,
    /// The dump that is being answered.
    dump: Option<DumpProgress>,
    /// Set when the connection has become a watcher.
    watch: Option<Watch>,
    /// An error has replaced the rest of a get's answer.
    get_failed: bool,
    /// The connection's number in `stats conns`.
    id: usize,
}

/// Commands of the input that are not executed yet: gets or changes, never both.
struct Runs<'a> {
    gets: GetRun<'a>,
    changes: ChangeRun<'a>,
}

impl TextSession {
    pub fn new(id: usize) -> Self {
        Self { parser: Parser::new(INLINE_VALUE_BYTES), body: None, dump: None, watch: None, get_failed: false, id }
    }

    /// True while the value of a storage command is being received.
    pub fn is_receiving(&self) -> bool {
        self.body.is_some()
    }

    /// The watcher that the connection has just become, if it has.
    pub fn take_watch(&mut self) -> Option<Watch> {
        self.watch.take()
    }

    /// As `Session::process`.
    pub fn process(&mut self, executor: &Executor, input: &[u8], output: &mut Output) -> SessionProgress {
        let mut runs = Runs { gets: GetRun::new(input), changes: ChangeRun::default() };
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
            let (step, place) = self.parser.next(&input[consumed..]);
            let line = consumed + place.start..consumed + place.end;
            consumed = line.end;
            match self.take_step(executor, step, (input, line), &mut runs, output) {
                Ok(None) => requests += 1,
                Ok(Some(stop)) => break stop,
                Err(unanswered) => {
                    consumed = self.resume(unanswered);
                    // A value that waits for memory is finished first.
                    if self.body.is_none() {
                        break executor.stop_reason();
                    }
                }
            }
        };
        SessionProgress { consumed, requests, stop }
    }

    /// Adds a get or a change to its run, or executes what is neither, behind the run that waits. `line` is the place
    /// of the step in the input. A command joins a run only while the session can go on: nothing may wait when it
    /// stops.
    fn take_step<'a>(
        &mut self,
        executor: &Executor,
        step: Step<'a>,
        (input, line): (&'a [u8], Range<usize>),
        runs: &mut Runs<'a>,
        output: &mut Output,
    ) -> Result<Option<StopReason>, Unanswered> {
        match step {
            Step::Request(Request::Meta { command: MetaCommand::Get, meta }) if meta.is_plain_get() => {
                self.finish_changes(executor, &mut runs.changes, (input, line.start), output)?;
                self.meta_get(executor, &meta, input, &mut runs.gets, output)?;
                Ok(None)
            }
            Step::Request(Request::Get(get)) if get.touch.is_none() => {
                self.finish_changes(executor, &mut runs.changes, (input, line.start), output)?;
                self.get(executor, &get, &mut runs.gets, input, output)?;
                Ok(None)
            }
            Step::Request(request) if changed_key(&request).is_some() => {
                executor.get_run(&mut runs.gets, &mut self.get_failed, output)?;
                self.check_go_on(line.start, output)?;
                let is_last = line.end == input.len();
                if is_last && runs.changes.is_empty() {
                    return self.step(executor, Step::Request(request), (input, line.start), output);
                }
                runs.changes.push(request, line.start);
                if is_last || runs.changes.is_full() {
                    self.finish_changes(executor, &mut runs.changes, (input, line.end), output)?;
                }
                Ok(None)
            }
            step => {
                self.finish_changes(executor, &mut runs.changes, (input, line.start), output)?;
                executor.get_run(&mut runs.gets, &mut self.get_failed, output)?;
                self.step(executor, step, (input, line.start), output)
            }
        }
    }

    /// Executes the changes of a run and empties it. The step behind it begins at `next`.
    fn finish_changes(
        &mut self,
        executor: &Executor,
        run: &mut ChangeRun<'_>,
        (input, next): (&[u8], usize),
        output: &mut Output,
    ) -> Result<(), Unanswered> {
        if run.is_empty() {
            return Ok(());
        }
        executor.prefetch_writes(run.keys());
        for PendingChange { request, position } in run.take() {
            self.check_go_on(position, output)?;
            let stop = self.step(executor, Step::Request(request), (input, position), output)?;
            assert!(stop.is_none(), "no change ends a session");
        }
        self.check_go_on(next, output)
    }

    /// Stops before the step at this position if the output is full, or a value waits for memory. The step is at the
    /// start of a line: a change or the first part of a get is before it.
    fn check_go_on(&self, position: usize, output: &Output) -> Result<(), Unanswered> {
        match output.is_full() || self.body.is_some() {
            true => Err(Unanswered { position, rest: Rest::Line }),
            false => Ok(()),
        }
    }

    /// Continues a dump. Returns the reason to stop while the dump has not ended.
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
                // No key is skipped: keys that are pushed later are not answered either.
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
        // The last part of a long get may have no key; the keys in the run are of other commands then.
        if get.keys.is_empty() {
            executor.get_run(run, &mut self.get_failed, output)?;
            end_get(&mut self.get_failed, output);
        } else {
            run.end_command();
        }
        Ok(())
    }

    /// Executes a command other than get and gets, which starts at `position` of the input.
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
            Step::Request(request) => match executor.execute(&request, self.id, output) {
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
