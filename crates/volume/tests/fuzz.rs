//! Open and walk of randomly damaged images, and work on them: ends, and never panics. `cargo xtask fuzz` runs it for longer.

mod common;

use extant_device::{Device, OverlayDevice};
use extant_testkit::{Scratch, TempImage, fuzz::FUZZ_TIME, mke2fs, skip, tool, tree};
use extant_volume::{Error, Reader};
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
struct Base {
    device: Arc<dyn Device>,
    places: Vec<u64>,
}

/// Bytes of a place: damage goes where there was something.
const PLACE: u64 = 16;

fn bases() -> &'static [Base] {
    static BASES: OnceLock<Vec<Base>> = OnceLock::new();
    BASES.get_or_init(|| {
        let scratch = Scratch::new();
        let source = scratch.join("source");
        let options = tree::Options {
            many: 200,
            largest: 40_000,
            depth: 5,
            block: 1024,
            ..tree::Options::default()
        };
        tree::grow(&source, 1, &options).unwrap();
        let source = source.to_str().unwrap();
        let is_last = |at| at + 1 == OPTION_SETS.len();
        let sets = OPTION_SETS.iter().enumerate();
        sets.map(|(at, options)| base(source, options, is_last(at))).collect()
    })
}

/// Leaves transactions in the journal: blocks of the inode table and of a directory, as zeroes, and a revoke.
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
    Base { device: common::memory(&bytes), places }
}

#[test]
fn open_and_walk_of_a_damaged_image_ends() {
    if tool("mke2fs").is_none() {
        skip!("no mke2fs here");
    }
    // The journal of the last overwrites what the rest has.
    for base in &bases()[..OPTION_SETS.len() - 1] {
        let volume = Reader::open(base.device.clone()).unwrap();
        let (files, errors) = common::walk(&volume);
        assert!(files > 250 && errors.is_empty(), "{files} files, before any damage: {errors:?}");
    }
    bolero::check!()
        .with_type::<(u8, Vec<(u32, u8, u8)>)>()
        .with_test_time(FUZZ_TIME)
        .with_max_len(200)
        .for_each(|(base, damage)| {
            let base = &bases()[usize::from(*base) % OPTION_SETS.len()];
            let device = OverlayDevice::new(base.device.clone());
            for (place, within, value) in damage {
                let place = base.places[*place as usize % base.places.len()];
                device.write_at(place + u64::from(*within) % PLACE, &[*value]).unwrap();
            }
            if let Ok(volume) = Reader::open(Arc::new(device)) {
                common::walk(&volume);
            }
        });
}

/// Opened for changes, walked, written, closed; and what is left is walked once more.
#[test]
fn work_on_a_damaged_image_ends() {
    if tool("mke2fs").is_none() {
        skip!("no mke2fs here");
    }
    for base in &bases()[..OPTION_SETS.len() - 1] {
        let device = Arc::new(OverlayDevice::new(base.device.clone()));
        let wrong = common::worked::work(device).unwrap();
        // mke2fs 1.47.0 leaves sparse files in their inodes, whatever their size.
        let is_sparse = |error: &Error| error.to_string().contains("inline data");
        let is_wrong = |error: &&Error| error.is_corruption() && !is_sparse(error);
        assert!(wrong.iter().find(is_wrong).is_none(), "before any damage: {wrong:?}");
    }
    bolero::check!()
        .with_type::<(u8, Vec<(u32, u8, u8)>)>()
        .with_test_time(FUZZ_TIME)
        .with_max_len(200)
        .for_each(|(base, damage)| {
            let base = &bases()[usize::from(*base) % OPTION_SETS.len()];
            let device = Arc::new(OverlayDevice::new(base.device.clone()));
            for (place, within, value) in damage {
                let place = base.places[*place as usize % base.places.len()];
                device.write_at(place + u64::from(*within) % PLACE, &[*value]).unwrap();
            }
            if common::worked::work(device.clone()).is_ok()
                && let Ok(volume) = Reader::open(device)
            {
                common::walk(&volume);
            }
        });
}
