//! The advice as one page that needs nothing else: text, tables and charts, with the numbers of `--json` inside.

use std::fmt::Write;

use ebbtide_control::Curve;
use plotters::prelude::*;

use super::plan::Plan;
use super::pools::PoolAdvice;
use super::report::{Advice, hits, words};
use super::units::{money, size};
use crate::Error;
use crate::format::utc;
use crate::mrc::TraceLoad;

const WIDTH: u32 = 480;
const HEIGHT: u32 = 300;
/// Of the labels of a chart, in its pixels: a phone shows it at three quarters of its width.
const FONT: (&str, u32) = ("sans-serif", 13);
/// Of the Okabe-Ito palette.
const BLUE: RGBColor = RGBColor(0, 114, 178);
const ORANGE: RGBColor = RGBColor(213, 94, 0);

const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1c2330; --soft: #5b6472; --paper: #f6f7f9; --card: #fff; --line: #dde1e7; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --soft: #a2abb8; --paper: #14171c; --card: #1d2229; --line: #323a45; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, sans-serif; }
main { max-width: 860px; margin: 0 auto; padding: 32px 16px 64px; }
h1 { font-size: 1.7rem; margin: 0; } h2 { font-size: 1.15rem; margin: 36px 0 12px; }
p { margin: 6px 0; } p::first-letter { text-transform: uppercase; } .soft { color: var(--soft); }
.verdict { background: var(--card); border-left: 4px solid #0072b2; border-radius: 6px; padding: 14px 18px; margin: 20px 0; }
.verdict p:first-child { font-size: 1.1rem; font-weight: 600; }
figure { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: 8px; }
figure svg { width: 100%; max-width: 680px; height: auto; display: block; margin: 0 auto; }
@media (prefers-color-scheme: dark) { figure svg { filter: invert(1) hue-rotate(180deg); } }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; background: var(--card); }
th, td { padding: 6px 12px; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } th { color: var(--soft); font-weight: 600; }
@media (max-width: 480px) { th, td { padding: 6px; font-size: 0.85rem; } th { white-space: normal; vertical-align: bottom; } }
";

/// The page, with the version that made it and the seconds since 1970 at which it did.
///
/// # Errors
/// [`Error::Drawing`] if a chart cannot be drawn.
pub(super) fn page(advice: &Advice, load: &TraceLoad, made_unix_seconds: u64) -> Result<String, Error> {
    let name = escaped(advice.trace.rsplit('/').next().unwrap_or(&advice.trace));
    let mut body = String::new();
    let put = |body: &mut String, text: &str| body.push_str(text);
    put(&mut body, &format!("<h1>How much memory for {name}?</h1>"));
    put(
        &mut body,
        &format!(
            "<p class=soft>{} gets in {} s, {:.1} a second; {} objects of {:.0} B, {} in all</p>",
            advice.gets,
            advice.seconds,
            advice.demand.gets_per_second,
            advice.objects,
            advice.demand.object_bytes,
            size(advice.footprint_bytes as f64)
        ),
    );
    put(&mut body, "<div class=verdict>");
    advice.verdict.iter().for_each(|sentence| put(&mut body, &format!("<p>{}.</p>", escaped(sentence))));
    put(&mut body, "</div><h2>Hits by memory</h2><figure>");
    put(&mut body, &hits_by_memory(load)?);
    put(&mut body, "</figure><h2>DRAM alone</h2>");
    put(&mut body, &dram_table(advice));
    let hybrids = [
        advice.wanted.as_ref().and_then(|wanted| wanted.hybrid),
        advice.budget.as_ref().and_then(|budget| budget.hybrid),
    ];
    for plan in hybrids.into_iter().flatten() {
        put(&mut body, &format!("<h2>{}</h2>", escaped(&words(&plan, &advice.currency))));
        let rows = [
            ("hits", hits(&plan)),
            ("of them in DRAM", format!("{:.1} %", plan.dram_hit_ratio * 100.0)),
            ("reads of flash a second", format!("{:.1}", plan.flash_reads_per_second)),
            ("drive writes a day", format!("{:.2}", plan.drive_writes_per_day)),
            ("the drive writes for each byte", format!("{:.2} bytes", plan.device_amplification)),
            ("life of the drive", plan.flash_life_years.map_or("-".to_owned(), |years| format!("{years:.1} years"))),
            ("mean latency", format!("{:.3} ms", plan.mean_latency_ms)),
            ("first limit", format!("{}, {:.1} % used", plan.binding, plan.binding_used * 100.0)),
            ("flags of the server", flags_of(&plan)),
        ];
        put(&mut body, "<div class=scroll><table>");
        rows.iter().for_each(|(name, value)| put(&mut body, &format!("<tr><td>{name}</td><td>{value}</td></tr>")));
        put(&mut body, "</table></div>");
    }
    if let Some(pools) = &advice.pools {
        put(&mut body, &pool_table(pools, &advice.currency));
    }
    if advice.slabs.is_some() {
        put(&mut body, &slab_table(advice));
    }
    put(&mut body, "<h2>RAM for each item on flash</h2><figure>");
    put(&mut body, &ram_per_item(advice)?);
    put(&mut body, "</figure><h2>Notes</h2>");
    advice.caveats.iter().for_each(|caveat| put(&mut body, &format!("<p class=soft>{}.</p>", escaped(caveat))));
    let (version, made) = (env!("CARGO_PKG_VERSION"), utc(made_unix_seconds));
    put(&mut body, &format!("<p class=soft id=made>Made by ebbtide {version} on {made}.</p>"));
    let json = serde_json::to_string(advice).map_err(std::io::Error::from)?.replace("</", "<\\/");
    Ok(format!(
        "<!doctype html><html lang=en><head><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
         <title>Memory for {name}</title><style>{STYLE}</style></head><body><main>{body}</main>\
         <script type=\"application/json\" id=advice>{json}</script></body></html>\n"
    ))
}

fn flags_of(plan: &Plan) -> String {
    plan.flags.map_or_else(|| "-".to_owned(), |flags| flags.to_string())
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn dram_table(advice: &Advice) -> String {
    let mut table = format!(
        "<div class=scroll><table id=dram><tr><th>DRAM</th><th>price, {}</th><th>hits</th><th>backend a second</th>\
         <th>mean latency</th><th>flags</th></tr>",
        escaped(&advice.currency)
    );
    for plan in &advice.dram {
        write!(
            table,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{:.1}</td><td>{:.3} ms</td><td>{}</td></tr>",
            size(plan.dram_bytes),
            money(plan.price),
            hits(plan),
            plan.backend_per_second,
            plan.mean_latency_ms,
            flags_of(plan)
        )
        .expect("a string takes all");
    }
    table + "</table></div>"
}

fn slab_table(advice: &Advice) -> String {
    let Some(slabs) = &advice.slabs else { return String::new() };
    let mut table = format!(
        "<h2>A memcached with slab classes, {}</h2><div class=scroll><table><tr><th>chunk</th><th>gets</th>\
         <th>first come</th><th>hits</th><th>optimal</th><th>hits</th></tr>",
        slabs.words()
    );
    for class in &slabs.classes {
        write!(
            table,
            "<tr><td>{}</td><td>{:.1} %</td><td>{}</td><td>{:.1} %</td><td>{}</td><td>{:.1} %</td></tr>",
            class.chunk_bytes,
            class.share_of_gets * 100.0,
            size(class.first_come_bytes as f64),
            class.first_come_hit_ratio * 100.0,
            size(class.optimal_bytes as f64),
            class.optimal_hit_ratio * 100.0
        )
        .expect("a string takes all");
    }
    table + "</table></div>"
}

fn pool_table(pools: &PoolAdvice, currency: &str) -> String {
    let memory = size(pools.memory_bytes as f64);
    let mut table = format!(
        "<h2>{memory} by {}</h2><div class=scroll><table id=pools><tr><th>{}</th><th>gets</th><th>deserves</th>\
         <th>price, {}</th><th>hits</th></tr>",
        pools.by,
        pools.by,
        escaped(currency)
    );
    for pool in &pools.pools {
        write!(
            table,
            "<tr><td>{}</td><td>{:.1} %</td><td>{}</td><td>{}</td><td>{:.1} %</td></tr>",
            escaped(&pool.name),
            pool.share_of_gets * 100.0,
            size(pool.memory_bytes as f64),
            money(pool.price),
            pool.hit_ratio * 100.0
        )
        .expect("a string takes all");
    }
    table + "</table></div>"
}

/// The page shows through a chart, and inverts it in the dark.
type DrawingError = DrawingAreaErrorKind<std::io::Error>;

fn drawn(draw: impl FnOnce(&mut String) -> Result<(), DrawingError>) -> Result<String, Error> {
    let mut text = String::new();
    draw(&mut text).map_err(|error| Error::Drawing(error.to_string()))?;
    Ok(text)
}

fn hits_by_memory(load: &TraceLoad) -> Result<String, Error> {
    let curves: [(&str, &Curve, RGBColor); 2] =
        [("Ebbtide", &load.engine, BLUE), ("LRU, without overhead", &load.lru, ORANGE)];
    let sizes = || curves.iter().flat_map(|(_, curve, _)| curve.points()).map(|point| point.memory_bytes as f64);
    let (smallest, largest) = (sizes().fold(f64::INFINITY, f64::min), sizes().fold(2.0, f64::max));
    drawn(|text| {
        let area = SVGBackend::with_string(text, (WIDTH, HEIGHT)).into_drawing_area();
        let mut chart = ChartBuilder::on(&area)
            .margin(12)
            .margin_right(30)
            .x_label_area_size(40)
            .y_label_area_size(52)
            .build_cartesian_2d((smallest.min(largest / 2.0)..largest).log_scale().base(2.0), 0.0..100.0)?;
        chart
            .configure_mesh()
            .x_desc("memory")
            .y_desc("hits, %")
            .y_label_formatter(&|percent| format!("{percent:.0}"))
            .x_label_formatter(&|bytes| size(*bytes))
            .x_labels(6)
            .label_style(FONT)
            .axis_desc_style(FONT)
            .light_line_style(TRANSPARENT)
            .bold_line_style(RGBColor(205, 205, 205))
            .draw()?;
        for (name, curve, colour) in curves {
            let line = curve.points().iter().map(|point| (point.memory_bytes as f64, 100.0 * (1.0 - point.miss_ratio)));
            let series = chart.draw_series(LineSeries::new(line, colour.stroke_width(2)))?;
            series.label(name).legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .border_style(RGBColor(200, 200, 200))
            .label_font(FONT)
            .background_style(WHITE.mix(0.8))
            .draw()?;
        area.present()
    })
}

fn ram_per_item(advice: &Advice) -> Result<String, Error> {
    drawn(|text| {
        let area = SVGBackend::with_string(text, (WIDTH, HEIGHT)).into_drawing_area();
        let mut chart = ChartBuilder::on(&area)
            .margin(12)
            .margin_right(30)
            .x_label_area_size(40)
            .y_label_area_size(52)
            .build_cartesian_2d((64.0..65_536.0).log_scale().base(2.0), (0.001..200.0).log_scale())?;
        chart
            .configure_mesh()
            .x_desc("bytes of an item")
            .y_desc("RAM, % of its bytes")
            .x_label_formatter(&|bytes| size(*bytes))
            .x_labels(6)
            .label_style(FONT)
            .axis_desc_style(FONT)
            .light_line_style(TRANSPARENT)
            .bold_line_style(RGBColor(205, 205, 205))
            .draw()?;
        let share = |of: f64, bytes: u64| (bytes as f64, 100.0 * of / bytes as f64);
        let ebbtide = advice.ram_per_item.iter().map(|row| share(row.ebbtide_bytes, row.item_bytes));
        let extstore = advice.ram_per_item.iter().map(|row| share(row.extstore_bytes, row.item_bytes));
        let series = chart.draw_series(LineSeries::new(ebbtide, BLUE.stroke_width(2)))?;
        series.label("Ebbtide").legend(|(x, y)| PathElement::new([(x, y), (x + 18, y)], BLUE.stroke_width(2)));
        let series = chart.draw_series(LineSeries::new(extstore, ORANGE.stroke_width(2)))?;
        series.label("extstore").legend(|(x, y)| PathElement::new([(x, y), (x + 18, y)], ORANGE.stroke_width(2)));
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .border_style(RGBColor(200, 200, 200))
            .label_font(FONT)
            .background_style(WHITE.mix(0.8))
            .draw()?;
        area.present()
    })
}
