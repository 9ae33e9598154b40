//! The corpora of damaged images: each is opened and walked, or refused; none panics, none goes on for ever.

mod common;

use extant_testkit::{TempImage, corpora, skip};
use extant_volume::{Error, Volume};

/// Images above this many bytes, sparse ones too, are left to slower tests.
const MAX_SIZE: u64 = 2 << 40;

fn walk_all(kind: &str) {
    let Some(corpora) = corpora() else { skip!("no corpora here") };
    let mut refused = Vec::new();
    let (mut opened, mut with_errors) = (0, 0);
    for file in std::fs::read_dir(corpora.join(kind)).unwrap() {
        let packed = file.unwrap().path();
        if packed.extension().is_none_or(|extension| extension != "gz") {
            continue;
        }
        let image = TempImage::gunzipped(&packed).unwrap();
        if std::fs::metadata(image.path()).unwrap().len() > MAX_SIZE {
            continue;
        }
        match Volume::open(common::device(&image.path())) {
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
    assert!(opened > refused.len(), "{kind}: most images can be opened");
    assert!(with_errors > 0, "{kind}");
}

#[test]
fn damaged_images_are_walked_to_an_end() {
    walk_all("fsck-images");
}

#[test]
fn images_with_damaged_journals_are_walked_to_an_end() {
    walk_all("journal-images");
}
