//! Directories by their names, so that paths are walked without searching the same directories
//! again.
//!
//! A cached name is valid as long as its directory is not changed: each state of a directory's
//! names that is looked up has a number of its own, its edition, which no other state of any
//! directory ever has. Names of files are not kept: a path has only one.

use super::inodes::InodeRead;
use crate::ranks::NameCacheLock;
use extant_ondisk::InodeNo;
use extant_ondisk::dirent::FileType;
use extant_reader::Error;
use extant_reader::hash::WordHasher;
use extant_reader::read::dir_block::EntryTarget;
use extant_runtime::sync::Mutex;
use extant_runtime::sync::atomic::{AtomicU64, Ordering};
use std::hash::Hasher;

/// Longer names are looked up each time.
const MAX_NAME: usize = 27;
const SHARDS: usize = 64;
/// Names of all shards.
const MIN_NAMES: usize = 1 << 10;
const MAX_NAMES: usize = 1 << 14;

/// A name in a state of a directory, and its directory.
#[derive(Clone, Copy, Debug)]
struct Known {
    edition: u64,
    inode: InodeNo,
    len: u8,
    name: [u8; MAX_NAME],
}

impl Known {
    fn name(&self) -> &[u8] {
        &self.name[..usize::from(self.len)]
    }
}

type Shard = Mutex<Box<[Option<Known>]>, NameCacheLock>;

/// The names that are known; a new one takes the place of another.
#[derive(Debug)]
pub(crate) struct NameCache {
    shards: Box<[Shard]>,
    shard_len: usize,
    editions: AtomicU64,
}

impl NameCache {
    /// Takes about `bytes` bytes, within bounds.
    pub(crate) fn new(bytes: u64) -> Self {
        let wanted = usize::try_from(bytes).unwrap_or(usize::MAX) / size_of::<Option<Known>>();
        let shard_len = wanted.clamp(MIN_NAMES, MAX_NAMES) / SHARDS;
        let shard = || Mutex::ranked(vec![None; shard_len].into_boxed_slice());
        let shards = (0..SHARDS).map(|_| shard()).collect();
        Self { shards, shard_len, editions: AtomicU64::new(1) }
    }

    /// The entry of a name in a directory: `search` finds it if it is not cached.
    pub(crate) fn find(
        &self,
        dir: &InodeRead<'_>,
        name: &[u8],
        search: impl FnOnce() -> Result<EntryTarget, Error>,
    ) -> Result<EntryTarget, Error> {
        if name.len() > MAX_NAME || matches!(name, b"." | b"..") {
            return search();
        }
        let edition = dir.edition(|| self.editions.fetch_add(1, Ordering::Relaxed));
        let (shard, at) = self.place(edition, name);
        if let Some(known) = &shard.lock()[at]
            && known.edition == edition
            && known.name() == name
        {
            return Ok(EntryTarget { inode: known.inode, file_type: FileType::Directory });
        }
        let found = search()?;
        if found.file_type == FileType::Directory {
            let mut known =
                Known { edition, inode: found.inode, len: name.len() as u8, name: [0; MAX_NAME] };
            known.name[..name.len()].copy_from_slice(name);
            shard.lock()[at] = Some(known);
        }
        Ok(found)
    }

    /// Where a name is kept.
    fn place(&self, edition: u64, name: &[u8]) -> (&Shard, usize) {
        let mut hasher = WordHasher::default();
        hasher.write_u64(edition);
        for word in name.chunks(8) {
            let mut bytes = [0; 8];
            bytes[..word.len()].copy_from_slice(word);
            hasher.write_u64(u64::from_le_bytes(bytes));
        }
        let hash = hasher.finish() as usize;
        (&self.shards[hash % SHARDS], hash / SHARDS % self.shard_len)
    }
}
