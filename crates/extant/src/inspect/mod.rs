//! A volume's structures as data: the superblock, the groups, the extents of a file, a map of the
//! volume. `extant info`, `frag` and `map` print this.
//!
//! ```
//! use extant::{FileSystem, Formatter, MemoryDevice, VolumeRead, inspect};
//! use std::sync::Arc;
//!
//! let device = Arc::new(MemoryDevice::new(8 << 20));
//! Formatter::new().label("small").format(&*device)?;
//! let fs = FileSystem::on_device(device.clone())?;
//! fs.write("/file", [1; 10_000])?;
//! fs.sync()?;
//!
//! let file = fs.volume().resolve(b"/file", extant::Follow::Yes)?;
//! let extents = inspect::data_extents(fs.volume(), &file, 1024)?;
//! assert_eq!(inspect::fragments(&extents), 1);
//! fs.close()?;
//!
//! let summary = inspect::summary(device)?;
//! assert_eq!((summary.label.text(), summary.state), ("small", "clean"));
//! assert_eq!(summary.groups.unwrap().len(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod extents;
mod journal;
mod map;
mod name;
mod raw_view;
mod summary;

pub use extents::{Extent, ExtentsError, data_extents, fragments, xattr_extents};
pub(crate) use journal::locate_journal;
pub use journal::{BlockKind, JournalReport, TransactionSummary, journal_report};
pub use map::{BlockUse, CLASSES, Counts, KINDS, VolumeMap};
pub use name::JsonName;
pub use raw_view::{Described, InspectError, RawView, SuperblockChoice};
pub use summary::{
    GroupSummary, JournalSummary, Shape, VolumeSummary, flag_names, mount_options, state_name,
};

use std::sync::Arc;

use extant_device::Device;
use extant_ondisk::jbd2::JournalSuperblock;

/// Superblock, geometry, journal and groups of the volume on a device, as they are stored.
///
/// # Errors
/// There is no volume that this code reads, or the device failed.
pub fn summary(device: Arc<dyn Device>) -> Result<VolumeSummary, InspectError> {
    let view = RawView::new(device, SuperblockChoice::default())?;
    let geometry = view.geometry(false)?;
    let mut summary = VolumeSummary::new(&view);
    summary.add_geometry(&geometry);
    if let Some(raw) = view.journal(Some(&geometry))? {
        summary.add_journal(&JournalSuperblock::decode(&raw)?);
    }
    summary.add_groups(&view, &geometry)?;
    Ok(summary)
}
