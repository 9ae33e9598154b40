//! Fields that only some volumes have, and the required fields of each file type. Pass 2 reports
//! these, with the file's name.

use super::visit::{MapCounts, Visit};
use crate::context::Check;
use crate::finding::Code;
use crate::map::is_fast_symlink;
use crate::store::CheckError;
use crate::tables::Mark;
use extant_ondisk::inode::{FileType, Inode, InodeFlags, RawInode};
use extant_ondisk::{FileBlock, IncompatFeatures, InodeNo, RoCompatFeatures};
use zerocopy::FromBytes;

impl Check<'_> {
    /// Marks inodes that pass 2 checks once it knows their names.
    pub(super) fn check_fields(&self, visit: &mut Visit<'_>) {
        if self.field_flaws(&visit.inode, visit.record).next().is_some() {
            visit.marks |= Mark::SUSPECT;
        }
    }

    /// Fields that should be zero and are not: name, value, and whether it is only a high half.
    pub(crate) fn field_flaws<'b>(
        &self,
        inode: &'b Inode,
        record: &'b [u8],
    ) -> impl Iterator<Item = (&'static str, u64, bool)> + 'b {
        let raw = RawInode::read_from_prefix(record).ok().map(|(raw, _)| raw);
        let geometry = self.geometry;
        let is_hurd = geometry.creator_os != 0;
        let has_blocks = self.has_xattr_blocks();
        let is_64bit = geometry.has_incompat(IncompatFeatures::BIT64);
        let has_huge = geometry.has_ro_compat(RoCompatFeatures::HUGE_FILE);
        let large_dir = geometry.has_incompat(IncompatFeatures::LARGEDIR);
        let file_type = inode.file_type();
        let has_size_high = match file_type {
            Some(FileType::Directory) => large_dir,
            Some(FileType::Regular) | None => true,
            Some(_) => false,
        };
        let acl = inode.file_acl.0;
        let high = raw.filter(|_| !is_hurd);
        [
            (!has_blocks && acl != 0).then_some(("i_file_acl", acl, false)),
            raw.map(|raw| u64::from(raw.i_obso_faddr.get()))
                .filter(|found| *found != 0)
                .map(|found| ("i_faddr", found, false)),
            high.map(|raw| u64::from(raw.i_file_acl_high.get()))
                .filter(|found| *found != 0 && !is_64bit)
                .map(|found| ("i_file_acl_hi", found, true)),
            high.map(|raw| u64::from(raw.i_blocks_high.get()))
                .filter(|found| *found != 0 && !has_huge)
                .map(|found| ("i_blocks_hi", found, false)),
            raw.map(|raw| u64::from(raw.i_size_high.get()))
                .filter(|found| *found != 0 && !has_size_high)
                .map(|found| ("i_size_high", found, false)),
        ]
        .into_iter()
        .flatten()
    }

    /// Sets one of the fields of [`Self::field_flaws`] to zero.
    pub(crate) fn zero_field(name: &str, inode: &mut Inode, record: &mut [u8]) {
        let Ok((raw, _)) = RawInode::mut_from_prefix(record) else { return };
        match name {
            "i_file_acl" => inode.file_acl = extant_ondisk::BlockNo(0),
            "i_faddr" => raw.i_obso_faddr.set(0),
            "i_file_acl_hi" => raw.i_file_acl_high.set(0),
            "i_blocks_hi" => raw.i_blocks_high.set(0),
            "i_size_high" => raw.i_size_high.set(0),
            _ => {}
        }
    }

    /// A mode of no type, or of a type without blocks, but a first block in the format of a
    /// directory's. The root inode is a directory whatever its mode.
    pub(super) fn check_unknown_mode(&self, visit: &mut Visit<'_>) -> Result<(), CheckError> {
        const TYPE: u16 = 0xf000;
        const DIRECTORY: u16 = 0x4000;
        /// Owner and mode that mke2fs gives the root.
        const ROOT_PERMISSIONS: u16 = 0o755;
        let is_root = visit.ino == InodeNo::ROOT;
        let is_possible = match visit.inode.file_type() {
            Some(FileType::Directory) => true,
            Some(FileType::Regular | FileType::Symlink) => !is_root,
            _ => false,
        };
        if is_possible || visit.ino < self.geometry.first_inode && !is_root {
            return Ok(());
        }
        let before = visit.inode.mode;
        let permissions = if is_root && before == 0 { ROOT_PERMISSIONS } else { before & !TYPE };
        let mut as_dir = visit.inode.clone();
        as_dir.mode = DIRECTORY | permissions;
        if !self.is_directory_like(visit, &as_dir)? {
            return Ok(());
        }
        let finding = visit.finding(Code::LooksLikeDirectory).found(u64::from(before));
        if self.should_fix(finding)? {
            visit.inode.mode = as_dir.mode;
            visit.dirty = true;
        } else if is_root && !self.is_repair() {
            // The scan continues as if it were repaired: without a root every file would be a
            // finding.
            visit.inode.mode = as_dir.mode;
        }
        Ok(())
    }

    fn is_directory_like(&self, visit: &Visit<'_>, inode: &Inode) -> Result<bool, CheckError> {
        let format =
            extant_ondisk::dirent::DirFormat::new(self.geometry, visit.ino, visit.inode.generation);
        if inode.is_inline() {
            // The parent's number, then records up to the end of i_block.
            let (parent, records) = inode.i_block.split_at(4);
            let parent = InodeNo(u32::from_le_bytes([parent[0], parent[1], parent[2], parent[3]]));
            let mut records = format.inline(records.len()).entries(records, FileBlock(0));
            return Ok(self.is_nameable(parent)
                && self.has_inline_attribute(visit)
                && records.all(|entry| entry.is_ok()));
        }
        let map = self.read_map(visit.ino, inode)?;
        let Some(block) = map.physical(0) else { return Ok(false) };
        let bytes = self.store.read(block)?;
        Ok(extant_ondisk::dirent::dot_entries(&format, &bytes)
            .is_ok_and(|(dot, parent)| dot == visit.ino && parent.0 <= self.geometry.inodes_count))
    }

    /// Devices, FIFOs, sockets, symbolic links.
    pub(super) fn check_file_type(
        &self,
        visit: &mut Visit<'_>,
        counts: &MapCounts,
    ) -> Result<(), CheckError> {
        match visit.inode.file_type() {
            Some(FileType::Regular | FileType::Directory) => {}
            Some(FileType::Symlink) => {
                if self.is_sound_symlink(visit.ino, visit.record, &visit.inode, counts)? {
                    self.check_immutable(visit)?;
                } else {
                    visit.marks |= Mark::SUSPECT;
                }
            }
            Some(_) => {
                let is_sound = is_sound_special(&visit.inode);
                if !is_sound {
                    visit.marks |= Mark::SUSPECT;
                }
                // The flag makes the rest invalid: it stays until the rest is checked.
                if is_sound {
                    self.check_immutable(visit)?;
                }
                if visit.inode.size != 0 && self.should_fix(visit.finding(Code::SpecialWithSize))? {
                    visit.inode.size = 0;
                    visit.dirty = true;
                }
            }
            None => {
                if visit.ino >= self.geometry.first_inode {
                    visit.marks |= Mark::SUSPECT;
                }
            }
        }
        Ok(())
    }

    /// Only files and directories can be immutable or append-only.
    fn check_immutable(&self, visit: &mut Visit<'_>) -> Result<(), CheckError> {
        let barred = InodeFlags::IMMUTABLE | InodeFlags::APPEND;
        if visit.inode.flags.intersects(barred)
            && self.should_fix(visit.finding(Code::SpecialImmutable))?
        {
            visit.inode.flags.remove(barred);
            visit.dirty = true;
        }
        Ok(())
    }

    /// [`Self::is_sound_symlink`] for a record read again.
    pub(crate) fn is_sound_target(
        &self,
        ino: InodeNo,
        record: &[u8],
        inode: &Inode,
    ) -> Result<bool, CheckError> {
        let map = self.read_map(ino, inode)?;
        let written = map.extents.iter().rev().find(|extent| !extent.is_unwritten);
        let counts = MapCounts {
            end: map.end(),
            written_end: written.map_or(0, |extent| extent.end().0),
            ..MapCounts::default()
        };
        self.is_sound_symlink(ino, record, inode, &counts)
    }

    /// Whether length, place and bytes of a link's target fit together.
    fn is_sound_symlink(
        &self,
        ino: InodeNo,
        record: &[u8],
        inode: &Inode,
        counts: &MapCounts,
    ) -> Result<bool, CheckError> {
        let size = inode.size;
        if inode.flags.contains(InodeFlags::INDEX)
            || size == 0
            || size > u64::from(self.geometry.block_size)
        {
            return Ok(false);
        }
        let is_encrypted = inode.flags.contains(InodeFlags::ENCRYPT);
        // An encrypted target is a length of 16 bits and that many bytes.
        let encrypted_fits = |bytes: &[u8]| {
            let len = u64::from(u16::from_le_bytes([bytes[0], bytes[1]]));
            len + 2 <= size && size <= bytes.len() as u64 && len > 0 && len + 2 == size
        };
        if inode.is_inline() {
            let found = self.inline_content(record, ino)?;
            let Some((first, rest)) = found else { return Ok(false) };
            return Ok((first.len() + rest.len()) as u64 == size);
        }
        // A short target has no block; a long one has.
        if is_fast_symlink(inode) {
            if inode.is_extent_mapped() {
                return Ok(false);
            }
            if is_encrypted {
                return Ok(encrypted_fits(&inode.i_block));
            }
            let end = inode.i_block.iter().position(|byte| *byte == 0);
            return Ok(end.map(|end| end as u64) == Some(size));
        }
        if counts.end != 1 || counts.written_end != 1 || size >= u64::from(self.geometry.block_size)
        {
            return Ok(false);
        }
        let map = self.read_map(ino, inode)?;
        let Some(block) = map.physical(0) else { return Ok(false) };
        let bytes = self.store.read(block)?;
        if is_encrypted {
            return Ok(encrypted_fits(&bytes));
        }
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        Ok(end as u64 == size)
    }
}

/// Bytes of `i_block` that may hold a device number.
pub(crate) const DEVICE_NUMBERS: usize = 16;

/// Devices, pipes and sockets have no map. Nonzero words after the device number prove nothing by
/// themselves, since kernels have left some there; with an immutable or append-only flag they are
/// garbage, as in e2fsck.
pub(crate) fn is_sound_special(inode: &Inode) -> bool {
    if inode.flags.intersects(InodeFlags::INDEX | InodeFlags::EXTENTS | InodeFlags::INLINE_DATA) {
        return false;
    }
    let is_marked = inode.flags.intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND);
    !is_marked || inode.i_block[DEVICE_NUMBERS..].iter().all(|byte| *byte == 0)
}
