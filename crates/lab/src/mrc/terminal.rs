//! The curves as a plot of characters.

use std::io::{self, Write};

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::symbols::Marker;
use ratatui::widgets::{Axis, Chart, Dataset, GraphType, Widget};

use super::report::Report;
use super::svg::rounded;

const WIDTH: u16 = 78;
const HEIGHT: u16 = 18;
/// A character for each curve, as a plot that is piped has no colours.
const MARKS: &str = "*o+x#@ABCDEFGHIJKLMNPQRSTUVWYZ";
/// Places between two sizes at which a curve is drawn.
const STEPS: usize = 60;

/// Draws all curves into one plot, each with a character of its own.
pub(super) fn draw(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let (least, most) = report.memory_range();
    let highest = report.highest_miss_ratio();
    let lines: Vec<Vec<(f64, f64)>> = report
        .curves
        .iter()
        .map(|labelled| {
            let at = |step: usize| least * (most / least).powf(step as f64 / STEPS as f64);
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
    let middle = f64::sqrt(least * most);
    let chart = Chart::new(datasets.collect())
        .x_axis(Axis::default().bounds([least.log2(), most.log2()]).labels([least, middle, most].map(rounded)))
        .y_axis(
            Axis::default().bounds([0.0, highest]).labels([0.0, highest / 2.0, highest].map(|y| format!("{y:.2}"))),
        );
    let mut buffer = Buffer::empty(Rect::new(0, 0, WIDTH, HEIGHT));
    chart.render(buffer.area, &mut buffer);
    writeln!(out)?;
    for row in 0..HEIGHT {
        let line: String = (0..WIDTH).map(|column| buffer[(column, row)].symbol()).collect();
        writeln!(out, "{}", line.trim_end())?;
    }
    for (labelled, mark) in report.curves.iter().zip(marks()) {
        writeln!(out, "{mark} {}", labelled.name())?;
    }
    Ok(())
}
