//! No macro of the standard library that prints: it panics where the reader of the output is gone, and a thread that
//! panics does not serve. Tests, benches, examples and this program may print.

use super::problem::Problem;
use super::source::{Source, is_word};

const MACROS: [(&str, &str); 5] =
    [("eprintln!", MESSAGE), ("eprint!", MESSAGE), ("println!", RESULT), ("print!", RESULT), ("dbg!", MESSAGE)];
const MESSAGE: &str = "use ebbtide::message!, which goes on where nobody reads standard error";
const RESULT: &str = "write to stdout() and handle the error: a closed pipe ends a command quietly";

/// Folders and files that may print.
const PRINTING: [&str; 8] = ["tests", "benches", "examples", "testkit", "xtask", "fuzz", "compare", "build.rs"];

pub fn check(path: &str, source: &Source) -> Vec<Problem> {
    if path.split('/').any(|part| PRINTING.contains(&part)) {
        return Vec::new();
    }
    let code = &source.code[..source.tests_start()];
    let calls = MACROS.iter().flat_map(|&(name, advice)| {
        let found = code.match_indices(name).filter(|(at, _)| is_word(code, *at, name));
        found.map(move |(at, _)| Problem::new(path, source.line(at), "printing", format!("{name}: {advice}")))
    });
    calls.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(path, &Source::new(text)).iter().map(|problem| problem.line).collect()
    }

    #[test]
    fn print_macros_are_refused_for_closed_pipes() {
        let text = "fn f() {\n    eprintln!(\"x\");\n    std::print!(\"y\");\n    message!(\"z\");\n}\n";
        assert_eq!(lines("crates/server/src/a.rs", text), [2, 3]);
        assert_eq!(lines("crates/server/src/a.rs", "writeln!(out, \"println!\")?; // eprintln!"), [0; 0]);
    }

    #[test]
    fn tests_and_examples_may_print() {
        let text = "fn f() {}\n#[cfg(test)]\nmod tests {\n    fn g() { println!(\"seed\"); }\n}\n";
        assert_eq!(lines("crates/server/src/a.rs", text), [0; 0]);
        for path in ["crates/a/tests/b.rs", "crates/a/src/b/tests/c.rs", "crates/a/examples/d.rs", "xtask/src/main.rs"]
        {
            assert_eq!(lines(path, "fn f() { println!(); }"), [0; 0], "{path}");
        }
    }
}
