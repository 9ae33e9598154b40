//! `extant umount`: unmounts, and returns when everything is on the device.

use std::path::PathBuf;

use crate::failure::Failure;
use crate::session::Session;

/// Unmount a volume, and wait until everything is on the device
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Even while files are open, without waiting: the mount ends with the last of them
    #[arg(short)]
    lazy: bool,
    /// The mount point
    #[arg(value_name = "MOUNTPOINT")]
    point: PathBuf,
}

impl Args {
    pub(crate) fn run(self, _: &mut Session) -> Result<(), Failure> {
        extant_mount::unmount(&self.point, self.lazy).map_err(Failure::new)
    }
}
