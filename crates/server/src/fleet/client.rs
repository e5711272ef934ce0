//! A GET of one JSON document from the admin HTTP of a node. HTTP/1.0, so the answer is one piece and the end of the
//! connection ends it.

use std::io;

use serde_json::Value;
use tokio::net::TcpStream;

/// More bytes than an overview has.
const MAX_ANSWER: usize = 4 << 20;

/// The caller bounds the time.
///
/// # Errors
/// The error in words.
pub async fn get_json(node: &str, path: &str) -> Result<Value, String> {
    let stream = TcpStream::connect(node).await.map_err(|error| error.to_string())?;
    let answer = exchange(stream, path).await.map_err(|error| error.to_string())?;
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let (head, body) = answer.split_at(end.map_or(answer.len(), |end| end + 4));
    let status = head.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
    if status != b"200" {
        return Err("this is not the admin HTTP of a server (its port is by default 11212)".to_owned());
    }
    serde_json::from_slice(body).map_err(|_| "the answer is not that of a server".to_owned())
}

async fn exchange(stream: TcpStream, path: &str) -> io::Result<Vec<u8>> {
    // A server on the loopback interface answers only requests that name it so.
    let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
    let mut rest = request.as_bytes();
    while !rest.is_empty() {
        stream.writable().await?;
        match stream.try_write(rest) {
            Ok(written) => rest = &rest[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    let (mut answer, mut piece) = (Vec::new(), vec![0; 64 << 10]);
    while answer.len() < MAX_ANSWER {
        stream.readable().await?;
        match stream.try_read(&mut piece) {
            Ok(0) => break,
            Ok(read) => answer.extend_from_slice(&piece[..read]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(answer)
}
