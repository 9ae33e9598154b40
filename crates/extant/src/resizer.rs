//! The size of a volume that is not in use, changed in place.

use std::sync::Arc;

use extant_device::{Device, FileDeviceOptions};
use extant_image::resize::{Bit64, Resize, ResizeError, VolumeSize, size_for};
use extant_journal::ExternalJournal;
use extant_runtime::env::Env;

/// Gives a volume another size, as resize2fs does. The device keeps its size: make a file longer
/// before its volume grows, and shorter afterwards.
///
/// # Costs
/// To grow writes the metadata of the new groups and all descriptors, and reads the bitmaps. To
/// shrink moves what lies past the new end, in pieces of 4 MiB, after a look at all inodes in use;
/// [`Self::minimum`] does the same without the contents, on copies of the metadata in memory. The
/// thread is that of the caller; memory is that of the descriptors, and of the maps that are moved.
///
/// ```
/// use extant::{Formatter, MemoryDevice, Resizer};
/// use std::sync::Arc;
///
/// let device = Arc::new(MemoryDevice::new(64 << 20));
/// Formatter::new().format(&*device)?;
/// let resizer = Resizer::new(device);
/// assert_eq!(resizer.shrink(16 << 20)?, 16 << 20);
/// assert_eq!(resizer.grow(64 << 20)?, 64 << 20);
///
/// let least = resizer.minimum()?;
/// assert!(least < 16 << 20);
/// assert_eq!(resizer.shrink(least)?, least);
/// let refused = resizer.shrink(least - 1).unwrap_err();
/// assert!(refused.to_string().contains("too few"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Resizer {
    device: Arc<dyn Device>,
    journal: Option<Arc<dyn Device>>,
    force: bool,
    stride: Option<u32>,
}

impl Resizer {
    /// A resizer of the volume on a device.
    pub fn new(device: Arc<dyn Device>) -> Self {
        Self { device, journal: None, force: false, stride: None }
    }

    /// Whether a volume is resized that should be checked first.
    #[must_use]
    pub fn force(mut self, force: bool) -> Self {
        self.force = force;
        self
    }

    /// RAID stride in blocks, by which the bitmaps of new groups are placed (`-S`).
    #[must_use]
    pub fn stride(mut self, blocks: u32) -> Self {
        self.stride = Some(blocks);
        self
    }

    /// The device of a journal that is not inside the volume. Without it the machine's block
    /// devices are searched.
    #[must_use]
    pub fn external_journal(mut self, device: Arc<dyn Device>) -> Self {
        self.journal = Some(device);
        self
    }

    /// The volume's size in bytes.
    ///
    /// # Errors
    /// There is no volume, or the device failed.
    pub fn size(&self) -> Result<u64, ResizeError> {
        Ok(VolumeSize::of(&*self.device)?.bytes())
    }

    /// Gives the journal inside the volume a size in MiB. Returns its number of blocks.
    ///
    /// # Errors
    /// A volume without such a journal; a size that a journal cannot have, or too few free blocks;
    /// a volume that is in use or damaged; the device failed.
    pub fn set_journal_size(&self, megabytes: u32) -> Result<u32, ResizeError> {
        self.with(|resize| resize.set_journal_size(megabytes))
    }

    /// The smallest size in bytes that the volume can have. Nothing is written.
    ///
    /// # Errors
    /// A volume that is damaged or cannot be made smaller, or the device failed.
    pub fn minimum(&self) -> Result<u64, ResizeError> {
        let size = VolumeSize::of(&*self.device)?;
        let blocks = self.with(|resize| resize.minimum())?;
        Ok(VolumeSize { blocks, ..size }.bytes())
    }

    /// Makes the volume at least as large as it is, up to `bytes`. Returns its size in bytes: whole
    /// blocks and clusters, without a last block group that would be too small for its metadata.
    ///
    /// # Errors
    /// A smaller size than now, one that the device or the volume's features do not admit, a volume
    /// that is in use or damaged, or a device failed.
    pub fn grow(&self, bytes: u64) -> Result<u64, ResizeError> {
        let size = VolumeSize::of(&*self.device)?;
        let blocks = bytes / u64::from(size.block_size);
        if blocks < size.blocks {
            return Err(ResizeError::TooSmall { blocks, least: size.blocks });
        }
        self.to(size, blocks)
    }

    /// Makes the volume at most as large as it is. Returns its size in bytes, as [`Self::grow`]
    /// does.
    ///
    /// # Errors
    /// A larger size than now, one below the minimum, a volume that is in use or damaged, or a
    /// device failed.
    pub fn shrink(&self, bytes: u64) -> Result<u64, ResizeError> {
        let size = VolumeSize::of(&*self.device)?;
        let blocks = bytes / u64::from(size.block_size);
        if blocks > size.blocks {
            return Err(ResizeError::TooLarge { blocks, most: size.blocks });
        }
        self.to(size, blocks)
    }

    /// Switches the feature `64bit` on or off: group descriptors of 64 bytes or of 32. Returns
    /// whether the volume was changed. Where it was like that already, backups that an interruption
    /// left with the other size are written.
    ///
    /// ```
    /// use extant::{Formatter, MemoryDevice, Resizer};
    /// use std::sync::Arc;
    ///
    /// let device = Arc::new(MemoryDevice::new(64 << 20));
    /// Formatter::new().format(&*device)?;
    /// let resizer = Resizer::new(device);
    /// assert!(resizer.set_64bit(false)?);
    /// assert!(!resizer.set_64bit(false)?);
    /// assert!(resizer.set_64bit(true)?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// A volume without extents, or with too many blocks for 32 bits; too few free blocks for those
    /// that move; a volume that is in use or damaged, or a device failed.
    pub fn set_64bit(&self, is_on: bool) -> Result<bool, ResizeError> {
        Ok(self.with(|resize| resize.set_64bit(is_on))? == Bit64::Changed)
    }

    fn to(&self, size: VolumeSize, blocks: u64) -> Result<u64, ResizeError> {
        if blocks == size.blocks || size_for(&*self.device, blocks)? == size.blocks {
            return Ok(size.bytes());
        }
        let blocks = self.with(|resize| resize.to(blocks))?;
        Ok(VolumeSize { blocks, ..size }.bytes())
    }

    fn with<T>(
        &self,
        run: impl FnOnce(&Resize<'_>) -> Result<T, ResizeError>,
    ) -> Result<T, ResizeError> {
        let (found, why) = match &self.journal {
            Some(journal) => (Some(journal.clone()), None),
            None => {
                ExternalJournal::find_for(&*self.device, &FileDeviceOptions::new().write(true))?
            }
        };
        let env = Env::threads();
        let resize = Resize {
            journal: found.as_deref(),
            force: self.force,
            stride: self.stride,
            ..Resize::new(&self.device, &env)
        };
        run(&resize).map_err(|error| match (error, why) {
            (ResizeError::Journal(error), Some(why)) if error.wants_device() => why.into(),
            (error, _) => error,
        })
    }
}
