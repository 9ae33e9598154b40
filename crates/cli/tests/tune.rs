//! `extant tune` against tune2fs: on copies of one image the same options give the same superblock,
//! e2fsck finds nothing, and the kernel mounts.

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use common::{Fixture, extant, snapshot, text};
use extant_testkit::{
    LoopMount, Scratch, TempImage, dumpe2fs_h, e2fsck_fn, is_root, skipped, tool,
};

/// Lines that differ between two runs, or are not from the superblock: times, checksums, what the
/// kernel counts.
const PASSING: [&str; 12] = [
    "Checksum",
    "Checksum seed",
    "Last write time",
    "Lifetime writes",
    "Last mount time",
    "mmp_update_date",
    "mmp_update_time",
    "mmp_device_name",
    "mmp_sequence",
    "MMP block number",
    // The changes are a transaction of it.
    "Journal sequence",
    "Journal checksum",
];

fn fields(image: &Path) -> BTreeMap<String, String> {
    let mut fields = dumpe2fs_h(image).expect("dumpe2fs reads it");
    fields.retain(|name, _| !PASSING.contains(&name.as_str()));
    if let Some(features) = fields.get_mut("Journal features") {
        // One that every log has which was written once.
        *features = features.replace("journal_incompat_revoke ", "");
    }
    fields
}

fn tuned(image: &Path, args: &[&str]) -> (bool, String) {
    let path = image.to_str().expect("scratch paths are UTF-8");
    let words = ["tune"].iter().chain(args).copied().chain([path]);
    let output = extant(words);
    (output.status.success(), text(&output.stdout) + &text(&output.stderr))
}

struct Base {
    name: &'static str,
    fixture: Fixture,
    tree: extant_testkit::TreeSnapshot,
}

fn base(name: &'static str, args: &[&str]) -> Result<Base, String> {
    let fixture = Fixture::by_kernel(args, 5, 1024)?;
    let tree = fixture.mounted_snapshot()?;
    check_since_mount(&fixture.image.path());
    Ok(Base { name, fixture, tree })
}

/// Checks a volume: tune2fs refuses to rewrite checksums where the last mount is later than the
/// last check, by the second.
fn check_since_mount(image: &Path) {
    let e2fsck = tool("e2fsck").expect("asked for before");
    let checked = e2fsck.run(["-fy", image.to_str().expect("UTF-8")]);
    assert!(checked.status.success(), "{}: {checked:?}", image.display());
}

fn copy_of(base: &Base, scratch: &Scratch, name: &str) -> std::path::PathBuf {
    let copy = scratch.join(name);
    let done = Command::new("cp")
        .arg("--sparse=always")
        .args([base.fixture.image.path(), copy.clone()])
        .status();
    assert!(done.is_ok_and(|status| status.success()), "scratch space takes a copy");
    copy
}

/// The kernel shows the tree that was there before.
fn assert_mounts(base: &Base, image: &Path, what: &str) {
    let mount = LoopMount::new(image, "ro,noload").unwrap_or_else(|why| panic!("{what}: {why}"));
    assert_eq!(snapshot(mount.path()), base.tree, "{what}");
}

fn compare(base: &Base, list: &[&str]) {
    for words in list {
        let args: Vec<&str> = words.split_whitespace().collect();
        let what = format!("{}: {words}", base.name);
        let scratch = Scratch::new();
        let (ours, theirs) = (copy_of(base, &scratch, "ours"), copy_of(base, &scratch, "theirs"));
        let twin = tool("tune2fs").expect("asked for before");
        let answer = twin.run(args.iter().copied().chain([theirs.to_str().expect("UTF-8")]));
        let (is_done, said) = tuned(&ours, &args);
        // The twin does nothing then, and calls it a success.
        let is_for_resize2fs = text(&answer.stderr).contains("Please run `resize2fs");
        if is_for_resize2fs {
            assert!(!is_done && said.contains("resize2fs"), "{what}: {said}");
        }
        let is_expected = answer.status.success() && !is_for_resize2fs;
        assert_eq!(is_done, is_expected, "{what}: {said} {answer:?}");
        if !is_done {
            let same = Command::new("cmp").args([ours, base.fixture.image.path()]).status();
            assert!(same.is_ok_and(|status| status.success()), "{what}: bytes changed");
            continue;
        }
        let is_packed_later = [&answer.stdout, &answer.stderr]
            .into_iter()
            .any(|said| text(said).contains("e2fsck -fD"));
        // The twin, 1.47.0, counts each block of the journal that it removes as a whole cluster
        // that becomes free.
        let is_miscounted = base.name == "clusters" && *words == "-O ^has_journal";
        if is_miscounted {
            let theirs = theirs.to_str().expect("UTF-8");
            let found = tool("e2fsck").expect("asked for before").run(["-fn", theirs]);
            assert!(text(&found.stdout).contains("Free blocks count wrong"), "{what}: {found:?}");
        }
        let is_checked = is_packed_later || is_miscounted;
        if is_checked {
            // The hash seed decides whether a directory block has room for its checksum. Where it
            // has none the twin leaves the packing, and an unclean volume, to e2fsck.
            let e2fsck = tool("e2fsck").expect("asked for before");
            // Directories that are packed have fewer blocks: what was miscounted alone is not
            // packed.
            let option = if is_packed_later { "-fyD" } else { "-fy" };
            let packed = e2fsck.run([option, theirs.to_str().expect("UTF-8")]);
            assert!(packed.status.code().is_some_and(|code| code <= 1), "{what}: {packed:?}");
        }
        let (mut ours_now, mut theirs_now) = (fields(&ours), fields(&theirs));
        if is_checked {
            // Its check was at another time.
            for field in ["Last checked", "Mount count"] {
                ours_now.remove(field);
                theirs_now.remove(field);
            }
        }
        if words.contains("dir_index") || words.contains("metadata_csum") {
            // Directories that are packed again may take fewer blocks than with tune2fs.
            let free = [&mut ours_now, &mut theirs_now].map(|fields| {
                fields.remove("Free blocks").and_then(|free| free.parse::<u64>().ok())
            });
            assert!(free[0] >= free[1], "{what}: {free:?}");
        }
        assert_eq!(ours_now, theirs_now, "{what}");
        // Work is left for e2fsck, as the twin says too.
        if ["^filetype", "^large_file"].iter().any(|left| words.contains(left)) {
            continue;
        }
        let is_checked_later =
            [&answer.stdout, &answer.stderr].into_iter().any(|said| text(said).contains("e2fsck"));
        if words.contains("sparse_super") && is_checked_later {
            // The backups that are not needed any more are given back by it.
            let done =
                tool("e2fsck").expect("asked for").run(["-fy", ours.to_str().expect("UTF-8")]);
            assert!(done.status.code().is_some_and(|code| code <= 1), "{what}: {done:?}");
        }
        e2fsck_fn(&ours).unwrap_or_else(|found| panic!("{what}: {found}"));
        // Not every kernel is built with tables of letters.
        if !fields(&ours)["Filesystem features"].contains("casefold") {
            assert_mounts(base, &ours, &what);
        }
    }
}

fn needed() -> Option<&'static str> {
    if !is_root() {
        return Some("a loop mount needs root");
    }
    ["tune2fs", "mke2fs", "e2fsck", "dumpe2fs"].into_iter().find(|name| tool(name).is_none())
}

const DEFAULT: [&str; 2] = ["-t", "ext4"];

#[test]
fn fields_of_the_superblock_are_those_of_tune2fs() {
    if let Some(why) = needed() {
        return skipped(why);
    }
    let base = base("ext4", &DEFAULT).expect("mke2fs makes it");
    compare(
        &base,
        &[
            "-L hi",
            "-c 30 -C 5 -i 2w",
            "-c -1 -i 3m",
            "-c x",
            "-C -1 -i 0",
            "-m 7",
            "-m 1.5",
            "-m 51",
            "-r 1000",
            "-r 400000000",
            "-u daemon -g 33",
            "-u nosuchuser",
            "-e panic",
            "-e bogus",
            "-o debug,^acl",
            "-o journal_data_writeback,nobarrier",
            "-o ^user_xattr,+discard",
            "-o bogus",
            "-E hash_alg=tea,stride=16,stripe_width=32",
            "-E mount_opts=noatime,test_fs",
            "-E force_fsck",
            "-E clear_mmp",
            "-E encoding=utf8",
            "-E encoding_flags=strict",
            "-E bogus",
            "-M /mnt/x",
            "-T 20200102",
            "-T bogus",
            "-I 512",
            "-I 200",
            "-U 11111111-2222-3333-4444-555555555555",
            "-U clear",
            "-U bogus",
            "-U 11111111222233334444555555555555",
            "-j",
            // C's bases, the limits of counts, letters of either case.
            "-c 0x10 -C 010 -i 0x10",
            "-i 010d",
            "-c 16000 -C 16000",
            "-c 16001",
            "-C 16001",
            "-c 65535",
            "-o ACL,^USER_XATTR",
            "-o -acl",
            "-i -1",
            "-m -1",
            "-r -1",
            "-r 0x10",
            "-T 2020010203",
            "-T 20200102030405",
            "-E stride=0x10,stripe-width=64",
            "-E ^test_fs",
            "-M /mnt -L 0123456789abcdefXYZ",
        ],
    );
}

#[test]
fn features_of_an_ext4_volume_change_as_with_tune2fs() {
    if let Some(why) = needed() {
        return skipped(why);
    }
    let base = base("ext4", &DEFAULT).expect("mke2fs makes it");
    compare(
        &base,
        &[
            "-O ^has_journal",
            "-O ^dir_index",
            "-O ^metadata_csum",
            "-O metadata_csum_seed",
            "-O ^large_file",
            "-O ^huge_file",
            "-O ^dir_nlink,^extra_isize",
            "-O ^sparse_super",
            "-O quota",
            "-Q usrquota",
            "-O project",
            "-O orphan_file",
            "-E orphan_file_size=64",
            "-O ea_inode,large_dir,verity,stable_inodes",
            "-O ^ea_inode",
            "-O encrypt",
            "-O casefold",
            "-O resize_inode",
            "-O ^resize_inode",
            "-O ^filetype",
            "-O ^flex_bg",
            "-O ^extent",
            "-O ext_attr",
            "-O fast_commit",
            "-O read-only",
            "-O meta_bg",
            "-O bogus",
            "-O none",
        ],
    );
}

#[test]
fn features_of_an_ext2_volume_change_as_with_tune2fs() {
    if let Some(why) = needed() {
        return skipped(why);
    }
    let base = base("ext2", &["-t", "ext2", "-b", "1024"]).expect("mke2fs makes it");
    compare(
        &base,
        &[
            "-j",
            "-J size=8",
            "-J size=900",
            "-J size=8 -O fast_commit,has_journal",
            "-O uninit_bg",
            "-O metadata_csum",
            "-O metadata_csum_seed",
            "-O extent,huge_file,dir_nlink,extra_isize,flex_bg",
            "-O orphan_file",
            "-O ^dir_index,orphan_file",
            "-Q usrquota,prjquota",
            "-Q bogus",
        ],
    );
}

/// One option says how another is done.
#[test]
fn options_that_go_together_do_what_tune2fs_does() {
    if let Some(why) = needed() {
        return skipped(why);
    }
    let plain = base("ext4", &DEFAULT).expect("mke2fs makes it");
    compare(
        &plain,
        &[
            "-O ^has_journal -j",
            "-O ^has_journal -J size=8",
            "-O project,quota -Q prjquota",
            "-O quota -Q usrquota",
            "-O quota -Q ^usrquota",
            "-Q usrquota,^usrquota",
            "-Q usrquota -O ^quota",
            "-E encoding=utf8,encoding_flags=strict -L folded",
        ],
    );
    let stable = base("stable", &["-t", "ext4", "-O", "orphan_file,stable_inodes"]);
    compare(
        &stable.expect("mke2fs makes it"),
        &[
            "-E orphan_file_size=64",
            "-O orphan_file -E orphan_file_size=8",
            "-E orphan_file_size=x",
            "-O ^metadata_csum -U random",
        ],
    );
    let small = base("small", &["-t", "ext2", "-b", "1024", "-I", "128"]);
    compare(&small.expect("mke2fs makes it"), &["-Q usrquota,grpquota,prjquota", "-O project"]);
}

/// A refused change leaves the volume as it was: an existing encoding stays.
#[test]
fn an_encoding_is_set_once() {
    let Ok(image) = TempImage::by_mke2fs(64 << 20, &DEFAULT) else { return skipped("mke2fs") };
    let (is_done, said) = tuned(&image.path(), &["-E", "encoding=utf8"]);
    assert!(is_done, "{said}");
    let before = std::fs::read(image.path()).expect("readable");
    let (is_done, said) = tuned(&image.path(), &["-E", "encoding=utf8,encoding_flags=strict"]);
    assert!(!is_done && said.contains("encoding"), "{said}");
    assert_eq!(std::fs::read(image.path()).expect("readable"), before);
}

/// Every feature that tune2fs(8) names, and those that it refuses.
const FEATURES: [&str; 32] = [
    "64bit",
    "bigalloc",
    "casefold",
    "dir_index",
    "dir_nlink",
    "dir_prealloc",
    "ea_inode",
    "encrypt",
    "ext_attr",
    "extent",
    "extra_isize",
    "fast_commit",
    "filetype",
    "flex_bg",
    "has_journal",
    "huge_file",
    "inline_data",
    "large_dir",
    "large_file",
    "meta_bg",
    "metadata_csum",
    "metadata_csum_seed",
    "mmp",
    "orphan_file",
    "project",
    "quota",
    "read-only",
    "resize_inode",
    "sparse_super",
    "sparse_super2",
    "stable_inodes",
    "uninit_bg",
];

/// Volumes for each feature: hardly any, all that mke2fs sets with some more (but quota and
/// casefold, which not every kernel has), clusters.
const BASES: [(&str, &[&str]); 4] = [
    ("bare", &["-t", "ext2", "-I", "256", "-O", "none,filetype"]),
    ("rev 0", &["-t", "ext2", "-r", "0", "-b", "1024"]),
    ("rich", &["-t", "ext4", "-O", "ea_inode,metadata_csum_seed,large_dir"]),
    ("clusters", &["-t", "ext4", "-C", "16384", "-O", "bigalloc,^resize_inode"]),
];

/// Sets and clears each of `features` on a base.
fn try_features(at: usize, features: &[&str]) {
    if let Some(why) = needed() {
        return skipped(why);
    }
    let (name, args) = BASES[at];
    let base = base(name, args).expect("mke2fs makes it");
    let words: Vec<String> = features
        .iter()
        .flat_map(|feature| [format!("-O {feature}"), format!("-O ^{feature}")])
        .collect();
    compare(&base, &words.iter().map(String::as_str).collect::<Vec<_>>());
}

/// All of them where that is asked for, else every fourth.
fn try_base(at: usize) {
    let few: Vec<&str> = FEATURES.iter().copied().skip(at).step_by(BASES.len()).collect();
    let all = std::env::var_os("EXTANT_SLOW").is_some();
    try_features(at, if all { &FEATURES } else { &few });
}

#[test]
fn features_of_a_bare_volume_change_as_with_tune2fs() {
    try_base(0);
}

#[test]
fn features_of_a_volume_of_revision_0_change_as_with_tune2fs() {
    try_base(1);
}

#[test]
fn features_of_a_rich_volume_change_as_with_tune2fs() {
    try_base(2);
}

#[test]
fn features_of_a_volume_with_clusters_change_as_with_tune2fs() {
    try_base(3);
}

/// The other way round: what a volume has is taken off. tune2fs leaves the checksums of an orphan
/// file wrong, and an orphan file without a journal, so these are judged by e2fsck and the kernel
/// alone.
#[test]
fn what_was_switched_on_is_switched_off_again() {
    if let Some(why) = needed() {
        return skipped(why);
    }
    let features = "orphan_file,fast_commit,ea_inode";
    let base = base("all", &["-t", "ext4", "-O", features]).expect("mke2fs makes it");
    let scratch = Scratch::new();
    let steps = [
        "-O quota,project",
        "-U 11111111-2222-3333-4444-555555555555",
        "-O ^metadata_csum",
        "-O ^uninit_bg",
        "-O metadata_csum,metadata_csum_seed",
        "-U random",
        "-O ^metadata_csum_seed",
        "-E encoding=utf8",
        "-O ^casefold,^fast_commit",
        "-Q ^usrquota",
        "-O ^quota,^project",
        "-O ^has_journal",
        "-O mmp -E mmp_update_interval=1",
        "-O ^mmp",
        "-J size=8 -O orphan_file",
        "-O ^dir_index,^metadata_csum,^uninit_bg",
        "-O uninit_bg,dir_index",
        "-O quota -E mmp_update_interval=9",
    ];
    let image = copy_of(&base, &scratch, "image");
    for words in steps {
        let args: Vec<&str> = words.split_whitespace().collect();
        let (is_done, said) = tuned(&image, &args);
        assert!(is_done, "{words}: {said}");
        e2fsck_fn(&image).unwrap_or_else(|found| panic!("{words}: {found}"));
        if !words.contains("encoding") {
            assert_mounts(&base, &image, words);
        }
    }
    let features = &fields(&image)["Filesystem features"];
    assert!(!features.contains("orphan_file") || features.contains("has_journal"), "{features}");
}

/// Values of attributes in inodes of their own are hashed from the UUID.
#[test]
fn a_new_uuid_reaches_the_hashes_of_values_with_inodes_of_their_own() {
    if let Some(why) = needed() {
        return skipped(why);
    }
    let image = TempImage::by_mke2fs(64 << 20, &["-t", "ext4", "-O", "ea_inode"]).expect("made");
    let file = "/file";
    {
        let mount = LoopMount::new(&image.path(), "").expect("it mounts");
        let path = mount.path().join(&file[1..]);
        std::fs::write(&path, b"x").expect("room");
        let value = "v".repeat(60_000);
        let set =
            Command::new("setfattr").args(["-n", "user.large", "-v", &value]).arg(&path).status();
        if !set.is_ok_and(|status| status.success()) {
            drop(mount);
            return skipped("setfattr");
        }
        mount.unmount().expect("it unmounts");
    }
    check_since_mount(&image.path());
    for words in ["-U random", "-O quota", "-O ^metadata_csum", "-U time"] {
        let args: Vec<&str> = words.split_whitespace().collect();
        let (is_done, said) = tuned(&image.path(), &args);
        assert!(is_done, "{words}: {said}");
        e2fsck_fn(&image.path()).unwrap_or_else(|found| panic!("{words}: {found}"));
    }
}

#[test]
fn the_list_is_that_of_tune2fs() {
    let Some(twin) = tool("tune2fs") else { return skipped("tune2fs") };
    let Ok(image) = TempImage::by_mke2fs(64 << 20, &DEFAULT) else { return skipped("mke2fs") };
    let path = image.path();
    let args = ["-l", path.to_str().expect("UTF-8")];
    let theirs = twin.text(args).expect("tune2fs lists it");
    let theirs: Vec<_> = theirs.lines().skip(1).collect();
    let ours = extant(["tune", args[0], args[1]]);
    let ours = text(&ours.stdout);
    assert_eq!(ours.lines().collect::<Vec<_>>(), theirs);
}

#[test]
fn an_undo_file_puts_everything_back() {
    let Ok(image) = TempImage::by_mke2fs(64 << 20, &DEFAULT) else { return skipped("mke2fs") };
    let (path, before) = (image.path(), std::fs::read(image.path()).expect("readable"));
    let scratch = Scratch::new();
    let undo = scratch.join("undo");
    let undo = undo.to_str().expect("UTF-8");
    let (is_done, said) = tuned(&path, &["-z", undo, "-O", "^metadata_csum,quota", "-L", "new"]);
    assert!(is_done, "{said}");
    assert_ne!(std::fs::read(&path).expect("readable"), before);
    let output = extant(["undo", undo, path.to_str().expect("UTF-8")]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(std::fs::read(&path).expect("readable"), before);
}

/// With -f an image that changed since is put back all the same, with a warning.
#[test]
fn a_forced_undo_warns_of_an_image_that_changed_since() {
    let Ok(image) = TempImage::by_mke2fs(64 << 20, &DEFAULT) else { return skipped("mke2fs") };
    let (path, before) = (image.path(), std::fs::read(image.path()).expect("readable"));
    let scratch = Scratch::new();
    let (undo, name) = (scratch.join("undo"), path.to_str().expect("UTF-8"));
    let undo = undo.to_str().expect("UTF-8");
    assert!(tuned(&path, &["-z", undo, "-L", "new"]).0);
    assert!(tuned(&path, &["-L", "newer"]).0);
    let output = extant(["undo", undo, name]);
    let why = "the undo file does not belong to this image: modified since, or another image";
    let refused = format!("extant undo: {undo}: {why}\n");
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(1), refused));
    let output = extant(["undo", "-f", undo, name]);
    let warned = format!("extant undo: {undo}: {why}: ignored because of -f\n");
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), warned));
    assert_eq!(std::fs::read(&path).expect("readable"), before);
    let output = extant(["undo", "-f", undo, name]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
}

/// A file that is no undo file is not overwritten.
#[test]
fn an_undo_file_is_not_overwritten() {
    let Ok(image) = TempImage::by_mke2fs(4 << 20, &DEFAULT) else { return skipped("mke2fs") };
    let scratch = Scratch::new();
    let undo = scratch.join("undo");
    std::fs::write(&undo, b"kept").expect("room");
    let (name, image) = (undo.to_str().expect("UTF-8"), image.path());
    let image = image.to_str().expect("UTF-8");
    for (command, words, code) in [("fsck", vec!["-fy"], 8), ("tune", vec!["-L", "new"], 1)] {
        let words = [&[command, "-z", name][..], &words, &[image]].concat();
        let output = extant(words);
        let expected = format!("extant {command}: {name}: not an undo file: too short\n");
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(code), expected));
        assert_eq!(std::fs::read(&undo).expect("readable"), b"kept");
    }
}

/// A command that failed leaves an undo file without records; e2undo ends with 1 there.
#[test]
fn undoing_with_an_empty_undo_file_is_a_failure() {
    let scratch = Scratch::new();
    let (image, undo) = (scratch.join("image"), scratch.join("undo"));
    std::fs::write(&image, vec![0; 1 << 20]).expect("written");
    let (image, undo) = (image.to_str().expect("UTF-8"), undo.to_str().expect("UTF-8"));
    assert_eq!(extant(["fsck", "-y", "-z", undo, image]).status.code(), Some(8));
    let output = extant(["undo", undo, image]);
    let expected = format!("extant undo: {undo}: undo file is empty: nothing is undone\n");
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(1), expected));
}
