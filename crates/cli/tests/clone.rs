//! `extant clone` and `e2image`: next to theirs, and copies as e2fsck, dumpe2fs and qemu-img take
//! them.

use extant_testkit::{LoopMount, Scratch, TempImage, Tool, is_root, left_dirty, skip, tool};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_extant");

fn run(program: &Path, words: &[&str]) -> Output {
    Command::new(program).args(words).stdin(Stdio::null()).output().unwrap()
}

fn clone(words: &[&str]) -> Output {
    run(Path::new(PROGRAM), &[&["clone"], words].concat())
}

fn e2image(scratch: &Scratch, words: &[&str]) -> Output {
    let link = scratch.join("e2image");
    if !link.exists() {
        std::os::unix::fs::symlink(PROGRAM, &link).unwrap();
    }
    run(&link, words)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A volume of mke2fs with files of many kinds: an indexed directory, a large file, a sparse one,
/// long links, blocks of attributes.
fn filled(mke2fs: &Tool, scratch: &Scratch, name: &str, options: &[&str]) -> PathBuf {
    let source = scratch.join("source");
    if !source.exists() {
        fs::create_dir_all(source.join("many")).unwrap();
        for number in 0..300 {
            let file = source.join(format!("many/a-name-that-takes-some-room-{number}"));
            fs::write(file, vec![number as u8; 100 + number]).unwrap();
        }
        let large: Vec<u8> = (0..2_000_000_u32).map(|at| (at % 251) as u8 + 1).collect();
        fs::write(source.join("large"), large).unwrap();
        let sparse = File::create(source.join("sparse")).unwrap();
        for piece in 0..200 {
            sparse.write_all_at(&[7; 5000], piece * 50_000).unwrap();
        }
        std::os::unix::fs::symlink("x".repeat(200), source.join("long")).unwrap();
        fs::write(source.join("attributes"), "a").unwrap();
        let value = vec![b'v'; 700];
        let flags = rustix::fs::XattrFlags::empty();
        // Where the host's file system has none, the volume has none.
        let _ = rustix::fs::setxattr(source.join("attributes"), "user.long", &value, flags);
    }
    let image = scratch.join(name);
    let words = ["-q", "-F", "-d", text(&source), text(&image), "24M"];
    let made = mke2fs.run([options, &words].concat());
    assert!(made.status.success(), "{options:?}: {made:?}");
    image
}

const FEATURES: [&[&str]; 8] = [
    &["-t", "ext4"],
    &["-t", "ext4", "-b", "1024"],
    &["-t", "ext2", "-b", "1024"],
    &["-t", "ext3", "-b", "4096"],
    &["-t", "ext4", "-O", "bigalloc,^resize_inode"],
    &["-t", "ext4", "-b", "1024", "-O", "meta_bg,^resize_inode,quota,project"],
    &["-t", "ext4", "-O", "inline_data,mmp,^metadata_csum"],
    &["-t", "ext4", "-b", "2048", "-O", "ea_inode,orphan_file,sparse_super2"],
];

#[test]
fn raw_copies_of_e2image_are_those_of_theirs() {
    let (Some(mke2fs), Some(theirs)) = (tool("mke2fs"), tool("e2image")) else {
        skip!("mke2fs or e2image is not installed")
    };
    let scratch = Scratch::new();
    for (number, options) in FEATURES.iter().enumerate() {
        let image = filled(&mke2fs, &scratch, &format!("{number}.img"), options);
        let (a, b) = (scratch.join("ours"), scratch.join("theirs"));
        for letters in ["-r", "-ra"] {
            let _ = (fs::remove_file(&a), fs::remove_file(&b));
            let ours = e2image(&scratch, &[letters, text(&image), text(&a)]);
            assert_eq!(ours.status.code(), Some(0), "{options:?}: {ours:?}");
            assert!(ours.stderr.starts_with(b"e2image 1.47"), "{ours:?}");
            let them = theirs.run([letters, text(&image), text(&b)]);
            assert_eq!(them.status.code(), Some(0), "{options:?}: {them:?}");
            let (ours, theirs) = (fs::read(&a).unwrap(), fs::read(&b).unwrap());
            let source = fs::read(&image).unwrap();
            assert_eq!(ours.len(), theirs.len(), "{letters} {options:?}");
            for (at, theirs) in theirs.chunks(1024).enumerate() {
                let bytes = at * 1024..at * 1024 + theirs.len();
                let ours = &ours[bytes.clone()];
                // Ours has backups, too, where all is copied.
                let is_right = ours == theirs || letters == "-ra" && ours == &source[bytes];
                assert!(is_right, "{letters} {options:?}: byte {}", at * 1024);
            }
            if letters == "-ra" {
                let Some(e2fsck) = tool("e2fsck") else { continue };
                // mke2fs 1.47.0 counts wrongly for quota.
                let [copy, image] = [&a, &image].map(|it| e2fsck.run(["-fn", text(it)]).status);
                assert_eq!(copy, image, "{options:?}");
            }
        }
    }
}

#[test]
fn clones_have_every_block_in_use_and_take_no_more_room() {
    let Some(mke2fs) = tool("mke2fs") else { skip!("mke2fs is not installed") };
    let scratch = Scratch::new();
    let image = filled(&mke2fs, &scratch, "image", &["-t", "ext4"]);
    // Blocks that are free now are not copied.
    let removed = run(Path::new(PROGRAM), &["rm", &format!("{}:/large", text(&image))]);
    assert!(removed.status.success(), "{removed:?}");
    let copy = scratch.join("copy");
    let report = clone(&["--json", text(&image), text(&copy)]);
    assert!(report.status.success(), "{report:?}");
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!(report["damaged_inodes"], serde_json::json!([]));
    let (old, new) = (fs::metadata(&image).unwrap(), fs::metadata(&copy).unwrap());
    assert_eq!(old.len(), new.len());
    assert!(new.blocks() * 512 + 1_900_000 < old.blocks() * 512, "{old:?} {new:?}");
    let same = run(Path::new(PROGRAM), &["diff", "--contents", text(&image), text(&copy)]);
    assert_eq!(same.status.code(), Some(0), "{same:?}");
    // A stream is the same bytes.
    let stream = clone(&[text(&image), "-"]);
    assert!(stream.stdout == fs::read(&copy).unwrap(), "{:?}", stream.status);
    // Into a part of a file.
    let whole = scratch.join("whole");
    fs::write(&whole, vec![0xdd; 26 << 20]).unwrap();
    let part = format!("{}?offset=1M&size=24M", text(&whole));
    assert!(clone(&[text(&image), &part]).status.success());
    assert_eq!(fs::metadata(&whole).unwrap().len(), 26 << 20);
    let same = run(Path::new(PROGRAM), &["diff", "--contents", text(&image), &part]);
    assert_eq!(same.status.code(), Some(0), "{same:?}");
    let small = clone(&[text(&image), &format!("{}?offset=1M&size=23M", text(&whole))]);
    assert!(String::from_utf8_lossy(&small.stderr).contains("do not fit"), "{small:?}");
    // In place: what is around it is kept, and equal blocks are left alone.
    let disk = scratch.join("disk");
    let around = vec![0xee; 30 << 20];
    fs::write(&disk, &around).unwrap();
    let offset = 1 << 20;
    let put = ["--offset", "1M", text(&image), text(&disk)];
    assert!(clone(&put).status.success());
    let bytes = fs::read(&disk).unwrap();
    assert_eq!(bytes.len(), around.len());
    let end = offset + fs::metadata(&image).unwrap().len() as usize;
    assert!(bytes[..offset] == around[..offset] && bytes[end..] == around[end..]);
    let inside = format!("{}?offset={offset}&size={}", text(&disk), end - offset);
    let same = run(Path::new(PROGRAM), &["diff", "--contents", text(&image), &inside]);
    assert_eq!(same.status.code(), Some(0), "{same:?}");
    let again = clone(&[&["-c", "--json"], &put[..]].concat());
    let again: serde_json::Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!(again["equal"], again["blocks"]);
    assert!(fs::read(&disk).unwrap() == bytes);
}

#[test]
fn qcow2_copies_are_sound_and_have_the_same_bytes() {
    let (Some(mke2fs), Some(qemu_img)) = (tool("mke2fs"), tool("qemu-img")) else {
        skip!("mke2fs or qemu-img is not installed")
    };
    let scratch = Scratch::new();
    for (number, options) in FEATURES.iter().enumerate() {
        let image = filled(&mke2fs, &scratch, &format!("{number}.img"), options);
        for (letters, raw) in [("-Q", "-r"), ("-Qa", "-ra")] {
            let [packed, plain, back] = ["packed", "plain", "back"].map(|name| scratch.join(name));
            let made = e2image(&scratch, &[letters, text(&image), text(&packed)]);
            assert_eq!(made.status.code(), Some(0), "{options:?}: {made:?}");
            let check = qemu_img.run(["check", text(&packed)]);
            assert_eq!(check.status.code(), Some(0), "{options:?}: {check:?}");
            let words = ["convert", "-f", "qcow2", "-O", "raw", text(&packed), text(&back)];
            assert!(qemu_img.run(words).status.success());
            let made = e2image(&scratch, &[raw, text(&image), text(&plain)]);
            assert_eq!(made.status.code(), Some(0), "{options:?}: {made:?}");
            assert!(fs::read(&plain).unwrap() == fs::read(&back).unwrap(), "{letters} {options:?}");
        }
    }
}

#[test]
fn what_cannot_be_copied_is_refused_and_nothing_is_lost() {
    let Some(mke2fs) = tool("mke2fs") else { skip!("mke2fs is not installed") };
    let scratch = Scratch::new();
    let image = filled(&mke2fs, &scratch, "image", &["-t", "ext4", "-b", "1024"]);
    let bytes = fs::read(&image).unwrap();
    let image = text(&image);
    let (garbage, target) = (scratch.join("garbage"), scratch.join("target"));
    fs::write(&garbage, vec![9; 1 << 20]).unwrap();
    fs::write(&target, "kept").unwrap();
    let (garbage, target) = (text(&garbage), text(&target));
    let by_twin: [(&[&str], &str); 13] = [
        (&[], "Usage: e2image"),
        (&["-r", image], "Usage: e2image"),
        (&["-raO", "1024", image], "not implemented: a move in place"),
        (&["-rQ", image, target], "Usage: e2image"),
        (&["-V"], "Usage: e2image"),
        (&["-a", image, target], "-a option can only be used"),
        (&[image, "-"], "own format needs a file"),
        (&["-p", image, target], "The -p option only supported"),
        (&["-I", image, target], "-I: not implemented"),
        (&["-rs", image, target], "-s: not implemented"),
        (&["-Q", image, "-"], "a qcow2 image needs a file"),
        (&["-r", garbage, target], "Bad magic number in super-block while trying to open"),
        (&["-ra", image, image], "not overwriting"),
    ];
    for (words, why) in by_twin {
        let refused = e2image(&scratch, words);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(1) && said.contains(why), "{words:?}: {refused:?}");
    }
    let by_name: [(&[&str], i32, &str); 5] = [
        (&[image, image], 1, "not overwriting the image being read"),
        (&[garbage, target], 1, "Bad magic number"),
        (&["--format", "qcow2", image, "-"], 2, "cannot be written in place"),
        (&["--format", "qcow2", "--offset", "1", image, target], 2, "cannot be written in place"),
        (&["--json", image, "-"], 2, "--json"),
    ];
    for (words, code, why) in by_name {
        let refused = clone(words);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(
            refused.status.code() == Some(code) && said.contains(why),
            "{words:?}: {refused:?}"
        );
    }
    assert_eq!(fs::read(target).unwrap(), b"kept");
    assert!(fs::read(image).unwrap() == bytes);
}

#[test]
fn a_damaged_volume_is_copied_as_far_as_its_bitmaps_and_inodes_lead() {
    let Some(mke2fs) = tool("mke2fs") else { skip!("mke2fs is not installed") };
    let scratch = Scratch::new();
    let options = ["-t", "ext4", "-b", "1024"];
    let image = filled(&mke2fs, &scratch, "image", &options);
    // No block bitmap says which blocks are in use, and no checksum is right.
    let info = run(Path::new(PROGRAM), &["info", "--json", text(&image)]);
    let info: serde_json::Value = serde_json::from_slice(&info.stdout).unwrap();
    let file = File::options().write(true).open(&image).unwrap();
    for group in info["groups"].as_array().unwrap() {
        let bitmap = group["block_bitmap"].as_u64().unwrap();
        file.write_all_at(&[0; 1024], bitmap * 1024).unwrap();
    }
    let copy = scratch.join("copy");
    let done = clone(&[text(&image), text(&copy)]);
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    let same = run(Path::new(PROGRAM), &["diff", "--contents", text(&image), text(&copy)]);
    assert_eq!(same.status.code(), Some(0), "{same:?}");
}

/// Blocks that only the journal leads to are in the copy: a replay gives it the files of its
/// source.
#[test]
fn a_copy_of_a_volume_whose_journal_must_be_replayed_has_its_files() {
    if !is_root() {
        skip!("a loop mount needs root");
    }
    let (Some(e2fsck), Some(_)) = (tool("e2fsck"), tool("mke2fs")) else {
        skip!("mke2fs or e2fsck is not installed")
    };
    let scratch = Scratch::new();
    let image = TempImage::by_mke2fs(64 << 20, &["-t", "ext4", "-b", "1024"]).unwrap();
    let dirty = left_dirty(&image.path(), "", |root| {
        for number in 0..50_u8 {
            let file = File::create(root.join(format!("file{number}"))).unwrap();
            file.write_all_at(&vec![number + 1; 20_000], 0).unwrap();
            file.sync_all().unwrap();
        }
    });
    let dirty = match dirty {
        Ok(dirty) => dirty,
        Err(why) => skip!("{why}"),
    };
    let names = ["raw", "qcow2", "by-e2image"].map(|name| scratch.join(name));
    let [raw, qcow2, by_e2image] = &names;
    let source = dirty.path();
    let cloned = clone(&[text(&source), text(raw)]);
    assert!(cloned.status.success(), "{cloned:?}");
    let cloned = clone(&["--format", "qcow2", text(&source), text(qcow2)]);
    assert!(cloned.status.success(), "{cloned:?}");
    let cloned = e2image(&scratch, &["-ra", text(&source), text(by_e2image)]);
    assert!(cloned.status.success(), "{cloned:?}");
    let from_qcow2 = scratch.join("from-qcow2");
    let raw_again = clone(&[&format!("qcow2:{}", text(qcow2)), text(&from_qcow2)]);
    assert!(raw_again.status.success(), "{raw_again:?}");
    for copy in [raw, &from_qcow2, by_e2image] {
        let replayed = e2fsck.run(["-fy", text(copy)]);
        assert!(matches!(replayed.status.code(), Some(0 | 1)), "{replayed:?}");
        let mount = LoopMount::new(copy, "ro").unwrap();
        for number in 0..50_u8 {
            let found = fs::read(mount.path().join(format!("file{number}"))).unwrap();
            assert!(found == vec![number + 1; 20_000], "{}: file{number}", copy.display());
        }
        mount.unmount().unwrap();
    }
}

/// A file that shows as a mounted volume is not replaced.
#[test]
fn a_copy_does_not_replace_an_image_in_use() {
    if !is_root() {
        skip!("a loop mount needs root");
    }
    let Some(mke2fs) = tool("mke2fs") else { skip!("mke2fs is not installed") };
    let scratch = Scratch::new();
    let source = filled(&mke2fs, &scratch, "source.img", &["-t", "ext4"]);
    let target = filled(&mke2fs, &scratch, "target.img", &["-t", "ext4", "-b", "1024"]);
    let before = fs::metadata(&target).unwrap();
    let mount = match LoopMount::new(&target, "") {
        Ok(mount) => mount,
        Err(why) => skip!("{why}"),
    };
    let refused = clone(&[text(&source), text(&target)]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("in use"), "{refused:?}");
    mount.unmount().unwrap();
    let after = fs::metadata(&target).unwrap();
    assert_eq!((after.ino(), after.len()), (before.ino(), before.len()));
    let replaced = clone(&[text(&source), text(&target)]);
    assert!(replaced.status.success(), "{replaced:?}");
}

/// Bytes of the header that tell the machine, the moment and the file.
const OF_THE_COPY: std::ops::Range<usize> = 0xf0..0xfc;

#[test]
fn metadata_of_e2image_are_those_of_theirs_and_dumpe2fs_shows_them() {
    let (Some(mke2fs), Some(theirs), Some(dumpe2fs)) =
        (tool("mke2fs"), tool("e2image"), tool("dumpe2fs"))
    else {
        skip!("mke2fs, e2image or dumpe2fs is not installed");
    };
    let scratch = Scratch::new();
    std::os::unix::fs::symlink(PROGRAM, scratch.join("dumpe2fs")).unwrap();
    for (index, options) in FEATURES.iter().enumerate() {
        let image = filled(&mke2fs, &scratch, &format!("{index}.img"), options);
        let [by_us, by_them] = ["ours.e2i", "theirs.e2i"].map(|it| scratch.join(it));
        let made = e2image(&scratch, &[text(&image), text(&by_us)]);
        assert!(made.status.success(), "{options:?}: {made:?}");
        let made = theirs.run([text(&image), text(&by_them)]);
        assert!(made.status.success(), "{options:?}: {made:?}");
        let [mut ours, mut others] = [&by_us, &by_them].map(|it| fs::read(it).unwrap());
        ours[OF_THE_COPY].fill(0);
        others[OF_THE_COPY].fill(0);
        let differing = ours.iter().zip(&others).position(|(one, other)| one != other);
        assert_eq!(differing, None, "{options:?}");
        assert_eq!(ours.len(), others.len(), "{options:?}");
        for words in [&["-i"][..], &["-h", "-i"], &["-g", "-i"], &["-x", "-i"], &["-b", "-i"]] {
            let shown = run(&scratch.join("dumpe2fs"), &[words, &[text(&by_us)]].concat());
            let expected = dumpe2fs.command().args(words).arg(&by_them).env("LC_ALL", "C").output();
            let expected = expected.unwrap();
            assert_eq!(
                shown.status.code(),
                expected.status.code(),
                "{options:?} {words:?}: {shown:?}"
            );
            let [shown, expected] = [shown.stdout, expected.stdout].map(String::from_utf8);
            assert_eq!(shown, expected, "{options:?} {words:?}");
        }
    }
    let (garbage, short) = (scratch.join("garbage"), scratch.join("short"));
    fs::write(&garbage, vec![7; 4096]).unwrap();
    fs::write(&short, &fs::read(scratch.join("theirs.e2i")).unwrap()[..300]).unwrap();
    for path in [&garbage, &short, &scratch.join("0.img"), &scratch.join("none")] {
        let ours = run(&scratch.join("dumpe2fs"), &["-i", text(path)]);
        let theirs = dumpe2fs.run(["-i", text(path)]);
        assert_eq!(ours.status.code(), theirs.status.code(), "{path:?}: {ours:?}");
        assert_eq!(ours.stdout, theirs.stdout, "{path:?}");
    }
    // An inode table that the header places past the end of the file.
    let mut damaged = fs::read(scratch.join("ours.e2i")).unwrap();
    damaged[0x120..0x124].fill(0xff);
    fs::write(&garbage, damaged).unwrap();
    assert_eq!(run(&scratch.join("dumpe2fs"), &["-i", text(&garbage)]).status.code(), Some(36));
}
