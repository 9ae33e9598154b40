//! Options of the kernel's ext4 at a mount of ours: what they do is judged by the kernel, debugfs
//! and e2fsck.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;

use extant_testkit::{LoopMount, Scratch, debugfs, dumpe2fs_h, e2fsck_fn, mke2fs, skip};

use super::blocks::LoopDevice;
use super::{Mount, can_mount, extant, image};

/// Document 001's mount options of ext3, as it writes them.
const DOCUMENT_001: [&str; 8] = [
    "data=writeback",
    "data=ordered",
    "data=ordered,extents",
    "data=ordered,mballoc,delalloc,extents",
    "data=ordered,mballoc,extents",
    "data=writeback,extents",
    "data=writeback,mballoc,delalloc,extents",
    "data=writeback,mballoc,extents",
];

/// Data written through a mount with these options.
fn write_under(scratch: &Scratch, image: &Path, options: &str) {
    let mount = Mount::new(scratch, image, &["-o", options]);
    fs::create_dir(mount.path().join("dir")).expect("mkdir");
    fs::write(mount.path().join("dir/file"), vec![7; 100_000]).expect("write");
    mount.unmount();
}

/// The directory and the file are mapped so, and the volume is well.
fn assert_mapped(image: &Path, by: &str, what: &str) {
    for path in ["/dir", "/dir/file"] {
        let said = debugfs(image, &format!("stat {path}")).expect("debugfs");
        assert!(said.contains(by), "{what}: {path}: {said}");
    }
    e2fsck_fn(image).expect(what);
    let kernel = LoopMount::new(image, "ro").expect("the kernel mounts it");
    let found = fs::read(kernel.path().join("dir/file")).expect("read");
    assert!(found == vec![7; 100_000], "{what}: the kernel reads something else");
}

/// Files that were there keep their map, and the volume has the feature from then on only where it
/// was asked for.
#[test]
fn document_001s_lines_on_ext3_map_new_files_as_they_say() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    for line in DOCUMENT_001 {
        let scratch = Scratch::new();
        let image = image(&scratch, &["-t", "ext3"], "16M");
        write_under(&scratch, &image, line);
        let (by, has_feature) = match line.contains("extents") {
            true => ("EXTENTS:", true),
            false => ("BLOCKS:", false),
        };
        assert_mapped(&image, by, line);
        let features = &dumpe2fs_h(&image).expect("dumpe2fs")["Filesystem features"];
        let has = features.split(' ').any(|name| name == "extent");
        assert_eq!(has, has_feature, "{line}: {features}");
        let root = debugfs(&image, "stat /").expect("debugfs");
        assert!(root.contains("BLOCKS:"), "{line}: {root}");
    }
}

#[test]
fn noextents_maps_new_files_by_indirect_blocks_where_the_volume_can_have_them() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let scratch = Scratch::new();
    let plain = image(&scratch, &["-t", "ext4"], "16M");
    write_under(&scratch, &plain, "noextents");
    assert_mapped(&plain, "BLOCKS:", "noextents");
    let features = &dumpe2fs_h(&plain).expect("dumpe2fs")["Filesystem features"];
    assert!(features.split(' ').any(|name| name == "extent"), "the feature stays: {features}");
    let clusters = image(&scratch, &["-t", "ext4", "-O", "bigalloc"], "64M");
    let (code, said) = extant(&["mount", "-o", "noextents"], &[&clusters, &scratch.join("mount")]);
    assert!(code != 0 && said.contains("noextents: not possible with bigalloc"), "{code}: {said}");
}

#[test]
fn groups_of_new_files_are_those_of_the_kernel() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let scratch = Scratch::new();
    // The superblock's default says grpid too.
    for default in ["", "bsdgroups"] {
        let image = image(&scratch, &["-t", "ext4"], "16M");
        if !default.is_empty() {
            let set =
                std::process::Command::new("tune2fs").args(["-o", default]).arg(&image).output();
            assert!(set.expect("tune2fs runs").status.success());
        }
        for option in ["rw", "grpid", "bsdgroups", "nogrpid", "sysvgroups"] {
            let group_of_new = |root: &Path, name: &str| {
                chown(root, Some(0), Some(77)).expect("chown");
                fs::create_dir(root.join(name)).expect("mkdir");
                fs::metadata(root.join(name)).expect("stat").gid()
            };
            let kernel = LoopMount::new(&image, option).expect("the kernel mounts it");
            let expected = group_of_new(kernel.path(), &format!("kernel-{option}"));
            drop(kernel);
            let mount = Mount::new(&scratch, &image, &["-o", option]);
            let found = group_of_new(mount.path(), &format!("ours-{option}"));
            mount.unmount();
            assert_eq!(found, expected, "{option}, default {default:?}");
        }
    }
}

/// `sb=` counts in units of 1 KiB, whatever the block size is; and only to read.
#[test]
fn a_backup_superblock_opens_a_volume_whose_first_is_lost() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let scratch = Scratch::new();
    let image = image(&scratch, &["-t", "ext4", "-b", "2048"], "48M");
    write_under(&scratch, &image, "rw");
    let file = fs::OpenOptions::new().write(true).open(&image).expect("open");
    std::os::unix::fs::FileExt::write_all_at(&file, &[0; 1024], 1024).expect("write");
    // As a partition table leaves it.
    std::os::unix::fs::FileExt::write_all_at(&file, b"EFI PART", 512).expect("write");
    drop(file);
    let before = fs::read(&image).expect("read");
    let kernel = LoopMount::new(&image, "ro,noload,sb=32768").expect("the kernel mounts it");
    assert!(kernel.path().join("dir/file").exists());
    drop(kernel);
    let mount = Mount::new(&scratch, &image, &["-o", "ro,sb=32768"]);
    let found = fs::read(mount.path().join("dir/file")).expect("read");
    assert!(found == vec![7; 100_000], "something else is read");
    mount.unmount();
    assert!(fs::read(&image).expect("read") == before, "the image was written");
    let point = scratch.join("mount");
    for (options, expected) in [
        ("ro,sb=1", "superblock"),
        ("ro,sb=32770", "superblock"),
        ("sb=32768", "mount options sb= and rw are mutually exclusive"),
        ("ro,sb=0", "at least 1"),
    ] {
        let (code, said) = extant(&["mount", "-o", options], &[&image, &point]);
        assert!(code != 0 && said.contains(expected), "{options}: {code}: {said}");
    }
}

#[test]
fn a_journal_device_is_found_by_its_number() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let scratch = Scratch::new();
    let log = scratch.join("journal");
    let log_name = log.to_str().expect("a plain path");
    mke2fs(["-q", "-F", "-b", "4096", "-O", "journal_dev", log_name, "8M"]).expect("mke2fs");
    let Some(device) = LoopDevice::of(&log) else { skip!("no free loop device") };
    let journal = format!("device={}", device.path().display());
    let image = image(&scratch, &["-t", "ext4", "-b", "4096", "-J", &journal], "16M");
    // Minor numbers of loop devices are small here: the encodings of the kernel and of programs are
    // the same.
    let number = fs::metadata(device.path()).expect("stat").rdev();
    write_under(&scratch, &image, &format!("journal_dev={number}"));
    assert_mapped_with_journal(&image, device.path());
    let (code, said) =
        extant(&["mount", "-o", "journal_dev=0x12345678"], &[&image, &scratch.join("mount")]);
    assert!(
        code != 0 && said.contains("journal_dev=0x12345678: cannot find the device"),
        "{code}: {said}"
    );
    // A volume with its journal inside has no use for it.
    let inner = scratch.join("inner");
    mke2fs(["-q", "-F", "-t", "ext4", inner.to_str().expect("a plain path"), "16M"])
        .expect("mke2fs");
    for options in [format!("journal_dev={number}"), format!("ro,journal_path={log_name}")] {
        let (code, said) = extant(&["mount", "-o", &options], &[&inner, &scratch.join("mount")]);
        assert!(
            code != 0 && said.contains("the volume has an internal journal"),
            "{options}: {code}: {said}"
        );
    }
}

fn assert_mapped_with_journal(image: &Path, journal: &Path) {
    let output = std::process::Command::new("timeout")
        .args(["-k", "5", "60", "e2fsck", "-fn", "-j"])
        .args([journal, image])
        .output()
        .expect("e2fsck runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let said = debugfs(image, "stat /dir/file").expect("debugfs");
    assert!(said.contains("EXTENTS:"), "{said}");
}

/// Limits are those of quota files that the volume has: quotacheck's old ones are not kept.
#[test]
fn limits_are_enforced_only_where_the_volume_counts() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let scratch = Scratch::new();
    let point = scratch.join("mount");
    let counted =
        image(&scratch, &["-t", "ext4", "-O", "quota", "-E", "quotatype=usrquota"], "16M");
    for options in ["quota", "usrquota", "noquota"] {
        Mount::new(&scratch, &counted, &["-o", options]).unmount();
    }
    let (code, said) = extant(&["mount", "-o", "grpquota"], &[&counted, &point]);
    assert!(code != 0 && said.contains("no quota file of groups"), "{code}: {said}");
    let plain = image(&scratch, &["-t", "ext4"], "16M");
    for (options, expected) in [
        ("quota", "no quota file of users"),
        ("prjquota", "no quota file of projects"),
        ("usrjquota=aquota.user", "quotaon(8) cannot enable quota files"),
    ] {
        let (code, said) = extant(&["mount", "-o", options], &[&plain, &point]);
        assert!(code != 0 && said.contains(expected), "{options}: {code}: {said}");
    }
    Mount::new(&scratch, &plain, &["-o", "noquota"]).unmount();
}

/// Writes of commits have the priority of the option, and no other writes of the server have it; in
/// the sandbox too.
#[test]
fn a_journals_priority_is_that_of_the_thread_that_commits() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let scratch = Scratch::new();
    let image = image(&scratch, &["-t", "ext4"], "16M");
    let mount = Mount::new(&scratch, &image, &["-o", "journal_ioprio=1"]);
    fs::write(mount.path().join("file"), b"x").expect("write");
    fs::File::open(mount.path().join("file")).expect("open").sync_all().expect("fsync");
    let tasks = fs::read_dir(format!("/proc/{}/task", mount.server())).expect("threads");
    for task in tasks.flatten() {
        let name = fs::read_to_string(task.path().join("comm")).expect("a name");
        let number = task.file_name();
        let said = std::process::Command::new("ionice").arg("-p").arg(&number).output();
        let said = String::from_utf8_lossy(&said.expect("ionice runs").stdout).into_owned();
        let has = said.trim() == "best-effort: prio 1";
        assert_eq!(has, name.trim() == "commit", "{name}: {said}");
    }
    mount.unmount();
    e2fsck_fn(&image).expect("healthy");
}

/// As the kernel says it, which mounts all the same.
#[test]
fn removed_options_are_named() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let scratch = Scratch::new();
    let image = image(&scratch, &["-t", "ext4"], "16M");
    let options = "orlov,oldalloc,i_version,nocheck,bh,nobh,reservation,mblk_io_submit,check=none";
    drop(LoopMount::new(&image, options).expect("the kernel mounts it"));
    let point = scratch.join("mount");
    fs::create_dir(&point).expect("mkdir");
    let mount = Mount::found(point.clone(), &image);
    let (code, said) = extant(&["mount", "-o", options], &[&image, &point]);
    assert_eq!(code, 0, "{said}");
    let lines: Vec<&str> = said.lines().collect();
    let names = options.split(',');
    let expected: Vec<String> =
        names.map(|name| format!("extant mount: ignoring removed {name} option")).collect();
    assert_eq!(lines, expected);
    mount.unmount();
}

/// A call of another process that is under way is no reason to refuse; an open file is.
#[test]
fn umount_waits_for_df_and_not_for_an_open_file() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let scratch = Scratch::new();
    let image = image(&scratch, &["-t", "ext4"], "16M");
    let point = scratch.join("mount");
    fs::create_dir(&point).expect("mkdir");
    let asks = "while [ -e \"$1\" ]; do df \"$1\" > /dev/null 2>&1; done";
    let mut asker = std::process::Command::new("sh")
        .args(["-c", asks, "sh"])
        .arg(&point)
        .spawn()
        .expect("sh runs");
    let outcomes: Vec<(i32, String)> = (0..20)
        .map(|_| {
            let _mount = Mount::new(&scratch, &image, &[]);
            std::thread::sleep(std::time::Duration::from_millis(20));
            extant(&["umount"], &[&point])
        })
        .collect();
    asker.kill().expect("kill");
    asker.wait().expect("wait");
    assert!(outcomes.iter().all(|(code, _)| *code == 0), "{outcomes:?}");
    let mount = Mount::new(&scratch, &image, &[]);
    let open = fs::File::create(mount.path().join("file")).expect("create");
    let (code, said) = extant(&["umount"], &[mount.path()]);
    assert!(code != 0 && said.contains("busy"), "{code}: {said}");
    drop(open);
    mount.unmount();
}
