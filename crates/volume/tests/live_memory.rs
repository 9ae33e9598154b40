//! The memory limit: a volume of many groups works with the least there may be, and takes no more.

use extant_device::env::Env;
use extant_device::sync::thread;
use extant_device::{Direct, FileDevice};
use extant_ondisk::{GroupNo, InodeNo};
use extant_testkit::{TempImage, e2fsck_fn, skip, tool};
use extant_volume::edit::{AllocationRequest, Purpose};
use extant_volume::{Creator, DataMode, LiveOptions, OpenOptions, Volume, testing};
use std::sync::Arc;

/// What is enough, but for the groups.
const LEAST: u64 = 16 << 20;
const PER_GROUP: u64 = 32;

/// VmHWM: the most memory that the process ever had.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}

fn open(image: &TempImage, options: &LiveOptions) -> Volume {
    let device = extant_device::OpenOptions::new().write(true).direct(Direct::WherePossible);
    let device: Arc<FileDevice> = Arc::new(device.open(image.path()).unwrap());
    OpenOptions::default().open_live(device, &Env::threads(), options).unwrap()
}

/// Every group is looked at, many files are written by several threads, and read again.
#[test]
fn a_volume_of_many_groups_works_with_the_least_memory() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    // 8 MiB a group: 4,096 of them.
    let options = ["-t", "ext4", "-b", "1024", "-N", "65536", "-E", "lazy_itable_init=1"];
    let image = TempImage::by_mke2fs(32 << 30, &options).unwrap();
    let before = peak();
    let memory = LEAST + 4096 * PER_GROUP;
    for data in [DataMode::Ordered, DataMode::Writeback] {
        let live = LiveOptions { memory, data: Some(data), ..LiveOptions::default() };
        let volume = open(&image, &live);
        assert_eq!(volume.geometry().groups_count, 4096);
        thread::scope(|scope| {
            for thread in 0..4_u8 {
                let volume = &volume;
                scope.spawn(move || {
                    let piece = vec![thread + 1; 100_000];
                    for number in 0..40_u64 {
                        // Directories are spread over the groups.
                        let name = format!("{data:?}-{thread}-{number}");
                        let made =
                            volume.mkdir(InodeNo::ROOT, name.as_bytes(), 0o755, &Creator::ROOT);
                        let dir = made.unwrap().number;
                        let file =
                            volume.create(dir, b"file", 0o644, &Creator::ROOT).unwrap().number;
                        for at in 0..8 {
                            volume.write(file, at * 100_000, &piece).unwrap();
                        }
                    }
                });
            }
        });
        volume.sync().unwrap();
        assert_eq!(volume.reserved_space(), 0);
        for group in (0..4096).step_by(3).map(GroupNo) {
            volume.bitmap(group, extant_ondisk::bitmap::BitmapKind::Block).unwrap();
        }
        let last =
            volume.resolve(format!("/{data:?}-3-39/file").as_bytes(), extant_volume::Follow::No);
        let mut bytes = vec![0; 800_000];
        assert_eq!(volume.read(last.unwrap().number, 0, &mut bytes).unwrap(), 800_000);
        assert!(bytes.iter().all(|byte| *byte == 4));
        volume.close().unwrap();
    }
    let taken = peak() - before;
    assert!(taken <= memory + (8 << 20), "{} MiB were taken of {}", taken >> 20, memory >> 20);
    e2fsck_fn(&image.path()).unwrap();
}

/// Buddies count under the limit: there are never more than their share, and they go first when data want the memory.
#[test]
fn buddies_go_when_memory_is_short() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    let options = ["-t", "ext4", "-b", "1024", "-N", "65536", "-E", "lazy_itable_init=1"];
    let image = TempImage::by_mke2fs(32 << 30, &options).unwrap();
    let memory = LEAST + 4096 * PER_GROUP;
    let volume = open(&image, &LiveOptions { memory, ..LiveOptions::default() });
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
            let taken = testing::buddy_bytes(&volume).unwrap();
            assert!(taken <= memory / 8 + 4096, "{taken} bytes of {memory} at {group:?}");
        }
    };
    look_at_all();
    let full = testing::buddy_bytes(&volume).unwrap();
    assert!(full > memory / 16, "{full} bytes: all groups were looked at");
    // More than may be delayed: whoever writes waits for memory.
    let file = volume.create(InodeNo::ROOT, b"file", 0o644, &Creator::ROOT).unwrap().number;
    let piece = vec![7; 256 << 10];
    for at in 0..64 {
        volume.write(file, at * piece.len() as u64, &piece).unwrap();
    }
    let left = testing::buddy_bytes(&volume).unwrap();
    assert!(left < full / 2, "{left} bytes of {full} are left");
    // They are made again.
    look_at_all();
    volume.close().unwrap();
    e2fsck_fn(&image.path()).unwrap();
}
