//! The messages of FUSE as the kernel lays them out (`include/uapi/linux/fuse.h`, protocol 7.31 to
//! 7.45): in the host's byte order, padded to eight bytes.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The protocol that is spoken.
pub(super) const MAJOR: u32 = 7;
/// The newest minor version whose messages are here.
pub(super) const MINOR: u32 = 45;
/// The oldest that is spoken (Linux 5.4): all messages have their present length since.
pub(super) const MIN_MINOR: u32 = 31;

/// The operation of a request.
pub(super) mod opcode {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const SYMLINK: u32 = 6;
    pub(crate) const MKNOD: u32 = 8;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const UNLINK: u32 = 10;
    pub(crate) const RMDIR: u32 = 11;
    pub(crate) const RENAME: u32 = 12;
    pub(crate) const LINK: u32 = 13;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const SETXATTR: u32 = 21;
    pub(crate) const GETXATTR: u32 = 22;
    pub(crate) const LISTXATTR: u32 = 23;
    pub(crate) const REMOVEXATTR: u32 = 24;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const FSYNCDIR: u32 = 30;
    pub(crate) const CREATE: u32 = 35;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const BMAP: u32 = 37;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const IOCTL: u32 = 39;
    pub(crate) const NOTIFY_REPLY: u32 = 41;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const READDIRPLUS: u32 = 44;
    pub(crate) const RENAME2: u32 = 45;
    pub(crate) const LSEEK: u32 = 46;
    pub(crate) const COPY_FILE_RANGE: u32 = 47;
    pub(crate) const SYNCFS: u32 = 50;
    pub(crate) const TMPFILE: u32 = 51;
    pub(crate) const STATX: u32 = 52;
    pub(crate) const COPY_FILE_RANGE_64: u32 = 53;
}

/// Features negotiated by INIT; those from bit 32 on are sent in `flags2`.
pub(super) mod init {
    pub(crate) const ASYNC_READ: u64 = 1 << 0;
    pub(crate) const ATOMIC_O_TRUNC: u64 = 1 << 3;
    pub(crate) const EXPORT_SUPPORT: u64 = 1 << 4;
    pub(crate) const BIG_WRITES: u64 = 1 << 5;
    pub(crate) const DONT_MASK: u64 = 1 << 6;
    pub(crate) const HAS_IOCTL_DIR: u64 = 1 << 11;
    pub(crate) const DO_READDIRPLUS: u64 = 1 << 13;
    pub(crate) const ASYNC_DIO: u64 = 1 << 15;
    pub(crate) const WRITEBACK_CACHE: u64 = 1 << 16;
    pub(crate) const PARALLEL_DIROPS: u64 = 1 << 18;
    pub(crate) const POSIX_ACL: u64 = 1 << 20;
    pub(crate) const MAX_PAGES: u64 = 1 << 22;
    pub(crate) const CACHE_SYMLINKS: u64 = 1 << 23;
    pub(crate) const NO_OPENDIR_SUPPORT: u64 = 1 << 24;
    pub(crate) const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub(crate) const SETXATTR_EXT: u64 = 1 << 29;
    pub(crate) const INIT_EXT: u64 = 1 << 30;
    pub(crate) const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    pub(crate) const OVER_IO_URING: u64 = 1 << 41;
}

/// The fields of a SETATTR that are valid.
pub(super) mod fattr {
    pub(crate) const MODE: u32 = 1 << 0;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
    pub(crate) const CTIME: u32 = 1 << 10;
    pub(crate) const KILL_SUIDGID: u32 = 1 << 11;
}

/// OPEN: the file loses setuid and setgid when it is emptied.
pub(super) const OPEN_KILL_SUIDGID: u32 = 1 << 0;
/// The reply to OPEN: the kernel's cache is bypassed, by writes too.
pub(super) const FOPEN_DIRECT_IO: u32 = 1 << 0;
/// The reply to OPEN: the kernel keeps its cache of the file.
pub(super) const FOPEN_KEEP_CACHE: u32 = 1 << 1;
/// GETATTR: the number of an open file is given.
pub(super) const GETATTR_FH: u32 = 1 << 0;
/// WRITE: from the kernel's cache, not from a program's call.
pub(super) const WRITE_CACHE: u32 = 1 << 0;
/// WRITE: the file loses setuid and setgid.
pub(super) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// FSYNC: times need not be durable.
pub(super) const FSYNC_FDATASYNC: u32 = 1 << 0;
/// SETXATTR of an access control list: the file loses setgid.
pub(super) const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;
/// A notification: the kernel writes back its cache of a file's contents, and drops it.
pub(super) const NOTIFY_INVAL_INODE: i32 = 2;

/// Commands to `/dev/fuse` by io_uring: take this buffer and put a request there; here is the
/// reply, put the next request there.
pub(super) const URING_REGISTER: u32 = 1;
pub(super) const URING_COMMIT_AND_FETCH: u32 = 2;
/// Room for a header, and for the first argument of a request, in [`UringHeader`].
pub(super) const URING_PART: usize = 128;

/// Before every request.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct InHeader {
    pub(super) len: u32,
    pub(super) opcode: u32,
    pub(super) unique: u64,
    pub(super) nodeid: u64,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) pid: u32,
    pub(super) total_extlen: u16,
    pub(super) padding: u16,
}

/// The header of every reply.
#[derive(Clone, Copy, Debug, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(super) struct OutHeader {
    pub(super) len: u32,
    pub(super) error: i32,
    pub(super) unique: u64,
}

#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct InitIn {
    pub(super) major: u32,
    pub(super) minor: u32,
    pub(super) max_readahead: u32,
    pub(super) flags: u32,
}

#[derive(Clone, Copy, Debug, Default, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(super) struct InitOut {
    pub(super) major: u32,
    pub(super) minor: u32,
    pub(super) max_readahead: u32,
    pub(super) flags: u32,
    pub(super) max_background: u16,
    pub(super) congestion_threshold: u16,
    pub(super) max_write: u32,
    pub(super) time_gran: u32,
    pub(super) max_pages: u16,
    pub(super) map_alignment: u16,
    pub(super) flags2: u32,
    pub(super) max_stack_depth: u32,
    pub(super) request_timeout: u16,
    pub(super) unused: [u16; 11],
}

#[derive(Clone, Copy, Debug, Default, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(super) struct Attr {
    pub(super) ino: u64,
    pub(super) size: u64,
    pub(super) blocks: u64,
    pub(super) atime: i64,
    pub(super) mtime: i64,
    pub(super) ctime: i64,
    pub(super) atimensec: u32,
    pub(super) mtimensec: u32,
    pub(super) ctimensec: u32,
    pub(super) mode: u32,
    pub(super) nlink: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) rdev: u32,
    pub(super) blksize: u32,
    pub(super) flags: u32,
}

#[derive(Clone, Copy, Debug, Default, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(super) struct EntryOut {
    pub(super) nodeid: u64,
    pub(super) generation: u64,
    pub(super) entry_valid: u64,
    pub(super) attr_valid: u64,
    pub(super) entry_valid_nsec: u32,
    pub(super) attr_valid_nsec: u32,
    pub(super) attr: Attr,
}

#[derive(Clone, Copy, Debug, Default, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(super) struct AttrOut {
    pub(super) attr_valid: u64,
    pub(super) attr_valid_nsec: u32,
    pub(super) dummy: u32,
    pub(super) attr: Attr,
}

#[derive(Clone, Copy, Debug, Default, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(super) struct OpenOut {
    pub(super) fh: u64,
    pub(super) open_flags: u32,
    pub(super) backing_id: i32,
}

#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct ForgetOne {
    pub(super) nodeid: u64,
    pub(super) nlookup: u64,
}

#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct BatchForgetIn {
    pub(super) count: u32,
    pub(super) dummy: u32,
}

#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct SetAttrIn {
    pub(super) valid: u32,
    pub(super) padding: u32,
    pub(super) fh: u64,
    pub(super) size: u64,
    pub(super) lock_owner: u64,
    pub(super) atime: i64,
    pub(super) mtime: i64,
    pub(super) ctime: i64,
    pub(super) atimensec: u32,
    pub(super) mtimensec: u32,
    pub(super) ctimensec: u32,
    pub(super) mode: u32,
    pub(super) unused4: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) unused5: u32,
}

#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct MknodIn {
    pub(super) mode: u32,
    pub(super) rdev: u32,
    pub(super) umask: u32,
    pub(super) padding: u32,
}

#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct MkdirIn {
    pub(super) mode: u32,
    pub(super) umask: u32,
}

/// CREATE and TMPFILE.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct CreateIn {
    pub(super) flags: u32,
    pub(super) mode: u32,
    pub(super) umask: u32,
    pub(super) open_flags: u32,
}

#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Rename2In {
    pub(super) newdir: u64,
    pub(super) flags: u32,
    pub(super) padding: u32,
}

#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct OpenIn {
    pub(super) flags: u32,
    pub(super) open_flags: u32,
}

#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct GetattrIn {
    pub(super) getattr_flags: u32,
    pub(super) dummy: u32,
    pub(super) fh: u64,
}

#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct ReleaseIn {
    pub(super) fh: u64,
    pub(super) flags: u32,
    pub(super) release_flags: u32,
    pub(super) lock_owner: u64,
}

/// READ, READDIR and READDIRPLUS.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct ReadIn {
    pub(super) fh: u64,
    pub(super) offset: u64,
    pub(super) size: u32,
    pub(super) read_flags: u32,
    pub(super) lock_owner: u64,
    pub(super) flags: u32,
    pub(super) padding: u32,
}

#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct WriteIn {
    pub(super) fh: u64,
    pub(super) offset: u64,
    pub(super) size: u32,
    pub(super) write_flags: u32,
    pub(super) lock_owner: u64,
    pub(super) flags: u32,
    pub(super) padding: u32,
}

/// The reply to WRITE, GETXATTR, LISTXATTR and COPY_FILE_RANGE: a number.
#[derive(Clone, Copy, Debug, Default, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(super) struct SizeOut {
    pub(super) size: u32,
    pub(super) padding: u32,
}

#[derive(Clone, Copy, Debug, Default, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(super) struct StatfsOut {
    pub(super) blocks: u64,
    pub(super) bfree: u64,
    pub(super) bavail: u64,
    pub(super) files: u64,
    pub(super) ffree: u64,
    pub(super) bsize: u32,
    pub(super) namelen: u32,
    pub(super) frsize: u32,
    pub(super) padding: u32,
    pub(super) spare: [u32; 6],
}

/// FSYNC and FSYNCDIR.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct FsyncIn {
    pub(super) fh: u64,
    pub(super) fsync_flags: u32,
    pub(super) padding: u32,
}

/// SETXATTR where SETXATTR_EXT was agreed on.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct SetXattrIn {
    pub(super) size: u32,
    pub(super) flags: u32,
    pub(super) setxattr_flags: u32,
    pub(super) padding: u32,
}

/// SETXATTR where it was not.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct ShortSetXattrIn {
    pub(super) size: u32,
    pub(super) flags: u32,
}

/// GETXATTR and LISTXATTR.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct GetXattrIn {
    pub(super) size: u32,
    pub(super) padding: u32,
}

#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct BmapIn {
    pub(super) block: u64,
    pub(super) blocksize: u32,
    pub(super) padding: u32,
}

#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct IoctlIn {
    pub(super) fh: u64,
    pub(super) flags: u32,
    pub(super) cmd: u32,
    pub(super) arg: u64,
    pub(super) in_size: u32,
    pub(super) out_size: u32,
}

#[derive(Clone, Copy, Debug, Default, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(super) struct IoctlOut {
    pub(super) result: i32,
    pub(super) flags: u32,
    pub(super) in_iovs: u32,
    pub(super) out_iovs: u32,
}

#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct FallocateIn {
    pub(super) fh: u64,
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) mode: u32,
    pub(super) padding: u32,
}

#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct LseekIn {
    pub(super) fh: u64,
    pub(super) offset: u64,
    pub(super) whence: u32,
    pub(super) padding: u32,
}

/// COPY_FILE_RANGE and COPY_FILE_RANGE_64.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct CopyIn {
    pub(super) fh_in: u64,
    pub(super) off_in: u64,
    pub(super) nodeid_out: u64,
    pub(super) fh_out: u64,
    pub(super) off_out: u64,
    pub(super) len: u64,
    pub(super) flags: u64,
}

/// The header of a name in the reply to READDIR.
#[derive(Clone, Copy, Debug, Default, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(super) struct Dirent {
    pub(super) ino: u64,
    pub(super) off: u64,
    pub(super) namelen: u32,
    pub(super) kind: u32,
}

#[derive(Clone, Copy, Debug, Default, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(super) struct StatxTime {
    pub(super) seconds: i64,
    pub(super) nanoseconds: u32,
    pub(super) reserved: i32,
}

#[derive(Clone, Copy, Debug, Default, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(super) struct StatxOut {
    pub(super) attr_valid: u64,
    pub(super) attr_valid_nsec: u32,
    pub(super) flags: u32,
    pub(super) spare: [u64; 2],
    pub(super) mask: u32,
    pub(super) blksize: u32,
    pub(super) attributes: u64,
    pub(super) nlink: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) mode: u16,
    pub(super) spare0: u16,
    pub(super) ino: u64,
    pub(super) size: u64,
    pub(super) blocks: u64,
    pub(super) attributes_mask: u64,
    pub(super) atime: StatxTime,
    pub(super) btime: StatxTime,
    pub(super) ctime: StatxTime,
    pub(super) mtime: StatxTime,
    pub(super) rdev_major: u32,
    pub(super) rdev_minor: u32,
    pub(super) dev_major: u32,
    pub(super) dev_minor: u32,
    pub(super) spare2: [u64; 14],
}

#[derive(Clone, Copy, Debug, Default, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(super) struct InvalInodeOut {
    pub(super) ino: u64,
    pub(super) off: i64,
    pub(super) len: i64,
}

/// The header of a request or a reply over io_uring; its payload is apart.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(super) struct UringHeader {
    /// [`InHeader`] or [`OutHeader`].
    pub(super) in_out: [u8; URING_PART],
    /// The first argument of a request.
    pub(super) first: [u8; URING_PART],
    pub(super) flags: u64,
    /// The identifier of the request in a reply.
    pub(super) commit_id: u64,
    pub(super) payload_size: u32,
    pub(super) padding: u32,
    pub(super) reserved: u64,
}

/// The argument of a command by io_uring.
#[derive(Clone, Copy, Debug, Default, Immutable, IntoBytes)]
#[repr(C)]
pub(super) struct UringCommand {
    pub(super) flags: u64,
    pub(super) commit_id: u64,
    pub(super) queue: u16,
    pub(super) padding: [u8; 6],
}

const _: () = assert!(size_of::<InHeader>() == 40);
const _: () = assert!(size_of::<OutHeader>() == 16);
const _: () = assert!(size_of::<InitOut>() == 64);
const _: () = assert!(size_of::<Attr>() == 88);
const _: () = assert!(size_of::<EntryOut>() == 128);
const _: () = assert!(size_of::<SetAttrIn>() == 88);
const _: () = assert!(size_of::<WriteIn>() == 40);
const _: () = assert!(size_of::<StatfsOut>() == 80);
const _: () = assert!(size_of::<StatxOut>() == 288);
const _: () = assert!(size_of::<CopyIn>() == 56);
const _: () = assert!(size_of::<UringHeader>() == 288);
const _: () = assert!(size_of::<UringCommand>() == 24);

/// The flags that a file is opened with.
pub(super) fn open_flags(flags: u32) -> rustix::fs::OFlags {
    rustix::fs::OFlags::from_bits_retain(flags)
}
