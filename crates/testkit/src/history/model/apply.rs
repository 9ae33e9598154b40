//! The effects of successful calls.

use super::{File, Model};
use crate::Kind;
use crate::history::acl::{AclEntry, AclTag, is_plain, mode_of, with_mode};
use crate::history::flags;
use crate::history::{
    Answer, Attributes, CAPABILITY, Call, Credentials, FileId, RenameHow, Stamp, Step, bytes_of,
    value_of,
};
use std::sync::Arc;

const SETGID: u32 = 0o2000;

impl Model {
    /// Checks the answer of a step that [`Model::expect`] lets succeed, and applies the step.
    ///
    /// # Errors
    /// The answer is wrong; the model is not changed.
    pub fn apply(&mut self, step: &Step, answer: &Answer) -> Result<(), String> {
        let now = step.number;
        match &step.call {
            Call::Create { dir, name, mode, credentials } => {
                self.make(now, *dir, name, File::new(Kind::File, *mode), credentials);
            }
            Call::MakeNode { dir, name, mode, node, credentials } => {
                let file = File { device: node.device(), ..File::new(node.kind(), *mode) };
                self.make(now, *dir, name, file, credentials);
            }
            Call::MakeDir { dir, name, mode, credentials } => {
                self.make(now, *dir, name, File::new(Kind::Directory, *mode), credentials);
            }
            Call::Symlink { dir, name, target, credentials } => {
                let file = File { target: target.clone(), ..File::new(Kind::Symlink, 0o777) };
                self.make(now, *dir, name, file, credentials);
            }
            Call::TempFile { dir, mode, credentials } => {
                let file = File { held: 1, linkable: true, ..File::new(Kind::File, *mode) };
                let file = self.created(now, *dir, file, credentials);
                self.files.insert(FileId(now), Arc::new(file));
            }
            Call::Link { file, dir, name } => {
                self.add_name(*file, *dir, name);
                self.get_mut(*file).linkable = true;
                self.touch(*file, now);
                self.touch_content(*dir, now);
            }
            Call::Unlink { dir, name } | Call::RemoveDir { dir, name } => {
                let file = self.get(*dir).entries[name];
                self.forget_read(*dir, name);
                self.take_name(file, *dir, name, now);
                self.touch_content(*dir, now);
            }
            Call::Rename { dir, name, to_dir, to_name, how } => {
                self.renamed(now, (*dir, name), (*to_dir, to_name), *how);
            }
            Call::Hold { file } => self.get_mut(*file).held += 1,
            Call::Release { file } => {
                self.get_mut(*file).held -= 1;
                self.remove_if_gone(*file);
            }
            Call::Write { file, offset, len, seed } => {
                let count = self.written(*offset, *len, answer)?;
                self.wrote(now, *file, *offset, &bytes_of(*seed, *len)[..count as usize]);
            }
            Call::Truncate { file, size } => self.truncated(now, *file, *size),
            Call::Fallocate { file, how, offset, len } => {
                self.fallocated(now, *file, *how, *offset, *len);
            }
            Call::SetMode { file, mode } => {
                let changed = self.get_mut(*file);
                changed.mode = *mode;
                if !changed.access_acl.is_empty() {
                    changed.access_acl = with_mode(&changed.access_acl, *mode);
                }
                self.touch(*file, now);
            }
            Call::SetOwner { file, uid, gid } => {
                let changed = self.get_mut(*file);
                (changed.uid, changed.gid) = (*uid, *gid);
                if !changed.is_dir() {
                    changed.xattrs.remove(CAPABILITY);
                }
                self.touch(*file, now);
            }
            Call::SetTimes { file, mtime, .. } => {
                self.touch(*file, now);
                self.get_mut(*file).mtime = Stamp::Set(*mtime);
            }
            Call::SetXattr { file, name, seed, len, .. } => {
                self.get_mut(*file).xattrs.insert(name.clone(), value_of(name, *seed, *len));
                self.touch(*file, now);
            }
            Call::RemoveXattr { file, name } => {
                self.get_mut(*file).xattrs.remove(name);
                self.touch(*file, now);
            }
            Call::SetAcl { file, default, acl } => {
                let before = self.get(*file);
                let known = if *default { &before.default_acl } else { &before.access_acl };
                let is_same = known.is_empty() && acl.is_empty();
                self.set_acl(*file, *default, acl);
                self.touch(*file, now);
                if is_same {
                    self.get_mut(*file).ctime = Stamp::Unknown;
                }
            }
            Call::SetFlags { file, flags } => {
                let is_same = self.get(*file).flags == *flags;
                self.get_mut(*file).flags = *flags;
                self.touch(*file, now);
                if is_same {
                    // The file system may set the time anyway.
                    self.get_mut(*file).ctime = Stamp::Unknown;
                }
            }
            Call::SetProject { file, project } => {
                self.get_mut(*file).project = *project;
                self.touch(*file, now);
            }
            Call::ReadOn { dir, count } => {
                let Answer::NamesRead { names, is_end } = answer else {
                    return Err(format!("no answer to this: {answer:?}"));
                };
                self.read_on(*dir, *count, names, *is_end)?;
            }
            Call::Freeze => match answer {
                Answer::Differences(lines) if lines.is_empty() => {}
                Answer::Differences(lines) => return Err(lines.join("\n")),
                other => return Err(format!("{other:?}")),
            },
            Call::StatFs => self.check_inodes(answer)?,
            Call::Reopen => {
                let all: Vec<FileId> = self.files.keys().copied().collect();
                for id in all {
                    self.get_mut(id).held = 0;
                    self.remove_if_gone(id);
                }
            }
            Call::Sync | Call::Fsync { .. } | Call::Fdatasync { .. } | Call::Wait { .. } => {}
            Call::Lookup { .. }
            | Call::ReadDir { .. }
            | Call::ReadLink { .. }
            | Call::Stat { .. }
            | Call::Read { .. }
            | Call::Flags { .. }
            | Call::Extents { .. }
            | Call::SeekData { .. }
            | Call::SeekHole { .. } => self.check_answer(&step.call, answer)?,
        }
        Ok(())
    }

    fn check_answer(&self, call: &Call, answer: &Answer) -> Result<(), String> {
        match (call, answer) {
            (Call::Lookup { dir, name }, Answer::Attributes(found)) => {
                self.check_attributes(self.get(*dir).entries[name], found)
            }
            (Call::Stat { file }, Answer::Attributes(found)) => self.check_attributes(*file, found),
            (Call::ReadDir { dir }, Answer::Names(found)) => {
                let expected: Vec<_> = self.get(*dir).entries.keys().cloned().collect();
                match expected == *found {
                    true => Ok(()),
                    false => {
                        Err(format!("expected {} names, found {}", expected.len(), found.len()))
                    }
                }
            }
            (Call::ReadLink { file }, Answer::Bytes(found)) => {
                match self.get(*file).target == *found {
                    true => Ok(()),
                    false => Err(format!("found {}", found.escape_ascii())),
                }
            }
            (Call::Read { file, offset, len }, Answer::Bytes(found)) => {
                self.check_read(*file, *offset, *len, found)
            }
            (Call::SeekData { file, offset }, Answer::Offset(found)) => {
                self.check_data_at(*file, *offset, *found)
            }
            (Call::SeekHole { file, offset }, Answer::Offset(found)) => {
                self.check_hole_at(*file, *offset, *found)
            }
            (Call::Flags { file }, Answer::Flags { flags, project }) => {
                let file = self.get(*file);
                match *flags == file.flags && project.is_none_or(|found| found == file.project) {
                    true => Ok(()),
                    false => Err(format!(
                        "expected flags {:#x} and project {}, found {flags:#x} and {project:?}",
                        file.flags, file.project
                    )),
                }
            }
            (Call::Extents { file }, Answer::Extents(found)) => self.check_extents(*file, found),
            (_, other) => Err(format!("no answer to this: {other:?}")),
        }
    }

    fn check_attributes(&self, id: FileId, found: &Attributes) -> Result<(), String> {
        let file = self.get(id);
        let expected = Attributes {
            kind: file.kind,
            mode: file.mode,
            uid: file.uid,
            gid: file.gid,
            size: if file.kind == Kind::Symlink { file.target.len() as u64 } else { file.size },
            links: self.links(id),
            mtime: found.mtime,
            ctime: found.ctime,
        };
        if expected != *found {
            return Err(format!("expected {expected:?}, found {found:?}"));
        }
        for (name, stamp, time) in
            [("mtime", file.mtime, found.mtime), ("ctime", file.ctime, found.ctime)]
        {
            if !self.clock.allows(stamp, time) {
                return Err(format!("{name} of {id:?}: expected {stamp:?}, found {time:?}"));
            }
        }
        Ok(())
    }

    fn check_inodes(&mut self, answer: &Answer) -> Result<(), String> {
        let Answer::InodesUsed(found) = answer else { return Err(format!("{answer:?}")) };
        if !self.rules.counts_inodes {
            return Ok(());
        }
        let files = self.files.len() as u64;
        match self.other_inodes {
            None => self.other_inodes = Some(found.saturating_sub(files)),
            Some(others) if files + others == *found => {}
            Some(others) => return Err(format!("{found} inodes in use, not {}", files + others)),
        }
        Ok(())
    }

    /// The attributes of a new file, from its directory and the creator's credentials.
    fn created(&self, now: u32, dir: FileId, mut file: File, credentials: &Credentials) -> File {
        let parent = self.get(dir);
        (file.uid, file.gid) = (credentials.uid, credentials.gid);
        if parent.mode & SETGID != 0 {
            file.gid = parent.gid;
        }
        file.flags = flags::inherited(parent.flags, file.kind);
        if parent.flags & flags::PROJECT_INHERIT != 0 {
            file.project = parent.project;
        }
        let special = match file.is_dir() {
            true => parent.mode & SETGID,
            false => 0,
        };
        if file.kind != Kind::Symlink {
            if parent.default_acl.is_empty() {
                file.mode &= !credentials.umask;
            } else {
                let acl = masked(&parent.default_acl, file.mode);
                file.mode = file.mode & !0o777 | mode_of(&acl);
                if !is_plain(&acl) {
                    file.access_acl = acl;
                }
                if file.is_dir() {
                    file.default_acl.clone_from(&parent.default_acl);
                }
            }
        }
        file.mode |= special;
        (file.mtime, file.ctime, file.changed) = (Stamp::Step(now), Stamp::Step(now), now);
        file
    }

    fn make(&mut self, now: u32, dir: FileId, name: &[u8], file: File, credentials: &Credentials) {
        let file = self.created(now, dir, file, credentials);
        self.files.insert(FileId(now), Arc::new(file));
        self.add_name(FileId(now), dir, name);
        self.touch_content(dir, now);
    }

    fn add_name(&mut self, file: FileId, dir: FileId, name: &[u8]) {
        self.get_mut(file).names.insert((dir, name.to_vec()));
        self.get_mut(dir).entries.insert(name.to_vec(), file);
    }

    fn take_name(&mut self, file: FileId, dir: FileId, name: &[u8], now: u32) {
        self.get_mut(dir).entries.remove(name);
        let taken = self.get_mut(file);
        taken.names.remove(&(dir, name.to_vec()));
        taken.linkable = !taken.names.is_empty();
        self.touch(file, now);
        self.remove_if_gone(file);
    }

    fn remove_if_gone(&mut self, id: FileId) {
        let file = self.get(id);
        if file.is_unlinked(id) && file.held == 0 {
            self.files.remove(&id);
        }
    }

    fn renamed(
        &mut self,
        now: u32,
        (dir, name): (FileId, &[u8]),
        (to_dir, to_name): (FileId, &[u8]),
        how: RenameHow,
    ) {
        let source = self.get(dir).entries[name];
        let target = self.get(to_dir).entries.get(to_name).copied();
        if target == Some(source) {
            return;
        }
        if let Some(target) = target {
            if how == RenameHow::Exchange {
                self.get_mut(target).names.remove(&(to_dir, to_name.to_vec()));
                self.add_name(target, dir, name);
                self.touch(target, now);
            } else {
                self.take_name(target, to_dir, to_name, now);
            }
        }
        if how != RenameHow::Exchange {
            self.forget_read(dir, name);
            self.get_mut(dir).entries.remove(name);
        }
        self.get_mut(source).names.remove(&(dir, name.to_vec()));
        self.add_name(source, to_dir, to_name);
        self.touch(source, now);
        self.touch_content(dir, now);
        self.touch_content(to_dir, now);
    }

    fn set_acl(&mut self, id: FileId, default: bool, acl: &[AclEntry]) {
        let mut acl = acl.to_vec();
        acl.sort();
        let file = self.get_mut(id);
        if default {
            file.default_acl = acl;
            return;
        }
        if !acl.is_empty() {
            file.mode = file.mode & !0o777 | mode_of(&acl);
        }
        file.access_acl = if is_plain(&acl) { Vec::new() } else { acl };
    }

    /// Marks the inode as changed.
    pub(super) fn touch(&mut self, id: FileId, now: u32) {
        let file = self.get_mut(id);
        file.ctime = Stamp::Step(now);
        file.changed = now;
    }

    /// Marks the content as changed.
    pub(super) fn touch_content(&mut self, id: FileId, now: u32) {
        self.touch(id, now);
        self.get_mut(id).mtime = Stamp::Step(now);
    }
}

/// The list of a new file: the default list, limited by the mode at creation.
fn masked(default: &[AclEntry], mode: u32) -> Vec<AclEntry> {
    let has_mask = default.iter().any(|entry| entry.tag == AclTag::Mask);
    let limit = |entry: &AclEntry| {
        let most = match entry.tag {
            AclTag::Owner => mode >> 6 & 7,
            AclTag::Mask => mode >> 3 & 7,
            AclTag::Group if !has_mask => mode >> 3 & 7,
            AclTag::Other => mode & 7,
            _ => 7,
        };
        AclEntry { permissions: entry.permissions & most as u16, ..*entry }
    };
    default.iter().map(limit).collect()
}
