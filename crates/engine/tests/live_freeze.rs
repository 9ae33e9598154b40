//! A frozen volume: no write reaches the device until it is thawed, also of operations that were in
//! progress.

mod common;

use common::pause;
use extant_device::{Device, DeviceError, MemoryDevice, Operation, Request};
use extant_engine::ops::FallocateMode;
use extant_engine::{Credentials, DataMode, Volume, VolumeOptions};
use extant_ondisk::InodeNo;
use extant_runtime::env::Env;
use extant_runtime::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use extant_runtime::sync::thread::scope;
use extant_testkit::{TempImage, e2fsck_fn, skip, tool};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

const ROOT: InodeNo = InodeNo::ROOT;
const MIB: u64 = 1 << 20;

/// A device that takes its time over writes, and counts those that reach it while it should get
/// none.
#[derive(Debug)]
struct Quiet {
    inner: MemoryDevice,
    is_quiet: AtomicBool,
    broken: AtomicU64,
}

impl Device for Quiet {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        let writes = |request: &Request<'_>| {
            !matches!(request.operation(), Operation::Read | Operation::Flush)
        };
        if !batch.iter().any(writes) {
            return self.inner.submit(batch);
        }
        pause(Duration::from_micros(500));
        let done = self.inner.submit(batch);
        if self.is_quiet.load(Ordering::SeqCst) {
            self.broken.fetch_add(1, Ordering::SeqCst);
        }
        done
    }

    fn next_data(&self, range: Range<u64>) -> Result<Option<Range<u64>>, DeviceError> {
        self.inner.next_data(range)
    }

    fn is_read_only(&self) -> bool {
        false
    }
}

fn create(volume: &Volume, name: &str) -> InodeNo {
    volume.create(ROOT, name.as_bytes(), 0o644, &Credentials::ROOT).unwrap().number
}

/// The work of a thread on its file, repeated.
type Work = fn(&Volume, InodeNo, u64);

const WORK: [(&str, Work); 5] = [
    ("overwrite", |volume, file, turn| {
        volume.write(file, turn % 200 * 4096, &[turn as u8; 4096]).unwrap();
    }),
    ("part of a block", |volume, file, turn| {
        volume.write(file, turn % 200 * 4096 + 100, &[turn as u8; 300]).unwrap();
    }),
    ("append", |volume, file, turn| {
        if turn % 64 == 0 {
            volume.truncate(file, 5000).unwrap();
        }
        volume.append_by(file, &[turn as u8; 3000], &Credentials::ROOT).unwrap();
        if turn % 5 == 0 {
            volume.fdatasync(file).unwrap();
        }
    }),
    ("zeros", |volume, file, turn| {
        let (at, len) = (turn % 100 * 4096 + 70, 5000);
        volume.fallocate(file, FallocateMode::ZeroRangeKeepSize, at, len).unwrap();
    }),
    ("cut", |volume, file, turn| {
        volume.truncate(file, 200_000 + turn % 7 * 100).unwrap();
        volume.write(file, 300_000, &[turn as u8; 700]).unwrap();
    }),
];

/// Freezes and thaws a volume on which threads write.
fn no_write_passes(options: &VolumeOptions, what: &str) -> Result<(), String> {
    tool("mke2fs").ok_or("mke2fs is not installed")?;
    let image = TempImage::by_mke2fs(16 * MIB, &["-t", "ext4"])?;
    let inner = MemoryDevice::from_bytes(&std::fs::read(image.path()).unwrap());
    let (is_quiet, broken) = (AtomicBool::new(false), AtomicU64::new(0));
    let device = Arc::new(Quiet { inner, is_quiet, broken });
    let volume = Volume::open(device.clone(), &Env::threads(), options).unwrap();
    let files = WORK.map(|(name, _)| create(&volume, name));
    for file in files {
        volume.write(file, 0, &vec![1; MIB as usize]).unwrap();
    }
    volume.sync().unwrap();
    let is_over = AtomicBool::new(false);
    scope(|scope| {
        for ((_, work), file) in WORK.into_iter().zip(files) {
            let (volume, is_over) = (&volume, &is_over);
            scope.spawn(move || {
                let turns = (0..).take_while(|_| !is_over.load(Ordering::Relaxed));
                turns.for_each(|turn| work(volume, file, turn));
            });
        }
        for _ in 0..20 {
            pause(Duration::from_millis(3));
            volume.freeze().unwrap();
            device.is_quiet.store(true, Ordering::SeqCst);
            let copy = device.inner.to_vec();
            pause(Duration::from_millis(3));
            let again = device.inner.to_vec();
            device.is_quiet.store(false, Ordering::SeqCst);
            volume.thaw().unwrap();
            if copy != again {
                device.broken.fetch_add(1, Ordering::SeqCst);
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(device.broken.load(Ordering::SeqCst), 0, "{what}: writes to a frozen volume");
    volume.freeze().unwrap();
    std::fs::write(image.path(), device.inner.to_vec()).unwrap();
    e2fsck_fn(&image.path()).unwrap();
    volume.thaw().unwrap();
    volume.close().unwrap();
    Ok(())
}

#[test]
fn no_write_reaches_a_frozen_volume() {
    // Delayed data become old at once, so that the background writer has work.
    let old = Duration::from_millis(1);
    let ways = [
        ("delayed", VolumeOptions { dirty_expire: old, ..VolumeOptions::default() }),
        ("at once", VolumeOptions { delalloc: Some(false), ..VolumeOptions::default() }),
        ("journalled", VolumeOptions { data: Some(DataMode::Journal), ..VolumeOptions::default() }),
    ];
    for (what, options) in ways {
        if let Err(why) = no_write_passes(&options, what) {
            skip!("{why}");
        }
    }
}

/// Data that wait for their blocks stay in memory while the volume is frozen, however old they are.
#[test]
fn old_data_wait_until_the_volume_is_thawed() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    let image = TempImage::by_mke2fs(16 * MIB, &["-t", "ext4"]).unwrap();
    let inner = MemoryDevice::from_bytes(&std::fs::read(image.path()).unwrap());
    let (is_quiet, broken) = (AtomicBool::new(false), AtomicU64::new(0));
    let device = Arc::new(Quiet { inner, is_quiet, broken });
    let env = Env::stepped(1);
    let volume = Volume::open(device.clone(), &env, &VolumeOptions::default()).unwrap();
    let file = create(&volume, "file");
    volume.freeze().unwrap();
    device.is_quiet.store(true, Ordering::SeqCst);
    env.advance(Duration::from_secs(40));
    volume.fdatasync(file).unwrap();
    assert_eq!(device.broken.load(Ordering::SeqCst), 0);
    device.is_quiet.store(false, Ordering::SeqCst);
    volume.thaw().unwrap();
    volume.write(file, 0, &[7; 5000]).unwrap();
    volume.close().unwrap();
    std::fs::write(image.path(), device.inner.to_vec()).unwrap();
    e2fsck_fn(&image.path()).unwrap();
}
