//! `extant frag` under the name filefrag, against filefrag on the kernel's mount.

mod common;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::Command;

use common::{EXTANT, extant, quiet, text};
use extant_testkit::{LoopMount, Scratch, TempImage, is_root, skip, tool};

/// Files with holes, in pieces, preallocated, inline, with attributes, directories of several
/// blocks.
fn scatter(root: &Path, has_extents: bool) {
    let mut pair =
        [File::create(root.join("one")).unwrap(), File::create(root.join("two")).unwrap()];
    for round in 0..30_u64 {
        for (step, file) in [3000, 9000].into_iter().zip(&mut pair) {
            file.write_all_at(&[1; 2500], round * step).unwrap();
            file.sync_all().unwrap();
        }
    }
    std::fs::write(root.join("tiny"), "tiny").unwrap();
    std::fs::write(root.join("empty"), "").unwrap();
    std::fs::write(root.join("whole"), vec![2; 3_000_000]).unwrap();
    File::create(root.join("hole")).unwrap().set_len(1 << 20).unwrap();
    if has_extents {
        let file = File::create(root.join("reserved")).unwrap();
        let all = rustix_fallocate(&file, 1 << 20);
        assert!(all, "ext4 preallocates");
        file.write_all_at(&[3; 4096], 8192).unwrap();
    }
    std::fs::create_dir(root.join("dir")).unwrap();
    for index in 0..300 {
        let name = format!("dir/{}-{index}", "x".repeat(90));
        File::create(root.join(name)).unwrap().flush().unwrap();
    }
    let large = "y".repeat(700);
    for (file, value) in [("one", "small"), ("whole", large.as_str())] {
        let status = Command::new("setfattr")
            .args(["-n", "user.a", "-v", value])
            .arg(root.join(file))
            .status();
        assert!(status.unwrap().success());
    }
}

fn rustix_fallocate(file: &File, len: u64) -> bool {
    rustix::fs::fallocate(file, rustix::fs::FallocateFlags::KEEP_SIZE, 0, len).is_ok()
}

fn agrees_with_filefrag(args: &[&str], has_extents: bool) {
    if !is_root() {
        skip!("a loop mount needs root");
    }
    let (Some(filefrag), Some(_)) = (tool("filefrag"), tool("setfattr")) else {
        skip!("filefrag or setfattr is not installed");
    };
    let image = match TempImage::by_mke2fs(64 << 20, args) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let mount = match LoopMount::new(&image.path(), "") {
        Ok(mount) => mount,
        Err(why) => skip!("no loop mount here: {why}"),
    };
    scatter(mount.path(), has_extents);
    mount.unmount().unwrap();
    let mount = LoopMount::new(&image.path(), "ro,noload").unwrap();
    let scratch = Scratch::new();
    let twin = scratch.join("filefrag");
    symlink(EXTANT, &twin).unwrap();
    let names: BTreeSet<_> =
        std::fs::read_dir(mount.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
    let prefix = format!("{}:/", image.path().display());
    for name in names {
        let name = name.to_str().unwrap();
        let verbose = [&["-v"][..], &["-e"], &["-vX"], &["-vk"], &["-v", "-b512"]];
        // Whether the kernel joins runs across blocks of pointers depends on what it did before, so
        // of block maps only the number of pieces is compared. Of attributes inside the inode it
        // tells the place without the inode's own.
        let verbose = verbose.into_iter().filter(|_| has_extents);
        let attributes = (name == "whole").then_some(&["-xv"][..]);
        for words in verbose.chain([&[][..]]).chain(attributes) {
            let theirs = filefrag
                .command()
                .args(words)
                .arg(name)
                .current_dir(mount.path())
                .output()
                .unwrap();
            let ours =
                Command::new(&twin).args(words).arg(format!("{prefix}{name}")).output().unwrap();
            assert_eq!(text(&ours.stderr), "", "{words:?} {name}");
            let found = text(&ours.stdout).replace(&prefix, "");
            assert_eq!(found, text(&theirs.stdout), "{args:?} {words:?} {name}");
        }
    }
}

#[test]
fn extents_are_those_of_filefrag() {
    agrees_with_filefrag(&["-t", "ext4", "-b", "1024"], true);
}

#[test]
fn extents_in_blocks_of_4_kib_and_inline_data_are_those_of_filefrag() {
    agrees_with_filefrag(&["-t", "ext4", "-b", "4096", "-O", "inline_data"], true);
}

#[test]
fn block_maps_are_those_of_filefrag() {
    agrees_with_filefrag(&["-t", "ext2", "-b", "1024"], false);
}

#[test]
fn json_counts_the_pieces() {
    let image = match TempImage::by_mke2fs(16 << 20, &["-t", "ext4"]) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let output =
        extant(["frag".to_owned(), "--json".to_owned(), image.path().display().to_string()]);
    quiet(&output);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json[0]["path"], "/");
    assert_eq!(json[0]["fragments"], 1);
    assert_eq!(json[0]["extents"][0]["flags"][0], "last");
}
