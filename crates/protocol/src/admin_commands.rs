//! The commands for memcached's lists, slabs and crawler, and those that watch a running server.
//!
//! Segments take the place of lists and slab classes, so most of these change nothing here: they are checked as
//! memcached checks them, and answered as it answers them. Dumps and watching are real.

use std::num::NonZeroU32;

use crate::command::{CommandLine, LineTokens, reject};
use crate::number::{signed32, unsigned32};
use crate::request::{CacheDump, Dump, DumpClasses, DumpFormat, ExternalStorage, Keys, Rejection, Request, Watched};

/// memcached's largest slab class, and the largest time of `lru_crawler sleep` in microseconds.
const CLASS_LIMIT: u32 = 63;
const SLEEP_LIMIT: u32 = 1_000_000;
/// memcached's smallest window of `slabs automove window`.
const WINDOW_MIN: u32 = 3;
/// Largest share that `lru tune` may give to both lists, in percent.
const SHARES_LIMIT: u32 = 80;

fn unchanged<'a>(noreply: bool) -> CommandLine<'a> {
    CommandLine::Request(Request::Unchanged { noreply })
}

pub fn lru_crawler<'a>(tokens: &LineTokens<'a>) -> CommandLine<'a> {
    let [_, command, argument, ..] = tokens.kept;
    match (command, tokens.count) {
        (b"enable" | b"disable", 2) => unchanged(false),
        // memcached answers nothing, and dumps nothing.
        (b"metadump" | b"mgdump", 4) if tokens.noreply() => unchanged(true),
        (b"metadump", 3) => dump(argument, DumpFormat::Metadump),
        (b"mgdump", 3) => dump(argument, DumpFormat::Mgdump),
        (b"crawl", 3) => match argument == b"all" || classes(argument).is_some() {
            true => unchanged(false),
            false if argument == b"hash" => reject(Rejection::UnknownCrawlerError, false),
            false => reject(Rejection::BadClass, false),
        },
        (b"sleep", 3) => match unsigned32(argument) {
            Some(..=SLEEP_LIMIT) => unchanged(false),
            Some(_) => reject(Rejection::SleepTooLong, false),
            None => reject(Rejection::BadFormat, false),
        },
        (b"tocrawl", 3) => match unsigned32(argument) {
            Some(_) => unchanged(false),
            None => reject(Rejection::BadFormat, false),
        },
        _ => reject(Rejection::Error, false),
    }
}

fn dump<'a>(argument: &[u8], format: DumpFormat) -> CommandLine<'a> {
    let classes = match argument {
        b"all" | b"hash" => Some(DumpClasses::All),
        list => classes(list).map(DumpClasses::Some),
    };
    match classes {
        Some(classes) => CommandLine::Request(Request::Dump(Dump { format, classes })),
        None => reject(Rejection::BadClass, false),
    }
}

pub fn cache_dump(tokens: &LineTokens<'_>) -> Result<CacheDump, Rejection> {
    let [_, _, class, limit, ..] = tokens.kept;
    if tokens.count < 4 {
        return Err(Rejection::BadLine);
    }
    match (unsigned32(class), unsigned32(limit)) {
        (Some(class), Some(limit)) => Ok(CacheDump { class, limit }),
        _ => Err(Rejection::BadFormat),
    }
}

/// A bit for each class of a list of slab classes; `None` if it is not one.
fn classes(list: &[u8]) -> Option<u64> {
    let mut classes = 0;
    for class in list.split(|byte| *byte == b',') {
        match unsigned32(class)? {
            class @ 1..=CLASS_LIMIT => classes |= 1 << class,
            _ => return None,
        }
    }
    Some(classes)
}

pub fn lru<'a>(tokens: &LineTokens<'a>) -> CommandLine<'a> {
    let noreply = tokens.noreply();
    let [_, command, first, second, third, fourth, ..] = tokens.kept;
    match (command, tokens.count) {
        (b"tune", 6..) => {
            let (Some(hot), Some(warm)) = (unsigned32(first), unsigned32(second)) else {
                return reject(Rejection::Error, noreply);
            };
            let (Some(hot_factor), Some(warm_factor)) = (fraction(third), fraction(fourth)) else {
                return reject(Rejection::Error, noreply);
            };
            if hot.saturating_add(warm) > SHARES_LIMIT {
                reject(Rejection::SharesTooLarge, noreply)
            } else if hot_factor <= 0.0 || warm_factor <= 0.0 {
                reject(Rejection::FactorsTooSmall, noreply)
            } else {
                unchanged(noreply)
            }
        }
        (b"mode", 3..) if matches!(first, b"flat" | b"segmented") => unchanged(noreply),
        (b"temp_ttl", 3..) if signed32(first).is_some() => unchanged(noreply),
        _ => reject(Rejection::Error, noreply),
    }
}

pub fn extstore<'a>(tokens: &LineTokens<'a>) -> CommandLine<'a> {
    let noreply = tokens.noreply();
    let [_, name, value, second, ..] = tokens.kept;
    let number = unsigned32(value).filter(|_| tokens.count >= 3);
    let setting = match (name, number) {
        (b"item_size", Some(bytes)) => ExternalStorage::ItemSize(bytes),
        (b"item_age", Some(seconds)) => ExternalStorage::ItemAge(seconds),
        (b"low_ttl", Some(seconds)) => ExternalStorage::LowTtl(seconds),
        (b"recache_rate", Some(rate)) => ExternalStorage::RecacheRate(rate),
        (b"compact_under" | b"drop_under" | b"max_sleep" | b"drop_unread", Some(_)) => {
            return unchanged(noreply);
        }
        (b"max_frag", _) if tokens.count >= 3 && fraction(value).is_some() => return unchanged(noreply),
        (b"free_memchunks", Some(_)) if tokens.count >= 4 && unsigned32(second).is_some() => return unchanged(noreply),
        _ => return reject(Rejection::BadFormat, noreply),
    };
    CommandLine::Request(Request::ExternalStorage { setting, noreply })
}

pub fn slabs<'a>(tokens: &LineTokens<'a>) -> CommandLine<'a> {
    let noreply = tokens.noreply();
    let [_, command, first, second, ..] = tokens.kept;
    match (command, tokens.count) {
        (b"reassign", 4) => reassign(first, second),
        (b"automove", 3..) if first == b"window" => match unsigned32(second).filter(|_| tokens.count > 3) {
            Some(WINDOW_MIN..) => unchanged(noreply),
            Some(_) => reject(Rejection::WindowBounds, noreply),
            None => reject(Rejection::Error, noreply),
        },
        (b"automove", 3..) if matches!(first, b"ratio" | b"freeratio") => {
            match tokens.count > 3 && fraction(second).is_some() {
                true => unchanged(noreply),
                false => reject(Rejection::Error, noreply),
            }
        }
        (b"automove", 3..) => match unsigned32(first) {
            Some(0..=2) => unchanged(noreply),
            Some(_) => reject(Rejection::Error, noreply),
            None => reject(Rejection::BadFormat, noreply),
        },
        _ => reject(Rejection::Error, false),
    }
}

fn reassign<'a>(from: &[u8], to: &[u8]) -> CommandLine<'a> {
    let (Some(from), Some(to)) = (signed32(from), signed32(to)) else {
        return reject(Rejection::BadFormat, false);
    };
    let is_class = |class: i32| (0..=CLASS_LIMIT as i32).contains(&class);
    match from == to {
        true => reject(Rejection::SameClass, false),
        // From any class that has a page to spare.
        false if from == -1 && is_class(to) => unchanged(false),
        false if is_class(from) && is_class(to) => reject(Rejection::NoSparePages, false),
        false => reject(Rejection::BadClasses, false),
    }
}

fn fraction(token: &[u8]) -> Option<f64> {
    std::str::from_utf8(token).ok()?.parse().ok()
}

/// `watch` with the kinds of events; none means fetchers.
pub fn watch<'a>(line: &'a [u8], tokens: &LineTokens<'a>) -> CommandLine<'a> {
    let noreply = tokens.noreply();
    CommandLine::Request(Request::Watch { watched: watched(line, tokens), noreply })
}

/// `None` if a word is no kind of event.
fn watched<'a>(line: &'a [u8], tokens: &LineTokens<'a>) -> Option<Watched> {
    let mut watched = Watched::default();
    for word in Keys::new(line).skip(1) {
        match word {
            b"fetchers" => watched.fetchers = true,
            b"mutations" => watched.mutations = true,
            b"evictions" => watched.evictions = true,
            b"connevents" => watched.connections = true,
            b"deletions" => watched.deletions = true,
            // Events of the proxy and of debug builds, and events without a counterpart here.
            b"sysevents" | b"proxyreqs" | b"proxyevents" | b"proxyuser" | b"rawcmds" => {}
            other => watched.sample = Some(sample(other)?),
        }
    }
    watched.fetchers |= tokens.count == 1;
    Some(watched)
}

/// N of `sample=N`, an extension for captures.
fn sample(word: &[u8]) -> Option<NonZeroU32> {
    NonZeroU32::new(unsigned32(word.strip_prefix(b"sample=")?)?)
}
