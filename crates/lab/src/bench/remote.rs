//! A memcached server: every thread polls its connections, and answers what arrives with new requests.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token};

use super::Plan;
use super::connection::{Broken, Connection};
use super::drive::{End, Meter, drive};
use super::load::Load;
use super::report::{BenchReport, Tally};
use crate::Error;

/// A server that sends nothing for so long, while answers are due, is given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// Requests in flight per connection while the keys are set before the measurement.
const PREFILL_DEPTH: usize = 64;

pub(super) fn bench(plan: &Plan, target: &str) -> Result<BenchReport, Error> {
    let args = &plan.args;
    let addresses: Vec<SocketAddr> = target.to_socket_addrs().map_err(|error| unreachable(target, error))?.collect();
    let mut workers = Vec::new();
    for thread in 0..args.threads {
        workers.push(Worker::connect(plan, target, &addresses, thread)?);
    }
    if args.prefill {
        for (thread, worker) in (0..).zip(&mut workers) {
            worker.load = Load::prefill(plan, thread);
            worker.depth = PREFILL_DEPTH;
        }
        let end = End::Requests(plan.objects.count());
        (workers, _) = drive("prefill", workers, end, Worker::work)?;
        for (thread, worker) in (0..).zip(&mut workers) {
            worker.load = Load::mixed(plan, thread);
            worker.depth = args.pipeline.into();
            worker.tally = Tally::default();
        }
    }
    let (workers, elapsed) = drive("bench", workers, args.end(), Worker::work)?;
    let mut total = Tally::default();
    workers.into_iter().for_each(|worker| total.add(worker.tally));
    let ops_per_second = total.requests() as f64 / elapsed.as_secs_f64().max(1e-9);
    Ok(total.report(plan, elapsed, ops_per_second))
}

struct Worker<'a> {
    plan: &'a Plan,
    target: &'a str,
    load: Load,
    /// Requests in flight per connection.
    depth: usize,
    poll: Poll,
    connections: Vec<Connection>,
    tally: Tally,
}

impl<'a> Worker<'a> {
    fn connect(plan: &'a Plan, target: &'a str, addresses: &[SocketAddr], thread: u16) -> Result<Self, Error> {
        let args = &plan.args;
        let open = || -> io::Result<(Poll, Vec<Connection>)> {
            let poll = Poll::new()?;
            let mut connections = Vec::new();
            let first = usize::from(thread);
            for _ in (first..args.connections()).step_by(usize::from(args.threads)) {
                let stream = std::net::TcpStream::connect(addresses)?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                let mut connection = Connection::new(mio::net::TcpStream::from_std(stream));
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
            load: Load::mixed(plan, thread),
            depth: args.pipeline.into(),
            poll,
            connections,
            tally: Tally::default(),
        })
    }

    fn work(&mut self, meter: &Meter<'_>) -> Result<(), Error> {
        let target = self.target;
        self.exchange(meter).map_err(|broken| match broken {
            Broken::Io(error) => unreachable(target, error),
            Broken::Protocol(reason) => Error::Protocol { target: target.into(), reason },
        })
    }

    /// Keeps all connections busy until the load is over and all answers are there.
    fn exchange(&mut self, meter: &Meter<'_>) -> Result<(), Broken> {
        let start = Instant::now();
        for connection in &mut self.connections {
            connection.send(&mut self.load, self.depth, self.plan, meter, start)?;
        }
        let mut events = Events::with_capacity(self.connections.len().max(16));
        while self.connections.iter().any(|connection| !connection.is_idle()) {
            match self.poll.poll(&mut events, Some(PATIENCE)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                outcome => outcome?,
            }
            if events.is_empty() {
                return Err(io::Error::from(io::ErrorKind::TimedOut).into());
            }
            for event in &events {
                let connection = &mut self.connections[event.token().0];
                if event.is_writable() {
                    connection.flush()?;
                }
                if event.is_readable() || event.is_read_closed() || event.is_error() {
                    let mut more = true;
                    while more {
                        more = connection.receive(self.plan, &mut self.tally)?;
                        connection.send(&mut self.load, self.depth, self.plan, meter, Instant::now())?;
                    }
                }
            }
            meter.set(self.tally.requests());
        }
        Ok(())
    }
}

fn unreachable(target: &str, source: io::Error) -> Error {
    Error::Connection { target: target.into(), source }
}
