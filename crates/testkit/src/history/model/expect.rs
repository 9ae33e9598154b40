//! The expected success or failure of calls.

use super::{Expected, File, MAX_LINKS, MAX_NAME, Model};
use crate::Kind;
use crate::history::flags::{APPEND, IMMUTABLE, KEPT, OF_DIRECTORIES, PROJECT_INHERIT};
use crate::history::{Answer, Call, Fallocate, FileId, RenameHow, Step, XattrHow};
use rustix::io::Errno;

impl Model {
    /// Whether a step succeeds now.
    pub fn expect(&self, step: &Step) -> Expected {
        match self.errors(&step.call) {
            None => Expected::PassedOver,
            Some(errnos) if errnos.is_empty() => Expected::Success,
            Some(errnos) => Expected::Failure(errnos),
        }
    }

    /// Whether a call that the model lets succeed may fail with this error: for lack of space, or
    /// of data after an offset.
    pub fn may_fail(&self, step: &Step, errno: Errno) -> bool {
        if let Call::SeekData { file, offset } = &step.call {
            return errno == Errno::NXIO && self.is_all_hole_from(*file, *offset);
        }
        let takes_space = match &step.call {
            Call::Create { .. }
            | Call::MakeNode { .. }
            | Call::MakeDir { .. }
            | Call::Symlink { .. }
            | Call::TempFile { .. }
            | Call::Link { .. }
            | Call::Rename { .. }
            | Call::Write { .. }
            | Call::Truncate { .. }
            | Call::SetProject { .. }
            // A shared block of attributes is copied before it changes.
            | Call::RemoveXattr { .. }
            | Call::SetOwner { .. }
            | Call::SetMode { .. }
            | Call::Fallocate { .. } => self.rules.may_fill,
            Call::SetXattr { file, name, len, .. } => {
                let file = self.get(*file);
                let new = 16 + name.len() as u64 + len + 8;
                let room = self.rules.block_size - 64;
                let is_too_large = file.xattr_bytes() + new > room && !self.rules.large_xattrs;
                is_too_large || self.rules.may_fill
            }
            Call::SetAcl { file, acl, .. } => {
                let bytes = self.get(*file).xattr_bytes() + 32 + 8 * acl.len() as u64;
                bytes > self.rules.block_size - 64 || self.rules.may_fill
            }
            _ => false,
        };
        takes_space && errno == Errno::NOSPC
    }

    /// The errors of all rules that forbid a call; `None` if it cannot be made at all.
    fn errors(&self, call: &Call) -> Option<Vec<Errno>> {
        let mut errors = Vec::new();
        match call {
            Call::Create { dir, name, .. }
            | Call::MakeNode { dir, name, .. }
            | Call::MakeDir { dir, name, .. } => self.new_name(*dir, name, &mut errors)?,
            Call::Symlink { dir, name, target, .. } => {
                self.new_name(*dir, name, &mut errors)?;
                if target.len() as u64 >= self.rules.block_size {
                    errors.push(Errno::NAMETOOLONG);
                }
            }
            Call::TempFile { dir, .. } => {
                let found = self.directory_or_not(*dir)?;
                if !found.is_dir() {
                    errors.push(Errno::NOTDIR);
                } else if found.is_unlinked(*dir) {
                    return None;
                }
                flagged(found, IMMUTABLE, &mut errors);
            }
            Call::Link { file, dir, name } => {
                let linked = self.reachable(*file)?;
                self.new_name(*dir, name, &mut errors)?;
                if linked.is_dir() {
                    errors.push(Errno::PERM);
                }
                flagged(linked, KEPT, &mut errors);
                self.crosses(*dir, *file, &mut errors);
                if linked.is_unlinked(*file) && !linked.linkable {
                    errors.push(Errno::NOENT);
                }
                if linked.names.len() as u64 >= MAX_LINKS {
                    errors.push(Errno::MLINK);
                }
            }
            Call::Unlink { dir, name } => {
                if let Some(found) = self.old_name(*dir, name, &mut errors)? {
                    self.loses_name(*dir, found, &mut errors);
                    if self.get(found).is_dir() {
                        errors.push(Errno::ISDIR);
                    }
                }
            }
            Call::RemoveDir { dir, name } => {
                if let Some(found) = self.old_name(*dir, name, &mut errors)? {
                    self.loses_name(*dir, found, &mut errors);
                    match self.get(found) {
                        file if !file.is_dir() => errors.push(Errno::NOTDIR),
                        file if !file.entries.is_empty() => errors.push(Errno::NOTEMPTY),
                        _ => {}
                    }
                }
            }
            Call::Rename { dir, name, to_dir, to_name, how } => {
                self.rename(*dir, name, *to_dir, to_name, *how, &mut errors)?;
            }
            Call::Hold { file } | Call::Stat { file } => {
                self.reachable(*file)?;
            }
            Call::Release { file } => {
                if self.reachable(*file)?.held == 0 {
                    return None;
                }
            }
            Call::Lookup { dir, name } => {
                self.old_name(*dir, name, &mut errors)?;
            }
            Call::ReadDir { dir } => {
                if !self.directory_or_not(*dir)?.is_dir() {
                    errors.push(Errno::NOTDIR);
                }
            }
            Call::ReadLink { file } => {
                if self.reachable(*file)?.kind != Kind::Symlink {
                    errors.push(Errno::INVAL);
                }
            }
            Call::Write { file, offset, len, .. } => {
                let flags = self.reachable(*file)?.flags;
                // On an append-only file, the offset is ignored.
                if flags & APPEND != 0 && *offset != self.get(*file).size {
                    return None;
                }
                self.regular(*file, &mut errors)?;
                flagged(self.get(*file), IMMUTABLE, &mut errors);
                if *len > 0 && *offset >= self.rules.max_size {
                    errors.push(Errno::FBIG);
                }
            }
            Call::Read { file, .. } => self.regular(*file, &mut errors)?,
            Call::Truncate { file, size } => {
                self.regular(*file, &mut errors)?;
                flagged(self.get(*file), KEPT, &mut errors);
                if *size > self.rules.max_size {
                    errors.push(Errno::FBIG);
                }
            }
            Call::Fallocate { file, how, offset, len } => {
                self.regular(*file, &mut errors)?;
                let is_plain = matches!(how, Fallocate::Allocate | Fallocate::KeepSize);
                let bars = if is_plain { IMMUTABLE } else { KEPT };
                flagged(self.get(*file), bars, &mut errors);
                self.fallocate_errors(self.get(*file), *how, *offset, *len, &mut errors);
            }
            Call::SeekData { file, offset } | Call::SeekHole { file, offset } => {
                if self.reachable(*file)?.kind != Kind::File {
                    return None;
                }
                if *offset >= self.get(*file).size {
                    errors.push(Errno::NXIO);
                }
            }
            Call::Fsync { file } | Call::Fdatasync { file } => {
                if !matches!(self.reachable(*file)?.kind, Kind::File | Kind::Directory) {
                    return None;
                }
            }
            Call::SetMode { file, .. } => {
                let file = self.reachable(*file)?;
                if file.kind == Kind::Symlink {
                    return None;
                }
                flagged(file, KEPT, &mut errors);
            }
            Call::SetOwner { file, .. } | Call::SetTimes { file, .. } => {
                flagged(self.reachable(*file)?, KEPT, &mut errors);
            }
            Call::SetXattr { file, name, how, .. } => {
                let file = self.with_xattrs(*file, name)?;
                flagged(file, KEPT, &mut errors);
                match how {
                    XattrHow::Create if file.xattrs.contains_key(name) => errors.push(Errno::EXIST),
                    XattrHow::Replace if !file.xattrs.contains_key(name) => {
                        errors.push(Errno::NODATA);
                    }
                    _ => {}
                }
                if name.len() > MAX_NAME {
                    errors.push(Errno::RANGE);
                }
            }
            Call::RemoveXattr { file, name } => {
                let file = self.with_xattrs(*file, name)?;
                flagged(file, KEPT, &mut errors);
                if !file.xattrs.contains_key(name) {
                    errors.push(Errno::NODATA);
                }
            }
            Call::SetAcl { file, default, .. } => {
                let file = self.reachable(*file)?;
                match file.kind {
                    Kind::Symlink => return None,
                    Kind::Directory => {}
                    _ if *default => errors.push(Errno::ACCESS),
                    _ => {}
                }
                flagged(file, KEPT, &mut errors);
            }
            Call::SetFlags { file, flags } => {
                let file = self.flagged_kind(*file)?;
                if !file.is_dir() && flags & OF_DIRECTORIES != 0 {
                    errors.push(Errno::OPNOTSUPP);
                }
                if file.flags & flags & IMMUTABLE != 0 && file.flags != *flags {
                    errors.push(Errno::PERM);
                }
            }
            Call::SetProject { file, .. } => {
                let file = self.reachable(*file).filter(|_| self.rules.projects)?;
                flagged(file, KEPT, &mut errors);
            }
            Call::Flags { file } => drop(self.flagged_kind(*file)?),
            Call::Extents { file } => {
                let file = self.reachable(*file).filter(|_| self.rules.shows_extents)?;
                if file.kind != Kind::File {
                    return None;
                }
            }
            Call::ReadOn { dir, .. } => {
                let found = self.reachable(*dir)?;
                if !found.is_dir() || found.is_unlinked(*dir) {
                    return None;
                }
            }
            Call::Sync | Call::StatFs | Call::Freeze | Call::Wait { .. } | Call::Reopen => {}
        }
        Some(errors)
    }

    /// A file that a caller can reach: it has a name or is open.
    fn reachable(&self, id: FileId) -> Option<&File> {
        let file = self.file(id)?;
        (!file.is_unlinked(id) || file.held > 0).then_some(file)
    }

    /// A file that is opened to read its flags.
    fn flagged_kind(&self, id: FileId) -> Option<&File> {
        self.reachable(id).filter(|file| matches!(file.kind, Kind::File | Kind::Directory))
    }

    /// Rules for removing a name of `file` in `dir`.
    fn loses_name(&self, dir: FileId, file: FileId, errors: &mut Vec<Errno>) {
        flagged(self.get(dir), KEPT, errors);
        flagged(self.get(file), KEPT, errors);
    }

    /// A directory with project inheritance does not accept files of other projects.
    fn crosses(&self, dir: FileId, file: FileId, errors: &mut Vec<Errno>) {
        let dir = self.get(dir);
        if dir.flags & PROJECT_INHERIT != 0 && dir.project != self.get(file).project {
            errors.push(Errno::XDEV);
        }
    }

    /// A file used as a directory: a path through a symbolic link would lead elsewhere.
    fn directory_or_not(&self, id: FileId) -> Option<&File> {
        self.reachable(id).filter(|file| file.kind != Kind::Symlink)
    }

    fn regular(&self, id: FileId, errors: &mut Vec<Errno>) -> Option<()> {
        match self.reachable(id)?.kind {
            Kind::File => {}
            Kind::Directory => errors.push(Errno::ISDIR),
            _ => return None,
        }
        Some(())
    }

    /// Only files and directories have `user.` attributes; other types are not tested.
    fn with_xattrs(&self, id: FileId, name: &[u8]) -> Option<&File> {
        let file = self.reachable(id)?;
        let takes_user = matches!(file.kind, Kind::File | Kind::Directory);
        (takes_user || !name.starts_with(b"user.")).then_some(file)
    }

    fn new_name(&self, dir: FileId, name: &[u8], errors: &mut Vec<Errno>) -> Option<()> {
        let found = self.directory_or_not(dir)?;
        if !found.is_dir() {
            errors.push(Errno::NOTDIR);
        } else if found.is_unlinked(dir) {
            errors.push(Errno::NOENT);
        } else if found.entries.contains_key(name) {
            errors.push(Errno::EXIST);
        }
        flagged(found, IMMUTABLE, errors);
        if name.len() > MAX_NAME {
            errors.push(Errno::NAMETOOLONG);
        }
        Some(())
    }

    fn old_name(
        &self,
        dir: FileId,
        name: &[u8],
        errors: &mut Vec<Errno>,
    ) -> Option<Option<FileId>> {
        let found = self.directory_or_not(dir)?;
        if name.len() > MAX_NAME {
            errors.push(Errno::NAMETOOLONG);
        }
        if !found.is_dir() {
            errors.push(Errno::NOTDIR);
            return Some(None);
        }
        let file = found.entries.get(name).copied();
        if file.is_none() {
            errors.push(Errno::NOENT);
        }
        Some(file)
    }

    fn rename(
        &self,
        dir: FileId,
        name: &[u8],
        to_dir: FileId,
        to_name: &[u8],
        how: RenameHow,
        errors: &mut Vec<Errno>,
    ) -> Option<()> {
        let source = self.old_name(dir, name, errors)?;
        let into = self.directory_or_not(to_dir)?;
        if !into.is_dir() {
            errors.push(Errno::NOTDIR);
            return Some(());
        }
        if into.is_unlinked(to_dir) {
            errors.push(Errno::NOENT);
        }
        if to_name.len() > MAX_NAME {
            errors.push(Errno::NAMETOOLONG);
        }
        let target = into.entries.get(to_name).copied();
        match (how, target) {
            (RenameHow::NoReplace, Some(_)) => errors.push(Errno::EXIST),
            (RenameHow::Exchange, None) => errors.push(Errno::NOENT),
            _ => {}
        }
        let Some(source) = source else { return Some(()) };
        if target != Some(source) {
            self.loses_name(dir, source, errors);
            flagged(into, IMMUTABLE, errors);
            self.crosses(to_dir, source, errors);
        }
        if self.is_within(to_dir, source) {
            errors.push(Errno::INVAL);
        }
        let Some(target) = target else { return Some(()) };
        if target != source {
            self.loses_name(to_dir, target, errors);
            if how == RenameHow::Exchange {
                self.crosses(dir, target, errors);
            }
        }
        if self.is_within(dir, target) {
            errors.push(if how == RenameHow::Exchange { Errno::INVAL } else { Errno::NOTEMPTY });
        }
        if how == RenameHow::Replace && source != target {
            match (self.get(source).is_dir(), self.get(target).is_dir()) {
                (true, false) => errors.push(Errno::NOTDIR),
                (false, true) => errors.push(Errno::ISDIR),
                (true, true) if !self.get(target).entries.is_empty() => {
                    errors.push(Errno::NOTEMPTY);
                }
                _ => {}
            }
        }
        Some(())
    }

    /// Whether a directory is `top` or below it.
    fn is_within(&self, dir: FileId, top: FileId) -> bool {
        let mut at = dir;
        loop {
            if at == top {
                return true;
            }
            match self.file(at).and_then(|file| file.names.first()) {
                Some((parent, _)) => at = *parent,
                None => return false,
            }
        }
    }

    fn fallocate_errors(
        &self,
        file: &File,
        how: Fallocate,
        offset: u64,
        len: u64,
        errors: &mut Vec<Errno>,
    ) {
        if len == 0 {
            errors.push(Errno::INVAL);
        }
        if offset.saturating_add(len) > self.rules.max_size {
            errors.push(Errno::FBIG);
        }
        if !self.rules.extents && how != Fallocate::Punch {
            errors.push(Errno::OPNOTSUPP);
        }
        let is_aligned =
            offset.is_multiple_of(self.rules.granule) && len.is_multiple_of(self.rules.granule);
        match how {
            Fallocate::Collapse if !is_aligned || offset + len >= file.size => {
                errors.push(Errno::INVAL);
            }
            Fallocate::Insert if !is_aligned || offset >= file.size => errors.push(Errno::INVAL),
            Fallocate::Insert if file.size.saturating_add(len) > self.rules.max_size => {
                errors.push(Errno::FBIG);
            }
            _ => {}
        }
    }

    /// Number of bytes of a write that fit below the maximum size.
    pub(in crate::history) fn writable(&self, offset: u64, len: u64) -> u64 {
        len.min(self.rules.max_size.saturating_sub(offset))
    }

    /// The number of bytes that a write returned, if it is valid.
    pub(super) fn written(&self, offset: u64, len: u64, answer: &Answer) -> Result<u64, String> {
        let all = self.writable(offset, len);
        match answer {
            Answer::Written(count) if *count == all => Ok(all),
            Answer::Written(count) if *count < all && *count > 0 && self.rules.may_fill => {
                Ok(*count)
            }
            other => Err(format!("expected {all} bytes written, found {other:?}")),
        }
    }
}

/// Adds the errors of flags that forbid a call.
fn flagged(file: &File, bars: u32, errors: &mut Vec<Errno>) {
    if file.flags & bars != 0 {
        errors.push(Errno::PERM);
    }
}
