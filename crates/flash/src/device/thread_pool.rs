//! Serving with threads: each moves one transfer at a time.

use super::Direction;
use super::path::DevicePath;
use super::queue::RequestQueue;
use super::stripes::Stripes;
use super::transfer::Transfer;
use std::io;
use std::os::unix::fs::FileExt;

/// Serves requests until the queue has stopped and is empty.
pub(super) fn serve(queue: &RequestQueue, parts: &[DevicePath], stripes: &Stripes) {
    while let Some(mut transfer) = queue.take() {
        let result = loop {
            let moved = move_piece(&mut transfer, parts, stripes);
            if let Some(result) = transfer.advance(moved) {
                break result;
            }
        };
        queue.finish(transfer, result);
    }
}

fn move_piece(transfer: &mut Transfer, parts: &[DevicePath], stripes: &Stripes) -> io::Result<usize> {
    let piece = transfer.piece(stripes);
    let file = &parts[piece.part].file;
    let buffer = &mut transfer.request.buffer;
    match transfer.request.direction {
        Direction::Read => file.read_at(&mut buffer[piece.range], piece.offset),
        Direction::Write => file.write_at(&buffer[piece.range], piece.offset),
    }
}
