//! Buffers that are kept for the data of the next files.

use crate::ranks::BufferPoolLock;
use extant_device::AlignedBuffer;
use extant_runtime::sync::atomic::{AtomicUsize, Ordering};
use extant_runtime::sync::{Arc, Mutex};
use std::collections::BTreeMap;

/// Direct requests want addresses that are multiples of this at most.
const ALIGNMENT: usize = 4096;

/// Buffers of chunks that are gone, for the next ones: to copy into memory that is new to the
/// process costs twice as much, and what one thread gives back to the allocator another may not
/// find there.
#[derive(Debug)]
pub(crate) struct BufferPool {
    spares: Mutex<Spares, BufferPoolLock>,
    /// Bytes that they may have together.
    most: AtomicUsize,
}

/// They hold anything.
#[derive(Debug, Default)]
struct Spares {
    by_len: BTreeMap<usize, Vec<Arc<AlignedBuffer>>>,
    bytes: usize,
}

impl Spares {
    fn take(&mut self, len: usize) -> Option<Arc<AlignedBuffer>> {
        let spare = self.by_len.get_mut(&len)?.pop()?;
        self.bytes -= len;
        Some(spare)
    }

    fn give(&mut self, buffer: Arc<AlignedBuffer>) {
        self.bytes += buffer.len();
        self.by_len.entry(buffer.len()).or_default().push(buffer);
    }

    /// The largest ones of at least `bytes` bytes, or all. The caller drops them without the lock.
    fn shed(&mut self, bytes: usize) -> Vec<Arc<AlignedBuffer>> {
        let (mut shed, mut left) = (Vec::new(), bytes);
        for (len, buffers) in self.by_len.iter_mut().rev() {
            let count = left.div_ceil(*len).min(buffers.len());
            shed.extend(buffers.drain(buffers.len() - count..));
            self.bytes -= count * len;
            left = left.saturating_sub(count * len);
            if left == 0 {
                break;
            }
        }
        shed
    }
}

impl BufferPool {
    /// An empty pool of at most `bytes` bytes.
    pub(super) fn new(bytes: u64) -> Self {
        Self { spares: Mutex::default(), most: AtomicUsize::new(to_usize(bytes)) }
    }

    /// Frees the buffers beyond `bytes` bytes.
    pub(super) fn keep_at_most(&self, bytes: u64) {
        let most = to_usize(bytes);
        self.most.store(most, Ordering::Relaxed);
        let mut spares = self.spares.lock();
        let beyond = spares.bytes.saturating_sub(most);
        let shed = spares.shed(beyond);
        drop(spares);
        drop(shed);
    }

    /// Gives all of them up.
    pub(super) fn clear(&self) {
        let gone = std::mem::take(&mut *self.spares.lock());
        // Dropped without the lock.
        drop(gone);
    }

    /// A buffer for a chunk, of any content. One of a length that is not here costs others, so
    /// that both together take no more than data may.
    pub(super) fn take(&self, len: usize) -> Arc<AlignedBuffer> {
        let mut spares = self.spares.lock();
        if let Some(spare) = spares.take(len) {
            return spare;
        }
        let shed = spares.shed(len);
        drop(spares);
        drop(shed);
        Arc::new(new_buffer(len))
    }

    /// A chunk is gone.
    pub(super) fn give(&self, mut buffer: Arc<AlignedBuffer>) {
        if Arc::get_mut(&mut buffer).is_some() {
            let mut spares = self.spares.lock();
            if spares.bytes + buffer.len() <= self.most.load(Ordering::Relaxed) {
                spares.give(buffer);
            }
        }
    }
}

fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// A buffer of any content for direct requests.
pub(super) fn new_buffer(len: usize) -> AlignedBuffer {
    AlignedBuffer::new(len, ALIGNMENT.min(len.next_power_of_two()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_that_was_given_back_is_taken_again() {
        let pool = BufferPool::new(1 << 20);
        let buffer = pool.take(8192);
        let address = buffer.as_ptr();
        pool.give(buffer);
        assert_eq!(pool.take(8192).as_ptr(), address);
        assert_eq!(pool.spares.lock().bytes, 0);
    }

    #[test]
    fn spares_have_no_more_bytes_than_allowed_and_make_room_for_other_lengths() {
        let pool = BufferPool::new(16 << 10);
        let taken: Vec<_> = [8 << 10, 4 << 10, 4 << 10, 4 << 10].map(|len| pool.take(len)).into();
        taken.into_iter().for_each(|buffer| pool.give(buffer));
        let lengths = |pool: &BufferPool| -> Vec<(usize, usize)> {
            let spares = pool.spares.lock();
            spares.by_len.iter().map(|(len, buffers)| (*len, buffers.len())).collect()
        };
        assert_eq!(lengths(&pool), [(4 << 10, 2), (8 << 10, 1)]);
        pool.take(12 << 10);
        assert_eq!(lengths(&pool), [(4 << 10, 1), (8 << 10, 0)]);
        pool.keep_at_most(0);
        assert_eq!(pool.spares.lock().bytes, 0);
    }
}
