//! The places of the data of a file of the host, from the kernel: the requests FIEMAP and FIBMAP.

use std::ffi::c_int;
use std::fs::File;
use std::os::fd::AsFd;

use rustix::io::Result;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

/// `_IOWR('f', 11, struct fiemap)` of linux/fs.h; the structure without its extents.
const FS_IOC_FIEMAP: Opcode = opcode::read_write::<Head>(b'f', 11);
/// `_IOWR('f', 42, struct fiemap)`: the same for ext4's cache of extents.
const EXT4_IOC_GET_ES_CACHE: Opcode = opcode::read_write::<Head>(b'f', 42);
/// `_IO(0x00, 1)`: the block of a device that holds a block of the file, as an int.
const FIBMAP: Opcode = opcode::none(0, 1);
/// `_IO(0x00, 2)`: bytes of a block, as an int.
const FIGETBSZ: Opcode = opcode::none(0, 2);
/// Extents that one request asks for.
const COUNT: usize = 256;
/// FIEMAP_EXTENT_LAST of linux/fiemap.h.
const LAST: u32 = 1;
/// FIEMAP_FLAG_SYNC: delayed data are written first.
const SYNC: u32 = 1;
/// FIEMAP_FLAG_XATTR: the attributes in place of the data.
const XATTR: u32 = 2;
/// FIEMAP_FLAG_CACHE: the extents are put into the cache.
const CACHE: u32 = 4;

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Head {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct RawExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

#[repr(C)]
struct Fiemap {
    head: Head,
    extents: [RawExtent; COUNT],
}

/// An extent of a file, in bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FileExtent {
    /// Start in the file.
    pub logical: u64,
    /// Start on the device.
    pub physical: u64,
    /// Length.
    pub length: u64,
    /// `FIEMAP_EXTENT_*` of linux/fiemap.h.
    pub flags: u32,
}

/// The request for a [`FileExtent`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ExtentsQuery {
    /// Delayed data are written first.
    pub syncs: bool,
    /// The extended attributes, not the data.
    pub xattrs: bool,
    /// ext4's cache of extents is filled.
    pub fills_cache: bool,
    /// ext4's cache of extents is shown, not the map.
    pub shows_cache: bool,
}

/// All extents of a file or directory.
///
/// # Errors
/// The file system does not answer such a request.
pub fn file_extents(file: &File, query: ExtentsQuery) -> Result<Vec<FileExtent>> {
    let bits = [(query.syncs, SYNC), (query.xattrs, XATTR), (query.fills_cache, CACHE)];
    let flags = bits.into_iter().filter(|(is_set, _)| *is_set).map(|(_, bit)| bit).sum();
    let mut found = Vec::new();
    let mut start = 0;
    loop {
        let extent_count = COUNT as u32;
        let head = Head { start, length: u64::MAX - start, flags, extent_count, ..Head::default() };
        let mut map = Box::new(Fiemap { head, extents: [RawExtent::default(); COUNT] });
        request(file, &mut map, query.shows_cache)?;
        let mapped = (map.head.mapped_extents as usize).min(COUNT);
        let extents = map.extents[..mapped].iter().map(|raw| FileExtent {
            logical: raw.logical,
            physical: raw.physical,
            length: raw.length,
            flags: raw.flags,
        });
        found.extend(extents);
        let Some(last) = found.last().filter(|_| mapped > 0) else { return Ok(found) };
        let next = last.logical.saturating_add(last.length);
        if last.flags & LAST != 0 || next <= start || next == u64::MAX {
            return Ok(found);
        }
        start = next;
    }
}

#[allow(unsafe_code)]
fn request(file: &File, map: &mut Fiemap, shows_cache: bool) -> Result<()> {
    // SAFETY: both requests read the head of a `fiemap`, and store its head and at most
    // `extent_count` extents after it, for which `Fiemap` has room: the count is `COUNT`.
    unsafe {
        match shows_cache {
            true => ioctl(file, Updater::<EXT4_IOC_GET_ES_CACHE, Fiemap>::new(map)),
            false => ioctl(file, Updater::<FS_IOC_FIEMAP, Fiemap>::new(map)),
        }
    }
}

/// The device's block that holds a block of a file; 0 for a hole.
///
/// # Errors
/// The file system does not answer such a request, or the caller may not make it.
#[allow(unsafe_code)]
pub fn device_block_of(file: &File, block: u32) -> Result<u32> {
    let mut number: c_int = block.cast_signed();
    // SAFETY: FIBMAP reads and stores one int where its argument points.
    unsafe { ioctl(file, Updater::<FIBMAP, c_int>::new(&mut number)) }?;
    Ok(number.cast_unsigned())
}

/// Bytes of a block of the file system that a file lies on.
///
/// # Errors
/// The file is of a kind that has no blocks.
#[allow(unsafe_code)]
pub fn block_size_of(file: impl AsFd) -> Result<u32> {
    let mut size: c_int = 0;
    // SAFETY: FIGETBSZ stores one int where its argument points.
    unsafe { ioctl(file, Updater::<FIGETBSZ, c_int>::new(&mut size)) }?;
    Ok(size.cast_unsigned())
}
