//! Flags of an inode against the features of the volume and against each other.

use super::fields::DEVICE_NUMBERS;
use super::inode::Visit;
use crate::check::Check;
use crate::finding::Code;
use crate::store::CheckError;
use extant_ondisk::indirect::pointers;
use extant_ondisk::inode::{FileType, InodeFlags};
use extant_ondisk::{CompatFeatures, IncompatFeatures, InodeNo};

impl Check<'_> {
    pub(super) fn check_flags(&self, visit: &mut Visit<'_>) -> Result<(), CheckError> {
        if visit.inode.flags.is_empty()
            || visit.inode.flags == InodeFlags::EXTENTS && self.has_extents()
        {
            return self.check_lost_extents_flag(visit);
        }
        let file_type = visit.inode.file_type();
        let is_dir = file_type == Some(FileType::Directory);
        if visit.inode.flags.contains(InodeFlags::CASEFOLD) {
            let why = if !is_dir {
                Some("is not a directory")
            } else if !self.geometry.has_incompat(IncompatFeatures::CASEFOLD) {
                Some("the casefold feature is not enabled")
            } else {
                None
            };
            if let Some(why) = why
                && self.ask(visit.finding(Code::CasefoldFlag).detail(why.into()))?
            {
                visit.inode.flags.remove(InodeFlags::CASEFOLD);
                visit.dirty = true;
            }
        }
        if visit.inode.flags.contains(InodeFlags::EA_INODE)
            && file_type != Some(FileType::Regular)
            && self.ask(visit.finding(Code::EaInodeFlagOnOther))?
        {
            visit.inode.flags.remove(InodeFlags::EA_INODE);
            visit.dirty = true;
        }
        let is_file =
            matches!(file_type, Some(FileType::Regular | FileType::Directory | FileType::Symlink));
        let mapped = InodeFlags::EXTENTS | InodeFlags::INLINE_DATA;
        if file_type.is_some()
            && !is_file
            && visit.inode.flags.intersects(mapped)
            // With more in it than a device number it is garbage, which pass 2 judges by the same flags.
            && visit.inode.i_block[DEVICE_NUMBERS..].iter().all(|byte| *byte == 0)
            && self.ask(visit.finding(Code::SpecialWithMap))?
        {
            visit.inode.flags.remove(mapped);
            visit.dirty = true;
        }
        if visit.inode.flags.contains(mapped) && is_file {
            self.check_both_maps(visit)?;
            if visit.cleared {
                return Ok(());
            }
        }
        if visit.inode.is_inline() && !self.geometry.has_incompat(IncompatFeatures::INLINE_DATA) {
            self.check_inline_feature(visit)?;
            if visit.cleared {
                return Ok(());
            }
        }
        if visit.inode.is_extent_mapped() && !self.has_extents() {
            self.check_extents_feature(visit)?;
            if visit.cleared {
                return Ok(());
            }
        }
        if visit.inode.flags.contains(InodeFlags::IMAGIC)
            && !self.geometry.has_compat(CompatFeatures::IMAGIC_INODES)
            && self.ask(visit.finding(Code::ImagicFlag))?
        {
            visit.inode.flags.remove(InodeFlags::IMAGIC);
            visit.dirty = true;
        }
        if visit.inode.flags.contains(InodeFlags::INDEX) {
            let code = if !is_dir {
                Some(Code::IndexFlagOnOther)
            } else if !self.geometry.has_compat(CompatFeatures::DIR_INDEX) {
                Some(Code::IndexWithoutFeature)
            } else {
                None
            };
            if let Some(code) = code
                && self.ask(visit.finding(code))?
            {
                visit.inode.flags.remove(InodeFlags::INDEX);
                visit.dirty = true;
            }
        }
        Ok(())
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
            || !self.has_extents()
            || !matches!(inode.file_type(), Some(FileType::Regular | FileType::Directory))
            || !self.looks_like_extents(visit.ino, &inode.i_block)
        {
            return Ok(());
        }
        if self.ask(visit.finding(Code::ExtentsFlagMissing))? {
            visit.inode.flags |= InodeFlags::EXTENTS;
            visit.dirty = true;
        }
        Ok(())
    }

    /// Inline data and extents at once: what `i_block` looks like decides.
    fn check_both_maps(&self, visit: &mut Visit<'_>) -> Result<(), CheckError> {
        let inode = &visit.inode;
        let has_magic = inode.i_block[..2] == extant_ondisk::extent::EXTENT_MAGIC.to_le_bytes();
        let is_map = pointers(&inode.i_block)
            .all(|block| block.0 == 0 || self.geometry.contains(block, 1))
            && pointers(&inode.i_block).any(|block| block.0 != 0);
        let (code, to_remove) = if has_magic && self.looks_like_extents(visit.ino, &inode.i_block) {
            (Code::InlineAndExtentsIsExtents, InodeFlags::INLINE_DATA)
        } else if self.has_inline_attribute(visit) {
            (Code::InlineAndExtentsIsInline, InodeFlags::EXTENTS)
        } else if is_map {
            (Code::InlineAndExtentsIsMap, InodeFlags::INLINE_DATA | InodeFlags::EXTENTS)
        } else {
            (Code::InlineAndExtentsIsJunk, InodeFlags::empty())
        };
        if self.ask(visit.finding(code))? {
            if to_remove.is_empty() {
                return self.clear_visited(visit);
            }
            visit.inode.flags.remove(to_remove);
            visit.dirty = true;
        }
        Ok(())
    }

    fn check_inline_feature(&self, visit: &mut Visit<'_>) -> Result<(), CheckError> {
        let is_sound = self.has_inline_attribute(visit);
        let code = if is_sound { Code::InlineFeatureMissing } else { Code::InlineWithoutFeature };
        if self.ask(visit.finding(code))? {
            if is_sound {
                self.store.update_superblock(|raw| {
                    let bits = raw.s_feature_incompat.get() | IncompatFeatures::INLINE_DATA.bits();
                    raw.s_feature_incompat.set(bits);
                })?;
                self.need_restart();
            } else {
                self.clear_visited(visit)?;
            }
        }
        Ok(())
    }

    fn check_extents_feature(&self, visit: &mut Visit<'_>) -> Result<(), CheckError> {
        let is_sound = visit.ino != InodeNo::BAD_BLOCKS
            && self.looks_like_extents(visit.ino, &visit.inode.i_block);
        let code = if is_sound { Code::ExtentsFeatureMissing } else { Code::ExtentsWithoutFeature };
        if self.ask(visit.finding(code))? {
            if is_sound {
                self.store.update_superblock(|raw| {
                    let bits = raw.s_feature_incompat.get() | IncompatFeatures::EXTENTS.bits();
                    raw.s_feature_incompat.set(bits);
                })?;
                self.need_restart();
            } else {
                self.clear_visited(visit)?;
            }
        }
        Ok(())
    }
}
