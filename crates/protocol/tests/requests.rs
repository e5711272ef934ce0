//! Bytes in, steps out. memcached 1.6.45 with the same bytes is the reference, except for the differences in
//! `docs/compatibility.md`: above all a storage command closes the connection where its value cannot be dropped.

use ebbtide_protocol::{Get, LINE_LIMIT, Parser, Rejection, Request, Step, StoreMode, StoreRequest};

const INLINE: usize = 64;

/// All steps that `input` gives when it arrives in pieces of `piece` bytes, as text.
fn steps(input: &[u8], piece: usize) -> Vec<String> {
    let mut parser = Parser::new(INLINE);
    let mut steps = Vec::new();
    let mut waiting: Vec<u8> = Vec::new();
    for piece in input.chunks(piece.max(1)) {
        waiting.extend_from_slice(piece);
        loop {
            let (step, place) = parser.next(&waiting);
            let text = text(&step);
            let stop = matches!(step, Step::NeedMore | Step::Close);
            let closed = step == Step::Close;
            waiting.drain(..place.end);
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
        Step::Request(Request::Store(StoreRequest { mode, key, flags, exptime, length, noreply, value })) => {
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
    check(b"  get   a  b  \r\n", &["get [a,b]"]);
    check(b"mn\r\nmn\n", &["MetaNoOp", "MetaNoOp"]);
}

#[test]
fn short_lines_are_malformed() {
    for line in [&b"\r\n"[..], b"\n", b" \n", b"a\r\n", b" \r\n", b"\t\n", b"\r\r\n", b"mg\n", b"ab\n"] {
        check(&[line, b"version\r\n"].concat(), &[BAD, "Version"]);
    }
    check(b"ab\r\nabc\n   \r\n", &[ERROR, ERROR, ERROR]);
}

#[test]
fn a_nul_is_a_byte_like_others() {
    check(b"get a\0b c\r\nversion\n", &["get [a\0b,c]", "Version"]);
    check(b"get \0\r\n", &["get [\0]"]);
    check(b"set a\0b 0 0 2\r\nxy\r\n", &["Set a\0b 0 0 2 Some(\"xy\")"]);
    check(b"delete a\0b\r\n", &["Delete { key: [97, 0, 98], noreply: false }"]);
    check(b"incr a\0b 1\r\n", &["Arithmetic { key: [97, 0, 98], delta: 1, increment: true, noreply: false }"]);
    check(b"touch a\0b 5\r\n", &["Touch { key: [97, 0, 98], exptime: 5, noreply: false }"]);
    check(b"set k 0 0 1\0 2\r\nxy\r\n", &[BAD, "close"]);
    check(b"version\0\r\n", &[ERROR]);
}

#[test]
fn gets_take_any_number_of_keys() {
    check(b"get\r\ngets\r\n", &[BAD, BAD]);
    check(b"get \r\n", &[BAD]);
    check(b"gets a b\r\n", &["gets [a,b]"]);
    check(b"bget a\r\n", &["get [a]"]);
    check(b"gat\r\ngats\r\ngat 0\r\ngat x\r\n", &[BAD; 4]);
    check(b"gat 4294967296 a\r\ngat +5 a\r\n", &["CLIENT_ERROR invalid exptime argument"; 2]);
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
fn values_without_a_line_end_are_refused() {
    check(b"set k 0 0 3\r\nabcdef\r\n", &["CLIENT_ERROR bad data chunk", BAD]);
    check(b"set k 0 0 1 noreply\r\nxyzw\r\nversion\r\n", &["CLIENT_ERROR bad data chunk (silent)", BAD, "Version"]);
}

/// The storage commands, with the words behind the length.
const STORES: [(&str, &str); 6] =
    [("set", ""), ("add", ""), ("replace", ""), ("append", ""), ("prepend", ""), ("cas", " 7")];
/// A value that would do damage as a command, whatever of it is dropped in steps of two bytes.
const VALUE: &str = "\nflush_all\r\nflush_all\r\nflush_all\r\n";

/// Checks the answer to refused lines which announce [`VALUE`] and the commands that are read behind them.
fn check_refused(line: &str, answer: &str, behind: &[&str]) {
    check(format!("{line}\r\n{VALUE}\r\nversion\r\n").as_bytes(), &[&[answer], behind].concat());
}

#[test]
fn a_refused_header_with_length_drops_its_value() {
    let length = VALUE.len();
    let (long, silent) = ("k".repeat(251), format!("{BAD} (silent)"));
    for (command, token) in STORES {
        for (noreply, answer) in [("", BAD), (" noreply", silent.as_str()), (" foo noreply", silent.as_str())] {
            for head in [
                format!("{long} 0 0"),
                "k bad 0".into(),
                "k -1 0".into(),
                "k +1 0".into(),
                "k 4294967296 0".into(),
                "k 0 bad".into(),
                "k 0 4294967296".into(),
                "k 0 -2147483649".into(),
                "k 18446744073709551617 0".into(),
            ] {
                let line = format!("{command} {head} {length}{token}{noreply}");
                check_refused(&line, answer, &["Version"]);
            }
        }
    }
    for token in ["x", "-1", "18446744073709551616", "+7", "noreply", ""] {
        let answer = if token == "noreply" { &silent } else { BAD };
        check_refused(&format!("cas k 0 0 {length} {token}"), answer, &["Version"]);
    }
    check_refused(&format!("ms {long} {length}"), BAD, &["Version"]);
    let flags = "v f c t h l s k u q I x O1 P1 L1 MS T1 N1";
    check_refused(&format!("ms k {length} {flags}"), "CLIENT_ERROR options flags are too long", &["Version"]);
    for (flags, answer) in [
        ("Tx q", "CLIENT_ERROR bad token in command line format"),
        ("Cx", "CLIENT_ERROR bad token in command line format"),
        ("F4294967296", BAD),
        ("q q", "CLIENT_ERROR duplicate flag"),
        ("!", "CLIENT_ERROR invalid flag"),
        ("y", "CLIENT_ERROR invalid flag"),
        ("MX", "CLIENT_ERROR invalid mode for ms M token"),
        ("b", "CLIENT_ERROR error decoding key"),
        (&format!("O{}", "x".repeat(32)), "CLIENT_ERROR opaque token too long"),
    ] {
        check_refused(&format!("ms k {length} {flags}"), answer, &["Version"]);
    }
}

#[test]
fn a_header_of_unknown_length_closes() {
    let length = VALUE.len();
    for (command, token) in STORES {
        for word in ["x", "-1", "+2", "2x", "2147483646", "4294967298", "18446744073709551618", "noreply", "\t2"] {
            check_refused(&format!("{command} k 0 0 {word}{token}"), BAD, &["close"]);
            check_refused(&format!("{command} k 0 0 {word}{token} noreply"), BAD, &["close"]);
        }
        // An empty key.
        check_refused(&format!("{command}  0 0 {length}"), BAD, &["close"]);
        // Keys with blanks: the line would be complete with another length.
        for key in ["a b", "a 0", "a 1 2", "a 0 0 0", "a 0 0 0 0 0 0 0 0"] {
            let line = format!("{command} {key} 0 0 {length}{token}");
            check_refused(&line, BAD, &["close"]);
            check_refused(&format!("{line} noreply"), &format!("{BAD} (silent)"), &["close"]);
        }
    }
    check_refused(&format!("cas  0 0 {length} 7"), BAD, &["close"]);
    for head in ["k x", "k -1", "k +2", "k 4294967298", "k 2147483646", "k S5"] {
        check_refused(&format!("ms {head} T0"), BAD, &["close"]);
    }
    check_refused(&format!("ms  {length}"), BAD, &["close"]);
    check_refused(&format!("ms  {length} T0"), BAD, &["close"]);
    check_refused(&format!("ms a 2 {length} T0"), "CLIENT_ERROR invalid flag", &["close"]);
    check_refused(&format!("ms a b {length} T0"), BAD, &["close"]);
}

#[test]
fn a_header_that_announces_nothing_is_only_answered() {
    for (command, _) in STORES {
        check(
            format!("{command}\r\n{command} k\r\n{command} k a b\r\nversion\r\n").as_bytes(),
            &[BAD, BAD, BAD, "Version"],
        );
    }
    check(b"ms \r\nms k\r\nversion\r\n", &[BAD, BAD, "Version"]);
}

#[test]
fn words_behind_the_arguments_are_ignored() {
    check(b"set k 0 0 1 foo noreply\r\nx\r\n", &["Set k 0 0 1 noreply Some(\"x\")"]);
    check(b"set k 0 0 1 noreply more\r\nx\r\n", &["Set k 0 0 1 Some(\"x\")"]);
    check(b"cas k 0 0 1 7 noreply foo\r\nx\r\n", &["Cas(7) k 0 0 1 Some(\"x\")"]);
    check(b"add k 0 0 1 a b c d e f noreply\r\nx\r\n", &["Add k 0 0 1 noreply Some(\"x\")"]);
    check(b"touch k 5 5 5 5 5 5\r\n", &["Touch { key: [107], exptime: 5, noreply: false }"]);
    check(b"incr k 1 foo noreply\r\n", &["Arithmetic { key: [107], delta: 1, increment: true, noreply: true }"]);
    check(b"verbosity 0 0 0 0\r\n", &["Verbosity { level: 0, noreply: false }"]);
    check(b"cache_memlimit 64 2 3\r\n", &["MemoryLimit { megabytes: 64, noreply: false }"]);
    check(b"flush_all 0 foo noreply\r\n", &["FlushAll { exptime: Some(0), noreply: true }"]);
    check(b"foo k noreply\r\nfoo noreply k\r\n", &["ERROR (silent)", ERROR]);
}

#[test]
fn other_commands_check_their_arguments() {
    check(b"delete k\r\n", &["Delete { key: [107], noreply: false }"]);
    check(b"delete k 0\r\n", &["Delete { key: [107], noreply: false }"]);
    check(b"delete k noreply\r\n", &["Delete { key: [107], noreply: true }"]);
    check(b"delete k 0 noreply\r\n", &["Delete { key: [107], noreply: true }"]);
    check(b"delete k 5\r\n", &["Delete { key: [107], noreply: false }"]);
    check(b"delete k 5 noreply\r\n", &["Delete { key: [107], noreply: true }"]);
    check(b"delete noreply\r\n", &["Delete { key: [110, 111, 114, 101, 112, 108, 121], noreply: false }"]);
    check(b"delete\r\n", &[BAD]);
    let delta = "CLIENT_ERROR invalid numeric delta argument";
    check(b"incr k -1\r\ndecr k x\r\nincr k +1\r\ndecr k 5\r\r\n", &[delta; 4]);
    check(b"incr k -18446744073709551615\r\n", &[delta]);
    check(b"incr k noreply\r\n", &[&format!("{delta} (silent)")]);
    check(b"incr k\r\ndecr\r\n", &[BAD, BAD]);
    check(
        b"decr k 18446744073709551615 noreply\r\n",
        &["Arithmetic { key: [107], delta: 18446744073709551615, increment: false, noreply: true }"],
    );
    check(b"touch k -5\r\n", &["Touch { key: [107], exptime: -5, noreply: false }"]);
    let exptime = "CLIENT_ERROR invalid exptime argument";
    check(b"touch k\r\ntouch k x\r\ntouch k +5\r\n", &[BAD, exptime, exptime]);
    check(b"touch k 4294967296\r\ntouch k 2147483648\r\n", &[exptime, exptime]);
    check(b"flush_all\r\n", &["FlushAll { exptime: Some(0), noreply: false }"]);
    check(b"flush_all noreply\r\n", &["FlushAll { exptime: Some(0), noreply: true }"]);
    check(b"flush_all 9 noreply\r\n", &["FlushAll { exptime: Some(9), noreply: true }"]);
    check(
        b"flush_all x\r\nflush_all 4294967296\r\nflush_all +0\r\n",
        &["FlushAll { exptime: None, noreply: false }"; 3],
    );
    check(b"verbosity\r\nverbosity x\r\nverbosity 99999999999\r\n", &[BAD; 3]);
    check(b"verbosity noreply\r\n", &[&format!("{BAD} (silent)")]);
    check(b"verbosity 1\r\n", &["Verbosity { level: 1, noreply: false }"]);
    check(b"cache_memlimit\r\ncache_memlimit x\r\ncache_memlimit 4294967360\r\n", &[ERROR; 3]);
    check(b"cache_memlimit 64\r\n", &["MemoryLimit { megabytes: 64, noreply: false }"]);
    check(b"shutdown\r\nshutdown graceful\r\n", &["Shutdown { mode_known: true, noreply: false }"; 2]);
    check(b"shutdown now\r\n", &["Shutdown { mode_known: false, noreply: false }"]);
    check(b"shutdown noreply\r\n", &["Shutdown { mode_known: false, noreply: true }"]);
    let unchanged = "Unchanged { noreply: false }";
    check(b"slabs automove freeratio 0.01\r\nslabs automove window 30\r\nslabs reassign -1 1\r\n", &[unchanged; 3]);
    check(b"slabs automove freeratio\r\nslabs automove window\r\nslabs automove window x\r\n", &[ERROR; 3]);
    check(b"slabs automove window 2\r\n", &["CLIENT_ERROR automove window too low or too high"]);
    check(b"lru_crawler crawl hash\r\n", &["ERROR an unknown error happened"]);
    check(b"lru_crawler metadump all noreply\r\n", &["Unchanged { noreply: true }"]);
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
fn unended_lines_close_unless_they_are_gets() {
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
fn a_nul_belongs_to_keys_of_long_gets() {
    let line = [b"get ", &b"abc ".repeat(600)[..], b"x\0 y ", &b"z ".repeat(300), b"\nversion\n"].concat();
    for piece in [line.len(), 2410, 2412, 2500, 700, 1] {
        let steps = steps(&line, piece);
        let (version, parts) = steps.split_last().expect("steps");
        assert_eq!(version, "Version");
        let keys = parts.concat();
        assert!(keys.contains("x\0") && keys.contains('y') && keys.matches('z').count() == 300, "{parts:?}");
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
fn values_beyond_the_inline_limit_go_to_callers() {
    let mut parser = Parser::new(INLINE);
    let (step, place) = parser.next(b"set k 0 0 64\r\nabc");
    assert_eq!((step, place), (Step::NeedMore, 0..0));
    let (step, place) = parser.next(b"set k 0 0 65\r\nabc");
    assert_eq!(text(&step), "Set k 0 0 65 None");
    assert_eq!(place, 0..b"set k 0 0 65\r\n".len());
    // One that is all there is returned whole however long it is.
    let whole = [b"set k 0 0 100\r\n", &[b'x'; 100][..], b"\r\n"].concat();
    let (step, place) = parser.next(&whole);
    assert_eq!(place, 0..whole.len());
    let Step::Request(Request::Store(StoreRequest { value: Some(value), mode: StoreMode::Set, .. })) = step else {
        panic!("{step:?}");
    };
    assert_eq!(value, [b'x'; 100]);
}

#[test]
fn keys_given_again_continue_their_get() {
    let mut parser = Parser::new(INLINE);
    let input = b"gats 5 a b c\r\nget d\r\n";
    let (step, place) = parser.next(input);
    assert_eq!(text(&step), "gets touch 5 [a,b,c]");
    assert_eq!(place, 0..14);
    parser.resume_keys(true, Some(5));
    let (step, place) = parser.next(&input[9..]);
    assert_eq!((text(&step).as_str(), place), ("gets touch 5 [b,c]", 0..5));
    let (step, _) = parser.next(&input[14..]);
    assert_eq!(text(&step), "get [d]");
}

#[test]
fn a_place_excludes_what_was_skipped() {
    for refused in ["set k x 0 11\r\nflush_all\r\n\r\n", "ms k 11 y\r\nflush_all\r\n\r\n"] {
        let input = [refused, "touch a 0\r\n"].concat();
        let mut parser = Parser::new(INLINE);
        let (_, refusal) = parser.next(input.as_bytes());
        let (step, place) = parser.next(&input.as_bytes()[refusal.end..]);
        assert_eq!(text(&step), "Touch { key: [97], exptime: 0, noreply: false }", "{refused}");
        assert_eq!(&input[refusal.end..][place], "touch a 0\r\n", "{refused}");
    }
}

#[test]
fn rejections_are_memcacheds_lines() {
    assert_eq!(Rejection::Error.line(), b"ERROR\r\n");
    assert_eq!(Rejection::BadDataChunk.line(), b"CLIENT_ERROR bad data chunk\r\n");
}
