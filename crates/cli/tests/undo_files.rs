//! Undo files: ours are applied by e2undo, those of e2fsprogs by us, and each side continues those
//! of the other.

use extant_testkit::{Scratch, skip, tool};
use std::path::Path;
use std::process::{Command, Output};

/// A program of e2fsprogs, or ours by its name.
#[derive(Clone, Copy, Debug)]
enum Side {
    Ours,
    Theirs,
}

use Side::{Ours, Theirs};

/// Runs a program in the directory.
fn run(scratch: &Scratch, side: Side, program: &str, words: &[&str]) -> Output {
    run_with(scratch, side, program, words, "none")
}

fn run_with(
    scratch: &Scratch,
    side: Side,
    program: &str,
    words: &[&str],
    undo_directory: &str,
) -> Output {
    let mut command = match side {
        Ours => {
            let link = scratch.join(program);
            if !link.exists() {
                std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_extant"), &link).unwrap();
            }
            Command::new(link)
        }
        Theirs => Command::new(program),
    };
    let path = std::env::var("PATH").unwrap_or_default();
    command
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .env("E2FSPROGS_UNDO_DIR", undo_directory);
    command.current_dir(scratch.join("work")).args(words).output().unwrap()
}

/// An empty directory for the images.
fn work(scratch: &Scratch) -> std::path::PathBuf {
    let work = scratch.join("work");
    std::fs::create_dir_all(&work).unwrap();
    work
}

fn has_theirs() -> bool {
    ["mke2fs", "tune2fs", "e2fsck", "debugfs", "e2undo"]
        .into_iter()
        .all(|name| tool(name).is_some())
}

/// The volumes that are changed: with blocks of 1 and 4 KiB, and one within a file.
const VOLUMES: [(&str, &[&str]); 3] = [
    ("disk.img", &["-q", "-t", "ext4", "-b", "1024", "disk.img", "12M"]),
    ("disk.img", &["-q", "-t", "ext4", "-b", "4096", "disk.img", "24M"]),
    (
        "disk.img?offset=1048576",
        &["-q", "-t", "ext4", "-b", "4096", "-E", "offset=1048576", "disk.img", "16M"],
    ),
];

/// Commands that change a volume, without its name; OFFSET goes before it.
const CHANGES: [(&str, &[&str]); 6] = [
    ("tune2fs", &["-z", "undo", "-L", "changed"]),
    ("tune2fs", &["-z", "undo", "-O", "^has_journal"]),
    ("tune2fs", &["-z", "undo", "-O", "^metadata_csum"]),
    ("debugfs", &["-z", "undo", "-w", "-R", "mkdir made"]),
    ("debugfs", &["-z", "undo", "-w", "-R", "write work-file copied"]),
    ("e2fsck", &["-z", "undo", "-f", "-y", "-D"]),
];

fn apply_to_copy(scratch: &Scratch, side: Side, before: &[u8], what: &str) {
    let work = work(scratch);
    std::fs::copy(work.join("disk.img"), work.join("copy.img")).unwrap();
    let undone = run(scratch, side, "e2undo", &["undo", "copy.img"]);
    assert_eq!(undone.status.code(), Some(0), "{side:?} {what}: {undone:?}");
    let after = std::fs::read(work.join("copy.img")).unwrap();
    assert!(after == before, "{side:?} {what}: not every byte is back");
}

#[test]
fn e2undo_and_ours_undo_what_ours_did() {
    if !has_theirs() {
        skip!("e2fsprogs is not installed")
    }
    let scratch = Scratch::new();
    let work = work(&scratch);
    std::fs::write(work.join("work-file"), vec![0x5a; 300_000]).unwrap();
    for (volume, format) in VOLUMES {
        let _ = std::fs::remove_file(work.join("disk.img"));
        assert!(run(&scratch, Theirs, "mke2fs", format).status.success());
        let before = std::fs::read(work.join("disk.img")).unwrap();
        let mkfs: Vec<_> = ["-F", "-z", "undo"].into_iter().chain(format.iter().copied()).collect();
        let changes =
            CHANGES.iter().map(|(program, words)| (*program, [*words, &[volume]].concat()));
        for (program, words) in changes.chain([("mke2fs", mkfs)]) {
            std::fs::write(work.join("disk.img"), &before).unwrap();
            let _ = std::fs::remove_file(work.join("undo"));
            let done = run(&scratch, Ours, program, &words);
            assert!(done.status.code() <= Some(1), "{program} {words:?}: {done:?}");
            assert!(std::fs::read(work.join("disk.img")).unwrap() != before, "{program} {words:?}");
            for side in [Ours, Theirs] {
                apply_to_copy(&scratch, side, &before, &format!("{program} {words:?}"));
            }
        }
    }
}

/// With an offset, programs of e2fsprogs 1.47 do not keep the superblock.
#[test]
fn ours_undoes_what_theirs_did() {
    if !has_theirs() {
        skip!("e2fsprogs is not installed")
    }
    let scratch = Scratch::new();
    let work = work(&scratch);
    std::fs::write(work.join("work-file"), vec![0x5a; 300_000]).unwrap();
    for (volume, format) in VOLUMES.into_iter().filter(|(volume, _)| !volume.contains('?')) {
        let _ = std::fs::remove_file(work.join("disk.img"));
        assert!(run(&scratch, Theirs, "mke2fs", format).status.success());
        let before = std::fs::read(work.join("disk.img")).unwrap();
        let mkfs: Vec<_> = ["-F", "-z", "undo"].into_iter().chain(format.iter().copied()).collect();
        let changes =
            CHANGES.iter().map(|(program, words)| (*program, [*words, &[volume]].concat()));
        for (program, words) in changes.chain([("mke2fs", mkfs)]) {
            std::fs::write(work.join("disk.img"), &before).unwrap();
            let _ = std::fs::remove_file(work.join("undo"));
            let done = run(&scratch, Theirs, program, &words);
            assert!(done.status.code() <= Some(1), "{program} {words:?}: {done:?}");
            apply_to_copy(&scratch, Ours, &before, &format!("{program} {words:?}"));
        }
    }
}

#[test]
fn each_continues_the_undo_files_of_the_other() {
    if !has_theirs() {
        skip!("e2fsprogs is not installed")
    }
    let scratch = Scratch::new();
    let work = work(&scratch);
    std::fs::write(work.join("work-file"), vec![0x5a; 300_000]).unwrap();
    let (volume, format) = VOLUMES[0];
    for first in [Ours, Theirs] {
        let _ = std::fs::remove_file(work.join("disk.img"));
        let _ = std::fs::remove_file(work.join("undo"));
        assert!(run(&scratch, Theirs, "mke2fs", format).status.success());
        let before = std::fs::read(work.join("disk.img")).unwrap();
        let second = if matches!(first, Ours) { Theirs } else { Ours };
        for (number, (program, words)) in CHANGES.iter().enumerate() {
            let side = if number % 2 == 0 { first } else { second };
            let words = [*words, &[volume]].concat();
            let done = run(&scratch, side, program, &words);
            assert!(done.status.code() <= Some(1), "{side:?} {program} {words:?}: {done:?}");
        }
        for side in [Ours, Theirs] {
            apply_to_copy(&scratch, side, &before, "all");
        }
        // The volume changed outside: neither continues.
        assert!(run(&scratch, Theirs, "tune2fs", &["-L", "other", volume]).status.success());
        let kept = std::fs::read(work.join("undo")).unwrap();
        for side in [Ours, Theirs] {
            let refused = run(&scratch, side, "tune2fs", &["-z", "undo", "-L", "more", volume]);
            assert_eq!(refused.status.code(), Some(1), "{side:?}: {refused:?}");
        }
        assert!(std::fs::read(work.join("undo")).unwrap() == kept);
    }
}

/// Which undo file appears for an option or a directory, and what is said of it.
/// The undo file of a new volume with other blocks is continued by another program.
#[test]
fn undo_files_are_continued_after_the_block_size_changes() {
    if !has_theirs() {
        skip!("e2fsprogs is not installed")
    }
    let scratch = Scratch::new();
    let work = work(&scratch);
    std::fs::write(work.join("work-file"), vec![0x5a; 300_000]).unwrap();
    for (old, new) in [("1024", "4096"), ("4096", "1024")] {
        let _ = std::fs::remove_file(work.join("disk.img"));
        let format = ["-q", "-t", "ext4", "-b", old, "disk.img", "24M"];
        assert!(run(&scratch, Theirs, "mke2fs", &format).status.success());
        let write = ["-w", "-R", "write work-file copied", "disk.img"];
        assert!(run(&scratch, Theirs, "debugfs", &write).status.success());
        let before = std::fs::read(work.join("disk.img")).unwrap();
        for (second, (program, words)) in
            [Ours, Theirs].into_iter().flat_map(|side| CHANGES.map(|change| (side, change)))
        {
            std::fs::write(work.join("disk.img"), &before).unwrap();
            let _ = std::fs::remove_file(work.join("undo"));
            let what = format!("{old} to {new}, {second:?} {program} {words:?}");
            let mkfs = ["-q", "-F", "-b", new, "-z", "undo", "disk.img"];
            let made = run(&scratch, Ours, "mke2fs", &mkfs);
            assert!(made.status.success(), "{what}: {made:?}");
            let done = run(&scratch, second, program, &[words, &["disk.img"]].concat());
            assert!(done.status.code() <= Some(1), "{what}: {done:?}");
            for side in [Ours, Theirs] {
                apply_to_copy(&scratch, side, &before, &what);
            }
        }
    }
}

#[test]
fn the_same_undo_files_appear_by_both() {
    if !has_theirs() {
        skip!("e2fsprogs is not installed")
    }
    let scratch = Scratch::new();
    let work = work(&scratch);
    let (_, format) = VOLUMES[0];
    let mkfs = [&["-F"], format].concat();
    let mkfs_z = [&["-F", "-z", ""], format].concat();
    let ext3 = ["-F", "-q", "-t", "ext3", "-b", "1024", "disk.img", "12M"];
    let rows: [(&str, &[&str]); 8] = [
        ("tune2fs", &["-z", "", "-L", "a", "disk.img"]),
        ("tune2fs", &["-L", "a", "disk.img"]),
        ("tune2fs", &["-z", "named", "-L", "a", "disk.img"]),
        ("e2fsck", &["-z", "", "-f", "-y", "disk.img"]),
        ("debugfs", &["-z", "", "-w", "-R", "mkdir x", "disk.img"]),
        ("mke2fs", &mkfs),
        ("mke2fs", &mkfs_z),
        ("mke2fs", &ext3),
    ];
    for (program, words) in rows {
        for directory in ["kept", "missing", "none"] {
            let found = [Ours, Theirs].map(|side| {
                std::fs::remove_dir_all(&work).unwrap();
                std::fs::create_dir_all(work.join("kept")).unwrap();
                assert!(run(&scratch, Theirs, "mke2fs", format).status.success());
                let done = run_with(&scratch, side, program, words, directory);
                let said = String::from_utf8_lossy(&done.stdout).into_owned();
                let is_said = said.contains("this can be undone using the command:\n    e2undo ");
                (done.status.code(), files(&work), files(&work.join("kept")), is_said)
            });
            assert_eq!(found[0], found[1], "{program} {words:?}, directory {directory}");
        }
    }
}

/// The names of the files in a directory.
fn files(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

#[test]
fn e2undo_answers_as_theirs_does() {
    if !has_theirs() {
        skip!("e2fsprogs is not installed")
    }
    let scratch = Scratch::new();
    let work = work(&scratch);
    let (_, format) = VOLUMES[0];
    assert!(run(&scratch, Theirs, "mke2fs", format).status.success());
    let words = ["-z", "undo", "-O", "^has_journal", "disk.img"];
    assert!(run(&scratch, Theirs, "tune2fs", &words).status.success());
    std::fs::copy(work.join("disk.img"), work.join("changed.img")).unwrap();
    std::fs::write(work.join("junk"), b"junk").unwrap();
    assert!(run(&scratch, Theirs, "mke2fs", &["-q", "other.img", "12M"]).status.success());
    let rows: [&[&str]; 11] = [
        &[],
        &["-h"],
        &["-q", "undo", "disk.img"],
        &["missing", "disk.img"],
        &["undo", "missing"],
        &["junk", "disk.img"],
        &["undo", "other.img"],
        &["-n", "-v", "undo", "disk.img"],
        &["-o", "1024", "undo", "disk.img"],
        &["-v", "-z", "again", "undo", "disk.img"],
        &["undo", "disk.img"],
    ];
    for words in rows {
        let found = [Ours, Theirs].map(|side| {
            std::fs::copy(work.join("changed.img"), work.join("disk.img")).unwrap();
            let _ = std::fs::remove_file(work.join("again"));
            let done = run(&scratch, side, "e2undo", words);
            let image = std::fs::read(work.join("disk.img")).unwrap();
            let replayed = String::from_utf8_lossy(&done.stdout).into_owned();
            let replayed = replayed.lines().filter(|line| line.starts_with("Replayed"));
            let replayed: Vec<_> = replayed.map(str::to_owned).collect();
            (done.status.code(), replayed, image, work.join("again").exists())
        });
        assert!(found[0] == found[1], "{words:?}: {:?} {:?}", found[0].0, found[1].0);
    }
    // The undo of the undo.
    std::fs::copy(work.join("changed.img"), work.join("disk.img")).unwrap();
    assert!(run(&scratch, Ours, "e2undo", &["-z", "again", "undo", "disk.img"]).status.success());
    assert!(run(&scratch, Theirs, "e2undo", &["again", "disk.img"]).status.success());
    let image = std::fs::read(work.join("disk.img")).unwrap();
    assert!(image == std::fs::read(work.join("changed.img")).unwrap());
}
