//! The corpora of damaged images, and what fuzzing found: each is opened and changed, or refused;
//! none panics, none loops for ever.

mod common;

use common::bases::{Contents, bases};
use common::worked::{Work, work, work_on_damaged};
use extant_device::OverlayDevice;
use extant_reader::Error;
use extant_testkit::{TempImage, corpora, own_corpus, skip, tool};
use std::path::PathBuf;
use std::sync::Arc;

/// Images above this many bytes, sparse ones too, are left to slower tests.
const MAX_SIZE: u64 = 2 << 40;

fn work_on_all(packed: impl IntoIterator<Item = PathBuf>) {
    let (mut worked, mut refused) = (0, 0);
    for packed in packed {
        let image = TempImage::gunzipped(&packed).unwrap();
        if std::fs::metadata(image.path()).unwrap().len() > MAX_SIZE {
            continue;
        }
        let changed = OverlayDevice::new(common::device(&image.path()));
        match work(Arc::new(changed), Work::LONG) {
            Ok(_) => worked += 1,
            Err(error) => {
                assert!(!matches!(error, Error::Io(_)), "{}: {error}", packed.display());
                refused += 1;
            }
        }
    }
    println!("{worked} changed, {refused} refused or stopped");
    assert!(worked > 0);
}

fn work_on_all_of(kind: &str) {
    let Some(corpora) = corpora() else { skip!("no corpora here") };
    let files = std::fs::read_dir(corpora.join(kind)).unwrap().map(|file| file.unwrap().path());
    work_on_all(files.filter(|path| path.extension().is_some_and(|extension| extension == "gz")));
}

#[test]
fn damaged_images_are_changed_to_an_end() {
    work_on_all_of("fsck-images");
}

#[test]
fn images_with_damaged_journals_are_changed_to_an_end() {
    work_on_all_of("journal-images");
}

#[test]
fn our_own_corpus_is_changed_to_an_end() {
    let images = own_corpus();
    if images.is_empty() {
        skip!("cargo xtask corpora has not been run");
    }
    work_on_all(images);
}

/// The bitmap of a damaged volume has clusters in use again that were freed before. A soak found
/// it.
#[test]
fn clusters_that_are_set_aside_are_not_freed_again() {
    if tool("mke2fs").is_none() {
        skip!("no mke2fs here");
    }
    const DAMAGE: [(u32, u8, u8); 30] = [
        (2832067576, 251, 200),
        (3333057788, 62, 101),
        (1740983120, 38, 170),
        (1595948748, 118, 220),
        (218933629, 93, 253),
        (3070544090, 3, 121),
        (26790413, 161, 250),
        (3978115995, 124, 195),
        (547185380, 129, 93),
        (3702375689, 21, 168),
        (2785592495, 7, 75),
        (235409441, 49, 168),
        (38357887, 171, 31),
        (1737546365, 9, 23),
        (2843987100, 141, 249),
        (39634685, 25, 206),
        (320959218, 225, 240),
        (2598878519, 215, 46),
        (420334350, 203, 231),
        (3750261381, 98, 30),
        (2974308245, 79, 223),
        (2351495468, 250, 6),
        (990146139, 105, 108),
        (3908012575, 255, 251),
        (3680522084, 48, 3),
        (4283443282, 22, 189),
        (624232780, 235, 42),
        (1545717905, 174, 208),
        (4103469095, 75, 193),
        (269598170, 210, 8),
    ];
    let bases = bases(Contents::Small);
    work_on_damaged(&bases[170 % bases.len()], &DAMAGE, Work::SHORT);
}
