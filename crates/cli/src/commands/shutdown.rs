//! `extant shutdown`, `freeze` and `thaw`: what is asked of a mounted volume as a whole.

use std::path::PathBuf;

use extant::rooms::engine::Shutdown;

use crate::failure::Failure;
use crate::session::Session;

/// End all writing to a mounted volume, as a power cut would
///
/// Every later call on the volume fails with EIO; the next mount recovers what was committed. For
/// root and the owner of the mount.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Write everything first, as freeze does (the default)
    #[arg(long, group = "mode")]
    default: bool,
    /// Commit the journal's running transaction first
    #[arg(long, group = "mode")]
    flush: bool,
    /// Write nothing more
    #[arg(long, group = "mode")]
    no_flush: bool,
    /// Mount point
    #[arg(value_name = "MOUNTPOINT")]
    point: PathBuf,
}

impl Args {
    pub(crate) fn run(self, _: &mut Session) -> Result<(), Failure> {
        let how = match self {
            Self { flush: true, .. } => Shutdown::LogFlush,
            Self { no_flush: true, .. } => Shutdown::NoLogFlush,
            _ => Shutdown::Default,
        };
        extant::rooms::mount::shutdown(&self.point, how).map_err(Failure::new)
    }
}

/// Block changes of a mounted volume, and write everything
///
/// The image is then complete and its journal empty. Programs that change the volume wait until it
/// is thawed. For root and the owner of the mount.
#[derive(Debug, clap::Args)]
pub(crate) struct FreezeArgs {
    /// Mount point
    #[arg(value_name = "MOUNTPOINT")]
    point: PathBuf,
}

impl FreezeArgs {
    pub(crate) fn run(self, _: &mut Session) -> Result<(), Failure> {
        extant::rooms::mount::freeze(&self.point).map_err(Failure::new)
    }
}

/// Allow changes of a frozen volume again
#[derive(Debug, clap::Args)]
pub(crate) struct ThawArgs {
    /// Mount point
    #[arg(value_name = "MOUNTPOINT")]
    point: PathBuf,
}

impl ThawArgs {
    pub(crate) fn run(self, _: &mut Session) -> Result<(), Failure> {
        extant::rooms::mount::thaw(&self.point).map_err(Failure::new)
    }
}
