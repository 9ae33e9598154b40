//! `extant mkfs`: a new file system, as mke2fs would make it.

pub mod config;
mod error;
mod extended;
mod numbers;
mod options;

pub use error::MkfsError;
pub use extended::{Extended, QuotaType, RootOwner};
pub use options::{BlockSize, ErrorsBehavior, JournalOptions, Options, Program, UuidChoice};
