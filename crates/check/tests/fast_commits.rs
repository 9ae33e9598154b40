//! Fast commits that the kernel left on a volume, which is damaged before they are replayed.

mod common;

use common::{findings, open_options, options};
use extant_check::{AutoPolicy, Code, HandledFinding, Recorder, Store, pass0};
use extant_device::{Device, FileDevice, OverlayDevice};
use extant_journal::{Finish, recover_volume};
use extant_ondisk::GroupNo;
use extant_runtime::env::Env;
use extant_testkit::tree::Random;
use extant_testkit::{
    LoopMount, TempImage, TreeSnapshot, copied, e2fsck_fn, is_root, left_dirty, skip, tool,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// Files by their paths.
type Files = BTreeMap<String, Vec<u8>>;

/// Writes files of random content and has each of them synced.
struct Writer<'a> {
    root: &'a Path,
    files: &'a mut Files,
    random: Random,
}

impl Writer<'_> {
    fn write(&mut self, name: String) {
        let content = self.random.bytes(3000 + 700 * self.files.len());
        let mut file = File::create(self.root.join(&name)).unwrap();
        file.write_all(&content).unwrap();
        file.sync_all().unwrap();
        self.files.insert(name, content);
    }
}

/// Files that are in their places after the first mount.
fn fill(root: &Path, files: &mut Files) {
    // A copy is newer than the check that made the volume only in a later second.
    let env = Env::threads();
    env.sleep_until(env.elapsed() + Duration::from_millis(1100));
    let mut writer = Writer { root, files, random: Random::new(27) };
    for dir in 0..3 {
        fs::create_dir(root.join(format!("d{dir}"))).unwrap();
        (0..6).for_each(|file| writer.write(format!("d{dir}/old-{file}")));
    }
    writer.write("top".to_owned());
}

/// Files that fast commits alone hold.
fn change(root: &Path, files: &mut Files) {
    let mut writer = Writer { root, files, random: Random::new(72) };
    for dir in 0..3 {
        (0..6).for_each(|file| writer.write(format!("d{dir}/new-{file}")));
    }
    writer.write("new-top".to_owned());
    writer.write("d1/old-3".to_owned());
}

/// A damage by its name.
type Damage = (&'static str, Box<dyn Fn(&Path)>);

/// A volume with fast commits that wait, and its files.
fn dirty(features: &str) -> Result<(TempImage, Files), String> {
    if !is_root() || tool("mke2fs").is_none() || tool("e2fsck").is_none() {
        return Err("needs root, mke2fs and e2fsck".to_owned());
    }
    let args = ["-t", "ext4", "-b", "4096", "-O", features, "-J", "size=8,fast_commit_size=1024"];
    let image = TempImage::by_mke2fs(96 << 20, &args)?;
    let mut files = Files::new();
    let mount = LoopMount::new(&image.path(), "")?;
    fill(mount.path(), &mut files);
    mount.unmount()?;
    let copy = left_dirty(&image.path(), "", |root| change(root, &mut files))?;
    let overlay = OverlayDevice::new(FileDevice::open(copy.path()).unwrap());
    let recovered = recover_volume(&overlay, None, Finish::Leave).unwrap().unwrap();
    match recovered.fast_commits {
        0 => Err("the kernel made full commits".to_owned()),
        _ => Ok((copy, files)),
    }
}

/// The blocks of all inode tables.
fn tables(image: &Path) -> Vec<u64> {
    let store = Store::open(common::open(image, false)).unwrap();
    let geometry = store.geometry();
    let table = |group| store.desc(GroupNo(group)).inode_table.0;
    let count = u64::from(geometry.itable_blocks());
    (0..geometry.groups_count).flat_map(|group| table(group)..table(group) + count).collect()
}

fn overwrite(image: &Path, blocks: impl Iterator<Item = u64>, mut bytes: impl FnMut() -> Vec<u8>) {
    let device = common::open(image, true);
    blocks.for_each(|block| device.write_at(block * 4096, &bytes()).unwrap());
}

/// All of fsck; whether it came to its end.
fn run(image: &Path, policy: AutoPolicy, has_evidence: bool) -> (bool, Vec<HandledFinding>) {
    let recorder = Recorder::new(&policy);
    let open = pass0::CheckOpenOptions { journal_evidence: has_evidence, ..open_options() };
    let Ok(mut ready) = pass0::open(common::open(image, true), &open, &recorder) else {
        return (false, recorder.findings());
    };
    let Ok(report) = extant_check::repair(&mut ready.store, &options(), &recorder) else {
        ready.close(pass0::Closing::ErrorsLeft, &recorder).unwrap();
        return (false, recorder.findings());
    };
    assert!(!report.errors_left, "{}", findings(&report));
    ready.close(pass0::Closing::Clean, &recorder).unwrap();
    (true, recorder.findings())
}

/// Files with their names and contents that are left. The image has no fast commits any more.
fn kept(image: &Path, files: &Files) -> usize {
    e2fsck_fn(image).unwrap_or_else(|said| panic!("{said}"));
    let mount = LoopMount::new(image, "ro,noload").unwrap();
    files
        .iter()
        .filter(|(name, it)| fs::read(mount.path().join(name)).ok() == Some((*it).clone()))
        .count()
}

/// Contents that are left, under any name.
fn contents(image: &Path, files: &Files) -> usize {
    let mount = LoopMount::new(image, "ro,noload").unwrap();
    let tree = TreeSnapshot::of_dir(mount.path()).unwrap();
    let found: Vec<Vec<u8>> = tree
        .entries
        .keys()
        .filter_map(|path| {
            let path = std::str::from_utf8(path).ok()?;
            fs::read(mount.path().join(path.trim_start_matches('/'))).ok()
        })
        .collect();
    files.values().filter(|content| found.contains(content)).count()
}

fn text(found: &[HandledFinding]) -> String {
    found
        .iter()
        .map(|it| format!("{} {:?} {}\n", it.repaired, it.finding.code, it.finding))
        .collect()
}

fn has(found: &[HandledFinding], code: Code) -> bool {
    found.iter().any(|it| it.finding.code == code)
}

#[test]
fn fast_commits_are_replayed_on_tables_that_the_log_restores() {
    for features in ["fast_commit", "fast_commit,^metadata_csum,uninit_bg"] {
        let (image, files) = match dirty(features) {
            Ok(made) => made,
            Err(why) => skip!("{why}"),
        };
        let tables = tables(&image.path());
        let zeros = |one_in: usize| {
            let of = tables.iter().copied().step_by(one_in).collect::<Vec<_>>();
            move |image: &Path| overwrite(image, of.iter().copied(), || vec![0; 4096])
        };
        let all = tables.clone();
        let garbage = move |image: &Path| {
            let mut random = Random::new(5);
            overwrite(image, all.iter().copied(), || random.bytes(4096));
        };
        let damages: [Damage; 3] = [
            ("no table", Box::new(zeros(1))),
            ("every second block", Box::new(zeros(2))),
            ("garbage", Box::new(garbage)),
        ];
        for (name, damage) in damages {
            let ours = copied(&image.path()).unwrap();
            damage(&ours.path());
            let after_preening = copied(&ours.path()).unwrap();
            let (is_done, found) = run(&ours.path(), AutoPolicy::Yes, true);
            assert!(is_done && !has(&found, Code::JournalReplayFailed), "{name}: {}", text(&found));
            assert_eq!(
                kept(&ours.path(), &files),
                files.len(),
                "{features} {name}: {}",
                text(&found)
            );

            run(&after_preening.path(), AutoPolicy::Preen, true);
            let (is_done, found) = run(&after_preening.path(), AutoPolicy::Yes, true);
            assert!(is_done, "{name}: {}", text(&found));
            assert_eq!(
                kept(&after_preening.path(), &files),
                files.len(),
                "{name}: {}",
                text(&found)
            );
        }
    }
}

/// Without the copies of the log, the fast commits alone give back what they hold, and are left out
/// where they cannot be replayed.
/// The kernel leaves the tail of a leaf in the root of an index.
#[test]
fn fast_commits_of_names_in_an_indexed_directory_are_replayed() {
    if !is_root() || tool("mke2fs").is_none() {
        skip!("needs root and mke2fs");
    }
    let args = ["-t", "ext4", "-b", "1024", "-O", "fast_commit"];
    let image = match TempImage::by_mke2fs(64 << 20, &args) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let names = |range: std::ops::Range<u32>| range.map(|at| format!("many/a-long-name-{at}"));
    let create = |root: &Path, range| {
        for name in names(range) {
            File::create(root.join(name)).and_then(|file| file.sync_all()).unwrap();
        }
    };
    let mount = LoopMount::new(&image.path(), "").unwrap();
    fs::create_dir(mount.path().join("many")).unwrap();
    create(mount.path(), 0..300);
    mount.unmount().unwrap();
    let dirty = left_dirty(&image.path(), "", |root| create(root, 300..310)).unwrap();
    let overlay = OverlayDevice::new(FileDevice::open(dirty.path()).unwrap());
    let recovered = recover_volume(&overlay, None, Finish::Leave).unwrap().unwrap();
    if recovered.fast_commits == 0 {
        skip!("the kernel made full commits");
    }
    let tree = common::Walker::tree(&Store::open(std::sync::Arc::new(overlay)).unwrap());
    for name in names(0..310) {
        assert!(tree.contains(&name), "{name}");
    }
}

/// Some of them have room in their inodes for the new names, and others become blocks.
#[test]
fn fast_commits_of_names_in_directories_inside_inodes_are_replayed() {
    if !is_root() || tool("mke2fs").is_none() || tool("e2fsck").is_none() {
        skip!("needs root, mke2fs and e2fsck");
    }
    let args = ["-t", "ext4", "-O", "fast_commit,inline_data"];
    let image = match TempImage::by_mke2fs(64 << 20, &args) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let mount = LoopMount::new(&image.path(), "").unwrap();
    let dirs = || (0..6).map(|at| format!("d{at}"));
    for dir in dirs() {
        fs::create_dir(mount.path().join(&dir)).unwrap();
        File::create(mount.path().join(dir).join("gone")).unwrap();
    }
    fs::write(mount.path().join("grows"), "little").unwrap();
    mount.unmount().unwrap();
    let names = |dir: &str, at: usize| -> Vec<String> {
        (0..at * 3 + 1).map(|it| format!("{dir}/name-{it}")).collect()
    };
    let dirty = left_dirty(&image.path(), "", |root| {
        let mut grows = File::options().append(true).open(root.join("grows")).unwrap();
        grows.write_all(&[b'x'; 5000]).and_then(|()| grows.sync_all()).unwrap();
        for (at, dir) in dirs().enumerate() {
            fs::remove_file(root.join(&dir).join("gone")).unwrap();
            for name in names(&dir, at) {
                File::create(root.join(name)).and_then(|file| file.sync_all()).unwrap();
            }
        }
    });
    let dirty = dirty.unwrap();
    let device = common::open(&dirty.path(), true);
    let recovered = recover_volume(&*device, None, Finish::Reset).unwrap().unwrap();
    if recovered.fast_commits == 0 {
        skip!("the kernel made full commits");
    }
    let tree = common::Walker::tree(&Store::open(device).unwrap());
    for name in dirs().enumerate().flat_map(|(at, dir)| names(&dir, at)) {
        assert!(tree.contains(&name), "{name}:\n{tree}");
    }
    assert!(!tree.contains("gone"), "{tree}");
    assert!(tree.contains("/grows\tf\t5006"), "{tree}");
    e2fsck_fn(&dirty.path()).unwrap();
}

#[test]
fn fast_commits_of_files_with_indirect_blocks_are_replayed() {
    if !is_root() || tool("mke2fs").is_none() || tool("e2fsck").is_none() {
        skip!("needs root, mke2fs and e2fsck");
    }
    let args = ["-t", "ext4", "-b", "1024", "-O", "^extent,^64bit,fast_commit"];
    let image = match TempImage::by_mke2fs(64 << 20, &args) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let (mut files, mut random) = (Files::new(), Random::new(4));
    let mount = LoopMount::new(&image.path(), "").unwrap();
    fs::create_dir(mount.path().join("d")).unwrap();
    for at in 0..20 {
        let content = random.bytes(at * 4000);
        fs::write(mount.path().join(format!("d/{at}")), &content).unwrap();
        files.insert(format!("d/{at}"), content);
    }
    mount.unmount().unwrap();
    let dirty = left_dirty(&image.path(), "", |root| {
        for (at, content) in (0..20).map(|at| (at, random.bytes(at * 30_000))) {
            let name = format!("d/{at}");
            let mut file = File::options().append(true).open(root.join(&name)).unwrap();
            file.write_all(&content).and_then(|()| file.sync_all()).unwrap();
            files.get_mut(&name).unwrap().extend(content);
            fs::rename(root.join(&name), root.join(format!("new-{at}"))).unwrap();
            let renamed = files.remove(&name).unwrap();
            files.insert(format!("new-{at}"), renamed);
        }
        let mut writer = Writer { root, files: &mut files, random: Random::new(6) };
        writer.write("d/last".to_owned());
    });
    let dirty = dirty.unwrap();
    let device = common::open(&dirty.path(), true);
    let recovered = recover_volume(&*device, None, Finish::Reset).unwrap().unwrap();
    if recovered.fast_commits == 0 {
        skip!("the kernel made full commits");
    }
    drop(device);
    e2fsck_fn(&dirty.path()).unwrap();
    let mount = LoopMount::new(&dirty.path(), "ro").unwrap();
    for (name, content) in &files {
        assert!(fs::read(mount.path().join(name)).unwrap() == *content, "{name}");
    }
}

#[test]
fn fast_commits_that_cannot_be_replayed_are_left_out_alone() {
    let (image, files) = match dirty("fast_commit") {
        Ok(made) => made,
        Err(why) => skip!("{why}"),
    };
    let ours = copied(&image.path()).unwrap();
    let tables = tables(&image.path());
    overwrite(&ours.path(), tables.into_iter(), || vec![0; 4096]);
    let (is_done, found) = run(&ours.path(), AutoPolicy::Yes, false);
    assert!(is_done && !has(&found, Code::JournalReplayFailed), "{}", text(&found));
    e2fsck_fn(&ours.path()).unwrap_or_else(|said| panic!("{said}\n{}", text(&found)));
    let left = contents(&ours.path(), &files);
    println!("{left} of {} contents\n{}", files.len(), text(&found));
    assert!(has(&found, Code::FastCommitInode), "{}", text(&found));
    assert!(has(&found, Code::FastCommitsLeftOut), "{}", text(&found));
    for code in [Code::FastCommitInode, Code::FastCommitsLeftOut] {
        let of_code = || found.iter().filter(|it| it.finding.code == code);
        let inodes: BTreeSet<_> = of_code().map(|it| it.finding.subject.inode).collect();
        assert!(!inodes.contains(&None) && inodes.len() == of_code().count(), "{}", text(&found));
        assert!(code == Code::FastCommitInode || inodes.len() > 1, "{}", text(&found));
    }
    assert!(left >= 20, "{left}: {}", text(&found));
}
