//! Bytes in, steps out. What memcached 1.6.18 does with the same bytes is the reference for every line here.

use ebbtide_protocol::{Get, LINE_LIMIT, Parser, Rejection, Request, Step, Store, StoreMode};

const INLINE: usize = 64;

/// All steps that `input` gives when it arrives in pieces of `piece` bytes, as text.
fn steps(input: &[u8], piece: usize) -> Vec<String> {
    let mut parser = Parser::new(INLINE);
    let mut steps = Vec::new();
    let mut waiting: Vec<u8> = Vec::new();
    for piece in input.chunks(piece.max(1)) {
        waiting.extend_from_slice(piece);
        loop {
            let (step, used) = parser.next(&waiting);
            let text = text(&step);
            let stop = matches!(step, Step::NeedMore | Step::Close);
            let closed = step == Step::Close;
            waiting.drain(..used);
            if step_matters(&text) {
                steps.push(text);
            }
            if closed {
                return steps;
            }
            if stop {
                break;
            }
        }
    }
    steps
}

fn step_matters(text: &str) -> bool {
    text != "more"
}

fn text(step: &Step<'_>) -> String {
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match step {
        Step::NeedMore => "more".into(),
        Step::Close => "close".into(),
        Step::Reject { rejection, noreply } => {
            let line = lossy(rejection.line());
            format!("{}{}", line.trim_end(), if *noreply { " (silent)" } else { "" })
        }
        Step::Request(Request::Get(Get { keys, with_cas, touch, last })) => {
            let keys: Vec<String> = keys.clone().map(lossy).collect();
            let touch = touch.map(|t| format!(" touch {t}")).unwrap_or_default();
            let cas = if *with_cas { "s" } else { "" };
            format!("get{cas}{touch} [{}]{}", keys.join(","), if *last { "" } else { "..." })
        }
        Step::Request(Request::Store(Store { mode, key, flags, exptime, length, noreply, value })) => {
            let value = value.map(lossy);
            let noreply = if *noreply { " noreply" } else { "" };
            format!("{mode:?} {} {flags} {exptime} {length}{noreply} {value:?}", lossy(key))
        }
        Step::Request(request) => format!("{request:?}"),
    }
}

/// Whatever pieces it arrives in, `input` means the same.
fn check(input: &[u8], expected: &[&str]) {
    for piece in [input.len(), 1, 2, 3, 7] {
        assert_eq!(
            steps(input, piece),
            expected,
            "{:?} in pieces of {piece}",
            String::from_utf8_lossy(&input[..input.len().min(200)])
        );
    }
}

const ERROR: &str = "ERROR";
const BAD: &str = "CLIENT_ERROR bad command line format";

#[test]
fn lines_end_with_or_without_a_return() {
    check(b"get k\r\n", &["get [k]"]);
    check(b"get k\n", &["get [k]"]);
    check(b"get k\r\r\n", &["get [k\r]"]);
    check(b"\r\n", &[ERROR]);
    check(b"\n", &[ERROR]);
    check(b"a\r\nversion\r\n", &[ERROR, "Version"]);
    check(b"  get   a  b  \r\n", &["get [a,b]"]);
    check(b"get a\0b c\r\nversion\n", &["get [a]", "Version"]);
    check(b"get \0\r\n", &[ERROR]);
}

#[test]
fn gets_take_any_number_of_keys() {
    check(b"get\r\n", &[ERROR]);
    check(b"get \r\n", &[ERROR]);
    check(b"gets a b\r\n", &["gets [a,b]"]);
    check(b"bget a\r\n", &["get [a]"]);
    check(b"gat\r\n", &[ERROR]);
    check(b"gat 0\r\n", &["get touch 0 []"]);
    check(b"gat 10 a b\r\n", &["get touch 10 [a,b]"]);
    check(b"gats -1 a\r\n", &["gets touch -1 [a]"]);
    check(b"gat x a\r\n", &["CLIENT_ERROR invalid exptime argument"]);
    let longest = "k".repeat(250);
    check(format!("get {longest} b\r\n").as_bytes(), &[&format!("get [{longest},b]")]);
    check(format!("get a {longest}k b\r\n").as_bytes(), &[BAD]);
    check(format!("gat 0 a {longest}k\r\nget a\r\n").as_bytes(), &[BAD, "get [a]"]);
}

#[test]
fn storage_commands_carry_their_value() {
    check(b"set k 1 2 3\r\nabc\r\n", &["Set k 1 2 3 Some(\"abc\")"]);
    check(b"set k 1 2 3\nabc\r\n", &["Set k 1 2 3 Some(\"abc\")"]);
    check(b"add k 0 0 0 noreply\r\n\r\n", &["Add k 0 0 0 noreply Some(\"\")"]);
    check(b"set k 0 0 3\r\na\r\n\r\n", &["Set k 0 0 3 Some(\"a\\r\\n\")"]);
    check(b"replace k 0 0 1\r\nx\r\n", &["Replace k 0 0 1 Some(\"x\")"]);
    check(b"append k 0 0 1\r\nx\r\n", &["Append k 0 0 1 Some(\"x\")"]);
    check(b"prepend k 0 0 1\r\nx\r\n", &["Prepend k 0 0 1 Some(\"x\")"]);
    check(b"cas k 0 0 1 77\r\nx\r\n", &["Cas(77) k 0 0 1 Some(\"x\")"]);
    check(b"cas k 0 0 1 77 noreply\r\nx\r\n", &["Cas(77) k 0 0 1 noreply Some(\"x\")"]);
    check(b"set k 0 0 1 anything\r\nx\r\n", &["Set k 0 0 1 Some(\"x\")"]);
}

#[test]
fn values_that_do_not_end_where_they_should_are_refused() {
    check(b"set k 0 0 3\r\nabcdef\r\n", &["CLIENT_ERROR bad data chunk", ERROR]);
    check(b"set k 0 0 1 noreply\r\nxyzw\r\nversion\r\n", &["CLIENT_ERROR bad data chunk (silent)", ERROR, "Version"]);
}

#[test]
fn bad_storage_commands_do_not_swallow_their_data() {
    check(b"set k 0 0\r\n", &[ERROR]);
    check(b"set k 0 0 1 noreply more\r\n", &[ERROR]);
    check(b"set k 0 0 -1\r\n", &[BAD]);
    check(b"set k 0 0 x\r\n", &[BAD]);
    check(b"set k -1 0 1\r\nx\r\n", &[BAD, ERROR]);
    check(b"set k 0 x 1\r\n", &[BAD]);
    check(b"set k 0 0 2147483646\r\n", &[BAD]);
    check(b"set k 0 0 noreply\r\n", &[&format!("{BAD} (silent)")]);
    check(b"cas k 0 0 1\r\n", &[ERROR]);
    check(b"cas k 0 0 1 x\r\n", &[BAD]);
    let long = "k".repeat(251);
    check(format!("set {long} 0 0 1\r\nx\r\n").as_bytes(), &[BAD, ERROR]);
}

#[test]
fn arguments_wrap_as_in_c() {
    check(b"set k 4294967297 0 1\r\nx\r\n", &["Set k 1 0 1 Some(\"x\")"]);
    check(b"set k 0 4294967295 1\r\nx\r\n", &["Set k 0 -1 1 Some(\"x\")"]);
    check(b"set k 0 0 4294967297\r\nx\r\n", &["Set k 0 0 1 Some(\"x\")"]);
    check(b"set k +7 0 1\r\nx\r\n", &["Set k 7 0 1 Some(\"x\")"]);
}

#[test]
fn other_commands_check_their_arguments() {
    let usage = "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]";
    check(b"delete k\r\n", &["Delete { key: [107], noreply: false }"]);
    check(b"delete k 0\r\n", &["Delete { key: [107], noreply: false }"]);
    check(b"delete k noreply\r\n", &["Delete { key: [107], noreply: true }"]);
    check(b"delete k 0 noreply\r\n", &["Delete { key: [107], noreply: true }"]);
    check(b"delete k 5\r\n", &[usage]);
    check(b"delete k 0 0\r\n", &[usage]);
    check(b"delete k x noreply\r\n", &[&format!("{usage} (silent)")]);
    check(b"delete\r\ndelete a b c d\r\n", &[ERROR, ERROR]);
    let delta = "CLIENT_ERROR invalid numeric delta argument";
    check(b"incr k -1\r\ndecr k x\r\n", &[delta, delta]);
    check(b"incr k noreply\r\n", &[&format!("{delta} (silent)")]);
    check(b"incr k\r\nincr k 1 2 3\r\n", &[ERROR, ERROR]);
    check(
        b"decr k 18446744073709551615 noreply\r\n",
        &["Arithmetic { key: [107], delta: 18446744073709551615, increment: false, noreply: true }"],
    );
    check(b"touch k -5\r\n", &["Touch { key: [107], exptime: -5, noreply: false }"]);
    check(b"touch k\r\ntouch k x\r\n", &[ERROR, "CLIENT_ERROR invalid exptime argument"]);
    check(b"flush_all\r\n", &["FlushAll { exptime: 0, noreply: false }"]);
    check(b"flush_all noreply\r\n", &["FlushAll { exptime: 0, noreply: true }"]);
    check(b"flush_all 9 noreply\r\n", &["FlushAll { exptime: 9, noreply: true }"]);
    check(b"flush_all x\r\n", &["CLIENT_ERROR invalid exptime argument"]);
    check(b"flush_all 1 2 3\r\n", &[ERROR]);
    check(b"verbosity\r\nverbosity 1 2 3\r\nverbosity x\r\n", &[ERROR, ERROR, BAD]);
    check(b"verbosity noreply\r\n", &[&format!("{BAD} (silent)")]);
    check(b"verbosity 1\r\n", &["Verbosity { level: 1, noreply: false }"]);
    check(b"cache_memlimit\r\ncache_memlimit x\r\n", &[ERROR, ERROR]);
    check(b"cache_memlimit 64\r\n", &["MemoryLimit { megabytes: 64, noreply: false }"]);
    check(b"shutdown\r\nshutdown graceful\r\n", &["Shutdown { mode_known: true }"; 2]);
    check(b"shutdown now\r\n", &["Shutdown { mode_known: false }"]);
    check(b"stats\r\n", &["Stats { topic: None, argument: None }"]);
    check(b"stats x y z\r\n", &["Stats { topic: Some([120]), argument: Some([121]) }"]);
    check(b"version 1 2 3\r\nquit now\r\n", &["Version", "Quit"]);
    check(b"GET k\r\n", &[ERROR]);
}

#[test]
fn browsers_are_turned_away() {
    check(b"GET / HTTP/1.1\r\nget k\r\n", &["close"]);
    check(b"HEAD HTTP/1.0 x\r\n", &[ERROR]);
    check(b"get HTTP/1.1\r\n", &["get [HTTP/1.1]"]);
}

#[test]
fn lines_without_an_end_close_unless_they_are_gets() {
    let fits = vec![b'x'; LINE_LIMIT];
    assert_eq!(steps(&fits, fits.len()), [""; 0]);
    let too_long = vec![b'x'; LINE_LIMIT + 1];
    check(&too_long, &["close"]);
    let gat = [b"gat 0 ", &b"k ".repeat(LINE_LIMIT)[..]].concat();
    check(&gat, &["close"]);
    // With an end in sight it is only as wrong as any other.
    let ended = [&vec![b'x'; 9000][..], b"\r\n"].concat();
    assert_eq!(steps(&ended, ended.len()), [ERROR]);
    let ended = [&vec![b'x'; 20_000][..], b"\r\n"].concat();
    assert_eq!(steps(&ended, ended.len()), ["close"]);
}

#[test]
fn long_gets_come_in_parts() {
    let keys: Vec<String> = (0..2000).map(|n| format!("key-{n}")).collect();
    let input = format!("gets {}\r\nversion\r\n", keys.join(" "));
    for piece in [input.len(), 1, 100, 4096] {
        let mut seen = Vec::new();
        let steps = steps(input.as_bytes(), piece);
        let (version, parts) = steps.split_last().expect("steps");
        assert_eq!(version, "Version");
        for (index, part) in parts.iter().enumerate() {
            let last = index + 1 == parts.len();
            let (list, end) = part["gets [".len()..].split_once(']').expect("a list");
            assert_eq!(end, if last { "" } else { "..." });
            seen.extend(list.split(',').filter(|k| !k.is_empty()).map(String::from));
        }
        assert_eq!(seen, keys, "in pieces of {piece}");
    }
}

#[test]
fn a_nul_ends_a_long_get_and_hides_the_rest_of_its_line() {
    let line = [b"get ", &b"abc ".repeat(600)[..], b"x\0 y ", &b"z ".repeat(300), b"\nversion\n"].concat();
    for piece in [line.len(), 2410, 2412, 2500, 700, 1] {
        let steps = steps(&line, piece);
        let (version, parts) = steps.split_last().expect("steps");
        assert_eq!(version, "Version");
        assert!(parts.last().expect("a get").ends_with("x]"), "{parts:?}");
        assert!(!parts.concat().contains('y'), "{parts:?}");
    }
}

#[test]
fn a_long_key_ends_a_long_get() {
    let line = [b"get ", &b"abc ".repeat(600)[..], &vec![b'k'; 300], b" d\r\nversion\r\n"].concat();
    assert_eq!(steps(&line, line.len()), [BAD, "Version"]);
    let steps = steps(&line, 1000);
    assert_eq!(&steps[steps.len() - 2..], [BAD, "Version"]);
}

#[test]
fn values_longer_than_the_inline_limit_are_left_to_the_caller() {
    let mut parser = Parser::new(INLINE);
    let (step, used) = parser.next(b"set k 0 0 64\r\nabc");
    assert_eq!((step, used), (Step::NeedMore, 0));
    let (step, used) = parser.next(b"set k 0 0 65\r\nabc");
    assert_eq!(text(&step), "Set k 0 0 65 None");
    assert_eq!(used, b"set k 0 0 65\r\n".len());
    // One that is all there is returned whole however long it is.
    let whole = [b"set k 0 0 100\r\n", &[b'x'; 100][..], b"\r\n"].concat();
    let (step, used) = parser.next(&whole);
    assert_eq!(used, whole.len());
    let Step::Request(Request::Store(Store { value: Some(value), mode: StoreMode::Set, .. })) = step else {
        panic!("{step:?}");
    };
    assert_eq!(value, [b'x'; 100]);
}

#[test]
fn keys_given_again_continue_their_get() {
    let mut parser = Parser::new(INLINE);
    let input = b"gats 5 a b c\r\nget d\r\n";
    let (step, used) = parser.next(input);
    assert_eq!(text(&step), "gets touch 5 [a,b,c]");
    assert_eq!(used, 14);
    parser.resume_keys(true, Some(5));
    let (step, used) = parser.next(&input[9..]);
    assert_eq!((text(&step).as_str(), used), ("gets touch 5 [b,c]", 5));
    let (step, _) = parser.next(&input[14..]);
    assert_eq!(text(&step), "get [d]");
}

#[test]
fn rejections_are_memcacheds_lines() {
    assert_eq!(Rejection::Error.line(), b"ERROR\r\n");
    assert_eq!(Rejection::BadDataChunk.line(), b"CLIENT_ERROR bad data chunk\r\n");
}
