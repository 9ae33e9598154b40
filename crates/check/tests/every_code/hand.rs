//! A hand that spoils volumes: one fact at a time, sealed so that nothing else is wrong.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::damages::Requested;
use extant_check::pass0::{CheckOpenOptions, Closing, open};
use extant_check::{AutoPolicy, CheckOptions, Code, HandledFinding, Recorder, RepairPolicy};
use extant_device::{Device, FileDevice, FileDeviceOptions};
use extant_offline::OfflineVolume;
use extant_ondisk::bitmap::{BitmapKind, clear_runs};
use extant_ondisk::dirent::DirFormat;
use extant_ondisk::group_desc::GroupDesc;
use extant_ondisk::inode::Inode;
use extant_ondisk::superblock::RawSuperblock;
use extant_ondisk::{BlockNo, FileBlock, GroupNo, InodeNo};
use extant_runtime::env::Env;
use extant_testkit::{Scratch, TempImage, tool};

pub(crate) fn device(path: &Path) -> Arc<dyn Device> {
    let device: FileDevice =
        FileDeviceOptions::new().write(true).open(path).expect("the image opens");
    Arc::new(device)
}

/// All of fsck on a device: what comes before the passes, the passes, the closing.
pub(crate) fn fsck(
    device: Arc<dyn Device>,
    policy: &dyn RepairPolicy,
    options: Requested,
) -> Result<Vec<HandledFinding>, String> {
    let options = CheckOptions {
        threads: 1,
        optimize_directories: options == Requested::Optimize,
        bmap_to_extent: options == Requested::Extents,
        unshare_blocks: options == Requested::Unshare,
        ..CheckOptions::default()
    };
    fsck_with(device, policy, &options)
}

/// The same with options of the passes.
pub(crate) fn fsck_with(
    device: Arc<dyn Device>,
    policy: &dyn RepairPolicy,
    options: &CheckOptions,
) -> Result<Vec<HandledFinding>, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    // To take a volume with multiple-mount protection takes time: here on a virtual clock.
    let env = Env::stepped_at(1, options.env.now());
    let open_options = CheckOpenOptions { env, ..CheckOpenOptions::default() };
    let recorder = Recorder::new(policy);
    let mut ready = open(device, &open_options, &recorder).map_err(|error| text(&error))?;
    let before = recorder.findings();
    let report =
        extant_check::repair(&mut ready.store, options, &recorder).map_err(|error| text(&error))?;
    let closing = if report.errors_left { Closing::ErrorsLeft } else { Closing::Clean };
    let mut findings = report.findings;
    let passed = recorder.findings().len();
    ready.close(closing, &recorder).map_err(|error| text(&error))?;
    findings.extend(before);
    findings.extend(recorder.findings().split_off(passed));
    Ok(findings)
}

/// The codes that a scan of an image finds.
pub(crate) fn scan(path: &Path, options: Requested) -> Result<Vec<Code>, String> {
    let device: FileDevice = FileDeviceOptions::new().open(path).expect("the image opens");
    let mut codes: Vec<Code> = fsck(Arc::new(device), &AutoPolicy::No, options)?
        .iter()
        .map(|it| it.finding.code)
        .collect();
    codes.sort_unstable();
    codes.dedup();
    Ok(codes)
}

/// The options and files of a volume.
#[derive(Clone, Copy)]
pub(crate) struct Base {
    /// Distinguishes bases.
    pub(crate) name: &'static str,
    /// The part of the options that differs.
    pub(crate) mke2fs: &'static [&'static str],
    /// The files.
    pub(crate) grow: fn(&Path),
    /// Changes that mke2fs cannot make.
    pub(crate) prepare: fn(&Path),
}

const fn base(name: &'static str, mke2fs: &'static [&'static str]) -> Base {
    Base { name, mke2fs, grow, prepare: |_| {} }
}

pub(crate) const EXT4: Base = base("ext4", &["-t", "ext4", "-b", "1024", "-I", "256"]);
/// No checksums and no marks: the contents of free inodes are checked.
pub(crate) const PLAIN: Base = base(
    "plain",
    &["-t", "ext4", "-b", "1024", "-I", "256", "-O", "^metadata_csum,^uninit_bg,^64bit"],
);
/// Checksums of descriptors only.
pub(crate) const MARKS: Base =
    base("marks", &["-t", "ext4", "-b", "1024", "-I", "256", "-O", "^metadata_csum,uninit_bg"]);
/// Files are block-mapped.
pub(crate) const EXT2: Base = base("ext2", &["-t", "ext2", "-b", "1024", "-I", "256"]);
/// Inodes as the first revision had them.
pub(crate) const EXT2_128: Base = base("ext2, 128", &["-t", "ext2", "-b", "1024", "-I", "128"]);
pub(crate) const QUOTA: Base =
    base("quota", &["-t", "ext4", "-b", "1024", "-I", "256", "-O", "quota"]);
/// The quota file of projects has an inode like any other.
pub(crate) const PROJECT: Base =
    base("project", &["-t", "ext4", "-b", "1024", "-I", "256", "-O", "quota,project"]);
pub(crate) const MMP: Base = base("mmp", &["-t", "ext4", "-b", "1024", "-I", "256", "-O", "mmp"]);
/// One group, so that there is no backup of anything.
pub(crate) const SINGLE: Base = base("single", &["-t", "ext4", "-b", "4096", "-I", "256"]);
/// Two groups, no backup of anything, and tables elsewhere than makers put them: the inode table of
/// the first group lies where that of the second belongs.
pub(crate) const MOVED: Base = Base {
    prepare: |image| {
        let mut hand = Hand::on(image);
        let count = u64::from(hand.volume.geometry().itable_blocks());
        let free = hand.free_blocks();
        let away =
            free.iter().find(|run| run.end - run.start >= count).expect("there is room").start;
        let places = [0, 1].map(|group| hand.volume.desc(GroupNo(group)).inode_table.0);
        for (from, to) in [(places[1], away), (places[0], places[1])] {
            for at in 0..count {
                let bytes = hand.volume.read(BlockNo(from + at)).expect("reads");
                hand.block(to + at, |block| block.copy_from_slice(&bytes));
            }
        }
        hand.desc(0, |desc| desc.inode_table.0 = places[1]);
        hand.desc(1, |desc| desc.inode_table.0 = away);
        drop(hand);
        let e2fsck = tool("e2fsck").expect("asked for before");
        e2fsck.run(["-fy", image.to_str().expect("UTF-8")]);
    },
    ..base(
        "moved",
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-I",
            "256",
            "-O",
            "sparse_super2,^resize_inode,^has_journal",
            "-E",
            "num_backup_sb=0",
        ],
    )
};
/// Backups lie at unusual places.
pub(crate) const SMALL_GROUPS: Base =
    base("small groups", &["-t", "ext4", "-b", "1024", "-I", "256", "-g", "2048"]);
/// Descriptors lie in their groups, of which there is one, or there are several.
pub(crate) const META_BG_SINGLE: Base = base(
    "meta_bg single",
    &["-t", "ext4", "-b", "4096", "-I", "256", "-O", "meta_bg,^resize_inode"],
);
pub(crate) const META_BG: Base =
    base("meta_bg", &["-t", "ext4", "-b", "1024", "-I", "256", "-O", "meta_bg,^resize_inode"]);
pub(crate) const NO_JOURNAL: Base =
    base("no journal", &["-t", "ext4", "-b", "1024", "-I", "256", "-O", "^has_journal"]);
pub(crate) const ORPHAN_FILE: Base =
    base("orphan file", &["-t", "ext4", "-b", "1024", "-I", "256", "-O", "orphan_file"]);
pub(crate) const ORPHAN_PLAIN: Base = base(
    "orphan file without checksums",
    &["-t", "ext4", "-b", "1024", "-I", "256", "-O", "orphan_file,^metadata_csum"],
);
/// A file with a value in an inode of its own.
pub(crate) const EA_INODE: Base = Base {
    grow: |root| {
        grow(root);
        let path = root.join("valued");
        std::fs::write(&path, b"v").expect("scratch space takes files");
        let none = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(&path, "user.v", &[9; 3000], none).expect("user attributes");
    },
    ..base("ea_inode", &["-t", "ext4", "-b", "1024", "-I", "256", "-O", "ea_inode"])
};
pub(crate) const INLINE: Base =
    base("inline", &["-t", "ext4", "-b", "1024", "-I", "256", "-O", "inline_data"]);
pub(crate) const INLINE_QUOTA: Base = base(
    "inline with quota",
    &["-t", "ext4", "-b", "1024", "-I", "256", "-O", "inline_data,quota"],
);
pub(crate) const BIGALLOC: Base = base(
    "bigalloc",
    &["-t", "ext4", "-b", "1024", "-I", "256", "-O", "bigalloc,^resize_inode", "-C", "4096"],
);
/// A directory whose names are compared without case, strictly.
pub(crate) const CASEFOLD: Base = Base {
    prepare: |image| Hand::on(image).file("sub", |record| flag(record, 0x4000_0000)),
    ..base(
        "casefold",
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-I",
            "256",
            "-O",
            "casefold",
            "-E",
            "encoding=utf8,encoding_flags=strict",
        ],
    )
};
/// An encrypted directory with two files.
pub(crate) const ENCRYPT: Base = Base {
    grow: |root| {
        grow(root);
        std::fs::create_dir(root.join("vault")).expect("scratch space takes directories");
        for path in ["vault", VAULT_FILES[0], VAULT_FILES[1]] {
            let path = root.join(path);
            if !path.exists() {
                std::fs::write(&path, b"").expect("scratch space takes files");
            }
            let none = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(&path, "user.c", &CONTEXT, none).expect("user attributes");
        }
    },
    prepare: |image| {
        let hand = Hand::on(image);
        for path in ["vault", VAULT_FILES[0], VAULT_FILES[1]] {
            hand.file(path, |record| {
                // The namespace of the only attribute; its hash may be 0.
                record[FIRST_ATTRIBUTE + 1] = 9;
                put32(record, FIRST_ATTRIBUTE + 12, 0);
                flag(record, 0x800);
            });
        }
    },
    ..base("encrypt", &["-t", "ext4", "-b", "1024", "-I", "256", "-O", "encrypt"])
};
/// A directory with an index of two levels.
pub(crate) const DEEP: Base = Base {
    grow: |root| {
        grow(root);
        std::fs::create_dir(root.join("wide")).expect("scratch space takes directories");
        for number in 0..700 {
            let name = format!("wide/{number:03}-{}", "x".repeat(200));
            std::fs::write(root.join(name), b"").expect("scratch space takes files");
        }
    },
    ..base("deep", &["-t", "ext4", "-b", "1024", "-I", "256"])
};
/// A file of many extents.
pub(crate) const FRAGMENTS: Base = Base {
    grow: |root| {
        grow(root);
        let file = std::fs::File::create(root.join("holes")).expect("scratch space takes files");
        for at in 0..12 {
            std::os::unix::fs::FileExt::write_at(&file, &[b'h'; 1024], at * 65_536)
                .expect("scratch space takes files");
        }
    },
    ..base("fragments", &["-t", "ext4", "-b", "1024", "-I", "256"])
};
/// A file whose extents need several leaf blocks.
pub(crate) const COMB: Base =
    Base { grow: comb, ..base("comb", &["-t", "ext4", "-b", "1024", "-I", "256"]) };
/// The same of indirect blocks.
pub(crate) const COMB_OF_POINTERS: Base =
    Base { grow: comb, ..base("comb of pointers", &["-t", "ext2", "-b", "1024", "-I", "256"]) };

fn comb(root: &Path) {
    grow(root);
    let file = std::fs::File::create(root.join("comb")).expect("scratch space takes files");
    for at in 0..250_u64 {
        std::os::unix::fs::FileExt::write_at(&file, &[at as u8 + 1; 1024], at * 8192)
            .expect("scratch space takes files");
    }
}

/// A journal that waits for its replay: a transaction with one block, one that revokes a block, one
/// more.
pub(crate) const LOGGED: Base = Base {
    prepare: |image| log(image, "jo -c"),
    ..base("logged", &["-t", "ext4", "-b", "1024", "-I", "256"])
};
/// The same without checksums.
pub(crate) const LOGGED_PLAIN: Base = Base {
    prepare: |image| log(image, "jo"),
    ..base(
        "logged plain",
        &["-t", "ext4", "-b", "1024", "-I", "256", "-O", "^metadata_csum,^uninit_bg,^64bit"],
    )
};

/// Has debugfs write the journal.
fn log(image: &Path, open: &str) {
    let scratch = Scratch::new();
    let (block, script) = (scratch.join("block"), scratch.join("script"));
    std::fs::write(&block, [b'j'; 1024]).expect("scratch space takes files");
    let block = block.display();
    let words = format!(
        "{open}\njw -b {LOGGED_BLOCK} {block}\njw -r {}\njw -b {} {block}\njc\n",
        LOGGED_BLOCK + 1,
        LOGGED_BLOCK + 2
    );
    std::fs::write(&script, words).expect("scratch space takes files");
    let debugfs = tool("debugfs").expect("asked for before");
    let script = script.to_str().expect("UTF-8");
    debugfs.run(["-w", "-f", script, image.to_str().expect("UTF-8")]);
}

/// No room at all: what is free is said to be bad.
pub(crate) const FULL: Base =
    Base { prepare: fill, ..base("full", &["-t", "ext4", "-b", "1024", "-I", "256"]) };
pub(crate) const FULL_WITHOUT_JOURNAL: Base = Base {
    prepare: fill,
    ..base("full without journal", &["-t", "ext4", "-b", "1024", "-I", "256", "-O", "^has_journal"])
};

pub(crate) const FULL_QUOTA: Base = Base {
    prepare: fill,
    ..base("full with quota", &["-t", "ext4", "-b", "1024", "-I", "256", "-O", "quota"])
};
pub(crate) const FULL_ORPHAN_FILE: Base = Base {
    prepare: fill,
    ..base("full with orphan file", &["-t", "ext4", "-b", "1024", "-I", "256", "-O", "orphan_file"])
};

/// Says that all free blocks are bad.
fn fill(image: &Path) {
    let mut hand = Hand::on(image);
    let free = hand.free_blocks();
    // The list's own indirect blocks come from the free ones.
    let all = [(FileBlock(0), free.count())];
    let needed = extant_layout::pack::indirect_blocks(all, 1024).expect("few blocks");
    let last = free.iter().flatten().nth(needed as usize).expect("more blocks than that");
    let mut bad = extant_layout::RunSet::new();
    for run in free.iter().filter(|run| run.end > last) {
        bad.insert(run.start.max(last)..run.end);
    }
    hand.bad_blocks(&bad);
    for run in hand.free_blocks().iter() {
        bad.insert(run);
    }
    hand.bad_blocks(&bad);
    assert_eq!(hand.free_blocks().count(), 0, "a full volume");
}

/// The block that [`LOGGED`]'s first transaction holds.
pub(crate) const LOGGED_BLOCK: u64 = 15_000;
/// The first attribute inside an inode: after 128 bytes, 32 more, and the magic number.
pub(crate) const FIRST_ATTRIBUTE: usize = 128 + 32 + 4;
pub(crate) const VAULT_FILES: [&str; 2] =
    ["vault/a name of a file that is long enough", "vault/another name of such a file"];
/// A context of encryption, version 1: modes, flags, a key's name, a nonce.
const CONTEXT: [u8; 28] = {
    let mut context = [7; 28];
    (context[0], context[1], context[2], context[3]) = (1, 1, 4, 2);
    context
};

/// The files of every base.
fn grow(root: &Path) {
    let write = |path: &str, bytes: &[u8]| {
        std::fs::write(root.join(path), bytes).expect("scratch space takes files");
    };
    for dir in ["dir", "sub", "sub/inner"] {
        std::fs::create_dir(root.join(dir)).expect("scratch space takes directories");
    }
    write("file", &[b'f'; 5000]);
    write("other", &[b'o'; 3000]);
    write("long", &[b'l'; 70_000]);
    write("sub/inner/deep", b"deep");
    write("tiny", b"a few bytes");
    write("small", &[b's'; 100]);
    for number in 0..300 {
        write(&format!("dir/name-{number:03}"), b"");
    }
    std::os::unix::fs::symlink("file", root.join("fast")).expect("a link");
    std::os::unix::fs::symlink("x".repeat(100), root.join("slow")).expect("a link");
    rustix::fs::mkfifoat(rustix::fs::CWD, root.join("fifo"), rustix::fs::Mode::RUSR).expect("fifo");
    let set = |path: &str, value: &[u8]| {
        let path = root.join(path);
        rustix::fs::setxattr(&path, "user.x", value, rustix::fs::XattrFlags::empty()).is_ok()
    };
    assert!(set("other", b"in the inode") && set("long", &[7; 500]), "user attributes");
}

impl Base {
    /// A healthy image, its directories indexed.
    pub(crate) fn make(&self) -> TempImage {
        let (scratch, source) = (Scratch::new(), PathBuf::from("source"));
        let source = scratch.path().join(source);
        std::fs::create_dir(&source).expect("scratch space takes a directory");
        (self.grow)(&source);
        let mut words = self.mke2fs.to_vec();
        words.extend(["-d", source.to_str().expect("UTF-8")]);
        let image = TempImage::by_mke2fs(16 << 20, &words).expect("mke2fs makes it");
        let e2fsck = tool("e2fsck").expect("asked for before");
        e2fsck.run(["-fyD", image.path().to_str().expect("UTF-8")]);
        (self.prepare)(&image.path());
        image
    }
}

pub(crate) struct Hand {
    pub(crate) volume: OfflineVolume,
}

impl Hand {
    pub(crate) fn on(image: &Path) -> Self {
        Self { volume: OfflineVolume::open(device(image)).expect("a healthy volume opens") }
    }

    /// The blocks that no bitmap has in use.
    pub(crate) fn free_blocks(&mut self) -> extant_layout::RunSet {
        let geometry = self.volume.geometry().clone();
        let mut free = extant_layout::RunSet::new();
        for group in (0..geometry.groups_count).map(GroupNo) {
            let bitmap = self.volume.bitmap(BitmapKind::Block, group).expect("reads");
            let start = geometry.group_start(group).0;
            for run in clear_runs(bitmap, 0..geometry.group_clusters(group)) {
                free.insert(start + u64::from(run.start)..start + u64::from(run.end));
            }
        }
        free
    }

    /// Makes a list of bad blocks.
    pub(crate) fn bad_blocks(&mut self, bad: &extant_layout::RunSet) {
        self.volume.set_bad_blocks(bad).expect("there is room for the list");
        self.volume.commit().expect("writes");
    }

    pub(crate) fn superblock(&mut self, change: impl FnOnce(&mut RawSuperblock)) {
        self.volume.update_superblock(change).expect("it can be computed with");
        self.volume.commit().expect("writes");
    }

    pub(crate) fn desc(&mut self, group: u32, change: impl FnOnce(&mut GroupDesc)) {
        self.volume.update_desc(GroupNo(group), change);
        self.volume.commit().expect("writes");
    }

    pub(crate) fn block(&self, block: u64, change: impl FnOnce(&mut [u8])) {
        let mut bytes = self.volume.read(BlockNo(block)).expect("reads");
        change(&mut bytes);
        self.volume.write(BlockNo(block), &bytes).expect("writes");
    }

    pub(crate) fn decoded(&self, number: InodeNo) -> Inode {
        let record = self.volume.read_inode(number).expect("reads");
        Inode::decode(&record, number, self.volume.geometry()).expect("it is sound")
    }

    pub(crate) fn blocks(&self, number: InodeNo) -> Vec<u64> {
        let map = self.volume.read_map(number, &self.decoded(number)).expect("it has a map");
        map.blocks().map(|(_, block)| block.0).collect()
    }

    /// The inode of a path from the root, without the first slash.
    pub(crate) fn find(&self, path: &str) -> InodeNo {
        path.split('/').filter(|name| !name.is_empty()).fold(InodeNo::ROOT, |dir, name| {
            let (block, at) = self.place(dir, name);
            let bytes = self.volume.read(BlockNo(block)).expect("reads");
            InodeNo(u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")))
        })
    }

    pub(crate) fn format(&self, dir: InodeNo) -> DirFormat {
        DirFormat::new(self.volume.geometry(), dir, self.decoded(dir).generation)
    }

    /// The block and the offset of a name.
    pub(crate) fn place(&self, dir: InodeNo, name: &str) -> (u64, usize) {
        let format = self.format(dir);
        let map = self.volume.read_map(dir, &self.decoded(dir)).expect("it has a map");
        for (at, block) in map.blocks() {
            let bytes = self.volume.read(block).expect("reads");
            let found = format
                .entries(&bytes, at)
                .flatten()
                .find(|entry| entry.inode.is_some() && entry.name == name.as_bytes());
            if let Some(entry) = found {
                return (block.0, entry.at);
            }
        }
        panic!("{name} is not in {dir}");
    }

    /// Changes an inode's record and seals it.
    pub(crate) fn inode(&self, number: InodeNo, change: impl FnOnce(&mut [u8])) {
        let mut record = self.volume.read_inode(number).expect("reads");
        change(&mut record);
        self.volume.write_inode(number, &mut record).expect("writes");
    }

    /// The same without the seal.
    pub(crate) fn unsealed(&self, number: InodeNo, change: impl FnOnce(&mut [u8])) {
        let mut record = self.volume.read_inode(number).expect("reads");
        change(&mut record);
        let offset = self.volume.inode_offset(number).expect("there is such an inode");
        self.volume.device().write_at(offset, &record).expect("writes");
    }

    pub(crate) fn file(&self, path: &str, change: impl FnOnce(&mut [u8])) {
        self.inode(self.find(path), change);
    }

    /// Changes a name's record, which starts the bytes given, and seals the block.
    pub(crate) fn entry(&self, dir: &str, name: &str, change: impl FnOnce(&mut [u8])) {
        let dir = self.find(dir);
        let (block, at) = self.place(dir, name);
        let format = self.format(dir);
        self.block(block, |bytes| {
            change(&mut bytes[at..]);
            format.seal(bytes);
        });
    }
}

pub(crate) fn put16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

pub(crate) fn put32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// Sets bits of `i_flags`.
pub(crate) fn flag(record: &mut [u8], bits: u32) {
    let now = u32::from_le_bytes(record[0x20..0x24].try_into().expect("four bytes"));
    put32(record, 0x20, now | bits);
}
