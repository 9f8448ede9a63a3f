//! Items that wait for their time.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

use super::Nanos;

/// A queue of items in the order of their times; items of the same time are in the order in which they came.
///
/// Nearly all items come in the order in which they leave, and wait in a ring. Only those that overtake cost
/// a heap.
#[derive(Debug)]
pub struct DueQueue<T> {
    in_order: VecDeque<Entry<T>>,
    overtaking: BinaryHeap<Reverse<Entry<T>>>,
    pushed: u64,
}

#[derive(Debug)]
struct Entry<T> {
    due: Nanos,
    number: u64,
    item: T,
}

impl<T> Default for DueQueue<T> {
    fn default() -> Self {
        Self {
            in_order: VecDeque::new(),
            overtaking: BinaryHeap::new(),
            pushed: 0,
        }
    }
}

impl<T> DueQueue<T> {
    /// Adds an item that leaves at `due`.
    pub fn push(&mut self, due: Nanos, item: T) {
        let entry = Entry {
            due,
            number: self.pushed,
            item,
        };
        self.pushed += 1;
        if self.in_order.back().is_none_or(|last| last.due <= due) {
            self.in_order.push_back(entry);
        } else {
            self.overtaking.push(Reverse(entry));
        }
    }

    /// The time at which the first item leaves. `None` if the queue is empty.
    pub fn next_due(&self) -> Option<Nanos> {
        let [in_order, overtaking] = self.firsts();
        in_order.into_iter().chain(overtaking).min().map(|(due, _)| due)
    }

    /// Takes the first item and its time, if it is due.
    pub fn pop_due(&mut self, now: Nanos) -> Option<(Nanos, T)> {
        let [in_order, overtaking] = self.firsts();
        let overtakes = match (in_order, overtaking) {
            (Some(in_order), Some(overtaking)) => overtaking < in_order,
            (_, overtaking) => overtaking.is_some(),
        };
        let (due, _) = if overtakes { overtaking? } else { in_order? };
        if due > now {
            return None;
        }
        let entry = if overtakes {
            self.overtaking.pop().map(|Reverse(entry)| entry)
        } else {
            self.in_order.pop_front()
        };
        entry.map(|entry| (entry.due, entry.item))
    }

    fn firsts(&self) -> [Option<(Nanos, u64)>; 2] {
        [
            self.in_order.front().map(Entry::key),
            self.overtaking.peek().map(|Reverse(entry)| entry.key()),
        ]
    }
}

impl<T> Entry<T> {
    fn key(&self) -> (Nanos, u64) {
        (self.due, self.number)
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_leave_by_time_then_by_arrival() {
        let mut queue = DueQueue::default();
        for (due, item) in [(5, 'a'), (9, 'b'), (7, 'c'), (9, 'd'), (1, 'e'), (7, 'f')] {
            queue.push(due, item);
        }
        assert_eq!(queue.next_due(), Some(1));
        let left: String = std::iter::from_fn(|| queue.pop_due(9))
            .map(|(_, item)| item)
            .collect();
        assert_eq!(left, "eacfbd");
        assert_eq!(queue.next_due(), None);
    }

    #[test]
    fn nothing_leaves_before_its_time() {
        let mut queue = DueQueue::default();
        queue.push(10, 'a');
        queue.push(4, 'b');
        assert_eq!(queue.pop_due(3), None);
        assert_eq!(queue.pop_due(4), Some((4, 'b')));
        assert_eq!(queue.pop_due(9), None);
        assert_eq!(queue.pop_due(10), Some((10, 'a')));
    }

    #[test]
    fn any_order_of_arrival_leaves_in_order() {
        let mut queue = DueQueue::default();
        let mut value = 1u64;
        for _ in 0..10_000 {
            value = value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            queue.push(value >> 40, ());
        }
        let left: Vec<_> = std::iter::from_fn(|| queue.pop_due(u64::MAX))
            .map(|(due, ())| due)
            .collect();
        assert_eq!(left.len(), 10_000);
        assert!(left.is_sorted());
    }
}
