use std::io::{self, Write};

use serde::Serialize;
use serde_json::Value;

/// Prints a report: one JSON object in one line, or a line `name value` per field.
pub(crate) fn print(report: &impl Serialize, json: bool, out: &mut impl Write) -> io::Result<()> {
    let value = serde_json::to_value(report)?;
    if json { writeln!(out, "{}", serde_json::to_string(report)?) } else { print_fields("", &value, out) }
}

fn print_fields(prefix: &str, value: &Value, out: &mut impl Write) -> io::Result<()> {
    let Value::Object(fields) = value else {
        return match value {
            Value::String(text) => writeln!(out, "{prefix:<24} {text}"),
            Value::Number(number) if number.is_f64() => {
                writeln!(out, "{prefix:<24} {:.6}", number.as_f64().unwrap_or(0.0))
            }
            Value::Null => writeln!(out, "{prefix:<24} -"),
            other => writeln!(out, "{prefix:<24} {other}"),
        };
    };
    for (name, field) in fields {
        let name = match prefix {
            "" => name.clone(),
            _ => format!("{prefix}.{name}"),
        };
        print_fields(&name, field, out)?;
    }
    Ok(())
}

/// A ratio as reports have it: eight decimals, so that no digits of the floating-point sum follow.
pub(crate) fn rounded(ratio: f64) -> f64 {
    (ratio * 1e8).round() / 1e8
}
