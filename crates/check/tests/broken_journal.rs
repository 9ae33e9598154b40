//! Journals whose maps are broken, with logs that wait for their replay, on volumes that the kernel
//! left.

mod common;

use common::{Walker, findings, fsck, options};
use extant_check::{AutoPolicy, Code, Store};
use extant_device::Device;
use extant_ondisk::indirect::pointer;
use extant_ondisk::inode::Inode;
use extant_ondisk::{BlockNo, InodeNo};
use extant_testkit::tree::Random;
use extant_testkit::{LoopMount, TempImage, copied, e2fsck_fn, is_root, left_dirty, skip, tool};
use std::fs;
use std::path::Path;

/// Bytes of a block: a journal of 1,024 blocks has three blocks of pointers below the double
/// indirect one.
const BLOCK: usize = 1024;
/// The slots of `i_block` with the indirect and the double indirect block.
const SINGLE: usize = 12;
const DOUBLE: usize = 13;

const EXT3: &[&str] = &["-t", "ext3"];
/// Without checksums, and with tables that may lie in any group.
const PLAIN: &[&str] = &["-t", "ext4", "-O", "^metadata_csum,^uninit_bg,^64bit,^orphan_file"];

/// A volume whose last names are in the log alone.
fn dirty(args: &[&str]) -> Result<TempImage, String> {
    if !is_root() || tool("mke2fs").is_none() || tool("e2fsck").is_none() {
        return Err("needs root, mke2fs and e2fsck".to_owned());
    }
    let args = [args, &["-b", "1024", "-J", "size=1"]].concat();
    let image = TempImage::by_mke2fs(16 << 20, &args)?;
    let mount = LoopMount::new(&image.path(), "")?;
    fs::create_dir(mount.path().join("d")).unwrap();
    (0..50).for_each(|at| fs::write(mount.path().join(format!("d/{at}")), [at; 3000]).unwrap());
    // Some of them lie in the second group, in places that reserved inodes have in the first.
    (0..60).for_each(|at| fs::create_dir(mount.path().join(format!("dir-{at}"))).unwrap());
    mount.unmount()?;
    left_dirty(&image.path(), "", |root| {
        fs::rename(root.join("d"), root.join("moved")).unwrap();
        for at in 0..20 {
            fs::rename(root.join(format!("moved/{at}")), root.join(format!("moved/new-{at}")))
                .unwrap();
        }
        // New blocks and inodes: the log gets descriptors.
        for at in 0..30 {
            fs::write(root.join(format!("moved/young-{at}")), [at; 3000]).unwrap();
        }
        fs::File::open(root).and_then(|root| root.sync_all()).unwrap();
    })
}

fn tree(image: &Path) -> String {
    Walker::tree(&Store::open(common::open(image, false)).unwrap())
}

/// A block of the journal's map: below a slot of `i_block`, along the pointers with these numbers.
fn node(image: &Path, slot: usize, way: &[usize]) -> BlockNo {
    let store = Store::open(common::open(image, false)).unwrap();
    let record = store.read_inode(InodeNo::JOURNAL).unwrap().unwrap();
    let inode = Inode::decode(&record, InodeNo::JOURNAL, store.geometry()).unwrap();
    let first = pointer(&inode.i_block, slot).unwrap();
    way.iter().fold(first, |block, at| pointer(&store.read(block).unwrap(), *at).unwrap())
}

/// Repairs a volume, which e2fsck then finds clean: its tree, the codes, and the findings in words.
fn repaired(image: &Path) -> (String, Vec<Code>, String) {
    let report = fsck(image, &options(), AutoPolicy::Yes).unwrap();
    let said = findings(&report);
    e2fsck_fn(image).unwrap_or_else(|error| panic!("{error}\n{said}"));
    (tree(image), report.findings.iter().map(|it| it.finding.code).collect(), said)
}

/// Whether the log was replayed, and whether the journal was given up.
fn state(codes: &[Code]) -> [bool; 2] {
    [Code::JournalRecovered, Code::JournalDeleted].map(|code| codes.contains(&code))
}

/// Overwrites a block from a pointer on.
fn spoil(image: &Path, block: BlockNo, from: usize) {
    let bytes = Random::new(5).bytes(BLOCK - from * 4);
    let at = block.0 * BLOCK as u64 + from as u64 * 4;
    common::open(image, true).write_at(at, &bytes).unwrap();
}

/// The log has the descriptors as they were. Until it is replayed they lead to other tables, where
/// nothing is to be written.
#[test]
fn the_inode_of_a_journal_is_restored_after_the_replay() {
    let image = match dirty(PLAIN) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let whole = copied(&image.path()).unwrap();
    fsck(&whole.path(), &options(), AutoPolicy::Yes).unwrap();
    let device = common::open(&image.path(), true);
    let mut descriptors = [0; 64];
    device.read_at(2048, &mut descriptors).unwrap();
    descriptors.rotate_left(32);
    device.write_at(2048, &descriptors).unwrap();
    drop(device);
    let (found, codes, said) = repaired(&image.path());
    assert!(codes.contains(&Code::JournalRecovered), "{said}");
    assert_eq!(found, tree(&whole.path()), "{said}");
}

#[test]
fn what_waits_in_a_log_is_replayed_where_the_map_still_leads_to_it() {
    let image = match dirty(EXT3) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let whole = copied(&image.path()).unwrap();
    fsck(&whole.path(), &options(), AutoPolicy::Yes).unwrap();
    let expected = tree(&whole.path());
    assert!(expected.contains("/moved/new-19"), "{expected}");

    // Past the journal's end: it stays.
    let ours = copied(&image.path()).unwrap();
    spoil(&ours.path(), node(&ours.path(), DOUBLE, &[]), 3);
    let (found, codes, said) = repaired(&ours.path());
    assert_eq!(state(&codes), [true, false], "{said}");
    assert_eq!(found, expected, "{said}");

    // A block past the end, after a hole.
    let ours = copied(&image.path()).unwrap();
    let last = node(&ours.path(), DOUBLE, &[2]);
    let at = last.0 * BLOCK as u64 + 253 * 4;
    common::open(&ours.path(), true).write_at(at, &8000_u32.to_le_bytes()).unwrap();
    let (found, codes, said) = repaired(&ours.path());
    assert_eq!(state(&codes), [true, false], "{said}");
    assert_eq!(found, expected, "{said}");

    // In the part of the log that was never used: it is replayed, and the journal made again.
    let ours = copied(&image.path()).unwrap();
    spoil(&ours.path(), node(&ours.path(), DOUBLE, &[2]), 0);
    let (found, codes, said) = repaired(&ours.path());
    assert_eq!(state(&codes), [true, true], "{said}");
    assert_eq!(found, expected, "{said}");

    // In the part that waits: nothing is replayed.
    let ours = copied(&image.path()).unwrap();
    spoil(&ours.path(), node(&ours.path(), SINGLE, &[]), 0);
    let (_, codes, said) = repaired(&ours.path());
    assert_eq!(state(&codes), [false, true], "{said}");
}
