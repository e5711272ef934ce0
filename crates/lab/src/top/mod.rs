//! `ebbtide top`: the activity of a live server, read through `stats` over the memcached port.
//!
//! It works on any memcached. Numbers that only Ebbtide has are from `stats ebbtide`; a number that a server does not
//! report is shown as `-`. Rates are differences of two samples, so the first report appears after one interval.
//!
//! | module | holds |
//! |---|---|
//! | `source` | the connection, and one sample of the server's counters |
//! | `admin` | the admin HTTP of an Ebbtide server: latencies, hot keys, prefixes |
//! | `measures` | two samples to one report |
//! | `table`, `tables` | rows that are sorted and fitted to a width; which tables there are |
//! | `overview` | a report as lines |
//! | `view` | the screen of any size: which view is shown, and the keys that change it |
//! | `screen` | the terminal: redrawing, giving it back |

mod admin;
mod measures;
mod overview;
mod screen;
mod source;
mod table;
mod tables;
mod view;

use std::io::{IsTerminal, Write, stdout};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::Serialize;

use self::admin::{AdminChoice, AdminReport};
use self::measures::TopReport;
use crate::Error;

pub(crate) use self::source::{RequestCounts, StatsSample, StatsSource};

const DEFAULT_PORT: u16 = 11211;

/// The arguments of `ebbtide top`.
#[derive(Clone, Debug, clap::Args)]
pub struct TopArgs {
    /// The server's memcached port; HOST alone means port 11211
    #[arg(value_name = "HOST:PORT", default_value = "127.0.0.1:11211")]
    pub target: String,
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = interval)]
    pub interval: f64,
    /// Print one report in plain lines and leave, as it is done where stdout is not a terminal
    #[arg(long)]
    pub once: bool,
    /// Print one JSON object per interval, or with --once just one
    #[arg(long)]
    pub json: bool,
    /// The admin HTTP, for latencies and keys; off asks for neither [default: the one that the server names]
    #[arg(long, value_name = "HOST:PORT")]
    pub admin: Option<String>,
}

impl TopArgs {
    fn interval(&self) -> Duration {
        Duration::from_secs_f64(self.interval)
    }
}

fn interval(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("give seconds from 0.1 to 3600".into()),
    }
}

/// An interval of `--json` in which the server did not answer.
#[derive(Serialize)]
struct Silence<'a> {
    target: &'a str,
    error: String,
}

/// `ebbtide top`: shows the server until the user quits, or prints the requested reports.
pub fn run(args: TopArgs) -> Result<(), Error> {
    let mut source = StatsSource::new(with_port(&args.target));
    let first = source.sample()?;
    let admin = AdminChoice::parse(args.admin.as_deref());
    if !args.json && !args.once && stdout().is_terminal() {
        return screen::run(source, admin, first, args.interval());
    }
    let mut before = Some(first);
    let mut due = Instant::now();
    loop {
        due = (due + args.interval()).max(Instant::now());
        sleep(due - Instant::now());
        let mut out = stdout().lock();
        match source.sample() {
            Ok(now) => {
                let told = AdminReport::read(&admin, &now);
                let report = TopReport::new(source.target(), before.as_ref(), &now, told);
                match args.json {
                    true => crate::report::print(&report, true, &mut out)?,
                    false => crate::report::print(&report.without_unused(), false, &mut out)?,
                }
                before = Some(now);
            }
            Err(error) if args.json && !args.once => {
                let silence = Silence { target: source.target(), error: error.to_string() };
                crate::report::print(&silence, true, &mut out)?;
            }
            Err(error) => return Err(error),
        }
        out.flush()?;
        if args.once || !args.json {
            return Ok(());
        }
    }
}

/// A host alone, also an IPv6 address in brackets, gets the port of memcached.
pub(crate) fn with_port(target: &str) -> String {
    match target.rsplit_once(':') {
        Some((_, port)) if !port.ends_with(']') => target.to_owned(),
        _ => format!("{target}:{DEFAULT_PORT}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_alone_gets_the_port_of_memcached() {
        for (given, meant) in [
            ("localhost", "localhost:11211"),
            ("localhost:1", "localhost:1"),
            ("[::1]", "[::1]:11211"),
            ("[::1]:1", "[::1]:1"),
        ] {
            assert_eq!(with_port(given), meant);
        }
    }

    #[test]
    fn intervals_have_limits() {
        assert_eq!(interval("0.5"), Ok(0.5));
        for refused in ["0", "-1", "NaN", "inf", "3601", "x"] {
            assert!(interval(refused).is_err(), "{refused}");
        }
    }
}
