//! The subject for system calls: a mounted directory.

use super::acl::to_xattr;
use super::flags;
use super::{
    Answer, Attributes, Call, Credentials, Fallocate, FileId, Model, Moment, NodeKind, RenameHow,
    Step, Subject, XattrHow, bytes_of, value_of,
};
use crate::{Kind, tool};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Gid, IFlags, Mode, OFlags, RenameFlags, SeekFrom, Stat,
    Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A directory on which histories are replayed by system calls, as root. Root creates all files: a
/// history with other creators cannot be used.
#[derive(Debug)]
pub struct Mounted {
    root: PathBuf,
    held: HashMap<FileId, Vec<OwnedFd>>,
    /// The positions at which reads of directories stopped.
    cookies: HashMap<FileId, u64>,
}

impl Mounted {
    /// The root of a mounted volume.
    pub fn new(root: &Path) -> Self {
        // The umask is that of each step.
        rustix::process::umask(Mode::empty());
        Self { root: root.to_owned(), held: HashMap::new(), cookies: HashMap::new() }
    }

    /// The path of a file: a name, or else a descriptor.
    fn path(&self, id: FileId, model: &Model) -> PathBuf {
        match model.path(id) {
            Some(path) => self.root.join(OsString::from_vec(path)),
            None => {
                let held = self.held.get(&id).and_then(|held| held.first());
                let held = held.unwrap_or_else(|| panic!("{id:?} has no name and no open handle"));
                PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()))
            }
        }
    }

    fn name(&self, dir: FileId, name: &[u8], model: &Model) -> PathBuf {
        self.path(dir, model).join(OsStr::from_bytes(name))
    }

    fn open(&self, id: FileId, model: &Model, flags: OFlags) -> Result<OwnedFd, Errno> {
        rustix::fs::open(self.path(id, model), flags | OFlags::CLOEXEC, Mode::empty())
    }

    fn writable(&self, id: FileId, model: &Model) -> Result<OwnedFd, Errno> {
        let appends = model.file(id).is_some_and(|file| file.flags & flags::APPEND != 0);
        let flags = if appends { OFlags::RDWR | OFlags::APPEND } else { OFlags::RDWR };
        self.open(id, model, flags)
    }

    /// Reads more names of a directory, from the end of the previous call.
    fn read_on(&mut self, id: FileId, count: u64, model: &Model) -> Result<Answer, Errno> {
        let dir = self.open(id, model, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut cookie = self.cookies.remove(&id).unwrap_or(0);
        rustix::fs::seek(&dir, SeekFrom::Start(cookie))?;
        let mut names = Vec::new();
        let mut buffer = Vec::with_capacity(32 << 10);
        let mut entries = rustix::fs::RawDir::new(&dir, buffer.spare_capacity_mut());
        while (names.len() as u64) < count {
            let Some(entry) = entries.next() else {
                return Ok(Answer::NamesRead { names, is_end: true });
            };
            let entry = entry?;
            cookie = entry.next_entry_cookie();
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") {
                names.push(name.to_vec());
            }
        }
        self.cookies.insert(id, cookie);
        Ok(Answer::NamesRead { names, is_end: false })
    }

    /// Freezes and thaws, if the tool for it exists.
    fn freeze(&self) -> Result<Answer, Errno> {
        if let Some(fsfreeze) = tool("fsfreeze") {
            for what in ["-f", "-u"] {
                let done = fsfreeze.run([OsStr::new(what), self.root.as_os_str()]);
                if !done.status.success() {
                    return Ok(Answer::Differences(vec![format!("fsfreeze {what}: {done:?}")]));
                }
            }
        }
        Ok(Answer::Differences(Vec::new()))
    }

    /// A file without delayed data: the kernel (6.18) reports delayed data of block-mapped files as
    /// a hole.
    fn resolved(&self, id: FileId, model: &Model) -> Result<OwnedFd, Errno> {
        let file = self.open(id, model, OFlags::RDONLY)?;
        rustix::fs::fsync(&file)?;
        Ok(file)
    }

    fn hold(&mut self, id: FileId, model: &Model) -> Result<(), Errno> {
        let flags = match model.file(id).map(|file| file.kind) {
            Some(Kind::File | Kind::Directory) => OFlags::RDONLY,
            _ => OFlags::PATH | OFlags::NOFOLLOW,
        };
        let held = self.open(id, model, flags)?;
        self.held.entry(id).or_default().push(held);
        Ok(())
    }

    /// Attributes are set on files without a name through the link that /proc has, which must be
    /// followed.
    fn attribute_path(&self, id: FileId, model: &Model) -> (PathBuf, bool) {
        (self.path(id, model), model.path(id).is_some())
    }

    fn set_xattr(
        &self,
        file: FileId,
        name: &[u8],
        value: &[u8],
        how: XattrHow,
        model: &Model,
    ) -> Result<(), Errno> {
        let flags = match how {
            XattrHow::Any => XattrFlags::empty(),
            XattrHow::Create => XattrFlags::CREATE,
            XattrHow::Replace => XattrFlags::REPLACE,
        };
        match self.attribute_path(file, model) {
            (path, true) => rustix::fs::lsetxattr(path, name, value, flags),
            (path, false) => rustix::fs::setxattr(path, name, value, flags),
        }
    }

    fn remove_xattr(&self, file: FileId, name: &[u8], model: &Model) -> Result<(), Errno> {
        match self.attribute_path(file, model) {
            (path, true) => rustix::fs::lremovexattr(path, name),
            (path, false) => rustix::fs::removexattr(path, name),
        }
    }

    fn stat(&self, path: &Path, follow: bool) -> Result<Answer, Errno> {
        let flags = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        Ok(Answer::Attributes(attributes(&rustix::fs::statat(CWD, path, flags)?)))
    }
}

impl Subject for Mounted {
    fn now(&self) -> Moment {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.expect("the clock is past 1970");
        Moment { seconds: now.as_secs() as i64, nanoseconds: now.subsec_nanos() }
    }

    fn perform(&mut self, step: &Step, model: &Model) -> Result<Answer, Errno> {
        match &step.call {
            Call::Create { dir, name, mode, credentials } => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
                let mode = masked(*mode, credentials, *dir, model);
                drop(rustix::fs::open(self.name(*dir, name, model), flags, mode)?);
            }
            Call::MakeNode { dir, name, mode, node, credentials } => {
                let path = self.name(*dir, name, model);
                let device = node.device().unwrap_or((0, 0));
                let device = rustix::fs::makedev(device.0, device.1);
                let mode = masked(*mode, credentials, *dir, model);
                rustix::fs::mknodat(CWD, path, file_type(*node), mode, device)?;
            }
            Call::MakeDir { dir, name, mode, credentials } => {
                let mode = masked(*mode, credentials, *dir, model);
                rustix::fs::mkdir(self.name(*dir, name, model), mode)?;
            }
            Call::Symlink { dir, name, target, .. } => {
                rustix::fs::symlink(OsStr::from_bytes(target), self.name(*dir, name, model))?;
            }
            Call::TempFile { dir, mode, credentials } => {
                let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
                let mode = masked(*mode, credentials, *dir, model);
                let made = rustix::fs::open(self.path(*dir, model), flags, mode)?;
                self.held.entry(FileId(step.number)).or_default().push(made);
            }
            Call::Link { file, dir, name } => {
                let (path, has_name) = self.attribute_path(*file, model);
                let flags = if has_name { AtFlags::empty() } else { AtFlags::SYMLINK_FOLLOW };
                rustix::fs::linkat(CWD, path, CWD, self.name(*dir, name, model), flags)?;
            }
            Call::Unlink { dir, name } => rustix::fs::unlink(self.name(*dir, name, model))?,
            Call::RemoveDir { dir, name } => rustix::fs::rmdir(self.name(*dir, name, model))?,
            Call::Rename { dir, name, to_dir, to_name, how } => {
                let flags = match how {
                    RenameHow::Replace => RenameFlags::empty(),
                    RenameHow::NoReplace => RenameFlags::NOREPLACE,
                    RenameHow::Exchange => RenameFlags::EXCHANGE,
                };
                let (from, to) = (self.name(*dir, name, model), self.name(*to_dir, to_name, model));
                rustix::fs::renameat_with(CWD, from, CWD, to, flags)?;
            }
            Call::Hold { file } => self.hold(*file, model)?,
            Call::Release { file } => drop(self.held.get_mut(file).and_then(Vec::pop)),
            Call::Lookup { dir, name } => return self.stat(&self.name(*dir, name, model), false),
            Call::ReadDir { dir } => {
                let dir = self.open(*dir, model, OFlags::RDONLY | OFlags::DIRECTORY)?;
                let mut names = Vec::new();
                for entry in rustix::fs::Dir::read_from(dir)? {
                    names.push(entry?.file_name().to_bytes().to_vec());
                }
                names.retain(|name| !matches!(&name[..], b"." | b".."));
                names.sort();
                return Ok(Answer::Names(names));
            }
            Call::ReadLink { file } => {
                // A symbolic link without a name is read through its descriptor: /proc's own link
                // has another target.
                let target = match self.held.get(file).and_then(|held| held.first()) {
                    Some(held) if model.path(*file).is_none() => {
                        rustix::fs::readlinkat(held, "", Vec::new())?
                    }
                    _ => rustix::fs::readlink(self.path(*file, model), Vec::new())?,
                };
                return Ok(Answer::Bytes(target.into_bytes()));
            }
            Call::Stat { file } => {
                let (path, has_name) = self.attribute_path(*file, model);
                return self.stat(&path, !has_name);
            }
            Call::Write { file, offset, len, seed } => {
                let bytes = bytes_of(*seed, *len);
                let written = rustix::io::pwrite(self.writable(*file, model)?, &bytes, *offset)?;
                return Ok(Answer::Written(written as u64));
            }
            Call::Read { file, offset, len } => {
                let file = self.open(*file, model, OFlags::RDONLY)?;
                let mut bytes = vec![0; *len as usize];
                let count = rustix::io::pread(file, &mut bytes, *offset)?;
                bytes.truncate(count);
                return Ok(Answer::Bytes(bytes));
            }
            Call::Truncate { file, size } => {
                rustix::fs::ftruncate(self.writable(*file, model)?, *size)?;
            }
            Call::Fallocate { file, how, offset, len } => {
                let file = self.writable(*file, model)?;
                rustix::fs::fallocate(file, fallocate_flags(*how), *offset, *len)?;
            }
            Call::SeekData { file, offset } => {
                let file = self.resolved(*file, model)?;
                return Ok(Answer::Offset(rustix::fs::seek(file, SeekFrom::Data(*offset))?));
            }
            Call::SeekHole { file, offset } => {
                let file = self.resolved(*file, model)?;
                return Ok(Answer::Offset(rustix::fs::seek(file, SeekFrom::Hole(*offset))?));
            }
            Call::Fsync { file } => rustix::fs::fsync(self.open(*file, model, OFlags::RDONLY)?)?,
            Call::Fdatasync { file } => {
                rustix::fs::fdatasync(self.open(*file, model, OFlags::RDONLY)?)?;
            }
            Call::Sync => {
                rustix::fs::syncfs(self.open(FileId::ROOT, model, OFlags::RDONLY)?)?;
            }
            Call::SetMode { file, mode } => {
                rustix::fs::chmod(self.path(*file, model), Mode::from_raw_mode(*mode))?;
            }
            Call::SetOwner { file, uid, gid } => {
                let (path, has_name) = self.attribute_path(*file, model);
                let flags = if has_name { AtFlags::SYMLINK_NOFOLLOW } else { AtFlags::empty() };
                let (uid, gid) = (Some(Uid::from_raw(*uid)), Some(Gid::from_raw(*gid)));
                rustix::fs::chownat(CWD, path, uid, gid, flags)?;
            }
            Call::SetTimes { file, atime, mtime } => {
                let (path, has_name) = self.attribute_path(*file, model);
                let flags = if has_name { AtFlags::SYMLINK_NOFOLLOW } else { AtFlags::empty() };
                let time = |moment: Moment| Timespec {
                    tv_sec: moment.seconds,
                    tv_nsec: i64::from(moment.nanoseconds),
                };
                let times =
                    Timestamps { last_access: time(*atime), last_modification: time(*mtime) };
                rustix::fs::utimensat(CWD, path, &times, flags)?;
            }
            Call::SetXattr { file, name, seed, len, how } => {
                self.set_xattr(*file, name, &value_of(name, *seed, *len), *how, model)?;
            }
            Call::RemoveXattr { file, name } => self.remove_xattr(*file, name, model)?,
            Call::SetAcl { file, default, acl } => {
                let name: &[u8] = match default {
                    true => b"system.posix_acl_default",
                    false => b"system.posix_acl_access",
                };
                if acl.is_empty() {
                    match self.remove_xattr(*file, name, model) {
                        Err(Errno::NODATA) => {}
                        outcome => outcome?,
                    }
                } else {
                    self.set_xattr(*file, name, &to_xattr(acl), XattrHow::Any, model)?;
                }
            }
            Call::SetFlags { file, flags } => {
                let file = self.open(*file, model, OFlags::RDONLY)?;
                let others = rustix::fs::ioctl_getflags(&file)?.bits() & !flags::ALL;
                rustix::fs::ioctl_setflags(&file, IFlags::from_bits_retain(others | flags))?;
            }
            Call::Flags { file } => {
                let file = self.open(*file, model, OFlags::RDONLY)?;
                let flags = rustix::fs::ioctl_getflags(&file)?.bits() & flags::ALL;
                return Ok(Answer::Flags { flags, project: None });
            }
            // The kernel is not used as the subject for projects and for the blocks of files.
            Call::SetProject { .. } | Call::Extents { .. } => return Err(Errno::NOSYS),
            Call::ReadOn { dir, count } => return self.read_on(*dir, *count, model),
            Call::Freeze => return self.freeze(),
            Call::StatFs => {
                let found = rustix::fs::statvfs(&self.root)?;
                return Ok(Answer::InodesUsed(found.f_files - found.f_ffree));
            }
            // Long enough to distinguish timestamps before and after.
            Call::Wait { .. } => std::thread::sleep(Duration::from_millis(15)),
            // A mount ends with its owner; an open file does not survive reopening the volume.
            Call::Reopen => self.held.clear(),
        }
        Ok(Answer::Done)
    }
}

/// The kernel ignores the umask if the directory has a default list; the process's umask is zero.
fn masked(mode: u32, credentials: &Credentials, dir: FileId, model: &Model) -> Mode {
    let has_default = model.file(dir).is_some_and(|dir| !dir.default_acl.is_empty());
    Mode::from_raw_mode(if has_default { mode } else { mode & !credentials.umask })
}

fn file_type(node: NodeKind) -> FileType {
    match node {
        NodeKind::Fifo => FileType::Fifo,
        NodeKind::Socket => FileType::Socket,
        NodeKind::CharDevice(..) => FileType::CharacterDevice,
        NodeKind::BlockDevice(..) => FileType::BlockDevice,
    }
}

fn fallocate_flags(how: Fallocate) -> FallocateFlags {
    match how {
        Fallocate::Allocate => FallocateFlags::empty(),
        Fallocate::KeepSize => FallocateFlags::KEEP_SIZE,
        Fallocate::Punch => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        Fallocate::Zero => FallocateFlags::ZERO_RANGE,
        Fallocate::ZeroKeepSize => FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
        Fallocate::Collapse => FallocateFlags::COLLAPSE_RANGE,
        Fallocate::Insert => FallocateFlags::INSERT_RANGE,
    }
}

fn attributes(stat: &Stat) -> Attributes {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink,
        FileType::BlockDevice => Kind::BlockDevice,
        FileType::CharacterDevice => Kind::CharDevice,
        FileType::Fifo => Kind::Fifo,
        _ => Kind::Socket,
    };
    let moment = |seconds, nanoseconds: u64| Moment { seconds, nanoseconds: nanoseconds as u32 };
    Attributes {
        kind,
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        size: match kind {
            Kind::File | Kind::Symlink => stat.st_size as u64,
            _ => 0,
        },
        links: stat.st_nlink,
        mtime: moment(stat.st_mtime, stat.st_mtime_nsec),
        ctime: moment(stat.st_ctime, stat.st_ctime_nsec),
    }
}
