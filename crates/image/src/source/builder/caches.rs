//! Caches of paths, and the whiteouts of a layer.

use super::super::node::{NameRef, NodeId};

#[derive(Clone, Copy, Debug)]
pub(super) enum Whiteout {
    /// The dirent is gone, with all below it.
    Name { parent: NodeId, name: NameRef },
    /// Everything that lower layers have in the directory is removed.
    Opaque(NodeId),
}

/// Directories by their paths: most entries and link targets lie where others were. One place for
/// each hash.
#[derive(Debug, Default)]
pub(super) struct DirectoryCache {
    places: Vec<CachedDirectory>,
    /// Places of an earlier one are out of date.
    generation: u64,
}

#[derive(Clone, Debug, Default)]
struct CachedDirectory {
    path: Vec<u8>,
    node: Option<NodeId>,
    generation: u64,
}

impl DirectoryCache {
    const PLACES: usize = 1 << 13;
    /// Longer paths are walked each time.
    const PATH_MAX: usize = 512;

    fn place(hash: u64) -> usize {
        hash as usize % Self::PLACES
    }

    pub(super) fn get(&self, hash: u64, path: &[u8]) -> Option<NodeId> {
        let found = self.places.get(Self::place(hash))?;
        found.node.filter(|_| found.generation == self.generation && found.path == path)
    }

    pub(super) fn put(&mut self, hash: u64, path: &[u8], node: NodeId) {
        if path.len() > Self::PATH_MAX {
            return;
        }
        if self.places.is_empty() {
            self.places.resize(Self::PLACES, CachedDirectory::default());
        }
        let place = &mut self.places[Self::place(hash)];
        place.path.clear();
        place.path.extend_from_slice(path);
        (place.node, place.generation) = (Some(node), self.generation);
    }

    /// Some path means another directory now.
    pub(super) fn clear(&mut self) {
        self.generation += 1;
    }
}

/// Dirents that hard links lead to, by the hash of parent and name: small enough to stay in the
/// processor's cache, unlike the whole index of millions of names. A hit must be compared: hashes
/// collide.
#[derive(Debug, Default)]
pub(super) struct TargetCache(
    /// The hash in the high half; one more than the dirent in the low half.
    Vec<u64>,
);

impl TargetCache {
    const PLACES: usize = 1 << 20;

    fn place(hash: u32) -> usize {
        hash as usize % Self::PLACES
    }

    pub(super) fn get(&self, hash: u32) -> Option<usize> {
        let found = *self.0.get(Self::place(hash))?;
        let dirent = (found as u32).checked_sub(1)? as usize;
        (found >> 32 == u64::from(hash)).then_some(dirent)
    }

    pub(super) fn put(&mut self, hash: u32, dirent: usize) {
        if self.0.is_empty() {
            self.0 = vec![0; Self::PLACES];
        }
        self.0[Self::place(hash)] = u64::from(hash) << 32 | (dirent as u64 + 1);
    }
}
