//! A report as lines, the most important first: a low terminal cuts at the bottom, a narrow one at the right, where the
//! bars are.

use std::collections::VecDeque;

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::measures::{FlashRates, TopReport};
use crate::format::{bars, byte_rate, bytes, count, gauge, percent, rate};

/// Columns of the values and of their explanations.
const VALUE: usize = 13;
const MORE: usize = 26;

/// Hit ratio and operations per second of the intervals before, oldest first.
pub type Intervals = VecDeque<(Option<f64>, Option<f64>)>;

/// All lines; the bars take what `width` leaves.
pub fn lines(report: &TopReport, intervals: &Intervals, width: usize) -> Vec<Line<'static>> {
    let bar_width = width.saturating_sub(MORE + 25);
    // The mean of the server's window reaches back before the first interval here, and no mean is above its maximum.
    let told = intervals.iter().map(|(_, operations)| *operations).chain([report.operations_per_second]);
    let max = told.flatten().fold(1.0, f64::max);
    let ratios = bars(intervals.iter().map(|(ratio, _)| *ratio), bar_width);
    let speeds = bars(intervals.iter().map(|(_, speed)| speed.map(|speed| speed / max)), bar_width);
    let look = look_of(report.headline_level.as_deref());
    let sentence = report.headline.as_ref().map_or_else(Vec::new, |sentence| wrapped(sentence, width));
    let mut lines: Vec<_> = sentence.into_iter().map(|line| line.style(look)).collect();
    lines.extend([
        with_bar(
            "Hit ratio",
            percent(report.hit_ratio),
            ratios,
            format!("{} since start", percent(report.hit_ratio_total)),
        ),
        with_bar(
            "Operations",
            rate(report.operations_per_second),
            speeds,
            format!("{} at most", rate(Some(max).filter(|_| !intervals.is_empty()))),
        ),
        Line::default(),
        Line::styled(
            format!("{:<10}{:>13}{:>12}{:>12}", "", "per second", "in all", "hit ratio"),
            Style::new().add_modifier(Modifier::DIM),
        ),
    ]);
    for (name, operation) in report.operations.named().into_iter().filter(|(_, operation)| operation.is_used()) {
        let [speed, total, ratio] = [rate(operation.per_second), count(operation.total), percent(operation.hit_ratio)];
        lines.push(Line::raw(format!("{name:<10}{speed:>13}{total:>12}{ratio:>12}")));
    }
    lines.push(Line::default());
    lines.extend(state(report, bar_width));
    lines
}

/// The colour of the sentence at the top, as on the dashboard.
fn look_of(level: Option<&str>) -> Style {
    match level {
        Some("good") => Style::new().fg(Color::Green),
        Some("attention") => Style::new().fg(Color::Yellow),
        Some("bad") => Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
        _ => Style::new(),
    }
}

/// The words of a sentence in lines of at most `width` characters, but for longer words, and an empty line.
fn wrapped(sentence: &str, width: usize) -> Vec<Line<'static>> {
    let mut rows = vec![String::new()];
    for word in sentence.split_whitespace() {
        match rows.last_mut() {
            Some(row) if row.is_empty() => row.push_str(word),
            Some(row) if row.chars().count() + 1 + word.chars().count() <= width => {
                row.push(' ');
                row.push_str(word);
            }
            _ => rows.push(word.to_owned()),
        }
    }
    rows.push(String::new());
    rows.into_iter().map(Line::raw).collect()
}

fn state(report: &TopReport, bar_width: usize) -> Vec<Line<'static>> {
    let memory = &report.memory;
    let taken = memory.used_bytes.or(memory.live_bytes);
    let share = match (taken, memory.limit_bytes) {
        (Some(taken), Some(limit)) if limit > 0 => Some(taken as f64 / limit as f64),
        _ => None,
    };
    let full = format!("of {}, {}", bytes(memory.limit_bytes), percent(share));
    let bar = share.map_or(String::new(), |share| gauge(share, bar_width.min(40)));
    let segments = match (memory.segments_free, memory.segments_total) {
        (None, None) => String::new(),
        (free, total) => format!(", {} of {} segments free", count(free), count(total)),
    };
    let each = match (memory.live_bytes, report.items) {
        (Some(bytes), Some(items)) if items > 0 => Some(bytes / items),
        _ => None,
    };
    let connections = &report.connections;
    let mut lines = vec![
        with_bar("Memory", bytes(taken), bar, full),
        line(
            "",
            format!("{} items, {} index{segments}", bytes(memory.live_bytes), bytes(memory.index_bytes)),
            String::new(),
        ),
    ];
    if let Some(verdict) = &report.verdict {
        // The state, and the effect of another size.
        let (state, change) = verdict.rsplit_once("; ").unwrap_or((verdict, ""));
        lines.push(Line::raw(format!("{:<VALUE$}{state}", "Size")));
        lines.push(Line::raw(format!("{:<VALUE$}{change}", "")));
    }
    lines.extend(report.flash.iter().flat_map(|flash| of_flash(flash, bar_width)));
    lines.extend([
        line("Items", count(report.items), format!("{} each", bytes(each))),
        line("Evicted", rate(report.evictions.per_second), format!("{} in all", count(report.evictions.total))),
        line("Expired", rate(report.expirations.per_second), format!("{} in all", count(report.expirations.total))),
        line(
            "Connections",
            count(connections.open),
            format!(
                "of {}, {} new, {} refused",
                count(connections.limit),
                rate(connections.accepted.per_second),
                count(connections.rejected.total)
            ),
        ),
        line(
            "Network",
            byte_rate(report.network.read_bytes.per_second),
            format!("in, {} out", byte_rate(report.network.written_bytes.per_second)),
        ),
        line("CPU", report.cpu_cores.map_or("-".to_owned(), |cores| format!("{cores:.2}")), "cores".to_owned()),
    ]);
    lines
}
fn of_flash(flash: &FlashRates, bar_width: usize) -> [Line<'static>; 2] {
    let share = flash.used_bytes.filter(|_| flash.limit_bytes > 0).map(|used| used as f64 / flash.limit_bytes as f64);
    let full = format!("of {}, {}", bytes(Some(flash.limit_bytes)), percent(share));
    let bar = share.map_or(String::new(), |share| gauge(share, bar_width.min(40)));
    let health = flash.health.as_ref().map_or(String::new(), |health| format!("{health}, "));
    let (hits, of_all) = (rate(flash.hits.per_second), percent(flash.hits.hit_ratio));
    let (written, queue) = (byte_rate(flash.written_bytes.per_second), count(flash.queue));
    let more = format!("{health}{hits} hits, {of_all} of all, {written} written, {queue} in the queue");
    [with_bar("Flash", bytes(flash.used_bytes), bar, full), line("", more, String::new())]
}

fn line(name: &'static str, value: String, more: String) -> Line<'static> {
    with_bar(name, value, String::new(), more)
}

fn with_bar(name: &'static str, value: String, bar: String, more: String) -> Line<'static> {
    let label = Span::styled(format!("{name:<VALUE$}"), Style::new().add_modifier(Modifier::DIM));
    let width = MORE - VALUE - 1;
    let value = Span::styled(format!("{value:<width$} "), Style::new().add_modifier(Modifier::BOLD));
    let more = format!("{more:<24}");
    Line::from(vec![label, value, Span::raw(more), Span::styled(bar, Style::new().fg(Color::Cyan))])
}
