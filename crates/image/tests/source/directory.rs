//! Directories as sources, compared with the system's own view of them.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use extant_image::source::*;
use extant_testkit::{Scratch, TreeSnapshot, assert_same_tree, tree};

use rustix::fs::{CWD, Mode, OFlags};

use crate::shown::{contents, find, snapshot};

fn read(path: &Path) -> Result<Tree, SourceError> {
    crate::shown::read(&[Source::Directory(path.to_owned())])
}

#[test]
fn a_directory_gives_the_whole_tree() {
    let scratch = Scratch::new();
    let root = scratch.path().join("tree");
    tree::grow(&root, 5, &tree::Options::default()).unwrap();
    let tree = read(&root).unwrap();
    assert_same_tree(&TreeSnapshot::of_dir(&root).unwrap(), &snapshot(&tree));
}

#[test]
fn a_directory_gives_names_links_holes_and_contents() {
    let source = tempfile::tempdir().unwrap();
    let at = |name: &str| source.path().join(name);
    fs::create_dir_all(at("a/b")).unwrap();
    fs::write(at("a/b/file"), b"contents").unwrap();
    fs::set_permissions(at("a/b/file"), fs::Permissions::from_mode(0o4751)).unwrap();
    fs::hard_link(at("a/b/file"), at("other")).unwrap();
    symlink("../nowhere", at("a/link")).unwrap();
    let sparse = File::create(at("sparse")).unwrap();
    sparse.set_len(1 << 20).unwrap();
    sparse.write_all_at(b"in the middle", 1 << 19).unwrap();

    let tree = read(source.path()).unwrap();

    let file = find(&tree, "a/b/file");
    let stat = fs::metadata(at("other")).unwrap();
    let node = tree.node(file);
    assert_eq!(find(&tree, "other"), file);
    assert_eq!((node.links(), node.size(), node.mode()), (2, 8, 0o104_751));
    assert_eq!((node.uid(), node.gid()), (stat.uid(), stat.gid()));
    let mtime = FileTime { seconds: stat.mtime(), nanoseconds: stat.mtime_nsec() as u32 };
    assert_eq!(node.mtime(), mtime);
    let mut contents = [0; 8];
    tree.open(file).unwrap().read_exact_at(&mut contents, 0).unwrap();
    assert_eq!(&contents, b"contents");
    assert_eq!(tree.symlink_target(find(&tree, "a/link")), b"../nowhere");
    let sparse = find(&tree, "sparse");
    let data: u64 = tree.segments(sparse).map(|segment| segment.length).sum();
    assert!(data < 1 << 20, "{data} bytes of data");
    let mut middle = [7; 15];
    tree.open(sparse).unwrap().read_exact_at(&mut middle, (1 << 19) - 1).unwrap();
    assert_eq!(&middle, b"\0in the middle\0");
    assert_eq!(tree.node(NodeId::ROOT).links(), 3);
}

#[test]
fn the_output_may_not_lie_in_a_source() {
    let source = tempfile::tempdir().unwrap();
    fs::create_dir(source.path().join("images")).unwrap();
    let options = ReadOptions {
        output: Some(source.path().join("images/out.img")),
        ..ReadOptions::default()
    };
    let sources = [Source::Directory(source.path().to_owned())];
    let error = read_sources(&sources, &options).unwrap_err().to_string();
    assert!(error.contains("/images: output image is inside source directory"), "{error}");
}

#[test]
fn a_file_that_shrinks_is_an_error_that_names_it() {
    let source = tempfile::tempdir().unwrap();
    let path = source.path().join("log");
    fs::write(&path, b"0123456789").unwrap();
    let tree = read(source.path()).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(4).unwrap();
    let error = tree.open(find(&tree, "log")).unwrap_err().to_string();
    assert!(error.ends_with("log: file changed as we read it: 10 bytes became 4"), "{error}");
}

#[test]
fn paths_longer_than_the_kernel_takes_at_once_are_read() {
    let scratch = Scratch::new();
    let root = scratch.path().join("tree");
    fs::create_dir(&root).unwrap();
    let name = "d".repeat(250);
    let depth = 40;
    let mut at = rustix::fs::openat(CWD, &root, OFlags::DIRECTORY, Mode::empty()).unwrap();
    for _ in 0..depth {
        rustix::fs::mkdirat(&at, name.as_str(), Mode::RWXU).unwrap();
        at = rustix::fs::openat(&at, name.as_str(), OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
    let flags = OFlags::CREATE | OFlags::WRONLY;
    let file = rustix::fs::openat(&at, "file", flags, Mode::RUSR | Mode::WUSR).unwrap();
    File::from(file).write_all_at(b"deep down", 0).unwrap();

    let tree = read(&root).unwrap();
    let path = vec![name.as_str(); depth].join("/") + "/file";
    assert_eq!(contents(&tree, find(&tree, &path)), b"deep down");
}

#[test]
fn a_file_that_cannot_be_read_is_an_error_that_names_it() {
    let scratch = Scratch::new();
    let root = scratch.path().join("tree");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("file"), b"here").unwrap();
    let tree = read(&root).unwrap();
    fs::remove_file(root.join("file")).unwrap();
    symlink("/etc/hostname", root.join("file")).unwrap();
    let error = tree.open(find(&tree, "file")).unwrap_err().to_string();
    let expected = format!("{}/file: cannot open: ", root.display());
    assert!(error.starts_with(&expected), "{error}");
    let missing = read(&root.join("nothing")).unwrap_err().to_string();
    assert!(missing.ends_with("nothing: cannot open: No such file or directory (os error 2)"));
}
