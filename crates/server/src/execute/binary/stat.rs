//! stat: the answer of the text protocol, one packet for each line.

use ebbtide_protocol::binary::PacketHead;
use ebbtide_protocol::binary::reply::{self, Status};

use crate::execute::Executor;
use crate::output::Output;

impl Executor {
    pub(super) fn stat_binary(&self, head: PacketHead, topic: &[u8], connection: usize, output: &mut Output) {
        let mut text = Vec::new();
        let (word, argument) = match topic.iter().position(|byte| *byte == b' ') {
            Some(space) => (&topic[..space], Some(&topic[space + 1..])),
            None => (topic, None),
        };
        self.stats((!topic.is_empty()).then_some(word), argument, connection, &mut text);
        let out = output.bytes();
        if text.starts_with(b"ERROR") || text.starts_with(b"CLIENT_ERROR") {
            return reply::error(out, head, Status::NotFound);
        }
        if topic == b"detail dump" {
            // Its lines are no names and values: they are one value.
            reply::stat(out, head, b"detailed", &text);
        }
        let lines = text.split(|&byte| byte == b'\n');
        for line in lines.filter_map(|line| line.strip_prefix(b"STAT ")) {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let space = line.iter().position(|&byte| byte == b' ').unwrap_or(line.len());
            let (name, value) = line.split_at(space);
            reply::stat(out, head, name, value.get(1..).unwrap_or_default());
        }
        // An empty name ends the list; it is the whole answer to a command without a list.
        reply::done(out, head, 0);
    }
}
