//! Notifications of a service manager, as in sd_notify(3): datagrams to the socket that `NOTIFY_SOCKET` names.

use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use ebbtide_server::ebbtide::message;
use nix::time::{ClockId, clock_gettime};

/// How long the last answers may take.
const LAST_ANSWERS: Duration = Duration::from_secs(10);

/// The manager that started this process, if it wants to hear of it.
#[derive(Clone)]
pub struct Supervisor {
    address: Option<SocketAddr>,
}

impl Supervisor {
    pub fn from_environment() -> Self {
        let address = env::var_os("NOTIFY_SOCKET").and_then(|name| {
            let parsed = match name.as_bytes().strip_prefix(b"@") {
                Some(name) => SocketAddr::from_abstract_name(name),
                None => SocketAddr::from_pathname(&name),
            };
            parsed.inspect_err(|error| message!("ebbtide: warning: NOTIFY_SOCKET: {error}")).ok()
        });
        Self { address }
    }

    /// The addresses are open.
    pub fn ready(&self) {
        self.tell(&format!("READY=1\nMAINPID={}\nSTATUS=serving", std::process::id()));
    }

    /// The cache is kept for up to `close_limit`: the manager waits for that long, and for its own limit if that is
    /// longer.
    pub fn stopping(&self, close_limit: Duration) {
        let limit_us = (close_limit + LAST_ANSWERS).as_micros();
        self.tell(&format!("STOPPING=1\nEXTEND_TIMEOUT_USEC={limit_us}\nSTATUS=sending the last answers"));
    }

    /// Runs a reload between notifications of its start and of its end with the result.
    pub fn reloading<E: std::fmt::Display>(&self, reload: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        // The time distinguishes this reload from an earlier one.
        let now =
            clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |now| now.tv_sec() * 1_000_000 + now.tv_nsec() / 1000);
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={now}"));
        let outcome = reload();
        match &outcome {
            Ok(()) => self.ready(),
            Err(error) => self.tell(&format!("READY=1\nSTATUS=serving; the reload failed: {error}")),
        }
        outcome
    }

    fn tell(&self, state: &str) {
        let Some(address) = &self.address else {
            return;
        };
        let sent = UnixDatagram::unbound().and_then(|socket| socket.send_to_addr(state.as_bytes(), address));
        if let Err(error) = sent.map(drop).or_else(gone) {
            message!("ebbtide: warning: the service manager cannot be told: {error}");
        }
    }
}

/// Ignores the errors of a manager that has ended.
fn gone(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Ok(()),
        _ => Err(error),
    }
}
