//! A report as lines. They are ordered by what matters first: a low terminal cuts at the bottom, a narrow one at the
//! right, where the bars are.

use std::collections::VecDeque;
use std::time::Duration;

use ratatui::Frame;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::measures::{FlashRates, PoolUse, TopReport};
use crate::format::{bars, byte_rate, bytes, count, duration, gauge, percent, rate};

/// Intervals that the bars remember: a wide terminal's worth.
const REMEMBERED: usize = 300;
/// Where the values begin, and where what explains them begins.
const VALUE: usize = 13;
const MORE: usize = 26;

/// What is on the screen.
pub struct TopView {
    report: TopReport,
    /// Hit ratio and operations per second, oldest first.
    past: VecDeque<(Option<f64>, Option<f64>)>,
    interval: Duration,
    /// Why and for how long there has been no answer.
    pub silence: Option<(String, Duration)>,
}

impl TopView {
    pub fn new(report: TopReport, interval: Duration) -> Self {
        Self { report, past: VecDeque::new(), interval, silence: None }
    }

    /// A new report takes the place of the last one.
    pub fn update(&mut self, report: TopReport) {
        self.past.push_back((report.hit_ratio, report.operations_per_second));
        if self.past.len() > REMEMBERED {
            self.past.pop_front();
        }
        self.report = report;
        self.silence = None;
    }

    pub fn draw(&self, frame: &mut Frame<'_>) {
        let area = frame.area();
        let mut lines = self.head();
        lines.extend(self.body(area.width.into()));
        if self.silence.is_some() {
            for line in lines.iter_mut().skip(2) {
                *line = std::mem::take(line).style(Style::new().add_modifier(Modifier::DIM));
            }
        }
        frame.render_widget(Paragraph::new(lines), area);
    }

    fn head(&self) -> Vec<Line<'static>> {
        let report = &self.report;
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let second = match &self.silence {
            Some((reason, time)) => {
                let text = format!(" No answer for {}, trying again: {reason} ", duration(Some(time.as_secs())));
                Line::styled(text, bold.add_modifier(Modifier::REVERSED))
            }
            None => {
                let text = format!("every {} s; q quits", self.interval.as_secs_f64());
                Line::styled(text, Style::new().add_modifier(Modifier::DIM))
            }
        };
        vec![
            Line::from(vec![
                Span::styled(report.server.clone(), bold),
                Span::raw(format!("  {}  up {}", report.target, duration(report.uptime_seconds))),
                Span::raw(format!("  {} threads", count(report.threads))),
            ]),
            second,
        ]
    }

    fn body(&self, width: usize) -> Vec<Line<'static>> {
        let report = &self.report;
        let room = width.saturating_sub(MORE + 1);
        let max = self.past.iter().filter_map(|(_, operations)| *operations).fold(1.0, f64::max);
        let ratios = bars(self.past.iter().map(|(ratio, _)| *ratio), room.saturating_sub(24));
        let speeds = bars(self.past.iter().map(|(_, speed)| speed.map(|speed| speed / max)), room.saturating_sub(24));
        let mut lines = vec![
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
                format!("{} at most", rate(Some(max).filter(|_| !self.past.is_empty()))),
            ),
            Line::default(),
            Line::styled(
                format!("{:<10}{:>13}{:>12}{:>12}", "", "per second", "in all", "hit ratio"),
                Style::new().add_modifier(Modifier::DIM),
            ),
        ];
        for (name, operation) in report.operations.named() {
            let [speed, total, ratio] =
                [rate(operation.per_second), count(operation.total), percent(operation.hit_ratio)];
            lines.push(Line::raw(format!("{name:<10}{speed:>13}{total:>12}{ratio:>12}")));
        }
        lines.push(Line::default());
        lines.extend(self.state(room));
        lines.extend(of_pools(&report.pools));
        lines
    }

    fn state(&self, room: usize) -> Vec<Line<'static>> {
        let report = &self.report;
        let memory = &report.memory;
        let taken = memory.used_bytes.or(memory.live_bytes);
        let share = match (taken, memory.limit_bytes) {
            (Some(taken), Some(limit)) if limit > 0 => Some(taken as f64 / limit as f64),
            _ => None,
        };
        let full = format!("of {}, {}", bytes(memory.limit_bytes), percent(share));
        let bar = share.map_or(String::new(), |share| gauge(share, room.saturating_sub(24).min(40)));
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
            // The state, and what another size would change.
            let (state, change) = verdict.rsplit_once("; ").unwrap_or((verdict, ""));
            lines.push(Line::raw(format!("{:<VALUE$}{state}", "Size")));
            lines.push(Line::raw(format!("{:<VALUE$}{change}", "")));
        }
        lines.extend(report.flash.iter().flat_map(|flash| of_flash(flash, room)));
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
}

fn of_flash(flash: &FlashRates, room: usize) -> [Line<'static>; 2] {
    let share = flash.used_bytes.filter(|_| flash.limit_bytes > 0).map(|used| used as f64 / flash.limit_bytes as f64);
    let full = format!("of {}, {}", bytes(Some(flash.limit_bytes)), percent(share));
    let bar = share.map_or(String::new(), |share| gauge(share, room.saturating_sub(24).min(40)));
    let health = flash.health.as_ref().map_or(String::new(), |health| format!("{health}, "));
    let (hits, of_all) = (rate(flash.hits.per_second), percent(flash.hits.hit_ratio));
    let (written, queue) = (byte_rate(flash.written_bytes.per_second), count(flash.queue));
    let more = format!("{health}{hits} hits, {of_all} of all, {written} written, {queue} in the queue");
    [with_bar("Flash", bytes(flash.used_bytes), bar, full), line("", more, String::new())]
}

fn of_pools(pools: &[PoolUse]) -> Vec<Line<'static>> {
    if pools.is_empty() {
        return Vec::new();
    }
    let dim = Style::new().add_modifier(Modifier::DIM);
    let head = format!(
        "{:<16}{:>10}{:>11}{:>11}{:>11}{:>10}{:>10}",
        "pool", "gets", "hit ratio", "used", "of", "items", "evicted"
    );
    let mut lines = vec![Line::default(), Line::styled(head, dim)];
    lines.extend(pools.iter().map(|pool| {
        let (gets, ratio) = (rate(pool.gets.per_second), percent(pool.gets.hit_ratio));
        let (used, limit) = (bytes(pool.used_bytes), bytes(pool.limit_bytes));
        let (items, evicted) = (count(pool.items), rate(pool.evictions.per_second));
        Line::raw(format!("{:<16}{gets:>10}{ratio:>11}{used:>11}{limit:>11}{items:>10}{evicted:>10}", pool.name))
    }));
    lines
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

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::source::StatsSample;
    use super::*;

    const BEFORE: &str = "pid 7\nuptime 11530\nversion 1.6.18\nthreads 4\nget_hits 100\nget_misses 0\ncmd_set 0\n\
                          evictions 0\nlimit_maxbytes 1048576\nbytes 524288\ncurr_items 4096";
    const NOW: &str = "pid 7\nuptime 11531\nversion 1.6.18\nthreads 4\nget_hits 190\nget_misses 10\ncmd_set 20\n\
                       evictions 3\nlimit_maxbytes 1048576\nbytes 524288\ncurr_items 4096";

    fn view(own: &str) -> TopView {
        let start = Instant::now();
        let before = StatsSample::from_lines(start, BEFORE, own);
        let now = StatsSample::from_lines(start + Duration::from_secs(1), NOW, own);
        let mut view = TopView::new(TopReport::new("host:1", None, &before), Duration::from_secs(1));
        view.update(TopReport::new("host:1", Some(&before), &now));
        view
    }

    fn screen(view: &TopView, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| view.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..height).map(row).collect()
    }

    fn starts(screen: &[String], with: &str) -> bool {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        screen.iter().any(|row| words(row).starts_with(&words(with)))
    }

    #[test]
    fn everything_fits_an_ordinary_terminal() {
        let screen = screen(&view(""), 80, 24);
        for row in [
            "memcached 1.6.18 host:1 up 3 h 12 min 4 threads",
            "Hit ratio 90.0 % 95.0 % since start",
            "Operations 120/s 120/s at most",
            "get 100/s 200 90.0 %",
            "set 20/s 20 -",
            "incr - - -",
            "Memory 512 KiB of 1 MiB, 50.0 %",
            "Items 4096 128 B each",
            "Evicted 3/s 3 in all",
            "Connections - of -, - new, - refused",
            "CPU - cores",
        ] {
            assert!(starts(&screen, row), "{row}\n{}", screen.join("\n"));
        }
    }

    #[test]
    fn what_only_ebbtide_tells_is_shown_of_ebbtide() {
        let view = view("version 0.1.0\nmemory_used_bytes 786432\nsegments_total 10\nsegments_free 4");
        let screen = screen(&view, 120, 24);
        assert!(starts(&screen, "ebbtide 0.1.0"));
        assert!(starts(&screen, "Memory 768 KiB of 1 MiB, 75.0 %"), "{}", screen.join("\n"));
        assert!(screen.iter().any(|row| row.ends_with("4 of 10 segments free")));
    }

    #[test]
    fn the_verdict_on_the_size_has_two_lines() {
        let text = "full; 14.0 % misses; objects leave after 6 min; +64 MiB would save 2.1 points, -64 MiB would cost 4.0 points";
        let screen = screen(&view(&format!("version 0.1.0\nsize_verdict {text}")), 80, 26);
        for row in [
            "Size full; 14.0 % misses; objects leave after 6 min",
            "+64 MiB would save 2.1 points, -64 MiB would cost 4.0",
        ] {
            assert!(starts(&screen, row), "{row}\n{}", screen.join("\n"));
        }
    }

    #[test]
    fn flash_has_two_lines_if_there_is_some() {
        let flash = |hits: u32, written: u32| {
            format!(
                "get_extstore {hits}\nextstore_limit_maxbytes 4194304\nextstore_bytes_used 1048576\n\
                 extstore_bytes_written {written}\nextstore_io_queue 5"
            )
        };
        let start = Instant::now();
        let before = StatsSample::from_lines(start, &format!("{BEFORE}\n{}", flash(0, 0)), "");
        let now = format!("{NOW}\n{}", flash(45, 2048));
        let now = StatsSample::from_lines(start + Duration::from_secs(1), &now, "flash_health healthy");
        let mut view = TopView::new(TopReport::new("host:1", None, &before), Duration::from_secs(1));
        view.update(TopReport::new("host:1", Some(&before), &now));
        let screen = screen(&view, 100, 26);
        for row in [
            "Flash 1 MiB of 4 MiB, 25.0 %",
            "healthy, 45/s hits, 50.0 % of all, 2 KiB/s written, 5 in the queue",
            "CPU - cores",
        ] {
            assert!(starts(&screen, row), "{row}\n{}", screen.join("\n"));
        }
    }

    #[test]
    fn each_of_several_pools_has_a_line() {
        let sample = |seconds, gets: u32| {
            let pools = format!(
                "users:class 2\nusers:hits {gets}\nusers:misses 0\nusers:limit_bytes 4194304\nusers:used_bytes 2097152\n\
                 users:items 7\nusers:evictions 0\ndefault:class 1"
            );
            let taken = Instant::now() + Duration::from_secs(seconds);
            StatsSample::from_lines(taken, NOW, "").with_pools(&pools)
        };
        let report = TopReport::new("host:1", Some(&sample(0, 0)), &sample(10_000, 0));
        let mut view = TopView::new(report.clone(), Duration::from_secs(1));
        view.update(report);
        let screen = screen(&view, 80, 30);
        for row in ["pool gets hit ratio used of items evicted", "users 0/s - 2 MiB 4 MiB 7 0/s", "default - - - - - -"]
        {
            assert!(starts(&screen, row), "{row}\n{}", screen.join("\n"));
        }
    }

    #[test]
    fn narrow_and_low_terminals_show_what_fits() {
        let screen_of = |width, height| screen(&view(""), width, height);
        assert!(starts(&screen_of(40, 24), "Hit ratio 90.0 % 95.0 % since"));
        assert!(starts(&screen_of(20, 3), "Hit ratio 90.0"));
        assert_eq!(screen_of(1, 1), ["m"]);
    }

    #[test]
    fn a_silent_server_is_said_to_be_silent_and_its_numbers_stay() {
        let mut view = view("");
        view.silence = Some(("Connection refused".into(), Duration::from_secs(75)));
        let screen = screen(&view, 80, 24);
        assert_eq!(screen[1], " No answer for 1 min 15 s, trying again: Connection refused");
        assert!(starts(&screen, "Hit ratio 90.0 %"));
    }

    #[test]
    fn the_bars_forget_what_is_long_past() {
        let mut view = view("");
        let report = view.report.clone();
        for _ in 0..2 * REMEMBERED {
            view.update(report.clone());
        }
        assert_eq!(view.past.len(), REMEMBERED);
    }
}
