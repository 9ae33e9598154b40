//! The calls of a history, as data.

use super::acl::AclEntry;
use crate::Kind;
use crate::tree::Random;
use std::fmt;

/// A file of a history: the number of the step that creates it. The root is 0.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct FileId(pub u32);

impl FileId {
    /// The root of the tree.
    pub const ROOT: Self = Self(0);
}

impl fmt::Debug for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// A call with its number in the original history.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Step {
    /// Counted from 1; a file created by the call has the [`FileId`] of this number.
    pub number: u32,
    /// The call.
    pub call: Call,
}

/// The credentials with which a file is created.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Credentials {
    /// Owner of the new file.
    pub uid: u32,
    /// Group of the new file, except in a setgid directory.
    pub gid: u32,
    /// Permissions that are removed, except in a directory with a default ACL.
    pub umask: u32,
}

/// A time: seconds since 1970 and nanoseconds.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Moment {
    /// Since 1970, rounded down.
    pub seconds: i64,
    /// Since that second.
    pub nanoseconds: u32,
}

/// The handling of an existing target by rename.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[expect(missing_docs, reason = "the flags of renameat2")]
pub enum RenameHow {
    Replace,
    NoReplace,
    Exchange,
}

/// The handling of an existing attribute by setxattr.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[expect(missing_docs, reason = "the flags of setxattr")]
pub enum XattrHow {
    Any,
    Create,
    Replace,
}

/// The modes of fallocate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[expect(missing_docs, reason = "the modes of fallocate")]
pub enum Fallocate {
    Allocate,
    KeepSize,
    Punch,
    Zero,
    ZeroKeepSize,
    Collapse,
    Insert,
}

/// The type of file that mknod creates.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[expect(missing_docs, reason = "the types of POSIX")]
pub enum NodeKind {
    Fifo,
    Socket,
    CharDevice(u32, u32),
    BlockDevice(u32, u32),
}

impl NodeKind {
    /// The type of the new file.
    pub fn kind(self) -> Kind {
        match self {
            Self::Fifo => Kind::Fifo,
            Self::Socket => Kind::Socket,
            Self::CharDevice(..) => Kind::CharDevice,
            Self::BlockDevice(..) => Kind::BlockDevice,
        }
    }

    /// Its device number.
    pub fn device(self) -> Option<(u32, u32)> {
        match self {
            Self::Fifo | Self::Socket => None,
            Self::CharDevice(major, minor) | Self::BlockDevice(major, minor) => {
                Some((major, minor))
            }
        }
    }
}

/// A call of the file system.
#[derive(Clone, Eq, PartialEq)]
#[expect(
    missing_docs,
    reason = "the calls of POSIX and Linux, their arguments by their usual names"
)]
pub enum Call {
    Create {
        dir: FileId,
        name: Vec<u8>,
        mode: u32,
        credentials: Credentials,
    },
    MakeNode {
        dir: FileId,
        name: Vec<u8>,
        mode: u32,
        node: NodeKind,
        credentials: Credentials,
    },
    MakeDir {
        dir: FileId,
        name: Vec<u8>,
        mode: u32,
        credentials: Credentials,
    },
    Symlink {
        dir: FileId,
        name: Vec<u8>,
        target: Vec<u8>,
        credentials: Credentials,
    },
    /// A file without a name, opened once.
    TempFile {
        dir: FileId,
        mode: u32,
        credentials: Credentials,
    },
    Link {
        file: FileId,
        dir: FileId,
        name: Vec<u8>,
    },
    Unlink {
        dir: FileId,
        name: Vec<u8>,
    },
    RemoveDir {
        dir: FileId,
        name: Vec<u8>,
    },
    Rename {
        dir: FileId,
        name: Vec<u8>,
        to_dir: FileId,
        to_name: Vec<u8>,
        how: RenameHow,
    },
    /// As open: the file exists until it is closed, even after its last name is removed.
    Hold {
        file: FileId,
    },
    Release {
        file: FileId,
    },
    Lookup {
        dir: FileId,
        name: Vec<u8>,
    },
    ReadDir {
        dir: FileId,
    },
    ReadLink {
        file: FileId,
    },
    Stat {
        file: FileId,
    },
    /// The bytes are [`bytes_of`] the seed.
    Write {
        file: FileId,
        offset: u64,
        len: u64,
        seed: u64,
    },
    Read {
        file: FileId,
        offset: u64,
        len: u64,
    },
    Truncate {
        file: FileId,
        size: u64,
    },
    Fallocate {
        file: FileId,
        how: Fallocate,
        offset: u64,
        len: u64,
    },
    SeekData {
        file: FileId,
        offset: u64,
    },
    SeekHole {
        file: FileId,
        offset: u64,
    },
    Fsync {
        file: FileId,
    },
    Fdatasync {
        file: FileId,
    },
    Sync,
    SetMode {
        file: FileId,
        mode: u32,
    },
    SetOwner {
        file: FileId,
        uid: u32,
        gid: u32,
    },
    SetTimes {
        file: FileId,
        atime: Moment,
        mtime: Moment,
    },
    /// The value is [`bytes_of`] the seed.
    SetXattr {
        file: FileId,
        name: Vec<u8>,
        seed: u64,
        len: u64,
        how: XattrHow,
    },
    RemoveXattr {
        file: FileId,
        name: Vec<u8>,
    },
    /// The access list, or the default list of a directory; empty removes it.
    SetAcl {
        file: FileId,
        default: bool,
        acl: Vec<AclEntry>,
    },
    /// Sets these of [`flags`](super::flags), and clears the others.
    SetFlags {
        file: FileId,
        flags: u32,
    },
    SetProject {
        file: FileId,
        project: u32,
    },
    /// Flags and project.
    Flags {
        file: FileId,
    },
    /// The extents from fiemap.
    Extents {
        file: FileId,
    },
    /// Reads the given number of further names of a directory, from the end of the previous such
    /// call.
    ReadOn {
        dir: FileId,
        count: u64,
    },
    StatFs,
    /// Freezes the file system, compares the device's content, and thaws it.
    Freeze,
    /// Waits: milliseconds.
    Wait {
        time: u64,
    },
    /// The file system is closed and opened again; open files without names are deleted.
    Reopen,
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = |credentials: &Credentials| match *credentials == Credentials::default() {
            true => String::new(),
            false => format!(" by {credentials:?}"),
        };
        match self {
            Self::Create { dir, name, mode, credentials } => {
                write!(f, "create {dir:?}/{} {mode:o}{}", short(name), by(credentials))
            }
            Self::MakeNode { dir, name, mode, node, credentials } => {
                write!(f, "mknod {dir:?}/{} {mode:o} {node:?}{}", short(name), by(credentials))
            }
            Self::MakeDir { dir, name, mode, credentials } => {
                write!(f, "mkdir {dir:?}/{} {mode:o}{}", short(name), by(credentials))
            }
            Self::Symlink { dir, name, target, credentials } => {
                write!(f, "symlink {dir:?}/{} to {}{}", short(name), short(target), by(credentials))
            }
            Self::TempFile { dir, mode, credentials } => {
                write!(f, "tmpfile {dir:?} {mode:o}{}", by(credentials))
            }
            Self::Link { file, dir, name } => write!(f, "link {file:?} {dir:?}/{}", short(name)),
            Self::Unlink { dir, name } => write!(f, "unlink {dir:?}/{}", short(name)),
            Self::RemoveDir { dir, name } => write!(f, "rmdir {dir:?}/{}", short(name)),
            Self::Rename { dir, name, to_dir, to_name, how } => {
                let (name, to_name) = (short(name), short(to_name));
                write!(f, "rename {dir:?}/{name} {to_dir:?}/{to_name} {how:?}")
            }
            Self::Hold { file } => write!(f, "hold {file:?}"),
            Self::Release { file } => write!(f, "release {file:?}"),
            Self::Lookup { dir, name } => write!(f, "lookup {dir:?}/{}", short(name)),
            Self::ReadDir { dir } => write!(f, "readdir {dir:?}"),
            Self::ReadLink { file } => write!(f, "readlink {file:?}"),
            Self::Stat { file } => write!(f, "stat {file:?}"),
            Self::Write { file, offset, len, seed } => {
                write!(f, "write {file:?} {offset} + {len} (seed {seed})")
            }
            Self::Read { file, offset, len } => write!(f, "read {file:?} {offset} + {len}"),
            Self::Truncate { file, size } => write!(f, "truncate {file:?} {size}"),
            Self::Fallocate { file, how, offset, len } => {
                write!(f, "fallocate {file:?} {how:?} {offset} + {len}")
            }
            Self::SeekData { file, offset } => write!(f, "seek_data {file:?} {offset}"),
            Self::SeekHole { file, offset } => write!(f, "seek_hole {file:?} {offset}"),
            Self::Fsync { file } => write!(f, "fsync {file:?}"),
            Self::Fdatasync { file } => write!(f, "fdatasync {file:?}"),
            Self::Sync => write!(f, "sync"),
            Self::SetMode { file, mode } => write!(f, "chmod {file:?} {mode:o}"),
            Self::SetOwner { file, uid, gid } => write!(f, "chown {file:?} {uid}:{gid}"),
            Self::SetTimes { file, atime, mtime } => {
                write!(f, "utimes {file:?} {atime:?} {mtime:?}")
            }
            Self::SetXattr { file, name, seed, len, how } => {
                write!(f, "setxattr {file:?} {} {len} bytes (seed {seed}) {how:?}", short(name))
            }
            Self::RemoveXattr { file, name } => write!(f, "removexattr {file:?} {}", short(name)),
            Self::SetAcl { file, default, acl } => {
                write!(f, "setacl {file:?} {} {acl:?}", if *default { "default" } else { "access" })
            }
            Self::SetFlags { file, flags } => write!(f, "chattr {file:?} {flags:#x}"),
            Self::SetProject { file, project } => write!(f, "set_project {file:?} {project}"),
            Self::Flags { file } => write!(f, "lsattr {file:?}"),
            Self::Extents { file } => write!(f, "fiemap {file:?}"),
            Self::ReadOn { dir, count } => write!(f, "readdir {dir:?}, {count} more"),
            Self::StatFs => write!(f, "statfs"),
            Self::Freeze => write!(f, "freeze and thaw"),
            Self::Wait { time } => write!(f, "wait {time} ms"),
            Self::Reopen => write!(f, "reopen"),
        }
    }
}

/// A name as text, without the middle if it is long.
fn short(name: &[u8]) -> String {
    let text = name.escape_ascii().to_string();
    if text.len() <= 40 {
        return text;
    }
    format!("{}..{} ({} bytes)", &text[..16], &text[text.len() - 8..], name.len())
}

/// The attribute of a program's capabilities, which is removed when its data or its owner change.
pub const CAPABILITY: &[u8] = b"security.capability";

/// The value that an attribute is set to: the kernel accepts capabilities in one format only.
pub fn value_of(name: &[u8], seed: u64, len: u64) -> Vec<u8> {
    if name != CAPABILITY {
        return bytes_of(seed, len);
    }
    // Version 2, in effect; permitted and inheritable, in two words each.
    [0x0200_0001, 1 << (seed % 8), 0, 0, 0]
        .iter()
        .flat_map(|word: &u32| word.to_le_bytes())
        .collect()
}

/// The bytes for a seed: no two seeds have a sector in common, and none is all zeros.
pub fn bytes_of(seed: u64, len: u64) -> Vec<u8> {
    Random::new(seed ^ 0x5eed_0000_0000_0000).bytes(usize::try_from(len).expect("calls are small"))
}
