//! Entries that replace others, within one source and over several; owners, times and paths.

use extant_image::source::*;
use extant_testkit::Scratch;

use crate::shown::{contents, find, options, read};
use crate::written::Written;

/// All paths, with the type's first letter and the number of links.
fn listed(tree: &Tree) -> Vec<String> {
    let mut lines = Vec::new();
    let mut open = vec![(String::new(), NodeId::ROOT)];
    while let Some((path, directory)) = open.pop() {
        for dirent in tree.dirents(directory) {
            let path = format!("{path}/{}", String::from_utf8_lossy(tree.name(dirent)));
            let node = tree.node(dirent.node());
            let kind = match node.kind() {
                NodeKind::Directory => 'd',
                NodeKind::Regular => '-',
                NodeKind::Symlink => 'l',
                _ => '?',
            };
            lines.push(format!("{kind}{} {path}", node.links()));
            if kind == 'd' {
                open.push((path, dirent.node()));
            }
        }
    }
    lines.sort_by(|a, b| a[3..].cmp(&b[3..]));
    lines
}

fn read_one(archive: Written) -> Tree {
    let scratch = Scratch::new();
    read(&[archive.source(&scratch, "a.tar")]).unwrap()
}

fn failure(archive: Written) -> String {
    let scratch = Scratch::new();
    let error = read(&[archive.source(&scratch, "a.tar")]).unwrap_err().to_string();
    error.strip_prefix(&format!("{}/a.tar: ", scratch.path().display())).unwrap().to_owned()
}

#[test]
fn a_later_source_replaces_files_and_merges_directories() {
    let scratch = Scratch::new();
    let lower = Written::default()
        .directory("both/")
        .file("both/kept", b"lower")
        .file("both/changed", b"lower")
        .file("file-then-directory", b"lower")
        .directory("directory-then-file/")
        .file("directory-then-file/gone", b"lower")
        .source(&scratch, "lower.tar");
    let upper = Written::default()
        .entry("both/", b'5', "", b"")
        .file("both/changed", b"upper!")
        .file("file-then-directory/new", b"upper")
        .file("directory-then-file", b"upper")
        .source(&scratch, "upper.tar");
    let tree = read(&[lower, upper]).unwrap();
    let expected = [
        "d2 /both",
        "-1 /both/changed",
        "-1 /both/kept",
        "-1 /directory-then-file",
        "d2 /file-then-directory",
        "-1 /file-then-directory/new",
    ];
    assert_eq!(listed(&tree), expected);
    assert_eq!(contents(&tree, find(&tree, "both/changed")), b"upper!");
    assert_eq!(contents(&tree, find(&tree, "both/kept")), b"lower");
    assert_eq!(tree.node_count(), 7, "nodes that cannot be reached are dropped");
}

#[test]
fn the_last_entry_of_a_name_counts_and_other_links_keep_the_old_one() {
    let tree = read_one(
        Written::default()
            .file("a", b"old")
            .hard_link("b", "a")
            .file("a", b"newer")
            .hard_link("c", "/a"),
    );
    assert_eq!(listed(&tree), ["-2 /a", "-1 /b", "-2 /c"]);
    assert_eq!(contents(&tree, find(&tree, "c")), b"newer");
    assert_eq!(contents(&tree, find(&tree, "b")), b"old");
}

#[test]
fn hard_links_lead_to_their_own_source() {
    let scratch = Scratch::new();
    let lower = Written::default().file("a", b"lower").source(&scratch, "lower.tar");
    let upper = Written::default().hard_link("b", "a").source(&scratch, "upper.tar");
    let error = read(&[lower, upper]).unwrap_err().to_string();
    let expected =
        "upper.tar: entry b, byte 0: hard link to a, which is not before it in this source";
    assert!(error.ends_with(expected), "{error}");
}

#[test]
fn paths_lead_through_symlinks_within_the_tree() {
    let tree = read_one(
        Written::default()
            .directory("usr/lib/")
            .symlink("lib", "usr/lib")
            .symlink("usr/up", "../lib")
            .file("lib/a", b"a")
            .file("usr/up/b", b"b")
            .symlink("absolute", "/usr/./lib/../lib")
            .hard_link("absolute/c", "lib/a"),
    );
    let expected = [
        "l1 /absolute",
        "l1 /lib",
        "d3 /usr",
        "d2 /usr/lib",
        "-2 /usr/lib/a",
        "-1 /usr/lib/b",
        "-2 /usr/lib/c",
        "l1 /usr/up",
    ];
    assert_eq!(listed(&tree), expected);
}

#[test]
fn a_symlink_that_changes_is_followed_again() {
    let tree = read_one(
        Written::default()
            .directory("one/")
            .directory("two/")
            .symlink("link", "one")
            .file("link/a", b"")
            .symlink("link", "two")
            .file("link/a", b""),
    );
    assert_eq!(listed(&tree), ["l1 /link", "d2 /one", "-1 /one/a", "d2 /two", "-1 /two/a"]);
}

#[test]
fn paths_may_not_leave_the_tree_or_lead_nowhere() {
    let new = Written::default;
    let cases = [
        (new().file("a/../b", b""), "entry a/../b, byte 0: the path a/../ has a '..' component"),
        (new().hard_link("b", "../../a"), "entry b, byte 0: the path ../../ has a '..' component"),
        (
            new().symlink("out", "../x").file("out/a", b""),
            "entry out/a, byte 512: path leaves the tree through the symbolic link out",
        ),
        (
            new().symlink("a", "b").symlink("b", "a").file("a/x", b""),
            "entry a/x, byte 1024: too many symbolic links on the way to a",
        ),
        (
            new().symlink("a", "nothing").file("a/x", b""),
            "entry a/x, byte 512: parent a is a dangling symbolic link",
        ),
        (new().file("a", b"").file("a/x", b""), "entry a/x, byte 512: parent a is not a directory"),
        (
            new().directory("d/").hard_link("x", "d"),
            "entry x, byte 512: hard link to d, which is a directory",
        ),
        (
            new().hard_link("x", "missing"),
            "entry x, byte 0: hard link to missing, which is not before it in this source",
        ),
        (new().file("/", b"contents"), "entry /, byte 0: the root of the tree must be a directory"),
    ];
    for (archive, expected) in cases {
        assert_eq!(failure(archive), expected);
    }
}

#[test]
fn absolute_and_dotted_paths_are_relative_to_the_root() {
    let tree = read_one(
        Written::default()
            .directory("./")
            .file("//a", b"")
            .file("./b/./c", b"")
            .directory("b//d/."),
    );
    assert_eq!(listed(&tree), ["-1 /a", "d3 /b", "-1 /b/c", "d2 /b/d"]);
    assert_eq!(tree.node(NodeId::ROOT).uid(), 7);
}

#[test]
fn implied_directories_have_mode_755_and_the_time_of_their_first_entry() {
    let tree = read_one(Written::default().file("a/b", b""));
    for id in [NodeId::ROOT, find(&tree, "a")] {
        let node = tree.node(id);
        assert_eq!((node.mode(), node.uid(), node.gid()), (0o40_755, 0, 0));
        assert_eq!(node.mtime(), FileTime { seconds: 1_000_000_000, nanoseconds: 0 });
    }
}

#[test]
fn owners_are_mapped_and_late_times_clamped() {
    let scratch = Scratch::new();
    let source = Written::default()
        .file("a", b"")
        .pax(&[("uid", b"1500"), ("gid", b"2147483648"), ("mtime", b"-1.5")])
        .file("b", b"")
        .source(&scratch, "a.tar");
    let map = "u:1000:0:1000,8:80".parse().unwrap();
    let owners = Owners { all: None, map };
    let tree = read_sources(
        std::slice::from_ref(&source),
        &ReadOptions { owners, latest: Some(10), ..options() },
    )
    .unwrap();
    let (a, b) = (tree.node(find(&tree, "a")), tree.node(find(&tree, "b")));
    assert_eq!((a.uid(), a.gid()), (7, 80));
    assert_eq!((b.uid(), b.gid()), (500, 1 << 31));
    assert_eq!(a.mtime(), FileTime { seconds: 10, nanoseconds: 0 });
    assert_eq!(b.mtime(), FileTime { seconds: -2, nanoseconds: 500_000_000 });

    let owners = Owners { all: Some((1, 2)), ..Owners::default() };
    let tree = read_sources(&[source], &ReadOptions { owners, ..options() }).unwrap();
    assert!(tree.nodes().all(|(_, node)| (node.uid(), node.gid()) == (1, 2)));
}

#[test]
fn more_links_than_ext4_counts_are_refused_by_name() {
    let mut archive = Written::default().file("file", b"");
    for number in 0..65_000 {
        archive = archive.hard_link(&format!("link{number}"), "file");
    }
    let scratch = Scratch::new();
    let error = read(&[archive.source(&scratch, "a.tar")]).unwrap_err().to_string();
    assert_eq!(error, "/file: 65001 hard links: ext4 counts at most 65000");
}

#[test]
fn acls_in_text_become_the_kernels_form_and_set_the_mode() {
    let text = b"user::rwx\nuser:lisa:r-x:1000\ngroup::r--\nmask::rwx\nother::---\n";
    let tree = read_one(
        Written::default()
            .pax(&[("SCHILY.acl.access", text)])
            .file("named", b"")
            .pax(&[("SCHILY.acl.access", b"user::rw-,group::r--,other::r--")])
            .file("minimal", b"")
            .pax(&[("SCHILY.acl.default", b"user::rwx,group::r-x,other::r-x")])
            .directory("directory/"),
    );
    let named = find(&tree, "named");
    let entry = |tag: u16, perm: u16, id: u32| {
        [&tag.to_le_bytes()[..], &perm.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let none = u32::MAX;
    let expected = [
        2_u32.to_le_bytes().to_vec(),
        entry(1, 7, none),
        entry(2, 5, 1000),
        entry(4, 4, none),
        entry(0x10, 7, none),
        entry(0x20, 0, none),
    ]
    .concat();
    let found: Vec<Xattr<'_>> = tree.xattrs(named).collect();
    assert_eq!(found, [Xattr { name: ACL_ACCESS, value: &expected }]);
    assert_eq!(tree.node(named).mode(), 0o100_770);
    assert_eq!(tree.xattrs(find(&tree, "minimal")).count(), 0);
    let names: Vec<&[u8]> = tree.xattrs(find(&tree, "directory")).map(|xattr| xattr.name).collect();
    assert_eq!(names, [ACL_DEFAULT]);
}

#[test]
fn extended_attributes_of_all_archivers_are_read_and_foreign_ones_counted() {
    let tree = read_one(
        Written::default()
            .pax(&[
                ("SCHILY.xattr.user.a%3Db", b"line\nand \0"),
                ("LIBARCHIVE.xattr.user.per%20cent", b"AQID"),
                ("LIBARCHIVE.xattr.com.apple.quarantine", b"AQ=="),
                ("RHT.security.selinux", b"system_u:object_r:bin_t:s0"),
            ])
            .file("a", b""),
    );
    let found: Vec<Xattr<'_>> = tree.xattrs(find(&tree, "a")).collect();
    let expected = [
        Xattr { name: b"security.selinux", value: b"system_u:object_r:bin_t:s0\0" },
        Xattr { name: b"user.a=b", value: b"line\nand \0" },
        Xattr { name: b"user.per cent", value: &[1, 2, 3] },
    ];
    assert_eq!(found, expected);
    let ignored: Vec<(&[u8], u64)> = tree.ignored_xattrs().collect();
    assert_eq!(ignored, [(&b"com.apple.quarantine"[..], 1)]);
}
