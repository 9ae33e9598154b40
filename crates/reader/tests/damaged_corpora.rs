//! The corpora of damaged images: each is opened and walked, or refused; none panics, none loops
//! for ever.

mod common;

use extant_reader::{Error, Reader};
use extant_testkit::{TempImage, corpora, own_corpus, skip};
use std::path::PathBuf;

/// Images above this many bytes, sparse ones too, are left to slower tests.
const MAX_SIZE: u64 = 2 << 40;

fn walk_all(packed: impl IntoIterator<Item = PathBuf>) {
    let mut refused = Vec::new();
    let (mut opened, mut with_errors) = (0, 0);
    for packed in packed {
        let image = TempImage::gunzipped(&packed).unwrap();
        if std::fs::metadata(image.path()).unwrap().len() > MAX_SIZE {
            continue;
        }
        match Reader::open(common::device(&image.path())) {
            Ok(volume) => {
                opened += 1;
                with_errors += usize::from(!common::walk(&volume).1.is_empty());
            }
            Err(error) => {
                assert!(!matches!(error, Error::Io(_)), "{}: {error}", packed.display());
                refused.push(format!("{}: {error}", packed.file_name().unwrap().display()));
            }
        }
    }
    println!(
        "{opened} opened, {with_errors} of them with errors; refused:\n{}",
        refused.join("\n")
    );
    assert!(opened > refused.len(), "most images can be opened");
    assert!(with_errors > 0);
}

fn walk_all_of(kind: &str) {
    let Some(corpora) = corpora() else { skip!("no corpora here") };
    let files = std::fs::read_dir(corpora.join(kind)).unwrap().map(|file| file.unwrap().path());
    walk_all(files.filter(|path| path.extension().is_some_and(|extension| extension == "gz")));
}

#[test]
fn damaged_images_are_walked_to_an_end() {
    walk_all_of("fsck-images");
}

#[test]
fn images_with_damaged_journals_are_walked_to_an_end() {
    walk_all_of("journal-images");
}

#[test]
fn our_own_corpus_is_walked_to_an_end() {
    let images = own_corpus();
    if images.is_empty() {
        skip!("cargo xtask corpora has not been run");
    }
    walk_all(images);
}
