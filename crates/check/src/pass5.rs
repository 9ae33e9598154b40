//! Pass 5: bitmaps, counts and high-water marks against what is in use.

use crate::context::Check;
use crate::finding::{Code, Finding};
use crate::store::CheckError;
use crate::tables::{Kind, Mark};
use extant_ondisk::bitmap::{self, BitmapKind};
use extant_ondisk::group_desc::{GroupDesc, GroupFlags};
use extant_ondisk::superblock::RawSuperblock;
use extant_ondisk::{BlockNo, GroupNo};
use extant_runtime::sync::Mutex;
use std::fmt::Write;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Groups that a worker takes at once.
const UNIT: u32 = 16;
/// Groups with bitmaps, and groups without, that are worth the start of a thread.
const SHARE: usize = 32;
const UNUSED_SHARE: usize = 4096;
/// Differences named in one finding at most.
const NAMED: usize = 60;

/// Sums over the groups.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    free_clusters: u64,
    free_inodes: u64,
}

impl Check<'_> {
    pub(crate) fn pass5(&mut self) -> Result<(), CheckError> {
        self.free_released()?;
        let this: &Self = self;
        let window = self.window.groups.clone();
        let groups = window.end;
        let next = AtomicU32::new(window.start);
        let failed = Mutex::new(None);
        let whole = u64::from(window.end - window.start);
        let ahead = this.groups_ahead();
        let sums = this.in_parallel(this.shares_of(window), || {
            let mut sums = Sums::default();
            let mut buffers =
                [vec![0; this.geometry.block_len()], vec![0; this.geometry.block_len()]];
            loop {
                let start = next.fetch_add(UNIT, Relaxed);
                if start >= groups || failed.lock().is_some() {
                    return Ok(sums);
                }
                let later = start.saturating_add(ahead);
                this.fetch_bitmaps(later..groups.min(later.saturating_add(UNIT)));
                for group in start..groups.min(start.saturating_add(UNIT)) {
                    if let Err(error) = this.check_group(GroupNo(group), &mut sums, &mut buffers) {
                        failed.lock().get_or_insert(error);
                        return Ok(sums);
                    }
                }
                this.progress(5, u64::from(UNIT), whole);
            }
        })?;
        self.store.write_descs()?;
        if let Some(error) = failed.into_inner() {
            return Err(error);
        }
        let mut sum = Sums::default();
        for part in sums {
            sum.free_clusters += part.free_clusters;
            sum.free_inodes += part.free_inodes;
        }
        sum.free_clusters += self.carry.free_clusters;
        sum.free_inodes += self.carry.free_inodes;
        if !self.window.is_last {
            (self.carry.free_clusters, self.carry.free_inodes) =
                (sum.free_clusters, sum.free_inodes);
            return Ok(());
        }
        self.statistics.blocks = (self.geometry.clusters_count() - sum.free_clusters)
            * u64::from(self.geometry.blocks_per_cluster);
        self.check_totals(sum)
    }

    /// Number of groups whose bitmaps are fetched before they are compared: whole units, so that
    /// each is requested once.
    fn groups_ahead(&self) -> u32 {
        let bitmaps = self.options.read_ahead / u64::from(self.geometry.block_size);
        u32::try_from(bitmaps / 2).unwrap_or(u32::MAX) / UNIT * UNIT
    }

    /// Lets the system fetch the first bitmaps while passes 2 to 4 run.
    pub(crate) fn fetch_first_bitmaps(&self) {
        let Range { start, end } = self.window.groups;
        self.fetch_bitmaps(start..end.min(start.saturating_add(self.groups_ahead())));
    }

    /// Lets the system fetch the bitmaps of some groups, neighbours in one request. A repair reads
    /// few of them.
    fn fetch_bitmaps(&self, groups: Range<u32>) {
        if self.options.read_ahead == 0 || self.is_repair() || groups.is_empty() {
            return;
        }
        let descs = self.descs.get(groups.start as usize..groups.end as usize).unwrap_or_default();
        let has_marks = self.geometry.has_uninit_groups();
        let mut blocks: Vec<u64> = descs
            .iter()
            .flat_map(|desc| {
                [
                    (desc.block_bitmap, GroupFlags::BLOCK_UNINIT),
                    (desc.inode_bitmap, GroupFlags::INODE_UNINIT),
                ]
                .into_iter()
                .filter(|(_, uninit)| !has_marks || !desc.flags.contains(*uninit))
                .map(|(block, _)| block)
            })
            .filter(|block| self.geometry.contains(*block, 1))
            .map(|block| block.0)
            .collect();
        blocks.sort_unstable();
        for run in blocks.chunk_by(|one, next| next - one <= 1) {
            if let (Some(first), Some(last)) = (run.first(), run.last()) {
                self.store.will_need(*first..last + 1);
            }
        }
    }

    /// How many threads have enough to do.
    fn shares_of(&self, window: Range<u32>) -> usize {
        let descs = &self.descs[window.start as usize..window.end as usize];
        let is_unused = |desc: &&GroupDesc| desc.flags.contains(GroupFlags::BLOCK_UNINIT);
        let unused = descs.iter().filter(is_unused).count();
        (descs.len() - unused) / SHARE + unused / UNUSED_SHARE
    }

    fn check_totals(&self, sums: Sums) -> Result<(), CheckError> {
        let free_blocks = sums.free_clusters * u64::from(self.geometry.blocks_per_cluster);
        let superblock = self.store.superblock();
        if superblock.free_blocks != free_blocks {
            let finding = Finding::new(Code::FreeBlocksTotalWrong)
                .found(superblock.free_blocks)
                .expected(free_blocks);
            if self.should_fix(finding)? {
                self.set_total(|raw| {
                    raw.s_free_blocks_count_lo.set((free_blocks & 0xffff_ffff) as u32);
                    if raw.s_free_blocks_count_hi.get() != 0 || free_blocks >> 32 != 0 {
                        raw.s_free_blocks_count_hi.set((free_blocks >> 32) as u32);
                    }
                })?;
            }
        }
        let free_inodes = u32::try_from(sums.free_inodes).unwrap_or(u32::MAX);
        if superblock.free_inodes != free_inodes {
            let finding = Finding::new(Code::FreeInodesTotalWrong)
                .found(u64::from(superblock.free_inodes))
                .expected(u64::from(free_inodes));
            if self.should_fix(finding)? {
                self.set_total(|raw| raw.s_free_inodes_count.set(free_inodes))?;
            }
        }
        Ok(())
    }

    fn set_total(&self, change: impl FnOnce(&mut RawSuperblock)) -> Result<(), CheckError> {
        self.store.update_superblock(change)
    }

    fn check_group(
        &self,
        group: GroupNo,
        sums: &mut Sums,
        buffers: &mut [Vec<u8>; 2],
    ) -> Result<(), CheckError> {
        // Pass 1 to 4 may have changed it.
        let desc = if self.is_repair() {
            self.store.desc(group)
        } else {
            self.descs[group.0 as usize].clone()
        };
        let clusters = self.geometry.group_clusters(group);
        let free_clusters = clusters - self.blocks.count(group).min(clusters);
        sums.free_clusters += u64::from(free_clusters);
        let mut used = 0;
        let mut directories = 0;
        let mut highest = 0;
        let reserved = self.reserved_in(group);
        self.inodes.for_used(group, |ino, state, _| {
            let at = (ino.0 - 1) % self.geometry.inodes_per_group;
            if at >= reserved {
                used += 1;
            }
            directories += u32::from(state.kind() == Kind::Directory);
            highest = at + 1;
        });
        used += reserved;
        if self.has_bad_inodes {
            let first = group.0 * self.geometry.inodes_per_group + 1;
            for at in reserved..self.inodes.opened(group) {
                let state = self.inodes.state(extant_ondisk::InodeNo(first + at));
                used += u32::from(
                    state.is_some_and(|state| state.has(Mark::BAD_BLOCK) && !state.is_used()),
                );
            }
        }
        highest = highest.max(reserved);
        let free_inodes = self.geometry.inodes_per_group - used.min(self.geometry.inodes_per_group);
        sums.free_inodes += u64::from(free_inodes);
        let [expected, found] = buffers;
        self.check_block_bitmap(group, &desc, expected, found)?;
        self.check_inode_bitmap(group, &desc, highest, expected, found)?;
        self.check_counts(group, &desc, free_clusters, free_inodes, directories)
    }

    /// Reserved inodes of a group: always in use.
    fn reserved_in(&self, group: GroupNo) -> u32 {
        let first = u64::from(group.0) * u64::from(self.geometry.inodes_per_group);
        let reserved = u64::from(self.geometry.first_inode.0 - 1);
        reserved.saturating_sub(first).min(u64::from(self.geometry.inodes_per_group)) as u32
    }

    fn check_block_bitmap(
        &self,
        group: GroupNo,
        desc: &GroupDesc,
        expected: &mut [u8],
        found: &mut [u8],
    ) -> Result<(), CheckError> {
        let is_last = group.0 + 1 == self.geometry.groups_count;
        let is_uninit = self.geometry.has_uninit_groups()
            && desc.flags.contains(GroupFlags::BLOCK_UNINIT)
            && self.store.desc_checksum_matches(group);
        if is_uninit && !is_last && self.blocks.is_system_only(group) {
            return Ok(());
        }
        if !self.geometry.contains(desc.block_bitmap, 1) {
            return Ok(());
        }
        let clusters = self.geometry.group_clusters(group);
        self.blocks.fill_bitmap(group, expected);
        bitmap::pad(expected, clusters);
        if is_uninit {
            if self.should_fix(Finding::new(Code::BlockUninitInUse).group(group))? {
                self.store.write(desc.block_bitmap, expected)?;
                self.store.change_desc(group, |desc| {
                    desc.flags.remove(GroupFlags::BLOCK_UNINIT);
                    bitmap::seal(expected, BitmapKind::Block, desc, self.geometry);
                });
            }
            return Ok(());
        }
        self.store.read_into(desc.block_bitmap, found)?;
        let codes = [Code::BlockBitmapWrong, Code::BlockBitmapPadding, Code::BlockBitmapChecksum];
        self.compare_bitmaps(
            group,
            BitmapKind::Block,
            desc,
            desc.block_bitmap,
            codes,
            expected,
            found,
        )
    }

    fn check_inode_bitmap(
        &self,
        group: GroupNo,
        desc: &GroupDesc,
        highest: u32,
        expected: &mut [u8],
        found: &mut [u8],
    ) -> Result<(), CheckError> {
        let per_group = self.geometry.inodes_per_group;
        if self.geometry.has_uninit_groups() {
            let unused = desc.itable_unused;
            let is_uninit = desc.flags.contains(GroupFlags::INODE_UNINIT);
            let mark = per_group.checked_sub(unused);
            if is_uninit && highest == 0 && unused <= per_group {
                return Ok(());
            }
            if is_uninit && highest > 0 {
                if self.should_fix(Finding::new(Code::InodeUninitInUse).group(group))? {
                    self.store.change_desc(group, |desc| {
                        desc.flags.remove(GroupFlags::INODE_UNINIT);
                        desc.itable_unused = per_group - highest;
                    });
                }
            } else if mark.is_none_or(|mark| mark < highest) {
                let finding =
                    Finding::new(Code::HighWaterWrong).group(group).found(u64::from(unused));
                if self.should_fix(finding)? {
                    self.store.change_desc(group, |desc| desc.itable_unused = per_group - highest);
                }
            } else if mark.is_some_and(|mark| mark > highest) {
                self.reducible_marks.lock().push((group, highest));
            }
        }
        if !self.geometry.contains(desc.inode_bitmap, 1) {
            return Ok(());
        }
        expected.fill(0);
        bitmap::set_range(expected, 0..self.reserved_in(group));
        let inodes_per_group = self.geometry.inodes_per_group;
        self.inodes.for_used(group, |ino, _, _| {
            bitmap::set(expected, (ino.0 - 1) % inodes_per_group);
        });
        self.add_bad_inodes(group, expected);
        bitmap::pad(expected, per_group);
        self.store.read_into(desc.inode_bitmap, found)?;
        if self.check_bits_past_mark(group, desc, found)? {
            return Ok(());
        }
        let codes = [Code::InodeBitmapWrong, Code::InodeBitmapPadding, Code::InodeBitmapChecksum];
        self.compare_bitmaps(
            group,
            BitmapKind::Inode,
            desc,
            desc.inode_bitmap,
            codes,
            expected,
            found,
        )
    }

    /// Bits beyond the mark, where inodes in use lie there: the mark is what is wrong. True when it
    /// is.
    fn check_bits_past_mark(
        &self,
        group: GroupNo,
        desc: &GroupDesc,
        found: &[u8],
    ) -> Result<bool, CheckError> {
        let opened = self.inodes.opened(group);
        let mut past_mark = opened..self.geometry.inodes_per_group;
        if opened == 0 || !past_mark.any(|at| bitmap::test(found, at)) {
            return Ok(false);
        }
        let end = self.used_past_mark(group)?;
        if end == 0 {
            return Ok(false);
        }
        let finding = Finding::new(Code::HighWaterWrong).group(group);
        if self.should_fix(finding.found(u64::from(desc.itable_unused)))? {
            self.raise_mark(group, end, None)?;
        }
        Ok(true)
    }

    /// Inodes whose records lie in bad blocks are never allocated.
    fn add_bad_inodes(&self, group: GroupNo, expected: &mut [u8]) {
        let first = group.0 * self.geometry.inodes_per_group + 1;
        if !self.has_bad_inodes {
            return;
        }
        for at in 0..self.inodes.opened(group) {
            let state = self.inodes.state(extant_ondisk::InodeNo(first + at));
            if state.is_some_and(|state| state.has(Mark::BAD_BLOCK)) {
                bitmap::set(expected, at);
            }
        }
    }

    #[allow(clippy::too_many_arguments, reason = "one comparison for both kinds of bitmap")]
    fn compare_bitmaps(
        &self,
        group: GroupNo,
        kind: BitmapKind,
        desc: &GroupDesc,
        place: BlockNo,
        [wrong, padding, checksum]: [Code; 3],
        expected: &[u8],
        found: &[u8],
    ) -> Result<(), CheckError> {
        let used_bits = kind.used_bits(group, self.geometry);
        let sum_is_wrong = bitmap::verify(found, kind, group, desc, self.geometry).is_err();
        if expected == found && !sum_is_wrong {
            return Ok(());
        }
        let mut write = false;
        let mut found_wrong = false;
        if differs(expected, found, used_bits) {
            let detail = self.differences(group, kind, expected, found, used_bits);
            write |= self.should_fix(Finding::new(wrong).group(group).detail(detail))?;
            found_wrong = true;
        }
        if !bitmap::is_padded(found, used_bits) {
            write |= self.should_fix(Finding::new(padding).group(group))?;
            found_wrong = true;
        }
        if sum_is_wrong && !found_wrong {
            write |= self.should_fix(Finding::new(checksum).group(group))?;
        }
        if write {
            self.store.write(place, expected)?;
            self.store.change_desc(group, |desc| bitmap::seal(expected, kind, desc, self.geometry));
        }
        Ok(())
    }

    /// The differences as e2fsck shows them: `+` in use but free in the bitmap, `-` the other way
    /// round, runs in brackets.
    fn differences(
        &self,
        group: GroupNo,
        kind: BitmapKind,
        expected: &[u8],
        found: &[u8],
        bits: u32,
    ) -> String {
        let mut text = String::new();
        let mut at = 0;
        let mut runs = 0;
        let number = |bit: u32| match kind {
            BitmapKind::Block => {
                let cluster = u64::from(group.0) * u64::from(self.geometry.clusters_per_group);
                self.geometry.cluster_start(extant_ondisk::ClusterNo(cluster + u64::from(bit))).0
            }
            BitmapKind::Inode => {
                u64::from(group.0) * u64::from(self.geometry.inodes_per_group) + u64::from(bit) + 1
            }
        };
        let state = |bit: u32| (bitmap::test(expected, bit), bitmap::test(found, bit));
        while at < bits {
            let here = state(at);
            if here.0 == here.1 {
                at += 1;
                continue;
            }
            let start = at;
            while at < bits && state(at) == here {
                at += 1;
            }
            runs += 1;
            if runs > NAMED {
                text.push_str(" ...");
                break;
            }
            let sign = if here.0 { '+' } else { '-' };
            let separator = if text.is_empty() { "" } else { " " };
            let result = if at - start > 1 {
                write!(text, "{separator}{sign}({}--{})", number(start), number(at - 1))
            } else {
                write!(text, "{separator}{sign}{}", number(start))
            };
            debug_assert!(result.is_ok(), "a string takes any text");
        }
        text
    }

    fn check_counts(
        &self,
        group: GroupNo,
        desc: &GroupDesc,
        free_clusters: u32,
        free_inodes: u32,
        directories: u32,
    ) -> Result<(), CheckError> {
        let counts = [
            (Code::GroupFreeBlocksWrong, desc.free_clusters, free_clusters),
            (Code::GroupFreeInodesWrong, desc.free_inodes, free_inodes),
            (Code::GroupDirectoriesWrong, desc.used_dirs, directories),
        ];
        for (code, found, expected) in counts {
            if found == expected {
                continue;
            }
            let finding = Finding::new(code)
                .group(group)
                .found(u64::from(found))
                .expected(u64::from(expected));
            if self.should_fix(finding)? {
                self.store.change_desc(group, |desc| match code {
                    Code::GroupFreeBlocksWrong => desc.free_clusters = expected,
                    Code::GroupFreeInodesWrong => desc.free_inodes = expected,
                    _ => desc.used_dirs = expected,
                });
            }
        }
        Ok(())
    }
}

fn differs(expected: &[u8], found: &[u8], bits: u32) -> bool {
    let whole = (bits / 8) as usize;
    if expected[..whole] != found[..whole] {
        return true;
    }
    let mask = (1_u8 << (bits % 8)) - 1;
    mask != 0 && (expected[whole] ^ found[whole]) & mask != 0
}
