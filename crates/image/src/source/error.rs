//! Errors of a source: they name the archive or path, the entry and the byte.

use std::fmt;
use std::io;

use extant_device::errno;

/// A source cannot be read, or contains something that an ext4 image cannot.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// An entry of an archive, or the archive itself, is broken or cannot be stored.
    #[error("{archive}: {}byte {position}: {flaw}", EntryPrefix(.entry))]
    Archive {
        /// The archive as it was given; for a layer its digest.
        archive: String,
        /// The entry's name, once it is known.
        entry: Option<EntryName>,
        /// Where the entry's header begins, or where reading failed, in the unpacked archive.
        position: u64,
        /// The flaw.
        flaw: Flaw,
    },
    /// A path of a source directory, of an OCI layout, or of the finished tree cannot be stored.
    #[error("{path}: {flaw}")]
    Path {
        /// The path, on the host or in the image.
        path: EntryName,
        /// The flaw.
        flaw: Flaw,
    },
    /// The operating system refused something.
    #[error("{path}: cannot {action}: {source}")]
    Io {
        /// The host's path.
        path: EntryName,
        /// The operation: a verb that follows "cannot".
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// An OCI layout is broken or leaves a choice open.
    #[error("{layout}: {problem}")]
    Oci {
        /// The layout's directory.
        layout: EntryName,
        /// One sentence.
        problem: String,
    },
    /// A line of a file of labels or owners.
    #[error("{path}: line {line}: {problem}")]
    Line {
        /// The file.
        path: EntryName,
        /// From 1.
        line: usize,
        /// One sentence.
        problem: String,
    },
    /// The text of a platform.
    #[error("invalid platform '{0}' (expected OS/ARCHITECTURE[/VARIANT])")]
    Platform(String),
    /// The text of an owner.
    #[error("invalid owner '{0}' (expected UID[:GID])")]
    Owner(String),
    /// A range of a map of owners.
    #[error("invalid owner map '{0}' (expected [u:|g:|b:]FROM:TO[:COUNT])")]
    OwnerMap(String),
    /// A range of a map of owners that has IDs of another range.
    #[error("owner map '{0}' overlaps another one")]
    OwnerRanges(String),
}

impl SourceError {
    /// The number that a system call returns for it (`ENOENT` is 2).
    pub fn errno(&self) -> i32 {
        match self {
            Self::Archive { flaw, .. } | Self::Path { flaw, .. } => flaw.errno(),
            Self::Io { source, .. } => errno::of_io(source),
            Self::Oci { .. }
            | Self::Line { .. }
            | Self::Platform(_)
            | Self::Owner(_)
            | Self::OwnerMap(_)
            | Self::OwnerRanges(_) => errno::EINVAL,
        }
    }

    /// The kind of error in std's words.
    pub fn kind(&self) -> io::ErrorKind {
        errno::kind(self.errno())
    }
}

impl SourceError {
    pub(super) fn io(path: impl Into<EntryName>, action: &'static str, source: io::Error) -> Self {
        Self::Io { path: path.into(), action, source }
    }

    pub(super) fn path(path: impl Into<EntryName>, flaw: Flaw) -> Self {
        Self::Path { path: path.into(), flaw }
    }
}

/// A name as bytes, shown so that control characters and foreign bytes cannot disturb a terminal.
#[derive(Clone, Eq, PartialEq)]
pub struct EntryName(pub Vec<u8>);

impl fmt::Display for EntryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match std::str::from_utf8(&self.0) {
            Ok(text) if !text.chars().any(char::is_control) => f.write_str(text),
            Ok(text) => text.escape_debug().fmt(f),
            Err(_) => self.0.escape_ascii().fmt(f),
        }
    }
}

impl fmt::Debug for EntryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl From<&[u8]> for EntryName {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
}

impl From<Vec<u8>> for EntryName {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl From<&std::path::Path> for EntryName {
    fn from(path: &std::path::Path) -> Self {
        Self(path.as_os_str().as_encoded_bytes().to_vec())
    }
}

struct EntryPrefix<'a>(&'a Option<EntryName>);

impl fmt::Display for EntryPrefix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(name) => write!(f, "entry {name}, "),
            None => Ok(()),
        }
    }
}

/// A flaw of one entry or archive.
#[derive(Debug, thiserror::Error)]
pub enum Flaw {
    /// The archive ends too early.
    #[error("unexpected end of archive in {0}")]
    Truncated(&'static str),
    /// No end-of-archive block.
    #[error("unexpected end of archive: no end-of-archive block")]
    NoEnd,
    /// Not a tar header.
    #[error("header checksum is {found:o}, computed {computed:o}")]
    Checksum {
        /// As stored.
        found: u64,
        /// Over the block.
        computed: u64,
    },
    /// The first block is not a tar header.
    #[error("not a directory, tar archive (plain, gzip, zstd, xz) or OCI layout")]
    NotTar,
    /// The first block is not a tar header, where nothing else is read.
    #[error("unknown format: not a tar archive (plain, gzip, zstd, xz)")]
    NotArchive,
    /// An image where an archive was expected.
    #[error("is an ext2, ext3 or ext4 image, not an archive (use extant export)")]
    FileSystem,
    /// A packed format that is not unpacked here.
    #[error("compression {0} is not supported (decompress it first)")]
    UnknownPacking(&'static str),
    /// Reading or unpacking failed.
    #[error("cannot read: {0}")]
    Read(#[source] io::Error),
    /// The place for the unpacked archive is full.
    #[error("no space left in {directory} for the unpacked contents ({written} bytes written)")]
    SpoolFull {
        /// The directory of the unlinked temporary file.
        directory: EntryName,
        /// Bytes that had found a place.
        written: u64,
    },
    /// The unlinked temporary file cannot be made or written.
    #[error("cannot write the unpacked contents to {directory}: {source}")]
    Spool {
        /// The directory of the file.
        directory: EntryName,
        /// The system's error.
        source: io::Error,
    },
    /// A field is not a number or out of its range.
    #[error("invalid {field}: {text}")]
    Field {
        /// The field's name in the tar or pax format.
        field: &'static str,
        /// The stored bytes.
        text: EntryName,
    },
    /// A pax record does not follow the format.
    #[error("pax record at byte {at} of the extended header is malformed")]
    PaxRecord {
        /// Byte in the extended header's data.
        at: usize,
    },
    /// A pax header or long name larger than any true one.
    #[error("{what} of {size} bytes is larger than the limit of {limit}")]
    TooLarge {
        /// The item that is too large.
        what: &'static str,
        /// As stored.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// A sparse map that does not describe a file.
    #[error("invalid sparse map: {0}")]
    SparseMap(&'static str),
    /// An entry type that is not read.
    #[error("entry type '{}' ({what}) is not supported", .flag.escape_ascii())]
    EntryType {
        /// The type flag.
        flag: u8,
        /// Its meaning.
        what: &'static str,
    },
    /// Extension headers follow each other or the end.
    #[error("an extension header is not followed by an entry")]
    LoneExtension,
    /// No name.
    #[error("the entry has no name")]
    NoName,
    /// A name component longer than ext4 can store.
    #[error("name of {0} bytes: ext4 stores at most 255")]
    NameTooLong(usize),
    /// A NUL byte in a name or target.
    #[error("name has a NUL byte")]
    NulInName,
    /// A `..` component.
    #[error("the path {0} has a '..' component")]
    DotDot(EntryName),
    /// A path runs through a symlink that leaves the tree.
    #[error("path leaves the tree through the symbolic link {0}")]
    OutOfTree(EntryName),
    /// Symlinks lead round.
    #[error("too many symbolic links on the way to {0}")]
    SymlinkLoop(EntryName),
    /// A path runs through a file that is not a directory.
    #[error("parent {0} is not a directory")]
    NotADirectory(EntryName),
    /// A symlink on the way leads nowhere.
    #[error("parent {0} is a dangling symbolic link")]
    DanglingParent(EntryName),
    /// A hard link whose target was not read before it in the same source.
    #[error("hard link to {0}, which is not before it in this source")]
    MissingTarget(EntryName),
    /// A hard link to a directory.
    #[error("hard link to {0}, which is a directory")]
    LinkToDirectory(EntryName),
    /// The root must stay a directory.
    #[error("the root of the tree must be a directory")]
    RootNotDirectory,
    /// A symlink without target, or with one longer than the kernel follows.
    #[error("symbolic link target of {0} bytes: it must have 1 to 4095")]
    TargetLength(usize),
    /// More names than ext4 can count.
    #[error("{0} hard links: ext4 counts at most 65000")]
    TooManyLinks(u32),
    /// A device number past ext4's.
    #[error("device number {major}:{minor}: ext4 stores at most 4095:1048575")]
    DeviceNumber {
        /// As stored.
        major: u64,
        /// As stored.
        minor: u64,
    },
    /// The user or group id that means "none".
    #[error("invalid {field} {id}")]
    OwnerId {
        /// `uid` or `gid`.
        field: &'static str,
        /// As stored or mapped.
        id: u64,
    },
    /// A file larger than ext4's extents can map.
    #[error("file of {0} bytes: ext4 files end at 2^32-1 blocks of 64 KiB")]
    FileTooLarge(u64),
    /// An extended attribute that cannot be stored.
    #[error("extended attribute {name}: {problem}")]
    Xattr {
        /// Its name.
        name: EntryName,
        /// The flaw.
        problem: &'static str,
    },
    /// A POSIX ACL that is not valid.
    #[error("ACL: {0}")]
    Acl(#[from] AclError),
    /// The file is not what it was.
    #[error("file changed as we read it: {before} bytes became {after}")]
    Changed {
        /// Size when the tree was read.
        before: u64,
        /// Size now.
        after: u64,
    },
    /// The file is not of the type it was.
    #[error("file was replaced as we read it")]
    Replaced,
    /// A record of another program has another type for a file.
    #[error("wrong type: {record} has another one for this file")]
    OtherType {
        /// The record.
        record: &'static str,
    },
    /// An attribute of containers is not valid.
    #[error("user.containers.override_stat: invalid value (expected UID:GID:MODE[:TYPE])")]
    OverrideStat,
    /// The image would become part of itself.
    #[error("output image is inside source directory; choose another path")]
    OutputInside,
    /// More than the tree's 32-bit numbers can count.
    #[error("more than {limit} {what} in one tree")]
    TreeLimit {
        /// The counted items.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// A whiteout that names nothing or a place outside.
    #[error("whiteout without a name")]
    Whiteout,
}

impl Flaw {
    /// The number that a system call returns for it (`ENOENT` is 2).
    pub fn errno(&self) -> i32 {
        match self {
            Self::Read(source) | Self::Spool { source, .. } => errno::of_io(source),
            Self::SpoolFull { .. } | Self::TreeLimit { .. } => errno::ENOSPC,
            Self::UnknownPacking(_) | Self::EntryType { .. } => errno::EOPNOTSUPP,
            Self::NameTooLong(_) => errno::ENAMETOOLONG,
            Self::TooManyLinks(_) => errno::EMLINK,
            Self::FileTooLarge(_) => errno::EFBIG,
            Self::MissingTarget(_) | Self::DanglingParent(_) => errno::ENOENT,
            _ => errno::EINVAL,
        }
    }
}

/// A POSIX access control list that is invalid. An entry is as the archive has it.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum AclError {
    /// An entry that must be there once.
    #[error("exactly one {0} entry is required")]
    Base(&'static str),
    /// Named entries without a mask, or with several.
    #[error("named entries require a mask:: entry")]
    Mask,
    /// Two entries of one user or group.
    #[error("duplicate entry for an ID")]
    Twice,
    /// An attribute that is too short for its version.
    #[error("the value has no header")]
    NoHeader,
    /// A version of the attribute that is not 2.
    #[error("version {0} is unknown")]
    Version(u32),
    /// An attribute that is cut off.
    #[error("the value ends inside an entry")]
    Truncated,
    /// An unknown tag of an entry.
    #[error("tag {0:#x} is unknown")]
    Tag(u16),
    /// Permissions of an attribute's entry.
    #[error("permissions {0:#o} are not valid")]
    Bits(u16),
    /// A text that is not UTF-8.
    #[error("the text is not UTF-8")]
    NotText,
    /// An entry without a colon.
    #[error("entry '{0}' has no fields")]
    NoFields(String),
    /// An entry without permissions.
    #[error("entry '{0}' has no permissions")]
    NoPermissions(String),
    /// An entry with more than four fields.
    #[error("entry '{0}' has too many fields")]
    TooManyFields(String),
    /// An entry of an unknown kind.
    #[error("unknown type of entry '{0}'")]
    Kind(String),
    /// An entry whose owner has only a name.
    #[error(
        "entry '{0}' has a name instead of a numeric ID: make the archive with tar --xattrs --xattrs-include='*' instead of --acls"
    )]
    NoNumber(String),
    /// Permissions of an entry.
    #[error("permissions of '{0}' are not valid")]
    Permissions(String),
    /// A list of the kind of NFSv4.
    #[error("ext4 has no NFSv4 ACLs (SCHILY.acl.ace)")]
    Nfs4,
}
