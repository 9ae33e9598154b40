//! Pass 2: every directory block, in the order in which the blocks lie on the volume.

mod block;
mod entry;
mod htree;
mod inline;
mod names;
mod parent;
mod past_mark;
mod salvage;
mod suspect;

pub(crate) use htree::HtreeTable;

use crate::context::Check;
use crate::finding::{Code, Finding};
use crate::store::CheckError;
use crate::tables::{DirBlock, DirFlags, DirInfo, NO_BLOCK};
use extant_ondisk::casefold::Casefold;
use extant_ondisk::dirent::DirFormat;
use extant_ondisk::dx_hash::{DirHasher, HashVersion};
use extant_ondisk::inode::Inode;
use extant_ondisk::quota::QuotaKind;
use extant_ondisk::{BlockNo, CompatFeatures, FileBlock, Geometry, IncompatFeatures, InodeNo};
use extant_runtime::sync::Mutex;
use names::NameSet;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Directory blocks that a worker takes at once.
const UNIT: usize = 256;
/// Units that are fetched ahead at most.
const MOST_AHEAD: usize = 1 << 12;
/// Blocks read at once, and blocks in between that are read along.
const RUN: u64 = 64;
const GAP: u64 = 4;

/// State of one worker of pass 2.
pub(crate) struct Reader {
    /// Names of the current block.
    names: NameSet,
    links: u64,
}

impl Reader {
    fn new(geometry: &Geometry) -> Self {
        Self { names: NameSet::new(geometry.block_len()), links: 0 }
    }
}

/// Data common to all directories.
pub(crate) struct DirContext {
    pub(crate) casefold: Option<Casefold>,
    pub(crate) htree: HtreeTable,
    hashers: [Option<DirHasher>; 6],
}

impl DirContext {
    /// The hash function that a root's version means on this volume; `None` for SipHash and unknown
    /// ones.
    pub(crate) fn hasher(&self, version: HashVersion) -> Option<&DirHasher> {
        self.hashers.get(usize::from(version.encode()))?.as_ref()
    }
}

impl Check<'_> {
    /// Data common to all directories, without the data about their indexes.
    pub(crate) fn dir_context(&self) -> DirContext {
        let unsigned = self.superblock.hash_is_unsigned();
        let hashers = [0, 1, 2, 3, 4, 5].map(|version| {
            let version = HashVersion::decode(version)?.with_signedness(unsigned);
            DirHasher::new(version, self.superblock.hash_seed).ok()
        });
        DirContext {
            casefold: Casefold::of_volume(&self.superblock)
                .filter(|_| self.geometry.has_incompat(IncompatFeatures::CASEFOLD))
                .map(|casefold| Casefold {
                    is_strict: casefold.is_strict || self.options.check_encoding,
                }),
            htree: HtreeTable::default(),
            hashers,
        }
    }

    pub(crate) fn dir_format(&self, dir: &DirInfo) -> DirFormat {
        DirFormat {
            inode: dir.inode,
            block_len: self.geometry.block_len(),
            has_filetype: self.geometry.has_incompat(IncompatFeatures::FILETYPE),
            has_stored_hashes: dir.has(DirFlags::ENCRYPTED) && dir.has(DirFlags::CASEFOLD),
            checksum_seed: self.geometry.has_metadata_csum().then_some(dir.checksum_seed),
        }
    }

    pub(crate) fn pass2(&mut self) -> Result<(), CheckError> {
        let mut blocks = std::mem::take(&mut self.dir_blocks);
        if self.is_repair() {
            // First blocks come first, so that every `..` is known when other entries are checked.
            blocks.sort_unstable_by_key(|block| (block.at != 0, block.block, block.dir));
        } else if self.window.is_whole() {
            blocks.sort(); // merges what each worker of pass 1 has sorted
        } else {
            blocks.sort_unstable(); // takes no memory
        }
        let mut found = Vec::new();
        let places = self.places_of(|found| &found.directories);
        if let Some(places) = places.filter(|places| !places.is_empty()) {
            let is_found = |block: &DirBlock| places.contains(block.dir.0);
            (found, blocks) = blocks.into_iter().partition(is_found);
        }
        let is_sound = places.is_some();
        let mut context = self.dir_context();
        context.htree = HtreeTable::new(&self.dirs, &self.budget);
        let this: &Self = self;
        // Whole units, so that each block is requested once.
        let ahead = self.options.read_ahead / u64::from(self.geometry.block_size) / UNIT as u64;
        let ahead = usize::try_from(ahead).unwrap_or(0).min(MOST_AHEAD) * UNIT;
        this.fetch_ahead(&blocks, 0..ahead);
        let next = AtomicUsize::new(0);
        let failed = Mutex::new(None);
        let whole = blocks.len() as u64;
        let shares = blocks.len().div_ceil(UNIT);
        let work = || {
            let mut reader = Reader::new(this.geometry);
            let mut buffer = Vec::new();
            loop {
                let start = next.fetch_add(UNIT, Relaxed);
                if start >= blocks.len() || failed.lock().is_some() {
                    return Ok(reader.links);
                }
                this.fetch_ahead(
                    &blocks,
                    start.saturating_add(ahead)..start.saturating_add(ahead + UNIT),
                );
                let unit = &blocks[start..blocks.len().min(start + UNIT)];
                if let Err(error) = this.check_unit(unit, &context, &mut reader, &mut buffer) {
                    failed.lock().get_or_insert(error);
                    return Ok(reader.links);
                }
                this.progress(2, unit.len() as u64, whole);
            }
        };
        let links = this.in_part(is_sound, || this.in_parallel(shares, work))?;
        if let Some(error) = failed.into_inner() {
            return Err(error);
        }
        let mut reader = Reader::new(this.geometry);
        this.check_unit(&found, &context, &mut reader, &mut Vec::new())?;
        self.statistics.links = links.into_iter().sum::<u64>() + reader.links;
        drop(blocks);
        self.check_linked_twice()?;
        self.check_htrees(&context)
    }

    /// Has the blocks of the next units fetched, as they will be read: adjacent ones in one
    /// request.
    fn fetch_ahead(&self, blocks: &[DirBlock], range: Range<usize>) {
        if self.options.read_ahead == 0 {
            return;
        }
        let blocks = blocks.get(range.start..blocks.len().min(range.end)).unwrap_or_default();
        for unit in blocks.chunks(UNIT) {
            let mut rest = unit;
            while !rest.is_empty() {
                let (count, run) = first_run(rest);
                if run.start != NO_BLOCK {
                    self.store.fetch(run, &self.ahead);
                }
                rest = &rest[count..];
            }
        }
    }

    fn check_unit(
        &self,
        unit: &[DirBlock],
        context: &DirContext,
        reader: &mut Reader,
        buffer: &mut Vec<u8>,
    ) -> Result<(), CheckError> {
        let block_len = self.geometry.block_len();
        let mut rest = unit;
        while let Some(first) = rest.first() {
            if first.block == NO_BLOCK {
                self.check_placeless(first, context, reader)?;
                rest = &rest[1..];
                continue;
            }
            // Neighbours are read together.
            let (count, run) = first_run(rest);
            let (now, later) = rest.split_at(count);
            let mut fetched = self.store.fetched(&run, &self.ahead);
            let bytes: &mut [u8] = match &mut fetched {
                Some(fetched) => fetched,
                None => {
                    buffer.resize((run.end - run.start) as usize * block_len, 0);
                    self.store.read_into(BlockNo(run.start), buffer)?;
                    buffer
                }
            };
            let written = self.store.traffic().written;
            for block in now {
                let at = (block.block - run.start) as usize * block_len;
                let bytes = &mut bytes[at..at + block_len];
                if self.store.traffic().written != written {
                    // The repair of another block may have changed this one.
                    self.store.read_into(BlockNo(block.block), bytes)?;
                }
                self.check_dir_block(block, bytes, context, reader)?;
            }
            rest = later;
        }
        Ok(())
    }

    /// Directories inside inodes, and holes.
    fn check_placeless(
        &self,
        block: &DirBlock,
        context: &DirContext,
        reader: &mut Reader,
    ) -> Result<(), CheckError> {
        let Some(dir) = self.dirs.get(block.dir) else { return Ok(()) };
        if dir.has(DirFlags::INLINE) {
            return self.check_inline_dir(dir, context, reader);
        }
        let at = FileBlock(u64::from(block.at));
        let finding = Finding::new(Code::DirectoryBlockMissing).dir(block.dir).file_block(at);
        if !self.should_fix(finding)? {
            return Ok(());
        }
        let Some(place) = self.fill_hole(dir, block.at)? else { return Ok(()) };
        let mut bytes = self.store.read(place)?;
        self.check_dir_block(&DirBlock { block: place.0, ..*block }, &mut bytes, context, reader)
    }

    /// Puts an empty block into a directory's map; `None` on a full volume.
    pub(crate) fn fill_hole(&self, dir: &DirInfo, at: u32) -> Result<Option<BlockNo>, CheckError> {
        let mut record = self.record(dir.inode)?;
        let Ok(mut inode) = Inode::decode(&record, dir.inode, self.geometry) else {
            return Ok(None);
        };
        let old = self.read_map(dir.inode, &inode)?;
        let goal = old.extents.first().map_or(BlockNo(0), |extent| extent.start);
        // With clusters, the cluster may be the file's already.
        let per_cluster = u64::from(self.geometry.blocks_per_cluster);
        let first = u64::from(at) / per_cluster * per_cluster;
        let in_cluster = (first..first + per_cluster).find_map(|other| {
            let block = old.physical(other)?;
            Some(BlockNo(block.0 - other % per_cluster + u64::from(at) % per_cluster))
        });
        let place = match in_cluster {
            Some(place) => place,
            None => match self.allocate_block(goal)? {
                Some(base) => BlockNo(base.0 + u64::from(at) % per_cluster),
                None => return Ok(None),
            },
        };
        let mut bytes = vec![0; self.geometry.block_len()];
        let format = self.dir_format(dir);
        format.clear(&mut bytes);
        format.seal(&mut bytes);
        self.store.write(place, &bytes)?;
        let mut new = old.clone();
        new.set(u64::from(at), place);
        if !self.write_map(dir.inode, &mut inode, &old, &new)? {
            return Ok(None);
        }
        inode.size = inode.size.max((u64::from(at) + 1) * u64::from(self.geometry.block_size));
        inode.encode_into(&mut record, self.geometry);
        self.store.write_inode_ordered(dir.inode, &mut record);
        Ok(Some(place))
    }

    /// Directories with several entries, if the scan could not know which came first.
    fn check_linked_twice(&self) -> Result<(), CheckError> {
        if self.is_repair() {
            return Ok(());
        }
        for dir in self.dirs.iter().filter(|dir| dir.has(DirFlags::LINKED_TWICE)) {
            self.report(Finding::new(Code::DirectoryLinkedTwice).inode(dir.inode))?;
        }
        Ok(())
    }

    /// Whether an inode number is valid in a directory entry: quota files and orphan files have no
    /// names.
    pub(crate) fn is_nameable(&self, ino: InodeNo) -> bool {
        let is_hidden = || {
            QuotaKind::ALL.into_iter().any(|kind| self.quota_inode(kind) == Some(ino))
                || self.geometry.has_compat(CompatFeatures::ORPHAN_FILE)
                    && self.superblock.orphan_file_inode == Some(ino)
        };
        (ino == InodeNo::ROOT || ino >= self.geometry.first_inode && !is_hidden())
            && ino.0 <= self.geometry.inodes_count
    }
}

/// The first of some blocks with the adjacent blocks after it: their number, and the bytes read for
/// them.
fn first_run(blocks: &[DirBlock]) -> (usize, Range<u64>) {
    let start = blocks.first().map_or(NO_BLOCK, |first| first.block);
    let (mut count, mut end) = (1, start + 1);
    while let Some(next) = blocks.get(count)
        && start != NO_BLOCK
        && (end..=end + GAP).contains(&next.block)
        && next.block - start < RUN
    {
        end = next.block + 1;
        count += 1;
    }
    (count, start..end)
}
