//! A hand that spoils volumes: one fact at a time, sealed so that nothing else is wrong.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use extant_check::front::{Closing, OpenOptions, open};
use extant_check::{Answers, Code, Options, Outcome};
use extant_device::{Device, FileDevice, OpenOptions as FileOptions};
use extant_journal::offline::Offline;
use extant_ondisk::dirent::DirFormat;
use extant_ondisk::group_desc::GroupDesc;
use extant_ondisk::inode::Inode;
use extant_ondisk::superblock::RawSuperblock;
use extant_ondisk::{BlockNo, GroupNo, InodeNo};
use extant_testkit::{Scratch, TempImage, tool};

pub(crate) fn device(path: &Path) -> Arc<dyn Device> {
    let device: FileDevice = FileOptions::new().write(true).open(path).expect("the image opens");
    Arc::new(device)
}

/// All of fsck on a device: what comes before the passes, the passes, the closing.
pub(crate) fn fsck(device: Arc<dyn Device>, answers: Answers) -> Result<Vec<Outcome>, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let mut ready =
        open(device, &OpenOptions::default(), &answers).map_err(|error| text(&error))?;
    let options = Options { threads: 1, ..Options::default() };
    let report =
        extant_check::repair(&mut ready.store, &options, &answers).map_err(|error| text(&error))?;
    let closing = if report.errors_left { Closing::ErrorsLeft } else { Closing::Clean };
    let mut outcomes = report.outcomes;
    outcomes.extend(ready.close(closing, &answers).map_err(|error| text(&error))?);
    Ok(outcomes)
}

/// The codes that a look at an image finds.
pub(crate) fn look(path: &Path) -> Result<Vec<Code>, String> {
    let device: FileDevice = FileOptions::new().open(path).expect("the image opens");
    let mut codes: Vec<Code> =
        fsck(Arc::new(device), Answers::No)?.iter().map(|it| it.finding.code).collect();
    codes.sort_unstable();
    codes.dedup();
    Ok(codes)
}

/// What a volume is made with, and the files that it has.
pub(crate) struct Base {
    pub(crate) mke2fs: &'static [&'static str],
}

pub(crate) const EXT4: Base = Base { mke2fs: &["-t", "ext4", "-b", "1024", "-I", "256"] };
/// No checksums and no marks: what is in a free inode is looked at.
pub(crate) const PLAIN: Base = Base {
    mke2fs: &["-t", "ext4", "-b", "1024", "-I", "256", "-O", "^metadata_csum,^uninit_bg,^64bit"],
};
/// Checksums of descriptors only.
pub(crate) const MARKS: Base =
    Base { mke2fs: &["-t", "ext4", "-b", "1024", "-I", "256", "-O", "^metadata_csum,uninit_bg"] };
/// Files are block-mapped.
pub(crate) const EXT2: Base = Base { mke2fs: &["-t", "ext2", "-b", "1024", "-I", "256"] };
pub(crate) const QUOTA: Base =
    Base { mke2fs: &["-t", "ext4", "-b", "1024", "-I", "256", "-O", "quota"] };

pub(crate) const MMP: Base =
    Base { mke2fs: &["-t", "ext4", "-b", "1024", "-I", "256", "-O", "mmp"] };

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
        grow(&source);
        let mut words = self.mke2fs.to_vec();
        words.extend(["-d", source.to_str().expect("UTF-8")]);
        let image = TempImage::by_mke2fs(16 << 20, &words).expect("mke2fs makes it");
        let e2fsck = tool("e2fsck").expect("asked for before");
        e2fsck.run(["-fyD", image.path().to_str().expect("UTF-8")]);
        image
    }
}

pub(crate) struct Hand {
    pub(crate) volume: Offline,
}

impl Hand {
    pub(crate) fn on(image: &Path) -> Self {
        Self { volume: Offline::open(device(image)).expect("a healthy volume opens") }
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

    fn format(&self, dir: InodeNo) -> DirFormat {
        DirFormat::new(self.volume.geometry(), dir, self.decoded(dir).generation)
    }

    /// The block and the offset of a name.
    fn place(&self, dir: InodeNo, name: &str) -> (u64, usize) {
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
