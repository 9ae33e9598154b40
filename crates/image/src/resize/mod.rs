//! `extant resize`: a volume that is not mounted gets another size, as resize2fs does it.
//!
//! The changes to blocks that the volume uses are collected in memory (`staged.rs`); blocks that it
//! does not use are written at once. Then one transaction in the volume's own journal switches to
//! the new size, so that after a power cut the volume has the old size or the new one. Without a
//! journal, or with one that is too small for the transaction, the blocks are written in place
//! while the superblock says "not clean", so that a check follows an interruption; an undo file
//! takes it back.

mod bit64;
mod copy;
mod descriptors;
mod error;
mod grow;
mod journal;
mod journal_size;
mod minimum;
mod moves;
mod plan;
mod renumber;
mod resize_inode;
mod scan;
mod shrink;
mod size;
mod staged;

pub use bit64::Bit64;
pub use error::ResizeError;
pub use grow::Growth;

use std::ops::Range;
use std::sync::Arc;

use extant_device::Device;
use extant_journal::{Finish, OneTransaction, ReplayBy, recover_volume};
use extant_offline::mmp::{MmpBlock, Taken, interval};
use extant_offline::{OfflineVolume, read_primary_superblock};
use extant_ondisk::mmp::{Mmp, MmpSequence};
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, State, Superblock};
use extant_ondisk::{BlockNo, CompatFeatures, Geometry, GroupNo, IncompatFeatures};
use extant_runtime::env::Env;
use zerocopy::IntoBytes;

use size::Resized;

/// A volume to be resized.
#[derive(Clone, Copy, Debug)]
pub struct Resize<'a> {
    /// Its device. For growth it has the new size already.
    pub device: &'a Arc<dyn Device>,
    /// The device of an external journal.
    pub journal: Option<&'a dyn Device>,
    /// The clock.
    pub env: &'a Env,
    /// Resizes a volume that should be checked first.
    pub force: bool,
    /// RAID stride in blocks, by which the bitmaps of new groups are placed; `None` for the
    /// superblock's.
    pub stride: Option<u32>,
    /// Is told what is done.
    pub progress: Option<&'a dyn ResizeProgress>,
}

/// A part of a resize.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ResizeStep {
    /// Adds block groups.
    AddGroups,
    /// Moves runs of blocks.
    MoveBlocks,
    /// Gives inodes other numbers.
    MoveInodes,
    /// Moves the tables of block groups.
    MoveTables,
}

/// Is told what a resize does.
pub trait ResizeProgress: std::fmt::Debug {
    /// A step begins, with this number of groups, runs or inodes. A step that has nothing to do is
    /// not reported.
    fn begin(&self, step: ResizeStep, count: u64);

    /// A run of blocks is copied, to the block `to` and those after it.
    fn move_blocks(&self, _run: Range<u64>, _to: u64) {}

    /// An inode gets another number.
    fn move_inode(&self, _old: u32, _new: u32) {}

    /// A bitmap or the inode table of a group moves: its first block.
    fn move_table(&self, _group: u32, _from: u64, _to: u64) {}
}

/// The size of a volume.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct VolumeSize {
    /// Block size in bytes.
    pub block_size: u32,
    /// Number of blocks.
    pub blocks: u64,
}

impl VolumeSize {
    /// Reads the size of the volume on a device.
    ///
    /// # Errors
    /// There is no volume, its superblock is not valid, or the device failed.
    pub fn of(device: &dyn Device) -> Result<Self, ResizeError> {
        let geometry = Geometry::new(&read_primary_superblock(device)?)?;
        Ok(Self { block_size: geometry.block_size, blocks: geometry.blocks_count })
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.blocks * u64::from(self.block_size)
    }

    /// A size as resize2fs reads it, in blocks of the volume: a number of blocks, or of sectors of
    /// 512 bytes (s), KiB (K), MiB (M), GiB (G) or TiB (T). `None` if it is invalid.
    pub fn parse(&self, text: &str) -> Option<u64> {
        crate::mkfs::numbers::size(text, self.block_size)
    }
}

/// The number of blocks that a volume gets if a size is asked for: parts of clusters are cut off,
/// and a last group that would be too small for its metadata.
///
/// # Errors
/// A size that the volume cannot have, or the device failed.
pub fn size_for(device: &dyn Device, blocks: u64) -> Result<u64, ResizeError> {
    let raw = read_primary_superblock(device)?;
    Ok(Resized::new(&raw, blocks)?.geometry.blocks_count)
}

/// Whether the volume must be checked before it is resized: it is not clean, has errors, or was
/// mounted after its last check.
///
/// # Errors
/// There is no volume, or the device failed.
pub fn needs_check(device: &dyn Device) -> Result<bool, ResizeError> {
    let superblock = Superblock::decode(&read_primary_superblock(device)?);
    Ok(!superblock.state.contains(State::CLEAN)
        || superblock.state.contains(State::ERRORS)
        || superblock.last_check < superblock.mount_time)
}

impl<'a> Resize<'a> {
    /// A volume without an external journal, by the clock of `env`.
    pub fn new(device: &'a Arc<dyn Device>, env: &'a Env) -> Self {
        Self { device, journal: None, env, force: false, stride: None, progress: None }
    }
}

impl Resize<'_> {
    fn begin(&self, step: ResizeStep, count: u64) {
        if let Some(progress) = self.progress.filter(|_| count > 0) {
            progress.begin(step, count);
        }
    }

    /// Gives the volume another size in blocks. Returns the number of blocks that it has then: see
    /// [`size_for`].
    ///
    /// # Errors
    /// A size that the volume cannot have, a volume that is in use or damaged, and failures of a
    /// device. After a refusal the volume is as it was.
    pub fn to(&self, blocks: u64) -> Result<u64, ResizeError> {
        self.claimed(|| self.change(blocks))
    }

    /// Makes a change while the volume is marked as in use, after its log was replayed.
    fn claimed<T>(
        &self,
        change: impl FnOnce() -> Result<T, ResizeError>,
    ) -> Result<T, ResizeError> {
        if !self.force && needs_check(&**self.device)? {
            return Err(ResizeError::NeedsCheck);
        }
        let now = u64::try_from(self.env.now().seconds).unwrap_or_default();
        // First: the log of a volume that another host has open is not to be replayed.
        self.claim_mmp(now)?;
        let outcome = self.recover().and_then(|()| self.unbar_kernel()).and_then(|()| change());
        let released =
            OfflineVolume::open(self.device.clone()).and_then(|volume| volume.release_mmp(now));
        let done = outcome?;
        released?;
        Ok(done)
    }

    /// The smallest number of blocks that the volume can have. Nothing is written.
    ///
    /// # Errors
    /// A volume that is damaged or cannot be made smaller, or the device failed.
    pub fn minimum(&self) -> Result<u64, ResizeError> {
        self.least()
    }

    /// Replays a log that needs it.
    fn recover(&self) -> Result<(), ResizeError> {
        let features = read_primary_superblock(&**self.device)?.features();
        if features.incompat.contains(IncompatFeatures::RECOVER) {
            recover_volume(&**self.device, self.journal, Finish::Reset)?;
            // The log may have said that there are errors.
            if !self.force && needs_check(&**self.device)? {
                return Err(ResizeError::NeedsCheck);
            }
        }
        Ok(())
    }

    /// A cut-off switch of 64bit may have left the name of a journal device: see
    /// [`ReplayBy::AllButKernel`].
    fn unbar_kernel(&self) -> Result<(), ResizeError> {
        let mut raw = read_primary_superblock(&**self.device)?;
        if raw.s_journal_inum.get() == 0 || raw.s_journal_dev.get() == 0 {
            return Ok(());
        }
        raw.s_journal_dev.set(0);
        raw.seal();
        write_superblock(&**self.device, &raw)
    }

    /// The volume, and what it is with another number of blocks, which the device has.
    fn checked(&self, blocks: u64) -> Result<(OfflineVolume, Resized), ResizeError> {
        let mut volume = self.open_checked()?;
        let resized = Resized::new(&volume.raw, blocks)?;
        let blocks = resized.geometry.blocks_count;
        let held = self.device.size() / u64::from(volume.geometry().block_size);
        if blocks > held {
            return Err(ResizeError::DeviceTooShort { blocks, held });
        }
        resize_inode::check(&mut volume, &resized.geometry)?;
        Ok((volume, resized))
    }

    fn change(&self, blocks: u64) -> Result<u64, ResizeError> {
        let (mut volume, resized) = self.checked(blocks)?;
        let geometry = volume.geometry().clone();
        let blocks = resized.geometry.blocks_count;
        if blocks > geometry.blocks_count {
            self.grow(&mut volume, resized)?;
        } else if blocks < geometry.blocks_count {
            self.shrink(blocks)?;
        }
        Ok(blocks)
    }

    /// Opens the volume if its descriptors are valid.
    fn open_checked(&self) -> Result<OfflineVolume, ResizeError> {
        let volume = OfflineVolume::open_strict(self.device.clone())?;
        let geometry = volume.geometry();
        // The kernel takes these blocks for metadata whether or not there is the feature.
        if geometry.reserved_gdt_blocks > 0 && !geometry.has_compat(CompatFeatures::RESIZE_INODE) {
            return Err(ResizeError::NeedsCheck);
        }
        for group in (0..geometry.groups_count).map(GroupNo) {
            volume.table().verify(group, geometry)?;
            volume.desc(group).check_places(group, geometry)?;
        }
        Ok(volume)
    }

    /// Marks the volume as in use in its MMP block.
    fn claim_mmp(&self, now: u64) -> Result<(), ResizeError> {
        let volume = OfflineVolume::open(self.device.clone())?;
        let Some(block) = volume.mmp_block() else { return Ok(()) };
        let geometry = volume.geometry();
        let on_device = MmpBlock { device: &**self.device, geometry, block };
        let (raw, mut mmp) = on_device.read()?;
        if mmp.sequence != MmpSequence::Clean {
            return Err(in_use(&mmp));
        }
        let check_interval = interval(volume.raw.s_mmp_interval.get(), mmp.check_interval);
        let ours = Mmp { time: now, check_interval, ..mmp.clone() };
        if let Taken::Theirs(other) = on_device.take(&ours, self.env, &mut |_| ())? {
            return Err(in_use(&other));
        }
        (mmp.sequence, mmp.time) = (MmpSequence::Fsck, now);
        Ok(volume.write_mmp(block, raw, &mmp)?)
    }

    fn set_write_time(&self, volume: &mut OfflineVolume) -> Result<(), ResizeError> {
        let seconds = u64::try_from(self.env.now().seconds).unwrap_or_default();
        Ok(volume.update_superblock(|raw| {
            let mut superblock = Superblock::decode(raw);
            superblock.write_time = seconds;
            superblock.encode_into(raw);
        })?)
    }

    /// Makes the changes to blocks that the volume uses, in one step if it has a journal with room
    /// for them.
    fn switch(
        &self,
        mut changes: Vec<(BlockNo, Vec<u8>)>,
        replay: ReplayBy,
    ) -> Result<(), ResizeError> {
        let device = &**self.device;
        if changes.is_empty() {
            return Ok(device.flush()?);
        }
        if let Some(journal) = OneTransaction::open(device, self.journal)?
            && changes.len() as u64 <= u64::from(journal.capacity()?)
        {
            return Ok(journal.change(changes, self.env.now(), replay)?);
        }
        device.flush()?;
        let mut raw = read_primary_superblock(device)?;
        let geometry = Geometry::new(&raw)?;
        let state = raw.s_state.get();
        raw.s_state.set(state & !State::CLEAN.bits());
        raw.seal();
        write_superblock(device, &raw)?;
        let primary = geometry.superblock_block();
        let last = changes.iter().position(|(block, _)| *block == primary);
        let last = last.map(|index| changes.remove(index));
        for (block, bytes) in changes {
            device.write_at(geometry.byte_of(block), &bytes)?;
        }
        device.flush()?;
        match last {
            Some((block, bytes)) => device.write_at(geometry.byte_of(block), &bytes)?,
            None => {
                raw.s_state.set(state);
                raw.seal();
                write_superblock(device, &raw)?;
            }
        }
        Ok(device.flush()?)
    }
}

fn write_superblock(device: &dyn Device, raw: &RawSuperblock) -> Result<(), ResizeError> {
    device.write_at(SUPERBLOCK_OFFSET, raw.as_bytes())?;
    Ok(device.flush()?)
}

fn in_use(mmp: &Mmp) -> ResizeError {
    let end = mmp.node_name.iter().position(|byte| *byte == 0).unwrap_or(mmp.node_name.len());
    ResizeError::InUse { node: mmp.node_name[..end].escape_ascii().to_string() }
}
