//! The log as evidence: volumes that the kernel filled, damaged, and repaired with the copies that
//! the log of their journal still holds.

mod common;
#[path = "common/log.rs"]
mod log;

use common::{findings, fsck, open_options, options};
use extant_check::{AutoPolicy, Code, PassReport, Recorder, Store, pass0};
use extant_device::{Device, DeviceError, MemoryDevice, Request, RequestKind};
use extant_journal::JournalLocation;
use extant_ondisk::extent::{ExtentNode, RawExtentIndex};
use extant_ondisk::inode::{FileType, Inode};
use extant_ondisk::{BlockNo, Geometry, InodeNo, indirect};
use extant_testkit::tree::{self, Random};
use extant_testkit::{LoopMount, TempImage, TreeSnapshot, copied, e2fsck_fn, is_root, skip, tool};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use zerocopy::IntoBytes;

/// Blocks by what they hold, of a volume that is whole.
struct Blocks {
    geometry: Geometry,
    /// Of the tables, those with inodes in use.
    tables: Vec<BlockNo>,
    root: Vec<BlockNo>,
    directories: Vec<BlockNo>,
    /// Nodes of extent trees, indirect blocks.
    maps: Vec<BlockNo>,
    xattrs: Vec<BlockNo>,
    descriptors: Vec<BlockNo>,
}

impl Blocks {
    fn of(image: &Path) -> Self {
        let store = Store::open(common::open(image, false)).expect("the volume is whole");
        let geometry = store.geometry().clone();
        let mut found = Self {
            tables: Vec::new(),
            root: Vec::new(),
            directories: Vec::new(),
            maps: Vec::new(),
            xattrs: Vec::new(),
            descriptors: (0..geometry.desc_blocks()).map(|it| geometry.desc_block(it)).collect(),
            geometry: geometry.clone(),
        };
        let mut tables = BTreeSet::new();
        for number in (1..=geometry.inodes_count).map(InodeNo) {
            let record = store.read_inode(number).unwrap().unwrap();
            let Ok(inode) = Inode::decode(&record, number, &geometry) else { continue };
            if inode.links == 0 {
                continue;
            }
            let at = store.inode_offset(number).unwrap() >> geometry.block_bits();
            tables.insert(BlockNo(at));
            if number < geometry.first_inode && number != InodeNo::ROOT {
                continue;
            }
            if inode.file_acl.0 != 0 {
                found.xattrs.push(inode.file_acl);
            }
            let is_mapped =
                matches!(inode.file_type(), Some(FileType::Regular | FileType::Directory));
            if !is_mapped || inode.is_inline() {
                continue;
            }
            let mut data = Vec::new();
            if inode.is_extent_mapped() {
                found.extents(&store, &inode.i_block, &mut data);
            } else {
                for (slot, block) in indirect::pointers(&inode.i_block).enumerate() {
                    found.pointers(&store, block, slot.saturating_sub(11), &mut data);
                }
            }
            if inode.is_dir() {
                if number == InodeNo::ROOT {
                    found.root.clone_from(&data);
                }
                found.directories.extend(data);
            }
        }
        found.tables.extend(tables);
        found
    }

    fn extents(&mut self, store: &Store, node: &[u8], data: &mut Vec<BlockNo>) {
        match ExtentNode::parse(node) {
            Some(ExtentNode::Leaf(extents)) => {
                for extent in extents.iter().map(|raw| raw.decode()) {
                    let blocks = extent.start.0..extent.start.0 + u64::from(extent.len);
                    data.extend(blocks.map(BlockNo));
                }
            }
            Some(ExtentNode::Index(indexes, _)) => {
                for index in indexes.iter().map(RawExtentIndex::decode) {
                    self.maps.push(index.leaf);
                    self.extents(store, &store.read(index.leaf).unwrap(), data);
                }
            }
            None => panic!("a node of a whole volume"),
        }
    }

    fn pointers(&mut self, store: &Store, at: BlockNo, levels: usize, data: &mut Vec<BlockNo>) {
        if at.0 == 0 {
            return;
        }
        if levels == 0 {
            data.push(at);
            return;
        }
        self.maps.push(at);
        for block in indirect::pointers(&store.read(at).unwrap()) {
            self.pointers(store, block, levels - 1, data);
        }
    }
}

fn fill(image: &Path, blocks: &[BlockNo], geometry: &Geometry, random: Option<&mut Random>) {
    let file = std::fs::OpenOptions::new().write(true).open(image).unwrap();
    let mut random = random;
    for block in blocks {
        let bytes = match &mut random {
            Some(random) => random.bytes(geometry.block_len()),
            None => vec![0; geometry.block_len()],
        };
        file.write_all_at(&bytes, geometry.byte_of(*block)).unwrap();
    }
}

/// A damage by its name.
type Damage = (&'static str, Box<dyn Fn(&Path, &Blocks)>);

fn zeroed(name: &'static str, of: fn(&Blocks) -> Vec<BlockNo>) -> Damage {
    (name, Box::new(move |image, blocks| fill(image, &of(blocks), &blocks.geometry, None)))
}

/// The damages of the table, of which e2fsck loses most.
fn damages() -> Vec<Damage> {
    let garbage = |image: &Path, blocks: &Blocks| {
        fill(image, &blocks.tables, &blocks.geometry, Some(&mut Random::new(7)));
    };
    let start = |image: &Path, _: &Blocks| {
        let file = std::fs::OpenOptions::new().write(true).open(image).unwrap();
        file.write_all_at(&vec![0; 1 << 20], 0).unwrap();
    };
    vec![
        zeroed("root directory", |it| it.root.clone()),
        zeroed("tenth of the inode tables", |it| it.tables.iter().copied().step_by(10).collect()),
        ("garbage in all inode tables", Box::new(garbage)),
        zeroed("all directories", |it| it.directories.clone()),
        ("first MiB", Box::new(start)),
    ]
}

/// Damages of other kinds of blocks.
fn other_damages() -> Vec<Damage> {
    let superblock = |image: &Path, _: &Blocks| {
        let file = std::fs::OpenOptions::new().write(true).open(image).unwrap();
        file.write_all_at(&[0; 1024], 1024).unwrap();
    };
    vec![
        zeroed("maps", |it| it.maps.clone()),
        zeroed("attributes", |it| it.xattrs.clone()),
        zeroed("descriptors", |it| it.descriptors.clone()),
        zeroed("maps, inodes and directories", |it| {
            [&it.maps[..], &it.tables, &it.directories].concat()
        }),
        ("superblock", Box::new(superblock)),
    ]
}

/// A volume that the kernel fills in one mount.
fn filled(bytes: u64, args: &[&str], xattrs: bool) -> Result<TempImage, String> {
    let image = TempImage::by_mke2fs(bytes, args)?;
    let mount = LoopMount::new(&image.path(), "")?;
    let mut random = Random::new(3);
    let text = |error: std::io::Error| error.to_string();
    let (many, depth, largest) = (200, 12, 300_000);
    let shape =
        tree::Options { many, depth, largest, xattrs, block: 1024, ..tree::Options::default() };
    tree::grow(&mount.path().join("tree"), 5, &shape).map_err(text)?;
    for dir in 0..16 {
        let dir = mount.path().join(format!("dir-{dir}"));
        std::fs::create_dir(&dir).map_err(text)?;
        for file in 0..20 {
            let len = random.below(20_000) as usize;
            std::fs::write(dir.join(format!("file-{file}")), random.bytes(len)).map_err(text)?;
        }
    }
    // Each second block: more extents than an inode has room for.
    for file in 0..6 {
        let file = std::fs::File::create(mount.path().join(format!("dir-{file}/holes")));
        let file = file.map_err(text)?;
        for block in 0..40 {
            file.write_all_at(&random.bytes(4096), block * 8192).map_err(text)?;
        }
    }
    mount.unmount()?;
    Ok(image)
}

fn snapshot(image: &Path) -> TreeSnapshot {
    let mount = LoopMount::new(image, "ro").expect("the repaired volume is mounted");
    TreeSnapshot::of_dir(mount.path()).unwrap()
}

/// Paths and contents of the original that are left.
fn kept(original: &TreeSnapshot, found: &TreeSnapshot) -> (usize, usize) {
    let of = |path: &[u8]| found.entries.get(path).map(|entry| entry.kind);
    let paths = original.entries.iter().filter(|(path, it)| of(path) == Some(it.kind)).count();
    let contents = |tree: &TreeSnapshot| {
        let digests = tree.entries.values().filter(|it| it.size > 0);
        digests.filter_map(|it| it.content).map(|it| format!("{it:?}")).collect::<BTreeSet<_>>()
    };
    (paths, contents(original).intersection(&contents(found)).count())
}

fn restored(report: &PassReport) -> (usize, usize) {
    let count =
        |code| report.findings.iter().filter(|it| it.finding.code == code && it.repaired).count();
    (count(Code::LogCopyCertain), count(Code::LogCopyPossiblyOlder))
}

macro_rules! or_skip {
    ($made:expr) => {{
        if !is_root() || tool("mke2fs").is_none() || tool("e2fsck").is_none() {
            skip!("needs root, mke2fs and e2fsck");
        }
        match $made {
            Ok(made) => made,
            Err(why) => skip!("{why}"),
        }
    }};
}

/// The table: ours is the volume as it was, for each damage; e2fsck keeps what it can without the
/// log.
#[test]
fn a_young_log_gives_back_what_was_damaged() {
    let image = or_skip!(filled(160 << 20, &["-t", "ext4", "-b", "4096"], true));
    let (original, blocks) = (snapshot(&image.path()), Blocks::of(&image.path()));
    assert!(!blocks.maps.is_empty() && !blocks.xattrs.is_empty());
    let all = kept(&original, &original);
    for (name, damage) in damages() {
        let (ours, theirs) = (copied(&image.path()).unwrap(), copied(&image.path()).unwrap());
        damage(&ours.path(), &blocks);
        damage(&theirs.path(), &blocks);
        for _ in 0..2 {
            tool("e2fsck").unwrap().run(["-fy".as_ref(), theirs.path().as_os_str()]);
        }
        // It leaves files that the kernel does not open.
        let by_e2fsck = LoopMount::new(&theirs.path(), "ro").ok();
        let by_e2fsck = by_e2fsck.and_then(|mount| TreeSnapshot::of_dir(mount.path()).ok());
        let by_e2fsck = by_e2fsck.map(|found| kept(&original, &found));
        let report = fsck(&ours.path(), &options(), AutoPolicy::Yes).unwrap();
        let by_us = kept(&original, &snapshot(&ours.path()));
        let counts = restored(&report);
        println!("{name}: e2fsck {by_e2fsck:?}, ours {by_us:?}, of {all:?}; copies {counts:?}");
        assert_eq!(by_us, all, "{name}\n{}", findings(&report));
        assert!(counts.0 > 0, "{name}");
        e2fsck_fn(&ours.path()).unwrap_or_else(|said| panic!("{name}: {said}"));
    }
}

/// Everything is as before, attributes and times too.
#[test]
fn every_kind_of_block_is_restored_on_every_format() {
    let formats: [(&[&str], bool); 3] = [
        (&["-t", "ext4", "-b", "1024"], true),
        (&["-t", "ext4", "-b", "4096", "-O", "^metadata_csum,uninit_bg"], true),
        (&["-t", "ext3", "-b", "1024"], true),
    ];
    for (args, xattrs) in formats {
        let image = or_skip!(filled(160 << 20, args, xattrs));
        let original = snapshot(&image.path()).without("lost+found");
        let blocks = Blocks::of(&image.path());
        for (name, damage) in damages().into_iter().chain(other_damages()) {
            if name == "first MiB" && args[1] == "ext3" {
                continue; // the journal lies there
            }
            let ours = copied(&image.path()).unwrap();
            damage(&ours.path(), &blocks);
            let report = fsck(&ours.path(), &options(), AutoPolicy::Yes).unwrap();
            let found = snapshot(&ours.path()).without("lost+found");
            let other = extant_testkit::differences(&original, &found);
            assert!(other.is_empty(), "{args:?} {name}: {other:#?}\n{}", findings(&report));
            e2fsck_fn(&ours.path()).unwrap_or_else(|said| panic!("{args:?} {name}: {said}"));
        }
    }
}

struct Quiet;

impl extant_check::Observer for Quiet {}

/// Preening restores what is certain; without repairs nothing is written, and each block is named.
#[test]
fn certain_copies_are_safe_repairs() {
    let image = or_skip!(filled(160 << 20, &["-t", "ext4", "-b", "4096"], false));
    let original = snapshot(&image.path()).without("lost+found");
    let blocks = Blocks::of(&image.path());
    let (_, damage) = damages().into_iter().next().expect("the first row");
    damage(&image.path(), &blocks);
    let before = std::fs::read(image.path()).unwrap();
    let run = extant_check::RunOptions { open: open_options(), force: true, ..Default::default() };
    let device = common::open(&image.path(), false);
    let report = extant_check::run::run(&device, &run, &AutoPolicy::No, &Quiet).unwrap();
    let root = report.findings.iter().filter(|it| it.finding.code == Code::LogCopyCertain);
    let root: Vec<_> = root.map(|it| (it.finding.subject.block, it.repaired)).collect();
    assert_eq!(root, [(Some(blocks.root[0]), false)]);
    assert!(std::fs::read(image.path()).unwrap() == before, "nothing is written");
    let report = fsck(&image.path(), &options(), AutoPolicy::Preen).unwrap();
    assert_eq!((restored(&report), report.errors_left), ((1, 0), false), "{}", findings(&report));
    let other =
        extant_testkit::differences(&original, &snapshot(&image.path()).without("lost+found"));
    assert!(other.is_empty(), "{other:#?}");
}

/// Blocks of an inode table are lost that the log holds as they were, perhaps. Preening would clear
/// the names of their files: it stops, and a later run that may take old copies has all of them.
#[test]
fn preening_stops_at_lost_inodes_with_an_old_copy() {
    let image = or_skip!(with_old_inodes());
    let names = |image: &Path| {
        let mount = LoopMount::new(image, "ro").expect("it is mounted");
        let list = std::fs::read_dir(mount.path().join("big")).expect("a directory");
        list.filter(|entry| entry.as_ref().is_ok_and(|it| it.metadata().is_ok())).count()
    };
    assert_eq!(names(&image.path()), OLD_FILES);
    let store = Store::open(common::open(&image.path(), false)).unwrap();
    let geometry = store.geometry().clone();
    let desc = store.descs().pop().expect("a group");
    let blocks: Vec<BlockNo> = (20..30).map(|at| BlockNo(desc.inode_table.0 + at)).collect();
    drop(store);
    fill(&image.path(), &blocks, &geometry, None);

    let run = extant_check::RunOptions { open: open_options(), force: true, ..Default::default() };
    let device = common::open(&image.path(), true);
    let report = extant_check::run::run(&device, &run, &AutoPolicy::Preen, &Quiet).unwrap();
    assert_eq!(report.end, extant_check::run::End::Stopped);
    let last = report.findings.last().map(|it| (it.finding.code, it.repaired));
    assert_eq!(last, Some((Code::LogCopyPossiblyOlder, false)));
    let is_cleared = |code: Code| code.row().pass == 2;
    assert!(!report.findings.iter().any(|it| is_cleared(it.finding.code)));
    drop(device);

    fsck(&image.path(), &options(), AutoPolicy::Yes).unwrap();
    assert_eq!(names(&image.path()), OLD_FILES);
    e2fsck_fn(&image.path()).unwrap_or_else(|said| panic!("{said}"));
}

/// Number of files of [`with_old_inodes`].
const OLD_FILES: usize = 260;

/// A small volume whose log was written over since its files were made, but for their inodes.
fn with_old_inodes() -> Result<TempImage, String> {
    let args = ["-t", "ext3", "-b", "1024", "-N", "900", "-J", "size=1"];
    let image = TempImage::by_mke2fs(12 << 20, &args)?;
    let mount = LoopMount::new(&image.path(), "")?;
    let (root, big) = (mount.path().to_owned(), mount.path().join("big"));
    std::fs::create_dir(&big).unwrap();
    for number in 1..=OLD_FILES {
        std::fs::write(big.join(format!("name_{number}")), format!("file {number}\n")).unwrap();
    }
    let mounted = std::fs::File::open(&root).unwrap();
    rustix::fs::syncfs(&mounted).unwrap();
    for number in 1..=60 {
        std::fs::create_dir(root.join(format!("dir_{number}"))).unwrap();
        rustix::fs::syncfs(&mounted).unwrap();
    }
    drop(mounted);
    mount.unmount()?;
    Ok(image)
}

/// Counts what is read.
#[derive(Debug)]
struct Counting {
    inner: Arc<dyn Device>,
    reads: AtomicU64,
    bytes: AtomicU64,
}

impl Device for Counting {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        for request in batch.iter().filter(|it| matches!(it.kind, RequestKind::Read { .. })) {
            self.reads.fetch_add(1, Relaxed);
            self.bytes.fetch_add(request.length(), Relaxed);
        }
        self.inner.submit(batch)
    }

    fn next_data(&self, range: Range<u64>) -> Result<Option<Range<u64>>, DeviceError> {
        self.inner.next_data(range)
    }

    fn is_read_only(&self) -> bool {
        true
    }
}

/// The log is not read where nothing is damaged.
#[test]
fn a_clean_volume_is_read_as_without_the_log() {
    let image = or_skip!(filled(160 << 20, &["-t", "ext4", "-b", "4096"], true));
    let log = {
        let store = Store::open(common::open(&image.path(), false)).unwrap();
        let geometry = store.geometry();
        let (device, raw) = (store.device().clone(), store.raw_superblock());
        let place = JournalLocation::internal(&*device, &raw, geometry).unwrap();
        u64::from(place.runs.blocks_count()) * u64::from(geometry.block_size)
    };
    let cost = |journal_evidence| {
        let counting = Arc::new(Counting {
            inner: common::open(&image.path(), false),
            reads: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        });
        let device: Arc<dyn Device> = counting.clone();
        let open = pass0::CheckOpenOptions { journal_evidence, ..open_options() };
        let passes = extant_check::CheckOptions { threads: 1, ..options() };
        let run = extant_check::RunOptions { open, passes, force: true, ..Default::default() };
        let report = extant_check::run::run(&device, &run, &AutoPolicy::No, &Quiet).unwrap();
        assert_eq!(report.findings, []);
        (counting.reads.load(Relaxed), counting.bytes.load(Relaxed))
    };
    let (with, without) = (cost(true), cost(false));
    assert_eq!(with, without);
    assert!(with.1 < log, "{with:?}, a log of {log} bytes");
}

/// The option, and volumes whose journal's log cannot be found.
#[test]
fn without_a_log_nothing_is_taken_from_it() {
    let image = or_skip!(filled(160 << 20, &["-t", "ext4", "-b", "4096"], false));
    let blocks = Blocks::of(&image.path());
    let (_, damage) = damages().into_iter().next().expect("the first row");
    damage(&image.path(), &blocks);
    let recorder = Recorder::new(&AutoPolicy::No);
    let open = pass0::CheckOpenOptions { journal_evidence: false, ..open_options() };
    let device = common::open(&image.path(), false);
    let mut ready = pass0::open(device, &open, &recorder).unwrap();
    extant_check::repair(&mut ready.store, &options(), &recorder).unwrap();
    let is_copy = |code| matches!(code, Code::LogCopyCertain | Code::LogCopyPossiblyOlder);
    assert!(!recorder.findings().iter().any(|it| is_copy(it.finding.code)));

    let image = or_skip!(filled(96 << 20, &["-t", "ext4", "-O", "^has_journal"], false));
    let blocks = Blocks::of(&image.path());
    for (name, damage) in damages() {
        let ours = copied(&image.path()).unwrap();
        damage(&ours.path(), &blocks);
        let report = fsck(&ours.path(), &options(), AutoPolicy::Yes).unwrap();
        assert_eq!(restored(&report), (0, 0), "{name}");
        e2fsck_fn(&ours.path()).unwrap_or_else(|said| panic!("{name}: {said}"));
    }
}

/// The journal's inode, the descriptors, and the copies of both are gone: the log is found by its
/// magic number.
#[test]
fn a_log_without_a_map_is_searched_for() {
    let image = or_skip!(filled(160 << 20, &["-t", "ext4", "-b", "4096"], false));
    let original = snapshot(&image.path()).without("lost+found");
    let blocks = Blocks::of(&image.path());
    let (_, damage) = damages().pop().expect("the last row");
    damage(&image.path(), &blocks);
    // The copy of the map in the backups.
    let file = std::fs::OpenOptions::new().read(true).write(true).open(image.path()).unwrap();
    let geometry = &blocks.geometry;
    for group in geometry.backup_superblock_groups() {
        let at = geometry.byte_of(geometry.group_start(group));
        let mut bytes = [0; 1024];
        file.read_exact_at(&mut bytes, at).unwrap();
        let mut raw = extant_ondisk::superblock::RawSuperblock::from_bytes(&bytes, group).unwrap();
        raw.s_jnl_backup_type = 0;
        raw.s_jnl_blocks = Default::default();
        raw.seal();
        file.write_all_at(raw.as_bytes(), at).unwrap();
    }
    let report = fsck(&image.path(), &options(), AutoPolicy::Yes).unwrap();
    let found = snapshot(&image.path()).without("lost+found");
    let other = extant_testkit::differences(&original, &found);
    assert!(other.is_empty(), "{other:#?}\n{}", findings(&report));
    assert!(restored(&report).0 > 0, "{}", findings(&report));
    e2fsck_fn(&image.path()).unwrap_or_else(|said| panic!("{said}"));
}

/// The inodes that findings of old copies name, and those whose own record or map was repaired.
fn named_old(report: &PassReport) -> BTreeSet<u32> {
    let mut named = BTreeSet::new();
    for outcome in &report.findings {
        if (1..=2).contains(&outcome.finding.code.row().pass) {
            named.extend(outcome.finding.subject.inode.map(|inode| inode.0));
        }
        if !matches!(outcome.finding.code, Code::LogCopyPossiblyOlder | Code::OlderName) {
            continue;
        }
        named.extend(outcome.finding.subject.inode.map(|inode| inode.0));
        let detail = outcome.finding.subject.detail.clone().unwrap_or_default();
        let Some((_, list)) = detail.split_once("inodes ") else { continue };
        for part in list.split(", ").take_while(|part| !part.starts_with("committed")) {
            let (first, last) = part.split_once(" to ").unwrap_or((part, part));
            let (first, last): (u32, u32) = (first.parse().unwrap(), last.parse().unwrap());
            named.extend(first..=last);
        }
    }
    named
}

/// Directories of the volume whose history is known.
const DIRECTORIES: u64 = 12;

/// One short mount: in some of the directories files are made, rewritten, removed and renamed.
fn work(root: &Path, model: &mut BTreeMap<String, Vec<u8>>, random: &mut Random) {
    let dirs: Vec<u64> = (0..3).map(|_| random.below(DIRECTORIES)).collect();
    let mounted = std::fs::File::open(root).unwrap();
    let length = 10 + random.below(80);
    for step in 0..length {
        if step % 8 == 0 {
            rustix::fs::syncfs(&mounted).unwrap();
        }
        let dir = |random: &mut Random| format!("d{}/", dirs[random.below(3) as usize]);
        let near = dir(random);
        let known: Vec<_> = model.keys().filter(|it| it.starts_with(&near)).cloned().collect();
        let pick = |random: &mut Random| known[random.below(known.len() as u64) as usize].clone();
        let new = format!("{}{}", dir(random), random.number() % 100_000);
        match random.below(if known.is_empty() { 3 } else { 10 }) {
            0..=4 => {
                let len = 1 + random.below(12_000) as usize;
                let content = random.bytes(len);
                std::fs::write(root.join(&new), &content).unwrap();
                model.insert(new, content);
            }
            5 | 6 => {
                let (name, len) = (pick(random), 1 + random.below(12_000) as usize);
                let content = random.bytes(len);
                std::fs::write(root.join(&name), &content).unwrap();
                model.insert(name, content);
            }
            7 | 8 => {
                let name = pick(random);
                std::fs::remove_file(root.join(&name)).unwrap();
                model.remove(&name);
            }
            _ => {
                let name = pick(random);
                std::fs::rename(root.join(&name), root.join(&new)).unwrap();
                let content = model.remove(&name).expect("a known name");
                model.insert(new, content);
            }
        }
    }
}

/// After five short mounts, which go on in the log or begin it again, and any damage: a name has
/// its last content, or a finding of an old copy names its inode or a directory above it. A name
/// that was removed does not come back without such a finding.
#[test]
fn an_old_content_does_not_appear_under_a_newer_name_unsaid() {
    let args = ["-t", "ext4", "-b", "1024", "-g", "2048"];
    let slow = std::env::var_os("EXTANT_SLOW").is_some();
    let mut counts = (0, 0);
    for seed in 0..if slow { 40 } else { 2 } {
        let image = or_skip!(TempImage::by_mke2fs(24 << 20, &args));
        let (mut model, mut random) = (BTreeMap::new(), Random::new(seed));
        for round in 0..5 {
            let mount = or_skip!(LoopMount::new(&image.path(), ""));
            if round == 0 {
                (0..DIRECTORIES).for_each(|dir| {
                    std::fs::create_dir(mount.path().join(format!("d{dir}"))).unwrap();
                });
            }
            work(mount.path(), &mut model, &mut random);
            mount.unmount().unwrap();
            if seed % 2 == 1 {
                log::forget_head(&image.path());
            }
        }
        let blocks = Blocks::of(&image.path());
        for trial in 0..5 {
            let ours = copied(&image.path()).unwrap();
            let hit = |of: &[BlockNo], random: &mut Random, one_in: u64| -> Vec<BlockNo> {
                of.iter().copied().filter(|_| random.below(one_in) == 0).collect()
            };
            let all = [&blocks.tables[..], &blocks.directories].concat();
            let zeros = hit(&all, &mut random, [1, 2, 3, 6, 9][trial]);
            fill(&ours.path(), &zeros, &blocks.geometry, None);
            let garbage = hit(&blocks.directories, &mut random, 6);
            fill(&ours.path(), &garbage, &blocks.geometry, Some(&mut random));
            if trial == 1 {
                preening_takes_no_old_copy(&ours.path());
            }
            let report = fsck(&ours.path(), &options(), AutoPolicy::Yes).unwrap();
            e2fsck_fn(&ours.path()).unwrap_or_else(|said| panic!("{seed} {trial}: {said}"));
            let old = named_old(&report);
            let wrong = wrong_files(&ours.path(), &model, &old);
            let text = || format!("{seed} {trial}: {wrong:?}\n{}", findings(&report));
            assert!(wrong.is_empty(), "{}", text());
            let (certain, older) = restored(&report);
            counts = (counts.0 + certain, counts.1 + older);
        }
    }
    println!("certain, older: {counts:?}");
    assert!(counts.0 > 0 && counts.1 > 0, "{counts:?}");
}

fn preening_takes_no_old_copy(image: &Path) {
    let image = copied(image).unwrap();
    let recorder = Recorder::new(&AutoPolicy::Preen);
    let device = common::open(&image.path(), true);
    if let Ok(mut ready) = pass0::open(device, &open_options(), &recorder) {
        // It stops at damage that is left.
        let _ = extant_check::repair(&mut ready.store, &options(), &recorder);
    }
    let mut old = recorder.findings();
    old.retain(|it| {
        it.repaired && matches!(it.finding.code, Code::LogCopyPossiblyOlder | Code::OlderName)
    });
    assert_eq!(old, []);
}

/// Files outside of lost+found whose content is not their last one, and that are not among `old`.
fn wrong_files(
    image: &Path,
    model: &BTreeMap<String, Vec<u8>>,
    old: &BTreeSet<u32>,
) -> Vec<String> {
    use std::os::unix::fs::MetadataExt;
    let mount = LoopMount::new(image, "ro").expect("the repaired volume is mounted");
    let mut wrong = Vec::new();
    let is_old = |path: &Path| {
        let inode = std::fs::symlink_metadata(path).unwrap().ino();
        u32::try_from(inode).is_ok_and(|inode| old.contains(&inode))
    };
    for dir in 0..DIRECTORIES {
        let name = format!("d{dir}");
        let path = mount.path().join(&name);
        let Ok(list) = std::fs::read_dir(&path) else { continue };
        if is_old(mount.path()) || is_old(&path) {
            continue;
        }
        for entry in list {
            let entry = entry.unwrap();
            let known = model.get(&format!("{name}/{}", entry.file_name().to_str().unwrap()));
            let found = std::fs::read(entry.path()).unwrap_or_default(); // it may be a device now
            if known != Some(&found) && !is_old(&entry.path()) {
                wrong.push(format!("{name}/{:?} ({} bytes)", entry.file_name(), found.len()));
            }
        }
    }
    wrong
}

/// Random damage of the metadata and of the log itself.
#[test]
fn damaged_logs_are_read_without_harm() {
    let image = or_skip!(filled(24 << 20, &["-t", "ext4", "-b", "1024", "-N", "4096"], false));
    let blocks = Blocks::of(&image.path());
    let whole = std::fs::read(image.path()).unwrap();
    let store = Store::open(common::open(&image.path(), false)).unwrap();
    let place =
        JournalLocation::internal(&**store.device(), &store.raw_superblock(), &blocks.geometry)
            .unwrap();
    let log: Vec<u64> =
        place.runs.runs().iter().flat_map(|run| run.start.0..run.start.0 + 700).collect();
    let mut random = Random::new(11);
    let len = blocks.geometry.block_len() as u64;
    for trial in 0..if std::env::var_os("EXTANT_SLOW").is_some() { 400 } else { 12 } {
        let device = MemoryDevice::new(whole.len() as u64);
        device.write_at(0, &whole).unwrap();
        for part in [&blocks.tables, &blocks.directories, &blocks.maps, &blocks.descriptors] {
            let one_in = 1 + random.below(4);
            for block in part {
                if random.below(one_in) == 1 {
                    device.write_at(block.0 * len, &random.bytes(len as usize)).unwrap();
                }
            }
        }
        for _ in 0..random.below(60) {
            let at = log[random.below(log.len() as u64) as usize] * len;
            match random.below(3) {
                0 => device.write_at(at, &random.bytes(len as usize)).unwrap(),
                1 => {
                    let from = log[random.below(log.len() as u64) as usize] * len;
                    let mut bytes = vec![0; len as usize];
                    device.read_at(from, &mut bytes).unwrap();
                    device.write_at(at, &bytes).unwrap();
                }
                _ => {
                    let byte = at + random.below(64);
                    device.write_at(byte, &random.bytes(1)).unwrap();
                }
            }
        }
        if random.below(3) == 0 {
            let at = log[0] * len + random.below(100);
            device.write_at(at, &random.bytes(4)).unwrap();
        }
        let device: Arc<dyn Device> = Arc::new(device);
        for policy in [AutoPolicy::No, AutoPolicy::Preen, AutoPolicy::Yes] {
            let recorder = Recorder::new(&policy);
            let Ok(mut ready) = pass0::open(device.clone(), &open_options(), &recorder) else {
                continue;
            };
            let result = extant_check::repair(&mut ready.store, &options(), &recorder);
            if policy == AutoPolicy::Yes {
                let report = result.unwrap();
                ready.close(pass0::Closing::Clean, &recorder).unwrap();
                let left = findings(&report);
                assert!(!report.errors_left, "{trial}: {left}");
            }
        }
    }
}
