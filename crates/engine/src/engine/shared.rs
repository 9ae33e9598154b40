//! Blocks and inodes that several files may share, by their contents: attribute blocks, and inodes
//! of attributes' values.
//!
//! Only hints: what is not known here is stored once more. A block in the list is in use: it is
//! taken out, under the lock of its shard, before it is rewritten or freed.

use crate::ranks::{SharedBlocksLock, SharedValuesLock};
use extant_ondisk::{BlockNo, InodeNo};
use extant_runtime::sync::Mutex;
use std::collections::{HashMap, VecDeque};

/// Shards of each list.
const SHARDS: usize = 16;
/// Hashes that a shard remembers.
const HASHES: usize = 256;
/// Things of one hash that are remembered.
const OF_HASH: usize = 4;

/// Things by hash, the oldest hashes forgotten first.
#[derive(Debug)]
struct Known<T> {
    by_hash: HashMap<u32, Vec<T>>,
    order: VecDeque<u32>,
}

impl<T> Default for Known<T> {
    fn default() -> Self {
        Self { by_hash: HashMap::new(), order: VecDeque::new() }
    }
}

impl<T> Known<T> {
    fn with<R>(&mut self, hash: u32, act: impl FnOnce(&mut Vec<T>) -> R) -> R {
        let mut of_hash = self.by_hash.remove(&hash).unwrap_or_default();
        let was_known = !of_hash.is_empty();
        let result = act(&mut of_hash);
        while of_hash.len() > OF_HASH {
            of_hash.remove(0);
        }
        if of_hash.is_empty() {
            if was_known {
                self.order.retain(|known| *known != hash);
            }
            return result;
        }
        if !was_known {
            self.order.push_back(hash);
            if self.order.len() > HASHES
                && let Some(oldest) = self.order.pop_front()
            {
                self.by_hash.remove(&oldest);
            }
        }
        self.by_hash.insert(hash, of_hash);
        result
    }
}

/// The blocks and inodes that the files of a volume may share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    blocks: [Mutex<Known<BlockNo>, SharedBlocksLock>; SHARDS],
    values: [Mutex<Known<InodeNo>, SharedValuesLock>; SHARDS],
}

impl Shared {
    /// Runs `act` with the attribute blocks of a hash.
    pub(crate) fn with_blocks<R>(&self, hash: u32, act: impl FnOnce(&mut Vec<BlockNo>) -> R) -> R {
        self.blocks[hash as usize % SHARDS].lock().with(hash, act)
    }

    /// Runs `act` with the inodes of values of a hash.
    pub(crate) fn with_values<R>(&self, hash: u32, act: impl FnOnce(&mut Vec<InodeNo>) -> R) -> R {
        self.values[hash as usize % SHARDS].lock().with(hash, act)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_hashes_are_forgotten() {
        let mut known = Known::default();
        for hash in 0..HASHES as u32 + 1 {
            known.with(hash, |of_hash| of_hash.push(hash));
        }
        assert!(known.with(0, |of_hash| of_hash.is_empty()));
        assert_eq!(known.with(1, |of_hash| of_hash.clone()), [1]);
        known.with(1, Vec::clear);
        assert_eq!((known.by_hash.len(), known.order.len()), (HASHES - 1, HASHES - 1));
        known.with(2, |of_hash| of_hash.extend(10..20));
        assert_eq!(known.with(2, |of_hash| of_hash.clone()), [16, 17, 18, 19]);
    }
}
