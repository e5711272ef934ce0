//! Bodies that are longer than one part: read from the origin once, and by clients from the cache.
//!
//! ```text
//! transfer: origin --part by part--> cache          one task for an object, started by its first miss
//! reader:   cache, else wait for the transfer, else load the part from the origin --> client
//! ```
//! A transfer is registered before the head of its object can be found. So a reader that neither finds a part nor a
//! transfer knows that the part was evicted. Two readers that load an evicted part ask the origin once.

use super::conditions;
use super::entry::{Identity, PART_BYTES};
use super::origin::{Origin, OriginError, PartReader};
use ebbtide::{Cache, InsertOptions, LoadError, Loaded, Value};
use hyper::StatusCode;
use hyper::body::Bytes;
use hyper::header::{HeaderMap, HeaderValue, IF_RANGE, RANGE};
use hyper::http::uri::PathAndQuery;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use tokio::sync::watch;

/// Parts outlive their head: an answer that has started can be completed.
const GRACE: Duration = Duration::from_secs(600);

/// An object as its readers know it.
pub struct Object {
    pub path: PathAndQuery,
    pub headers: HeaderMap,
    pub identity: Identity,
}

/// How many parts are in the cache. The sender is dropped at the end of the transfer.
type Progress = watch::Receiver<u64>;

pub struct Parts {
    cache: Cache,
    origin: Arc<Origin>,
    transfers: Mutex<HashMap<u64, Progress>>,
}

pub fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Paths begin with a slash: no path is the key of a part.
fn key(body: u64, number: u64) -> [u8; 17] {
    let mut key = [b'p'; 17];
    key[1..9].copy_from_slice(&body.to_be_bytes());
    key[9..].copy_from_slice(&number.to_be_bytes());
    key
}

/// Bytes of the part with this number.
fn part_length(length: u64, number: u64) -> usize {
    length.saturating_sub(number * PART_BYTES as u64).min(PART_BYTES as u64) as usize
}

fn ttl(identity: Identity) -> Duration {
    Duration::from_secs(identity.fresh_until.saturating_sub(now())) + GRACE
}

impl Parts {
    pub fn new(cache: Cache, origin: Arc<Origin>) -> Self {
        Self { cache, origin, transfers: Mutex::default() }
    }

    /// Starts to read the parts of an object after the first one. `path_key` is removed if the origin fails.
    pub fn start_transfer(self: &Arc<Self>, identity: Identity, body: PartReader, path_key: String) {
        let (sender, progress) = watch::channel(1);
        self.running().insert(identity.body, progress);
        let parts = Arc::clone(self);
        tokio::spawn(async move {
            let complete = parts.transfer(identity, body, &sender).await;
            if complete.is_err() {
                parts.forget(path_key).await;
            }
            // Readers that wait look again when the sender is dropped.
            parts.running().remove(&identity.body);
        });
    }

    async fn transfer(
        &self,
        identity: Identity,
        mut body: PartReader,
        progress: &watch::Sender<u64>,
    ) -> Result<(), OriginError> {
        for number in 1..identity.length.div_ceil(PART_BYTES as u64) {
            let length = part_length(identity.length, number);
            let mut part = Vec::with_capacity(length);
            body.read(length, &mut part).await?;
            if part.len() < length {
                return Err(OriginError::Changed);
            }
            let cache = self.cache.clone();
            let options = InsertOptions::new().ttl(ttl(identity));
            // A write may wait for memory. One that fails leaves a part that readers load again.
            let write = move || cache.insert_with(key(identity.body, number), part, options);
            let _ = tokio::task::spawn_blocking(write).await;
            progress.send_replace(number + 1);
        }
        Ok(())
    }

    /// Removes an object that cannot be completed: the next request loads it.
    pub async fn forget(&self, path: String) {
        let cache = self.cache.clone();
        // A removal may wait for flash.
        let _ = tokio::task::spawn_blocking(move || cache.remove(path)).await;
    }

    fn running(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Progress>> {
        self.transfers.lock().expect("nothing panics under this lock")
    }

    /// A range of a part after the first one.
    pub async fn read(
        &self,
        object: &Object,
        number: u64,
        range: Range<usize>,
    ) -> Result<Bytes, LoadError<OriginError>> {
        if range.len() < part_length(object.identity.length, number) {
            // Of a part on flash only the blocks of the range are read.
            let key = key(object.identity.body, number);
            let bytes = self.cache.get_range_async(key, range.start, range.len()).await;
            if let Some(bytes) = bytes.filter(|bytes| bytes.len() == range.len()) {
                return Ok(bytes.into());
            }
        }
        Ok(Bytes::from_owner(self.read_whole(object, number).await?).slice(range))
    }

    async fn read_whole(&self, object: &Object, number: u64) -> Result<Value, LoadError<OriginError>> {
        let length = part_length(object.identity.length, number);
        let key = key(object.identity.body, number);
        if let Some(part) = self.cache.get_async(key).await {
            return Ok(part);
        }
        let progress = self.running().get(&object.identity.body).cloned();
        if let Some(mut progress) = progress {
            // An error says that the transfer is over, complete or not. Each wait of a transfer is bounded.
            let _ = progress.wait_for(|parts| *parts > number).await;
        }
        let load = async {
            let part = self.load(object, number, length).await?;
            Ok(Loaded::new(part).ttl(ttl(object.identity)))
        };
        self.cache.try_get_or_insert_with_async(key, load).await
    }

    /// Asks the origin for an evicted part. An origin that knows no ranges sends the whole, which is read up to there.
    async fn load(&self, object: &Object, number: u64, length: usize) -> Result<Vec<u8>, OriginError> {
        let start = number * PART_BYTES as u64;
        let range = format!("bytes={start}-{}", start + length as u64 - 1);
        let validator = object.headers.get("etag").or_else(|| object.headers.get("last-modified"));
        let validator = validator.ok_or(OriginError::Changed)?.clone();
        let range = HeaderValue::from_str(&range).expect("digits");
        let headers = [(RANGE, range), (IF_RANGE, validator)];
        let response = self.origin.fetch_part(object.path.clone(), headers).await?;
        let status = response.status();
        if !conditions::is_same(response.headers(), &object.headers) {
            return Err(OriginError::Changed);
        }
        let mut body = PartReader::new(response.into_body());
        match status {
            StatusCode::PARTIAL_CONTENT => {}
            StatusCode::OK => body.skip(start).await?,
            _ => return Err(OriginError::Changed),
        }
        let mut part = Vec::with_capacity(length);
        body.read(length, &mut part).await?;
        if part.len() < length { Err(OriginError::Changed) } else { Ok(part) }
    }
}
