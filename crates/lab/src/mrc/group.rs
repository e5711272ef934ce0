//! Groups of requests that have a curve each.

use std::cmp::Reverse;

use ebbtide::ByteSize;

use crate::trace::loaded::{LoadedTrace, Step};

/// Maximum number of prefixes or pools with a curve each; the others, which have fewer gets, share one.
const MAX_GROUPS: usize = 20;

/// Grouping of requests, with a curve for each group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum By {
    /// Objects of 64 to 127 bytes, of 128 to 255 bytes, and so on
    Class,
    /// Keys that begin with the same text up to --delimiter
    Prefix,
    /// The pools of the trace
    Pool,
}

impl By {
    /// The name of the group in the JSON object.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Class => "class",
            Self::Prefix => "prefix",
            Self::Pool => "pool",
        }
    }
}

/// One group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequestGroup {
    pub(super) by: By,
    pub(super) name: String,
}

/// The groups that have gets: classes by their size, the others by their gets.
pub(super) fn split(workload: &LoadedTrace, by: By) -> Vec<(RequestGroup, LoadedTrace)> {
    let class_of = |step: &Step| step.bytes().max(1).ilog2();
    let named: Vec<(String, LoadedTrace)> = match by {
        By::Class => {
            let parts = workload.split(|_, step| class_of(step));
            parts.into_iter().map(|(class, part)| (class_name(class), part)).collect()
        }
        By::Prefix | By::Pool => {
            let groups = of_labels(workload, MAX_GROUPS, |_| true).into_iter();
            groups.map(|group| (group.name, group.part)).collect()
        }
    };
    let with_gets = named.into_iter().filter(|(_, part)| part.gets() > 0);
    with_gets.map(|(name, part)| (RequestGroup { by, name }, part)).collect()
}

/// The requests of one label, or of all labels without a group of their own.
pub(super) struct LabelGroup {
    pub(super) name: String,
    pub(super) part: LoadedTrace,
    pub(super) is_rest: bool,
}

/// A group for each label that can be alone, the one with the most gets first, and one for all others. At most `max`
/// labels and at most 20 are alone.
pub(super) fn of_labels(workload: &LoadedTrace, max: usize, can_be_alone: impl Fn(&str) -> bool) -> Vec<LabelGroup> {
    let names = &workload.label_names;
    let (alone, mut rest): (Vec<usize>, Vec<usize>) =
        most_gets_first(workload).into_iter().partition(|&label| can_be_alone(&names[label]));
    let (alone, others) = alone.split_at(alone.len().min(max).min(MAX_GROUPS));
    rest.extend(others);
    let mut ranks = vec![alone.len() as u32; names.len()];
    alone.iter().enumerate().for_each(|(rank, &label)| ranks[label] = rank as u32);
    let group = |(rank, part): (u32, LoadedTrace)| {
        let own = alone.get(rank as usize).map(|&label| names[label].clone());
        let is_rest = own.is_none();
        let name = own.unwrap_or_else(|| match rest[..] {
            [label] => names[label].clone(),
            _ => format!("{} others", rest.len()),
        });
        LabelGroup { name, part, is_rest }
    };
    workload.split(|number, _| ranks[workload.label(number) as usize]).into_iter().map(group).collect()
}

/// The labels, the one with the most gets first.
fn most_gets_first(workload: &LoadedTrace) -> Vec<usize> {
    let mut gets = vec![0u64; workload.label_names.len()];
    for number in 0..workload.steps.len() {
        gets[workload.label(number) as usize] += u64::from(workload.is_get(number));
    }
    let mut order: Vec<usize> = (0..gets.len()).collect();
    order.sort_by_key(|&label| Reverse(gets[label]));
    order
}

/// `64-127 B`, `1-2 KiB`, `512 KiB-1 MiB`.
fn class_name(class: u32) -> String {
    if class < 10 {
        return format!("{}-{} B", 1u64 << class, (1u64 << (class + 1)) - 1);
    }
    let text = |class: u32| ByteSize::bytes(1u64 << class.min(62)).to_string();
    let (from, to) = (text(class), text(class + 1));
    match (from.split_once(' '), to.split_once(' ')) {
        (Some((count, unit)), Some((_, next))) if unit == next => format!("{count}-{to}"),
        _ => format!("{from}-{to}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_have_short_names() {
        let names = [0, 6, 9, 10, 15, 19, 29, 30].map(class_name);
        let expected =
            ["1-1 B", "64-127 B", "512-1023 B", "1-2 KiB", "32-64 KiB", "512 KiB-1 MiB", "512 MiB-1 GiB", "1-2 GiB"];
        assert_eq!(names, expected);
    }
}
