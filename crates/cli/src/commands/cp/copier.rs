//! Copies files of an image to this machine.
//!
//! The image may be anybody's: every name is made relative to the directory that holds it, links
//! are never followed, and what stands in the way is replaced, not written through, when the copy
//! is whole. Only the name of a regular file that the command line gives may be a link to write
//! through, as cp(1) does.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use extant::rooms::image::{AtomicFile, new_name};
use extant::rooms::ondisk::InodeNo;
use extant::rooms::ondisk::inode::FileType;
use extant::rooms::reader::{LoadedInode, VolumeRead};
use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, RawMode, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

use crate::failure::{At, Failure};
use crate::output_file::FileId;
use crate::reader::{Image, Name};
use crate::say;
use crate::session::Session;
use crate::writable_image::umask;

/// Bytes that are read and written at once.
const PIECE: usize = 1 << 20;
/// Number of directories open at once; those above are reopened on the way back.
const OPEN_LEVELS: usize = 64;
/// Why a copy does not take the place of the image that it comes from.
pub(super) const IS_THE_IMAGE: &str = "not overwriting the source image";
/// Longest path, in bytes, by which a first copy is found again.
const LONGEST_PATH: usize = 4095;

/// Attributes that a copy preserves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) preserve: bool,
    /// Hard links among the copied files.
    pub(super) links: bool,
    pub(super) no_clobber: bool,
    pub(super) verbose: bool,
}

/// Where the first copy of a file with several names is.
pub(super) type FirstCopies = HashMap<InodeNo, PathBuf>;

/// Copies files of one image.
pub(super) struct Copier<'i> {
    image: &'i Image,
    rules: Rules,
    is_root: bool,
    copies: &'i mut FirstCopies,
    /// Directories that were copied: a damaged volume may hold loops.
    seen: HashSet<InodeNo>,
    buffer: Vec<u8>,
}

/// A file, where it lies in the image, and where its copy is on this machine.
#[derive(Clone, Copy)]
pub(super) struct Copied<'c> {
    pub(super) file: &'c LoadedInode,
    pub(super) path: &'c [u8],
    pub(super) place: &'c Path,
}

/// A directory that is being filled.
struct Level {
    file: LoadedInode,
    /// Bytes of the way to it, in the image and on this machine.
    path_len: usize,
    place_len: usize,
    /// Device and inode, to check that a reopened directory is the same one.
    identity: (u64, u64),
    /// Still to be copied, the last first.
    names: Vec<Name>,
    /// Whether the directory is new, or its attributes are to be set anyway.
    is_finished: bool,
}

impl<'i> Copier<'i> {
    /// `copies` are those of earlier operands of the same image.
    pub(super) fn new(image: &'i Image, rules: Rules, copies: &'i mut FirstCopies) -> Self {
        let is_root = rustix::process::geteuid().is_root();
        Self { image, rules, is_root, copies, seen: HashSet::new(), buffer: vec![0; PIECE] }
    }

    /// Copies a file, and with `-r` all below it, to `place`. With `into` the place is a directory
    /// that is filled.
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
        let dir = rustix::fs::openat(CWD, parent, DIRECTORY, Mode::empty())
            .map_err(|error| Failure::at(parent, error))?;
        if !file.is_dir() {
            if place.as_os_str().as_bytes().ends_with(b"/") {
                // The existing file is not a directory, so a copy cannot go into it.
                let is_there = place.symlink_metadata().is_ok()
                    || Errno::NOTDIR == rustix::fs::stat(place).err().unwrap_or(Errno::NOENT);
                let why = if is_there { "not a directory" } else { "no such directory" };
                return Err(Failure::at(place, why));
            }
            return self.one((dir.as_fd(), name), Copied { file: &file, path, place }, session);
        }
        let (level, dir) = self.enter(dir.as_fd(), name, file, path, place, session)?;
        self.fill(level, dir, path.to_vec(), place.as_os_str().as_bytes().to_vec(), session)
    }

    /// Copies all that a directory holds, level by level. `path` and `place` lead to the file at
    /// hand, in the image and on this machine.
    fn fill(
        &mut self,
        first: Level,
        dir: OwnedFd,
        mut path: Vec<u8>,
        mut place: Vec<u8>,
        session: &mut Session,
    ) -> Result<(), Failure> {
        let mut levels = vec![first];
        // The last of the levels are open.
        let mut open = VecDeque::from([dir]);
        while let (Some(level), Some(dir)) = (levels.last_mut(), open.back()) {
            path.truncate(level.path_len);
            place.truncate(level.place_len);
            let Some(name) = level.names.pop() else {
                if let (Some(done), Some(dir)) = (levels.pop(), open.pop_back()) {
                    if let Some(above) = levels.last().filter(|_| open.is_empty()) {
                        let above =
                            reopen(&dir, above).map_err(|why| Failure::at(at(&place), why))?;
                        open.push_back(above);
                    }
                    let copied = Copied { file: &done.file, path: &path, place: at(&place) };
                    if done.is_finished {
                        self.finish_directory(dir.as_fd(), copied, session)?;
                    }
                }
                continue;
            };
            extend(&mut path, &name.name);
            if name.name.is_empty() || name.name.iter().any(|byte| matches!(byte, b'/' | 0)) {
                session.error(self.image.failure(&path, "invalid file name"))?;
                continue;
            }
            extend(&mut place, &name.name);
            let file = match self.image.volume.inode(name.inode) {
                Ok(file) => file,
                Err(error) => {
                    session.error(self.image.failure(&path, error))?;
                    continue;
                }
            };
            let (dir, place) = (dir.as_fd(), at(&place));
            let outcome = if file.is_dir() {
                self.enter(dir, &name.name, file, &path, place, session).map(|(level, dir)| {
                    levels.push(level);
                    open.push_back(dir);
                    if open.len() > OPEN_LEVELS {
                        open.pop_front();
                    }
                })
            } else {
                let copied = Copied { file: &file, path: &path, place };
                self.one((dir, &name.name), copied, session)
            };
            if let Err(failure) = outcome {
                session.error(failure)?;
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
    ) -> Result<(Level, OwnedFd), Failure> {
        if !self.seen.insert(file.number) {
            let why = "directory already copied under another name; skipped";
            return Err(self.image.failure(path, why));
        }
        // No other user can read it before it is complete.
        let is_new = match rustix::fs::mkdirat(parent, name, Mode::RWXU) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(Failure::at(place, error)),
        };
        let failed = |error: Errno| Failure::at(place, error);
        let flags = DIRECTORY | OFlags::NOFOLLOW;
        let dir = rustix::fs::openat(parent, name, flags, Mode::empty()).map_err(failed)?;
        let identity = identity(&dir).map_err(failed)?;
        self.tell(Copied { file: &file, path, place }, session)?;
        let (mut names, failures) = self.image.names(file.number, path);
        names.reverse();
        self.image.report(file.number, failures, session)?;
        let level = Level {
            file,
            path_len: path.len(),
            place_len: place.as_os_str().len(),
            identity,
            names,
            is_finished: is_new || self.rules.preserve,
        };
        Ok((level, dir))
    }

    fn finish_directory(
        &self,
        dir: BorrowedFd<'_>,
        copied: Copied<'_>,
        session: &mut Session,
    ) -> Result<(), Failure> {
        if self.rules.preserve {
            return self.keep(&Made::Open(dir), copied, session);
        }
        let permissions = copied.file.permissions() & 0o777 & !umask();
        let mode = Mode::from_raw_mode(RawMode::from(permissions)) | Mode::RWXU;
        rustix::fs::fchmod(dir, mode).map_err(|error| Failure::at(copied.place, error))
    }

    /// Copies a file that is no directory.
    fn one(
        &mut self,
        (dir, name): (BorrowedFd<'_>, &[u8]),
        copied: Copied<'_>,
        session: &mut Session,
    ) -> Result<(), Failure> {
        let Copied { file, place, .. } = copied;
        let failed = |error: Errno| Failure::at(place, error);
        let in_the_way = match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) if self.rules.no_clobber => return Ok(()),
            Ok(found) => {
                let kind = rustix::fs::FileType::from_raw_mode(found.st_mode);
                if kind == rustix::fs::FileType::Directory {
                    return Err(Failure::at(place, "cannot overwrite directory"));
                }
                if self.image.lies_in(FileId::File(found.st_dev, found.st_ino)) {
                    return Err(Failure::at(place, IS_THE_IMAGE));
                }
                true
            }
            Err(Errno::NOENT) => false,
            Err(error) => return Err(failed(error)),
        };
        let target = TargetName { dir, name, in_the_way };
        let has_links = self.rules.links && file.links > 1;
        if let Some(first) = self.copies.get(&file.number).filter(|_| has_links) {
            let link = |name: &[u8]| rustix::fs::linkat(CWD, first, dir, name, AtFlags::empty());
            target.make(link, |_| Ok(()), failed)?;
            return self.tell(copied, session);
        }
        self.make(&target, copied, session)?;
        // Only a copy that is there can be linked to.
        if has_links && place.as_os_str().len() <= LONGEST_PATH {
            self.copies.insert(file.number, place.to_owned());
        } else if has_links {
            let why = "path too long for a hard link; copying";
            session.warn(Failure::at(place, why))?;
        }
        self.tell(copied, session)
    }

    /// Makes the copy itself.
    fn make(
        &mut self,
        target: &TargetName<'_>,
        copied: Copied<'_>,
        session: &mut Session,
    ) -> Result<(), Failure> {
        let Copied { file, path, place } = copied;
        let failed = |error: Errno| Failure::at(place, error);
        let dir = target.dir;
        let special = match file.file_type() {
            FileType::Regular => return self.regular(target, copied, session),
            FileType::Symlink => {
                let to = self.image.volume.read_link(file.number);
                let to = to.map_err(|error| self.image.failure(path, error))?;
                let link = |name: &[u8]| rustix::fs::symlinkat(&to[..], dir, name);
                let keep = |name: &[u8]| self.keep(&Made::Named(dir, name), copied, session);
                return target.make(link, keep, failed);
            }
            FileType::BlockDevice => rustix::fs::FileType::BlockDevice,
            FileType::CharDevice => rustix::fs::FileType::CharacterDevice,
            FileType::Socket => rustix::fs::FileType::Socket,
            _ => rustix::fs::FileType::Fifo,
        };
        let device = file.device().map_or(0, |it| rustix::fs::makedev(it.major, it.minor));
        let mode = Mode::from_raw_mode(RawMode::from(file.permissions() & 0o777));
        let node = |name: &[u8]| rustix::fs::mknodat(dir, name, special, mode, device);
        let keep = |name: &[u8]| self.keep(&Made::Named(dir, name), copied, session);
        target.make(node, keep, failed)
    }

    /// A regular file has its name when it is whole, and what had the name before stays until then.
    fn regular(
        &mut self,
        target: &TargetName<'_>,
        copied: Copied<'_>,
        session: &mut Session,
    ) -> Result<(), Failure> {
        let Copied { file, place, .. } = copied;
        let bits = if self.rules.preserve { 0o600 } else { file.permissions() & 0o777 };
        let made =
            AtomicFile::create_at(target.dir, OsStr::from_bytes(target.name), bits).at(place)?;
        self.contents(copied, made.file())?;
        self.keep(&Made::Open(made.file().as_fd()), copied, session)?;
        made.persist().at(place)
    }

    /// Writes a regular file over one that is there, which a link that the command line names leads
    /// to. As with cp(1) it is cut first: a copy that ends early leaves what it has written.
    pub(super) fn through(
        &mut self,
        copied: Copied<'_>,
        session: &mut Session,
    ) -> Result<(), Failure> {
        self.check_readable(copied)?;
        let made = File::options().write(true).truncate(true).open(copied.place).at(copied.place)?;
        self.contents(copied, &made)?;
        self.keep(&Made::Open(made.as_fd()), copied, session)?;
        self.tell(copied, session)
    }

    /// Refuses a file without contents that could be copied.
    fn check_readable(&self, copied: Copied<'_>) -> Result<(), Failure> {
        match copied.file.is_encrypted() {
            true => Err(self.image.failure(copied.path, "cannot read encrypted contents")),
            false => Ok(()),
        }
    }

    /// Writes the data of a file, its holes left out.
    fn contents(&mut self, copied: Copied<'_>, made: &File) -> Result<(), Failure> {
        let Copied { file, path, place } = copied;
        let of_image = |error| self.image.failure(path, error);
        let of_copy = |error: std::io::Error| Failure::at(place, error);
        self.check_readable(copied)?;
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

    /// Sets what `-p` keeps: the owner first, since that takes other things away; the times last.
    fn keep(
        &self,
        made: &Made<'_>,
        Copied { file, path, place }: Copied<'_>,
        session: &mut Session,
    ) -> Result<(), Failure> {
        if !self.rules.preserve {
            return Ok(());
        }
        let failed = |error: Errno| Failure::at(place, error);
        let is_owned = match made.set_owner(file) {
            Err(Errno::PERM) if !self.is_root => false,
            outcome => {
                outcome.map_err(failed)?;
                true
            }
        };
        if file.file_type() != FileType::Symlink {
            // A file of another owner must not run as the user who copies it.
            let bits = file.permissions() & if is_owned { 0o7777 } else { 0o1777 };
            made.set_mode(Mode::from_raw_mode(bits.into())).map_err(failed)?;
        }
        let of_image = |error| self.image.failure(path, error);
        for info in self.image.volume.xattrs(file.number).map_err(of_image)? {
            let value = self.image.volume.xattr(file.number, &info.name).map_err(of_image)?;
            match made.set_xattr(&info.name, &value) {
                Ok(()) => {}
                // Labels and trusted attributes are root's to set.
                Err(Errno::PERM | Errno::OPNOTSUPP) if !self.is_root => {}
                Err(error) => {
                    let name = crate::output::printable(&info.name);
                    session.error(Failure::at(place, format_args!("{name}: {error}")))?;
                }
            }
        }
        made.set_times(file).map_err(failed)
    }

    fn tell(&self, copied: Copied<'_>, session: &mut Session) -> Result<(), Failure> {
        let Copied { path, place, .. } = copied;
        match self.rules.verbose {
            true => say!(session, "{} -> {}", self.image.place(path), place.display()),
            false => Ok(()),
        }
    }
}

/// Where a copy goes: a name in a directory.
struct TargetName<'p> {
    dir: BorrowedFd<'p>,
    name: &'p [u8],
    /// Whether the name is another file's, which stays until the copy is made.
    in_the_way: bool,
}

impl TargetName<'_> {
    /// Makes what has a name from the beginning. In place of another file it gets the name when it
    /// is done.
    fn make(
        &self,
        make: impl Fn(&[u8]) -> Result<(), Errno>,
        finish: impl FnOnce(&[u8]) -> Result<(), Failure>,
        failed: impl Fn(Errno) -> Failure,
    ) -> Result<(), Failure> {
        if !self.in_the_way {
            make(self.name).map_err(failed)?;
            return finish(self.name);
        }
        let sibling = OsStr::from_bytes(self.name);
        let (made, ()) = new_name(sibling, |name| make(name.as_bytes())).map_err(&failed)?;
        let done = finish(made.as_bytes()).and_then(|()| {
            rustix::fs::renameat(self.dir, &made, self.dir, self.name).map_err(failed)
        });
        // It is still there after a failure, and where both names were of one file.
        let _ = rustix::fs::unlinkat(self.dir, &made, AtFlags::empty());
        done
    }
}

/// A new file, as system calls name it.
enum Made<'f> {
    Open(BorrowedFd<'f>),
    /// A file that cannot be opened: a link, a device.
    Named(BorrowedFd<'f>, &'f [u8]),
}

impl Made<'_> {
    fn set_owner(&self, file: &LoadedInode) -> Result<(), Errno> {
        // All ones is not a valid ID: the system call takes it as "do not change".
        let uid = (file.uid != u32::MAX).then(|| Uid::from_raw(file.uid));
        let gid = (file.gid != u32::MAX).then(|| Gid::from_raw(file.gid));
        match *self {
            Self::Open(made) => rustix::fs::fchown(made, uid, gid),
            Self::Named(dir, name) => {
                rustix::fs::chownat(dir, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)
            }
        }
    }

    /// Not for a link.
    fn set_mode(&self, mode: Mode) -> Result<(), Errno> {
        match *self {
            Self::Open(made) => rustix::fs::fchmod(made, mode),
            Self::Named(dir, name) => rustix::fs::chmodat(dir, name, mode, AtFlags::empty()),
        }
    }

    fn set_xattr(&self, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        match *self {
            Self::Open(made) => rustix::fs::fsetxattr(made, name, value, XattrFlags::empty()),
            Self::Named(dir, file) => {
                // There is no call for an attribute of a name in a directory.
                let mut named = format!("/proc/self/fd/{}/", dir.as_raw_fd()).into_bytes();
                named.extend(file);
                rustix::fs::lsetxattr(&named[..], name, value, XattrFlags::empty())
            }
        }
    }

    fn set_times(&self, file: &LoadedInode) -> Result<(), Errno> {
        let times = times(file);
        match *self {
            Self::Open(made) => rustix::fs::futimens(made, &times),
            Self::Named(dir, name) => {
                rustix::fs::utimensat(dir, name, &times, AtFlags::SYMLINK_NOFOLLOW)
            }
        }
    }
}

/// How directories are opened.
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Opens the directory above again.
fn reopen(below: &OwnedFd, above: &Level) -> Result<OwnedFd, String> {
    let dir = rustix::fs::openat(below, "..", DIRECTORY, Mode::empty());
    let dir = dir.map_err(|error| format!("cannot open parent directory: {error}"))?;
    match identity(&dir) {
        Ok(found) if found == above.identity => Ok(dir),
        _ => Err("moved while being copied".to_owned()),
    }
}

fn identity(dir: &OwnedFd) -> Result<(u64, u64), Errno> {
    rustix::fs::fstat(dir).map(|found| (found.st_dev, found.st_ino))
}

fn extend(path: &mut Vec<u8>, name: &[u8]) {
    if !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}

fn at(place: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(place))
}

fn times(file: &LoadedInode) -> Timestamps {
    let moment = |time: extant::rooms::ondisk::time::Timestamp| Timespec {
        tv_sec: time.seconds,
        // A damaged inode may hold more than a second of them.
        tv_nsec: time.nanoseconds.min(999_999_999).into(),
    };
    Timestamps { last_access: moment(file.atime), last_modification: moment(file.mtime) }
}
