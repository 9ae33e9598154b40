//! The log as evidence: before something is taken as lost, damaged metadata blocks are restored
//! from the newest copies that the journal's log still holds.
//!
//! A block is restored only where what is in its place cannot be (by its checksum, or by its
//! structure), and where the copy is sound for that place. A copy that the log proves to be the
//! last content of its block is a safe repair; one that is possibly older is named so, and is used
//! only where nothing that is sound contradicts it. The log is read only when a scan has found
//! damage.

mod maps;
mod names;
pub(crate) mod records;
mod restorer;

use crate::finding::{Code, Finding, Severity};
use crate::recorder::Recorder;
use crate::report::{CheckOptions, PassReport};
use crate::store::{CheckError, Store};
use extant_evidence::{BlockCopy, Evidence};
use extant_layout::RunSet;
use extant_ondisk::bitmap::{self, BitmapKind};
use extant_ondisk::group_desc::{GroupDesc, GroupFlags};
use extant_ondisk::inode::Inode;
use extant_ondisk::{BlockNo, GroupNo, InodeNo, Tid};
use maps::Walked;
use records::Merged;
use restorer::Restorer;
use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;

/// Blocks of an inode table that are read at once.
const TABLE_BLOCKS_READ: u64 = 128;

/// Files above which all are visited, table by table, in place of those with findings.
const MANY: usize = 4096;

/// Findings of a replay that left blocks out.
const LEFT_OUT: [Code; 4] = [
    Code::JournalTransactionCorrupt,
    Code::JournalBlockCorrupt,
    Code::JournalRevokeCorrupt,
    Code::JournalReplayFailed,
];

/// The finding that proposes to restore a block. `what` says what is stored there.
pub(crate) fn finding(copy: &BlockCopy, what: &str) -> Finding {
    let code = match copy.is_certain() {
        true => Code::LogCopyCertain,
        false => Code::LogCopyPossiblyOlder,
    };
    let detail = format!("{what}, committed at {}", copy.committed.seconds);
    Finding::new(code).block(copy.home).found(u64::from(copy.tid.0)).detail(detail)
}

/// Whether a scan found damage to metadata that a log may have copies of. Summaries are counted
/// again in any case.
pub(crate) fn is_wanted(report: &PassReport) -> bool {
    report.findings.iter().any(|outcome| {
        let row = outcome.finding.code.row();
        row.severity > Severity::Note && (1..=4).contains(&row.pass)
    })
}

/// Proposes to restore damaged blocks of inode tables, directories, maps and extended attributes
/// from the log; how many were restored. Where nothing may be written, blocks that depend on others
/// are proposed as if these were restored. `scanned` is the report of a scan, where there was one.
///
/// # Errors
/// The device failed, or the policy ended the run.
pub(crate) fn restore(
    store: &Store,
    options: &CheckOptions,
    recorder: &Recorder<'_>,
    scanned: Option<&PassReport>,
) -> Result<u64, CheckError> {
    let Some(source) = store.evidence_source() else { return Ok(0) };
    let geometry = store.geometry();
    let raw = store.raw_superblock();
    let evidence = Evidence::gather(store.device(), source.external.as_ref(), &raw, geometry);
    let Some(mut evidence) = evidence else { return Ok(0) };
    if let Some(end) = end_of_replay(recorder) {
        evidence = evidence.replayed_up_to(end);
    }
    let mut restorer = Restorer {
        store,
        geometry,
        homes: evidence.homes(),
        evidence: &evidence,
        recorder,
        overlay: HashMap::new(),
        claims: None,
        refused: HashSet::new(),
        older_blocks: Vec::new(),
        is_mixed: recorder.any(|it| LEFT_OUT.contains(&it.finding.code)),
        older_inodes: HashMap::new(),
        restored: 0,
    };
    let found = scanned.map(|report| {
        let subjects = report.findings.iter().map(|it| &it.finding.subject);
        subjects.flat_map(|it| [it.inode, it.dir]).flatten().collect()
    });
    let result = restorer.run(options.memory.is_none(), found);
    store.set_older_names(restorer.older_names()?);
    if restorer.restored > 0 {
        store.flush()?;
    }
    result.map(|()| restorer.restored)
}

/// The transaction before which the replay of this run ended, if it did not go to the end.
fn end_of_replay(recorder: &Recorder<'_>) -> Option<Tid> {
    let findings = recorder.findings();
    let ends = findings.iter().filter(|it| it.finding.code == Code::JournalTransactionCorrupt);
    ends.filter_map(|it| u32::try_from(it.finding.subject.found?).ok()).map(Tid).next()
}

/// Inodes of a table block for which the log has a copy that is possibly older.
struct Candidate {
    copy: BlockCopy,
    group: GroupNo,
    first: InodeNo,
}

impl Restorer<'_> {
    /// `has_memory`: whether the blocks of all files may be kept, which old copies of inodes need.
    /// `found`: the inodes in which a scan found something, where there was one.
    fn run(
        &mut self,
        has_memory: bool,
        found: Option<BTreeSet<InodeNo>>,
    ) -> Result<(), CheckError> {
        let (mut candidates, restored) = self.restore_certain_inodes()?;
        if !has_memory {
            candidates.clear();
        }
        self.claims = (!candidates.is_empty()).then(RunSet::new);
        let is_whole = self.claims.is_some() || self.is_mixed;
        match found.filter(|found| !is_whole && found.len() < MANY) {
            Some(found) => self.walk_found(found.into_iter().chain(restored).collect())?,
            None => self.walk_files()?,
        }
        self.restore_older_inodes(candidates)
    }

    /// The blocks of a group's inode table; `None` if they are not on the volume.
    fn table(&self, desc: &GroupDesc) -> Option<Range<u64>> {
        let count = u64::from(self.geometry.itable_blocks());
        let start = desc.inode_table;
        let is_there = start.0 > 0 && self.geometry.contains(start, count);
        is_there.then(|| start.0..start.0 + count)
    }

    fn first_inode(&self, group: GroupNo, index: u64) -> Option<InodeNo> {
        let per_block = u64::from(self.geometry.inodes_per_block());
        let before = u64::from(group.0) * u64::from(self.geometry.inodes_per_group);
        let number = before + index * per_block + 1;
        u32::try_from(number).ok().filter(|it| *it <= self.geometry.inodes_count).map(InodeNo)
    }

    /// Restores inodes of which the log has the last content: where it has copies that may be older
    /// of others, and what was restored.
    fn restore_certain_inodes(&mut self) -> Result<(Vec<Candidate>, Vec<InodeNo>), CheckError> {
        let mut restored = Vec::new();
        let mut candidates = Vec::new();
        for (group, desc) in (0..).map(GroupNo).zip(self.store.descs()) {
            let Some(table) = self.table(&desc) else { continue };
            for home in self.homes_in(table.clone()) {
                let Some(first) = self.first_inode(group, home.0 - table.start) else { break };
                let Some((copy, bytes)) = self.copy_of(home) else { continue };
                let in_place = self.block(home)?;
                if in_place == bytes {
                    continue;
                }
                if !copy.is_certain() {
                    candidates.push(Candidate { copy, group, first });
                    continue;
                }
                let merged = records::merged(&in_place, &bytes, first, self.geometry, |pair| {
                    pair.is_replaced_by_last(self.geometry)
                });
                if let Some(merged) = merged {
                    restored.extend(&merged.numbers);
                    self.propose_inodes(&copy, merged)?;
                }
            }
        }
        Ok((candidates, restored))
    }

    fn propose_inodes(&mut self, copy: &BlockCopy, merged: Merged) -> Result<bool, CheckError> {
        let Merged { bytes, numbers } = merged;
        let mut finding = finding(copy, &records::list(&numbers));
        finding.subject.inode = numbers.first().copied();
        self.propose(finding, copy.home, bytes)
    }

    /// Visits all files with sound inodes, and restores what is damaged of their directories, maps
    /// and attributes.
    fn walk_files(&mut self) -> Result<(), CheckError> {
        let size = usize::from(self.geometry.inode_size);
        for (group, desc) in (0..).map(GroupNo).zip(self.store.descs()) {
            let Some(table) = self.table(&desc) else { continue };
            if desc.flags.contains(GroupFlags::INODE_UNINIT) && self.geometry.has_uninit_groups() {
                continue;
            }
            let used = u64::from(desc.itable_used(self.geometry));
            let blocks = used.div_ceil(u64::from(self.geometry.inodes_per_block()));
            let end = table.start + blocks.min(table.end - table.start);
            for at in (table.start..end).step_by(TABLE_BLOCKS_READ as usize) {
                let blocks = at..end.min(at + TABLE_BLOCKS_READ);
                let bytes = self.table_blocks(blocks.clone())?;
                let Some(first) = self.first_inode(group, at - table.start) else { break };
                for (number, record) in (first.0..).map(InodeNo).zip(bytes.chunks_exact(size)) {
                    let inode = Inode::decode(record, number, self.geometry);
                    // Most files have nothing to restore: their checksums are not needed.
                    if inode.is_ok_and(|inode| self.is_walked(&inode))
                        && let Some(inode) = self.file_of(number, record)
                    {
                        self.walk_file(number, &inode, true)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The same of some files: what is damaged of others, a scan has found.
    fn walk_found(&mut self, inodes: BTreeSet<InodeNo>) -> Result<(), CheckError> {
        let size = usize::from(self.geometry.inode_size);
        for number in inodes {
            let Some((block, at)) = self.record_place(number) else { continue };
            let bytes = self.block(block)?;
            let Some(inode) = bytes.get(at..at + size).and_then(|it| self.file_of(number, it))
            else {
                continue;
            };
            if self.is_walked(&inode) {
                self.walk_file(number, &inode, true)?;
            }
        }
        Ok(())
    }

    /// The block of the inode table that has the record of an inode, and where in it.
    fn record_place(&self, number: InodeNo) -> Option<(BlockNo, usize)> {
        let (group, index) = self.geometry.inode_place(number)?;
        let table = self.table(&self.store.desc(group))?;
        let per_block = self.geometry.inodes_per_block();
        let at = (index % per_block) as usize * usize::from(self.geometry.inode_size);
        Some((BlockNo(table.start + u64::from(index / per_block)), at))
    }

    fn table_blocks(&self, blocks: Range<u64>) -> Result<Vec<u8>, CheckError> {
        let len = self.geometry.block_len();
        let mut bytes = vec![0; (blocks.end - blocks.start) as usize * len];
        self.store.read_into(BlockNo(blocks.start), &mut bytes)?;
        for (block, stored) in blocks.map(BlockNo).zip(bytes.chunks_exact_mut(len)) {
            if let Some(restored) = self.overlay.get(&block) {
                stored.copy_from_slice(restored);
            }
        }
        Ok(bytes)
    }

    /// The inode of a file in use, if its record is sound.
    fn file_of(&self, number: InodeNo, record: &[u8]) -> Option<Inode> {
        let geometry = self.geometry;
        let is_file =
            number >= geometry.first_inode || matches!(number, InodeNo::ROOT | InodeNo::JOURNAL);
        if !is_file || records::is_zero(record) || !records::is_sound(record, number, geometry) {
            return None;
        }
        Inode::decode(record, number, geometry).ok().filter(|inode| inode.links > 0)
    }

    /// Whether a file has blocks that can be restored, or all blocks of files must be known.
    fn is_walked(&self, inode: &Inode) -> bool {
        inode.links > 0 && (self.claims.is_some() || self.needs_walk(inode))
    }

    /// Restores what is damaged of a file. `is_current`: whether its inode has its last content.
    fn walk_file(
        &mut self,
        number: InodeNo,
        inode: &Inode,
        is_current: bool,
    ) -> Result<(), CheckError> {
        let walked = self.walk(number, inode, is_current)?;
        self.take_claims(&walked);
        self.propose_blocks(number, walked)
    }

    fn take_claims(&mut self, walked: &Walked) {
        if let Some(claims) = &mut self.claims {
            walked.claims.iter().for_each(|run| claims.insert(run.clone()));
        }
    }

    fn propose_blocks(&mut self, number: InodeNo, walked: Walked) -> Result<(), CheckError> {
        self.older_blocks.extend(walked.older);
        for proposal in walked.proposals {
            let Some((copy, bytes)) = self.copy_of(proposal.block) else { continue };
            let finding = finding(&copy, &proposal.what).inode(number);
            self.propose(finding, proposal.block, bytes)?;
        }
        Ok(())
    }

    /// Restores inodes from copies that may be older, the newest first: only those that are in use
    /// by the bitmap, and whose blocks no other file claims.
    fn restore_older_inodes(&mut self, mut candidates: Vec<Candidate>) -> Result<(), CheckError> {
        candidates.sort_by_key(|it| (Reverse(it.copy.committed.seconds), it.copy.home));
        let mut bitmaps: HashMap<GroupNo, Option<Vec<u8>>> = HashMap::new();
        for Candidate { copy, group, first } in candidates {
            let used = match bitmaps.entry(group) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(self.inode_bitmap(group)?),
            };
            let Some(used) = used else { continue };
            let in_place = self.block(copy.home)?;
            let Ok(bytes) = self.evidence.read(&copy) else { continue };
            let is_used = |number: InodeNo| {
                let place = self.geometry.inode_place(number);
                place.is_some_and(|(_, index)| bitmap::test(used, index))
            };
            let mut files = Vec::new();
            let mut failed = None;
            let merged = records::merged(&in_place, &bytes, first, self.geometry, |pair| {
                if !is_used(pair.number) || !pair.is_replaced_by_older(self.geometry) {
                    return false;
                }
                let Some(inode) = self.file_of(pair.number, pair.copy) else { return false };
                match self.walk(pair.number, &inode, false) {
                    Ok(walked) if self.is_unclaimed(&walked) => {
                        files.push((pair.number, walked));
                        true
                    }
                    Ok(_) => false,
                    Err(error) => {
                        failed = Some(error);
                        false
                    }
                }
            });
            if let Some(error) = failed {
                return Err(error);
            }
            let Some(merged) = merged else { continue };
            if !self.propose_inodes(&copy, merged)? {
                continue;
            }
            for (number, walked) in files {
                self.older_inodes.insert(number, copy.tid);
                self.take_claims(&walked);
                self.propose_blocks(number, walked)?;
            }
        }
        Ok(())
    }

    fn is_unclaimed(&self, walked: &Walked) -> bool {
        let is_free = |run: &Range<u64>| {
            self.claims.as_ref().is_none_or(|claims| claims.is_free(run.clone()))
        };
        !walked.is_cut && walked.claims.iter().all(is_free)
    }

    /// The inode bitmap of a group, if it can be relied on.
    fn inode_bitmap(&self, group: GroupNo) -> Result<Option<Vec<u8>>, CheckError> {
        let desc = self.store.desc(group);
        let is_there = desc.inode_bitmap.0 > 0 && self.geometry.contains(desc.inode_bitmap, 1);
        if !is_there || desc.flags.contains(GroupFlags::INODE_UNINIT) {
            return Ok(None);
        }
        let bytes = self.block(desc.inode_bitmap)?;
        let is_sound =
            bitmap::verify(&bytes, BitmapKind::Inode, group, &desc, self.geometry).is_ok();
        Ok(Some(bytes).filter(|_| is_sound))
    }
}
