//! Healthy volumes of many kinds: nothing is found in them.

mod common;

use common::{findings, fsck, scan};
use extant_check::AutoPolicy;
use extant_testkit::{LoopMount, Scratch, TempImage, is_root, skip, tool};
use std::path::Path;

/// Option sets of mke2fs, all filled from a directory by mke2fs itself.
const BY_MKE2FS: &[&[&str]] = &[
    &["-t", "ext2", "-b", "1024"],
    &["-t", "ext2", "-b", "4096", "-O", "^dir_index,^resize_inode"],
    &["-t", "ext2", "-r", "0", "-b", "1024"],
    &["-t", "ext3", "-b", "1024", "-J", "size=4"],
    &["-t", "ext4", "-b", "1024"],
    &["-t", "ext4", "-b", "4096"],
    &["-t", "ext4", "-b", "2048", "-I", "512"],
    &["-t", "ext4", "-I", "128", "-O", "^metadata_csum,uninit_bg"],
    &["-t", "ext4", "-O", "^metadata_csum,^uninit_bg"],
    &["-t", "ext4", "-O", "inline_data"],
    &["-t", "ext4", "-O", "inline_data", "-I", "1024"],
    &["-t", "ext4", "-O", "bigalloc", "-C", "16384"],
    &["-t", "ext4", "-O", "meta_bg,^resize_inode", "-b", "1024", "-g", "1024"],
    &["-t", "ext4", "-O", "ea_inode"],
    &["-t", "ext4", "-O", "quota,project", "-E", "quotatype=usrquota:grpquota:prjquota"],
    &["-t", "ext4", "-O", "casefold,encrypt,verity"],
    &["-t", "ext4", "-O", "^64bit,^flex_bg,sparse_super2"],
    &["-t", "ext4", "-O", "mmp,large_dir,metadata_csum_seed"],
    &["-t", "ext4", "-O", "orphan_file,fast_commit"],
    &["-t", "ext4", "-b", "1024", "-G", "4", "-g", "2048", "-N", "4096"],
    &["-t", "ext4", "-E", "packed_meta_blocks=1"],
    &["-t", "ext4", "-O", "^extent,^64bit"],
    &["-t", "ext4", "-O", "^filetype"],
    &["-t", "ext4", "-o", "hurd", "-O", "^filetype"],
    &["-t", "ext2", "-r", "0", "-b", "4096"],
    &["-t", "ext4", "-O", "^has_journal,^sparse_super,^resize_inode"],
];

/// A tree with what makes maps and directories differ.
fn grow(root: &Path) {
    let small = extant_testkit::tree::Options { block: 1024, ..Default::default() };
    extant_testkit::tree::grow(&root.join("tree"), 11, &small).expect("the tree grows");
    let many = root.join("many");
    std::fs::create_dir(&many).expect("a directory");
    for number in 0..700 {
        let name = format!("{number:05} a name that is long enough to fill blocks quickly");
        std::fs::write(many.join(name), b"").expect("a file");
    }
    // A file of a hole for each block: many extents, or indirect blocks.
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::create(root.join("holes")).expect("a file");
    for block in 0..400_u64 {
        file.write_all_at(b"data", block * 8192 + 4096).expect("written");
    }
    std::fs::write(root.join("large"), vec![7; 3 << 20]).expect("a file");
    for (length, name) in [(10, "short"), (59, "edge"), (60, "slow"), (200, "long")] {
        std::os::unix::fs::symlink("x".repeat(length), root.join(name)).expect("a link");
    }
    std::fs::hard_link(root.join("large"), root.join("again")).expect("a hard link");
}

#[test]
fn volumes_by_mke2fs_have_no_findings() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    let scratch = Scratch::new();
    let source = scratch.join("source");
    std::fs::create_dir(&source).expect("a directory");
    grow(&source);
    let source = source.to_str().expect("scratch paths are UTF-8");
    let mut wrong = Vec::new();
    for options in BY_MKE2FS {
        let mut args = options.to_vec();
        args.extend(["-d", source]);
        let image = match TempImage::by_mke2fs(64 << 20, &args) {
            Ok(image) => image,
            Err(why) => {
                extant_testkit::skipped(format_args!("{options:?}: {why}"));
                continue;
            }
        };
        if options.iter().any(|option| option.contains("quota"))
            && let Some(e2fsck) = tool("e2fsck")
        {
            // mke2fs writes quota files before it copies the tree.
            e2fsck.run(["-fy", image.path().to_str().expect("scratch paths are UTF-8")]);
        }
        for answers in [AutoPolicy::No, AutoPolicy::Yes] {
            match fsck(&image.path(), &common::options(), answers) {
                Ok(report) if report.findings.is_empty() => {}
                Ok(report) => {
                    let e2fsck = extant_testkit::e2fsck_fn(&image.path());
                    wrong.push(format!("{options:?}: {}e2fsck: {e2fsck:?}", findings(&report)));
                }
                Err(error) => wrong.push(format!("{options:?}: {error}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Options of mke2fs, and the volume's size in MiB: layouts whose tables lie elsewhere than by the
/// default rules, as they are or once they were shrunk.
const LAYOUTS: &[(&[&str], u64)] = &[
    (&["-t", "ext4", "-b", "4096", "-O", "^metadata_csum"], 300),
    (&["-t", "ext4", "-b", "4096", "-O", "^metadata_csum,^uninit_bg"], 300),
    (&["-t", "ext4", "-b", "4096", "-O", "^metadata_csum,^uninit_bg,^resize_inode"], 300),
    (&["-t", "ext4", "-b", "4096", "-O", "^metadata_csum,inline_data", "-I", "1024"], 300),
    (&["-t", "ext4", "-b", "4096"], 300),
    (&["-t", "ext4", "-b", "4096", "-G", "1", "-O", "^metadata_csum"], 300),
    (&["-t", "ext4", "-b", "4096", "-G", "64", "-O", "^metadata_csum,^uninit_bg"], 300),
    (&["-t", "ext4", "-b", "1024", "-G", "2", "-O", "^metadata_csum"], 64),
    (&["-t", "ext4", "-b", "1024", "-O", "^metadata_csum", "-J", "size=1"], 64),
    (&["-t", "ext4", "-b", "1024", "-J", "size=4"], 64),
    (&["-t", "ext4", "-b", "1024", "-g", "2048", "-O", "^metadata_csum,^uninit_bg"], 64),
    (&["-t", "ext4", "-b", "4096", "-I", "128", "-O", "^metadata_csum,^has_journal"], 300),
    (&["-t", "ext3", "-b", "4096"], 300),
    (&["-t", "ext3", "-b", "1024", "-J", "size=1"], 64),
    (&["-t", "ext2", "-b", "4096", "-O", "flex_bg"], 300),
    (&["-t", "ext2", "-b", "4096", "-E", "stride=7"], 300),
    (&["-t", "ext2", "-b", "1024", "-O", "^sparse_super,^resize_inode"], 64),
    (&["-t", "ext4", "-O", "^metadata_csum", "-E", "packed_meta_blocks=1"], 64),
    (&["-t", "ext4", "-O", "^metadata_csum,^uninit_bg", "-E", "packed_meta_blocks=1"], 300),
    (&["-t", "ext4", "-b", "4096", "-E", "packed_meta_blocks=1"], 64),
    (&["-t", "ext2", "-b", "4096", "-O", "flex_bg", "-E", "packed_meta_blocks=1"], 64),
    (&["-t", "ext2", "-b", "1024", "-O", "flex_bg", "-E", "packed_meta_blocks=1"], 64),
    (&["-t", "ext4", "-O", "^metadata_csum,sparse_super2,^resize_inode", "-b", "4096"], 300),
    (
        &[
            "-t",
            "ext4",
            "-b",
            "4096",
            "-O",
            "^metadata_csum,^uninit_bg,sparse_super2,^resize_inode",
            "-E",
            "num_backup_sb=0,packed_meta_blocks=1",
        ],
        300,
    ),
];

/// Sound volumes without damage stay as they are, wherever their tables lie.
#[test]
fn sound_volumes_of_many_layouts_stay_as_they_are() {
    let Some(resize2fs) = tool("resize2fs").filter(|_| tool("mke2fs").is_some()) else {
        skip!("mke2fs and resize2fs are not installed");
    };
    let scratch = Scratch::new();
    let source = scratch.join("source");
    std::fs::create_dir_all(source.join("sub/inner")).expect("a directory");
    for number in 0..1500 {
        std::fs::write(source.join(format!("f{number}")), format!("file {number}\n"))
            .expect("a file");
    }
    let source = source.to_str().expect("scratch paths are UTF-8");
    let (mut wrong, mut shrunk) = (Vec::new(), 0);
    for (options, size) in LAYOUTS {
        let mut args = options.to_vec();
        args.extend(["-d", source]);
        let image = match TempImage::by_mke2fs(size << 20, &args) {
            Ok(image) => image,
            Err(why) => {
                extant_testkit::skipped(format_args!("{options:?}: {why}"));
                continue;
            }
        };
        wrong.extend(changes(&image.path()).map(|text| format!("{options:?}: {text}")));
        let done = resize2fs.command().args(["-f", "-M"]).arg(image.path()).output();
        if done.is_ok_and(|done| done.status.success()) {
            shrunk += 1;
            wrong.extend(changes(&image.path()).map(|text| format!("{options:?} shrunk: {text}")));
        }
    }
    assert!(wrong.is_empty(), "{}: {}", wrong.len(), wrong.join("\n"));
    assert!(shrunk > LAYOUTS.len() / 2, "{shrunk} volumes were shrunk");
}

/// Findings of a check without and with repairs, or a byte that these changed outside of the
/// superblock.
fn changes(image: &Path) -> Option<String> {
    let before = std::fs::read(image).expect("it is there");
    for answers in [AutoPolicy::No, AutoPolicy::Yes] {
        match fsck(image, &common::options(), answers) {
            Ok(report) if report.findings.is_empty() => {}
            Ok(report) => {
                let e2fsck = extant_testkit::e2fsck_fn(image);
                let found: String = findings(&report).chars().take(2000).collect();
                return Some(format!("{answers:?}: {found}e2fsck: {e2fsck:?}"));
            }
            Err(error) => return Some(format!("{answers:?}: {error}")),
        }
    }
    let after = std::fs::read(image).expect("it is there");
    let is_same = before[..1024] == after[..1024] && before[2048..] == after[2048..];
    if is_same {
        return None;
    }
    let other = (2048..before.len()).find(|at| before[*at] != after[*at]);
    Some(format!("a byte is changed, after the superblock at {other:?}"))
}

/// Filled by the kernel: hashed directories of several levels, deep extent trees, unwritten
/// extents, attributes.
#[test]
fn volumes_by_the_kernel_have_no_findings() {
    if !is_root() {
        skip!("a loop mount needs root");
    }
    let sets: [&[&str]; 5] = [
        &["-t", "ext4", "-b", "1024", "-N", "40000"],
        &["-t", "ext4", "-b", "4096", "-N", "40000"],
        &["-t", "ext3", "-b", "1024", "-N", "40000"],
        &["-t", "ext4", "-O", "inline_data,bigalloc", "-C", "65536", "-N", "40000"],
        &["-t", "ext4", "-O", "^metadata_csum,uninit_bg,dir_nlink", "-N", "40000"],
    ];
    let mut wrong = Vec::new();
    for options in sets {
        let Ok(image) = TempImage::by_mke2fs(256 << 20, options) else { continue };
        let mount = match LoopMount::new(&image.path(), "rw") {
            Ok(mount) => mount,
            Err(why) => {
                extant_testkit::skipped(format_args!("{options:?}: {why}"));
                continue;
            }
        };
        grow(mount.path());
        let deep = mount.path().join("deep");
        std::fs::create_dir(&deep).expect("a directory");
        for number in 0..20_000 {
            let name = format!("{number:06} another name, longer than most names of files are");
            std::fs::write(deep.join(name), b"").expect("a file");
        }
        for number in (0..20_000).step_by(3) {
            let name = format!("{number:06} another name, longer than most names of files are");
            std::fs::remove_file(deep.join(name)).expect("removed");
        }
        mount.unmount().expect("unmounts");
        match scan(&image.path()) {
            Ok(report) if report.findings.is_empty() => {}
            Ok(report) => {
                let e2fsck = extant_testkit::e2fsck_fn(&image.path());
                wrong.push(format!("{options:?}: {}e2fsck: {e2fsck:?}", findings(&report)));
            }
            Err(error) => wrong.push(format!("{options:?}: {error}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// e2fsck 1.47.0 sets the extents flag of such a file, and its contents are lost.
#[test]
fn an_inline_file_that_begins_as_an_extent_map_has_no_findings() {
    if !is_root() {
        skip!("a loop mount needs root");
    }
    let image = match TempImage::by_mke2fs(16 << 20, &["-t", "ext4", "-O", "inline_data"]) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let mount = match LoopMount::new(&image.path(), "rw") {
        Ok(mount) => mount,
        Err(why) => skip!("no loop mount here: {why}"),
    };
    // One extent of a root with room for four: logical block 0 lies in block 2048.
    let map = [0x0001_f30a_u32, 4, 0, 0, 1, 2048].map(u32::to_le_bytes).concat();
    std::fs::write(mount.path().join("file"), &map).expect("a file");
    mount.unmount().expect("unmounts");
    let report = scan(&image.path()).expect("it is scanned");
    assert!(report.findings.is_empty(), "{}", findings(&report));
    if let Some(e2fsck) = tool("e2fsck") {
        let output = e2fsck.run(["-fn", image.path().to_str().expect("scratch paths are UTF-8")]);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("Inode 12 missing EXTENT_FL, but is in extents format"), "{said}");
    }
}

/// The same volume by one thread and by many: the same findings, in the same order.
#[test]
fn findings_do_not_depend_on_threads() {
    let Some(corpus) = extant_testkit::corpora() else { skip!("no corpora here") };
    for case in ["f_dup", "f_h_reindex", "f_expand", "f_lotsbad"] {
        let packed = corpus.join(format!("fsck-images/{case}.img.gz"));
        let image = TempImage::gunzipped(&packed).expect("unpacks");
        let scan_with = |threads| {
            let store =
                extant_check::Store::open(common::open(&image.path(), false)).expect("opens");
            let options = extant_check::CheckOptions { threads, ..Default::default() };
            extant_check::scan(&store, &options).expect("scans").findings
        };
        let by_one = scan_with(1);
        assert!(!by_one.is_empty(), "{case}");
        for threads in [2, 5] {
            assert_eq!(by_one, scan_with(threads), "{case} by {threads} threads");
        }
    }
}
