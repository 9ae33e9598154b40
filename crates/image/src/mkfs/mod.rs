//! `extant mkfs`: a new file system, as mke2fs would make it.

pub mod bad_blocks;
pub mod command;
pub mod config;
mod error;
pub(crate) mod extended;
pub(crate) mod external_journal;
pub(crate) mod features;
mod fill;
mod huge_files;
pub(crate) mod identity;
mod inodes;
pub(crate) mod numbers;
pub(crate) mod options;
pub mod params;
pub mod probe;
mod report;
pub mod summary;
mod superblock;
mod volume;
mod write;

pub use command::{Environment, Prompt, fake_time, run};
pub use config::Config;
pub use error::{
    Conflict, JournalDeviceError, MkfsError, Shortage, SizeError, UsageError, ValueError,
};
pub use extended::{Extended, RootOwner};
pub use identity::{EPOCH_VARIABLE, FAKE_TIME_VARIABLE, Identity};
pub use options::{BlockSize, JournalOptions, Options, Program, UuidChoice, wait_of};
pub use params::{DeviceInfo, FsParams};
pub use superblock::raw_superblock;
pub use volume::{MappedFile, NewVolume};
pub(crate) use write::Batch;
pub use write::WriteRules;
