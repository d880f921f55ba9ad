//! Messages that are to be written to a connection, and where each of them ends. Pure: no socket, no
//! clock.

use std::collections::VecDeque;

/// A larger buffer is freed once it is empty. Of one that never is, the written part is dropped from
/// this size on.
const KEPT_BYTES: usize = 1 << 20;

#[derive(Debug, Default)]
pub(super) struct Outgoing {
    bytes: Vec<u8>,
    /// The bytes before this are written.
    written: usize,
    /// Where the first message begins that is not written as a whole.
    begin: usize,
    /// Where those messages end.
    ends: VecDeque<usize>,
}

impl Outgoing {
    /// Adds the message that `put` appends.
    pub(super) fn add(&mut self, put: impl FnOnce(&mut Vec<u8>)) {
        put(&mut self.bytes);
        self.ends.push_back(self.bytes.len());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Whether a message is written in part.
    pub(super) fn has_begun(&self) -> bool {
        self.begin < self.written
    }

    /// The bytes that are still to be written: of all messages, or only of one that is begun.
    pub(super) fn rest(&self, only_begun: bool) -> &[u8] {
        let end = match self.ends.front() {
            Some(end) if only_begun && self.has_begun() => *end,
            _ if only_begun => self.written,
            _ => self.bytes.len(),
        };
        &self.bytes[self.written..end]
    }

    /// Notes that so many more bytes are written. Returns how many messages end within them.
    pub(super) fn advance(&mut self, count: usize) -> usize {
        let before = self.ends.len();
        self.written += count;
        while let Some(end) = self.ends.front().copied().filter(|end| *end <= self.written) {
            self.begin = end;
            self.ends.pop_front();
        }
        let ended = before - self.ends.len();
        if self.ends.is_empty() {
            self.bytes.clear();
            self.bytes.shrink_to(KEPT_BYTES);
            (self.written, self.begin) = (0, 0);
        } else if self.begin > KEPT_BYTES && self.begin > self.bytes.len() / 2 {
            self.bytes.drain(..self.begin);
            self.ends.iter_mut().for_each(|end| *end -= self.begin);
            self.written -= self.begin;
            self.begin = 0;
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_message_that_is_begun_is_written_to_its_end() {
        let mut outgoing = Outgoing::default();
        for text in ["first", "second", "third"] {
            outgoing.add(|out| out.extend(text.as_bytes()));
        }
        assert_eq!(outgoing.rest(false), b"firstsecondthird");
        assert_eq!(outgoing.rest(true), b"");
        assert_eq!(outgoing.advance(7), 1);
        assert!(outgoing.has_begun());
        assert_eq!(outgoing.rest(true), b"cond");
        assert_eq!(outgoing.advance(4), 1);
        assert!(!outgoing.has_begun() && !outgoing.is_empty());
        assert_eq!(outgoing.rest(true), b"");
        assert_eq!(outgoing.advance(5), 1);
        assert!(outgoing.is_empty());
        assert_eq!(outgoing.rest(false), b"");
    }

    #[test]
    fn a_buffer_that_is_never_empty_drops_what_is_written() {
        let (mut outgoing, mut sent, mut written) = (Outgoing::default(), 0_u32, Vec::<u8>::new());
        let mut largest = 0;
        while written.len() < 8 * KEPT_BYTES {
            while outgoing.rest(false).len() < 100_000 {
                outgoing.add(|out| out.extend([sent.to_le_bytes()[0]; 1000]));
                sent += 1;
            }
            let count = 99_999;
            written.extend(&outgoing.rest(false)[..count]);
            outgoing.advance(count);
            largest = largest.max(outgoing.bytes.len());
        }
        assert!(largest < 3 * KEPT_BYTES, "{largest} bytes");
        let expected = (0..sent).flat_map(|number| [number.to_le_bytes()[0]; 1000]);
        assert!(written.iter().copied().eq(expected.take(written.len())));
    }
}
