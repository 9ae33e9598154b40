//! Volumes with a directory of which one block is corrupt.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use crate::{Scratch, TempImage, debugfs, tool};

/// Bytes of a block of these volumes.
const BLOCK: usize = 1024;
/// Number of files in the directory.
const FILES: usize = 120;

/// The flaw of the block.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BadBlock {
    /// Its checksum is wrong.
    Checksum,
    /// Its first record is shorter than a record can be; the volume has no checksums.
    Record,
}

/// A volume with a directory `/d` of files named `file-with-name-000` and so on, each with its name
/// as content.
#[derive(Debug)]
pub struct BadDirectory {
    /// The volume.
    pub image: TempImage,
    /// The number of the corrupt block on the volume.
    pub block: u64,
    /// The names in the other blocks.
    pub good: BTreeSet<String>,
    /// The names in the corrupt block.
    pub bad: BTreeSet<String>,
}

impl BadDirectory {
    /// Makes the volume and damages block `at` of the directory, which has an index or not. The
    /// error says why it cannot be made.
    pub fn new(is_indexed: bool, at: u64, flaw: BadBlock) -> Result<Self, String> {
        let scratch = Scratch::new();
        let source = scratch.join("source");
        std::fs::create_dir_all(source.join("d")).map_err(|error| error.to_string())?;
        let names: BTreeSet<String> =
            (0..FILES).map(|at| format!("file-with-name-{at:03}")).collect();
        for name in &names {
            std::fs::write(source.join("d").join(name), name).map_err(|error| error.to_string())?;
        }
        let features = match flaw {
            BadBlock::Checksum => "metadata_csum",
            BadBlock::Record => "^metadata_csum",
        };
        let source = source.to_str().ok_or("scratch paths are UTF-8")?;
        let image = TempImage::by_mke2fs(
            16 << 20,
            &["-t", "ext4", "-b", "1024", "-O", features, "-d", source],
        )?;
        if is_indexed {
            // mke2fs makes no index; e2fsck does, and exits with 1 for what it has changed.
            let e2fsck = tool("e2fsck").ok_or("no e2fsck here")?;
            let path = image.path();
            let output = e2fsck.run(["-fyD".as_ref(), path.as_os_str()]);
            if !matches!(output.status.code(), Some(0 | 1)) {
                return Err(format!("e2fsck -D: {:?}", output.status));
            }
        }
        let mapped = debugfs(&image.path(), &format!("bmap /d {at}"))?;
        let block: u64 = mapped.trim().parse().map_err(|_| format!("no block: {mapped}"))?;
        let file = OpenOptions::new().read(true).write(true).open(image.path());
        let file = file.map_err(|error| error.to_string())?;
        let (mut bytes, place) = (vec![0; BLOCK], block * BLOCK as u64);
        file.read_exact_at(&mut bytes, place).map_err(|error| error.to_string())?;
        let is_in_it = |name: &String| bytes.windows(name.len()).any(|it| it == name.as_bytes());
        let (bad, good) = names.into_iter().partition(is_in_it);
        match flaw {
            BadBlock::Checksum => bytes[BLOCK - 1] ^= 0xff,
            BadBlock::Record => bytes[4..6].copy_from_slice(&[3, 0]),
        }
        file.write_all_at(&bytes, place).map_err(|error| error.to_string())?;
        Ok(Self { image, block, good, bad })
    }

    /// The bytes of the corrupt block.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK];
        let file = std::fs::File::open(self.image.path()).expect("the image is there");
        file.read_exact_at(&mut bytes, self.block * BLOCK as u64).expect("the block is in it");
        bytes
    }
}
