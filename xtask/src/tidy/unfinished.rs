//! Files whose lines and words are not yet as the rules `width` and `word` ask. The list only shrinks: an entry without
//! a problem is one itself.

use super::problem::Problem;

/// The rule, and a file or a folder (with `/` at its end) that it does not judge.
const UNFINISHED: &[(&str, &str)] = &[("word", "crates/flash/")];

pub fn filter(problems: Vec<Problem>) -> Vec<Problem> {
    filter_by(problems, UNFINISHED)
}

fn filter_by(problems: Vec<Problem>, unfinished: &[(&'static str, &str)]) -> Vec<Problem> {
    let mut kept = Vec::new();
    let mut is_used = vec![false; unfinished.len()];
    for problem in problems {
        let covers = |(rule, at): &(&str, &str)| {
            problem.rule == *rule && (problem.file == *at || (at.ends_with('/') && problem.file.starts_with(at)))
        };
        match unfinished.iter().position(covers) {
            Some(entry) => is_used[entry] = true,
            None => kept.push(problem),
        }
    }
    let unused = unfinished.iter().zip(is_used).filter(|(_, is_used)| !is_used);
    let advice = "is as it should be: remove it from the list in xtask/src/tidy/unfinished.rs";
    kept.extend(unused.map(|((rule, at), _)| Problem::new(at, 1, rule, advice)));
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_files_pass_until_they_are_clean() {
        let problem = |file: &str, rule| Problem::new(file, 3, rule, "x");
        let problems = vec![problem("a/b.rs", "word"), problem("a/b.rs", "width"), problem("c.md", "word")];
        let files = |unfinished: &[(&'static str, &str)]| {
            let kept = filter_by(problems.clone(), unfinished).into_iter();
            kept.map(|problem| (problem.rule, problem.file)).collect::<Vec<_>>()
        };
        assert_eq!(files(&[("word", "a/"), ("word", "c.md")]), [("width", "a/b.rs".to_owned())]);
        assert_eq!(files(&[("word", "a"), ("word", "c.md")]).len(), 3, "a folder ends with a slash");
        let unused = files(&[("word", "a/"), ("width", "a/"), ("word", "c.md"), ("word", "d.md")]);
        assert_eq!(unused, [("word", "d.md".to_owned())]);
    }
}
