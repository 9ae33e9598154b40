//! Directories entry by entry, with what was removed from them, and paths.

use std::ops::ControlFlow;

use extant_ondisk::dirent::{DirFormat, HEADER_LEN};
use extant_ondisk::htree::{HtreeFormat, IndexKind};
use extant_ondisk::inode::{FileType, InodeFlags};
use extant_ondisk::{BlockNo, FileBlock, IncompatFeatures, InodeNo};

use super::{DebugError, DebugVolume, MapStep, RawRecord};

/// Symlinks that are followed on the way to a file.
const MAX_LINKS: u32 = 40;
/// Bytes of the tail of a directory block with a checksum.
const TAIL_LEN: usize = 12;
/// The file type of that tail.
const TAIL_TYPE: u8 = 0xde;
/// Bytes of `i_block` that name the parent of an inline directory.
const PARENT_LEN: usize = 4;

/// Entries that a walk over a directory visits in addition to those in use.
#[derive(Clone, Copy, Debug, Default)]
pub struct DirWalk {
    /// Entries without an inode.
    pub with_empty: bool,
    /// Entries that were removed and whose bytes are still there.
    pub with_removed: bool,
    /// Checksums of blocks, as entries without an inode.
    pub with_checksums: bool,
}

/// An entry of a directory, as stored.
#[derive(Clone, Copy, Debug)]
pub struct DirItem<'a> {
    /// The inode; 0 for none.
    pub inode: u32,
    /// Length of the entry in bytes.
    pub rec_len: usize,
    /// The name.
    pub name: &'a [u8],
    /// The stored file type.
    pub file_type: u8,
    /// Whether it is in the space of another entry: it was removed.
    pub is_removed: bool,
    /// The checksum of the block, where this is the tail that has it.
    pub checksum: Option<u32>,
    /// The logical block; 0 in an inline directory.
    pub logical: u64,
    /// The physical block; 0 in an inline directory.
    pub physical: u64,
    /// The byte in its block at which the entry begins.
    pub offset: usize,
}

type Visit<'a> = &'a mut dyn FnMut(&DirItem<'_>) -> ControlFlow<()>;

impl DebugVolume {
    /// Calls `visit` for every entry of a directory until it breaks off.
    ///
    /// # Errors
    /// It is not a directory, a block cannot be read, its checksum is wrong, or an entry has an
    /// impossible length.
    pub fn walk_dir(
        &self,
        record: &RawRecord,
        walk: DirWalk,
        visit: Visit<'_>,
    ) -> Result<(), DebugError> {
        if !record.is_dir() {
            return Err(DebugError::NotADirectory);
        }
        if record.is_inline() {
            return self.walk_inline_dir(record, walk, visit);
        }
        let mut outcome = Ok(());
        let walked = self.walk_blocks(record, &mut |piece| {
            let MapStep::Data { logical, start, len, .. } = piece else {
                return ControlFlow::Continue(());
            };
            for at in 0..len {
                let place = (logical + at, start.saturating_add(at));
                match self.walk_dir_block(record, place, walk, visit) {
                    Ok(ControlFlow::Continue(())) => {}
                    Ok(ControlFlow::Break(())) => return ControlFlow::Break(()),
                    Err(error) => {
                        outcome = Err(error);
                        return ControlFlow::Break(());
                    }
                }
            }
            ControlFlow::Continue(())
        });
        outcome.and(walked)
    }

    /// The same for the bytes of one block.
    ///
    /// # Errors
    /// An entry has an impossible length.
    pub fn walk_dir_bytes(
        &self,
        bytes: &[u8],
        walk: DirWalk,
        visit: Visit<'_>,
    ) -> Result<(), DebugError> {
        self.walk_part(bytes, (0, 0, 0), walk, visit).map(drop)
    }

    /// The format of a directory's blocks.
    pub fn dir_format(&self, record: &RawRecord) -> DirFormat {
        DirFormat::new(self.geometry(), record.number, record.base().i_generation.get())
    }

    /// Whether the checksum of a directory block is right; of a block of the index too.
    fn dir_block_is_right(&self, record: &RawRecord, logical: u64, bytes: &[u8]) -> bool {
        let format = self.dir_format(record);
        let is_indexed = record.flags().contains(InodeFlags::INDEX);
        let is_root = is_indexed && logical == 0; // with the tail of the leaf that it was
        if format.has_tail(bytes) && !is_root {
            return format.verify(bytes, FileBlock(logical)).is_ok();
        }
        let generation = record.base().i_generation.get();
        let index = HtreeFormat::new(self.geometry(), record.number, generation);
        let kind = if logical == 0 { IndexKind::Root } else { IndexKind::Node };
        is_indexed && index.verify(bytes, FileBlock(logical), kind).is_ok()
    }

    fn walk_dir_block(
        &self,
        record: &RawRecord,
        (logical, physical): (u64, u64),
        walk: DirWalk,
        visit: Visit<'_>,
    ) -> Result<ControlFlow<()>, DebugError> {
        let bytes = self.block(BlockNo(physical))?;
        if self.verifies
            && self.geometry().has_metadata_csum()
            && !self.dir_block_is_right(record, logical, &bytes)
        {
            return Err(DebugError::DirectoryChecksum);
        }
        self.walk_part(&bytes, (logical, physical, 0), walk, visit)
    }

    fn walk_inline_dir(
        &self,
        record: &RawRecord,
        walk: DirWalk,
        visit: Visit<'_>,
    ) -> Result<(), DebugError> {
        let data = self.inline_data(record)?;
        let (parent, rest) = data.split_first_chunk().ok_or(DebugError::DirectoryCorrupted)?;
        let dots: [(u32, &[u8]); 2] =
            [(record.number.0, b"."), (u32::from_le_bytes(*parent), b"..")];
        for (index, (inode, name)) in dots.into_iter().enumerate() {
            let item = DirItem {
                inode,
                rec_len: 12,
                name,
                file_type: 0,
                is_removed: false,
                checksum: None,
                logical: 0,
                physical: 0,
                offset: index * 12,
            };
            if visit(&item).is_break() {
                return Ok(());
            }
        }
        let in_i_block = extant_ondisk::inode::I_BLOCK_SIZE - PARENT_LEN;
        let (first, second) = rest.split_at(in_i_block.min(rest.len()));
        for (part, start) in [(first, PARENT_LEN), (second, 0)] {
            if self.walk_part(part, (0, 0, start), walk, visit)?.is_break() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The entries of a block, or of a part of an inline directory.
    fn walk_part(
        &self,
        bytes: &[u8],
        (logical, physical, base): (u64, u64, usize),
        walk: DirWalk,
        visit: Visit<'_>,
    ) -> Result<ControlFlow<()>, DebugError> {
        let mut at = 0;
        while at + HEADER_LEN <= bytes.len() {
            let (item, taken) = self.item_at(bytes, at).ok_or(DebugError::DirectoryCorrupted)?;
            let place = |item: DirItem<'_>, at: usize, is_removed: bool| {
                let item = DirItem { logical, physical, offset: base + at, is_removed, ..item };
                visit(&item)
            };
            let mut place = place;
            let is_wanted = match (item.inode, item.checksum) {
                (_, Some(_)) => walk.with_checksums,
                (0, None) => walk.with_empty,
                _ => true,
            };
            if is_wanted && place(item, at, false).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            let end = at + item.rec_len;
            if walk.with_removed && item.checksum.is_none() {
                let mut inner = at + taken;
                while let Some((removed, taken)) = self.removed_at(&bytes[..end], inner) {
                    if place(removed, inner, true).is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                    inner += taken;
                }
            }
            at = end;
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Bytes in the space after an entry that look like another one.
    fn removed_at<'a>(&self, bytes: &'a [u8], at: usize) -> Option<(DirItem<'a>, usize)> {
        let (item, taken) = self.item_at(bytes, at)?;
        let is_entry = item.inode != 0 && !item.name.is_empty() && item.checksum.is_none();
        is_entry.then_some((item, taken))
    }

    /// An entry and the bytes that it needs; `None` for impossible lengths.
    fn item_at<'a>(&self, bytes: &'a [u8], at: usize) -> Option<(DirItem<'a>, usize)> {
        let rest = bytes.get(at..)?;
        let header = rest.first_chunk::<HEADER_LEN>()?;
        let half = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
        let inode = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        let rec_len = self.rec_len(half(4));
        let has_types = self.geometry().has_incompat(IncompatFeatures::FILETYPE);
        let (name_len, file_type) = match has_types {
            true => (usize::from(header[6]), header[7]),
            false => (usize::from(half(6)), 0),
        };
        let is_tail = inode == 0
            && rec_len == TAIL_LEN
            && header[6] == 0
            && header[7] == TAIL_TYPE
            && rest.len() == TAIL_LEN
            && self.geometry().has_metadata_csum();
        let is_possible = rec_len >= HEADER_LEN && rec_len.is_multiple_of(4);
        if !is_possible || rec_len > rest.len() {
            return None;
        }
        if is_tail {
            let sum = rest.last_chunk::<4>().map(|sum| u32::from_le_bytes(*sum));
            let item = DirItem { checksum: sum, ..blank(rec_len) };
            return Some((item, TAIL_LEN));
        }
        let name = rest[HEADER_LEN..rec_len].get(..name_len)?;
        let item = DirItem { inode, name, file_type, ..blank(rec_len) };
        Some((item, (HEADER_LEN + name_len).next_multiple_of(4)))
    }

    fn rec_len(&self, stored: u16) -> usize {
        let (wide, whole) = (usize::from(stored), self.geometry().block_len());
        match stored {
            _ if whole <= usize::from(u16::MAX) => wide,
            0 | u16::MAX => whole,
            _ => wide & 0xfffc | (wide & 3) << 16,
        }
    }

    /// The inode of a name in a directory.
    ///
    /// # Errors
    /// [`DebugError::NotFound`], and those of [`Self::walk_dir`].
    pub fn lookup(&self, dir: InodeNo, name: &[u8]) -> Result<InodeNo, DebugError> {
        let record = self.inode(dir)?;
        let mut found = None;
        let walked = self.walk_dir(&record, DirWalk::default(), &mut |item| {
            if item.name != name {
                return ControlFlow::Continue(());
            }
            found = Some(InodeNo(item.inode));
            ControlFlow::Break(())
        });
        match found {
            Some(inode) => Ok(inode),
            None => walked.and(Err(DebugError::NotFound)),
        }
    }

    /// The inode of a path. Symlinks on the way are followed; the last name is not.
    ///
    /// # Errors
    /// As [`Self::lookup`].
    pub fn resolve(&self, root: InodeNo, cwd: InodeNo, path: &[u8]) -> Result<InodeNo, DebugError> {
        let mut links = 0;
        self.resolve_from(root, cwd, path, &mut links)
    }

    fn resolve_from(
        &self,
        root: InodeNo,
        cwd: InodeNo,
        path: &[u8],
        links: &mut u32,
    ) -> Result<InodeNo, DebugError> {
        let mut at = if path.starts_with(b"/") { root } else { cwd };
        let mut names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).peekable();
        while let Some(name) = names.next() {
            if name == b".." && at == root {
                continue;
            }
            let dir = at;
            at = self.lookup(dir, name)?;
            if names.peek().is_none() {
                break;
            }
            let record = self.inode(at)?;
            if record.file_type() == Some(FileType::Symlink) {
                *links += 1;
                if *links > MAX_LINKS {
                    return Err(DebugError::NotFound);
                }
                let target = self.link_target(&record)?;
                at = self.resolve_from(root, dir, &target, links)?;
            }
        }
        Ok(at)
    }

    /// The name of an inode in a directory.
    ///
    /// # Errors
    /// As [`Self::walk_dir`].
    pub fn name_in(&self, dir: InodeNo, inode: InodeNo) -> Result<Option<Vec<u8>>, DebugError> {
        let record = self.inode(dir)?;
        let mut found = None;
        self.walk_dir(&record, DirWalk::default(), &mut |item| {
            if item.inode != inode.0 || item.name == b"." || item.name == b".." {
                return ControlFlow::Continue(());
            }
            found = Some(item.name.to_vec());
            ControlFlow::Break(())
        })?;
        Ok(found)
    }

    /// The path of a directory from the root, by the names in its parents. What cannot be found
    /// out is `...`, as in e2fsprogs.
    pub fn path_of(&self, dir: InodeNo) -> Vec<u8> {
        let mut names = Vec::new();
        let mut at = dir;
        for _ in 0..MAX_LINKS {
            if at == InodeNo::ROOT {
                break;
            }
            let parent = self.lookup(at, b"..").ok();
            let name = parent.and_then(|parent| self.name_in(parent, at).ok().flatten());
            match (parent, name) {
                (Some(parent), Some(name)) if parent != at => {
                    names.push(name);
                    at = parent;
                }
                _ => {
                    names.push(b"...".to_vec());
                    break;
                }
            }
        }
        if names.is_empty() {
            return b"/".to_vec();
        }
        names.iter().rev().flat_map(|name| [b"/", &name[..]].concat()).collect()
    }
}

fn blank<'a>(rec_len: usize) -> DirItem<'a> {
    DirItem {
        inode: 0,
        rec_len,
        name: &[],
        file_type: 0,
        is_removed: false,
        checksum: None,
        logical: 0,
        physical: 0,
        offset: 0,
    }
}
