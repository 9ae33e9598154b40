//! The memory limit: a volume of many groups works with the least there may be, and takes no more.
//! Alone in its process, whose memory is what is looked at.

use extant_device::{Direct, FileDevice};
use extant_engine::{Credentials, DataMode, Volume, VolumeOptions};
use extant_ondisk::{GroupNo, InodeNo};
use extant_reader::VolumeRead;
use extant_runtime::env::Env;
use extant_runtime::sync::thread;
use extant_testkit::{TempImage, e2fsck_fn, skip, tool};
use std::sync::Arc;

/// Enough memory, except for the groups.
const LEAST: u64 = 16 << 20;
const PER_GROUP: u64 = 32;

/// VmHWM: the most memory that the process ever had.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}

fn open(image: &TempImage, options: &VolumeOptions) -> Volume {
    let device = extant_device::FileDeviceOptions::new().write(true).direct(Direct::WherePossible);
    let device: Arc<FileDevice> = Arc::new(device.open(image.path()).unwrap());
    Volume::open(device, &Env::threads(), options).unwrap()
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
        let live = VolumeOptions { memory, data: Some(data), ..VolumeOptions::default() };
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
                            volume.mkdir(InodeNo::ROOT, name.as_bytes(), 0o755, &Credentials::ROOT);
                        let dir = made.unwrap().number;
                        let file =
                            volume.create(dir, b"file", 0o644, &Credentials::ROOT).unwrap().number;
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
            volume.resolve(format!("/{data:?}-3-39/file").as_bytes(), extant_reader::Follow::No);
        let mut bytes = vec![0; 800_000];
        assert_eq!(volume.read(last.unwrap().number, 0, &mut bytes).unwrap(), 800_000);
        assert!(bytes.iter().all(|byte| *byte == 4));
        volume.close().unwrap();
    }
    let taken = peak() - before;
    assert!(taken <= memory + (8 << 20), "{} MiB were taken of {}", taken >> 20, memory >> 20);
    e2fsck_fn(&image.path()).unwrap();
}
