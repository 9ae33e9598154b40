//! A volume that is changed.
//!
//! Opened by [`Volume::open`] a file system on a device is a [`Volume`], which owns an [`Engine`]:
//! it is read and changed, through a journal where it has one. Its calls that only read are those
//! of a [`Reader`](extant_reader::Reader), in [`VolumeRead`](extant_reader::VolumeRead); an
//! [`OpenVolume`] is one or the other. All are `Send + Sync`, and every call takes `&self`.
//!
//! The algorithms that change the format are in [`mod@write`]: functions over [`edit::Edit`].
#![forbid(unsafe_code)]

mod alloc;
pub mod edit;
mod engine;
mod growable;
mod growth;
mod lifecycle;
mod open_volume;
pub mod ops;
mod options;
mod ranks;
mod shutdown;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod volume;
pub mod write;

pub use alloc::AllocatorKind;
pub use engine::Engine;
#[cfg(feature = "testing")]
pub use engine::faults::Step;
pub use engine::lost::ErrorSample;
pub use extant_journal::{BatchTime, FastCommitCounts};
pub use growth::{GrowthError, GrowthPlan, GrowthPlanner};
pub use open_volume::{OpenReadDir, OpenVolume};
pub use ops::{Credentials, Defragmented, EngineReadDir, RenameFlags, SetAttributes, TimesOfUse};
pub use options::{DataMode, VolumeOptions};
pub use shutdown::Shutdown;
pub use volume::Volume;
pub use write::xattr::{MAX_XATTR_SIZE, XattrSet};
