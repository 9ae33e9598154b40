//! libextant: the library for C, and for languages that call C.
//!
//! The header is `include/extant.h`. Objects are handles, numbers that are never used twice, so
//! that a handle of something closed is refused and not followed. Results are those of system
//! calls: a negative number of errno for a failure, with its text in [`extant_last_error`].
//!
//! Pointers of the caller are read and written in `memory.rs` alone; the exported calls pass the
//! caller's promise on, and have names that no other symbol has.
#![deny(unsafe_code)]

mod dir;
mod error;
mod file;
mod fs;
mod image;
mod memory;
mod stat;

pub use dir::*;
pub use error::extant_last_error;
pub use file::*;
pub use fs::*;
pub use image::*;
pub use stat::*;

use std::ffi::{CStr, c_char};

const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => panic!("a version has no zero byte"),
    };

/// The library's version.
#[allow(unsafe_code)] // an exported name: no other symbol has it
#[unsafe(no_mangle)]
pub extern "C" fn extant_version() -> *const c_char {
    VERSION.as_ptr()
}
