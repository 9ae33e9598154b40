//! `extant resize` to sizes of random walks, over all sets of options that mkfs can make, and to
//! sizes past 2^32 blocks. `EXTANT_SLOW=1` walks longer; `EXTANT_SEED` chooses other walks.

use extant_testkit::{
    LoopDevice, LoopMount, TempImage, TreeSnapshot, assert_same_tree, copied, dumpe2fs_h,
    e2fsck_is_silent_with, e2fsck_is_silent_within, is_root, mke2fs, skip, tool, tree,
};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

mod common;
use common::resizing::{blocks, minimum, resize};
use common::{EXTANT, Fixture, extant, text};

/// A set of options of mke2fs, and its features that come in addition.
struct Set(&'static [&'static str], &'static str);

/// The first ones are walked by every run of the tests.
const SETS: [Set; 27] = [
    Set(&["-t", "ext4", "-b", "4096"], ""),
    Set(&["-t", "ext4", "-b", "1024"], "^resize_inode"),
    Set(&["-t", "ext2", "-b", "1024"], ""),
    Set(&["-t", "ext4", "-b", "1024"], "meta_bg,^resize_inode,inline_data"),
    Set(&["-t", "ext4", "-b", "2048"], "^flex_bg,^metadata_csum,uninit_bg"),
    Set(&["-t", "ext4", "-b", "4096", "-C", "16384"], "bigalloc"),
    Set(&["-t", "ext4", "-b", "1024"], "sparse_super2,orphan_file,ea_inode"),
    Set(&["-t", "ext3", "-b", "1024"], "^sparse_super,^resize_inode"),
    Set(&["-t", "ext4", "-b", "1024", "-J", "device="], ""),
    Set(&["-t", "ext4", "-b", "4096"], "quota,project"),
    Set(&["-t", "ext4", "-b", "1024", "-E", "mmp_update_interval=1"], "mmp"),
    Set(&["-t", "ext4", "-b", "65536", "-g", "1024"], ""),
    // The rest is for long runs.
    Set(&["-t", "ext4", "-b", "8192", "-g", "2048"], "casefold"),
    Set(&["-t", "ext4", "-b", "16384", "-g", "1024"], "^flex_bg,inline_data"),
    Set(&["-t", "ext4", "-b", "32768", "-g", "1024"], "quota,orphan_file"),
    Set(&["-t", "ext4", "-b", "1024", "-g", "1024"], "^resize_inode"),
    Set(&["-t", "ext4", "-b", "1024", "-g", "2048", "-G", "4"], "orphan_file"),
    Set(&["-t", "ext4", "-b", "1024", "-C", "8192"], "bigalloc,quota,project,^resize_inode"),
    Set(
        &["-t", "ext4", "-b", "1024", "-C", "4096", "-g", "8192"],
        "bigalloc,meta_bg,^resize_inode",
    ),
    Set(&["-t", "ext4", "-b", "2048"], "casefold,encrypt,verity,large_dir"),
    Set(&["-t", "ext4", "-b", "1024"], "^64bit,^metadata_csum,^uninit_bg"),
    Set(&["-t", "ext4", "-b", "1024"], "metadata_csum_seed,sparse_super2,^resize_inode"),
    Set(&["-t", "ext4", "-b", "2048", "-I", "128"], "^has_journal,meta_bg,^resize_inode,^flex_bg"),
    Set(&["-t", "ext2", "-b", "4096", "-I", "128"], "^sparse_super,^resize_inode"),
    Set(&["-t", "ext3", "-b", "2048", "-g", "4096"], "dir_index,uninit_bg"),
    Set(&["-t", "ext4", "-b", "4096", "-g", "2048", "-J", "device="], "^resize_inode"),
    Set(
        &["-t", "ext4", "-b", "1024", "-i", "4096", "-E", "stride=8,stripe_width=16"],
        "fast_commit",
    ),
];
const USUAL: usize = 12;

/// A volume that is walked.
struct Walk {
    fixture: Fixture,
    /// The files as the kernel shows them, if it mounts such volumes.
    expected: Option<TreeSnapshot>,
    /// A copy of the volume, for our own reader.
    first: TempImage,
    journal: Option<LoopDevice>,
    _journal_file: Option<TempImage>,
}

impl Walk {
    fn new(set: &Set, seed: u64) -> Result<Self, String> {
        let Set(args, features) = set;
        let mut args: Vec<String> = args.iter().map(|&word| word.to_owned()).collect();
        let at = args.iter().position(|word| word == "-b").expect("each set has it") + 1;
        let block = args[at].clone();
        let (mut journal, mut journal_file) = (None, None);
        if let Some(word) = args.iter_mut().find(|word| *word == "device=") {
            let file = TempImage::of_size(16 << 20).map_err(|error| error.to_string())?;
            let device = LoopDevice::new(&file.path())?;
            let name = device.path().to_str().ok_or("not UTF-8")?.to_owned();
            mke2fs(["-q", "-F", "-O", "journal_dev", "-b", &block, &name])?;
            word.push_str(&name);
            (journal, journal_file) = (Some(device), Some(file));
        }
        if !features.is_empty() {
            args.extend(["-O".to_owned(), (*features).to_owned()]);
        }
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let size: usize = block.parse().expect("a number");
        let tree_block = size.min(4096);
        // This kernel may lack what the set needs to be written, or at all.
        let fixture = match Fixture::by_kernel(&args, seed, tree_block) {
            Ok(fixture) => fixture,
            Err(_) => {
                let fixture = Fixture::by_mke2fs(&args, seed, tree_block)?;
                // mke2fs does not count the tree in the quota files.
                tool("e2fsck")
                    .ok_or("no e2fsck here")?
                    .run(["-fy".as_ref(), fixture.image.path().as_os_str()]);
                fixture
            }
        };
        let first = copied(&fixture.image.path())?;
        let expected = fixture.mounted_snapshot().ok();
        Ok(Self { fixture, expected, first, journal, _journal_file: journal_file })
    }

    /// Compares with e2fsck, the kernel or our own reader.
    fn check(&self, what: &str) {
        let image = self.fixture.image.path();
        let journal = self.journal.as_ref().map(LoopDevice::path);
        let checked = e2fsck_is_silent_with(&image, journal);
        assert!(checked.is_ok(), "{what}: {checked:?}");
        if let Some(expected) = &self.expected {
            let found = self.fixture.mounted_snapshot();
            assert_same_tree(expected, &found.unwrap_or_else(|why| panic!("{what}: {why}")));
        }
        if self.expected.is_none() {
            let same = extant([Path::new("diff"), &self.first.path(), &image]);
            assert!(same.status.success() && same.stdout.is_empty(), "{what}: {same:?}");
        }
    }

    /// Resizes to sizes between the minimum and 700 MiB, or 2 GiB with large blocks.
    fn steps(&self, set: &Set, seed: u64, count: usize) {
        let image = self.fixture.image.path();
        let fields = dumpe2fs_h(&image).unwrap();
        let block: u64 = fields["Block size"].parse().unwrap();
        let most = if block > 4096 { 2 << 30 } else { 700 << 20 } / block;
        let mut random = tree::Random::new(seed);
        for step in 0..count {
            let least = minimum(&image);
            let size = match random.below(4) {
                0 => least,
                1 => (least + random.below(2000)).min(most),
                _ => least + random.below(most - least),
            };
            let what = format!("{:?} {:?}, seed {seed}, step {step}: {size}", set.0, set.1);
            let done = resize(&image, &[&size.to_string()]);
            assert!(done.status.success(), "{what}: {done:?}");
            assert!(blocks(&image) <= size, "{what}");
            if size == least {
                let refused = resize(&image, &[&(least - 1).to_string()]);
                let expected = format!("at least {least} are needed\n");
                assert!(text(&refused.stderr).ends_with(&expected), "{what}: {refused:?}");
                assert_eq!(refused.status.code(), Some(1), "{what}");
            }
            self.check(&what);
        }
    }
}

#[test]
fn files_stay_what_they_were_through_sizes_of_a_random_walk() {
    if !is_root() {
        skip!("a loop mount needs root");
    }
    let is_slow = is_slow();
    let _alone = alone();
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let first: u64 = number("EXTANT_SEED").unwrap_or(40);
    let (seeds, steps, sets) = if is_slow { (2, 12, &SETS[..]) } else { (1, 2, &SETS[..USUAL]) };
    let mut missing = Vec::new();
    for seed in first..first + seeds {
        for set in sets {
            match Walk::new(set, seed) {
                // The wait for another host takes seconds.
                Ok(walk) if set.1 == "mmp" => walk.steps(set, seed, steps / 2),
                Ok(walk) => walk.steps(set, seed, steps),
                Err(why) => missing.push(format!("{:?} {:?}: {why}", set.0, set.1)),
            }
        }
    }
    if !missing.is_empty() {
        skip!("{}", missing.join("; "));
    }
}

fn is_slow() -> bool {
    std::env::var_os("EXTANT_SLOW").is_some()
}

/// Held by each test that runs for long. ext4 below a sparse file of terabytes sets room aside near
/// each block that is written, so that other files' writes fail with ENOSPC for moments.
fn alone() -> Option<MutexGuard<'static, ()>> {
    static TURN: Mutex<()> = Mutex::new(());
    is_slow().then(|| TURN.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Seconds in which e2fsck checks a volume of terabytes on a busy machine.
const LARGE: u32 = 600;

/// A volume of 1 GiB with blocks of 1 KiB and few inodes.
fn small_blocks(features: &str) -> Result<TempImage, String> {
    let features = format!("{features},^resize_inode");
    let args = ["-t", "ext4", "-b", "1024", "-i", "8388608", "-O", &features];
    TempImage::by_mke2fs(1 << 30, &args)
}

#[test]
fn a_volume_without_64bit_does_not_grow_to_two_to_the_32_blocks() {
    for (features, size) in
        [("^64bit", "4294967296"), ("^64bit", "5T"), ("64bit", "1125899906842624K")]
    {
        let image = match small_blocks(features) {
            Ok(image) => image,
            Err(why) => skip!("{why}"),
        };
        let refused = resize(&image.path(), &[size]);
        let said = text(&refused.stderr);
        // With 64bit the number of inodes, 8 in each group, is the first to end.
        let most: u64 = if features == "64bit" { 536_870_911 * 8192 + 1 } else { 4_294_967_295 };
        let expected = format!("are too many: at most {most} fit\n");
        assert!(refused.status.code() == Some(1) && said.ends_with(&expected), "{refused:?}");
        assert_eq!(fs::metadata(image.path()).unwrap().len(), 1 << 30);
    }
}

/// The kernel mounts it, and a file has its bytes after the next mount.
fn mounts(image: &Path) {
    let mount = LoopMount::new(image, "").unwrap();
    let file = mount.path().join("file");
    fs::write(&file, vec![7; 9 << 20]).unwrap();
    mount.unmount().unwrap();
    let mount = LoopMount::new(image, "ro").unwrap();
    assert!(fs::read(mount.path().join("file")).unwrap() == vec![7; 9 << 20]);
}

/// resize2fs 1.47.0 refuses these sizes.
#[test]
fn a_volume_of_one_gibibyte_grows_past_two_to_the_32_blocks() {
    if !is_slow() || !is_root() {
        skip!("writes 130,000 descriptor blocks: EXTANT_SLOW=1 runs it, as root");
    }
    let _alone = alone();
    let image = match small_blocks("64bit") {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let path = image.path();
    for size in [(1_u64 << 32) - 1, 1 << 32, (1 << 32) + 1, 5 << 30] {
        let grown = resize(&path, &[&size.to_string()]);
        let said = text(&grown.stderr);
        if said.contains("File too large") || said.contains("No space left") {
            skip!("no room for scratch files of such sizes: {said}");
        }
        assert!(grown.status.success(), "{size}: {grown:?}");
        assert_eq!(blocks(&path), size);
        mounts(&path);
    }
    e2fsck_is_silent_within(&path, LARGE).unwrap();
}

/// Blocks of 2 KiB, and `meta_bg` from the first: as much as resize2fs 1.47.0 can.
#[test]
fn past_two_to_the_32_blocks_a_volume_has_the_fields_that_resize2fs_gives_it() {
    if !is_slow() || !is_root() {
        skip!("writes 50,000 descriptor blocks: EXTANT_SLOW=1 runs it, as root");
    }
    let _alone = alone();
    let Some(resize2fs) = tool("resize2fs") else { skip!("no resize2fs here") };
    let features = "64bit,meta_bg,^resize_inode";
    let args = ["-t", "ext4", "-b", "2048", "-i", "8388608", "-O", features];
    let image = match TempImage::by_mke2fs(1 << 30, &args) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let theirs = copied(&image.path()).unwrap();
    let size = ((1_u64 << 32) + 1).to_string();
    let grown = resize(&image.path(), &[&size]);
    let name = theirs.path().display().to_string();
    let by_resize2fs = resize2fs.run(["-f", &name, &size]);
    for done in [&grown, &by_resize2fs] {
        let said = text(&done.stderr);
        if said.contains("File too large") || said.contains("No space left") {
            skip!("no room for scratch files of such sizes: {said}");
        }
        assert!(done.status.success(), "{done:?}");
    }
    let (ours, theirs) = (dumpe2fs_h(&image.path()).unwrap(), dumpe2fs_h(&theirs.path()).unwrap());
    for field in [
        "Filesystem features",
        "Inode count",
        "Block count",
        "Reserved block count",
        "Free blocks",
        "Free inodes",
        "First meta block group",
    ] {
        assert_eq!(ours.get(field), theirs.get(field), "{field}");
    }
    mounts(&image.path());
    e2fsck_is_silent_within(&image.path(), LARGE).unwrap();
}

/// The commands of e2fsprogs issues 98 (more than 1024 times larger, with flex_bg), 50 (blocks of
/// 1 KiB, to 2 TB) and LibreELEC issue 8099 (an orphan file), by the name resize2fs.
#[test]
fn growth_that_others_reported_as_damaged_is_clean() {
    let is_slow = is_slow();
    let _alone = alone();
    let cases: [(u64, u64, &[&str]); 3] = [
        (65_536, 68_157_440, &["-b", "4096", "-I", "256", "-j", "-O", "extent,64bit,flex_bg"]),
        (32_768, 61_315_072, &["-t", "ext4", "-b", "1024", "-O", "orphan_file"]),
        (204_800, 1_953_514_584, &["-t", "ext4", "-b", "1024"]),
    ];
    // The last one writes 49,000 descriptor blocks that lie apart.
    for (before, after, args) in &cases[..if is_slow { 3 } else { 2 }] {
        let image = match TempImage::by_mke2fs(before << 10, args) {
            Ok(image) => image,
            Err(why) => skip!("{why}"),
        };
        let path = image.path();
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        if file.set_len(after << 10).is_err() {
            skip!("the file system for scratch files has no such sizes");
        }
        let done = Command::new(EXTANT).arg0("resize2fs").arg(&path).output().unwrap();
        if text(&done.stderr).contains("No space left") {
            skip!("no room for scratch files of such sizes");
        }
        assert!(done.status.success(), "{args:?}: {done:?}");
        let block: u64 = dumpe2fs_h(&path).unwrap()["Block size"].parse().unwrap();
        assert_eq!(blocks(&path), (after << 10) / block, "{args:?}");
        e2fsck_is_silent_within(&path, LARGE).unwrap();
        if is_root() {
            mounts(&path);
            e2fsck_is_silent_within(&path, LARGE).unwrap();
        }
    }
}
