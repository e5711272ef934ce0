//! A report in the format of memtier_benchmark's table, for readers who know it.

use std::io::{self, Write};

use super::report::{BenchReport, Latency};

/// Prints the results of a load on a server: operations are keys, latencies are of whole requests, in milliseconds.
pub(super) fn print(report: &BenchReport, out: &mut impl Write) -> io::Result<()> {
    let BenchReport { threads, connections, pipeline, batch, seconds, .. } = report;
    writeln!(out, "{:<9} Threads", threads)?;
    writeln!(out, "{:<9} Connections of all threads", connections)?;
    writeln!(out, "{:<9} Requests in flight per connection", pipeline)?;
    writeln!(out, "{:<9} Keys per get", batch)?;
    writeln!(out, "{:<9.3} Seconds", seconds)?;
    if let Some(pace) = &report.pace {
        writeln!(out, "{:<9.0} Requests per second due, {}", pace.rate, pace.arrivals)?;
        writeln!(out, "{:<9} Requests due and not sent", pace.unsent)?;
    }
    if !report.ignored.is_empty() {
        writeln!(out, "{:<9} Keys ignored: {}", report.ignored.len(), report.ignored.join(", "))?;
    }
    if let Some(reason) = &report.first_error {
        writeln!(out, "{:<9} Requests refused, the first with: {reason}", report.errors)?;
    }
    writeln!(out)?;
    writeln!(
        out,
        "{:<8}{:>14}{:>14}{:>14}{:>14}{:>14}{:>14}{:>14}",
        "Type", "Ops/sec", "Hits/sec", "Misses/sec", "Avg. Latency", "p50 Latency", "p99 Latency", "p99.9 Latency"
    )?;
    let rule = "-".repeat(8 + 7 * 14);
    writeln!(out, "{rule}")?;
    let each_second = |count: u64| count as f64 / seconds.max(1e-9);
    let hits = Some((each_second(report.hits), each_second(report.gets - report.hits)));
    let writes = report.sets + report.fills + report.writes.map_or(0, |writes| writes.requests());
    line("Sets", each_second(writes), None, &report.set_latency, out)?;
    line("Gets", each_second(report.gets), hits, &report.get_latency, out)?;
    if report.deletes > 0 {
        line("Deletes", each_second(report.deletes), None, &report.delete_latency, out)?;
    }
    line("Totals", each_second(report.requests), hits, &report.latency, out)?;
    writeln!(out)?;
    for pool in &report.pools {
        let share = (pool.gets > 0).then(|| pool.hits as f64 / pool.gets as f64);
        writeln!(out, "{:<8}{:>14.2}{:>14}", pool.name, each_second(pool.gets), crate::format::percent(share))?;
    }
    if let Some(writes) = &report.writes {
        writeln!(
            out,
            "Sets: {} adds, {} replaces, {} appends, {} counts, {} of these without effect",
            writes.adds, writes.replaces, writes.appends, writes.counts, writes.not_stored
        )?;
    }
    let kilobytes = (report.bytes_sent + report.bytes_received) as f64 / 1024.0;
    writeln!(out, "{:.2} KB/sec", kilobytes / seconds.max(1e-9))
}

fn line(
    name: &str,
    operations: f64,
    hits: Option<(f64, f64)>,
    latency: &Option<Latency>,
    out: &mut impl Write,
) -> io::Result<()> {
    let or_none = |value: Option<f64>, digits| match value {
        Some(value) => format!("{value:.digits$}"),
        None => "---".into(),
    };
    let milliseconds = |part: fn(&Latency) -> f64| or_none(latency.as_ref().map(|latency| part(latency) / 1000.0), 5);
    writeln!(
        out,
        "{name:<8}{operations:>14.2}{:>14}{:>14}{:>14}{:>14}{:>14}{:>14}",
        or_none(hits.map(|(hits, _)| hits), 2),
        or_none(hits.map(|(_, misses)| misses), 2),
        milliseconds(|latency| latency.mean_us),
        milliseconds(|latency| latency.p50_us),
        milliseconds(|latency| latency.p99_us),
        milliseconds(|latency| latency.p999_us),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{BenchArgs, plan::Plan, report, tally::LatencyTally};
    use clap::Parser;
    use std::time::Duration;

    #[derive(Parser)]
    struct TestArgs {
        #[command(flatten)]
        args: BenchArgs,
    }

    #[test]
    fn operations_and_latencies_stand_in_their_columns() {
        let args = TestArgs::parse_from("bench --target x:1 --rate 10 --batch 4".split(' ')).args;
        let plan = Plan::new(&args).unwrap();
        let mut tally = LatencyTally {
            gets: 40,
            hits: 30,
            unsent: 7,
            bytes_sent: 1024,
            bytes_received: 3072,
            ..LatencyTally::default()
        };
        tally.get_latency.record_n(2_000_000, 10).unwrap();
        let mut out = Vec::new();
        print(&report::report(tally, &plan, Duration::from_secs(2)), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let row =
            |name| text.lines().find(|line| line.starts_with(name)).unwrap().split_whitespace().collect::<Vec<_>>();
        assert_eq!(row("Sets"), ["Sets", "0.00", "---", "---", "---", "---", "---", "---"]);
        let gets = row("Gets");
        assert_eq!(gets[..4], ["Gets", "20.00", "15.00", "5.00"]);
        assert!(gets[4..].iter().all(|latency| latency.starts_with("2.0") || latency.starts_with("1.99")), "{gets:?}");
        assert!(text.contains("7         Requests due and not sent"), "{text}");
        assert!(text.ends_with("2.00 KB/sec\n"), "{text}");
    }
}
