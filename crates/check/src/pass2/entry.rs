//! One entry: `.`, `..`, or a name.

use super::block::{Chain, Record, record_at};
use super::names::quick_hash;
use super::salvage::set_rec_len;
use super::{DirContext, Reader};
use crate::context::Check;
use crate::finding::{Code, Finding};
use crate::store::CheckError;
use crate::tables::{DirFlags, Kind, Mark};
use extant_ondisk::group_desc::GroupFlags;
use extant_ondisk::{GroupNo, InodeNo};
use std::sync::atomic::Ordering::Relaxed;

/// Shortest name in an encrypted directory: one block of the cipher.
const ENCRYPTED_NAME: usize = 16;
/// Mode of a file that keeps the name of a lost one.
const PLACEHOLDER: u16 = 0o100_600;
/// Bytes that a record of `.` or `..` needs.
const DOT_LEN: usize = 12;

fn set_inode(bytes: &mut [u8], at: usize, inode: u32) {
    if let Some(field) = bytes.get_mut(at..at + 4) {
        field.copy_from_slice(&inode.to_le_bytes());
    }
}

impl Check<'_> {
    pub(super) fn entry(
        &self,
        chain: &Chain<'_>,
        bytes: &[u8],
        record: &Record,
        code: Code,
    ) -> Finding {
        Finding::new(code)
            .dir(chain.dir.inode)
            .inode(InodeNo(record.inode))
            .file_block(chain.at)
            .name(record.name(bytes).to_vec())
    }

    /// Writes a record of a name of one or two bytes at `at`.
    fn write_dot(&self, chain: &mut Chain<'_>, bytes: &mut [u8], at: usize, name: &[u8], ino: u32) {
        set_inode(bytes, at, ino);
        bytes[at + 6] = name.len() as u8; // one or two
        bytes[at + 7] = if chain.format.has_filetype { Kind::Directory.encode() } else { 0 };
        bytes[at + 8..at + 12].fill(0);
        bytes[at + 8..at + 8 + name.len()].copy_from_slice(name);
        chain.changed = true;
    }

    /// The first record of a directory.
    pub(super) fn check_dot(
        &self,
        chain: &mut Chain<'_>,
        bytes: &mut [u8],
        record: &mut Record,
    ) -> Result<(), CheckError> {
        let ino = chain.dir.inode;
        let is_dot = record.name(bytes) == b".";
        if record.inode == 0 || record.name_len == 0 {
            if !self.should_fix(Finding::new(Code::MissingDot).dir(ino))? {
                chain.is_flawed = true;
                return Ok(());
            }
            self.write_dot(chain, bytes, record.at, b".", ino.0);
            if record.rec_len < DOT_LEN + 12 && chain.end - record.at >= DOT_LEN + 12 {
                record.rec_len = DOT_LEN;
                set_rec_len(bytes, record.at, DOT_LEN, chain.format.block_len);
            }
        } else if !is_dot {
            let finding = self.entry(chain, bytes, record, Code::FirstEntryNotDot);
            if !self.should_fix(finding)? {
                chain.is_flawed = true;
                return Ok(());
            }
            self.write_dot(chain, bytes, record.at, b".", ino.0);
        } else if record.inode != ino.0 {
            let finding = Finding::new(Code::DotWrong)
                .dir(ino)
                .found(u64::from(record.inode))
                .expected(u64::from(ino.0));
            if self.should_fix(finding)? {
                set_inode(bytes, record.at, ino.0);
                chain.changed = true;
            }
        }
        if record.name_len == 1
            && bytes.get(record.at + 9).is_some_and(|byte| *byte != 0)
            && self.should_fix(Finding::new(Code::DotNotTerminated).dir(ino))?
        {
            bytes[record.at + 9..record.at + 12].fill(0);
            chain.changed = true;
        }
        // The bytes after `.` may hide entries: unless they are the record of `..` itself, they
        // become a record of their own.
        let rest = record.rec_len - DOT_LEN;
        if rest >= 12 && self.should_fix(Finding::new(Code::DotTooBig).dir(ino))? {
            let block_len = chain.format.block_len;
            set_rec_len(bytes, record.at, DOT_LEN, block_len);
            let at = record.at + DOT_LEN;
            let is_dotdot = |next: &Record| {
                next.inode != 0 && next.name(bytes) == b".." && next.can_be(chain.end)
            };
            if !record_at(bytes, at, &chain.format).as_ref().is_some_and(is_dotdot) {
                set_inode(bytes, at, 0);
                bytes[at + 6..at + 8].fill(0);
                set_rec_len(bytes, at, rest, block_len);
            }
            record.rec_len = DOT_LEN;
            chain.changed = true;
        }
        self.fix_dot_type(chain, bytes, record)?;
        self.inodes.count_name(ino);
        Ok(())
    }

    /// The second record of a directory.
    pub(super) fn check_dotdot(
        &self,
        chain: &mut Chain<'_>,
        bytes: &mut [u8],
        record: &mut Record,
    ) -> Result<(), CheckError> {
        let ino = chain.dir.inode;
        let mut parent = record.inode;
        if record.name(bytes) != b".." || record.inode == 0 {
            let code = if record.inode == 0 || record.name_len == 0 {
                Code::MissingDotDot
            } else {
                Code::SecondEntryNotDotDot
            };
            let finding = self.entry(chain, bytes, record, code);
            if !self.should_fix(finding)? {
                chain.is_flawed = true;
                return Ok(());
            }
            // Pass 3 finds out which directory it is.
            self.write_dot(chain, bytes, record.at, b"..", ino.0);
            parent = 0;
        }
        if bytes.get(record.at + 10).is_some_and(|byte| *byte != 0)
            && self.should_fix(Finding::new(Code::DotDotNotTerminated).dir(ino))?
        {
            bytes[record.at + 10..record.at + 12].fill(0);
            chain.changed = true;
        }
        self.fix_dot_type(chain, bytes, record)?;
        if parent != 0 {
            let target = InodeNo(parent);
            if self.is_nameable(target) {
                self.inodes.count_name(target);
            }
            chain.dir.dotdot.store(parent, Relaxed);
        }
        Ok(())
    }

    fn fix_dot_type(
        &self,
        chain: &mut Chain<'_>,
        bytes: &mut [u8],
        record: &Record,
    ) -> Result<(), CheckError> {
        let found = bytes[record.at + 7];
        let expected = if chain.format.has_filetype { Kind::Directory.encode() } else { 0 };
        if found == expected {
            return Ok(());
        }
        let code = match found {
            _ if !chain.format.has_filetype => Code::FileTypeUnexpected,
            0 => Code::FileTypeMissing,
            _ => Code::FileTypeWrong,
        };
        let finding = self
            .entry(chain, bytes, record, code)
            .found(u64::from(found))
            .expected(u64::from(expected));
        if self.should_fix(finding)? {
            bytes[record.at + 7] = expected;
            chain.changed = true;
        }
        Ok(())
    }

    /// A name.
    pub(super) fn check_entry(
        &self,
        chain: &mut Chain<'_>,
        bytes: &mut [u8],
        record: &mut Record,
        context: &DirContext,
        reader: &mut Reader,
    ) -> Result<(), CheckError> {
        let target = InodeNo(record.inode);
        if let Some(code) = self.entry_flaw(chain, bytes, record) {
            let mut finding = self.entry(chain, bytes, record, code);
            finding.subject.found = Some(u64::from(record.inode));
            if self.should_fix(finding)? {
                self.clear_entry(chain, bytes, record);
            }
            return Ok(());
        }
        let is_distant = !self.inodes.is_in_window(target);
        if is_distant && self.is_in_bad_block(target) {
            return Ok(());
        }
        self.check_name(chain, bytes, record, context)?;
        if is_distant {
            return self.check_distant(chain, bytes, record, context, reader);
        }
        let Some(slot) = self.inodes.slot(target).filter(|slot| slot.state().is_used()) else {
            return self.check_unknown(chain, bytes, record);
        };
        if self.copies.lock().remove(&target) {
            self.empty_copy(target, Kind::decode(record.file_type))?;
        }
        let state = slot.state();
        if state.has(Mark::SUSPECT)
            && self.check_suspect(target, Some((chain.dir.inode, record.name(bytes))))?
        {
            self.clear_entry(chain, bytes, record);
            return Ok(());
        }
        if state.has(Mark::EA_INODE) && self.ea_inodes.references(target) > 0 {
            let finding = self.entry(chain, bytes, record, Code::EntryEaInode);
            if self.should_fix(finding)? {
                self.clear_entry(chain, bytes, record);
            }
            return Ok(());
        }
        let kind = state.kind();
        let found = Kind::decode(record.file_type);
        if chain.format.has_filetype {
            if found != kind || record.file_type > 7 {
                self.check_type(chain, bytes, record, kind)?;
            }
        } else if record.file_type != 0 {
            let finding = self.entry(chain, bytes, record, Code::FileTypeUnexpected);
            if self.should_fix(finding)? {
                bytes[record.at + 7] = 0;
                chain.changed = true;
            }
        }
        if chain.dir.has(DirFlags::ENCRYPTED)
            && self.check_encrypted(chain, bytes, record, target, kind)?
        {
            self.clear_entry(chain, bytes, record);
            return Ok(());
        }
        if kind == Kind::Directory && !self.claim_directory(chain, bytes, record, target)? {
            self.clear_entry(chain, bytes, record);
            return Ok(());
        }
        slot.count_name();
        reader.links += 1;
        self.check_twice(chain, bytes, record, context, reader)
    }

    /// The entry of an inode outside of the window: records its relation to the directory. The
    /// inode's own window checks the rest.
    fn check_distant(
        &self,
        chain: &mut Chain<'_>,
        bytes: &mut [u8],
        record: &mut Record,
        context: &DirContext,
        reader: &mut Reader,
    ) -> Result<(), CheckError> {
        let target = InodeNo(record.inode);
        if !self.inodes.is_used(target) {
            return Ok(());
        }
        if !self.claim_directory(chain, bytes, record, target)? {
            self.clear_entry(chain, bytes, record);
            return Ok(());
        }
        reader.links += 1;
        self.check_twice(chain, bytes, record, context, reader)
    }

    /// Reasons to clear an entry, whatever its inode is.
    fn entry_flaw(&self, chain: &Chain<'_>, bytes: &[u8], record: &Record) -> Option<Code> {
        let target = InodeNo(record.inode);
        let name = record.name(bytes);
        if name.is_empty() {
            return Some(Code::EntryEmptyName);
        }
        if name.len() <= 2 && name[0] == b'.' {
            if name.len() == 1 {
                return Some(Code::DuplicateDot);
            }
            if name[1] == b'.' {
                return Some(Code::DuplicateDotDot);
            }
        }
        if !self.is_nameable(target) {
            return Some(Code::EntryBadInode);
        }
        if target == chain.dir.inode {
            return Some(Code::EntryLinkToDot);
        }
        if target == InodeNo::ROOT {
            return Some(Code::EntryLinkToRoot);
        }
        if chain.dir.has(DirFlags::ENCRYPTED) && name.len() < ENCRYPTED_NAME {
            return Some(Code::EncryptedNameTooShort);
        }
        let is_in_bad_block = self.has_bad_inodes
            && self.inodes.state(target).is_some_and(|state| state.has(Mark::BAD_BLOCK));
        is_in_bad_block.then_some(Code::EntryInBadBlock)
    }

    fn clear_entry(&self, chain: &mut Chain<'_>, bytes: &mut [u8], record: &mut Record) {
        set_inode(bytes, record.at, 0);
        record.inode = 0;
        chain.changed = true;
    }

    /// An entry whose inode is not in use as far as pass 1 read.
    fn check_unknown(
        &self,
        chain: &mut Chain<'_>,
        bytes: &mut [u8],
        record: &mut Record,
    ) -> Result<(), CheckError> {
        let target = InodeNo(record.inode);
        let Some((group, at)) = self.geometry.inode_place(target) else { return Ok(()) };
        let is_past_mark = at >= self.inodes.opened(group);
        if is_past_mark {
            let is_used = self.kind_past_mark(target)?.is_some();
            let end = self.used_past_mark(group)?.max(if is_used { at + 1 } else { 0 });
            if end > 0 {
                return self.check_mark(chain, bytes, record, group, end);
            }
        }
        if self.options.placeholders {
            return self.keep_name(chain, bytes, record, (group, at));
        }
        let code = if is_past_mark { Code::EntryNeverUsedInode } else { Code::EntryUnusedInode };
        let finding = self.entry(chain, bytes, record, code);
        if self.should_fix(finding)? {
            self.clear_entry(chain, bytes, record);
        }
        Ok(())
    }

    /// A name whose inode is lost gets an empty file in its place.
    fn keep_name(
        &self,
        chain: &mut Chain<'_>,
        bytes: &mut [u8],
        record: &mut Record,
        (group, at): (GroupNo, u32),
    ) -> Result<(), CheckError> {
        let target = InodeNo(record.inode);
        let finding = self.entry(chain, bytes, record, Code::EntryPlaceholder);
        if !self.should_fix(finding)? {
            return Ok(());
        }
        if at >= self.inodes.opened(group) {
            self.raise_mark(group, at + 1, None)?;
        }
        let Some((mut fresh, inode)) = self.fresh_inode(target, PLACEHOLDER) else {
            return Ok(());
        };
        inode.encode_into(&mut fresh, self.geometry);
        self.store.write_inode(target, &mut fresh)?;
        self.need_restart();
        let kind = if chain.format.has_filetype { Kind::Regular.encode() } else { 0 };
        if bytes[record.at + 7] != kind {
            bytes[record.at + 7] = kind;
            chain.changed = true;
        }
        Ok(())
    }

    /// An entry that leads beyond the mark of a group that has inodes in use there, the first `end`
    /// of its table.
    fn check_mark(
        &self,
        chain: &Chain<'_>,
        bytes: &[u8],
        record: &Record,
        group: GroupNo,
        end: u32,
    ) -> Result<(), CheckError> {
        let is_uninit = self.descs[group.0 as usize].flags.contains(GroupFlags::INODE_UNINIT);
        let code = if is_uninit { Code::EntryInUninitGroup } else { Code::EntryPastHighWater };
        if self.should_fix(self.entry(chain, bytes, record, code).group(group))? {
            self.raise_mark(group, end, Some(InodeNo(record.inode)))?;
        }
        Ok(())
    }

    /// Bytes that are not allowed in names.
    fn check_name(
        &self,
        chain: &mut Chain<'_>,
        bytes: &mut [u8],
        record: &Record,
        context: &DirContext,
    ) -> Result<(), CheckError> {
        let is_encrypted = chain.dir.has(DirFlags::ENCRYPTED);
        let name = record.name(bytes);
        let is_bad = |byte: &u8| *byte == b'/' || *byte == 0;
        if !is_encrypted && name.iter().any(is_bad) {
            let finding = self.entry(chain, bytes, record, Code::EntryBadCharacters);
            if self.should_fix(finding)? {
                for byte in &mut bytes[record.at + 8..record.at + 8 + record.name_len] {
                    if is_bad(byte) {
                        *byte = b'.';
                    }
                }
                chain.changed = true;
            }
        } else if chain.dir.has(DirFlags::CASEFOLD)
            && !is_encrypted
            && context.casefold.is_some_and(|casefold| !casefold.admits(name))
        {
            let finding = self.entry(chain, bytes, record, Code::NameNotUtf8);
            if self.should_fix(finding)? {
                self.make_utf8(&mut bytes[record.at + 8..record.at + 8 + record.name_len]);
                chain.changed = true;
            }
        }
        Ok(())
    }

    /// Puts a dot for every byte that is not part of a character.
    fn make_utf8(&self, name: &mut [u8]) {
        let mut from = 0;
        while let Err(error) = std::str::from_utf8(&name[from..]) {
            let bad = from + error.valid_up_to();
            let len = error.error_len().unwrap_or(name.len() - bad);
            name[bad..bad + len].fill(b'.');
            from = bad + len;
        }
    }

    fn check_type(
        &self,
        chain: &mut Chain<'_>,
        bytes: &mut [u8],
        record: &Record,
        kind: Kind,
    ) -> Result<(), CheckError> {
        let code = if record.file_type == 0 { Code::FileTypeMissing } else { Code::FileTypeWrong };
        let finding = self
            .entry(chain, bytes, record, code)
            .found(u64::from(record.file_type))
            .expected(u64::from(kind.encode()));
        if self.should_fix(finding)? {
            bytes[record.at + 7] = kind.encode();
            chain.changed = true;
        }
        Ok(())
    }

    /// Files of an encrypted directory are encrypted, by the same policy. True if the entry is to
    /// be cleared.
    fn check_encrypted(
        &self,
        chain: &Chain<'_>,
        bytes: &[u8],
        record: &Record,
        target: InodeNo,
        kind: Kind,
    ) -> Result<bool, CheckError> {
        if !matches!(kind, Kind::Regular | Kind::Directory | Kind::Symlink) {
            return Ok(false);
        }
        let is_encrypted =
            self.inodes.state(target).is_some_and(|state| state.has(Mark::ENCRYPTED));
        if !is_encrypted {
            return self.should_fix(self.entry(chain, bytes, record, Code::EncryptedNamesPlain));
        }
        if self.policies.differ(chain.dir.inode, target) {
            return self.should_fix(self.entry(
                chain,
                bytes,
                record,
                Code::EncryptionPolicyDiffers,
            ));
        }
        Ok(false)
    }

    /// The name in its block's set, and its hash in the index.
    fn check_twice(
        &self,
        chain: &mut Chain<'_>,
        bytes: &[u8],
        record: &Record,
        context: &DirContext,
        reader: &mut Reader,
    ) -> Result<(), CheckError> {
        let name = record.name(bytes);
        let casefold = context
            .casefold
            .filter(|_| chain.dir.has(DirFlags::CASEFOLD) && !chain.dir.has(DirFlags::ENCRYPTED));
        let hash = if let Some(hasher) = &chain.hasher {
            let hash = match casefold {
                Some(casefold) => hasher.hash(&casefold.key(name)).hash,
                None => hasher.hash(name).hash,
            };
            chain.hashes = Some(match chain.hashes {
                Some((least, most)) => (least.min(hash), most.max(hash)),
                None => (hash, hash),
            });
            hash
        } else {
            match casefold {
                Some(casefold) => quick_hash(&casefold.key(name)),
                None => quick_hash(name),
            }
        };
        let format = chain.format;
        let is_new = reader.names.insert(hash, record.at, |other| {
            let Some(other) = record_at(bytes, other, &format) else { return false };
            match casefold {
                Some(casefold) => casefold.is_same(other.name(bytes), name),
                None => other.name(bytes) == name,
            }
        });
        if !is_new && self.should_fix(self.entry(chain, bytes, record, Code::DuplicateEntry))? {
            chain.dir.set(DirFlags::REBUILD);
        }
        Ok(())
    }
}
