//! Flags of an inode against the features of the volume and against each other.

use super::fields::DEVICE_NUMBERS;
use super::visit::{MapCounts, Visit};
use crate::context::Check;
use crate::finding::{Code, Finding};
use crate::map::is_fast_symlink;
use crate::store::CheckError;
use extant_ondisk::indirect::pointers;
use extant_ondisk::inode::{FileType, Inode, InodeFlags};
use extant_ondisk::{CompatFeatures, IncompatFeatures, InodeNo, RoCompatFeatures};

impl Check<'_> {
    pub(super) fn check_flags(&self, visit: &mut Visit<'_>) -> Result<(), CheckError> {
        let file_type = visit.inode.file_type();
        let is_file =
            matches!(file_type, Some(FileType::Regular | FileType::Directory | FileType::Symlink));
        let mapped = InodeFlags::EXTENTS | InodeFlags::INLINE_DATA;
        let is_checked = mapped | InodeFlags::CASEFOLD;
        if visit.ino == InodeNo::BAD_BLOCKS && !visit.inode.flags.intersects(is_checked) {
            return Ok(()); // others say nothing of a list
        }
        if visit.inode.flags.is_empty()
            || visit.inode.flags == InodeFlags::EXTENTS
                && is_file
                && self.has_extents()
                && !self.is_target_with_map(visit)
        {
            return self.check_lost_extents_flag(visit);
        }
        let is_dir = file_type == Some(FileType::Directory);
        if visit.inode.flags.contains(InodeFlags::CASEFOLD) {
            let why = if !is_dir {
                Some("is not a directory")
            } else if !self.geometry.has_incompat(IncompatFeatures::CASEFOLD) {
                Some("the casefold feature is not enabled")
            } else {
                None
            };
            if let Some(why) = why {
                let finding = visit.finding(Code::CasefoldFlag).detail(why.into());
                self.drop_flags(visit, InodeFlags::CASEFOLD, finding)?;
            }
        }
        if visit.inode.flags.contains(InodeFlags::EA_INODE) && file_type != Some(FileType::Regular)
        {
            let finding = visit.finding(Code::EaInodeFlagOnOther);
            self.drop_flags(visit, InodeFlags::EA_INODE, finding)?;
        }
        if file_type.is_some()
            && !is_file
            && visit.inode.flags.intersects(mapped)
            // If it contains more than a device number it is corrupt; pass 2 decides by the same
            // flags.
            && visit.inode.i_block[DEVICE_NUMBERS..].iter().all(|byte| *byte == 0)
        {
            let finding = visit.finding(Code::SpecialWithMap);
            self.drop_flags(visit, mapped, finding)?;
        }
        if self.is_target_with_map(visit) {
            let finding = visit.finding(Code::SymlinkWithExtents);
            self.drop_flags(visit, InodeFlags::EXTENTS, finding)?;
        }
        let is_spare = visit.inode.mode == 0 && self.is_spare(visit.ino);
        if visit.inode.flags.contains(mapped) && (is_file || is_spare) {
            self.check_both_maps(visit)?;
        }
        if !visit.cleared
            && visit.inode.is_inline()
            && !self.geometry.has_incompat(IncompatFeatures::INLINE_DATA)
        {
            let is_sound = self.has_inline_attribute(visit);
            let codes = [Code::InlineFeatureMissing, Code::InlineWithoutFeature];
            self.check_feature(visit, IncompatFeatures::INLINE_DATA, is_sound, codes)?;
        }
        if !visit.cleared && visit.inode.is_extent_mapped() && !self.has_extents() {
            let is_sound = visit.ino != InodeNo::BAD_BLOCKS
                && self.looks_like_extents(visit.ino, &visit.inode.i_block);
            if !is_sound && self.looks_like_pointers(&visit.inode.i_block) {
                let finding = visit.finding(Code::ExtentsFlagOnPointers);
                return self.drop_flags(visit, InodeFlags::EXTENTS, finding);
            }
            let codes = [Code::ExtentsFeatureMissing, Code::ExtentsWithoutFeature];
            self.check_feature(visit, IncompatFeatures::EXTENTS, is_sound, codes)?;
        }
        if visit.cleared {
            return Ok(());
        }
        if visit.inode.flags.contains(InodeFlags::IMAGIC)
            && !self.geometry.has_compat(CompatFeatures::IMAGIC_INODES)
        {
            let finding = visit.finding(Code::ImagicFlag);
            self.drop_flags(visit, InodeFlags::IMAGIC, finding)?;
        }
        if visit.inode.flags.contains(InodeFlags::INDEX) {
            let code = if !is_dir {
                Some(Code::IndexFlagOnOther)
            } else if !self.geometry.has_compat(CompatFeatures::DIR_INDEX) {
                Some(Code::IndexWithoutFeature)
            } else {
                None
            };
            if let Some(code) = code {
                let finding = visit.finding(code);
                self.drop_flags(visit, InodeFlags::INDEX, finding)?;
            }
        }
        self.check_lost_extents_flag(visit)
    }

    /// Takes flags away, if that is accepted.
    fn drop_flags(
        &self,
        visit: &mut Visit<'_>,
        flags: InodeFlags,
        finding: Finding,
    ) -> Result<(), CheckError> {
        if self.should_fix(finding)? {
            visit.inode.flags.remove(flags);
            visit.dirty = true;
        }
        Ok(())
    }

    /// A flag whose feature the volume lacks: if the inode is valid the feature is missing, else
    /// the inode is cleared.
    fn check_feature(
        &self,
        visit: &mut Visit<'_>,
        feature: IncompatFeatures,
        is_sound: bool,
        [missing, without]: [Code; 2],
    ) -> Result<(), CheckError> {
        if !self.should_fix(visit.finding(if is_sound { missing } else { without }))? {
            return Ok(());
        }
        if !is_sound {
            return self.clear_visited(visit);
        }
        self.store.update_superblock(|raw| {
            raw.s_feature_incompat.set(raw.s_feature_incompat.get() | feature.bits());
        })?;
        self.need_restart();
        Ok(())
    }

    /// The verity flag without its feature: the kernel does not open such a file. If a hash tree
    /// follows the file's end, the feature is missing.
    pub(super) fn check_verity(
        &self,
        visit: &mut Visit<'_>,
        counts: &MapCounts,
    ) -> Result<(), CheckError> {
        if !visit.inode.flags.contains(InodeFlags::VERITY)
            || counts.is_unsure
            || self.geometry.has_ro_compat(RoCompatFeatures::VERITY)
        {
            return Ok(());
        }
        if !self.has_hash_tree(visit, counts)? {
            let finding = visit.finding(Code::VerityFlag);
            return self.drop_flags(visit, InodeFlags::VERITY, finding);
        }
        if self.should_fix(visit.finding(Code::VerityFeatureMissing))? {
            self.store.update_superblock(|raw| {
                let features = raw.s_feature_ro_compat.get() | RoCompatFeatures::VERITY.bits();
                raw.s_feature_ro_compat.set(features);
            })?;
            self.need_restart();
        }
        Ok(())
    }

    /// Whether a hash tree follows a file's end, from the next multiple of 64 KiB on: the last
    /// block ends with the size of the tree's descriptor.
    fn has_hash_tree(&self, visit: &Visit<'_>, counts: &MapCounts) -> Result<bool, CheckError> {
        const ALIGNMENT: u64 = 65536;
        const DESCRIPTOR_SIZES: std::ops::RangeInclusive<u32> = 256..=16384;
        let inode = &visit.inode;
        let block_size = u64::from(self.geometry.block_size);
        let end_of_map = counts.written_end.saturating_mul(block_size);
        let start_of_tree = inode.size.div_ceil(ALIGNMENT).saturating_mul(ALIGNMENT);
        if inode.file_type() != Some(FileType::Regular) || end_of_map <= start_of_tree {
            return Ok(false);
        }
        let last = counts.written_end - 1;
        let Some(block) = self.read_map(visit.ino, inode)?.physical(last) else {
            return Ok(false);
        };
        let bytes = self.read_claimed(block)?;
        let size = bytes.last_chunk().map_or(0, |size| u32::from_le_bytes(*size));
        Ok(DESCRIPTOR_SIZES.contains(&size))
    }

    /// Whether an inode has the casefold flag, or the flag of a map whose feature the volume lacks.
    pub(super) fn has_foreign_flag(&self, inode: &Inode) -> bool {
        let has_inline = self.geometry.has_incompat(IncompatFeatures::INLINE_DATA);
        inode.flags.contains(InodeFlags::CASEFOLD)
            || inode.is_extent_mapped() && !self.has_extents()
            || inode.is_inline() && !has_inline
    }

    fn has_extents(&self) -> bool {
        self.geometry.has_incompat(IncompatFeatures::EXTENTS)
    }

    /// A map of indirect blocks that starts with the magic number of extents.
    fn check_lost_extents_flag(&self, visit: &mut Visit<'_>) -> Result<(), CheckError> {
        let inode = &visit.inode;
        if inode.is_extent_mapped()
            || inode.is_inline()
            || inode.i_block[..2] != extant_ondisk::extent::EXTENT_MAGIC.to_le_bytes()
            || !crate::map::has_map(inode)
            || !self.looks_like_extents(visit.ino, &inode.i_block)
        {
            return Ok(());
        }
        if self.should_fix(visit.finding(Code::ExtentsFlagMissing))? {
            visit.inode.flags |= InodeFlags::EXTENTS;
            visit.dirty = true;
        }
        Ok(())
    }

    /// Whether all that a map of indirect blocks names lies on the volume.
    fn looks_like_pointers(&self, i_block: &[u8; 60]) -> bool {
        pointers(i_block).all(|block| block.0 == 0 || self.geometry.contains(block, 1))
            && pointers(i_block).any(|block| block.0 != 0)
    }

    /// Whether the target of a link is stored in the inode although its flag says that a map is.
    fn is_target_with_map(&self, visit: &Visit<'_>) -> bool {
        let inode = &visit.inode;
        let end = inode.i_block.iter().position(|byte| *byte == 0).map(|end| end as u64);
        is_fast_symlink(inode)
            && inode.is_extent_mapped()
            && end == Some(inode.size)
            && !self.looks_like_extents(visit.ino, &inode.i_block)
    }

    /// Inline data and extents at once: the format of `i_block` decides.
    pub(super) fn check_both_maps(&self, visit: &mut Visit<'_>) -> Result<(), CheckError> {
        let inode = &visit.inode;
        let has_magic = inode.i_block[..2] == extant_ondisk::extent::EXTENT_MAGIC.to_le_bytes();
        let is_map = self.looks_like_pointers(&inode.i_block);
        let (code, to_remove) = if has_magic && self.looks_like_extents(visit.ino, &inode.i_block) {
            (Code::InlineAndExtentsIsExtents, InodeFlags::INLINE_DATA)
        } else if self.has_inline_attribute(visit) {
            (Code::InlineAndExtentsIsInline, InodeFlags::EXTENTS)
        } else if is_map {
            (Code::InlineAndExtentsIsMap, InodeFlags::INLINE_DATA | InodeFlags::EXTENTS)
        } else {
            (Code::InlineAndExtentsIsJunk, InodeFlags::empty())
        };
        if self.should_fix(visit.finding(code))? {
            if to_remove.is_empty() {
                return self.clear_visited(visit);
            }
            visit.inode.flags.remove(to_remove);
            visit.dirty = true;
        }
        Ok(())
    }
}
