//! The curves as a picture: miss ratio by memory on a logarithmic axis, intervals as bands.

use plotters::element::DashedPathElement;
use plotters::prelude::*;

use super::report::{Labelled, Report};
use crate::Error;
use ebbtide::ByteSize;

const WIDTH: u32 = 900;
const HEIGHT: u32 = 540;
/// Colours of the Okabe-Ito palette, which readers with colour blindness can distinguish, too.
pub(crate) const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(80, 80, 80),
];

/// Pixels drawn and left out: one pair for each turn through the colours.
const DASHES: [(u32, u32); 4] = [(LEGEND_WIDTH as u32, 0), (8, 4), (2, 3), (14, 3)];
const LEGEND_WIDTH: i32 = 24;

/// The picture as SVG.
pub(super) fn draw(report: &Report) -> Result<String, Error> {
    let mut text = String::new();
    draw_into(report, &mut text).map_err(|error| Error::Drawing(error.to_string()))?;
    Ok(text)
}

fn draw_into(report: &Report, text: &mut String) -> Result<(), DrawingAreaErrorKind<std::io::Error>> {
    let (min, max) = report.memory_range();
    let area = SVGBackend::with_string(text, (WIDTH, HEIGHT)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .margin(16)
        .caption(report.title(), ("sans-serif", 18))
        .x_label_area_size(44)
        .y_label_area_size(56)
        .build_cartesian_2d((min..max).log_scale(), 0.0..report.highest_miss_ratio())?;
    chart
        .configure_mesh()
        .x_desc("memory")
        .y_desc("miss ratio")
        .x_label_formatter(&|bytes| rounded(*bytes))
        .light_line_style(RGBColor(235, 235, 235))
        .draw()?;
    for (number, (labelled, colour)) in report.curves.iter().zip(COLOURS.iter().cycle()).enumerate() {
        let points = || labelled.curve.points().iter();
        let band: Vec<(f64, f64)> = points()
            .map(|point| (point.memory_bytes as f64, point.high))
            .chain(points().rev().map(|point| (point.memory_bytes as f64, point.low)))
            .collect();
        if has_interval(labelled) {
            chart.draw_series(std::iter::once(Polygon::new(band, colour.mix(0.15))))?;
        }
        let line = points().map(|point| (point.memory_bytes as f64, point.miss_ratio));
        let style = colour.stroke_width(2);
        // From the second use of a colour on, dashes distinguish the curves.
        let (dash, gap) = DASHES[number / COLOURS.len() % DASHES.len()];
        let legend =
            move |(x, y): (i32, i32)| DashedPathElement::new([(x, y), (x + LEGEND_WIDTH, y)], dash, gap, style);
        let series = if gap == 0 {
            chart.draw_series(LineSeries::new(line, style))?
        } else {
            chart.draw_series(DashedLineSeries::new(line, dash, gap, style))?
        };
        series.label(labelled.name()).legend(legend);
    }
    chart.configure_series_labels().border_style(RGBColor(200, 200, 200)).background_style(WHITE.mix(0.8)).draw()?;
    area.present()?;
    Ok(())
}

fn has_interval(labelled: &Labelled) -> bool {
    labelled.curve.points().iter().any(|point| point.high > point.low)
}

/// A size with two digits, as an axis has space for.
pub(crate) fn rounded(bytes: f64) -> String {
    let unit = 1u64 << (bytes.max(1.0).log2() as u64 / 10 * 10);
    let count = bytes / unit as f64;
    let digits = if count < 9.95 { 1 } else { 0 };
    let name = ByteSize::bytes(unit).to_string();
    let name = name.trim_start_matches(|c: char| c.is_ascii_digit());
    format!("{count:.digits$}{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_the_axis_are_short() {
        assert_eq!(rounded(1.0 * 1024.0 * 1024.0), "1.0 MiB");
        assert_eq!(rounded(64.0 * 1024.0), "64 KiB");
        assert_eq!(rounded(3.26 * 1024.0 * 1024.0 * 1024.0), "3.3 GiB");
    }
}
