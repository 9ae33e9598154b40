//! Damaged volumes read as their repair would leave them, with what they lack.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;
use std::sync::Arc;

use extant_check::pass0::SuperblockChoice;
use extant_check::run::{RunOptions, find_journal, run};
use extant_check::{AutoPolicy, Code, Finding, HandledFinding, Observer, Severity};
use extant_device::{Device, FileDeviceOptions, LossyDevice, OverlayDevice};
use extant_journal::NotOpened;
use extant_offline::{read_primary_superblock, read_superblock};
use extant_ondisk::inode::FileType;
use extant_ondisk::superblock::RawSuperblock;
use extant_ondisk::{BlockNo, FileBlock, Geometry, GroupNo, IncompatFeatures, InodeNo};
use extant_reader::read::inode::place;
use extant_reader::read::mapping::{Mapping, MappingTarget, extents};
use extant_reader::{BrokenIndex, Journal, LoadedInode, Reader, ReaderOptions, VolumeRead};
use rangemap::RangeSet;

use super::RescueError;
use super::damage::{self, Codes, Damage};
use super::unread_map::UnreadMap;
use crate::checker::random_uuid;
use crate::fs::FileSystem;

/// Opens a damaged volume: the checker's repairs are made in memory, on the device nothing is
/// written. Sectors that cannot be read are zeros.
///
/// ```
/// use extant::rescue::Salvager;
/// use extant::{Device, FileSystem, Formatter, MemoryDevice};
/// use std::sync::Arc;
///
/// let device = Arc::new(MemoryDevice::new(64 << 20));
/// Formatter::new().block_size(1024).format(&*device)?;
/// let fs = FileSystem::on_device(device.clone())?;
/// fs.write("/notes", "kept\n")?;
/// fs.close()?;
/// // The superblock and the first descriptors are lost.
/// device.write_at(0, &[0; 4096])?;
/// assert!(FileSystem::on_device_read_only(device.clone()).is_err());
///
/// let salvage = Salvager::new().open(device)?;
/// assert_eq!(salvage.file_system()?.read_to_string("/notes")?, "kept\n");
/// let report = salvage.report(&[])?;
/// assert!(!report.findings.is_empty());
/// assert!(report.files.is_empty() && !report.is_partly);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Salvager {
    unread: Vec<Range<u64>>,
    superblock: Option<u64>,
    journal: Option<Arc<dyn Device>>,
    threads: usize,
    memory: u64,
}

impl Default for Salvager {
    fn default() -> Self {
        Self {
            unread: Vec::new(),
            superblock: None,
            journal: None,
            threads: 0,
            memory: Self::MEMORY,
        }
    }
}

impl std::fmt::Debug for Salvager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { unread, superblock, threads, memory, .. } = self;
        let mut shown = f.debug_struct("Salvager");
        shown.field("unread", unread).field("superblock", superblock);
        shown.field("threads", threads).field("memory", memory).finish_non_exhaustive()
    }
}

impl Salvager {
    /// Bytes of memory that the repairs take at most, unless [`Salvager::memory`] says otherwise.
    pub const MEMORY: u64 = 2 << 30;

    /// A salvage of all that can be read.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes of the device that were not read when it was copied: see
    /// [`MapFile`](super::MapFile). They are zeros, whatever the copy has there.
    #[must_use]
    pub fn unread(mut self, ranges: impl IntoIterator<Item = Range<u64>>) -> Self {
        self.unread.extend(ranges);
        self
    }

    /// The block of the backup superblock by which the volume is checked. Without it the checker
    /// finds one.
    #[must_use]
    pub fn superblock(mut self, block: u64) -> Self {
        self.superblock = Some(block);
        self
    }

    /// The device of a journal that is not inside the volume; it is only read. Without it the
    /// machine's block devices are searched.
    #[must_use]
    pub fn external_journal(mut self, device: Arc<dyn Device>) -> Self {
        self.journal = Some(device);
        self
    }

    /// Number of threads of the check; 0: one for each processor.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Bytes of memory that the repairs may take: the blocks that they change.
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory = bytes;
        self
    }

    /// Checks the volume on a device and repairs it in memory.
    ///
    /// # Errors
    /// No volume is found, it has features that are not supported, the device is gone, or the
    /// repairs take more memory than allowed ([`RescueError::Memory`]).
    pub fn open(&self, device: Arc<dyn Device>) -> Result<Salvage, RescueError> {
        let lossy = LossyDevice::new(device).with_unreadable(self.unread.iter().cloned());
        let size = volume_size(&lossy, self.superblock);
        let lossy = Arc::new(lossy.extended_to(size.unwrap_or(0)));
        let overlay = Arc::new(OverlayDevice::new(lossy.clone()).with_limit(self.memory));
        let device: Arc<dyn Device> = overlay.clone();
        let journal = self.journal(&lossy)?;
        let findings = self.repair(&device, journal.clone());
        if overlay.is_full() {
            return Err(RescueError::Memory { limit: self.memory });
        }
        let findings = findings?;
        let repaired = open(device.clone(), journal)?;
        // A volume that cannot be opened as it is has nothing to be compared with.
        let before = open(lossy.clone(), None).ok();
        Ok(Salvage { lossy, device, before, repaired, findings })
    }

    /// The device of an external journal, changed in memory too.
    fn journal(&self, volume: &LossyDevice) -> Result<Option<Arc<dyn Device>>, RescueError> {
        let found = match &self.journal {
            Some(device) => Some(device.clone()),
            None => match find_journal(volume, &self.choice(), &FileDeviceOptions::new()) {
                Ok(found) => found.map(|found| found.device),
                // The checker says whether the volume needs it.
                Err(NotOpened::Journal(_)) => None,
                Err(NotOpened::File(error)) => return Err(RescueError::JournalDevice(error)),
            },
        };
        let in_memory = |device| Arc::new(OverlayDevice::new(device)) as Arc<dyn Device>;
        Ok(found.map(in_memory))
    }

    fn choice(&self) -> SuperblockChoice {
        SuperblockChoice { superblock: self.superblock, block_size: None }
    }

    fn repair(
        &self,
        device: &Arc<dyn Device>,
        journal: Option<Arc<dyn Device>>,
    ) -> Result<Vec<HandledFinding>, RescueError> {
        let mut options = RunOptions { force: true, ..RunOptions::default() };
        options.passes.threads = self.threads;
        options.open.superblock = self.choice();
        options.open.journal = journal;
        options.open.fresh_uuid = random_uuid().map_err(RescueError::NoRandomness)?;
        let report = run(device, &options, &AutoPolicy::Yes, &Silent);
        Ok(report.map_err(|error| RescueError::Check(Box::new(error)))?.findings)
    }
}

/// Notes nothing: the findings are in the report.
struct Silent;

impl Observer for Silent {
    fn found(&self, _: &Finding) {}
}

fn open(device: Arc<dyn Device>, journal: Option<Arc<dyn Device>>) -> Result<Reader, RescueError> {
    let journal = journal.map_or(Journal::Replay, Journal::ReplayExternal);
    let on_broken_index = BrokenIndex::Scan;
    Ok(ReaderOptions { journal, on_broken_index, ..ReaderOptions::default() }.open(device)?)
}

/// Block sizes that a volume may have.
const BLOCK_SIZES: [u64; 7] = [1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];
/// Groups whose backups are looked for.
const BACKUP_GROUPS: [u32; 5] = [1, 3, 5, 7, 9];

/// The size that the first valid superblock says: the one that is named, the primary one, or a
/// backup at its usual place. `None` where no superblock is valid, or where the descriptors of such
/// a volume have more bytes than the device.
fn volume_size(device: &dyn Device, named: Option<u64>) -> Option<u64> {
    let named = BLOCK_SIZES.iter().filter_map(|size| backup(device, named?, *size, None));
    let primary = read_primary_superblock(device).ok();
    let backups = BLOCK_SIZES.iter().flat_map(|&size| {
        // A group has a bit for each block in one block; of 1 KiB they begin after the boot block.
        let block = move |group| u64::from(group) * 8 * size + u64::from(size == 1024);
        let backup = move |group| backup(device, block(group), size, Some(GroupNo(group)));
        BACKUP_GROUPS.into_iter().filter_map(backup)
    });
    named.chain(primary).chain(backups).find_map(|raw| size_of_volume(device, &raw))
}

/// A valid backup superblock in a block; `group`: the group that it says it is of.
fn backup(
    device: &dyn Device,
    block: u64,
    block_size: u64,
    group: Option<GroupNo>,
) -> Option<RawSuperblock> {
    let raw = read_superblock(device, block.checked_mul(block_size)?).ok()?;
    let group = group.unwrap_or(GroupNo(u32::from(raw.s_block_group_nr.get())));
    raw.verify(group).ok()?;
    let geometry = Geometry::new(&raw).ok()?;
    (u64::from(geometry.block_size) == block_size).then_some(raw)
}

fn size_of_volume(device: &dyn Device, raw: &RawSuperblock) -> Option<u64> {
    let geometry = Geometry::new(raw).ok()?;
    let descriptors = u64::from(geometry.desc_blocks()) * u64::from(geometry.block_size);
    let size = geometry.blocks_count.checked_mul(u64::from(geometry.block_size))?;
    Some(size).filter(|_| descriptors <= device.size())
}

/// A damaged volume, repaired in memory.
#[derive(Debug)]
pub struct Salvage {
    lossy: Arc<LossyDevice>,
    /// With the repairs.
    device: Arc<dyn Device>,
    /// The volume as it is, if it can be opened.
    before: Option<Reader>,
    repaired: Reader,
    findings: Vec<HandledFinding>,
}

/// A report on a salvaged volume: all that it lacks.
#[derive(Clone, Debug)]
pub struct SalvageReport {
    /// Bytes of the device that could not be read so far: ranges in order. Contents are read when
    /// they are copied, so a report that is made afterwards knows more.
    pub unreadable: Vec<Range<u64>>,
    /// All findings of the check, in the order in which they were reported.
    pub findings: Vec<HandledFinding>,
    /// The files, directories and others that may not be whole, in the order of the tree: one entry
    /// for each name. Directories are listed too in which a file was found by a name that may be
    /// another file's.
    pub files: Vec<DamagedFile>,
    /// Names that the check removed because their files are not there.
    pub lost: Vec<LostName>,
    /// The damage for which the journal was not replayed whole: any file may have older contents.
    /// Empty where nothing of it is lost.
    pub journal: Vec<Code>,
    /// Whether something of what the report is about may be missing: there are such files, the
    /// journal was not replayed whole, or it is about a directory and there are lost names.
    pub is_partly: bool,
}

/// A file that may not be whole.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DamagedFile {
    /// Its path from the root, begun by a slash.
    pub path: Vec<u8>,
    /// Its inode.
    pub inode: InodeNo,
    /// Its type.
    pub file_type: FileType,
    /// Its size in bytes.
    pub size: u64,
    /// Bytes that read as zeros and are not known: those in sectors that cannot be read, and those
    /// whose blocks the check had to give up.
    pub missing: Vec<Range<u64>>,
    /// Codes of the damage that was found in it, each once.
    pub codes: Vec<Code>,
}

/// A name without a file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LostName {
    /// The path of its directory; `None` where that is not in the tree.
    pub dir: Option<Vec<u8>>,
    /// The name.
    pub name: Vec<u8>,
    /// The inode that it had.
    pub inode: Option<InodeNo>,
}

impl Salvage {
    /// The device with the repairs, which are in memory. A change of it stays there too.
    pub fn device(&self) -> Arc<dyn Device> {
        self.device.clone()
    }

    /// The repaired volume, for reading.
    ///
    /// # Errors
    /// The repair left a volume that cannot be opened.
    pub fn file_system(&self) -> Result<FileSystem, RescueError> {
        Ok(FileSystem::of_volume(open(self.device(), None)?))
    }

    /// The repaired volume by inodes.
    pub fn reader(&self) -> &Reader {
        &self.repaired
    }

    /// All findings of the check, in the order in which they were reported.
    pub fn findings(&self) -> &[HandledFinding] {
        &self.findings
    }

    /// Bytes of the device that could not be read so far.
    pub fn unreadable(&self) -> Vec<Range<u64>> {
        self.lossy.unreadable()
    }

    /// The report on these files and the trees below them; without any, on all of the volume.
    ///
    /// # Errors
    /// The repaired volume cannot be read.
    pub fn report(&self, starts: &[InodeNo]) -> Result<SalvageReport, RescueError> {
        let unreadable = self.unreadable();
        let mut found = DamageList::new(self, unreadable.iter().cloned().collect());
        let (mut dirs, mut has_dir) = (BTreeMap::new(), starts.is_empty());
        self.walk(starts, &mut |step| {
            if step.file.is_dir() {
                dirs.insert(step.file.number, step.path.to_vec());
                has_dir |= step.is_chosen;
            }
            found.visit(step);
        })?;
        let files = found.files;
        let lost = self.lost(&dirs);
        let journal: Vec<_> = self.journal().into_iter().collect();
        let is_partly = !files.is_empty() || !journal.is_empty() || has_dir && !lost.is_empty();
        let findings = self.findings.clone();
        Ok(SalvageReport { unreadable, findings, files, lost, journal, is_partly })
    }

    fn all_findings(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().map(|handled| &handled.finding)
    }

    /// The damage for which the journal was not replayed whole.
    fn journal(&self) -> Codes {
        let needs =
            |raw: RawSuperblock| raw.features().incompat.contains(IncompatFeatures::RECOVER);
        // Backups do not tell it.
        let is_needed = read_primary_superblock(&*self.lossy).map_or(true, needs);
        damage::journal(self.all_findings(), is_needed)
    }

    /// Whether a record lies in one of these blocks and is not as it was before the repair.
    fn is_replaced(&self, number: InodeNo, blocks: &BTreeSet<BlockNo>) -> bool {
        let Ok(place) = place(&self.repaired, number) else { return false };
        if !blocks.contains(&place.block) {
            return false;
        }
        let geometry = self.repaired.geometry();
        let size = usize::from(geometry.inode_size);
        let at = geometry.byte_of(place.block) + u64::from(place.index) * size as u64;
        let record = |device: &dyn Device| {
            let mut record = vec![0; size];
            device.read_at(at, &mut record).is_ok().then_some(record)
        };
        record(&*self.lossy) != record(&*self.device)
    }

    /// Walks the repaired tree, names in the order of their bytes. `visit` is called for each name.
    fn walk(&self, starts: &[InodeNo], visit: &mut dyn FnMut(Step<'_>)) -> Result<(), RescueError> {
        let is_start = |number: InodeNo| starts.is_empty() || starts.contains(&number);
        let root = self.repaired.inode(InodeNo::ROOT)?;
        let mut seen = HashSet::from([root.number]);
        let is_chosen = is_start(root.number);
        let mut waiting = vec![(b"/".to_vec(), root.number, None, is_chosen)];
        while let Some((path, number, dir, is_chosen)) = waiting.pop() {
            let Ok(file) = self.repaired.inode(number) else { continue };
            visit(Step { path: &path, file: &file, dir, is_chosen });
            if !file.is_dir() {
                continue;
            }
            let Ok(entries) = self.repaired.read_dir(number, 0) else { continue };
            let mut entries: Vec<_> = entries.filter_map(Result::ok).collect();
            entries.sort_by(|one, other| other.name.cmp(&one.name));
            for entry in entries {
                let is_dir = || self.repaired.inode(entry.inode).is_ok_and(|it| it.is_dir());
                let is_own = matches!(&entry.name[..], b"." | b"..");
                if is_own || (is_dir() && !seen.insert(entry.inode)) {
                    continue;
                }
                let slash: &[u8] = if path.ends_with(b"/") { b"" } else { b"/" };
                let below = [&path[..], slash, &entry.name].concat();
                let is_chosen = is_chosen || is_start(entry.inode);
                waiting.push((below, entry.inode, Some(number), is_chosen));
            }
        }
        Ok(())
    }

    /// Bytes of a file that are not known.
    fn missing(
        &self,
        file: &LoadedInode,
        areas: &RangeSet<u64>,
        is_damaged: bool,
    ) -> Vec<Range<u64>> {
        let geometry = self.repaired.geometry();
        let has_blocks = !file.is_inline() && !file.is_fast_symlink(geometry);
        let has_contents =
            matches!(file.file_type(), FileType::Regular | FileType::Directory | FileType::Symlink);
        if !has_blocks || !has_contents || (areas.is_empty() && !is_damaged) {
            return Vec::new();
        }
        let mut missing = RangeSet::new();
        let end = FileBlock(file.size.div_ceil(u64::from(geometry.block_size)));
        let unknown = self.unread_map(file, areas, end);
        for run in extents(&self.repaired, file.clone(), FileBlock(0), end) {
            // The check left no map that cannot be read.
            let Ok(run) = run else { break };
            match run.target {
                MappingTarget::Written(_) => self.add_unreadable(&run, areas, &mut missing),
                MappingTarget::Hole => {
                    let bits = geometry.block_bits();
                    let hole = run.block.0..run.end().0;
                    for part in unknown.overlapping(&hole) {
                        let (from, to) = (part.start.max(hole.start), part.end.min(hole.end));
                        missing.insert(from << bits..to << bits);
                    }
                    if is_damaged {
                        self.add_given_up(file, &run, &mut missing);
                    }
                }
                MappingTarget::Unwritten(_) => {}
            }
        }
        missing.remove(file.size..u64::MAX);
        missing.into_iter().collect()
    }

    /// The blocks of a file whose pointers were not read.
    fn unread_map(
        &self,
        file: &LoadedInode,
        areas: &RangeSet<u64>,
        end: FileBlock,
    ) -> RangeSet<u64> {
        if file.is_extent_mapped() || areas.is_empty() {
            return RangeSet::new();
        }
        // The map as it was: the repair may have given up a part of it.
        let old = self.before.as_ref().and_then(|before| before.any_inode(file.number).ok());
        let old = old.filter(|old| !old.is_extent_mapped());
        let map = old.as_ref().unwrap_or(file);
        UnreadMap::new(&*self.lossy, self.repaired.geometry(), areas).blocks(&map.i_block, end)
    }

    /// The parts of a run that lie in areas which cannot be read.
    fn add_unreadable(&self, run: &Mapping, areas: &RangeSet<u64>, missing: &mut RangeSet<u64>) {
        let bits = self.repaired.geometry().block_bits();
        let Some(start) = run.physical() else { return };
        let on_device = start.0 << bits..(start.0 + run.len) << bits;
        for area in areas.overlapping(&on_device) {
            let from = area.start.max(on_device.start) - on_device.start;
            let to = area.end.min(on_device.end) - on_device.start;
            let in_file = run.block.0 << bits;
            missing.insert(in_file + from..in_file + to);
        }
    }

    /// The parts of a hole that were mapped before the repair, or for which the map could not be
    /// read.
    fn add_given_up(&self, file: &LoadedInode, hole: &Mapping, missing: &mut RangeSet<u64>) {
        let bits = self.repaired.geometry().block_bits();
        let Some(before) = &self.before else { return };
        let Ok(old) = before.any_inode(file.number) else { return };
        for run in extents(before, old, hole.block, hole.end()) {
            let (from, to) = match run {
                Ok(run) if run.is_hole() => continue,
                Ok(run) => (run.block.0.max(hole.block.0), run.end().0.min(hole.end().0)),
                Err(_) => (hole.block.0, hole.end().0),
            };
            if from < to {
                missing.insert(from << bits..to << bits);
            }
        }
    }

    /// Names whose files are not there after the repair.
    fn lost(&self, dirs: &BTreeMap<InodeNo, Vec<u8>>) -> Vec<LostName> {
        let mut lost: Vec<LostName> = Vec::new();
        for handled in &self.findings {
            let subject = &handled.finding.subject;
            let is_damage = handled.finding.code.row().severity >= Severity::Safe;
            let Some(name) = subject.name.as_ref().filter(|_| is_damage && handled.repaired) else {
                continue;
            };
            let is_there = subject.inode.is_some_and(|inode| self.repaired.inode(inode).is_ok());
            if is_there || matches!(&name[..], b"." | b"..") {
                continue;
            }
            let dir = subject.dir.and_then(|dir| dirs.get(&dir).cloned());
            let found = LostName { dir, name: name.clone(), inode: subject.inode };
            if !lost.contains(&found) {
                lost.push(found);
            }
        }
        lost
    }
}

/// A name of a walk over the tree.
struct Step<'a> {
    path: &'a [u8],
    file: &'a LoadedInode,
    /// The directory of the name; `None` for the root.
    dir: Option<InodeNo>,
    /// Whether the report is about it.
    is_chosen: bool,
}

impl Step<'_> {
    fn name(&self) -> Option<(InodeNo, &[u8])> {
        Some((self.dir?, self.path.rsplit(|byte| *byte == b'/').next()?))
    }
}

/// The damaged files of a walk.
struct DamageList<'a> {
    salvage: &'a Salvage,
    areas: RangeSet<u64>,
    damage: Damage,
    files: Vec<DamagedFile>,
    /// Directories whose names may be those of other files, by path; `None` where they are in
    /// `files`.
    uncertain: BTreeMap<Vec<u8>, Option<DamagedFile>>,
}

impl<'a> DamageList<'a> {
    fn new(salvage: &'a Salvage, areas: RangeSet<u64>) -> Self {
        let damage = Damage::of(salvage.all_findings());
        Self { salvage, areas, damage, files: Vec::new(), uncertain: BTreeMap::new() }
    }

    fn visit(&mut self, step: Step<'_>) {
        let file = step.file;
        if !step.is_chosen && !file.is_dir() {
            return;
        }
        let mut codes = self.damage.codes(file.number, step.name());
        if self.salvage.is_replaced(file.number, &self.damage.older) {
            codes.insert(Code::LogCopyPossiblyOlder);
        }
        let is_uncertain = file.is_dir() && damage::has_uncertain_names(&codes);
        if !step.is_chosen && !is_uncertain {
            return;
        }
        let missing = self.salvage.missing(file, &self.areas, !codes.is_empty());
        if missing.is_empty() && codes.is_empty() {
            self.list_dirs(step.path);
            return;
        }
        let damaged = DamagedFile {
            path: step.path.to_vec(),
            inode: file.number,
            file_type: file.file_type(),
            size: file.size,
            missing,
            codes: codes.into_iter().collect(),
        };
        if step.is_chosen {
            self.list_dirs(step.path);
            self.files.push(damaged);
        } else {
            self.uncertain.insert(step.path.to_vec(), Some(damaged));
        }
    }

    /// Lists the directories of a path in which its names may be those of other files.
    fn list_dirs(&mut self, path: &[u8]) {
        if self.uncertain.is_empty() {
            return;
        }
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        for (at, _) in slashes {
            let dir = &path[..at.max(1)];
            self.files.extend(self.uncertain.get_mut(dir).and_then(Option::take));
        }
    }
}
