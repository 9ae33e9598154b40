//! The few messages of FUSE that a file system with a single file needs
//! (`include/uapi/linux/fuse.h`), in the host's byte order.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub(super) mod opcode {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const FLUSH: u32 = 25;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const BATCH_FORGET: u32 = 42;
}

/// INIT: ASYNC_READ, BIG_WRITES, ASYNC_DIO, MAX_PAGES.
pub(super) const INIT_FLAGS: u32 = 1 << 0 | 1 << 5 | 1 << 15 | 1 << 22;
/// The answer to OPEN: no page cache, so that each request of the server is one of ours.
pub(super) const FOPEN_DIRECT_IO: u32 = 1 << 0;

#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct InHeader {
    pub(super) len: u32,
    pub(super) opcode: u32,
    pub(super) unique: u64,
    pub(super) nodeid: u64,
    pub(super) caller: [u32; 3],
    pub(super) extension: u32,
}

#[derive(Clone, Copy, Immutable, IntoBytes)]
#[repr(C)]
pub(super) struct OutHeader {
    pub(super) len: u32,
    pub(super) error: i32,
    pub(super) unique: u64,
}

#[derive(Clone, Copy, Default, Immutable, IntoBytes)]
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
    pub(super) unused: [u32; 8],
}

#[derive(Clone, Copy, Default, Immutable, IntoBytes)]
#[repr(C)]
pub(super) struct Attr {
    pub(super) ino: u64,
    pub(super) size: u64,
    pub(super) blocks: u64,
    pub(super) times: [u64; 3],
    pub(super) nanoseconds: [u32; 3],
    pub(super) mode: u32,
    pub(super) nlink: u32,
    pub(super) owners: [u32; 2],
    pub(super) rdev: u32,
    pub(super) blksize: u32,
    pub(super) flags: u32,
}

#[derive(Clone, Copy, Default, Immutable, IntoBytes)]
#[repr(C)]
pub(super) struct EntryOut {
    pub(super) nodeid: u64,
    pub(super) generation: u64,
    pub(super) valid: [u64; 3],
    pub(super) attr: Attr,
}

#[derive(Clone, Copy, Default, Immutable, IntoBytes)]
#[repr(C)]
pub(super) struct AttrOut {
    pub(super) valid: [u64; 2],
    pub(super) attr: Attr,
}

#[derive(Clone, Copy, Default, Immutable, IntoBytes)]
#[repr(C)]
pub(super) struct OpenOut {
    pub(super) fh: u64,
    pub(super) open_flags: u32,
    pub(super) backing_id: i32,
}

/// READ and WRITE begin alike; what a WRITE writes comes after it.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct RangeIn {
    pub(super) fh: u64,
    pub(super) offset: u64,
    pub(super) size: u32,
    pub(super) other: [u32; 5],
}

#[derive(Clone, Copy, Default, Immutable, IntoBytes)]
#[repr(C)]
pub(super) struct WriteOut {
    pub(super) size: u32,
    pub(super) padding: u32,
}

const _: () = assert!(size_of::<InHeader>() == 40 && size_of::<InitOut>() == 64);
const _: () = assert!(size_of::<Attr>() == 88 && size_of::<EntryOut>() == 128);
const _: () = assert!(size_of::<AttrOut>() == 104 && size_of::<RangeIn>() == 40);
