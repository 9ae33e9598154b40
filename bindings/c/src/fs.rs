//! Volumes: calls by paths.
//!
//! Every pointer of a call is as [`crate::memory`] takes it: strings end with a 0, results have
//! room, and no other thread changes them during the call.
#![allow(unsafe_code)]
#![expect(clippy::missing_safety_doc, reason = "the header says once what all pointers are")]

use std::ffi::{c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::LazyLock;

use extant::rooms::runtime::handles::{Parent, Table};
use extant::rooms::runtime::sync::Arc;
use extant::{
    DeviceNumber, FileSystem, FileType, Follow, Image, OpenOptions, RenameFlags, SetAttributes,
    XattrSet,
};

use crate::error::{Failure, call};
use crate::memory;
use crate::stat::{extant_stat, extant_statfs, extant_time};

/// A volume that is open.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types)]
pub struct extant_fs {
    /// The handle; 0 is never one.
    pub handle: u64,
}

/// extant_open: for changes too, with exclusive use of the image.
pub const EXTANT_OPEN_WRITE: u32 = 1;
/// Calls on paths: a symbolic link itself, and not the file that it leads to.
pub const EXTANT_NOFOLLOW: u32 = 1;
/// extant_rename: the new name must be free.
pub const EXTANT_RENAME_NOREPLACE: u32 = 1;
/// extant_rename: the two files exchange their names.
pub const EXTANT_RENAME_EXCHANGE: u32 = 2;
/// extant_setxattr: the attribute is not there yet.
pub const EXTANT_XATTR_CREATE: u32 = 1;
/// extant_setxattr: the attribute is there.
pub const EXTANT_XATTR_REPLACE: u32 = 2;
/// extant_chown: leaves the owner, or the group, as it is.
pub const EXTANT_KEEP_ID: u32 = u32::MAX;

static VOLUMES: LazyLock<Table<Volume>> = LazyLock::new(Table::new);

type Volume = Arc<Parent<FileSystem>>;

pub(crate) fn volume(fs: extant_fs) -> Result<Volume, Failure> {
    Ok(VOLUMES.get(fs.handle)?)
}

/// A call on a volume that returns 0.
fn on(fs: extant_fs, work: impl FnOnce(&FileSystem) -> Result<(), Failure>) -> c_int {
    call(|| volume(fs)?.with(work).map(|()| 0))
}

/// A call on the file of a path.
///
/// # Safety
/// The path is as [`memory::path`] takes it.
unsafe fn at(
    fs: extant_fs,
    path: *const c_char,
    work: impl FnOnce(&FileSystem, &Path) -> Result<(), Failure>,
) -> c_int {
    on(fs, |fs| {
        // SAFETY: the promise is the same.
        let path = unsafe { memory::path(path) }?;
        work(fs, path)
    })
}

pub(crate) fn known(flags: u32, all: u32) -> Result<u32, Failure> {
    match flags & !all {
        0 => Ok(flags),
        unknown => Err(Failure::invalid(format!("unknown flags {unknown:#x}"))),
    }
}

fn follow(flags: u32) -> Result<Follow, Failure> {
    Ok(if known(flags, EXTANT_NOFOLLOW)? == 0 { Follow::Yes } else { Follow::No })
}

pub(crate) fn permissions(mode: u32) -> u16 {
    (mode & 0o7777) as u16
}

/// Puts as much of `found` into a buffer as fits; its whole length.
///
/// # Safety
/// The buffer is as [`memory::buffer`] takes it.
unsafe fn filled(found: &[u8], buffer: *mut u8, size: usize) -> Result<i64, Failure> {
    // SAFETY: the promise is the same.
    let buffer = unsafe { memory::buffer(buffer, size) }?;
    let count = found.len().min(buffer.len());
    buffer[..count].copy_from_slice(&found[..count]);
    Ok(found.len() as i64)
}

/// Opens a volume: image is a path, or a device URL (disk.img#p2). flags: EXTANT_OPEN_WRITE.
/// *fs is set if it returns 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_open(
    image: *const c_char,
    flags: u32,
    fs: *mut extant_fs,
) -> c_int {
    call(|| {
        memory::is_there(fs)?;
        let write = known(flags, EXTANT_OPEN_WRITE)? != 0;
        // SAFETY: the caller's promise.
        let image = Image::open(unsafe { memory::text(image) }?)?;
        let opened = if write { image.read_write()? } else { image.read_only()? };
        let handle = VOLUMES.insert(Arc::new(Parent::new(opened)));
        // SAFETY: the caller's promise.
        unsafe { memory::put(fs, extant_fs { handle }) }?;
        Ok(0)
    })
}

/// Writes all changes and closes the volume; -EBUSY while files or directories of it are open. It
/// waits for calls on the volume that run. After another error the handle is closed too.
#[unsafe(no_mangle)]
pub extern "C" fn extant_close(fs: extant_fs) -> c_int {
    call(|| {
        let outcome = volume(fs)?.close(FileSystem::close)?;
        VOLUMES.remove(fs.handle)?;
        outcome?;
        Ok(0)
    })
}

/// Puts all changes on the device.
#[unsafe(no_mangle)]
pub extern "C" fn extant_sync(fs: extant_fs) -> c_int {
    on(fs, |fs| Ok(fs.sync()?))
}

/// Space and inodes of the volume.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_statfs(fs: extant_fs, result: *mut extant_statfs) -> c_int {
    on(fs, |fs| {
        memory::is_there(result)?;
        // SAFETY: the caller's promise.
        unsafe { memory::put(result, fs.stat_fs()?.into()) }
    })
}

/// Attributes of a file. flags: EXTANT_NOFOLLOW.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_stat_path(
    fs: extant_fs,
    path: *const c_char,
    flags: u32,
    result: *mut extant_stat,
) -> c_int {
    let work = |fs: &FileSystem, path: &Path| {
        memory::is_there(result)?;
        let metadata = match follow(flags)? {
            Follow::Yes => fs.metadata(path)?,
            Follow::No => fs.symlink_metadata(path)?,
        };
        // SAFETY: the caller's promise.
        unsafe { memory::put(result, (&metadata).into()) }
    };
    // SAFETY: the caller's promise.
    unsafe { at(fs, path, work) }
}

/// Makes a directory; the umask 022 is taken off the mode.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_mkdir(fs: extant_fs, path: *const c_char, mode: u32) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { at(fs, path, |fs, path| Ok(fs.create_dir_with(path, permissions(mode))?)) }
}

/// Removes an empty directory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_rmdir(fs: extant_fs, path: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { at(fs, path, |fs, path| Ok(fs.remove_dir(path)?)) }
}

/// Removes a name of a file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_unlink(fs: extant_fs, path: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { at(fs, path, |fs, path| Ok(fs.remove_file(path)?)) }
}

/// Removes a directory and all below it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_remove_tree(fs: extant_fs, path: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { at(fs, path, |fs, path| Ok(fs.remove_dir_all(path)?)) }
}

/// Renames a file. flags: EXTANT_RENAME_NOREPLACE or EXTANT_RENAME_EXCHANGE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_rename(
    fs: extant_fs,
    from: *const c_char,
    to: *const c_char,
    flags: u32,
) -> c_int {
    let work = |fs: &FileSystem, from: &Path| {
        let flags = known(flags, EXTANT_RENAME_NOREPLACE | EXTANT_RENAME_EXCHANGE)?;
        // SAFETY: the caller's promise.
        let to = unsafe { memory::path(to) }?;
        Ok(fs.rename_with(from, to, RenameFlags::from_bits_truncate(flags))?)
    };
    // SAFETY: the caller's promise.
    unsafe { at(fs, from, work) }
}

/// Gives a file another name. A symbolic link is not followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_link(
    fs: extant_fs,
    file: *const c_char,
    name: *const c_char,
) -> c_int {
    let work = |fs: &FileSystem, file: &Path| {
        // SAFETY: the caller's promise.
        let name = unsafe { memory::path(name) }?;
        Ok(fs.hard_link(file, name)?)
    };
    // SAFETY: the caller's promise.
    unsafe { at(fs, file, work) }
}

/// Makes a symbolic link.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_symlink(
    fs: extant_fs,
    target: *const c_char,
    name: *const c_char,
) -> c_int {
    let work = |fs: &FileSystem, target: &Path| {
        // SAFETY: the caller's promise.
        let name = unsafe { memory::path(name) }?;
        Ok(fs.symlink(target, name)?)
    };
    // SAFETY: the caller's promise.
    unsafe { at(fs, target, work) }
}

/// The target of a symbolic link, without a 0 at its end: its length. As much of it as fits is in
/// the buffer; size 0 asks for the length alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_readlink(
    fs: extant_fs,
    path: *const c_char,
    buffer: *mut u8,
    size: usize,
) -> i64 {
    call(|| {
        volume(fs)?.with(|fs| {
            // SAFETY: the caller's promise.
            let target = fs.read_link(unsafe { memory::path(path) }?)?;
            // SAFETY: the caller's promise.
            unsafe { filled(target.as_os_str().as_bytes(), buffer, size) }
        })
    })
}

/// Makes a device file, a named pipe or a socket: the type is in the mode, as with mknod.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_mknod(
    fs: extant_fs,
    path: *const c_char,
    mode: u32,
    device_major: u32,
    device_minor: u32,
) -> c_int {
    let work = |fs: &FileSystem, path: &Path| {
        let file_type = match mode & libc::S_IFMT {
            libc::S_IFIFO => FileType::Fifo,
            libc::S_IFCHR => FileType::CharDevice,
            libc::S_IFBLK => FileType::BlockDevice,
            libc::S_IFSOCK => FileType::Socket,
            _ => return Err(Failure::invalid("invalid file type")),
        };
        let device = DeviceNumber { major: device_major, minor: device_minor };
        Ok(fs.create_node(path, file_type, permissions(mode), device)?)
    };
    // SAFETY: the caller's promise.
    unsafe { at(fs, path, work) }
}

/// Sets permissions, with setuid, setgid and sticky.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_chmod(fs: extant_fs, path: *const c_char, mode: u32) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { at(fs, path, |fs, path| Ok(fs.set_permissions(path, permissions(mode))?)) }
}

/// Sets owner and group, except for EXTANT_KEEP_ID. flags: EXTANT_NOFOLLOW.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_chown(
    fs: extant_fs,
    path: *const c_char,
    uid: u32,
    gid: u32,
    flags: u32,
) -> c_int {
    let given = |id: u32| Some(id).filter(|id| *id != EXTANT_KEEP_ID);
    let work = |fs: &FileSystem, path: &Path| {
        let set = SetAttributes { uid: given(uid), gid: given(gid), ..SetAttributes::default() };
        Ok(fs.set_attributes(path, follow(flags)?, &set)?)
    };
    // SAFETY: the caller's promise.
    unsafe { at(fs, path, work) }
}

/// Sets the times of reading and of change. A null pointer leaves one as it is. flags:
/// EXTANT_NOFOLLOW.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_set_times(
    fs: extant_fs,
    path: *const c_char,
    accessed: *const extant_time,
    modified: *const extant_time,
    flags: u32,
) -> c_int {
    let work = |fs: &FileSystem, path: &Path| {
        // SAFETY: the caller's promise.
        let (atime, mtime) = unsafe { (memory::optional(accessed), memory::optional(modified)) };
        let set = SetAttributes {
            atime: atime.map(extant_time::checked).transpose()?,
            mtime: mtime.map(extant_time::checked).transpose()?,
            ..SetAttributes::default()
        };
        Ok(fs.set_attributes(path, follow(flags)?, &set)?)
    };
    // SAFETY: the caller's promise.
    unsafe { at(fs, path, work) }
}

/// Makes a file shorter or longer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_truncate(fs: extant_fs, path: *const c_char, size: u64) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        at(fs, path, |fs, path| Ok(OpenOptions::new().write(true).open(fs, path)?.set_len(size)?))
    }
}

/// The value of an extended attribute: its length. As much of it as fits is in the buffer; size 0
/// asks for the length alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_getxattr(
    fs: extant_fs,
    path: *const c_char,
    name: *const c_char,
    buffer: *mut u8,
    size: usize,
) -> i64 {
    call(|| {
        volume(fs)?.with(|fs| {
            // SAFETY: the caller's promise.
            let (path, name) = unsafe { (memory::path(path)?, memory::text(name)?) };
            let value = fs.xattr(path, name)?;
            // SAFETY: the caller's promise.
            unsafe { filled(&value, buffer, size) }
        })
    })
}

/// The names of the extended attributes, each with a 0 at its end: the length of all. As with
/// extant_getxattr.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_listxattr(
    fs: extant_fs,
    path: *const c_char,
    buffer: *mut u8,
    size: usize,
) -> i64 {
    call(|| {
        volume(fs)?.with(|fs| {
            // SAFETY: the caller's promise.
            let found = fs.xattrs(unsafe { memory::path(path) }?)?;
            let names: Vec<u8> =
                found.iter().flat_map(|found| [&found.name[..], b"\0"].concat()).collect();
            // SAFETY: the caller's promise.
            unsafe { filled(&names, buffer, size) }
        })
    })
}

/// Sets an extended attribute. flags: EXTANT_XATTR_CREATE or EXTANT_XATTR_REPLACE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_setxattr(
    fs: extant_fs,
    path: *const c_char,
    name: *const c_char,
    value: *const u8,
    size: usize,
    flags: u32,
) -> c_int {
    let work = |fs: &FileSystem, path: &Path| {
        let how = match flags {
            0 => XattrSet::Any,
            EXTANT_XATTR_CREATE => XattrSet::Create,
            EXTANT_XATTR_REPLACE => XattrSet::Replace,
            other => return Err(Failure::invalid(format!("unknown flags {other:#x}"))),
        };
        // SAFETY: the caller's promise.
        let (name, value) = unsafe { (memory::text(name)?, memory::bytes(value, size)?) };
        Ok(fs.set_xattr(path, name, value, how)?)
    };
    // SAFETY: the caller's promise.
    unsafe { at(fs, path, work) }
}

/// Removes an extended attribute.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_removexattr(
    fs: extant_fs,
    path: *const c_char,
    name: *const c_char,
) -> c_int {
    let work = |fs: &FileSystem, path: &Path| {
        // SAFETY: the caller's promise.
        let name = unsafe { memory::text(name) }?;
        Ok(fs.remove_xattr(path, name)?)
    };
    // SAFETY: the caller's promise.
    unsafe { at(fs, path, work) }
}
