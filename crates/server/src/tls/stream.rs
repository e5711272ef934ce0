//! A TCP connection under TLS, with the interface of a non-blocking socket.
//!
//! Two things differ from a bare socket, and the event loop has to know them. Bytes that have arrived may lie decrypted
//! in the session, so only `WouldBlock` says that nothing is left to read: a short read does not. And what `write` took
//! may still lie encrypted in the session: it is out when [`TlsStream::flush`] succeeds. `write` takes no more than the
//! session's buffer limit allows, so the encrypted copy of a large value never exists as a whole.

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

    /// Tells the peer that this is the end, or why there will be none, if its socket takes that at once.
    pub fn close(&mut self) {
        if !self.session.is_handshaking() {
            self.session.send_close_notify();
        }
        // There is nobody to tell of a failure.
        let _ = self.flush();
    }
}

impl Read for TlsStream {
    /// 0 at the end of the stream, `Interrupted` if others should have their turn before it goes on.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        for _ in 0..FRUITLESS_READS {
            match self.session.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Many clients close without saying so, and every command has its own end.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                outcome => return outcome,
            }
            // At the end of the stream this reads nothing, and the next round tells that it was the end.
            self.session.read_tls(&mut self.socket)?;
            self.session.process_new_packets().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            match self.flush() {
                // What the socket does not take now goes before the next answer.
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

    /// Sends what lies encrypted in the session; `WouldBlock` if the socket does not take all of it.
    fn flush(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            if self.session.write_tls(&mut self.socket)? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }
}
