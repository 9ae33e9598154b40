//! Directories: looking up a name, and reading all of them.

use super::dir_block::{
    EntryLocation, EntryTarget, Wanted, block_kind, format, is_indexed, search_block, shown_name,
    written,
};
use super::htree;
use super::inline;
use super::inode::{LoadedInode, dir_blocks};
use super::mapping::{Mapping, map};
use crate::error::Error;
use crate::source::MetadataRead;
use extant_ondisk::dirent::{self, FileType, MAX_NAME_LEN};
use extant_ondisk::dx_hash::DirHasher;
use extant_ondisk::inline_data::InlineDir;
use extant_ondisk::{FileBlock, Flaw, InodeNo, Location};
use std::collections::VecDeque;

/// A name of a directory, as read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DirEntry {
    /// The file.
    pub inode: InodeNo,
    /// Its kind, where the directory stores it; else [`FileType::Unknown`].
    pub file_type: FileType,
    /// The name: any bytes but slash and zero. An encrypted one is in the form without a key
    /// ([`nokey_name`](super::nokey::nokey_name)).
    pub name: Vec<u8>,
    /// The position from which reading continues after this entry.
    pub cookie: u64,
}

/// The way of a lookup when a directory's index is broken.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum BrokenIndex {
    /// Returns the error, which names the location.
    #[default]
    Report,
    /// Searches all blocks of the directory, as the kernel does.
    Scan,
}

/// The comparison for a name of the directory.
fn wanted<'a, S: MetadataRead>(
    source: &S,
    dir: &LoadedInode,
    name: &'a [u8],
) -> Result<Wanted<'a>, Error> {
    if matches!(name, b"." | b"..") {
        return Ok(Wanted::Exact(name));
    }
    if dir.is_encrypted() {
        return Ok(Wanted::NoKey(name, shown_hasher(source, dir)?));
    }
    Ok(match source.info().casefold.filter(|_| dir.is_casefolded()) {
        Some(casefold) => Wanted::Folded(name, casefold),
        None => Wanted::Exact(name),
    })
}

/// Looks a name up: by the index where there is one, else through all blocks. In a directory with
/// the casefold flag names that differ in case only are one; in an encrypted one names are those
/// that [`ReadDir`] shows.
///
/// # Errors
/// [`Error::NotFound`], [`Error::NotADirectory`], [`Error::NameTooLong`], a broken directory, or
/// the device failed.
pub fn lookup<S: MetadataRead>(
    source: &S,
    dir: &LoadedInode,
    name: &[u8],
    on_broken_index: BrokenIndex,
) -> Result<EntryTarget, Error> {
    locate(source, dir, name, on_broken_index).map(|located| located.found)
}

/// As [`lookup`], with the place of the record.
///
/// # Errors
/// As [`lookup`].
pub fn locate<S: MetadataRead>(
    source: &S,
    dir: &LoadedInode,
    name: &[u8],
    on_broken_index: BrokenIndex,
) -> Result<EntryLocation, Error> {
    dir.as_dir()?;
    if name.len() > MAX_NAME_LEN {
        return Err(Error::NameTooLong);
    }
    let wanted = wanted(source, dir, name)?;
    if dir.is_inline() {
        return lookup_inline(source, dir, name, &wanted);
    }
    let by_index = match &wanted {
        _ if matches!(name, b"." | b"..") => false,
        Wanted::Exact(name) => is_indexed(source, dir) && !name.is_empty(),
        Wanted::Folded(..) => is_indexed(source, dir),
        Wanted::NoKey(..) => false,
    };
    let found = if by_index {
        match htree::lookup(source, dir, &wanted) {
            Err(error) if error.is_corruption() && on_broken_index == BrokenIndex::Scan => {
                tracing::warn!(dir = dir.number.0, %error, "broken index, all blocks are searched");
                lookup_linear(source, dir, &wanted)
            }
            other => other,
        }
    } else {
        lookup_linear(source, dir, &wanted)
    };
    found?.ok_or(Error::NotFound)
}

fn lookup_linear<S: MetadataRead>(
    source: &S,
    dir: &LoadedInode,
    wanted: &Wanted<'_>,
) -> Result<Option<EntryLocation>, Error> {
    let format = format(source, dir);
    let mut blocks = DirBlocks::new(source, dir, FileBlock(0))?;
    let mut bad_block = None;
    loop {
        let searched = match blocks.next(source, dir) {
            Ok(Some((at, bytes))) => search_block(&format, &bytes, at, wanted),
            Ok(None) => return bad_block.map_or(Ok(None), Err),
            Err(error) => Err(error),
        };
        match searched {
            Ok(None) => {}
            // The name may be in this block, or in one after it.
            Err(error) if error.is_corruption() => bad_block = bad_block.or(Some(error)),
            searched => return searched,
        }
    }
}

fn lookup_inline<S: MetadataRead>(
    source: &S,
    dir: &LoadedInode,
    name: &[u8],
    wanted: &Wanted<'_>,
) -> Result<EntryLocation, Error> {
    let rest = inline::inline_data(source, dir)?.unwrap_or_default();
    let inline = InlineDir::decode(&format(source, dir), &dir.i_block, &rest, dir.size)?;
    let itself = |inode| {
        let found = EntryTarget { inode, file_type: FileType::Directory };
        EntryLocation { found, place: None, before: 0 }
    };
    match name {
        b"." => return Ok(itself(dir.number)),
        b".." => return Ok(itself(checked_inode(source, dir, inline.parent)?)),
        _ => {}
    }
    // Positions start from 0 again in the second part.
    let (mut part, mut last) = (0, 0);
    for entry in inline.entries() {
        let entry = entry?;
        if entry.at < last {
            part += 1;
        }
        last = entry.at + 1;
        if wanted.is(&entry)
            && let Some(inode) = entry.inode
        {
            let inode = checked_inode(source, dir, inode)?;
            let found = EntryTarget { inode, file_type: entry.file_type };
            let place = Some((FileBlock(part), entry.at));
            return Ok(EntryLocation { found, place, before: entry.before });
        }
    }
    Err(Error::NotFound)
}

/// Records of inline directories are not in a block that was checked for this.
fn checked_inode<S: MetadataRead>(
    source: &S,
    dir: &LoadedInode,
    inode: InodeNo,
) -> Result<InodeNo, Error> {
    let limit = source.geometry().inodes_count;
    if inode.0 == 0 || inode.0 > limit {
        let flaw = Flaw::bad_value("inode", inode.0);
        return Err(flaw.at(Location::InlineData(dir.number)).into());
    }
    Ok(inode)
}

/// The hash function whose values are part of the names that an encrypted directory shows, as the
/// kernel chooses it: that of the index, or of the volume for directories of one block. None where
/// records store their hashes.
fn shown_hasher<S: MetadataRead>(
    source: &S,
    dir: &LoadedInode,
) -> Result<Option<DirHasher>, Error> {
    if dir.is_casefolded() || !source.has_dir_index() {
        return Ok(None);
    }
    if is_indexed(source, dir) {
        return htree::hasher(source, dir).map(Some);
    }
    let is_short = dir.is_inline() || dir.size == u64::from(source.geometry().block_size);
    Ok(source.info().default_hasher.filter(|_| is_short))
}

/// The blocks of a directory one after the other, each run mapped once. After an error of a block
/// the next call yields the block after it, or after the hole; a broken map ends the walk.
#[derive(Debug)]
pub struct DirBlocks {
    next: u64,
    end: u64,
    run: Option<Mapping>,
    /// Blocks that may still be met: a directory has no more than the volume.
    budget: u64,
}

impl DirBlocks {
    /// The blocks from `from` on.
    ///
    /// # Errors
    /// A size that no directory has.
    pub fn new<S: MetadataRead>(
        source: &S,
        dir: &LoadedInode,
        from: FileBlock,
    ) -> Result<Self, Error> {
        let end = dir_blocks(source, dir)?.0;
        Ok(Self { next: from.0, end, run: None, budget: source.geometry().blocks_count })
    }

    /// The next block; `None` after the last.
    ///
    /// # Errors
    /// A corrupt block, a hole, a broken map, or the device failed.
    pub fn next<S: MetadataRead>(
        &mut self,
        source: &S,
        dir: &LoadedInode,
    ) -> Result<Option<(FileBlock, S::Block)>, Error> {
        if self.next >= self.end {
            return Ok(None);
        }
        let at = FileBlock(self.next);
        // An error of the map would repeat for each block below the same node.
        self.next = self.end;
        self.budget = self.budget.checked_sub(1).ok_or_else(|| {
            Flaw::Rule("directory has more blocks than the volume").at(Location::Inode(dir.number))
        })?;
        let run = match self.run.filter(|run| run.block <= at && at < run.end()) {
            Some(run) => run,
            None => *self.run.insert(map(source, dir, at)?),
        };
        let place = written(&run, dir, at);
        self.next = if place.is_ok() { at.0 + 1 } else { run.end().0 };
        let bytes = source.metadata(place?, block_kind(source, dir, at))?;
        Ok(Some((at, bytes)))
    }
}

/// The entries of a directory, `.` and `..` too. A block that cannot be read, and an entry with an
/// invalid name, is an error in its place, and reading continues after it; a broken map ends it.
///
/// A cookie stays good as long as its block keeps its records; on a volume that is only read,
/// always.
#[derive(Debug)]
pub struct ReadDir<'s, S> {
    source: &'s S,
    dir: LoadedInode,
    form: NameForm,
    /// Entries up to this cookie were read before.
    after: u64,
    blocks: Option<DirBlocks>,
    waiting: VecDeque<Result<DirEntry, Error>>,
}

#[derive(Debug)]
enum NameForm {
    Plain,
    NoKey(Option<DirHasher>),
}

/// Bits of a cookie for the place in a block, in units of 4 bytes.
const PLACE_BITS: u32 = 16;

/// The position after a record: reading continues from there.
fn cookie(block: u64, end: usize) -> u64 {
    // A block has at most 65,536 bytes.
    block << PLACE_BITS | (end / 4) as u64
}

/// Reads a directory from a cookie on; 0 is its start.
///
/// # Errors
/// [`Error::NotADirectory`], a size that no directory has, or broken inline data.
pub fn read_dir<S: MetadataRead>(
    source: &S,
    dir: LoadedInode,
    from: u64,
) -> Result<ReadDir<'_, S>, Error> {
    dir.as_dir()?;
    let form = if dir.is_encrypted() {
        NameForm::NoKey(shown_hasher(source, &dir)?)
    } else {
        NameForm::Plain
    };
    let mut reader =
        ReadDir { source, dir, form, after: from, blocks: None, waiting: VecDeque::new() };
    if reader.dir.is_inline() {
        reader.take_inline()?;
    } else {
        let first = FileBlock(from >> PLACE_BITS);
        reader.blocks = Some(DirBlocks::new(source, &reader.dir, first)?);
    }
    Ok(reader)
}

impl<S: MetadataRead> ReadDir<'_, S> {
    /// The directory.
    pub fn dir(&self) -> &LoadedInode {
        &self.dir
    }

    fn take_inline(&mut self) -> Result<(), Error> {
        let rest = inline::inline_data(self.source, &self.dir)?.unwrap_or_default();
        let format = format(self.source, &self.dir);
        let inline = InlineDir::decode(&format, &self.dir.i_block, &rest, self.dir.size)?;
        let parent = checked_inode(self.source, &self.dir, inline.parent)?;
        let mut found = VecDeque::new();
        // In a block the two would end at bytes 12 and 24.
        for (inode, name, end) in [(self.dir.number, &b"."[..], 12), (parent, b"..", 24)] {
            let (name, cookie) = (name.to_vec(), cookie(0, end));
            let entry = DirEntry { inode, file_type: FileType::Directory, name, cookie };
            found.extend(Some(entry).filter(|entry| entry.cookie > self.after).map(Ok));
        }
        // Positions start from 0 again in the second part.
        let (mut part, mut last) = (1, 0);
        for entry in inline.entries() {
            let entry = entry?;
            if entry.at < last {
                part += 1;
            }
            last = entry.at + 1;
            if let Some(inode) = entry.inode {
                checked_inode(self.source, &self.dir, inode)?;
            }
            found.extend(self.shown(&entry, FileBlock(part)));
        }
        self.waiting = found;
        Ok(())
    }

    fn take_block(&mut self, at: FileBlock, bytes: &[u8]) -> Result<(), Error> {
        let format = format(self.source, &self.dir);
        for entry in format.entries(bytes, at) {
            let shown = self.shown(&entry?, at);
            self.waiting.extend(shown);
        }
        Ok(())
    }

    /// The entry as shown; `None` for free space, and for one that was read before. A name with a
    /// slash or a zero byte is invalid: a program that copies the tree would write outside it.
    fn shown(
        &self,
        entry: &dirent::DirEntry<'_>,
        block: FileBlock,
    ) -> Option<Result<DirEntry, Error>> {
        let inode = entry.inode?;
        let cookie = cookie(block.0, entry.at + entry.rec_len);
        if cookie <= self.after {
            return None;
        }
        let name = match &self.form {
            NameForm::NoKey(hasher) if !entry.is_dot() => shown_name(entry, hasher.as_ref()),
            _ if entry.name.iter().any(|byte| matches!(byte, 0 | b'/')) => {
                let place = Location::DirEntry(self.dir.number, block, entry.at as u32);
                let rule = Flaw::Rule("file name has a slash or NUL byte");
                return Some(Err(rule.at(place).into()));
            }
            _ => entry.name.to_vec(),
        };
        Some(Ok(DirEntry { inode, file_type: entry.file_type, name, cookie }))
    }
}

impl<S: MetadataRead> Iterator for ReadDir<'_, S> {
    type Item = Result<DirEntry, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(found) = self.waiting.pop_front() {
                return Some(found);
            }
            let next = self.blocks.as_mut()?.next(self.source, &self.dir);
            let taken = match next.transpose()? {
                Ok((at, bytes)) => self.take_block(at, &bytes),
                Err(error) => Err(error),
            };
            if let Err(error) = taken {
                return Some(Err(error));
            }
        }
    }
}
