//! The kinds of volumes that histories run on.

use crate::devices::JOURNAL;
use extant_device::{Device, MemoryDevice};
use extant_ondisk::jbd2::{JournalSuperblock, RawJournalSuperblock};
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET};
use extant_ondisk::{CompatFeatures, GroupNo, Uuid};
use extant_testkit::history::{Family, Profile, Rules};
use extant_testkit::{TempImage, tool};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use zerocopy::IntoBytes;

/// A kind of volume: the options of mke2fs, and their consequences for the model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) args: &'static [&'static str],
    pub(crate) block_size: u64,
    pub(crate) cluster_size: u64,
    pub(crate) extents: bool,
    /// This kernel mounts it for writing.
    pub(crate) kernel: bool,
    pub(crate) ea_inode: bool,
    /// Inodes have no room for nanoseconds.
    pub(crate) old_inodes: bool,
    /// The journal has a device of its own.
    pub(crate) external_journal: bool,
}

const BASE: Kind = Kind {
    name: "",
    args: &[],
    block_size: 1024,
    cluster_size: 1024,
    extents: true,
    kernel: true,
    ea_inode: false,
    old_inodes: false,
    external_journal: false,
};

/// Seeds of histories that failed once, and are run each time.
const KEPT: &[u64] = &[];
/// Histories of different rounds have seeds so far apart.
const APART: u64 = 1000;

fn number(name: &str) -> Option<u64> {
    let asked = std::env::var(name).ok()?;
    Some(asked.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// Number of histories for each kind and profile: EXTANT_HISTORIES, else 1.
pub(crate) fn count() -> u64 {
    number("EXTANT_HISTORIES").unwrap_or(1)
}

/// Whether histories are run that an ordinary run does not have: what is rare may be missing from
/// them.
pub(crate) fn are_others() -> bool {
    number("EXTANT_SEED").is_some()
}

/// The rounds of histories whose first seed is `first`, each with its seed: [`count`] of them, from
/// EXTANT_SEED on, else from 0; and those with a seed that is kept.
pub(crate) fn rounds(first: u64) -> Vec<(u64, u64)> {
    let asked = number("EXTANT_SEED").unwrap_or(0);
    let kept = KEPT.iter().filter(|seed| **seed >= first && (*seed - first).is_multiple_of(APART));
    let kept: BTreeSet<u64> = kept.map(|seed| (seed - first) / APART).collect();
    let rounds: BTreeSet<u64> = (asked..asked + count()).chain(kept).collect();
    rounds.into_iter().map(|round| (round, first + APART * round)).collect()
}

/// Says how many histories were run, and what else was counted in them, for `cargo xtask soak` to
/// add up.
pub(crate) fn report(histories: usize, others: &str) {
    println!("soak: histories={histories} {others}");
}

/// Calls on names, and the attributes that go with them.
pub(crate) fn names() -> Profile {
    Profile::names().with(&[(Family::Attributes, 10)])
}

/// All of them; the first ones differ most.
pub(crate) fn all() -> Vec<Kind> {
    let small = |name, args| Kind { name, args, ..BASE };
    let large = |name, args| Kind { name, args, block_size: 4096, cluster_size: 4096, ..BASE };
    let ext4_1k: &[&str] = &["-t", "ext4", "-b", "1024", "-J", "size=1"];
    vec![
        small("ext4-1k", ext4_1k),
        Kind { extents: false, ..small("ext2-1k", &["-t", "ext2", "-b", "1024"]) },
        Kind { extents: false, ..large("ext3-4k", &["-t", "ext3", "-b", "4096", "-J", "size=4"]) },
        large("ext4-4k", &["-t", "ext4", "-b", "4096", "-J", "size=4"]),
        Kind {
            old_inodes: true,
            extents: false,
            ..small("ext2-128", &["-t", "ext2", "-b", "1024", "-I", "128"])
        },
        small("no-journal", &["-t", "ext4", "-b", "1024", "-O", "^has_journal"]),
        Kind {
            extents: false,
            ..small(
                "no-extents",
                &["-t", "ext4", "-b", "1024", "-J", "size=1", "-O", "^extents,^64bit"],
            )
        },
        small("no-dir-index", &["-t", "ext4", "-b", "1024", "-J", "size=1", "-O", "^dir_index"]),
        small(
            "uninit-bg",
            &["-t", "ext4", "-b", "1024", "-J", "size=1", "-O", "^metadata_csum,uninit_bg,^64bit"],
        ),
        small(
            "no-checksums",
            &["-t", "ext4", "-b", "1024", "-J", "size=1", "-O", "^metadata_csum"],
        ),
        Kind {
            cluster_size: 16_384,
            ..small(
                "bigalloc",
                &["-t", "ext4", "-b", "1024", "-J", "size=1", "-O", "bigalloc", "-C", "16384"],
            )
        },
        small(
            "inline-data",
            &["-t", "ext4", "-b", "1024", "-J", "size=1", "-O", "inline_data", "-I", "256"],
        ),
        large(
            "inline-data-512",
            &["-t", "ext4", "-b", "4096", "-J", "size=4", "-O", "inline_data", "-I", "512"],
        ),
        Kind {
            ea_inode: true,
            ..small("ea-inode", &["-t", "ext4", "-b", "1024", "-J", "size=1", "-O", "ea_inode"])
        },
        small("orphan-file", &["-t", "ext4", "-b", "1024", "-J", "size=1", "-O", "orphan_file"]),
        small("large-dir", &["-t", "ext4", "-b", "1024", "-J", "size=1", "-O", "large_dir"]),
        small(
            "meta-bg",
            &["-t", "ext4", "-b", "1024", "-J", "size=1", "-O", "meta_bg,^resize_inode,^flex_bg"],
        ),
        small(
            "sparse-super2",
            &["-t", "ext4", "-b", "1024", "-J", "size=1", "-O", "sparse_super2,^resize_inode"],
        ),
        Kind {
            kernel: false,
            ..small(
                "quota",
                &[
                    "-t",
                    "ext4",
                    "-b",
                    "1024",
                    "-J",
                    "size=1",
                    "-O",
                    "quota,project",
                    "-E",
                    "quotatype=usrquota:grpquota:prjquota",
                ],
            )
        },
        Kind {
            kernel: false,
            ..large("casefold", &["-t", "ext4", "-b", "4096", "-J", "size=4", "-O", "casefold"])
        },
        Kind {
            external_journal: true,
            ..small("external", &["-t", "ext4", "-b", "1024", "-O", "^has_journal"])
        },
        // The kernel fails on some logs with fast commits.
        Kind {
            kernel: false,
            ..small(
                "fast-commit",
                &[
                    "-t",
                    "ext4",
                    "-b",
                    "1024",
                    "-J",
                    "size=1,fast_commit_size=256",
                    "-O",
                    "fast_commit",
                ],
            )
        },
        Kind {
            kernel: false,
            ..large(
                "fast-commit-4k",
                &[
                    "-t",
                    "ext4",
                    "-b",
                    "4096",
                    "-J",
                    "size=4,fast_commit_size=256",
                    "-O",
                    "fast_commit",
                ],
            )
        },
        Kind { extents: false, ..large("ext2-4k", &["-t", "ext2", "-b", "4096"]) },
        Kind { extents: false, ..small("ext3-1k", &["-t", "ext3", "-b", "1024", "-J", "size=1"]) },
        small(
            "plain",
            &[
                "-t",
                "ext4",
                "-b",
                "1024",
                "-J",
                "size=1",
                "-O",
                "^64bit,^flex_bg,^dir_nlink,^huge_file,^extra_isize,^large_file,^resize_inode",
            ],
        ),
        Kind {
            kernel: false,
            ..large(
                "unknown-files",
                &["-t", "ext4", "-b", "4096", "-J", "size=4", "-O", "verity,encrypt,stable_inodes"],
            )
        },
        Kind {
            cluster_size: 65_536,
            ..large(
                "bigalloc-4k",
                &["-t", "ext4", "-b", "4096", "-J", "size=4", "-O", "bigalloc", "-C", "65536"],
            )
        },
        small(
            "mmp",
            &[
                "-t",
                "ext4",
                "-b",
                "1024",
                "-J",
                "size=1",
                "-O",
                "mmp",
                "-E",
                "mmp_update_interval=1",
            ],
        ),
    ]
}

impl Kind {
    /// Whether it has a journal.
    pub(crate) fn has_journal(&self) -> bool {
        self.external_journal
            || !self.args.contains(&"ext2") && !self.args.contains(&"^has_journal")
    }

    /// A fresh volume of `size` bytes; the error is why it could not be made.
    pub(crate) fn image(&self, bytes: u64) -> Result<TempImage, String> {
        tool("mke2fs").ok_or("no mke2fs here")?;
        // Numbers as if made by one machine, so that a seed gives the same volume.
        let fixed = [
            "-U",
            "6d1ba6bc-8a8f-4b0c-9e3a-0b6f1f2e3d4c",
            "-E",
            "hash_seed=0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0,lazy_itable_init=1,lazy_journal_init=1",
        ];
        let args: Vec<&str> = match self.args.contains(&"-E") {
            true => self.args.to_vec(),
            false => fixed.iter().chain(self.args).copied().collect(),
        };
        TempImage::by_mke2fs(bytes, &args)
    }

    /// A fresh volume of `size` bytes with a journal on a device of its own, which follows it.
    pub(crate) fn with_journal(&self, bytes: u64) -> Result<MemoryDevice, String> {
        // Devices are found by it, those of other tests too.
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let uuid = format!("{:08x}-7d5e-4b58-9a1c-3f2e{number:08x}", std::process::id());
        let args = ["-O", "journal_dev", "-b", "1024", "-U", &uuid];
        let journal = TempImage::by_mke2fs(JOURNAL, &args)?;
        let mut all = std::fs::read(self.image(bytes)?.path()).unwrap();
        all.extend(std::fs::read(journal.path()).unwrap());
        let device = MemoryDevice::from_bytes(&all);
        // mke2fs takes block devices alone for journals, so volume and journal learn of each other
        // here.
        let mut bytes_of = [0; 1024];
        device.read_at(SUPERBLOCK_OFFSET, &mut bytes_of).unwrap();
        let mut volume = RawSuperblock::from_bytes(&bytes_of, GroupNo(0)).unwrap();
        let mut features = volume.features();
        features.compat.insert(CompatFeatures::HAS_JOURNAL);
        volume.set_features(features);
        device.read_at(bytes + SUPERBLOCK_OFFSET, &mut bytes_of).unwrap();
        volume.s_journal_uuid = RawSuperblock::from_bytes(&bytes_of, GroupNo(0)).unwrap().s_uuid;
        volume.seal();
        device.write_at(SUPERBLOCK_OFFSET, volume.as_bytes()).unwrap();
        let at = bytes + 2 * 1024;
        device.read_at(at, &mut bytes_of).unwrap();
        let raw = RawJournalSuperblock::from_bytes(&bytes_of).unwrap();
        let mut journal = JournalSuperblock::decode(&raw).unwrap();
        journal.users.push(Uuid(volume.s_uuid));
        let mut raw = journal.encode();
        raw.seal();
        device.write_at(at, raw.as_bytes()).unwrap();
        Ok(device)
    }

    /// The properties of it that the model needs.
    pub(crate) fn rules(&self) -> Rules {
        let blocks = match self.extents {
            true => 0xffff_ffff,
            // Direct blocks and three trees of pointers.
            false => {
                let pointers = self.block_size / 4;
                12 + pointers + pointers.pow(2) + pointers.pow(3)
            }
        };
        Rules {
            granule: self.cluster_size,
            block_size: self.block_size,
            extents: self.extents,
            max_size: blocks * self.block_size,
            may_fill: false,
            counts_inodes: !self.ea_inode,
            large_xattrs: self.ea_inode,
            wide_times: !self.old_inodes,
            refusals_touch: false,
            projects: self.args.contains(&"quota,project"),
            journalled_files: self.has_journal(),
            shows_extents: true,
        }
    }
}
