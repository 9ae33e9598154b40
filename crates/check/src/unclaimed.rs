//! Blocks in use by the bitmaps on the volume that nothing claims.

use crate::context::Check;
use crate::store::CheckError;
use extant_ondisk::bitmap::{self, BitmapKind};
use extant_ondisk::group_desc::GroupFlags;
use extant_ondisk::{BlockNo, GroupNo};
use roaring::RoaringTreemap;
use std::ops::Range;

/// Bytes of one read.
pub(crate) const AT_ONCE: u64 = 1 << 20;

impl Check<'_> {
    /// Notes the clusters of the window that the stored bitmaps have in use and nothing claims.
    pub(crate) fn note_unclaimed(&self, noted: &mut RoaringTreemap) -> Result<(), CheckError> {
        for group in self.window.groups.clone().map(GroupNo) {
            let first = u64::from(group.0) * u64::from(self.geometry.clusters_per_group);
            let Some(taken) = self.taken_in(group)? else { continue };
            for run in bitmap::clear_runs(&taken, 0..self.geometry.group_clusters(group)) {
                noted.insert_range(first + u64::from(run.start)..first + u64::from(run.end));
            }
        }
        Ok(())
    }

    /// The runs of blocks of a group that its stored bitmap has in use and nothing claims, now and,
    /// during repairs, in the scan before them, in whole clusters. None where the bitmap is not
    /// reliable.
    pub(crate) fn unclaimed_in(&self, group: GroupNo) -> Result<Vec<Range<u64>>, CheckError> {
        let clusters = self.geometry.group_clusters(group);
        let first = u64::from(group.0) * u64::from(self.geometry.clusters_per_group);
        let noted = self.store.unclaimed_within(first..first + u64::from(clusters));
        if noted.as_ref().is_some_and(Vec::is_empty) {
            return Ok(Vec::new());
        }
        let Some(mut taken) = self.taken_in(group)? else { return Ok(Vec::new()) };
        if let Some(noted) = noted {
            let mut others = vec![0xff; taken.len()];
            for cluster in noted {
                let bit = (cluster - first) as usize; // of the group
                others[bit / 8] &= !(1 << (bit % 8));
            }
            taken.iter_mut().zip(&others).for_each(|(taken, other)| *taken |= other);
        }
        let start = self.geometry.group_start(group).0;
        let ratio = u64::from(self.geometry.blocks_per_cluster);
        let end = start + u64::from(self.geometry.group_blocks(group));
        let run = |bits: Range<u32>| {
            let first = start + u64::from(bits.start) * ratio;
            first..(start + u64::from(bits.end) * ratio).min(end)
        };
        Ok(bitmap::clear_runs(&taken, 0..clusters).map(run).collect())
    }

    /// A bitmap of a group in which the clusters that are in use and that nothing claims are clear;
    /// `None` where the stored one cannot be relied on.
    fn taken_in(&self, group: GroupNo) -> Result<Option<Vec<u8>>, CheckError> {
        let desc = self.store.desc(group);
        let is_stored = self.geometry.contains(desc.block_bitmap, 1)
            && !(self.geometry.has_uninit_groups()
                && desc.flags.contains(GroupFlags::BLOCK_UNINIT));
        if !is_stored || !self.store.desc_checksum_matches(group) {
            return Ok(None);
        }
        let mut used = self.store.read(desc.block_bitmap)?;
        let clusters = self.geometry.group_clusters(group);
        let count = bitmap::count_set(&used, 0..clusters);
        let is_sound = bitmap::verify(&used, BitmapKind::Block, group, &desc, self.geometry)
            .is_ok()
            && clusters - count == desc.free_clusters;
        if !is_sound {
            return Ok(None);
        }
        let mut claimed = vec![0; used.len()];
        self.blocks.fill_bitmap(group, &mut claimed);
        // Clear bits are those that are claimed or free.
        for (used, claimed) in used.iter_mut().zip(&claimed) {
            *used = !(*used & !claimed);
        }
        Ok(Some(used))
    }

    /// Visits the blocks of the runs, which are read in large pieces.
    pub(crate) fn for_blocks(
        &self,
        runs: &[Range<u64>],
        mut visit: impl FnMut(BlockNo, &[u8]),
    ) -> Result<(), CheckError> {
        let len = self.geometry.block_len();
        let at_once = (AT_ONCE >> self.geometry.block_bits()).max(1);
        let mut buffer = Vec::new();
        for run in runs {
            for start in (run.start..run.end).step_by(at_once as usize) {
                let end = run.end.min(start + at_once);
                buffer.resize((end - start) as usize * len, 0);
                self.store.read_into(BlockNo(start), &mut buffer)?;
                (start..end)
                    .map(BlockNo)
                    .zip(buffer.chunks_exact(len))
                    .for_each(|(block, bytes)| visit(block, bytes));
            }
        }
        Ok(())
    }
}
