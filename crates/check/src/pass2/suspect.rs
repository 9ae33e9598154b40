//! Inodes that pass 1 found suspect: reported with a name, here by the entry that leads to them, in
//! pass 4 without one.

use crate::context::Check;
use crate::finding::{Code, Finding};
use crate::pass1::is_sound_special;
use crate::store::CheckError;
use crate::tables::{Kind, Mark};
use extant_ondisk::inode::{FileType, Inode};
use extant_ondisk::{BlockNo, InodeNo};

impl Check<'_> {
    /// Checks a suspect inode. True if it was cleared: its entry is cleared too.
    pub(crate) fn check_suspect(
        &self,
        ino: InodeNo,
        named: Option<(InodeNo, &[u8])>,
    ) -> Result<bool, CheckError> {
        let mut record = self.record(ino)?;
        let Ok(mut inode) = Inode::decode(&record, ino, self.geometry) else { return Ok(false) };
        let finding = |code| {
            let (dir, name) = named.unwrap_or((InodeNo(0), b"..."));
            Finding::new(code).inode(ino).dir(dir).name(name.to_vec())
        };
        let flaws: Vec<_> = self.field_flaws(&inode, &record).collect();
        let mut dirty = false;
        for (name, found, is_high) in flaws {
            let code = if is_high { Code::HighFieldNotZero } else { Code::FieldNotZero };
            if self.should_fix(finding(code).detail(name.into()).found(found))? {
                Self::zero_field(name, &mut inode, &mut record);
                dirty = true;
            }
        }
        if self.has_xattr_blocks()
            && inode.file_acl.0 != 0
            && !self.geometry.contains(inode.file_acl, 1)
            && self.should_fix(finding(Code::EaBlockOffVolume).block(inode.file_acl))?
        {
            inode.file_acl = BlockNo(0);
            dirty = true;
        }
        let code = match inode.file_type() {
            None => Some(Code::InodeModeInvalid),
            Some(FileType::CharDevice) => {
                (!is_sound_special(&inode)).then_some(Code::CharDeviceIllegal)
            }
            Some(FileType::BlockDevice) => {
                (!is_sound_special(&inode)).then_some(Code::BlockDeviceIllegal)
            }
            Some(FileType::Fifo) => (!is_sound_special(&inode)).then_some(Code::FifoIllegal),
            Some(FileType::Socket) => (!is_sound_special(&inode)).then_some(Code::SocketIllegal),
            Some(FileType::Symlink) => {
                (!self.is_sound_target(ino, &record, &inode)?).then_some(Code::SymlinkInvalid)
            }
            Some(FileType::Regular | FileType::Directory) => None,
        };
        if dirty {
            inode.encode_into(&mut record, self.geometry);
            self.store.write_inode(ino, &mut record)?;
        }
        let Some(code) = code else {
            if dirty {
                self.inodes.unmark(ino, Mark::SUSPECT);
            }
            return Ok(false);
        };
        if self.should_fix(finding(code).detail(format!("0{:o}", inode.mode)))? {
            if inode.file_type().is_none() {
                self.inodes.note(ino, Kind::Unknown, Mark::USED, inode.links);
            }
            self.deallocate(ino)?;
            return Ok(true);
        }
        Ok(false)
    }
}
