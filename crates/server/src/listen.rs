//! Listening sockets and their streams: TCP, with TLS or without, and Unix, behind one type each.

use std::io::{self, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use mio::event::Source;
use mio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use mio::{Interest, Registry, Token};
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::Mode;
use nix::unistd::{Gid, Uid, fchownat};
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};

use crate::tls::TlsStream;
use crate::{Error, Listen};

/// A bound listener. Dropping it closes it, and removes the file of a Unix socket.
pub enum Listener {
    Tcp(TcpListener, SocketAddr),
    /// As `Tcp`; connections have still to be protected when they are accepted.
    Tls(TcpListener, SocketAddr),
    Unix(UnixListener, SocketFile),
}

impl Listener {
    /// Binds without accepting connections. A Unix socket's file gets this user and group, if they are given.
    pub fn bind(listen: &Listen, owner: Option<(u32, u32)>) -> Result<Self, Error> {
        let failed = |source| Error::Listen { address: listen.to_string(), source };
        match listen {
            Listen::Tcp(address) => bind_tcp(*address).map(|(listener, address)| Self::Tcp(listener, address)),
            Listen::Tls(address) => bind_tcp(*address).map(|(listener, address)| Self::Tls(listener, address)),
            Listen::Udp(_) => panic!("datagrams are not accepted"),
            Listen::Unix { path, mode } => {
                if let Ok(metadata) = std::fs::symlink_metadata(path) {
                    if !metadata.file_type().is_socket() {
                        return Err(Error::NotASocket { path: listen.to_string() });
                    }
                    std::fs::remove_file(path).map_err(failed)?;
                }
                bind_unix(path, *mode, owner)
            }
        }
        .map_err(failed)
    }

    /// Lets clients connect; at most `backlog` of them wait to be accepted.
    pub fn listen(&self, backlog: u32) -> Result<(), Error> {
        let socket = match self {
            Self::Tcp(listener, _) | Self::Tls(listener, _) => SockRef::from(listener),
            Self::Unix(listener, _) => SockRef::from(listener),
        };
        let listening = socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX));
        listening.map_err(|source| Error::Listen { address: self.address(), source })
    }

    /// The address as given, with the actual port.
    fn address(&self) -> String {
        match self {
            Self::Tcp(_, address) | Self::Tls(_, address) => address.to_string(),
            Self::Unix(_, file) => file.path.display().to_string(),
        }
    }

    /// The number by which the log names it.
    pub fn file_number(&self) -> RawFd {
        match self {
            Self::Tcp(listener, _) | Self::Tls(listener, _) => listener.as_raw_fd(),
            Self::Unix(listener, _) => listener.as_raw_fd(),
        }
    }

    /// The TCP address, with the port that was really taken.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(_, address) | Self::Tls(_, address) => Some(*address),
            Self::Unix(..) => None,
        }
    }

    /// The address as `stats conns` shows it.
    pub fn name(&self) -> String {
        match self {
            Self::Tcp(_, address) | Self::Tls(_, address) => tcp_name(*address),
            Self::Unix(_, file) => format!("unix:{}", file.path.display()),
        }
    }

    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let source: &mut dyn Source = match self {
            Self::Tcp(listener, _) | Self::Tls(listener, _) => listener,
            Self::Unix(listener, _) => listener,
        };
        registry.register(source, token, Interest::READABLE)
    }

    /// The next waiting connection and its peer's name.
    pub fn accept(&self) -> io::Result<(Stream, String)> {
        match self {
            Self::Tcp(listener, _) | Self::Tls(listener, _) => {
                let (stream, peer) = listener.accept()?;
                // A failure means that the peer has disconnected, which the first read reports.
                let _ = stream.set_nodelay(true);
                let _ = SockRef::from(&stream).set_keepalive(true);
                Ok((Stream::Tcp(stream), tcp_name(peer)))
            }
            Self::Unix(listener, file) => {
                let (stream, _) = listener.accept()?;
                Ok((Stream::Unix(stream), format!("unix:{}", file.path.display())))
            }
        }
    }
}

fn tcp_name(address: SocketAddr) -> String {
    match address {
        SocketAddr::V4(_) => format!("tcp:{address}"),
        SocketAddr::V6(_) => format!("tcp6:{address}"),
    }
}

fn bind_tcp(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // So that the same port can be bound for IPv4 as well.
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    let listener = std::net::TcpListener::from(socket);
    let address = listener.local_addr()?;
    Ok((TcpListener::from_std(listener), address))
}

fn bind_unix(path: &Path, mode: u32, owner: Option<(u32, u32)>) -> io::Result<Listener> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    let file = SocketFile { path: path.to_owned(), identity: identity(path) };
    match owner {
        None => std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode & 0o777))?,
        Some((user, group)) => hand_over(path, mode, (user.into(), group.into()))?,
    }
    let listener = std::os::unix::net::UnixListener::from(socket);
    Ok(Listener::Unix(UnixListener::from_std(listener), file))
}

/// Gives a socket's file to another user. Only a socket, and through no link, whatever the path names meanwhile: root
/// does this, perhaps in a folder where others write.
fn hand_over(path: &Path, mode: u32, (user, group): (Uid, Gid)) -> io::Result<()> {
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let file = std::fs::File::from(nix::fcntl::open(path, flags, Mode::empty())?);
    if !file.metadata()?.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "something else has taken its place"));
    }
    fchownat(&file, "", Some(user), Some(group), AtFlags::AT_EMPTY_PATH)?;
    let itself = format!("/proc/self/fd/{}", file.as_raw_fd());
    std::fs::set_permissions(itself, std::fs::Permissions::from_mode(mode & 0o777))
}

/// The file of a Unix socket, which outlives the socket unless it is removed.
pub struct SocketFile {
    path: PathBuf,
    identity: Option<(u64, u64)>,
}

/// Device and inode, which distinguish this file from another one of the same name.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let metadata = std::fs::symlink_metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another server may have replaced the file: then it stays.
        if identity(&self.path) == self.identity {
            // The file may have been removed already.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// A connected socket.
pub enum Stream {
    Tcp(TcpStream),
    /// Boxed, because a session is far larger than a socket.
    Tls(Box<TlsStream>),
    Unix(UnixStream),
}

impl Stream {
    pub fn source(&mut self) -> &mut dyn Source {
        match self {
            Self::Tcp(stream) => stream,
            Self::Tls(stream) => stream.socket(),
            Self::Unix(stream) => stream,
        }
    }

    /// Whether a read that fills less than its buffer has taken all that had arrived, but for urgent data. A
    /// read of a Unix socket also stops behind bytes that came with open files.
    pub fn empties_in_one_read(&self) -> bool {
        matches!(self, Self::Tcp(_))
    }

    /// True until commands can arrive.
    pub fn is_handshaking(&self) -> bool {
        matches!(self, Self::Tls(stream) if stream.is_handshaking())
    }

    /// Tries to send buffered bytes; true if none are left.
    pub fn is_flushed(&mut self) -> io::Result<bool> {
        match self.flush() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            outcome => outcome.map(|()| true),
        }
    }

    /// Sends the end of the stream, if the protocol has one.
    pub fn close(&mut self) {
        if let Self::Tls(stream) = self {
            stream.close();
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write_vectored(slices),
            Self::Tls(stream) => stream.write_vectored(slices),
            Self::Unix(stream) => stream.write_vectored(slices),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Tls(stream) => stream.flush(),
            Self::Tcp(_) | Self::Unix(_) => Ok(()),
        }
    }
}
