//! The tables of docs/compatibility.md against those in the code.

use super::extended::OPTIONS;
use super::table::{FLAGS, Meaning};

const PAGE: &str = include_str!("../../../../docs/compatibility.md");

/// Name, verdict and reason of each entry of the table below this heading.
fn documented(heading: &str) -> Vec<(&'static str, &'static str, &'static str)> {
    let (_, rest) = PAGE.split_once(&format!("\n## {heading}\n")).expect("the heading");
    let section = rest.split("\n## ").next().unwrap_or(rest);
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |"));
    let mut entries = Vec::new();
    for row in rows {
        let cells: Vec<&str> = row.splitn(3, " | ").collect();
        let [names, verdict, why] = cells[..] else { panic!("three cells: {row}") };
        entries
            .extend(names.split('`').map(str::trim).filter(|name| !name.is_empty()).map(|name| (name, verdict, why)));
    }
    entries
}

fn compare(heading: &str, code: Vec<(String, Meaning)>) {
    let page = documented(heading);
    for (name, meaning) in &code {
        let entries: Vec<_> = page.iter().filter(|entry| entry.0 == name).collect();
        let [(_, verdict, why)] = entries[..] else { panic!("{name}: {} rows under {heading}", entries.len()) };
        match meaning {
            Meaning::Used => assert!(["same", "mapped", "own"].contains(verdict), "{name}: {verdict}"),
            Meaning::Given => assert_eq!(*verdict, "same", "{name}"),
            Meaning::Ignored(reason) => assert_eq!((*verdict, *why), ("ignored", *reason), "{name}"),
            Meaning::Refused(reason) => assert_eq!((*verdict, *why), ("refused", *reason), "{name}"),
            Meaning::Old(new) => assert_eq!((*verdict, *why), ("old", format!("`{new}`").as_str()), "{name}"),
        }
    }
    for (name, ..) in &page {
        assert!(code.iter().any(|(known, _)| known == name), "{name} is documented and not in the code");
    }
}

#[test]
fn every_flag_is_documented_as_it_is() {
    compare("Flags", FLAGS.iter().map(|flag| (flag.name(), flag.meaning)).collect());
    for flag in FLAGS {
        let verdict = documented("Flags").iter().find(|entry| entry.0 == flag.name()).map(|entry| entry.1);
        assert_eq!(matches!(verdict, Some("own" | "old")), flag.short.is_none(), "{}", flag.name());
    }
}

#[test]
fn every_option_is_documented_as_it_is() {
    compare("Options of -o", OPTIONS.iter().map(|option| (option.0.to_owned(), option.2)).collect());
}
