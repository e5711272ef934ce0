//! Little-endian numbers to and from a stream.

use std::io::{self, Read, Write};

/// Numbers that are put into a stream as one write.
#[derive(Default)]
pub(crate) struct Put(Vec<u8>);

impl Put {
    pub fn u8(&mut self, number: u8) -> &mut Self {
        self.0.push(number);
        self
    }

    pub fn u32(&mut self, number: u32) -> &mut Self {
        self.bytes(&number.to_le_bytes())
    }

    pub fn u64(&mut self, number: u64) -> &mut Self {
        self.bytes(&number.to_le_bytes())
    }

    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub fn write_to(&mut self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(&self.0)?;
        self.0.clear();
        Ok(())
    }
}

/// Numbers from a stream.
pub(crate) struct Take<'a, R>(pub &'a mut R);

impl<R: Read> Take<'_, R> {
    pub fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.0.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    pub fn skip(&mut self, bytes: u64) -> io::Result<()> {
        let skipped = io::copy(&mut Read::by_ref(self.0).take(bytes), &mut io::sink())?;
        if skipped == bytes { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    pub fn u8(&mut self) -> io::Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub fn u32(&mut self) -> io::Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub fn u64(&mut self) -> io::Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }
}
