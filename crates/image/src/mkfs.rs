//! `extant mkfs`: a new file system, as mke2fs would make it.

pub mod config;
mod error;
mod extended;
mod features;
pub mod figures;
mod numbers;
mod options;

pub use config::Config;
pub use error::MkfsError;
pub use extended::{Extended, QuotaType, RootOwner};
pub use figures::{DeviceFacts, Figures};
pub use options::{BlockSize, JournalOptions, Options, Program, UuidChoice};
