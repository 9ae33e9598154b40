//! Deleted files: inodes that the log still has, with their names and contents.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use extant_device::Device;
use extant_ondisk::bitmap::{self, BitmapKind};
use extant_ondisk::inode::{self as ondisk_inode, FileType, Inode};
use extant_ondisk::xattr::XATTR_MAGIC;
use extant_ondisk::{BlockNo, FileBlock, GroupNo, InodeNo};
use extant_reader::read::mapping::{MappingTarget, extents};
use extant_reader::read::{data, symlink};
use extant_reader::{Error, LoadedInode, Reader, VolumeRead};

use super::RescueError;
use super::log_copies::{Commit, LogCopies};
use super::names::{Directories, OldName, OldNames, Owners, old_names, walk};
use super::past::Past;
use crate::inspect::{RawView, SuperblockChoice};

/// Bytes that lie in an inode, at most, and in a block of its attributes.
const SMALL: u64 = 1 << 17;

/// The state of a deleted file's contents.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Content {
    /// No block of it is in use again, as far as the volume and its log tell.
    Whole,
    /// These bytes are in blocks that were used again; the others are there.
    Partly(Vec<Range<u64>>),
    /// It is not known where it was.
    Gone,
}

/// A file that was deleted.
#[derive(Clone, Debug)]
pub struct DeletedFile {
    /// Its path from the root, begun by a slash; `None` where no name is known.
    pub path: Option<Vec<u8>>,
    /// Its number, which another file may have now.
    pub inode: InodeNo,
    /// Its attributes before it was deleted; `None` where only its name is known.
    pub attributes: Option<Inode>,
    /// The time of its deletion in seconds since 1970, where it is known.
    pub deleted: Option<i64>,
    /// The state of its contents.
    pub content: Content,
    /// Whether the log holds every commit since its deletion: then it would show later use of its
    /// blocks, but for blocks that one commit both took and gave back.
    pub is_certain: bool,
    /// Where its bytes are data, in order; the rest reads as zeros.
    pub data: Vec<Range<u64>>,
    loaded: Option<LoadedInode>,
    before: Option<Commit>,
}

impl DeletedFile {
    /// Its type; `None` where it is not known.
    pub fn file_type(&self) -> Option<FileType> {
        self.attributes.as_ref()?.file_type()
    }
}

/// The deleted files of a volume.
#[derive(Debug)]
pub struct DeletedFiles {
    reader: Reader,
    copies: LogCopies,
    files: Vec<DeletedFile>,
}

/// An inode as a commit left it.
#[derive(Clone, Debug)]
struct Version {
    commit: Commit,
    loaded: LoadedInode,
}

/// The inodes in the log's copies of inode tables.
#[derive(Debug, Default)]
struct Versions {
    /// Those that are not in use now, or by another file, the oldest first.
    past: BTreeMap<InodeNo, Vec<Version>>,
    /// The first commit of those that are in use now.
    present: HashMap<InodeNo, Commit>,
    /// Directories that lie in their inodes, in use or not.
    inline_dirs: Vec<(Commit, LoadedInode)>,
}

impl DeletedFiles {
    /// Looks for the deleted files of the volume on a device. Nothing is written.
    ///
    /// # Errors
    /// The volume cannot be opened for reading, its journal cannot be read, or the device failed.
    pub fn find(device: Arc<dyn Device>) -> Result<Self, RescueError> {
        let view = RawView::new(device.clone(), SuperblockChoice::default())?;
        let reader = Reader::open(device)?;
        let copies = LogCopies::read(&view, reader.geometry())?;
        let mut search = Search::new(&reader, &copies);
        let files = search.files()?;
        Ok(Self { reader, copies, files })
    }

    /// The files, by their paths, those without one at the end.
    pub fn files(&self) -> &[DeletedFile] {
        &self.files
    }

    /// The volume as it is now.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    fn past(&self, file: &DeletedFile) -> Past<'_> {
        Past { reader: &self.reader, copies: &self.copies, before: file.before }
    }

    /// Reads bytes of a deleted file's contents from an offset on: their number, fewer only at its
    /// end. Bytes of lost ranges are whatever their blocks hold now.
    ///
    /// # Errors
    /// The contents are gone ([`Content::Gone`]), or the device failed.
    pub fn read(&self, file: &DeletedFile, offset: u64, buffer: &mut [u8]) -> Result<usize, Error> {
        let loaded = file.loaded.as_ref().ok_or(Error::NotFound)?;
        data::read(&self.past(file), loaded, offset, buffer)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_link(&self, file: &DeletedFile) -> Result<Vec<u8>, Error> {
        let loaded = file.loaded.as_ref().ok_or(Error::NotFound)?;
        symlink::target(&self.past(file), loaded)
    }
}

/// The search for deleted files.
struct Search<'a> {
    now: Past<'a>,
    homes: Vec<BlockNo>,
    /// Bitmaps of blocks, by group.
    used: HashMap<GroupNo, Vec<u8>>,
}

impl<'a> Search<'a> {
    fn new(reader: &'a Reader, copies: &'a LogCopies) -> Self {
        let now = Past { reader, copies, before: None };
        Self { now, homes: copies.homes(), used: HashMap::new() }
    }

    fn files(&mut self) -> Result<Vec<DeletedFile>, RescueError> {
        let mut owners = Owners::default();
        let directories = walk(self.now.reader, |dir| owners.add(&self.now, &self.homes, dir))?;
        let versions = self.versions()?;
        for version in versions.past.values().flatten().filter(|it| it.loaded.is_dir()) {
            owners.add(&self.just_after(version.commit), &self.homes, &version.loaded);
        }
        let names = old_names(&self.now, &owners, &self.homes, &versions.inline_dirs)?;
        let mut files = Vec::new();
        for (number, past) in &versions.past {
            let present = versions.present.get(number).copied();
            self.past_files(past, present, &names, &directories, &mut files);
        }
        self.free_inodes(&names, &directories, &mut files)?;
        let known: HashSet<InodeNo> = files.iter().map(|file| file.inode).collect();
        for (number, old) in &names {
            // Of an inode in use the name has moved.
            if known.contains(number) || self.now.reader.inode(*number).is_ok() {
                continue;
            }
            files.extend(
                old.last().map(|old| self.name_only(*number, directories.path(&names, old), old)),
            );
        }
        self.find_lost(&mut files);
        files.sort_by(|one, other| {
            let key = |it: &DeletedFile| (it.path.is_none(), it.path.clone(), it.inode);
            key(one).cmp(&key(other))
        });
        Ok(files)
    }

    /// The volume just after a commit, for the map of a directory.
    fn just_after(&self, commit: Commit) -> Past<'a> {
        let before = Some(Commit(commit.0 + 1));
        Past { reader: self.now.reader, copies: self.now.copies, before }
    }

    /// Reads the log's copies of inode tables.
    fn versions(&self) -> Result<Versions, RescueError> {
        let (reader, copies) = (self.now.reader, self.now.copies);
        let geometry = reader.geometry();
        let (per_block, size) = (geometry.inodes_per_block(), usize::from(geometry.inode_size));
        let mut found = Versions::default();
        let mut in_use: HashMap<InodeNo, Option<u32>> = HashMap::new();
        for group in (0..geometry.groups_count).map(GroupNo) {
            let Ok(desc) = reader.group_desc(group) else { continue };
            let table = desc.inode_table;
            let from = self.homes.partition_point(|home| *home < table);
            let end = table.0 + u64::from(geometry.itable_blocks());
            for home in self.homes[from..].iter().take_while(|home| home.0 < end) {
                // Below the group's number of inodes.
                let index = (home.0 - table.0) as u32 * per_block;
                let first = group.0 * geometry.inodes_per_group + index + 1;
                for (commit, copy) in copies.of(*home) {
                    let bytes = copies.bytes(copy)?;
                    for (record, number) in bytes.chunks_exact(size).zip(first..) {
                        let number = InodeNo(number);
                        let Some(loaded) = self.decoded(record, number) else { continue };
                        if loaded.is_dir() && loaded.is_inline() && loaded.links > 0 {
                            found.inline_dirs.push((*commit, loaded.clone()));
                        }
                        let now = *in_use.entry(number).or_insert_with(|| {
                            reader.inode(number).ok().map(|inode| inode.generation)
                        });
                        if now == Some(loaded.generation) {
                            found.present.entry(number).or_insert(*commit);
                            continue;
                        }
                        let versions = found.past.entry(number).or_default();
                        if versions.last().is_none_or(|last| last.loaded != loaded) {
                            versions.push(Version { commit: *commit, loaded });
                        }
                    }
                }
            }
        }
        Ok(found)
    }

    /// A record that was in use once.
    fn decoded(&self, record: &[u8], number: InodeNo) -> Option<LoadedInode> {
        let geometry = self.now.reader.geometry();
        if number < geometry.first_inode || record.iter().all(|byte| *byte == 0) {
            return None;
        }
        ondisk_inode::verify(record, number, geometry).ok()?;
        let inode = Inode::decode(record, number, geometry).ok()?;
        inode.file_type()?;
        let space = ondisk_inode::xattr_area(record, number, geometry).ok()?;
        let has_xattrs = space.first_chunk::<4>() == Some(&XATTR_MAGIC.to_le_bytes());
        let xattr_space = if has_xattrs { space.into() } else { Box::default() };
        Some(LoadedInode { number, inode, xattr_space })
    }

    /// The files that had an inode, one for each generation that was in use in a commit. `present`
    /// is the first commit in which the inode was that of the file which has it now.
    fn past_files(
        &self,
        versions: &[Version],
        present: Option<Commit>,
        names: &OldNames,
        directories: &Directories,
        files: &mut Vec<DeletedFile>,
    ) {
        let same =
            |one: &Version, other: &Version| one.loaded.generation == other.loaded.generation;
        let mut rest = versions;
        for versions in versions.chunk_by(same) {
            rest = &rest[versions.len()..];
            let Some(last) = versions.iter().rposition(|it| it.loaded.links > 0) else { continue };
            let dead = versions.get(last + 1).or(rest.first());
            let (version, number) = (&versions[last], versions[last].loaded.number);
            let before = dead.map(|dead| dead.commit).or(present);
            let first = versions[0].commit;
            let is_its = |old: &&OldName| {
                before.is_none_or(|before| old.seen < before)
                    && old.gone.is_none_or(|gone| gone >= first)
            };
            let old = names.get(&number).and_then(|names| names.iter().rfind(is_its));
            let path = old.and_then(|old| directories.path(names, old));
            // A stored time of deletion; the same field chains the inodes of the orphan list.
            let stored = dead.filter(|dead| dead.loaded.links == 0).map(|it| it.loaded.dtime);
            let stored = stored.filter(|time| *time > self.now.reader.geometry().inodes_count);
            let deleted = stored.map(i64::from);
            let deleted = deleted.or_else(|| self.now.copies.time(before?));
            files.push(DeletedFile {
                path,
                inode: number,
                attributes: Some(version.loaded.inode.clone()),
                deleted,
                content: Content::Whole,
                data: Vec::new(),
                is_certain: before.is_some_and(|it| self.now.copies.is_complete_from(it)),
                loaded: Some(version.loaded.clone()),
                before,
            });
        }
    }

    /// Free inodes whose records say that they were files, and of which the log has no more.
    fn free_inodes(
        &self,
        names: &OldNames,
        directories: &Directories,
        files: &mut Vec<DeletedFile>,
    ) -> Result<(), RescueError> {
        let reader = self.now.reader;
        let geometry = reader.geometry();
        let known: HashSet<InodeNo> = files.iter().map(|file| file.inode).collect();
        for group in (0..geometry.groups_count).map(GroupNo) {
            let Ok(desc) = reader.group_desc(group) else { continue };
            let Ok(bits) = reader.bitmap(group, BitmapKind::Inode) else { continue };
            let used = geometry.inodes_per_group.saturating_sub(desc.itable_unused);
            for index in (0..used).filter(|index| !bitmap::test(&bits, *index)) {
                let number = InodeNo(group.0 * geometry.inodes_per_group + index + 1);
                if number < geometry.first_inode || known.contains(&number) {
                    continue;
                }
                let Ok(loaded) = reader.any_inode(number) else { continue };
                if loaded.dtime == 0 || loaded.inode.file_type().is_none() {
                    continue;
                }
                let old = names.get(&number).and_then(|names| names.last());
                files.push(DeletedFile {
                    path: old.and_then(|old| directories.path(names, old)),
                    inode: number,
                    attributes: Some(loaded.inode.clone()),
                    deleted: Some(i64::from(loaded.dtime)),
                    content: Content::Gone,
                    is_certain: false,
                    data: Vec::new(),
                    loaded: None,
                    before: None,
                });
            }
        }
        Ok(())
    }

    fn name_only(&self, inode: InodeNo, path: Option<Vec<u8>>, old: &OldName) -> DeletedFile {
        DeletedFile {
            path,
            inode,
            attributes: None,
            deleted: old.gone.and_then(|gone| self.now.copies.time(gone)),
            content: Content::Gone,
            is_certain: false,
            data: Vec::new(),
            loaded: None,
            before: None,
        }
    }

    /// Finds which bytes of each file are in blocks that were used again: blocks in use now, and
    /// those of a file that was deleted later.
    fn find_lost(&mut self, files: &mut [DeletedFile]) {
        files.sort_by_key(|file| std::cmp::Reverse(file.before.map_or(usize::MAX, |it| it.0)));
        let mut taken = rangemap::RangeSet::new();
        for file in files {
            if file.content == Content::Gone {
                continue;
            }
            (file.content, file.data) = self.content(file, &mut taken);
        }
    }

    /// The state of a file's contents, and where its data are.
    fn content(
        &mut self,
        file: &DeletedFile,
        taken: &mut rangemap::RangeSet<u64>,
    ) -> (Content, Vec<Range<u64>>) {
        let gone = (Content::Gone, Vec::new());
        let Some(loaded) = &file.loaded else { return gone };
        let mut data = Vec::new();
        let geometry = self.now.reader.geometry().clone();
        if loaded.is_inline()
            || loaded.is_fast_symlink(&geometry)
            || !matches!(file.file_type(), Some(FileType::Regular | FileType::Symlink))
        {
            let all = 0..loaded.size.min(SMALL);
            return (Content::Whole, std::iter::once(all).collect());
        }
        let past = Past { before: file.before, ..self.now };
        let block_size = u64::from(geometry.block_size);
        let end = FileBlock(loaded.size.div_ceil(block_size));
        let (mut lost, mut mapped, mut runs) = (rangemap::RangeSet::new(), 0, 0);
        let mut own = Vec::new();
        for run in extents(&past, loaded.clone(), FileBlock(0), end) {
            let Ok(run) = run else { return gone };
            let MappingTarget::Written(start) = run.target else { continue };
            if !geometry.contains(start, run.len) {
                return gone;
            }
            let from = run.block.0 * block_size;
            data.push(from..(run.end().0 * block_size).min(loaded.size));
            mapped += run.len;
            runs += 1;
            own.push(start.0..start.0 + run.len);
            for block in start.0..start.0 + run.len {
                let was_metadata =
                    file.before.is_some_and(|it| past.copies.has_since(BlockNo(block), it));
                if was_metadata || taken.contains(&block) || self.is_used(BlockNo(block)) {
                    let at = (run.block.0 + (block - start.0)) * block_size;
                    lost.insert(at..(at + block_size).min(loaded.size));
                }
            }
        }
        // Nodes of the map and a block of attributes are counted too; with clusters much more.
        let counted = loaded.space(&geometry) / block_size;
        let others = 8 + runs + (mapped >> 8);
        if geometry.blocks_per_cluster == 1 && counted > mapped + others + unwritten(&past, loaded)
        {
            return gone;
        }
        taken.extend(own);
        match lost.is_empty() {
            true => (Content::Whole, data),
            false => (Content::Partly(lost.iter().cloned().collect()), data),
        }
    }

    /// Whether a block is in use now; also where that is not known.
    fn is_used(&mut self, block: BlockNo) -> bool {
        let geometry = self.now.reader.geometry();
        let Some(group) = geometry.group_of(block) else { return true };
        let bits = self.used.entry(group).or_insert_with(|| {
            // A group that cannot be read counts as used.
            let all = || vec![u8::MAX; geometry.block_len()];
            self.now.reader.bitmap(group, BitmapKind::Block).unwrap_or_else(|_| all())
        });
        let within =
            (block.0 - geometry.group_start(group).0) / u64::from(geometry.blocks_per_cluster);
        // Within a group.
        bitmap::test(bits, within as u32)
    }
}

/// Blocks of a file that read as zeros.
fn unwritten(past: &Past<'_>, file: &LoadedInode) -> u64 {
    let all = extents(past, file.clone(), FileBlock(0), FileBlock(u64::MAX));
    let unwritten = all.filter_map(Result::ok);
    let is_unwritten =
        |run: &extant_reader::Mapping| matches!(run.target, MappingTarget::Unwritten(_));
    unwritten.filter(is_unwritten).map(|run| run.len).sum()
}
