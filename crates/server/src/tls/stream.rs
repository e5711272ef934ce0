//! A TCP connection under TLS, with the interface of a non-blocking socket.
//!
//! Two differences from a bare socket matter to the event loop. The session may hold decrypted bytes, so only
//! `WouldBlock` means that nothing is left to read; a short read does not. And the session may hold encrypted bytes
//! that `write` accepted: they are sent when [`TlsStream::flush`] succeeds. `write` accepts at most the session's
//! buffer limit, so the encrypted copy of a large value never exists as a whole.

use std::io::{self, IoSlice, Read, Write};

use mio::net::TcpStream;
use rustls::ServerConnection;

/// Reads from the socket without a byte of plaintext coming out of them, after which others have their turn.
const FRUITLESS_READS: usize = 16;

pub struct TlsStream {
    socket: TcpStream,
    session: ServerConnection,
}

impl TlsStream {
    pub fn new(socket: TcpStream, session: ServerConnection) -> Self {
        Self { socket, session }
    }

    pub fn socket(&mut self) -> &mut TcpStream {
        &mut self.socket
    }

    pub fn is_handshaking(&self) -> bool {
        self.session.is_handshaking()
    }

    /// Sends the peer the end of the stream, or the reason of a failure, if its socket accepts it at once.
    pub fn close(&mut self) {
        if !self.session.is_handshaking() {
            self.session.send_close_notify();
        }
        // A failure is ignored: the connection is closed anyway.
        let _ = self.flush();
    }
}

impl Read for TlsStream {
    /// 0 at the end of the stream, `Interrupted` if other connections should be served before it continues.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        for _ in 0..FRUITLESS_READS {
            match self.session.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Many clients close without saying so, and every command has its own end.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                outcome => return outcome,
            }
            // At the end of the stream this reads nothing, and the next round returns the end.
            self.session.read_tls(&mut self.socket)?;
            self.session.process_new_packets().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            match self.flush() {
                // Bytes that the socket does not accept now are sent before the next answer.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                outcome => outcome?,
            }
        }
        Err(io::ErrorKind::Interrupted.into())
    }
}

impl Write for TlsStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.flush()?;
        let taken = self.session.writer().write_vectored(slices)?;
        match self.flush() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(taken),
            outcome => outcome.map(|()| taken),
        }
    }

    /// Sends the encrypted bytes of the session; `WouldBlock` if the socket does not accept all of them.
    fn flush(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            if self.session.write_tls(&mut self.socket)? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }
}
