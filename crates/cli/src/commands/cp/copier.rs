//! Files of an image made anew on this machine.
//!
//! The image may be anybody's: every name is made relative to the directory that holds it, links are never followed, and what
//! stands in the way is removed, not written through.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use extant_ondisk::InodeNo;
use extant_ondisk::inode::FileType;
use extant_volume::LoadedInode;
use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, RawMode, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

use crate::failure::Failure;
use crate::reader::{Image, Name, join};
use crate::say;
use crate::session::Session;

/// Bytes that are read and written at once.
const PIECE: usize = 1 << 20;

/// What a copy keeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) recursive: bool,
    pub(super) preserve: bool,
    /// Hard links among the copied files.
    pub(super) links: bool,
    pub(super) no_clobber: bool,
    pub(super) verbose: bool,
}

/// Copies files of one image.
pub(super) struct Copier<'i> {
    image: &'i Image,
    rules: Rules,
    is_root: bool,
    /// Where the first copy of a file with several names is.
    copies: HashMap<InodeNo, PathBuf>,
    /// Directories that were copied: a damaged volume may hold loops.
    seen: HashSet<InodeNo>,
    buffer: Vec<u8>,
}

/// A directory that is being filled.
struct Level {
    dir: OwnedFd,
    file: LoadedInode,
    /// In the image.
    path: Vec<u8>,
    /// On this machine.
    place: PathBuf,
    /// Still to be copied, the last first.
    names: Vec<Name>,
    /// Whether the directory is new, or its attributes are to be set anyway.
    is_finished: bool,
}

impl<'i> Copier<'i> {
    pub(super) fn new(image: &'i Image, rules: Rules) -> Self {
        Self {
            image,
            rules,
            is_root: rustix::process::geteuid().is_root(),
            copies: HashMap::new(),
            seen: HashSet::new(),
            buffer: vec![0; PIECE],
        }
    }

    /// Copies a file, and with `-r` all below it, to `place`. With `into` the place is a directory that is filled.
    pub(super) fn copy(
        &mut self,
        file: LoadedInode,
        path: &[u8],
        place: &Path,
        session: &mut Session,
    ) -> Result<(), Failure> {
        let (parent, name) = match (place.parent(), place.file_name()) {
            (Some(parent), Some(name)) => (parent, name.as_bytes()),
            // `.`, `..`, `/`: a directory that is there.
            _ => (place, &b"."[..]),
        };
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(CWD, parent, flags, Mode::empty())
            .map_err(|error| Failure::at(parent, error))?;
        if !file.is_dir() {
            return self.one(dir.as_fd(), name, &file, path, place, session);
        }
        let Some(level) = self.enter(dir.as_fd(), name, file, path, place, session)? else {
            return Ok(());
        };
        self.fill(level, session)
    }

    /// Copies all that a directory holds, level by level.
    fn fill(&mut self, first: Level, session: &mut Session) -> Result<(), Failure> {
        let mut levels = vec![first];
        while let Some(level) = levels.last_mut() {
            let Some(name) = level.names.pop() else {
                if let Some(done) = levels.pop() {
                    self.finish_directory(&done, session)?;
                }
                continue;
            };
            let path = join(&level.path, &name.name);
            let place = level.place.join(std::ffi::OsStr::from_bytes(&name.name));
            if name.name.is_empty() || name.name.iter().any(|byte| matches!(byte, b'/' | 0)) {
                session.complain(self.image.failure(&path, "not a name that a file may have"))?;
                continue;
            }
            let file = match self.image.volume.inode(name.inode) {
                Ok(file) => file,
                Err(error) => {
                    session.complain(self.image.failure(&path, error))?;
                    continue;
                }
            };
            let dir = level.dir.as_fd();
            if file.is_dir() {
                match self.enter(dir, &name.name, file, &path, &place, session) {
                    Ok(Some(level)) => levels.push(level),
                    Ok(None) => {}
                    Err(failure) => session.complain(failure)?,
                }
            } else if let Err(failure) = self.one(dir, &name.name, &file, &path, &place, session) {
                session.complain(failure)?;
            }
        }
        Ok(())
    }

    /// Makes or opens a directory.
    fn enter(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &[u8],
        file: LoadedInode,
        path: &[u8],
        place: &Path,
        session: &mut Session,
    ) -> Result<Option<Level>, Failure> {
        if !self.seen.insert(file.number) {
            let why = "the directory has two names: not copied again";
            return Err(self.image.failure(path, why));
        }
        // Nobody else looks in before it is done.
        let is_new = match rustix::fs::mkdirat(parent, name, Mode::RWXU) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(Failure::at(place, error)),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(parent, name, flags, Mode::empty())
            .map_err(|error| Failure::at(place, error))?;
        self.tell(path, place, session)?;
        let (mut names, failure) = self.image.names(file.number, path);
        names.reverse();
        if let Some(failure) = failure {
            session.complain(failure)?;
        }
        Ok(Some(Level {
            dir,
            file,
            path: path.to_vec(),
            place: place.to_owned(),
            names,
            is_finished: is_new || self.rules.preserve,
        }))
    }

    fn finish_directory(&self, level: &Level, session: &mut Session) -> Result<(), Failure> {
        if !level.is_finished {
            return Ok(());
        }
        let failed = |error: Errno| Failure::at(&level.place, error);
        if self.rules.preserve {
            self.keep_on(level.dir.as_fd(), &level.file, &level.path, &level.place, session)?;
            return Ok(());
        }
        let mode = Mode::from_raw_mode(RawMode::from(level.file.permissions() & 0o777 & !umask()));
        rustix::fs::fchmod(&level.dir, mode | Mode::RWXU).map_err(failed)
    }

    /// Copies a file that is no directory.
    fn one(
        &mut self,
        dir: BorrowedFd<'_>,
        name: &[u8],
        file: &LoadedInode,
        path: &[u8],
        place: &Path,
        session: &mut Session,
    ) -> Result<(), Failure> {
        let failed = |error: Errno| Failure::at(place, error);
        match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) if self.rules.no_clobber => return Ok(()),
            Ok(found) => match rustix::fs::FileType::from_raw_mode(found.st_mode) {
                rustix::fs::FileType::Directory => {
                    return Err(Failure::at(place, "a directory is in the way"));
                }
                _ => rustix::fs::unlinkat(dir, name, AtFlags::empty()).map_err(failed)?,
            },
            Err(Errno::NOENT) => {}
            Err(error) => return Err(failed(error)),
        }
        if self.rules.links && file.links > 1 {
            if let Some(first) = self.copies.get(&file.number) {
                rustix::fs::linkat(CWD, first, dir, name, AtFlags::empty()).map_err(failed)?;
                return self.tell(path, place, session);
            }
            self.copies.insert(file.number, place.to_owned());
        }
        match file.file_type() {
            FileType::Regular => self.regular(dir, name, file, path, place, session)?,
            FileType::Symlink => {
                let target = self.image.volume.read_link(file.number);
                let target = target.map_err(|error| self.image.failure(path, error))?;
                rustix::fs::symlinkat(&target[..], dir, name).map_err(failed)?;
                self.keep_beside(dir, name, file, path, place, session)?;
            }
            special => {
                let kind = match special {
                    FileType::BlockDevice => rustix::fs::FileType::BlockDevice,
                    FileType::CharDevice => rustix::fs::FileType::CharacterDevice,
                    FileType::Socket => rustix::fs::FileType::Socket,
                    _ => rustix::fs::FileType::Fifo,
                };
                let device = file.device().map_or(0, |it| rustix::fs::makedev(it.major, it.minor));
                let mode = Mode::from_raw_mode(RawMode::from(file.permissions() & 0o777));
                rustix::fs::mknodat(dir, name, kind, mode, device).map_err(failed)?;
                self.keep_beside(dir, name, file, path, place, session)?;
            }
        }
        self.tell(path, place, session)
    }

    fn regular(
        &mut self,
        dir: BorrowedFd<'_>,
        name: &[u8],
        file: &LoadedInode,
        path: &[u8],
        place: &Path,
        session: &mut Session,
    ) -> Result<(), Failure> {
        let bits = if self.rules.preserve { 0o600 } else { file.permissions() & 0o777 };
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(bits.into()))
            .map_err(|error| Failure::at(place, error))?;
        let made = File::from(made);
        self.contents(file, path, &made, place)?;
        if self.rules.preserve {
            self.keep_on(made.as_fd(), file, path, place, session)?;
        }
        Ok(())
    }

    /// Writes the data of a file, its holes left out.
    fn contents(
        &mut self,
        file: &LoadedInode,
        path: &[u8],
        made: &File,
        place: &Path,
    ) -> Result<(), Failure> {
        let of_image = |error| self.image.failure(path, error);
        let of_copy = |error: std::io::Error| Failure::at(place, error);
        if file.is_encrypted() {
            return Err(self.image.failure(path, "encrypted: the contents cannot be read"));
        }
        let segments = self.image.volume.data_segments(file.number).map_err(of_image)?;
        for segment in segments {
            let segment = segment.map_err(of_image)?;
            let mut at = segment.start;
            while at < segment.end {
                let len = (segment.end - at).min(PIECE as u64) as usize;
                let piece = &mut self.buffer[..len];
                let count = self.image.volume.read_loaded(file, at, piece).map_err(of_image)?;
                if count == 0 {
                    break;
                }
                made.write_all_at(&piece[..count], at).map_err(of_copy)?;
                at += count as u64;
            }
        }
        made.set_len(file.size).map_err(of_copy)
    }

    /// Sets what `-p` keeps on a file that is open: the owner first, since that takes other things away; the times last.
    fn keep_on(
        &self,
        made: BorrowedFd<'_>,
        file: &LoadedInode,
        path: &[u8],
        place: &Path,
        session: &mut Session,
    ) -> Result<(), Failure> {
        let failed = |error: Errno| Failure::at(place, error);
        let (uid, gid) = owner(file);
        let is_owned = match rustix::fs::fchown(made, uid, gid) {
            Err(Errno::PERM) if !self.is_root => false,
            outcome => {
                outcome.map_err(failed)?;
                true
            }
        };
        // Nobody else's file is run in the name of whoever copies it.
        let bits = file.permissions() & if is_owned { 0o7777 } else { 0o1777 };
        rustix::fs::fchmod(made, Mode::from_raw_mode(bits.into())).map_err(failed)?;
        self.keep_xattrs(file, path, place, session, |name, value| {
            rustix::fs::fsetxattr(made, name, value, XattrFlags::empty())
        })?;
        rustix::fs::futimens(made, &times(file)).map_err(failed)
    }

    /// The same for what cannot be opened: links, devices.
    fn keep_beside(
        &self,
        dir: BorrowedFd<'_>,
        name: &[u8],
        file: &LoadedInode,
        path: &[u8],
        place: &Path,
        session: &mut Session,
    ) -> Result<(), Failure> {
        if !self.rules.preserve {
            return Ok(());
        }
        let failed = |error: Errno| Failure::at(place, error);
        let (uid, gid) = owner(file);
        match rustix::fs::chownat(dir, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::PERM) if !self.is_root => {}
            outcome => outcome.map_err(failed)?,
        }
        if file.file_type() != FileType::Symlink {
            let mode = Mode::from_raw_mode(file.permissions().into());
            rustix::fs::chmodat(dir, name, mode, AtFlags::empty()).map_err(failed)?;
        }
        // There is no call for an attribute of a name in a directory.
        let mut named = format!("/proc/self/fd/{}/", dir.as_raw_fd()).into_bytes();
        named.extend(name);
        self.keep_xattrs(file, path, place, session, |xattr, value| {
            rustix::fs::lsetxattr(&named[..], xattr, value, XattrFlags::empty())
        })?;
        rustix::fs::utimensat(dir, name, &times(file), AtFlags::SYMLINK_NOFOLLOW).map_err(failed)
    }

    fn keep_xattrs(
        &self,
        file: &LoadedInode,
        path: &[u8],
        place: &Path,
        session: &mut Session,
        set: impl Fn(&[u8], &[u8]) -> Result<(), Errno>,
    ) -> Result<(), Failure> {
        let of_image = |error| self.image.failure(path, error);
        for info in self.image.volume.xattrs(file.number).map_err(of_image)? {
            let value = self.image.volume.xattr(file.number, &info.name).map_err(of_image)?;
            match set(&info.name, &value) {
                Ok(()) => {}
                // Labels and trusted attributes are root's to set.
                Err(Errno::PERM | Errno::OPNOTSUPP) if !self.is_root => {}
                Err(error) => {
                    let name = crate::output::printable(&info.name);
                    session.complain(Failure::at(place, format_args!("{name}: {error}")))?;
                }
            }
        }
        Ok(())
    }

    fn tell(&self, path: &[u8], place: &Path, session: &mut Session) -> Result<(), Failure> {
        match self.rules.verbose {
            true => say!(session, "{} -> {}", self.image.place(path), place.display()),
            false => Ok(()),
        }
    }
}

fn owner(file: &LoadedInode) -> (Option<Uid>, Option<Gid>) {
    // All ones means "leave it" to the system call, and is nobody's number.
    let uid = (file.uid != u32::MAX).then(|| Uid::from_raw(file.uid));
    let gid = (file.gid != u32::MAX).then(|| Gid::from_raw(file.gid));
    (uid, gid)
}

fn times(file: &LoadedInode) -> Timestamps {
    let moment = |time: extant_ondisk::time::Timestamp| Timespec {
        tv_sec: time.seconds,
        // A damaged inode may hold more than a second of them.
        tv_nsec: time.nanoseconds.min(999_999_999).into(),
    };
    Timestamps { last_access: moment(file.atime), last_modification: moment(file.mtime) }
}

/// The bits that new files of this process lack.
fn umask() -> u16 {
    let mask = rustix::process::umask(Mode::empty());
    rustix::process::umask(mask);
    // At most nine bits.
    (mask.as_raw_mode() & 0o777) as u16
}
