//! `e2freefrag`: how fragmented the free space of a volume is.

use std::ffi::OsString;

use extant::debug::{DebugChoice, DebugVolume};
use extant::rooms::storage::{DeviceUrl, stat_host};

use crate::failure::Failure;
use crate::free_extents;
use crate::image_path::open_for_reading;
use crate::parse;
use crate::session::Session;

/// Show free space fragmentation, as e2freefrag does
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Count free chunks of this size, too: a power of two in KiB, at least the block size
    #[arg(short, value_name = "CHUNK_KB", overrides_with = "chunk")]
    chunk: Option<String>,
    /// Print usage
    #[arg(short = 'h')]
    usage: bool,
    /// File or block device; more than one are not looked at
    #[arg(value_name = "IMAGE")]
    images: Vec<OsString>,
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        let usage = parse::usage::<Self>(&session.called);
        if self.usage {
            return Err(Failure::new(usage));
        }
        let misused = |why: String| Failure::new(why + "\n" + &usage);
        let Some(name) = self.images.first() else {
            return Err(misused("missing device name.".to_owned()));
        };
        let url = DeviceUrl::parse(name, extant::schemes(), stat_host).map_err(Failure::new)?;
        let device = open_for_reading(&url)?;
        let shown = name.display();
        let opened = DebugVolume::open(device, &DebugChoice::default());
        let (mut volume, _) = opened.map_err(|error| {
            Failure::new(format_args!("{shown}: {error} while opening filesystem"))
        })?;
        let block_size = volume.geometry().block_size;
        let chunk = self.chunk.map(|kib| free_extents::chunk_size(&kib, block_size));
        let chunk = chunk.transpose().map_err(misused)?.flatten();
        let report = free_extents::report(name, &mut volume, chunk);
        let report = report.map_err(|error| {
            Failure::new(format_args!("{shown}: {error} while reading block bitmap"))
        })?;
        session.out.bytes(report.as_bytes())
    }
}
