//! Arithmetic of capacity planning: hits and costs of a cache with given DRAM and flash.
//!
//! ```text
//! objects' bytes in DRAM  d = (dram - index of flash) * mean / (mean + overhead)
//! objects' bytes on flash f = flash * fill
//! misses                    = curve(d + f)
//! hits of flash             = curve(d) - curve(d + f)
//! written to flash          = (misses + sets) * mean * write amplification
//! life of the drive         = its rating / (written to flash * amplification of the drive)
//! ```
//! The curve is that of LRU in bytes of keys and values, as stack distances give it. The method and the limits
//! (RAM for the index, IOPS, network, endurance) are those of extstore's planning (Dormando 2018).

use ebbtide::flash::page_amplification;
use serde::Serialize;

use super::flags::SizeFlags;

/// Load of a cache, from a trace.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Demand {
    pub gets_per_second: f64,
    /// Writes that do not follow a miss.
    pub sets_per_second: f64,
    /// Bytes of key and value of the object of a get, on average.
    pub hit_bytes: f64,
    /// Bytes of key and value of an object, on average over objects.
    pub object_bytes: f64,
    /// Bytes of all objects.
    pub footprint_bytes: f64,
}

/// Bytes that a system needs beside keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Overheads {
    /// Bytes of DRAM for each object in DRAM.
    pub dram_per_object: f64,
    /// Bytes of DRAM for each object on flash.
    pub index_per_object: f64,
    /// Share of flash that holds objects that count.
    pub flash_fill: f64,
    /// Bytes written to the device for each byte of an object.
    pub write_amplification: f64,
}

/// Objects below this size are stored in pages of small objects.
const SMALL_BYTES: f64 = 2048.0;
/// Bytes of index in DRAM for an object on flash (docs/flash.md, "Memory").
const LARGE_INDEX: f64 = 12.0;
const SMALL_INDEX: f64 = 1.5;
/// Bytes beside key and value of an object in DRAM, all-in (docs/benchmarks.md, "Bytes per object").
const DRAM_OVERHEAD: f64 = 17.0;
/// Bytes written for each byte of an object by its mean size (docs/benchmarks.md, "Flash: small objects").
const AMPLIFICATION: [(f64, f64); 3] = [(100.0, 9.0), (300.0, 5.79), (SMALL_BYTES, 1.05)];
/// Bytes in RAM for each item of extstore, key included.
pub(super) const EXTSTORE_PER_OBJECT: f64 = 100.0;

impl Overheads {
    /// Ebbtide's, for objects of this mean size.
    pub fn ebbtide(object_bytes: f64) -> Self {
        let is_small = object_bytes < SMALL_BYTES;
        Self {
            dram_per_object: DRAM_OVERHEAD,
            index_per_object: if is_small { SMALL_INDEX } else { LARGE_INDEX },
            flash_fill: 0.95,
            write_amplification: amplification(object_bytes),
        }
    }
}

/// Between the measured sizes on a line over the logarithm of the size.
fn amplification(object_bytes: f64) -> f64 {
    let after = AMPLIFICATION.partition_point(|(bytes, _)| *bytes < object_bytes);
    match (after.checked_sub(1).map(|at| AMPLIFICATION[at]), AMPLIFICATION.get(after)) {
        (None, _) => AMPLIFICATION[0].1 * AMPLIFICATION[0].0 / object_bytes.max(1.0),
        (Some((_, last)), None) => last,
        (Some((low, at_low)), Some(&(high, at_high))) => {
            let part = (object_bytes / low).ln() / (high / low).ln();
            at_low + part * (at_high - at_low)
        }
    }
}

/// Prices and limits of the hardware.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Hardware {
    /// Price of a GiB.
    pub dram_price: f64,
    pub flash_price: f64,
    /// Reads of a device in a second.
    pub flash_iops: f64,
    /// Drive writes a day that the drive is rated for, over its years.
    pub flash_dwpd: f64,
    pub flash_years: f64,
    /// Bytes of the drive that the flash is a part of; none: the flash is all of it.
    pub flash_drive_bytes: Option<f64>,
    /// Space of the drive that is never written, including the drive's own reserve, in percent of flash.
    pub flash_spare: f64,
    /// Bits in a second that the network carries.
    pub network_bits: f64,
}

/// Latencies in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Latencies {
    pub hit_ms: f64,
    pub flash_hit_ms: f64,
    /// Of a miss, with the load from the backend.
    pub miss_ms: f64,
}

/// One cache.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Plan {
    pub dram_bytes: f64,
    pub flash_bytes: f64,
    pub price: f64,
    pub hit_ratio: f64,
    /// With the hits that a capture of a warm server leaves open; elsewhere the hit ratio.
    pub max_hit_ratio: f64,
    pub dram_hit_ratio: f64,
    pub flash_hit_ratio: f64,
    /// DRAM for the index of flash.
    pub index_bytes: f64,
    /// Requests that reach the backend.
    pub backend_per_second: f64,
    pub mean_latency_ms: f64,
    pub flash_reads_per_second: f64,
    pub flash_written_bytes_per_second: f64,
    /// The drive that the flash is a part of.
    pub drive_bytes: f64,
    pub drive_writes_per_day: f64,
    /// Bytes that the drive writes for each byte it is given.
    pub device_amplification: f64,
    /// How long the drive lasts at this rate; none if nothing is written.
    pub flash_life_years: Option<f64>,
    /// The resource that is exhausted first, and its used share.
    pub binding: &'static str,
    pub binding_used: f64,
    /// Used share of the network.
    pub network_used: f64,
    /// Flags of a server of these sizes; none for a plan that is not advised, or that no server can have.
    pub flags: Option<SizeFlags>,
    /// As `binding` and `binding_used`, among the resources of flash alone.
    #[serde(skip)]
    pub device_binding: &'static str,
    #[serde(skip)]
    pub device_used: f64,
}

impl Plan {
    /// With the flags of the smallest server that has these sizes.
    pub fn with_flags(self) -> Self {
        Self { flags: SizeFlags::at_least(self.dram_bytes, self.flash_bytes), ..self }
    }

    /// With the flags of the largest server that costs no more.
    pub fn with_flags_below(self) -> Self {
        Self { flags: SizeFlags::at_most(self.dram_bytes, self.flash_bytes), ..self }
    }
}

pub(super) const GIB: f64 = (1_u64 << 30) as f64;
const DAY_SECONDS: f64 = 86_400.0;

/// The limit that DRAM and flash share: it counts all hits.
pub(super) const NETWORK: &str = "network";
/// The limit of a drive that is written too often.
pub(super) const ENDURANCE: &str = "endurance of the flash device";

/// Plan of a cache with this DRAM and flash. `miss_ratio`: of LRU by bytes of keys and values. `dram_miss_ratio`: of
/// the engine by all of its memory.
pub(super) fn plan(
    (dram_bytes, flash_bytes): (f64, f64),
    demand: &Demand,
    overheads: &Overheads,
    hardware: &Hardware,
    latencies: &Latencies,
    miss_ratio: &dyn Fn(f64) -> f64,
    dram_miss_ratio: &dyn Fn(f64) -> f64,
) -> Plan {
    let object_bytes = demand.object_bytes.max(1.0);
    let on_flash = (flash_bytes * overheads.flash_fill).min(demand.footprint_bytes);
    let index_bytes = on_flash / object_bytes * overheads.index_per_object;
    let left = (dram_bytes - index_bytes).max(0.0);
    let in_dram = left * object_bytes / (object_bytes + overheads.dram_per_object);
    let dram_misses = dram_miss_ratio(left);
    let misses = if flash_bytes > 0.0 { miss_ratio(in_dram + on_flash).min(dram_misses) } else { dram_misses };
    let flash_hits = dram_misses - misses;
    let backend_per_second = misses * demand.gets_per_second;
    let reads = flash_hits * demand.gets_per_second;
    let written = match flash_bytes > 0.0 {
        true => (backend_per_second + demand.sets_per_second) * object_bytes * overheads.write_amplification,
        false => 0.0,
    };
    let drive_bytes = hardware.flash_drive_bytes.map_or(flash_bytes, |bytes| bytes.max(flash_bytes));
    let drive_writes = if flash_bytes > 0.0 { written * DAY_SECONDS / drive_bytes } else { 0.0 };
    // Small objects are written in pages here and there, others in sequence.
    let device_amplification = match object_bytes < SMALL_BYTES {
        true => page_amplification(hardware.flash_spare / 100.0),
        false => 1.0,
    };
    let wear = drive_writes * device_amplification;
    let network = (1.0 - misses) * demand.gets_per_second * demand.hit_bytes * 8.0 / hardware.network_bits;
    let of_flash = [
        ("RAM for the index of flash", index_bytes / dram_bytes.max(1.0)),
        ("reads of the flash device", reads / hardware.flash_iops),
        (ENDURANCE, wear / hardware.flash_dwpd),
    ];
    let of_flash = of_flash.into_iter().max_by(|one, other| one.1.total_cmp(&other.1));
    let (device_binding, device_used) = of_flash.expect("three limits");
    let (binding, binding_used) =
        if network >= device_used { (NETWORK, network) } else { (device_binding, device_used) };
    Plan {
        dram_bytes,
        flash_bytes,
        price: (dram_bytes * hardware.dram_price + flash_bytes * hardware.flash_price) / GIB,
        hit_ratio: 1.0 - misses,
        max_hit_ratio: 1.0 - misses,
        dram_hit_ratio: 1.0 - dram_misses,
        flash_hit_ratio: flash_hits,
        index_bytes,
        backend_per_second,
        mean_latency_ms: (1.0 - dram_misses) * latencies.hit_ms
            + flash_hits * latencies.flash_hit_ms
            + misses * latencies.miss_ms,
        flash_reads_per_second: reads,
        flash_written_bytes_per_second: written,
        drive_bytes,
        drive_writes_per_day: drive_writes,
        device_amplification,
        flash_life_years: (wear > 0.0).then(|| hardware.flash_years * hardware.flash_dwpd / wear),
        binding,
        binding_used,
        network_used: network,
        flags: None,
        device_binding,
        device_used,
    }
}

/// Bytes of RAM for each item on flash, of Ebbtide and of extstore, by the size of the item.
pub(super) fn ram_per_item(object_bytes: f64) -> (f64, f64) {
    (Overheads::ebbtide(object_bytes).index_per_object, EXTSTORE_PER_OBJECT)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HARDWARE: Hardware = Hardware {
        dram_price: 5.0,
        flash_price: 1.0,
        flash_iops: 400_000.0,
        flash_dwpd: 2.0,
        flash_years: 5.0,
        flash_drive_bytes: None,
        flash_spare: 7.0,
        network_bits: 10e9,
    };
    const LATENCIES: Latencies = Latencies { hit_ms: 0.1, flash_hit_ms: 0.2, miss_ms: 10.0 };

    fn demand(object_bytes: f64) -> Demand {
        Demand {
            gets_per_second: 1000.0,
            sets_per_second: 0.0,
            hit_bytes: object_bytes,
            object_bytes,
            footprint_bytes: 100.0 * GIB,
        }
    }

    #[test]
    fn the_arithmetic_of_extstore_comes_out() {
        // The page on extstore (2018): 100 B of RAM for each item on flash, 400,000 reads a second.
        let extstore = Overheads {
            dram_per_object: 0.0,
            index_per_object: EXTSTORE_PER_OBJECT,
            flash_fill: 1.0,
            write_amplification: 1.0,
        };
        let (in_dram, on_flash) = (|_: f64| 1.0, |_: f64| 0.0);
        let of = |sizes: (f64, f64), demand: Demand, hardware: Hardware| {
            let demand = Demand { footprint_bytes: 1e6 * GIB, ..demand };
            plan(sizes, &demand, &extstore, &hardware, &LATENCIES, &on_flash, &in_dram)
        };
        // RAM full of the index of items of 1,024 B: flash holds ten times what RAM could.
        let full = of((GIB, 10.24 * GIB), demand(1024.0), HARDWARE);
        assert_eq!((full.binding, full.index_bytes), ("RAM for the index of flash", GIB));
        assert!((full.binding_used - 1.0).abs() < 1e-9 && full.flash_hit_ratio == 1.0);
        // 3,072 B fill 10 Gbit/s, 8,192 B 25 Gbit/s: below, the reads of the drive bind, and above, the network.
        for (bytes, network_bits) in [(3072.0, 10e9), (8192.0, 25e9)] {
            let hardware = Hardware { network_bits, ..HARDWARE };
            let at = |bytes: f64| {
                let demand = Demand { gets_per_second: 400_000.0, ..demand(bytes) };
                of((1000.0 * GIB, 1000.0 * GIB), demand, Hardware { ..hardware })
            };
            assert_eq!((at(0.95 * bytes).binding, at(0.95 * bytes).binding_used), ("reads of the flash device", 1.0));
            assert_eq!(at(1.05 * bytes).binding, "network");
        }
        // A drive of 1 TB that survives five years of 2 TB a day has a rating of 2. At 4 TB it lasts half as long.
        for (terabytes_a_day, years) in [(2.0, 5.0), (4.0, 2.5)] {
            let sets_per_second = terabytes_a_day * 1e12 / DAY_SECONDS / 4096.0;
            let worn = of((1000.0 * GIB, 1e12), Demand { sets_per_second, ..demand(4096.0) }, HARDWARE);
            assert!((worn.drive_writes_per_day - terabytes_a_day).abs() < 1e-9);
            assert!((worn.flash_life_years.unwrap() - years).abs() < 1e-9);
            // As a part of a drive of ten times the size it wears a tenth.
            let part = Hardware { flash_drive_bytes: Some(1e13), ..HARDWARE };
            let part = of((1000.0 * GIB, 1e12), Demand { sets_per_second, ..demand(4096.0) }, part);
            assert!((part.flash_life_years.unwrap() - 10.0 * years).abs() < 1e-9);
        }
        // RAM at four to eight times the price of flash: with nine tenths on flash a third of the money, to 80 % less.
        for (dram_price, part) in [(4.0, 1.0 / 3.0), (8.0, 0.2)] {
            let hardware = || Hardware { dram_price, ..HARDWARE };
            let price = |ram: f64, flash: f64| of((ram * GIB, flash * GIB), demand(4096.0), hardware()).price;
            assert!((price(10.0, 90.0) / price(100.0, 0.0) - part).abs() < 0.02);
        }
    }

    #[test]
    fn a_plan_follows_its_curve() {
        // A line: half of the footprint hits half of the gets.
        let curve = |bytes: f64| 1.0 - (bytes / (100.0 * GIB)).clamp(0.0, 1.0);
        let overheads =
            Overheads { dram_per_object: 0.0, index_per_object: 0.0, flash_fill: 1.0, write_amplification: 2.0 };
        let of = |dram: f64, flash: f64| {
            plan((dram * GIB, flash * GIB), &demand(4096.0), &overheads, &HARDWARE, &LATENCIES, &curve, &curve)
        };
        let ram = of(50.0, 0.0);
        assert!((ram.hit_ratio - 0.5).abs() < 1e-9 && ram.flash_life_years.is_none() && ram.price == 250.0);
        assert!((ram.mean_latency_ms - 5.05).abs() < 1e-9 && ram.backend_per_second == 500.0);
        let both = of(10.0, 40.0);
        assert!((both.hit_ratio - 0.5).abs() < 1e-9 && (both.flash_hit_ratio - 0.4).abs() < 1e-9);
        assert_eq!(both.price, 90.0);
        // 500 misses a second of 4 KiB, each written twice.
        assert!((both.flash_written_bytes_per_second - 500.0 * 4096.0 * 2.0).abs() < 1e-6);
        let days = 40.0 * GIB / (500.0 * 4096.0 * 2.0) / DAY_SECONDS;
        assert!((both.drive_writes_per_day - 1.0 / days).abs() < 1e-9);
        assert_eq!(both.binding, "endurance of the flash device");
    }

    #[test]
    fn the_index_of_flash_takes_dram() {
        let curve = |bytes: f64| 1.0 - (bytes / (100.0 * GIB)).clamp(0.0, 1.0);
        let overheads = Overheads { index_per_object: 100.0, ..Overheads::ebbtide(1000.0) };
        let demand = demand(1000.0);
        let hardware = Hardware { flash_dwpd: 1000.0, ..HARDWARE };
        let plan = plan((GIB, 20.0 * GIB), &demand, &overheads, &hardware, &LATENCIES, &curve, &curve);
        assert!(plan.index_bytes > GIB && plan.dram_hit_ratio == 0.0);
        assert_eq!(plan.binding, "RAM for the index of flash");
    }

    #[test]
    fn amplification_matches_measurements_and_falls_with_size() {
        for (bytes, measured) in [(100.0, 9.0), (300.0, 5.79), (9000.0, 1.05)] {
            assert!((amplification(bytes) - measured).abs() < 1e-9, "{bytes}");
        }
        let sizes = [20.0, 50.0, 100.0, 200.0, 300.0, 1000.0, 2048.0, 5000.0];
        assert!(sizes.windows(2).all(|two| amplification(two[0]) >= amplification(two[1]) - 1e-9));
    }
}
