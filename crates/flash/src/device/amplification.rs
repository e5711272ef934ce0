//! The write amplification of a drive: its writes for each page that it is given at random.
//!
//! ```text
//! regions, log     written in sequence, overwritten as a whole: their blocks are empty when they are erased    1
//! pages of sets    random: a block that is erased still has a part u valid, which the drive moves        1 / (1 - u)
//! u                (1 + s) (1 - u) = -ln u,    s: the drive's spare space over the space of the pages
//! ```
//! Between two erasures of a block, (1 + s)(1 - u) pages are written for each page of the area, and a page survives
//! that with the probability `exp` of its negative: u (Desnoyers, "Analytic modeling of SSD write performance",
//! SYSTOR'12, for blocks of many pages). With both kinds of writes, what is written in sequence needs less spare space
//! and leaves it to the pages, unless it lies for so long that it is moved with them. Their sum is an estimate, no
//! bound.

/// Bytes that a drive writes for each byte of a random page, with this much spare space for each byte in use.
pub fn page_amplification(spare: f64) -> f64 {
    let used = 1.0 + spare.max(0.0);
    // The left side less the right one increases from minus infinity to a maximum and falls to 0 at u = 1: the root
    // that counts lies on the increasing side, before u = 1 / used.
    let (mut low, mut high) = (0.0_f64, 1.0 / used);
    for _ in 0..64 {
        let valid = f64::midpoint(low, high);
        if used * (1.0 - valid) + valid.ln() < 0.0 {
            low = valid;
        } else {
            high = valid;
        }
    }
    1.0 / (1.0 - low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebbtide_testkit::{Ftl, Random};

    #[test]
    fn random_pages_cost_what_a_simulated_drive_writes() {
        for spare_percent in [7, 28, 50, 100] {
            let mut drive = Ftl::new(1 << 14, spare_percent, 128);
            let mut random = Random::new(7);
            let pages = drive.capacity_pages();
            (0..pages).for_each(|page| drive.write(page));
            for round in 0..2 {
                (0..2 * pages).for_each(|_| drive.write(random.uniform(pages.into()) as u32));
                if round == 0 {
                    drive.reset_counts();
                }
            }
            drive.verify();
            let (found, expected) = (drive.amplification(), page_amplification(f64::from(spare_percent) / 100.0));
            assert!((found / expected - 1.0).abs() < 0.1, "{spare_percent} %: {found}, not {expected}");
        }
    }

    #[test]
    fn spare_space_without_end_ends_amplification() {
        assert!((page_amplification(1e3) - 1.0).abs() < 1e-9);
        assert!(page_amplification(0.001) > 500.0);
        let spares: Vec<f64> = (1..100).map(|percent| page_amplification(f64::from(percent) / 100.0)).collect();
        assert!(spares.is_sorted_by(|more, less| more > less));
    }
}
