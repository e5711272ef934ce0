//! The curves as a plot of characters.

use std::io::{self, IsTerminal, Write};

use ratatui::buffer::Buffer;
use ratatui::crossterm::terminal;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::symbols::Marker;
use ratatui::widgets::{Axis, Chart, Dataset, GraphType, Widget};

use super::report::Report;
use super::svg::rounded;
use crate::locale::takes_utf8;

/// Columns of the plot; a terminal with fewer gets a narrower plot, as wrapped rows are no plot.
const MAX_WIDTH: u16 = 78;
const MIN_WIDTH: u16 = 20;
/// Columns in which three sizes have a place below the axis; in fewer there are the first and the last.
const THREE_LABELS_WIDTH: u16 = 40;
const HEIGHT: u16 = 18;
/// A character for each curve, as a plot that is piped has no colours.
const MARKS: &str = "*o+x#@ABCDEFGHIJKLMNPQRSTUVWYZ";
/// Places between two sizes at which a curve is drawn.
const STEPS: usize = 60;

/// Draws all curves into one plot, each with a character of its own.
pub(super) fn draw(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let (min, max) = report.memory_range();
    let highest = report.highest_miss_ratio();
    let lines: Vec<Vec<(f64, f64)>> = report
        .curves
        .iter()
        .map(|labelled| {
            let at = |step: usize| min * (max / min).powf(step as f64 / STEPS as f64);
            let point = |step| {
                let ratio = labelled.curve.miss_ratio_at(at(step) as u64)?;
                Some((at(step).log2(), ratio))
            };
            (0..=STEPS).filter_map(point).collect()
        })
        .collect();
    let marks = || MARKS.chars().cycle();
    let datasets = lines.iter().zip(marks()).map(|(line, mark)| {
        Dataset::default()
            .marker(Marker::Custom(mark))
            .graph_type(GraphType::Scatter)
            .style(Style::default().fg(Color::Reset))
            .data(line)
    });
    let (width, is_utf8) = (width(), takes_utf8());
    let is_narrow = width < THREE_LABELS_WIDTH;
    let sizes = [min, f64::sqrt(min * max), max].map(|size| if is_narrow { String::new() } else { rounded(size) });
    let chart =
        Chart::new(datasets.collect()).x_axis(Axis::default().bounds([min.log2(), max.log2()]).labels(sizes)).y_axis(
            Axis::default().bounds([0.0, highest]).labels([0.0, highest / 2.0, highest].map(|y| format!("{y:.2}"))),
        );
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, HEIGHT));
    chart.render(buffer.area, &mut buffer);
    writeln!(out)?;
    for row in 0..HEIGHT {
        let line: String = (0..width).map(|column| shown(buffer[(column, row)].symbol(), is_utf8)).collect();
        match is_narrow && row + 1 == HEIGHT {
            true => writeln!(out, "{}", ends(&rounded(min), &rounded(max), usize::from(width)))?,
            false => writeln!(out, "{}", line.trim_end())?,
        }
    }
    for (labelled, mark) in report.curves.iter().zip(marks()) {
        writeln!(out, "{mark} {}", labelled.name())?;
    }
    Ok(())
}

/// The ends of a narrow axis, which the chart would cut.
fn ends(min: &str, max: &str, width: usize) -> String {
    format!("{min} {max:>0$}", width.saturating_sub(min.chars().count() + 1))
}

fn width() -> u16 {
    let columns = io::stdout().is_terminal().then(terminal::size).and_then(Result::ok).map(|(columns, _)| columns);
    columns.map_or(MAX_WIDTH, |columns| columns.clamp(MIN_WIDTH, MAX_WIDTH))
}

/// The lines of the axes in ASCII where the terminal does not take UTF-8.
fn shown(symbol: &str, is_utf8: bool) -> &str {
    match symbol {
        _ if is_utf8 => symbol,
        "─" => "-",
        "│" => "|",
        "└" => "+",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::ends;

    #[test]
    fn a_narrow_axis_has_whole_sizes() {
        assert_eq!(ends("1.0 MiB", "4.0 MiB", 20), "1.0 MiB      4.0 MiB");
        assert_eq!(ends("512 KiB", "1023.9 GiB", 12), "512 KiB 1023.9 GiB");
    }
}
