//! The objects of a cache in the middle of a trace: of those that are alive then, the last used ones, as far as the
//! memory goes. Each is stored at the time at which it was stored last if nothing had been evicted, with its whole TTL,
//! and is asked for as often as since then, thrice at most, so that it counts as used.

use crate::requests::{Action, Request, Requests};

/// Memory that an object takes beside key and value, estimated to fill each cache.
const OVERHEAD_BYTES: u64 = 16;
const MAX_GETS: u32 = 3;

#[derive(Clone, Copy)]
struct Object {
    /// The request that stored it.
    stored: Request,
    used_at: usize,
    gets: u32,
}

/// Stores of the objects at request `start`, in the order of their time, and the gets of each.
pub fn objects(requests: &Requests, start: usize, memory: u64) -> Vec<(Request, u32)> {
    let mut objects: Vec<Option<Object>> = Vec::new();
    for (number, request) in requests.slice(0, start).enumerate() {
        let key = request.key as usize;
        if objects.len() <= key {
            objects.resize(key + 1, None);
        }
        let object = &mut objects[key];
        match (request.action, object.as_mut()) {
            (Action::Delete, _) => *object = None,
            (Action::Get, Some(object)) if is_alive(&object.stored, request.now) => {
                (object.used_at, object.gets) = (number, object.gets + 1);
            }
            _ => *object = Some(Object { stored: request, used_at: number, gets: 0 }),
        }
    }
    let Some(now) = requests.slice(start, requests.len()).next().map(|request| request.now) else { return Vec::new() };
    let mut alive: Vec<Object> = objects.into_iter().flatten().filter(|object| is_alive(&object.stored, now)).collect();
    alive.sort_unstable_by_key(|object| std::cmp::Reverse(object.used_at));
    let mut bytes = 0;
    alive.retain(|object| {
        bytes += object.stored.bytes() + OVERHEAD_BYTES;
        bytes <= memory
    });
    alive.sort_by_key(|object| object.stored.now);
    alive.iter().map(|object| (object.stored, object.gets.min(MAX_GETS))).collect()
}

fn is_alive(stored: &Request, now: u32) -> bool {
    stored.ttl == 0 || now < stored.now.saturating_add(stored.ttl)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requests::of;

    #[test]
    fn living_objects_are_filled_in_store_order() {
        let request = |(now, key, action, ttl)| Request { key, now, ttl, action, key_bytes: 10, value_bytes: 74 };
        let get = |now, key| (now, key, Action::Get, 10);
        let all = [
            get(0, 1),
            get(1, 2),
            (2, 3, Action::Set, 0),
            get(3, 4),
            get(5, 3),
            get(6, 3),
            (7, 4, Action::Delete, 0),
            get(8, 2),
            get(10, 5),
            get(12, 6),
        ];
        let requests = of(&all.map(request));
        let filled = |start, memory| {
            let objects = objects(&requests, start, memory);
            objects.iter().map(|(request, gets)| (request.now, request.key, *gets)).collect::<Vec<_>>()
        };
        // At 12 s objects 1 and 2 have expired.
        assert_eq!(filled(9, 1000), [(2, 3, 2), (10, 5, 0)]);
        assert_eq!(filled(8, 1000), [(1, 2, 1), (2, 3, 2)]);
        assert_eq!(filled(8, 100), [(1, 2, 1)], "the last used one");
    }
}
