//! Repairs with the log as evidence, compared with the true history of a volume: a model keeps
//! every content that was ever written under a name. After any damage a file has its last content,
//! or the report says that it may be older.
//!
//! `EXTANT_TRIALS=N` and `EXTANT_SEED=S` choose other trials.

use extant::rooms::check::run::{RunOptions, run};
use extant::rooms::check::{
    AutoPolicy, CheckOptions, Code, HandledFinding, Observer, pass0::CheckOpenOptions,
};
use extant::rooms::engine::{Volume, VolumeOptions};
use extant::rooms::offline::OfflineVolume;
use extant::rooms::ondisk::group_desc::GroupFlags;
use extant::rooms::ondisk::inode::Inode;
use extant::rooms::ondisk::{BlockNo, GroupNo};
use extant::{Device, Env, FileSystem, Formatter, InodeNo, MemoryDevice};
use extant_testkit::tree::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
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
}

impl Model {
    fn set(&mut self, path: &str, content: Vec<u8>) {
        if !content.is_empty() {
            self.ever.insert(content.clone());
        }
        self.current.insert(path.to_owned(), content);
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

impl History {
    /// A volume that is worked on in several short mounts, with crashes and checks between them.
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let device = Arc::new(MemoryDevice::new(SIZE));
        let journal = [1, 1, 2, 4][random.below(4) as usize];
        let mut formatter = Formatter::new().block_size(1024).journal_mebibytes(journal);
        let has_checksums = random.below(4) > 0;
        if !has_checksums {
            formatter = formatter.feature("^metadata_csum");
        }
        formatter.format(&*device).expect("it is made");
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
        // Long ones let a small log wrap.
        let steps = [5, 40, 40, 300][self.random.below(4) as usize];
        for step in 0..steps {
            self.step(&fs);
            if step % 6 == 5 {
                fs.sync().unwrap();
                self.env.advance(Duration::from_millis(self.random.below(3000)));
            }
        }
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

    fn content(&mut self) -> Vec<u8> {
        let len = 1 + self.random.below(6000) as usize;
        self.random.bytes(len)
    }

    fn step(&mut self, fs: &FileSystem) {
        let new = format!("/d{}/{}", self.random.below(DIRECTORIES), self.random.below(60));
        let names: Vec<String> = self.model.current.keys().cloned().collect();
        let known = names.get(self.random.below(names.len().max(1) as u64) as usize).cloned();
        match (self.random.below(10), known) {
            (0..=4, _) | (_, None) => {
                let content = self.content();
                fs.write(&new, &content).unwrap();
                self.model.set(&new, content);
            }
            (5, Some(known)) => {
                let content = self.content();
                fs.write(&known, &content).unwrap();
                self.model.set(&known, content);
            }
            (6 | 7, Some(known)) => {
                fs.rename(&known, &new).unwrap();
                let content = self.model.current.remove(&known).expect("a known name");
                self.model.set(&new, content);
            }
            (_, Some(known)) => {
                fs.remove_file(&known).unwrap();
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

/// The inodes that findings of old copies and of damaged inodes and directories name, and how many
/// copies were restored: certain, older.
fn named_old(found: &[HandledFinding]) -> (BTreeSet<u32>, u64, u64) {
    let (mut named, mut certain, mut older) = (BTreeSet::new(), 0, 0);
    for outcome in found.iter().filter(|it| it.repaired) {
        let subject = &outcome.finding.subject;
        match outcome.finding.code {
            Code::LogCopyCertain => certain += 1,
            Code::LogCopyPossiblyOlder => {
                older += 1;
                named.extend(subject.inode.map(|inode| inode.0));
                let detail = subject.detail.clone().unwrap_or_default();
                let Some((_, list)) = detail.split_once("inodes ") else { continue };
                for part in list.split(", ").take_while(|part| !part.starts_with("committed")) {
                    let (first, last) = part.split_once(" to ").unwrap_or((part, part));
                    named.extend(first.parse::<u32>().unwrap()..=last.parse::<u32>().unwrap());
                }
            }
            // Directories whose blocks are those of another.
            Code::DotWrong | Code::DotTooBig | Code::MissingDot => {
                named.extend(subject.dir.map(|inode| inode.0));
            }
            code if (1..=2).contains(&code.row().pass) => {
                named.extend(subject.inode.map(|inode| inode.0));
            }
            _ => {}
        }
    }
    (named, certain, older)
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
    unreadable: u64,
}

/// Names with an older content, or that were removed, of which no finding says so.
fn wrong(
    device: &Arc<MemoryDevice>,
    model: &Model,
    old: &BTreeSet<u32>,
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
        above.any(|inode| inode.is_ok_and(|inode| old.contains(&inode)))
    };
    let Ok(root) = fs.read_dir("/") else { return wrong };
    for dir in root.flatten().filter(|it| it.as_bytes() != b"lost+found") {
        let Ok(list) = fs.read_dir(dir.path()) else { continue };
        for entry in list.flatten() {
            let path = entry.path();
            let name = path.to_str().unwrap_or_default().to_owned();
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
            if is_old(&path) {
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

#[test]
fn an_older_content_is_named_whatever_the_history() {
    let (trials, first) = (number("EXTANT_TRIALS", 60), number("EXTANT_SEED", 1));
    let (mut counts, mut failed) = (Counts::default(), Vec::new());
    for seed in first.. {
        if counts.trials >= trials {
            break;
        }
        let mut history = History::new(seed);
        let mut blocks = Blocks::of(&history.device);
        if history.is_dirty {
            blocks.log.clear();
        }
        for trial in 0..DAMAGES.min(trials - counts.trials) {
            let device = Arc::new(history.device.fork());
            damage(&device, &blocks, history.has_checksums, &mut history.random);
            history.env.advance(Duration::from_secs(3));
            let damaged = Arc::new(device.fork());
            let found = history.check(&device);
            let (old, certain, older) = named_old(&found);
            counts.trials += 1;
            counts.certain_copies += certain;
            counts.older_copies += older;
            let mut wrong = wrong(&device, &history.model, &old, &mut counts);
            if !wrong.is_empty() {
                // The damage itself leaves such files: the log was cut, or blocks without checksums
                // were swapped.
                history.check_with(&damaged, false);
                let without = BTreeSet::from_iter(self::wrong(
                    &damaged,
                    &history.model,
                    &BTreeSet::new(),
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
    assert!(counts.certain_copies > 0 && counts.older_copies > 0, "{counts:?}");
}
