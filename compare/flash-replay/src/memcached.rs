//! A memcached with extstore, over a socket.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use crate::{Cache, Failure};

#[derive(clap::Args)]
pub struct Args {
    #[arg(long)]
    port: u16,
    /// Values are sent so fast at most: bytes a second
    #[arg(long, default_value_t = 50e6)]
    rate: f64,
}

pub struct Memcached {
    stream: BufReader<TcpStream>,
    begin: Instant,
    rate: f64,
    sent: u64,
    line: Vec<u8>,
    value: Vec<u8>,
}

impl Memcached {
    pub fn connect(args: &Args) -> Result<Self, Failure> {
        let stream = TcpStream::connect(("127.0.0.1", args.port))?;
        stream.set_nodelay(true)?;
        let begin = Instant::now();
        Ok(Self {
            stream: BufReader::new(stream),
            begin,
            rate: args.rate,
            sent: 0,
            line: Vec::new(),
            value: Vec::new(),
        })
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        Ok(self.stream.get_mut().write_all(bytes)?)
    }

    fn line(&mut self) -> Result<&[u8], Failure> {
        self.line.clear();
        self.stream.read_until(b'\n', &mut self.line)?;
        Ok(self.line.trim_ascii_end())
    }

    /// The answer to a change; `SERVER_ERROR` says that there was no memory.
    fn answer(&mut self) -> Result<(), Failure> {
        match self.line()? {
            b"STORED" | b"DELETED" | b"NOT_FOUND" => Ok(()),
            line if line.starts_with(b"SERVER_ERROR") => Ok(()),
            line => Err(format!("memcached answers {}", String::from_utf8_lossy(line)).into()),
        }
    }
}

impl Cache for Memcached {
    fn get(&mut self, key: &[u8]) -> Result<bool, Failure> {
        self.send(&[b"get ", key, b"\r\n"].concat())?;
        let line = self.line()?;
        if line == b"END" {
            return Ok(false);
        }
        let bytes = line.rsplit(|&byte| byte == b' ').next().and_then(|bytes| std::str::from_utf8(bytes).ok());
        let Some(bytes) = bytes.and_then(|bytes| bytes.parse::<usize>().ok()) else {
            return Err(format!("memcached answers {}", String::from_utf8_lossy(&self.line)).into());
        };
        self.value.resize(bytes + 2, 0);
        self.stream.read_exact(&mut self.value)?;
        self.line()?;
        Ok(true)
    }

    fn set(&mut self, key: &[u8], value_bytes: usize) -> Result<(), Failure> {
        let mut command = [b"set ", key, format!(" 0 0 {value_bytes}\r\n").as_bytes()].concat();
        command.resize(command.len() + value_bytes, b'.');
        command.extend_from_slice(b"\r\n");
        self.send(&command)?;
        self.answer()?;
        self.sent += command.len() as u64;
        let due = Duration::from_secs_f64(self.sent as f64 / self.rate);
        let early = due.saturating_sub(self.begin.elapsed());
        if early > Duration::from_millis(2) {
            thread::sleep(early);
        }
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Failure> {
        self.send(&[b"delete ", key, b"\r\n"].concat())?;
        self.answer()
    }

    fn written_bytes(&mut self) -> Option<usize> {
        None
    }
}
