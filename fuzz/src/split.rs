//! Where the network cuts an input into reads.

/// Ends of the reads, derived from the input itself so that a finding is one file: one cut after the other, at
/// distances that the bytes give.
pub fn cuts(input: &[u8]) -> Vec<usize> {
    let mut cuts = Vec::new();
    let mut at = 0;
    let mut seed = input.iter().fold(input.len() as u64, |seed, &byte| mix(seed ^ u64::from(byte)));
    while at < input.len() {
        seed = mix(seed);
        // Mostly short reads, some long ones.
        let length = match seed & 3 {
            0 => 1,
            1 => 1 + (seed >> 8) as usize % 7,
            2 => 1 + (seed >> 8) as usize % 64,
            _ => 1 + (seed >> 8) as usize % 1024,
        };
        at = (at + length).min(input.len());
        cuts.push(at);
    }
    cuts
}

/// The finalizer of splitmix64.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}
