//! The corpus that `cargo xtask corpora` makes: whole images are read and found whole, damaged ones
//! are read as far as they go, repaired, and clean after that.

mod common;

use common::{extant, text};
use extant_testkit::{TempImage, e2fsck_fn, own_corpus, skip, tool};
use std::path::{Path, PathBuf};

/// A quarter of the corpus: each test of this file takes one, so that they run side by side.
fn quarter(which: usize) -> Vec<PathBuf> {
    own_corpus().into_iter().skip(which).step_by(4).collect()
}

fn is_whole(packed: &Path) -> bool {
    packed.to_string_lossy().ends_with("-0.img.gz")
}

/// Runs a command that may complain but must end by itself; gives its exit code.
#[track_caller]
fn code(packed: &Path, words: &[&str]) -> i32 {
    let output = extant(words);
    let said = text(&output.stderr);
    let code = output.status.code();
    assert!(
        code.is_some_and(|code| code != 101) && !said.contains("panicked"),
        "{} {words:?}: {:?} {said}",
        packed.display(),
        output.status
    );
    code.unwrap_or_default()
}

fn take(images: &[PathBuf]) {
    if images.is_empty() {
        skip!("cargo xtask corpora has not been run");
    }
    for packed in images {
        let image = TempImage::gunzipped(packed).unwrap();
        let path = image.path();
        let path = path.to_str().unwrap();
        let is_whole = is_whole(packed);
        let tar = format!("{path}.tar");
        let commands: [&[&str]; 6] = [
            &["find", &format!("{path}:/")],
            &["ls", "-lR", path],
            &["export", path, "-o", &tar],
            &["info", path],
            &["map", path],
            &["fsck", "-fn", path],
        ];
        for words in commands {
            let code = code(packed, words);
            assert!(!is_whole || code == 0, "{}: {words:?} gave {code}", packed.display());
        }
        let repaired = code(packed, &["fsck", "-fy", path]);
        if is_whole {
            assert_eq!(repaired, 0, "{}", packed.display());
        } else if repaired & !3 == 0 {
            assert_eq!(
                code(packed, &["fsck", "-fn", path]),
                0,
                "{} after repair",
                packed.display()
            );
            if tool("e2fsck").is_some() {
                let found = e2fsck_fn(Path::new(path));
                assert!(found.is_ok(), "{} after repair: {found:?}", packed.display());
            }
        } else {
            // Not repaired, and said so: no superblock, or an image that ends too early.
            assert!(matches!(repaired, 8 | 12), "{}: fsck -fy gave {repaired}", packed.display());
        }
    }
}

#[test]
fn first_quarter() {
    take(&quarter(0));
}

#[test]
fn second_quarter() {
    take(&quarter(1));
}

#[test]
fn third_quarter() {
    take(&quarter(2));
}

#[test]
fn fourth_quarter() {
    take(&quarter(3));
}
