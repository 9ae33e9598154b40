//! The same input and options give the same image, byte for byte.

use crate::{assert_clean, mounted, options, tree_of};
use extant_image::build::{BuildOptions, build};
use extant_image::source::{ReadOptions, Source, read_sources};
use extant_testkit::tree::Random;
use extant_testkit::{Scratch, TreeSnapshot, assert_same_tree, skip, tool, tree};
use std::fs;
use std::path::Path;

fn image_of(source: &Path, scratch: &Scratch, words: &str, threads: usize) -> Vec<u8> {
    let image = scratch.join("disk.img");
    let options = BuildOptions { threads: Some(threads), ..options(&image, words) };
    build(&options, &tree_of(source), &|_| ()).unwrap();
    fs::read(&image).unwrap()
}

#[test]
fn threads_do_not_show() {
    let scratch = Scratch::new();
    let source = scratch.join("source");
    let grown = tree::Options { largest: 9 << 20, block: 1024, ..Default::default() };
    tree::grow(&source, 21, &grown).unwrap();
    for words in ["", "-t ext3 -b 1024 -O ea_inode", "-O bigalloc,inline_data,quota"] {
        let one = image_of(&source, &scratch, words, 1);
        for threads in [2, 7] {
            assert!(
                image_of(&source, &scratch, words, threads) == one,
                "{words}: {threads} threads"
            );
        }
    }
}

/// Copies a directory's files in an order of its own.
fn copied(from: &Path, to: &Path, seed: u64) {
    let mut names: Vec<_> =
        fs::read_dir(from).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    let mut random = Random::new(seed);
    for at in (1..names.len()).rev() {
        names.swap(at, random.below(at as u64 + 1) as usize);
    }
    fs::create_dir(to).unwrap();
    for name in &names {
        fs::copy(from.join(name), to.join(name)).unwrap();
        let time = fs::metadata(from.join(name)).unwrap().modified().unwrap();
        fs::File::options().write(true).open(to.join(name)).unwrap().set_modified(time).unwrap();
    }
    let time = fs::metadata(from).unwrap().modified().unwrap();
    fs::File::open(to).unwrap().set_modified(time).unwrap();
}

#[test]
fn the_order_in_which_files_were_made_does_not_show() {
    let scratch = Scratch::new();
    let first = scratch.join("first");
    fs::create_dir(&first).unwrap();
    for at in 0..700 {
        fs::write(first.join(format!("file {at}")), vec![at as u8; at * 13]).unwrap();
    }
    let expected = image_of(&first, &scratch, "", 2);
    for seed in 1..3 {
        let other = scratch.join(format!("copy {seed}"));
        copied(&first, &other, seed);
        assert!(image_of(&other, &scratch, "", 2) == expected, "seed {seed}");
    }
}

#[test]
fn identity_follows_the_content_unless_it_is_given() {
    let scratch = Scratch::new();
    let (source, image) = (scratch.join("source"), scratch.join("disk.img"));
    fs::create_dir(&source).unwrap();
    fs::write(source.join("a"), "a").unwrap();
    let uuid = |words: &str, epoch: Option<i64>| {
        let options = BuildOptions { epoch, ..options(&image, words) };
        build(&options, &tree_of(&source), &|_| ()).unwrap().uuid
    };
    let of_content = uuid("", Some(1_000_000_000));
    assert_eq!(of_content.0[6] >> 4, 8, "version 8 of RFC 9562");
    assert_eq!(uuid("", Some(1_000_000_000)), of_content);
    assert_ne!(uuid("-L other", Some(1_000_000_000)), of_content);
    let given = "01234567-89ab-4def-8123-456789abcdef";
    assert_eq!(uuid(&format!("-U {given}"), None).to_string(), given);
    assert!(build(&options(&image, "-U random"), &tree_of(&source), &|_| ()).is_err());
}

/// The same archive, plain or packed, read in place or from a spool.
#[test]
fn packing_of_an_archive_does_not_show() {
    let (Some(tar), Some(gzip)) = (tool("tar"), tool("gzip")) else { skip!("no tar or gzip here") };
    let scratch = Scratch::new();
    let (source, plain) = (scratch.join("source"), scratch.join("tree.tar"));
    tree::grow(&source, 22, &tree::Options { xattrs: false, ..Default::default() }).unwrap();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let words = ["--sparse", "--format=pax", "-C", &text(&source), "-cf", &text(&plain), "."];
    tar.text(words).unwrap();
    gzip.text(["-k", &text(&plain)]).unwrap();
    let image_of = |archive: &Path| {
        let image = scratch.join("disk.img");
        let sources = [Source::Archive(archive.to_owned())];
        let reading = ReadOptions { spool: scratch.path().to_owned(), ..ReadOptions::default() };
        let tree = read_sources(&sources, &reading).unwrap();
        build(&options(&image, ""), &tree, &|_| ()).unwrap();
        assert_clean(&image, "an archive");
        (fs::read(&image).unwrap(), mounted(&image, "an archive"))
    };
    let (of_plain, found) = image_of(&plain);
    let (of_packed, _) = image_of(&scratch.join("tree.tar.gz"));
    assert!(of_plain == of_packed);
    // tar leaves sockets out.
    let expected = TreeSnapshot::of_dir(&source).unwrap().without("special/socket");
    if let Some(found) = found {
        assert_same_tree(&expected, &found);
    }
}
