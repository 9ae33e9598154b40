//! `extant import` next to GNU tar on a kernel mount of the same volume, and what it refuses.

mod common;

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use common::{EXTANT, extant, quiet, snapshot, text};
use extant_testkit::{
    LoopMount, Scratch, TempImage, assert_same_tree, copied, e2fsck_fn, is_root, skip, tool, tree,
};

/// Makes the files of the volume before: below `in` some in the way of the archive's.
const BEFORE: &str = r#"
mkdir -p in/over in/modes real
echo victim > victim
ln -s ../../victim in/over/link
ln -s /real in/through
echo old > in/over/file; ln in/over/file in/over/other
mknod in/over/device c 1 3
ln -s nowhere in/over/target
chmod 700 in/modes; echo kept > in/modes/kept; chown 7:8 in/modes
setfattr -n user.kept -v 1 in/modes
mkdir in/setgid; chgrp 42 in/setgid; chmod 2775 in/setgid
"#;

/// Files of the archive that meet them.
const MORE: &str = r#"
mkdir -p over setgid/dir
echo from the archive > over/link
echo new > over/file
echo new > over/device
ln -s elsewhere over/target
chmod 751 modes
echo c > setgid/file; chown 5:6 setgid/file
head -c 3000000 /dev/urandom > over/large; ln over/large over/large-too
"#;

fn script(text: &str, dir: &Path) {
    let status = Command::new("bash").args(["-euc", text]).current_dir(dir).status();
    assert!(status.is_ok_and(|status| status.success()), "{text}");
}

fn import(words: &[&str]) -> Output {
    extant([&["import"], words].concat())
}

/// A program that packs standard input, or nothing.
fn packed(archive: &Path, packer: Option<&str>, to: &Path) {
    let Some(packer) = packer else {
        fs::copy(archive, to).unwrap();
        return;
    };
    let out = fs::File::create(to).unwrap();
    let input = fs::File::open(archive).unwrap();
    let status = Command::new(packer).arg("-c").stdin(input).stdout(out).status();
    assert!(status.unwrap().success(), "{packer}");
}

/// How an archive is made and unpacked.
struct Way<'w> {
    mkfs: &'w [&'w str],
    /// The script that makes the files of the volume before.
    before: &'w str,
    /// Options of tar about attributes.
    tar: &'w [&'w str],
    packer: Option<&'w str>,
    /// A file that is almost all hole.
    hole: Option<&'w str>,
}

/// All attributes; lists as attributes, so that they have numbers.
const XATTRS: [&str; 2] = ["--xattrs", "--xattrs-include=*"];

/// An archive of a tree of every kind of file.
fn is_unpacked_as_by_tar(mkfs: &[&str], seed: u64, block: usize, packer: Option<&str>) {
    let scratch = Scratch::new();
    let source = scratch.join("source");
    if !is_root() {
        skip!("a loop mount needs root");
    }
    tree::grow(&source, seed, &tree::Options { block, ..tree::Options::default() }).unwrap();
    script(MORE, &source);
    let way = Way { mkfs, before: BEFORE, tar: &XATTRS, packer, hole: Some("in/sparse/all") };
    unpacked_by_both(&scratch, &source, &way);
}

/// Unpacks an archive by the kernel and tar, and by us into a copy of the volume, and compares the
/// trees.
fn unpacked_by_both(scratch: &Scratch, source: &Path, way: &Way<'_>) {
    for name in ["tar", "setfacl", "setfattr"].into_iter().chain(way.packer) {
        if tool(name).is_none() {
            skip!("{name} is not installed");
        }
    }
    let plain = scratch.join("plain.tar");
    let made = Command::new("tar")
        .args(way.tar)
        .args(["-S", "--numeric-owner", "--warning=no-file-ignored", "--format=pax", "-cf"])
        .arg(&plain)
        .arg("-C")
        .args([source, Path::new(".")])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", text(&made.stderr));
    let archive = scratch.join("archive");
    packed(&plain, way.packer, &archive);

    let theirs = match TempImage::by_mke2fs(256 << 20, way.mkfs) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let mount = match LoopMount::new(&theirs.path(), "") {
        Ok(mount) => mount,
        Err(why) => skip!("no loop mount here: {why}"),
    };
    script(way.before, mount.path());
    mount.unmount().unwrap();
    let ours = copied(&theirs.path()).unwrap();

    let mount = LoopMount::new(&theirs.path(), "").unwrap();
    let unpacked = Command::new("tar")
        .args(way.tar)
        .args(["--numeric-owner", "-p", "--warning=no-timestamp", "-xf"])
        .arg(&plain)
        .arg("-C")
        .arg(mount.path().join("in"))
        .output()
        .unwrap();
    assert!(unpacked.status.success(), "{}", text(&unpacked.stderr));
    mount.unmount().unwrap();
    let target = format!("{}:/in", ours.path().display());
    let by_pipe = way.packer == Some("gzip");
    let output = match by_pipe {
        false => import(&["-q", archive.to_str().unwrap(), &target]),
        true => {
            let mut child = Command::new(EXTANT)
                .args(["import", "-q", "-", &target])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            child.stdin.take().unwrap().write_all(&fs::read(&archive).unwrap()).unwrap();
            child.wait_with_output().unwrap()
        }
    };
    quiet(&output);
    assert!(output.stdout.is_empty());
    e2fsck_fn(&ours.path()).unwrap();
    let shown = |image: &TempImage| {
        let mount = LoopMount::new(&image.path(), "ro").unwrap();
        snapshot(mount.path())
    };
    assert_same_tree(&shown(&theirs), &shown(&ours));
    if let Some(path) = way.hole {
        let mount = LoopMount::new(&ours.path(), "ro").unwrap();
        let hole = mount.path().join(path).metadata().unwrap();
        assert!(hole.size() > 1 << 30 && hole.blocks() < 100, "{hole:?}");
    }
}

#[test]
fn a_pax_archive_is_unpacked_as_by_tar() {
    is_unpacked_as_by_tar(&["-t", "ext4", "-b", "4096"], 61, 4096, None);
}

#[test]
fn a_packed_archive_from_a_pipe_is_unpacked_as_by_tar() {
    is_unpacked_as_by_tar(&["-t", "ext4", "-b", "1024"], 62, 1024, Some("gzip"));
}

#[test]
fn an_archive_is_unpacked_as_by_tar_into_a_volume_without_extents_and_journal() {
    let features = ["-t", "ext4", "-O", "^extent,^64bit,^has_journal,inline_data", "-b", "4096"];
    is_unpacked_as_by_tar(&features, 63, 4096, Some("zstd"));
}

#[test]
fn an_archive_packed_by_xz_is_unpacked_as_by_tar() {
    let features = ["-t", "ext4", "-b", "2048", "-I", "128"];
    is_unpacked_as_by_tar(&features, 64, 1024, Some("xz"));
}

/// A directory that was there may give new files a list; those of the archive have none.
#[test]
fn lists_that_a_directory_gives_to_new_files_are_taken_away_as_by_tar() {
    if !is_root() {
        skip!("a loop mount needs root");
    }
    let scratch = Scratch::new();
    let source = scratch.join("source");
    fs::create_dir(&source).unwrap();
    script(
        "mkdir -p lists/there lists/new other
        echo a > lists/plain; echo b > lists/there/plain; chmod 640 lists/plain
        head -c 600000 /dev/zero > lists/new/large; ln -s plain lists/link; mkfifo lists/fifo
        setfacl -m u:4000:rw lists/there/plain; setfacl -d -m g:4001:rx lists/new",
        &source,
    );
    let before = "mkdir -p in/lists/there in/implied
        setfacl -d -m u:1000:rwx in/lists in/lists/there; setfacl -m u:1001:rwx in/lists/there";
    let mkfs = ["-t", "ext4"];
    let way = Way { mkfs: &mkfs, before, tar: &["--acls", "--xattrs"], packer: None, hole: None };
    unpacked_by_both(&scratch, &source, &way);
}

/// A small volume, and where archives are written.
struct Small {
    scratch: Scratch,
    image: PathBuf,
}

impl Small {
    fn new(size: &str) -> Self {
        Self::with(&[size])
    }

    fn with(words: &[&str]) -> Self {
        let scratch = Scratch::new();
        let image = scratch.join("disk.img");
        let made = [&["mkfs", "-q", image.to_str().unwrap()], words].concat();
        quiet(&extant(made));
        Self { scratch, image }
    }

    fn inside(&self, path: &str) -> String {
        format!("{}:{path}", self.image.display())
    }

    fn archive(&self, members: &[Member<'_>]) -> String {
        let mut bytes: Vec<u8> = members.iter().flat_map(Member::bytes).collect();
        bytes.extend([0; 1024]);
        self.archive_of(&bytes)
    }

    fn archive_of(&self, bytes: &[u8]) -> String {
        let path = self.scratch.join("archive.tar");
        fs::write(&path, bytes).unwrap();
        path.display().to_string()
    }

    fn find(&self, path: &str) -> String {
        let found = extant(["find".to_owned(), self.inside(path)]);
        let found = text(&found.stdout).replace(&format!("{}:", self.image.display()), "");
        let mut found: Vec<&str> = found.lines().collect();
        found.retain(|line| !line.contains("lost+found"));
        found.sort_unstable();
        found.join(" ")
    }

    fn cat(&self, path: &str) -> String {
        text(&extant(["cat".to_owned(), self.inside(path)]).stdout)
    }

    /// Standard error without the program's and the image's name.
    fn refused(&self, output: &Output) -> String {
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
        e2fsck_fn(&self.image).unwrap();
        let said = text(&output.stderr).replace(&format!("{}:", self.image.display()), "");
        said.replace("extant import: ", "")
    }
}

/// A member of an archive that is written by hand.
#[derive(Clone, Copy)]
enum Member<'m> {
    File(&'m str, &'m [u8]),
    Dir(&'m str),
    Symlink(&'m str, &'m str),
    Link(&'m str, &'m str),
    Other(&'m str, u8),
}

impl Member<'_> {
    fn bytes(&self) -> Vec<u8> {
        let (path, flag, target, contents) = match *self {
            Self::File(path, contents) => (path, b'0', "", contents),
            Self::Dir(path) => (path, b'5', "", &b""[..]),
            Self::Symlink(path, target) => (path, b'2', target, &b""[..]),
            Self::Link(path, target) => (path, b'1', target, &b""[..]),
            Self::Other(path, flag) => (path, flag, "", &b""[..]),
        };
        let mut header = [0_u8; 512];
        let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, path.as_bytes());
        put(100, b"0000644\x000000000\x000000000\x00");
        put(124, format!("{:011o}\0", contents.len()).as_bytes());
        put(136, b"14000000000\x00        ");
        put(156, &[flag]);
        put(157, target.as_bytes());
        put(257, b"ustar\x0000");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let mut bytes = [&header[..], contents].concat();
        bytes.resize(bytes.len().next_multiple_of(512), 0);
        bytes
    }
}

use Member::{Dir, File, Link, Other, Symlink};

#[test]
fn paths_that_leave_the_directory_are_refused_and_the_rest_is_unpacked() {
    let small = Small::new("8M");
    let setup = ["mkdir", &small.inside("/in/dir"), &small.inside("/out"), "-p"].map(str::to_owned);
    quiet(&extant(setup));
    for (target, name) in [("/out", "/in/out"), ("../in/dir", "/in/inside"), ("..", "/in/up")] {
        quiet(&extant(["ln", "-s", target, &small.inside(name)]));
    }
    let archive = small.archive(&[
        File("../escaped", b"x"),
        File("dir/../../escaped", b"x"),
        File("out/escaped", b"x"),
        File("up/escaped", b"x"),
        File("inside/kept", b"along a link that stays inside\n"),
        Symlink("own", "dir"),
        File("own/through", b"x"),
        Link("hard", "out/none"),
        Link("passwd", "../../etc/passwd"),
        File("/absolute", b"below the directory\n"),
        Symlink("inside", "/out"),
        File("inside/later", b"x"),
        File("last", b"last\n"),
    ]);
    let said = small.refused(&import(&["-q", &archive, &small.inside("/in")]));
    assert_eq!(
        said,
        "/in/../escaped: refused: path has a '..' component
/in/dir/../../escaped: refused: path has a '..' component
/in/out/escaped: refused: path leaves the directory through the symbolic link out
/in/up/escaped: refused: path leaves the directory through the symbolic link up
/in/own/through: refused: path goes through the symbolic link own, which this archive has made
/in/hard: cannot hard link to out/none: refused: path leaves the directory through the symbolic link out
/in/passwd: cannot hard link to ../../etc/passwd: refused: path has a '..' component
/in/inside/later: refused: path goes through the symbolic link inside, which this archive has made
"
    );
    let expected =
        "/ /in /in/absolute /in/dir /in/dir/kept /in/inside /in/last /in/out /in/own /in/up /out";
    assert_eq!(small.find("/"), expected);
    assert_eq!(small.cat("/in/last"), "last\n");
}

#[test]
fn files_and_directories_do_not_replace_each_other() {
    let small = Small::new("8M");
    quiet(&extant(["mkdir", &small.inside("/dir"), &small.inside("/link-to")]));
    quiet(&extant(["touch", &small.inside("/file")]));
    quiet(&extant(["ln", "-s", "link-to", &small.inside("/link")]));
    let archive = small.archive(&[
        Dir("file"),
        File("dir", b"x"),
        Symlink("dir/", "x"),
        Dir("link/"),
        File("file/below", b"x"),
        File("new", b"1"),
        Dir("new"),
        File("new/below", b"x"),
        Link("hard", "missing"),
        Link("hard", "dir"),
        File(".", b"x"),
        Symlink("target", "dir"),
        File("target", b"replaces the link\n"),
        File("twice", b"1"),
        File("twice", b"2\n"),
        Link("both", "twice"),
        Link("both", "twice"),
    ]);
    let said = small.refused(&import(&["-q", &archive, &small.inside("/")]));
    let mut lines: Vec<&str> = said.lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "/.: refused: a file in place of the root directory of the archive",
            "/dir/: cannot overwrite directory: the entry is not a directory",
            "/dir: cannot overwrite directory: the entry is not a directory",
            "/file/below: parent file is not a directory",
            "/file: cannot overwrite non-directory: the entry is a directory",
            "/hard: cannot hard link to dir: is a directory",
            "/hard: cannot hard link to missing: not found",
            "/link/: cannot overwrite non-directory: the entry is a directory",
            "/new/below: parent new is not a directory",
            "/new: cannot overwrite non-directory: the entry is a directory",
        ]
    );
    assert_eq!(small.cat("/target"), "replaces the link\n");
    assert_eq!(small.cat("/both"), "2\n");
    assert!(text(&extant(["stat", &small.inside("/twice")]).stdout).contains("Links: 2"));
}

#[test]
fn a_damaged_archive_ends_with_its_member_and_what_was_unpacked() {
    let small = Small::new("16M");
    let whole = [
        File("first", b"first\n").bytes(),
        Dir("dir").bytes(),
        File("dir/large", &[7; 900_000]).bytes(),
        File("last", b"last\n").bytes(),
        vec![0; 1024],
    ]
    .concat();
    let archive = small.archive_of(&whole[..500_000]);
    let said = small.refused(&import(&[&archive, &small.inside("/")]));
    assert_eq!(
        said,
        format!(
            "{archive}: entry dir/large, byte 500000: unexpected end of archive in the contents of a file
/: unpacked before the error: 1 files with 6 bytes, 1 directories, 0 symbolic links, 0 hard links, 0 special files
"
        )
    );
    assert_eq!(small.find("/"), "/ /dir /first");
    // A file that is there stays until the new one is whole.
    quiet(&extant(["import", "-q", &small.archive_of(&whole), &small.inside("/")]));
    let other = [File("dir/large", &[8; 900_000]).bytes()].concat();
    small.refused(&import(&["-q", &small.archive_of(&other[..700_000]), &small.inside("/")]));
    assert_eq!(small.cat("/dir/large").as_bytes()[899_999], 7);

    let mut broken = whole.clone();
    broken[512 * 2] ^= 1;
    let said = small.refused(&import(&[&small.archive_of(&broken), &small.inside("/")]));
    assert!(said.contains("byte 1024: header checksum is "), "{said}");
    let said = small
        .refused(&import(&[&small.archive_of(&whole[..whole.len() - 1024]), &small.inside("/")]));
    assert!(
        said.contains("no end-of-archive block\n/: unpacked before the error: 3 files"),
        "{said}"
    );
    let said = small.refused(&import(&[&small.archive(&[Other("odd", b'Q')]), &small.inside("/")]));
    assert!(said.contains("entry odd, byte 0: entry type 'Q' (unknown) is not supported\n/: nothing was unpacked\n"), "{said}");
    // A packed one that is cut.
    let Some(gzip) = tool("gzip") else { skip!("gzip is not installed") };
    let packed = gzip.command().args(["-c", &small.archive_of(&whole)]).output().unwrap().stdout;
    let said = small
        .refused(&import(&[&small.archive_of(&packed[..packed.len() - 20]), &small.inside("/")]));
    assert!(said.contains("cannot read: "), "{said}");
    for (bytes, why) in [
        (&[b'x'; 600][..], "not a tar archive (plain, gzip, zstd, xz)"),
        (b"BZh91AY&SY", "compression bzip2 is not supported (decompress it first)"),
        (b"", "unexpected end of archive: no end-of-archive block"),
    ] {
        let said = small.refused(&import(&[&small.archive_of(bytes), &small.inside("/")]));
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn a_full_volume_is_named_and_stays_clean() {
    let small = Small::new("4M");
    let large = vec![3; 6 << 20];
    let archive = small.archive(&[File("first", b"first\n"), File("large", &large)]);
    let said = small.refused(&import(&["-q", &archive, &small.inside("/")]));
    // Both are made at once: the small one may be without room, too, and then it is named.
    let (member, rest) = said.split_once(": no space left on the volume\n").expect("no room");
    let one = "/: unpacked before the error: 1 files with 6 bytes, 0 directories, 0 symbolic links, 0 hard links, 0 special files\n";
    let (expected, names) = match member {
        "/first" => ("/: nothing was unpacked\n", "/"),
        _ => (one, "/ /first"),
    };
    assert_eq!((rest, &*small.find("/")), (expected, names));
    assert!(["/first", "/large"].contains(&member), "{said}");
    // A link of the archive does not lead to an older file whose name a refused entry has.
    let full = Small::new("24M");
    let old = full.archive(&[File("a", b"old a"), File("b", b"old b")]);
    quiet(&import(&["-q", &old, &full.inside("/")]));
    let new = full.archive(&[
        File("a", &vec![4; 40 << 20]),
        Link("b", "a"),
        Link("c", "b"),
        File("d", b""),
    ]);
    let said = full.refused(&import(&["-q", &new, &full.inside("/")]));
    assert!(said.starts_with("/a: no space left on the volume\n"), "{said}");
    for (path, expected) in [("/a", "old a"), ("/b", "old b")] {
        let output = extant(["cat", &full.inside(path)]);
        assert_eq!((output.status.code(), &*text(&output.stdout)), (Some(0), expected));
    }
    assert_eq!(extant(["stat", &full.inside("/c")]).status.code(), Some(1));
    let names: Vec<String> = (0..3000).map(|number| format!("{number}")).collect();
    let members: Vec<Member<'_>> = names.iter().map(|name| File(name, b"")).collect();
    let few = Small::with(&["-N", "64", "8M"]);
    let said = few.refused(&import(&["-q", &few.archive(&members), &few.inside("/")]));
    assert!(said.contains(": no inodes left on the volume\n"), "{said}");
}

#[test]
fn owners_times_and_the_directory_are_as_asked_for() {
    let small = Small::new("8M");
    let archive = small.archive(&[Dir("dir"), File("dir/file", b"x"), Symlink("link", "dir")]);
    let said = small.refused(&import(&[&archive, &small.inside("/a/b")]));
    assert_eq!(said, "/a/b: no such file or directory\n");
    let report = import(&["-p", "--json", "--owner", "5:6", &archive, &small.inside("/a/b")]);
    quiet(&report);
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    let expected = serde_json::json!({
        "files": 1, "directories": 1, "symlinks": 1, "hard_links": 0, "special_files": 0,
        "content_bytes": 1, "refused": 0,
    });
    assert_eq!(report, expected);
    let stat = |path: &str| -> serde_json::Value {
        let output = extant(["stat", "--json", &small.inside(path)]);
        quiet(&output);
        serde_json::from_slice(&output.stdout).unwrap()
    };
    for path in ["/a/b/dir", "/a/b/dir/file", "/a/b/link"] {
        let found = stat(path).to_string();
        assert!(found.contains("\"uid\":5") && found.contains("\"gid\":6"), "{found}");
    }
    let mapped = import(&["-q", "--map-owner", "0:1000:1", &archive, &small.inside("/a")]);
    quiet(&mapped);
    assert!(stat("/a/dir/file").to_string().contains("\"uid\":1000"));
    let said = text(&import(&["--owner", "bin", &archive, &small.inside("/")]).stderr);
    assert!(said.starts_with("extant import: invalid owner 'bin' (expected UID[:GID])"), "{said}");
    let said =
        small.refused(&import(&[small.scratch.path().to_str().unwrap(), &small.inside("/")]));
    assert!(said.ends_with(": is a directory, not an archive (use extant cp -a)\n"), "{said}");
    // The time in the archive is later.
    let output = Command::new(EXTANT)
        .args(["import", "-q", &archive, &small.inside("/a")])
        .env("SOURCE_DATE_EPOCH", "1000000000")
        .output()
        .unwrap();
    quiet(&output);
    let found = stat("/a/dir/file").to_string();
    assert!(found.contains("2001-09-09T01:46:40") || found.contains("1000000000"), "{found}");
}
