//! `extant export` unpacked by GNU tar.

mod common;

use std::process::{Command, Stdio};

use common::{EXTANT, Fixture, extant, quiet, snapshot, text};
use extant_testkit::{Kind, Scratch, assert_same_tree, is_root, skip, tool};

/// The files that tar makes of the archive, with all options to keep attributes.
fn unpacked(fixture: &Fixture, words: &[String]) -> std::path::PathBuf {
    let target = fixture.scratch.join("unpacked");
    std::fs::create_dir(&target).unwrap();
    let mut export = Command::new(EXTANT)
        .arg("export")
        .args(words)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let tar = Command::new("tar")
        .args([
            "-x",
            "--warning=no-timestamp",
            "--numeric-owner",
            "--xattrs",
            "--xattrs-include=*",
            "--acls",
            "-p",
            "-C",
        ])
        .arg(&target)
        .stdin(export.stdout.take().unwrap())
        .output()
        .unwrap();
    let export = export.wait_with_output().unwrap();
    // Sockets cannot be in an archive and are reported.
    let said = text(&export.stderr);
    assert!(said.lines().all(|line| line.contains("socket ignored")), "{said}");
    assert!(export.status.success(), "{:?}", export.status);
    assert!(tar.status.success() && tar.stderr.is_empty(), "{}", text(&tar.stderr));
    target
}

fn comes_back_as_it_was(fixture: Result<Fixture, String>) {
    if !is_root() {
        skip!("other owners need root");
    }
    if tool("tar").is_none() {
        skip!("tar is not installed");
    }
    let fixture = match fixture {
        Ok(fixture) => fixture,
        Err(why) => skip!("{why}"),
    };
    let target = unpacked(&fixture, &[fixture.inside("/")]);
    let mut expected = match fixture.mounted_snapshot() {
        Ok(expected) => expected,
        Err(why) => skip!("{why}"),
    };
    expected.entries.retain(|_, entry| entry.kind != Kind::Socket);
    assert_same_tree(&expected, &snapshot(&target));
    // Holes stay holes.
    use std::os::unix::fs::MetadataExt;
    let hole = target.join("sparse/all").metadata().unwrap();
    assert!(hole.size() > 1 << 30 && hole.blocks() < 100, "{hole:?}");
}

#[test]
fn an_image_of_mke2fs_comes_back_as_it_was() {
    comes_back_as_it_was(Fixture::by_mke2fs(&["-t", "ext4", "-b", "4096"], 21, 4096));
}

#[test]
fn an_image_of_the_kernel_comes_back_as_it_was() {
    comes_back_as_it_was(Fixture::by_kernel(&["-t", "ext4", "-b", "1024"], 22, 1024));
}

#[test]
fn an_image_without_extents_comes_back_as_it_was() {
    comes_back_as_it_was(Fixture::by_kernel(
        &["-t", "ext4", "-b", "4096", "-O", "^extent,^64bit,inline_data"],
        23,
        4096,
    ));
}

#[test]
fn a_directory_or_a_file_may_be_exported_alone() {
    let fixture = match Fixture::by_mke2fs(&["-t", "ext4"], 24, 1024) {
        Ok(fixture) => fixture,
        Err(why) => skip!("{why}"),
    };
    let list = |words: &[String]| {
        let archive = fixture.scratch.join("archive.tar");
        let mut all = vec!["export".to_owned(), "-o".to_owned(), archive.display().to_string()];
        all.extend(words.iter().cloned());
        quiet(&extant(&all));
        let listed = Command::new("tar").arg("-tf").arg(&archive).output().unwrap();
        std::fs::remove_file(archive).unwrap();
        text(&listed.stdout)
    };
    if tool("tar").is_none() {
        skip!("tar is not installed");
    }
    let names = list(&[fixture.inside("/deep")]);
    assert!(names.starts_with("./\n./"), "{names}");
    assert_eq!(list(&[fixture.inside("/xattrs/acl")]), "./acl\n");
}

/// The archive is the same however many threads read; it is here with one processor and with all.
#[test]
fn the_archive_is_the_same_each_time() {
    let fixture = match Fixture::by_mke2fs(&["-t", "ext4"], 25, 1024) {
        Ok(fixture) => fixture,
        Err(why) => skip!("{why}"),
    };
    let all = extant(["export".to_owned(), fixture.inside("/")]);
    assert!(all.stdout.len() > 1 << 20 && all.stdout.len().is_multiple_of(10_240));
    let Some(taskset) = tool("taskset") else { skip!("taskset is not installed") };
    let words = ["-c".to_owned(), "0".to_owned(), EXTANT.to_owned(), "export".to_owned()];
    let one = taskset.command().args(words).arg(fixture.inside("/")).output().unwrap();
    assert!(one.status.success() && one.stdout == all.stdout);
}

#[test]
fn a_failure_leaves_no_archive() {
    let fixture = match Fixture::by_mke2fs(&["-t", "ext4"], 26, 1024) {
        Ok(fixture) => fixture,
        Err(why) => skip!("{why}"),
    };
    let missing = fixture.scratch.join("missing/archive.tar");
    let output = extant([
        "export".to_owned(),
        "-o".to_owned(),
        missing.display().to_string(),
        fixture.inside("/"),
    ]);
    assert_eq!(output.status.code(), Some(1));
    let archive = fixture.scratch.join("archive.tar");
    let output = extant([
        "export".to_owned(),
        "-o".to_owned(),
        archive.display().to_string(),
        fixture.inside("/absent"),
    ]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).ends_with(":/absent: no such file or directory\n"));
    assert!(!archive.exists());
}

/// A device without room is named, as a file would be.
#[test]
fn a_failed_write_names_the_output() {
    let fixture = match Fixture::by_mke2fs(&["-t", "ext4"], 26, 1024) {
        Ok(fixture) => fixture,
        Err(why) => skip!("{why}"),
    };
    let output = extant(["export", "-o", "/dev/full", &fixture.inside("/")]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let last = said.lines().last();
    assert_eq!(last, Some("extant export: /dev/full: No space left on device"), "{said}");
}

#[test]
fn a_reader_that_goes_away_ends_it_without_a_word() {
    let fixture = match Fixture::by_mke2fs(&["-t", "ext4"], 27, 1024) {
        Ok(fixture) => fixture,
        Err(why) => skip!("{why}"),
    };
    let mut child = Command::new(EXTANT)
        .args(["export".to_owned(), fixture.inside("/plain")])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((text(&output.stderr), output.status.code()), (String::new(), Some(141)));
}

/// A file that cannot be read is left out by each of its names: no name links to a member that is
/// not in the archive, or to a file that was not made.
#[test]
fn names_of_a_file_that_cannot_be_read_are_no_links() {
    let Some(debugfs) = tool("debugfs") else { skip!("no debugfs here") };
    let scratch = Scratch::new();
    let source = scratch.join("source");
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("first"), vec![7; 100_000]).unwrap();
    std::fs::hard_link(source.join("first"), source.join("second")).unwrap();
    std::fs::write(source.join("whole"), "whole").unwrap();
    std::fs::hard_link(source.join("whole"), source.join("wholly")).unwrap();
    let image = scratch.join("disk.img");
    let words = ["build", "-q", "-o", image.to_str().unwrap(), source.to_str().unwrap()];
    quiet(&extant(words));
    let args = ["-w".as_ref(), "-R".as_ref(), "sif /first block[0] 0".as_ref(), image.as_os_str()];
    assert!(debugfs.run(args).status.success());
    let inside = format!("{}:/", image.display());
    let archive = scratch.join("out.tar");
    let exported = extant(["export", "-o", archive.to_str().unwrap(), &inside]);
    assert_eq!(exported.status.code(), Some(1), "{exported:?}");
    for name in ["/first", "/second"] {
        assert!(text(&exported.stderr).contains(name), "{name}: {exported:?}");
    }
    let out = scratch.join("out");
    std::fs::create_dir(&out).unwrap();
    let unpacked = Command::new("tar")
        .args(["-xf", archive.to_str().unwrap(), "-C", out.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(unpacked.status.success(), "{unpacked:?}");
    assert!(out.join("whole").exists() && out.join("wholly").exists());
    assert!(!out.join("first").exists() && !out.join("second").exists());

    let copied = extant(["cp", "-a", &format!("{inside}."), out.to_str().unwrap()]);
    assert_eq!(copied.status.code(), Some(1), "{copied:?}");
    let said = text(&copied.stderr);
    assert!(said.contains("/second") && !said.contains("No such file"), "{said}");
}
