//! The inodes of every new volume, and those of its features, in the order in which mke2fs makes
//! them: root, lost+found, bad blocks, resize inode, journal, MMP, quota, orphan file.

use extant_layout::RunSet;
use extant_layout::groups::leading;
use extant_layout::pack::{MappingTree, dense_runs};
use extant_layout::tables::journal_goal;
use extant_ondisk::dirent::{DirFormat, FileType, NewEntry};
use extant_ondisk::indirect::{self, DIRECT_BLOCKS};
use extant_ondisk::inode::{GOOD_OLD_INODE_SIZE, Inode, InodeFlags};
use extant_ondisk::jbd2::{JournalSuperblock, RawJournalSuperblock};
use extant_ondisk::mmp::{Mmp, RawMmp};
use extant_ondisk::orphan_file::OrphanFileFormat;
use extant_ondisk::quota::{QuotaKind, QuotaRecord, build_quota_file};
use extant_ondisk::xattr::{self, NameIndex, Xattr, XattrName};
use extant_ondisk::{BlockNo, CompatFeatures, GroupNo, IncompatFeatures, InodeNo, Uuid};
use zerocopy::IntoBytes;

use super::error::{MkfsError, SizeError, ValueError};
use super::params::{FsParams, JournalFigures, resize_inode_size};
use super::volume::{MappedFile, NewVolume};

const DIRECTORY: u16 = 0o040_000;
/// A regular file that only its owner may read.
const HIDDEN_FILE: u16 = 0o100_600;
/// Initial size of lost+found in bytes, so that e2fsck need not allocate when it is filled.
const LOST_FOUND_BYTES: u32 = 16 * 1024;

impl NewVolume {
    /// Makes all of them.
    pub fn add_special_inodes(&mut self, bad: &RunSet) -> Result<(), MkfsError> {
        self.add_reserved_inodes();
        let root = self.add_root()?;
        let lost_found = self.add_lost_found()?;
        self.add_system_files(bad)?;
        self.add_quota_files(root + lost_found)?;
        if self.params.orphan_file_blocks > 0 {
            self.add_orphan_file()?;
        }
        Ok(())
    }

    /// Reserved inodes, as if nothing used them.
    pub(crate) fn add_reserved_inodes(&mut self) {
        for number in 1..self.geometry.first_inode.0 {
            self.put_reserved(InodeNo(number));
        }
    }

    /// The inodes of features without a name, except quota and orphans.
    pub(crate) fn add_system_files(&mut self, bad: &RunSet) -> Result<(), MkfsError> {
        self.add_bad_blocks(bad)?;
        if self.geometry.has_compat(CompatFeatures::RESIZE_INODE) {
            self.add_resize_inode()?;
        }
        if let Some(journal) = self.params.journal {
            self.add_journal(journal)?;
        }
        if self.geometry.has_incompat(IncompatFeatures::MMP) {
            self.add_mmp()?;
        }
        Ok(())
    }

    /// A reserved inode that nothing uses: zero but for its checksum.
    fn put_reserved(&mut self, number: InodeNo) {
        let mut record = vec![0; usize::from(self.geometry.inode_size)];
        extant_ondisk::inode::seal(&mut record, number, &self.geometry);
        self.records.insert(number.0, record);
    }

    /// The blocks of a directory: the first with `.` and `..` and these names, the others empty.
    fn put_directory(
        &mut self,
        number: InodeNo,
        parent: InodeNo,
        map: &MappedFile,
        names: &[NewEntry<'_>],
    ) {
        let format = DirFormat::new(&self.geometry, number, 0);
        for (index, block) in map.blocks().enumerate() {
            let mut bytes = vec![0; self.geometry.block_len()];
            if index == 0 {
                let mut packer = format.packer(&mut bytes);
                let dots = [
                    NewEntry::new(number, FileType::Directory, b"."),
                    NewEntry::new(parent, FileType::Directory, b".."),
                ];
                for entry in dots.iter().chain(names) {
                    assert!(packer.push(entry), "a block holds a few short names");
                }
                packer.finish();
            } else {
                format.clear(&mut bytes);
            }
            format.seal(&mut bytes);
            self.put_contents(block, bytes);
        }
    }

    /// Returns the space in use, in bytes, as the other makers do.
    fn add_root(&mut self) -> Result<u64, MkfsError> {
        let map = self.map_file(InodeNo::ROOT, self.goal_of(InodeNo::ROOT), 1)?;
        let found = self.geometry.first_inode;
        let names = [NewEntry::new(found, FileType::Directory, b"lost+found")];
        self.put_directory(InodeNo::ROOT, InodeNo::ROOT, &map, &names);
        let mut inode = self.new_inode(DIRECTORY | self.identity.root_perms, 3);
        (inode.uid, inode.gid) = self.identity.root_owner;
        inode.size = u64::from(self.geometry.block_size);
        self.set_map(&mut inode, &map);
        let label = self.identity.root_selinux.clone().map(String::into_bytes);
        let space =
            map.space_blocks + self.put_labelled(InodeNo::ROOT, inode, label, map.space_blocks)?;
        self.keep_root(map);
        Ok(space * u64::from(self.geometry.block_size))
    }

    /// Returns the space in use, in bytes.
    pub(crate) fn add_lost_found(&mut self) -> Result<u64, MkfsError> {
        let number = self.take_inode()?;
        let block_size = self.geometry.block_size;
        let wanted = LOST_FOUND_BYTES.div_ceil(block_size).max(2);
        let mut goal = self.goal_of(number);
        let mut blocks = u64::from(wanted).min(DIRECT_BLOCKS);
        if self.geometry.has_incompat(IncompatFeatures::INLINE_DATA) {
            // mke2fs makes it in the inode first, and its first growth only moves it to a block.
            blocks -= 1;
            goal = self.group_start(0);
        }
        let map = self.map_file(number, goal, blocks)?;
        self.put_directory(number, InodeNo::ROOT, &map, &[]);
        let mut inode = self.new_inode(DIRECTORY | 0o700, 2);
        inode.size = blocks * u64::from(block_size);
        self.set_map(&mut inode, &map);
        let label = self.identity.lost_found_selinux.clone();
        let space = map.space_blocks + self.put_labelled(number, inode, label, map.space_blocks)?;
        Ok(space * u64::from(block_size))
    }

    /// Stores an inode with the attribute security.selinux, in the inode or else in a block of its
    /// own. `space` is what the inode's data take; returns what the attribute takes, in blocks.
    fn put_labelled(
        &mut self,
        number: InodeNo,
        mut inode: Inode,
        label: Option<Vec<u8>>,
        space: u64,
    ) -> Result<u64, MkfsError> {
        let at = usize::from(inode.extra_isize) + usize::from(GOOD_OLD_INODE_SIZE);
        let mut area = vec![0; usize::from(self.geometry.inode_size).saturating_sub(at)];
        let mut more = 0;
        if let Some(label) = label {
            let name = XattrName { index: NameIndex::SECURITY, suffix: b"selinux".to_vec() };
            let xattr = [Xattr::new(name, label)];
            if xattr::encode_inode(&xattr, &mut area).is_err() {
                let mut bytes = vec![0; self.geometry.block_len()];
                let too_long = |_| match number {
                    InodeNo::ROOT => ValueError::RootSelinux,
                    _ => ValueError::LostFoundSelinux,
                };
                xattr::encode_block(&xattr, 1, &mut bytes).map_err(too_long)?;
                let block = BlockNo(self.take_block(self.group_start(0))?);
                xattr::seal_block(&mut bytes, block, &self.geometry);
                self.put_contents(block.0, bytes);
                inode.file_acl = block;
                more = u64::from(self.geometry.blocks_per_cluster);
                inode.set_space(&self.geometry, space + more);
            }
        }
        self.put_inode(number, &inode, |record| record[at..].copy_from_slice(&area));
        Ok(more)
    }

    fn take_block(&mut self, goal: u64) -> Result<u64, MkfsError> {
        let runs = self.take_blocks(goal, 1)?;
        Ok(runs.first().map_or(0, |run| run.start))
    }

    /// Inode 1 maps the bad blocks, so that no file gets them: always by indirect blocks.
    fn add_bad_blocks(&mut self, bad: &RunSet) -> Result<(), MkfsError> {
        let mut inode = self.new_inode(0, 0);
        inode.extra_isize = 0;
        inode.crtime = None;
        if bad.count() > 0 {
            let goal = self.group_start(0);
            let pointers = u64::from(self.geometry.block_size / 4);
            let most = DIRECT_BLOCKS + pointers + pointers * pointers;
            if bad.count() > most {
                return Err(SizeError::BadBlocks(bad.count()).into());
            }
            let tree = MappingTree::new(dense_runs(bad.iter()), false);
            let nodes = tree.blocks(self.geometry.block_size).ok_or(SizeError::BadBlockMap)?;
            let mut places = Vec::new();
            for _ in 0..nodes {
                places.push(BlockNo(self.take_block(goal)?));
            }
            let (geometry, contents) = (&self.geometry, &mut self.contents);
            let number = InodeNo::BAD_BLOCKS;
            inode.i_block = tree.write(number, 0, geometry, places, |block, bytes| {
                contents.insert(block.0, bytes.to_vec());
            });
            inode.size = bad.count() * u64::from(self.geometry.block_size);
            inode.set_space(&self.geometry, bad.count() + nodes);
        }
        self.put_inode(InodeNo::BAD_BLOCKS, &inode, |_| ());
        Ok(())
    }

    /// Inode 7 holds the reserved descriptor blocks: a double indirect block whose indirect blocks
    /// are those of group 0, each pointing to its backups. From special_inodes.rst.
    fn add_resize_inode(&mut self) -> Result<(), MkfsError> {
        // After group 0's table, where a volume without flex_bg has its first data.
        let goal = 2
            + self.geometry.first_data_block.0
            + u64::from(self.geometry.reserved_gdt_blocks)
            + u64::from(self.geometry.desc_blocks())
            + u64::from(self.geometry.itable_blocks());
        let double = self.take_block(goal)?;
        let pointers = u64::from(self.geometry.block_size / 4);
        let reserved = leading(&self.geometry, GroupNo(0)).reserved;
        // At the same distance from group 0's as their groups, as e2fsprogs requires: with bigalloc
        // and blocks of 1 KiB the reserved blocks themselves are one block before, as no boot block
        // precedes them.
        let backups: Vec<u64> = self
            .geometry
            .backup_superblock_groups()
            .into_iter()
            .map(|group| u64::from(group.0) * u64::from(self.geometry.blocks_per_group))
            .collect();
        let mut double_bytes = vec![0; self.geometry.block_len()];
        for block in reserved.clone() {
            let mut bytes = vec![0; self.geometry.block_len()];
            for (slot, backup) in backups.iter().enumerate() {
                indirect::set_pointer(&mut bytes, slot, BlockNo(block + backup));
            }
            self.put_contents(block, bytes);
            // The slot is the number of the descriptor block that it may become.
            let slot = (block - self.geometry.superblock_block().0 - 1) % pointers;
            let slot = usize::try_from(slot).expect("fewer than 2^14 pointers a block");
            indirect::set_pointer(&mut double_bytes, slot, BlockNo(block));
        }
        self.put_contents(double, double_bytes);
        let mut inode = self.new_inode(HIDDEN_FILE, 1);
        inode.size = resize_inode_size(&self.params);
        const DOUBLE_SLOT: usize = 13;
        indirect::set_pointer(&mut inode.i_block, DOUBLE_SLOT, BlockNo(double));
        let blocks = 1 + (reserved.end - reserved.start) * (1 + backups.len() as u64);
        let blocks = blocks * u64::from(self.geometry.blocks_per_cluster);
        inode.set_space(&self.geometry, blocks);
        self.put_inode(InodeNo::RESIZE, &inode, |_| ());
        Ok(())
    }

    fn add_mmp(&mut self) -> Result<(), MkfsError> {
        let block = self.take_block(self.group_start(0))?;
        let mut raw = RawMmp::from_bytes(&[0; 1024], BlockNo(block))?;
        let mut mmp = Mmp::new(self.params.mmp_interval, self.identity.time);
        (mmp.node_name, mmp.device_name) = self.identity.made_by;
        mmp.encode_into(&mut raw);
        raw.seal(&self.geometry);
        self.put_contents(block, raw.as_bytes().to_vec());
        self.superblock.mmp_block = BlockNo(block);
        Ok(())
    }

    fn add_journal(&mut self, journal: JournalFigures) -> Result<(), MkfsError> {
        let goal = match journal.location {
            Some(block) => block,
            None if self.params.packed_meta_blocks => self.group_start(0),
            None if !self.has_extents() => self.goal_of(InodeNo::JOURNAL),
            None => journal_goal(&self.geometry, &self.used).0,
        };
        let count = u64::from(journal.blocks);
        let map = self.map_file(InodeNo::JOURNAL, goal, count)?;
        let first = map.data.first().map_or(0, |run| run.start);
        let raw = journal_superblock(&self.params, journal, self.identity.uuid, 1);
        self.put_contents(first, raw.as_bytes().to_vec());
        if !self.params.lazy_journal_init {
            let mut runs = map.data.clone();
            if let Some(run) = runs.first_mut() {
                run.start += 1;
            }
            self.zeroes.extend(runs);
        }
        let mut inode = self.new_inode(HIDDEN_FILE, 1);
        inode.size = count * u64::from(self.geometry.block_size);
        self.set_map(&mut inode, &map);
        self.put_inode(InodeNo::JOURNAL, &inode, |_| ());
        self.superblock.journal_inode = Some(InodeNo::JOURNAL);
        if inode.size > i32::MAX as u64 {
            self.superblock.features.ro_compat |= extant_ondisk::RoCompatFeatures::LARGE_FILE;
        }
        // A copy of the map survives the loss of the inode.
        self.raw.s_jnl_backup_type = 1;
        let words = inode.i_block.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word));
        for (stored, word) in self.raw.s_jnl_blocks.iter_mut().zip(words) {
            stored.set(word);
        }
        self.raw.s_jnl_blocks[15].set((inode.size >> 32) as u32);
        self.raw.s_jnl_blocks[16].set((inode.size & 0xffff_ffff) as u32);
        let clusters = count.div_ceil(u64::from(self.geometry.blocks_per_cluster));
        let overhead = u64::from(self.superblock.overhead_clusters) + clusters;
        self.superblock.overhead_clusters = u32::try_from(overhead).unwrap_or(0);
        Ok(())
    }

    /// `space`: bytes of the two directories, which are all that a new volume holds for its users.
    fn add_quota_files(&mut self, space: u64) -> Result<(), MkfsError> {
        for kind in self.params.quotas.clone() {
            let records = self.usage(kind, space);
            let bytes = build_quota_file(kind, &records)?;
            let (number, map) = self.take_quota_file(kind, bytes.len() as u64)?;
            self.put_quota_file(kind, number, &map, &bytes);
        }
        Ok(())
    }

    /// Takes the inode and the blocks of a quota file.
    pub(crate) fn take_quota_file(
        &mut self,
        kind: QuotaKind,
        bytes: u64,
    ) -> Result<(InodeNo, MappedFile), MkfsError> {
        let number = match kind {
            QuotaKind::User => InodeNo::USER_QUOTA,
            QuotaKind::Group => InodeNo::GROUP_QUOTA,
            QuotaKind::Project => self.take_inode()?,
        };
        let blocks = bytes.div_ceil(u64::from(self.geometry.block_size));
        Ok((number, self.map_file(number, self.goal_of(number), blocks)?))
    }

    /// Fills a quota file, which has the room for it.
    pub(crate) fn put_quota_file(
        &mut self,
        kind: QuotaKind,
        number: InodeNo,
        map: &MappedFile,
        bytes: &[u8],
    ) {
        self.put_file(map, bytes);
        let mut inode = self.new_inode(HIDDEN_FILE, 1);
        inode.size = bytes.len() as u64;
        self.set_map(&mut inode, map);
        inode.flags |= InodeFlags::IMMUTABLE;
        self.put_inode(number, &inode, |_| ());
        let place = match kind {
            QuotaKind::User => &mut self.superblock.usr_quota_inode,
            QuotaKind::Group => &mut self.superblock.grp_quota_inode,
            QuotaKind::Project => &mut self.superblock.prj_quota_inode,
        };
        *place = Some(number);
    }

    /// lost+found belongs to 0, the root directory to whom it was given.
    fn usage(&self, kind: QuotaKind, space: u64) -> Vec<QuotaRecord> {
        let block =
            u64::from(self.geometry.block_size) * u64::from(self.geometry.blocks_per_cluster);
        let root_id = match kind {
            QuotaKind::User => self.identity.root_owner.0,
            QuotaKind::Group => self.identity.root_owner.1,
            QuotaKind::Project => 0,
        };
        let record =
            |id, inodes, space| QuotaRecord { id, inodes, space, ..QuotaRecord::default() };
        if root_id == 0 {
            return vec![record(0, 2, space)];
        }
        vec![record(0, 1, space.saturating_sub(block)), record(root_id, 1, block.min(space))]
    }

    pub(crate) fn add_orphan_file(&mut self) -> Result<(), MkfsError> {
        let number = self.take_inode()?;
        let blocks = u64::from(self.params.orphan_file_blocks);
        let goal = if self.has_extents() { self.goal_of(number) } else { self.group_start(0) };
        let map = self.map_file(number, goal, blocks)?;
        let format = OrphanFileFormat::new(&self.geometry, number, 0);
        for block in map.blocks() {
            let mut bytes = vec![0; self.geometry.block_len()];
            format.seal(&mut bytes, BlockNo(block));
            self.put_contents(block, bytes);
        }
        let mut inode = self.new_inode(HIDDEN_FILE, 1);
        inode.size = blocks * u64::from(self.geometry.block_size);
        self.set_map(&mut inode, &map);
        self.put_inode(number, &inode, |_| ());
        self.superblock.orphan_file_inode = Some(number);
        Ok(())
    }
}

/// The first block of a journal: nothing in the log. `first` is where the log starts.
pub(super) fn journal_superblock(
    params: &FsParams,
    journal: JournalFigures,
    uuid: Uuid,
    first: u32,
) -> RawJournalSuperblock {
    JournalSuperblock {
        first,
        uuid,
        fast_commit_blocks: journal.fast_commit_blocks,
        users: if params.is_journal_device() { Vec::new() } else { vec![Uuid::NIL] },
        ..JournalSuperblock::empty(params.block_size, journal.blocks)
    }
    .encode_sealed()
}
