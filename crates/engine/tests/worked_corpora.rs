//! The corpora of damaged images: each is opened and changed, or refused; none panics, none loops
//! for ever.

mod common;

use common::worked::{Work, work};
use extant_device::OverlayDevice;
use extant_reader::Error;
use extant_testkit::{TempImage, corpora, own_corpus, skip};
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
