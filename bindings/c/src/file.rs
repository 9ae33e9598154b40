//! Open files.
//!
//! Pointers are as in [`crate::fs`].
#![allow(unsafe_code)]
#![expect(clippy::missing_safety_doc, reason = "the header says once what all pointers are")]

use std::ffi::{c_char, c_int};
use std::io::{Read, Seek, SeekFrom, Write};
use std::sync::LazyLock;

use extant::rooms::runtime::handles::{Child, Table};
use extant::rooms::runtime::sync::Arc;
use extant::{File, FileSystem, OpenOptions};

use crate::error::{Failure, call};
use crate::fs::{extant_fs, known, permissions, volume};
use crate::memory;
use crate::stat::extant_stat;

/// A file that is open.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types)]
pub struct extant_file {
    /// The handle; 0 is never one.
    pub handle: u64,
}

/// extant_file_open: for reading.
pub const EXTANT_READ: u32 = 1;
/// extant_file_open: for writing.
pub const EXTANT_WRITE: u32 = 2;
/// extant_file_open: extant_file_write writes at the end.
pub const EXTANT_APPEND: u32 = 4;
/// extant_file_open: the file is made where it is missing.
pub const EXTANT_CREATE: u32 = 8;
/// extant_file_open: the file is made and was not there.
pub const EXTANT_EXCLUSIVE: u32 = 16;
/// extant_file_open: the file is emptied.
pub const EXTANT_TRUNCATE: u32 = 32;

type Open = Arc<Child<FileSystem, File>>;

static FILES: LazyLock<Table<Open>> = LazyLock::new(Table::new);

fn on<T>(file: extant_file, work: impl FnOnce(&File) -> Result<T, Failure>) -> Result<T, Failure> {
    work(FILES.get(file.handle)?.get())
}

/// Opens a regular file. flags: EXTANT_READ and others; mode: the permissions of a new file, from
/// which the umask 022 is taken. *file is set if it returns 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_file_open(
    fs: extant_fs,
    path: *const c_char,
    flags: u32,
    mode: u32,
    file: *mut extant_file,
) -> c_int {
    call(|| {
        memory::is_there(file)?;
        let all = EXTANT_READ
            | EXTANT_WRITE
            | EXTANT_APPEND
            | EXTANT_CREATE
            | EXTANT_EXCLUSIVE
            | EXTANT_TRUNCATE;
        let flags = known(flags, all)?;
        let has = |flag| flags & flag != 0;
        let options = OpenOptions::new()
            .read(has(EXTANT_READ))
            .write(has(EXTANT_WRITE))
            .append(has(EXTANT_APPEND))
            .create(has(EXTANT_CREATE))
            .create_new(has(EXTANT_EXCLUSIVE))
            .truncate(has(EXTANT_TRUNCATE))
            .mode(permissions(mode));
        // SAFETY: the caller's promise.
        let path = unsafe { memory::path(path) }?;
        let opened = volume(fs)?.child(|fs| Ok::<_, Failure>(options.open(fs, path)?))?;
        let handle = FILES.insert(Arc::new(opened));
        // SAFETY: the caller's promise.
        unsafe { memory::put(file, extant_file { handle }) }?;
        Ok(0)
    })
}

/// Closes a file. Calls on it that run come to their end.
#[unsafe(no_mangle)]
pub extern "C" fn extant_file_close(file: extant_file) -> c_int {
    call(|| Ok(FILES.remove(file.handle).map(|_| 0)?))
}

/// Reads bytes at the position and moves it: how many there were, 0 at the end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_file_read(file: extant_file, buffer: *mut u8, size: usize) -> i64 {
    call(|| {
        // SAFETY: the caller's promise.
        let buffer = unsafe { memory::buffer(buffer, size) }?;
        on(file, |mut file| Ok(file.read(buffer)? as i64))
    })
}

/// Reads bytes at an offset; the position stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_file_pread(
    file: extant_file,
    buffer: *mut u8,
    size: usize,
    offset: u64,
) -> i64 {
    call(|| {
        // SAFETY: the caller's promise.
        let buffer = unsafe { memory::buffer(buffer, size) }?;
        on(file, |file| Ok(file.read_at(buffer, offset)? as i64))
    })
}

/// Writes bytes at the position and moves it: how many were written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_file_write(
    file: extant_file,
    bytes: *const u8,
    size: usize,
) -> i64 {
    call(|| {
        // SAFETY: the caller's promise.
        let bytes = unsafe { memory::bytes(bytes, size) }?;
        on(file, |mut file| Ok(file.write(bytes)? as i64))
    })
}

/// Writes bytes at an offset; the position stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_file_pwrite(
    file: extant_file,
    bytes: *const u8,
    size: usize,
    offset: u64,
) -> i64 {
    call(|| {
        // SAFETY: the caller's promise.
        let bytes = unsafe { memory::bytes(bytes, size) }?;
        on(file, |file| Ok(file.write_at(bytes, offset)? as i64))
    })
}

/// Moves the position: the new one. whence: SEEK_SET, SEEK_CUR or SEEK_END of stdio.h.
#[unsafe(no_mangle)]
pub extern "C" fn extant_file_seek(file: extant_file, offset: i64, whence: c_int) -> i64 {
    call(|| {
        let before = || Failure::invalid("offset before start of file");
        let to = match whence {
            libc::SEEK_SET => SeekFrom::Start(u64::try_from(offset).map_err(|_| before())?),
            libc::SEEK_CUR => SeekFrom::Current(offset),
            libc::SEEK_END => SeekFrom::End(offset),
            _ => return Err(Failure::invalid("invalid whence")),
        };
        on(file, |mut file| i64::try_from(file.seek(to)?).map_err(|_| before()))
    })
}

/// Makes the file shorter or longer; new bytes are zeroes, and a hole.
#[unsafe(no_mangle)]
pub extern "C" fn extant_file_truncate(file: extant_file, size: u64) -> c_int {
    call(|| on(file, |file| Ok(file.set_len(size).map(|()| 0)?)))
}

/// Waits until contents and metadata are on the device; if data_only is not 0, until the contents
/// are, with the metadata that are needed to read them.
#[unsafe(no_mangle)]
pub extern "C" fn extant_file_sync(file: extant_file, data_only: c_int) -> c_int {
    let sync = if data_only == 0 { File::sync_all } else { File::sync_data };
    call(|| on(file, |file| Ok(sync(file).map(|()| 0)?)))
}

/// Attributes of the file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_file_stat(file: extant_file, result: *mut extant_stat) -> c_int {
    call(|| {
        memory::is_there(result)?;
        let metadata = on(file, |file| Ok(file.metadata()?))?;
        // SAFETY: the caller's promise.
        unsafe { memory::put(result, (&metadata).into()) }?;
        Ok(0)
    })
}
