//! `ebbtide health`: whether a server on this host answers, for the health check of a container.
//!
//! The check sends a request to the server's admin HTTP, or, without one, to its listener. Both addresses are read from
//! the arguments of the server's process and from the files that these name. So the check works with every flag, and
//! needs no password.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use ebbtide_server::Listen;
use ebbtide_server::ebbtide::message;

use crate::config::{self, Request};
use crate::listeners;

/// A server that takes longer for one step counts as dead.
const PATIENCE: Duration = Duration::from_secs(3);
/// Bytes of an answer of the admin HTTP.
const MAX_ANSWER_BYTES: u64 = 64 << 10;

/// The arguments of `ebbtide health`.
#[derive(Clone, Debug, clap::Args)]
pub struct HealthArgs {
    /// Process id of the server: 1 in a container
    #[arg(long, value_name = "ID", default_value_t = 1)]
    pid: u32,
}

/// Prints the health of the server; the exit code is 1 if it does not serve.
pub fn run(args: &HealthArgs) -> ExitCode {
    match ask(args.pid) {
        Ok(health) => {
            let _ = writeln!(io::stdout(), "{health}");
            ExitCode::SUCCESS
        }
        Err(reason) => {
            message!("ebbtide: process {}: {reason}", args.pid);
            ExitCode::FAILURE
        }
    }
}

fn ask(pid: u32) -> Result<String, String> {
    let words = words(pid)?;
    let folder = fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_else(|_| "/".into());
    let settings = match config::read_in(&folder, words).map_err(|error| error.to_string())? {
        Request::Serve(settings) => settings,
        _ => return Err("it is no server".to_owned()),
    };
    let listeners = listeners::resolve(&settings).map_err(|error| error.to_string())?.listeners;
    if let Some(admin) = settings.admin.resolve(&listeners) {
        match health_of(admin.address) {
            // Where the address was in use the server does without.
            Err(error) if admin.required || error.kind() != ErrorKind::ConnectionRefused => {
                return Err(format!("admin HTTP at {}: {error}", admin.address));
            }
            Err(_) => {}
            Ok(answer) => return answer,
        }
    }
    let Some(listen) = listeners.iter().find(|listen| !matches!(listen, Listen::Udp(_))) else {
        return Err("it has neither admin HTTP nor TCP; give it --admin ADDR:PORT".to_owned());
    };
    knock(listen).map(|()| "ok".to_owned()).map_err(|error| format!("{listen}: {error}"))
}

/// The flags with which a process of this program was started.
fn words(pid: u32) -> Result<Vec<OsString>, String> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).map_err(|error| error.to_string())?;
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let words = line.strip_suffix(b"\0").unwrap_or(&line).split(|byte| *byte == 0).map(OsStr::from_bytes);
    // The arguments may begin with an init of the container.
    let mut words = words.skip_while(|word| Path::new(word).file_name() != program.file_name());
    words.next().ok_or("it is no ebbtide; --pid names the one to ask")?;
    let mut words: Vec<_> = words.map(OsStr::to_owned).collect();
    if words.first().is_some_and(|word| word == "serve") {
        words.remove(0);
    }
    Ok(words)
}

/// Requests `/healthz` and returns its message in one line. The inner `Err` is the message of a server that stops.
fn health_of(address: SocketAddr) -> io::Result<Result<String, String>> {
    let mut stream = connect(address)?;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(MAX_ANSWER_BYTES).read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let body = body.lines().next().unwrap_or_default().to_owned();
    Ok(match head.split(' ').nth(1) {
        Some("200") => Ok(body),
        _ => Err(format!("admin HTTP at {address}: {} {body}", head.lines().next().unwrap_or_default())),
    })
}

/// Whether the server answers, or closes the connection: without a password, without TLS or in another protocol it
/// does one of both.
fn knock(listen: &Listen) -> io::Result<()> {
    let answer = match listen {
        Listen::Unix { path, .. } => {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            first_byte(stream)
        }
        Listen::Tcp(address) | Listen::Tls(address) | Listen::Udp(address) => first_byte(connect(*address)?),
    };
    match answer {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => Err(error),
        _ => Ok(()),
    }
}

fn first_byte(mut stream: impl Read + Write) -> io::Result<()> {
    stream.write_all(b"version\r\n")?;
    stream.read(&mut [0]).map(drop)
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    let stream = TcpStream::connect_timeout(&(ip, address.port()).into(), PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}
