//! The screen of any size: which view is shown, and the keys that change it.

use std::collections::VecDeque;
use std::time::Duration;

use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};

use super::measures::TopReport;
use super::overview::{self, Intervals};
use super::table::{Sort, Table};
use super::tables;
use crate::format::{count, duration};
use crate::locale::takes_utf8;

/// Intervals that the bars remember: a wide terminal's worth.
const REMEMBERED: usize = 300;
/// From this width on the overview has tables at its right; its left part has `LEFT` columns.
const WIDE: u16 = 132;
const LEFT: u16 = 78;
/// Rows of each table beside the overview.
const ROWS_BESIDE: usize = 10;
/// Rows that Page Up and Page Down move.
const PAGE: usize = 10;

const KEYS: [(&str, &str); 6] = [
    ("1 to 6, Tab", "switch the view"),
    ("s, > and <", "sort by the next, the previous column"),
    ("r", "reverse the order"),
    ("Up, Down", "move along the rows; also Page Up, Page Down, Home"),
    ("?", "show and hide these keys"),
    ("q, Esc", "quit"),
];

/// The abilities of a terminal.
#[derive(Clone, Copy, Debug)]
pub struct Looks {
    pub has_colors: bool,
    /// Without UTF-8, bars have ASCII characters.
    pub is_utf8: bool,
}

impl Looks {
    /// `NO_COLOR` and a dumb terminal have no colors; the locale says whether the terminal takes UTF-8.
    pub fn of_environment() -> Self {
        let value = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let is_dumb = value("TERM").is_none_or(|term| term == "dumb");
        Self { has_colors: value("NO_COLOR").is_none() && !is_dumb, is_utf8: takes_utf8() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum View {
    Overview,
    Commands,
    HotKeys,
    Evictions,
    Pools,
    Memory,
}

impl View {
    const ALL: [Self; 6] = [Self::Overview, Self::Commands, Self::HotKeys, Self::Evictions, Self::Pools, Self::Memory];

    fn title(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Commands => "Commands",
            Self::HotKeys => "Hot keys",
            Self::Evictions => "Evictions",
            Self::Pools => "Pools",
            Self::Memory => "Memory",
        }
    }

    /// The table that is sorted.
    fn table(self, report: &TopReport) -> Option<Table> {
        match self {
            Self::Overview => None,
            Self::Commands => Some(tables::commands(report)),
            Self::HotKeys => Some(tables::hot_keys(report)),
            Self::Evictions => Some(tables::prefixes(report)),
            Self::Pools => Some(tables::pools(report)),
            Self::Memory => Some(tables::largest(report)),
        }
    }
}

/// Content of the screen.
pub struct TopView {
    report: TopReport,
    intervals: Intervals,
    interval: Duration,
    looks: Looks,
    shown: View,
    /// For each view.
    sorts: [Sort; View::ALL.len()],
    /// The first row that is shown.
    first: usize,
    shows_keys: bool,
    /// Why and for how long there has been no answer.
    pub silence: Option<(String, Duration)>,
}

impl TopView {
    pub fn new(report: TopReport, interval: Duration, looks: Looks) -> Self {
        let sorts = [Sort::by(1); View::ALL.len()];
        let intervals = VecDeque::new();
        Self {
            report,
            intervals,
            interval,
            looks,
            shown: View::Overview,
            sorts,
            first: 0,
            shows_keys: false,
            silence: None,
        }
    }

    /// A new report takes the place of the last one.
    pub fn update(&mut self, report: TopReport) {
        self.intervals.push_back((report.interval_hit_ratio, report.interval_operations_per_second));
        if self.intervals.len() > REMEMBERED {
            self.intervals.pop_front();
        }
        self.report = report;
        self.silence = None;
    }

    /// Whether the key ends the program.
    pub fn handle(&mut self, key: KeyEvent) -> bool {
        let at = View::ALL.iter().position(|view| *view == self.shown).unwrap_or(0);
        let views = View::ALL.len();
        match key.code {
            KeyCode::Char('c' | 'C') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
            KeyCode::Esc if self.shows_keys => self.shows_keys = false,
            KeyCode::Char('q' | 'Q') | KeyCode::Esc => return true,
            KeyCode::Char('?' | 'h') => self.shows_keys = !self.shows_keys,
            KeyCode::Char(digit @ '1'..='6') => self.show(digit as usize - '1' as usize),
            KeyCode::Tab => self.show((at + 1) % views),
            KeyCode::BackTab => self.show((at + views - 1) % views),
            KeyCode::Char('s' | '>') | KeyCode::Right => self.sort_by_next(at, 1),
            KeyCode::Char('<') | KeyCode::Left => self.sort_by_next(at, -1),
            KeyCode::Char('r') => self.sorts[at].is_descending ^= true,
            KeyCode::Down | KeyCode::Char('j') => self.move_rows(1),
            KeyCode::Up | KeyCode::Char('k') => self.move_rows(-1),
            KeyCode::PageDown => self.move_rows(PAGE as isize),
            KeyCode::PageUp => self.move_rows(-(PAGE as isize)),
            KeyCode::Home => self.first = 0,
            _ => {}
        }
        false
    }

    fn show(&mut self, view: usize) {
        self.shown = View::ALL[view];
        self.first = 0;
        self.shows_keys = false;
    }

    fn sort_by_next(&mut self, at: usize, step: isize) {
        let Some(table) = self.shown.table(&self.report) else { return };
        let columns = table.columns.len() as isize + 1;
        let next = (self.sorts[at].column as isize + step).rem_euclid(columns);
        self.sorts[at] = Sort::by(next as usize);
        self.first = 0;
    }

    fn move_rows(&mut self, step: isize) {
        let rows = match self.shown.table(&self.report) {
            Some(table) => table.rows.len(),
            None => overview::lines(&self.report, &self.intervals, 0).len(),
        };
        self.first = self.first.saturating_add_signed(step).min(rows.saturating_sub(1));
    }

    pub fn draw(&self, frame: &mut Frame<'_>) {
        let area = frame.area();
        let (head, rest) = halves(area, 2);
        frame.render_widget(Paragraph::new(self.finish(self.head(area.width), false)), head);
        let is_silent = self.silence.is_some();
        if self.shows_keys {
            let lines = KEYS.map(|(key, effect)| Line::raw(format!("{key:<13}{effect}"))).to_vec();
            return frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }), rest);
        }
        let lines = match self.shown {
            View::Overview if area.width >= WIDE => {
                let left = Rect { width: LEFT, ..rest };
                let right = Rect { x: rest.x + LEFT + 2, width: rest.width - LEFT - 2, ..rest };
                let beside = self.finish(self.beside(right.width.into()), is_silent);
                frame.render_widget(Paragraph::new(beside), right);
                let lines = self.finish(overview::lines(&self.report, &self.intervals, LEFT.into()), is_silent);
                return frame.render_widget(Paragraph::new(lines[self.first.min(lines.len())..].to_vec()), left);
            }
            View::Overview => {
                let mut lines = overview::lines(&self.report, &self.intervals, area.width.into());
                if !self.report.pools.is_empty() {
                    lines.push(Line::default());
                    lines.extend(self.sorted(tables::pools(&self.report), Sort::by(1), area.width.into()));
                }
                lines.drain(..self.first.min(lines.len()));
                return frame.render_widget(Paragraph::new(self.finish(lines, is_silent)), rest);
            }
            View::Evictions => {
                let mut lines = self.sorted(tables::reasons(&self.report), Sort::by(2), area.width.into());
                lines.push(Line::default());
                lines.extend(self.sorted_view(area.width.into()));
                lines
            }
            View::Memory => {
                // A third of the screen for each table, without its head and the empty line.
                let rows = (usize::from(rest.height) / 3).saturating_sub(2).max(1);
                let mut lines = Vec::new();
                for mut table in [tables::ttls(&self.report), tables::sizes(&self.report)] {
                    table.sort(Sort::by(1));
                    table.rows.truncate(rows);
                    lines.extend(table.lines(Sort::by(1), area.width.into(), 0));
                    lines.push(Line::default());
                }
                lines.extend(self.sorted_view(area.width.into()));
                lines
            }
            _ => self.sorted_view(area.width.into()),
        };
        frame.render_widget(Paragraph::new(self.finish(lines, is_silent)).wrap(Wrap { trim: false }), rest);
    }

    fn sorted(&self, mut table: Table, sort: Sort, width: usize) -> Vec<Line<'static>> {
        table.sort(sort);
        table.lines(sort, width, 0)
    }

    fn sorted_view(&self, width: usize) -> Vec<Line<'static>> {
        let Some(mut table) = self.shown.table(&self.report) else { return Vec::new() };
        let sort = self.sorts[View::ALL.iter().position(|view| *view == self.shown).unwrap_or(0)];
        table.sort(sort);
        table.lines(sort, width, self.first)
    }

    /// The tables at the right of a wide overview.
    fn beside(&self, width: usize) -> Vec<Line<'static>> {
        let report = &self.report;
        let mut lines = Vec::new();
        let tables =
            [tables::commands(report), tables::hot_keys(report), tables::reasons(report), tables::pools(report)];
        for mut table in tables.into_iter().filter(|table| !table.rows.is_empty()) {
            table.sort(Sort::by(1));
            table.rows.truncate(ROWS_BESIDE);
            lines.extend(table.lines(Sort::by(1), width, 0));
            lines.push(Line::default());
        }
        lines
    }

    fn head(&self, width: u16) -> Vec<Line<'static>> {
        let report = &self.report;
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let second = match &self.silence {
            Some((reason, time)) => {
                let text = format!(" No answer for {}, trying again: {reason} ", duration(Some(time.as_secs())));
                Line::styled(text, bold.add_modifier(Modifier::REVERSED))
            }
            None => self.tabs(width),
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

    /// All views where they fit, else the one that is shown.
    fn tabs(&self, width: u16) -> Line<'static> {
        let (dim, chosen) = (Modifier::DIM, Modifier::REVERSED);
        let tab = |(number, view): (usize, View)| {
            let look = if view == self.shown { chosen } else { dim };
            Span::styled(format!("{} {}", number + 1, view.title()), Style::new().add_modifier(look))
        };
        let is_shown = |(_, view): &(usize, View)| *view == self.shown;
        let all = View::ALL.into_iter().enumerate();
        let keys = if self.shows_keys { "? closes" } else { "? keys" };
        let (views, end) = match width {
            0..76 => (all.filter(is_shown).collect::<Vec<_>>(), keys.to_owned()),
            76..86 => (all.collect(), keys.to_owned()),
            86..106 => (all.collect(), format!("{keys}  q quits")),
            _ => (all.collect(), format!("{keys}  q quits  every {} s", self.interval.as_secs_f64())),
        };
        let mut spans = Vec::new();
        for one in views {
            spans.push(tab(one));
            spans.push(Span::raw("  "));
        }
        spans.push(Span::styled(end, Style::new().add_modifier(dim)));
        Line::from(spans)
    }

    /// The lines as this terminal can show them, dim while the server is silent.
    fn finish(&self, mut lines: Vec<Line<'static>>, is_dim: bool) -> Vec<Line<'static>> {
        for line in &mut lines {
            if is_dim {
                line.style = line.style.add_modifier(Modifier::DIM);
            }
            for span in &mut line.spans {
                if !self.looks.has_colors {
                    span.style.fg = None;
                }
                if !self.looks.is_utf8 {
                    span.content = span.content.chars().map(ascii).collect::<String>().into();
                }
            }
        }
        lines
    }
}

/// The first `height` rows of an area, and the others.
fn halves(area: Rect, height: u16) -> (Rect, Rect) {
    let height = height.min(area.height);
    (Rect { height, ..area }, Rect { y: area.y + height, height: area.height - height, ..area })
}

/// The character for a bar in a terminal without UTF-8.
fn ascii(character: char) -> char {
    match character {
        '▁' | '▂' => '_',
        '▃' | '▄' => '-',
        '▅' | '▆' => '=',
        '▇' | '█' => '#',
        '░' => '.',
        other if other.is_ascii() => other,
        _ => '?',
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::style::Color;

    use super::super::admin::{AdminReport, CommandLatency, HotKey, LargeObject, PrefixUse, SizeUse, TtlUse};
    use super::super::source::StatsSample;
    use super::*;

    const BEFORE: &str = "pid 7\nuptime 11530\nversion 1.6.18\nthreads 4\nget_hits 100\nget_misses 0\ncmd_set 0\n\
                          evictions 0\nlimit_maxbytes 1048576\nbytes 524288\ncurr_items 4096";
    const NOW: &str = "pid 7\nuptime 11531\nversion 1.6.18\nthreads 4\nget_hits 190\nget_misses 10\ncmd_set 20\n\
                       evictions 3\nlimit_maxbytes 1048576\nbytes 524288\ncurr_items 4096";

    const LOOKS: Looks = Looks { has_colors: true, is_utf8: true };

    fn view(own: &str) -> TopView {
        let start = Instant::now();
        let before = StatsSample::from_lines(start, BEFORE, own);
        let now = StatsSample::from_lines(start + Duration::from_secs(1), NOW, own);
        let mut view = TopView::new(
            TopReport::new("host:1", None, &before, AdminReport::default()),
            Duration::from_secs(1),
            LOOKS,
        );
        view.update(TopReport::new("host:1", Some(&before), &now, AdminReport::default()));
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
        let of_pool = view(&format!("version 0.1.0\nsize_verdict sessions: {text}"));
        assert!(starts(&super::tests::screen(&of_pool, 80, 26), "Size sessions: full; 14.0 % misses;"));
    }

    #[test]
    fn the_headline_comes_first_and_is_wrapped() {
        let text = "The hit ratio fell from 92.0 % to 61.0 %. Keys of flood: take 71.0 % of the memory and give 0.4 % of \
                    the hits.";
        let screen = screen(&view(&format!("version 0.1.0\nheadline {text}")), 80, 26);
        let rows: Vec<&str> = screen.iter().map(|row| row.trim()).collect();
        let first = rows.iter().position(|row| row.starts_with("The hit ratio fell")).expect("the sentence");
        assert_eq!(format!("{} {}", rows[first], rows[first + 1]), text);
        assert!(rows.iter().position(|row| row.starts_with("Hit ratio")).is_some_and(|row| row > first));
    }

    #[test]
    fn the_headline_has_the_color_of_its_level() {
        for (level, color) in [("good", Color::Green), ("attention", Color::Yellow), ("bad", Color::Red)] {
            let view = view(&format!("version 0.1.0\nheadline Something\nheadline_level {level}"));
            let mut terminal = Terminal::new(TestBackend::new(80, 26)).unwrap();
            terminal.draw(|frame| view.draw(frame)).unwrap();
            let cells = terminal.backend().buffer().content();
            let first = cells.chunks(80).find_map(|row| row.iter().find(|cell| cell.symbol() == "S"));
            assert_eq!(first.map(|cell| cell.fg), Some(color), "{level}");
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
        let mut view = TopView::new(
            TopReport::new("host:1", None, &before, AdminReport::default()),
            Duration::from_secs(1),
            LOOKS,
        );
        view.update(TopReport::new("host:1", Some(&before), &now, AdminReport::default()));
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
        let report = TopReport::new("host:1", Some(&sample(0, 0)), &sample(10_000, 0), AdminReport::default());
        let mut view = TopView::new(report.clone(), Duration::from_secs(1), LOOKS);
        view.update(report);
        let screen = screen(&view, 80, 30);
        for row in
            ["pool gets v hit ratio used of items evicted", "users 0/s - 2 MiB 4 MiB 7 0/s", "default - - - - - -"]
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
        assert!(!starts(&screen_of(80, 40), "incr"), "a command that nobody sends");
    }

    #[test]
    fn silence_is_shown_beside_the_last_numbers() {
        let mut view = view("");
        view.silence = Some(("Connection refused".into(), Duration::from_secs(75)));
        let screen = screen(&view, 80, 24);
        assert_eq!(screen[1], " No answer for 1 min 15 s, trying again: Connection refused");
        assert!(starts(&screen, "Hit ratio 90.0 %"));
    }

    #[test]
    fn bars_forget_old_intervals() {
        let mut view = view("");
        let report = view.report.clone();
        for _ in 0..2 * REMEMBERED {
            view.update(report.clone());
        }
        assert_eq!(view.intervals.len(), REMEMBERED);
    }

    fn press(view: &mut TopView, keys: &str) {
        for key in keys.chars() {
            let code = if key == '\t' { KeyCode::Tab } else { KeyCode::Char(key) };
            assert!(!view.handle(KeyEvent::new(code, KeyModifiers::NONE)), "{key} quits");
        }
    }

    /// A view with all data of the admin HTTP.
    fn rich_view() -> TopView {
        let mut view = view("version 0.1.0\nevictions 5\nindex_replaced 1\nexpired 3\nflushed 0");
        let latency = |p99| CommandLatency { count: 9, p50: Some(20.0), p99: Some(p99), ..CommandLatency::default() };
        let key = |key: &str, per_second, hit_ratio| HotKey {
            key: key.to_owned(),
            share: per_second / 100.0,
            per_second,
            hit_ratio: Some(hit_ratio),
            bytes: Some(100),
            ttl_seconds: Some(60),
        };
        view.report.admin = AdminReport {
            latency_us: [("get".to_owned(), latency(150.0)), ("set".to_owned(), latency(2500.0))].into(),
            hot_keys: vec![key("hot", 50.0, 0.5), key("warm", 5.0, 1.0)],
            prefixes: vec![PrefixUse {
                prefix: "user:".to_owned(),
                evictions_per_second: 7.0,
                sets_per_second: 9.0,
                ..PrefixUse::default()
            }],
            ttl_buckets: vec![TtlUse {
                ttl_seconds_min: 60,
                ttl_seconds_max: Some(120),
                segment_bytes: 2048,
                live_bytes: 1024,
                items: 3,
            }],
            sizes: vec![SizeUse { bytes_min: 64, bytes_max: 127, bytes: 512.0, items: 5.0, unread_share: Some(0.2) }],
            largest: vec![LargeObject {
                key: "big".to_owned(),
                bytes: 4096,
                ttl_seconds: None,
                idle_seconds: 9,
                unread: false,
                hit_ratio: Some(0.75),
            }],
            ..AdminReport::default()
        };
        view
    }

    #[test]
    fn digits_and_tab_switch_the_view() {
        let mut view = rich_view();
        for (key, row) in [
            ("2", "get 100/s 150 us 90.0 % 20 us"),
            ("\t", "hot 50/s 50.0 % 50.0 % 100 B 1 min"),
            ("4", "evicted: memory was full 0/s 4"),
            ("4", "user: 7/s"),
            ("5", "The server has one pool; --pool"),
            ("6", "1 min to 2 min 2 KiB 3 50.0 %"),
            ("6", "64 B to 128 B 512 B 5 20.0 %"),
            ("6", "big 4 KiB 75.0 % - 9 s"),
            ("1", "Hit ratio 90.0 %"),
        ] {
            press(&mut view, key);
            let screen = screen(&view, 120, 30);
            assert!(starts(&screen, row), "{row}\n{}", screen.join("\n"));
        }
    }

    #[test]
    fn prefixes_have_their_sets() {
        let mut view = rich_view();
        press(&mut view, "4");
        let screen = screen(&view, 160, 30);
        assert!(starts(&screen, "user: 7/s 0 B - - - - - 0/s - 9/s"), "{}", screen.join("\n"));
        assert!(screen.iter().any(|row| row.starts_with("prefix") && row.contains("sets")), "{}", screen.join("\n"));
    }

    #[test]
    fn keys_sort_and_reverse_the_rows() {
        let first = |view: &TopView| screen(view, 120, 30)[3].split_whitespace().next().unwrap().to_owned();
        let mut view = rich_view();
        press(&mut view, "2");
        assert_eq!(first(&view), "get");
        press(&mut view, "s");
        assert_eq!(first(&view), "set", "by p99");
        press(&mut view, "r");
        assert_eq!(first(&view), "get", "by p99, reversed");
        press(&mut view, "<<r");
        assert_eq!(first(&view), "set", "by name, reversed");
        view.handle(KeyEvent::new(KeyCode::Down, KeyModifiers::NONE));
        assert_eq!(first(&view), "get", "one row further");
    }

    #[test]
    fn question_mark_lists_the_keys_escape_closes_them() {
        let mut view = rich_view();
        press(&mut view, "?");
        let wide = screen(&view, 80, 24);
        for (key, effect) in KEYS {
            assert!(starts(&wide, &format!("{key} {effect}")), "{key}\n{}", wide.join("\n"));
        }
        assert!(screen(&view, 20, 24).join(" ").contains("reverse"), "also in 20 columns");
        assert!(!view.handle(KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE)), "closes the keys");
        assert!(starts(&screen(&view, 80, 24), "ebbtide 0.1.0"));
        assert!(view.handle(KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE)), "quits");
    }

    #[test]
    fn every_view_fits_20_columns_wider_shows_more() {
        let mut view = rich_view();
        for (key, row) in [("2", "get 100/s"), ("3", "hot 50/s"), ("4", "user: 7/s"), ("6", "big 4 KiB")] {
            press(&mut view, key);
            let narrow = screen(&view, 20, 24);
            assert!(starts(&narrow, row), "{row}\n{}", narrow.join("\n"));
            assert!(narrow[1].contains("? keys"), "{}", narrow[1]);
        }
        press(&mut view, "1");
        let wide = screen(&view, 160, 30).join("\n");
        for text in ["Hit ratio", "p99", "hot ", "evicted: memory was full"] {
            assert!(wide.contains(text), "{text}\n{wide}");
        }
    }

    #[test]
    fn terminals_without_colors_or_utf8_get_neither() {
        let mut view = rich_view();
        view.looks = Looks { has_colors: false, is_utf8: false };
        for key in ["1", "2", "3", "4", "5", "6", "?"] {
            press(&mut view, key);
            for width in [80, 160] {
                let mut terminal = Terminal::new(TestBackend::new(width, 30)).unwrap();
                terminal.draw(|frame| view.draw(frame)).unwrap();
                for cell in terminal.backend().buffer().content() {
                    assert!(cell.symbol().is_ascii(), "{key}: {}", cell.symbol());
                    assert_eq!(cell.fg, ratatui::style::Color::Reset, "{key}");
                }
            }
        }
    }
}
