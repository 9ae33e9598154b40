//! Damage to what comes before the passes: found, repaired, and e2fsck finds nothing more.

use std::path::Path;
use std::sync::Arc;

use extant_check::front::{Closing, OpenOptions, open};
use extant_check::{Answers, Code, Outcome};
use extant_device::{Device, FileDevice, OpenOptions as FileOptions};
use extant_journal::offline::Offline;
use extant_ondisk::superblock::RawSuperblock;
use extant_ondisk::{BlockNo, GroupNo, IncompatFeatures, InodeNo};
use extant_testkit::{TempImage, e2fsck_fn, skip, tool};

fn device(path: &Path) -> Arc<dyn Device> {
    let device: FileDevice = FileOptions::new().write(true).open(path).unwrap();
    Arc::new(device)
}

fn run(path: &Path, answers: Answers) -> Vec<Outcome> {
    let ready = open(device(path), &OpenOptions::default(), &answers).unwrap();
    let closing = if answers == Answers::No { Closing::Skipped } else { Closing::Clean };
    ready.close(closing, &answers).unwrap()
}

fn codes(outcomes: &[Outcome]) -> Vec<Code> {
    outcomes.iter().map(|outcome| outcome.finding.code).collect()
}

/// One damage: its name, what the volume is made with, what is done to it, what must be found.
struct Damage {
    name: &'static str,
    mke2fs: &'static [&'static str],
    spoil: fn(&mut Offline),
    found: Code,
}

const EXT4: &[&str] = &["-t", "ext4", "-b", "1024"];

fn change(volume: &mut Offline, change: impl FnOnce(&mut RawSuperblock)) {
    volume.update_superblock(change).unwrap();
    volume.commit().unwrap();
}

fn overwrite(volume: &Offline, block: u64, spoil: impl FnOnce(&mut [u8])) {
    let mut bytes = volume.read(BlockNo(block)).unwrap();
    spoil(&mut bytes);
    volume.write(BlockNo(block), &bytes).unwrap();
}

fn journal_start(volume: &Offline) -> u64 {
    let record = volume.read_inode(InodeNo::JOURNAL).unwrap();
    let inode = extant_ondisk::inode::Inode::decode(&record, InodeNo::JOURNAL, volume.geometry());
    let map = volume.read_map(InodeNo::JOURNAL, &inode.unwrap()).unwrap();
    map.data().next().unwrap().start
}

const DAMAGES: &[Damage] = &[
    Damage {
        name: "no superblock",
        mke2fs: EXT4,
        spoil: |volume| overwrite(volume, 1, |bytes| bytes.fill(0)),
        found: Code::SuperblockInvalid,
    },
    Damage {
        name: "no superblock, unusual groups",
        mke2fs: &["-t", "ext4", "-b", "1024", "-g", "2048"],
        spoil: |volume| overwrite(volume, 1, |bytes| bytes.fill(0xff)),
        found: Code::SuperblockInvalid,
    },
    Damage {
        name: "superblock's checksum, one group of blocks of 4 KiB",
        mke2fs: &["-t", "ext4", "-b", "4096"],
        spoil: |volume| overwrite(volume, 0, |bytes| bytes[1024 + 0x78] ^= 1),
        found: Code::SuperblockChecksum,
    },
    Damage {
        name: "descriptors gone",
        mke2fs: EXT4,
        spoil: |volume| overwrite(volume, 2, |bytes| bytes[..64].fill(0)),
        found: Code::GroupDescInvalid,
    },
    Damage {
        name: "a descriptor's checksum",
        mke2fs: EXT4,
        spoil: |volume| overwrite(volume, 2, |bytes| bytes[0x1e] ^= 0x55),
        found: Code::GroupDescChecksum,
    },
    Damage {
        name: "recovery without a journal",
        mke2fs: &["-t", "ext4", "-O", "^has_journal", "-b", "1024"],
        spoil: |volume| {
            change(volume, |raw| {
                let mut features = raw.features();
                features.incompat |= IncompatFeatures::RECOVER;
                raw.set_features(features);
            });
        },
        found: Code::RecoveryWithoutJournal,
    },
    Damage {
        name: "the journal's magic number",
        mke2fs: EXT4,
        spoil: |volume| overwrite(volume, journal_start(volume), |bytes| bytes[0] ^= 0xff),
        found: Code::JournalInvalid,
    },
    Damage {
        name: "the journal's inode, with a copy in the superblock",
        mke2fs: EXT4,
        spoil: |volume| {
            let mut record = volume.read_inode(InodeNo::JOURNAL).unwrap();
            record[..100].fill(0);
            volume.write_inode(InodeNo::JOURNAL, &mut record).unwrap();
        },
        found: Code::JournalInodeBroken,
    },
    Damage {
        name: "the MMP block",
        mke2fs: &["-t", "ext4", "-O", "mmp", "-b", "1024"],
        spoil: |volume| overwrite(volume, volume.raw.s_mmp_block.get(), |bytes| bytes[0] ^= 0xff),
        found: Code::MmpMagic,
    },
    Damage {
        name: "the size of extra fields",
        mke2fs: EXT4,
        spoil: |volume| change(volume, |raw| raw.s_want_extra_isize.set(1024)),
        found: Code::ExtraIsizeBad,
    },
    Damage {
        name: "a time in the future",
        mke2fs: EXT4,
        spoil: |volume| change(volume, |raw| raw.s_mtime.set(u32::MAX)),
        found: Code::TimeInFuture,
    },
    Damage {
        name: "more unused inodes than free ones",
        mke2fs: EXT4,
        spoil: |volume| {
            volume.update_desc(GroupNo(0), |desc| desc.itable_unused = desc.free_inodes + 1);
            volume.commit().unwrap();
        },
        found: Code::GroupUnusedImpossible,
    },
];

#[test]
fn every_damage_is_found_and_repaired_and_e2fsck_agrees() {
    if tool("mke2fs").is_none() || tool("e2fsck").is_none() {
        skip!("no e2fsprogs");
    }
    let mut failures = Vec::new();
    for damage in DAMAGES {
        let image = TempImage::by_mke2fs(32 << 20, damage.mke2fs).unwrap();
        let path = image.path();
        let mut volume = Offline::open(device(&path)).unwrap();
        (damage.spoil)(&mut volume);
        drop(volume);

        let before = std::fs::read(&path).unwrap();
        let looked = run(&path, Answers::No);
        assert_eq!(std::fs::read(&path).unwrap(), before, "{}: a look wrote", damage.name);
        if !codes(&looked).contains(&damage.found) {
            failures.push(format!("{}: not found: {looked:?}", damage.name));
        }
        let repaired = run(&path, Answers::Yes);
        if !repaired.iter().any(|it| it.finding.code == damage.found && it.repaired) {
            failures.push(format!("{}: not repaired: {repaired:?}", damage.name));
        }
        if let Err(said) = e2fsck_fn(&path) {
            failures.push(format!("{}: {said}", damage.name));
        }
        let again = run(&path, Answers::Yes);
        if !again.is_empty() {
            failures.push(format!("{}: a second run: {again:?}", damage.name));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn a_sound_volume_has_no_findings() {
    if tool("mke2fs").is_none() {
        skip!("no mke2fs");
    }
    let shapes: [&[&str]; 6] = [
        EXT4,
        &["-t", "ext2", "-r", "0", "-b", "1024"],
        &["-t", "ext4", "-O", "mmp,orphan_file,quota"],
        &["-t", "ext4", "-O", "meta_bg,^resize_inode", "-b", "1024"],
        &["-t", "ext4", "-O", "bigalloc"],
        &["-t", "ext4", "-o", "hurd", "-O", "^filetype"],
    ];
    for mke2fs in shapes {
        let Ok(image) = TempImage::by_mke2fs(32 << 20, mke2fs) else { continue };
        for answers in [Answers::No, Answers::Yes] {
            assert_eq!(codes(&run(&image.path(), answers)), [], "{mke2fs:?}");
        }
    }
}
