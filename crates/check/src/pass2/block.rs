//! One directory block: its checksum, its chain of records, its place in the index.

use super::{DirContext, Reader};
use crate::context::Check;
use crate::finding::{Code, Finding};
use crate::store::CheckError;
use crate::tables::{DirBlock, DirFlags, DirInfo};
use extant_ondisk::dirent::{DirFormat, RawDirEntry, TAIL_LEN};
use extant_ondisk::htree::{HtreeFormat, IndexKind};
use extant_ondisk::{BlockNo, FileBlock};
use zerocopy::FromBytes;

/// A chain of records under check: a block of a directory, or a part of one inside an inode.
pub(crate) struct Chain<'a> {
    pub(crate) dir: &'a DirInfo,
    pub(crate) format: DirFormat,
    pub(crate) at: FileBlock,
    /// Whether `.` and `..` come first.
    pub(crate) has_dots: bool,
    /// Where the records end: before the checksum's tail.
    pub(crate) end: usize,
    pub(crate) changed: bool,
    /// Lowest and highest hash of the names.
    pub(crate) hashes: Option<(u32, u32)>,
    /// The function that the directory's index is keyed by.
    pub(crate) hasher: Option<extant_ondisk::dx_hash::DirHasher>,
    /// No records were found after a broken one.
    pub(crate) is_searched: bool,
    /// A flaw was reported that is not repaired, so that the checksum proves nothing.
    pub(crate) is_flawed: bool,
}

impl<'a> Chain<'a> {
    /// A chain without `.` and `..` of a directory that has no index.
    pub(crate) fn new(dir: &'a DirInfo, format: DirFormat, at: FileBlock, end: usize) -> Self {
        Self {
            dir,
            format,
            at,
            has_dots: false,
            end,
            changed: false,
            hashes: None,
            hasher: None,
            is_searched: false,
            is_flawed: false,
        }
    }
}

/// One record, as stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub(crate) at: usize,
    pub(crate) rec_len: usize,
    pub(crate) inode: u32,
    pub(crate) name_len: usize,
    pub(crate) file_type: u8,
}

/// A record of a chain under check.
pub(super) struct Entry<'e, 'c> {
    pub(super) chain: &'e mut Chain<'c>,
    pub(super) bytes: &'e mut [u8],
    pub(super) record: &'e mut Record,
}

/// Bytes of a record with the shortest name.
pub(crate) const SHORTEST: usize = 12;

impl Record {
    /// Whether it has room for its name and ends before `end`.
    pub(crate) fn can_be(&self, end: usize) -> bool {
        self.rec_len >= SHORTEST
            && self.rec_len.is_multiple_of(4)
            && self.at + self.rec_len <= end
            && self.name_len + 8 <= self.rec_len
    }

    pub(crate) fn name<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        bytes.get(self.at + 8..self.at + 8 + self.name_len).unwrap_or_default()
    }
}

/// The record at a byte; `None` where there is no room for one.
pub(crate) fn record_at(bytes: &[u8], at: usize, format: &DirFormat) -> Option<Record> {
    let (raw, _) = RawDirEntry::ref_from_prefix(bytes.get(at..)?).ok()?;
    Some(Record {
        at,
        rec_len: format.decode_rec_len(raw.rec_len.get()),
        inode: raw.inode.get(),
        name_len: usize::from(raw.name_len),
        file_type: raw.file_type,
    })
}

impl Check<'_> {
    pub(super) fn check_dir_block(
        &self,
        block: &DirBlock,
        bytes: &mut [u8],
        context: &DirContext,
        reader: &mut Reader,
    ) -> Result<(), CheckError> {
        let Some(dir) = self.dirs.get(block.dir) else { return Ok(()) };
        let format = self.dir_format(dir);
        let at = FileBlock(u64::from(block.at));
        let kind = self.index_kind(dir, block.at, bytes);
        let mut sum_is_wrong = false;
        let mut lacks_tail = false;
        if let Some(kind) = kind {
            self.read_index(dir, at, bytes, kind, context)?;
        } else if format.checksum_seed.is_some() {
            lacks_tail = !format.has_tail(bytes);
            sum_is_wrong = !lacks_tail && format.verify(bytes, at).is_err();
        }
        if kind == Some(IndexKind::Node) {
            return Ok(());
        }
        let hasher = if kind.is_none() && dir.has(DirFlags::INDEXED) {
            context.htree.hasher_of(dir, self, context)
        } else {
            None
        };
        let end = if kind.is_none() && format.has_tail(bytes) && format.checksum_seed.is_some() {
            bytes.len() - TAIL_LEN
        } else {
            bytes.len()
        };
        let has_dots = block.at == 0;
        let mut chain = Chain { has_dots, hasher, ..Chain::new(dir, format, at, end) };
        self.check_chain(&mut chain, bytes, context, reader)?;
        if kind.is_none() && dir.has(DirFlags::INDEXED) {
            context.htree.note_leaf(dir, block.at, chain.hashes);
        }
        if lacks_tail {
            let finding = Finding::new(Code::DirBlockWithoutChecksum).dir(dir.inode).file_block(at);
            if self.should_fix(finding)? {
                // Records may occupy the bytes of the tail: the directory is packed again.
                dir.set(DirFlags::REBUILD);
            }
        } else if sum_is_wrong && !chain.changed && !chain.is_flawed {
            let finding = Finding::new(Code::DirBlockChecksum).dir(dir.inode).file_block(at);
            chain.changed = self.should_fix(finding)?;
        }
        if chain.changed {
            match kind {
                Some(kind) => {
                    HtreeFormat {
                        checksum_seed: format.checksum_seed,
                        ..HtreeFormat::new(self.geometry, dir.inode, 0)
                    }
                    .seal(bytes, kind);
                }
                None => format.seal(bytes),
            }
            self.store.write(BlockNo(block.block), bytes)?;
        }
        Ok(())
    }

    /// Whether a block of an indexed directory is its root or a node: a free record over the whole
    /// block, followed by counts that fit.
    pub(crate) fn index_kind(&self, dir: &DirInfo, at: u32, bytes: &[u8]) -> Option<IndexKind> {
        if !dir.has(DirFlags::INDEXED) {
            return None;
        }
        let format = HtreeFormat::new(self.geometry, dir.inode, 0);
        if at == 0 {
            // The root is hidden in the record of `..`.
            let dotdot = record_at(bytes, 12, &self.dir_format(dir))?;
            return (dotdot.at + dotdot.rec_len == bytes.len()).then_some(IndexKind::Root);
        }
        let first = record_at(bytes, 0, &self.dir_format(dir))?;
        if first.inode != 0 || first.rec_len != bytes.len() {
            return None;
        }
        let node = format.node(bytes, FileBlock(u64::from(at)), IndexKind::Node).ok()?;
        (node.limit == format.capacity(IndexKind::Node)).then_some(IndexKind::Node)
    }

    /// Walks a chain from record to record. A broken record is salvaged, or ends the walk.
    pub(super) fn check_chain(
        &self,
        chain: &mut Chain<'_>,
        bytes: &mut [u8],
        context: &DirContext,
        reader: &mut Reader,
    ) -> Result<(), CheckError> {
        reader.names.clear();
        let mut at = 0;
        let mut number = 0_u32;
        let mut before: Option<usize> = None;
        // A salvaged record is read again: at most as often as there are places for one.
        let mut tries = bytes.len() / 4 + 1;
        while at < chain.end {
            let record = record_at(bytes, at, &chain.format);
            let Some(mut record) = record.filter(|record| record.can_be(chain.end)) else {
                let finding = Finding::new(Code::DirectoryCorrupted)
                    .dir(chain.dir.inode)
                    .file_block(chain.at)
                    .found(at as u64);
                chain.is_flawed = true;
                if tries == 0 || !self.should_fix(finding)? {
                    return Ok(());
                }
                tries -= 1;
                self.salvage(chain, bytes, at, before);
                chain.changed = true;
                if let Some(before) = before
                    && let Some(record) = record_at(bytes, before, &chain.format)
                {
                    // The record before may have taken the place of this one.
                    at = at.max(before + record.rec_len);
                }
                continue;
            };
            let mut entry = Entry { chain, bytes, record: &mut record };
            let has_dots = entry.chain.has_dots;
            if has_dots && number == 0 {
                self.check_dot(&mut entry)?;
            } else if has_dots && number == 1 {
                self.check_dotdot(&mut entry)?;
            } else if entry.record.inode != 0 {
                self.check_entry(&mut entry, context, reader)?;
            }
            before = Some(at);
            number += 1;
            at += record.rec_len;
        }
        if chain.has_dots && number < 2 {
            self.report_missing_dots(chain, number)?;
        }
        Ok(())
    }
}
