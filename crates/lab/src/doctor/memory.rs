//! Memory: available bytes, and kernel settings that affect them.

use ebbtide::ByteSize;

use super::finding::Finding;
use super::machine::Machine;

/// Memory of a server beside its memory limit: a twentieth of the limit, and buffers and code.
const OVERHEAD_SHARE: u64 = 20;
const OVERHEAD_BYTES: u64 = 32 << 20;
/// Percentage of the memory above which little is left for the rest of the machine.
const CROWDED_PERCENT: u64 = 90;
/// Ratio of reserved address space to memory: the limit can grow while the server runs.
const RESERVED: u64 = 4;
/// Largest swappiness at which the kernel rarely swaps memory out.
const SWAPPINESS: u64 = 10;

/// Bytes that a server with this memory limit needs.
pub fn needed_bytes(memory_bytes: u64) -> u64 {
    memory_bytes.saturating_add(memory_bytes / OVERHEAD_SHARE + OVERHEAD_BYTES)
}

pub fn fits(machine: &Machine, memory: ByteSize) -> Finding {
    const NAME: &str = "memory";
    let Some(all) = machine.memory("MemTotal") else {
        return Finding::ok(NAME, "this system does not tell how much there is");
    };
    let group = machine.group_limit().filter(|limit| *limit < all);
    let there = group.unwrap_or(all);
    let needed = needed_bytes(memory.as_bytes());
    let whose = if group.is_some() { "in this control group" } else { "in this machine" };
    let size = ByteSize::bytes;
    let found = format!("{} needed for -m {}, {} {whose}", size(needed), memory, size(there));
    if needed > there {
        let uncrowded = (there / 100 * CROWDED_PERCENT).saturating_sub(OVERHEAD_BYTES);
        let max = (uncrowded - uncrowded / (OVERHEAD_SHARE + 1)) >> 20;
        let more = if group.is_some() {
            ", or increase the limit (MemoryMax= of the unit, resources.limits of the pod)"
        } else {
            ""
        };
        return Finding::problem(NAME, found, format!("lower -m to {max} at most{more}"));
    }
    if needed > there / 100 * CROWDED_PERCENT {
        return Finding::advice(
            NAME,
            found,
            format!("leave more than {} % for the rest: lower -m", 100 - CROWDED_PERCENT),
        );
    }
    Finding::ok(NAME, found)
}

pub fn address_space(machine: &Machine, memory: ByteSize) -> Finding {
    const NAME: &str = "overcommit";
    if machine.number("proc/sys/vm/overcommit_memory") != Some(2) {
        return Finding::ok(NAME, "address space can be reserved");
    }
    let wanted = (memory.as_bytes() * RESERVED).max(machine.memory("MemTotal").unwrap_or(0));
    let used = machine.memory("Committed_AS").unwrap_or(0);
    let left = machine.memory("CommitLimit").unwrap_or(0).saturating_sub(used);
    let found = format!(
        "vm.overcommit_memory=2: {} can still be reserved, a server reserves {}",
        ByteSize::bytes(left),
        ByteSize::bytes(wanted)
    );
    match left < wanted {
        true => Finding::problem(NAME, found, "sysctl -w vm.overcommit_memory=0"),
        false => Finding::ok(NAME, found),
    }
}

pub fn swap(machine: &Machine) -> Finding {
    const NAME: &str = "swap";
    let swap = machine.memory("SwapTotal").unwrap_or(0);
    let swappiness = machine.number("proc/sys/vm/swappiness").unwrap_or(0);
    let found = format!("{} of swap, vm.swappiness={swappiness}", ByteSize::bytes(swap));
    match swap > 0 && swappiness > SWAPPINESS {
        true => Finding::advice(
            NAME,
            found,
            "a get that waits for swap is slower than a miss: sysctl -w vm.swappiness=1, or MemorySwapMax=0 in the unit, or -k",
        ),
        false => Finding::ok(NAME, found),
    }
}

pub fn huge_pages(machine: &Machine) -> Finding {
    const NAME: &str = "huge pages";
    let path = "sys/kernel/mm/transparent_hugepage/enabled";
    let Some(modes) = machine.read(path) else {
        return Finding::advice(
            NAME,
            "this kernel has no transparent huge pages",
            "use one that has: gets miss the TLB less",
        );
    };
    match modes.contains("[never]") {
        true => Finding::advice(NAME, modes, format!("echo madvise > /{path}")),
        false => Finding::ok(NAME, modes),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict::{Advice, Ok, Problem};
    use super::super::machine::tests::machine;
    use super::*;

    #[test]
    fn memory_is_compared_with_machine_and_control_group() {
        let info = ("proc/meminfo", "MemTotal: 1048576 kB\n");
        let (_folder, free) = machine(&[info]);
        assert_eq!(fits(&free, ByteSize::mib(512)).verdict, Ok);
        assert_eq!(fits(&free, ByteSize::mib(900)).verdict, Advice);
        assert_eq!(fits(&free, ByteSize::mib(1000)).verdict, Problem);
        let (_folder, caged) = machine(&[info, ("sys/fs/cgroup/memory.max", "536870912")]);
        let finding = fits(&caged, ByteSize::mib(512));
        assert_eq!(finding.verdict, Problem);
        assert_eq!(finding.advice.unwrap().split(',').next(), Some("lower -m to 408 at most"));
        assert_eq!(fits(&caged, ByteSize::mib(408)).verdict, Ok);
        assert_eq!(fits(&caged, ByteSize::mib(410)).verdict, Advice);
    }

    #[test]
    fn strict_accounting_must_leave_space_for_the_reservation() {
        let files = |mode, limit| [("proc/sys/vm/overcommit_memory", mode), ("proc/meminfo", limit)];
        let verdict = |files: &[(&str, &str)]| address_space(&machine(files).1, ByteSize::mib(64)).verdict;
        let tight = "MemTotal: 1024 kB\nCommitLimit: 200000 kB\nCommitted_AS: 100000 kB\n";
        let (_folder, strict) = machine(&files("2", tight));
        assert_eq!(address_space(&strict, ByteSize::mib(64)).verdict, Problem);
        let (_folder, roomy) = machine(&files("2", "CommitLimit: 900000 kB\n"));
        assert_eq!(address_space(&roomy, ByteSize::mib(64)).verdict, Ok);
        assert_eq!(verdict(&[]), Ok);
    }

    #[test]
    fn swap_and_huge_pages() {
        let path = "proc/sys/vm/swappiness";
        let (_folder, eager) = machine(&[("proc/meminfo", "SwapTotal: 100 kB\n"), (path, "60")]);
        assert_eq!(swap(&eager).verdict, Advice);
        let (_folder, calm) = machine(&[("proc/meminfo", "SwapTotal: 0 kB\n"), (path, "60")]);
        assert_eq!(swap(&calm).verdict, Ok);
        let path = "sys/kernel/mm/transparent_hugepage/enabled";
        let (_folder, never) = machine(&[(path, "always madvise [never]\n")]);
        assert_eq!(huge_pages(&never).verdict, Advice);
        let (_folder, asked) = machine(&[(path, "always [madvise] never\n")]);
        assert_eq!(huge_pages(&asked).verdict, Ok);
    }
}
