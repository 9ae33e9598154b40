//! Directories inside inodes: the parent's number, then two chains of records.

use super::block::Chain;
use super::{DirContext, Reader};
use crate::context::Check;
use crate::finding::{Code, Finding};
use crate::store::CheckError;
use crate::tables::DirInfo;
use extant_ondisk::inode::{self, Inode};
use extant_ondisk::xattr::{self, Value};
use extant_ondisk::{FileBlock, InodeNo};
use std::sync::atomic::Ordering::Relaxed;

/// Bytes of the parent's number.
const PARENT: usize = 4;

impl Check<'_> {
    pub(super) fn check_inline_dir(
        &self,
        dir: &DirInfo,
        context: &DirContext,
        reader: &mut Reader,
    ) -> Result<(), CheckError> {
        let mut record = self.record(dir.inode)?;
        let Some((mut first, mut second)) = self.inline_content(&record, dir.inode)? else {
            return Ok(());
        };
        let parent = u32::from_le_bytes([first[0], first[1], first[2], first[3]]);
        // The directory counts for itself, as if it had `.`.
        self.inodes.count_name(dir.inode);
        let mut changed = false;
        if parent != 0 && !self.is_nameable(InodeNo(parent)) {
            let finding = Finding::new(Code::EntryBadInode)
                .dir(dir.inode)
                .name(b"..".to_vec())
                .found(u64::from(parent));
            if self.should_fix(finding)? {
                first[..PARENT].copy_from_slice(&InodeNo::ROOT.0.to_le_bytes());
                changed = true;
            }
        } else if parent != 0 {
            self.inodes.count_name(InodeNo(parent));
            dir.dotdot.store(parent, Relaxed);
        }
        if !second.len().is_multiple_of(4) {
            let found = (second.len() + first.len()) as u64;
            let finding = Finding::new(Code::InlineDirectoryCorrupted).dir(dir.inode).found(found);
            if self.should_fix(finding)? {
                second.truncate(second.len() / 4 * 4);
                changed = true;
            }
        }
        let mut parts = [&mut first[PARENT..], &mut second[..]];
        for (at, part) in parts.iter_mut().enumerate() {
            let format = self.dir_format(dir).inline(part.len());
            let mut chain = Chain::new(dir, format, FileBlock(at as u64), part.len());
            self.check_chain(&mut chain, part, context, reader)?;
            changed |= chain.changed;
        }
        if changed {
            self.write_inline(dir.inode, &mut record, &first, &second)?;
        }
        Ok(())
    }

    /// Writes the two parts of inline data.
    pub(crate) fn write_inline(
        &self,
        ino: InodeNo,
        record: &mut [u8],
        first: &[u8; 60],
        second: &[u8],
    ) -> Result<(), CheckError> {
        let Ok(mut inode) = Inode::decode(record, ino, self.geometry) else { return Ok(()) };
        let Ok(space) = inode::xattr_area(record, ino, self.geometry) else { return Ok(()) };
        let Ok(entries) = xattr::decode_inode(space, ino, self.geometry) else { return Ok(()) };
        let mut entries: Vec<_> = entries.iter().map(|entry| entry.to_owned()).collect();
        for entry in &mut entries {
            if entry.name == xattr::XattrName::inline_data() {
                entry.value = Value::Stored(second.to_vec());
            }
        }
        inode.i_block = *first;
        if inode.is_dir() {
            inode.size = (first.len() + second.len()) as u64;
        }
        inode.encode_into(record, self.geometry);
        let start = 128 + usize::from(inode.extra_isize);
        if xattr::encode_inode(entries.iter(), &mut record[start..]).is_ok() {
            self.store.write_inode(ino, record)?;
        }
        Ok(())
    }
}
