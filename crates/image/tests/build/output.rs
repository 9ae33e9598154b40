//! Where the image goes.

use crate::{built, options, tree_of};
use extant_image::build::{Progress, build};
use extant_testkit::{Scratch, tree};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::Mutex;

fn names(scratch: &Scratch) -> Vec<String> {
    let entries = fs::read_dir(scratch.path()).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_failure_leaves_what_was_there() {
    let scratch = Scratch::new();
    let (source, image) = (scratch.join("source"), scratch.join("disk.img"));
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), vec![1; 100_000]).unwrap();
    fs::write(&image, "an older image").unwrap();
    let tree = tree_of(&source);
    // The file changes between planning and reading.
    fs::write(source.join("file"), vec![1; 90_000]).unwrap();
    let refused = built(&tree, &image, "").unwrap_err();
    assert!(refused.to_string().contains("100000 bytes became 90000"), "{refused}");
    assert_eq!(fs::read(&image).unwrap(), b"an older image");
    assert_eq!(names(&scratch), ["disk.img", "source"]);
}

#[test]
fn an_image_replaces_what_was_there_and_is_sparse() {
    let scratch = Scratch::new();
    let (source, image) = (scratch.join("source"), scratch.join("disk.img"));
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), "content").unwrap();
    fs::write(&image, "an older image").unwrap();
    let report = built(&tree_of(&source), &image, "").unwrap();
    let metadata = fs::metadata(&image).unwrap();
    assert_eq!(metadata.len(), report.bytes);
    assert!(metadata.blocks() * 512 < report.bytes / 10, "{} blocks", metadata.blocks());
    assert_eq!(names(&scratch), ["disk.img", "source"]);
}

#[test]
fn progress_ends_at_its_total() {
    let scratch = Scratch::new();
    let (source, image) = (scratch.join("source"), scratch.join("disk.img"));
    tree::grow(&source, 31, &tree::Options::default()).unwrap();
    let last = Mutex::new(Progress { done: 0, total: 1 });
    build(&options(&image, ""), &tree_of(&source), &|progress| {
        let mut last = last.lock().unwrap();
        if progress.done > last.done {
            *last = progress;
        }
    })
    .unwrap();
    let last = last.into_inner().unwrap();
    assert!(last.done >= last.total && last.done < last.total + (1 << 20), "{last:?}");
}

#[test]
fn options_without_meaning_for_a_build_are_refused_by_name() {
    let scratch = Scratch::new();
    let (source, image) = (scratch.join("source"), scratch.join("disk.img"));
    fs::create_dir(&source).unwrap();
    let tree = tree_of(&source);
    for (words, named) in [
        ("-c", "bad blocks (-c, -l)"),
        ("-z undo", "undo files (-z)"),
        ("-J device=/dev/x", "external journals (-J device=)"),
        ("-n", "-n"),
        ("-E root_owner=1:1", "root_owner"),
        ("-E offset=1M", "an offset in the image"),
        ("-O journal_dev", "journal devices"),
    ] {
        let refused = built(&tree, &image, words).unwrap_err().to_string();
        assert!(refused.contains(named), "{words}: {refused}");
    }
    assert_eq!(names(&scratch), ["source"]);
}
