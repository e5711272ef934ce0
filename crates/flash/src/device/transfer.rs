//! A request in progress, piece by piece.
//!
//! A piece ends where its stripe ends, and has at most [`PIECE`] bytes: so the write of a region does not fill the
//! drive's own queue before new reads. One piece is pending at a time. After a short transfer the next piece starts at
//! the last whole block, since direct I/O needs aligned offsets.

use super::stripes::Stripes;
use super::{BLOCK, TransferRequest};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::time::Instant;

const PIECE: u64 = 1 << 20;
/// Maximum number of attempts in a row without progress, after which a transfer fails.
const ATTEMPTS: u32 = 64;

pub(super) struct Transfer {
    pub request: TransferRequest,
    pub began: Instant,
    moved: usize,
    attempts: u32,
}

/// The next piece of a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub part: usize,
    /// Offset on the part.
    pub offset: u64,
    /// Range of the buffer; never empty.
    pub range: Range<usize>,
}

impl Transfer {
    /// A transfer of a request that is not empty.
    pub fn new(request: TransferRequest, began: Instant) -> Self {
        Self { request, began, moved: 0, attempts: 0 }
    }

    pub fn piece(&self, stripes: &Stripes) -> Piece {
        let place = stripes.place(self.request.offset + self.moved as u64);
        let rest = (self.request.buffer.len() - self.moved) as u64;
        let bytes = rest.min(place.run).min(PIECE) as usize;
        Piece { part: place.part, offset: place.offset, range: self.moved..self.moved + bytes }
    }

    /// Records the result of the piece. `Some` when the transfer is over.
    pub fn advance(&mut self, result: io::Result<usize>) -> Option<io::Result<()>> {
        let blocks = match result {
            Ok(0) => return Some(Err(io::Error::from(ErrorKind::UnexpectedEof))),
            Ok(bytes) => bytes / BLOCK * BLOCK,
            // io_uring reports `Cancelled` when it could not continue a request temporarily.
            Err(error) if is_transient(&error) => 0,
            Err(error) => return Some(Err(error)),
        };
        self.moved += blocks;
        self.attempts = if blocks == 0 { self.attempts + 1 } else { 0 };
        if self.attempts == ATTEMPTS {
            return Some(Err(io::Error::from(ErrorKind::TimedOut)));
        }
        (self.moved == self.request.buffer.len()).then_some(Ok(()))
    }
}

fn is_transient(error: &io::Error) -> bool {
    let cancelled = Some(rustix::io::Errno::CANCELED.raw_os_error());
    matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) || error.raw_os_error() == cancelled
}

#[cfg(test)]
mod tests {
    use super::super::label::DATA_START;
    use super::super::stripes::STRIPE;
    use super::super::{Buffer, Direction};
    use super::*;

    fn transfer(offset: u64, bytes: usize) -> Transfer {
        let request = TransferRequest {
            direction: Direction::Read,
            offset,
            buffer: Buffer::zeroed(bytes),
            done: Box::new(|_| ()),
        };
        Transfer::new(request, Instant::now())
    }

    #[test]
    fn pieces_cover_the_buffer_across_stripes() {
        let part = DATA_START + 3 * STRIPE;
        let stripes = Stripes::new(&[part, part]);
        let mut transfer = transfer(STRIPE - 2 * PIECE, 4 * PIECE as usize);
        let mut pieces = Vec::new();
        loop {
            let piece = transfer.piece(&stripes);
            let bytes = piece.range.len();
            pieces.push((piece.part, piece.offset, piece.range.start));
            if let Some(result) = transfer.advance(Ok(bytes)) {
                result.unwrap();
                break;
            }
        }
        let mib = PIECE as usize;
        let end = DATA_START + STRIPE;
        assert_eq!(
            pieces,
            [
                (0, end - 2 * PIECE, 0),
                (0, end - PIECE, mib),
                (1, DATA_START, 2 * mib),
                (1, DATA_START + PIECE, 3 * mib)
            ]
        );
    }

    #[test]
    fn a_short_transfer_continues_at_a_block_boundary() {
        let stripes = Stripes::new(&[DATA_START + STRIPE]);
        let mut transfer = transfer(0, 4 * BLOCK);
        assert!(transfer.advance(Ok(BLOCK + 512)).is_none());
        assert_eq!(transfer.piece(&stripes).range, BLOCK..4 * BLOCK);
        assert!(transfer.advance(Ok(3 * BLOCK)).unwrap().is_ok());
    }

    #[test]
    fn transient_errors_are_retried_a_bounded_number() {
        for error in [ErrorKind::Interrupted, ErrorKind::WouldBlock] {
            let mut transfer = transfer(0, BLOCK);
            let attempts = (0..1000).take_while(|_| transfer.advance(Err(error.into())).is_none()).count();
            assert_eq!(attempts, ATTEMPTS as usize - 1);
        }
        let mut transfer = transfer(0, BLOCK);
        let attempts = (0..1000).take_while(|_| transfer.advance(Ok(512)).is_none()).count();
        assert_eq!(attempts, ATTEMPTS as usize - 1);
    }

    #[test]
    fn permanent_errors_and_end_of_file_end_transfers() {
        assert!(transfer(0, BLOCK).advance(Err(io::Error::from_raw_os_error(5))).unwrap().is_err());
        assert_eq!(transfer(0, BLOCK).advance(Ok(0)).unwrap().unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }
}
