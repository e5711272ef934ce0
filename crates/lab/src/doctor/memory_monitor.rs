//! The memory monitor: whether its limits fit the memory of the host and of the control group.

use ebbtide::{ByteSize, PressureMode, PressureOptions};

use super::finding::Finding;
use super::machine::Machine;
use super::memory::needed_bytes;

const NAME: &str = "memory monitor";

/// Holds the limits of a monitor against the memory that there is, for a server with this `-m`.
pub fn examine(machine: &Machine, memory: ByteSize, options: &PressureOptions) -> Finding {
    if let Err(error) = options.check(memory.as_bytes()) {
        return Finding::problem(NAME, error.to_string(), "change the limits, or -m");
    }
    let Some(all) = machine.memory("MemTotal") else {
        return Finding::ok(NAME, "this system does not tell how much memory there is");
    };
    let group = machine.group_limit().filter(|limit| *limit < all);
    let there = group.unwrap_or(all);
    let whose = if group.is_some() { "in this control group" } else { "in this machine" };
    let found = format!("{options}, of {} {whose}", ByteSize::bytes(there));
    let floor_bytes = needed_bytes(options.floor_bytes(memory.as_bytes()));
    let full_bytes = needed_bytes(memory.as_bytes());
    match options.mode {
        PressureMode::Free => free(options, found, (there, floor_bytes, full_bytes)),
        PressureMode::Resident => resident(options, found, (there, full_bytes)),
    }
}

fn free(options: &PressureOptions, found: String, (there, floor_bytes, full_bytes): (u64, u64, u64)) -> Finding {
    let size = ByteSize::bytes;
    let free_at_floor = there.saturating_sub(floor_bytes);
    let free_when_full = there.saturating_sub(full_bytes);
    if free_at_floor < options.lower_bytes {
        let advice = format!("at most {} are free at its floor: give a smaller lower, or floor", size(free_at_floor));
        return Finding::problem(NAME, format!("{found}: less than lower is always free"), advice);
    }
    if free_at_floor <= options.upper_bytes {
        let advice = format!("at most {} are free at its floor: give a smaller upper", size(free_at_floor));
        return Finding::problem(NAME, format!("{found}: a cache at its floor never grows"), advice);
    }
    if free_when_full < options.lower_bytes {
        let advice = format!("{} are free when it is full: lower -m, or lower", size(free_when_full));
        return Finding::advice(NAME, format!("{found}: a full cache shrinks without a neighbour"), advice);
    }
    Finding::ok(NAME, found)
}

fn resident(options: &PressureOptions, found: String, (there, full_bytes): (u64, u64)) -> Finding {
    let size = ByteSize::bytes;
    if options.upper_bytes > there {
        let advice = format!("the kernel kills the server before it shrinks: give upper below {}", size(there));
        return Finding::problem(NAME, format!("{found}: upper is more"), advice);
    }
    if options.upper_bytes < full_bytes {
        let advice = format!("it takes {} when it is full: lower -m, or increase upper", size(full_bytes));
        return Finding::advice(NAME, format!("{found}: the cache is never full"), advice);
    }
    Finding::ok(NAME, found)
}

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict::{self, Advice, Ok, Problem};
    use super::super::machine::tests::machine;
    use super::*;

    const HOST: (&str, &str) = ("proc/meminfo", "MemTotal: 4194304 kB\n");

    fn verdict(files: &[(&str, &str)], mode: PressureMode, lower_mib: u64, upper_mib: u64) -> Verdict {
        let (_folder, machine) = machine(files);
        let options = PressureOptions::new(mode, lower_mib << 20, upper_mib << 20);
        let finding = examine(&machine, ByteSize::mib(2048), &options);
        assert_eq!(finding.advice.is_none(), finding.verdict == Ok, "{finding:?}");
        finding.verdict
    }

    #[test]
    fn limits_of_free_memory_must_be_reachable() {
        let free = |lower, upper| verdict(&[HOST], PressureMode::Free, lower, upper);
        assert_eq!(free(512, 1024), Ok);
        assert_eq!(free(2500, 3000), Advice, "a full cache leaves less");
        assert_eq!(free(512, 3600), Problem, "it never grows");
        assert_eq!(free(3700, 3800), Problem, "it stays at its floor");
        let group = ("sys/fs/cgroup/memory.max", "3221225472");
        assert_eq!(verdict(&[HOST, group], PressureMode::Free, 512, 1024), Ok);
        assert_eq!(verdict(&[HOST, group], PressureMode::Free, 1024, 2048), Advice);
        assert_eq!(verdict(&[HOST, group], PressureMode::Free, 2048, 2600), Problem);
    }

    #[test]
    fn limits_of_the_process_fit_the_host() {
        let resident = |lower, upper| verdict(&[HOST], PressureMode::Resident, lower, upper);
        assert_eq!(resident(2048, 3072), Ok);
        assert_eq!(resident(1024, 2048), Advice, "a full cache takes more than -m");
        assert_eq!(resident(2048, 5000), Problem, "the host has less");
        assert_eq!(resident(100, 200), Problem, "less than the floor");
    }
}
