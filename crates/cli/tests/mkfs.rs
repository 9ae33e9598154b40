//! `extant mkfs` as a command: filled in one go, undone, failed.

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

#[test]
fn what_mkfs_overwrote_is_put_back() {
    let scratch = Scratch::new();
    let (image, undo) = (scratch.join("disk.img"), scratch.join("kept.e2undo"));
    let (path, kept) = (image.to_str().unwrap(), undo.to_str().unwrap());
    let made = mkfs(&["-q", "-t", "ext4", "-L", "before", path, "24M"]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let before = std::fs::read(&image).unwrap();
    let again = mkfs(&["-q", "-F", "-t", "ext2", "-b", "1024", "-z", kept, path]);
    assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
    if tool("e2fsck").is_some() {
        e2fsck_fn(&image).unwrap();
    }
    assert_ne!(std::fs::read(&image).unwrap(), before);
    let undone =
        Command::new(env!("CARGO_BIN_EXE_extant")).args(["undo", kept, path]).output().unwrap();
    assert!(undone.status.success(), "{}", String::from_utf8_lossy(&undone.stderr));
    assert!(std::fs::read(&image).unwrap() == before, "every byte is back");
}

#[test]
fn a_file_that_a_failed_mkfs_made_is_removed_and_others_stay() {
    let scratch = Scratch::new();
    let image = scratch.join("disk.img");
    let path = image.to_str().unwrap();
    let words = ["-q", "-F", "-N", "4000000", path];
    let failed = mkfs(&[&words[..], &["8M"]].concat());
    assert_eq!(failed.status.code(), Some(1), "{}", String::from_utf8_lossy(&failed.stderr));
    assert!(!image.exists());
    std::fs::write(&image, vec![7; 8 << 20]).unwrap();
    assert!(!mkfs(&words).status.success());
    assert!(image.exists());
}

/// As mke2fs 1.47.0.
#[test]
fn the_revision_has_a_letter() {
    if tool("dumpe2fs").is_none() {
        skip!("dumpe2fs is not installed");
    }
    let scratch = Scratch::new();
    let image = scratch.join("disk.img");
    let path = image.to_str().unwrap();
    let made = mkfs(&["-q", "-F", "-t", "ext2", "-r", "1", path, "8M"]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    e2fsck_fn(&image).unwrap();
    let listed = tool("dumpe2fs").unwrap().text(["-h".as_ref(), image.as_os_str()]).unwrap();
    assert!(listed.contains("1 (dynamic)"), "{listed}");
    for (revision, why) in [
        ("0", "use -E revision=0"),
        ("2", "revision 2 is too high"),
        ("x", "bad revision level - x"),
    ] {
        let refused = mkfs(&["-q", "-F", "-r", revision, path]);
        assert_eq!(refused.status.code(), Some(1));
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(said.contains(why), "{said}");
    }
}

/// `-s` holds whatever `-O` says, before or after it: as by mke2fs.
#[test]
fn sparse_superblocks_have_a_letter() {
    let Some(theirs) = tool("mke2fs") else { skip!("mke2fs is not installed") };
    let scratch = Scratch::new();
    let image = scratch.join("disk.img");
    let path = image.to_str().unwrap();
    for words in [
        "-s 0 -O ^resize_inode",
        "-s 1 -O ^sparse_super",
        "-O ^sparse_super -s1",
        "-s 0 -s 2",
        "-s 1x",
        "-s x -O ^resize_inode",
        "-t ext4 -s 0 -O ^resize_inode,meta_bg",
        "-s 0 -O ^resize_inode,sparse_super2",
        "-s 0",
        "-s 0 -O sparse_super",
    ] {
        let words: Vec<&str> = words.split(' ').chain(["-q", "-F", path, "64M"]).collect();
        let shown = |made: bool| {
            let listed = made.then(|| tool("dumpe2fs").unwrap().text([&image])).map(Result::unwrap);
            let listed = listed.unwrap_or_default();
            let backups = |line: &&str| line.contains("superblock at");
            let has = listed.lines().any(|line| {
                line.starts_with("Filesystem features") && line.contains("sparse_super ")
            });
            (made, has, listed.lines().filter(backups).map(str::to_owned).collect::<Vec<_>>())
        };
        let made = Command::new(theirs.path()).args(&words).output().unwrap();
        let expected = shown(made.status.success());
        let _ = std::fs::remove_file(&image);
        let made = mkfs(&words);
        let said = String::from_utf8_lossy(&made.stderr).into_owned();
        assert_eq!(shown(made.status.success()), expected, "{words:?}: {said}");
        if expected.0 {
            e2fsck_fn(&image).unwrap();
        }
        let _ = std::fs::remove_file(&image);
    }
}

/// `-V FILE` is the version and nothing else: by every name that we answer to.
#[test]
fn a_command_that_prints_its_version_does_nothing_else() {
    let scratch = Scratch::new();
    let (image, tree) = (scratch.join("disk.img"), scratch.join("tree"));
    let bytes = vec![7; 4 << 20];
    std::fs::create_dir(&tree).unwrap();
    let source = tree.to_str().unwrap();
    let formats = [vec!["-V"], vec!["-F", "-q", "-V"], vec!["-V", "-F", "-q", "-d", source]];
    let other = [vec!["-V"]];
    let names: [(&str, &[Vec<&str>]); 7] = [
        ("mke2fs", &formats),
        ("mkfs.ext4", &formats),
        ("e2fsck", &other),
        ("fsck.ext4", &other),
        ("tune2fs", &other),
        ("dumpe2fs", &other),
        ("filefrag", &other),
    ];
    for (name, lines) in names {
        let program = scratch.join(name);
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_extant"), &program).unwrap();
        for words in lines {
            std::fs::write(&image, &bytes).unwrap();
            let output = Command::new(&program).args(words).arg(&image).output().unwrap();
            // tune2fs takes it for a usage error.
            let code = i32::from(name == "tune2fs");
            assert_eq!(output.status.code(), Some(code), "{name} {words:?}: {output:?}");
            // filefrag prints it to standard output, the others to standard error.
            let (said, silent) = match name {
                "filefrag" => (&output.stdout, &output.stderr),
                _ => (&output.stderr, &output.stdout),
            };
            let said = String::from_utf8_lossy(said);
            assert!(
                said.starts_with(&format!("{name} 1.47.4 (extant ")),
                "{name} {words:?}: {said}"
            );
            assert!(silent.is_empty(), "{name} {words:?}");
            assert!(std::fs::read(&image).unwrap() == bytes, "{name} {words:?} changed the file");
        }
    }
}

/// As by mke2fs, which asks the device for its sectors first: it fails, and makes no file.
#[test]
fn a_dry_run_on_a_missing_file_ends_as_that_of_mke2fs() {
    let Some(theirs) = tool("mke2fs") else { skip!("mke2fs is not installed") };
    let scratch = Scratch::new();
    let link = scratch.join("mke2fs");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_extant"), &link).unwrap();
    let missing = scratch.join("missing.img");
    let missing = missing.to_str().unwrap();
    for words in [&["-n", missing][..], &["-n", missing, "64M"], &["-nq", missing, "64M"]] {
        let ours = Command::new(&link).args(words).output().unwrap();
        let expected = theirs.run(words);
        assert_eq!(ours.status.code(), expected.status.code(), "{words:?}: {ours:?}");
        assert_eq!(ours.stdout, expected.stdout, "{words:?}");
    }
    let extant = Command::new(env!("CARGO_BIN_EXE_extant"));
    let planned = { extant }.args(["mkfs", "-n", missing, "64M"]).output().unwrap();
    assert!(planned.status.success(), "{planned:?}");
    assert!(!scratch.join("missing.img").exists());
}
