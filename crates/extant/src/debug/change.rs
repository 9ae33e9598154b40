//! Changes of single structures, whatever that makes of the volume.

use std::ops::{ControlFlow, Range, RangeInclusive};

use extant_ondisk::bitmap::{self, BitmapKind};
use extant_ondisk::inode::FileType;
use extant_ondisk::xattr::{self, RawXattrHeader};
use extant_ondisk::{BlockNo, FileBlock, GroupNo, InodeNo};
use zerocopy::{FromBytes, IntoBytes};

use super::{DebugError, DebugVolume, DirWalk, MapStep, RawRecord};

impl DebugVolume {
    /// Takes a name out of a directory. The inode that it names stays as it is.
    ///
    /// # Errors
    /// There is no such name, the directory is damaged or its entries are in the inode, or the
    /// device failed.
    pub fn remove_name(&mut self, dir: InodeNo, name: &[u8]) -> Result<(), DebugError> {
        let record = self.inode(dir)?;
        let mut found = None;
        self.walk_dir(&record, DirWalk::default(), &mut |item| {
            if item.name != name {
                return ControlFlow::Continue(());
            }
            found = Some((item.logical, item.physical, item.offset));
            ControlFlow::Break(())
        })?;
        let (logical, physical, offset) = found.ok_or(DebugError::NotFound)?;
        if record.is_inline() {
            return Err(DebugError::InlineDirectory);
        }
        let mut bytes = self.block(BlockNo(physical))?;
        let format = self.dir_format(&record);
        if !format.remove(&mut bytes, FileBlock(logical), offset)? {
            return Err(DebugError::DirectoryCorrupted);
        }
        format.seal(&mut bytes);
        self.write_block(BlockNo(physical), &bytes)
    }

    /// Frees the blocks of an inode, those of its map and its attributes too, and the inode. Its
    /// record stays, with the time of deletion.
    ///
    /// # Errors
    /// Its map is damaged, or the device failed.
    pub fn kill_inode(&mut self, record: &mut RawRecord, now: u32) -> Result<(), DebugError> {
        let mut runs = self.mapped_runs(record)?;
        let geometry = self.geometry().clone();
        let attributes = record.file_acl(&geometry);
        if attributes.0 != 0 && self.drop_xattr_block(attributes)? {
            runs.push(attributes.0..attributes.0 + 1);
        }
        self.editor.free_blocks_of(runs)?;
        record.set_bytes(DTIME_AT, &now.to_le_bytes());
        self.write_inode(record)?;
        Ok(self.editor.free_inode(record.number, record.is_dir())?)
    }

    /// The blocks of a file's map, those of its nodes too.
    fn mapped_runs(&self, record: &RawRecord) -> Result<Vec<Range<u64>>, DebugError> {
        let mut runs = Vec::new();
        let geometry = self.geometry();
        let has_blocks = match record.file_type() {
            Some(FileType::Regular | FileType::Directory) | None => true,
            Some(FileType::Symlink) => !record.is_fast_symlink(geometry),
            Some(_) => false,
        };
        if has_blocks {
            let mut is_whole = true;
            self.walk_blocks(record, &mut |piece| {
                let (start, len) = match piece {
                    MapStep::Data { start, len, .. } => (start, len),
                    MapStep::Node { at, .. } => (at, 1),
                };
                is_whole = geometry.contains(BlockNo(start), len);
                match is_whole {
                    true => runs.push(start..start + len),
                    false => return ControlFlow::Break(()),
                }
                ControlFlow::Continue(())
            })?;
            if !is_whole {
                return Err(DebugError::Loop);
            }
        }
        Ok(runs)
    }

    /// Marks a deleted inode and its blocks in use again, and gives it a link.
    ///
    /// # Errors
    /// Its map is damaged, or the device failed.
    pub fn undelete(&mut self, record: &mut RawRecord) -> Result<(), DebugError> {
        let runs = self.mapped_runs(record)?;
        record.set_links(1);
        record.set_bytes(DTIME_AT, &[0; 4]);
        self.write_inode(record)?;
        self.editor.claim_blocks(runs)?;
        Ok(self.editor.mark_inode(record.number, record.is_dir())?)
    }

    /// Takes a user from a block of attributes; whether it was the last one.
    fn drop_xattr_block(&mut self, at: BlockNo) -> Result<bool, DebugError> {
        let mut block = self.xattr_block(at)?;
        let Ok((mut header, _)) = RawXattrHeader::read_from_prefix(&block) else {
            return Err(DebugError::XattrHeader);
        };
        let users = header.h_refcount.get();
        if users <= 1 {
            return Ok(true);
        }
        header.h_refcount.set(users - 1);
        block[..size_of::<RawXattrHeader>()].copy_from_slice(header.as_bytes());
        xattr::seal_block(&mut block, at, self.editor.geometry());
        self.write_block(at, &block)?;
        Ok(false)
    }

    /// Makes a change of bitmaps without one of the counts.
    fn keeping_counts(
        &mut self,
        groups: RangeInclusive<u32>,
        change: impl FnOnce(&mut Self) -> Result<(), DebugError>,
    ) -> Result<(), DebugError> {
        let raw = self.editor.raw;
        let before: Vec<_> = groups.map(GroupNo).map(|it| (it, self.editor.desc(it))).collect();
        change(self)?;
        for (group, before) in before {
            self.editor.update_desc(group, |desc| {
                desc.free_clusters = before.free_clusters;
                desc.free_inodes = before.free_inodes;
                desc.used_dirs = before.used_dirs;
                desc.itable_unused = before.itable_unused;
            });
        }
        Ok(self.editor.update_superblock(|now| {
            now.s_free_blocks_count_lo = raw.s_free_blocks_count_lo;
            now.s_free_blocks_count_hi = raw.s_free_blocks_count_hi;
            now.s_free_inodes_count = raw.s_free_inodes_count;
        })?)
    }

    /// Marks clusters of blocks in use or free, and counts nothing. The blocks that were so before.
    ///
    /// # Errors
    /// A block outside the volume, a bitmap that cannot be read.
    pub fn mark_blocks(
        &mut self,
        first: u64,
        count: u64,
        is_used: bool,
    ) -> Result<Vec<u64>, DebugError> {
        let geometry = self.geometry().clone();
        if count > geometry.blocks_count || !geometry.contains(BlockNo(first), count) {
            return Err(DebugError::ShortRead);
        }
        let mut as_before = Vec::new();
        for block in first..first + count {
            if self.is_block_used(BlockNo(block))? == is_used {
                as_before.push(block);
            }
        }
        let group = |block| geometry.group_of(BlockNo(block)).map_or(0, |group| group.0);
        let groups = group(first)..=group(first + count.saturating_sub(1));
        self.keeping_counts(groups, |volume| {
            let run = std::iter::once(first..first + count);
            let marked = match is_used {
                true => volume.editor.claim_blocks(run),
                false => volume.editor.free_blocks_of(run),
            };
            marked.map_err(DebugError::from)
        })?;
        Ok(as_before)
    }

    /// Marks an inode in use or free, and counts nothing; whether it was so before.
    ///
    /// # Errors
    /// There is no such inode, or a bitmap cannot be read.
    pub fn mark_inode(&mut self, number: InodeNo, is_used: bool) -> Result<bool, DebugError> {
        let Some((group, index)) = self.geometry().inode_place(number) else {
            return Err(DebugError::BadInode);
        };
        let was_used = bitmap::test(self.bitmap(BitmapKind::Inode, group)?, index);
        self.keeping_counts(group.0..=group.0, |volume| {
            let marked = match is_used {
                true => volume.editor.mark_inode(number, false),
                false => volume.editor.free_inode(number, false),
            };
            marked.map_err(DebugError::from)
        })?;
        Ok(was_used == is_used)
    }
}

/// Where an inode's time of deletion is.
const DTIME_AT: usize = 0x14;
/// Where its number of links is.
const LINKS_AT: usize = 0x1a;

impl RawRecord {
    /// Overwrites bytes of the record; those past its end are left out.
    pub fn set_bytes(&mut self, at: usize, bytes: &[u8]) {
        if let Some(place) = self.bytes.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }

    /// Sets the number of links.
    pub fn set_links(&mut self, links: u16) {
        self.set_bytes(LINKS_AT, &links.to_le_bytes());
    }
}
