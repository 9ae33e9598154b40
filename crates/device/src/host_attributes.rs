//! Flags, project and version of a file of the machine, as chattr and lsattr reach them.

use std::fs::File;
use std::io;

use rustix::fs::IFlags;
use rustix::ioctl::{Opcode, Setter, Updater, ioctl, opcode};

/// `struct fsxattr` of linux/fs.h: flags, three figures of which the third is the project, one
/// more, and padding.
type FsXattr = [u32; 7];
const PROJECT_AT: usize = 3;
/// A long of the system, of which the kernel reads and writes an int at its start.
type Version = [u32; size_of::<usize>() / 4];

/// `_IOR('v', 1, long)` and `_IOW('v', 2, long)`.
const FS_IOC_GETVERSION: Opcode = opcode::read::<Version>(b'v', 1);
const FS_IOC_SETVERSION: Opcode = opcode::write::<Version>(b'v', 2);
/// `_IOR('X', 31, struct fsxattr)` and `_IOW('X', 32, struct fsxattr)`.
const FS_IOC_FSGETXATTR: Opcode = opcode::read::<FsXattr>(b'X', 31);
const FS_IOC_FSSETXATTR: Opcode = opcode::write::<FsXattr>(b'X', 32);

/// The flags of chattr that a file has.
///
/// # Errors
/// The file system has no flags, or failed.
pub fn flags(file: &File) -> io::Result<u32> {
    Ok(rustix::fs::ioctl_getflags(file)?.bits())
}

/// Sets all flags of a file that users may set.
///
/// # Errors
/// The file system refused, or failed.
pub fn set_flags(file: &File, flags: u32) -> io::Result<()> {
    Ok(rustix::fs::ioctl_setflags(file, IFlags::from_bits_retain(flags))?)
}

/// The version of a file, which is called its generation too.
///
/// # Errors
/// The file system has no versions, or failed.
pub fn version(file: &File) -> io::Result<u32> {
    let mut version = Version::default();
    #[allow(unsafe_code)]
    // SAFETY: FS_IOC_GETVERSION stores at most a long where its argument points, and `Version` is
    // as large as one.
    unsafe {
        ioctl(file, Updater::<FS_IOC_GETVERSION, Version>::new(&mut version))?;
    }
    Ok(version[0])
}

/// Sets the version of a file.
///
/// # Errors
/// The file system refused, or failed.
pub fn set_version(file: &File, version: u32) -> io::Result<()> {
    let mut long = Version::default();
    long[0] = version;
    #[allow(unsafe_code)]
    // SAFETY: FS_IOC_SETVERSION reads at most a long where its argument points and changes no
    // memory of ours.
    unsafe {
        ioctl(file, Setter::<FS_IOC_SETVERSION, Version>::new(long))?;
    }
    Ok(())
}

/// The project of a file.
///
/// # Errors
/// The file system has no projects, or failed.
pub fn project(file: &File) -> io::Result<u32> {
    Ok(fsxattr(file)?[PROJECT_AT])
}

/// Sets the project of a file.
///
/// # Errors
/// The file system refused, or failed.
pub fn set_project(file: &File, project: u32) -> io::Result<()> {
    let mut attributes = fsxattr(file)?;
    attributes[PROJECT_AT] = project;
    #[allow(unsafe_code)]
    // SAFETY: FS_IOC_FSSETXATTR reads a `struct fsxattr` where its argument points and changes no
    // memory of ours.
    unsafe {
        ioctl(file, Setter::<FS_IOC_FSSETXATTR, FsXattr>::new(attributes))?;
    }
    Ok(())
}

fn fsxattr(file: &File) -> io::Result<FsXattr> {
    let mut attributes = FsXattr::default();
    #[allow(unsafe_code)]
    // SAFETY: FS_IOC_FSGETXATTR stores a `struct fsxattr` where its argument points, and `FsXattr`
    // is as large as one.
    unsafe {
        ioctl(file, Updater::<FS_IOC_FSGETXATTR, FsXattr>::new(&mut attributes))?;
    }
    Ok(attributes)
}
