use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use extant_device::{Device, FileDevice, OverlayDevice};
use extant_journal::{Finish, recover_volume};
use extant_testkit::{
    Kind, LoopMount, TempImage, TreeSnapshot, assert_same_tree, e2fsck_fn, is_root, left_dirty,
    skip,
};

use crate::compare::{copy_of, recover_in_place};

fn sync(path: &Path) {
    File::open(path).unwrap().sync_all().unwrap();
}

/// Makes changes that fast commits can record, each synced separately.
pub(crate) fn work(dir: &Path, names: usize, large: usize) {
    prepare(dir, large);
    change(dir, names);
}

/// Creates the initial files, in a full commit.
pub(crate) fn prepare(dir: &Path, large: usize) {
    fs::create_dir(dir.join("dir")).unwrap();
    for index in 0..5 {
        fs::write(dir.join(format!("dir/old-{index}")), b"old").unwrap();
    }
    fs::write(dir.join("large"), vec![b'l'; large]).unwrap();
    fs::write(dir.join("log"), b"begins").unwrap();
    // Operations that make the kernel do a full commit.
    std::os::unix::fs::symlink("target", dir.join("fast-link")).unwrap();
    std::os::unix::fs::symlink("t".repeat(100), dir.join("slow-link")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        dir.join("null"),
        rustix::fs::FileType::CharacterDevice,
        rustix::fs::Mode::from_raw_mode(0o600),
        rustix::fs::makedev(1, 3),
    )
    .unwrap();
    // A full commit, so that fast commits begin here.
    rustix::fs::syncfs(File::open(dir).unwrap()).unwrap();
}

/// Makes the changes that fast commits record.
pub(crate) fn change(dir: &Path, names: usize) {
    let log = File::options().append(true).open(dir.join("log")).unwrap();
    let commit = || {
        use std::io::Write;
        (&log).write_all(b" and goes on").unwrap();
        log.sync_all().unwrap();
    };
    for index in 0..names {
        let name = dir.join(format!("dir/new-with-a-longer-name-{index:04}"));
        // Data without an fsync has no blocks yet.
        let is_synced = index % 7 == 0;
        fs::write(&name, if is_synced { format!("number {index}") } else { String::new() })
            .unwrap();
        if is_synced {
            sync(&name);
        }
    }
    commit();
    fs::hard_link(dir.join("log"), dir.join("dir/hard")).unwrap();
    commit();
    fs::rename(dir.join("dir/old-0"), dir.join("dir/renamed")).unwrap();
    commit();
    fs::remove_file(dir.join("dir/old-1")).unwrap();
    commit();
    fs::rename(dir.join("dir/old-2"), dir.join("dir/old-3")).unwrap();
    commit();
    let large = File::options().write(true).open(dir.join("large")).unwrap();
    large.set_len(20_100).unwrap();
    large.sync_all().unwrap();
    rustix::fs::fallocate(&large, rustix::fs::FallocateFlags::empty(), 400_000, 32_768).unwrap();
    large.sync_all().unwrap();
    large.write_all_at(&[b'w'; 5000], 408_192).unwrap();
    large.sync_all().unwrap();
    // Holes between them: more extents than the inode holds.
    for at in 0..40 {
        large.write_all_at(&[b'h'; 4096], 1_000_000 + at * 16_384).unwrap();
    }
    large.sync_all().unwrap();
    fs::create_dir(dir.join("made")).unwrap();
    fs::write(dir.join("made/inside"), b"inside").unwrap();
    sync(&dir.join("made/inside"));
    fs::create_dir(dir.join("gone")).unwrap();
    commit();
    fs::remove_dir(dir.join("gone")).unwrap();
    commit();
}

/// A tree without directory times: fast commits do not log them.
pub(crate) fn comparable(mut tree: TreeSnapshot) -> TreeSnapshot {
    for entry in tree.entries.values_mut().filter(|entry| entry.kind == Kind::Directory) {
        entry.mtime = (0, 0);
    }
    tree
}

#[test]
fn fast_commits_are_replayed_as_the_files_were() {
    if !is_root() {
        skip!("a loop mount needs root");
    }
    let shapes: [(&[&str], usize); 5] = [
        (&["-b", "4096", "-O", "fast_commit,metadata_csum"], 30),
        (&["-b", "1024", "-O", "fast_commit,metadata_csum"], 200),
        (&["-b", "1024", "-O", "fast_commit,^metadata_csum,^64bit"], 200),
        (&["-b", "4096", "-O", "fast_commit,^metadata_csum,^uninit_bg,^dir_index"], 150),
        (&["-b", "1024", "-O", "fast_commit,bigalloc", "-C", "16384"], 30),
    ];
    let mut fast_commits = 0;
    for (args, names) in shapes {
        let args = [&["-t", "ext4", "-J", "size=8,fast_commit_size=1024"], args].concat();
        let image = match TempImage::by_mke2fs(96 << 20, &args) {
            Ok(image) => image,
            Err(why) => skip!("{why}"),
        };
        let mut tree = None;
        let copy = left_dirty(&image.path(), "", |dir| {
            work(dir, names, 80_000);
            tree = Some(TreeSnapshot::of_dir(dir).unwrap());
        });
        let copy = match copy {
            Ok(copy) => copy,
            Err(why) => skip!("no loop mount here: {why}"),
        };
        let ours = copy_of(&copy.path());
        let recovered = recover_in_place(&ours.path());
        assert_eq!(recovered.damage, [], "{args:?}");
        e2fsck_fn(&ours.path()).unwrap_or_else(|said| panic!("{args:?}: {recovered:?} {said}"));
        let mount = LoopMount::new(&ours.path(), "ro").unwrap();
        let found = TreeSnapshot::of_dir(mount.path()).unwrap();
        assert_same_tree(&comparable(tree.unwrap()), &comparable(found));
        mount.unmount().unwrap();
        fast_commits += recovered.fast_commits;

        // An overlay shows the same, and the image is not changed.
        let before = fs::read(copy.path()).unwrap();
        let device = FileDevice::open(copy.path()).unwrap();
        let overlay = OverlayDevice::new(std::sync::Arc::new(device));
        let again = recover_volume(&overlay, None, Finish::Leave).unwrap().unwrap();
        assert_eq!(again, recovered);
        let mut bytes = vec![0; overlay.size() as usize];
        overlay.read_at(0, &mut bytes).unwrap();
        assert!(fs::read(copy.path()).unwrap() == before && bytes != before);
    }
    assert!(fast_commits > 20, "{fast_commits}: the kernel made full commits instead");
}
