//! `extant cat`: contents of files in an image.
use extant::rooms::reader::{Follow, LoadedInode, VolumeRead};

use super::Operands;
use crate::failure::Failure;
use crate::reader::Image;
use crate::salvage::SalvageArgs;
use crate::session::Session;

/// Bytes that are read at once.
const PIECE: usize = 1 << 20;

/// Write files to standard output
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    operands: Operands,
    #[command(flatten)]
    salvage: SalvageArgs,
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        let mut buffer = vec![0; PIECE];
        self.operands.each_salvaged(&self.salvage, session, |named, session| {
            let (image, path) = (&*named.image, &named.path[..]);
            let file = image.resolve(path, Follow::Yes)?;
            write_out(image, path, &file, &mut buffer, session)
        })
    }
}

fn write_out(
    image: &Image,
    path: &[u8],
    file: &LoadedInode,
    buffer: &mut [u8],
    session: &mut Session,
) -> Result<(), Failure> {
    let mut at = 0;
    loop {
        let count = image
            .volume
            .read_loaded(file, at, buffer)
            .map_err(|error| image.failure(path, error))?;
        if count == 0 {
            return Ok(());
        }
        session.out.bytes(&buffer[..count])?;
        at += count as u64;
    }
}
