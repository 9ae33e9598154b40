//! Where blocks are, and the clock and threads that work on them.
//!
//! - [`Device`]: a run of bytes that is read and written in batches. Everybody holds an `Arc<dyn Device>`.
//! - [`FileDevice`] and [`MemoryDevice`] hold bytes; [`SliceDevice`] and [`OverlayDevice`] stand on another device.
//! - [`LinearDevice`] joins runs of devices, [`lvm`] finds those of a logical volume, and [`crypt`] deciphers.
//! - [`model`]: a simulated drive on a clock of its own.
//! - [`Recorder`] and [`FaultyDevice`] are for tests: power cuts and failures.
//! - [`undo`]: what is overwritten is kept in a file, from which it can be put back.
//! - [`url`]: how a user names a device; [`block_devices`]: those that the machine has.
//! - [`sync`]: locks with an order, condition variables, atomics and threads; nothing else in the engine may take them
//!   from `std`.
//! - [`mod@env`]: the clock and the background work, on real threads or stepped by a test.
#![deny(unsafe_code)]

pub mod block_devices;
pub mod crypt;
pub mod device;
mod error;
mod faulty;
mod file;
mod linear;
pub mod lvm;
mod memory;
pub mod model;
mod overlay;
pub mod partition;
mod random;
pub mod recorder;
mod size;
mod slice;
mod sparse;

pub mod env;
pub mod sync;
pub mod undo;
pub mod url;

pub use device::{
    Device, Outcome, ReadBuffers, Request, RequestKind, WriteBuffers, check_batch, data_runs,
    run_batch,
};
pub use error::{Cause, DeviceError, Operation};
pub use faulty::{Effect, Fault, FaultyDevice};
pub use file::{AlignedBuffer, Direct, FileDevice, FileError, Holder, LoopBacking, OpenOptions};
pub use linear::{LinearDevice, LinearPart};
pub use memory::MemoryDevice;
pub use model::{ModelDevice, ModelOptions};
pub use overlay::OverlayDevice;
pub use partition::{Partition, PartitionContent, PartitionError, PartitionTable, TableKind};
pub use recorder::{Cut, Cuts, Event, RecordedPart, Recorder, Survivors, Sweep};
pub use size::{ByteSize, InvalidSize, SizeGrammar, c_number};
pub use slice::{SliceDevice, SliceError};
