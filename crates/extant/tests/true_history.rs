//! Repairs with the log as evidence, compared with the true history of a volume: a model keeps
//! every content that was ever written under a name. After any damage a file has its last content,
//! or the report says that it may be older.
//!
//! `EXTANT_TRIALS=N` and `EXTANT_SEED=S` choose other trials.
//!
//! The volumes are filled by this engine in memory, and by the kernel through loop mounts.

use extant::rooms::check::run::{RunOptions, run};
use extant::rooms::check::{
    AutoPolicy, CheckOptions, Code, HandledFinding, Observer, pass0::CheckOpenOptions,
};
use extant::rooms::engine::{Volume, VolumeOptions};
use extant::rooms::journal::{JournalLocation, Log, LogHistory};
use extant::rooms::offline::OfflineVolume;
use extant::rooms::ondisk::group_desc::GroupFlags;
use extant::rooms::ondisk::inode::Inode;
use extant::rooms::ondisk::superblock::Superblock;
use extant::rooms::ondisk::{BlockNo, GroupNo};
use extant::{Device, Env, FileDeviceOptions, FileSystem, Formatter, InodeNo, MemoryDevice};
use extant_testkit::tree::Random;
use extant_testkit::{LoopMount, TempImage, copied, is_root, skip, tool};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

const SIZE: u64 = 12 << 20;
const DIRECTORIES: u64 = 10;
/// Damages of each history.
const DAMAGES: u64 = 12;

/// The files of a volume by their paths, and the contents that any of them ever had.
#[derive(Clone, Default)]
struct Model {
    current: BTreeMap<String, Vec<u8>>,
    ever: BTreeSet<Vec<u8>>,
    /// All names that any file ever had, with the contents that were ever there.
    names: BTreeMap<String, BTreeSet<Vec<u8>>>,
}

impl Model {
    fn set(&mut self, path: &str, content: Vec<u8>) {
        if !content.is_empty() {
            self.ever.insert(content.clone());
        }
        self.names.entry(path.to_owned()).or_default().insert(content.clone());
        self.current.insert(path.to_owned(), content);
    }
}

/// A mounted volume.
trait Mounted {
    fn write(&self, path: &str, content: &[u8]);
    fn rename(&self, from: &str, to: &str);
    fn remove(&self, path: &str);
    fn sync(&self);
}

impl Mounted for FileSystem {
    fn write(&self, path: &str, content: &[u8]) {
        FileSystem::write(self, path, content).unwrap();
    }

    fn rename(&self, from: &str, to: &str) {
        FileSystem::rename(self, from, to).unwrap();
    }

    fn remove(&self, path: &str) {
        self.remove_file(path).unwrap();
    }

    fn sync(&self) {
        FileSystem::sync(self).unwrap();
    }
}

/// By the kernel.
struct ByKernel {
    root: PathBuf,
    /// Each file is synced when it is written: with fast commits, by one of these.
    is_synced: bool,
}

impl ByKernel {
    fn path(&self, path: &str) -> PathBuf {
        self.root.join(&path[1..])
    }
}

impl Mounted for ByKernel {
    fn write(&self, path: &str, content: &[u8]) {
        fs::write(self.path(path), content).unwrap();
        if self.is_synced {
            fs::File::open(self.path(path)).unwrap().sync_all().unwrap();
        }
    }

    fn rename(&self, from: &str, to: &str) {
        fs::rename(self.path(from), self.path(to)).unwrap();
    }

    fn remove(&self, path: &str) {
        fs::remove_file(self.path(path)).unwrap();
    }

    /// All of this volume, and no other.
    fn sync(&self) {
        let done = Command::new("sync").arg("-f").arg(&self.root).status().unwrap();
        assert!(done.success(), "{done}");
    }
}

struct History {
    device: Arc<MemoryDevice>,
    env: Env,
    random: Random,
    model: Model,
    has_checksums: bool,
    /// The last mount ended in a crash: a damage to the log can undo commits.
    is_dirty: bool,
}

/// A volume without files, and whether it has checksums.
fn formatted(device: &dyn Device, random: &mut Random, features: &[&str]) -> bool {
    let journal = [1, 1, 2, 4][random.below(4) as usize];
    let mut formatter = Formatter::new().block_size(1024).journal_mebibytes(journal);
    let has_checksums = random.below(4) > 0;
    if !has_checksums {
        formatter = formatter.feature("^metadata_csum");
    }
    for feature in features {
        formatter = formatter.feature(feature);
    }
    formatter.format(device).expect("it is made");
    has_checksums
}

impl History {
    /// A volume that is worked on in several short mounts, with crashes and checks between them.
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let device = Arc::new(MemoryDevice::new(SIZE));
        let has_checksums = formatted(&*device, &mut random, &[]);
        let start = Env::threads().now();
        let env = Env::stepped_at(seed, start);
        env.advance(Duration::from_secs(100));
        let mut history =
            Self { device, env, random, model: Model::default(), has_checksums, is_dirty: false };
        let mounts = 1 + history.random.below(5);
        for mount in 0..mounts {
            history.mount(mount == 0);
            history.env.advance(Duration::from_secs(2 + history.random.below(30)));
            if history.random.below(5) == 0 {
                let findings = history.check(&history.device.clone());
                assert!(
                    findings.iter().all(|it| it.finding.code == Code::JournalRecovered
                        || it.finding.code.row().severity <= extant::Severity::Safe),
                    "{seed}: {findings:?}"
                );
                history.env.advance(Duration::from_secs(2));
                history.is_dirty = false;
            }
        }
        history
    }

    /// A volume that the kernel works on in one mount or in several short ones, with crashes
    /// between them. One with fast commits crashes at the end alone: the kernel replays none.
    fn by_kernel(seed: u64) -> Result<Self, String> {
        let mut random = Random::new(seed);
        let has_fast_commits = random.below(3) == 0;
        let features: &[&str] = if has_fast_commits { &["fast_commit"] } else { &[] };
        let mut image = TempImage::of_size(SIZE).map_err(|error| error.to_string())?;
        let made = FileDeviceOptions::new().write(true).open(image.path());
        let has_checksums = formatted(&made.expect("it opens"), &mut random, features);
        let env = Env::stepped_at(seed, Env::threads().now());
        let device = Arc::new(MemoryDevice::new(SIZE));
        let model = Model::default();
        let mut history = Self { device, env, random, model, has_checksums, is_dirty: false };
        let mounts = 1 + history.random.below(5);
        for mount in 0..mounts {
            let mounted = LoopMount::new(&image.path(), "")?;
            let is_synced = has_fast_commits && history.random.below(2) == 0;
            let fs = ByKernel { root: mounted.path().to_owned(), is_synced };
            if mount == 0 {
                for dir in 0..DIRECTORIES {
                    fs::create_dir(fs.path(&format!("/d{dir}"))).unwrap();
                }
            }
            history.work(&fs);
            let is_last = mount + 1 == mounts;
            history.is_dirty = history.random.below(3) == 0 && (is_last || !has_fast_commits);
            if !history.is_dirty {
                mounted.unmount()?;
                continue;
            }
            fs.sync();
            if has_fast_commits {
                for _ in 0..history.random.below(4) {
                    let (path, content) = (history.new_path(), history.content());
                    fs::write(fs.path(&path), &content).unwrap();
                    fs::File::open(fs.path(&path)).unwrap().sync_all().unwrap();
                    history.model.set(&path, content);
                }
            }
            let crashed = copied(&image.path())?;
            mounted.unmount()?;
            image = crashed;
        }
        let bytes = fs::read(image.path()).map_err(|error| error.to_string())?;
        history.device.write_at(0, &bytes).unwrap();
        let now = Env::threads().now();
        history.env = Env::stepped_at(seed, now);
        history.env.advance(Duration::from_secs(3));
        Ok(history)
    }

    fn open(&self) -> FileSystem {
        let device: Arc<dyn Device> = self.device.clone();
        let volume = Volume::open(device, &self.env, &VolumeOptions::default());
        FileSystem::of_volume(volume.expect("a sound volume"))
    }

    /// One mount, which ends well or in a crash.
    fn mount(&mut self, is_first: bool) {
        let fs = self.open();
        if is_first {
            for dir in 0..DIRECTORIES {
                fs.create_dir(format!("/d{dir}")).unwrap();
            }
        }
        self.work(&fs);
        self.is_dirty = self.random.below(3) == 0;
        if !self.is_dirty {
            fs.close().unwrap();
            return;
        }
        fs.sync().unwrap();
        let crashed = Arc::new(self.device.fork());
        fs.close().unwrap();
        self.device = crashed;
    }

    /// The steps of one mount.
    fn work(&mut self, fs: &dyn Mounted) {
        // Long ones let a small log wrap.
        let steps = [5, 40, 40, 300][self.random.below(4) as usize];
        for step in 0..steps {
            self.step(fs);
            if step % 6 == 5 {
                fs.sync();
                self.env.advance(Duration::from_millis(self.random.below(3000)));
            }
        }
    }

    fn new_path(&mut self) -> String {
        format!("/d{}/{}", self.random.below(DIRECTORIES), self.random.below(60))
    }

    fn content(&mut self) -> Vec<u8> {
        let len = 1 + self.random.below(6000) as usize;
        self.random.bytes(len)
    }

    fn step(&mut self, fs: &dyn Mounted) {
        let new = self.new_path();
        let names: Vec<String> = self.model.current.keys().cloned().collect();
        let known = names.get(self.random.below(names.len().max(1) as u64) as usize).cloned();
        match (self.random.below(10), known) {
            (0..=4, _) | (_, None) => {
                let content = self.content();
                fs.write(&new, &content);
                self.model.set(&new, content);
            }
            (5, Some(known)) => {
                let content = self.content();
                fs.write(&known, &content);
                self.model.set(&known, content);
            }
            (6 | 7, Some(known)) => {
                fs.rename(&known, &new);
                let content = self.model.current.remove(&known).expect("a known name");
                self.model.set(&new, content);
            }
            (_, Some(known)) => {
                fs.remove(&known);
                self.model.current.remove(&known);
            }
        }
    }

    /// All of fsck on a device, on the clock of the history.
    fn check(&self, device: &Arc<MemoryDevice>) -> Vec<HandledFinding> {
        self.check_with(device, true)
    }

    fn check_with(&self, device: &Arc<MemoryDevice>, has_evidence: bool) -> Vec<HandledFinding> {
        struct Quiet;
        impl Observer for Quiet {}
        let env = &self.env;
        let options = RunOptions {
            open: CheckOpenOptions {
                env: env.clone(),
                journal_evidence: has_evidence,
                ..CheckOpenOptions::default()
            },
            passes: CheckOptions { env: env.clone(), threads: 1, ..CheckOptions::default() },
            force: true,
            ..RunOptions::default()
        };
        let device: Arc<dyn Device> = device.clone();
        match run(&device, &options, &AutoPolicy::Yes, &Quiet) {
            Ok(report) => report.findings,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Blocks by what they hold.
#[derive(Default)]
struct Blocks {
    tables: Vec<u64>,
    directories: Vec<u64>,
    nodes: Vec<u64>,
    bitmaps: Vec<u64>,
    descriptors: Vec<u64>,
    log: Vec<u64>,
}

impl Blocks {
    fn of(device: &Arc<MemoryDevice>) -> Self {
        let shared: Arc<dyn Device> = device.clone();
        let volume = OfflineVolume::open(shared).expect("a sound volume");
        let geometry = volume.geometry().clone();
        let mut found = Self::default();
        let descriptors = (0..geometry.desc_blocks()).map(|it| geometry.desc_block(it).0);
        found.descriptors.extend(descriptors);
        for group in (0..geometry.groups_count).map(GroupNo) {
            let desc = volume.desc(group);
            if !desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
                found.bitmaps.extend([desc.block_bitmap.0, desc.inode_bitmap.0]);
            }
        }
        let mut tables = BTreeSet::new();
        for number in (1..=geometry.inodes_count).map(InodeNo) {
            let Ok(record) = volume.read_inode(number) else { continue };
            let Ok(inode) = Inode::decode(&record, number, &geometry) else { continue };
            if inode.links == 0 {
                continue;
            }
            tables.insert(volume.inode_offset(number).unwrap() >> geometry.block_bits());
            let Ok(map) = volume.read_map(number, &inode) else { continue };
            if number == InodeNo::JOURNAL {
                found.log.extend(map.blocks().map(|(_, block)| block.0));
            } else if inode.is_dir() {
                found.directories.extend(map.blocks().map(|(_, block)| block.0));
            }
            found.nodes.extend(map.nodes.iter().map(|block: &BlockNo| block.0));
        }
        found.tables.extend(tables);
        found
    }
}

/// Damages each part of the metadata with a chance of its own.
///
/// Without checksums, blocks that are swapped or wrong in a few bytes can be what they say.
fn damage(device: &MemoryDevice, blocks: &Blocks, has_checksums: bool, random: &mut Random) {
    let parts = [
        (&blocks.tables, [1, 2, 4, 9]),
        (&blocks.directories, [1, 2, 4, 9]),
        (&blocks.nodes, [2, 4, 9, 20]),
        (&blocks.bitmaps, [3, 9, 20, 40]),
        (&blocks.descriptors, [2, 5, 9, 20]),
        (&blocks.log, [9, 40, 200, 1000]),
    ];
    for (part, chances) in parts {
        if random.below(3) == 0 {
            continue;
        }
        let one_in = chances[random.below(4) as usize];
        let kind = random.below(if has_checksums { 5 } else { 3 });
        for block in part {
            if random.below(one_in) == 0 {
                damage_block(device, *block, (kind, part.as_slice()), random);
            }
        }
    }
    if random.below(6) == 0 {
        device.write_at(1024, &[0; 1024]).unwrap();
    }
}

fn damage_block(
    device: &MemoryDevice,
    block: u64,
    (kind, part): (u64, &[u64]),
    random: &mut Random,
) {
    let at = block * 1024;
    match kind {
        0 | 1 => device.write_at(at, &[0; 1024]).unwrap(),
        2 => device.write_at(at, &random.bytes(1024)).unwrap(),
        3 => {
            let (from, len) = (random.below(1000), 1 + random.below(24) as usize);
            device.write_at(at + from, &random.bytes(len)).unwrap();
        }
        _ => {
            let other = part[random.below(part.len() as u64) as usize] * 1024;
            let (mut one, mut two) = (vec![0; 1024], vec![0; 1024]);
            device.read_at(at, &mut one).unwrap();
            device.read_at(other, &mut two).unwrap();
            device.write_at(at, &two).unwrap();
            device.write_at(other, &one).unwrap();
        }
    }
}

/// The statements of findings about a repaired volume.
#[derive(Debug, Default)]
struct Said {
    /// The inodes that findings of old copies and of damaged inodes and directories name.
    old: BTreeSet<u32>,
    /// Names from old copies of a directory's blocks: the directory and the name.
    names: BTreeSet<(u32, Vec<u8>)>,
    certain_copies: u64,
    older_copies: u64,
}

fn said(found: &[HandledFinding]) -> Said {
    let Said { mut old, mut names, mut certain_copies, mut older_copies } = Said::default();
    for outcome in found.iter().filter(|it| it.repaired) {
        let subject = &outcome.finding.subject;
        match outcome.finding.code {
            Code::LogCopyCertain => certain_copies += 1,
            Code::LogCopyPossiblyOlder => {
                older_copies += 1;
                old.extend(subject.inode.map(|inode| inode.0));
                let detail = subject.detail.clone().unwrap_or_default();
                let Some((_, list)) = detail.split_once("inodes ") else { continue };
                for part in list.split(", ").take_while(|part| !part.starts_with("committed")) {
                    let (first, last) = part.split_once(" to ").unwrap_or((part, part));
                    old.extend(first.parse::<u32>().unwrap()..=last.parse::<u32>().unwrap());
                }
            }
            // A name more than links: by changed bytes it may be that of another file.
            Code::LinkCountWrong if subject.expected > subject.found => {
                old.extend(subject.inode.map(|inode| inode.0));
            }
            Code::OlderName => {
                let dir = subject.dir.expect("the finding has the directory").0;
                names.insert((dir, subject.name.clone().expect("and the name")));
            }
            // Directories whose blocks are those of another, or have changed bytes: a name may lead
            // to another file.
            Code::DotWrong | Code::DotTooBig | Code::MissingDot | Code::DirBlockChecksum => {
                old.extend(subject.dir.map(|inode| inode.0));
            }
            code if (1..=2).contains(&code.row().pass) => {
                old.extend(subject.inode.map(|inode| inode.0));
            }
            _ => {}
        }
    }
    Said { old, names, certain_copies, older_copies }
}

/// Results of the trials.
#[derive(Debug, Default)]
struct Counts {
    trials: u64,
    /// Files with their last contents, of all.
    kept: u64,
    files: u64,
    /// Files with older contents or names that findings name.
    named_older: u64,
    /// Such files that a repair without the log leaves too.
    by_damage: u64,
    certain_copies: u64,
    older_copies: u64,
    older_names: u64,
    unreadable: u64,
}

impl Counts {
    fn add(&mut self, said: &Said) {
        self.trials += 1;
        self.certain_copies += said.certain_copies;
        self.older_copies += said.older_copies;
        self.older_names += said.names.len() as u64;
    }
}

/// Names with an older content, or that were removed, of which no finding says so; and names from
/// old copies with a content that they never had.
fn wrong(
    device: &Arc<MemoryDevice>,
    model: &Model,
    said: &Said,
    counts: &mut Counts,
) -> Vec<String> {
    let Ok(fs) = FileSystem::on_device_read_only(device.clone()) else {
        counts.unreadable += 1;
        return Vec::new();
    };
    counts.files += model.current.len() as u64;
    let mut wrong = Vec::new();
    let is_old = |path: &Path| {
        let mut above = path.ancestors().map(|it| fs.metadata(it).map(|it| it.inode().0));
        above.any(|inode| inode.is_ok_and(|inode| said.old.contains(&inode)))
    };
    let Ok(root) = fs.read_dir("/") else { return wrong };
    for dir in root.flatten().filter(|it| it.as_bytes() != b"lost+found") {
        let Ok(list) = fs.read_dir(dir.path()) else { continue };
        let number = fs.metadata(dir.path()).map_or(0, |it| it.inode().0);
        for entry in list.flatten() {
            let path = entry.path();
            // Others are bytes of a damaged block.
            let name = path.to_str().filter(|name| model.names.contains_key(*name));
            let Some(name) = name.map(str::to_owned) else { continue };
            let current = model.current.get(&name);
            // A damaged size makes a hole of any length.
            let is_small = entry.metadata().is_ok_and(|it| it.len() < 1 << 20);
            let Some(content) = is_small.then(|| fs.read(&path).ok()).flatten() else { continue };
            if current == Some(&content) {
                counts.kept += 1;
                continue;
            }
            if !model.ever.contains(&content) {
                continue; // cut by the damage
            }
            if said.names.contains(&(number, entry.as_bytes().to_vec())) {
                match model.names[&name].contains(&content) {
                    true => counts.named_older += 1,
                    false => wrong.push(format!("{name} (never had that content)")),
                }
            } else if is_old(&path) {
                counts.named_older += 1;
            } else {
                let was = if current.is_some() { "an older content" } else { "removed" };
                let now = model.current.iter().find(|(_, now)| **now == content);
                let now = now.map_or("", |(name, _)| name);
                wrong.push(format!("{name} ({was} {now} inode {})", entry.inode()));
            }
        }
    }
    wrong
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The blocks of metadata whose content the log holds, on a volume that needs no replay: those
/// whose copies are proven to be the last ones, and the others.
fn held_by_the_log(device: &Arc<MemoryDevice>, blocks: &Blocks) -> [Vec<u64>; 2] {
    let shared: Arc<dyn Device> = device.clone();
    let volume = OfflineVolume::open(shared).expect("a sound volume");
    let place = JournalLocation::internal(&**device, &volume.raw, volume.geometry());
    let place = place.expect("a journal");
    let log = Log { device: &**device, place: &place };
    let (_, superblock) = log.superblock().expect("a sound journal");
    let history = LogHistory::read(&log, &superblock).expect("the log is read");
    let checked = Superblock::decode(&volume.raw);
    let mut newest = BTreeMap::new();
    for transaction in &history.transactions {
        let seconds = u64::try_from(transaction.committed.seconds).unwrap_or(0);
        let is_proven = history.complete_from.is_some_and(|from| !transaction.tid.is_before(from))
            && (checked.last_check == checked.mkfs_time || seconds > checked.last_check);
        newest.extend(transaction.copies.iter().map(|copy| (copy.home.0, (*copy, is_proven))));
        newest.retain(|home, _| !transaction.revoked.contains(&BlockNo(*home)));
    }
    let mut held = [Vec::new(), Vec::new()];
    for block in [&blocks.tables, &blocks.directories, &blocks.nodes].into_iter().flatten() {
        let Some((copy, is_proven)) = newest.get(block) else { continue };
        let mut bytes = vec![0; 1024];
        device.read_at(*block * 1024, &mut bytes).unwrap();
        if copy.read(&log).unwrap() == bytes {
            held[usize::from(!is_proven)].push(*block);
        }
    }
    held
}

/// The files that e2fsck leaves as they were.
fn kept_by_e2fsck(damaged: &MemoryDevice, model: &Model) -> u64 {
    let image = TempImage::of_size(SIZE).unwrap();
    fs::write(image.path(), damaged.to_vec()).unwrap();
    for _ in 0..2 {
        let mut command = Command::new("timeout");
        command.args(["-k", "5", "60"]).arg(tool("e2fsck").unwrap().path());
        command.arg("-fy").arg(image.path()).output().unwrap();
    }
    let bytes = fs::read(image.path()).unwrap();
    let (device, mut counts) = (Arc::new(MemoryDevice::from_bytes(&bytes)), Counts::default());
    wrong(&device, model, &Said::default(), &mut counts);
    counts.kept
}

/// Damages blocks of which the log holds the content, on volumes of both kinds. Nearly all is kept,
/// also where the log does not prove that the copies are the last ones; never less than e2fsck
/// keeps.
#[test]
fn what_the_log_holds_is_kept() {
    if !is_root() || tool("e2fsck").is_none() {
        skip!("needs root and e2fsck");
    }
    let (trials, first) = (number("EXTANT_TRIALS", 200) / 10, number("EXTANT_SEED", 1));
    let mut sums = [Counts::default(), Counts::default()];
    let mut by_e2fsck = [0, 0];
    for seed in first.. {
        if sums[0].trials >= trials {
            break;
        }
        let history = if seed % 2 == 0 { Ok(History::new(seed)) } else { History::by_kernel(seed) };
        let mut history = match history {
            Ok(history) => history,
            Err(why) => skip!("no loop mount here: {why}"),
        };
        if history.is_dirty {
            history.check(&history.device.clone());
        }
        let [proven, other] = held_by_the_log(&history.device, &Blocks::of(&history.device));
        let all = [&proven[..], &other].concat();
        for (of, blocks) in [proven, all].iter().enumerate() {
            if blocks.is_empty() {
                continue;
            }
            let damaged = history.device.fork();
            let one_in = [1, 2, 5, 20][history.random.below(4) as usize];
            let kind = history.random.below(3);
            for block in blocks {
                if history.random.below(one_in) == 0 {
                    damage_block(&damaged, *block, (kind, blocks), &mut history.random);
                }
            }
            history.env.advance(Duration::from_secs(3));
            let ours = Arc::new(damaged.fork());
            let found = history.check(&ours);
            let said = said(&found);
            let before = (sums[of].kept, sums[of].files);
            let wrong = wrong(&ours, &history.model, &said, &mut sums[of]);
            let codes: BTreeSet<String> =
                found.iter().map(|it| format!("{:?}", it.finding.code)).collect();
            assert!(wrong.is_empty(), "seed {seed}, {of}: {wrong:?} {codes:?}");
            let (kept, floor) =
                (sums[of].kept - before.0, kept_by_e2fsck(&damaged, &history.model));
            assert!(kept >= floor, "seed {seed}, {of}: {kept} of {floor}, {codes:?}");
            if std::env::var_os("EXTANT_VERBOSE").is_some() {
                let files = sums[of].files - before.1;
                println!("seed {seed}, {of}: {kept} of {files}, e2fsck {floor}, {codes:?}");
            }
            sums[of].add(&said);
            by_e2fsck[of] += floor;
        }
    }
    for (name, (sums, floor)) in ["proven", "all"].iter().zip(sums.iter().zip(by_e2fsck)) {
        println!("{name}: {sums:?}, e2fsck keeps {floor}");
    }
    for sums in sums {
        assert!(sums.kept * 100 >= sums.files * 95, "{sums:?}");
    }
}

/// Trials on volumes of a kind, by their seeds from the first on.
fn run_trials(
    trials: u64,
    first: u64,
    new: impl Fn(u64) -> Result<History, String>,
) -> Result<Counts, String> {
    let (mut counts, mut failed) = (Counts::default(), Vec::new());
    for seed in first.. {
        if counts.trials >= trials {
            break;
        }
        let mut history = new(seed)?;
        let mut blocks = Blocks::of(&history.device);
        // A log that waits for its replay is damaged in one history of two.
        if history.is_dirty && history.random.below(2) == 0 {
            blocks.log.clear();
        }
        for trial in 0..DAMAGES.min(trials - counts.trials) {
            let device = Arc::new(history.device.fork());
            damage(&device, &blocks, history.has_checksums, &mut history.random);
            history.env.advance(Duration::from_secs(3));
            let damaged = Arc::new(device.fork());
            let found = history.check(&device);
            let said = said(&found);
            counts.add(&said);
            let mut wrong = wrong(&device, &history.model, &said, &mut counts);
            if !wrong.is_empty() && (history.is_dirty || !history.has_checksums) {
                // The damage itself leaves such files: the log was cut, or blocks without checksums
                // were swapped.
                history.check_with(&damaged, false);
                let without = BTreeSet::from_iter(self::wrong(
                    &damaged,
                    &history.model,
                    &Said::default(),
                    &mut Counts::default(),
                ));
                let all = wrong.len();
                wrong.retain(|name| !without.contains(name));
                counts.by_damage += (all - wrong.len()) as u64;
            }
            if !wrong.is_empty() {
                let codes: BTreeSet<String> =
                    found.iter().map(|it| format!("{:?}", it.finding.code)).collect();
                if std::env::var_os("EXTANT_VERBOSE").is_some() {
                    found.iter().for_each(|it| {
                        println!("{} {:?} {}", it.repaired, it.finding.code, it.finding)
                    });
                }
                failed.push(format!("seed {seed}, trial {trial}: {wrong:?} {codes:?}"));
            }
        }
    }
    println!("{counts:?}");
    assert!(failed.is_empty(), "{} of {}: {failed:#?}", failed.len(), counts.trials);
    Ok(counts)
}

#[test]
fn an_older_content_is_named_whatever_the_history() {
    let (trials, first) = (number("EXTANT_TRIALS", 60), number("EXTANT_SEED", 1));
    let counts = run_trials(trials, first, |seed| Ok(History::new(seed))).expect("in memory");
    assert!(counts.certain_copies > 0 && counts.older_copies > 0, "{counts:?}");
}

#[test]
fn an_older_content_is_named_on_volumes_that_the_kernel_filled() {
    if !is_root() {
        skip!("a loop mount needs root");
    }
    let (trials, first) = (number("EXTANT_TRIALS", 48), number("EXTANT_SEED", 1));
    match run_trials(trials, first, History::by_kernel) {
        Ok(counts) => assert!(counts.certain_copies > 0 && counts.kept > 0, "{counts:?}"),
        Err(why) => skip!("no loop mount here: {why}"),
    }
}
