//! `extant build`: files left out as by tar, and room as df shows it.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;

use common::{extant, quiet, text};
use extant_testkit::{LoopMount, Scratch, e2fsck_fn, is_root, skip, tool};

/// A tree of the kind that patterns are written for.
fn grow(source: &Path) {
    for dir in
        ["etc/conf.d", "usr/etc", "src/deep/.git", "src/.git/objects", "var/cache/x", "empty"]
    {
        fs::create_dir_all(source.join(dir)).unwrap();
    }
    for file in [
        "etc/a.conf",
        "etc/conf.d/b.conf",
        "usr/etc/c.conf",
        "src/main.o",
        "src/deep/more.o",
        "src/deep/.git/HEAD",
        "src/.git/objects/1",
        "var/cache/x/y",
        "var/cache/.hidden",
        "star*name",
        "back\\slash",
        "[x]",
        "7",
    ] {
        fs::write(source.join(file), file).unwrap();
    }
    fs::hard_link(source.join("src/main.o"), source.join("kept-link")).unwrap();
    symlink("etc", source.join("link")).unwrap();
}

fn names(image: &Path) -> BTreeSet<String> {
    let found = extant(["find", "--image", image.to_str().unwrap(), "/"]);
    quiet(&found);
    let found = text(&found.stdout);
    let names = found.lines().map(|line| line.trim_start_matches('/').to_owned());
    names.filter(|name| !name.is_empty() && name != "lost+found").collect()
}

#[test]
fn files_are_left_out_as_by_tar() {
    let Some(tar) = tool("tar") else { skip!("no tar here") };
    let scratch = Scratch::new();
    let (source, image) = (scratch.join("source"), scratch.join("disk.img"));
    fs::create_dir(&source).unwrap();
    grow(&source);
    let whole = scratch.join("whole.tar");
    let packed = |words: &[String], archive: &Path| {
        let output = Command::new(tar.path())
            .args(words)
            .arg("-cf")
            .arg(archive)
            .arg("-C")
            .arg(&source)
            .arg(".")
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    packed(&[], &whole);
    let sets: [&[&str]; 18] = [
        &["etc"],
        &["./etc"],
        &["*.conf"],
        &["etc/*.conf"],
        &["./etc/*.conf"],
        &[".git"],
        &["src/*.o"],
        &["deep/*"],
        &["var/cache/*"],
        &["*/cache"],
        &["star\\*name"],
        &["star*name"],
        &["\\[x\\]"],
        &["[x]"],
        &["[[:digit:]]"],
        &["?rc"],
        &["main.o", "nothing", "empty"],
        &["e*", "src"],
    ];
    for set in sets {
        let words: Vec<String> = set.iter().map(|it| format!("--exclude={it}")).collect();
        let archive = scratch.join("expected.tar");
        packed(&words, &archive);
        let listed = tar.text(["-tf".as_ref(), archive.as_os_str()]).unwrap();
        let unescaped = |line: &str| line.replace("\\\\", "\\");
        let expected: BTreeSet<String> = listed
            .lines()
            .map(|line| unescaped(line).trim_start_matches("./").trim_end_matches('/').to_owned())
            .filter(|name| !name.is_empty())
            .collect();
        let file = scratch.join("patterns");
        fs::write(&file, set.join("\n") + "\n\n").unwrap();
        let from = ["--exclude-from".to_owned(), file.display().to_string()];
        for (from, words) in [(&source, &words[..]), (&whole, &words[..]), (&source, &from[..])] {
            let fixed = ["build", "-q", "-o", image.to_str().unwrap(), from.to_str().unwrap()];
            quiet(&extant(fixed.into_iter().map(str::to_owned).chain(words.iter().cloned())));
            assert_eq!(names(&image), expected, "{set:?} of {}", from.display());
        }
    }
}

/// An image is that of a source that never had the files.
#[test]
fn the_rest_is_as_if_the_files_were_never_there() {
    let scratch = Scratch::new();
    let (source, without) = (scratch.join("source"), scratch.join("without"));
    for (dir, has_all) in [(&source, true), (&without, false)] {
        fs::create_dir_all(dir.join("etc")).unwrap();
        fs::write(dir.join("etc/kept"), "kept").unwrap();
        if has_all {
            fs::create_dir_all(dir.join("gone/deep")).unwrap();
            fs::write(dir.join("gone/deep/file"), vec![7; 1 << 20]).unwrap();
        }
    }
    let image = |name: &str| scratch.join(name).display().to_string();
    for (name, from, exclude) in
        [("a.img", &source, "--exclude=/gone"), ("b.img", &without, "--exclude=nothing")]
    {
        let words = ["build", "-q", "--owner", "0", "-o", &image(name), exclude];
        let built = Command::new(common::EXTANT)
            .args(words)
            .arg(from)
            .env("SOURCE_DATE_EPOCH", "1000")
            .output()
            .unwrap();
        quiet(&built);
    }
    assert!(fs::read(image("a.img")).unwrap() == fs::read(image("b.img")).unwrap());
}

/// A file that is left out need not be readable; a link to a file that is left out of an archive is
/// the file.
#[test]
fn what_is_left_out_is_not_needed() {
    let Some(tar) = tool("tar") else { skip!("no tar here") };
    let scratch = Scratch::new();
    let (source, image) = (scratch.join("source"), scratch.join("disk.img"));
    fs::create_dir_all(source.join("d")).unwrap();
    fs::write(source.join("a-first"), "content").unwrap();
    fs::hard_link(source.join("a-first"), source.join("d/other")).unwrap();
    let archive = scratch.join("a.tar");
    let mut pack = tar.command();
    pack.arg("-cf").arg(&archive).arg("-C").arg(&source).args(["a-first", "d"]);
    assert!(pack.status().unwrap().success());
    let name = image.to_str().unwrap();
    quiet(&extant(["build", "-q", "-o", name, "--exclude=/a-first", archive.to_str().unwrap()]));
    assert_eq!(names(&image), ["d", "d/other"].map(str::to_owned).into());
    let content = extant(["cat".to_owned(), format!("{name}:/d/other")]);
    assert_eq!(text(&content.stdout), "content");
    e2fsck_fn(&image).unwrap();

    for words in [&["--exclude-from", "/no/such"][..], &["--exclude-from", "-"]] {
        let refused = extant([&["build", "-o", name], words, &["-"]].concat());
        assert!(!refused.status.success() && !refused.stderr.is_empty(), "{refused:?}");
    }
}

/// The bytes available to every user, and the free inodes, as df tells them of a mount.
fn available(mount: &Path) -> (u64, u64) {
    let df = Command::new("df")
        .args(["-B1", "--output=avail,iavail"])
        .arg(mount)
        .env("LC_ALL", "C")
        .output()
        .unwrap();
    let said = text(&df.stdout);
    let words = said.lines().nth(1).expect("figures").split_whitespace();
    let numbers: Vec<u64> = words.map(|word| word.parse().unwrap()).collect();
    (numbers[0], numbers[1])
}

#[test]
fn room_is_available_on_a_mount() {
    if !is_root() {
        skip!("a mount needs root");
    }
    let scratch = Scratch::new();
    let (source, image) = (scratch.join("source"), scratch.join("disk.img"));
    fs::create_dir(&source).unwrap();
    grow(&source);
    fs::write(source.join("large"), vec![3; 9 << 20]).unwrap();
    let name = image.to_str().unwrap();
    let build = |size: &str, words: &[&str]| {
        let fixed = ["build", "-q", "-o", name, "--size", size, source.to_str().unwrap()];
        quiet(&extant(fixed.iter().chain(words)));
        e2fsck_fn(&image).unwrap();
        fs::metadata(&image).unwrap().size()
    };
    let kinds: [&[&str]; 7] = [
        &[],
        &["-m", "5"],
        &["-t", "ext2", "-b", "1024"],
        &["-t", "ext3", "-m", "1"],
        &["-b", "1024", "-O", "^has_journal"],
        &["-O", "bigalloc", "-C", "65536"],
        &["-O", "meta_bg,^resize_inode", "-b", "1024"],
    ];
    for kind in kinds {
        let exact = build("auto", kind);
        let sizes = [
            ("auto+50M", 50 << 20),
            ("auto+0", 0),
            ("auto+1", 1),
            ("auto+700M", 700 << 20),
            ("auto+10%", exact.div_ceil(10)),
            ("auto+150%", (exact * 3).div_ceil(2)),
        ];
        for (size, room) in sizes {
            let bytes = build(size, kind);
            assert!(bytes >= exact, "{size} {kind:?}");
            let mount = match LoopMount::new(&image, "") {
                Ok(mount) => mount,
                Err(why) => skip!("{why}"),
            };
            let (free, inodes) = available(mount.path());
            assert!(free >= room, "{size} {kind:?}: {free}");
            let per_inode = if kind.contains(&"bigalloc") { 65536 } else { 16384 };
            assert!(inodes >= room / per_inode, "{size} {kind:?}: {inodes} inodes");
            // No more than another group's metadata.
            assert!(free <= room + (4 << 20) || room == 0, "{size} {kind:?}: {free}");
            if size == "auto+50M" {
                fs::write(mount.path().join("new"), vec![1; 49 << 20]).unwrap();
            }
        }
    }
    for size in ["auto+", "auto+x", "auto+%", "auto+-1%", "auto+1.5%", "auto+5M%", "auto-5M"] {
        let refused = extant(["build", "-o", name, "--size", size, source.to_str().unwrap()]);
        assert_eq!(refused.status.code(), Some(2), "{size}: {refused:?}");
    }
    let vast = extant(["build", "-o", name, "--size", "auto+15E", source.to_str().unwrap()]);
    assert_eq!(vast.status.code(), Some(1), "{vast:?}");
}
