//! Flags that change how a file is mapped or where its data go, and what is counted of changes.

use extant_device::{Device, MemoryDevice};
use extant_engine::{
    Credentials, DataMode, RenameFlags, SetAttributes, Volume, VolumeOptions, XattrSet,
};
use extant_ondisk::InodeNo;
use extant_ondisk::inode::InodeFlags;
use extant_reader::{Error, Reader, VolumeRead};
use extant_runtime::env::Env;
use extant_testkit::history::bytes_of;
use extant_testkit::{TempImage, dumpe2fs_h, e2fsck_is_silent, skip};
use std::sync::Arc;

fn device_of(args: &[&str]) -> Result<Arc<dyn Device>, String> {
    let image = TempImage::by_mke2fs(16 << 20, args)?;
    let bytes = std::fs::read(image.path()).map_err(|error| error.to_string())?;
    Ok(Arc::new(MemoryDevice::from_bytes(&bytes)))
}

fn open(device: &Arc<dyn Device>, options: &VolumeOptions) -> Volume {
    Volume::open(device.clone(), &Env::stepped(5), options).unwrap()
}

fn to_file(device: &dyn Device) -> TempImage {
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(0, &mut bytes).unwrap();
    let image = TempImage::of_size(0).unwrap();
    std::fs::write(image.path(), bytes).unwrap();
    image
}

fn create(volume: &Volume, name: &str) -> InodeNo {
    volume.create(InodeNo::ROOT, name.as_bytes(), 0o644, &Credentials::ROOT).unwrap().number
}

fn content(volume: &impl VolumeRead, file: InodeNo) -> Vec<u8> {
    let mut found = vec![0; volume.inode(file).unwrap().size as usize];
    volume.read(file, 0, &mut found).unwrap();
    found
}

/// Sets or clears a flag in addition to those that the file has.
fn turn(volume: &Volume, file: InodeNo, flag: InodeFlags, on: bool) -> Result<InodeFlags, Error> {
    let mut flags = volume.inode(file).unwrap().flags;
    flags.set(flag, on);
    volume.set_flags(file, flags)
}

/// As in the kernel: a flag that ext4 does not have is refused.
#[test]
fn flags_that_ext4_has_not_are_refused_where_they_are_new() {
    let device = match device_of(&["-t", "ext4"]) {
        Ok(device) => device,
        Err(why) => skip!("{why}"),
    };
    let volume = open(&device, &VolumeOptions::default());
    let file = create(&volume, "file");
    let refused = turn(&volume, file, InodeFlags::NO_COW, true);
    assert!(matches!(refused, Err(Error::NotSupported(_))), "{refused:?}");
    // Linux 6.18 sets it on every volume, but not where the data cannot be accessed directly.
    assert!(turn(&volume, file, InodeFlags::DAX, true).unwrap().contains(InodeFlags::DAX));
    turn(&volume, file, InodeFlags::DAX, false).unwrap();
    turn(&volume, file, InodeFlags::JOURNAL_DATA, true).unwrap();
    let refused = turn(&volume, file, InodeFlags::DAX, true);
    assert!(matches!(refused, Err(Error::NotSupported(_))), "{refused:?}");
    assert!(turn(&volume, file, InodeFlags::NODUMP, true).unwrap().contains(InodeFlags::NODUMP));
    volume.close().unwrap();
}

#[test]
fn a_simple_map_is_changed_into_the_other_form_and_back() {
    let device = match device_of(&["-t", "ext4", "-b", "1024", "-O", "^64bit"]) {
        Ok(device) => device,
        Err(why) => skip!("{why}"),
    };
    let volume = open(&device, &VolumeOptions::default());
    let (short, long, holes) =
        (create(&volume, "short"), create(&volume, "long"), create(&volume, "holes"));
    let bytes = bytes_of(1, 12 << 10);
    volume.write(short, 0, &bytes).unwrap();
    volume.write(long, 0, &bytes_of(2, 300 << 10)).unwrap();
    for at in 0..4 {
        volume.write(holes, at * 3072, b"here").unwrap();
    }
    volume.sync().unwrap();
    let blocks = |file| volume.inode(file).unwrap().blocks;
    let before = blocks(short);
    for file in [short, holes] {
        let old = content(&volume, file);
        let flags = turn(&volume, file, InodeFlags::EXTENTS, false).unwrap();
        assert!(!flags.contains(InodeFlags::EXTENTS));
        assert!(!volume.inode(file).unwrap().is_extent_mapped());
        assert_eq!(content(&volume, file), old);
        // It grows as what it is, and no longer fits in the inode's pointers.
        volume.write(file, 40 << 10, b"far").unwrap();
        volume.fsync(file).unwrap();
    }
    let refused = turn(&volume, long, InodeFlags::EXTENTS, false);
    assert!(matches!(refused, Err(Error::NotSupported(_))), "{refused:?}");
    assert!(volume.inode(long).unwrap().is_extent_mapped());
    // Two runs fit, five do not.
    turn(&volume, short, InodeFlags::EXTENTS, true).unwrap();
    assert!(volume.inode(short).unwrap().is_extent_mapped());
    assert_eq!(blocks(short), before + 2, "the block of pointers is given back");
    let refused = turn(&volume, holes, InodeFlags::EXTENTS, true);
    assert!(matches!(refused, Err(Error::NotSupported(_))), "{refused:?}");
    assert_eq!(content(&volume, short)[..bytes.len()], bytes);
    volume.close().unwrap();
    let image = to_file(&*device);
    e2fsck_is_silent(&image.path()).unwrap();
    let volume = Reader::open(device).unwrap();
    assert_eq!(content(&volume, short)[..bytes.len()], bytes);
}

#[test]
fn files_of_an_ext3_volume_get_extents_when_the_volume_may_have_them() {
    let args = ["-t", "ext3", "-b", "1024", "-J", "size=1", "-O", "extents"];
    let device = match device_of(&args) {
        Ok(device) => device,
        Err(why) => skip!("{why}"),
    };
    let volume = open(&device, &VolumeOptions::default());
    let file = create(&volume, "file");
    turn(&volume, file, InodeFlags::EXTENTS, false).unwrap();
    let bytes = bytes_of(3, 700 << 10);
    volume.write(file, 0, &bytes).unwrap();
    volume.fsync(file).unwrap();
    let before = volume.inode(file).unwrap().blocks;
    turn(&volume, file, InodeFlags::EXTENTS, true).unwrap();
    // One block of pointers for each 256 of data after the first twelve, and one above those.
    assert_eq!(before - volume.inode(file).unwrap().blocks, 2 * 4);
    assert_eq!(content(&volume, file), bytes);
    volume.close().unwrap();
    e2fsck_is_silent(&to_file(&*device).path()).unwrap();
}

#[test]
fn data_of_one_file_go_through_the_journal_and_past_it_again() {
    let args = ["-t", "ext4", "-b", "1024", "-J", "size=1"];
    let device = match device_of(&args) {
        Ok(device) => device,
        Err(why) => skip!("{why}"),
    };
    for data in [DataMode::Ordered, DataMode::Journal] {
        let options = VolumeOptions { data: Some(data), ..VolumeOptions::default() };
        let volume = open(&device, &options);
        let file = create(&volume, &format!("{data:?}"));
        let mut expected = vec![0; 50 << 10];
        for round in 0..6_u64 {
            let is_on = round % 2 == 0;
            turn(&volume, file, InodeFlags::JOURNAL_DATA, is_on).unwrap();
            let bytes = bytes_of(round, 30 << 10);
            let at = (round * 3000) as usize;
            volume.write(file, at as u64, &bytes).unwrap();
            expected[at..at + bytes.len()].copy_from_slice(&bytes);
            let found = content(&volume, file);
            assert!(found == expected[..found.len()], "round {round}");
            if round % 3 == 0 {
                volume.fsync(file).unwrap();
            }
        }
        volume.fsync(file).unwrap();
        // Power loss: nothing that the journal had before comes back.
        drop(volume);
        let volume = open(&device, &options);
        let found = content(&volume, file);
        assert!(found == expected[..found.len()]);
        volume.close().unwrap();
    }
    e2fsck_is_silent(&to_file(&*device).path()).unwrap();
}

#[test]
fn a_volume_without_a_journal_journals_no_data() {
    let device = match device_of(&["-t", "ext2", "-b", "1024"]) {
        Ok(device) => device,
        Err(why) => skip!("{why}"),
    };
    let volume = open(&device, &VolumeOptions::default());
    let file = create(&volume, "file");
    let refused = turn(&volume, file, InodeFlags::JOURNAL_DATA, true);
    assert!(matches!(refused, Err(Error::NotSupported(_))), "{refused:?}");
    volume.close().unwrap();
}

/// As the kernel (6.18) counts: what was seen of these calls on a loop mount.
#[test]
fn changes_are_counted_as_the_kernel_does() {
    let device = match device_of(&["-t", "ext4", "-b", "4096"]) {
        Ok(device) => device,
        Err(why) => skip!("{why}"),
    };
    let at_once = VolumeOptions { delalloc: Some(false), ..VolumeOptions::default() };
    let volume = open(&device, &at_once);
    let root = InodeNo::ROOT;
    let counts = |files: &[InodeNo]| -> Vec<u64> {
        files.iter().map(|file| volume.inode(*file).unwrap().version).collect()
    };
    let file = create(&volume, "f");
    let dir = volume.mkdir(root, b"d", 0o755, &Credentials::ROOT).unwrap().number;
    let all = [file, dir, root];
    assert_eq!(counts(&all), [1, 1, 2]);
    volume.write(file, 0, b"hello").unwrap();
    assert_eq!(counts(&all), [2, 1, 2]);
    let set = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
    volume.set_attributes(file, &set).unwrap();
    volume.set_xattr(file, b"user.a", b"b", XattrSet::Any).unwrap();
    assert_eq!(counts(&all), [4, 1, 2]);
    volume.create(dir, b"x", 0o644, &Credentials::ROOT).unwrap();
    volume.unlink(dir, b"x").unwrap();
    assert_eq!(counts(&all), [4, 3, 2]);
    volume.link(file, root, b"g").unwrap();
    assert_eq!(counts(&all), [4, 3, 3], "a link is no change of the file");
    volume.rename(root, b"g", root, b"h", RenameFlags::empty()).unwrap();
    assert_eq!(counts(&all), [4, 3, 5], "a name goes and another comes");
    volume.rename(root, b"h", dir, b"h", RenameFlags::empty()).unwrap();
    assert_eq!(counts(&all), [4, 4, 6]);
    volume.truncate(file, 100).unwrap();
    turn(&volume, file, InodeFlags::NODUMP, true).unwrap();
    volume.remove_xattr(file, b"user.a").unwrap();
    let mut buffer = [0; 5];
    volume.read(file, 0, &mut buffer).unwrap();
    assert_eq!(counts(&all), [7, 4, 6], "reading is no change");
    volume.close().unwrap();
    e2fsck_is_silent(&to_file(&*device).path()).unwrap();
}

#[test]
fn what_is_written_in_a_volumes_life_is_counted() {
    let device = match device_of(&["-t", "ext4", "-b", "1024"]) {
        Ok(device) => device,
        Err(why) => skip!("{why}"),
    };
    let written = || Reader::open(device.clone()).unwrap().superblock().kbytes_written;
    let before = written();
    let volume = open(&device, &VolumeOptions::default());
    let file = create(&volume, "file");
    volume.write(file, 0, &bytes_of(1, 3 << 20)).unwrap();
    volume.close().unwrap();
    let first = written() - before;
    assert!((3072..6144).contains(&first), "{first} KiB");
    open(&device, &VolumeOptions::default()).close().unwrap();
    assert!(written() - before - first < 100);
    let header = dumpe2fs_h(&to_file(&*device).path()).unwrap();
    assert!(header.contains_key("Lifetime writes"), "{header:?}");
}
