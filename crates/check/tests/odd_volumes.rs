//! Healthy volumes of unusual kinds: resized by resize2fs, mounted or not; indexes of three levels;
//! lists of bad blocks; blocks of 64 KiB, and changed by tune2fs. If `e2fsck -fn` finds nothing,
//! neither do we.

mod common;

use common::{findings, fsck};
use extant_check::{AutoPolicy, CheckOptions, Code};
use extant_testkit::{
    LoopMount, Scratch, TempImage, copied, debugfs, e2fsck_fn, is_root, skip, skipped, tool,
};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

fn is_missing(names: &[&str]) -> bool {
    names.iter().any(|name| tool(name).is_none())
}

/// A tree to fill volumes with.
fn source(scratch: &Scratch) -> PathBuf {
    let source = scratch.join("source");
    let small = extant_testkit::tree::Options {
        block: 1024,
        many: 300,
        largest: 200_000,
        ..Default::default()
    };
    extant_testkit::tree::grow(&source, 5, &small).expect("the tree grows");
    source
}

/// Makes a tree with mke2fs, given options in one string; a failure is reported.
fn made(bytes: u64, options: &str, source: &Path) -> Option<TempImage> {
    let mut args: Vec<&str> = options.split_whitespace().collect();
    args.extend(["-d", source.to_str().expect("scratch paths are UTF-8")]);
    let made = TempImage::by_mke2fs(bytes, &args);
    made.inspect_err(|why| skipped(format_args!("{options}: {why}"))).ok()
}

fn grow_file(image: &Path, bytes: u64) {
    let file = File::options().write(true).open(image).expect("it is there");
    file.set_len(bytes).expect("a sparse file");
}

/// Runs a tool on an image, which is inserted between the words and a size; returns its error
/// output if it failed.
fn run(name: &str, words: &str, image: &Path, size: &str) -> Result<(), String> {
    let tool = tool(name).ok_or_else(|| format!("{name} is not installed"))?;
    let mut args: Vec<&OsStr> = words.split_whitespace().map(OsStr::new).collect();
    args.push(image.as_os_str());
    args.extend(size.split_whitespace().map(OsStr::new));
    tool.text(args).map(drop)
}

/// Compares our findings with e2fsck's: of a scan, of one in parts, and of a check that may write.
/// e2fsck first repairs flaws that a tool leaves, free counts mostly.
fn check_image(name: &str, image: &Path, wrong: &mut Vec<String>) {
    if e2fsck_fn(image).is_err() {
        drop(run("e2fsck", "-fy", image, ""));
    }
    if let Err(said) = e2fsck_fn(image) {
        let said = said.lines().filter(|line| !line.is_empty()).nth(1);
        skipped(format_args!("{name}: e2fsck finds: {}", said.unwrap_or_default()));
        return;
    }
    let parts = CheckOptions { in_parts: true, ..common::options() };
    let runs = [
        ("a look", common::options(), AutoPolicy::No),
        ("a look in parts", parts, AutoPolicy::No),
        ("a check", common::options(), AutoPolicy::Yes),
    ];
    for (how, options, answers) in runs {
        match fsck(image, &options, answers) {
            // A copy in the superblock that only who writes renews, as e2fsck does.
            Ok(report)
                if report.findings.iter().all(|it| it.finding.code == Code::JournalBackup) => {}
            Ok(report) => wrong.push(format!("{name}, {how}:\n{}", findings(&report))),
            Err(error) => wrong.push(format!("{name}, {how}: {error}")),
        }
    }
    if let Err(said) = e2fsck_fn(image) {
        wrong.push(format!("{name}, after a check: {said}"));
    }
}

fn fill(root: &Path, name: &str) -> std::io::Result<()> {
    let dir = root.join(name);
    std::fs::create_dir(&dir)?;
    for number in 0..300 {
        let file = dir.join(format!("{number:03} a name that is long enough to fill blocks"));
        std::fs::write(file, vec![7; number * 50])?;
    }
    let holes = File::create(dir.join("holes"))?;
    for block in 0..200_u64 {
        holes.write_all_at(b"data", block * 16_384)?;
    }
    Ok(())
}

#[test]
fn volumes_that_were_resized_have_no_findings() {
    if is_missing(&["mke2fs", "e2fsck", "resize2fs"]) {
        skip!("mke2fs, e2fsck and resize2fs are not all installed");
    }
    let scratch = Scratch::new();
    let source = source(&scratch);
    let mut wrong = Vec::new();
    for options in [
        "-t ext4",
        "-t ext4 -O ^resize_inode",
        "-t ext4 -O meta_bg,^resize_inode",
        "-t ext4 -O ^flex_bg",
        "-t ext4 -O sparse_super2",
        "-t ext4 -O bigalloc,^resize_inode",
        "-t ext4 -O ^metadata_csum,uninit_bg",
        "-t ext4 -b 1024 -O ^64bit",
        "-t ext3 -b 1024 -g 2048",
        "-t ext4 -b 4096",
        "-t ext4 -b 65536",
    ] {
        let Some(image) = made(96 << 20, options, &source) else { continue };
        let path = image.path();
        grow_file(&path, 900 << 20);
        // One after the other: to the file's size, to a given one, 64bit on and off, as small as
        // can be, and large again.
        let steps =
            [("-f", ""), ("-f", "130M"), ("-f -b", ""), ("-f -s", ""), ("-f -M", ""), ("-f", "")];
        for (step, (words, size)) in steps.into_iter().enumerate() {
            let name = format!("{options}, step {step}: {words} {size}");
            match run("resize2fs", words, &path, size) {
                Ok(()) => check_image(&name, &path, &mut wrong),
                Err(why) => skipped(format_args!("{name}: {}", why.trim_end())),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The loop device that is mounted somewhere.
fn device_of(mount: &Path) -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let device = fields.next()?;
        (Path::new(fields.next()?) == mount).then(|| device.into())
    })
}

/// A volume of 64 MiB that the kernel grows in two steps.
fn grown_online(options: &str) -> Result<TempImage, String> {
    let image = TempImage::of_size(500 << 20).map_err(|error| error.to_string())?;
    run("mke2fs", &format!("-q -F {options}"), &image.path(), "64M")?;
    let mount = LoopMount::new(&image.path(), "")?;
    let text = |error: std::io::Error| error.to_string();
    fill(mount.path(), "before").map_err(text)?;
    let device = device_of(mount.path()).ok_or("it is not mounted")?;
    for size in ["200M", ""] {
        run("resize2fs", "", &device, size)?;
    }
    fill(mount.path(), "after").map_err(text)?;
    mount.unmount()?;
    Ok(image)
}

/// The kernel adds groups itself. It wants more than root: CAP_SYS_RESOURCE.
#[test]
fn volumes_that_grew_while_mounted_have_no_findings() {
    if is_missing(&["mke2fs", "e2fsck", "resize2fs"]) || !is_root() {
        skip!("a loop mount needs root, and mke2fs, e2fsck and resize2fs must be installed");
    }
    let mut wrong = Vec::new();
    for options in [
        "-t ext4",
        "-t ext4 -b 1024 -O ^resize_inode",
        "-t ext4 -b 1024 -O meta_bg,^resize_inode",
        "-t ext4 -O ^flex_bg",
        "-t ext4 -O bigalloc,^resize_inode",
        "-t ext3 -b 1024 -g 2048",
    ] {
        match grown_online(options) {
            Ok(image) => check_image(options, &image.path(), &mut wrong),
            Err(why) => skipped(format_args!("{options}: {}", why.lines().last().unwrap_or("?"))),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Blocks of 1 KiB that hold few names each: what the index grows by a level for.
const NAMES: usize = 45_000;

fn long_name(number: usize) -> String {
    format!("{number:06} {}", "x".repeat(240))
}

/// Levels of a directory's index below its root.
fn levels_below_root(image: &Path, dir: &str) -> u8 {
    const INDIRECT_LEVELS: u64 = 0x1e;
    let block = debugfs(image, &format!("bmap {dir} 0")).expect("it has a first block");
    let block: u64 = block.trim().parse().expect("a number");
    let mut level = [0];
    let file = File::open(image).expect("it is there");
    file.read_exact_at(&mut level, block * 1024 + INDIRECT_LEVELS).expect("reads");
    level[0]
}

#[test]
fn indexes_of_three_levels_have_no_findings() {
    if is_missing(&["mke2fs", "e2fsck", "debugfs"]) || !is_root() {
        skip!("a loop mount needs root, and mke2fs, e2fsck and debugfs must be installed");
    }
    let options = ["-t", "ext4", "-b", "1024", "-O", "large_dir", "-N", "2000"];
    let image = TempImage::by_mke2fs(160 << 20, &options).expect("mke2fs makes it");
    let path = image.path();
    let mount = match LoopMount::new(&path, "") {
        Ok(mount) => mount,
        Err(why) => skip!("{why}"),
    };
    let dir = mount.path().join("many");
    std::fs::create_dir(&dir).expect("a directory");
    let file = mount.path().join("file");
    std::fs::write(&file, b"of many names").expect("a file");
    for number in 0..NAMES {
        std::fs::hard_link(&file, dir.join(long_name(number))).expect("a link");
    }
    mount.unmount().expect("unmounts");
    let mut wrong = Vec::new();
    assert_eq!(levels_below_root(&path, "/many"), 2);
    check_image("three levels", &path, &mut wrong);

    let mount = LoopMount::new(&path, "").expect("mounts again");
    let dir = mount.path().join("many");
    for number in (0..NAMES).filter(|number| number % 50 != 0) {
        std::fs::remove_file(dir.join(long_name(number))).expect("removed");
    }
    mount.unmount().expect("unmounts");
    check_image("three levels, almost empty", &path, &mut wrong);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn volumes_with_bad_blocks_have_no_findings() {
    if is_missing(&["mke2fs", "e2fsck", "resize2fs"]) {
        skip!("mke2fs, e2fsck and resize2fs are not all installed");
    }
    let scratch = Scratch::new();
    let source = source(&scratch);
    // More than an inode lists by itself; with runs, and some where tables could lie.
    let (list, more) = (scratch.join("list"), scratch.join("more"));
    let blocks = (5000..5004).chain([9000, 12_345, 20_000]).chain((13_000..13_700).step_by(2));
    std::fs::write(&list, lines(blocks)).expect("a list");
    std::fs::write(&more, lines(17_000..17_040)).expect("a list");
    let mut wrong = Vec::new();
    for options in [
        "-t ext4",
        "-t ext2 -b 1024",
        "-t ext4 -b 1024 -g 1024 -O meta_bg,^resize_inode",
        "-t ext4 -O ^flex_bg",
        "-t ext3 -b 1024 -g 4096",
        "-t ext4 -O bigalloc,^resize_inode -C 16384",
        "-t ext4 -b 1024 -O ^metadata_csum,uninit_bg",
    ] {
        let list = format!("{options} -l {}", list.display());
        let Some(image) = made(96 << 20, &list, &source) else { continue };
        let path = image.path();
        check_image(&format!("{options}, bad blocks"), &path, &mut wrong);
        // It exits 1 where it changed something.
        let words = format!("-fy -l {}", more.display());
        drop(run("e2fsck", &words, &path, ""));
        check_image(&format!("{options}, more bad blocks"), &path, &mut wrong);
        grow_file(&path, 300 << 20);
        match run("resize2fs", "-f", &path, "") {
            Ok(()) => check_image(&format!("{options}, bad blocks, grown"), &path, &mut wrong),
            Err(why) => skipped(format_args!("{options}, bad blocks: {}", why.trim_end())),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn lines(blocks: impl Iterator<Item = u32>) -> String {
    blocks.map(|block| format!("{block}\n")).collect()
}

#[test]
fn volumes_of_large_blocks_have_no_findings() {
    if is_missing(&["mke2fs", "e2fsck", "tune2fs"]) {
        skip!("mke2fs, e2fsck and tune2fs are not all installed");
    }
    let scratch = Scratch::new();
    let source = source(&scratch);
    let mut wrong = Vec::new();
    for options in [
        "-t ext4",
        "-t ext4 -O ^metadata_csum,uninit_bg,^has_journal",
        "-t ext4 -I 4096 -O inline_data,ea_inode,^flex_bg",
        "-t ext4 -C 262144 -O bigalloc,^resize_inode",
        "-t ext3 -I 128",
        "-t ext2",
    ] {
        let Some(image) = made(256 << 20, &format!("{options} -b 65536"), &source) else {
            continue;
        };
        check_image(&format!("{options}, large blocks"), &image.path(), &mut wrong);
        for change in [
            "-O ^metadata_csum",
            "-O metadata_csum",
            "-O ^uninit_bg",
            "-O ^has_journal",
            "-j",
            "-O quota,project",
            "-O orphan_file",
            "-O extents,dir_nlink,extra_isize,huge_file,large_dir",
            "-I 512",
            "-U random",
        ] {
            let copy = copied(&image.path()).expect("a copy");
            // Impossible changes of a volume are refused.
            if run("tune2fs", &format!("-f {change}"), &copy.path(), "").is_ok() {
                check_image(
                    &format!("{options}, large blocks, {change}"),
                    &copy.path(),
                    &mut wrong,
                );
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
