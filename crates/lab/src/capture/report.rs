//! Report of a capture: captured requests, and data that the server does not report.

use std::io::{self, Write};

use serde::Serialize;

use super::connection::{Ended, Watched};
use super::line::EventStream;
use super::recorder::Recorder;
use crate::Error;
use crate::trace::CapturedServer;

/// The names of the fields are the names in the JSON object.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CaptureReport {
    target: String,
    server: String,
    pub(crate) requests: usize,
    gets: usize,
    keys: usize,
    /// One key in this number is recorded.
    pub(crate) sample: u32,
    pub(crate) seconds: f64,
    /// The load of the server, sampled keys and others, by its counters.
    pub(crate) requests_per_second: Option<f64>,
    /// Lines that the server dropped, because more came than could be sent.
    skipped_lines: u64,
    /// Why the server ended the capture, if it did: it closed the connection, or stopped answering.
    closed: Option<String>,
    /// Of all gets of the server within the capture; `None` without gets.
    hit_ratio: Option<f64>,
    pub(crate) notes: Vec<String>,
    #[serde(skip)]
    pub(crate) described: CapturedServer,
}

impl CaptureReport {
    /// Fills in the sizes and TTLs of the recorded requests.
    pub(super) fn new(
        (target, server): (&str, String),
        stream: EventStream,
        (sample, described): (u32, CapturedServer),
        Watched { ended, took, load }: Watched,
        recorder: &mut Recorder,
    ) -> Self {
        let (sizeless, without_ttl) = recorder.fill_in();
        let mut notes = Vec::new();
        match stream {
            EventStream::Detailed => notes.push("touches count as gets, decr as incr".to_owned()),
            EventStream::WithDeletions => {
                notes.push("touches, incr, decr and deletes of absent keys count as gets".to_owned());
            }
            EventStream::Plain => {
                notes.push("deletes, touches, incr and decr count as gets: this server tells only lookups".to_owned());
            }
        }
        if without_ttl > 0 {
            notes.push(format!("{without_ttl} gets have no TTL: their objects were stored before the capture"));
        }
        if sizeless > 0 {
            notes.push(format!("{sizeless} gets have a size of 0: their keys missed and were never stored"));
        }
        if recorder.skipped_lines > 0 {
            let skipped = recorder.skipped_lines;
            notes
                .push(format!("the server dropped {skipped} lines: those requests are missing, and rates are too low"));
        }
        match ended {
            Ended::Full => notes.push(format!("--max-requests was reached after {:.1} s", took.as_secs_f64())),
            Ended::Interrupted => notes.push(format!("interrupted after {:.1} s", took.as_secs_f64())),
            Ended::Time | Ended::Closed(_) => {}
        }
        let closed = if let Ended::Closed(reason) = ended { Some(reason) } else { None };
        Self {
            target: target.to_owned(),
            server,
            requests: recorder.requests(),
            gets: recorder.gets(),
            keys: recorder.keys(),
            sample,
            seconds: took.as_secs_f64(),
            requests_per_second: load.per_second(),
            skipped_lines: recorder.skipped_lines,
            closed,
            hit_ratio: described.hit_ratio(),
            notes,
            described,
        }
    }

    /// The error, if the server disconnected early.
    pub(crate) fn ended_early(&self) -> Result<(), Error> {
        match &self.closed {
            None => Ok(()),
            Some(reason) => Err(Error::CaptureEnded {
                target: self.target.clone(),
                reason: reason.clone(),
                seconds: self.seconds,
                requests: self.requests,
            }),
        }
    }

    pub(crate) fn print(&self, json: bool, out: &mut impl Write) -> io::Result<()> {
        if json {
            return writeln!(out, "{}", serde_json::to_string(self)?);
        }
        let Self { target, server, requests, gets, keys, sample, seconds, requests_per_second, hit_ratio, .. } = self;
        writeln!(out, "captured {requests} requests ({gets} gets) for {keys} keys of {target} in {seconds:.1} s")?;
        writeln!(out, "server   {server}")?;
        writeln!(out, "sample   one key of {sample}")?;
        match requests_per_second {
            Some(rate) => writeln!(out, "load     {rate:.0} requests a second, counted by the server")?,
            None => writeln!(out, "load     not measured: the server did not answer `stats` a second time")?,
        }
        if let Some(ratio) = hit_ratio {
            writeln!(out, "hits     {:.1} % of the gets, counted by the server", ratio * 100.0)?;
        }
        self.notes.iter().try_for_each(|note| writeln!(out, "note     {note}"))
    }
}
