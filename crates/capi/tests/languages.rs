//! `docs/languages.md` names all that the library, the header and the Python stubs have, and nothing else.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Types whose methods the table has.
const TYPES: [&str; 14] = [
    "Cache",
    "CacheBuilder",
    "Pool",
    "CompactPool",
    "NegativeCache",
    "Words",
    "TypedHandle",
    "FixedArray",
    "Map",
    "MapSnapshot",
    "RangeMap",
    "AppendBuffer",
    "Records",
    "CacheProfile",
];
/// Special methods of Python that are in the table; `[]` and others are said in the text.
const SPECIAL: [&str; 4] = ["__init__", "__exit__", "__contains__", "__len__"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn word(text: &str) -> &str {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next().unwrap_or_default()
}

/// The type of a line that begins an `impl` of its own methods.
fn type_of(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("impl").filter(|rest| !rest.contains(" for "))?;
    // Behind the type parameters, in which `>` closes the last `<`.
    let rest = match rest.strip_prefix('<') {
        Some(parameters) => {
            let mut depth = 1;
            let end = parameters.find(|letter| {
                depth += i32::from(letter == '<') - i32::from(letter == '>');
                depth == 0
            })?;
            &parameters[end + 1..]
        }
        None => rest,
    };
    Some(word(rest.trim_start()))
}

/// `Type::method` of a source file.
fn methods(source: &str) -> Vec<String> {
    let (mut current, mut found) = ("", Vec::new());
    for line in source.lines() {
        if line.starts_with("impl") {
            current = type_of(line).unwrap_or_default();
        }
        let method = ["    pub fn ", "    pub async fn "].iter().find_map(|start| line.strip_prefix(start));
        if let Some(method) = method.filter(|_| TYPES.contains(&current)) {
            found.push(format!("{current}::{}", word(method)));
        }
    }
    found
}

fn of_rust() -> BTreeSet<String> {
    let source = root().join("crates/ebbtide/src");
    let folders = ["library", "structured"].iter().flat_map(|folder| fs::read_dir(source.join(folder)).unwrap());
    let files = folders
        .map(|file| file.unwrap().path())
        .chain(["profile.rs", "profile_start.rs"].map(|file| source.join(file)));
    files.flat_map(|file| methods(&fs::read_to_string(file).unwrap())).collect()
}

fn of_c() -> BTreeSet<String> {
    let header = text("crates/capi/include/ebbtide.h");
    let is_function =
        |line: &&str| !line.starts_with([' ', '/', '*', '#']) && line.contains('(') && !line.contains("typedef");
    let name = |line: &str| line.split('(').next().and_then(|start| start.rsplit([' ', '*']).next()).map(str::to_owned);
    header.lines().filter(is_function).filter_map(name).collect()
}

/// `Class.method` and functions of the stubs. Private classes count as the classes that they are bases of.
fn of_python() -> BTreeSet<String> {
    let (mut class, mut found) = (String::new(), BTreeSet::new());
    for line in text("python/ebbtide/__init__.pyi").lines() {
        if let Some(name) = line.strip_prefix("class ") {
            class = match word(name) {
                "_Entries" => "Map".to_owned(),
                "_Memoized" => "memoize".to_owned(),
                name => name.to_owned(),
            };
        }
        if let Some(name) = ["    def ", "    async def "].iter().find_map(|start| line.strip_prefix(start)) {
            let name = word(name);
            if !name.starts_with("__") || SPECIAL.contains(&name) {
                found.insert(format!("{class}.{name}"));
            }
        }
        if let Some(name) = line.strip_prefix("def ") {
            found.insert(word(name).to_owned());
        }
    }
    found
}

/// The names of a column of all tables. A cell has names, or `-` and its reason.
fn of_table(column: usize) -> BTreeSet<String> {
    let page = text("docs/languages.md");
    let mut found = BTreeSet::new();
    for row in page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| what |")) {
        let cell = row.split('|').nth(column + 2).unwrap_or_else(|| panic!("{row}: too few cells")).trim();
        match cell.strip_prefix("-: ") {
            Some(reason) => assert!(!reason.is_empty(), "{row}: no reason"),
            None => {
                let names: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
                assert!(!names.is_empty(), "{row}: neither names nor `-: reason`");
                found.extend(names.into_iter().map(str::to_owned));
            }
        }
    }
    found
}

fn compare(language: &str, there: &BTreeSet<String>, listed: &BTreeSet<String>) {
    let (missing, unknown): (Vec<_>, Vec<_>) = (there.difference(listed).collect(), listed.difference(there).collect());
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "docs/languages.md, {language}: missing {missing:?}; unknown {unknown:?}"
    );
}

#[test]
fn the_table_names_every_method_of_rust() {
    let methods = of_rust();
    assert!(methods.len() > 100, "{methods:?}");
    compare("Rust", &methods, &of_table(0));
}

#[test]
fn the_table_names_every_function_of_c() {
    let functions = of_c();
    assert!(functions.len() > 50, "{functions:?}");
    compare("C", &functions, &of_table(1));
}

#[test]
fn the_table_names_every_method_of_python() {
    let mut methods = of_python();
    assert!(methods.len() > 50, "{methods:?}");
    // The page names these once, as behaviour of all maps.
    methods.retain(|name| !["Map.__contains__", "Map.__len__"].contains(&name.as_str()));
    compare("Python", &methods, &of_table(2));
}
