//! Objects in several queues, found by their key: the base of nearly every policy.

use std::collections::HashMap;

/// Which object of a [`Queues`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Node(u32);

const NONE: u32 = u32::MAX;

/// An object in one of the queues.
#[derive(Clone, Copy, Debug)]
pub(super) struct Object {
    pub(super) key: u64,
    pub(super) bytes: u64,
    /// The queue it is in.
    pub(super) queue: usize,
    /// A counter or a flag of the policy; 0 for a new object.
    pub(super) mark: u32,
    /// Towards the front.
    newer: u32,
    older: u32,
}

#[derive(Clone, Copy, Debug)]
struct Queue {
    front: u32,
    back: u32,
    bytes: u64,
}

/// Queues of objects; each key is in at most one of them.
#[derive(Debug)]
pub(super) struct Queues {
    objects: Vec<Object>,
    unused: Vec<u32>,
    of_key: HashMap<u64, u32>,
    queues: Vec<Queue>,
}

impl Queues {
    pub(super) fn new(count: usize) -> Self {
        let empty = Queue { front: NONE, back: NONE, bytes: 0 };
        Self { objects: Vec::new(), unused: Vec::new(), of_key: HashMap::new(), queues: vec![empty; count] }
    }

    pub(super) fn find(&self, key: u64) -> Option<Node> {
        self.of_key.get(&key).copied().map(Node)
    }

    pub(super) fn get(&self, node: Node) -> &Object {
        &self.objects[node.0 as usize]
    }

    pub(super) fn mark(&mut self, node: Node, mark: u32) {
        self.objects[node.0 as usize].mark = mark;
    }

    pub(super) fn bytes(&self, queue: usize) -> u64 {
        self.queues[queue].bytes
    }

    /// The one that came first of a queue.
    pub(super) fn back(&self, queue: usize) -> Option<Node> {
        some(self.queues[queue].back)
    }

    /// The one that came last of a queue.
    pub(super) fn front(&self, queue: usize) -> Option<Node> {
        some(self.queues[queue].front)
    }

    /// The next one towards the front.
    pub(super) fn newer(&self, node: Node) -> Option<Node> {
        some(self.get(node).newer)
    }

    /// Puts a new object in front; its key must be in no queue.
    pub(super) fn push_front(&mut self, queue: usize, key: u64, bytes: u64) -> Node {
        let object = Object { key, bytes, queue, mark: 0, newer: NONE, older: NONE };
        let at = match self.unused.pop() {
            Some(at) => {
                self.objects[at as usize] = object;
                at
            }
            None => {
                self.objects.push(object);
                (self.objects.len() - 1) as u32
            }
        };
        let before = self.of_key.insert(key, at);
        assert!(before.is_none(), "key {key} is in a queue already");
        self.link(Node(at), queue);
        Node(at)
    }

    /// Puts an object in front of a queue, its own or another.
    pub(super) fn move_front(&mut self, node: Node, queue: usize) {
        self.unlink(node);
        self.link(node, queue);
    }

    /// Puts an object at the back of a queue, its own or another.
    pub(super) fn move_back(&mut self, node: Node, queue: usize) {
        self.unlink(node);
        let before = self.queues[queue].back;
        let object = &mut self.objects[node.0 as usize];
        (object.queue, object.newer, object.older) = (queue, before, NONE);
        self.queues[queue].bytes += object.bytes;
        self.queues[queue].back = node.0;
        match some(before) {
            Some(before) => self.objects[before.0 as usize].older = node.0,
            None => self.queues[queue].front = node.0,
        }
    }

    pub(super) fn remove(&mut self, node: Node) -> Object {
        self.unlink(node);
        let object = *self.get(node);
        self.of_key.remove(&object.key);
        self.unused.push(node.0);
        object
    }

    pub(super) fn pop_back(&mut self, queue: usize) -> Option<Object> {
        self.back(queue).map(|node| self.remove(node))
    }

    fn link(&mut self, node: Node, queue: usize) {
        let before = self.queues[queue].front;
        let object = &mut self.objects[node.0 as usize];
        (object.queue, object.newer, object.older) = (queue, NONE, before);
        self.queues[queue].bytes += object.bytes;
        self.queues[queue].front = node.0;
        match some(before) {
            Some(before) => self.objects[before.0 as usize].newer = node.0,
            None => self.queues[queue].back = node.0,
        }
    }

    fn unlink(&mut self, node: Node) {
        let Object { queue, newer, older, bytes, .. } = *self.get(node);
        self.queues[queue].bytes -= bytes;
        match some(newer) {
            Some(newer) => self.objects[newer.0 as usize].older = older,
            None => self.queues[queue].front = older,
        }
        match some(older) {
            Some(older) => self.objects[older.0 as usize].newer = newer,
            None => self.queues[queue].back = newer,
        }
    }
}

fn some(at: u32) -> Option<Node> {
    (at != NONE).then_some(Node(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_keep_their_order_and_bytes() {
        let mut queues = Queues::new(2);
        let keys = |queues: &Queues, queue| {
            let mut next = queues.back(queue);
            std::iter::from_fn(|| {
                let node = next?;
                next = queues.newer(node);
                Some(queues.get(node).key)
            })
            .collect::<Vec<_>>()
        };
        (1..=4).for_each(|key| _ = queues.push_front(0, key, key * 10));
        queues.move_front(queues.find(2).unwrap(), 0);
        queues.move_front(queues.find(3).unwrap(), 1);
        assert_eq!((keys(&queues, 0), keys(&queues, 1)), (vec![1, 4, 2], vec![3]));
        assert_eq!((queues.bytes(0), queues.bytes(1)), (70, 30));
        assert_eq!(queues.pop_back(0).map(|object| object.key), Some(1));
        assert_eq!(queues.remove(queues.find(2).unwrap()).bytes, 20);
        queues.push_front(1, 9, 1);
        assert_eq!((keys(&queues, 0), keys(&queues, 1), queues.find(1)), (vec![4], vec![3, 9], None));
        queues.move_back(queues.front(1).unwrap(), 0);
        assert_eq!((keys(&queues, 0), keys(&queues, 1)), (vec![9, 4], vec![3]));
        queues.move_back(queues.front(1).unwrap(), 1);
        assert_eq!((keys(&queues, 1), queues.bytes(0), queues.bytes(1)), (vec![3], 41, 30));
    }
}
