//! Growth of a volume that is in use.
//!
//! The engine does not know how the format grows: a [`GrowthPlanner`] prepares it. It writes what
//! lies beyond the end of the volume, which no structure refers to yet, and returns the blocks of
//! the volume that change. These are written by one transaction, so that the volume has the old
//! size or the new one after a power cut. While it is planned no operation changes the volume:
//! operations wait as they do while it is frozen. Data in memory stay there, and reads continue.

use crate::alloc::{Allocator, pieces_of};
use crate::edit::BlockRange;
use crate::engine::{Engine, Sizes};
use crate::lifecycle::follow;
use extant_device::{Device, DeviceError, errno};
use extant_journal::{ExclusiveJournal, JournalError, Turn};
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, Superblock};
use extant_ondisk::{BlockNo, Geometry, GroupNo, MAX_BLOCKS};
use extant_reader::{Error, VolumeInfo};
use extant_runtime::env::Env;
use extant_runtime::sync::Arc;
use extant_runtime::sync::atomic::{AtomicU64, Ordering};
use std::fmt;
use std::ops::Range;
use zerocopy::FromBytes;

/// How a volume grows.
#[derive(Clone, Debug, Default)]
pub struct GrowthPlan {
    /// Number of blocks that the volume has then.
    pub blocks: u64,
    /// Blocks of the volume that change, with their new contents.
    pub changes: Vec<(BlockNo, Vec<u8>)>,
    /// Number of clusters that become free.
    pub free_clusters: u64,
    /// Number of inodes that are added, all free.
    pub free_inodes: u32,
    /// Blocks in use that become free, in whole clusters and in order. They are not part of
    /// `free_clusters`.
    pub freed: Vec<Range<u64>>,
}

/// Plans growth.
pub trait GrowthPlanner: fmt::Debug + Send + Sync {
    /// The number of blocks that a volume gets if a number is asked for.
    ///
    /// # Errors
    /// A size that the volume cannot have.
    fn size_for(&self, device: &Arc<dyn Device>, blocks: u64) -> Result<u64, GrowthError>;

    /// Plans growth to a number of blocks, which the device has. Blocks of the volume on the device
    /// are not written.
    ///
    /// # Errors
    /// A size that the volume cannot have, a damaged volume, or the device failed.
    fn plan(
        &self,
        device: &Arc<dyn Device>,
        env: &Env,
        blocks: u64,
    ) -> Result<GrowthPlan, GrowthError>;

    /// Plans that `count` of the blocks that are reserved for descriptors become free, as a
    /// [`GrowthPlan`] that keeps the size. `None` if fewer are reserved.
    ///
    /// # Errors
    /// A damaged volume, or the device failed.
    fn plan_fewer_reserved(
        &self,
        device: &Arc<dyn Device>,
        env: &Env,
        count: u64,
    ) -> Result<Option<GrowthPlan>, GrowthError>;

    /// Writes the backups of superblock and descriptors, from the volume on the device.
    ///
    /// # Errors
    /// The device failed.
    fn write_backups(&self, device: &Arc<dyn Device>, env: &Env) -> Result<(), GrowthError>;
}

/// Why a volume in use did not grow.
#[derive(Debug, thiserror::Error)]
pub enum GrowthError {
    /// The volume has more blocks than were asked for.
    #[error(
        "a volume in use cannot be made smaller: it has {has} blocks, and {blocks} were asked for"
    )]
    Smaller {
        /// The number asked for.
        blocks: u64,
        /// The number that it has.
        has: u64,
    },
    /// The volume is frozen.
    #[error("the volume is frozen")]
    Frozen,
    /// The log has no room for the smallest step.
    #[error("the journal is too small: {needed} blocks change at once, and it has room for {room}")]
    JournalTooSmall {
        /// Blocks that change.
        needed: u64,
        /// Blocks that a transaction may have.
        room: u64,
    },
    /// The device cannot be made longer.
    #[error("the device cannot grow: {0}")]
    Device(DeviceError),
    /// The planner refused.
    #[error("{what}")]
    Refused {
        /// The number of a system call's error.
        errno: i32,
        /// Its message.
        what: String,
    },
    /// The volume cannot be changed.
    #[error(transparent)]
    Volume(#[from] Error),
}

impl From<JournalError> for GrowthError {
    fn from(error: JournalError) -> Self {
        Self::Volume(error.into())
    }
}

impl GrowthError {
    /// The kind of error in std's words.
    pub fn kind(&self) -> std::io::ErrorKind {
        errno::kind(self.errno())
    }

    /// The number that a system call returns for it (`ENOSPC` is 28).
    pub fn errno(&self) -> i32 {
        match self {
            Self::Smaller { .. } => errno::EINVAL,
            Self::Frozen => errno::EBUSY,
            Self::JournalTooSmall { .. } => errno::EOPNOTSUPP,
            Self::Device(error) => error.errno(),
            Self::Refused { errno, .. } => *errno,
            Self::Volume(error) => error.errno().raw_os_error(),
        }
    }
}

impl Engine {
    /// Grows the volume to a number of blocks while it is in use, and its device with it where this
    /// is too short. Returns the number that it has then: parts of clusters are cut off, and a last
    /// group that would be too small for its metadata.
    ///
    /// Several transactions grow it if the log is too small for one: after a failure it may have a
    /// size between.
    ///
    /// # Errors
    /// See [`GrowthError`]. The volume is as it was if the device cannot grow, or the size is
    /// refused.
    pub fn grow(&self, blocks: u64, planner: &dyn GrowthPlanner) -> Result<u64, GrowthError> {
        self.check_writable()?;
        let _one_at_a_time = self.freezing.lock();
        if self.is_frozen.load(Ordering::Acquire) {
            return Err(GrowthError::Frozen);
        }
        let has = self.geometry().blocks_count;
        if blocks < has {
            return Err(GrowthError::Smaller { blocks, has });
        }
        // Much of it is written before changes are held back.
        self.commit_all()?;
        let blocks = planner.size_for(&self.device, blocks.min(MAX_BLOCKS))?;
        if blocks <= has {
            return Ok(has);
        }
        let bytes = blocks.saturating_mul(u64::from(self.geometry().block_size));
        self.device.grow(bytes).map_err(GrowthError::Device)?;
        self.grow_in_steps(blocks, planner)
    }

    /// Reads the size of the device again: another program may have made it longer.
    ///
    /// # Errors
    /// The device failed.
    pub fn refresh_device(&self) -> Result<(), Error> {
        Ok(self.device.grow(0)?)
    }

    /// Makes the partition of the volume reach to the end of its image and have at least `bytes`
    /// bytes, before the volume grows ([`Device::extend_partition`]). A size that the volume cannot
    /// have leaves the table as it is.
    ///
    /// # Errors
    /// The volume does not grow, or its device is not the last partition of a GPT.
    pub fn extend_partition(
        &self,
        bytes: u64,
        planner: &dyn GrowthPlanner,
    ) -> Result<(), GrowthError> {
        self.check_writable()?;
        let _one_at_a_time = self.freezing.lock();
        if self.is_frozen.load(Ordering::Acquire) {
            return Err(GrowthError::Frozen);
        }
        let (has, block_size) = (self.geometry().blocks_count, self.geometry().block_size);
        let blocks = bytes / u64::from(block_size);
        if blocks > has {
            planner.size_for(&self.device, blocks)?;
        }
        self.device.extend_partition(bytes).map_err(GrowthError::Device)
    }

    /// Grows the volume by as few transactions as the log has room for. If it has no room for one
    /// group, fewer blocks are reserved for descriptors.
    fn grow_in_steps(&self, blocks: u64, planner: &dyn GrowthPlanner) -> Result<u64, GrowthError> {
        let least = u64::from(self.geometry().blocks_per_group);
        // Numbers of blocks of a step, and of one that is too large for the log.
        let (mut step, mut too_large) = (blocks - self.geometry().blocks_count, u64::MAX);
        loop {
            let now = self.geometry().blocks_count;
            if now >= blocks {
                return Ok(now);
            }
            match self.grow_step(now.saturating_add(step).min(blocks), planner) {
                Ok(after) if after > now => {
                    (step, too_large) = (step.saturating_mul(2), u64::MAX);
                }
                // The step ends in a group that would be too small for its metadata.
                Ok(_) => step = step.saturating_add(least),
                Err(GrowthError::JournalTooSmall { needed, room }) => {
                    if step > least && step.saturating_add(least) < too_large {
                        too_large = step;
                        step = (step / 2).max(least);
                        continue;
                    }
                    if !self.reserve_fewer(needed - room, planner)? {
                        return Err(GrowthError::JournalTooSmall { needed, room });
                    }
                    (step, too_large) = (least, u64::MAX);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Grows the volume by one transaction.
    fn grow_step(&self, blocks: u64, planner: &dyn GrowthPlanner) -> Result<u64, GrowthError> {
        let exclusive = self.journal.exclusive()?;
        let plan = planner.plan(&self.device, &self.env, blocks)?;
        self.carry_out(&exclusive, &plan, planner)?;
        Ok(plan.blocks)
    }

    /// Gives up blocks that are reserved for descriptors. False if there are not as many.
    fn reserve_fewer(&self, count: u64, planner: &dyn GrowthPlanner) -> Result<bool, GrowthError> {
        let exclusive = self.journal.exclusive()?;
        let Some(plan) = planner.plan_fewer_reserved(&self.device, &self.env, count)? else {
            return Ok(false);
        };
        tracing::info!(count, "growth: fewer blocks are reserved for group descriptors");
        self.carry_out(&exclusive, &plan, planner)?;
        Ok(true)
    }

    fn carry_out(
        &self,
        exclusive: &ExclusiveJournal<'_>,
        plan: &GrowthPlan,
        planner: &dyn GrowthPlanner,
    ) -> Result<(), GrowthError> {
        if plan.changes.is_empty() {
            return Ok(());
        }
        let (needed, room) = (plan.changes.len() as u64, u64::from(exclusive.max_credits()));
        if needed > room {
            return Err(GrowthError::JournalTooSmall { needed, room });
        }
        // The part beyond the old end is durable before anything refers to it.
        self.device.flush().map_err(Error::Io)?;
        let sizes = self.sizes_after(plan)?;
        self.switch(exclusive, plan, sizes)?;
        planner.write_backups(&self.device, &self.env)
    }

    /// The volume as the planned superblock describes it.
    fn sizes_after(&self, plan: &GrowthPlan) -> Result<Sizes, Error> {
        let block = self.geometry().superblock_block();
        let at = (SUPERBLOCK_OFFSET % u64::from(self.geometry().block_size)) as usize;
        let stored = plan.changes.iter().find(|(changed, _)| *changed == block);
        let raw = stored
            .and_then(|(_, bytes)| RawSuperblock::read_from_prefix(bytes.get(at..)?).ok())
            .map(|(raw, _)| raw)
            .ok_or(Error::Invalid("growth that keeps the superblock"))?;
        let mut info = VolumeInfo::new(Geometry::new(&raw)?, raw)?;
        follow(&mut info, &self.options);
        Ok(Sizes::new(info))
    }

    /// Makes the planned changes in one transaction, and uses the new sizes from then on. Searches
    /// for space in groups whose bitmaps change wait until they are made; freed blocks are used
    /// after the commit.
    fn switch(
        &self,
        exclusive: &ExclusiveJournal<'_>,
        plan: &GrowthPlan,
        sizes: Sizes,
    ) -> Result<(), Error> {
        let superblock = self.geometry().superblock_block();
        let before = self.geometry().groups_count;
        let credits = u32::try_from(plan.changes.len()).unwrap_or(u32::MAX);
        let blocks: Vec<BlockNo> = plan.changes.iter().map(|(block, _)| *block).collect();
        let frames = self.journal.read_many(&blocks)?;
        let run =
            |run: &Range<u64>| BlockRange { start: BlockNo(run.start), count: run.end - run.start };
        let freed = pieces_of(self.geometry(), plan.freed.iter().map(run))?;
        let handle = exclusive.start(credits)?;
        self.allocator.change_groups(GroupNo(before - 1), &freed, || {
            for (frame, (block, bytes)) in frames.iter().zip(&plan.changes) {
                let mut content = handle.write(frame)?;
                content.copy_from_slice(bytes);
                content.set_sealed();
                // Without a log the superblock comes after the blocks that it counts.
                content.set_turn(if *block == superblock { Turn::Last } else { Turn::Middle });
            }
            for block in plan.freed.iter().cloned().flatten().map(BlockNo) {
                if self.journal.cached(block).is_some() {
                    handle.forget(block)?;
                }
            }
            self.publish(exclusive, plan, sizes, before);
            Ok(())
        })?;
        drop(handle);
        exclusive.checkpoint()?;
        self.allocator.changed_groups(&freed);
        Ok(())
    }

    /// Uses the new sizes. The arrays come first: a thread that finds the new geometry uses them.
    fn publish(
        &self,
        exclusive: &ExclusiveJournal<'_>,
        plan: &GrowthPlan,
        sizes: Sizes,
        before: u32,
    ) {
        let geometry = &sizes.info.geometry;
        self.allocator.add_groups(before..geometry.groups_count);
        self.tables.grow(geometry.groups_count as usize, |_| AtomicU64::new(0));
        exclusive.grow(geometry.blocks_count);
        self.freed_in.push(geometry.clone());
        let reserved = Superblock::decode(&sizes.info.raw_superblock).reserved_blocks;
        let kept = reserved / u64::from(geometry.blocks_per_cluster);
        let for_maps =
            self.options.reserved_clusters.unwrap_or_else(|| geometry.clusters_for_maps());
        self.sizes.push(sizes);
        let allocator: &Allocator = &self.allocator;
        allocator.add_space(plan.free_clusters, plan.free_inodes.into(), kept, for_maps);
    }
}
