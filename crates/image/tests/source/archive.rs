//! Archives written by GNU tar and Python, in every format, give the tree that they were made from.

use std::path::{Path, PathBuf};

use extant_testkit::{Kind, Scratch, Tool, TreeSnapshot, assert_same_tree, skip, tool, tree};

use crate::shown::{archive, data_bytes, read, snapshot};

/// A tree of every kind of file, small enough to be archived a dozen times.
fn grown(scratch: &Scratch) -> PathBuf {
    let root = scratch.path().join("tree");
    let options = tree::Options { many: 50, largest: 1 << 17, ..tree::Options::default() };
    tree::grow(&root, 11, &options).unwrap();
    root
}

fn gnu_tar(tar: &Tool, root: &Path, archive: &Path, options: &[&str]) {
    let paths = ["-cf", archive.to_str().unwrap(), "-C", root.to_str().unwrap()];
    // Attributes of symlinks confuse no one else; sockets are left out by tar with a warning.
    let args = options.iter().chain(&paths).chain(&["--sort=name", "."]);
    let output = tar.run(args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// What tar cannot store, in any format.
fn as_archived(source: &TreeSnapshot) -> TreeSnapshot {
    let mut shown = source.clone();
    shown.entries.retain(|_, entry| entry.kind != Kind::Socket);
    shown
}

#[test]
fn gnu_tar_in_pax_format_gives_the_whole_tree() {
    let Some(tar) = tool("tar") else { skip!("no tar") };
    let scratch = Scratch::new();
    let root = grown(&scratch);
    let expected = as_archived(&TreeSnapshot::of_dir(&root).unwrap());
    let path = scratch.path().join("tree.tar");
    for version in ["0.0", "0.1", "1.0"] {
        let version = format!("--sparse-version={version}");
        let pax = ["--format=pax", "--xattrs", "--xattrs-include=*", "-S", &version];
        gnu_tar(&tar, &root, &path, &pax);
        let tree = read(&[archive(&path)]).unwrap();
        assert_same_tree(&expected, &snapshot(&tree));
        let dense = expected.entries.values().map(|entry| entry.size).sum::<u64>();
        assert!(data_bytes(&tree) < dense / 100, "{} bytes of {dense}", data_bytes(&tree));
    }
}

#[test]
fn gnu_tar_in_older_formats_gives_what_they_can_hold() {
    let Some(tar) = tool("tar") else { skip!("no tar") };
    let scratch = Scratch::new();
    let root = grown(&scratch);
    let whole = as_archived(&TreeSnapshot::of_dir(&root).unwrap());
    let path = scratch.path().join("tree.tar");
    for format in ["--format=gnu", "--format=oldgnu"] {
        gnu_tar(&tar, &root, &path, &[format, "-S"]);
        let expected = whole.clone().map(|entry| {
            entry.mtime.1 = 0;
            entry.xattrs.clear();
        });
        let tree = read(&[archive(&path)]).unwrap();
        assert_same_tree(&expected, &snapshot(&tree));
    }
}
