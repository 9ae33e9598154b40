//! `extant mkfs -d`: a file system made and filled in one go.

use extant_testkit::{Scratch, debugfs, e2fsck_fn, skip, tool};
use std::process::{Command, Output};

fn mkfs(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_extant")).arg("mkfs").args(args).output().unwrap()
}

#[test]
fn mkfs_fills_the_volume_from_a_directory_and_overwrites_only_when_told() {
    if tool("e2fsck").is_none() {
        skip!("e2fsck is not installed");
    }
    let scratch = Scratch::new();
    let tree = scratch.join("tree");
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("hello"), "hello\n").unwrap();
    let image = scratch.join("disk.img");
    let (tree, path) = (tree.to_str().unwrap(), image.to_str().unwrap());

    let made = mkfs(&["-q", "-t", "ext4", "-L", "filled", "-d", tree, path, "32M"]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    assert_eq!(std::fs::metadata(&image).unwrap().len(), 32 << 20);
    e2fsck_fn(&image).unwrap();
    assert_eq!(debugfs(&image, "cat /hello").unwrap(), "hello\n");

    let before = std::fs::read(&image).unwrap();
    let refused = mkfs(&["-q", "-t", "ext2", "-d", tree, path]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("ext4"), "it says what it found");
    assert_eq!(std::fs::read(&image).unwrap(), before, "a refusal writes nothing");

    let forced = mkfs(&["-q", "-F", "-t", "ext2", "-d", tree, path]);
    assert!(forced.status.success(), "{}", String::from_utf8_lossy(&forced.stderr));
    e2fsck_fn(&image).unwrap();
}
