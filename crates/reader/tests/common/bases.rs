//! Images to be damaged at random: those of the fuzz harnesses.

use super::memory;
use extant_device::Device;
use extant_testkit::{Scratch, TempImage, mke2fs, tool, tree};
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// Without metadata_csum, mostly: damage that a checksum shows does not get far.
const OPTION_SETS: &[&[&str]] = &[
    &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,inline_data,ea_inode,large_dir"],
    &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,uninit_bg,^has_journal", "-g", "1024"],
    &["-t", "ext2", "-b", "1024", "-I", "128"],
    &["-t", "ext4", "-b", "4096", "-O", "bigalloc,^metadata_csum,^has_journal"],
    &["-t", "ext4", "-b", "1024", "-O", "casefold,metadata_csum_seed"],
    // The last gets transactions to replay.
    &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum", "-J", "size=1"],
];

/// An image and the places in it that hold something.
pub(crate) struct Base {
    pub(crate) device: Arc<dyn Device>,
    places: Vec<u64>,
}

impl Base {
    /// Damages the image: a place, a byte of it, and what the byte becomes.
    pub(crate) fn damage(&self, device: &dyn Device, damage: &[(u32, u8, u8)]) {
        for (place, within, value) in damage {
            let place = self.places[*place as usize % self.places.len()];
            device.write_at(place + u64::from(*within) % PLACE, &[*value]).unwrap();
        }
    }
}

/// Bytes of a place: damage goes where there was something.
const PLACE: u64 = 16;

/// How much an image holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Contents {
    /// Some 300 files of all kinds.
    Large,
    /// Some 80, so that inputs are tried several times as fast.
    Small,
}

/// Images of several kinds. The journal of the last one overwrites what the rest has.
pub(crate) fn bases(contents: Contents) -> &'static [Base] {
    static LARGE: OnceLock<Vec<Base>> = OnceLock::new();
    static SMALL: OnceLock<Vec<Base>> = OnceLock::new();
    let (made, many, largest) = match contents {
        Contents::Large => (&LARGE, 200, 40_000),
        Contents::Small => (&SMALL, 40, 10_000),
    };
    made.get_or_init(|| {
        let scratch = Scratch::new();
        let source = scratch.join("source");
        let options =
            tree::Options { many, largest, depth: 5, block: 1024, ..tree::Options::default() };
        tree::grow(&source, 1, &options).unwrap();
        let source = source.to_str().unwrap();
        let is_last = |at| at + 1 == OPTION_SETS.len();
        let sets = OPTION_SETS.iter().enumerate();
        sets.map(|(at, options)| base(source, options, is_last(at))).collect()
    })
}

/// Leaves transactions in the journal: blocks of the inode table and of a directory, as zeroes, and
/// a revoke.
fn dirty(image: &Path) {
    let Some(debugfs) = tool("debugfs") else { return };
    let scratch = Scratch::new();
    let script = scratch.join("script");
    std::fs::write(
        &script,
        "jo\njw -b 300-340,900 /dev/zero\njw -r 900\njw -b 901 /dev/zero\njc\n",
    )
    .unwrap();
    let words = ["-w".as_ref(), "-f".as_ref(), script.as_os_str(), image.as_os_str()];
    assert!(debugfs.run(words).status.success());
}

fn base(source: &str, options: &[&str], is_dirty: bool) -> Base {
    let image = TempImage::of_size(12 << 20).unwrap();
    let path = image.path();
    let args = [&["-q", "-F", "-N", "800", "-d", source], options, &[path.to_str().unwrap()]];
    mke2fs(args.concat()).unwrap();
    if is_dirty {
        dirty(&path);
    }
    let bytes = std::fs::read(&path).unwrap();
    let places = bytes
        .chunks(PLACE as usize)
        .enumerate()
        .filter(|(_, chunk)| chunk.iter().any(|byte| *byte != 0))
        .map(|(at, _)| at as u64 * PLACE)
        .collect();
    Base { device: memory(&bytes), places }
}
