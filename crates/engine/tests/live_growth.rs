//! A volume that grows while it is in use: under writers, after power cuts, and what is refused.

mod common;

use common::pause;
use extant_device::{Device, DeviceError, FileDeviceOptions, MemoryDevice, Request};
use extant_engine::{Credentials, GrowthError, GrowthPlan, GrowthPlanner, Volume, VolumeOptions};
use extant_image::resize::{Growth, Resize, ResizeError, VolumeSize, size_for};
use extant_ondisk::{BlockNo, InodeNo};
use extant_reader::{Error, Follow, Reader, VolumeRead};
use extant_runtime::env::Env;
use extant_runtime::sync::Mutex;
use extant_runtime::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use extant_runtime::sync::thread::scope;
use extant_sim::{Recorder, Sweep};
use extant_testkit::tree::Random;
use extant_testkit::{LoopMount, TempImage, dumpe2fs_h, e2fsck_fn, is_root, skip, tool};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

const ROOT: InodeNo = InodeNo::ROOT;
const MIB: u64 = 1 << 20;
const KIB: usize = 1 << 10;

/// The plans of the image tools, and the sizes that they led to.
#[derive(Debug, Default)]
struct Planner {
    sizes: Mutex<Vec<u64>>,
}

fn refused(error: ResizeError) -> GrowthError {
    GrowthError::Refused { errno: error.errno(), what: error.to_string() }
}

fn plan_of(growth: Growth) -> GrowthPlan {
    let Growth { blocks, changes, free_clusters, free_inodes, freed } = growth;
    GrowthPlan { blocks, changes, free_clusters, free_inodes, freed }
}

impl GrowthPlanner for Planner {
    fn size_for(&self, device: &Arc<dyn Device>, blocks: u64) -> Result<u64, GrowthError> {
        size_for(&**device, blocks).map_err(refused)
    }

    fn plan(
        &self,
        device: &Arc<dyn Device>,
        env: &Env,
        blocks: u64,
    ) -> Result<GrowthPlan, GrowthError> {
        Resize::new(device, env).plan_growth(blocks).map(plan_of).map_err(refused)
    }

    fn plan_fewer_reserved(
        &self,
        device: &Arc<dyn Device>,
        env: &Env,
        count: u64,
    ) -> Result<Option<GrowthPlan>, GrowthError> {
        let planned = Resize::new(device, env).plan_fewer_reserved(count).map_err(refused)?;
        Ok(planned.map(plan_of))
    }

    fn write_backups(&self, device: &Arc<dyn Device>, env: &Env) -> Result<(), GrowthError> {
        self.sizes.lock().push(VolumeSize::of(&**device).unwrap().blocks);
        Resize::new(device, env).write_backups().map_err(refused)
    }
}

/// A volume on a device of `length` bytes, the rest of which is free.
fn volume_on(length: u64, size: u64, args: &[&str]) -> Result<Arc<dyn Device>, String> {
    tool("mke2fs").ok_or("mke2fs is not installed")?;
    let image = TempImage::by_mke2fs(size, args)?;
    let mut bytes = std::fs::read(image.path()).map_err(|error| error.to_string())?;
    bytes.resize(length as usize, 0);
    Ok(Arc::new(MemoryDevice::from_bytes(&bytes)))
}

fn open(device: &Arc<dyn Device>) -> Volume {
    Volume::open(device.clone(), &Env::threads(), &VolumeOptions::default()).unwrap()
}

fn create(volume: &Volume, name: &str) -> InodeNo {
    volume.create(ROOT, name.as_bytes(), 0o644, &Credentials::ROOT).unwrap().number
}

fn grow(volume: &Volume, bytes: u64) -> Result<u64, GrowthError> {
    volume.grow(bytes / u64::from(volume.geometry().block_size), &Planner::default())
}

/// The device as an image file, with holes where it is zero.
fn saved(device: &dyn Device) -> TempImage {
    let image = TempImage::of_size(device.size()).unwrap();
    let file = std::fs::File::options().write(true).open(image.path()).unwrap();
    let mut piece = vec![0; MIB as usize];
    for at in (0..device.size()).step_by(piece.len()) {
        let length = MIB.min(device.size() - at) as usize;
        device.read_at(at, &mut piece[..length]).unwrap();
        if piece[..length].iter().any(|byte| *byte != 0) {
            file.write_all_at(&piece[..length], at).unwrap();
        }
    }
    image
}

fn read_all(volume: &impl VolumeRead, file: InodeNo) -> Vec<u8> {
    let mut bytes = vec![0; volume.inode(file).unwrap().size as usize];
    let mut done = 0;
    while done < bytes.len() {
        let count = volume.read(file, done as u64, &mut bytes[done..]).unwrap();
        assert!(count > 0, "the file ends at its size");
        done += count;
    }
    bytes
}

/// A file and its content in the model.
struct Modelled {
    name: String,
    number: InodeNo,
    content: Vec<u8>,
}

/// The longest file of a writer.
const LONGEST: u64 = 300 * KIB as u64;

/// Changes one file and its model.
fn change(volume: &Volume, file: &mut Modelled, random: &mut Random) {
    match random.below(12) {
        0 => {
            let size = random.below(LONGEST);
            volume.truncate(file.number, size).unwrap();
            file.content.resize(size as usize, 0);
        }
        1 => volume.fsync(file.number).unwrap(),
        2 => {
            volume.unlink(ROOT, file.name.as_bytes()).unwrap();
            file.number = create(volume, &file.name);
            file.content.clear();
        }
        3 => assert_eq!(read_all(volume, file.number), file.content, "{}", file.name),
        _ => {
            let length = 1 + random.below(40 * KIB as u64);
            let at = random.below(LONGEST - length) as usize;
            let bytes = random.bytes(length as usize);
            let end = at + bytes.len();
            assert_eq!(volume.write(file.number, at as u64, &bytes).unwrap(), bytes.len());
            if file.content.len() < end {
                file.content.resize(end, 0);
            }
            file.content[at..end].copy_from_slice(&bytes);
        }
    }
}

/// Grows a volume several times while threads write to it, and compares all that they wrote.
fn grows_under_writers(args: &[&str], sizes: &[u64]) -> Result<(), String> {
    const THREADS: u64 = 3;
    tool("mke2fs").ok_or("mke2fs is not installed")?;
    let image = TempImage::by_mke2fs(first_size(args), args)?;
    let file = FileDeviceOptions::new().write(true).open(image.path()).unwrap();
    let device: Arc<dyn Device> = Arc::new(file);
    let volume = open(&device);
    let orphan = create(&volume, "orphan");
    volume.acquire(orphan).unwrap();
    volume.write(orphan, 0, &[7; 100 * KIB]).unwrap();
    volume.unlink(ROOT, b"orphan").unwrap();
    let (is_over, turns) = (AtomicBool::new(false), AtomicU64::new(0));
    let files = scope(|scope| {
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (volume, is_over, turns) = (&volume, &is_over, &turns);
                scope.spawn(move || {
                    let mut random = Random::new(thread + 1);
                    let mut files: Vec<Modelled> = (0..4)
                        .map(|file| format!("file{thread}.{file}"))
                        .map(|name| Modelled {
                            number: create(volume, &name),
                            name,
                            content: Vec::new(),
                        })
                        .collect();
                    while !is_over.load(Ordering::Relaxed) {
                        let at = random.below(files.len() as u64) as usize;
                        change(volume, &mut files[at], &mut random);
                        turns.fetch_add(1, Ordering::Relaxed);
                    }
                    files
                })
            })
            .collect();
        for size in sizes {
            let before = turns.load(Ordering::Relaxed);
            while turns.load(Ordering::Relaxed) < before + 20 {
                pause(Duration::from_millis(1));
            }
            let free = volume.stat_fs().unwrap().free_blocks;
            let had = volume.geometry().blocks_count;
            let blocks = grow(&volume, *size).unwrap();
            assert_eq!(volume.geometry().blocks_count, blocks);
            assert!(blocks > had, "{args:?}: {had} to {blocks}");
            println!("{args:?}: {had} to {blocks}, {free} were free");
        }
        is_over.store(true, Ordering::Relaxed);
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(read_all(&volume, orphan), [7; 100 * KIB]);
    volume.write(orphan, 100 * KIB as u64, &[8; 50 * KIB]).unwrap();
    volume.release(orphan, 1).unwrap();
    // The new part is used: more than the first size is written.
    let filler = create(&volume, "filler");
    let piece = vec![0x5a; MIB as usize];
    (0..24).for_each(|at| {
        volume.write(filler, at * MIB, &piece).unwrap();
    });
    for file in &files {
        assert_eq!(read_all(&volume, file.number), file.content, "{args:?}: {}", file.name);
    }
    volume.close().unwrap();
    e2fsck_fn(&image.path()).map_err(|said| format!("{args:?}: {said}")).unwrap();
    if is_root() {
        let mount = LoopMount::new(&image.path(), "ro")?;
        for file in &files {
            let found = std::fs::read(mount.path().join(&file.name)).unwrap();
            assert!(found == file.content, "{args:?}: {} as the kernel reads it", file.name);
        }
        let filled = std::fs::read(mount.path().join("filler")).unwrap();
        assert!(filled.len() as u64 == 24 * MIB && filled.iter().all(|byte| *byte == 0x5a));
        mount.unmount()?;
    }
    Ok(())
}

/// Each new backup changes 1,021 reserved blocks, and the log has room for fewer.
const RESERVED: &[&str] =
    &["-t", "ext4", "-b", "4096", "-g", "2048", "-J", "size=4", "-E", "resize=4000000000"];

/// The size of a volume before it grows.
fn first_size(args: &[&str]) -> u64 {
    if args == RESERVED { 24 * MIB } else { 16 * MIB }
}

/// The sets of options, and the sizes in MiB that volumes with them grow to.
const SETS: [(&[&str], &[u64]); 11] = [
    (RESERVED, &[40, 1024]),
    (&["-t", "ext4", "-b", "4096"], &[24, 40, 41, 200]),
    (&["-t", "ext4", "-b", "1024", "-g", "2048"], &[19, 40, 64]),
    (&["-t", "ext4", "-b", "1024", "-g", "2048", "-O", "^resize_inode"], &[18, 33, 70]),
    (&["-t", "ext4", "-b", "1024", "-g", "1024", "-J", "size=1", "-N", "64"], &[17, 1024]),
    (&["-t", "ext4", "-b", "1024", "-g", "2048", "-O", "meta_bg,^resize_inode"], &[30, 64]),
    (&["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "4096"], &[24, 64]),
    (&["-t", "ext4", "-b", "1024", "-g", "2048", "-O", "sparse_super2,^resize_inode"], &[30, 64]),
    (&["-t", "ext4", "-O", "quota,orphan_file,inline_data", "-I", "256"], &[30, 64]),
    (&["-t", "ext3", "-b", "1024", "-g", "2048"], &[30, 64]),
    (&["-t", "ext2", "-b", "1024", "-g", "2048"], &[30, 64]),
];

#[test]
fn a_volume_grows_under_writers_and_keeps_every_byte() {
    for (args, sizes) in SETS {
        let sizes: Vec<u64> = sizes.iter().map(|size| size * MIB).collect();
        if let Err(why) = grows_under_writers(args, &sizes) {
            skip!("{why}");
        }
    }
}

/// The file that was durable before growth, and its content.
fn durable() -> Vec<u8> {
    Random::new(9).bytes(700 * KIB)
}

/// Power cuts of a volume that grows between changes: it has the size of before, of after or of a
/// step between, and all that was durable.
fn cut_while_it_grows(args: &[&str], sweep: Sweep) -> Result<(), String> {
    let e2fsck = tool("e2fsck").ok_or("no e2fsck")?;
    let base = volume_on(40 * MIB, first_size(args), args)?;
    let before = VolumeSize::of(&*base).unwrap().blocks;
    let recorder = Arc::new(Recorder::new(base));
    let device: Arc<dyn Device> = recorder.clone();
    let volume = open(&device);
    let file = create(&volume, "durable");
    volume.write(file, 0, &durable()).unwrap();
    let held = create(&volume, "held");
    volume.acquire(held).unwrap();
    volume.write(held, 0, &[3; 60 * KIB]).unwrap();
    volume.unlink(ROOT, b"held").unwrap();
    volume.sync().unwrap();
    recorder.mark(1);
    // Delayed data, which have no blocks yet when it grows.
    let delayed = create(&volume, "delayed");
    volume.write(delayed, 0, &[4; 90 * KIB]).unwrap();
    let planner = Planner::default();
    let blocks = 40 * MIB / u64::from(volume.geometry().block_size);
    let after = volume.grow(blocks, &planner).unwrap();
    let steps: BTreeSet<u64> = [before].into_iter().chain(planner.sizes.into_inner()).collect();
    assert!(steps.len() > 2 || args != RESERVED, "{args:?}: {steps:?}");
    recorder.mark(2);
    volume.write(delayed, 90 * KIB as u64, &vec![5; 20 * MIB as usize]).unwrap();
    volume.fsync(delayed).unwrap();
    recorder.mark(3);
    drop(volume);
    let (mut cuts, mut seen) = (0, BTreeMap::new());
    for cut in recorder.cuts(sweep).filter(|cut| cut.marks.contains(&1)) {
        let image = saved(&cut.image);
        let path = image.path();
        if cuts % 6 == 5 && is_root() {
            LoopMount::new(&path, "")
                .map_err(|said| format!("{cut}: {said}"))
                .unwrap()
                .unmount()?;
        } else if cuts % 2 == 0 {
            let repaired = e2fsck.run(["-p", path.to_str().unwrap()]);
            assert!(matches!(repaired.status.code(), Some(0 | 1)), "{cut}: {repaired:?}");
        } else {
            let file = FileDeviceOptions::new().write(true).open(&path).unwrap();
            let device: Arc<dyn Device> = Arc::new(file);
            open(&device).close().unwrap();
        }
        e2fsck_fn(&path).map_err(|said| format!("{args:?}: {cut}: {said}")).unwrap();
        let reader = Reader::open(Arc::new(FileDeviceOptions::new().open(&path).unwrap())).unwrap();
        let blocks = reader.geometry().blocks_count;
        assert!(steps.contains(&blocks), "{cut}: {blocks} blocks, not one of {steps:?}");
        assert!(!cut.marks.contains(&2) || blocks == after, "{cut}: growth was acknowledged");
        *seen.entry(blocks).or_insert(0) += 1;
        let file = reader.resolve(b"/durable", Follow::Yes).unwrap();
        assert!(read_all(&reader, file.number) == durable(), "{cut}");
        if cut.marks.contains(&3) {
            let file = reader.resolve(b"/delayed", Follow::Yes).unwrap();
            assert_eq!(file.size, 90 * KIB as u64 + 20 * MIB, "{cut}");
        }
        cuts += 1;
    }
    println!("{args:?}: {cuts} cuts, {seen:?}");
    assert!(seen.keys().eq(&steps), "{seen:?}");
    Ok(())
}

#[test]
fn a_power_cut_while_it_grows_leaves_the_old_size_the_new_one_or_that_of_a_step() {
    let is_slow = std::env::var_os("EXTANT_SLOW").is_some();
    let sets = if is_slow { &SETS[..8] } else { &SETS[..3] };
    for (seed, (args, _)) in (1..).zip(sets) {
        let sweep = match is_slow {
            true => Sweep { seed, prefixes: 100, subsets: 4, torn: 0 },
            false => Sweep { seed, prefixes: 1, subsets: 1, torn: 0 },
        };
        if let Err(why) = cut_while_it_grows(args, sweep) {
            skip!("{why}");
        }
    }
}

#[test]
fn the_image_file_gets_longer_with_the_volume() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    let image = TempImage::by_mke2fs(16 * MIB, &["-t", "ext4", "-b", "4096"]).unwrap();
    let file = Arc::new(FileDeviceOptions::new().write(true).open(image.path()).unwrap());
    let device: Arc<dyn Device> = file.clone();
    let volume = open(&device);
    assert_eq!(grow(&volume, 50 * MIB).unwrap(), 50 * MIB / 4096);
    assert_eq!(std::fs::metadata(image.path()).unwrap().len(), 50 * MIB);
    // Another program makes it longer: it is not cut off.
    std::fs::File::options().write(true).open(image.path()).unwrap().set_len(90 * MIB).unwrap();
    volume.refresh_device().unwrap();
    assert_eq!(file.size(), 90 * MIB);
    assert_eq!(grow(&volume, 60 * MIB).unwrap(), 60 * MIB / 4096);
    assert_eq!(std::fs::metadata(image.path()).unwrap().len(), 90 * MIB);
    volume.close().unwrap();
    e2fsck_fn(&image.path()).unwrap();
    assert_eq!(dumpe2fs_h(&image.path()).unwrap()["Block count"], (60 * MIB / 4096).to_string());
}

#[test]
fn a_full_volume_has_room_after_it_has_grown() {
    let device = match volume_on(64 * MIB, 8 * MIB, &["-t", "ext4", "-m", "0"]) {
        Ok(device) => device,
        Err(why) => skip!("{why}"),
    };
    let volume = open(&device);
    let file = create(&volume, "file");
    let piece = vec![1; MIB as usize];
    let mut at = 0;
    let full = loop {
        match volume.write(file, at, &piece) {
            Ok(count) => at += count as u64,
            Err(error) => break error,
        }
        assert!(at < 8 * MIB);
    };
    assert!(full.is_no_space(), "{full}");
    grow(&volume, 64 * MIB).unwrap();
    for _ in 0..40 {
        at += volume.write(file, at, &piece).unwrap() as u64;
    }
    volume.close().unwrap();
    e2fsck_fn(&saved(&*device).path()).unwrap();
}

#[test]
fn what_cannot_grow_is_refused_and_stays_as_it_is() {
    let device = match volume_on(16 * MIB, 16 * MIB, &["-t", "ext4", "-b", "4096"]) {
        Ok(device) => device,
        Err(why) => skip!("{why}"),
    };
    let volume = open(&device);
    let file = create(&volume, "file");
    volume.write(file, 0, &[1; 5000]).unwrap();
    // A device of a fixed length.
    let error = grow(&volume, 32 * MIB).unwrap_err();
    assert!(matches!(error, GrowthError::Device(_)), "{error}");
    assert!(error.to_string().starts_with("the device cannot grow: "), "{error}");
    assert!(matches!(
        grow(&volume, 8 * MIB),
        Err(GrowthError::Smaller { blocks: 2048, has: 4096 })
    ));
    let error = volume.grow(u64::MAX, &Planner::default()).unwrap_err();
    assert!(matches!(error, GrowthError::Refused { .. }), "{error}");
    volume.freeze().unwrap();
    assert!(matches!(grow(&volume, 32 * MIB), Err(GrowthError::Frozen)));
    volume.thaw().unwrap();
    assert_eq!(grow(&volume, 16 * MIB).unwrap(), 4096);
    assert_eq!(volume.geometry().blocks_count, 4096);
    volume.write(file, 5000, &[2; 5000]).unwrap();
    volume.close().unwrap();
    e2fsck_fn(&saved(&*device).path()).unwrap();
}

/// A device of which no byte past a place is written: the image file's system is full.
#[derive(Debug)]
struct Short {
    inner: Arc<dyn Device>,
    end: u64,
}

impl Device for Short {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        for request in &*batch {
            if request.offset() >= self.end && request.operation() != extant_device::Operation::Read
            {
                let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
                return Err(DeviceError::io(request.operation(), request.offset(), 0, full));
            }
        }
        self.inner.submit(batch)
    }

    fn next_data(&self, range: Range<u64>) -> Result<Option<Range<u64>>, DeviceError> {
        Ok(Some(range).filter(|range| !range.is_empty()))
    }

    fn is_read_only(&self) -> bool {
        false
    }
}

#[test]
fn a_new_part_that_cannot_be_written_leaves_the_volume_in_use() {
    let args =
        ["-t", "ext4", "-b", "1024", "-g", "2048", "-O", "^flex_bg,^uninit_bg,^metadata_csum"];
    let inner = match volume_on(32 * MIB, 16 * MIB, &args) {
        Ok(device) => device,
        Err(why) => skip!("{why}"),
    };
    let device: Arc<dyn Device> = Arc::new(Short { inner: inner.clone(), end: 20 * MIB });
    let volume = open(&device);
    let file = create(&volume, "file");
    let error = grow(&volume, 32 * MIB).unwrap_err();
    assert!(matches!(error, GrowthError::Refused { .. }), "{error}");
    assert_eq!(volume.geometry().blocks_count, 16 * 1024);
    volume.write(file, 0, &[1; 5000]).unwrap();
    volume.sync().unwrap();
    // Up to there it can be written.
    assert_eq!(grow(&volume, 20 * MIB).unwrap(), 20 * 1024);
    volume.close().unwrap();
    e2fsck_fn(&saved(&*inner).path()).unwrap();
}

/// With the smallest journal and many reserved descriptors one step changes more than a quarter of
/// the log, which is all that other operations may have.
#[test]
fn a_small_journal_is_enough() {
    let args = ["-t", "ext4", "-b", "1024", "-g", "1024", "-J", "size=1", "-N", "64"];
    let device = match volume_on(400 * MIB, 16 * MIB, &args) {
        Ok(device) => device,
        Err(why) => skip!("{why}"),
    };
    let volume = open(&device);
    let file = create(&volume, "file");
    for size in [17, 60, 400] {
        let blocks = grow(&volume, size * MIB).unwrap();
        assert_eq!(blocks, size * 1024);
        volume.write(file, size * MIB / 8, &[size as u8; 9000]).unwrap();
    }
    volume.close().unwrap();
    e2fsck_fn(&saved(&*device).path()).unwrap();
}

/// The number of blocks that are reserved for descriptors.
fn reserved(image: &TempImage) -> u64 {
    dumpe2fs_h(&image.path()).unwrap()["Reserved GDT blocks"].parse().unwrap()
}

/// Each new backup of the descriptors changes every reserved block. If the log has no room for as
/// many, the rest of them becomes free, and no more than that.
#[test]
fn a_journal_without_room_for_the_reserved_blocks_gets_room() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    let small = ["-t", "ext4", "-b", "4096", "-J", "size=4", "-E", "resize=4000000000"];
    let clusters = [&small[..], &["-O", "bigalloc", "-C", "16384"]].concat();
    // Sizes in MiB: within the first group, and with a third backup.
    for (args, within, beyond) in [(&small[..], 128, 512), (&clusters[..], 256, 2048)] {
        let image = TempImage::by_mke2fs(64 * MIB, args).unwrap();
        let had = reserved(&image);
        let file = FileDeviceOptions::new().write(true).open(image.path()).unwrap();
        let device: Arc<dyn Device> = Arc::new(file);
        let volume = open(&device);
        let free = volume.stat_fs().unwrap().free_blocks;
        assert_eq!(grow(&volume, within * MIB).unwrap(), within * MIB / 4096);
        assert_eq!(volume.geometry().reserved_gdt_blocks, had as u16);
        let added = (within - 64) * MIB / 4096;
        assert_eq!(volume.stat_fs().unwrap().free_blocks, free + added);
        assert_eq!(grow(&volume, beyond * MIB).unwrap(), beyond * MIB / 4096);
        let left = u64::from(volume.geometry().reserved_gdt_blocks);
        assert!((950..had).contains(&left), "{left} of {had}");
        // The freed blocks are used.
        let file = create(&volume, "file");
        let piece = vec![1; MIB as usize];
        let mut at = 0;
        while let Ok(count) = volume.write(file, at, &piece) {
            at += count as u64;
            if at > 600 * MIB {
                break;
            }
        }
        volume.close().unwrap();
        e2fsck_fn(&image.path()).unwrap();
        assert_eq!(reserved(&image), left);
    }
}

/// A planner whose plans change more blocks than a log has room for.
#[derive(Debug, Default)]
struct Greedy(Planner);

impl GrowthPlanner for Greedy {
    fn size_for(&self, device: &Arc<dyn Device>, blocks: u64) -> Result<u64, GrowthError> {
        self.0.size_for(device, blocks)
    }

    fn plan(
        &self,
        device: &Arc<dyn Device>,
        env: &Env,
        blocks: u64,
    ) -> Result<GrowthPlan, GrowthError> {
        let mut plan = self.0.plan(device, env, blocks)?;
        plan.changes = (0..5000).map(|block| (BlockNo(block), Vec::new())).collect();
        Ok(plan)
    }

    fn plan_fewer_reserved(
        &self,
        device: &Arc<dyn Device>,
        env: &Env,
        count: u64,
    ) -> Result<Option<GrowthPlan>, GrowthError> {
        self.0.plan_fewer_reserved(device, env, count)
    }

    fn write_backups(&self, device: &Arc<dyn Device>, env: &Env) -> Result<(), GrowthError> {
        self.0.write_backups(device, env)
    }
}

#[test]
fn a_journal_without_room_for_one_group_is_refused() {
    let args = ["-t", "ext4", "-b", "4096", "-J", "size=4"];
    let device = match volume_on(512 * MIB, 64 * MIB, &args) {
        Ok(device) => device,
        Err(why) => skip!("{why}"),
    };
    let volume = open(&device);
    let error = volume.grow(512 * MIB / 4096, &Greedy::default()).unwrap_err();
    assert!(matches!(error, GrowthError::JournalTooSmall { .. }), "{error}");
    assert_eq!(volume.geometry().blocks_count, 64 * MIB / 4096);
    create(&volume, "file");
    volume.close().unwrap();
    e2fsck_fn(&saved(&*device).path()).unwrap();
}

#[test]
fn a_volume_that_an_error_made_read_only_does_not_grow() {
    let device = match volume_on(32 * MIB, 16 * MIB, &["-t", "ext4"]) {
        Ok(device) => device,
        Err(why) => skip!("{why}"),
    };
    let volume = open(&device);
    volume.shutdown(extant_engine::Shutdown::NoLogFlush).unwrap();
    let error = grow(&volume, 32 * MIB).unwrap_err();
    assert!(matches!(error, GrowthError::Volume(Error::ReadOnly | Error::Journal(_))), "{error}");
}
