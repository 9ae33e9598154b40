//! `--salvage`: damaged images read as their repair would leave them. They are never written.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use common::{Fixture, extant, text};
use extant_testkit::{
    Entry, Kind, Scratch, TempImage, TreeSnapshot, assert_same_tree, debugfs, skip, tool,
};
use serde_json::Value;

/// An image of two files, the second one large, with blocks of 1 KiB.
struct Small {
    scratch: Scratch,
    image: TempImage,
    large: Vec<u8>,
}

impl Small {
    fn new() -> Self {
        Self::with(&[])
    }

    fn with(options: &[&str]) -> Self {
        let scratch = Scratch::new();
        let large: Vec<u8> = (0..200_000_u32).map(|at| (at / 7) as u8 | 1).collect();
        fs::create_dir_all(scratch.join("tree/dir")).unwrap();
        fs::write(scratch.join("tree/dir/whole"), "whole\n").unwrap();
        fs::write(scratch.join("tree/large"), &large).unwrap();
        let tree = scratch.join("tree");
        let words = ["-t", "ext4", "-b", "1024", "-d", tree.to_str().unwrap()];
        let words = [&words[..], options].concat();
        let image = TempImage::by_mke2fs(16 << 20, &words).unwrap();
        // A write would fail for everyone but root; for root the bytes are compared.
        fs::set_permissions(image.path(), fs::Permissions::from_mode(0o444)).unwrap();
        Self { scratch, image, large }
    }

    fn inside(&self, path: &str) -> String {
        format!("{}:{path}", self.image.path().display())
    }

    /// The first block of the large file, by debugfs: its blocks are in one run.
    fn start(&self) -> u64 {
        let blocks = debugfs(&self.image.path(), "blocks /large").unwrap();
        let blocks: Vec<u64> =
            blocks.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        assert!(blocks.len() == 196 && blocks.windows(2).all(|it| it[0] + 1 == it[1]));
        blocks[0] * 1024
    }

    /// Runs a command with a report, which must not write the image.
    fn salvaged(&self, words: &[&str]) -> (Output, Value) {
        salvaged(&self.image.path(), &self.scratch, words)
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
    assert_eq!(report.as_array().map(Vec::len), Some(1), "{report}");
    (done, report[0].clone())
}

fn write_at(image: &Path, at: u64, bytes: &[u8]) {
    let file = fs::File::options().write(true).open(image).unwrap();
    file.write_all_at(bytes, at).unwrap();
}

/// A damaged image gives the files that it has after `fsck -y`, and an archive of the same ones.
#[test]
fn a_damaged_image_is_read_as_its_repair_leaves_it() {
    let words = ["-t", "ext4", "-b", "1024", "-N", "2048"];
    let fixture = match Fixture::by_mke2fs(&words, 11, 1024) {
        Ok(fixture) => fixture,
        Err(why) => skip!("{why}"),
    };
    let (image, scratch) = (fixture.image.path(), &fixture.scratch);
    let info = extant(["info", "--json", image.to_str().unwrap()]);
    let info: Value = serde_json::from_slice(&info.stdout).unwrap();
    let table = info["groups"][0]["inode_table"].as_u64().unwrap();
    // The superblock, the root directory's inode with others, and some of the inodes after it.
    write_at(&image, 1024, &[0; 1024]);
    write_at(&image, table * 1024, &[0; 1024]);
    write_at(&image, (table + 4) * 1024, &[0xa5; 1024]);
    // mke2fs -d does not use the journal: nothing is restored from it.
    let repaired = scratch.join("repaired.img");
    fs::copy(&image, &repaired).unwrap();
    let code = extant(["fsck", "-fy", repaired.to_str().unwrap()]).status.code();
    assert_eq!(code, Some(1));
    let (expected, found) = (scratch.join("expected"), scratch.join("found"));
    extant(["cp", "-a", &format!("{}:/", repaired.display()), expected.to_str().unwrap()]);
    let inside = fixture.inside("/");
    let (done, report) = salvaged(&image, scratch, &["cp", "-a", &inside, found.to_str().unwrap()]);
    assert_eq!(done.status.code(), Some(1), "{}", text(&done.stderr));
    // Directories that the repair has made have its time.
    let timeless = |entry: &mut Entry| {
        if entry.kind == Kind::Directory {
            entry.mtime = (0, 0);
        }
    };
    let snapshot = |dir: &Path| TreeSnapshot::of_dir(dir).unwrap().map(timeless);
    assert_same_tree(&snapshot(&expected), &snapshot(&found));
    assert_eq!(report["is_partly"], true);
    assert!(report["findings"].as_array().unwrap().len() > 2);
    let lost = report["lost"].as_array().unwrap();
    assert!(!lost.is_empty() || !report["files"].as_array().unwrap().is_empty(), "{report}");
    // The archive of another process is kept, and has the same names.
    let archive = scratch.join("all.tar");
    let words = ["export", "-o", archive.to_str().unwrap(), image.to_str().unwrap()];
    let (done, again) = salvaged(&image, scratch, &words);
    assert_eq!(done.status.code(), Some(1), "{}", text(&done.stderr));
    assert_eq!(report["files"], again["files"]);
    if tool("tar").is_some() {
        let listed = Command::new("tar").arg("-tf").arg(&archive).output().unwrap();
        assert!(listed.status.success() && !listed.stdout.is_empty());
    }
}

/// A sound image is read without a word.
#[test]
fn a_sound_image_has_an_empty_report() {
    if tool("mke2fs").is_none() {
        skip!("e2fsprogs is missing");
    }
    let small = Small::new();
    let (done, report) = small.salvaged(&["cat", &small.inside("/large")]);
    assert!(done.status.success() && done.stdout == small.large, "{}", text(&done.stderr));
    assert!(done.stderr.is_empty(), "{}", text(&done.stderr));
    assert_eq!(report["is_partly"], false);
    for list in ["unreadable", "files", "lost"] {
        assert_eq!(report[list], Value::Array(Vec::new()), "{list}");
    }
}

/// An area that ddrescue has not read is zeros, whatever the copy has there, and is listed by file.
#[test]
fn areas_that_ddrescue_has_not_read_are_missing() {
    if tool("mke2fs").is_none() {
        skip!("e2fsprogs is missing");
    }
    let small = Small::new();
    let start = small.start();
    let bad = start + 5000;
    let write_map = |shift: u64| {
        let (bad, after) = (bad + shift, bad + shift + 1536);
        let map = format!("# Mapfile\n0x0 + 1\n0 {bad} +\n{bad} 1536 -\n{after} 0x40000000 +\n");
        fs::write(small.scratch.join("map"), map).unwrap();
    };
    write_map(0);
    let map = small.scratch.join("map");
    let map = map.to_str().unwrap();
    let (done, report) = small.salvaged(&["cat", "--map", map, &small.inside("/large")]);
    let mut expected = small.large.clone();
    expected[5000..6536].fill(0);
    assert_eq!(done.status.code(), Some(1));
    assert!(done.stdout == expected);
    assert!(text(&done.stderr).ends_with(":/large: missing bytes: 5000-6535\n"));
    let pair = |from: u64, to: u64| Value::from(vec![Value::from(from), Value::from(to)]);
    assert_eq!(report["unreadable"], Value::Array(vec![pair(bad, bad + 1536)]));
    let file = &report["files"][0];
    assert_eq!((&file["path"], &file["type"]), (&Value::from("/large"), &Value::from("file")));
    assert_eq!(file["missing"], Value::Array(vec![pair(5000, 6536)]));
    // Another file is whole.
    let (done, report) = small.salvaged(&["cat", "--map", map, &small.inside("/dir/whole")]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert_eq!((text(&done.stdout), &report["is_partly"]), ("whole\n".into(), &Value::from(false)));
    // The map is of the whole disk, the volume a part of it.
    let disk = small.scratch.join("disk.img");
    let bytes = [vec![0; 1 << 20], fs::read(small.image.path()).unwrap()].concat();
    fs::write(&disk, bytes).unwrap();
    write_map(1 << 20);
    let inside = format!("{}?offset=1M:/large", disk.display());
    let (done, report) = salvaged(&disk, &small.scratch, &["cat", "--map", map, &inside]);
    assert!(done.stdout == expected, "{}", text(&done.stderr));
    assert_eq!(report["files"][0]["missing"], Value::Array(vec![pair(5000, 6536)]));
}

/// An image that was cut off: the files before the end are there.
#[test]
fn the_end_of_a_truncated_image_is_missing() {
    if tool("mke2fs").is_none() {
        skip!("e2fsprogs is missing");
    }
    let small = Small::new();
    let start = small.start();
    let file = fs::File::options().write(true).open(small.image.path()).unwrap();
    file.set_len(start + 100_000).unwrap();
    let (done, report) = small.salvaged(&["cat", &small.inside("/large")]);
    assert_eq!(done.status.code(), Some(1), "{}", text(&done.stderr));
    assert_eq!(done.stdout.len(), 200_000);
    assert!(done.stdout[..100_000] == small.large[..100_000]);
    assert!(done.stdout[100_000..].iter().all(|byte| *byte == 0));
    assert_eq!(report["files"][0]["missing"][0][0], 100_000, "{report}");
}

/// Sectors for which the device has an error are passed over and listed.
#[test]
fn sectors_that_cannot_be_read_are_zeros_and_listed() {
    let (Some(nbdkit), true) = (tool("nbdkit"), tool("mke2fs").is_some()) else {
        skip!("nbdkit or e2fsprogs is missing")
    };
    let small = Small::new();
    let bad = small.start() + 4096;
    let (image, socket) = (small.image.path(), small.scratch.join("socket"));
    let read = format!(
        "if [ $4 -lt {} ] && [ $(($4 + $3)) -gt {bad} ]; then echo EIO sector >&2; exit 1; fi; \
         dd if={} iflag=skip_bytes,count_bytes skip=$4 count=$3 status=none bs=64k",
        bad + 512,
        image.display()
    );
    let mut command = Command::new(nbdkit.path());
    command.args(["-f", "-r", "-U"]).arg(&socket).arg("eval");
    command.arg(format!("get_size=stat -c %s {}", image.display())).arg(format!("pread={read}"));
    let mut server = command.spawn().unwrap();
    let started = Instant::now();
    while !socket.exists() && started.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let inside = format!("nbd+unix:///?socket={}:/large", socket.display());
    let plain = extant(["cat", &inside]);
    let (done, report) = small.salvaged(&["cat", &inside]);
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!(plain.status.code(), Some(1), "{}", text(&plain.stderr));
    assert!(plain.stdout.len() < small.large.len());
    let mut expected = small.large.clone();
    expected[4096..4608].fill(0);
    assert_eq!(done.status.code(), Some(1), "{}", text(&done.stderr));
    assert!(done.stdout == expected, "{}", text(&done.stderr));
    assert_eq!(report["unreadable"], serde_json::json!([[bad, bad + 512]]));
    assert_eq!(report["files"][0]["missing"], serde_json::json!([[4096, 4608]]));
}

/// A file whose extent block is lost is a hole that is named as missing.
#[test]
fn blocks_that_a_repair_gives_up_are_missing() {
    if tool("mke2fs").is_none() {
        skip!("e2fsprogs is missing");
    }
    // A journal would have a copy of the block.
    let small = Small::with(&["-O", "^has_journal"]);
    // Five extents need a block of their own in the extent tree.
    let holes = small.scratch.join("holes");
    let file = fs::File::create(&holes).unwrap();
    for at in 0..6 {
        file.write_all_at(&[7; 1024], at * 8192).unwrap();
    }
    let image = small.image.path();
    let write = format!("write {} holes", holes.display());
    let written = extant(["debugfs", "-w", "-R", &write, image.to_str().unwrap()]);
    assert!(written.status.success(), "{}", text(&written.stderr));
    let map = debugfs(&image, "dump_extents /holes").unwrap();
    // The last number of the line of the index node.
    let node = map.lines().find(|line| line.contains("0/ 1")).expect("an index");
    let node =
        node.split_whitespace().filter_map(|word| word.parse::<u64>().ok()).collect::<Vec<_>>();
    let leaf = node[node.len() - 2];
    write_at(&image, leaf * 1024, &[0x5a; 1024]);
    let (done, report) = small.salvaged(&["cat", &small.inside("/holes")]);
    assert_eq!(done.status.code(), Some(1), "{}", text(&done.stderr));
    let files: BTreeMap<_, _> = report["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| (file["path"].as_str().unwrap(), file))
        .collect();
    let file = files["/holes"];
    assert_eq!(
        file["codes"],
        serde_json::json!(["InodeBlocksWrong", "ExtentNodeInvalid"]),
        "{report}"
    );
    assert_eq!(file["missing"], serde_json::json!([[0, 41_984]]), "{report}");
}

/// Repairs that would take more memory than allowed are refused, and nothing is copied.
#[test]
fn the_memory_of_the_repairs_has_a_limit() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    let small = Small::new();
    write_at(&small.image.path(), 1024, &[0; 1024]);
    let file = small.inside("/dir/whole");
    let output = extant(["cat", "--salvage", "--salvage-memory", "20K", &file]);
    let said = text(&output.stderr);
    let why = "out of memory: the repairs take more than 20480 bytes";
    assert!(output.status.code() == Some(1) && said.contains(why), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    let output = extant(["cat", "--salvage", "--salvage-memory", "64M", &file]);
    assert_eq!(text(&output.stdout), "whole\n", "{output:?}");
}

#[test]
fn options_that_do_not_fit_are_refused() {
    if tool("mke2fs").is_none() {
        skip!("e2fsprogs is missing");
    }
    let small = Small::new();
    let image = small.image.path();
    let image = image.to_str().unwrap();
    let file = small.inside("/large");
    let map = small.scratch.join("map");
    fs::write(&map, "not a map\n").unwrap();
    let map = map.to_str().unwrap();
    let cases: [(&[&str], i32, &str); 5] = [
        (&["cat", "--map", map, &file], 2, "--salvage"),
        (&["cat", "--salvage", "--map", map, &file], 1, "line 1: "),
        (&["cp", "--salvage", "/etc/hostname", &small.inside("/x")], 2, "out of an image"),
        (&["cat", "--salvage", "--salvage-report", image, &file], 1, "not overwriting the image"),
        (&["cat", "--salvage", "--map", map, &format!("overlay:{file}")], 2, "copied file"),
    ];
    let before = fs::read(image).unwrap();
    for (words, code, said) in cases {
        let done = extant(words);
        let complaint = text(&done.stderr);
        assert_eq!(done.status.code(), Some(code), "{words:?}: {complaint}");
        assert!(complaint.contains(said), "{words:?}: {complaint}");
    }
    assert!(fs::read(image).unwrap() == before);
}
