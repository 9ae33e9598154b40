//! The healthy volumes, each with an earlier state of itself.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use extant::rooms::device::Device;
use extant::rooms::offline::OfflineVolume;
use extant::rooms::ondisk::inode::Inode;
use extant::rooms::ondisk::{BlockNo, InodeNo};
use extant_testkit::{LoopMount, Scratch, TempImage, left_dirty, tool, tree};

use crate::aim::Targets;
use crate::common::open;
use crate::judge::Tree;
use crate::rich;
use crate::sparse::Sparse;

pub(crate) struct Base {
    pub(crate) image: Sparse,
    /// The volume before its last changes.
    pub(crate) older: Vec<u8>,
    pub(crate) targets: Targets,
    /// Blocks of the log, but for its superblock.
    pub(crate) log: Vec<BlockNo>,
    pub(crate) healthy: Tree,
}

/// How a volume is filled, and what becomes of its log.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(crate) enum Filled {
    ByMke2fs,
    ByUs,
    ByKernel,
    /// By the kernel, and left with a log that is to be replayed.
    Dirty,
    /// The same, after a small log has wrapped.
    Wrapped,
}

use Filled::{ByKernel, ByMke2fs, ByUs, Dirty, Wrapped};

/// Options of mke2fs for each, in one word list.
pub(crate) const BASES: &[(&str, Filled, &str)] = &[
    ("ext4, mke2fs", ByMke2fs, "-t ext4 -b 1024 -N 2048"),
    ("ext2, mke2fs", ByMke2fs, "-t ext2 -b 1024 -N 2048"),
    ("ext3, mke2fs", ByMke2fs, "-t ext3 -b 4096"),
    ("inodes of 128 bytes, mke2fs", ByMke2fs, "-t ext3 -b 1024 -I 128 -N 2048"),
    (
        "quota, orphan_file, mke2fs",
        ByMke2fs,
        "-t ext4 -b 1024 -O inline_data,ea_inode,quota,orphan_file",
    ),
    ("no checksums, mke2fs", ByMke2fs, "-t ext4 -b 1024 -O ^metadata_csum,^64bit -N 2048"),
    ("flex_bg off, ours", ByUs, "-t ext4 -b 2048 -O ^flex_bg,orphan_file"),
    ("groups of 2048, ours", ByUs, "-t ext4 -b 1024 -g 2048 -O quota,project,metadata_csum_seed"),
    ("sparse_super2, ours", ByUs, "-t ext4 -b 1024 -O sparse_super2,^resize_inode,large_dir"),
    ("ea_inode, inline_data, kernel", ByKernel, ""),
    ("no extents, kernel", ByKernel, ""),
    ("bigalloc, kernel", ByKernel, ""),
    ("meta_bg, kernel", ByKernel, ""),
    ("large inodes, kernel", ByKernel, ""),
    ("ext4, dirty", Dirty, "-t ext4 -b 1024 -N 2048"),
    ("ext3, dirty", Dirty, "-t ext3 -b 1024 -N 2048"),
    ("no checksums, wrapped", Wrapped, "-t ext4 -b 1024 -N 2048 -J size=1 -O ^metadata_csum"),
    ("checksums, wrapped", Wrapped, "-t ext4 -b 1024 -N 2048 -J size=1"),
];

const SIZE: u64 = 16 << 20;
/// UUID and hash seed, so that a base is nearly the same in each run.
const SAME: [&str; 4] = [
    "-U",
    "6b1c9a3e-0f35-4d7b-9a51-0d6d1a1f0001",
    "-E",
    "hash_seed=6b1c9a3e-0f35-4d7b-9a51-0d6d1a1f0002",
];

pub(crate) fn make(index: usize, dir: &Path) -> Base {
    let (name, filled, options) = BASES[index];
    let words: Vec<&str> = options.split_whitespace().chain(SAME).collect();
    let (older, bytes) = match filled {
        ByMke2fs => by_mke2fs(&words),
        ByUs => by_us(&words),
        ByKernel => {
            let first = BASES.iter().position(|it| it.1 == ByKernel).expect("there are some");
            by_kernel(rich::SETS[index - first])
        }
        Dirty => dirty(&words, 1),
        Wrapped => dirty(&words, 60),
    };
    let (path, image) = (dir.join(format!("base{index}.img")), Sparse::of(&bytes));
    image.write(&path);
    let targets = Targets::of(&path);
    let log = log(&path);
    let done = tool("e2fsck").expect("asked for before").command().arg("-fy").arg(&path).output();
    let done = done.expect("it starts");
    assert!(done.status.code() < Some(4), "{name}: {done:?}");
    let healthy = Tree::of(&path);
    drop(fs::remove_file(&path));
    Base { image, older, targets, log, healthy }
}

fn log(image: &Path) -> Vec<BlockNo> {
    let Ok(volume) = OfflineVolume::open(open(image, false)) else { return Vec::new() };
    if volume.raw.s_journal_inum.get() != InodeNo::JOURNAL.0 {
        return Vec::new();
    }
    let record = volume.read_inode(InodeNo::JOURNAL).expect("reads");
    let inode = Inode::decode(&record, InodeNo::JOURNAL, volume.geometry()).expect("healthy");
    let map = volume.read_map(InodeNo::JOURNAL, &inode).expect("a healthy map");
    let mut block = vec![0; volume.geometry().block_len()];
    let is_written = |at: &BlockNo| {
        let offset = volume.geometry().byte_of(*at);
        volume.device().read_at(offset, &mut block).is_ok() && block.iter().any(|it| *it != 0)
    };
    map.blocks().skip(1).map(|(_, block)| block).filter(is_written).collect()
}

fn small() -> tree::Options {
    tree::Options { block: 1024, many: 80, largest: 100_000, depth: 12, ..Default::default() }
}

/// A tree of files with a directory that is indexed.
fn source(seed: u64) -> Scratch {
    let scratch = Scratch::new();
    tree::grow(&scratch.join(format!("tree{seed}")), seed, &small()).expect("grows");
    let many = scratch.join(format!("many{seed}"));
    fs::create_dir(&many).expect("a directory");
    for at in 0..120 {
        fs::write(many.join(format!("{at} and a long name after it")), format!("{seed} {at}"))
            .expect("a file");
    }
    scratch
}

fn read(image: &TempImage) -> Vec<u8> {
    fs::read(image.path()).expect("it is there")
}

fn extant<'a>(words: impl IntoIterator<Item = &'a std::ffi::OsStr>) {
    let done = Command::new(env!("CARGO_BIN_EXE_extant")).args(words).output().expect("it starts");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// Copies parts of a tree into the volume, by us: the states before and after.
fn changed_by_us(image: &TempImage, seed: u64, parts: &[&str]) -> (Vec<u8>, Vec<u8>) {
    let older = read(image);
    let source = source(seed);
    for name in parts {
        let from = source.join(format!("{name}{seed}"));
        let to = format!("{}:/", image.path().display());
        extant(["cp".as_ref(), "-a".as_ref(), from.as_os_str(), to.as_ref()]);
    }
    (older, read(image))
}

fn by_mke2fs(words: &[&str]) -> (Vec<u8>, Vec<u8>) {
    let source = source(1);
    let from = source.path().to_str().expect("scratch paths are UTF-8");
    let words = [words, &["-d", from]].concat();
    let image = TempImage::by_mke2fs(SIZE, &words).expect("mke2fs makes it");
    let mut packed = tool("e2fsck").expect("asked for before").command();
    packed.arg("-fyD").arg(image.path()).output().expect("it starts");
    changed_by_us(&image, 2, &["many"])
}

fn by_us(words: &[&str]) -> (Vec<u8>, Vec<u8>) {
    let image = TempImage::of_size(SIZE).expect("there is room");
    let path = image.path();
    let all = ["mkfs", "-q", "-F"].iter().chain(words).map(std::ffi::OsStr::new);
    extant(all.chain([path.as_os_str()]));
    changed_by_us(&image, 1, &["tree", "many"]);
    changed_by_us(&image, 2, &["many"])
}

fn by_kernel(set: (&str, &str)) -> (Vec<u8>, Vec<u8>) {
    let image = rich::base(set).expect("the kernel fills it");
    changed_by_us(&image, 2, &["many"])
}

fn dirty(words: &[&str], rounds: usize) -> (Vec<u8>, Vec<u8>) {
    let image = TempImage::by_mke2fs(SIZE, words).expect("mke2fs makes it");
    let mount = LoopMount::new(&image.path(), "").expect("the kernel mounts it");
    tree::grow(&mount.path().join("tree"), 1, &small()).expect("grows");
    mount.unmount().expect("unmounts");
    let older = read(&image);
    let copy = left_dirty(&image.path(), "", |root| {
        for round in 0..rounds {
            let dir = root.join(format!("new{round}"));
            fs::create_dir(&dir).expect("a directory");
            for at in 0..20 {
                fs::write(dir.join(format!("{at} of the newest")), format!("{round} {at}"))
                    .expect("a file");
            }
            File::open(&dir).and_then(|it| it.sync_all()).expect("syncs");
        }
        fs::rename(root.join("tree/many"), root.join("moved")).expect("renames");
        File::open(root).and_then(|it| it.sync_all()).expect("syncs");
    });
    (older, read(&copy.expect("it is copied")))
}
