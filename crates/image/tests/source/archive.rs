//! Archives written by GNU tar and Python, in every format, give the tree that they were made from.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::thread;

use extant_image::source::*;
use extant_testkit::{Kind, Scratch, Tool, TreeSnapshot, assert_same_tree, skip, tool, tree};
use rustix::fs::{CWD, FileType, Mode};

use crate::shown::{archive, data_bytes, read, snapshot};
use crate::written::file_of;

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

/// File types that tar cannot store, in any format.
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

#[test]
fn gnu_tar_in_the_oldest_formats_gives_simple_trees() {
    let Some(tar) = tool("tar") else { skip!("no tar") };
    let scratch = Scratch::new();
    let root = grown(&scratch);
    let simple = ["plain", "many", "modes"];
    let expected = TreeSnapshot::of_dir(&root).unwrap().map(|entry| {
        entry.mtime.1 = 0;
        entry.xattrs.clear();
    });
    let path = scratch.path().join("tree.tar");
    for format in ["--format=ustar", "--format=v7"] {
        let args = [format, "-cf", path.to_str().unwrap(), "-C", root.to_str().unwrap()];
        let output = tar.run(args.iter().chain(&simple));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let found = snapshot(&read(&[archive(&path)]).unwrap());
        let is_simple = |name: &[u8]| simple.iter().any(|top| name.starts_with(top.as_bytes()));
        let only_simple = |mut tree: TreeSnapshot| {
            tree.entries.retain(|name, _| is_simple(name));
            tree
        };
        assert_same_tree(&only_simple(expected.clone()), &only_simple(found));
    }
}

#[test]
fn acls_that_gnu_tar_writes_as_text_are_those_of_the_tree() {
    let (Some(tar), Some(setfacl)) = (tool("tar"), tool("setfacl")) else {
        skip!("no tar or setfacl")
    };
    let scratch = Scratch::new();
    let root = scratch.path().join("tree");
    fs::create_dir_all(root.join("directory")).unwrap();
    fs::write(root.join("file"), b"").unwrap();
    let entries = "u:123456:rx,g:234567:w,m::rwx";
    let file = root.join("file");
    let directory = root.join("directory");
    let set = setfacl.run(["-m", entries, file.to_str().unwrap()]);
    if !set.status.success() {
        skip!("no ACLs here: {}", String::from_utf8_lossy(&set.stderr));
    }
    let default = "d:u:123456:rwx,d:o::-";
    assert!(setfacl.run(["-m", default, directory.to_str().unwrap()]).status.success());
    let path = scratch.path().join("tree.tar");
    gnu_tar(&tar, &root, &path, &["--format=pax", "--acls"]);
    let tree = read(&[archive(&path)]).unwrap();
    assert_same_tree(&TreeSnapshot::of_dir(&root).unwrap(), &snapshot(&tree));
}

#[test]
fn pythons_tarfile_in_every_format_gives_the_tree() {
    const SCRIPT: &str = "import sys, tarfile\n\
        format = getattr(tarfile, sys.argv[1])\n\
        with tarfile.open(sys.argv[2], 'w', format=format) as archive:\n\
        \x20   for name in sys.argv[4:]:\n\
        \x20       archive.add(sys.argv[3] + '/' + name, arcname=name)\n";
    let Some(python) = tool("python3") else { skip!("no python3") };
    let scratch = Scratch::new();
    let root = grown(&scratch);
    let all = ["plain", "many", "names", "links", "modes", "deep"];
    let expected = as_archived(&TreeSnapshot::of_dir(&root).unwrap()).map(|entry| {
        // tarfile counts time in floating point, so "times" is left out too.
        entry.mtime.1 = 0;
        entry.xattrs.clear();
    });
    let path = scratch.path().join("tree.tar");
    for (format, tops) in [
        ("USTAR_FORMAT", &["plain", "many", "modes"][..]),
        ("GNU_FORMAT", &all),
        ("PAX_FORMAT", &all),
    ] {
        let fixed = ["-c", SCRIPT, format, path.to_str().unwrap(), root.to_str().unwrap()];
        let output = python.run(fixed.iter().chain(tops));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let found = snapshot(&read(&[archive(&path)]).unwrap()).map(|entry| entry.mtime.1 = 0);
        let is_there = |name: &[u8]| tops.iter().any(|top| name.starts_with(top.as_bytes()));
        let only_tops = |mut tree: TreeSnapshot| {
            tree.entries.retain(|name, _| is_there(name));
            tree
        };
        assert_same_tree(&only_tops(expected.clone()), &only_tops(found));
    }
}

/// All of a tree in the order that a writer sees.
fn ordered(tree: &Tree) -> String {
    let mut text = String::new();
    for (id, node) in tree.nodes() {
        let holes: Vec<(u64, u64)> =
            tree.segments(id).map(|segment| (segment.offset, segment.length)).collect();
        let xattrs: Vec<Xattr<'_>> = tree.xattrs(id).collect();
        writeln!(
            text,
            "{id:?} {:?} {:o} {:?} {:?} {holes:?} {xattrs:?}",
            node.kind(),
            node.mode(),
            node.mtime(),
            node.device()
        )
        .unwrap();
        for dirent in tree.dirents(id) {
            writeln!(text, "  {:?} {:?}", tree.name(dirent).escape_ascii(), dirent.node()).unwrap();
        }
    }
    text
}

#[test]
fn packed_archives_and_streams_give_the_same_tree_as_the_plain_file() {
    let Some(tar) = tool("tar") else { skip!("no tar") };
    let scratch = Scratch::new();
    let root = grown(&scratch);
    let path = scratch.path().join("tree.tar");
    gnu_tar(&tar, &root, &path, &["--format=pax", "-S"]);
    let plain = fs::read(&path).unwrap();
    let tree = read(&[archive(&path)]).unwrap();
    let (order, expected) = (ordered(&tree), snapshot(&tree));

    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&plain[..5000]).unwrap();
    let mut packed = gzip.finish().unwrap();
    let mut second = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    second.write_all(&plain[5000..]).unwrap();
    packed.extend(second.finish().unwrap());
    let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 0);
    xz.write_all(&plain).unwrap();
    let zstd = zstd::encode_all(plain.as_slice(), 1).unwrap();
    for bytes in [packed, xz.finish().unwrap(), zstd] {
        // Its name says nothing.
        let tree = read(&[file_of(&scratch, "packed", &bytes)]).unwrap();
        assert_eq!(ordered(&tree), order);
        assert_same_tree(&expected, &snapshot(&tree));
    }

    let fifo = scratch.path().join("fifo");
    rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let writer = thread::spawn({
        let fifo = fifo.clone();
        move || fs::write(fifo, plain).unwrap()
    });
    let tree = read(&[archive(&fifo)]).unwrap();
    writer.join().unwrap();
    assert_eq!(ordered(&tree), order);
    assert_same_tree(&expected, &snapshot(&tree));
}

#[test]
fn the_tree_of_a_directory_does_not_depend_on_the_number_of_threads() {
    let scratch = Scratch::new();
    let root = grown(&scratch);
    let with = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| ordered(&read(&[Source::Directory(root.clone())]).unwrap()))
    };
    let one = with(1);
    assert!(one.lines().count() > 200);
    assert_eq!(with(4), one);
}
