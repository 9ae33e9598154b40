//! Memory of the caller: the only place where pointers are followed.
//!
//! Each function says what the caller of libextant must give, and the header says the same. A null
//! pointer is refused. Nothing is kept past the call.
#![allow(unsafe_code)]

use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::{ptr, slice};

use crate::error::Failure;

fn null() -> Failure {
    Failure::new(libc::EFAULT, "bad address: a null pointer")
}

/// The bytes of a string.
///
/// # Safety
/// `text` is null, or points to bytes that end with a 0 and do not change during the call.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Result<&'a OsStr, Failure> {
    if text.is_null() {
        return Err(null());
    }
    // SAFETY: it is not null, and the caller's promise is that of `CStr::from_ptr`.
    let bytes = unsafe { CStr::from_ptr(text) }.to_bytes();
    Ok(OsStr::from_bytes(bytes))
}

/// A path, as [`text()`].
///
/// # Safety
/// As [`text()`].
pub(crate) unsafe fn path<'a>(path: *const c_char) -> Result<&'a Path, Failure> {
    // SAFETY: the promise is the same.
    unsafe { text(path) }.map(Path::new)
}

/// The strings of a list that ends with a null pointer; a null list is empty.
///
/// # Safety
/// `list` is null, or points to pointers as [`text()`] takes them, up to a null pointer.
pub(crate) unsafe fn texts<'a>(list: *const *const c_char) -> Result<Vec<&'a OsStr>, Failure> {
    let mut found = Vec::new();
    if list.is_null() {
        return Ok(found);
    }
    loop {
        // SAFETY: the pointers before this one were not null, so the list does not end before it.
        let next = unsafe { *list.add(found.len()) };
        if next.is_null() {
            return Ok(found);
        }
        // SAFETY: a pointer of the list is one that `text` takes.
        found.push(unsafe { text(next) }?);
    }
}

fn length(size: usize) -> Result<usize, Failure> {
    match isize::try_from(size) {
        Ok(_) => Ok(size),
        Err(_) => Err(Failure::invalid("size past the end of the address space")),
    }
}

/// Bytes that are only read.
///
/// # Safety
/// `bytes` is null, or points to `size` bytes that do not change during the call.
pub(crate) unsafe fn bytes<'a>(bytes: *const u8, size: usize) -> Result<&'a [u8], Failure> {
    let size = length(size)?;
    match (bytes.is_null(), size) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(null()),
        // SAFETY: it is not null and has this number of bytes, at most isize::MAX; bytes need no
        // alignment, and the caller's promise is that they are there and stay.
        (false, _) => Ok(unsafe { slice::from_raw_parts(bytes, size) }),
    }
}

/// A buffer that is filled; it is set to zeroes first, for the caller need not have written it.
///
/// # Safety
/// `buffer` is null, or points to `size` bytes that no other thread uses during the call.
pub(crate) unsafe fn buffer<'a>(buffer: *mut u8, size: usize) -> Result<&'a mut [u8], Failure> {
    let size = length(size)?;
    match (buffer.is_null(), size) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(null()),
        (false, _) => {
            // SAFETY: the bytes are there and not used elsewhere, by the caller's promise.
            unsafe { ptr::write_bytes(buffer, 0, size) };
            // SAFETY: as above, and now each byte has a value.
            Ok(unsafe { slice::from_raw_parts_mut(buffer, size) })
        }
    }
}

/// Puts a value where the caller wants it. Refused before the work, by [`is_there`].
///
/// # Safety
/// `out` is null, or points to memory for a `T`, aligned, that no other thread uses.
pub(crate) unsafe fn put<T>(out: *mut T, value: T) -> Result<(), Failure> {
    is_there(out)?;
    // SAFETY: it is not null; the rest is the caller's promise. What was there is not dropped: it
    // need not be a value, and no type of the header needs to be dropped.
    unsafe { out.write(value) };
    Ok(())
}

/// Whether there is a place for a result, before anything is done.
pub(crate) fn is_there<T>(out: *mut T) -> Result<(), Failure> {
    if out.is_null() { Err(null()) } else { Ok(()) }
}

/// A value that may be left out.
///
/// # Safety
/// `value` is null, or points to a `T` that does not change during the call.
pub(crate) unsafe fn optional<T: Copy>(value: *const T) -> Option<T> {
    // SAFETY: a pointer that is not null points to a value, by the caller's promise.
    unsafe { value.as_ref() }.copied()
}
