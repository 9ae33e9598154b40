//! INIT: the first request, which negotiates the features of both sides.

use std::io;

use super::abi;
use super::message::{Reply, Request};
use crate::mountpoint::MAX_REQUEST;
use crate::service::FileService;

/// Options of INIT.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct InitOptions {
    /// Rings are there, should the kernel offer them.
    pub(super) rings: bool,
    /// The kernel's cache keeps written data.
    pub(super) writeback_cache: bool,
    /// The kernel checks permissions.
    pub(super) checks: bool,
}

/// The result of INIT.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Negotiated {
    /// SETXATTR has its longer form.
    pub(super) has_long_setxattr: bool,
    /// Requests come by rings.
    pub(super) has_rings: bool,
    /// The kernel's cache keeps written data, and stays valid when an open file bypasses it (Linux
    /// 6.6).
    pub(super) mixes_direct_and_cached: bool,
}

/// Requests of the kernel's own, as readahead and writeback, that may wait; and from how many on it
/// holds writers back.
const BACKGROUND: u16 = 64;
const CONGESTED: u16 = 48;

/// Answers INIT: negotiates the features of both sides.
///
/// # Errors
/// The kernel's protocol is too old.
pub(super) fn negotiate(
    request: &Request<'_>,
    server: &dyn FileService,
    options: InitOptions,
    to: &mut Reply<'_>,
) -> io::Result<Negotiated> {
    use abi::init;
    let refused = |why: &str| io::Error::new(io::ErrorKind::Unsupported, why.to_owned());
    let mut arguments = request.arguments();
    let given: abi::InitIn = arguments.take().map_err(|_| refused("FUSE's first message"))?;
    if given.major != abi::MAJOR || given.minor < abi::MIN_MINOR {
        return Err(refused("the kernel's FUSE is older than protocol 7.31 (Linux 5.4)"));
    }
    let has_more = u64::from(given.flags) & init::INIT_EXT != 0;
    let flags2 = if has_more { arguments.take::<u32>().unwrap_or(0) } else { 0 };
    let offered = u64::from(given.flags) | u64::from(flags2) << 32;
    // Not READDIRPLUS_AUTO: if a directory is read to its end before its files are used, all but
    // the first would need a LOOKUP each.
    let mut wanted = init::ASYNC_READ
        | init::ATOMIC_O_TRUNC
        | init::EXPORT_SUPPORT
        | init::BIG_WRITES
        | init::DONT_MASK
        | init::HAS_IOCTL_DIR
        | init::DO_READDIRPLUS
        | init::ASYNC_DIO
        | init::PARALLEL_DIROPS
        | init::MAX_PAGES
        | init::CACHE_SYMLINKS
        | init::NO_OPENDIR_SUPPORT
        | init::HANDLE_KILLPRIV_V2
        | init::SETXATTR_EXT
        | init::DIRECT_IO_ALLOW_MMAP
        | init::INIT_EXT;
    // With lists the kernel checks permissions whatever the mount says.
    if server.has_acls() && options.checks {
        wanted |= init::POSIX_ACL;
    }
    if options.writeback_cache {
        wanted |= init::WRITEBACK_CACHE;
    }
    if options.rings {
        wanted |= init::OVER_IO_URING;
    }
    // One that the kernel lacks is done without: all are matters of speed, but for lists, which it
    // then does not check.
    let agreed = wanted & offered;
    let answer = abi::InitOut {
        major: abi::MAJOR,
        minor: abi::MINOR.min(given.minor),
        max_readahead: given.max_readahead.max(MAX_REQUEST),
        flags: (agreed & 0xffff_ffff) as u32,
        max_background: BACKGROUND,
        congestion_threshold: CONGESTED,
        max_write: MAX_REQUEST,
        time_gran: 1,
        max_pages: (MAX_REQUEST / 4096) as u16,
        flags2: (agreed >> 32) as u32,
        ..abi::InitOut::default()
    };
    to.put(&answer).map_err(io::Error::from)?;
    Ok(Negotiated {
        has_long_setxattr: agreed & init::SETXATTR_EXT != 0,
        has_rings: agreed & init::OVER_IO_URING != 0,
        mixes_direct_and_cached: [init::WRITEBACK_CACHE, init::DIRECT_IO_ALLOW_MMAP]
            .iter()
            .all(|flag| agreed & flag != 0),
    })
}
