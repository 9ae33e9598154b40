//! New file systems.

use extant_device::Device;
use extant_image::mkfs::MkfsError;
use std::ffi::OsString;

use crate::formatter::Formatter;

/// Formats a whole device. `options` are words as `extant mkfs` takes them, without the device's
/// name: `["-t", "ext4", "-b", "1024"]`. No configuration file is read.
///
/// # Errors
/// Everything that mkfs refuses, and failures of the device.
///
/// ```
/// let device = extant::MemoryDevice::new(8 << 20);
/// extant::format(&device, ["-t", "ext4", "-L", "small"])?;
/// # Ok::<(), extant::MkfsError>(())
/// ```
pub fn format<I>(device: &dyn Device, options: I) -> Result<(), MkfsError>
where
    I: IntoIterator,
    I::Item: Into<OsString>,
{
    Formatter::mke2fs_args(options)?.format(device)
}

/// Formats a whole device that reads as zero, and fills it: this number of inodes is in use by
/// empty files, as many as said in each directory, and by the directories. For experiments; no tree
/// of them is held in memory.
///
/// # Errors
/// As [`format()`]; the volume is too small.
pub fn format_filled<I>(
    device: &dyn Device,
    options: I,
    inodes: u64,
    files_per_directory: u64,
) -> Result<(), MkfsError>
where
    I: IntoIterator,
    I::Item: Into<OsString>,
{
    let formatter = Formatter::mke2fs_args(options)?;
    formatter.planned(device)?.write_filled(device, inodes, files_per_directory)
}
