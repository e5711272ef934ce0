//! How fast the drive below flash wears out.

use super::Metric::{Gauge, None};
use super::{Row, row};
use crate::observe::WearRate;

const DAY_SECONDS: f64 = 86_400.0;

#[rustfmt::skip]
pub const WEAR: &[Row<WearRate>] = &[
    row("", None, "bytes_per_day", |w| w.bytes_per_day.into()),
    row("", Gauge("ebbtide_flash_drive_writes_per_day", "How often a day flash is written over, at the pace of the last hour."), "drive_writes_per_day", |w| w.drive_writes_per_day.into()),
    row("", Gauge("ebbtide_flash_device_write_amplification_ratio", "Bytes that the drive writes for each that it is given; estimated, unless it tells."), "device_write_amplification", |w| w.device_amplification.into()),
    row("", Gauge("ebbtide_flash_projected_life_seconds", "How long the drive lasts at this pace, a new one unless it tells; +Inf if nothing is written."), "", |w| w.life_seconds.into()),
    // Endless is null.
    row("", None, "life_days", |w| (w.life_seconds / DAY_SECONDS).into()),
    row("", Gauge("ebbtide_flash_drive_life_used_ratio", "The part of its life that the drive says it has used; NaN if it does not tell."), "life_used", |w| w.life_used.unwrap_or(f64::NAN).into()),
];
