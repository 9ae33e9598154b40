//! Where blocks are, and the clock and threads that work on them.
//!
//! - [`Device`]: a run of bytes that is read and written in batches. Everybody holds an `Arc<dyn Device>`.
//! - [`FileDevice`] and [`MemoryDevice`] hold bytes; the others stand on another device.
//! - [`sync`]: locks with an order, condition variables, atomics and threads; nothing else in the engine may take them
//!   from `std`.
//! - [`env`]: the clock and the background work, on real threads or stepped by a test.
#![deny(unsafe_code)]

mod device;
mod error;
mod file;
mod memory;
mod sparse;

pub mod env;
pub mod sync;

pub use device::{
    Device, Outcome, ReadBuffers, Request, RequestKind, WriteBuffers, check_batch, data_runs,
    run_batch,
};
pub use error::{Cause, DeviceError, Operation};
pub use file::{AlignedBuffer, Direct, FileDevice, FileError, OpenOptions};
pub use memory::MemoryDevice;
