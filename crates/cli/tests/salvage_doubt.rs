//! `--salvage` of images whose damage leaves contents that look whole: each has a line, and the
//! exit code is 1.

mod common;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use common::{extant, text};
use extant_testkit::{Scratch, TempImage, debugfs, skip, tool};
use serde_json::{Value, json};

/// An image of `/large` of 200,000 bytes, `/dir/whole` with a second name `/dir/again`, and
/// `/dir/other`; blocks of 1 KiB.
struct Small {
    scratch: Scratch,
    image: TempImage,
    large: Vec<u8>,
}

impl Small {
    fn new(options: &[&str]) -> Self {
        let scratch = Scratch::new();
        let large: Vec<u8> = (0..200_000_u32).map(|at| (at / 7) as u8 | 1).collect();
        fs::create_dir_all(scratch.join("tree/dir")).unwrap();
        fs::write(scratch.join("tree/dir/whole"), "whole\n").unwrap();
        fs::write(scratch.join("tree/dir/other"), "other\n").unwrap();
        fs::hard_link(scratch.join("tree/dir/whole"), scratch.join("tree/dir/again")).unwrap();
        fs::write(scratch.join("tree/large"), &large).unwrap();
        let tree = scratch.join("tree");
        let words = ["-t", "ext4", "-b", "1024", "-d", tree.to_str().unwrap()];
        let image = TempImage::by_mke2fs(16 << 20, &[&words[..], options].concat()).unwrap();
        Self { scratch, image, large }
    }

    fn path(&self) -> PathBuf {
        self.image.path().to_path_buf()
    }

    fn inside(&self, path: &str) -> String {
        format!("{}:{path}", self.path().display())
    }

    /// The byte at which the record of an inode begins.
    fn record(&self, path: &str) -> u64 {
        let said = debugfs(&self.path(), &format!("imap {path}")).unwrap();
        let number = |text: &str| {
            let text = said.split_once(text).expect(&said).1;
            let text = text.split([',', '\n']).next().unwrap().trim();
            let hex = text.strip_prefix("0x").map(|hex| u64::from_str_radix(hex, 16).unwrap());
            hex.unwrap_or_else(|| text.parse().unwrap())
        };
        number("located at block ") * 1024 + number("offset ")
    }

    fn first_block(&self, path: &str) -> u64 {
        let blocks = debugfs(&self.path(), &format!("blocks {path}")).unwrap();
        blocks.split_whitespace().find_map(|word| word.parse().ok()).expect("a block")
    }

    fn read(&self, at: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        fs::File::open(self.path()).unwrap().read_exact_at(&mut bytes, at).unwrap();
        bytes
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        let file = fs::File::options().write(true).open(self.path()).unwrap();
        file.write_all_at(bytes, at).unwrap();
    }

    fn salvaged(&self, words: &[&str]) -> (Output, Value) {
        salvaged(&self.path(), &self.scratch, words)
    }
}

fn salvaged(image: &Path, scratch: &Scratch, words: &[&str]) -> (Output, Value) {
    let report = scratch.join("report.json");
    let before = fs::read(image).unwrap();
    let options = ["--salvage", "--salvage-report", report.to_str().unwrap()];
    let done = extant([&words[..1], &options[..], &words[1..]].concat());
    assert!(fs::read(image).unwrap() == before, "the image was written");
    let report = fs::read(&report).unwrap_or_default();
    let report: Value = serde_json::from_slice(&report)
        .unwrap_or_else(|error| panic!("{error}: {}", text(&done.stderr)));
    (done, report[0].clone())
}

fn needs_mke2fs() -> bool {
    tool("mke2fs").is_some() && tool("debugfs").is_some()
}

/// Zeros in an indirect block are holes, but not where the block was not read.
#[test]
fn what_an_unread_indirect_block_maps_is_missing() {
    if !needs_mke2fs() {
        skip!("e2fsprogs is missing");
    }
    let small = Small::new(&["-O", "^has_journal,^extents,^64bit,^metadata_csum"]);
    let said = debugfs(&small.path(), "stat /large").unwrap();
    let block: u64 = said
        .split_once("(IND):")
        .expect(&said)
        .1
        .split(',')
        .next()
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let at = block * 1024;
    small.write(at, &[0; 1024]);
    let map = small.scratch.join("map");
    // All of the block, and the last half of it.
    let cases = [(at, at + 1024, 12 * 1024), (at + 512, at + 1024, (12 + 128) * 1024)];
    for (from, to, missing) in cases {
        fs::write(&map, format!("0 + 1\n0 {from} +\n{from} {} -\n{to} 0x40000000 +\n", to - from))
            .unwrap();
        let words = ["cat", "--map", map.to_str().unwrap(), &small.inside("/large")];
        let (done, report) = small.salvaged(&words);
        let complaint = text(&done.stderr);
        assert_eq!(done.status.code(), Some(1), "{complaint}");
        assert!(done.stdout[..12 * 1024] == small.large[..12 * 1024]);
        let line = format!(":/large: missing bytes: {missing}-199999");
        assert!(complaint.contains(&line), "{complaint}");
        assert_eq!(report["files"][0]["missing"], json!([[missing, 200_000]]));
    }
    // Without a map the count of blocks says that some are not there.
    let (done, report) = small.salvaged(&["cat", &small.inside("/large")]);
    assert_eq!(done.status.code(), Some(1), "{}", text(&done.stderr));
    assert_eq!(report["files"][0]["codes"], json!(["InodeBlocksWrong"]), "{report}");
}

/// A record that fails its checksum may say another size, or lead to other blocks.
#[test]
fn a_file_whose_record_fails_its_checksum_may_not_be_whole() {
    if !needs_mke2fs() {
        skip!("e2fsprogs is missing");
    }
    // The start of the first extent, its length, the size.
    for (field, flipped) in [(60_u64, 0x10_u8), (56, 0x01), (4, 0x02)] {
        let small = Small::new(&["-O", "^has_journal"]);
        let at = small.record("/large") + field + u64::from(field == 60);
        let old = small.read(at, 1);
        small.write(at, &[old[0] ^ flipped]);
        let (done, report) = small.salvaged(&["cat", &small.inside("/large")]);
        let complaint = text(&done.stderr);
        assert_eq!(done.status.code(), Some(1), "{field}: {complaint}");
        assert!(complaint.contains(":/large: "), "{field}: {complaint}");
        assert!(complaint.contains("may be damaged ("), "{field}: {complaint}");
        let codes = report["files"][0]["codes"].as_array().unwrap();
        assert!(!codes.is_empty() && report["is_partly"] == true, "{field}: {report}");
        let (done, report) = small.salvaged(&["cat", &small.inside("/dir/other")]);
        assert!(done.status.success(), "{field}: {}", text(&done.stderr));
        assert_eq!(report["files"], json!([]), "{field}");
    }
}

/// Counts and times have no influence on contents.
#[test]
fn harmless_fields_need_no_line() {
    if !needs_mke2fs() {
        skip!("e2fsprogs is missing");
    }
    let small = Small::new(&["-O", "^has_journal,^metadata_csum,^64bit"]);
    // The count of links, and the free blocks of the superblock and the first group.
    small.write(small.record("/large") + 26, &[7, 0]);
    small.write(1024 + 12, &[1, 0]);
    small.write(2048 + 12, &[1, 0]);
    let (done, report) = small.salvaged(&[
        "cp",
        "-a",
        &small.inside("/"),
        small.scratch.join("out").to_str().unwrap(),
    ]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert!(!report["findings"].as_array().unwrap().is_empty());
    assert_eq!((&report["is_partly"], &report["files"]), (&json!(false), &json!([])));
}

/// A name in a directory block that fails its checksum may lead to another file.
#[test]
fn files_of_a_directory_with_uncertain_names_have_its_line() {
    if !needs_mke2fs() {
        skip!("e2fsprogs is missing");
    }
    let small = Small::new(&["-O", "^has_journal"]);
    let at = small.first_block("/dir") * 1024;
    let mut block = small.read(at, 1024);
    let find = |block: &[u8], name: &[u8]| {
        block.windows(name.len()).position(|it| it == name).expect("the name") - 8
    };
    let (whole, other) = (find(&block, b"whole"), find(&block, b"other"));
    block.copy_within(other..other + 4, whole);
    small.write(at, &block);
    let (done, report) = small.salvaged(&["cat", &small.inside("/dir/whole")]);
    let complaint = text(&done.stderr);
    assert_eq!((text(&done.stdout).as_str(), done.status.code()), ("other\n", Some(1)));
    assert!(complaint.contains(":/dir: may be damaged (DirBlockChecksum)"), "{complaint}");
    assert_eq!(report["files"][0]["path"], "/dir", "{report}");
    let out = small.scratch.join("out");
    let (done, report) =
        small.salvaged(&["cp", "-a", &small.inside("/dir"), out.to_str().unwrap()]);
    assert_eq!(done.status.code(), Some(1), "{}", text(&done.stderr));
    assert_eq!(report["files"][0]["codes"], json!(["DirBlockChecksum"]), "{report}");
    let (done, _) = small.salvaged(&["cat", &small.inside("/large")]);
    assert!(done.status.success(), "{}", text(&done.stderr));
}

/// A journal that is not replayed whole leaves older contents somewhere.
#[test]
fn a_corrupt_journal_is_told_of_the_whole_volume() {
    if !needs_mke2fs() {
        skip!("e2fsprogs is missing");
    }
    let small = Small::new(&[]);
    let (content, script) = (small.scratch.join("block"), small.scratch.join("script"));
    fs::write(&content, [0x77; 1024]).unwrap();
    let target = small.first_block("/large");
    fs::write(&script, format!("jo -c\njw -b {target} {}\njc\n", content.display())).unwrap();
    let debugfs = tool("debugfs").unwrap();
    let mut command = std::process::Command::new(debugfs.path());
    let done = command.arg("-w").arg("-f").arg(&script).arg(small.path()).output().unwrap();
    assert!(done.status.success(), "{}", text(&done.stderr));
    // Whole, it is replayed without a word.
    let (done, report) = small.salvaged(&["cat", &small.inside("/large")]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert!(done.stdout[..1024] == [0x77; 1024]);
    assert_eq!(report["journal"], json!([]));
    let bytes = fs::read(small.path()).unwrap();
    let copy = bytes.chunks(1024).position(|block| block == [0x77; 1024]).expect("a copy");
    small.write(copy as u64 * 1024 + 100, &[0]);
    let (done, report) = small.salvaged(&["cat", &small.inside("/dir/other")]);
    let complaint = text(&done.stderr);
    assert_eq!(done.status.code(), Some(1), "{complaint}");
    assert!(complaint.contains(": the journal was not replayed whole (Journal"), "{complaint}");
    assert_eq!(report["is_partly"], true);
    assert_eq!(report["journal"].as_array().map(Vec::is_empty), Some(false), "{report}");
}

/// The size of a volume that was cut off is that of a backup, if the superblock is lost.
#[test]
fn a_truncated_image_without_its_superblock_is_read() {
    if !needs_mke2fs() {
        skip!("e2fsprogs is missing");
    }
    let small = Small::new(&["-O", "^has_journal"]);
    let file = fs::File::options().write(true).open(small.path()).unwrap();
    file.set_len(9 << 20).unwrap();
    small.write(1024, &[0; 1024]);
    let (done, report) = small.salvaged(&["cat", &small.inside("/dir/other")]);
    assert_eq!(text(&done.stdout), "other\n", "{}", text(&done.stderr));
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert_eq!(report["unreadable"], json!([[9 << 20, 16 << 20]]));
}

/// The report does not go over the map, by whatever name.
#[test]
fn the_report_is_not_written_over_the_map() {
    if !needs_mke2fs() {
        skip!("e2fsprogs is missing");
    }
    let small = Small::new(&["-O", "^has_journal"]);
    let map = small.scratch.join("map");
    let content = "0 + 1\n0 0x40000000 +\n";
    fs::write(&map, content).unwrap();
    let (hard, soft) = (small.scratch.join("hard"), small.scratch.join("soft"));
    fs::hard_link(&map, &hard).unwrap();
    std::os::unix::fs::symlink(&map, &soft).unwrap();
    for report in [&map, &hard, &soft] {
        let words = ["cat", "--salvage", "--map", map.to_str().unwrap(), "--salvage-report"];
        let file = small.inside("/dir/other");
        let done = extant([&words[..], &[report.to_str().unwrap(), &file]].concat());
        assert_eq!(done.status.code(), Some(1));
        assert!(text(&done.stderr).contains("not overwriting the map file"));
        assert_eq!(fs::read_to_string(&map).unwrap(), content);
    }
}

/// Each name of a damaged file is listed.
#[test]
fn all_names_of_a_damaged_file_are_listed() {
    if !needs_mke2fs() {
        skip!("e2fsprogs is missing");
    }
    let small = Small::new(&["-O", "^has_journal"]);
    let at = small.first_block("/dir/whole") * 1024;
    let map = small.scratch.join("map");
    fs::write(&map, format!("0 + 1\n0 {at} +\n{at} 512 -\n{} 0x40000000 +\n", at + 512)).unwrap();
    let (out, map) = (small.scratch.join("out"), map.to_str().unwrap());
    let words = ["cp", "-a", "--map", map, &small.inside("/"), out.to_str().unwrap()];
    let (done, report) = small.salvaged(&words);
    assert_eq!(done.status.code(), Some(1));
    for name in ["/dir/whole", "/dir/again"] {
        assert!(text(&done.stderr).contains(&format!(":{name}: missing bytes: 0-5")));
    }
    let paths: Vec<_> = report["files"].as_array().unwrap().iter().map(|it| &it["path"]).collect();
    assert_eq!(paths, ["/dir/again", "/dir/whole"]);
}
