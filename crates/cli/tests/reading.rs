//! ls, cat, stat, tree, find and cp against the kernel's mount of the same image.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{EXTANT, Fixture, extant, quiet, snapshot, text};
use extant_testkit::{LoopMount, assert_same_tree, is_root, skip, tool};

macro_rules! fixture {
    ($made:expr) => {
        match $made {
            Ok(fixture) => fixture,
            Err(why) => skip!("{why}"),
        }
    };
}

macro_rules! mounted {
    ($fixture:expr) => {
        match LoopMount::new(&$fixture.image.path(), "ro,noload") {
            Ok(mount) => mount,
            Err(why) => skip!("no loop mount here: {why}"),
        }
    };
}

fn copied_is_the_tree(fixture: Result<Fixture, String>) {
    if !is_root() {
        skip!("other owners need root");
    }
    let fixture = fixture!(fixture);
    let target = fixture.scratch.join("copied");
    let words = ["cp".to_owned(), "-a".to_owned(), fixture.inside("/")];
    quiet(&extant(words.into_iter().chain([target.display().to_string()])));
    let expected = fixture!(fixture.mounted_snapshot());
    assert_same_tree(&expected, &snapshot(&target));
    let hole = target.join("sparse/all").metadata().unwrap();
    assert!(hole.size() > 1 << 30 && hole.blocks() < 100, "{hole:?}");
}

#[test]
fn a_copy_of_an_image_of_mke2fs_is_the_tree() {
    copied_is_the_tree(Fixture::by_mke2fs(
        &["-t", "ext4", "-b", "1024", "-O", "ea_inode"],
        31,
        1024,
    ));
}

#[test]
fn a_copy_of_an_image_of_the_kernel_is_the_tree() {
    copied_is_the_tree(Fixture::by_kernel(
        &["-t", "ext4", "-b", "4096", "-O", "inline_data,ea_inode"],
        32,
        4096,
    ));
}

#[test]
fn a_copy_of_an_ext2_image_is_the_tree() {
    copied_is_the_tree(Fixture::by_kernel(&["-t", "ext2", "-b", "1024"], 33, 1024));
}

#[test]
fn a_copy_replaces_files_and_fills_directories() {
    let fixture = fixture!(Fixture::by_mke2fs(&["-t", "ext4"], 34, 1024));
    let target = fixture.scratch.join("target");
    std::fs::create_dir_all(target.join("links")).unwrap();
    std::fs::write(target.join("links/first"), "old").unwrap();
    std::fs::write(fixture.scratch.join("linked"), "old").unwrap();
    std::os::unix::fs::symlink("../linked", target.join("acl")).unwrap();
    let target_name = target.display().to_string();
    let copy = |words: &[&str], path: &str| {
        let words = ["cp"].iter().chain(words).map(|it| (*it).to_owned());
        extant(words.chain([fixture.inside(path), target_name.clone()]))
    };
    quiet(&copy(&["-r", "-n"], "/links"));
    assert_eq!(std::fs::read(target.join("links/first")).unwrap(), b"old");
    quiet(&copy(&["-r"], "/links"));
    assert_ne!(std::fs::read(target.join("links/first")).unwrap(), b"old");
    // A link that stands where the command line puts the copy is written through, as by cp(1).
    quiet(&copy(&[], "/xattrs/acl"));
    assert!(target.join("acl").symlink_metadata().unwrap().is_symlink());
    assert_ne!(std::fs::read(fixture.scratch.join("linked")).unwrap(), b"old");
    let refused = copy(&[], "/links");
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).ends_with(":/links: -r not specified; omitting directory\n"));
}

#[test]
fn contents_are_written_out() {
    let fixture =
        fixture!(Fixture::by_kernel(&["-t", "ext4", "-b", "4096", "-O", "inline_data"], 35, 4096));
    let mount = mounted!(fixture);
    for dir in ["plain", "xattrs"] {
        for entry in std::fs::read_dir(mount.path().join(dir)).unwrap() {
            let entry = entry.unwrap();
            if !entry.file_type().unwrap().is_file() {
                continue;
            }
            let name = entry.file_name().into_string().unwrap();
            let output = extant(["cat".to_owned(), fixture.inside(&format!("/{dir}/{name}"))]);
            quiet(&output);
            assert!(output.stdout == std::fs::read(entry.path()).unwrap(), "{dir}/{name}");
        }
    }
}

/// The facts of every file: `ls -laR --json` by us, stat by the kernel.
#[test]
fn the_facts_of_every_file_are_the_kernels() {
    let fixture = fixture!(Fixture::by_kernel(&["-t", "ext4", "-b", "1024"], 36, 1024));
    let mount = mounted!(fixture);
    let output = extant(["find".to_owned(), fixture.inside("/"), "--json".to_owned()]);
    quiet(&output);
    let files: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    let mut paths = BTreeSet::new();
    for file in &files {
        let path = json_bytes(&file["path"]);
        let place = mount.path().join(std::ffi::OsStr::from_bytes(&path[1..]));
        let found = place.symlink_metadata().unwrap();
        let number = |key: &str| file[key].as_u64().unwrap();
        let what = text(&path);
        assert_eq!(number("inode"), found.ino(), "{what}");
        assert_eq!(number("links"), found.nlink(), "{what}");
        assert_eq!(number("size"), found.size(), "{what}");
        assert_eq!(number("space"), found.blocks() * 512, "{what}");
        assert_eq!(number("uid"), u64::from(found.uid()), "{what}");
        assert_eq!(number("gid"), u64::from(found.gid()), "{what}");
        let mode = u32::from_str_radix(file["mode"].as_str().unwrap(), 8).unwrap();
        assert_eq!(mode, found.mode() & 0o7777, "{what}");
        for (key, seconds, nanoseconds) in [
            ("modified", found.mtime(), found.mtime_nsec()),
            ("changed", found.ctime(), found.ctime_nsec()),
            ("accessed", found.atime(), found.atime_nsec()),
        ] {
            assert_eq!(file[key]["seconds"].as_i64().unwrap(), seconds, "{what} {key}");
            assert_eq!(file[key]["nanoseconds"].as_i64().unwrap(), nanoseconds, "{what} {key}");
        }
        if found.is_symlink() {
            let target = std::fs::read_link(&place).unwrap();
            assert_eq!(json_bytes(&file["target"]), target.as_os_str().as_bytes(), "{what}");
        }
        paths.insert(path);
    }
    assert_eq!(paths, found_by("find", mount.path(), &[]));
}

/// A name in JSON: text, or an object with the bytes in hexadecimal.
fn json_bytes(value: &serde_json::Value) -> Vec<u8> {
    match value.as_str() {
        Some(text) => text.as_bytes().to_vec(),
        None => {
            let hex = value["hex"].as_str().unwrap();
            (0..hex.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
                .collect()
        }
    }
}

/// Paths that find(1) lists on the mount, as they are called in the image.
fn found_by(program: &str, root: &Path, tests: &[&str]) -> BTreeSet<Vec<u8>> {
    let output = Command::new(program)
        .current_dir(root)
        .arg(".")
        .args(tests)
        .arg("-print0")
        .output()
        .unwrap();
    assert!(output.status.success(), "{tests:?}: {}", text(&output.stderr));
    output
        .stdout
        .split(|&byte| byte == 0)
        .filter(|path| !path.is_empty())
        .map(|path| if path == b"." { b"/".to_vec() } else { path[1..].to_vec() })
        .collect()
}

#[test]
fn tests_find_what_find_finds() {
    let fixture = fixture!(Fixture::by_kernel(&["-t", "ext4", "-b", "4096"], 37, 4096));
    let mount = mounted!(fixture);
    let cases: [&[&str]; 22] = [
        &["-name", "*1*"],
        &["-name", "[!a-m]*"],
        &["-iname", "FILE*"],
        &["-type", "l"],
        &["-type", "f,d"],
        &["-type", "b,c,p,s"],
        &["-size", "+4k"],
        &["-size", "-1k"],
        &["-size", "0"],
        &["-size", "+100c", "-size", "-3000c"],
        &["-size", "8"],
        &["-links", "+2", "-type", "f"],
        &["-uid", "1000"],
        &["-uid", "+999"],
        &["-gid", "-1"],
        &["-perm", "0644"],
        &["-perm", "-4000"],
        &["-perm", "/022"],
        &["-empty"],
        &["-maxdepth", "1"],
        &["-mindepth", "5", "-maxdepth", "9"],
        &["-inum", "2"],
    ];
    for tests in cases {
        // find(1) wants depths first; ours come anywhere.
        let output = extant(
            ["find".to_owned(), fixture.inside("/")]
                .into_iter()
                .chain(tests.iter().map(|it| (*it).to_owned()))
                .chain(["-print0".to_owned()]),
        );
        quiet(&output);
        let found: BTreeSet<Vec<u8>> = output
            .stdout
            .split(|&byte| byte == 0)
            .filter(|path| !path.is_empty())
            .map(<[u8]>::to_vec)
            .collect();
        assert_eq!(found, found_by("find", mount.path(), tests), "{tests:?}");
    }
    let words = ["-newer", "/links", "-print0"].map(str::to_owned);
    let newer = extant(["find".to_owned(), fixture.inside("/")].into_iter().chain(words));
    quiet(&newer);
    let found: BTreeSet<Vec<u8>> = newer
        .stdout
        .split(|&byte| byte == 0)
        .filter(|it| !it.is_empty())
        .map(<[u8]>::to_vec)
        .collect();
    assert_eq!(found, found_by("find", mount.path(), &["-newer", "links"]));
}

/// The columns of `ls -l` against `ls -ln` of this machine.
#[test]
fn a_long_listing_has_the_columns_of_ls() {
    let fixture = fixture!(Fixture::by_kernel(&["-t", "ext4", "-b", "4096"], 38, 4096));
    let mount = mounted!(fixture);
    for dir in ["plain", "links", "modes", "xattrs", "special", "many"] {
        let ours = extant(["ls".to_owned(), "-lai".to_owned(), fixture.inside(&format!("/{dir}"))]);
        quiet(&ours);
        let theirs = Command::new("ls")
            .args(["-lain", "--time-style=+%Y-%m-%d %H:%M"])
            .env("TZ", "UTC")
            .env("LC_ALL", "C")
            .arg(mount.path().join(dir))
            .output()
            .unwrap();
        // GNU ls marks an ACL by `+` and widens columns by its own rules: compare the words.
        let words = |bytes: &[u8]| -> BTreeMap<String, Vec<String>> {
            let lines = text(bytes);
            let lines = lines.lines().filter(|line| !line.starts_with("total"));
            lines
                .map(|line| {
                    let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
                    (words[0].clone() + &words[words.len() - 1], words)
                })
                .collect()
        };
        assert_eq!(words(&ours.stdout), words(&theirs.stdout), "{dir}");
    }
}

#[test]
fn names_that_are_not_utf8_come_out_as_they_are() {
    let fixture = fixture!(Fixture::by_mke2fs(&["-t", "ext4"], 39, 1024));
    let output = extant(["ls".to_owned(), "-A".to_owned(), fixture.inside("/names")]);
    quiet(&output);
    let mut names: Vec<_> = std::fs::read_dir(fixture.source.join("names"))
        .unwrap()
        .map(|it| it.unwrap().file_name())
        .collect();
    names.sort();
    let mut expected = Vec::new();
    for name in names {
        expected.extend(name.as_bytes());
        expected.push(b'\n');
    }
    assert_eq!(output.stdout, expected);
}

#[test]
fn a_drawn_tree_has_every_name() {
    let fixture = fixture!(Fixture::by_mke2fs(&["-t", "ext4"], 40, 1024));
    let output = extant(["tree".to_owned(), fixture.inside("/links")]);
    quiet(&output);
    let drawn = text(&output.stdout);
    let names = extant(["find".to_owned(), fixture.inside("/links"), "--mindepth=1".to_owned()]);
    let names = text(&names.stdout);
    assert_eq!(drawn.lines().count(), names.lines().count() + 3, "{drawn}");
    for path in names.lines() {
        let name = path.rsplit('/').next().unwrap();
        assert!(drawn.contains(&format!("── {name}")), "{name}\n{drawn}");
    }
    let output = extant(["tree".to_owned(), fixture.inside("/"), "--json".to_owned()]);
    let files: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert!(files.len() > 500);
}

#[test]
fn stat_shows_attributes_and_follows_links_on_demand() {
    let fixture = fixture!(Fixture::by_mke2fs(&["-t", "ext4"], 41, 1024));
    let output = extant(["stat".to_owned(), fixture.inside("/xattrs/dir"), "--json".to_owned()]);
    quiet(&output);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json[0]["xattrs"][0]["name"], "user.on-a-directory");
    assert_eq!(json[0]["xattrs"][0]["value_hex"], "796573");
    let shown = text(&extant(["stat".to_owned(), fixture.inside("/xattrs/dir")]).stdout);
    assert!(shown.contains(" Xattr: user.on-a-directory = \"yes\"\n"), "{shown}");
}

#[test]
fn a_missing_file_does_not_stop_the_others() {
    let fixture = fixture!(Fixture::by_mke2fs(&["-t", "ext4"], 42, 1024));
    for command in ["ls", "cat", "stat", "tree", "find"] {
        let good = if command == "cat" { "/links/first" } else { "/links" };
        let output = extant([command.to_owned(), fixture.inside("/absent"), fixture.inside(good)]);
        assert_eq!(output.status.code(), Some(1), "{command}");
        let expected =
            format!("extant {command}: {}: no such file or directory\n", fixture.inside("/absent"));
        assert_eq!(text(&output.stderr), expected);
        if command != "cat" {
            assert!(!output.stdout.is_empty(), "{command}");
        }
    }
    assert_eq!(
        extant(["find".to_owned(), fixture.inside("/"), "-size".into(), "x".into()]).status.code(),
        Some(2)
    );
}

#[test]
fn a_reader_that_goes_away_ends_every_command_without_a_word() {
    let fixture = fixture!(Fixture::by_mke2fs(&["-t", "ext4"], 43, 1024));
    let long = [
        vec!["ls", "-lR"],
        vec!["tree"],
        vec!["find"],
        vec!["find", "--json"],
        vec!["stat", "--json"],
        vec!["frag", "-v"],
    ];
    for words in long {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = Command::new(EXTANT)
            .args(&words)
            .arg(fixture.inside("/plain"))
            .stdout(writer)
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        assert_eq!(text(&output.stderr), "", "{words:?}");
        assert_eq!(output.status.code(), Some(141), "{words:?}");
    }
}

/// Reading a damaged image ends in an exit code, never in a panic or a signal, and leaves the image
/// as it was.
#[test]
fn damaged_images_are_read_or_refused() {
    let Some(corpora) = extant_testkit::corpora() else { skip!("no corpora here") };
    let Some(timeout) = tool("timeout") else { skip!("timeout is not installed") };
    let mut packed: Vec<_> = std::fs::read_dir(corpora.join("fsck-images"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|it| it == "gz"))
        .collect();
    packed.sort();
    for path in packed.iter().step_by(3) {
        let image = extant_testkit::TempImage::gunzipped(path).unwrap();
        let before = std::fs::read(image.path()).unwrap();
        let commands: [&[&str]; 6] = [
            &["ls", "-lR"],
            &["find", "--json"],
            &["export"],
            &["info", "-a"],
            &["frag", "-v"],
            &["map", "--json"],
        ];
        for words in commands {
            let output = Command::new(timeout.path())
                .arg("30")
                .arg(EXTANT)
                .args(words)
                .arg(image.path())
                .output()
                .unwrap();
            let said = text(&output.stderr);
            let what = format!("{} {words:?}: {:?} {said}", path.display(), output.status);
            assert!(matches!(output.status.code(), Some(0 | 1)), "{what}");
            assert!(!said.contains("panicked"), "{what}");
        }
        assert!(std::fs::read(image.path()).unwrap() == before, "{} was written", path.display());
    }
}
