//! The program itself: each command that the help lists is one, and a word that is none is refused by its name.

use std::process::{Command, Output};

fn ebbtide(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ebbtide")).args(words).output().expect("the program starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("it prints UTF-8")
}

#[test]
fn each_command_that_the_help_lists_has_its_own_help() {
    let help = ebbtide(&["help"]);
    assert!(help.status.success());
    let commands: Vec<&str> = text(&help.stdout)
        .lines()
        .skip_while(|line| !line.starts_with("usage:"))
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next().filter(|word| !word.is_empty()))
        .filter(|word| !word.starts_with('['))
        .collect();
    assert!(commands.contains(&"replay") && commands.contains(&"bench"), "{commands:?}");
    for command in commands.into_iter().filter(|&command| !["help", "version"].contains(&command)) {
        let help = ebbtide(&["help", command]);
        assert!(help.status.success() && text(&help.stdout).contains(command), "help {command}: {help:?}");
    }
}

#[test]
fn a_word_that_is_no_command_is_refused_by_its_name() {
    let refused = ebbtide(&["replya"]);
    assert!(!refused.status.success() && refused.stdout.is_empty());
    let message = text(&refused.stderr);
    assert!(message.contains("replya") && message.contains("did you mean replay?"), "{message}");
}
