//! The requests of block devices that have no system call of their own.

use std::ffi::c_int;
use std::os::fd::AsFd;

use rustix::io::Result;
use rustix::ioctl::{Getter, Opcode, Setter, ioctl, opcode};

/// `_IOR(0x12, 114, size_t)` of linux/fs.h: bytes on the device.
const BLKGETSIZE64: Opcode = opcode::read::<usize>(0x12, 114);
/// `_IO(0x12, 94)`: whether the device cannot be written, as an int.
const BLKROGET: Opcode = opcode::none(0x12, 94);
/// `_IO(0x12, 119)`: discard a range, given as two 64-bit numbers.
const BLKDISCARD: Opcode = opcode::none(0x12, 119);
/// `_IO(0x12, 127)`: zero a range, given as two 64-bit numbers.
const BLKZEROOUT: Opcode = opcode::none(0x12, 127);

/// `_IOW('f', 16, __u64)` of `admin-guide/ext4.rst`, EXT4_IOC_RESIZE_FS: the number of blocks that
/// a mounted volume grows to.
const EXT4_RESIZE: Opcode = opcode::write::<u64>(b'f', 16);

/// Bytes on a block device.
#[allow(unsafe_code)]
pub(super) fn size(device: impl AsFd) -> Result<u64> {
    // SAFETY: BLKGETSIZE64 stores one u64 where its argument points, and `Getter` gives it room for
    // one.
    unsafe { ioctl(device, Getter::<BLKGETSIZE64, u64>::new()) }
}

/// Whether a block device cannot be written.
#[allow(unsafe_code)]
pub(super) fn is_read_only(device: impl AsFd) -> Result<bool> {
    // SAFETY: BLKROGET stores one int where its argument points, and `Getter` gives it room for
    // one.
    unsafe { ioctl(device, Getter::<BLKROGET, c_int>::new()) }.map(|flag| flag != 0)
}

/// Discards whole sectors of a block device.
#[allow(unsafe_code)]
pub(super) fn discard(device: impl AsFd, offset: u64, length: u64) -> Result<()> {
    // SAFETY: BLKDISCARD reads two u64 (start, length) where its argument points and changes no
    // memory of ours.
    unsafe { ioctl(device, Setter::<BLKDISCARD, [u64; 2]>::new([offset, length])) }
}

/// Zeroes whole sectors of a block device.
#[allow(unsafe_code)]
pub(super) fn zero_out(device: impl AsFd, offset: u64, length: u64) -> Result<()> {
    // SAFETY: BLKZEROOUT reads two u64 (start, length) where its argument points and changes no
    // memory of ours.
    unsafe { ioctl(device, Setter::<BLKZEROOUT, [u64; 2]>::new([offset, length])) }
}

/// Grows the ext4 volume that is mounted at a directory.
#[allow(unsafe_code)]
pub(crate) fn grow_mounted(directory: impl AsFd, blocks: u64) -> Result<()> {
    // SAFETY: EXT4_IOC_RESIZE_FS reads one u64 where its argument points and changes no memory of
    // ours.
    unsafe { ioctl(directory, Setter::<EXT4_RESIZE, u64>::new(blocks)) }
}
