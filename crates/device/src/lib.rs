//! Where blocks are.
//!
//! - [`Device`]: a run of bytes that is read and written in batches. All users hold an
//!   `Arc<dyn Device>`.
//! - [`FileDevice`] and [`MemoryDevice`] hold bytes; [`SliceDevice`] and [`OverlayDevice`] are
//!   layers on another device.
//! - [`AtomicFile`] is a file that gets its name when it is complete.
//! - [`LinearDevice`] joins runs of devices.
//! - [`LossyDevice`] reads unreadable sectors as zeros and lists them.
//! - [`undo`]: what is overwritten is kept in a file, from which it can be put back.
//! - [`block_devices`]: the block devices of the machine.
//! - [`host_attributes`]: what chattr sets on files of the machine.
#![deny(unsafe_code)]

pub mod block_devices;
pub mod device;
pub mod errno;
mod error;
mod file;
pub mod host_attributes;
mod linear;
mod lossy;
mod memory;
mod overlay;
mod size;
mod slice;
mod sparse;

pub mod undo;

pub use device::{
    Device, ReadBuffers, Request, RequestKind, RequestStatus, WriteBuffers, check_batch,
    check_range, data_runs, run_batch, run_in_memory, run_reads,
};
pub use error::{Cause, DeviceError, Operation};
pub use file::{
    AlignedBuffer, AtomicFile, Direct, ExtentsQuery, FileDevice, FileDeviceOptions, FileError,
    FileExtent, Holder, LoopBacking, block_size_of, device_block_of, file_extents, new_name,
};
pub use linear::{LinearDevice, LinearPart};
pub use lossy::LossyDevice;
pub use memory::MemoryDevice;
pub use overlay::OverlayDevice;
pub use size::{ByteSize, InvalidSize, SizeGrammar, c_number};
pub use slice::{SliceDevice, SliceEnd, SliceError};
