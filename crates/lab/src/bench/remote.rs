//! A load on a server: every thread polls its connections, and sends a new request for each answer, or requests when
//! they are due.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token};

use super::connection::{BenchConnection, Broken};
use super::drive::{Meter, RunEnd, drive};
use super::feed::Feed;
use super::latency_log::with_log;
use super::load::Load;
use super::plan::Plan;
use super::report::{BenchReport, report};
use super::tally::LatencyTally;
use crate::Error;
use crate::generate::CountArg;

/// Longest time without bytes from a server that has requests pending; then the run ends with an error.
const PATIENCE: Duration = Duration::from_secs(10);

/// Requests in flight per connection while the keys are set before the measurement.
const PREFILL_DEPTH: usize = 64;

/// Maximum delay of a wake-up: requests due sooner are waited for without sleeping.
const SLACK: Duration = Duration::from_millis(2);

/// The longest sleep before the next request is due, so that the end of the phase is seen.
const MAX_SLEEP: Duration = Duration::from_millis(20);

pub(super) fn bench(plan: &Plan, target: &str) -> Result<BenchReport, Error> {
    let args = &plan.args;
    let addresses: Vec<SocketAddr> = target.to_socket_addrs().map_err(|error| unreachable(target, error))?.collect();
    let mut workers = Vec::new();
    for thread in 0..args.threads {
        workers.push(RemoteWorker::connect(plan, target, &addresses, thread)?);
    }
    if args.prefill {
        for (thread, worker) in (0..).zip(&mut workers) {
            worker.feed = Feed::new(Load::prefill(plan, thread), None);
            worker.depth = PREFILL_DEPTH;
        }
        let end = RunEnd::Requests(plan.objects.count());
        (workers, _) = drive("prefill", workers, end, RemoteWorker::work, None)?;
    }
    for (thread, worker) in (0..).zip(&mut workers) {
        worker.feed.load = Load::mixed(plan, thread);
        worker.restart(thread, true);
    }
    if let Some(CountArg(requests)) = args.warmup {
        (workers, _) = drive("warm-up", workers, RunEnd::Requests(requests), RemoteWorker::work, None)?;
        for (thread, worker) in (0..).zip(&mut workers) {
            worker.feed.load.measure(plan, thread);
            worker.restart(thread, false);
        }
    }
    let (workers, elapsed) = with_log(args.hdr.as_deref(), args.overwrite, |sink| {
        drive("bench", workers, args.end(), RemoteWorker::work, Some(sink))
    })?;
    let mut total = LatencyTally::default();
    for worker in workers {
        total.unsent += worker.feed.unsent();
        total.add(worker.tally);
    }
    Ok(report(total, plan, elapsed))
}

struct RemoteWorker<'a> {
    plan: &'a Plan,
    target: &'a str,
    feed: Feed,
    /// Requests in flight per connection.
    depth: usize,
    poll: Poll,
    connections: Vec<BenchConnection>,
    /// The connection that takes the next request of an open loop.
    turn: usize,
    tally: LatencyTally,
}

impl<'a> RemoteWorker<'a> {
    fn connect(plan: &'a Plan, target: &'a str, addresses: &[SocketAddr], thread: u16) -> Result<Self, Error> {
        let args = &plan.args;
        let open = || -> io::Result<(Poll, Vec<BenchConnection>)> {
            let poll = Poll::new()?;
            let mut connections = Vec::new();
            let first = usize::from(thread);
            for _ in (first..args.connections()).step_by(usize::from(args.threads)) {
                let stream = std::net::TcpStream::connect(addresses)?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                let mut connection = BenchConnection::new(mio::net::TcpStream::from_std(stream));
                poll.registry().register(
                    &mut connection.stream,
                    Token(connections.len()),
                    Interest::READABLE | Interest::WRITABLE,
                )?;
                connections.push(connection);
            }
            Ok((poll, connections))
        };
        let (poll, connections) = open().map_err(|error| unreachable(target, error))?;
        Ok(Self {
            plan,
            target,
            feed: Feed::new(Load::mixed(plan, thread), None),
            depth: args.pipeline.into(),
            poll,
            connections,
            turn: 0,
            tally: LatencyTally::default(),
        })
    }

    /// Starts a phase with requests by the arguments, and with empty counts.
    fn restart(&mut self, thread: u16, is_first: bool) {
        self.feed.restart(self.plan.schedule(thread, is_first));
        self.depth = self.plan.args.pipeline.into();
        self.tally = LatencyTally::default();
    }

    fn work(&mut self, meter: &Meter<'_>) -> Result<(), Error> {
        let target = self.target;
        self.exchange(meter).map_err(|broken| match broken {
            Broken::Io(error) => unreachable(target, error),
            Broken::Protocol(reason) => Error::Protocol { target: target.into(), reason },
        })
    }

    /// Sends and receives until the load is over and all answers have arrived.
    fn exchange(&mut self, meter: &Meter<'_>) -> Result<(), Broken> {
        let mut heard = Instant::now();
        self.feed.start(heard);
        let mut events = Events::with_capacity(self.connections.len().max(16));
        let mut now = heard;
        loop {
            self.send_in_turn(meter, now)?;
            let in_flight = self.connections.iter().any(|connection| connection.in_flight() > 0);
            if self.feed.is_over() && !in_flight {
                meter.finish(&self.tally);
                return Ok(());
            }
            match self.poll.poll(&mut events, Some(self.patience(now))) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                outcome => outcome?,
            }
            for event in &events {
                let place = event.token().0;
                if event.is_writable() {
                    self.connections[place].flush()?;
                }
                if event.is_readable() || event.is_read_closed() || event.is_error() {
                    self.receive(place, meter)?;
                }
            }
            now = Instant::now();
            if !in_flight || !events.is_empty() {
                heard = now;
            } else if now.duration_since(heard) >= PATIENCE {
                return Err(io::Error::from(io::ErrorKind::TimedOut).into());
            }
            meter.note(&self.tally);
        }
    }

    /// Processes the input of a connection. In a closed loop the next requests are sent at once on the same connection.
    fn receive(&mut self, place: usize, meter: &Meter<'_>) -> Result<(), Broken> {
        let mut more = true;
        while more {
            more = self.connections[place].receive(&mut self.feed, self.plan, &mut self.tally)?;
            self.refill(place, meter)?;
        }
        Ok(())
    }

    fn refill(&mut self, place: usize, meter: &Meter<'_>) -> Result<(), Broken> {
        if self.feed.is_paced() {
            return Ok(());
        }
        let connection = &mut self.connections[place];
        let now = Instant::now();
        while connection.in_flight() < self.depth
            && connection.add(&mut self.feed, self.plan, meter, &mut self.tally, now)
        {}
        connection.flush()
    }

    /// Sends due requests, one per connection in turn, until none is due or no connection may take more.
    fn send_in_turn(&mut self, meter: &Meter<'_>, now: Instant) -> Result<(), Broken> {
        let count = self.connections.len();
        let mut full = 0;
        while full < count {
            let connection = &mut self.connections[self.turn];
            if connection.in_flight() >= self.depth {
                full += 1;
            } else if connection.add(&mut self.feed, self.plan, meter, &mut self.tally, now) {
                full = 0;
            } else {
                break;
            }
            self.turn = (self.turn + 1) % count;
        }
        self.connections.iter_mut().try_for_each(BenchConnection::flush)
    }

    /// How long to wait for an event: no longer than until the next request is due, if a connection may take it.
    fn patience(&self, now: Instant) -> Duration {
        let has_space = self.connections.iter().any(|connection| connection.in_flight() < self.depth);
        match self.feed.wait(now).filter(|_| has_space) {
            Some(wait) if wait <= SLACK => Duration::ZERO,
            Some(wait) => (wait - SLACK).min(MAX_SLEEP),
            None => PATIENCE,
        }
    }
}

fn unreachable(target: &str, source: io::Error) -> Error {
    Error::Connection { target: target.into(), source }
}
