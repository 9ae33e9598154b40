//! Logs that are discarded, in part or whole: their transactions must never continue a new
//! transaction.

use std::sync::Arc;

use extant_device::{Device, MemoryDevice};
use extant_journal::{
    Finish, Journal, JournalLocation, JournalOptions, Log, NoHooks, OpenLog, recover_volume,
};
use extant_ondisk::jbd2::{BlockType, Header};
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET};
use extant_ondisk::{BlockNo, Geometry, GroupNo, IncompatFeatures, Tid};
use extant_runtime::env::Env;
use extant_testkit::{TempImage, skip, tool};
use zerocopy::{FromZeros, IntoBytes};

/// Number of transactions in a log, each of one block.
const TRANSACTIONS: u32 = 5;

fn superblock(device: &dyn Device) -> RawSuperblock {
    let mut raw = RawSuperblock::new_zeroed();
    device.read_at(SUPERBLOCK_OFFSET, raw.as_mut_bytes()).unwrap();
    raw.verify(GroupNo(0)).unwrap();
    raw
}

fn place(device: &dyn Device) -> JournalLocation {
    let raw = superblock(device);
    JournalLocation::internal(device, &raw, &Geometry::new(&raw).unwrap()).unwrap()
}

/// Commits `transactions` changes of a free block, each filled with `fill`, and cuts the power.
fn work(device: &Arc<MemoryDevice>, transactions: u32, fill: u8) {
    let geometry = Geometry::new(&superblock(&**device)).unwrap();
    let log = OpenLog { device: device.clone(), place: place(&**device), is_external: false };
    let (env, options) = (Env::stepped(1), JournalOptions::default());
    let journal =
        Journal::open(device.clone(), &geometry, Some(log), &env, options, Arc::new(NoHooks))
            .unwrap();
    for at in 0..transactions {
        let handle = journal.start(1).unwrap();
        // The end of a new volume is free.
        let block = BlockNo(geometry.blocks_count - 10 + u64::from(at));
        let frame = journal.read(block).unwrap();
        handle.write(&frame).unwrap().fill(fill);
        drop(handle);
        journal.sync().unwrap();
    }
}

/// Byte offset and number of each log block of a type.
fn numbered(device: &MemoryDevice, kind: BlockType) -> Vec<(u64, Tid)> {
    let place = place(device);
    let mut block = vec![0; place.block_size as usize];
    let mut found = Vec::new();
    for (start, count) in place.runs.pieces(1, place.runs.blocks_count() - 1) {
        for at in (start.0..start.0 + u64::from(count)).map(|at| at * u64::from(place.block_size)) {
            device.read_at(at, &mut block).unwrap();
            if let Some(header) = Header::of(&block).filter(|header| header.block_type == kind) {
                found.push((at, header.tid));
            }
        }
    }
    found
}

fn dirty() -> Result<Arc<MemoryDevice>, String> {
    tool("mke2fs").ok_or("mke2fs is not installed")?;
    let image = TempImage::by_mke2fs(8 << 20, &["-t", "ext4", "-b", "1024"])?;
    let device = MemoryDevice::from_bytes(&std::fs::read(image.path()).unwrap());
    let device = Arc::new(device);
    work(&device, TRANSACTIONS, 1);
    Ok(device)
}

/// Asserts that the numbers of the log are not reused: the superblock has a higher one, and a new
/// transaction of the same length is not followed by old ones.
fn assert_given_up(device: &Arc<MemoryDevice>, last: Tid) {
    let place = place(&**device);
    let (_, superblock) = Log { device: &**device, place: &place }.superblock().unwrap();
    assert_eq!(superblock.start, 0);
    assert!(last.is_before(superblock.sequence), "{} after {last}", superblock.sequence);
    work(device, 1, 2);
    let recovered = recover_volume(&**device, None, Finish::Reset).unwrap().unwrap();
    assert_eq!((recovered.transactions, recovered.damage.len()), (1, 0), "{recovered:?}");
}

#[test]
fn a_log_that_the_volume_has_forgotten_keeps_its_numbers() {
    let device = match dirty() {
        Ok(device) => device,
        Err(why) => skip!("{why}"),
    };
    let commits = numbered(&device, BlockType::Commit);
    assert_eq!(commits.len() as u32, TRANSACTIONS);
    let last = commits.last().unwrap().1;
    let mut raw = superblock(&*device);
    let mut features = raw.features();
    features.incompat.remove(IncompatFeatures::RECOVER);
    raw.set_features(features);
    raw.seal();
    device.write_at(SUPERBLOCK_OFFSET, raw.as_bytes()).unwrap();
    let recovered = recover_volume(&*device, None, Finish::Reset).unwrap().unwrap();
    assert_eq!(recovered.transactions, 0);
    assert_given_up(&device, last);
}

#[test]
fn transactions_behind_a_broken_one_keep_their_numbers() {
    let device = match dirty() {
        Ok(device) => device,
        Err(why) => skip!("{why}"),
    };
    let commits = numbered(&device, BlockType::Commit);
    let ((broken, tid), last) = (commits[1], commits.last().unwrap().1);
    // The checksum of a commit block.
    device.write_at(broken + 0x10, &[0xff; 4]).unwrap();
    let recovered = recover_volume(&*device, None, Finish::Reset).unwrap().unwrap();
    assert_eq!((recovered.transactions, recovered.damage.len()), (1, 1), "{recovered:?}");
    assert!(tid.is_before(last));
    assert_given_up(&device, last);
}
