//! 64bit on and off, next to resize2fs, with files in the way, and with power cuts.

mod common;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use extant_device::{Device, FileDeviceOptions, MemoryDevice};
use extant_image::resize::{Bit64, Resize, ResizeError, VolumeSize};
use extant_runtime::env::Env;
use extant_sim::{Recorder, Sweep};
use extant_testkit::{
    LoopMount, Scratch, TempImage, assert_same_tree, dumpe2fs_h, e2fsck_fn, is_root, skip, tool,
    tree,
};

use common::{mounted, preen};

const MIB: u64 = 1 << 20;

/// Options of volumes without 64bit. Most have many small groups, so that the larger table needs
/// more blocks at each of its places.
const KINDS: [&[&str]; 12] = [
    &["-b", "4096"],
    &["-b", "1024", "-g", "1024"],
    &["-b", "1024", "-g", "1024", "-O", "^resize_inode"],
    &["-b", "1024", "-g", "1024", "-O", "^resize_inode,^flex_bg"],
    &["-b", "1024", "-g", "1024", "-O", "^resize_inode,meta_bg"],
    &["-b", "1024", "-g", "1024", "-O", "^resize_inode,sparse_super2"],
    &["-b", "1024", "-g", "1024", "-O", "^resize_inode,^metadata_csum,uninit_bg"],
    &["-b", "1024", "-g", "1024", "-O", "^resize_inode,^metadata_csum"],
    &["-b", "1024", "-O", "^resize_inode,bigalloc", "-C", "4096", "-g", "2048"],
    &["-b", "1024", "-g", "1024", "-O", "^resize_inode,^sparse_super"],
    &["-b", "1024", "-g", "1024", "-O", "^resize_inode,inline_data,ea_inode,orphan_file"],
    &["-b", "1024", "-g", "1024", "-O", "^resize_inode,^has_journal"],
];

/// A volume of `size` bytes without 64bit, with a tree in it.
fn volume(size: u64, kind: &[&str], seed: u64) -> Result<TempImage, String> {
    let scratch = Scratch::new();
    let source = scratch.join("source");
    let options =
        tree::Options { many: 100, largest: 300_000, depth: 5, block: 1024, ..Default::default() };
    tree::grow(&source, seed, &options).map_err(|error| error.to_string())?;
    // They would be read as a whole.
    fs::remove_dir_all(source.join("sparse")).map_err(|error| error.to_string())?;
    // Files in nearly all groups.
    for file in 0..18_u8 {
        fs::write(source.join(format!("large{file}")), vec![file; MIB as usize]).unwrap();
    }
    let mut words = vec!["-t", "ext4", "-O", "^64bit", "-d", source.to_str().unwrap()];
    words.extend(kind);
    TempImage::by_mke2fs(size, &words)
}

fn device(path: &Path) -> Arc<dyn Device> {
    let options = FileDeviceOptions::new().write(true);
    Arc::new(options.open(path).unwrap())
}

fn set_64bit(device: &Arc<dyn Device>, is_on: bool) -> Result<Bit64, ResizeError> {
    let env = Env::threads();
    Resize { force: true, ..Resize::new(device, &env) }.set_64bit(is_on)
}

fn there_and_back(kind: &[&str], seed: u64) -> Result<(), String> {
    let resize2fs = tool("resize2fs").ok_or("no resize2fs here")?;
    let ours = volume(40 * MIB, kind, seed)?;
    let path = ours.path();
    let theirs = TempImage::of_size(0).map_err(|error| error.to_string())?;
    fs::copy(&path, theirs.path()).unwrap();
    let expected = mounted(&path)?;
    fs::copy(theirs.path(), &path).unwrap();
    for is_on in [true, false] {
        let option = if is_on { "-b" } else { "-s" };
        resize2fs.text(["-f", option, theirs.path().to_str().unwrap()])?;
        let done = set_64bit(&device(&path), is_on);
        assert!(matches!(done, Ok(Bit64::Changed)), "{kind:?} {option}: {done:?}");
        let checked = e2fsck_fn(&path);
        assert!(checked.is_ok(), "{kind:?} {option}: {checked:?}");
        let (ours, theirs) = (dumpe2fs_h(&path).unwrap(), dumpe2fs_h(&theirs.path()).unwrap());
        for field in [
            "Filesystem features",
            "Filesystem state",
            "Block count",
            "Reserved block count",
            "Inode count",
            "Free inodes",
            "Group descriptor size",
            "Reserved GDT blocks",
            "First meta block group",
            "Journal backup",
        ] {
            let found = (ours.get(field), theirs.get(field));
            assert_eq!(found.0, found.1, "{kind:?} {option}: {field}");
        }
        let free = [ours, theirs].map(|it| it["Free blocks"].parse::<i64>().unwrap());
        assert!((free[0] - free[1]).abs() < 16, "{kind:?} {option}: {free:?} blocks free");
        // A mount changes the volume.
        let copy = TempImage::of_size(0).map_err(|error| error.to_string())?;
        fs::copy(&path, copy.path()).unwrap();
        assert_same_tree(&expected, &mounted(&copy.path())?);
        let again = set_64bit(&device(&path), is_on);
        assert!(matches!(again, Ok(Bit64::Already)), "{kind:?} {option}: {again:?}");
    }
    Ok(())
}

#[test]
fn a_volume_gets_64bit_and_loses_it_as_by_resize2fs() {
    if !is_root() {
        skip!("a loop mount needs root");
    }
    for (seed, kind) in (1..).zip(KINDS) {
        if let Err(why) = there_and_back(kind, seed) {
            skip!("{why}");
        }
    }
}

/// Cuts the power at writes of a change. e2fsck, the kernel or we replay the log; then the volume
/// is like before or like afterwards, and a second call completes it. Where the journal was moving,
/// the volume is preened before that.
fn sweep(before: &[u8], is_on: bool, sweep: Sweep) -> Result<usize, String> {
    let e2fsck = tool("e2fsck").ok_or("no e2fsck")?;
    let recorder = Arc::new(Recorder::new(Arc::new(MemoryDevice::from_bytes(before))));
    let device: Arc<dyn Device> = recorder.clone();
    assert_eq!(set_64bit(&device, is_on).unwrap(), Bit64::Changed);
    let (mut cuts, mut seen, mut refused, mut preened) = (0, [0, 0], 0, 0);
    let image = TempImage::of_size(before.len() as u64).map_err(|error| error.to_string())?;
    let path = image.path();
    let name = path.to_str().unwrap();
    let (mut contents, mut tree) = (None, None);
    for cut in recorder.cuts(sweep) {
        let mut bytes = vec![0; before.len()];
        cut.image.read_at(0, &mut bytes).unwrap();
        fs::write(&path, &bytes).unwrap();
        let mut must_replay = true;
        if cuts % 3 == 2 && is_root() {
            // It mounts what it can use.
            match LoopMount::new(&path, "") {
                Ok(mount) => {
                    mount.unmount()?;
                    must_replay = false;
                }
                Err(_) => refused += 1,
            }
        }
        if cuts % 3 == 1 {
            let env = Env::threads();
            let mended = Resize::new(&self::device(&path), &env).set_64bit(is_on);
            let is_mended = matches!(mended, Ok(_) | Err(ResizeError::NeedsCheck));
            assert!(is_mended, "{cut}: {mended:?}");
        } else if must_replay {
            let replayed = e2fsck.run(["-p", "-E", "journal_only", name]);
            let is_done = matches!(replayed.status.code(), Some(0 | 1));
            assert!(is_done, "{cut}: {replayed:?}");
        }
        preened += usize::from(preen(&path)?);
        let checked = e2fsck.run(["-f", "-n", name]);
        assert!(checked.status.success(), "{cut}: {checked:?}");
        let now = dumpe2fs_h(&path).unwrap()["Filesystem features"].contains("64bit");
        seen[usize::from(now)] += 1;
        set_64bit(&self::device(&path), is_on).unwrap();
        let checked = e2fsck.run(["-f", "-n", name]);
        assert!(checked.status.success(), "{cut}, completed: {checked:?}");
        let dumpe2fs = tool("dumpe2fs").ok_or("no dumpe2fs")?;
        let backup =
            dumpe2fs.text(["-h", "-o", "superblock=1025", "-o", "blocksize=1024", name])?;
        assert_eq!(backup.contains(" 64bit "), is_on, "{cut}: {backup}");
        let found = extant_testkit::debugfs(&path, "cat /large7")?;
        assert_eq!(contents.get_or_insert_with(|| found.clone()), &found, "{cut}");
        if is_root() && (cuts % 8 == 0 || is_slow()) {
            let found = mounted(&path)?;
            assert_same_tree(tree.get_or_insert_with(|| found.clone()), &found);
        }
        cuts += 1;
    }
    println!("{cuts} cuts, {preened} of them preened");
    assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
    assert!(contents.is_some_and(|text| text.len() as u64 == MIB), "the large file");
    if cuts > 100 && is_root() {
        assert!(refused > 0, "the kernel has replayed all logs");
    }
    Ok(cuts)
}

fn is_slow() -> bool {
    std::env::var_os("EXTANT_SLOW").is_some()
}

/// How many cuts to try. The superblock is not torn: it has two sectors, and e2fsck -p does not
/// take a backup.
fn cuts(seed: u64) -> Sweep {
    match is_slow() {
        true => Sweep { seed, prefixes: 400, subsets: 4, torn: 0 },
        false => Sweep { seed, prefixes: 12, subsets: 1, torn: 0 },
    }
}

#[test]
fn a_power_cut_leaves_the_volume_with_64bit_or_without() {
    // The journal of the last one moves.
    let kinds = if is_slow() { &KINDS[1..11] } else { &[KINDS[3], KINDS[9]] };
    for (seed, kind) in (20..).zip(kinds) {
        if kind.contains(&"-C") {
            continue; // The first backup is elsewhere.
        }
        let before = match volume(26 * MIB, kind, seed) {
            Ok(image) => fs::read(image.path()).unwrap(),
            Err(why) => skip!("{why}"),
        };
        let memory: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(&before));
        let done = sweep(&before, true, cuts(seed)).and_then(|count| {
            set_64bit(&memory, true).unwrap();
            let mut after = vec![0; before.len()];
            memory.read_at(0, &mut after).unwrap();
            Ok(count + sweep(&after, false, cuts(seed + 100))?)
        });
        match done {
            Ok(cuts) => assert!(cuts > 20, "{kind:?}: {cuts} cuts"),
            Err(why) => skip!("{why}"),
        }
    }
}

#[test]
fn what_cannot_have_64bit_or_lose_it_is_refused() {
    let image = match TempImage::by_mke2fs(8 * MIB, &["-t", "ext3"]) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let before = fs::read(image.path()).unwrap();
    let refused = set_64bit(&device(&image.path()), true);
    assert!(matches!(refused, Err(ResizeError::NoExtents)), "{refused:?}");
    assert_eq!(set_64bit(&device(&image.path()), false).unwrap(), Bit64::Already);
    assert!(fs::read(image.path()).unwrap() == before, "the volume has changed");
    assert_eq!(VolumeSize::of(&*device(&image.path())).unwrap().bytes(), 8 * MIB);
}

/// Any bytes are changed or refused: no panic, and no loop without end.
#[test]
fn damaged_volumes_are_changed_or_refused() {
    let rounds = if is_slow() { 1000 } else { 12 };
    let mut random = tree::Random::new(6);
    for kind in [KINDS[2], KINDS[7]] {
        let image = match volume(26 * MIB, kind, 3) {
            Ok(image) => image,
            Err(why) => skip!("{why}"),
        };
        let whole = fs::read(image.path()).unwrap();
        for _ in 0..rounds {
            let mut bytes = whole.clone();
            for _ in 0..random.below(20) + 1 {
                let at = 1024 + random.below(1200 << 10) as usize;
                bytes[at] = random.number() as u8;
            }
            let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(&bytes));
            let _ = set_64bit(&device, true);
            let _ = set_64bit(&device, false);
        }
    }
}
