//! Directories that are read.
//!
//! Pointers are as in [`crate::fs`].
#![allow(unsafe_code)]
#![expect(clippy::missing_safety_doc, reason = "the header says once what all pointers are")]

use std::ffi::{c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::sync::LazyLock;

use extant::rooms::runtime::handles::{Child, Table};
use extant::rooms::runtime::sync::{Arc, Mutex};
use extant::{FileSystem, ReadDir};

use crate::error::{Failure, call};
use crate::fs::{extant_fs, volume};
use crate::memory;
use crate::stat::entry_type;

/// A directory that is read.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types)]
pub struct extant_dir {
    /// The handle; 0 is never one.
    pub handle: u64,
}

/// An entry of a directory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types)]
pub struct extant_dirent {
    /// Number of the inode.
    pub inode: u32,
    /// The type, as the DT_ constants of dirent.h.
    pub file_type: u8,
    /// Bytes of the name.
    pub name_length: u8,
    /// The name, with a 0 at its end.
    pub name: [u8; 256],
}

type Open = Arc<Child<FileSystem, Mutex<ReadDir>>>;

static DIRS: LazyLock<Table<Open>> = LazyLock::new(Table::new);

/// Opens a directory. *dir is set if it returns 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_dir_open(
    fs: extant_fs,
    path: *const c_char,
    dir: *mut extant_dir,
) -> c_int {
    call(|| {
        memory::is_there(dir)?;
        // SAFETY: the caller's promise.
        let path = unsafe { memory::path(path) }?;
        let opened = volume(fs)?.child(|fs| Ok::<_, Failure>(Mutex::new(fs.read_dir(path)?)))?;
        let handle = DIRS.insert(Arc::new(opened));
        // SAFETY: the caller's promise.
        unsafe { memory::put(dir, extant_dir { handle }) }?;
        Ok(0)
    })
}

/// The next entry, without . and ..: 1 if there was one, 0 at the end. After an error the entries
/// that follow can still be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_dir_read(dir: extant_dir, entry: *mut extant_dirent) -> c_int {
    call(|| {
        memory::is_there(entry)?;
        let open = DIRS.get(dir.handle)?;
        let Some(found) = open.get().lock().next() else { return Ok(0) };
        let found = found?;
        let bytes = found.file_name().as_bytes();
        let mut name = [0; 256];
        // A name of ext4 has at most 255 bytes.
        let count = bytes.len().min(255);
        name[..count].copy_from_slice(&bytes[..count]);
        let entry_of = extant_dirent {
            inode: found.inode().0,
            file_type: entry_type(found.file_type()?),
            name_length: count as u8,
            name,
        };
        // SAFETY: the caller's promise.
        unsafe { memory::put(entry, entry_of) }?;
        Ok(1)
    })
}

/// Closes a directory.
#[unsafe(no_mangle)]
pub extern "C" fn extant_dir_close(dir: extant_dir) -> c_int {
    call(|| Ok(DIRS.remove(dir.handle).map(|_| 0)?))
}
