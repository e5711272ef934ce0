//! `--memory-monitor`: `off`, or a mode and its limits, `free,lower=512m,upper=1g`.

use ebbtide_server::ebbtide::{PressureMode, PressureOptions};

use super::values;
use crate::error::Error;

const USAGE: &str = "give off, or free,lower=SIZE,upper=SIZE or resident,lower=SIZE,upper=SIZE, and if wanted step=5%,floor=25%,stall=10%";

pub fn parse(flag: &str, text: &str) -> Result<Option<PressureOptions>, Error> {
    monitor(text.trim()).map_err(|why| Error::Limit(format!("{flag} {text}: {why}")))
}

fn monitor(text: &str) -> Result<Option<PressureOptions>, String> {
    let mut words = text.split(',').map(str::trim);
    let mode = match words.next() {
        Some("off") if text == "off" => return Ok(None),
        Some("free") => PressureMode::Free,
        Some("resident") => PressureMode::Resident,
        _ => return Err(USAGE.to_owned()),
    };
    let (mut lower, mut upper) = (None, None);
    let mut options = PressureOptions::new(mode, 0, 0);
    let mut given = Vec::new();
    for word in words {
        let (name, value) = word.split_once('=').ok_or_else(|| USAGE.to_owned())?;
        if given.contains(&name) {
            return Err(format!("{name} is given twice"));
        }
        given.push(name);
        let size = || values::bytes(value).map_err(|why| format!("{name}: {why}"));
        match name {
            "lower" => lower = Some(size()?),
            "upper" => upper = Some(size()?),
            "step" => options.step_share = percent(name, value)? / 100.0,
            "floor" => options.floor_share = percent(name, value)? / 100.0,
            "stall" => options.stall_percent = percent(name, value)?,
            _ => return Err(format!("{name} is unknown: {USAGE}")),
        }
    }
    let (Some(lower_bytes), Some(upper_bytes)) = (lower, upper) else { return Err(USAGE.to_owned()) };
    Ok(Some(PressureOptions { lower_bytes, upper_bytes, ..options }))
}

fn percent(name: &str, text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
    let is_in_range = |percent: &f64| *percent > 0.0 && *percent <= 100.0;
    number.filter(is_in_range).ok_or(format!("{name}: give a percentage above 0% and up to 100%, as 5%"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_and_its_limits_are_understood() {
        let options =
            parse("--memory-monitor", "free, lower=512m,upper=1g,step=2%,floor=50%,stall=20%").unwrap().unwrap();
        let expected = PressureOptions {
            step_share: 0.02,
            floor_share: 0.5,
            stall_percent: 20.0,
            ..PressureOptions::new(PressureMode::Free, 512 << 20, 1 << 30)
        };
        assert_eq!(options, expected);
        assert_eq!(parse("--memory-monitor", "off").unwrap(), None);
        for wrong in [
            "",
            "free",
            "free,lower=1m",
            "full,lower=1m,upper=2m",
            "free,lower=1x,upper=2m",
            "free,lower=1,upper=2,step=0%",
        ] {
            assert!(parse("--memory-monitor", wrong).is_err(), "{wrong}");
        }
        for (wrong, why) in [
            ("free,lower=1,upper=2,step=101%", "step: give a percentage above 0% and up to 100%, as 5%"),
            ("free,lower=1,upper=2,lower=1", "lower is given twice"),
        ] {
            let error = parse("--memory-monitor", wrong).unwrap_err().to_string();
            assert!(error.ends_with(why), "{error}");
        }
    }
}
