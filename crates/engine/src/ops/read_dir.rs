//! Reading a directory that others may change during the walk.
//!
//! A cookie must mean the same place however the records move. In a directory that is filed by
//! hash, or will be when it grows, entries come in the order of their hashes and the cookie is the
//! hash; in others records stay where they are, and it is their place. So an entry that is there
//! all the time is read exactly once.

use crate::engine::Engine;
use crate::engine::inodes::LockClass;
use extant_ondisk::dirent::FileType;
use extant_ondisk::dx_hash::DirHasher;
use extant_ondisk::{FileBlock, Flaw, InodeNo, Location};
use extant_reader::hash::WordHasher;
use extant_reader::read::dir::{self, BrokenIndex, DirBlocks, DirEntry, ReadDir, lookup};
use extant_reader::read::dir_block::{self, is_indexed};
use extant_reader::read::htree::{self, HtreePath};
use extant_reader::read::inode::{LoadedInode, dir_blocks};
use extant_reader::{Error, MetadataRead, VolumeRead};
use std::collections::VecDeque;
use std::hash::Hasher;

/// Cookies of `.` and `..` where entries come in the order of their hashes.
const DOT: u64 = 1;
const DOT_DOT: u64 = 2;
/// Where the hash begins in a cookie.
const HASH_SHIFT: u32 = 32;
/// The last of the cookies of a hash that belong to one name: the cookies after it are for names
/// that share one.
const LAST_MINOR: u64 = 0xffff_ffff - (1 << 20);
/// Bits of a place in a block, in units of 4 bytes.
const PLACE_BITS: u32 = 16;

/// The entries of a directory, `.` and `..` too, read a leaf or a block at a time. A corrupt block
/// is an error among the entries, which continue after it; any other error ends them. A cookie
/// stays good while names are put in and taken out.
#[derive(Debug)]
pub struct EngineReadDir<'v>(Form<'v>);

#[derive(Debug)]
enum Form<'v> {
    /// Names that are shown without their key: nothing changes there.
    Still(Box<ReadDir<'v, Engine>>),
    Live {
        engine: &'v Engine,
        dir: InodeNo,
        /// The cookie of the last entry that was read.
        after: u64,
        waiting: VecDeque<Result<DirEntry, Error>>,
        is_done: bool,
    },
}

impl<'v> EngineReadDir<'v> {
    /// The entries from a cookie on; 0 is the start.
    pub(crate) fn new(engine: &'v Engine, dir: InodeNo, from: u64) -> Result<Self, Error> {
        let inode = engine.inode(dir)?;
        inode.as_dir()?;
        let form = if inode.is_encrypted() {
            Form::Still(Box::new(dir::read_dir(engine, inode, from)?))
        } else {
            let waiting = VecDeque::new();
            Form::Live { engine, dir, after: from, waiting, is_done: false }
        };
        Ok(Self(form))
    }
}

/// Entries in their order, and in front of them the errors of corrupt blocks.
type EntryQueue = VecDeque<Result<DirEntry, Error>>;

impl Engine {
    /// The next entries after a cookie: at least one unless there are no more.
    fn entries_after(&self, dir: InodeNo, after: u64) -> Result<EntryQueue, Error> {
        let shared = self.inodes.get(dir);
        let inode = shared.read(self, LockClass::Dir)?;
        if is_indexed(self, &inode) {
            return match self.indexed_after(&inode, after) {
                Err(error) if error.is_corruption() => self.unindexed_after(&inode, after, error),
                found => found,
            };
        }
        let is_small = inode.is_inline() || dir_blocks(self, &inode)? <= FileBlock(1);
        match self.info().default_hasher.filter(|_| is_small && self.has_dir_index()) {
            Some(hasher) => self.sorted_after(&inode, &hasher, after),
            None if inode.is_inline() => Ok(dir::read_dir(self, inode.clone(), after)?.collect()),
            None => self.linear_after(&inode, after),
        }
    }

    /// For a directory with an index: the rest of the leaf that the cookie lies in, with the leaves
    /// that continue its last hash.
    fn indexed_after(&self, dir: &LoadedInode, after: u64) -> Result<EntryQueue, Error> {
        let hasher = htree::hasher(self, dir)?;
        let (format, records) = (htree::format(self, dir), dir_block::format(self, dir));
        let blocks = dir_blocks(self, dir)?;
        let (mut found, mut bad) = (Vec::new(), Vec::new());
        for (name, cookie) in [(&b"."[..], DOT), (b"..", DOT_DOT)] {
            if after < cookie {
                let inode = lookup(self, dir, name, BrokenIndex::Report)?.inode;
                let (file_type, name) = (FileType::Directory, name.to_vec());
                found.push(DirEntry { inode, file_type, name, cookie });
            }
        }
        let HtreePath { mut levels, leaf, .. } = htree::descend(self, dir, hash_of_cookie(after))?;
        let mut next = Some(leaf);
        // A directory has no more leaves than blocks.
        for _ in 0..blocks.0 {
            let Some(leaf) = next else { break };
            match dir_block::block(self, dir, leaf) {
                Ok(bytes) => {
                    for entry in records.entries(&bytes, leaf) {
                        let entry = entry?;
                        let Some(inode) = entry.inode else { continue };
                        let cookie = self.cookie(&hasher, dir, entry.name);
                        if cookie >> HASH_SHIFT < after >> HASH_SHIFT {
                            continue;
                        }
                        let (file_type, name) = (entry.file_type, entry.name.to_vec());
                        match check_shown(dir.number, leaf, entry.at, entry.name) {
                            Ok(()) => found.push(DirEntry { inode, file_type, name, cookie }),
                            Err(error) => bad.push(error),
                        }
                    }
                }
                Err(error) if error.is_corruption() => bad.push(error),
                Err(error) => return Err(error),
            }
            let is_enough = found.iter().any(|entry| entry.cookie > after);
            next = htree::next_leaf(self, dir, &format, &mut levels, blocks, |entry| {
                !is_enough || entry.is_continuation
            })?;
        }
        Ok(with_errors(bad, in_order(found, after)))
    }

    /// For a directory whose index is corrupt: as if the index led to all of its blocks, so that
    /// cookies mean the same as before.
    fn unindexed_after(
        &self,
        dir: &LoadedInode,
        after: u64,
        error: Error,
    ) -> Result<EntryQueue, Error> {
        tracing::warn!(dir = dir.number.0, %error, "broken index, all blocks are read");
        let hasher = htree::hasher(self, dir).ok().or(self.info().default_hasher);
        let Some(hasher) = hasher else { return Err(error) };
        let mut found = self.sorted_after(dir, &hasher, after)?;
        if found.iter().all(Result::is_ok) {
            found.push_front(Err(error));
        }
        Ok(found)
    }

    /// For a directory of one block, or in its inode, that will have an index when it grows: all
    /// that it holds, in the order of an index.
    fn sorted_after(
        &self,
        dir: &LoadedInode,
        hasher: &DirHasher,
        after: u64,
    ) -> Result<EntryQueue, Error> {
        let (mut found, mut bad) = (Vec::new(), Vec::new());
        for entry in dir::read_dir(self, dir.clone(), 0)? {
            match entry {
                Ok(mut entry) => {
                    entry.cookie = match entry.name.as_slice() {
                        b"." => DOT,
                        b".." => DOT_DOT,
                        name => self.cookie(hasher, dir, name),
                    };
                    found.push(entry);
                }
                Err(error) if error.is_corruption() => bad.push(error),
                Err(error) => return Err(error),
            }
        }
        Ok(with_errors(bad, in_order(found, after)))
    }

    /// For a directory without an index: the rest of the block that the cookie lies in. Records are
    /// split and joined, but the place where one begins stays.
    fn linear_after(&self, dir: &LoadedInode, after: u64) -> Result<EntryQueue, Error> {
        let records = dir_block::format(self, dir);
        let mut blocks = DirBlocks::new(self, dir, FileBlock(after >> PLACE_BITS))?;
        let mut found = EntryQueue::new();
        while !found.iter().any(Result::is_ok) {
            let (at, bytes) = match blocks.next(self, dir) {
                Ok(Some(next)) => next,
                Ok(None) => break,
                Err(error) if error.is_corruption() => {
                    found.push_back(Err(error));
                    continue;
                }
                Err(error) => return Err(error),
            };
            for entry in records.entries(&bytes, at) {
                let entry = entry?;
                let Some(inode) = entry.inode else { continue };
                // A block has at most 65,536 bytes, and a record at least 12.
                let cookie = at.0 << PLACE_BITS | (entry.at / 4 + 1) as u64;
                if cookie > after {
                    let (file_type, name) = (entry.file_type, entry.name.to_vec());
                    let shown = check_shown(dir.number, at, entry.at, entry.name);
                    found.push_back(shown.map(|()| DirEntry { inode, file_type, name, cookie }));
                }
            }
        }
        Ok(found)
    }

    /// The place of a name by its hash. The lower half distinguishes names of one hash; it never
    /// changes.
    fn cookie(&self, hasher: &DirHasher, dir: &LoadedInode, name: &[u8]) -> u64 {
        let hash = match self.info().casefold.filter(|_| dir.is_casefolded()) {
            Some(casefold) => hasher.hash(&casefold.key(name)),
            None => hasher.hash(name),
        };
        let mut minor = WordHasher::default();
        minor.write(name);
        // Bit 0 of a hash is clear and it ends below 0xfffffffe: the sum has 31 bits.
        u64::from(hash.hash / 2 + 1) << HASH_SHIFT | (minor.finish() >> 32).min(LAST_MINOR)
    }
}

/// The hash that a cookie was made of.
fn hash_of_cookie(cookie: u64) -> u32 {
    // 31 bits and one less.
    ((cookie >> HASH_SHIFT).saturating_sub(1) << 1) as u32
}

/// The entries after a cookie, in their order. Names of one cookie get the free cookies after it,
/// in the order of the names, so that no name is lost or repeated if reading continues between
/// them: all names of its hash are among those that were found.
fn in_order(mut found: Vec<DirEntry>, after: u64) -> VecDeque<DirEntry> {
    found.sort_by(|a, b| (a.cookie, &a.name).cmp(&(b.cookie, &b.name)));
    for at in 1..found.len() {
        found[at].cookie = found[at].cookie.max(found[at - 1].cookie + 1);
    }
    found.retain(|entry| entry.cookie > after);
    found.into()
}

fn with_errors(bad: Vec<Error>, found: VecDeque<DirEntry>) -> EntryQueue {
    bad.into_iter().map(Err).chain(found.into_iter().map(Ok)).collect()
}

/// Refuses a name with a slash or a zero byte: a program that copies the tree would write outside
/// it.
fn check_shown(dir: InodeNo, block: FileBlock, at: usize, name: &[u8]) -> Result<(), Error> {
    if name.iter().any(|byte| matches!(byte, 0 | b'/')) {
        let place = Location::DirEntry(dir, block, at as u32);
        return Err(Flaw::Rule("file name has a slash or NUL byte").at(place).into());
    }
    Ok(())
}

impl Iterator for EngineReadDir<'_> {
    type Item = Result<DirEntry, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Form::Still(entries) => entries.next(),
            Form::Live { engine, dir, after, waiting, is_done } => {
                if waiting.is_empty() && !*is_done {
                    match engine.entries_after(*dir, *after) {
                        Ok(found) => {
                            *is_done = !found.iter().any(Result::is_ok);
                            *waiting = found;
                        }
                        Err(error) => {
                            *is_done = true;
                            waiting.push_back(Err(error));
                        }
                    }
                }
                let found = engine.record_corruption(waiting.pop_front()?);
                if let Ok(entry) = &found {
                    *after = entry.cookie;
                }
                Some(found)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_one_cookie_are_read_once_wherever_reading_goes_on() {
        let last = 7 << HASH_SHIFT | LAST_MINOR;
        let cookies = [DOT, DOT_DOT, 5 << HASH_SHIFT, last, last, last, last + 1, 8 << HASH_SHIFT];
        let entry = |(at, cookie): (usize, &u64)| DirEntry {
            inode: InodeNo(12),
            file_type: FileType::Regular,
            name: format!("{at}").into_bytes(),
            cookie: *cookie,
        };
        let all = || cookies.iter().enumerate().map(entry).rev().collect::<Vec<_>>();
        let (mut read, mut after) = (Vec::new(), 0);
        while let Some(next) = in_order(all(), after).pop_front() {
            assert!(next.cookie > after);
            after = next.cookie;
            read.push(String::from_utf8(next.name).unwrap());
        }
        assert_eq!(read, ["0", "1", "2", "3", "4", "5", "6", "7"]);
        assert_eq!(hash_of_cookie(after - 1), hash_of_cookie(last), "of the same hash");
    }
}
