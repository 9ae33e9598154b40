//! `extant shutdown`, `freeze` and `thaw`: what is asked of a mounted volume as a whole.

use std::path::PathBuf;

use extant::rooms::engine::Shutdown;

use crate::failure::Failure;
use crate::session::Session;

/// End all writing to a mounted volume at once, as a power cut would
///
/// Every call that reaches the volume fails with EIO from then on; the next mount recovers what was
/// committed. For root and the mount's owner.
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
    /// The mount point
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

/// Hold changes of a mounted volume back until thaw: its image is whole then
///
/// What programs wrote before is in the image, with no journal to recover. Programs that change the
/// volume wait. For root and the mount's owner.
#[derive(Debug, clap::Args)]
pub(crate) struct FreezeArgs {
    /// The mount point
    #[arg(value_name = "MOUNTPOINT")]
    point: PathBuf,
}

impl FreezeArgs {
    pub(crate) fn run(self, _: &mut Session) -> Result<(), Failure> {
        extant::rooms::mount::freeze(&self.point).map_err(Failure::new)
    }
}

/// Let changes of a frozen volume go on
#[derive(Debug, clap::Args)]
pub(crate) struct ThawArgs {
    /// The mount point
    #[arg(value_name = "MOUNTPOINT")]
    point: PathBuf,
}

impl ThawArgs {
    pub(crate) fn run(self, _: &mut Session) -> Result<(), Failure> {
        extant::rooms::mount::thaw(&self.point).map_err(Failure::new)
    }
}
