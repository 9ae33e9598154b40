//! A directory with a corrupt block, mounted: the other blocks are listed and their names found, as
//! by the kernel's ext4.

use std::collections::BTreeSet;
use std::path::Path;
use std::{fs, io};

use extant_testkit::{BadBlock, BadDirectory, LoopMount, Scratch, skip};

use super::{Mount, can_mount};

/// The names of a directory, by one pass of readdir that has no error.
fn names(dir: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(dir).expect("the directory opens");
    let name = |entry: io::Result<fs::DirEntry>| {
        entry.expect("readdir has no error").file_name().into_string().expect("UTF-8")
    };
    entries.map(name).collect()
}

#[test]
fn a_corrupt_directory_block_hides_its_own_names_only() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    // Whether it has an index, the block, the flaw, and whether the kernel lists the others too:
    // it stops at an index block or a leaf with a wrong checksum.
    let cases = [
        (false, 2, BadBlock::Checksum, true),
        (false, 2, BadBlock::Record, true),
        (false, 0, BadBlock::Checksum, true),
        (true, 2, BadBlock::Record, true),
        (true, 2, BadBlock::Checksum, false),
        (true, 0, BadBlock::Checksum, false),
    ];
    for (is_indexed, at, flaw, is_as_the_kernel) in cases {
        for options in ["errors=continue", "errors=remount-ro", "ro"] {
            let case = format!("{flaw:?} of block {at}, index: {is_indexed}, {options}");
            let damaged = match BadDirectory::new(is_indexed, at, flaw) {
                Ok(damaged) => damaged,
                Err(why) => skip!("{why}"),
            };
            let image = damaged.image.path();
            if is_as_the_kernel {
                let kernel = LoopMount::new(&image, "ro,noload").expect("a loop mount");
                assert_eq!(names(&kernel.path().join("d")), damaged.good, "{case}: kernel");
            }
            let scratch = Scratch::new();
            let mount = Mount::new(&scratch, &image, &["-o", options]);
            let dir = mount.path().join("d");
            assert_eq!(names(&dir), damaged.good, "{case}");
            for name in &damaged.good {
                let content = fs::read_to_string(dir.join(name));
                assert_eq!(content.expect(&case), *name, "{case}");
            }
            for name in &damaged.bad {
                let error = fs::metadata(dir.join(name)).expect_err(&case);
                let expected = rustix::io::Errno::UCLEAN.raw_os_error();
                assert_eq!(error.raw_os_error(), Some(expected), "{case}: {name}");
            }
            mount.unmount_whatever_it_says(&case);
        }
    }
}

/// A name may be in the corrupt block, so none is put into the directory; what is in the other
/// blocks can be removed.
#[test]
fn changes_do_not_touch_a_corrupt_directory_block() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    for (at, flaw) in [(2, BadBlock::Checksum), (2, BadBlock::Record), (0, BadBlock::Checksum)] {
        let damaged = match BadDirectory::new(false, at, flaw) {
            Ok(damaged) => damaged,
            Err(why) => skip!("{why}"),
        };
        let bytes = damaged.bytes();
        let image = damaged.image.path();
        let scratch = Scratch::new();
        let mount = Mount::new(&scratch, &image, &["-o", "errors=continue"]);
        let dir = mount.path().join("d");
        fs::write(dir.join("new"), "").expect_err("the name may be in the block");
        fs::rename(dir.join(damaged.good.first().expect("names")), dir.join("new"))
            .expect_err("the name may be in the block");
        for name in &damaged.good {
            fs::remove_file(dir.join(name)).expect("a good block");
        }
        assert_eq!(names(&dir), BTreeSet::new());
        fs::remove_dir(&dir).expect_err("it may not be empty");
        mount.unmount_whatever_it_says("changes");
        assert!(damaged.bytes() == bytes, "block {at}, {flaw:?}");
    }
}

/// With an index a name goes into the leaf of its hash: where that is corrupt it is refused, and
/// the others are put in, until leaves are split.
#[test]
fn a_corrupt_leaf_takes_no_names_and_the_others_do() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    for flaw in [BadBlock::Checksum, BadBlock::Record] {
        let damaged = match BadDirectory::new(true, 2, flaw) {
            Ok(damaged) => damaged,
            Err(why) => skip!("{why}"),
        };
        let bytes = damaged.bytes();
        let image = damaged.image.path();
        let scratch = Scratch::new();
        let mount = Mount::new(&scratch, &image, &["-o", "errors=continue"]);
        let dir = mount.path().join("d");
        let new: BTreeSet<String> = (0..300).map(|at| format!("new-name-{at:03}")).collect();
        let (made, refused): (BTreeSet<_>, BTreeSet<_>) =
            new.into_iter().partition(|name| fs::write(dir.join(name), "").is_ok());
        assert!(!made.is_empty() && !refused.is_empty(), "{flaw:?}: {made:?}");
        let expected: BTreeSet<_> = damaged.good.union(&made).cloned().collect();
        assert_eq!(names(&dir), expected, "{flaw:?}");
        mount.unmount_whatever_it_says("a corrupt leaf");
        assert!(damaged.bytes() == bytes, "{flaw:?}");
        let mount = Mount::new(&scratch, &image, &["-o", "ro"]);
        assert_eq!(names(&mount.path().join("d")), expected, "{flaw:?}");
        mount.unmount_whatever_it_says("a corrupt leaf");
    }
}
