//! `extant info` and its twin against dumpe2fs on images of mke2fs and of the kernel.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

use extant_testkit::{LoopMount, Scratch, TempImage, Tool, is_root, skip, tool};

const EXTANT: &str = env!("CARGO_BIN_EXE_extant");

/// Our binary under the twin's name.
struct Twin {
    scratch: Scratch,
}

impl Twin {
    fn new() -> Self {
        let scratch = Scratch::new();
        symlink(EXTANT, scratch.join("dumpe2fs")).unwrap();
        Self { scratch }
    }

    fn run(&self, words: &[&str], image: &Path) -> Output {
        let mut command = Command::new(self.scratch.join("dumpe2fs"));
        command.args(words).arg(image).env("TZ", "UTC").output().unwrap()
    }

    /// Standard output and exit code are the twin's own.
    fn agrees(&self, dumpe2fs: &Tool, words: &[&str], image: &Path, what: &str) {
        let expected = dumpe2fs.command().args(words).arg(image).env("TZ", "UTC").output().unwrap();
        let found = self.run(words, image);
        let lines = |output: &Output| {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            text.lines().map(str::to_owned).collect::<Vec<_>>()
        };
        let (expected_lines, found_lines) = (lines(&expected), lines(&found));
        for (at, (expected, found)) in expected_lines.iter().zip(&found_lines).enumerate() {
            assert_eq!(found, expected, "{what} {words:?}, line {}", at + 1);
        }
        assert_eq!(found_lines.len(), expected_lines.len(), "{what} {words:?}");
        assert_eq!(found.status.code(), expected.status.code(), "{what} {words:?}");
    }
}

const OPTION_SETS: &[(&[&str], u64)] = &[
    (&["-t", "ext2"], 64 << 20),
    (&["-t", "ext2", "-r", "0", "-O", "none"], 20 << 20),
    (&["-t", "ext3", "-I", "128", "-e", "remount-ro", "-m", "0"], 200 << 20),
    (&["-t", "ext4", "-L", "a label", "-M", "/mnt"], 64 << 20),
    (&["-t", "ext4", "-O", "bigalloc", "-C", "65536"], 1 << 30),
    (&["-t", "ext4", "-O", "bigalloc", "-b", "1024", "-C", "16384"], 600 << 20),
    (&["-t", "ext4", "-O", "meta_bg,^resize_inode"], 1 << 32),
    (&["-t", "ext4", "-O", "sparse_super2,^metadata_csum,uninit_bg"], 300 << 20),
    (&["-t", "ext4", "-O", "fast_commit,orphan_file,inline_data,ea_inode,large_dir"], 128 << 20),
    (&["-t", "ext4", "-O", "quota,project,mmp,metadata_csum_seed,casefold,encrypt"], 64 << 20),
    (
        &["-t", "ext4", "-O", "^64bit,verity,stable_inodes", "-E", "stride=4,stripe_width=16"],
        64 << 20,
    ),
    (&["-t", "ext4", "-b", "65536"], 1 << 30),
    (&["-O", "journal_dev", "-b", "4096"], 16 << 20),
];

#[test]
fn every_line_is_the_one_that_dumpe2fs_shows() {
    let Some(dumpe2fs) = tool("dumpe2fs") else { skip!("dumpe2fs is not installed") };
    let twin = Twin::new();
    for &(options, size) in OPTION_SETS {
        let image = match TempImage::by_mke2fs(size, options) {
            Ok(image) => image,
            Err(why) => skip!("{why}"),
        };
        for words in [&[][..], &["-h"], &["-x"]] {
            twin.agrees(&dumpe2fs, words, &image.path(), &format!("{options:?}"));
        }
        if !options.contains(&"journal_dev") {
            twin.agrees(&dumpe2fs, &["-g"], &image.path(), &format!("{options:?}"));
        }
    }
}

#[test]
fn an_image_that_the_kernel_used_reads_as_in_dumpe2fs() {
    if !is_root() {
        skip!("a loop mount needs root");
    }
    let Some(dumpe2fs) = tool("dumpe2fs") else { skip!("dumpe2fs is not installed") };
    let image = match TempImage::by_mke2fs(64 << 20, &["-t", "ext4", "-b", "1024"]) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let mount = match LoopMount::new(&image.path(), "") {
        Ok(mount) => mount,
        Err(why) => skip!("no loop mount here: {why}"),
    };
    for index in 0..500_usize {
        let path = mount.path().join(format!("file-{index}"));
        std::fs::write(&path, vec![1; index * 20]).unwrap();
        if index % 3 == 0 {
            std::fs::remove_file(path).unwrap();
        }
    }
    mount.unmount().unwrap();
    Twin::new().agrees(&dumpe2fs, &[], &image.path(), "a used image");
}

#[test]
fn a_backup_superblock_is_read_on_demand() {
    let Some(dumpe2fs) = tool("dumpe2fs") else { skip!("dumpe2fs is not installed") };
    let image = match TempImage::by_mke2fs(64 << 20, &["-t", "ext4", "-b", "1024"]) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let twin = Twin::new();
    for words in [&["-o", "superblock=8193"][..], &["-o", "superblock=8193,blocksize=1024", "-h"]] {
        let found = twin.run(words, &image.path());
        assert_eq!(found.status.code(), Some(0), "{found:?}");
    }
    let separately = ["-o", "superblock=8193", "-o", "blocksize=1024", "-h"];
    twin.agrees(&dumpe2fs, &separately, &image.path(), "a backup");
    let missing = twin.run(&["-o", "superblock=8192"], &image.path());
    let theirs = dumpe2fs.command().args(["-o", "superblock=8192"]).arg(image.path()).output();
    assert_eq!(missing.status.code(), theirs.expect("it runs").status.code());
}

#[test]
fn json_has_the_figures_of_dumpe2fs() {
    let image = match TempImage::by_mke2fs(64 << 20, &["-t", "ext4", "-b", "1024", "-L", "x"]) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let fields = extant_testkit::dumpe2fs_h(&image.path()).unwrap();
    let output = Command::new(EXTANT).args(["info", "--json"]).arg(image.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for (key, name) in [
        ("blocks", "Block count"),
        ("free_blocks", "Free blocks"),
        ("inodes", "Inode count"),
        ("free_inodes", "Free inodes"),
        ("block_size", "Block size"),
        ("reserved_blocks", "Reserved block count"),
    ] {
        assert_eq!(json[key].to_string(), fields[name], "{name}");
    }
    assert_eq!(json["label"], "x");
    assert_eq!(json["uuid"], fields["Filesystem UUID"]);
    assert_eq!(json["groups"].as_array().unwrap().len(), 8);
    assert_eq!(json["journal"]["blocks"].to_string(), fields["Total journal blocks"]);
}

#[test]
fn what_is_no_volume_is_refused_by_name() {
    let scratch = Scratch::new();
    let path = scratch.join("zeros");
    std::fs::write(&path, vec![0; 4096]).unwrap();
    let output = Command::new(EXTANT).arg("info").arg(&path).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let expected = format!(
        "extant info: {}: {NOT_EXT} (superblock: magic is 0x0, expected 0xef53)\n",
        path.display()
    );
    assert_eq!(said, expected);
}

/// The first message of all commands for a file that is something else.
const NOT_EXT: &str = "not an ext2, ext3 or ext4 file system";

#[test]
fn every_command_says_of_another_file_that_it_is_no_ext_file_system() {
    let scratch = Scratch::new();
    let point = scratch.join("mnt");
    std::fs::create_dir(&point).unwrap();
    for (name, bytes, why) in [
        ("text", vec![b'x'; 1221], "truncated: 197 bytes, expected 1024"),
        ("small", vec![b'x'; 3], "truncated: 0 bytes, expected 1024"),
        ("letters", vec![b'x'; 4096], "magic is 0x7878, expected 0xef53"),
    ] {
        let path = scratch.join(name);
        std::fs::write(&path, bytes).unwrap();
        let commands: [&[&str]; 9] = [
            &["info", "-h"],
            &["info"],
            &["ls"],
            &["map"],
            &["frag"],
            &["find"],
            &["rm"],
            &["tune", "-l"],
            &["mount"],
        ];
        for words in commands {
            let mut command = Command::new(EXTANT);
            command.args(words);
            match words[0] {
                "rm" => command.arg(format!("{}:/x", path.display())),
                "mount" => command.arg(&path).arg(&point),
                _ => command.arg(&path),
            };
            let output = command.output().unwrap();
            assert!(!output.status.success(), "{words:?}");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let called = words[0];
            let expected =
                format!("extant {called}: {}: {NOT_EXT} (superblock: {why})\n", path.display());
            assert_eq!(said, expected, "{words:?}");
        }
    }
}
