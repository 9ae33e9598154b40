//! `extant umount`: unmounts, and returns when everything is on the device.

use std::path::PathBuf;

use super::mount::FS_TYPE;
use crate::failure::Failure;
use crate::session::Session;

/// Unmount a volume, and wait until everything is on the device
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Lazy unmount: detach now, end when the last file is closed
    #[arg(short)]
    lazy: bool,
    /// Mount point
    #[arg(value_name = "MOUNTPOINT")]
    point: PathBuf,
}

/// The command line of `umount.fuse.extant`, with which umount(8) calls: the directory, then
/// options.
#[derive(Debug, clap::Args)]
pub(crate) struct CompatArgs {
    /// Unmount at once, without waiting for open files
    #[arg(short)]
    lazy: bool,
    /// Calls that wait for the server end in errors
    #[arg(short)]
    force: bool,
    /// Do not write to /etc/mtab, which nothing does
    #[arg(short = 'n')]
    no_mtab: bool,
    /// Remount read-only where unmounting fails: not supported
    #[arg(short)]
    read_only: bool,
    /// Say what is done
    #[arg(short)]
    verbose: bool,
    /// The mount's namespace: not supported
    #[arg(short = 'N', value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// The type
    #[arg(short = 't', value_name = "TYPE")]
    fs_type: Option<String>,
    /// Mount point
    #[arg(value_name = "MOUNTPOINT")]
    point: PathBuf,
}

impl CompatArgs {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        if self.read_only {
            return Err(Failure::usage("-r: not supported"));
        }
        if self.namespace.is_some() {
            return Err(Failure::usage("-N: not supported"));
        }
        if self.fs_type.is_some_and(|fs_type| fs_type != FS_TYPE) {
            return Err(Failure::usage(format_args!("-t: unknown type (expected {FS_TYPE})")));
        }
        let told = format!("{} unmounted", self.point.display());
        if self.force {
            extant::rooms::mount::unmount_by_force(&self.point, self.lazy).map_err(Failure::new)?;
        } else {
            Args { lazy: self.lazy, point: self.point }.run(session)?;
        }
        if self.verbose {
            session.warn(told)?;
        }
        Ok(())
    }
}

impl Args {
    pub(crate) fn run(self, _: &mut Session) -> Result<(), Failure> {
        extant::rooms::mount::unmount(&self.point, self.lazy).map_err(Failure::new)
    }
}
