//! Names in copies of directory blocks that are possibly older, and not restored: those that may
//! still be the names of the files that have these inodes now.

use super::records;
use super::restorer::Restorer;
use crate::older_names::{OlderBlock, OlderName};
use crate::store::CheckError;
use extant_evidence::BlockCopy;
use extant_ondisk::bitmap;
use extant_ondisk::dirent::dot_entries;
use extant_ondisk::inode::{GOOD_OLD_INODE_SIZE, Inode};
use extant_ondisk::time::Timestamp;
use extant_ondisk::{BlockNo, InodeNo};
use std::cmp::Reverse;
use std::collections::HashMap;

impl Restorer<'_> {
    /// The names in the blocks that may be current: the newest copies first.
    ///
    /// Their inodes must be in use, and their content must not have changed since: a file that has
    /// the inode of a deleted one, or that was written under another name, has none of these names.
    pub(super) fn older_names(&self) -> Result<Vec<OlderName>, CheckError> {
        let mut blocks: Vec<(BlockCopy, Vec<u8>, &OlderBlock)> = Vec::new();
        for block in &self.older_blocks {
            if let Some((copy, bytes)) = self.copy_of(block.block) {
                blocks.push((copy, bytes, block));
            }
        }
        blocks.sort_by_key(|(copy, _, block)| {
            let time = copy.committed;
            (Reverse((time.seconds, time.nanoseconds)), block.dir, block.at)
        });
        let mut parents = HashMap::new();
        for (_, bytes, block) in &blocks {
            if block.at.0 == 0
                && let Ok((_, parent)) = dot_entries(&block.format, bytes)
            {
                parents.insert(block.dir, parent);
            }
        }
        let mut names = Vec::new();
        for (copy, bytes, block) in &blocks {
            for entry in block.format.entries(bytes, block.at).flatten() {
                let Some(inode) = entry.inode.filter(|_| !entry.is_dot()) else { continue };
                if !self.is_as_it_was(inode, copy)? {
                    continue;
                }
                names.push(OlderName {
                    name: entry.name.to_vec(),
                    inode,
                    file_type: entry.file_type,
                    hash: entry.stored_hash,
                    dir: block.dir,
                    block: block.block,
                    what: format!("block {} of directory {}", block.at.0, block.dir),
                    tid: copy.tid,
                    committed: copy.committed.seconds,
                    parent: parents.get(&inode).copied(),
                });
            }
        }
        Ok(names)
    }

    /// Whether the newest copy of a block is as new as another block's, and is as `is_it` says.
    fn is_logged_since(
        &self,
        block: BlockNo,
        other: &BlockCopy,
        is_it: impl Fn(&[u8]) -> bool,
    ) -> bool {
        let newest = self.copy_of(block);
        newest.is_some_and(|(copy, bytes)| !copy.tid.is_before(other.tid) && is_it(&bytes))
    }

    /// Whether an inode is in use, by its bitmap too, and is that of the file that had it when a
    /// copy was committed, with the same content.
    fn is_as_it_was(&self, number: InodeNo, copy: &BlockCopy) -> Result<bool, CheckError> {
        if self.older_inodes.get(&number).is_some_and(|tid| tid.is_before(copy.tid)) {
            return Ok(false); // another file may have had the inode then
        }
        let Some((group, index)) = self.geometry.inode_place(number) else { return Ok(false) };
        let Some((home, at)) = self.record_place(number) else { return Ok(false) };
        let size = usize::from(self.geometry.inode_size);
        let in_place = self.block(home)?;
        let in_place = &in_place[at..at + size];
        let Some(inode) = self.file_of(number, in_place) else { return Ok(false) };
        if self.is_mixed
            && !self.is_logged_since(home, copy, |bytes| bytes[at..].starts_with(in_place))
        {
            return Ok(false); // the record may be older than the name
        }
        // Without the extra fields a time is a whole second, of which any part may be meant.
        let is_whole = self.geometry.inode_size == GOOD_OLD_INODE_SIZE;
        let is_later = |time: Timestamp| {
            let nanoseconds = if is_whole { 1_000_000_000 } else { time.nanoseconds };
            let committed = copy.committed;
            (time.seconds, nanoseconds) > (committed.seconds, committed.nanoseconds)
        };
        if is_later(inode.crtime.unwrap_or(inode.ctime)) || !inode.is_dir() && is_later(inode.mtime)
        {
            return Ok(false);
        }
        if let Some(then) = self.evidence.copy_at(home, copy.tid)
            && let Ok(bytes) = self.evidence.read(then)
            && let Some(record) = bytes.get(at..at + size)
            && records::is_sound(record, number, self.geometry)
        {
            let is_same = Inode::decode(record, number, self.geometry).is_ok_and(|then| {
                then.links > 0
                    && then.generation == inode.generation
                    && then.file_type() == inode.file_type()
            });
            if !is_same {
                return Ok(false);
            }
        }
        let used = self.inode_bitmap(group)?;
        Ok(used.is_none_or(|used| bitmap::test(&used, index)))
    }
}
