//! The resize inode: it holds the descriptor blocks reserved for growing, so its map follows from the geometry alone.
//! From special_inodes.rst, and from the images that mke2fs makes.

use super::{Front, OpenError};
use crate::finding::{Code, Finding};
use extant_journal::offline::{Offline, OfflineError};
use extant_layout::groups::leading;
use extant_ondisk::indirect::{pointer, pointers, set_pointer};
use extant_ondisk::inode::{FileType, Inode, InodeFlags};
use extant_ondisk::time::Timestamp;
use extant_ondisk::{BlockNo, CompatFeatures, GroupNo, InodeNo};

/// Place of the double indirect block in `i_block`.
const DOUBLE_SLOT: usize = 13;
/// A regular file that only its owner may read.
const HIDDEN_FILE: u16 = 0o100_600;

impl Front<'_> {
    pub(super) fn check_resize_inode(&mut self) -> Result<(), OpenError> {
        let number = InodeNo::RESIZE;
        let Ok(record) = self.volume.read_inode(number) else { return Ok(()) };
        if !self.volume.raw.features().compat.contains(CompatFeatures::RESIZE_INODE) {
            // i_block and i_links_count: a reserved inode that nothing uses may have times.
            let is_used = record[0x28..0x28 + 60].iter().any(|byte| *byte != 0);
            if is_used && self.ask(Finding::new(Code::ResizeInodeNotZero).inode(number))? {
                self.clear_resize_inode()?;
                self.facts.needs_passes = true;
            }
            return Ok(());
        }
        let is_valid = Inode::decode(&record, number, self.volume.geometry())
            .is_ok_and(|inode| is_valid(&self.volume, &inode).unwrap_or(false));
        if is_valid {
            return Ok(());
        }
        self.facts.needs_passes = true;
        if self.ask(Finding::new(Code::ResizeInodeInvalid).inode(number))? {
            self.clear_resize_inode()?;
            self.facts.lost_resize_inode = true;
        }
        Ok(())
    }

    fn clear_resize_inode(&mut self) -> Result<(), OfflineError> {
        let mut record = vec![0; usize::from(self.volume.geometry().inode_size)];
        self.volume.write_inode(InodeNo::RESIZE, &mut record)
    }
}

/// What the map must be: for each block reserved in group 0 the same block of every backup.
struct Expected {
    reserved: std::ops::Range<u64>,
    backups: Vec<u64>,
    first_slot: u64,
    pointers: u64,
}

fn expected(volume: &Offline) -> Expected {
    let geometry = volume.geometry();
    let reserved = leading(geometry, GroupNo(0)).reserved;
    let backups = geometry
        .backup_superblock_groups()
        .into_iter()
        .map(|group| leading(geometry, group).reserved.start)
        .collect();
    let first_slot = reserved.start - geometry.first_data_block.0 - 1;
    Expected { reserved, backups, first_slot, pointers: u64::from(geometry.block_size / 4) }
}

impl Expected {
    /// The slot of the double indirect block is the number of the descriptor block that it may become.
    fn slot(&self, block: u64) -> usize {
        let slot = (self.first_slot + (block - self.reserved.start)) % self.pointers;
        usize::try_from(slot).expect("fewer than 2^14 pointers a block")
    }
}

fn is_valid(volume: &Offline, inode: &Inode) -> Result<bool, OfflineError> {
    let geometry = volume.geometry();
    if inode.file_type() != Some(FileType::Regular) || inode.links == 0 {
        return Ok(false);
    }
    let stray = (0..15).any(|slot| {
        slot != DOUBLE_SLOT && pointer(&inode.i_block, slot).is_none_or(|block| block.0 != 0)
    });
    let Some(double) = pointer(&inode.i_block, DOUBLE_SLOT) else { return Ok(false) };
    if stray || !geometry.contains(double, 1) {
        return Ok(false);
    }
    let expected = expected(volume);
    if expected.reserved.contains(&double.0) {
        return Ok(false);
    }
    let bytes = volume.read(double)?;
    let mut wanted = vec![0; geometry.block_len()];
    for block in expected.reserved.clone() {
        set_pointer(&mut wanted, expected.slot(block), BlockNo(block));
    }
    if bytes != wanted {
        return Ok(false);
    }
    for block in expected.reserved.clone() {
        let bytes = volume.read(BlockNo(block))?;
        let found = pointers(&bytes).take(expected.backups.len()).map(|pointer| pointer.0);
        let right =
            expected.backups.iter().map(|backup| backup + (block - expected.reserved.start));
        if !found.eq(right) || pointers(&bytes).skip(expected.backups.len()).any(|it| it.0 != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Makes the resize inode anew; its double indirect block is taken from the free ones.
pub(super) fn make(volume: &mut Offline, now: i64) -> Result<(), OfflineError> {
    let expected = expected(volume);
    let goal = volume.geometry().group_start(GroupNo(0));
    let double = volume.take_blocks(goal, 1)?.first().map_or(0, |run| run.start);
    let mut bytes = vec![0; volume.geometry().block_len()];
    for block in expected.reserved.clone() {
        let mut copies = vec![0; volume.geometry().block_len()];
        for (slot, backup) in expected.backups.iter().enumerate() {
            let copy = BlockNo(backup + (block - expected.reserved.start));
            set_pointer(&mut copies, slot, copy);
        }
        volume.write(BlockNo(block), &copies)?;
        set_pointer(&mut bytes, expected.slot(block), BlockNo(block));
    }
    volume.write(BlockNo(double), &bytes)?;

    let geometry = volume.geometry().clone();
    let time = Timestamp::new(now, 0);
    let blocks = u64::from(geometry.block_size) / 4;
    // Past the double indirect block's end, as mke2fs has it.
    let size = (12 + blocks + blocks * blocks) * u64::from(geometry.block_size);
    let mut inode = Inode {
        mode: HIDDEN_FILE,
        uid: 0,
        gid: 0,
        size,
        atime: time,
        ctime: time,
        mtime: time,
        crtime: Some(time),
        dtime: 0,
        links: 1,
        blocks: 0,
        flags: InodeFlags::empty(),
        version: 0,
        i_block: [0; 60],
        generation: 0,
        file_acl: BlockNo(0),
        extra_isize: if geometry.inode_size > 128 { 32 } else { 0 },
        project: Some(0),
    };
    set_pointer(&mut inode.i_block, DOUBLE_SLOT, BlockNo(double));
    let held =
        1 + (expected.reserved.end - expected.reserved.start) * (1 + expected.backups.len() as u64);
    volume.set_space(&mut inode, held * u64::from(geometry.blocks_per_cluster));
    let mut record = vec![0; usize::from(geometry.inode_size)];
    inode.encode_into(&mut record, &geometry);
    volume.write_inode(InodeNo::RESIZE, &mut record)
}
