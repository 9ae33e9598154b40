//! `extant trim`: free space goes back to the host, and nothing else.

use extant_testkit::{
    LoopMount, Scratch, TempImage, TreeSnapshot, assert_same_tree, e2fsck_fn, is_root, skip, tool,
};
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

mod common;
use common::{extant, text};

/// The size of each image.
const SIZE: u64 = 48 << 20;

fn allocated(file: &Path) -> u64 {
    fs::metadata(file).unwrap().blocks() * 512
}

/// The numbers of a report: bytes discarded, and bytes given back.
fn numbers(output: &Output) -> Vec<u64> {
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let report = text(&output.stdout);
    let (_, report) = report.rsplit_once("img: ").expect("the image's name");
    report.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// An image whose files are random and whose free space is filled with what was deleted; its files
/// are `keep*`.
fn filled(args: &[&str]) -> Result<TempImage, String> {
    let image = TempImage::by_mke2fs(SIZE, args)?;
    let scratch = Scratch::new();
    let name = image.path().display().to_string();
    let file = scratch.join("file");
    let mut remove = vec!["rm".to_owned()];
    for at in 0..30_u32 {
        let bytes: Vec<u8> = (0..1_000_000_u32)
            .map(|it| (it.wrapping_mul(2_654_435_761 + at) >> 13) as u8)
            .collect();
        fs::write(&file, bytes).unwrap();
        let kept = at % 5 == 0;
        let target = format!("{name}:/{}{at}", if kept { "keep" } else { "gone" });
        let copied = extant(["cp", file.to_str().unwrap(), &target]);
        assert!(copied.status.success(), "{copied:?}");
        if !kept {
            remove.push(target);
        }
    }
    let removed = extant(&remove);
    assert!(removed.status.success(), "{removed:?}");
    Ok(image)
}

#[test]
fn free_space_is_given_back_exactly_and_files_stay() {
    let kinds: [&[&str]; 3] = [
        &["-t", "ext4", "-b", "4096"],
        &["-t", "ext3", "-b", "1024"],
        &["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "16384"],
    ];
    for kind in kinds {
        let image = match filled(kind) {
            Ok(image) => image,
            Err(why) => skip!("{why}"),
        };
        let path = image.path();
        let name = path.to_str().unwrap();
        let before = fs::read(&path).unwrap();
        let cat = || {
            let files = (0..30).step_by(5).map(|at| format!("{name}:/keep{at}"));
            let read = extant(std::iter::once("cat".to_owned()).chain(files));
            assert!(read.status.success(), "{read:?}");
            read.stdout
        };
        let files = cat();
        // A dry run tells the same and writes nothing.
        let dry = numbers(&extant(["trim", "-n", name]));
        let dry_large = numbers(&extant(["trim", "-n", "-m", "4M", name]));
        assert!(fs::read(&path).unwrap() == before, "{kind:?}: the dry run has written");
        let held = allocated(&path);
        let large = numbers(&extant(["trim", "-m", "4M", name]));
        assert_eq!(large[0], dry_large[0], "{kind:?}");
        assert!(large[0] < dry[0] && large[0] > 0, "{kind:?}: {large:?} of {dry:?}");
        let all = numbers(&extant(["trim", name]));
        assert_eq!(all[0], dry[0], "{kind:?}");
        assert!(large[1] + all[1] > 20_000_000, "{kind:?}: {large:?} {all:?}");
        // Opening writes a few blocks, some of them in holes before.
        let now = allocated(&path);
        let given = large[1] + all[1];
        assert!((held - now).abs_diff(given) < 1 << 20, "{kind:?}: {held} {now} {given}");
        // Free is what the superblock counts as free.
        let free = dumped(&path, "Free blocks:") * dumped(&path, "Block size:");
        assert_eq!(all[0], free, "{kind:?}");
        assert_eq!(numbers(&extant(["trim", name])), [free, 0], "{kind:?}: nothing is left");
        assert!(cat() == files, "{kind:?}");
        e2fsck_fn(&path).unwrap();
    }
}

/// A number of the superblock.
fn dumped(image: &Path, field: &str) -> u64 {
    let dump = tool("dumpe2fs").expect("e2fsprogs").run(["-h".as_ref(), image.as_os_str()]);
    let dump = text(&dump.stdout);
    let line = dump.lines().find_map(|line| line.strip_prefix(field)).expect("a field");
    line.trim().parse().expect("a number")
}

/// The blocks of the log are written first, and the free ones are discarded then.
#[test]
fn a_journal_that_needs_recovery_is_replayed_first() {
    if !is_root() {
        skip!("a loop mount needs root");
    }
    let image = match TempImage::by_mke2fs(SIZE, &["-t", "ext4"]) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let scratch = Scratch::new();
    let (source, copy) = (scratch.join("source"), scratch.join("copy.img"));
    fs::create_dir(&source).unwrap();
    for at in 0..50_usize {
        fs::write(source.join(format!("{at}")), vec![at as u8; at * 700]).unwrap();
    }
    let mount = LoopMount::new(&image.path(), "").unwrap();
    let files = Command::new("cp").arg("-a").arg(&source).arg(mount.path()).status();
    assert!(files.is_ok_and(|status| status.success()));
    sync_all();
    // As after a power cut: the log is not checkpointed.
    fs::copy(image.path(), &copy).unwrap();
    drop(mount);
    assert!(dump_has(&copy, "needs_recovery"));
    let name = copy.to_str().unwrap();
    let before = fs::read(&copy).unwrap();
    let dry = numbers(&extant(["trim", "-n", name]));
    assert!(fs::read(&copy).unwrap() == before, "the dry run has written");
    let trimmed = numbers(&extant(["trim", name]));
    assert_eq!(trimmed[0], dry[0]);
    assert!(!dump_has(&copy, "needs_recovery"));
    e2fsck_fn(&copy).unwrap();
    let mount = LoopMount::new(&copy, "ro").unwrap();
    let found = TreeSnapshot::of_dir(&mount.path().join("source")).unwrap();
    assert_same_tree(&TreeSnapshot::of_dir(&source).unwrap(), &found);
}

/// All that the kernel holds is in the image.
fn sync_all() {
    assert!(Command::new("sync").status().is_ok_and(|status| status.success()));
}

fn dump_has(image: &Path, feature: &str) -> bool {
    let dump = tool("dumpe2fs").expect("e2fsprogs").run(["-h".as_ref(), image.as_os_str()]);
    text(&dump.stdout).contains(feature)
}

#[test]
fn an_image_in_use_and_a_path_in_it_are_refused() {
    let image = match TempImage::by_mke2fs(SIZE, &["-t", "ext4"]) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let name = image.path().display().to_string();
    let refused = extant(["trim", &format!("{name}:/")]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(text(&refused.stderr).contains("not an image"), "{refused:?}");
    let refused = extant(["trim", "none.img"]);
    assert_ne!(refused.status.code(), Some(0), "{refused:?}");
    let Some(flock) = tool("flock") else { skip!("flock is not installed") };
    let mut holder = Command::new(flock.path());
    holder.args(["--no-fork", "-x", &name, "sh", "-c", "echo locked; exec sleep 60"]);
    let mut holder = holder.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = [0; 7];
    holder.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
    let before = fs::read(image.path()).unwrap();
    let refused = extant(["trim", &name]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(text(&refused.stderr).contains("in use"), "{refused:?}");
    assert!(fs::read(image.path()).unwrap() == before);
    holder.kill().unwrap();
    holder.wait().unwrap();
    numbers(&extant(["trim", &name]));
}
