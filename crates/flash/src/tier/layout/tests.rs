use super::*;
use crate::admission::{AdmissionOptions, Policy, WriteBudget};
use crate::device::STRIPE;
use crate::large::{Reclaim, Reinsertion};

const MIB: u64 = 1 << 20;

#[test]
fn the_boundary_is_aligned_and_regions_follow_the_capacity() {
    for (capacity, share, region, boundary) in [
        (1 << 40, 0.5, 16 << 20, 1 << 39),
        (1 << 40, 0.01, 16 << 20, 656 * STRIPE),
        (96 * MIB, 0.1, 1 << 20, 10 * MIB),
        (31 * MIB, 0.5, 128 << 10, 31 * MIB / 2),
        (3 * MIB, 0.5, 16 << 10, 3 * MIB / 2),
    ] {
        let options = TierOptions { small_share: Some(share), ..TierOptions::default() };
        let layout = Layout::new(capacity, &options).unwrap();
        assert_eq!((layout.large_options.region_bytes, layout.boundary), (region, boundary));
        assert_eq!(layout.large_options.first_region as u64, boundary / region as u64);
        let end = capacity - (capacity / 128).max(64 << 10);
        assert_eq!((layout.small_area(), layout.large_area()), (4096..boundary, 0..end));
        assert_eq!(layout.checkpoint, end..capacity);
        let unkept = Layout::new(capacity, &TierOptions { warm_restart: false, ..options }).unwrap();
        assert_eq!((unkept.large_area(), unkept.checkpoint), (0..capacity, capacity..capacity));
    }
    let small_regions = TierOptions { region_bytes: 1 << 20, ..TierOptions::default() };
    assert_eq!(Layout::new(1 << 40, &small_regions).unwrap().large_options.region_bytes, 1 << 20);
}

#[test]
fn both_stores_are_told_what_was_chosen() {
    let chosen = TierOptions {
        reclaim: Reclaim::Lru,
        reinsertion: Reinsertion::Hits(2),
        discard: true,
        warm_restart: false,
        seal_seconds: 7,
        log_percent: 20,
        move_threshold: 3,
        small_share: Some(0.5),
        ..TierOptions::default()
    };
    let Layout { large_options: large, small_options, .. } = Layout::new(64 * MIB, &chosen).unwrap();
    let small = small_options.unwrap();
    assert_eq!((large.reclaim, large.reinsertion), (Reclaim::Lru, Reinsertion::Hits(2)));
    assert_eq!((large.discard, large.seal_seconds, large.patience), (true, 7, Duration::ZERO));
    assert!(!large.recovers && Layout::new(64 * MIB, &TierOptions::default()).unwrap().large_options.recovers);
    assert_eq!((small.log_percent, small.move_threshold), (20, 3));
}

#[test]
fn a_large_area_of_small_objects_gets_zeros_ahead_unless_writes_have_a_budget() {
    let budget = AdmissionOptions { budget: Some(WriteBudget::BytesPerSecond(1 << 20)), ..AdmissionOptions::default() };
    for (capacity, admission, zeros_ahead) in [
        (4 << 30, AdmissionOptions::default(), true),
        (1 << 30, AdmissionOptions::default(), false),
        (4 << 30, budget, false),
    ] {
        let options = TierOptions { small_share: Some(0.5), admission, ..TierOptions::default() };
        let layout = Layout::new(capacity, &options).unwrap();
        assert_eq!(layout.small_options.unwrap().zeros_ahead, zeros_ahead, "{capacity} bytes, {admission:?}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_with_the_limit() {
    let base = TierOptions::default();
    for (options, capacity, part) in [
        (TierOptions { small_share: Some(0.0), ..base.clone() }, 64 * MIB, "0.01 to 0.99"),
        (TierOptions { small_share: Some(f64::NAN), ..base.clone() }, 64 * MIB, "0.01 to 0.99"),
        (TierOptions { region_bytes: 3 << 20, ..base.clone() }, 64 * MIB, "a power of two"),
        (TierOptions { region_bytes: 32 << 20, ..base.clone() }, 64 * MIB, "16384 to 16777216"),
        (TierOptions { small_share: Some(0.99), ..base.clone() }, 4 * MIB, "lower the share"),
        (TierOptions { small_share: Some(0.5), ..base }, MIB / 4, "raise its size to 1048576 bytes"),
    ] {
        let refusal = Layout::new(capacity, &options).unwrap_err().to_string();
        assert!(refusal.contains(part), "{refusal}");
    }
}

#[test]
fn small_objects_get_an_area_for_which_the_memory_will_be_enough() {
    let with = |memory_bytes, memory_later| TierOptions { memory_bytes, memory_later, ..TierOptions::default() };
    let memory = MIB + MIB / 64;
    let undivided = Layout::new(80 * MIB, &with(memory, 0)).unwrap();
    let boundary = |later| {
        let divided = undivided.divided_below(79 * MIB, &with(memory, later)).unwrap();
        assert!(divided.small_options.unwrap().index_bytes > 400_000);
        divided.boundary
    };
    assert!(boundary(0) < 72 * MIB, "{}", boundary(0));
    assert!(boundary(MIB / 64) > boundary(0) && boundary(MIB / 64) < 79 * MIB);
    assert_eq!(boundary(MIB / 4), 79 * MIB);
    let half = undivided.divided_below(79 * MIB, &with(memory - MIB / 4, u64::MAX / 2)).unwrap();
    assert!(half.boundary < 79 * MIB, "half of the indexes would have no memory now");
    let divided = undivided.divided_below(77 * MIB, &with(memory, MIB / 4)).unwrap();
    let again = |memory, later| Layout::as_before(&Shape::of(7, &divided), &with(memory, later)).is_some();
    let least = |later: u64| (1..=16).find(|&part| again(memory / 16 * part, later)).unwrap();
    assert!(least(MIB / 4) < least(0) && least(MIB) > 1, "what is fixed must be there");
}

#[test]
fn with_more_memory_there_are_no_more_groups_than_large_objects_have_regions_for() {
    let little = TierOptions { memory_bytes: 500 << 10, ..TierOptions::default() };
    let undivided = Layout::new(8 * MIB, &little).unwrap();
    let region_bytes = undivided.large_options.region_bytes;
    let least = (undivided.large_options.least_regions() * region_bytes) as u64;
    let divided = undivided.divided_below(undivided.capacity - least, &little).unwrap();
    let again = Layout::as_before(&Shape::of(7, &divided), &TierOptions::default()).unwrap();
    let regions = (again.capacity - again.boundary) as usize / region_bytes;
    assert!(again.large_options.least_regions() <= regions, "{regions} {:?}", again.large_options);
}

#[test]
fn the_memory_is_divided_and_too_little_of_it_is_refused_with_what_would_do() {
    let policy = Policy::RejectFirst { times: 1, keys: 1000 };
    let admission = AdmissionOptions { policy, ..AdmissionOptions::default() };
    let with = |memory_bytes| TierOptions { memory_bytes, admission, small_share: Some(0.5), ..TierOptions::default() };
    let layout = |capacity, memory| Layout::new(capacity, &with(memory));
    let (capacity, memory) = (64 << 30, 512 * MIB);
    let options = layout(capacity, memory).unwrap();
    let (large, small) = (&options.large_options, options.small_options.as_ref().unwrap());
    let fixed = LargeLog::fixed_bytes(&options.large_area(), large)
        + small.fixed_bytes(&options.small_area()).unwrap().1
        + admission.memory_bytes();
    let total = (fixed - LargeLog::least_index_bytes() + large.index_bytes + small.index_bytes) as u64;
    assert!(total <= memory && total > memory - 10, "{total} of {memory}");
    assert_eq!(large.region_bytes, 16 << 20);
    let less = layout(16 << 30, 128 * MIB).unwrap().large_options;
    assert_eq!((less.region_bytes, less.buffers), (4 << 20, 10), "ten buffers take half at most");

    let refusal = layout(capacity, 100 * MIB).unwrap_err().to_string();
    let number = |before: &str| -> u64 {
        let rest = refusal.split(before).nth(1).unwrap_or_else(|| panic!("{refusal}"));
        rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
    };
    let (needed, fits) = (number("raise that to ") * MIB, number("size of flash to ") * MIB);
    assert!(layout(capacity, needed).is_ok() && needed < 300 * MIB, "{refusal}");
    assert!(layout(fits, 100 * MIB).is_ok() && fits > capacity / 8, "{refusal}");
    let refusal = layout(capacity, 1000).unwrap_err().to_string();
    assert!(refusal.ends_with(" MiB") && !refusal.contains("lower"), "{refusal}");
}

#[test]
fn who_restarts_with_the_same_options_divides_as_before() {
    let mut lost = Vec::new();
    let mut tried = 0;
    for capacity_mib in [16, 64, 100, 256, 1000, 4096, 20_000, 100_000, 1 << 20] {
        for step in 0..200 {
            let capacity = capacity_mib * MIB;
            let memory_bytes = (capacity as f64 / 600.0 * 1.025_f64.powi(step)) as u64;
            let options = TierOptions { memory_bytes, ..TierOptions::default() };
            let Ok(undivided) = Layout::new(capacity, &options) else { continue };
            for (share, memory_later) in [(0.05, 0), (0.5, 0), (0.95, 0), (0.95, memory_bytes)] {
                let boundary = (undivided.capacity as f64 * share) as u64;
                let options = TierOptions { memory_later, ..options.clone() };
                let Some(divided) = undivided.divided_below(boundary, &options) else { continue };
                tried += 1;
                if Layout::as_before(&Shape::of(7, &divided), &options).is_none() {
                    lost.push((capacity_mib, memory_bytes, share, divided.large_options.region_bytes));
                }
            }
            if Layout::as_before(&Shape::of(7, &undivided), &options).is_none() {
                lost.push((capacity_mib, memory_bytes, 0.0, undivided.large_options.region_bytes));
            }
        }
    }
    assert!(tried > 4000, "{tried}");
    assert!(lost.is_empty(), "{} of {tried}: {:?}", lost.len(), &lost[..lost.len().min(40)]);
}

#[test]
fn who_restarts_with_more_memory_divides_as_before() {
    let (mut lost, mut tried) = (Vec::new(), 0);
    for capacity_mib in [16, 64, 256, 1000, 4096, 100_000] {
        for step in 0..120 {
            let capacity = capacity_mib * MIB;
            let with = |memory_bytes: f64, small_share| TierOptions {
                memory_bytes: memory_bytes as u64,
                small_share,
                ..TierOptions::default()
            };
            let memory = capacity as f64 / 600.0 * 1.04_f64.powi(step);
            for small_share in [None, Some(0.5)] {
                let Ok(undivided) = Layout::new(capacity, &with(memory, small_share)) else { continue };
                for share in [0.0, 0.05, 0.5, 0.95, 0.99] {
                    // As a log is narrowed: the groups have their regions.
                    let large = &undivided.large_options;
                    let least = (large.least_regions() * large.region_bytes) as u64;
                    let boundary = ((undivided.capacity as f64 * share) as u64).min(undivided.capacity - least);
                    let divided = match small_share {
                        None if share > 0.0 => undivided.divided_below(boundary, &with(memory, small_share)),
                        _ => Some(undivided.clone()),
                    };
                    let Some(divided) = divided else { continue };
                    for more in [1.05, 1.3, 2.0, 4.0, 16.0] {
                        tried += 1;
                        let options = with(memory * more, small_share);
                        if Layout::as_before(&Shape::of(7, &divided), &options).is_none() {
                            lost.push((capacity_mib, memory as u64, more, small_share, share));
                        }
                    }
                }
            }
        }
    }
    assert!(tried > 20_000, "{tried}");
    assert!(lost.is_empty(), "{} of {tried}: {:?}", lost.len(), &lost[..lost.len().min(30)]);
}
