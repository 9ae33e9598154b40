//! A device that was opened by its name: the clock that it runs on, and what ends it.

use std::fmt;
use std::sync::Arc;

use extant_device::{Device, DeviceError, errno};
use extant_runtime::env::Env;

/// Writes the contents of a device to its image.
type Finish = dyn Fn() -> Result<(), DeviceError> + Send + Sync;

/// An opened device, with the clock and the background work for its user.
#[derive(Clone)]
pub struct Opened {
    /// The device that is meant.
    pub device: Arc<dyn Device>,
    /// The clock of the machine, or that of a simulated drive.
    pub env: Env,
    /// Where the device begins in its file, in bytes; 0 on layers, which have no such place.
    pub start: u64,
    /// Whether the clock is that of a simulated drive.
    is_simulated: bool,
    /// For a simulated drive, and for an image that is written at the end.
    finish: Option<Arc<Finish>>,
}

/// Why a device was not ended well.
#[derive(Debug, thiserror::Error)]
pub enum FinishError {
    /// It was not flushed, or its image was not written.
    #[error(transparent)]
    Flush(DeviceError),
    /// The image of a simulated drive was not written.
    #[error("cannot write the data of the simulated drive to its image: {0}")]
    Lost(#[source] DeviceError),
}

impl FinishError {
    /// The number that a system call returns for it.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Flush(error) | Self::Lost(error) => error.errno(),
        }
    }

    /// The kind of error in std's words.
    pub fn kind(&self) -> std::io::ErrorKind {
        errno::kind(self.errno())
    }
}

impl FinishError {
    /// The failure of the device below.
    pub fn into_device_error(self) -> DeviceError {
        match self {
            Self::Flush(error) | Self::Lost(error) => error,
        }
    }
}

impl Opened {
    /// A device on the clock of the machine.
    pub fn real(device: Arc<dyn Device>) -> Self {
        Self { device, env: Env::threads(), start: 0, is_simulated: false, finish: None }
    }

    /// A device on a clock of its own. One thread uses it, the one that `env` runs on. `finish`
    /// writes its contents to its image.
    pub fn simulated(
        device: Arc<dyn Device>,
        env: Env,
        finish: impl Fn() -> Result<(), DeviceError> + Send + Sync + 'static,
    ) -> Self {
        Self { device, env, start: 0, is_simulated: true, finish: Some(Arc::new(finish)) }
    }

    /// A device on the clock of the machine whose contents `finish` stores at the end. Without
    /// [`Self::finish`] nothing is stored.
    pub fn staged(
        device: Arc<dyn Device>,
        finish: impl Fn() -> Result<(), DeviceError> + Send + Sync + 'static,
    ) -> Self {
        Self { finish: Some(Arc::new(finish)), ..Self::real(device) }
    }

    /// Whether the device runs on a clock of its own and is used by one thread.
    pub fn is_simulated(&self) -> bool {
        self.is_simulated
    }

    /// The same clock with a device that is a layer on this one.
    pub(crate) fn with_device(self, device: Arc<dyn Device>) -> Self {
        Self { device, ..self }
    }

    /// Flushes a device that was opened for writing, makes a simulated drive write its contents to
    /// its image, and stores an image that is written at the end. Without this call the drive does
    /// so when it is dropped, and its failure is only logged.
    ///
    /// # Errors
    /// The device failed.
    pub fn finish(self) -> Result<(), FinishError> {
        if !self.device.is_read_only() {
            self.device.flush().map_err(FinishError::Flush)?;
        }
        let Some(finish) = self.finish else { return Ok(()) };
        finish().map_err(if self.is_simulated { FinishError::Lost } else { FinishError::Flush })
    }
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Opened");
        shown.field("device", &self.device).field("is_simulated", &self.is_simulated()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_device::{MemoryDevice, Operation, SliceDevice};
    use std::io;
    use std::time::Duration;

    #[test]
    fn what_stands_on_a_simulated_drive_runs_on_its_clock_and_ends_it() {
        let env = Env::stepped(1);
        env.sleep_until(Duration::from_secs(5));
        let drive: Arc<dyn Device> = Arc::new(MemoryDevice::new(4096));
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        let lost = move || Err(DeviceError::io(Operation::Write, 0, 4096, full()));
        let opened = Opened::simulated(drive.clone(), env, lost);
        let slice = SliceDevice::new(drive, 512, 512).expect("it fits");
        let opened = opened.with_device(Arc::new(slice));
        assert!(opened.is_simulated());
        assert_eq!((opened.device.size(), opened.env.elapsed()), (512, Duration::from_secs(5)));
        let error = opened.finish().expect_err("its image has no room");
        assert!(matches!(error, FinishError::Lost(_)), "{error}");
        assert!(error.into_device_error().is_no_space());
    }

    #[test]
    fn a_device_of_the_machine_runs_on_its_clock() {
        let opened = Opened::real(Arc::new(MemoryDevice::new(4096)));
        assert!(!opened.is_simulated() && !opened.env.is_stepped());
        opened.finish().expect("memory");
    }
}
