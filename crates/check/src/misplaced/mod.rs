//! Blocks of inode tables and directories that are in each other's places, as after a swap or a
//! shift, and single records of inode tables: their checksums start at the numbers of inodes, so
//! that they show where a block or a record belongs. Only whole cycles are undone: a copy never
//! overwrites what is readable. On a volume with a journal the blocks of a cycle are one
//! transaction, so that a power cut loses none of them.

mod records;

use crate::finding::{Code, Finding};
use crate::recorder::Recorder;
use crate::report::{CheckOptions, PassReport};
use crate::store::{CheckError, Store};
use extant_journal::{JournalError, OneTransaction};
use extant_layout::DescriptorTable;
use extant_offline::{OfflineError, OfflineVolume};
use extant_ondisk::dirent::{DirFormat, dot_entries};
use extant_ondisk::htree::{HtreeFormat, IndexKind};
use extant_ondisk::inode::{self, Inode};
use extant_ondisk::{BlockNo, FileBlock, Geometry, GroupNo, InodeNo};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;

/// Bytes of blocks that are kept at most.
const MOST_BYTES: usize = 16 << 20;
/// Blocks of an inode table that are read at once.
const TABLE_BLOCKS_READ: u64 = 128;

/// The content that a block in its place would have.
#[derive(Clone, Copy)]
enum Content {
    /// Records from that of an inode on.
    Table(InodeNo),
    /// A block of a directory whose checksums start at the seed.
    Directory { inode: InodeNo, seed: u32, is_first: bool },
}

/// A place with a block of which nothing is right.
struct SuspectBlock {
    block: BlockNo,
    content: Content,
    bytes: Vec<u8>,
}

struct Search<'a> {
    store: &'a Store,
    geometry: &'a Geometry,
    places: Vec<SuspectBlock>,
    /// The right blocks of directories that have wrong ones.
    sound: HashMap<InodeNo, Vec<BlockNo>>,
}

/// Proposes to put blocks and records where they belong; how many blocks were written. `scanned`
/// is the report of a scan: records in a wrong place have wrong checksums, and a directory with a
/// wrong block has a finding.
///
/// # Errors
/// The device failed, or the policy ended the run.
pub(crate) fn restore(
    store: &Store,
    options: &CheckOptions,
    recorder: &Recorder<'_>,
    scanned: &PassReport,
) -> Result<u64, CheckError> {
    let geometry = store.geometry();
    if !geometry.has_metadata_csum() {
        return Ok(0);
    }
    let mut search = Search { store, geometry, places: Vec::new(), sound: HashMap::new() };
    let found = || scanned.findings.iter().map(|it| &it.finding);
    let suspects: BTreeSet<InodeNo> =
        found().filter(|it| is_of_checksum(it)).filter_map(|it| it.subject.inode).collect();
    if !suspects.is_empty() {
        search.look_at_tables()?;
    }
    search.look_at_directories(found().filter_map(|it| it.subject.dir).collect())?;
    let (mut moved, mut of_cycles) = (0, HashSet::new());
    for cycle in search.cycles()? {
        of_cycles.extend(cycle.iter().map(|(from, _)| search.places[*from].block));
        let mut blocks: Vec<(BlockNo, Vec<u8>)> = Vec::new();
        for (from, to) in &cycle {
            let (from, to) = (&search.places[*from], &search.places[*to]);
            let finding = Finding::new(Code::BlockMisplaced).block(from.block).expected(to.block.0);
            let finding = match to.content {
                Content::Table(first) => finding.inode(first).detail("inodes".to_owned()),
                Content::Directory { inode, .. } => finding.inode(inode).detail("names".to_owned()),
            };
            if recorder.should_fix(finding)? {
                blocks.push((to.block, from.bytes.clone()));
            } else if recorder.may_repair() {
                break;
            }
        }
        // All blocks of a cycle or none.
        if blocks.len() == cycle.len() {
            store.mark_unclean()?;
            moved += blocks.len() as u64;
            write_together(store, options, blocks)?;
        }
    }
    for blocks in records::accepted(store, recorder, suspects, &of_cycles)? {
        store.mark_unclean()?;
        moved += blocks.len() as u64;
        write_together(store, options, blocks)?;
    }
    Ok(moved)
}

/// Whether a finding is on a record with a wrong checksum.
fn is_of_checksum(finding: &Finding) -> bool {
    matches!(
        finding.code,
        Code::InodeChecksum
            | Code::InodeBlockChecksum
            | Code::InodeGarbage
            | Code::InodeIsCopy
            | Code::ExtraSizeInvalid
            | Code::OrphanListLeftover
            | Code::DeletedWithoutDtime
    )
}

/// Writes blocks so that a power cut leaves all of them or none, if the volume has a journal.
fn write_together(
    store: &Store,
    options: &CheckOptions,
    blocks: Vec<(BlockNo, Vec<u8>)>,
) -> Result<(), CheckError> {
    store.flush()?;
    let external = store.evidence_source().and_then(|source| source.external.clone());
    let device = store.device().clone();
    let journal = OneTransaction::open(&*device, external.as_deref()).ok().flatten();
    let has_room = |journal: &OneTransaction<'_>| {
        journal.capacity().is_ok_and(|most| blocks.len() as u64 <= u64::from(most))
    };
    if let Some(journal) = journal.filter(has_room) {
        let bytes = blocks.len() as u64 * u64::from(store.geometry().block_size);
        match journal.change_past_copies(blocks.clone(), options.env.now()) {
            Ok(()) => {
                store.note_written(bytes);
                return Ok(());
            }
            Err(JournalError::Device(error)) => return Err(error.into()),
            Err(error) => tracing::warn!(%error, "blocks are moved without the journal"),
        }
    }
    for (block, bytes) in &blocks {
        store.write(*block, bytes)?;
    }
    store.flush()
}

impl Search<'_> {
    fn has_room(&self) -> bool {
        self.places.len() < MOST_BYTES / self.geometry.block_len()
    }

    fn add(&mut self, block: BlockNo, content: Content, bytes: &[u8]) {
        if self.has_room() {
            self.places.push(SuspectBlock { block, content, bytes: bytes.to_vec() });
        }
    }

    /// Blocks of tables that have records, of which none has the right checksum.
    fn look_at_tables(&mut self) -> Result<(), CheckError> {
        let geometry = self.geometry;
        let (len, per_block) = (geometry.block_len(), geometry.inodes_per_block());
        for (group, desc) in (0..).map(GroupNo).zip(self.store.descs()) {
            let whole = u64::from(geometry.itable_blocks());
            if !self.store.desc_checksum_matches(group)
                || !geometry.contains(desc.inode_table, whole)
            {
                continue;
            }
            let used = u64::from(desc.itable_used(geometry).div_ceil(per_block)).min(whole);
            let table = desc.inode_table.0;
            for at in (0..used).step_by(TABLE_BLOCKS_READ as usize) {
                let blocks: Range<u64> = at..used.min(at + TABLE_BLOCKS_READ);
                let mut bytes = vec![0; (blocks.end - blocks.start) as usize * len];
                self.store.read_into(BlockNo(table + at), &mut bytes)?;
                for (index, bytes) in blocks.zip(bytes.chunks_exact(len)) {
                    let first = group.0 * geometry.inodes_per_group + index as u32 * per_block;
                    let first = InodeNo(first + 1);
                    if !has_sound_record(bytes, first, geometry) && !is_zero(bytes) {
                        self.add(BlockNo(table + index), Content::Table(first), bytes);
                    }
                }
            }
        }
        Ok(())
    }

    /// Blocks of some directories, with sound inodes, that do not have the right checksums.
    fn look_at_directories(&mut self, directories: BTreeSet<InodeNo>) -> Result<(), CheckError> {
        let geometry = self.geometry;
        if directories.is_empty() {
            return Ok(());
        }
        let table = DescriptorTable::read(geometry, |index, block| {
            self.store.read_into(geometry.desc_block(index), block)
        })?;
        let device = self.store.device().clone();
        let volume =
            OfflineVolume::of_parts(device, self.store.raw_superblock(), geometry.clone(), table);
        for number in directories {
            let Some(record) = self.store.read_inode(number)? else { continue };
            let Ok(inode) = Inode::decode(&record, number, geometry) else { continue };
            if inode.is_dir()
                && inode.links > 0
                && inode::verify(&record, number, geometry).is_ok()
                && self.has_room()
            {
                self.look_at_directory(&volume, number, &inode)?;
            }
        }
        Ok(())
    }

    fn look_at_directory(
        &mut self,
        volume: &OfflineVolume,
        number: InodeNo,
        inode: &Inode,
    ) -> Result<(), CheckError> {
        let map = match volume.read_map(number, inode) {
            Ok(map) => map,
            Err(OfflineError::Device(error)) => return Err(error.into()),
            Err(_) => return Ok(()), // a damaged map
        };
        let format = DirFormat::new(self.geometry, number, inode.generation);
        let index = HtreeFormat::new(self.geometry, number, inode.generation);
        let Some(seed) = format.checksum_seed else { return Ok(()) };
        let (before, mut sound) = (self.places.len(), Vec::new());
        for (at, block) in map.blocks() {
            if !self.geometry.contains(block, 1) {
                continue;
            }
            let bytes = self.store.read(block)?;
            let kind = if at.0 == 0 { IndexKind::Root } else { IndexKind::Node };
            let is_right =
                format.verify(&bytes, at).is_ok() || index.verify(&bytes, at, kind).is_ok();
            if is_right {
                sound.push(block);
            } else {
                let is_first = at.0 == 0;
                let content = Content::Directory { inode: number, seed, is_first };
                self.add(block, content, &bytes);
            }
        }
        if self.places.len() > before {
            self.sound.insert(number, sound);
        }
        Ok(())
    }

    /// Cycles of places, each with the one where its content belongs: no content is overwritten
    /// that is not moved itself.
    fn cycles(&self) -> Result<Vec<Vec<(usize, usize)>>, CheckError> {
        let found = self.candidates();
        let mut is_met = vec![false; self.places.len()];
        let mut cycles = Vec::new();
        for start in 0..self.places.len() {
            let mut cycle = Vec::new();
            let mut at = start;
            while !is_met[at] {
                is_met[at] = true;
                let Some(to) = found[at] else { break };
                cycle.push((at, to));
                at = to;
            }
            let is_closed = cycle.len() > 1 && cycle.last().is_some_and(|(_, to)| *to == start);
            if is_closed && !self.has_copies(&cycle)? {
                cycles.push(cycle);
            }
        }
        Ok(cycles)
    }

    /// For each place the one where its content belongs. Contents of the same directory are taken
    /// in order where there are as many places for them; else it is not known which belongs where.
    fn candidates(&self) -> Vec<Option<usize>> {
        let mut found = vec![None; self.places.len()];
        let mut by_seed: BTreeMap<(u32, bool), [Vec<usize>; 2]> = BTreeMap::new();
        let mut tables: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (at, place) in self.places.iter().enumerate() {
            match place.content {
                Content::Directory { seed, is_first, .. } => {
                    by_seed.entry((seed, is_first)).or_default()[1].push(at);
                }
                Content::Table(_) => tables.entry(at).or_default().clear(),
            }
        }
        for (from, place) in self.places.iter().enumerate() {
            if is_zero(&place.bytes) {
                continue;
            }
            for key in self.seeds_of(&place.bytes) {
                if let Some([sources, _]) = by_seed.get_mut(&key) {
                    sources.push(from);
                }
            }
            for (to, sources) in &mut tables {
                if let Content::Table(first) = self.places[*to].content
                    && *to != from
                    && has_mostly_sound_records(&place.bytes, first, self.geometry)
                {
                    sources.push(from);
                }
            }
        }
        let of_tables = tables.into_iter().map(|(to, sources)| [sources, vec![to]]);
        for [sources, places] in by_seed.into_values().chain(of_tables) {
            if sources.len() == places.len() {
                sources.into_iter().zip(places).for_each(|(from, to)| found[from] = Some(to));
            }
        }
        found
    }

    /// Whether some content of a cycle is in its directory already.
    fn has_copies(&self, cycle: &[(usize, usize)]) -> Result<bool, CheckError> {
        for (from, to) in cycle {
            let Content::Directory { inode, .. } = self.places[*to].content else { continue };
            let format = DirFormat::new(self.geometry, InodeNo(0), 0);
            let names = |bytes: &[u8]| -> HashSet<Vec<u8>> {
                let entries = format.entries(bytes, FileBlock(0)).flatten();
                let used = entries.filter(|entry| entry.is_used() && !entry.is_dot());
                used.map(|entry| entry.name.to_vec()).collect()
            };
            let moved = &self.places[*from].bytes;
            let moved_names = names(moved);
            for block in self.sound.get(&inode).into_iter().flatten() {
                let bytes = self.store.read(*block)?;
                if bytes == *moved || !names(&bytes).is_disjoint(&moved_names) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// The seeds from which the checksum of a block of a directory is right, and whether it is a
    /// first block.
    fn seeds_of(&self, bytes: &[u8]) -> Vec<(u32, bool)> {
        let format = DirFormat::new(self.geometry, InodeNo(0), 0);
        let index = HtreeFormat::new(self.geometry, InodeNo(0), 0);
        if !format.entries(bytes, FileBlock(0)).all(|entry| entry.is_ok()) {
            return Vec::new();
        }
        let is_first = dot_entries(&format, bytes).is_ok();
        let kind = if is_first { IndexKind::Root } else { IndexKind::Node };
        let seeds = [format.seed_of(bytes), index.seed_of(bytes, kind)];
        seeds.into_iter().flatten().map(|seed| (seed, is_first)).collect()
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// Whether a record of a block that begins with an inode has the right checksum.
fn has_sound_record(bytes: &[u8], first: InodeNo, geometry: &Geometry) -> bool {
    let records = bytes.chunks_exact(usize::from(geometry.inode_size));
    (first.0..)
        .map(InodeNo)
        .zip(records)
        .any(|(number, record)| inode::verify(record, number, geometry).is_ok() && !is_zero(record))
}

/// Whether more records of a block have the right checksum than a wrong one where it begins with an
/// inode. Records of zeros do not count.
fn has_mostly_sound_records(bytes: &[u8], first: InodeNo, geometry: &Geometry) -> bool {
    let records = bytes.chunks_exact(usize::from(geometry.inode_size));
    let mut surplus = 0;
    for (number, record) in (first.0..).map(InodeNo).zip(records) {
        if !is_zero(record) {
            let is_sound = inode::verify(record, number, geometry).is_ok();
            surplus += if is_sound { 1 } else { -1 };
        }
    }
    surplus > 0
}
