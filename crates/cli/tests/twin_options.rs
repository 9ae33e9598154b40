//! Options of e2fsprogs that few scripts use, by our links and by the tools themselves: the same
//! exit codes, the same output, the same volumes.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use extant_testkit::{
    LoopMount, Scratch, debugfs, dumpe2fs_h, e2fsck_fn, is_root, left_dirty, skip, tool,
};

/// A directory with our links, in which both programs run.
struct Twins(Scratch);

impl Twins {
    /// `None` where a tool is missing.
    fn new(names: &[&str]) -> Option<Self> {
        let scratch = Scratch::new();
        tool("mke2fs")?;
        for name in names {
            tool(name)?;
            symlink(env!("CARGO_BIN_EXE_extant"), scratch.join(name)).unwrap();
        }
        Some(Self(scratch))
    }

    fn run(&self, is_ours: bool, words: &[&str]) -> Output {
        let mut command = match is_ours {
            true => Command::new(self.0.join(words[0])),
            false => tool(words[0]).expect("looked for before").command_within(60),
        };
        command.current_dir(self.0.path()).env("LC_ALL", "C").args(&words[1..]);
        command.stdin(Stdio::null()).output().unwrap()
    }

    /// Runs both on copies of an image, ours.img and theirs.img, by the name test.img, and returns
    /// their exit codes and what they print, without the version.
    fn both(&self, image: &Path, words: &[&str]) -> [(Option<i32>, String, String); 2] {
        [true, false].map(|is_ours| {
            let test = self.0.join("test.img");
            fs::copy(image, &test).unwrap();
            let output = self.run(is_ours, words);
            let text = |bytes: &[u8]| {
                let text = String::from_utf8_lossy(bytes);
                let lines = text.lines().filter(|line| !line.contains(" 1.47."));
                lines.map(|line| format!("{line}\n")).collect::<String>()
            };
            let kept = if is_ours { "ours.img" } else { "theirs.img" };
            fs::rename(&test, self.0.join(kept)).unwrap();
            (output.status.code(), text(&output.stdout), text(&output.stderr))
        })
    }

    fn make(&self, words: &[&str], size: &str) -> std::path::PathBuf {
        let image = self.0.join("made.img");
        let _ = fs::remove_file(&image);
        let mke2fs = tool("mke2fs").expect("looked for before");
        let made = mke2fs.command().args(["-q", "-F"]).args(words).arg(&image).arg(size).output();
        assert!(made.as_ref().unwrap().status.success(), "{words:?} {made:?}");
        image
    }
}

fn debugfs_writing(image: &Path, requests: &[&str]) {
    for request in requests {
        let output = tool("debugfs").expect("looked for before").run([
            "-w".as_ref(),
            "-R".as_ref(),
            request.as_ref(),
            image.as_os_str(),
        ]);
        assert!(output.status.success(), "{output:?}");
    }
}

#[test]
fn groups_for_programs_have_descriptors_in_hexadecimal() {
    let Some(twins) = Twins::new(&["dumpe2fs"]) else { skip!("e2fsprogs is not installed") };
    for features in ["64bit", "^64bit", "meta_bg,^resize_inode", "bigalloc", "sparse_super2"] {
        let image = twins.make(&["-t", "ext4", "-b", "1024", "-O", features], "32M");
        for option in ["-x", "-xg", "-gx", "-g"] {
            let [ours, theirs] = twins.both(&image, &["dumpe2fs", option, "test.img"]);
            assert_eq!((ours.0, ours.1), (theirs.0, theirs.1), "{features} {option}");
        }
    }
}

#[test]
fn lists_of_bad_blocks_are_read_as_by_e2fsck() {
    let Some(twins) = Twins::new(&["e2fsck"]) else { skip!("e2fsprogs is not installed") };
    let image = twins.make(&["-t", "ext4", "-b", "1024"], "8M");
    for (list, least) in [
        ("", 0),
        ("abc\n", 0),
        ("3000\nabc\n2000\n", 2),
        ("3000 abc\n", 1),
        ("  3000x\n\n+2000\n-0\n", 2),
        ("99999999\n", 0),
        ("0x100\n", 0),
        ("-5\n", 0),
        ("4294967296\n", 0),
    ] {
        fs::write(twins.0.join("list"), list).unwrap();
        for letter in ["-l", "-L"] {
            let [ours, theirs] = twins.both(&image, &["e2fsck", "-p", letter, "list", "test.img"]);
            assert_eq!(ours.0, theirs.0, "{list:?} {letter}: {ours:?} {theirs:?}");
            let stored = ["ours.img", "theirs.img"].map(|name| {
                let blocks = debugfs(&twins.0.join(name), "blocks <1>").unwrap();
                let mut blocks: Vec<_> = blocks.split_whitespace().map(str::to_owned).collect();
                blocks.sort();
                blocks
            });
            assert_eq!(stored[0], stored[1], "{list:?} {letter}");
            assert_eq!(stored[0].len(), least, "{list:?} {letter}");
        }
    }
}

#[test]
fn mke2fs_announces_a_new_file() {
    let Some(twins) = Twins::new(&["mke2fs"]) else { skip!("e2fsprogs is not installed") };
    for words in [&["mke2fs", "-q", "new.img", "1M"][..], &["mke2fs", "-q", "-F", "new.img", "1M"]]
    {
        let says = [true, false].map(|is_ours| {
            let _ = fs::remove_file(twins.0.join("new.img"));
            let first = twins.run(is_ours, words);
            let again = twins.run(is_ours, words);
            [first, again].map(|it| (it.status.code(), String::from_utf8(it.stdout).unwrap()))
        });
        assert_eq!(says[0], says[1], "{words:?}");
        assert_eq!(says[0][0].1, "Creating regular file new.img\n");
    }
}

/// Block maps of a volume without extents are converted, and the feature is set.
#[test]
fn block_maps_become_extents_as_by_e2fsck() {
    let Some(twins) = Twins::new(&["e2fsck", "debugfs"]) else {
        skip!("e2fsprogs is not installed");
    };
    let tree = twins.0.join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("large"), vec![7; 400_000]).unwrap();
    fs::write(tree.join("small"), "x").unwrap();
    let tree = tree.to_str().unwrap().to_owned();
    for kind in ["ext2", "ext3"] {
        let image = twins.make(&["-t", kind, "-b", "1024", "-d", &tree], "8M");
        for words in [
            &["e2fsck", "-fy", "-E", "bmap2extent", "test.img"][..],
            &["e2fsck", "-fp", "-E", "bmap2extent", "test.img"],
        ] {
            let [ours, theirs] = twins.both(&image, words);
            assert_eq!(ours.0, theirs.0, "{kind} {words:?}: {ours:?} {theirs:?}");
            for name in ["ours.img", "theirs.img"] {
                let image = twins.0.join(name);
                e2fsck_fn(&image).unwrap();
                assert!(dumpe2fs_h(&image).unwrap()["Filesystem features"].contains(" extent"));
                let stat = debugfs(&image, "stat large").unwrap();
                assert!(stat.contains("EXTENTS:"), "{kind} {name}: {stat}");
            }
            let free = ["ours.img", "theirs.img"]
                .map(|name| dumpe2fs_h(&twins.0.join(name)).unwrap()["Free blocks"].clone());
            assert_eq!(free[0], free[1], "{kind} {words:?}");
        }
        // Nothing changes without permission.
        let before = fs::read(&image).unwrap();
        twins.both(&image, &["e2fsck", "-fn", "-E", "bmap2extent", "test.img"]);
        assert!(before == fs::read(twins.0.join("ours.img")).unwrap(), "{kind}");
    }
}

#[test]
fn the_journal_of_a_volume_that_is_not_clean_is_removed_as_by_tune2fs() {
    let Some(twins) = Twins::new(&["tune2fs", "debugfs", "e2fsck"]) else {
        skip!("e2fsprogs is not installed");
    };
    let damages: [&[&str]; 3] =
        [&["ssv state 0"], &["ssv state 3"], &["feature needs_recovery", "ssv state 0"]];
    for damage in damages {
        let image = twins.make(&["-t", "ext4"], "16M");
        debugfs_writing(&image, damage);
        for force in [&[][..], &["-f"], &["-f", "-f"]] {
            let words = [&["tune2fs", "-O", "^has_journal"][..], force, &["test.img"]].concat();
            let [ours, theirs] = twins.both(&image, &words);
            assert_eq!(ours, theirs, "{damage:?} {words:?}");
            let left = ["ours.img", "theirs.img"].map(|name| {
                let image = twins.0.join(name);
                let header = dumpe2fs_h(&image).unwrap();
                let fields = ["Filesystem features", "Filesystem state", "Free blocks"];
                fields.map(|field| header[field].clone())
            });
            assert_eq!(left[0], left[1], "{damage:?} {words:?}");
            let repaired = tool("e2fsck")
                .expect("looked for before")
                .run(["-p".as_ref(), twins.0.join("ours.img").as_os_str()]);
            assert!(repaired.status.code().is_some_and(|code| code < 2), "{repaired:?}");
        }
    }
    let image = twins.make(&["-t", "ext4"], "16M");
    debugfs_writing(&image, &["ssv state 0"]);
    let extant = |words: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_extant")).args(words).arg(&image).output().unwrap().status
    };
    assert!(!extant(&["tune", "-O", "^has_journal"]).success(), "the log is kept for a rescue");
    assert!(extant(&["tune", "-f", "-O", "^has_journal"]).success());
}

#[test]
fn tune2fs_names_what_makes_checksums_stronger() {
    let Some(twins) = Twins::new(&["tune2fs"]) else { skip!("e2fsprogs is not installed") };
    for kind in [
        &["-t", "ext3", "-I", "256"][..],
        &["-t", "ext4", "-O", "^64bit,^metadata_csum"],
        &["-t", "ext4", "-O", "^metadata_csum"],
    ] {
        let image = twins.make(kind, "16M");
        for features in ["metadata_csum", "metadata_csum,extents"] {
            let [ours, theirs] = twins.both(&image, &["tune2fs", "-O", features, "test.img"]);
            assert_eq!((ours.0, ours.1), (theirs.0, theirs.1), "{kind:?} {features}");
        }
    }
}

#[test]
fn a_missing_undo_file_is_reported_as_by_e2undo() {
    let Some(twins) = Twins::new(&["e2undo"]) else { skip!("e2fsprogs is not installed") };
    let image = twins.make(&["-t", "ext4"], "8M");
    let [ours, theirs] = twins.both(&image, &["e2undo", "missing", "test.img"]);
    let after_name = |text: &str| text.split_once("e2undo: ").map(|(_, text)| text.to_owned());
    assert_eq!((ours.0, after_name(&ours.2)), (theirs.0, after_name(&theirs.2)));
}

/// A log that the kernel wrote, in use and after an unmount.
#[test]
fn the_log_is_shown_with_each_option_as_by_debugfs() {
    let Some(twins) = Twins::new(&["debugfs"]) else { skip!("e2fsprogs is not installed") };
    if !is_root() {
        skip!("a loop mount needs root");
    }
    let image = twins.make(&["-t", "ext4", "-b", "1024", "-I", "128"], "16M");
    let dirty = left_dirty(&image, "", |mount| {
        for at in 0..3 {
            fs::write(mount.join(format!("file-{at}")), "x").unwrap();
            let _ = Command::new("sync").status();
        }
    });
    let dirty = match dirty {
        Ok(dirty) => dirty,
        Err(why) => skip!("{why}"),
    };
    let old = twins.0.join("old.img");
    fs::copy(dirty.path(), &old).unwrap();
    match LoopMount::new(&old, "") {
        Ok(mount) => mount.unmount().unwrap(),
        Err(why) => skip!("{why}"),
    }
    for image in [&dirty.path(), &old] {
        for request in [
            "logdump",
            "logdump -n 1",
            "logdump -n -1",
            "logdump -n x",
            "logdump -O",
            "logdump -On 0",
            "logdump -On 1",
            "logdump -On 2",
            "logdump -On 200",
            "logdump -aO",
            "logdump -i <13>",
            "logdump -ai <13>",
            "logdump -ci <2> -b 1",
            "logdump -i nope",
            "logdump -z",
        ] {
            let [ours, theirs] = twins.both(image, &["debugfs", "-R", request, "test.img"]);
            assert_eq!(ours.1, theirs.1, "{request}");
        }
    }
}

/// The superblock's copy of the journal's map leads to the same log.
#[test]
fn the_log_is_found_by_the_copy_of_its_map() {
    let Some(twins) = Twins::new(&["debugfs"]) else { skip!("e2fsprogs is not installed") };
    for kind in ["ext3", "ext4"] {
        let image = twins.make(&["-t", kind], "16M");
        let outputs = ["logdump -sS", "logdump -S"].map(|request| {
            fs::copy(&image, twins.0.join("test.img")).unwrap();
            twins.run(true, &["debugfs", "-R", request, "test.img"])
        });
        assert!(outputs[0].status.success(), "{outputs:?}");
        assert_eq!(outputs[0].stdout, outputs[1].stdout, "{kind}");
    }
}

#[test]
fn all_fields_are_listed_and_set_as_by_debugfs() {
    let Some(twins) = Twins::new(&["debugfs"]) else { skip!("e2fsprogs is not installed") };
    let image = twins.make(&["-t", "ext4", "-b", "1024"], "8M");
    for request in ["ssv -l", "sif -l"] {
        let [ours, theirs] = twins.both(&image, &["debugfs", "-R", request, "test.img"]);
        assert_eq!(ours.1, theirs.1, "{request}");
    }
    for request in [
        "ssv jnl_blocks[3] 5",
        "ssv jnl_blocks 5",
        "ssv jnl_blocks[] 5",
        "ssv jnl_blocks[0x2] 5",
        "ssv jnl_blocks[17] 5",
        "ssv backup_bgs[1] 7",
        "ssv backup_bgs[2] 7",
        "ssv checksum 0x1234",
        "ssv encryption_level 3",
        "ssv encryption_level 300",
        "ssv encrypt_algos[2] 4",
        "ssv encoding utf8",
        "ssv encoding utf8-12.1",
        "ssv encoding ascii",
        "ssv max_mnt_count -1",
        "ssv max_mnt_count 70000",
        "ssv s_mtime 0",
        "ssv mtime_hi 1",
        "ssv r_blocks_count_lo 9",
        "ssv inodes_count_hi 5",
        "sif <11> checksum_lo 0x1234",
        "sif <11> bmap[x] 7",
    ] {
        let [ours, theirs] = twins.both(&image, &["debugfs", "-w", "-R", request, "test.img"]);
        assert_eq!((ours.1, ours.2), (theirs.1, theirs.2), "{request}");
        let [ours, theirs] = ["ours.img", "theirs.img"].map(|name| {
            // Ours writes to the log, too.
            let mut bytes = fs::read(twins.0.join(name)).unwrap()[..2048].to_vec();
            // The time of the write, kilobytes written, and the checksum.
            for range in [0x30..0x34, 0x178..0x180, 0x3fc..0x400] {
                bytes[1024..2048][range].fill(0);
            }
            bytes
        });
        assert!(ours == theirs, "{request}");
    }
}

#[test]
fn attributes_of_any_name_are_stored_as_by_debugfs() {
    let Some(twins) = Twins::new(&["debugfs"]) else { skip!("e2fsprogs is not installed") };
    let image = twins.make(&["-t", "ext4"], "8M");
    fs::write(
        twins.0.join("script"),
        "ea_set / foo.bar x\nea_set / nodot y\nea_set / system.foo z\nea_set / user.a b\n\
         ea_get / foo.bar\nea_get / system.foo\nea_rm / nodot\n",
    )
    .unwrap();
    let [ours, theirs] = twins.both(&image, &["debugfs", "-w", "-f", "script", "test.img"]);
    assert_eq!((ours.1, ours.2), (theirs.1, theirs.2));
    let listed = ["ours.img", "theirs.img"].map(|name| {
        let image = twins.0.join(name);
        e2fsck_fn(&image).unwrap();
        let listed = debugfs(&image, "ea_list /").unwrap();
        let mut lines: Vec<_> = listed.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    });
    assert_eq!(listed[0], listed[1]);
    assert_eq!(listed[0].len(), 4, "{listed:?}");
}
