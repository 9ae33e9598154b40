//! `extant trim`: gives the free space of an image back to the host, as fstrim does of a mount.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;

use extant::rooms::device::ByteSize;

use crate::failure::{At, Failure};
use crate::image_path::ImagePath;
use crate::output::human_size;
use crate::say;
use crate::session::Session;
use crate::writable_image::{OpenArgs, WritableImage, WritableImages};

/// Bytes of a unit of `st_blocks`, on every file system.
const BLOCK_OF_STAT: u64 = 512;

/// Give the free space of an image back to the host
///
/// Free blocks are discarded group by group: holes are punched into a file, and a device is told
/// (TRIM). A journal that needs recovery is replayed first.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Dry run: only print how much would be discarded; the image is not written
    #[arg(short = 'n')]
    dry_run: bool,
    /// Leave free extents that are smaller, such as 1M
    #[arg(short, value_name = "SIZE", default_value = "0")]
    minimum: ByteSize,
    #[command(flatten)]
    open_args: OpenArgs,
    /// File or block device
    #[arg(value_name = "IMAGE", required = true)]
    images: Vec<OsString>,
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        for name in &self.images {
            let mut images = match self.dry_run {
                true => WritableImages::in_memory(self.open_args),
                false => WritableImages::new(self.open_args, session),
            };
            let done = ImagePath::parse(name).and_then(|inside| {
                inside.check_is_image()?;
                self.trim(&inside, images.of(&inside)?, session)
            });
            let done = done.or_else(|failure| session.error(failure));
            images.close(session)?;
            done?;
        }
        Ok(())
    }

    fn trim(
        &self,
        inside: &ImagePath,
        image: &WritableImage,
        session: &mut Session,
    ) -> Result<(), Failure> {
        let name = inside.name.display();
        if !image.device().can_discard() {
            let why = "cannot discard: not supported by the device or by the file system that holds the image";
            return Err(Failure::at(&inside.name, why));
        }
        // Blocks that the host allocates later would count against those that are given back.
        image.fs.sync().at(&inside.name)?;
        let before = allocated(inside)?;
        let ByteSize(minimum) = self.minimum;
        let engine = image.fs.volume().engine().at(&inside.name)?;
        let discarded = engine.trim(0..u64::MAX, minimum).at(&inside.name)?;
        let size = human_size(discarded);
        if self.dry_run {
            return say!(session, "{name}: {discarded} bytes ({size}) would be discarded");
        }
        match (before, allocated(inside)?) {
            (Some(before), Some(after)) => {
                let given_back = before.saturating_sub(after);
                say!(
                    session,
                    "{name}: {discarded} bytes ({size}) discarded, {given_back} bytes given back"
                )
            }
            _ => say!(session, "{name}: {discarded} bytes ({size}) discarded"),
        }
    }
}

/// Bytes that the files of an image take on the host; `None` for a block device.
fn allocated(inside: &ImagePath) -> Result<Option<u64>, Failure> {
    if inside.image.is_remote() {
        return Ok(None);
    }
    let mut bytes = 0;
    for path in inside.image.files_written() {
        let found = fs::metadata(path).at(path)?;
        if !found.is_file() {
            return Ok(None);
        }
        bytes += found.blocks() * BLOCK_OF_STAT;
    }
    Ok(Some(bytes))
}
