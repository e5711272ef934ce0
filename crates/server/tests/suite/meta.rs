//! Meta commands: bytes in, bytes out, as memcached 1.6.45 answers them.

use crate::common::{TestServer, assert_bytes, read_to_end, stat, value};
use std::io::Write;

#[track_caller]
fn check(server: &TestServer, input: &str, expected: &str) {
    assert_bytes(&server.talk(input.as_bytes()), expected.as_bytes());
}

/// The CAS token of a key.
fn token(server: &TestServer, key: &str) -> u64 {
    let answer = String::from_utf8(server.talk(format!("mg {key} c\r\n").as_bytes())).expect("text");
    answer.trim_end().split(" c").nth(1).and_then(|token| token.split(' ').next()?.parse().ok()).expect("a token")
}

#[test]
fn flags_are_answered_in_their_order() {
    let server = TestServer::new();
    check(&server, "mg a\r\nmg a v\r\nmg a v k Oabc\r\nmg a q k\r\nmn\r\n", "EN\r\nEN\r\nEN ka Oabc\r\nMN\r\n");
    check(
        &server,
        "ms a 2 T90 F5\r\nhi\r\nms a 2 k Oxy q F5\r\nhi\r\nms a 2 Oxy k F5\r\nhi\r\n",
        "HD\r\nHD Oxy ka\r\n",
    );
    check(&server, "mg a\r\nmg a v\r\nmg a s v f t k\r\n", "HD\r\nVA 2\r\nhi\r\nVA 2 s2 f5 t-1 ka\r\nhi\r\n");
    check(&server, "mg a t T90 k\r\nmg a T30 t P1 L2\r\n  mg   a  t  \r\n", "HD t-1 ka\r\nHD t30\r\nHD t30\r\n");
    check(&server, "md a k Oz q\r\nmd a k Oz q\r\nmd b\r\n", "NF ka Oz\r\nNF\r\n");
}

#[test]
fn uses_are_told_as_they_were_before() {
    let server = TestServer::new();
    check(&server, "ms a 1\r\nx\r\nmg a h u\r\nmg a h\r\nmg a h\r\n", "HD\r\nHD h0\r\nHD h0\r\nHD h1\r\n");
    let answer = String::from_utf8(server.talk(b"mg a l\r\nme a\r\nme b\r\nme YQ== b\r\n")).expect("text");
    let lines: Vec<&str> = answer.lines().collect();
    assert!(lines[0].starts_with("HD l") && lines[0][4..].parse::<u64>().is_ok_and(|seconds| seconds < 60), "{answer}");
    let debug: Vec<&str> = lines[1].split(' ').collect();
    assert_eq!((debug[0], debug[1], debug[2], debug[5], debug[6]), ("ME", "a", "exp=-1", "fetch=yes", "cls=1"));
    assert!(debug[3].starts_with("la=") && debug[4].starts_with("cas=") && debug[7] == "size=7");
    assert!(lines[2] == "EN" && lines[3].starts_with("ME YQ== exp=-1"), "{answer}");
}

#[test]
fn a_full_output_counts_the_next_key_once() {
    let server = TestServer::new();
    let large = value(200_000);
    let header = format!("ms large {}\r\n", large.len());
    assert_bytes(&server.talk(&[header.as_bytes(), &large, b"\r\nms a 1\r\nx\r\n"].concat()), b"HD\r\nHD\r\n");
    // Two large values fill the output: the run of gets ends before the key `a`.
    let answer = server.talk(b"mg large v\r\nmg large v\r\nmg a h\r\nmg a h\r\n");
    let hit = [b"VA 200000\r\n", &large[..], b"\r\n"].concat();
    assert_bytes(&answer[2 * hit.len().min(answer.len() / 2)..], b"HD h0\r\nHD h1\r\n");
    assert!(answer.starts_with(&[&hit[..], &hit].concat()));
    assert_eq!((server.stat("get_hits"), server.stat("get_misses")), (4, 0));
}

#[test]
fn keys_may_come_in_base64() {
    let server = TestServer::new();
    check(
        &server,
        "ms YQ== 2 b k\r\nhi\r\nmg YQ== k b v\r\nmg a k v\r\n",
        "HD kYQ== b\r\nVA 2 kYQ== b\r\nhi\r\nVA 2 ka\r\nhi\r\n",
    );
    check(
        &server,
        "mg AAoNIA== b k\r\nms AAoNIA== 1 b\r\nx\r\nmg AAoNIA== b v k\r\n",
        "EN kAAoNIA== b\r\nHD\r\nVA 1 kAAoNIA== b\r\nx\r\n",
    );
    check(
        &server,
        "ma bg== b N0 k v\r\nmd bg== b k\r\nmg YWI b\r\n",
        "VA 1 kbg== b\r\n0\r\nHD kbg== b\r\nCLIENT_ERROR error decoding key\r\n",
    );
    // me answers the usual encoding of the key, not that of the request.
    let debug = server.talk(b"ms .Y=Q= 1 b\r\nv\r\nme .Y=Q= b\r\n");
    assert!(debug.starts_with(b"HD\r\nME YA== "), "{}", debug.escape_ascii());
}

#[test]
fn an_opaque_that_is_too_long_counts_nothing() {
    let server = TestServer::new();
    let long = "o".repeat(33);
    check(
        &server,
        &format!("ma n N0 J5\r\nma n O{long}\r\nmg n v\r\n"),
        "HD\r\nCLIENT_ERROR opaque token too long\r\nVA 1\r\n5\r\n",
    );
}

#[test]
fn an_ms_takes_all_modes() {
    let server = TestServer::new();
    check(
        &server,
        "ms a 1 MR\r\nx\r\nms a 1 MA c\r\nx\r\nms a 1 ME k\r\nb\r\nms a 1 ME q k\r\nb\r\n",
        "NS\r\nNS c0\r\nHD ka\r\nNS ka\r\n",
    );
    check(&server, "ms a 1 MA\r\nc\r\nms a 1 MP T30 F9\r\na\r\nmg a v t f\r\n", "HD\r\nHD\r\nVA 3 t-1 f0\r\nabc\r\n");
    check(
        &server,
        "ms b 1 C5 c\r\nx\r\nms a 1 C5 c\r\nx\r\nms a 1 C0\r\nx\r\nms a 1 MA C5\r\nx\r\n",
        "NF c0\r\nEX c0\r\nEX\r\nEX\r\n",
    );
    for mode in ["MS", "MR", "MA", "MP"] {
        let old = token(&server, "a");
        check(&server, &format!("ms a 1 {mode} C{old}\r\nx\r\nms a 1 {mode} C{old}\r\ny\r\n"), "HD\r\nEX\r\n");
    }
    let answer = String::from_utf8(server.talk(b"ms a 1 c\r\nx\r\n")).expect("text");
    assert_eq!(answer, format!("HD c{}\r\n", token(&server, "a")));
}

#[test]
fn a_client_may_bring_its_own_tokens() {
    let server = TestServer::new();
    check(
        &server,
        "ms a 1 E100 c\r\n1\r\nmg a c\r\ntouch a 50\r\nmg a c\r\n",
        "HD c100\r\nHD c100\r\nTOUCHED\r\nHD c100\r\n",
    );
    check(
        &server,
        "ms a 1 C99\r\n2\r\nms a 1 C100 E101 c\r\n3\r\nma a C101 E102 c v\r\n",
        "EX\r\nHD c101\r\nVA 1 c102\r\n4\r\n",
    );
    check(
        &server,
        "gets a\r\nms a 1 MA C102 E103\r\n5\r\nmd a I E104\r\nmg a c\r\n",
        "VALUE a 0 1 102\r\n4\r\nEND\r\nHD\r\nHD\r\nHD c104 X W\r\n",
    );
    check(
        &server,
        "ms a 1 C103 I E105 c T0\r\n6\r\nmg a c v\r\nmd a C104\r\nmd a C105\r\n",
        "HD c105\r\nVA 1 c105 Z X\r\n6\r\nEX\r\nHD\r\n",
    );
    check(&server, "ms a 1 E7\r\n1\r\nset a 0 0 1\r\n2\r\nms a 1 C7\r\n3\r\n", "HD\r\nSTORED\r\nEX\r\n");
}

#[test]
fn a_get_omits_a_value_with_known_token() {
    let server = TestServer::new();
    check(
        &server,
        "mg a v C777\r\nms a 2 E777 F3\r\nab\r\nmg a v C777\r\nmg a v C776\r\nmg a C777\r\n",
        "EN\r\nHD\r\nHD\r\nVA 2\r\nab\r\nHD\r\n",
    );
    check(
        &server,
        "mg a v s k f t T30 C777 O1 c q\r\nmg a t\r\nmd a I E778\r\nmg a v C778\r\nmg a v C778\r\nget a\r\n",
        "HD s2 ka f3 t-1 O1 c777\r\nHD t30\r\nHD\r\nHD X W\r\nHD Z X\r\nVALUE a 3 2\r\nab\r\nEND\r\n",
    );
    let own = token(&server, "a");
    check(&server, &format!("mg YQ== b v C{own}\r\nmg b v C1 N30\r\n"), "HD Z X\r\nVA 0 W\r\n\r\n");
}

#[test]
fn an_append_can_create_keys_and_returns_length() {
    let server = TestServer::new();
    check(
        &server,
        "ms a 1 MA N30 s T90 F5\r\nz\r\nmg a v t f\r\nms a 2 MA N60 s F9\r\nxy\r\nmg a v t f\r\n",
        "HD s1\r\nVA 1 t30 f5\r\nz\r\nHD s3\r\nVA 3 t30 f5\r\nzxy\r\n",
    );
    check(
        &server,
        "ms b 1 MP N0 s E77 C5 c k\r\nz\r\nms b 2 MP N0 C5 s k\r\nxy\r\nms b 2 MP C77 E78 k s c\r\nxy\r\nmg b v\r\n",
        "HD s1 c77 kb\r\nEX s2 kb\r\nHD kb s3 c78\r\nVA 3\r\nxyz\r\n",
    );
    // N without a mode that extends does nothing.
    check(
        &server,
        "ms c 1 MR N30 s\r\nz\r\nms c 1 N30 s\r\nz\r\nmg c t\r\nms c 2 ME s\r\nxy\r\nms d 2 C5 s\r\nxy\r\nms d 1 MA s\r\nz\r\n",
        "NS s1\r\nHD s1\r\nHD t-1\r\nNS s2\r\nNF s2\r\nNS s1\r\n",
    );
    check(&server, "ms e 1 MA N-1 q\r\nx\r\nmg e\r\nms e 1 MA N30 q\r\nx\r\nmg e t\r\n", "EN\r\nHD t30\r\n");
}

/// Values that arrive in pieces: up to a segment in a buffer, longer ones in segments.
#[test]
fn a_long_append_may_create_its_key() {
    let server = TestServer::new();
    for length in [100_000, 5_000_000] {
        let long = value(length);
        let line = |flags: &str| [format!("ms long {length} {flags}\r\n").as_bytes(), &long, b"\r\n"].concat();
        let input =
            [line("MA s"), line("MA N30 s F3"), line("MP N30 s"), b"mg long t f s\r\nmd long\r\n".to_vec()].concat();
        let twice = 2 * length;
        let expected = format!("NS s{length}\r\nHD s{length}\r\nHD s{twice}\r\nHD t30 f3 s{twice}\r\nHD\r\n");
        assert_bytes(&server.talk(&input), expected.as_bytes());
    }
    let part = value(9 << 20);
    let line = [format!("ms long {} MA N0 s\r\n", part.len()).as_bytes(), &part, b"\r\n"].concat();
    let expected = format!("HD s{0}\r\nNS s{0}\r\n", part.len());
    assert_bytes(&server.talk(&line.repeat(2)), expected.as_bytes());
}

#[test]
fn a_delete_may_leave_a_tombstone() {
    let server = TestServer::new();
    check(&server, "md a x\r\nmd a x q k O1\r\nmg a\r\n", "NF\r\nNF ka O1\r\nEN\r\n");
    check(
        &server,
        "ms a 2 T90 F5 E70\r\nab\r\nmd a x C1\r\nmd a x C70 k O1\r\nmg a s v t f c\r\nget a\r\n",
        "HD\r\nEX\r\nHD ka O1\r\nVA 0 s0 t-1 f0 c70\r\n\r\nVALUE a 0 0\r\n\r\nEND\r\n",
    );
    check(
        &server,
        "ms a 2\r\nab\r\nmd YQ== b x F7 T30 E71 q\r\nmg a s v t f c\r\nms a 1 C71\r\nz\r\nmg a v\r\n",
        "HD\r\nVA 0 s0 t30 f7 c71\r\n\r\nHD\r\nVA 1\r\nz\r\n",
    );
    let old = token(&server, "a");
    check(&server, "md a x\r\n", "HD\r\n");
    assert_eq!(token(&server, "a"), old, "a tombstone keeps the token");
    check(
        &server,
        "md a x I E90\r\nmg a v s t f c\r\nmg a v s\r\nmd a x I T30\r\nmg a v t\r\n",
        "HD\r\nVA 0 s0 t-1 f0 c90 X W\r\n\r\nVA 0 s0 Z X\r\n\r\nHD\r\nVA 0 t30 X W\r\n\r\n",
    );
    assert_ne!(token(&server, "a"), 90, "a stale tombstone gets a token of its own");
    let long = value(5_000_000);
    server.talk(&crate::common::set("long", &long));
    check(&server, "md long x\r\nmg long v s\r\n", "HD\r\nVA 0 s0\r\n\r\n");
    let stats = server.talk(b"stats\r\n");
    assert_eq!((stat(&stats, "delete_hits"), stat(&stats, "delete_misses")), (4, 3));
}

#[test]
fn a_remaining_life_is_positive_in_me() {
    let server = TestServer::new();
    let answer = String::from_utf8(server.talk(b"set a 0 100 1\r\nx\r\nme a\r\n")).expect("text");
    let exp = answer.split(" exp=").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<i64>().ok());
    assert!(exp.is_some_and(|exp| (90..=100).contains(&exp)), "{answer}");
}

#[test]
fn one_client_wins_a_missing_value() {
    let server = TestServer::new();
    let answer = String::from_utf8(server.talk(b"mg a v t N30\r\nmg a v t N30\r\nmg a k\r\nget a\r\n")).expect("text");
    // A second may begin between the first two.
    assert_eq!(
        answer.replace(" t29 ", " t30 "),
        "VA 0 t-1 W\r\n\r\nVA 0 t30 Z\r\n\r\nHD ka Z\r\nVALUE a 0 0\r\n\r\nEND\r\n"
    );
    check(&server, "ms a 1 T30\r\nx\r\nmg a v N30\r\n", "HD\r\nVA 1\r\nx\r\n");
    check(
        &server,
        "mg b T50 t N30 s f\r\nmg b t\r\nmg c N30 T50\r\nmg c t\r\n",
        "HD t50 s0 f0 W\r\nHD t30 Z\r\nHD W\r\nHD t50 Z\r\n",
    );
}

#[test]
fn one_client_wins_a_value_that_runs_out() {
    let server = TestServer::new();
    check(
        &server,
        "ms a 1 T100\r\nx\r\nmg a R50\r\nmg a R-1\r\nmg a R0\r\nmg a R200\r\nmg a R200\r\n",
        "HD\r\nHD\r\nHD\r\nHD\r\nHD W\r\nHD Z\r\n",
    );
    check(
        &server,
        "ms a 1\r\nx\r\nmg a R200\r\nmg a R200 T100\r\nmg a T20 R30\r\nmg a t\r\n",
        "HD\r\nHD\r\nHD\r\nHD W\r\nHD t20 Z\r\n",
    );
}

#[test]
fn one_client_wins_a_stale_value() {
    let server = TestServer::new();
    check(&server, "md a I\r\nms a 2 F9\r\nhi\r\nmd a I T30\r\n", "NF\r\nHD\r\nHD\r\n");
    check(
        &server,
        "mg a v t f\r\nmg a v\r\nget a\r\n",
        "VA 2 t30 f9 X W\r\nhi\r\nVA 2 Z X\r\nhi\r\nVALUE a 9 2\r\nhi\r\nEND\r\n",
    );
    let old = token(&server, "a");
    check(&server, "md a I\r\nmg a\r\n", "HD\r\nHD X W\r\n");
    check(&server, &format!("ms a 3 C{old} I T90\r\nnew\r\nmg a v t\r\n"), "HD\r\nVA 3 t30 Z X\r\nnew\r\n");
    let new = token(&server, "a");
    check(
        &server,
        &format!("ms a 1 C{new} I T90\r\nx\r\nmg a v t\r\nmd a I C{new}\r\nmd a C{new}\r\n"),
        "HD\r\nVA 1 t90\r\nx\r\nEX\r\nEX\r\n",
    );
    check(
        &server,
        "md a I\r\nappend a 0 0 1\r\ny\r\nmg a v\r\nmd a I\r\nset a 0 0 1\r\n5\r\nmg a\r\n",
        "HD\r\nSTORED\r\nVA 2\r\nxy\r\nHD\r\nSTORED\r\nHD\r\n",
    );
    check(
        &server,
        "md a I\r\nincr a 1\r\nmg a v\r\nincr a 9\r\nmg a v\r\n",
        "HD\r\n6\r\nVA 1 X W\r\n6\r\n15\r\nVA 2\r\n15\r\n",
    );
}

/// A stale item in the middle of a pipeline ends a batch; everything is answered in order all the same.
#[test]
fn stale_items_in_pipelines_are_won_in_order() {
    let server = TestServer::new();
    let (mut input, mut expected) = (String::new(), String::new());
    for number in 0..200 {
        input += &format!("ms k{number} 2\r\nhi\r\n");
        expected += "HD\r\n";
        if number % 3 == 0 {
            input += &format!("md k{number} I q\r\n");
        }
    }
    for round in 0..2 {
        for number in 0..200 {
            let marks = match (number % 3, round) {
                (0, 0) => " X W",
                (0, _) => " Z X",
                _ => "",
            };
            input += &format!("mg k{number} v O{number}\r\nget k{number}\r\nmg none q\r\n");
            expected += &format!("VA 2 O{number}{marks}\r\nhi\r\nVALUE k{number} 0 2\r\nhi\r\nEND\r\n");
        }
    }
    check(&server, &(input + "mn\r\n"), &(expected + "MN\r\n"));
}

/// The first use is answered as such also when the item is looked up again because it, or one before it, is stale.
#[test]
fn a_use_counts_once_beside_stale_items() {
    let server = TestServer::new();
    check(
        &server,
        "ms a 1\r\nx\r\nms b 1\r\nx\r\nmd a I\r\nmg a h\r\nmg b h\r\nmg a h\r\nmg b h\r\n",
        "HD\r\nHD\r\nHD\r\nHD h0 X W\r\nHD h0\r\nHD h1 Z X\r\nHD h1\r\n",
    );
}

#[test]
fn numbers_are_counted_on_terms() {
    let server = TestServer::new();
    check(
        &server,
        "ma n\r\nma n q\r\nma n N0 J10 v t\r\nma n v\r\nma n MD D4 v\r\n",
        "NF\r\nNF\r\nVA 2 t-1\r\n10\r\nVA 2\r\n11\r\nVA 1\r\n7\r\n",
    );
    check(
        &server,
        "mg n v\r\nma n M- D9 v\r\nma n M+ D5 t T40 q\r\nma n t T50 k Ox\r\nma n T60 t\r\n",
        "VA 2\r\n7 \r\nVA 1\r\n0\r\nHD t40 kn Ox\r\nHD t60\r\n",
    );
    let old = token(&server, "n");
    check(
        &server,
        &format!("ma n C{old}\r\nma n C{old}\r\nma n C0 v\r\nma m N0 q\r\nma m T-1\r\nma m\r\n"),
        "HD\r\nEX\r\nVA 1\r\n9\r\nHD\r\nNF\r\n",
    );
    check(
        &server,
        "ms n 1\r\nx\r\nma n q\r\nma n N30 T20 t\r\n",
        "HD\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
    );
}

#[test]
fn bad_lines_give_memcacheds_errors_and_drop_values() {
    let server = TestServer::new();
    check(
        &server,
        "mg\r\nms\r\nmd\r\nma\r\nme\r\nmx a\r\nmn a b\r\n",
        &format!("{}ERROR\r\nMN\r\n", "CLIENT_ERROR bad command line format\r\n".repeat(5)),
    );
    check(
        &server,
        "ms a 2 y\r\nhi\r\nms a 2 Tx q\r\nhi\r\nms a 2 MX\r\nhi\r\nmn\r\n",
        "CLIENT_ERROR invalid flag\r\nCLIENT_ERROR bad token in command line format\r\nCLIENT_ERROR invalid mode for ms M token\r\nMN\r\n",
    );
    check(
        &server,
        "ms a 2 q\r\nhix\r\nms a 2 k k\r\nhixymn\r\n",
        "CLIENT_ERROR bad data chunk\r\nCLIENT_ERROR bad command line format\r\nCLIENT_ERROR duplicate flag\r\nMN\r\n",
    );
    check(
        &server,
        &format!("ms a 1\r\nx\r\nms a {} ME\r\n{}\r\nmg a\r\n", 17 << 20, "v".repeat(17 << 20)),
        "HD\r\nSERVER_ERROR object too large for cache\r\nEN\r\n",
    );
    let key = "k".repeat(251);
    check(&server, &format!("mg {key} v\r\nmd {key}\r\n"), &"CLIENT_ERROR bad command line format\r\n".repeat(2));
}

#[test]
fn ma_has_one_error_for_keys_and_flags() {
    let server = TestServer::new();
    let (key, flags) = ("k".repeat(251), " k".repeat(19));
    check(
        &server,
        &format!("ma {key}\r\nma {key} q\r\nma n{flags}\r\nma n k k\r\nmd n{flags}\r\nma\r\n"),
        &[
            "CLIENT_ERROR invalid or duplicate flag\r\n".repeat(4).as_str(),
            "CLIENT_ERROR options flags are too long\r\nCLIENT_ERROR bad command line format\r\n",
        ]
        .concat(),
    );
}

/// A refused value is as long as it was said to be, line end or not; the line right behind it is found again.
#[test]
fn a_line_after_an_unended_value_is_found() {
    let server = TestServer::new();
    check(
        &server,
        "ms a 1\r\nx\r\nmd a I\r\nms b 2 y\r\nhixy  mg  a v\r\nms b 2 y\r\nhixymg a v\r\nmn\r\n",
        "HD\r\nHD\r\nCLIENT_ERROR invalid flag\r\nVA 1 X W\r\nx\r\nCLIENT_ERROR invalid flag\r\nVA 1 Z X\r\nx\r\nMN\r\n",
    );
}

/// Large values arrive and leave in pieces; every command may be cut anywhere.
#[test]
fn large_values_stream_both_ways() {
    let server = TestServer::new();
    let long = value(5_000_000);
    let line = format!("ms long {} c F7 Oab\r\n", long.len());
    let answer = server.talk(&[line.as_bytes(), &long, b"\r\n"].concat());
    let stored = format!("HD c{} Oab\r\n", token(&server, "long"));
    assert_bytes(&answer, stored.as_bytes());
    let hit = [format!("VA {} f7\r\n", long.len()).as_bytes(), &long, b"\r\n"].concat();
    assert_bytes(&server.talk(b"mg long v f\r\nmg long v f\r\nmn\r\n"), &[&hit[..], &hit, b"MN\r\n"].concat());
    let older = format!("ms long {} C1 I E5 k q\r\n", long.len());
    assert_bytes(
        &server.talk(&[older.as_bytes(), &long, b"\r\nmg long f v\r\n"].concat()),
        &[format!("VA {} f0 X W\r\n", long.len()).as_bytes(), &long, b"\r\n"].concat(),
    );
    let mut stream = server.connect();
    for byte in b"ms a 3 bogus\r\nabc\r\nms a 3 k\r\nabc\r\nmg a v\r\nmg YQ== b k\r\nmd a\r\nquit\r\n" {
        stream.write_all(&[*byte]).expect("a write");
        std::thread::yield_now();
    }
    assert_bytes(
        &read_to_end(&mut stream),
        b"CLIENT_ERROR error decoding key\r\nHD ka\r\nVA 3\r\nabc\r\nHD kYQ== b\r\nHD\r\n",
    );
}

/// More answers than the output holds: the run stops, and continues at the line of the first unanswered mg.
#[test]
fn a_client_that_stops_reading_loses_nothing() {
    let server = TestServer::new();
    let big = value(50_000);
    server.talk(&crate::common::set("a", &big));
    let line = "ms x 2 y\r\nhi\r\nmg a v k\r\nget a\r\nmg none k\r\n";
    let hit = [
        b"CLIENT_ERROR invalid flag\r\nVA 50000 ka\r\n",
        &big[..],
        b"\r\n",
        &crate::common::hit("a", &big),
        b"END\r\nEN knone\r\n",
    ]
    .concat();
    assert_bytes(&server.talk(line.repeat(60).as_bytes()), &hit.repeat(60));
}

#[test]
fn meta_commands_are_counted_as_memcached_counts_them() {
    let server = TestServer::new();
    server.talk(b"ms a 1\r\n1\r\nms a 1 C7\r\n2\r\nms b 1 C7\r\n2\r\nms a 1 ME\r\n2\r\nms a 1 MA C7\r\n2\r\n");
    server.talk(b"mg a\r\nmg a v T30\r\nmg none T30\r\nmg c N30\r\nmg d N30 T30\r\nme a\r\nme none\r\nmg none b\r\n");
    server.talk(
        b"ma a\r\nma none\r\nma n N0\r\nma a MD\r\nma none MD\r\nma a C7\r\nmd a C7\r\nmd a I\r\nmd a\r\nmd a\r\n",
    );
    let stats = server.talk(b"stats\r\n");
    for (name, expected) in [
        ("cmd_get", 4),
        ("get_hits", 2),
        ("get_misses", 2),
        ("cmd_touch", 2),
        ("touch_hits", 2),
        ("cmd_set", 5),
        ("cas_badval", 1),
        ("cas_misses", 1),
        ("cmd_meta", 2),
        ("incr_hits", 1),
        ("incr_misses", 1),
        ("decr_hits", 1),
        ("decr_misses", 1),
        ("delete_hits", 1),
        ("delete_misses", 2),
    ] {
        assert_eq!(stat(&stats, name), expected, "{name}");
    }
}

#[test]
fn an_item_created_by_get_takes_the_token() {
    let server = TestServer::new();
    check(&server, "mg a N30 E777 c\r\nmg a c\r\nms a 1 C777\r\nx\r\n", "HD c777 W\r\nHD c777 Z\r\nHD\r\n");
}
