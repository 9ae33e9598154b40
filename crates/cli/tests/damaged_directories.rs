//! Directories with a corrupt block, and trees with a corrupt inode: what is whole is read.

mod common;

use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Output;

use common::{extant, quiet, text};
use extant_testkit::{BadBlock, BadDirectory, Scratch, TempImage, debugfs, mke2fs, skip, tool};

/// Ends with exit code 1 after this one line.
fn fails_with(output: &Output, line: &str) {
    assert_eq!(text(&output.stderr), format!("{line}\n"));
    assert_eq!(output.status.code(), Some(1));
}

fn names_of(dir: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(dir).expect("a directory");
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// The last part of each line's path.
fn last_parts(said: &[u8]) -> BTreeSet<String> {
    let said = text(said);
    let last = |line: &str| line.rsplit(['/', ' ']).next().unwrap_or_default().to_owned();
    said.lines().map(last).filter(|name| name.starts_with("file-")).collect()
}

fn the_others_are_read(is_indexed: bool, at: u64, flaw: BadBlock, why: &str) {
    let damaged = match BadDirectory::new(is_indexed, at, flaw) {
        Ok(damaged) => damaged,
        Err(why) => skip!("{why}"),
    };
    assert!(!damaged.good.is_empty());
    let image = damaged.image.path().display().to_string();
    let inside = |path: &str| format!("{image}:{path}");
    let line = |command: &str, path: &str| {
        format!(
            "extant {command}: {image}:{path}: directory block {at} (block {}){why}",
            damaged.block
        )
    };
    for words in [&["ls"][..], &["ls", "-a"], &["ls", "-R"], &["ls", "--json"]] {
        let output = extant(words.iter().copied().chain([&*inside("/d")]));
        fails_with(&output, &line("ls", "/d"));
        if words.len() == 1 {
            assert_eq!(last_parts(&output.stdout), damaged.good);
        }
    }
    for command in ["find", "tree"] {
        let output = extant([command, &inside("/")]);
        fails_with(&output, &line(command, "/d"));
        assert_eq!(last_parts(&output.stdout), damaged.good);
    }
    let output = extant(["diff", &inside("/d"), &inside("/d")]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains(&line("diff", "/d")), "{}", text(&output.stderr));
    let scratch = Scratch::new();
    let output = extant(["cp", "-r", &inside("/d"), scratch.to_str().unwrap()]);
    fails_with(&output, &line("cp", "/d"));
    assert_eq!(names_of(&scratch.join("d")), damaged.good);
    let other = scratch.join("other.img").display().to_string();
    mke2fs(["-q", "-t", "ext4", &other, "16M"]).expect("mke2fs");
    let output = extant(["cp", "-r", &inside("/d"), &format!("{other}:/")]);
    fails_with(&output, &line("cp", "/d"));
    let output = extant(["ls".to_owned(), format!("{other}:/d")]);
    quiet(&output);
    assert_eq!(last_parts(&output.stdout), damaged.good);
    let archive = scratch.join("all.tar");
    let output = extant(["export", &image, "-o", archive.to_str().unwrap()]);
    fails_with(&output, &line("export", "/d"));
    let Some(tar) = tool("tar") else { skip!("no tar here") };
    let listed = tar.run(["-tf".as_ref(), archive.as_os_str()]);
    assert_eq!(last_parts(&listed.stdout), damaged.good);
    for name in &damaged.good {
        let output = extant(["cat", &inside(&format!("/d/{name}"))]);
        quiet(&output);
        assert_eq!(text(&output.stdout), *name);
    }
    // It is not known whether the name is there.
    let name = damaged.bad.first().map_or("missing", String::as_str);
    let output = extant(["cat", &inside(&format!("/d/{name}"))]);
    assert_eq!(output.status.code(), Some(1));
    assert!(!text(&output.stderr).contains("no such file"), "{}", text(&output.stderr));
}

const CHECKSUM: &str = ": checksum does not match";
const RECORD: &str = ", entry at byte 0: rec_len is 3, minimum 12";

#[test]
fn a_wrong_checksum_of_a_directory_block_hides_its_own_names_only() {
    the_others_are_read(false, 2, BadBlock::Checksum, CHECKSUM);
    the_others_are_read(false, 0, BadBlock::Checksum, CHECKSUM);
    the_others_are_read(true, 2, BadBlock::Checksum, CHECKSUM);
    the_others_are_read(true, 0, BadBlock::Checksum, CHECKSUM);
}

#[test]
fn an_invalid_record_of_a_directory_hides_the_names_of_its_block_only() {
    the_others_are_read(false, 2, BadBlock::Record, RECORD);
    the_others_are_read(true, 2, BadBlock::Record, RECORD);
}

#[test]
fn a_corrupt_inode_is_reported_by_its_name_and_the_other_files_are_copied() {
    let scratch = Scratch::new();
    let source = scratch.join("source");
    std::fs::create_dir_all(source.join("sub")).unwrap();
    for name in ["a", "b", "sub/c", "sub/d"] {
        std::fs::write(source.join(name), name).unwrap();
    }
    let made = TempImage::by_mke2fs(16 << 20, &["-t", "ext4", "-d", source.to_str().unwrap()]);
    let image = match made {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    // "located at block 57, offset 0x0c00": the generation, which the checksum covers, is at 100.
    let place = debugfs(&image.path(), "imap /sub/c").expect("debugfs");
    let words: Vec<&str> = place.split([' ', ',', '\n']).collect();
    let after = |name: &str| words[words.iter().rposition(|it| *it == name).unwrap() + 1];
    let block: u64 = after("block").parse().unwrap();
    let offset = u64::from_str_radix(after("offset").trim_start_matches("0x"), 16).unwrap();
    let size = debugfs(&image.path(), "stats -h").expect("debugfs");
    let size = size.lines().find_map(|line| line.strip_prefix("Block size:")).unwrap();
    let at = block * size.trim().parse::<u64>().unwrap() + offset + 100;
    let file = std::fs::OpenOptions::new().write(true).open(image.path()).unwrap();
    file.write_all_at(&[0x55; 4], at).unwrap();

    let name = image.path().display().to_string();
    let others = ["a", "b", "sub/d"];
    let check = |output: &Output, command: &str, copy: &Path| {
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.starts_with(&format!("extant {command}: {name}:/sub/c: ")), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        for other in others {
            assert_eq!(std::fs::read_to_string(copy.join(other)).unwrap(), other);
        }
        assert!(!copy.join("sub/c").exists());
    };
    let copied = scratch.join("copied");
    let output = extant(["cp", "-r", &format!("{name}:/"), copied.to_str().unwrap()]);
    check(&output, "cp", &copied);
    let archive = scratch.join("all.tar");
    let output = extant(["export", &name, "-o", archive.to_str().unwrap()]);
    let Some(tar) = tool("tar") else { skip!("no tar here") };
    let unpacked = scratch.join("unpacked");
    std::fs::create_dir(&unpacked).unwrap();
    let untarred = tar.run(["-xf", archive.to_str().unwrap(), "-C", unpacked.to_str().unwrap()]);
    assert!(untarred.status.success());
    check(&output, "export", &unpacked);
}
