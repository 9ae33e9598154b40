//! Data inside inodes, and what pass 2 needs to know of directories.

use super::Local;
use super::visit::{MapCounts, Visit};
use super::xattr::XattrCounts;
use crate::context::Check;
use crate::finding::Code;
use crate::store::CheckError;
use crate::tables::{DirBlock, DirFlags, DirInfo, NO_BLOCK};
use extant_ondisk::extent::{OwnedNode, ROOT_SIZE};
use extant_ondisk::inode::{self, FileType, InodeFlags};
use extant_ondisk::xattr::{self, ValueRef};
use extant_ondisk::{FileBlock, IncompatFeatures, InodeNo};

/// Bytes of inline data in `i_block`.
const FIRST_PART: u64 = 60;

/// Holes of one directory that are filled; with more, what follows moves up.
const MAX_MISSING: u64 = 256;

/// The two parts of inline data: `i_block`, and the attribute's value.
pub(crate) type InlineContent = ([u8; 60], Vec<u8>);

impl Check<'_> {
    /// The inline data in a record; `None` without the attribute that holds their rest.
    pub(crate) fn inline_content(
        &self,
        record: &[u8],
        ino: InodeNo,
    ) -> Result<Option<InlineContent>, CheckError> {
        let (Ok(space), Ok(decoded)) = (
            inode::xattr_area(record, ino, self.geometry),
            inode::Inode::decode(record, ino, self.geometry),
        ) else {
            return Ok(None);
        };
        let Ok(entries) = xattr::decode_inode(space, ino, self.geometry) else { return Ok(None) };
        Ok(entries.iter().find(|entry| entry.name.is_inline_data()).and_then(|entry| {
            match entry.value {
                ValueRef::Stored(value) => Some((decoded.i_block, value.to_vec())),
                ValueRef::EaInode(_) => None,
            }
        }))
    }

    pub(super) fn has_inline_attribute(&self, visit: &Visit<'_>) -> bool {
        self.inline_content(visit.record, visit.ino).is_ok_and(|found| found.is_some())
    }

    pub(super) fn check_inline(
        &self,
        visit: &mut Visit<'_>,
        xattrs: &XattrCounts,
    ) -> Result<(), CheckError> {
        let Some(rest) = xattrs.inline_len else {
            if self.should_fix(visit.finding(Code::InlineWithoutAttribute))? {
                visit.inode.flags.remove(InodeFlags::INLINE_DATA);
                visit.inode.size = 0;
                visit.inode.i_block = [0; 60];
                let is_mapped = matches!(
                    visit.inode.file_type(),
                    Some(FileType::Regular | FileType::Directory)
                );
                if is_mapped && self.geometry.has_incompat(IncompatFeatures::EXTENTS) {
                    visit.inode.flags |= InodeFlags::EXTENTS;
                    OwnedNode::empty_leaf(ROOT_SIZE).encode_into(&mut visit.inode.i_block);
                }
                visit.dirty = true;
            }
            return Ok(());
        };
        let room = FIRST_PART + rest;
        let size = visit.inode.size;
        let is_wrong = match visit.inode.file_type() {
            Some(FileType::Directory) => size != room,
            // A file that ends in a hole has fewer bytes than its size says.
            Some(FileType::Regular) => size > self.largest_file(false),
            _ => false,
        };
        // Bytes after a file's last one are zero.
        let used = visit.inode.i_block.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
        let expected = if visit.inode.is_dir() || rest > 0 { room } else { used as u64 };
        let finding = visit.finding(Code::InodeSizeWrong).found(size).expected(expected);
        if is_wrong && self.should_fix(finding)? {
            visit.inode.size = expected;
            visit.dirty = true;
        }
        Ok(())
    }

    /// The data about a directory that pass 2 needs.
    pub(super) fn note_directory(
        &self,
        visit: &Visit<'_>,
        counts: &MapCounts,
        local: &mut Local,
    ) -> Result<(), CheckError> {
        let mut flags = DirFlags::empty();
        let inode = &visit.inode;
        flags.set(DirFlags::INLINE, inode.is_inline());
        flags.set(DirFlags::INDEXED, inode.flags.contains(InodeFlags::INDEX));
        flags.set(DirFlags::CASEFOLD, inode.flags.contains(InodeFlags::CASEFOLD));
        flags.set(DirFlags::ENCRYPTED, inode.flags.contains(InodeFlags::ENCRYPT));
        let of_this = local.dir_blocks.iter().rev().take_while(|block| block.dir == visit.ino);
        let present = of_this.count();
        // The number of mapped blocks counts, not the end that the map gives: tables are allocated
        // by this size.
        let blocks = u32::try_from(present).unwrap_or(u32::MAX);
        if inode.is_inline() {
            local.dir_blocks.push(DirBlock { block: NO_BLOCK, dir: visit.ino, at: 0 });
        } else if counts.end == 0 && !counts.is_unsure {
            // It is given a block.
            local.dir_blocks.push(DirBlock { block: NO_BLOCK, dir: visit.ino, at: 0 });
        } else if !inode.is_extent_mapped() {
            // The blocks just pushed ascend; what is between them is missing.
            let start = local.dir_blocks.len() - present;
            let missing = counts.end.saturating_sub(present as u64);
            if missing > MAX_MISSING {
                let blocks = &mut local.dir_blocks[start..];
                let displaced = (0_u32..).zip(&*blocks).find(|(at, block)| block.at != *at);
                let (at, block) = displaced.map_or((0, 0), |(at, block)| (at, block.at));
                let finding = visit
                    .finding(Code::DirectoryHole)
                    .found(u64::from(block))
                    .file_block(FileBlock(u64::from(at)));
                if self.should_fix(finding)? {
                    self.deferred.lock().close_holes.push(visit.ino);
                    for (at, block) in (0..).zip(blocks) {
                        block.at = at;
                    }
                }
            } else if missing > 0 {
                let mut known: Vec<u32> =
                    local.dir_blocks[start..].iter().map(|block| block.at).collect();
                known.sort_unstable();
                let mut known = known.into_iter().peekable();
                let end = u32::try_from(counts.end).unwrap_or(u32::MAX);
                for at in 0..end {
                    if known.next_if_eq(&at).is_none() {
                        local.dir_blocks.push(DirBlock { block: NO_BLOCK, dir: visit.ino, at });
                    }
                }
            }
        }
        let seed = self.geometry.inode_checksum_seed(visit.ino, inode.generation);
        local.dirs.push(DirInfo::new(visit.ino, seed, blocks, flags));
        Ok(())
    }
}
