//! The ext4 format.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
