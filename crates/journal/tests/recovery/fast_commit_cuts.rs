//! Power cuts during the replay of fast commits: the next recovery leaves the same volume as an
//! uninterrupted one.

use std::ops::Range;
use std::sync::Arc;

use extant_device::{Device, MemoryDevice};
use extant_journal::{Finish, JournalLocation, Recovered, recover_volume};
use extant_ondisk::superblock::RawSuperblock;
use extant_ondisk::{Geometry, GroupNo};
use extant_sim::{Recorder, Sweep};
use extant_testkit::{
    LoopMount, TempImage, TreeSnapshot, assert_same_tree, e2fsck_fn, is_root, left_dirty, skip,
};

use crate::fast_commit::{change, comparable, prepare};

/// Number of cuts after which the kernel recovers the volume, for each shape.
const BY_KERNEL: usize = 4;

fn recover(device: &dyn Device) -> Recovered {
    recover_volume(device, None, Finish::Reset).unwrap().unwrap()
}

fn bytes_of(device: &dyn Device) -> Vec<u8> {
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

/// Byte ranges of the journal on the volume.
fn journal_of(bytes: &[u8]) -> Vec<Range<usize>> {
    let raw = RawSuperblock::from_bytes(&bytes[1024..], GroupNo(0)).unwrap();
    let geometry = Geometry::new(&raw).unwrap();
    let device = MemoryDevice::from_bytes(bytes);
    let place = JournalLocation::internal(&device, &raw, &geometry).unwrap();
    let range = |start: u64, count: u32| {
        let start = start as usize * geometry.block_len();
        start..start + count as usize * geometry.block_len()
    };
    place.runs.runs().iter().map(|run| range(run.start.0, run.count)).collect()
}

/// Fills the journal with zeros: its numbers and old blocks after two recoveries do not matter.
fn without_journal(mut bytes: Vec<u8>, journal: &[Range<usize>]) -> Vec<u8> {
    for range in journal {
        bytes[range.clone()].fill(0);
    }
    bytes
}

fn stored(device: &dyn Device) -> TempImage {
    let image = TempImage::of_size(0).unwrap();
    std::fs::write(image.path(), bytes_of(device)).unwrap();
    image
}

#[test]
fn a_replay_that_was_cut_off_ends_as_one_that_was_not() {
    if !is_root() {
        skip!("a loop mount needs root");
    }
    let shapes: [(&[&str], usize); 3] = [
        (&["-b", "4096", "-O", "fast_commit,metadata_csum"], 30),
        (&["-b", "1024", "-O", "fast_commit,metadata_csum"], 200),
        (&["-b", "1024", "-O", "fast_commit,^metadata_csum,^64bit"], 200),
    ];
    for ((args, names), is_committed) in shapes.into_iter().flat_map(|it| [(it, true), (it, false)])
    {
        let args = [&["-t", "ext4", "-J", "size=8,fast_commit_size=512"], args].concat();
        let image = match TempImage::by_mke2fs(32 << 20, &args) {
            Ok(image) => image,
            Err(why) => skip!("{why}"),
        };
        if !is_committed {
            // Unmounting checkpoints it: the log holds little of the blocks that the fast commits
            // change.
            match LoopMount::new(&image.path(), "") {
                Ok(mount) => {
                    prepare(mount.path(), 80_000);
                    mount.unmount().unwrap();
                }
                Err(why) => skip!("no loop mount here: {why}"),
            }
        }
        let mut tree = None;
        let dirty = left_dirty(&image.path(), "", |dir| {
            if is_committed {
                prepare(dir, 80_000);
            }
            change(dir, names);
            tree = Some(comparable(TreeSnapshot::of_dir(dir).unwrap()));
        });
        let dirty = match dirty {
            Ok(dirty) => std::fs::read(dirty.path()).unwrap(),
            Err(why) => skip!("no loop mount here: {why}"),
        };
        all_cuts_end_alike(&dirty, &tree.unwrap(), &args);
    }
}

fn all_cuts_end_alike(dirty: &[u8], tree: &TreeSnapshot, args: &[&str]) {
    let recorder = Recorder::new(Arc::new(MemoryDevice::from_bytes(dirty)));
    let recovered = recover(&recorder);
    assert!(recovered.fast_commits > 0 && recovered.damage.is_empty(), "{args:?}: {recovered:?}");
    let journal = journal_of(dirty);
    let whole = without_journal(bytes_of(&recorder), &journal);
    e2fsck_fn(&stored(&recorder).path()).unwrap_or_else(|said| panic!("{args:?}: {said}"));

    let (mut cuts, mut committed) = (0, Vec::new());
    for cut in recorder.cuts(Sweep::seeded(11)) {
        cuts += 1;
        let before = cut.image.fork();
        let again = recover_volume(&cut.image, None, Finish::Reset)
            .unwrap_or_else(|error| panic!("{args:?}, {cut}: {error}"))
            .unwrap();
        assert_eq!(again.damage, [], "{args:?}, {cut}");
        let found = without_journal(bytes_of(&cut.image), &journal);
        let at = found.iter().zip(&whole).position(|(found, whole)| found != whole);
        assert_eq!(at, None, "{args:?}, {cut}: {again:?}");
        if again.fast_commits == 0 && again.transactions > 0 {
            committed.push(before);
        }
    }
    assert!(cuts > 20 && committed.len() >= BY_KERNEL, "{args:?}: {cuts}, {}", committed.len());
    // The changes of the fast commits are a transaction by then: the kernel replays it too.
    for left in committed.iter().step_by(committed.len() / BY_KERNEL) {
        let image = stored(left);
        let mount = LoopMount::new(&image.path(), "").unwrap();
        let found = comparable(TreeSnapshot::of_dir(mount.path()).unwrap());
        mount.unmount().unwrap();
        assert_same_tree(tree, &found);
        e2fsck_fn(&image.path()).unwrap_or_else(|said| panic!("{args:?}, the kernel: {said}"));
    }
}

/// In this case only, a power cut may leave a part of the changes.
#[test]
fn a_directory_longer_than_the_log_is_replayed_too() {
    if !is_root() {
        skip!("a loop mount needs root");
    }
    let args =
        ["-t", "ext4", "-b", "1024", "-O", "fast_commit", "-J", "size=1,fast_commit_size=256"];
    let image = match TempImage::by_mke2fs(32 << 20, &args) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let mut tree = None;
    let dirty = left_dirty(&image.path(), "", |dir| {
        std::fs::write(dir.join("file"), b"many names").unwrap();
        std::fs::create_dir(dir.join("long")).unwrap();
        for index in 0..5000 {
            let name = dir.join(format!("long/{index:0>250}"));
            std::fs::hard_link(dir.join("file"), name).unwrap();
        }
        let file = std::fs::File::options().append(true).open(dir.join("file")).unwrap();
        rustix::fs::syncfs(&file).unwrap();
        std::fs::rename(dir.join(format!("long/{:0>250}", 7)), dir.join("long/renamed")).unwrap();
        file.sync_all().unwrap();
        tree = Some(comparable(TreeSnapshot::of_dir(dir).unwrap()));
    });
    let image = match dirty {
        Ok(image) => image,
        Err(why) => skip!("no loop mount here: {why}"),
    };
    let bytes = std::fs::read(image.path()).unwrap();
    let log: usize = journal_of(&bytes).iter().map(|range| range.len() / 1024).sum();
    let device = MemoryDevice::from_bytes(&bytes);
    let recovered = recover(&device);
    assert!(recovered.fast_commits > 0 && recovered.damage.is_empty(), "{recovered:?}");
    assert!(recovered.blocks > log as u64, "{recovered:?}");
    let image = stored(&device);
    e2fsck_fn(&image.path()).unwrap();
    let mount = LoopMount::new(&image.path(), "ro").unwrap();
    let found = comparable(TreeSnapshot::of_dir(mount.path()).unwrap());
    mount.unmount().unwrap();
    assert_same_tree(&tree.unwrap(), &found);
}
