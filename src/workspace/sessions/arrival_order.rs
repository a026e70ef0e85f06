//! In which order the bytes of two streams arrived.

use std::collections::VecDeque;

use cofferdam_core::Stream;

/// How many bytes of both streams a block covers.
pub const BLOCK_BYTES: u64 = 32 << 10;
const WORDS: usize = (BLOCK_BYTES / 64) as usize;

/// For each byte the stream that it belongs to. A program may change the stream with every byte, so
/// a byte takes one bit at most.
#[derive(Debug, Default)]
pub struct ArrivalOrder {
    blocks: VecDeque<OrderBlock>,
    total: u64,
    /// How many bytes of each stream arrived.
    of_stream: [u64; 2],
}

#[derive(Debug)]
struct OrderBlock {
    /// How many bytes came before.
    offset: u64,
    /// How many bytes of each stream came before.
    before: [u64; 2],
    marks: Marks,
}

#[derive(Debug)]
enum Marks {
    /// All are of this stream.
    All(Stream),
    /// A bit for each byte, set for standard error.
    Each(Box<[u64; WORDS]>),
}

/// Bytes of one stream that arrived after each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArrivalRun {
    /// Their stream.
    pub stream: Stream,
    /// How many bytes of both streams came before.
    pub offset: u64,
    /// How many bytes of this stream came before.
    pub in_stream: u64,
    /// How many there are.
    pub bytes: u64,
}

impl ArrivalOrder {
    /// How many bytes of both streams arrived.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Adds `bytes` bytes of `stream`.
    pub fn push(&mut self, stream: Stream, mut bytes: u64) {
        while bytes > 0 {
            let block_end = self.blocks.back().map_or(0, |block| block.offset + BLOCK_BYTES);
            if self.total >= block_end {
                let (offset, before) = (self.total, self.of_stream);
                self.blocks.push_back(OrderBlock { offset, before, marks: Marks::All(stream) });
            }
            let Some(last) = self.blocks.back_mut() else { return };
            let filled = self.total - last.offset;
            let count = bytes.min(BLOCK_BYTES - filled);
            last.marks.set(filled, count, stream);
            self.total += count;
            self.of_stream[stream as usize] += count;
            bytes -= count;
        }
    }

    /// Frees whole blocks before `offset`. Returns how many bytes of each stream came before the
    /// first byte whose stream is still known.
    pub fn free_before(&mut self, offset: u64) -> [u64; 2] {
        while self.blocks.front().is_some_and(|block| block.offset + BLOCK_BYTES <= offset) {
            self.blocks.pop_front();
        }
        self.blocks.front().map_or(self.of_stream, |block| block.before)
    }

    /// The bytes from `offset` on that are of one stream: at most `bytes_max`. Nothing at the end.
    pub fn run(&self, offset: u64, bytes_max: u64) -> Option<ArrivalRun> {
        let first = self.blocks.front()?.offset;
        let offset = offset.max(first);
        let block = self.blocks.get(usize::try_from((offset - first) / BLOCK_BYTES).ok()?)?;
        let from = offset - block.offset;
        let to = (self.total - block.offset).min(BLOCK_BYTES).min(from.saturating_add(bytes_max));
        if from >= to {
            return None;
        }
        let (stream, skipped, bytes) = block.marks.run(from, to);
        let in_stream = block.before[stream as usize] + skipped;
        Some(ArrivalRun { stream, offset, in_stream, bytes })
    }
}

impl Marks {
    fn set(&mut self, from: u64, count: u64, stream: Stream) {
        match self {
            Self::All(all) if from == 0 || *all == stream => *all = stream,
            Self::All(all) => {
                let mut bits = Box::new([0; WORDS]);
                fill(&mut bits, 0, from, *all);
                fill(&mut bits, from, from + count, stream);
                *self = Self::Each(bits);
            }
            Self::Each(bits) => fill(bits, from, from + count, stream),
        }
    }

    /// The stream of the byte `from`, how many of that stream are before it, and how many bytes
    /// from there on, up to `to`, are of that stream.
    fn run(&self, from: u64, to: u64) -> (Stream, u64, u64) {
        let bits = match self {
            Self::All(stream) => return (*stream, from, to - from),
            Self::Each(bits) => bits,
        };
        let is_set = |at: u64| word(bits, at / 64) >> (at % 64) & 1 == 1;
        let whole: u64 = (0..from / 64).map(|at| u64::from(word(bits, at).count_ones())).sum();
        let part = word(bits, from / 64) & ((1 << (from % 64)) - 1);
        let set_before = whole + u64::from(part.count_ones());
        let of_stream = is_set(from);
        let end = (from..to).find(|at| is_set(*at) != of_stream).unwrap_or(to);
        match of_stream {
            true => (Stream::Stderr, set_before, end - from),
            false => (Stream::Stdout, from - set_before, end - from),
        }
    }
}

fn word(bits: &[u64; WORDS], at: u64) -> u64 {
    usize::try_from(at).ok().and_then(|at| bits.get(at)).copied().unwrap_or_default()
}

/// Sets the bits of standard error; those of standard output are clear from the start.
fn fill(bits: &mut [u64; WORDS], from: u64, to: u64, stream: Stream) {
    if stream == Stream::Stdout {
        return;
    }
    let mut at = from;
    while at < to {
        let (place, count) = (at % 64, (to - at).min(64 - at % 64));
        if let Some(word) = usize::try_from(at / 64).ok().and_then(|at| bits.get_mut(at)) {
            *word |= (u64::MAX >> (64 - count)) << place;
        }
        at += count;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_stream_alone_takes_no_bits() {
        let mut order = ArrivalOrder::default();
        order.push(Stream::Stderr, 5 * BLOCK_BYTES + 3);
        assert!(order.blocks.iter().all(|block| matches!(block.marks, Marks::All(_))));
        let run = order.run(BLOCK_BYTES + 1, u64::MAX).unwrap();
        let in_stream = BLOCK_BYTES + 1;
        let whole = (Stream::Stderr, in_stream, in_stream, BLOCK_BYTES - 1);
        assert_eq!((run.stream, run.offset, run.in_stream, run.bytes), whole);
        assert_eq!(order.run(5 * BLOCK_BYTES + 3, 1), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]

        #[test]
        fn every_byte_has_its_stream_and_its_place_in_it(
            pushes in prop::collection::vec((any::<bool>(), prop_oneof![1..5_u64, 1..80_000_u64]), 1..12),
            freed in 0..200_000_u64,
            bytes_max in 1..50_000_u64,
        ) {
            let stream = |is_stderr| if is_stderr { Stream::Stderr } else { Stream::Stdout };
            let (mut order, mut model) = (ArrivalOrder::default(), Vec::new());
            for (is_stderr, count) in pushes {
                order.push(stream(is_stderr), count);
                model.extend(std::iter::repeat_n(stream(is_stderr), usize::try_from(count).unwrap()));
            }
            let freed = freed.min(order.total());
            let before = order.free_before(freed);
            let mut at = usize::try_from(before.iter().sum::<u64>()).unwrap();
            prop_assert!(at as u64 <= freed && freed - (at as u64) <= BLOCK_BYTES);
            let count = |upto: usize, of| model[..upto].iter().filter(|it| **it == of).count() as u64;
            while at < model.len() {
                let run = order.run(at as u64, bytes_max).unwrap();
                prop_assert!(run.bytes > 0 && run.bytes <= bytes_max);
                prop_assert_eq!((run.offset, run.in_stream), (at as u64, count(at, run.stream)));
                let end = at + usize::try_from(run.bytes).unwrap();
                prop_assert!(model[at..end].iter().all(|it| *it == run.stream));
                at = end;
            }
            prop_assert_eq!(order.run(at as u64, 1), None);
        }
    }
}
