//! One entry: `.`, `..`, or a name.

use super::block::{Entry, Record, record_at};
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

impl Entry<'_, '_> {
    pub(super) fn target(&self) -> InodeNo {
        InodeNo(self.record.inode)
    }

    fn name(&self) -> &[u8] {
        self.record.name(self.bytes)
    }

    fn name_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.record.at + 8..][..self.record.name_len]
    }

    pub(super) fn finding(&self, code: Code) -> Finding {
        Finding::new(code)
            .dir(self.chain.dir.inode)
            .inode(self.target())
            .file_block(self.chain.at)
            .name(self.name().to_vec())
    }

    /// The type of a file as the directory stores it.
    fn stored_type(&self, kind: Kind) -> u8 {
        if self.chain.format.has_filetype { kind.encode() } else { 0 }
    }

    fn set_type(&mut self, file_type: u8) {
        self.bytes[self.record.at + 7] = file_type;
        self.chain.changed = true;
    }

    fn set_inode(&mut self, inode: u32) {
        set_inode(self.bytes, self.record.at, inode);
        self.chain.changed = true;
    }

    fn clear(&mut self) {
        self.set_inode(0);
        self.record.inode = 0;
    }

    /// Writes a record of a name of one or two bytes.
    fn write_dot(&mut self, name: &[u8], ino: InodeNo) {
        self.set_inode(ino.0);
        self.set_type(self.stored_type(Kind::Directory));
        let at = self.record.at;
        self.bytes[at + 6] = name.len() as u8; // one or two
        self.bytes[at + 8..at + 12].fill(0);
        self.bytes[at + 8..at + 8 + name.len()].copy_from_slice(name);
    }
}

fn set_inode(bytes: &mut [u8], at: usize, inode: u32) {
    if let Some(field) = bytes.get_mut(at..at + 4) {
        field.copy_from_slice(&inode.to_le_bytes());
    }
}

impl Check<'_> {
    /// The first record of a directory.
    pub(super) fn check_dot(&self, entry: &mut Entry<'_, '_>) -> Result<(), CheckError> {
        let ino = entry.chain.dir.inode;
        let (at, format) = (entry.record.at, entry.chain.format);
        let is_dot = entry.name() == b".";
        if entry.record.inode == 0 || entry.record.name_len == 0 {
            if !self.should_fix(Finding::new(Code::MissingDot).dir(ino))? {
                entry.chain.is_flawed = true;
                return Ok(());
            }
            entry.write_dot(b".", ino);
            if entry.record.rec_len < DOT_LEN + 12 && entry.chain.end - at >= DOT_LEN + 12 {
                entry.record.rec_len = DOT_LEN;
                set_rec_len(entry.bytes, at, DOT_LEN, &format);
            }
        } else if !is_dot {
            if !self.should_fix(entry.finding(Code::FirstEntryNotDot))? {
                entry.chain.is_flawed = true;
                return Ok(());
            }
            entry.write_dot(b".", ino);
        } else if entry.target() != ino {
            let finding = Finding::new(Code::DotWrong)
                .dir(ino)
                .found(u64::from(entry.record.inode))
                .expected(u64::from(ino.0));
            if self.should_fix(finding)? {
                entry.set_inode(ino.0);
            }
        }
        if entry.record.name_len == 1
            && entry.bytes.get(at + 9).is_some_and(|byte| *byte != 0)
            && self.should_fix(Finding::new(Code::DotNotTerminated).dir(ino))?
        {
            entry.bytes[at + 9..at + 12].fill(0);
            entry.chain.changed = true;
        }
        // The bytes after `.` may hide entries: unless they are the record of `..` itself, they
        // become a record of their own.
        let rest = entry.record.rec_len - DOT_LEN;
        if rest >= 12 && self.should_fix(Finding::new(Code::DotTooBig).dir(ino))? {
            let Entry { chain, bytes, record } = entry;
            set_rec_len(bytes, at, DOT_LEN, &format);
            let next_at = at + DOT_LEN;
            let is_dotdot = |next: &Record| {
                next.inode != 0 && next.name(bytes) == b".." && next.can_be(chain.end)
            };
            if !record_at(bytes, next_at, &format).as_ref().is_some_and(is_dotdot) {
                set_inode(bytes, next_at, 0);
                bytes[next_at + 6..next_at + 8].fill(0);
                set_rec_len(bytes, next_at, rest, &format);
            }
            record.rec_len = DOT_LEN;
            chain.changed = true;
        }
        self.fix_dot_type(entry)?;
        self.inodes.count_name(ino);
        Ok(())
    }

    /// The second record of a directory.
    pub(super) fn check_dotdot(&self, entry: &mut Entry<'_, '_>) -> Result<(), CheckError> {
        let ino = entry.chain.dir.inode;
        let at = entry.record.at;
        let mut parent = entry.record.inode;
        if entry.name() != b".." || parent == 0 {
            let code = if parent == 0 || entry.record.name_len == 0 {
                Code::MissingDotDot
            } else {
                Code::SecondEntryNotDotDot
            };
            if !self.should_fix(entry.finding(code))? {
                entry.chain.is_flawed = true;
                return Ok(());
            }
            // Pass 3 finds out which directory it is.
            entry.write_dot(b"..", ino);
            parent = 0;
        }
        if entry.bytes.get(at + 10).is_some_and(|byte| *byte != 0)
            && self.should_fix(Finding::new(Code::DotDotNotTerminated).dir(ino))?
        {
            entry.bytes[at + 10..at + 12].fill(0);
            entry.chain.changed = true;
        }
        self.fix_dot_type(entry)?;
        if parent != 0 {
            let target = InodeNo(parent);
            if self.is_nameable(target) {
                self.inodes.count_name(target);
            }
            entry.chain.dir.dotdot.store(parent, Relaxed);
        }
        Ok(())
    }

    fn fix_dot_type(&self, entry: &mut Entry<'_, '_>) -> Result<(), CheckError> {
        let found = entry.bytes[entry.record.at + 7];
        match found == entry.stored_type(Kind::Directory) {
            true => Ok(()),
            false => self.fix_type(entry, found, Kind::Directory),
        }
    }

    /// A name.
    pub(super) fn check_entry(
        &self,
        entry: &mut Entry<'_, '_>,
        context: &DirContext,
        reader: &mut Reader,
    ) -> Result<(), CheckError> {
        let target = entry.target();
        if let Some(code) = self.entry_flaw(entry) {
            let mut finding = entry.finding(code);
            finding.subject.found = Some(u64::from(target.0));
            if self.should_fix(finding)? {
                entry.clear();
            }
            return Ok(());
        }
        let is_distant = !self.inodes.is_in_window(target);
        if is_distant && self.is_in_bad_block(target) {
            return Ok(());
        }
        self.check_name(entry, context)?;
        if is_distant {
            return self.check_distant(entry, context, reader);
        }
        let Some(slot) = self.inodes.slot(target).filter(|slot| slot.state().is_used()) else {
            return self.check_unknown(entry);
        };
        if self.copies.lock().remove(&target) {
            self.empty_copy(target, Kind::decode(entry.record.file_type))?;
        }
        let state = slot.state();
        if state.has(Mark::SUSPECT)
            && self.check_suspect(target, Some((entry.chain.dir.inode, entry.name())))?
        {
            entry.clear();
            return Ok(());
        }
        if state.has(Mark::EA_INODE) && self.ea_inodes.references(target) > 0 {
            return self.clear_by(entry, Code::EntryEaInode);
        }
        let (kind, file_type) = (state.kind(), entry.record.file_type);
        if entry.chain.format.has_filetype {
            if Kind::decode(file_type) != kind || file_type > 7 {
                self.fix_type(entry, file_type, kind)?;
            }
        } else if file_type != 0 && self.should_fix(entry.finding(Code::FileTypeUnexpected))? {
            entry.set_type(0);
        }
        let is_refused =
            entry.chain.dir.has(DirFlags::ENCRYPTED) && self.check_encrypted(entry, kind)?;
        if is_refused || (kind == Kind::Directory && !self.claim_directory(entry)?) {
            entry.clear();
            return Ok(());
        }
        slot.count_name();
        reader.links += 1;
        self.check_twice(entry, context, reader)
    }

    /// The entry of an inode outside of the window: records its relation to the directory. The
    /// inode's own window checks the rest.
    fn check_distant(
        &self,
        entry: &mut Entry<'_, '_>,
        context: &DirContext,
        reader: &mut Reader,
    ) -> Result<(), CheckError> {
        if !self.inodes.is_used(entry.target()) {
            return Ok(());
        }
        if !self.claim_directory(entry)? {
            entry.clear();
            return Ok(());
        }
        reader.links += 1;
        self.check_twice(entry, context, reader)
    }

    /// Reasons to clear an entry, whatever its inode is.
    fn entry_flaw(&self, entry: &Entry<'_, '_>) -> Option<Code> {
        let (target, dir, name) = (entry.target(), entry.chain.dir, entry.name());
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
        if target == dir.inode {
            return Some(Code::EntryLinkToDot);
        }
        if target == InodeNo::ROOT {
            return Some(Code::EntryLinkToRoot);
        }
        if dir.has(DirFlags::ENCRYPTED) && name.len() < ENCRYPTED_NAME {
            return Some(Code::EncryptedNameTooShort);
        }
        let is_in_bad_block = self.has_bad_inodes
            && self.inodes.state(target).is_some_and(|state| state.has(Mark::BAD_BLOCK));
        is_in_bad_block.then_some(Code::EntryInBadBlock)
    }

    /// Clears an entry for a flaw, if that is to be fixed.
    fn clear_by(&self, entry: &mut Entry<'_, '_>, code: Code) -> Result<(), CheckError> {
        if self.should_fix(entry.finding(code))? {
            entry.clear();
        }
        Ok(())
    }

    /// An entry whose inode is not in use as far as pass 1 read.
    fn check_unknown(&self, entry: &mut Entry<'_, '_>) -> Result<(), CheckError> {
        let target = entry.target();
        let Some((group, at)) = self.geometry.inode_place(target) else { return Ok(()) };
        let is_past_mark = at >= self.inodes.opened(group);
        if is_past_mark {
            let is_used = self.kind_past_mark(target)?.is_some();
            let end = self.used_past_mark(group)?.max(if is_used { at + 1 } else { 0 });
            if end > 0 {
                return self.check_mark(entry, group, end);
            }
        }
        if self.options.placeholders {
            return self.keep_name(entry, (group, at));
        }
        let code = if is_past_mark { Code::EntryNeverUsedInode } else { Code::EntryUnusedInode };
        self.clear_by(entry, code)
    }

    /// A name whose inode is lost gets an empty file in its place.
    fn keep_name(
        &self,
        entry: &mut Entry<'_, '_>,
        (group, at): (GroupNo, u32),
    ) -> Result<(), CheckError> {
        let target = entry.target();
        if !self.should_fix(entry.finding(Code::EntryPlaceholder))? {
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
        let file_type = entry.stored_type(Kind::Regular);
        if entry.bytes[entry.record.at + 7] != file_type {
            entry.set_type(file_type);
        }
        Ok(())
    }

    /// An entry that leads beyond the mark of a group that has inodes in use there, the first `end`
    /// of its table.
    fn check_mark(&self, entry: &Entry<'_, '_>, no: GroupNo, end: u32) -> Result<(), CheckError> {
        let is_uninit = self.descs[no.0 as usize].flags.contains(GroupFlags::INODE_UNINIT);
        let code = if is_uninit { Code::EntryInUninitGroup } else { Code::EntryPastHighWater };
        if self.should_fix(entry.finding(code).group(no))? {
            self.raise_mark(no, end, Some(entry.target()))?;
        }
        Ok(())
    }

    /// Bytes that are not allowed in names.
    fn check_name(
        &self,
        entry: &mut Entry<'_, '_>,
        context: &DirContext,
    ) -> Result<(), CheckError> {
        let (dir, name) = (entry.chain.dir, entry.name());
        let is_encrypted = dir.has(DirFlags::ENCRYPTED);
        let is_bad = |byte: &u8| *byte == b'/' || *byte == 0;
        if !is_encrypted && name.iter().any(is_bad) {
            if self.should_fix(entry.finding(Code::EntryBadCharacters))? {
                entry
                    .name_mut()
                    .iter_mut()
                    .filter(|byte| is_bad(byte))
                    .for_each(|byte| *byte = b'.');
                entry.chain.changed = true;
            }
        } else if dir.has(DirFlags::CASEFOLD)
            && !is_encrypted
            && context.casefold.is_some_and(|casefold| !casefold.admits(name))
            && self.should_fix(entry.finding(Code::NameNotUtf8))?
        {
            make_utf8(entry.name_mut());
            entry.chain.changed = true;
        }
        Ok(())
    }

    /// Gives an entry the type of its file in place of `found`.
    fn fix_type(&self, entry: &mut Entry<'_, '_>, found: u8, kind: Kind) -> Result<(), CheckError> {
        let expected = entry.stored_type(kind);
        let code = match found {
            _ if !entry.chain.format.has_filetype => Code::FileTypeUnexpected,
            0 => Code::FileTypeMissing,
            _ => Code::FileTypeWrong,
        };
        let finding = entry.finding(code).found(u64::from(found)).expected(u64::from(expected));
        if self.should_fix(finding)? {
            entry.set_type(expected);
        }
        Ok(())
    }

    /// Files of an encrypted directory are encrypted, by the same policy. True if the entry is to
    /// be cleared.
    fn check_encrypted(&self, entry: &Entry<'_, '_>, kind: Kind) -> Result<bool, CheckError> {
        if !matches!(kind, Kind::Regular | Kind::Directory | Kind::Symlink) {
            return Ok(false);
        }
        let target = entry.target();
        let is_encrypted =
            self.inodes.state(target).is_some_and(|state| state.has(Mark::ENCRYPTED));
        if !is_encrypted {
            return self.should_fix(entry.finding(Code::EncryptedNamesPlain));
        }
        if self.policies.differ(entry.chain.dir.inode, target) {
            return self.should_fix(entry.finding(Code::EncryptionPolicyDiffers));
        }
        Ok(false)
    }

    /// The name in its block's set, and its hash in the index.
    fn check_twice(
        &self,
        entry: &mut Entry<'_, '_>,
        context: &DirContext,
        reader: &mut Reader,
    ) -> Result<(), CheckError> {
        let Entry { chain, bytes, record } = entry;
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
        if !is_new && self.should_fix(entry.finding(Code::DuplicateEntry))? {
            entry.chain.dir.set(DirFlags::REBUILD);
        }
        Ok(())
    }
}

/// Puts a dot for every byte that is not part of a character.
fn make_utf8(name: &mut [u8]) {
    let mut from = 0;
    while let Err(error) = std::str::from_utf8(&name[from..]) {
        let bad = from + error.valid_up_to();
        let len = error.error_len().unwrap_or(name.len() - bad);
        name[bad..bad + len].fill(b'.');
        from = bad + len;
    }
}
