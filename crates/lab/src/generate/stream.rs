//! A workload as a trace that is never a file: a thread writes the csv text, and the reader of the trace takes it piece
//! by piece.

use std::io::{self, BufWriter, Read, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use super::export::write_csv;
use super::workload::Workload;

/// Bytes of a piece.
const PIECE: usize = 256 << 10;

/// Pieces that may wait for the reader.
const WAITING: usize = 4;

/// The text of a workload. The thread that writes it ends when this is dropped.
struct WorkloadText {
    pieces: Receiver<Vec<u8>>,
    piece: Vec<u8>,
    taken: usize,
}

/// The requests of a workload as the text of a csv trace.
pub(crate) fn stream(workload: Workload) -> impl Read + Send + 'static {
    let (sender, pieces) = sync_channel(WAITING);
    thread::spawn(move || {
        let mut out = BufWriter::with_capacity(PIECE, PieceSender(sender));
        // The only error is a reader that has enough.
        let _ = write_csv(&workload, &mut out, |_| ()).and_then(|()| out.flush());
    });
    WorkloadText { pieces, piece: Vec::new(), taken: 0 }
}

impl Read for WorkloadText {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.piece.len() {
            // A dropped sender has sent everything.
            let Ok(piece) = self.pieces.recv() else { return Ok(0) };
            (self.piece, self.taken) = (piece, 0);
        }
        let read = (&self.piece[self.taken..]).read(buffer)?;
        self.taken += read;
        Ok(read)
    }
}

struct PieceSender(SyncSender<Vec<u8>>);

impl Write for PieceSender {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send(bytes.to_vec()).map_err(|_| io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
