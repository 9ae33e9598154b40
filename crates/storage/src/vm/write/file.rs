//! The file of an image, which grows.

use std::fmt;
use std::sync::Arc;

use extant_device::{Device, DeviceError, FileDevice};

use super::failure::no_space;

/// Bytes by which a file grows at least.
const STEP: u64 = 1 << 20;

/// Makes a file longer.
type Grow = dyn Fn(u64) -> Result<(), DeviceError> + Send + Sync;

pub(super) struct GrowingFile {
    pub(super) device: Arc<dyn Device>,
    /// `None` for a device that keeps its size.
    grow: Option<Box<Grow>>,
}

impl GrowingFile {
    pub(super) fn of_file(file: Arc<FileDevice>) -> Self {
        let grow = (!file.is_block_device()).then(|| {
            let file = file.clone();
            Box::new(move |size| file.set_len(size)) as Box<Grow>
        });
        Self { device: file, grow }
    }

    pub(super) fn of_size(device: Arc<dyn Device>) -> Self {
        Self { device, grow: None }
    }

    /// Reads bytes; a file may end inside a cluster, whose rest is zeroes.
    pub(super) fn read_at(&self, at: u64, to: &mut [u8]) -> Result<(), DeviceError> {
        let there = self.device.size().saturating_sub(at).min(to.len() as u64) as usize;
        let (part, past) = to.split_at_mut(there);
        past.fill(0);
        match part.is_empty() {
            true => Ok(()),
            false => self.device.read_at(at, part),
        }
    }

    /// Makes the file have the bytes up to `end`. No request is under way.
    pub(super) fn reach(&self, end: u64) -> Result<(), DeviceError> {
        if end <= self.device.size() {
            return Ok(());
        }
        match &self.grow {
            None => Err(no_space("the device of the image is full")),
            Some(grow) => grow(end.next_multiple_of(STEP)),
        }
    }
}

impl fmt::Debug for GrowingFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.device.fmt(f)
    }
}
