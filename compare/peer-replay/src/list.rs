//! Doubly linked lists through one table: a member is in one list at most, and is known by its number.

pub const NONE: u32 = u32::MAX;

/// The neighbours of every possible member.
#[derive(Debug)]
pub struct Links {
    neighbours: Vec<(u32, u32)>,
}

#[derive(Clone, Copy, Debug)]
pub struct List {
    first: u32,
    last: u32,
    len: usize,
}

impl Links {
    pub fn new(members: usize) -> Self {
        Self { neighbours: vec![(NONE, NONE); members] }
    }
}

impl Default for List {
    fn default() -> Self {
        Self { first: NONE, last: NONE, len: 0 }
    }
}

impl List {
    pub fn len(&self) -> usize {
        self.len
    }

    /// The member that has been in the list for the longest time.
    pub fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    pub fn push(&mut self, links: &mut Links, member: u32) {
        links.neighbours[member as usize] = (self.last, NONE);
        match self.last {
            NONE => self.first = member,
            last => links.neighbours[last as usize].1 = member,
        }
        self.last = member;
        self.len += 1;
    }

    /// Takes out a member, which must be in this list.
    pub fn remove(&mut self, links: &mut Links, member: u32) {
        let (before, behind) = links.neighbours[member as usize];
        match before {
            NONE => self.first = behind,
            before => links.neighbours[before as usize].1 = behind,
        }
        match behind {
            NONE => self.last = before,
            behind => links.neighbours[behind as usize].0 = before,
        }
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_come_and_go_at_every_place() {
        let mut links = Links::new(4);
        let mut list = List::default();
        (0..4).for_each(|member| list.push(&mut links, member));
        for (member, first) in [(1, 0), (0, 2), (3, 2)] {
            list.remove(&mut links, member);
            assert_eq!(list.first(), Some(first));
        }
        list.push(&mut links, 0);
        list.remove(&mut links, 2);
        assert_eq!((list.first(), list.len()), (Some(0), 1));
        list.remove(&mut links, 0);
        assert_eq!((list.first(), list.len()), (None, 0));
    }
}
