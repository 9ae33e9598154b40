//! Buddies under the memory limit.

use extant_device::{Direct, FileDevice};
use extant_engine::edit::{AllocationRequest, Purpose};
use extant_engine::{Credentials, Volume, VolumeOptions, testing};
use extant_ondisk::{GroupNo, InodeNo};
use extant_runtime::env::Env;
use extant_testkit::{TempImage, e2fsck_fn, skip, tool};
use std::sync::Arc;

/// The least memory for a volume of 4,096 groups.
const MEMORY: u64 = (16 << 20) + 4096 * 32;
/// The bytes that buddies may take, and the excess until the least recently used ones are found.
const SHARE: u64 = MEMORY / 8 + MEMORY / 64;

/// Buddies count under the limit: there are never more than their share, and they go first when
/// data want the memory.
#[test]
fn buddies_go_when_memory_is_short() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    let options = ["-t", "ext4", "-b", "1024", "-N", "65536", "-E", "lazy_itable_init=1"];
    let image = TempImage::by_mke2fs(32 << 30, &options).unwrap();
    let memory = MEMORY;
    let live = VolumeOptions { memory, ..VolumeOptions::default() };
    let device = extant_device::FileDeviceOptions::new().write(true).direct(Direct::WherePossible);
    let device: Arc<FileDevice> = Arc::new(device.open(image.path()).unwrap());
    let volume = Volume::open(device, &Env::stepped(1), &live).unwrap();
    let geometry = volume.geometry().clone();
    let look_at_all = || {
        for group in (0..geometry.groups_count).map(GroupNo) {
            let request = AllocationRequest {
                inode: InodeNo::ROOT,
                purpose: Purpose::Metadata,
                goal: Some(geometry.group_start(group)),
                count: 4,
                part: None,
            };
            testing::find(&volume, request).unwrap();
            let taken = testing::buddy_bytes(&volume);
            assert!(taken <= SHARE, "{taken} bytes of {memory} at {group:?}");
        }
    };
    look_at_all();
    let full = testing::buddy_bytes(&volume);
    assert!(full > memory / 16, "{full} bytes: all groups were looked at");
    // More than may be delayed, and the background writer does not run: every writer waits for
    // memory.
    let file = volume.create(InodeNo::ROOT, b"file", 0o644, &Credentials::ROOT).unwrap().number;
    let piece = vec![7; 256 << 10];
    for at in 0..64 {
        volume.write(file, at * piece.len() as u64, &piece).unwrap();
    }
    let left = testing::buddy_bytes(&volume);
    assert!(left < full / 2, "{left} bytes of {full} are left");
    // They are made again.
    look_at_all();
    volume.close().unwrap();
    e2fsck_fn(&image.path()).unwrap();
}
