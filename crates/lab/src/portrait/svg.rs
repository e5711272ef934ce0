//! Figures 3 to 6 of the CacheLib paper for this trace.

use plotters::coord::Shift;
use plotters::prelude::*;

use super::arrivals::ArrivalDispersion;
use super::measure::Portrait;
use crate::Error;
use crate::mrc::{COLOURS, rounded_size};
use crate::trace::loaded::LoadedTrace;
use crate::workload::Random;

const WIDTH: u32 = 720;
const HEIGHT: u32 = 480;
/// Ranks and sizes that a line has.
const STEPS: usize = 200;

type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The names of files and their content. A figure of nothing is left out.
pub(super) fn draw(trace: &LoadedTrace, portrait: &Portrait) -> Result<Vec<(&'static str, String)>, Error> {
    let name = trace.trace.rsplit('/').next().unwrap_or(&trace.trace);
    let figure = |draw: &dyn Fn(&Area<'_>, &str) -> Drawn| -> Result<String, Error> {
        let mut text = String::new();
        {
            let area = SVGBackend::with_string(&mut text, (WIDTH, HEIGHT)).into_drawing_area();
            let drawn = area.fill(&WHITE).and_then(|()| draw(&area, name)).and_then(|()| area.present());
            drawn.map_err(|error| Error::Drawing(error.to_string()))?;
        }
        Ok(text)
    };
    let mut figures = vec![
        ("popularity.svg", figure(&|area, name| popularity(area, name, portrait))?),
        ("sizes.svg", figure(&|area, name| sizes(area, name, portrait))?),
    ];
    if portrait.churn.still_popular.len() > 1 {
        figures.push(("churn.svg", figure(&|area, name| churn(area, name, &portrait.churn.still_popular))?));
    }
    if portrait.arrivals.two_minutes.len() > 1 {
        figures.push(("arrivals.svg", figure(&|area, name| arrivals(area, name, &portrait.arrivals))?));
    }
    Ok(figures)
}

/// Requests by rank, and the law.
fn popularity(area: &Area<'_>, name: &str, portrait: &Portrait) -> Drawn {
    let requests = &portrait.objects.requests;
    let ranks = requests.len().max(2) as f64;
    let at = |step: usize| ranks.powf(step as f64 / STEPS as f64);
    let highest = requests.first().map_or(2.0, |&max_requests| (max_requests as f64 * 1.5).max(2.0));
    let mut chart = ChartBuilder::on(area)
        .margin(16)
        .caption(format!("{name}: requests by popularity"), ("sans-serif", 16))
        .x_label_area_size(40)
        .y_label_area_size(64)
        .build_cartesian_2d((1.0..ranks).log_scale(), (0.9..highest).log_scale())?;
    chart.configure_mesh().x_desc("rank").y_desc("requests").light_line_style(WHITE).draw()?;
    let points = (0..=STEPS).filter_map(|step| {
        let rank = at(step).round().max(1.0);
        Some((rank, *requests.get(rank as usize - 1)? as f64))
    });
    chart.draw_series(LineSeries::new(points, COLOURS[0].stroke_width(2)))?.label("objects").legend(line(0));
    if let Some(law) = portrait.law {
        let points = (0..=STEPS).map(|step| (at(step), law.requests(at(step)).max(0.9)));
        let label = format!("Zipf, alpha {:.2}, flat head {:.0}", law.alpha, law.flat_head.max(0.0));
        chart.draw_series(LineSeries::new(points, COLOURS[1].stroke_width(2)))?.label(label).legend(line(1));
    }
    chart.configure_series_labels().position(SeriesLabelPosition::UpperRight).background_style(WHITE).draw()
}

/// Share of objects and of gets that are smaller.
fn sizes(area: &Area<'_>, name: &str, portrait: &Portrait) -> Drawn {
    let classes = &portrait.objects.classes;
    let first = classes.first().map_or(1.0, |class| class.from_bytes as f64);
    let last = classes.last().map_or(2.0, |class| class.from_bytes as f64 * 2.0);
    let mut chart = ChartBuilder::on(area)
        .margin(16)
        .caption(format!("{name}: objects of less than a size"), ("sans-serif", 16))
        .x_label_area_size(40)
        .y_label_area_size(64)
        .build_cartesian_2d((first..last).log_scale(), 0.0..1.0)?;
    let label = |bytes: &f64| rounded_size(*bytes);
    let mesh = &mut chart.configure_mesh();
    mesh.x_desc("key and value").y_desc("share").x_label_formatter(&label).light_line_style(WHITE).draw()?;
    let shares = ["objects", "bytes", "gets"].into_iter().enumerate();
    for (number, what) in shares {
        let of = |class: &super::objects::SizeClass| [class.objects, class.bytes, class.gets][number] as f64;
        let total: f64 = classes.iter().map(of).sum::<f64>().max(1.0);
        let mut smaller = 0.0;
        let steps = classes.iter().map(|class| {
            smaller += of(class);
            (class.from_bytes as f64 * 2.0, smaller / total)
        });
        let points = std::iter::once((first, 0.0)).chain(steps);
        let style = COLOURS[number].stroke_width(2);
        chart.draw_series(LineSeries::new(points, style))?.label(what).legend(line(number));
    }
    chart.configure_series_labels().position(SeriesLabelPosition::LowerRight).background_style(WHITE).draw()
}

/// The share that is popular still, by hours.
fn churn(area: &Area<'_>, name: &str, still: &[f64]) -> Drawn {
    let mut chart = ChartBuilder::on(area)
        .margin(16)
        .caption(format!("{name}: popular objects still in the top tenth"), ("sans-serif", 16))
        .x_label_area_size(40)
        .y_label_area_size(64)
        .build_cartesian_2d(0.5..still.len() as f64 - 0.5, 0.0..1.0)?;
    chart.configure_mesh().x_desc("hours later").y_desc("share").light_line_style(WHITE).draw()?;
    let bars = still.iter().enumerate().skip(1).map(|(hour, &share)| {
        let middle = hour as f64;
        Rectangle::new([(middle - 0.35, 0.0), (middle + 0.35, share)], COLOURS[0].filled())
    });
    chart.draw_series(bars)?;
    Ok(())
}

/// Requests of each two minutes beside arrivals by chance at the same mean.
fn arrivals(area: &Area<'_>, name: &str, arrivals: &ArrivalDispersion) -> Drawn {
    let counts = &arrivals.two_minutes;
    let mean = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
    let mut random = Random::new(1, 0);
    let by_chance: Vec<u64> = counts.iter().map(|_| random.next_poisson(mean)).collect();
    let highest = counts.iter().chain(&by_chance).copied().max().unwrap_or(1).max(1) as f64 * 1.1;
    let mut chart = ChartBuilder::on(area)
        .margin(16)
        .caption(format!("{name}: requests in two minutes"), ("sans-serif", 16))
        .x_label_area_size(40)
        .y_label_area_size(72)
        .build_cartesian_2d(0.0..counts.len() as f64 / 30.0, 0.0..highest)?;
    chart.configure_mesh().x_desc("hours").y_desc("requests").light_line_style(WHITE).draw()?;
    for (number, (what, counts)) in [("trace", counts), ("Poisson", &by_chance)].into_iter().enumerate() {
        let points = counts.iter().enumerate().map(|(at, &count)| (at as f64 / 30.0, count as f64));
        chart.draw_series(LineSeries::new(points, COLOURS[number].stroke_width(1)))?.label(what).legend(line(number));
    }
    chart.configure_series_labels().position(SeriesLabelPosition::LowerRight).background_style(WHITE).draw()
}

/// The sample of a line in a legend.
fn line(number: usize) -> impl Fn((i32, i32)) -> PathElement<(i32, i32)> {
    move |(x, y)| PathElement::new([(x, y), (x + 18, y)], COLOURS[number].stroke_width(2))
}
