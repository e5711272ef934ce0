//! A socket for datagrams, with the answers that it has not taken yet.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};

use socket2::{Domain, Protocol, Socket, Type};

use super::frame::DatagramWriter;
use crate::Error;

/// Requested size of the send buffer, in bytes: a whole long answer. The system may grant less.
const SEND_BUFFER_BYTES: usize = 2 << 20;

pub struct UdpSocket {
    pub socket: mio::net::UdpSocket,
    pub address: SocketAddr,
    /// In the order in which they go out.
    answers: VecDeque<(SocketAddr, DatagramWriter)>,
    datagram: Vec<u8>,
    /// Whether a datagram may be available; false after a read that would block, until the next event.
    pub readable: bool,
}

impl UdpSocket {
    pub fn bind(address: SocketAddr) -> Result<Self, Error> {
        let bound = || {
            let socket = Socket::new(Domain::for_address(address), Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
            if address.is_ipv6() {
                // So that the same port can be bound for IPv4 as well.
                socket.set_only_v6(true)?;
            }
            // With a smaller one long answers wait between their datagrams.
            let _ = socket.set_send_buffer_size(SEND_BUFFER_BYTES);
            socket.bind(&address.into())?;
            let socket = std::net::UdpSocket::from(socket);
            let address = socket.local_addr()?;
            Ok((mio::net::UdpSocket::from_std(socket), address))
        };
        let (socket, address) = bound().map_err(|source| Error::ListenUdp { address, source })?;
        Ok(Self { socket, address, answers: VecDeque::new(), datagram: Vec::new(), readable: false })
    }

    /// The number by which the log names it.
    pub fn file_number(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// The address as `stats conns` shows it.
    pub fn name(&self) -> String {
        match self.address {
            SocketAddr::V4(address) => format!("udp:{address}"),
            SocketAddr::V6(address) => format!("udp6:{address}"),
        }
    }

    /// The next datagram, if there is one and the answers before it are sent.
    pub fn receive(&mut self, buffer: &mut [u8]) -> Option<(usize, SocketAddr)> {
        while self.readable && self.answers.is_empty() {
            match self.socket.recv_from(buffer) {
                Ok(received) => return Some(received),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Other errors are reports of datagrams that did not arrive: each read takes one of them.
                Err(error) => self.readable = error.kind() != io::ErrorKind::WouldBlock,
            }
        }
        None
    }

    /// Whether a read would not block.
    pub fn has_work(&self) -> bool {
        self.readable && self.answers.is_empty()
    }

    pub fn push(&mut self, to: SocketAddr, answer: DatagramWriter) {
        self.answers.push_back((to, answer));
    }

    /// Sends as much as the socket accepts, and drops an answer that cannot be sent. Returns the number of bytes sent.
    pub fn send(&mut self) -> u64 {
        let mut bytes = 0;
        while let Some((to, answer)) = self.answers.front_mut() {
            if !answer.write_next(&mut self.datagram) {
                self.answers.pop_front();
                continue;
            }
            match self.socket.send_to(&self.datagram, *to) {
                Ok(count) => {
                    bytes += count as u64;
                    answer.advance();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // As if the network had lost it, which clients of UDP are prepared for.
                Err(_) => drop(self.answers.pop_front()),
            }
        }
        bytes
    }
}
