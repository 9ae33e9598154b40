//! `extant commit`: brings the changes of an overlay into its base.

use std::ffi::OsString;

use extant::rooms::device::FileDeviceOptions;
use extant::rooms::storage::{DeviceUrl, stat_host};

use crate::failure::Failure;
use crate::output::human_size;
use crate::say;
use crate::session::Session;
use crate::waiting::Waiting;

/// Bring the changes of an overlay into its base
///
/// Writes all blocks that the overlay's file has to the base, and empties the file. The base must
/// be as it was when the file was made. A commit that was interrupted is repeated by the same
/// command; until then the overlay cannot be used otherwise.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    waiting: Waiting,
    /// Overlay with a file of changes: overlay:IMAGE?upper=FILE
    #[arg(value_name = "OVERLAY", required = true)]
    overlays: Vec<OsString>,
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        let options = self.waiting.on(FileDeviceOptions::new());
        for text in &self.overlays {
            let url = DeviceUrl::parse(text, extant::schemes(), stat_host);
            let url = url.map_err(Failure::usage)?;
            let name = text.display();
            if url.overlay().is_none() {
                let why = format_args!("{name}: not an overlay: write overlay:{name}?upper=FILE");
                return Err(Failure::usage(why));
            }
            if url.superblock.is_some() {
                let why = format_args!("{name}: sb= is for commands that only read the volume");
                return Err(Failure::usage(why));
            }
            match url.commit(&options) {
                Ok(done) => {
                    let (copied, zeroed) = (human_size(done.copied), human_size(done.zeroed));
                    say!(session, "{name}: {copied} copied to the base, {zeroed} zeroed")?;
                }
                Err(error) => session.error(Failure::new(error))?,
            }
        }
        Ok(())
    }
}
