//! `extant resize`, next to resize2fs: sizes, messages, and files that stay what they were.

use extant_testkit::{
    LoopDevice, LoopMount, TempImage, assert_same_tree, dumpe2fs_h, e2fsck_fn, is_root, skip, tool,
};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

mod common;
use common::resizing::{blocks, minimum, resize};
use common::{EXTANT, Fixture, extant, text};

fn resized(image: &Path, words: &[&str]) {
    let done = resize(image, words);
    assert!(done.status.success(), "{words:?}: {done:?}");
}

/// Sets of options, and the block size of their trees.
const KINDS: [(&[&str], usize); 3] = [
    (&["-t", "ext4", "-b", "4096"], 4096),
    (&["-t", "ext4", "-b", "1024", "-O", "^resize_inode"], 1024),
    (&["-t", "ext2", "-b", "1024"], 1024),
];

#[test]
fn the_minimum_is_never_above_resize2fs_and_one_block_less_is_refused() {
    let Some(resize2fs) = tool("resize2fs") else { skip!("no resize2fs here") };
    for (args, block) in &KINDS {
        let fixture = match Fixture::by_kernel(args, 7, *block) {
            Ok(fixture) => fixture,
            Err(why) => skip!("{why}"),
        };
        let image = fixture.image.path();
        let theirs = fixture.scratch.join("theirs.img");
        fs::copy(&image, &theirs).unwrap();
        let mut before = u64::MAX;
        while blocks(&theirs) < before {
            before = blocks(&theirs);
            resize2fs.text(["-f", "-M", theirs.to_str().unwrap()]).unwrap();
        }
        let least = minimum(&image);
        assert!(least <= before, "{args:?}: {least}, resize2fs {before}");
        resized(&image, &["-M"]);
        assert_eq!(blocks(&image), least);
        let length = fs::metadata(&image).unwrap().len();
        assert_eq!(length, least * *block as u64, "the file has the volume's size");
        e2fsck_fn(&image).unwrap();
        let refused = resize(&image, &[&(least - 1).to_string()]);
        let expected = format!("at least {least} are needed\n");
        assert_eq!(refused.status.code(), Some(1));
        assert!(text(&refused.stderr).ends_with(&expected), "{refused:?}");
        assert_eq!(fs::metadata(&image).unwrap().len(), length);
    }
}

/// Fields that are the same after the same growth by resize2fs.
#[test]
fn a_volume_grows_to_the_fields_that_resize2fs_gives_it() {
    let Some(resize2fs) = tool("resize2fs") else { skip!("no resize2fs here") };
    for args in [
        &["-t", "ext4", "-b", "4096"][..],
        &["-t", "ext4", "-b", "1024"],
        &["-t", "ext4", "-O", "sparse_super2"],
        &["-t", "ext2"],
    ] {
        let ours = match TempImage::by_mke2fs(100 << 20, args) {
            Ok(image) => image,
            Err(why) => skip!("{why}"),
        };
        let theirs = TempImage::of_size(0).unwrap();
        fs::copy(ours.path(), theirs.path()).unwrap();
        resize2fs.text(["-f", theirs.path().to_str().unwrap(), "900M"]).unwrap();
        let done = extant(["resize", ours.path().to_str().unwrap(), "900M"]);
        assert!(done.status.success(), "{done:?}");
        e2fsck_fn(&ours.path()).unwrap();
        let (ours, theirs) = (dumpe2fs_h(&ours.path()), dumpe2fs_h(&theirs.path()));
        let (ours, theirs) = (ours.unwrap(), theirs.unwrap());
        for field in [
            "Filesystem features",
            "Filesystem state",
            "Inode count",
            "Block count",
            "Reserved block count",
            "Free blocks",
            "Free inodes",
            "Reserved GDT blocks",
            "Blocks per group",
            "Inodes per group",
            "Backup block groups",
        ] {
            assert_eq!(ours.get(field), theirs.get(field), "{args:?}: {field}");
        }
    }
}

/// Growth by any factor: reserved descriptors first, then meta_bg.
#[test]
fn eight_mebibytes_become_fifteen_tebibytes_in_a_sparse_file() {
    let args = ["-t", "ext4", "-b", "4096", "-O", "^metadata_csum,uninit_bg,^64bit"];
    let image = match TempImage::by_mke2fs(8 << 20, &args) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let path = image.path();
    let started = Instant::now();
    let grown = resize(&path, &["15T"]);
    if text(&grown.stderr).contains("File too large") {
        skip!("the file system for scratch files has no such sizes");
    }
    assert!(grown.status.success(), "{grown:?}");
    assert!(started.elapsed().as_secs() < 30, "{:?}", started.elapsed());
    let fields = dumpe2fs_h(&path).unwrap();
    assert_eq!(fields["Block count"], "4026531840");
    assert!(fields["Filesystem features"].contains("meta_bg"));
    assert!(!fields["Filesystem features"].contains("resize_inode"));
    if is_root() {
        let mount = LoopMount::new(&path, "").unwrap();
        fs::write(mount.path().join("file"), "text").unwrap();
        mount.unmount().unwrap();
    }
    let refused = resize(&path, &["20T"]);
    let expected = "5368709120 blocks are too many: at most 4294967295 fit\n";
    assert!(text(&refused.stderr).ends_with(expected), "{refused:?}");
}

#[test]
fn messages_and_exit_codes_are_those_of_resize2fs() {
    let image = match TempImage::by_mke2fs(16 << 20, &["-t", "ext4", "-b", "1024"]) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let path = image.path();
    let name = path.to_str().unwrap();
    let run = |words: &[&str]| Command::new(EXTANT).arg0("resize2fs").args(words).output().unwrap();
    let same = run(&[name]);
    let expected = "The filesystem is already 16384 (1k) blocks long.  Nothing to do!\n\n";
    assert_eq!((same.status.code(), text(&same.stdout)), (Some(0), String::new()));
    let says = text(&same.stderr);
    assert!(says.starts_with("resize2fs 1.47.4 (") && says.ends_with(expected), "{same:?}");
    let grown = run(&[name, "20M"]);
    let expected = format!(
        "Resizing the filesystem on {name} to 20480 (1k) blocks.\nThe filesystem on {name} is now 20480 (1k) blocks long.\n\n"
    );
    assert_eq!((grown.status.code(), text(&grown.stdout)), (Some(0), expected));
    for (words, code, says) in [
        (&[name, "10X"][..], 1, "Invalid new size: 10X"),
        (&[name, "10"], 1, "New size smaller than minimum ("),
        (&["-b", "-s", name], 1, "Cannot set and unset 64bit feature."),
        (&["-M", name, "5M"], 1, "cannot be used with"),
        (&["nothing.img"], 1, "nothing.img"),
    ] {
        let refused = run(words);
        assert_eq!(refused.status.code(), Some(code), "{words:?}: {refused:?}");
        assert!(text(&refused.stderr).contains(says), "{words:?}: {refused:?}");
    }
    // A mount makes a check necessary; -f does without it.
    if is_root() {
        drop(LoopMount::new(&path, "").unwrap());
        std::thread::sleep(std::time::Duration::from_millis(1100));
        LoopMount::new(&path, "").unwrap().unmount().unwrap();
        let refused = run(&[name, "24M"]);
        assert_eq!(refused.status.code(), Some(1));
        let expected = format!("Please run 'e2fsck -f {name}' first.");
        assert!(text(&refused.stderr).contains(&expected), "{refused:?}");
        let steps = run(&["-f", "-p", name, "40M"]);
        assert!(steps.status.success(), "{steps:?}");
        assert!(text(&steps.stderr).contains("Begin pass 1 (max = "), "{steps:?}");
    }
    e2fsck_fn(&path).unwrap();
}

/// A list of orphans, a journal that waits, errors: resize2fs asks for a check first, whatever is
/// to be done, and so do we by its name. By our own the volume grows, and the list stays.
#[test]
fn a_volume_that_needs_a_check_is_refused_as_by_resize2fs() {
    let (Some(resize2fs), Some(debugfs), Some(e2fsck)) =
        (tool("resize2fs"), tool("debugfs"), tool("e2fsck"))
    else {
        skip!("no resize2fs, debugfs or e2fsck here")
    };
    let image = match TempImage::by_mke2fs(16 << 20, &["-t", "ext4", "-b", "1024"]) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let path = image.path();
    let scratch = extant_testkit::Scratch::new();
    let source = scratch.join("source");
    fs::write(&source, [7; 5000]).unwrap();
    let copy = scratch.join("copy.img");
    let name = copy.to_str().unwrap();
    for change in ["ssv last_orphan 12", "feature needs_recovery", "ssv state 0", "ssv state 3", ""]
    {
        let made = scratch.join("changed.img");
        fs::copy(&path, &made).unwrap();
        let write = format!("write {} file", source.display());
        for request in [&*write, change] {
            debugfs.text(["-w", "-R", request, made.to_str().unwrap()]).unwrap();
        }
        for words in [
            &[name, "20M"][..],
            &["-f", name, "20M"],
            &[name, "16M"],
            &[name, "10M"],
            &["-M", name],
            &["-P", name],
            &["-s", name],
        ] {
            fs::copy(&made, &copy).unwrap();
            let theirs = resize2fs.run(words);
            fs::copy(&made, &copy).unwrap();
            let ours = Command::new(EXTANT).arg0("resize2fs").args(words).output().unwrap();
            assert_eq!(ours.status.code(), theirs.status.code(), "{change}, {words:?}: {ours:?}");
            let expected = format!("Please run 'e2fsck -f {name}' first.\n");
            let [ours, theirs] =
                [ours, theirs].map(|it| text(&[it.stdout, it.stderr].concat()).contains(&expected));
            assert_eq!(ours, theirs, "{change}, {words:?}");
        }
    }
    // By our own name it grows with its orphans, which a check completes.
    fs::copy(&path, &copy).unwrap();
    for request in [&*format!("write {} file", source.display()), "ssv last_orphan 12"] {
        debugfs.text(["-w", "-R", request, name]).unwrap();
    }
    let grown = extant(["resize", name, "64M"]);
    assert!(grown.status.success(), "{grown:?}");
    let checked = e2fsck.run(["-fp", name]);
    assert!(matches!(checked.status.code(), Some(0 | 1)), "{checked:?}");
    assert!(text(&checked.stdout).contains("orphan"), "{checked:?}");
    e2fsck_fn(&copy).unwrap();
    assert_eq!(debugfs.text(["-R", "cat file", name]).unwrap().len(), 5000);
}

/// `-z` keeps what a resize overwrites, also for e2undo.
#[test]
fn an_undo_file_takes_a_resize_back() {
    let image = match TempImage::by_mke2fs(32 << 20, &["-t", "ext2", "-b", "1024"]) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let path = image.path();
    let before = fs::read(&path).unwrap();
    let undo = path.with_extension("undo");
    resized(&path, &["-z", undo.to_str().unwrap(), "24M"]);
    e2fsck_fn(&path).unwrap();
    assert_eq!(blocks(&path), 24 << 10);
    assert_eq!(fs::read(&path).unwrap().len(), before.len(), "the file is not cut");
    let undone = extant(["undo", undo.to_str().unwrap(), path.to_str().unwrap()]);
    assert!(undone.status.success(), "{undone:?}");
    assert!(fs::read(&path).unwrap() == before, "the volume of before");
}

/// Quota files count the blocks of maps that get longer.
#[test]
fn quotas_are_right_after_a_volume_shrinks() {
    let args = ["-t", "ext4", "-b", "1024", "-O", "quota"];
    let image = match TempImage::by_mke2fs(96 << 20, &args) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let path = image.path();
    let name = path.to_str().unwrap();
    let scratch = extant_testkit::Scratch::new();
    // Small files whose every second is removed leave room that splits large ones.
    for at in 0..200 {
        fs::write(scratch.join(format!("small{at}")), vec![b's'; 3000]).unwrap();
    }
    for at in 0..6 {
        fs::write(scratch.join(format!("large{at}")), vec![b'l'; 4 << 20]).unwrap();
    }
    let root = format!("{name}:/");
    let copied = extant(["cp", "-r", scratch.path().to_str().unwrap(), &root]);
    assert!(copied.status.success(), "{copied:?}");
    let dir = scratch.path().file_name().unwrap().to_str().unwrap();
    let gone = (0..200).step_by(2).map(|at| format!("{name}:/{dir}/small{at}"));
    let removed = extant(std::iter::once("rm".to_owned()).chain(gone));
    assert!(removed.status.success(), "{removed:?}");
    resized(&path, &["-M"]);
    e2fsck_fn(&path).unwrap();
    let read = extant(["cat", &format!("{name}:/{dir}/large5")]);
    assert_eq!(read.stdout.len(), 4 << 20);
}

/// The kernel grows what it has mounted.
#[test]
fn a_mounted_device_grows_by_the_kernel() {
    if !is_root() {
        skip!("a loop mount needs root");
    }
    let image = match TempImage::by_mke2fs(64 << 20, &["-t", "ext4", "-b", "1024"]) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let path = image.path();
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(128 << 20).unwrap();
    let device = match LoopDevice::new(&path) {
        Ok(device) => device,
        Err(why) => skip!("{why}"),
    };
    let point = extant_testkit::Scratch::new();
    let mount = |words: &[&std::ffi::OsStr], program: &str| {
        Command::new(program).args(words).status().is_ok_and(|status| status.success())
    };
    assert!(mount(&[device.path().as_os_str(), point.path().as_os_str()], "mount"));
    let name = device.path().to_str().unwrap();
    let grown = extant(["resize", name]);
    let smaller = extant(["resize", name, "32M"]);
    assert!(mount(&[point.path().as_os_str()], "umount"));
    if text(&grown.stderr).contains("Operation not permitted") {
        skip!("CAP_SYS_RESOURCE is missing");
    }
    assert!(grown.status.success(), "{grown:?}");
    assert!(text(&grown.stdout).contains("is now 131072 (1k) blocks long"), "{grown:?}");
    assert_eq!(smaller.status.code(), Some(1));
    assert!(text(&smaller.stderr).contains("on-line shrinking not supported"), "{smaller:?}");
    drop(device);
    assert_eq!(blocks(&path), 128 << 10);
    e2fsck_fn(&path).unwrap();
}

/// `-b` and `-s` say what resize2fs says.
#[test]
fn switching_64bit_has_the_messages_of_resize2fs() {
    let image = match TempImage::by_mke2fs(16 << 20, &["-t", "ext4", "-O", "^64bit"]) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let path = image.path();
    let name = path.to_str().unwrap();
    let run = |words: &[&str]| Command::new(EXTANT).arg0("resize2fs").args(words).output().unwrap();
    let now = format!("The filesystem on {name} is now 16384 (1k) blocks long.\n\n");
    for (words, out, err) in [
        (&["-s", name][..], String::new(), "The filesystem is already 32-bit.\n"),
        (&["-b", name], format!("Converting the filesystem to 64-bit.\n{now}"), ")\n"),
        (&["-b", "-M", name], String::new(), "The filesystem is already 64-bit.\n"),
        (&["-s", name, "9M"], format!("Converting the filesystem to 32-bit.\n{now}"), "the size\n"),
    ] {
        let done = run(words);
        assert_eq!((done.status.code(), text(&done.stdout)), (Some(0), out), "{words:?}: {done:?}");
        assert!(text(&done.stderr).ends_with(err), "{words:?}: {done:?}");
        e2fsck_fn(&path).unwrap();
    }
    let both = extant(["resize", "-b", name, "9M"]);
    assert_eq!(both.status.code(), Some(2), "{both:?}");
    assert!(text(&both.stderr).contains("-b, SIZE: mutually exclusive"), "{both:?}");
    // A journal that waits is replayed, but not by the name resize2fs.
    let debugfs = tool("debugfs").unwrap();
    debugfs.text(["-w", "-R", "feature needs_recovery", name]).unwrap();
    let refused = run(&["-b", name]);
    let expected = format!("Please run 'e2fsck -f {name}' first.");
    assert!(text(&refused.stderr).contains(&expected), "{refused:?}");
    let done = extant(["resize", "-b", name]);
    assert!(done.status.success(), "{done:?}");
    e2fsck_fn(&path).unwrap();
    let old = TempImage::by_mke2fs(8 << 20, &["-t", "ext3"]).unwrap();
    let refused = run(&["-b", old.path().to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("Please enable the extents feature"), "{refused:?}");
}

/// PiShrink's commands, in its order and with its arithmetic, by the names of e2fsprogs.
#[test]
fn pishrink_shrinks_an_image() {
    let args = ["-t", "ext4", "-b", "4096"];
    let fixture = match Fixture::by_kernel(&args, 31, 4096) {
        Ok(fixture) => fixture,
        Err(why) => skip!("{why}"),
    };
    let expected = fixture.mounted_snapshot().unwrap();
    let image = fixture.image.path();
    let name = image.to_str().unwrap();
    let run = |program: &str, words: &[&str]| {
        let done = Command::new(EXTANT).arg0(program).args(words).output().unwrap();
        assert!(done.status.success(), "{program} {words:?}: {done:?}");
        text(&done.stdout)
    };
    run("e2fsck", &["-p", "-f", name]);
    let listed = run("tune2fs", &["-l", name]);
    let field = |label: &str| {
        let line = listed.lines().find(|line| line.starts_with(label)).unwrap();
        line.replace(' ', "").split(':').nth(1).unwrap().parse::<u64>().unwrap()
    };
    let (now, block) = (field("Block count:"), field("Block size:"));
    let said = run("resize2fs", &["-P", name]);
    let least: u64 = said.split(':').nth(1).unwrap().replace(' ', "").trim().parse().unwrap();
    let spare = [5000, 1000, 100].into_iter().find(|spare| now - least > *spare).unwrap_or(0);
    let wanted = least + spare;
    run("resize2fs", &["-p", name, &wanted.to_string()]);
    assert_eq!(blocks(&image), wanted);
    assert_eq!(fs::metadata(&image).unwrap().len(), wanted * block);
    run("e2fsck", &["-p", "-f", name]);
    run("resize2fs", &["-M", name]);
    assert_eq!(blocks(&image), least);
    e2fsck_fn(&image).unwrap();
    assert_same_tree(&expected, &fixture.mounted_snapshot().unwrap());
}

/// The command lines of cloud-init and Kubernetes (the device alone), kiwi (`-f -p`), NixOS (`-f`),
/// Incus (a size in KiB after a check) and Armbian (`-M`).
#[test]
fn command_lines_of_installers_and_clouds_resize() {
    let image = match TempImage::by_mke2fs(64 << 20, &["-t", "ext4", "-b", "4096"]) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let path = image.path();
    let name = path.to_str().unwrap();
    let run = |program: &str, words: &[&str]| {
        let done = Command::new(EXTANT).arg0(program).args(words).output().unwrap();
        assert!(done.status.success(), "{program} {words:?}: {done:?}");
    };
    let lengthen = |bytes: u64| {
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(bytes).unwrap();
    };
    for (length, words) in [
        (128_u64 << 20, &[name][..]),
        (192 << 20, &["-f", "-p", name]),
        (256 << 20, &["-f", name]),
        (256 << 20, &["-F", name]),
    ] {
        lengthen(length);
        run("resize2fs", words);
        assert_eq!(blocks(&path), length / 4096, "{words:?}");
        e2fsck_fn(&path).unwrap();
    }
    run("e2fsck", &["-f", "-y", name]);
    run("resize2fs", &[name, "102400K"]);
    assert_eq!(blocks(&path), 25_600);
    run("resize2fs", &["-M", name]);
    assert!(blocks(&path) < 25_600);
    e2fsck_fn(&path).unwrap();
}

/// `--grow-partition` makes the last partition of a GPT longer, as sfdisk reads it, and refuses
/// others.
#[test]
fn the_last_partition_of_a_gpt_grows_with_its_volume() {
    let Some(sfdisk) = tool("sfdisk") else { skip!("no sfdisk here") };
    let scratch = extant_testkit::Scratch::new();
    let disk = scratch.join("disk.img");
    let script = scratch.join("script");
    fs::write(&script, "label: gpt\nsize=10MiB\nsize=40MiB\n").unwrap();
    fs::File::create(&disk).unwrap().set_len(64 << 20).unwrap();
    let name = disk.to_str().unwrap();
    let made = sfdisk.command().args(["-q", name]).stdin(fs::File::open(&script).unwrap()).status();
    assert!(made.unwrap().success());
    let part = format!("{name}#p2");
    let run = |words: &[&str]| {
        let done = extant(words);
        assert!(done.status.success(), "{words:?}: {done:?}");
        text(&done.stdout)
    };
    let first = format!("{name}#p1");
    for part in [&first, &part] {
        run(&["mkfs", "-q", "-t", "ext4", "-b", "4096", "-F", part]);
    }
    let sizes = || {
        let checked = sfdisk.text(["--verify", name]).unwrap();
        assert!(checked.contains("No errors detected"), "{checked}");
        let dump = sfdisk.text(["-d", name]).unwrap();
        let line = dump.lines().find(|line| line.starts_with(&format!("{name}2 "))).unwrap();
        let field = |label: &str| -> u64 {
            let rest = line.split_once(label).unwrap().1.trim_start_matches([' ', '=']);
            rest.split(',').next().unwrap().trim().parse().unwrap()
        };
        (field("start") * 512, field("size") * 512)
    };
    let (start, _) = sizes();
    // The whole disk first, which got longer; then a size that makes the file longer.
    fs::OpenOptions::new().write(true).open(&disk).unwrap().set_len(128 << 20).unwrap();
    let said = run(&["resize", "--grow-partition", &part]);
    assert!(said.contains("Partition 2 reaches to the end of"), "{said}");
    // The backup of the table has 33 sectors.
    assert_eq!(sizes(), (start, (128 << 20) - 33 * 512 - start));
    run(&["fsck", "-fn", &part]);
    run(&["resize", "--grow-partition", &part, "300M"]);
    assert!(sizes().1 >= 300 << 20, "{:?}", sizes());
    assert!(run(&["info", &part]).contains("76800"), "300 MiB in blocks");
    run(&["fsck", "-fn", &part]);
    let before = sizes();
    let undo = scratch.join("undo").display().to_string();
    let grow = |rest: &[&'static str]| [&["resize", "--grow-partition", &part][..], rest].concat();
    for (words, code, says) in [
        (vec!["resize", "--grow-partition", name], 2, "IMAGE is not a partition"),
        (vec!["resize", "--grow-partition", &first], 1, "cannot grow: partition 2 lies after it"),
        (grow(&["18446744073709551615"]), 1, "too many"),
        (grow(&["18014398509481984"]), 1, "too many"),
        (grow(&["1M"]), 1, "too few"),
        (grow(&["-b"]), 2, "mutually exclusive"),
        (grow(&["-M"]), 2, "mutually exclusive"),
        (grow(&["-P"]), 2, "mutually exclusive"),
        (vec!["resize", "-z", &undo, "--grow-partition", &part], 2, "mutually exclusive"),
    ] {
        let refused = extant(&words);
        assert_eq!(refused.status.code(), Some(code), "{words:?}: {refused:?}");
        assert!(text(&refused.stderr).contains(says), "{words:?}: {refused:?}");
        assert_eq!(sizes(), before, "{words:?}");
    }
}

/// `-d` prints the moves.
#[test]
fn debugging_flags_print_moves() {
    let args = ["-t", "ext4", "-b", "1024", "-g", "1024", "-O", "^64bit,^resize_inode"];
    let image = match TempImage::by_mke2fs(26 << 20, &args) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let path = image.path();
    let name = path.to_str().unwrap();
    let scratch = extant_testkit::Scratch::new();
    fs::write(scratch.join("large"), vec![b'l'; 12 << 20]).unwrap();
    let large = scratch.join("large");
    let copied = extant(["cp", large.to_str().unwrap(), &format!("{name}:/large")]);
    assert!(copied.status.success(), "{copied:?}");
    let done = extant(["resize", "-f", "-b", "-d", "8", name]);
    assert!(text(&done.stderr).contains("Table of group 0 moved 3->"), "{done:?}");
    let done = extant(["resize", "-f", "-d", "50", "-M", name]);
    assert!(done.status.success(), "{done:?}");
    let said = text(&done.stderr);
    for line in ["Moving ", " blocks fit, and ", "MoveBlocks: begins after "] {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert_eq!(extant(["resize", "-d", "x", name]).status.code(), Some(2));
    e2fsck_fn(&path).unwrap();
}

/// Runs our program, which ends with this code and says this.
fn ends(words: &[&str], code: i32, says: &str) {
    let done = extant(words);
    let said = text(&[&done.stdout[..], &done.stderr].concat());
    assert!(done.status.code() == Some(code) && said.contains(says), "{words:?}: {done:?}");
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

/// A part that reaches to the end of its file, and a cipher without a size of its own, get longer
/// with their file.
#[test]
fn a_file_gets_longer_with_a_volume_at_an_offset_or_in_a_cipher() {
    let scratch = extant_testkit::Scratch::new();
    let key = scratch.join("key");
    fs::write(&key, [7; 64]).unwrap();
    let key = key.display();
    let (offset, cipher) = ("offset=1M", format!("cipher=aes-xts-plain64&key-file={key}"));
    let mut cases = vec![
        ("part", format!("?{offset}"), String::new(), 1 << 20),
        ("plain", format!("?{cipher}"), "crypt:".to_owned(), 0),
        ("both", format!("?{offset}&{cipher}"), "crypt:".to_owned(), 1 << 20),
    ];
    if let Some(cryptsetup) = tool("cryptsetup") {
        let path = scratch.join("luks");
        fs::File::create(&path).unwrap().set_len(80 << 20).unwrap();
        let key = key.to_string();
        let kdf = ["--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000", "--key-file", &key];
        let words = [&["luksFormat", "-q"], &kdf[..], &[path.to_str().unwrap()]].concat();
        cryptsetup.text(words).unwrap();
        cases.push(("luks", format!("?key-file={key}"), "crypt:".to_owned(), 16 << 20));
    }
    for (file, after, before, start) in cases {
        let path = scratch.join(file);
        fs::OpenOptions::new().create(true).append(true).open(&path).unwrap();
        if length(&path) == 0 {
            fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(64 << 20).unwrap();
        }
        let name = format!("{before}{}{after}", path.display());
        ends(&["mkfs", "-q", "-F", "-t", "ext4", "-b", "4096", &name, "32M"], 0, "");
        ends(&["cp", "/bin/sh", &format!("{name}:/sh")], 0, "");
        // Within what is there; then past it.
        ends(&["resize", "-f", &name, "40M"], 0, "is now 10240 (4k) blocks");
        assert!(length(&path) < 100 << 20, "{name}");
        ends(&["resize", "-f", &name, "100M"], 0, "is now 25600 (4k) blocks");
        assert_eq!(length(&path), (100 << 20) + start, "{name}");
        ends(&["fsck", "-fn", &name], 0, "");
        if before.is_empty() {
            e2fsck_fn(Path::new(&format!("{}?offset={start}", path.display()))).unwrap();
        }
        let read = extant(["cat", &format!("{name}:/sh")]);
        assert!(read.stdout == fs::read("/bin/sh").unwrap(), "{name}");
        // A refusal leaves the file as it was.
        ends(&["resize", "-f", &name, "18014398509481983"], 1, "too many");
        assert_eq!(length(&path), (100 << 20) + start, "{name}");
    }
}

/// Parts and layers that keep their size are refused with the reason; the files keep their length.
#[test]
fn parts_and_layers_that_cannot_get_longer_are_refused_by_their_reason() {
    let Some(sfdisk) = tool("sfdisk") else { skip!("no sfdisk here") };
    let scratch = extant_testkit::Scratch::new();
    let make = |file: &str, table: &str| {
        let path = scratch.join(file);
        fs::File::create(&path).unwrap().set_len(64 << 20).unwrap();
        let script = scratch.join("script");
        fs::write(&script, table).unwrap();
        if !table.is_empty() {
            let script = fs::File::open(&script).unwrap();
            let made = sfdisk.command().arg("-q").arg(&path).stdin(script).status();
            assert!(made.unwrap().success());
        }
        path
    };
    let shown = |path: &Path| path.display().to_string();
    let gpt = make("gpt", "label: gpt\nstart=16MiB,size=16MiB\nstart=40MiB,size=20MiB\n");
    let mbr = make("mbr", "label: dos\nstart=40MiB,size=20MiB\n");
    let last = make("last", "label: gpt\nstart=1MiB,size=16MiB\n");
    let plain = make("plain", "");
    let upper = scratch.join("upper");
    let (gpt, mbr, last, plain) = (shown(&gpt), shown(&mbr), shown(&last), shown(&plain));
    let mut cases = vec![
        (format!("{gpt}#p1"), "partition 1 has 16777216 bytes"),
        (format!("{gpt}?offset=16M"), "partition 1 ends after 16777216 bytes there"),
        (format!("{gpt}?offset=32M"), "partition 2 begins after 8388608 bytes there"),
        (format!("{mbr}?offset=20M"), "partition 1 begins after 20971520 bytes there"),
        (format!("{last}?offset=20M"), "no partition of the GPT is there"),
        (format!("{plain}?offset=8M&size=16M"), "the part of the image has 16777216 bytes"),
        (format!("linear:{plain}?offset=32M"), "this kind of device cannot get longer"),
    ];
    let layered = format!("overlay:{plain}?upper={}", upper.display());
    let disk = scratch.join("disk.qcow2");
    if let Some(qemu) = tool("qemu-img") {
        qemu.text(["create", "-q", "-f", "qcow2", disk.to_str().unwrap(), "64M"]).unwrap();
        cases.push((format!("qcow2:{}", disk.display()), "this kind of device cannot get longer"));
    }
    cases.push((layered, "this kind of device cannot get longer"));
    for (name, says) in cases {
        ends(&["mkfs", "-q", "-F", "-t", "ext4", "-b", "1024", &name, "8M"], 0, "");
        let files = [&gpt, &mbr, &last, &plain].map(|path| length(Path::new(path)));
        ends(&["resize", &name, "100M"], 1, &format!("{name}: the device cannot grow: "));
        ends(&["resize", &name, "100M"], 1, says);
        assert_eq!([&gpt, &mbr, &last, &plain].map(|path| length(Path::new(path))), files);
        ends(&["fsck", "-fn", &name], 0, "");
    }
}

/// The file has the length of before if the volume could not grow.
#[test]
fn a_file_that_got_longer_in_vain_is_cut_again() {
    let scratch = extant_testkit::Scratch::new();
    let path = scratch.join("image");
    fs::File::create(&path).unwrap().set_len(33 << 20).unwrap();
    let name = format!("{}?offset=1M", path.display());
    ends(&["mkfs", "-q", "-F", "-t", "ext4", "-b", "1024", &name, "30M"], 0, "");
    // The block bitmap of the last group is not what its checksum says.
    let Some(dumpe2fs) = tool("dumpe2fs") else { skip!("no dumpe2fs here") };
    let groups = dumpe2fs.text([format!("{}?offset=1048576", path.display())]).unwrap();
    let (_, rest) = groups.rsplit_once("Block bitmap at ").unwrap();
    let digits = |c: char| !c.is_ascii_digit();
    let block: u64 = rest.split(digits).next().unwrap().parse().unwrap();
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    let at = (1 << 20) + block * 1024;
    std::os::unix::fs::FileExt::write_all_at(&file, &[0x55; 1024], at).unwrap();
    ends(&["resize", &name, "100M"], 1, "bitmap");
    assert_eq!(length(&path), 33 << 20);
}
