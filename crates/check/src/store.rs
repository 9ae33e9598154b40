//! The volume's blocks as a check sees them: read from the device, repaired through an undo log.

use extant_device::{Device, DeviceError};
use extant_ondisk::{BlockNo, FormatError, Geometry};
use std::sync::Arc;

/// Why a check could not go on. What is wrong with the volume is a [`Finding`](crate::Finding), not an error.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The volume cannot be opened at all.
    #[error(transparent)]
    Format(#[from] FormatError),
}

/// Told of every block before it is first overwritten: the undo file.
pub trait BeforeWrite: Send + Sync {
    /// `old` is what the block holds now.
    ///
    /// # Errors
    /// The write is not done.
    fn before_write(&mut self, block: BlockNo, old: &[u8]) -> Result<(), CheckError>;
}

/// Blocks of one volume.
pub struct Store {
    device: Arc<dyn Device>,
    geometry: Geometry,
    undo: Option<Box<dyn BeforeWrite>>,
    changed: bool,
}

impl Store {
    /// The blocks of `device` as `geometry` divides it.
    pub fn new(device: Arc<dyn Device>, geometry: Geometry) -> Self {
        Self { device, geometry, undo: None, changed: false }
    }

    /// Saves blocks through `undo` before they are overwritten.
    pub fn with_undo(mut self, undo: Box<dyn BeforeWrite>) -> Self {
        self.undo = Some(undo);
        self
    }

    /// The sizes and counts.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The device itself, for large sequential reads.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Whether anything was written.
    pub fn is_changed(&self) -> bool {
        self.changed
    }

    /// One block.
    ///
    /// # Errors
    /// The device failed; a block off the volume is the caller's to avoid ([`Geometry::contains`]).
    pub fn read(&self, block: BlockNo) -> Result<Vec<u8>, CheckError> {
        let mut bytes = vec![0; self.geometry.block_len()];
        self.device.read_at(self.geometry.byte_of(block), &mut bytes)?;
        Ok(bytes)
    }

    /// Overwrites one block with a repaired one.
    ///
    /// # Errors
    /// The undo log or the device failed.
    pub fn write(&mut self, block: BlockNo, bytes: &[u8]) -> Result<(), CheckError> {
        assert_eq!(bytes.len(), self.geometry.block_len(), "blocks are written whole");
        if self.undo.is_some() {
            let old = self.read(block)?;
            if let Some(undo) = &mut self.undo {
                undo.before_write(block, &old)?;
            }
        }
        self.device.write_at(self.geometry.byte_of(block), bytes)?;
        self.changed = true;
        Ok(())
    }
}
