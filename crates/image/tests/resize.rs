//! Resize, and a power cut while it is done: the volume has the old size or the new one.

mod common;

use std::fs;
use std::sync::Arc;

use extant_device::{Device, FileDeviceOptions, MemoryDevice};
use extant_image::resize::{Resize, ResizeError, VolumeSize};
use extant_journal::{Finish, recover_volume};
use extant_runtime::env::Env;
use extant_sim::{Recorder, Sweep};
use extant_testkit::{
    LoopMount, Scratch, TempImage, assert_same_tree, debugfs, dumpe2fs_h, is_root, skip, tool, tree,
};

use common::{mounted, preen};

const MIB: usize = 1 << 20;

/// A volume with directories, hard links and files in all of its groups, made by the kernel.
fn volume(size: usize, args: &[&str]) -> Result<Vec<u8>, String> {
    if !is_root() {
        return Err("needs root".to_owned());
    }
    let image = TempImage::by_mke2fs(size as u64, args)?;
    let mount = LoopMount::new(&image.path(), "")?;
    let fill = || -> std::io::Result<()> {
        let root = mount.path();
        for dir in 0..12_u32 {
            let dir = root.join(format!("directory{dir}"));
            fs::create_dir_all(dir.join("below/it"))?;
            for file in 0..6_u32 {
                let text = format!("{} {file}\n", dir.display());
                fs::write(dir.join(format!("file{file}")), text.repeat(40 * file as usize))?;
            }
            fs::hard_link(dir.join("file1"), dir.join("below/link"))?;
        }
        fs::write(root.join("directory11/large"), "line of a large file\n".repeat(60_000))
    };
    fill().map_err(|error| error.to_string())?;
    mount.unmount()?;
    fs::read(image.path()).map_err(|error| error.to_string())
}

fn resized(device: &Arc<dyn Device>, blocks: u64) -> Result<u64, ResizeError> {
    let env = Env::threads();
    Resize { force: true, ..Resize::new(device, &env) }.to(blocks)
}

fn minimum(device: &Arc<dyn Device>) -> Result<u64, ResizeError> {
    let env = Env::threads();
    Resize { force: true, ..Resize::new(device, &env) }.minimum()
}

/// The file's contents as debugfs reads them.
fn large(image: &TempImage) -> Result<String, String> {
    debugfs(&image.path(), "cat /directory11/large")
}

/// The cuts of a sweep.
#[derive(Debug)]
struct Done {
    cuts: usize,
    /// Those that left a volume which is not clean: the journal was moving.
    preened: usize,
}

/// Cuts the power at writes of a resize to `blocks`, replays the journal with e2fsck, the kernel or
/// our recovery, and checks.
fn sweep(before: &[u8], length: usize, blocks: u64, sweep: Sweep) -> Result<Done, String> {
    let e2fsck = tool("e2fsck").ok_or("no e2fsck")?;
    let mut bytes = before.to_vec();
    bytes.resize(length.max(before.len()), 0);
    let base: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(&bytes));
    let old = VolumeSize::of(&*base).unwrap().blocks;
    let recorder = Arc::new(Recorder::new(base));
    let device: Arc<dyn Device> = recorder.clone();
    let new = resized(&device, blocks).unwrap();
    assert_ne!(old, new);
    let (mut cuts, mut seen, mut preened) = (0, [0, 0], 0);
    let (mut contents, mut tree) = (None, None);
    for cut in recorder.cuts(sweep) {
        let mut bytes = vec![0; length.max(before.len())];
        cut.image.read_at(0, &mut bytes).unwrap();
        let image = TempImage::of_size(bytes.len() as u64).map_err(|error| error.to_string())?;
        fs::write(image.path(), &bytes).unwrap();
        let path = image.path();
        // The kernel replays some of them. It has read the number of groups before: if there are
        // fewer afterwards, the mount fails, and the next one finds the log empty.
        if cuts % 3 == 2 {
            let mount = LoopMount::new(&path, "").or_else(|_| LoopMount::new(&path, ""))?;
            mount.unmount()?;
        } else if cuts % 6 == 1 {
            let options = FileDeviceOptions::new().write(true);
            let device = options.open(&path).unwrap();
            let recovered = recover_volume(&device, None, Finish::Reset);
            assert!(recovered.is_ok(), "{cut}: {recovered:?}");
        } else {
            let replayed = e2fsck.run(["-p", "-E", "journal_only", path.to_str().unwrap()]);
            assert!(matches!(replayed.status.code(), Some(0 | 1)), "{cut}: {replayed:?}");
        }
        preened += usize::from(preen(&path)?);
        let checked = e2fsck.run(["-f", "-n", path.to_str().unwrap()]);
        assert!(checked.status.success(), "{cut}: {checked:?}");
        let found = large(&image)?;
        assert_eq!(contents.get_or_insert_with(|| found.clone()), &found, "{cut}");
        if cuts % 8 == 0 || is_slow() {
            let found = mounted(&path)?;
            assert_same_tree(tree.get_or_insert_with(|| found.clone()), &found);
        }
        let file = MemoryDevice::from_bytes(&fs::read(&path).unwrap());
        let now = VolumeSize::of(&file).unwrap().blocks;
        assert!(now == old || now == new, "{cut}: {now} blocks");
        seen[usize::from(now == new)] += 1;
        cuts += 1;
    }
    assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
    assert!(contents.is_some_and(|text| text.len() > MIB), "the large file");
    println!("{cuts} cuts, {preened} of them preened");
    Ok(Done { cuts, preened })
}

fn is_slow() -> bool {
    std::env::var_os("EXTANT_SLOW").is_some()
}

/// How many cuts to try. The superblock is not torn: it has two sectors, and e2fsck -p does not
/// take a backup.
fn cuts(seed: u64) -> Sweep {
    match is_slow() {
        true => Sweep { seed, prefixes: 200, subsets: 4, torn: 0 },
        false => Sweep { seed, prefixes: 2, subsets: 1, torn: 0 },
    }
}

/// The features with which each kind of change is tried.
const KINDS: [&[&str]; 3] = [
    &["-t", "ext4", "-b", "1024", "-g", "2048"],
    &["-t", "ext4", "-b", "1024", "-g", "2048", "-O", "^resize_inode,inline_data", "-I", "256"],
    &["-t", "ext3", "-b", "1024", "-g", "2048"],
];

#[test]
fn a_volume_that_grows_has_the_old_size_or_the_new_one_after_a_power_cut() {
    let cuts = cuts(3);
    for kind in KINDS {
        let done = volume(16 * MIB, kind).and_then(|it| sweep(&it, 40 * MIB, 40 << 10, cuts));
        match done {
            Ok(done) => assert!(done.cuts > 10 && done.preened == 0, "{done:?}"),
            Err(why) => skip!("{why}"),
        }
    }
}

#[test]
fn a_volume_that_shrinks_has_the_old_size_or_the_new_one_after_a_power_cut() {
    let cuts = cuts(4);
    for kind in KINDS {
        let done = volume(24 * MIB, kind).and_then(|it| sweep(&it, 0, 14 << 10, cuts));
        match done {
            Ok(done) => assert!(done.cuts > 10, "{done:?}"),
            Err(why) => skip!("{why}"),
        }
    }
}

/// Tables of groups that are cut off, which flex_bg has in front of the new end, move beyond it.
#[test]
fn a_volume_that_shrinks_to_its_minimum_has_one_of_both_sizes_after_a_power_cut() {
    let kind = ["-t", "ext4", "-b", "1024", "-g", "2048", "-O", "^resize_inode"];
    let before = match volume(24 * MIB, &kind) {
        Ok(before) => before,
        Err(why) => skip!("{why}"),
    };
    let least = minimum(&(Arc::new(MemoryDevice::from_bytes(&before)) as Arc<dyn Device>)).unwrap();
    let done = sweep(&before, 0, least, cuts(8)).unwrap();
    assert!(done.cuts > 10, "{done:?}");
}

/// Some cuts of many: 200 files of up to 500 KB and 2,000 small ones in 512 MiB.
#[test]
fn a_large_volume_has_the_old_size_or_the_new_one_after_a_power_cut() {
    if !is_slow() {
        skip!("writes 512 MiB for each cut: EXTANT_SLOW=1 runs it");
    }
    let fill = || -> Result<Vec<u8>, String> {
        let image = TempImage::of_size(0).map_err(|error| error.to_string())?;
        fs::write(image.path(), volume(512 * MIB, &["-t", "ext4"])?).unwrap();
        let mount = LoopMount::new(&image.path(), "")?;
        for number in 0..2200_usize {
            let length = if number % 11 == 0 { 1000 * (number / 4) } else { number };
            let name = format!("directory{}/below/more{number}", number % 12);
            fs::write(mount.path().join(name), vec![number as u8; length]).unwrap();
        }
        mount.unmount()?;
        fs::read(image.path()).map_err(|error| error.to_string())
    };
    let before = match fill() {
        Ok(before) => before,
        Err(why) => skip!("{why}"),
    };
    let device = || -> Arc<dyn Device> { Arc::new(MemoryDevice::from_bytes(&before)) };
    let least = minimum(&device()).unwrap();
    let few = Sweep { seed: 9, prefixes: 1, subsets: 1, torn: 0 };
    for (length, blocks) in [(0, least), (1024 * MIB, 256 << 10)] {
        let done = sweep(&before, length, blocks, few).unwrap();
        assert!(done.cuts > 5, "{blocks}: {done:?}");
    }
}

/// Volumes of which the journal moves when they shrink to 14 MiB: all of it or a part, with a map
/// in the inode, with nodes, or with indirect blocks.
const MOVING: [&[&str]; 4] = [
    &["-t", "ext4", "-b", "1024", "-g", "2048", "-J", "size=1,location=20000"],
    &["-t", "ext4", "-b", "1024", "-g", "1024", "-O", "^flex_bg", "-J", "size=4,location=13000"],
    &["-t", "ext2", "-b", "1024", "-g", "2048"],
    &["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "4096", "-J", "size=2,location=20000"],
];

/// Gives a volume of ext2 a journal in the free blocks from `start` on: all others are marked in
/// use for that time.
fn add_journal(volume: &[u8], start: u64) -> Result<Vec<u8>, String> {
    let image = TempImage::of_size(volume.len() as u64).map_err(|error| error.to_string())?;
    let path = image.path();
    fs::write(&path, volume).unwrap();
    let said = tool("dumpe2fs").ok_or("no dumpe2fs")?.text([&path])?;
    let free: Vec<(u64, u64)> = said
        .lines()
        .filter_map(|line| line.strip_prefix("  Free blocks: "))
        .flat_map(|runs| runs.split(", "))
        .filter_map(|run| {
            let (first, last) = run.split_once('-').unwrap_or((run, run));
            Some((first.parse().ok()?, last.parse::<u64>().ok()?.min(start - 1)))
        })
        .filter(|(first, last)| first <= last)
        .collect();
    let mark = |command: &str| -> Result<(), String> {
        let line = |(first, last): &(u64, u64)| format!("{command} {first} {}\n", last - first + 1);
        let scratch = Scratch::new();
        fs::write(scratch.join("commands"), free.iter().map(line).collect::<String>()).unwrap();
        let words = ["-w", "-f", scratch.join("commands").to_str().unwrap()].map(str::to_owned);
        let words = words.into_iter().chain([path.to_str().unwrap().to_owned()]);
        tool("debugfs").ok_or("no debugfs")?.text(words).map(drop)
    };
    mark("setb")?;
    let tune2fs = tool("tune2fs").ok_or("no tune2fs")?;
    tune2fs.text(["-J", "size=1", path.to_str().unwrap()])?;
    mark("freeb")?;
    extant_testkit::e2fsck_fn(&path)?;
    fs::read(&path).map_err(|error| error.to_string())
}

/// The journal's number of blocks.
fn journal_blocks(path: &std::path::Path) -> u32 {
    dumpe2fs_h(path).unwrap()["Total journal blocks"].parse().unwrap()
}

fn set_journal(device: &Arc<dyn Device>, megabytes: u32) -> Result<u32, ResizeError> {
    let env = Env::threads();
    Resize { force: true, ..Resize::new(device, &env) }.set_journal_size(megabytes)
}

/// Kinds of volumes whose journal gets another size: with a map in the inode, with indirect blocks,
/// with clusters.
const JOURNALS: [&[&str]; 3] = [
    &["-t", "ext4", "-b", "1024", "-g", "2048", "-J", "size=2"],
    &["-t", "ext3", "-b", "1024", "-J", "size=2"],
    &["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "4096", "-J", "size=2"],
];

/// Power cuts while the journal gets another size: it has the old size or the new one, and the
/// volume is sound once it was preened.
#[test]
fn a_journal_of_another_size_is_the_old_one_or_the_new_one_after_a_power_cut() {
    let e2fsck = tool("e2fsck");
    let all: Vec<_> = JOURNALS.iter().flat_map(|kind| [(kind, 5), (kind, 1)]).collect();
    let tried = if is_slow() { &all[..] } else { &all[1..3] };
    for (kind, megabytes) in tried.iter().copied() {
        let before = match volume(24 * MIB, kind) {
            Ok(before) => before,
            Err(why) => skip!("{why}"),
        };
        let recorder =
            Arc::new(Recorder::new(Arc::new(MemoryDevice::from_bytes(&before)) as Arc<dyn Device>));
        let device: Arc<dyn Device> = recorder.clone();
        assert_eq!(set_journal(&device, megabytes).unwrap(), megabytes << 10);
        let (mut seen, mut contents) = ([0, 0], None);
        for cut in recorder.cuts(cuts(7)) {
            let mut bytes = vec![0; before.len()];
            cut.image.read_at(0, &mut bytes).unwrap();
            let image = TempImage::of_size(bytes.len() as u64).unwrap();
            let path = image.path();
            fs::write(&path, &bytes).unwrap();
            if (seen[0] + seen[1]) % 2 == 0 {
                LoopMount::new(&path, "")
                    .map_err(|said| format!("{kind:?}: {cut}: {said}"))
                    .unwrap()
                    .unmount()
                    .unwrap();
            }
            let run = |words: &[&str]| {
                let words = words.iter().copied().chain([path.to_str().unwrap()]);
                e2fsck.as_ref().unwrap().run(words)
            };
            let repaired = run(&["-p"]);
            assert!(matches!(repaired.status.code(), Some(0 | 1)), "{cut}: {repaired:?}");
            let checked = run(&["-f", "-n"]);
            assert!(checked.status.success(), "{kind:?}: {cut}: {checked:?}");
            let found = large(&image).unwrap();
            assert_eq!(contents.get_or_insert_with(|| found.clone()), &found, "{cut}");
            let blocks = journal_blocks(&path);
            assert!([2 << 10, megabytes << 10].contains(&blocks), "{cut}: {blocks}");
            seen[usize::from(blocks != 2 << 10)] += 1;
        }
        println!("{kind:?} to {megabytes} MiB: {seen:?}");
        assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
    }
}

#[test]
fn journals_of_impossible_sizes_and_missing_ones_are_refused() {
    let device = |kind: &[&str]| -> Result<Arc<dyn Device>, String> {
        let image = TempImage::by_mke2fs(16 << 20, kind)?;
        let bytes = fs::read(image.path()).map_err(|error| error.to_string())?;
        Ok(Arc::new(MemoryDevice::from_bytes(&bytes)))
    };
    let with = match device(&["-t", "ext4", "-b", "1024"]) {
        Ok(device) => device,
        Err(why) => skip!("{why}"),
    };
    assert!(matches!(set_journal(&with, 0), Err(ResizeError::NoJournalSize)));
    assert!(matches!(set_journal(&with, 12), Err(ResizeError::JournalSize(_))));
    let without = device(&["-t", "ext2", "-b", "1024"]).unwrap();
    assert!(matches!(set_journal(&without, 1), Err(ResizeError::NoJournal)));
}

/// A check of what is not clean is all that is needed.
#[test]
fn a_journal_that_moves_has_one_place_after_a_power_cut() {
    let kinds = if is_slow() { &MOVING[..] } else { &MOVING[1..3] };
    for kind in kinds {
        let before = volume(24 * MIB, kind).and_then(|it| match kind.contains(&"ext2") {
            true => add_journal(&it, 15 << 10),
            false => Ok(it),
        });
        match before.and_then(|it| sweep(&it, 0, 14 << 10, cuts(6))) {
            Ok(done) => assert!(done.cuts > 10 && done.preened > 0, "{kind:?}: {done:?}"),
            Err(why) => skip!("{why}"),
        }
    }
}

/// One block less does not fit, and a refusal leaves every byte.
#[test]
fn less_than_the_minimum_is_refused_and_leaves_the_volume() {
    let before = match volume(24 * MIB, KINDS[0]) {
        Ok(before) => before,
        Err(why) => skip!("{why}"),
    };
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(&before));
    let least = minimum(&device).unwrap();
    let refused = resized(&device, least - 1);
    assert!(
        matches!(refused, Err(ResizeError::TooSmall { blocks, least: found })
            if blocks < least && found == least),
        "{refused:?}"
    );
    let mut now = vec![0; before.len()];
    device.read_at(0, &mut now).unwrap();
    assert!(now == before, "the volume has changed");
    assert_eq!(resized(&device, least).unwrap(), least);
    assert_eq!(minimum(&device).unwrap(), least);
}

#[test]
fn a_size_past_what_the_features_can_number_is_refused_with_the_largest() {
    let image = match TempImage::by_mke2fs(8 << 20, &["-t", "ext4", "-b", "4096", "-O", "^64bit"]) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let device: Arc<dyn Device> =
        Arc::new(MemoryDevice::from_bytes(&fs::read(image.path()).unwrap()));
    let refused = resized(&device, 1 << 33);
    let most = u64::from(u32::MAX);
    assert!(
        matches!(refused, Err(ResizeError::TooLarge { blocks, most: found })
            if blocks == 1 << 33 && found == most),
        "{refused:?}"
    );
    let refused = resized(&device, 4096);
    assert!(
        matches!(refused, Err(ResizeError::DeviceTooShort { blocks: 4096, held: 2048 })),
        "{refused:?}"
    );
}

/// Any bytes are resized or refused: no panic, and no loop without end.
#[test]
fn damaged_volumes_are_resized_or_refused() {
    const BLOCKS: usize = 8 << 10;
    let rounds = if is_slow() { 3000 } else { 20 };
    let mut random = tree::Random::new(5);
    let scratch = Scratch::new();
    let source = scratch.join("source");
    let options =
        tree::Options { many: 100, largest: 300_000, depth: 5, block: 1024, ..Default::default() };
    tree::grow(&source, 1, &options).unwrap();
    let from = source.to_str().unwrap();
    for kind in [
        &["-t", "ext4", "-b", "1024", "-g", "1024", "-O", "^metadata_csum", "-d", from][..],
        &["-t", "ext4", "-b", "1024", "-g", "1024", "-d", from],
        &["-t", "ext2", "-b", "1024", "-g", "1024", "-d", from],
    ] {
        let image = match TempImage::by_mke2fs((BLOCKS << 10) as u64, kind) {
            Ok(image) => image,
            Err(why) => skip!("{why}"),
        };
        let whole = fs::read(image.path()).unwrap();
        for _ in 0..rounds {
            let mut bytes = whole.clone();
            for _ in 0..random.below(20) + 1 {
                // Metadata of the first groups, where most of it lies.
                let at = 1024 + random.below(1200 << 10) as usize;
                bytes[at] = random.number() as u8;
            }
            bytes.resize(2 * (BLOCKS << 10), 0);
            let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(&bytes));
            let _ = minimum(&device);
            let blocks = 2000 + random.below(14_000);
            let _ = resized(&device, blocks);
        }
    }
}

/// Blocks that are reserved for descriptors are metadata for the kernel without the feature too:
/// nothing is moved to them.
#[test]
fn a_volume_with_reserved_descriptors_without_the_feature_is_checked_first() {
    let Some(tune2fs) = tool("tune2fs") else { skip!("tune2fs is not installed") };
    let image = match TempImage::by_mke2fs(64 << 20, &["-t", "ext4", "-b", "1024"]) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let path = image.path();
    let tuned = tune2fs.run(["-O", "^resize_inode", path.to_str().expect("UTF-8")]);
    assert!(tuned.status.success(), "{tuned:?}");
    let bytes = fs::read(&path).expect("read");
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(&bytes));
    for blocks in [40 << 10, 16 << 10] {
        let refused = resized(&device, blocks).unwrap_err();
        assert!(matches!(refused, ResizeError::NeedsCheck), "{refused}");
    }
    assert!(matches!(minimum(&device).unwrap_err(), ResizeError::NeedsCheck));
    let mut after = vec![0; bytes.len()];
    device.read_at(0, &mut after).expect("read");
    assert!(after == bytes);
}

/// Sizes by arithmetic alone, from the fields that dumpe2fs prints: the smallest one has the groups
/// for the inodes in use, and room for the blocks of files and the metadata of these groups.
struct ByArithmetic {
    first: u64,
    group_blocks: u64,
    group_inodes: u64,
    /// Both bitmaps, and the inode table.
    group_metadata: u64,
    /// Blocks of descriptors for a number of groups, reserved ones included.
    descriptors: Box<dyn Fn(u64) -> u64>,
    is_sparse: bool,
    used_inodes: u64,
    file_blocks: u64,
}

impl ByArithmetic {
    fn new(image: &TempImage) -> Self {
        let fields = dumpe2fs_h(&image.path()).unwrap();
        let number = |name: &str| fields.get(name).map_or(0, |text| text.parse::<u64>().unwrap());
        let has = |name: &str| fields["Filesystem features"].split(' ').any(|it| it == name);
        let (block, first) = (number("Block size"), number("First block"));
        let size = if has("64bit") { 64 } else { 32 };
        let table = move |groups: u64| (groups * size).div_ceil(block);
        let blocks = number("Block count");
        let groups = (blocks - first).div_ceil(number("Blocks per group"));
        // Descriptor blocks that are not needed any more are reserved.
        let reserved = number("Reserved GDT blocks");
        let held = table(groups) + reserved;
        let mut found = Self {
            first,
            group_blocks: number("Blocks per group"),
            group_inodes: number("Inodes per group"),
            group_metadata: number("Inode blocks per group") + 2,
            descriptors: Box::new(move |groups| if reserved > 0 { held } else { table(groups) }),
            is_sparse: has("sparse_super"),
            used_inodes: number("Inode count") - number("Free inodes"),
            file_blocks: 0,
        };
        found.file_blocks = blocks - first - number("Free blocks") - found.metadata(groups);
        found
    }

    fn has_backup(&self, group: u64) -> bool {
        let is_power = |base: u64| {
            let mut power = base;
            while power < group {
                power *= base;
            }
            power == group
        };
        !self.is_sparse || group <= 1 || [3, 5, 7].into_iter().any(is_power)
    }

    fn at_start(&self, group: u64, groups: u64) -> u64 {
        if self.has_backup(group) { 1 + (self.descriptors)(groups) } else { 0 }
    }

    fn metadata(&self, groups: u64) -> u64 {
        let starts: u64 = (0..groups).map(|group| self.at_start(group, groups)).sum();
        groups * self.group_metadata + starts
    }

    fn fits(&self, size: u64) -> bool {
        let blocks = size - self.first;
        let groups = blocks.div_ceil(self.group_blocks);
        let last = blocks - (groups - 1) * self.group_blocks;
        let needed = self.group_metadata + self.at_start(groups - 1, groups) + 50;
        let is_size = groups == 1 || last == self.group_blocks || last >= needed;
        is_size
            && self.used_inodes <= groups * self.group_inodes
            && self.file_blocks + self.metadata(groups) <= blocks
    }

    fn minimum(&self) -> u64 {
        (self.first + 1..).find(|size| self.fits(*size)).unwrap()
    }
}

/// The minimum is the one by arithmetic, and no smaller size is taken.
#[test]
fn no_size_below_the_minimum_fits() {
    for (size, args) in [
        (64, &["-t", "ext4", "-b", "1024"][..]),
        (64, &["-t", "ext4", "-b", "1024", "-g", "2048", "-O", "^resize_inode"]),
        (64, &["-t", "ext4", "-b", "4096", "-g", "1024", "-O", "^flex_bg,^64bit"]),
        (64, &["-t", "ext2", "-b", "1024"]),
        (33, &["-t", "ext3", "-b", "2048", "-g", "4096", "-O", "^sparse_super,^resize_inode"]),
    ] {
        let volume = match volume(size * MIB, args) {
            Ok(volume) => volume,
            Err(why) => skip!("{why}"),
        };
        let image = TempImage::of_size(0).unwrap();
        fs::write(image.path(), &volume).unwrap();
        let arithmetic = ByArithmetic::new(&image);
        let device = || -> Arc<dyn Device> { Arc::new(MemoryDevice::from_bytes(&volume)) };
        let least = minimum(&device()).unwrap();
        assert_eq!(least, arithmetic.minimum(), "{args:?}");
        // Sizes at group ends and sizes all over.
        let group = arithmetic.group_blocks;
        let ends = (1..least.div_ceil(group)).map(|count| arithmetic.first + count * group);
        let all = ends.chain((1..least).step_by((least / 40) as usize)).chain(least - 20..least);
        for size in all.filter(|size| *size < least) {
            let refused = resized(&device(), size);
            assert!(
                matches!(refused, Err(ResizeError::TooSmall { .. })),
                "{args:?} {size}: {refused:?}"
            );
        }
    }
}
