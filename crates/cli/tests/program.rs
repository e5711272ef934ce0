//! The program itself: each command that the help lists is one, and a word that is none is refused by its name.

use std::io::PipeWriter;
use std::process::{Command, Output, Stdio};

fn ebbtide(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ebbtide")).args(words).output().expect("the program starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("it prints UTF-8")
}

#[test]
fn each_listed_command_has_its_own_help() {
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
    assert!(["replay", "bench", "man"].iter().all(|command| commands.contains(command)), "{commands:?}");
    for command in commands {
        for words in [["help", command], [command, "-h"], [command, "--help"]] {
            let help = ebbtide(&words);
            let told = text(&help.stdout).contains(&format!("ebbtide {command}"));
            assert!(help.status.success() && told, "{words:?}: {help:?}");
        }
    }
}

#[test]
fn words_that_begin_with_a_dash_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for words in [["man", "-x"], ["man", "--frob"], ["completions", "--frob"], ["help", "--frob"], ["version", "more"]]
    {
        let refused = Command::new(env!("CARGO_BIN_EXE_ebbtide")).args(words).current_dir(&folder).output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{words:?}");
        assert!(text(&refused.stderr).contains(&format!("leave {} out", words[1])), "{words:?}: {refused:?}");
    }
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "a page was written");
}

#[test]
fn the_table_of_settings_has_values_only() {
    let check = ebbtide(&["--check", "-m", "64"]);
    let table: Vec<&str> = text(&check.stdout).lines().filter_map(|line| line.strip_prefix("set")).collect();
    let threads = std::thread::available_parallelism().map_or(4, |cores| cores.get().min(4));
    for wanted in ["--segment-size 64k (default)".to_owned(), format!("--threads {threads} (default)")] {
        assert!(table.iter().any(|row| row.trim() == wanted), "{wanted}: {table:?}");
    }
}

#[test]
fn an_unknown_command_is_refused_by_name() {
    let refused = ebbtide(&["replya"]);
    assert_eq!((refused.status.code(), text(&refused.stdout)), (Some(2), ""));
    let message = text(&refused.stderr);
    assert!(message.contains("replya") && message.contains("did you mean replay?"), "{message}");
}

#[test]
fn the_help_of_every_command_fits_80_columns() {
    let commands = "replay mrc advise capture generate bench top doctor dashboard health";
    let of_trace = ["info", "head", "convert", "filter", "sample", "merge"].map(|word| vec!["help", "trace", word]);
    for words in commands.split(' ').map(|word| vec!["help", word]).chain(of_trace) {
        let help = ebbtide(&words);
        assert!(help.status.success(), "{words:?}: {help:?}");
        let text = text(&help.stdout);
        assert!(text.contains(&format!("Usage: ebbtide {}", words[1..].join(" "))), "{words:?}: {text}");
        let wide = text.lines().find(|line| line.chars().count() > 80 && line.trim().contains(' '));
        assert_eq!(wide, None, "{words:?}");
    }
}

#[test]
fn exit_codes_say_why_a_command_failed() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (trace, text, absent) = (path("trace.csv"), path("text"), path("absent/out.csv"));
    std::fs::write(&trace, "timestamp_s,key_id,key_size,value_size,op,ttl_s\n0,1,8,9,get,0\n").unwrap();
    std::fs::write(&text, "no trace\n").unwrap();
    let (key, value, flag) = (path("key.toml"), path("value.toml"), path("flags"));
    std::fs::write(&key, "frob = 1\n").unwrap();
    std::fs::write(&value, "port = 70000\n").unwrap();
    std::fs::write(&flag, "--frob\n").unwrap();
    for (words, code) in [
        (vec!["--frob"], 1),
        (vec!["replya"], 2),
        (vec!["--config", &key], 78),
        (vec!["--flags-file", &flag], 78),
        (vec!["--config", &value], 64),
        (vec!["--config", &path("none")], 71),
        (vec!["help", "frob"], 2),
        (vec!["completions", "tcsh"], 2),
        (vec!["man"], 2),
        (vec!["replay", &trace, "--memory", "64m", "--frob"], 2),
        (vec!["replay", &trace, "--memory", "1k"], 2),
        (vec!["bench", "--get-ratio", "2"], 2),
        (vec!["replay", &path("none"), "--memory", "64m"], 66),
        (vec!["mrc", &text], 66),
        (vec!["trace", "convert", &trace, "--output", &absent], 73),
        (vec!["trace", "convert", &trace, "--output", &text], 73),
        (vec!["bench", "--target", "127.0.0.1:1", "--requests", "1"], 74),
        (vec!["replay", &trace, "--memory", "64m"], 0),
    ] {
        let done = ebbtide(&words);
        assert_eq!(done.status.code(), Some(code), "{words:?}: {}", self::text(&done.stderr));
    }
}

#[test]
fn several_replays_stand_in_columns_with_units() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.csv");
    std::fs::write(&trace, "timestamp_s,key_id,key_size,value_size,op,ttl_s\n0,1,8,9,get,0\n1,1,8,9,get,0\n").unwrap();
    let words = ["replay", trace.to_str().unwrap(), "--memory", "1m,4m", "--policy", "s3fifo,lru:insertion=1/2"];
    let done = ebbtide(&words);
    let table: Vec<&str> = text(&done.stdout).lines().take(5).collect();
    assert!(table[0].starts_with("memory") && table[0].len() <= 80, "{table:?}");
    for row in &table[1..] {
        let is_of_unit = row.contains(" 50 % ") && row.ends_with("/s");
        assert!(is_of_unit && row.chars().count() == table[0].len(), "{table:?}");
    }
    assert!(table[2].starts_with("1 MiB    lru:insertion=1/2 "), "{table:?}");
}

#[test]
fn trace_commands_refuse_a_trace_without_a_request() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let header = "timestamp_s,key_id,key_size,value_size,op,ttl_s\n";
    let (full, empty, spoiled, out) = (path("full.csv"), path("empty.csv"), path("spoiled.csv"), path("out.csv"));
    std::fs::write(&full, format!("{header}0,1,8,9,get,0\n")).unwrap();
    std::fs::write(&empty, header).unwrap();
    std::fs::write(&spoiled, format!("{header}bad\nworse\n")).unwrap();
    for trace in [&empty, &spoiled] {
        for words in [
            vec!["convert", trace],
            vec!["filter", trace, "--ops", "get"],
            vec!["sample", trace, "--one-of", "2"],
            vec!["merge", &full, trace],
            vec!["head", trace],
            vec!["convert", trace, "--columns", "key=1,size=3,time=2"],
        ] {
            let done = ebbtide(&[&["trace"], &words[..], &["--output", &out]].concat());
            let message = text(&done.stderr);
            assert_eq!(done.status.code(), Some(66), "{words:?}: {message}");
            assert!(message.contains(trace) && message.contains("not one request was read"), "{words:?}: {message}");
            assert!(!std::fs::exists(&out).unwrap(), "{words:?}");
        }
    }
    let done = ebbtide(&["trace", "filter", &full, "--ops", "set", "--output", &out]);
    assert_eq!(done.status.code(), Some(66), "it has requests, and keeps none");
    assert!(!std::fs::exists(&out).unwrap());
}

/// A stream whose reader has closed it, as with `| true`.
fn unread() -> PipeWriter {
    std::io::pipe().expect("a pipe").1
}

#[test]
fn a_closed_output_keeps_the_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let trace = path("trace.csv");
    std::fs::write(&trace, "timestamp_s,key_id,key_size,value_size,op,ttl_s\nbad\n0,1,8,9,get,0\n").unwrap();
    let generate = ["generate", "--preset", "zipf", "--requests", "10", "--keys", "5", "--overwrite", "--output"];
    for (words, code) in [
        (vec!["help"], 0),
        (vec!["--frob"], 1),
        (vec!["-p", "70000"], 64),
        (vec!["doctor", "-m", "100t"], 1),
        (vec!["doctor", "--memory-monitor", "bad"], 2),
        (vec!["trace", "convert", &trace, "--overwrite", "--output", &path("out.csv")], 0),
        (vec!["trace", "convert", &trace], 0),
        ([&generate[..], &[path("made.csv").as_str()]].concat(), 0),
        ([&generate[..], &["-"]].concat(), 0),
        (vec!["replay", &trace, "--memory", "64m"], 0),
        (vec!["replay", &path("none"), "--memory", "64m"], 66),
    ] {
        for (out, error) in [
            (Stdio::null(), Stdio::from(unread())),
            (Stdio::from(unread()), Stdio::null()),
            (Stdio::from(unread()), Stdio::from(unread())),
        ] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_ebbtide"));
            let status = command.args(&words).stdout(out).stderr(error).status().expect("the program starts");
            assert_eq!(status.code(), Some(code), "{words:?}");
        }
    }
}

#[test]
fn a_replay_takes_the_servers_flags_of_flash() {
    let folder = tempfile::tempdir().expect("there is a folder for temporary files");
    let (trace, flash) = (folder.path().join("trace.csv"), folder.path().join("flash"));
    let rows = "timestamp_s,key_id,key_size,value_size,op,ttl_s\n0,1,20,100,get,60\n1,1,20,100,get,60\n";
    std::fs::write(&trace, rows).expect("the folder is writable");
    let (trace, flash) = (trace.to_str().expect("UTF-8"), flash.to_str().expect("UTF-8"));
    let replay = |flags: &[&str]| {
        let words = ["replay", trace, "--memory", "1m,2m", "--flash", flash, "--flash-size", "6m"];
        ebbtide(&[words.as_slice(), flags].concat())
    };
    let combined =
        ["--flash-admission=all,min-ttl:5", "--flash-reclaim=lru,discard", "--flash-small-threshold=2,share:50"];
    let done = replay(&combined);
    assert!(done.status.success() && !text(&done.stderr).contains("old spelling"), "{done:?}");
    let old = replay(&["--flash-least-ttl", "5"]);
    let warnings = text(&old.stderr).matches("--flash-least-ttl is an old spelling").count();
    assert!(old.status.success() && warnings == 1, "two replays, one warning: {old:?}");
    let refused = replay(&["--flash-demotion-wait", "5"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let message = text(&refused.stderr);
    assert!(message.contains("--flash-demotion-wait") && message.contains("no client waits here"), "{message}");
}
