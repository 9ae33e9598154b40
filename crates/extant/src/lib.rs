//! ext4 in user space: a volume with an API like std::fs.
//!
//! [`FileSystem`] opens an image, or any [`Device`], and works with paths as [`std::fs`] does;
//! [`FileSystem::volume`] is the volume below it, with calls by inode: [`VolumeRead`] for reading,
//! [`Engine`] for changes. [`format()`] makes new file systems. Nothing here needs root or the
//! kernel's ext4.
//!
//! ```
//! use extant::{FileSystem, MemoryDevice, OpenOptions};
//! use std::io::{Read, Seek, SeekFrom, Write};
//! use std::sync::Arc;
//!
//! let device = Arc::new(MemoryDevice::new(8 << 20));
//! extant::format(&*device, ["-t", "ext4"])?;
//!
//! let fs = FileSystem::on_device(device.clone())?;
//! fs.create_dir_all("/var/log")?;
//! let options = OpenOptions::new().read(true).append(true).create(true);
//! let mut log = options.open(&fs, "/var/log/boot")?;
//! writeln!(log, "first line")?;
//! log.sync_all()?; // on the device from here on, whatever happens
//! log.seek(SeekFrom::Start(0))?;
//! let mut text = String::new();
//! log.read_to_string(&mut text)?;
//! assert_eq!(text, "first line\n");
//! drop(log);
//! fs.rename("/var/log/boot", "/var/log/boot.0")?;
//! fs.close()?;
//!
//! let fs = FileSystem::on_device(device)?;
//! assert!(fs.exists("/var/log/boot.0")?);
//! assert_eq!(fs.read("/missing").unwrap_err().kind(), std::io::ErrorKind::NotFound);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod builder;
mod checker;
mod content_device;
pub mod debug;
mod dir;
mod entry;
mod error;
mod export;
mod file;
mod format;
mod formatter;
mod fs;
mod growth;
mod image;
mod import;
pub mod inspect;
mod metadata;
#[cfg(feature = "mount")]
mod mounter;
mod named_device;
mod open_error;
mod path;
mod path_error;
mod recovery;
pub mod rescue;
mod resizer;
pub mod rooms;
mod schemes;
#[cfg(feature = "sim")]
mod simulated;
mod tuner;
mod verdict;

pub use builder::{ImageBuilder, ImageError};
pub use checker::{Checker, random_uuid};
pub use content_device::ContentDevice;
pub use dir::{DirEntry, ReadDir};
pub use entry::Entry;
pub use error::Error;
pub use export::{ExportError, Exported, TarWriter};
pub use extant_check::run::{Report as CheckReport, RunError};
pub use extant_check::{AutoPolicy as Repairs, Finding, HandledFinding, Severity};
pub use extant_device::{
    AlignedBuffer, ByteSize, Device, DeviceError, Direct, FileDevice, FileDeviceOptions, FileError,
    MemoryDevice, SizeGrammar,
};
pub use extant_engine::{
    AllocatorKind, Credentials, DataMode, Engine, GrowthError, OpenVolume, RenameFlags,
    SetAttributes, Volume, VolumeOptions, XattrSet,
};
pub use extant_image::build::{BuildError, Progress, Report, Room, Size};
pub use extant_image::export::{Problem, Summary};
pub use extant_image::mkfs::{MkfsError, UuidChoice};
pub use extant_image::resize::ResizeError;
pub use extant_image::source;
pub use extant_image::tune::TuneError;
pub use extant_journal::Recovered;
#[cfg(feature = "mount")]
pub use extant_mount::MountError;
pub use extant_ondisk::InodeNo;
pub use extant_ondisk::acl::{Acl, AclEntry, Subject};
pub use extant_ondisk::inode::{DeviceNumber, FileType, InodeFlags};
pub use extant_ondisk::time::Timestamp;
pub use extant_reader::{
    AclKind, Error as Cause, Follow, Reader, ReaderOptions, StatFs, VolumeRead, XattrInfo,
};
pub use extant_runtime::env::Env;
#[cfg(feature = "sim")]
pub use extant_sim::model::{Preset, costs};
pub use extant_storage::{Access, FinishError, Opened, Schemes, UrlError};
pub use file::{File, OpenOptions};
pub use format::{format, format_filled};
pub use formatter::{Formatter, FsType};
pub use fs::FileSystem;
pub use growth::ResizePlanner;
pub use image::Image;
pub use import::{
    ExtractCause, ExtractError, Extracted, ExtractedCounts, MemberError, MemberProblem,
    TarExtractor,
};
pub use metadata::Metadata;
#[cfg(feature = "mount")]
pub use mounter::{Mount, Mounter, MounterError};
pub use named_device::open_device;
pub use open_error::OpenError;
pub use path_error::PathError;
pub use recovery::recover;
pub use resizer::Resizer;
pub use schemes::schemes;
pub use tuner::Tuner;
pub use verdict::Verdict;

/// The examples of the book's page on the library are tests.
#[cfg(all(doctest, feature = "mount"))]
#[doc = include_str!("../../../docs/src/guide/library.md")]
struct Guide;
