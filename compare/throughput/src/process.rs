//! Cores, memory and processor time of this process.

use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

use crate::Error;

/// The cores that this process may use.
pub fn cores() -> Result<Vec<usize>, Error> {
    let set = sched_getaffinity(None).map_err(|error| system("asking for the cores", error))?;
    Ok((0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect())
}

/// Confines the calling thread to some cores, and with it all threads that it starts from then on.
pub fn confine(cores: &[usize]) -> Result<(), Error> {
    let mut set = CpuSet::new();
    for &core in cores {
        set.set(core);
    }
    sched_setaffinity(None, &set).map_err(|error| system("setting the cores", error))
}

/// Processor time of all threads so far.
pub fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Resident memory, to the byte: the kernel's quicker figures may lag by some pages per core.
pub fn resident_bytes() -> Result<u64, Error> {
    let failed = |error| Error::System { action: "reading /proc/self/smaps_rollup", error };
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").map_err(failed)?;
    let kib = text.lines().find_map(|line| line.strip_prefix("Rss:")?.trim().strip_suffix(" kB")?.trim().parse().ok());
    let kib: u64 = kib.ok_or_else(|| failed(std::io::Error::other("it has no Rss")))?;
    Ok(kib * 1024)
}

fn system(action: &'static str, error: rustix::io::Errno) -> Error {
    Error::System { action, error: error.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touched_memory_is_resident() {
        let before = resident_bytes().unwrap();
        let memory = std::hint::black_box(vec![1u8; 256 << 20]);
        let after = resident_bytes().unwrap();
        drop(memory);
        // Other tests may free some of theirs meanwhile.
        assert!(after >= before + (128 << 20), "{before} {after}");
    }

    #[test]
    fn a_confined_thread_has_one_core() {
        std::thread::spawn(|| {
            let first = cores().unwrap()[0];
            confine(&[first]).unwrap();
            assert_eq!(cores().unwrap(), [first]);
        })
        .join()
        .unwrap();
    }
}
