//! Output of `ebbtide trace info`.

use std::io::{self, Write};

use ebbtide::ByteSize;
use serde::Serialize;

use super::measure::Portrait;
use super::objects::SizeClass;
use crate::report::rounded;
use crate::trace::Op;
use crate::trace::loaded::{LoadedTrace, is_get};

/// The names of the fields are the names in the JSON object.
#[derive(Serialize)]
pub(super) struct PortraitReport {
    trace: String,
    format: &'static str,
    malformed_lines: u64,
    /// Limitations of the portrait.
    caveats: Vec<String>,
    requests: usize,
    gets: u64,
    writes: u64,
    deletes: u64,
    span_seconds: u64,
    requests_per_second: f64,
    objects: usize,
    /// Bytes of keys and values of all objects.
    footprint_bytes: u64,
    one_hit_share: f64,
    /// Share of keys with gets and never a value.
    absent_share: f64,
    gets_of_absent_share: f64,
    popularity: PopularityRow,
    churn: ChurnRow,
    sizes: SizesRow,
    ttl: TtlRow,
    arrivals: ArrivalsRow,
}

#[derive(Serialize)]
struct PopularityRow {
    alpha: Option<f64>,
    /// In objects that are there at one time: those that follow each other in a place of the popularity count once.
    flat_head: Option<f64>,
    r_squared: Option<f64>,
    /// Objects that the law was fitted to.
    fitted_objects: Option<usize>,
    /// Share of the requests that goes to the tenth of the objects with the most.
    top_tenth_share: f64,
    max_requests: u64,
}

#[derive(Serialize)]
struct ChurnRow {
    replaced_per_hour: Option<f64>,
    /// Chance alone moves objects of few requests out of the top tenth, so the second value is below 1 without churn.
    still_popular_after_hours: Vec<f64>,
}

#[derive(Serialize)]
struct SizesRow {
    key_mean: f64,
    value_mean: f64,
    value_p50: u64,
    value_p90: u64,
    value_p99: u64,
    value_max: u64,
    classes: Vec<SizeClassRow>,
}

#[derive(Serialize)]
struct SizeClassRow {
    from_bytes: u64,
    objects_share: f64,
    bytes_share: f64,
    gets_share: f64,
    hits_share: f64,
}

#[derive(Serialize)]
struct TtlRow {
    requests: u64,
    endless_share: f64,
    p10_seconds: Option<u32>,
    p50_seconds: Option<u32>,
    p90_seconds: Option<u32>,
    max_seconds: Option<u32>,
    most_frequent: Vec<TtlShare>,
}

impl TtlRow {
    fn words(&self) -> String {
        let endless = format!("{:.1} % without", self.endless_share * 100.0);
        match (self.p50_seconds, self.max_seconds) {
            (Some(p50), Some(max)) => format!("{endless}; the others p50 {p50} s, max {max} s"),
            _ if self.requests == 0 => "no request stores an object".to_owned(),
            _ => endless,
        }
    }
}

#[derive(Serialize)]
struct TtlShare {
    seconds: u32,
    share: f64,
}

#[derive(Serialize)]
struct ArrivalsRow {
    interval_seconds: u32,
    dispersion: Option<f64>,
    dispersion_of_two_minutes: Option<f64>,
    /// Share of the requests by the hour of the day.
    hours_of_day: Option<[f64; 24]>,
}

impl PortraitReport {
    pub(super) fn new(trace: &LoadedTrace, portrait: &Portrait) -> Self {
        let count = |wanted: fn(Op) -> bool| trace.steps.iter().filter(|step| wanted(step.op)).count() as u64;
        let span_seconds = trace.steps.last().map_or(0, |step| u64::from(step.time));
        let objects = &portrait.objects;
        let part = |some: u64, all: u64| rounded(some as f64 / all.max(1) as f64);
        Self {
            trace: trace.trace.clone(),
            format: trace.format,
            malformed_lines: trace.malformed_lines,
            caveats: caveats(trace, portrait, span_seconds),
            requests: trace.steps.len(),
            gets: trace.gets(),
            writes: count(|op| !is_get(op) && op != Op::Delete),
            deletes: count(|op| op == Op::Delete),
            span_seconds,
            requests_per_second: rounded(trace.steps.len() as f64 / (span_seconds + 1) as f64),
            objects: trace.objects(),
            footprint_bytes: objects.classes.iter().map(|class| class.bytes).sum(),
            one_hit_share: rounded(objects.one_hit_share()),
            absent_share: part(objects.absent, objects.asked_for),
            gets_of_absent_share: part(objects.gets_of_absent, trace.gets()),
            popularity: popularity(portrait, span_seconds),
            churn: ChurnRow {
                replaced_per_hour: portrait.churn.replaced_per_hour.map(rounded),
                still_popular_after_hours: portrait.churn.still_popular.iter().copied().map(rounded).collect(),
            },
            sizes: sizes(portrait),
            ttl: ttl(portrait),
            arrivals: ArrivalsRow {
                interval_seconds: portrait.arrivals.interval_seconds,
                dispersion: portrait.arrivals.dispersion.map(rounded),
                dispersion_of_two_minutes: portrait.arrivals.dispersion_of_two_minutes.map(rounded),
                hours_of_day: portrait.arrivals.hours.map(|hours| hours.map(rounded)),
            },
        }
    }

    /// Some lines for each part.
    pub(super) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let bytes = |count: u64| ByteSize::bytes(count).to_string();
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        let known =
            |value: Option<f64>, digits: usize| value.map_or("-".to_owned(), |value| format!("{value:.digits$}"));
        writeln!(out, "{}: {}, {} malformed lines", self.trace, self.format, self.malformed_lines)?;
        let Self { requests, gets, writes, deletes, span_seconds, objects, .. } = self;
        writeln!(out, "requests     {requests}: {gets} gets, {writes} writes, {deletes} deletes, in {span_seconds} s")?;
        writeln!(
            out,
            "objects      {objects} of {} in all; {} are asked for once; {} absent, with {} of the gets",
            bytes(self.footprint_bytes),
            percent(self.one_hit_share),
            percent(self.absent_share),
            percent(self.gets_of_absent_share)
        )?;
        let PopularityRow { alpha, flat_head, r_squared, top_tenth_share, .. } = self.popularity;
        writeln!(
            out,
            "popularity   alpha {}, flat head {} objects (r2 {}); the top tenth has {} of the requests",
            known(alpha, 3),
            known(flat_head, 0),
            known(r_squared, 3),
            percent(top_tenth_share)
        )?;
        let replaced = self.churn.replaced_per_hour.map_or("-".to_owned(), percent);
        let still = self.churn.still_popular_after_hours.get(1).map_or("-".to_owned(), |&share| percent(share));
        writeln!(
            out,
            "churn        {replaced} of the popular objects are replaced an hour; {still} stay in the top tenth"
        )?;
        let SizesRow { key_mean, value_mean, value_p50, value_p99, value_max, .. } = self.sizes;
        let [p50, p99, max] = [value_p50, value_p99, value_max].map(bytes);
        writeln!(
            out,
            "sizes        key {key_mean:.1} B, value {value_mean:.1} B in the mean; p50 {p50}, p99 {p99}, max {max}"
        )?;
        writeln!(out, "TTL          {}", self.ttl.words())?;
        writeln!(
            out,
            "arrivals     dispersion {} in {} s, {} in two minutes (1: by chance; more: bursts)",
            known(self.arrivals.dispersion, 2),
            self.arrivals.interval_seconds,
            known(self.arrivals.dispersion_of_two_minutes, 2)
        )?;
        self.print_classes(out)?;
        self.caveats.iter().try_for_each(|caveat| writeln!(out, "note: {caveat}"))
    }

    fn print_classes(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "\n{:<16}{:>10}{:>10}{:>10}{:>10}", "size from", "objects", "bytes", "gets", "hits")?;
        for class in &self.sizes.classes {
            let SizeClassRow { from_bytes, objects_share, bytes_share, gets_share, hits_share } = *class;
            write!(out, "{:<16}", ByteSize::bytes(from_bytes).to_string())?;
            for share in [objects_share, bytes_share, gets_share, hits_share] {
                write!(out, "{:>8.1} %", share * 100.0)?;
            }
            writeln!(out)?;
        }
        Ok(())
    }
}

fn caveats(trace: &LoadedTrace, portrait: &Portrait, span_seconds: u64) -> Vec<String> {
    let mut caveats = trace.caveats();
    if portrait.law.is_none() {
        caveats.push("too few objects have 6 requests or more for a law of popularity".to_owned());
    }
    if let Some(law) = portrait.law.filter(|law| law.r_squared < 0.95) {
        caveats.push(format!("Zipf's law explains the popularity badly (r2 {:.2})", law.r_squared));
    }
    if portrait.churn.replaced_per_hour.is_none() {
        let reason = if span_seconds < 7200 { "the trace covers less than two hours" } else { "requests are too rare" };
        caveats.push(format!("the churn of an hour is unknown: {reason}"));
    }
    if portrait.arrivals.dispersion.is_none() {
        caveats.push("the dispersion is unknown: it needs 500 requests over 100 s".to_owned());
    }
    caveats
}

fn popularity(portrait: &Portrait, span_seconds: u64) -> PopularityRow {
    // With churn each place of the popularity has had several objects, all of them among the ranks.
    let replaced = portrait.churn.replaced_per_hour.unwrap_or(0.0);
    let in_place = 1.0 + replaced * span_seconds as f64 / 3600.0;
    let law = portrait.law;
    PopularityRow {
        alpha: law.map(|law| rounded(law.alpha)),
        flat_head: law.map(|law| rounded(law.flat_head.max(0.0) / in_place)),
        r_squared: law.map(|law| rounded(law.r_squared)),
        fitted_objects: law.map(|law| law.ranks),
        top_tenth_share: rounded(portrait.objects.top_tenth_share()),
        max_requests: portrait.objects.requests.first().copied().unwrap_or(0),
    }
}

fn sizes(portrait: &Portrait) -> SizesRow {
    let objects = &portrait.objects;
    let sum = |of: fn(&SizeClass) -> u64| objects.classes.iter().map(of).sum::<u64>().max(1) as f64;
    let (all, bytes, gets, hits) = (sum(|c| c.objects), sum(|c| c.bytes), sum(|c| c.gets), sum(|c| c.hits));
    let class = |class: &SizeClass| SizeClassRow {
        from_bytes: class.from_bytes,
        objects_share: rounded(class.objects as f64 / all),
        bytes_share: rounded(class.bytes as f64 / bytes),
        gets_share: rounded(class.gets as f64 / gets),
        hits_share: rounded(class.hits as f64 / hits),
    };
    let [value_p50, value_p90, value_p99, value_max] = objects.value_quantiles;
    SizesRow {
        key_mean: rounded(objects.key_mean),
        value_mean: rounded(objects.value_mean),
        value_p50,
        value_p90,
        value_p99,
        value_max,
        classes: objects.classes.iter().map(class).collect(),
    }
}

fn ttl(portrait: &Portrait) -> TtlRow {
    let ttls = &portrait.ttls;
    let [p10_seconds, p50_seconds, p90_seconds, max_seconds] =
        ttls.quantiles.map_or([None; 4], |quantiles| quantiles.map(Some));
    let most_frequent =
        ttls.listed.iter().map(|&(seconds, share)| TtlShare { seconds, share: rounded(share) }).collect();
    TtlRow {
        requests: ttls.requests,
        endless_share: rounded(ttls.endless_share),
        p10_seconds,
        p50_seconds,
        p90_seconds,
        max_seconds,
        most_frequent,
    }
}
