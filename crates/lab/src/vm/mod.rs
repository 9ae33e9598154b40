//! A guest in which cells run whose file systems this kernel does not have: a kernel, tools and
//! libraries of Debian's packages, `extant` itself to do the work, and a disk, in QEMU.
//!
//! The host keeps the plan and the samples as it does for its own cells; only the cell's process
//! runs in the guest. Orders and messages of cells go through a port of virtio, a line of JSON
//! each. Nothing is installed, and only caches stay.

mod agent;
mod cpio;
mod guest;
mod image;
mod machine;
mod modules;
mod packages;

pub use agent::serve;
pub use guest::{Guest, Options};
pub use image::Image;
pub use machine::{Acceleration, QEMU};

/// Why there is no guest: a sentence for the report.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct VmError(pub String);

/// Adds the failed operation to an error.
trait Trying<T> {
    fn trying(self, what: impl std::fmt::Display) -> Result<T, VmError>;
}

impl<T, E: std::fmt::Display> Trying<T> for Result<T, E> {
    fn trying(self, what: impl std::fmt::Display) -> Result<T, VmError> {
        self.map_err(|error| VmError(format!("{what}: {error}")))
    }
}
