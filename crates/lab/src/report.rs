use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Number, Value};

use crate::format;

/// Prints a report: one JSON object in one line, or a line `name value` per field.
pub(crate) fn print(report: &impl Serialize, json: bool, out: &mut impl Write) -> io::Result<()> {
    let value = serde_json::to_value(report)?;
    if json { writeln!(out, "{}", serde_json::to_string(report)?) } else { print_fields("", &value, out) }
}

fn print_fields(prefix: &str, value: &Value, out: &mut impl Write) -> io::Result<()> {
    let Value::Object(fields) = value else {
        return match value {
            Value::String(text) => writeln!(out, "{prefix:<24} {text}"),
            Value::Number(number) => {
                writeln!(out, "{:<24} {}", without_unit(prefix), number_with_unit(prefix, number))
            }
            Value::Null => writeln!(out, "{:<24} -", without_unit(prefix)),
            Value::Array(elements) if elements.is_empty() => writeln!(out, "{prefix:<24} -"),
            Value::Array(elements) if elements.iter().all(Value::is_object) => {
                elements.iter().try_for_each(|element| writeln!(out, "{prefix:<24} {}", element_line(element)))
            }
            Value::Array(elements) if elements.iter().all(Value::is_string) => {
                let texts: Vec<&str> = elements.iter().filter_map(Value::as_str).collect();
                writeln!(out, "{prefix:<24} {}", texts.join(", "))
            }
            other => writeln!(out, "{prefix:<24} {other}"),
        };
    };
    for (name, field) in fields {
        print_fields(&path(prefix, name), field, out)?;
    }
    Ok(())
}

/// The name of a field of an object that is a field itself.
fn path(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") }
}

/// A csv text: a row for each report, a column for each number or text in them. Lists are left out.
pub(crate) fn csv(reports: &[impl Serialize]) -> io::Result<String> {
    let mut columns: Vec<String> = Vec::new();
    let mut rows = Vec::new();
    for report in reports {
        let mut cells = Vec::new();
        collect_cells("", &serde_json::to_value(report)?, &mut cells);
        for (name, _) in &cells {
            if !columns.contains(name) {
                columns.push(name.clone());
            }
        }
        rows.push(cells);
    }
    let mut text = columns.join(",") + "\n";
    for cells in rows {
        let cell = |column| cells.iter().find(|(name, _)| name == column).map_or("", |(_, cell)| cell);
        text.push_str(&(columns.iter().map(cell).collect::<Vec<_>>().join(",") + "\n"));
    }
    Ok(text)
}

fn collect_cells(name: &str, value: &Value, cells: &mut Vec<(String, String)>) {
    let cell = match value {
        Value::Object(fields) => {
            return fields.iter().for_each(|(key, value)| collect_cells(&path(name, key), value, cells));
        }
        Value::Array(_) => return,
        Value::Null => String::new(),
        Value::String(text) if text.contains([',', '"', '\n']) => format!("\"{}\"", text.replace('"', "\"\"")),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    cells.push((name.to_owned(), cell));
}

/// An element of a list in one line: `name value, name value`.
fn element_line(element: &Value) -> String {
    let fields = element.as_object().into_iter().flatten();
    let shown = fields.map(|(name, value)| match value {
        Value::String(text) => format!("{name} {text}"),
        Value::Number(number) => format!("{} {}", without_unit(name), number_with_unit(name, number)),
        Value::Null => format!("{} -", without_unit(name)),
        other => format!("{name} {other}"),
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// The name of a field without a unit that its number is not shown in.
fn without_unit(name: &str) -> &str {
    name.strip_suffix("_us").unwrap_or(name)
}

/// A number for people: three significant digits, with the unit in the name of its field. The JSON object has all
/// digits.
fn number_with_unit(name: &str, number: &Number) -> String {
    let value = number.as_f64().unwrap_or(0.0);
    let field = name.rsplit('.').next().unwrap_or(name);
    let ends = |end: &str| field.ends_with(end);
    match () {
        () if field == "seed" => number.to_string(),
        () if ends("bytes") || field.starts_with("bytes_") => {
            format!("{} B", format::scaled(value, 1024.0, &["", " Ki", " Mi", " Gi", " Ti"])).replace("i B", "iB")
        }
        () if is_part(field) => format!("{} %", format::digits(value * 100.0)),
        () if ends("_per_second") => format::rate(Some(value)),
        () if ends("seconds") => format!("{} s", format::digits(value)),
        () if ends("_us") => format::scaled(value, 1000.0, &[" us", " ms", " s"]),
        () if number.is_f64() => format::digits(value),
        () => format::count(number.as_u64()),
    }
}

/// Whether a number of this name is a part of a whole: `hit_ratio_total`, `share`, `share_of_gets`.
fn is_part(field: &str) -> bool {
    field.split('_').any(|word| matches!(word, "ratio" | "share"))
}

/// A ratio as reports have it: eight decimals, so that no digits of the floating-point sum follow.
pub(crate) fn rounded(ratio: f64) -> f64 {
    (ratio * 1e8).round() / 1e8
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn people_get_units_and_programs_all_digits() {
        let report = json!({
            "requests": 12_345_678, "miss_ratio": 0.123_456, "ops_per_second": 2_345_678.9, "seed": 123_456_789,
            "latency": { "p99_us": 1234.5 }, "memory_used_bytes": 64 << 20, "seconds": 1.234_5, "flash": null,
            "pools": [{ "name": "a", "used_bytes": 2048, "hit_ratio": 0.5 }, { "name": "b", "used_bytes": null }],
            "none": [], "ignored": ["a", "b"], "hit_ratio_total": 0.251, "hot_keys": [{ "key": "a", "share": 0.5, "hit_ratio": 1.0 }],
        });
        let mut text = Vec::new();
        print(&report, false, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let found: Vec<(&str, &str)> = text.lines().map(|line| (line[..24].trim(), line[24..].trim())).collect();
        assert_eq!(
            found,
            [
                ("requests", "12.3 M"),
                ("miss_ratio", "12.3 %"),
                ("ops_per_second", "2.35 M/s"),
                ("seed", "123456789"),
                ("latency.p99", "1.23 ms"),
                ("memory_used_bytes", "64 MiB"),
                ("seconds", "1.23 s"),
                ("flash", "-"),
                ("pools", "name a, used_bytes 2 KiB, hit_ratio 50 %"),
                ("pools", "name b, used_bytes -"),
                ("none", "-"),
                ("ignored", "a, b"),
                ("hit_ratio_total", "25.1 %"),
                ("hot_keys", "key a, share 50 %, hit_ratio 100 %"),
            ]
        );
        let other = json!({ "requests": 7, "name": "a, \"b\"" });
        let table = csv(&[&report, &other]).unwrap();
        let lines: Vec<&str> = table.lines().collect();
        assert!(lines[0].split(',').any(|column| column == "latency.p99_us") && !lines[0].contains("pools"), "{table}");
        assert!(lines[1].contains("2345678.9") && lines[2].ends_with("\"a, \"\"b\"\"\""), "{table}");
        let mut line = Vec::new();
        print(&report, true, &mut line).unwrap();
        assert_eq!(serde_json::from_slice::<serde_json::Value>(&line).unwrap(), report);
    }
}
