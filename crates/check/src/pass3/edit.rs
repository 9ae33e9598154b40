//! Changing directories: a new `..`, a new entry, a new block, a new inode.

use crate::context::Check;
use crate::recount;
use crate::report::VolumeStatistics;
use crate::store::CheckError;
use crate::tables::{DirFlags, DirInfo, Kind, Mark};
use extant_ondisk::dirent::{DirEntry, DirFormat, FileType, NewEntry};
use extant_ondisk::extent::{OwnedNode, ROOT_SIZE};
use extant_ondisk::group_desc::GroupFlags;
use extant_ondisk::htree::HtreeFormat;
use extant_ondisk::inode::{Inode, InodeFlags};
use extant_ondisk::time::Timestamp;
use extant_ondisk::{BlockNo, FileBlock, GroupNo, IncompatFeatures, InodeNo};

/// Offset of the record of a name.
fn find(format: &DirFormat, bytes: &[u8], is_it: &dyn Fn(&DirEntry<'_>) -> bool) -> Option<usize> {
    let mut entries = format.entries(bytes, FileBlock(0)).map_while(Result::ok);
    entries.find(|entry| entry.is_used() && is_it(entry)).map(|entry| entry.at)
}

impl Check<'_> {
    /// Points `..` of a directory elsewhere.
    pub(super) fn set_dotdot(&self, ino: InodeNo, parent: InodeNo) -> Result<(), CheckError> {
        let Some(dir) = self.dirs.get(ino) else { return Ok(()) };
        let mut record = self.record(ino)?;
        if dir.has(DirFlags::INLINE) {
            if let Some((mut first, second)) = self.inline_content(&record, ino)? {
                first[..4].copy_from_slice(&parent.0.to_le_bytes());
                self.write_inline(ino, &mut record, &first, &second)?;
            }
            return Ok(());
        }
        let Ok(inode) = Inode::decode(&record, ino, self.geometry) else { return Ok(()) };
        let map = self.read_map(ino, &inode)?;
        let Some(block) = map.physical(0) else { return Ok(()) };
        let mut bytes = self.store.read(block)?;
        // The second record, wherever the first one ends.
        let format = self.dir_format(dir);
        let Some(second) = format.entries(&bytes, FileBlock(0)).flatten().nth(1) else {
            return Ok(());
        };
        if second.name != b".." {
            return Ok(());
        }
        let at = second.at;
        bytes[at..at + 4].copy_from_slice(&parent.0.to_le_bytes());
        self.seal_first(dir, &mut bytes);
        self.store.write(block, &bytes)
    }

    /// Seals a directory's first block, which may be an index's root: the kernel leaves the tail of
    /// the leaf in it that it was.
    fn seal_first(&self, dir: &DirInfo, bytes: &mut [u8]) {
        let format = self.dir_format(dir);
        if let Some(kind) = self.index_kind(dir, 0, bytes) {
            let htree = HtreeFormat {
                checksum_seed: format.checksum_seed,
                ..HtreeFormat::new(self.geometry, dir.inode, 0)
            };
            htree.seal(bytes, kind);
        } else if format.has_tail(bytes) {
            format.seal(bytes);
        }
    }

    /// Adds an entry to a directory, in a new block if no other has room. False on a full volume.
    /// An index does not cover the new entry: it is cleared.
    pub(crate) fn add_entry(
        &self,
        to: InodeNo,
        name: &[u8],
        ino: InodeNo,
        file_type: FileType,
    ) -> Result<bool, CheckError> {
        self.insert_entry(to, &NewEntry::new(ino, file_type, name))
    }

    /// The same with an entry as it is stored.
    pub(super) fn insert_entry(
        &self,
        to: InodeNo,
        entry: &NewEntry<'_>,
    ) -> Result<bool, CheckError> {
        let Some(dir) = self.dirs.get(to) else { return Ok(false) };
        let format = self.dir_format(dir);
        let mut record = self.record(to)?;
        if dir.has(DirFlags::INLINE) {
            let Some((mut first, mut second)) = self.inline_content(&record, to)? else {
                return Ok(false);
            };
            let fits =
                format.inline(56).insert(&mut first[4..], FileBlock(0), entry).unwrap_or(false)
                    || !second.is_empty()
                        && format
                            .inline(second.len())
                            .insert(&mut second, FileBlock(1), entry)
                            .unwrap_or(false);
            if fits {
                self.write_inline(to, &mut record, &first, &second)?;
                return Ok(true);
            }
            return self.spill_inline(to, &mut record, &first, &second, entry);
        }
        let Ok(mut inode) = Inode::decode(&record, to, self.geometry) else { return Ok(false) };
        let map = self.read_map(to, &inode)?;
        let is_indexed = inode.flags.contains(InodeFlags::INDEX);
        for (at, block) in map.blocks() {
            if is_indexed && at == 0 {
                continue;
            }
            let mut bytes = self.store.read(block)?;
            if format.checksum_seed.is_some() && !format.has_tail(&bytes) {
                continue; // a node of the index
            }
            if format.insert(&mut bytes, FileBlock(at), entry).unwrap_or(false) {
                format.seal(&mut bytes);
                self.store.write(block, &bytes)?;
                if is_indexed {
                    dir.set(DirFlags::REBUILD);
                }
                return Ok(true);
            }
        }
        // A new block after the last.
        let at = u32::try_from(map.end()).unwrap_or(u32::MAX);
        let Some(block) = self.fill_hole(dir, at)? else { return Ok(false) };
        let mut bytes = self.store.read(block)?;
        if format.insert(&mut bytes, FileBlock(map.end()), entry).unwrap_or(false) {
            format.seal(&mut bytes);
            self.store.write(block, &bytes)?;
        }
        if is_indexed {
            record = self.record(to)?;
            if let Ok(changed) = Inode::decode(&record, to, self.geometry) {
                inode = changed;
            }
            dir.set(DirFlags::REBUILD);
            inode.encode_into(&mut record, self.geometry);
            self.store.write_inode(to, &mut record)?;
        }
        Ok(true)
    }

    /// The name of an entry that `is_it` selects.
    pub(crate) fn name_of(
        &self,
        from: InodeNo,
        is_it: &dyn Fn(&DirEntry<'_>) -> bool,
    ) -> Result<Option<Vec<u8>>, CheckError> {
        let mut found = None;
        self.for_entries(from, &mut |entry| {
            if found.is_none() && is_it(entry) {
                found = Some(entry.name.to_vec());
            }
        })?;
        Ok(found)
    }

    /// Visits the entries of a directory, those of each block up to one that is broken.
    pub(super) fn for_entries(
        &self,
        of: InodeNo,
        visit: &mut dyn FnMut(&DirEntry<'_>),
    ) -> Result<(), CheckError> {
        let Some(dir) = self.dirs.get(of) else { return Ok(()) };
        let format = self.dir_format(dir);
        let record = self.record(of)?;
        let mut visit_part = |format: &DirFormat, bytes: &[u8]| {
            let entries = format.entries(bytes, FileBlock(0)).map_while(Result::ok);
            entries.filter(DirEntry::is_used).for_each(|entry| visit(&entry));
        };
        if dir.has(DirFlags::INLINE) {
            let Some((first, second)) = self.inline_content(&record, of)? else { return Ok(()) };
            for part in [&first[4..], &second] {
                visit_part(&format.inline(part.len()), part);
            }
            return Ok(());
        }
        let Ok(inode) = Inode::decode(&record, of, self.geometry) else { return Ok(()) };
        for (_, block) in self.read_map(of, &inode)?.blocks() {
            visit_part(&format, &self.store.read(block)?);
        }
        Ok(())
    }

    /// Frees the entry of a name that `is_it` selects.
    pub(crate) fn remove_entry(
        &self,
        from: InodeNo,
        is_it: &dyn Fn(&DirEntry<'_>) -> bool,
    ) -> Result<(), CheckError> {
        let Some(dir) = self.dirs.get(from) else { return Ok(()) };
        let format = self.dir_format(dir);
        let mut record = self.record(from)?;
        if dir.has(DirFlags::INLINE) {
            let Some((mut first, mut second)) = self.inline_content(&record, from)? else {
                return Ok(());
            };
            for part in [&mut first[4..], &mut second[..]] {
                let format = format.inline(part.len());
                let found = find(&format, part, is_it);
                if let Some(at) = found {
                    part[at..at + 4].fill(0);
                }
            }
            return self.write_inline(from, &mut record, &first, &second);
        }
        let Ok(inode) = Inode::decode(&record, from, self.geometry) else { return Ok(()) };
        for (_, block) in self.read_map(from, &inode)?.blocks() {
            let mut bytes = self.store.read(block)?;
            if let Some(at) = find(&format, &bytes, is_it) {
                bytes[at..at + 4].fill(0);
                format.seal(&mut bytes);
                return self.store.write(block, &bytes);
            }
        }
        Ok(())
    }

    /// Moves a directory out of its inode into a block, with one more entry.
    fn spill_inline(
        &self,
        to: InodeNo,
        record: &mut [u8],
        first: &[u8; 60],
        second: &[u8],
        entry: &NewEntry<'_>,
    ) -> Result<bool, CheckError> {
        let Some(dir) = self.dirs.get(to) else { return Ok(false) };
        let format = self.dir_format(dir);
        let Ok(mut inode) = Inode::decode(record, to, self.geometry) else { return Ok(false) };
        let Some(block) = self.allocate_block(BlockNo(0))? else { return Ok(false) };
        let parent = InodeNo(u32::from_le_bytes([first[0], first[1], first[2], first[3]]));
        let mut bytes = vec![0; self.geometry.block_len()];
        let mut packer = format.packer(&mut bytes);
        packer.push(&NewEntry::new(to, FileType::Directory, b"."));
        packer.push(&NewEntry::new(parent, FileType::Directory, b".."));
        for (at, part) in [&first[4..], second].into_iter().enumerate() {
            let entries = format
                .inline(part.len())
                .entries(part, FileBlock(at as u64))
                .flatten()
                .collect::<Vec<_>>();
            for old in entries {
                if let Some(target) = old.inode {
                    packer.push(&NewEntry::new(target, old.file_type, old.name));
                }
            }
        }
        packer.push(entry);
        packer.finish();
        format.seal(&mut bytes);
        self.store.write(block, &bytes)?;
        let mut set = extant_ondisk::xattr::XattrSet::default();
        if let Ok(space) = extant_ondisk::inode::xattr_area(record, to, self.geometry)
            && let Ok(entries) = extant_ondisk::xattr::decode_inode(space, to, self.geometry)
        {
            set = extant_ondisk::xattr::XattrSet::of(entries);
        }
        set.remove(&extant_ondisk::xattr::XattrName::inline_data());
        let start = 128 + usize::from(inode.extra_isize);
        let _ = extant_ondisk::xattr::encode_inode(set.entries.iter(), &mut record[start..]);
        inode.flags.remove(InodeFlags::INLINE_DATA);
        inode.size = u64::from(self.geometry.block_size);
        self.map_one_block(to, &mut inode, block)?;
        inode.encode_into(record, self.geometry);
        self.store.write_inode_ordered(to, record);
        dir.unset(DirFlags::INLINE);
        Ok(true)
    }

    /// Gives an inode without a map one block.
    fn map_one_block(
        &self,
        ino: InodeNo,
        inode: &mut Inode,
        block: BlockNo,
    ) -> Result<(), CheckError> {
        self.clear_map(inode);
        let old = crate::map::FileMap::default();
        let mut new = old.clone();
        new.set(0, block);
        inode.blocks = 0;
        self.write_map(ino, inode, &old, &new)?;
        Ok(())
    }

    /// A free inode within what was read of the tables, and in the window; none where all are
    /// taken.
    pub(crate) fn free_inode(&self) -> Option<InodeNo> {
        for group in (0..self.geometry.groups_count).map(GroupNo) {
            let first = group.0 * self.geometry.inodes_per_group + 1;
            for at in 0..self.inodes.opened(group) {
                let ino = InodeNo(first + at);
                let state = self.inodes.state(ino)?;
                if ino >= self.geometry.first_inode
                    && !state.is_used()
                    && !state.has(Mark::BAD_BLOCK)
                {
                    return Some(ino);
                }
            }
        }
        None
    }

    /// Lets the next inodes of some group be handed out; false when all are.
    pub(crate) fn extend_tables(&self) -> Result<bool, CheckError> {
        let per_group = self.geometry.inodes_per_group;
        for group in (0..self.geometry.groups_count).map(GroupNo) {
            let opened = self.inodes.opened(group);
            let desc = self.store.desc(group);
            let table_blocks = u64::from(self.geometry.itable_blocks());
            if opened >= per_group || !self.geometry.contains(desc.inode_table, table_blocks) {
                continue;
            }
            let end = self.used_past_mark(group)?;
            if end > 0 {
                // The blocks there are in use.
                self.raise_mark(group, end, None)?;
                return Ok(true);
            }
            let more = self.geometry.inodes_per_block().min(per_group - opened);
            for at in opened..opened + more {
                let ino = InodeNo(group.0 * per_group + at + 1);
                let mut record = vec![0; usize::from(self.geometry.inode_size)];
                self.store.write_inode(ino, &mut record)?;
            }
            self.store.flush()?; // old bytes must not become inodes in use
            self.store.update_desc(group, |desc| {
                desc.flags.remove(GroupFlags::INODE_UNINIT);
                desc.itable_unused = per_group - opened - more;
            })?;
            return Ok(true);
        }
        Ok(false)
    }

    /// A new inode: without content, with one link, with the present time.
    pub(crate) fn fresh_inode(&self, ino: InodeNo, mode: u16) -> Option<(Vec<u8>, Inode)> {
        let mut record = vec![0; usize::from(self.geometry.inode_size)];
        if record.len() > 128 {
            let extra = match self.superblock.want_extra_isize {
                extra
                    if extra >= 4 && usize::from(extra) <= record.len() - 128 && extra % 4 == 0 =>
                {
                    extra
                }
                _ => 32,
            };
            record[128..130].copy_from_slice(&extra.to_le_bytes());
        }
        let mut inode = Inode::decode(&record, ino, self.geometry).ok()?;
        inode.mode = mode;
        inode.links = 1;
        let now = Timestamp::new(self.options.env.now().seconds, 0);
        (inode.atime, inode.mtime, inode.ctime) = (now, now, now);
        inode.crtime = inode.crtime.map(|_| now);
        self.clear_map(&mut inode);
        Some((record, inode))
    }

    /// A map of nothing, of extents where the volume has them.
    pub(crate) fn clear_map(&self, inode: &mut Inode) {
        inode.i_block = [0; ROOT_SIZE];
        if self.geometry.has_incompat(IncompatFeatures::EXTENTS) {
            inode.flags |= InodeFlags::EXTENTS;
            OwnedNode::empty_leaf(ROOT_SIZE).encode_into(&mut inode.i_block);
        }
    }

    /// Makes a directory of one block in the inode given, or in a free one. `None` on a full
    /// volume, or when the tables must be extended first: then the round is restarted.
    pub(super) fn make_directory(
        &mut self,
        wanted: Option<InodeNo>,
        parent: Option<InodeNo>,
        mode: u16,
    ) -> Result<Option<InodeNo>, CheckError> {
        let ino = match wanted.or_else(|| self.free_inode()) {
            Some(ino) => ino,
            None => {
                if self.extend_tables()? {
                    self.need_restart();
                }
                return Ok(None);
            }
        };
        let Some(block) = self.allocate_block(BlockNo(0))? else { return Ok(None) };
        let parent = parent.unwrap_or(ino);
        let Some((mut record, mut inode)) = self.fresh_inode(ino, 0x4000 | mode) else {
            return Ok(None);
        };
        inode.links = 2;
        inode.size = u64::from(self.geometry.block_size);
        self.map_one_block(ino, &mut inode, block)?;
        let seed = self.geometry.inode_checksum_seed(ino, inode.generation);
        let dir = DirInfo::new(ino, seed, 1, DirFlags::CONNECTED);
        let format = self.dir_format(&dir);
        let mut bytes = vec![0; self.geometry.block_len()];
        let mut packer = format.packer(&mut bytes);
        packer.push(&NewEntry::new(ino, FileType::Directory, b"."));
        packer.push(&NewEntry::new(parent, FileType::Directory, b".."));
        packer.finish();
        format.seal(&mut bytes);
        self.store.write(block, &bytes)?;
        inode.encode_into(&mut record, self.geometry);
        self.store.write_inode_ordered(ino, &mut record);
        self.inodes.note(ino, Kind::Directory, Mark::USED, 2);
        self.count_made(&VolumeStatistics {
            inodes: 1,
            directories: 1,
            ..recount::of_map(ino, &inode, &[])
        });
        self.inodes.count_name(ino);
        self.inodes.count_name(parent);
        dir.parent.store(parent.0, std::sync::atomic::Ordering::Relaxed);
        dir.dotdot.store(parent.0, std::sync::atomic::Ordering::Relaxed);
        self.dirs.add(dir);
        Ok(Some(ino))
    }
}
