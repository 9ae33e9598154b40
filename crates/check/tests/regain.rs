//! Directories that have lost their inode or their map, names that have lost their inode, and
//! blocks that have lost their file, on volumes that the kernel filled and without a journal.

mod common;

use common::{Walker, findings, fsck, open_options, options};
use extant_check::run::{RunOptions, run};
use extant_check::{
    AutoPolicy, CheckOptions, Code, Decision, Finding, Observer, PassReport, RepairPolicy, Store,
    pass0,
};
use extant_device::{Device, MemoryDevice};
use extant_ondisk::InodeNo;
use extant_ondisk::inode::{Inode, InodeFlags};
use extant_sim::{Recorder, Sweep};
use extant_testkit::tree::Random;
use extant_testkit::{LoopMount, TempImage, copied, e2fsck_fn, is_root, skip, tool};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// Files by their paths, with their inodes.
struct Volume {
    image: TempImage,
    files: BTreeMap<String, (InodeNo, Vec<u8>)>,
    /// Inodes of directories, without the root and lost+found.
    directories: BTreeSet<InodeNo>,
    /// The one of several blocks.
    large: InodeNo,
}

fn volume(args: &[&str]) -> Result<Volume, String> {
    use std::os::unix::fs::MetadataExt;
    if !is_root() || tool("mke2fs").is_none() || tool("e2fsck").is_none() {
        return Err("needs root, mke2fs and e2fsck".to_owned());
    }
    let args = [&["-t", "ext4", "-O", "^has_journal"], args].concat();
    let image = TempImage::by_mke2fs(48 << 20, &args)?;
    let mount = LoopMount::new(&image.path(), "")?;
    let inode = |path: &Path| InodeNo(fs::symlink_metadata(path).unwrap().ino() as u32);
    let (mut files, mut directories) = (BTreeMap::new(), BTreeSet::new());
    let (root, mut random) = (mount.path(), Random::new(8));
    let names = |count: u32| (0..count).map(|at| format!("a-file-with-a-long-name-{at}"));
    let dirs = ["a", "a/b", "a/b/c", "d", "large"];
    for dir in dirs {
        fs::create_dir(root.join(dir)).unwrap();
        directories.insert(inode(&root.join(dir)));
        for name in names(if dir == "large" { 400 } else { 9 }) {
            let name = format!("{dir}/{name}");
            let content = random.bytes(1 + random.clone().below(9000) as usize);
            fs::write(root.join(&name), &content).unwrap();
            files.insert(name.clone(), (inode(&root.join(&name)), content));
        }
    }
    let large = inode(&root.join("large"));
    mount.unmount()?;
    Ok(Volume { image, files, directories, large })
}

/// Has the inode table lose the records.
fn lose(image: &Path, inodes: impl IntoIterator<Item = InodeNo>) {
    let (device, store) = (common::open(image, true), Store::open(common::open(image, false)));
    let store = store.unwrap();
    for inode in inodes {
        let at = store.inode_offset(inode).unwrap();
        let zeros = vec![0; usize::from(store.geometry().inode_size)];
        device.write_at(at, &zeros).unwrap();
    }
}

fn repaired(image: &Path, options: &CheckOptions) -> PassReport {
    let report = fsck(image, options, AutoPolicy::Yes).unwrap();
    e2fsck_fn(image).unwrap_or_else(|said| panic!("{said}\n{}", findings(&report)));
    report
}

/// The findings of a whole run with some codes, in words.
fn reported(image: &Path, answers: AutoPolicy, codes: &[Code]) -> BTreeSet<String> {
    let options = RunOptions { open: open_options(), passes: options(), ..RunOptions::default() };
    let options = RunOptions { force: true, ..options };
    let device = common::open(image, answers != AutoPolicy::No);
    let report = run(&device, &options, &answers, &Quiet).unwrap();
    let those = report.findings.iter().filter(|it| codes.contains(&it.finding.code));
    those.map(|it| it.finding.to_string()).collect()
}

/// The directories that a run without repairs and one with all of them report as lost.
fn lost(image: &Path, answers: AutoPolicy) -> BTreeSet<String> {
    reported(image, answers, &[Code::DirectoryInodeLost, Code::DirectoryBlocksLost])
}

fn count(report: &PassReport, code: Code) -> usize {
    report.findings.iter().filter(|it| it.finding.code == code && it.repaired).count()
}

/// Names that do not have their contents.
fn wrong(image: &Path, files: &BTreeMap<String, (InodeNo, Vec<u8>)>) -> Vec<String> {
    let mount = LoopMount::new(image, "ro").unwrap();
    let is_wrong = |(name, (_, content)): &(&String, &(InodeNo, Vec<u8>))| {
        fs::read(mount.path().join(name)).ok().as_ref() != Some(content)
    };
    files.iter().filter(is_wrong).map(|(name, _)| name.clone()).collect()
}

macro_rules! or_skip {
    ($made:expr) => {
        match $made {
            Ok(made) => made,
            Err(why) => skip!("{why}"),
        }
    };
}

#[test]
fn a_directory_without_an_inode_is_found_by_its_blocks() {
    for args in [&["-b", "4096"][..], &["-b", "1024"], &["-b", "4096", "-O", "^metadata_csum"]] {
        let volume = or_skip!(volume(args));
        let ours = copied(&volume.image.path()).unwrap();
        lose(&ours.path(), volume.directories.iter().copied());
        // Without repairs the same is found, and nothing is written.
        let before = fs::read(ours.path()).unwrap();
        let reported = lost(&ours.path(), AutoPolicy::No);
        assert!(fs::read(ours.path()).unwrap() == before, "-n wrote");
        let copy = copied(&ours.path()).unwrap();
        assert_eq!(reported, lost(&copy.path(), AutoPolicy::Yes));
        let report = repaired(&ours.path(), &options());
        // Blocks without a checksum do not say whose they are, and the root of an index alone has
        // no names.
        let has_checksums = !args.contains(&"^metadata_csum");
        let restored = 4 + usize::from(has_checksums);
        assert_eq!(count(&report, Code::DirectoryInodeLost), restored, "{}", findings(&report));
        let mut wrong = wrong(&ours.path(), &volume.files);
        wrong.retain(|name| has_checksums || !name.starts_with("large/"));
        assert!(wrong.is_empty(), "{args:?} {}\n{}", wrong.len(), findings(&report));
    }
}

#[test]
fn blocks_that_the_map_of_a_directory_has_lost_are_appended() {
    for args in [&["-b", "4096"][..], &["-b", "1024"]] {
        let volume = or_skip!(volume(args));
        let image = volume.image.path();
        let (device, store) =
            (common::open(&image, true), Store::open(common::open(&image, false)).unwrap());
        let mut record = store.read_inode(volume.large).unwrap().unwrap();
        let inode = Inode::decode(&record, volume.large, store.geometry()).unwrap();
        // One extent of one block: after the header, length and start.
        let length = 0x28 + 12 + 4;
        record[0x28 + 2] = 1;
        record[length] = 1;
        assert!(inode.size > 4 * u64::from(store.geometry().block_size));
        extant_ondisk::inode::seal(&mut record, volume.large, store.geometry());
        device.write_at(store.inode_offset(volume.large).unwrap(), &record).unwrap();
        drop((device, store));
        let report = repaired(&image, &options());
        assert_eq!(count(&report, Code::DirectoryBlocksLost), 1, "{}", findings(&report));
        let wrong = wrong(&image, &volume.files);
        assert!(wrong.is_empty(), "{args:?} {}\n{}", wrong.len(), findings(&report));
    }
}

/// Swaps the contents of blocks.
fn swap(image: &Path, one: u64, other: u64, len: usize) {
    let device = common::open(image, true);
    let (mut first, mut second) = (vec![0; len], vec![0; len]);
    device.read_at(one * len as u64, &mut first).unwrap();
    device.read_at(other * len as u64, &mut second).unwrap();
    device.write_at(one * len as u64, &second).unwrap();
    device.write_at(other * len as u64, &first).unwrap();
}

#[test]
fn blocks_in_the_place_of_others_are_put_where_they_belong() {
    let volume = or_skip!(volume(&["-b", "1024"]));
    let image = volume.image.path();
    let (tables, directories) = {
        let store = Store::open(common::open(&image, false)).unwrap();
        let table_of = |inode: InodeNo| store.inode_offset(inode).unwrap() / 1024;
        let tables: BTreeSet<u64> =
            volume.files.values().map(|(inode, _)| table_of(*inode)).collect();
        let first = |inode: &InodeNo| {
            let record = store.read_inode(*inode).unwrap().unwrap();
            u64::from(u32::from_le_bytes(record[0x28 + 20..0x28 + 24].try_into().unwrap()))
        };
        let directories: Vec<u64> = volume.directories.iter().map(first).collect();
        (tables.into_iter().collect::<Vec<_>>(), directories)
    };
    swap(&image, tables[5], tables[9], 1024);
    swap(&image, directories[0], directories[3], 1024);
    // A shift by one block: three of them.
    swap(&image, tables[12], tables[13], 1024);
    swap(&image, tables[13], tables[14], 1024);
    // A record that is wrong in its own place, too.
    let flipped = tables[9] * 1024 + 256 + 8; // a time
    let mut time = read(&image, flipped, 1);
    time[0] ^= 1;
    common::open(&image, true).write_at(flipped, &time).unwrap();
    let report = repaired(&image, &options());
    assert_eq!(count(&report, Code::BlockMisplaced), 7, "{}", findings(&report));
    let wrong = wrong(&image, &volume.files);
    assert!(wrong.is_empty(), "{}\n{}", wrong.len(), findings(&report));
}

/// Swaps the records of inodes.
fn swap_records(image: &Path, one: InodeNo, other: InodeNo) {
    let (device, store) =
        (common::open(image, true), Store::open(common::open(image, false)).unwrap());
    let record = |inode| store.read_inode(inode).unwrap().unwrap();
    let (first, second) = (record(one), record(other));
    device.write_at(store.inode_offset(one).unwrap(), &second).unwrap();
    device.write_at(store.inode_offset(other).unwrap(), &first).unwrap();
}

#[test]
fn records_in_the_place_of_others_are_put_where_they_belong() {
    for args in [&["-b", "4096"][..], &["-b", "1024"]] {
        let volume = or_skip!(volume(args));
        let image = volume.image.path();
        let files: Vec<InodeNo> = volume.files.values().map(|(inode, _)| *inode).collect();
        let mut others = volume.directories.iter().filter(|it| **it != volume.large);
        swap_records(&image, *others.next().unwrap(), files[3]);
        swap_records(&image, volume.large, *others.next().unwrap());
        // A cycle of three.
        swap_records(&image, files[100], files[200]);
        swap_records(&image, files[200], files[300]);
        let shown = reported(&image, AutoPolicy::No, &[Code::InodeMisplaced]);
        assert_eq!(shown.len(), 7, "{shown:?}");
        let report = repaired(&image, &options());
        assert_eq!(count(&report, Code::InodeMisplaced), 7, "{}", findings(&report));
        assert_eq!(report.findings.len(), 7, "{}", findings(&report));
        let wrong = wrong(&image, &volume.files);
        assert!(wrong.is_empty(), "{args:?} {wrong:?}\n{}", findings(&report));
    }
}

#[test]
fn a_copy_of_a_record_overwrites_none() {
    let volume = or_skip!(volume(&["-b", "4096"]));
    let image = volume.image.path();
    let files: Vec<InodeNo> = volume.files.values().map(|(inode, _)| *inode).collect();
    swap_records(&image, files[100], files[200]);
    // A copy that leads into the cycle, and one that leads to a record in its place.
    let (device, store) =
        (common::open(&image, true), Store::open(common::open(&image, false)).unwrap());
    for (from, to) in [(files[100], files[300]), (files[400], files[430])] {
        let record = store.read_inode(from).unwrap().unwrap();
        device.write_at(store.inode_offset(to).unwrap(), &record).unwrap();
    }
    drop((device, store));
    let report = repaired(&image, &options());
    assert_eq!(count(&report, Code::InodeMisplaced), 2, "{}", findings(&report));
    let lost: Vec<_> = [300, 430].map(|at| volume.files.keys().nth(at).unwrap().clone()).into();
    let mut wrong = wrong(&image, &volume.files);
    wrong.sort();
    assert_eq!(wrong, lost, "{}", findings(&report));
}

#[test]
fn names_without_an_inode_are_kept_on_request() {
    let volume = or_skip!(volume(&["-b", "1024"]));
    let lost: BTreeMap<_, _> =
        volume.files.iter().step_by(7).map(|(name, (inode, _))| (name.clone(), *inode)).collect();
    lose(&volume.image.path(), lost.values().copied());
    let ours = copied(&volume.image.path()).unwrap();
    let report = repaired(&ours.path(), &options());
    let named = count(&report, Code::EntryUnusedInode) + count(&report, Code::EntryNeverUsedInode);
    assert_eq!(named, lost.len(), "{}", findings(&report));

    let options = CheckOptions { placeholders: true, ..options() };
    let report = repaired(&volume.image.path(), &options);
    assert_eq!(count(&report, Code::EntryPlaceholder), lost.len(), "{}", findings(&report));
    let mount = LoopMount::new(&volume.image.path(), "ro").unwrap();
    for (name, (_, content)) in &volume.files {
        let expected: &[u8] = if lost.contains_key(name) { b"" } else { content };
        assert!(fs::read(mount.path().join(name)).unwrap() == expected, "{name}");
    }
}

#[test]
fn blocks_that_nothing_claims_become_files_on_request() {
    for args in [
        &["-b", "4096"][..],
        &["-b", "1024", "-O", "^metadata_csum,^extent,^64bit"],
        &["-b", "1024", "-O", "bigalloc", "-C", "16384"],
    ] {
        let volume = or_skip!(volume(args));
        let lost: Vec<_> = volume.files.values().step_by(50).collect();
        lose(&volume.image.path(), lost.iter().map(|(inode, _)| *inode));
        let options = CheckOptions { carve: true, ..options() };
        let report = repaired(&volume.image.path(), &options);
        assert!(count(&report, Code::UnclaimedRun) > 0, "{}", findings(&report));
        let mount = LoopMount::new(&volume.image.path(), "ro").unwrap();
        let mut carved = Vec::new();
        for entry in fs::read_dir(mount.path().join("lost+found")).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let mut parts = name.strip_prefix("blocks-").expect("no other file").split('-');
            let (_, len): (u64, u64) =
                (parts.next().unwrap().parse().unwrap(), parts.next().unwrap().parse().unwrap());
            let bytes = fs::read(entry.path()).unwrap();
            let block: u64 = args[1].parse().unwrap();
            assert_eq!(bytes.len() as u64, len * block, "{name}");
            carved.push(bytes);
        }
        let found = lost.iter().filter(|(_, content)| {
            let part = &content[..content.len().min(1024)];
            carved.iter().any(|bytes| bytes.chunks(1024).any(|chunk| chunk.starts_with(part)))
        });
        assert_eq!(found.count(), lost.len(), "{}", findings(&report));
        drop(mount);
        let again = fsck(&volume.image.path(), &options, AutoPolicy::Yes).unwrap();
        assert_eq!(count(&again, Code::UnclaimedRun), 0);
    }
}

/// The blocks of a directory whose extents lie in its inode.
fn blocks_of(image: &Path, inode: InodeNo) -> Vec<u64> {
    let store = Store::open(common::open(image, false)).unwrap();
    let record = store.read_inode(inode).unwrap().unwrap();
    let half = |at: usize| u16::from_le_bytes([record[at], record[at + 1]]);
    let extents = 0x28 + 12..;
    let extents = extents.step_by(12).take(usize::from(half(0x28 + 2)));
    let run = |at: usize| {
        let start = u64::from(half(at + 8)) | u64::from(half(at + 10)) << 16;
        start..start + u64::from(half(at + 4))
    };
    extents.flat_map(run).collect()
}

fn read(image: &Path, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    common::open(image, false).read_at(at, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_copy_of_a_block_overwrites_no_names() {
    let volume = or_skip!(volume(&["-b", "1024"]));
    let image = volume.image.path();
    let large = blocks_of(&image, volume.large);
    let other = volume.directories.iter().find(|it| **it != volume.large).unwrap();
    let other = blocks_of(&image, *other)[0];
    let device = common::open(&image, true);
    // Blocks 1 and 2 of the large one may be nodes of its index: leaves are later.
    device.write_at(other * 1024, &read(&image, large[6] * 1024, 1024)).unwrap();
    // One bit of a checksum.
    let mut last = read(&image, large[9] * 1024 + 1023, 1);
    last[0] ^= 1;
    device.write_at(large[9] * 1024 + 1023, &last).unwrap();
    drop(device);
    let report = repaired(&image, &options());
    assert_eq!(count(&report, Code::BlockMisplaced), 0, "{}", findings(&report));
    let mut wrong = wrong(&image, &volume.files);
    wrong.retain(|name| name.starts_with("large/"));
    assert!(wrong.is_empty(), "{wrong:?}\n{}", findings(&report));
}

#[test]
fn blocks_that_the_run_released_become_no_files() {
    for args in [
        &["-b", "1024"][..],
        &["-b", "1024", "-O", "bigalloc", "-C", "4096"],
        &["-b", "1024", "-O", "^metadata_csum,^extent,^64bit"],
    ] {
        let volume = or_skip!(volume(args));
        let image = volume.image.path();
        let mount = LoopMount::new(&image, "").unwrap();
        for name in volume.files.keys().filter(|name| name.starts_with("large/")).step_by(2) {
            fs::remove_file(mount.path().join(name)).unwrap();
        }
        mount.unmount().unwrap();
        let options = CheckOptions {
            carve: true,
            optimize_directories: true,
            bmap_to_extent: args.contains(&"^metadata_csum,^extent,^64bit"),
            ..options()
        };
        let report = repaired(&image, &options);
        assert_eq!(count(&report, Code::UnclaimedRun), 0, "{args:?} {}", findings(&report));
    }
}

#[test]
fn copies_of_the_blocks_of_a_directory_are_not_appended() {
    use std::os::unix::fs::MetadataExt;
    let mut volume = or_skip!(volume(&["-b", "1024"]));
    let image = volume.image.path();
    let large = blocks_of(&image, volume.large);
    let copies: Vec<u8> = large.iter().flat_map(|at| read(&image, at * 1024, 1024)).collect();
    let mount = LoopMount::new(&image, "").unwrap();
    let backup = mount.path().join("backup");
    fs::write(&backup, &copies).unwrap();
    let lost = InodeNo(fs::metadata(&backup).unwrap().ino() as u32);
    let removed: Vec<String> =
        volume.files.keys().filter(|name| name.starts_with("large/")).cloned().collect();
    for (at, name) in removed.iter().enumerate() {
        let path = mount.path().join(name);
        match at % 3 {
            0 => fs::remove_file(path).unwrap(),
            1 => fs::rename(path, mount.path().join(format!("moved-{at}"))).unwrap(),
            _ => continue,
        }
        volume.files.remove(name);
    }
    mount.unmount().unwrap();
    lose(&image, [lost]);
    let report = repaired(&image, &options());
    assert_eq!(count(&report, Code::DirectoryBlocksLost), 0, "{}", findings(&report));
    let wrong = wrong(&image, &volume.files);
    assert!(wrong.is_empty(), "{wrong:?}\n{}", findings(&report));
    let mount = LoopMount::new(&image, "ro").unwrap();
    let back = removed
        .iter()
        .filter(|name| !volume.files.contains_key(*name) && mount.path().join(name).exists());
    assert_eq!(back.count(), 0, "{}", findings(&report));
}

#[test]
fn directories_of_another_volume_in_a_file_are_not_restored() {
    use std::os::unix::fs::MetadataExt;
    for features in ["^has_journal", "^has_journal,^metadata_csum,^64bit"] {
        let args = ["-b", "1024", "-O", features];
        let volume = or_skip!(volume(&args));
        let guest_args = [&["-t", "ext4", "-N", "4096"], &args[..]].concat();
        let guest = TempImage::by_mke2fs(4 << 20, &guest_args).unwrap();
        let mount = LoopMount::new(&guest.path(), "").unwrap();
        for dir in 0..500 {
            let dir = mount.path().join(format!("dir-{dir}"));
            fs::create_dir(&dir).unwrap();
            fs::write(dir.join("a-file"), "of the guest").unwrap();
        }
        mount.unmount().unwrap();
        let image = volume.image.path();
        let mount = LoopMount::new(&image, "").unwrap();
        let copy = mount.path().join("guest.img");
        fs::copy(guest.path(), &copy).unwrap();
        let copy = InodeNo(fs::metadata(&copy).unwrap().ino() as u32);
        mount.unmount().unwrap();
        let numbers: BTreeSet<u32> = volume.files.values().map(|(inode, _)| inode.0).collect();
        let below = numbers.into_iter().filter(|number| *number < 600).map(InodeNo);
        lose(&image, below.chain([copy]));
        let report = repaired(&image, &options());
        assert_eq!(count(&report, Code::DirectoryInodeLost), 0, "{}", findings(&report));
    }
}

#[test]
fn a_deleted_directory_is_not_restored() {
    let volume = or_skip!(volume(&["-b", "4096"]));
    let image = volume.image.path();
    let (device, store) =
        (common::open(&image, true), Store::open(common::open(&image, false)).unwrap());
    for inode in &volume.directories {
        let mut record = store.read_inode(*inode).unwrap().unwrap();
        record[0x14..0x18].copy_from_slice(&1_700_000_000_u32.to_le_bytes()); // time of deletion
        record[0x1a..0x1c].fill(0); // names
        extant_ondisk::inode::seal(&mut record, *inode, store.geometry());
        device.write_at(store.inode_offset(*inode).unwrap(), &record).unwrap();
    }
    drop((device, store));
    let report = repaired(&image, &options());
    assert_eq!(count(&report, Code::DirectoryInodeLost), 0, "{}", findings(&report));
}

#[test]
fn the_root_is_found_by_its_blocks() {
    for args in [&["-b", "4096"][..], &["-b", "1024"], &["-b", "4096", "-O", "^metadata_csum"]] {
        let volume = or_skip!(volume(args));
        let has_checksums = !args.contains(&"^metadata_csum");
        // Without checksums the directories below confirm it; with them they may be lost too.
        let others = volume.directories.iter().copied().filter(|_| has_checksums);
        let image = volume.image.path();
        lose(&image, others.chain([InodeNo::ROOT]));
        let report = repaired(&image, &options());
        assert_eq!(count(&report, Code::RootMissing), 0, "{}", findings(&report));
        let restored = if has_checksums { 6 } else { 1 };
        assert_eq!(count(&report, Code::DirectoryInodeLost), restored, "{}", findings(&report));
        let wrong = wrong(&image, &volume.files);
        assert!(wrong.is_empty(), "{args:?} {}\n{}", wrong.len(), findings(&report));
    }
}

/// The block of a root that does not name all that call it their parent is an old one, or that of
/// another volume.
#[test]
fn an_old_copy_of_the_root_is_not_restored() {
    use std::os::unix::fs::MetadataExt;
    for args in [&["-b", "1024"][..], &["-b", "1024", "-O", "^metadata_csum"]] {
        let volume = or_skip!(volume(args));
        let image = volume.image.path();
        let old = blocks_of(&image, InodeNo::ROOT)[0];
        let copy = read(&image, old * 1024, 1024);
        let mount = LoopMount::new(&image, "").unwrap();
        fs::write(mount.path().join("d/copy"), &copy).unwrap();
        let holder = InodeNo(fs::metadata(mount.path().join("d/copy")).unwrap().ino() as u32);
        fs::create_dir(mount.path().join("later")).unwrap();
        fs::write(mount.path().join("later/file"), "content").unwrap();
        mount.unmount().unwrap();
        common::open(&image, true).write_at(old * 1024, &[0; 1024]).unwrap();
        lose(&image, [InodeNo::ROOT, holder]);
        let report = repaired(&image, &options());
        assert_eq!(count(&report, Code::DirectoryInodeLost), 0, "{}", findings(&report));
        assert_eq!(count(&report, Code::RootMissing), 1, "{}", findings(&report));
    }
}

#[test]
fn a_directory_that_a_directory_inside_an_inode_names_is_restored() {
    use std::os::unix::fs::MetadataExt;
    let mut volume = or_skip!(volume(&["-b", "1024", "-O", "^has_journal,inline_data"]));
    let image = volume.image.path();
    let mount = LoopMount::new(&image, "").unwrap();
    fs::create_dir_all(mount.path().join("in/below")).unwrap();
    for at in 0..9 {
        let name = format!("in/below/a-file-with-a-long-name-{at}");
        let content = Random::new(at).bytes(3000);
        fs::write(mount.path().join(&name), &content).unwrap();
        volume.files.insert(name, (InodeNo(0), content));
    }
    let inode = |name: &str| InodeNo(fs::metadata(mount.path().join(name)).unwrap().ino() as u32);
    let (parent, below) = (inode("in"), inode("in/below"));
    mount.unmount().unwrap();
    let store = Store::open(common::open(&image, false)).unwrap();
    let record = store.read_inode(parent).unwrap().unwrap();
    assert!(Inode::decode(&record, parent, store.geometry()).unwrap().is_inline());
    drop(store);
    lose(&image, [below]);
    let report = repaired(&image, &options());
    assert_eq!(count(&report, Code::DirectoryInodeLost), 1, "{}", findings(&report));
    let wrong = wrong(&image, &volume.files);
    assert!(wrong.is_empty(), "{wrong:?}\n{}", findings(&report));
}

/// The directory hangs in lost+found then, with all of its names.
#[test]
fn a_directory_whose_parent_has_lost_the_name_is_restored() {
    use std::os::unix::fs::MetadataExt;
    let volume = or_skip!(volume(&["-b", "1024"]));
    let image = volume.image.path();
    let mount = LoopMount::new(&image, "ro").unwrap();
    let inode = |name: &str| InodeNo(fs::metadata(mount.path().join(name)).unwrap().ino() as u32);
    let (parent, lost) = (inode("a"), inode("a/b"));
    mount.unmount().unwrap();
    let at = blocks_of(&image, parent)[0] * 1024;
    common::open(&image, true).write_at(at, &[0; 1024]).unwrap();
    lose(&image, [lost]);
    let report = repaired(&image, &options());
    assert_eq!(count(&report, Code::DirectoryInodeLost), 1, "{}", findings(&report));
    let below = volume.files.iter().filter_map(|(name, file)| {
        let rest = name.strip_prefix("a/b/")?;
        Some((format!("lost+found/#{lost}/{rest}"), file.clone()))
    });
    let below: BTreeMap<_, _> = below.collect();
    assert_eq!(below.len(), 18);
    let wrong = wrong(&image, &below);
    assert!(wrong.is_empty(), "{wrong:?}\n{}", findings(&report));
}

/// Runs commands of debugfs.
fn debugfs(image: &Path, commands: &str) {
    let script = image.with_extension("commands");
    fs::write(&script, commands).unwrap();
    let mut command = Command::new(tool("debugfs").expect("next to mke2fs").path());
    let done = command.arg("-w").arg("-f").arg(&script).arg(image).output().unwrap();
    fs::remove_file(script).unwrap();
    assert!(done.status.success(), "{done:?}");
}

/// A directory without an inode takes after its parent, or after its subdirectories. The names keep
/// their case.
#[test]
fn directories_that_compare_names_without_case_are_restored_as_such() {
    if tool("mke2fs").is_none() || tool("e2fsck").is_none() || tool("debugfs").is_none() {
        skip!("needs mke2fs, e2fsck and debugfs");
    }
    let args = ["-t", "ext4", "-b", "1024", "-O", "^has_journal,casefold", "-E", "encoding=utf8"];
    let image = TempImage::by_mke2fs(48 << 20, &args).unwrap();
    let content = image.path().with_extension("content");
    fs::write(&content, "content").unwrap();
    let dirs = ["Folded", "Folded/Large", "Folded/Large/Below", "Folded/Large/Below/End", "Plain"];
    let mut commands = String::new();
    for dir in dirs {
        commands += &format!("mkdir /{dir}\n");
        let count = if dir == "Folded/Large" { 300 } else { 8 };
        for number in 0..count {
            let from = content.display();
            commands += &format!("write {from} /{dir}/A-Long-Name-{number}-Ä\n");
        }
        if dir.starts_with("Folded") {
            commands += &format!("sif /{dir} flags 0x40080000\n");
        }
    }
    debugfs(&image.path(), &commands);
    fs::remove_file(&content).unwrap();
    // It indexes the large one, by the folded names.
    let optimize = |image: &Path| {
        let mut command = Command::new("timeout");
        command.args(["-k", "5", "60"]).arg(tool("e2fsck").unwrap().path());
        let done = command.arg("-fyD").arg(image).output().unwrap();
        assert!(done.status.code().is_some_and(|code| code <= 1), "{done:?}");
    };
    optimize(&image.path());
    let inode_of = |path: &str| {
        let mut command = Command::new(tool("debugfs").unwrap().path());
        let done = command.arg("-R").arg(format!("stat /{path}")).arg(image.path()).output();
        let text = String::from_utf8(done.unwrap().stdout).unwrap();
        let (_, number) = text.split_once("Inode: ").expect("an inode");
        InodeNo(number.split_whitespace().next().unwrap().parse().unwrap())
    };
    let tree = |image: &Path| Walker::tree(&Store::open(common::open(image, false)).unwrap());
    // Without the size and the hash: those of a directory are of its blocks.
    let names = |image: &Path| -> Vec<String> {
        let tree = tree(image);
        tree.lines().map(|line| line.split('\t').take(2).collect::<Vec<_>>().join(" ")).collect()
    };
    let before = names(&image.path());
    let inodes = dirs.map(inode_of);
    for lost in [&inodes[..], &inodes[..3], &inodes[2..3]] {
        let ours = copied(&image.path()).unwrap();
        lose(&ours.path(), lost.iter().copied());
        let reported = self::lost(&ours.path(), AutoPolicy::No);
        let report = repaired(&ours.path(), &options());
        assert_eq!(count(&report, Code::DirectoryInodeLost), lost.len(), "{}", findings(&report));
        assert_eq!(reported.len(), lost.len());
        assert_eq!(names(&ours.path()), before, "{}", findings(&report));
        let store = Store::open(common::open(&ours.path(), false)).unwrap();
        for (dir, inode) in dirs.iter().zip(inodes) {
            let record = store.read_inode(inode).unwrap().unwrap();
            let stored = Inode::decode(&record, inode, store.geometry()).unwrap();
            // Where all are lost nothing says it.
            let expected = dir.starts_with("Folded") && lost.len() < dirs.len();
            assert_eq!(stored.flags.contains(InodeFlags::CASEFOLD), expected, "{dir} {lost:?}");
        }
        optimize(&ours.path());
        assert_eq!(names(&ours.path()), before);
    }
}

/// The names of an encrypted directory cannot be read without its inode: it is reported, and its
/// files can be read with their keys. Other directories of the volume are restored.
#[test]
fn an_encrypted_directory_without_an_inode_is_reported() {
    use std::os::unix::fs::MetadataExt;
    let volume = or_skip!(volume(&["-b", "4096", "-O", "encrypt"]));
    let image = volume.image.path();
    let with_key = "test_dummy_encryption";
    let mount = or_skip!(LoopMount::new(&image, with_key));
    let (vault, mut random) = (mount.path().join("vault"), Random::new(9));
    fs::create_dir(&vault).unwrap();
    let mut contents = BTreeSet::new();
    for name in ["one", "two", "three"] {
        let content = random.bytes(5000);
        if let Err(error) = fs::write(vault.join(name), &content) {
            skip!("the kernel does not encrypt: {error}");
        }
        contents.insert(content);
    }
    let vault = InodeNo(fs::metadata(&vault).unwrap().ino() as u32);
    mount.unmount().unwrap();
    lose(&image, volume.directories.iter().copied().chain([vault]));
    let run_options = RunOptions { open: open_options(), force: true, ..RunOptions::default() };
    let scanned = run(&common::open(&image, false), &run_options, &AutoPolicy::No, &Quiet).unwrap();
    let is_told = |it: &&extant_check::HandledFinding| {
        it.finding.code == Code::EncryptedDirectoryLost && it.finding.subject.inode == Some(vault)
    };
    assert_eq!(scanned.findings.iter().filter(is_told).count(), 1);
    let report = repaired(&image, &options());
    assert_eq!(report.findings.iter().filter(is_told).count(), 1, "{}", findings(&report));
    assert_eq!(count(&report, Code::DirectoryInodeLost), 5, "{}", findings(&report));
    let wrong = wrong(&image, &volume.files);
    assert!(wrong.is_empty(), "{wrong:?}\n{}", findings(&report));
    let mount = LoopMount::new(&image, &format!("ro,{with_key}")).unwrap();
    let list = fs::read_dir(mount.path().join("lost+found")).unwrap();
    let found: BTreeSet<_> = list.map(|entry| fs::read(entry.unwrap().path()).unwrap()).collect();
    assert_eq!(found, contents);
}

/// Accepts moves of blocks, and ends the run at anything else.
struct MovesAlone;

impl RepairPolicy for MovesAlone {
    fn decide(&self, finding: &Finding) -> Decision {
        match finding.code {
            Code::BlockMisplaced | Code::InodeMisplaced => Decision::Fix,
            _ => Decision::Abort,
        }
    }

    fn may_repair(&self) -> bool {
        true
    }
}

struct Quiet;
impl Observer for Quiet {}

#[test]
fn a_power_cut_while_blocks_are_moved_loses_none() {
    let volume = or_skip!(volume(&["-b", "1024", "-O", "has_journal"]));
    let image = volume.image.path();
    let tree = Walker::tree(&Store::open(common::open(&image, false)).unwrap());
    let table_of = |inode: InodeNo| {
        Store::open(common::open(&image, false)).unwrap().inode_offset(inode).unwrap() / 1024
    };
    let tables: BTreeSet<u64> = volume.files.values().map(|(inode, _)| table_of(*inode)).collect();
    let tables: Vec<u64> = tables.into_iter().collect();
    let directories: Vec<u64> =
        volume.directories.iter().map(|inode| blocks_of(&image, *inode)[0]).collect();
    swap(&image, tables[5], tables[9], 1024);
    swap(&image, directories[0], directories[3], 1024);
    let files = || volume.files.values().map(|(inode, _)| *inode);
    let in_table = |table: u64| files().find(|inode| table_of(*inode) == table).unwrap();
    swap_records(&image, in_table(tables[12]), in_table(tables[14]));
    let damaged: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(&fs::read(&image).unwrap()));
    // The log is no evidence: what a cut loses is not restored from it.
    let options = RunOptions {
        open: pass0::CheckOpenOptions { journal_evidence: false, ..open_options() },
        passes: CheckOptions { threads: 1, ..options() },
        force: true,
        ..RunOptions::default()
    };
    let recorder = Arc::new(Recorder::new(damaged));
    let device: Arc<dyn Device> = recorder.clone();
    let report = run(&device, &options, &MovesAlone, &Quiet).unwrap();
    for (code, moves) in [(Code::BlockMisplaced, 4), (Code::InodeMisplaced, 2)] {
        let moved = report.findings.iter().filter(|it| it.finding.code == code && it.repaired);
        assert_eq!(moved.count(), moves, "{code:?}");
    }
    let mut cuts = 0;
    for cut in recorder.cuts(Sweep { torn: 0, ..Sweep::seeded(3) }) {
        let shown = cut.to_string();
        let device: Arc<dyn Device> = Arc::new(cut.image);
        let report = run(&device, &options, &AutoPolicy::Yes, &Quiet);
        let report = report.unwrap_or_else(|error| panic!("{shown}: {error}"));
        let found = Walker::tree(&Store::open(device).unwrap());
        let codes: Vec<_> = report.findings.iter().map(|it| it.finding.code).collect();
        assert!(found == tree, "{shown}: {codes:?}");
        cuts += 1;
    }
    assert!(cuts > 20, "{cuts} cuts");
    // The log holds what it held: nothing but the moves was found.
    let log_blocks = |device: &dyn Device| {
        let mut bytes = vec![0; device.size() as usize];
        device.read_at(0, &mut bytes).unwrap();
        let magic = [0xc0, 0x3b, 0x39, 0x98];
        bytes.chunks(1024).filter(|block| block[..4] == magic).count()
    };
    let before = log_blocks(&MemoryDevice::from_bytes(&fs::read(&image).unwrap()));
    assert_eq!(log_blocks(&*device), before);
}
