//! Multiple-mount protection (MMP): the volume is acquired before any write.
//!
//! Source: `mmp.rst`. Two hosts may find the volume free at the same time. So each writes its own
//! sequence number, waits as long as another host may take for its write, and continues only if its
//! number is still there.

use std::time::Duration;

use extant_device::Device;
use extant_ondisk::mmp::{MAX_SEQUENCE, Mmp, MmpSequence, RawMmp};
use extant_ondisk::{BlockNo, Geometry, IncompatFeatures};
use extant_runtime::env::Env;
use extant_runtime::sync::{Condvar, Mutex};
use zerocopy::IntoBytes;

use crate::{OfflineError, OfflineVolume};

/// Update interval in seconds if the superblock has none.
const DEFAULT_INTERVAL: u16 = 5;
/// Maximum interval in seconds to wait for another host.
const LONGEST_INTERVAL: u16 = 300;

/// The MMP block of a volume.
#[derive(Clone, Copy, Debug)]
pub struct MmpBlock<'a> {
    /// The volume's device.
    pub device: &'a dyn Device,
    /// Its geometry.
    pub geometry: &'a Geometry,
    /// The block's number on the volume.
    pub block: BlockNo,
}

/// The result of an attempt to acquire the volume.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Taken {
    /// This host has the volume, under this sequence number.
    Ours(u32),
    /// Another host has it, or is acquiring it.
    Theirs(Mmp),
}

/// Update interval in seconds: the longer of those in the superblock and in the MMP block.
pub fn interval(of_superblock: u16, of_block: u16) -> u16 {
    match of_superblock.max(of_block) {
        0 => DEFAULT_INTERVAL,
        seconds => seconds.min(LONGEST_INTERVAL),
    }
}

/// Seconds to wait for other hosts: an active host increments the number within the interval.
pub fn patience(interval: u16) -> u64 {
    2 * u64::from(interval) + 1
}

impl MmpBlock<'_> {
    /// Reads and verifies the block.
    ///
    /// # Errors
    /// It is invalid, or the device failed.
    pub fn read(&self) -> Result<(RawMmp, Mmp), OfflineError> {
        let mut bytes = vec![0; self.geometry.block_len()];
        self.device.read_at(self.geometry.byte_of(self.block), &mut bytes)?;
        let raw = RawMmp::from_bytes(&bytes, self.block)?;
        raw.verify(self.block, self.geometry)?;
        let mmp = Mmp::decode(&raw);
        Ok((raw, mmp))
    }

    /// Writes `mmp` with its checksum over `raw` and flushes it: other hosts must see it.
    ///
    /// # Errors
    /// The device failed.
    pub fn write(&self, mut raw: RawMmp, mmp: &Mmp) -> Result<(), OfflineError> {
        mmp.encode_into(&mut raw);
        raw.seal(self.geometry);
        self.device.write_at(self.geometry.byte_of(self.block), raw.as_bytes())?;
        Ok(self.device.flush()?)
    }

    /// Acquires the volume: waits if another host may have it, writes a new sequence number and the
    /// fields of `mmp`, and waits to see whether the number stays. `waiting` is called with the
    /// seconds of each wait.
    ///
    /// # Errors
    /// The block is invalid, or the device failed.
    /// The block is broken, or the device failed.
    pub fn take(
        &self,
        mmp: &Mmp,
        env: &Env,
        waiting: &mut dyn FnMut(u64),
    ) -> Result<Taken, OfflineError> {
        let (raw, before) = self.read()?;
        let seconds = patience(interval(mmp.check_interval, before.check_interval));
        match before.sequence {
            MmpSequence::Clean => {}
            MmpSequence::Fsck => return Ok(Taken::Theirs(before)),
            MmpSequence::Mounted(_) => {
                waiting(seconds);
                if let Some(now) = self.watch(before.sequence, seconds, env)? {
                    return Ok(Taken::Theirs(now));
                }
            }
        }
        let now = env.now();
        let mixed = u64::from(now.nanoseconds) << 32 ^ now.seconds.cast_unsigned();
        let mixed = mixed ^ u64::from(std::process::id()) << 16;
        // A number in the range for mounts, and not 0.
        let ours = (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32 % MAX_SEQUENCE + 1;
        let sequence = MmpSequence::Mounted(ours);
        self.write(raw, &Mmp { sequence, ..mmp.clone() })?;
        waiting(seconds);
        let other = self.watch(sequence, seconds, env)?;
        Ok(other.map_or(Taken::Ours(ours), Taken::Theirs))
    }

    /// Watches the block for `seconds`. Returns its content as soon as the number changes.
    fn watch(
        &self,
        sequence: MmpSequence,
        seconds: u64,
        env: &Env,
    ) -> Result<Option<Mmp>, OfflineError> {
        let (lock, never) = (Mutex::<()>::default(), Condvar::default());
        for _ in 0..seconds {
            let mut guard = lock.lock();
            env.wait_while_for(&never, &mut guard, Duration::from_secs(1), |()| true);
            drop(guard);
            let (_, now) = self.read()?;
            if now.sequence != sequence {
                return Ok(Some(now));
            }
        }
        Ok(None)
    }
}

impl OfflineVolume {
    /// The MMP block, if the volume has one within its bounds.
    pub fn mmp_block(&self) -> Option<BlockNo> {
        let block = BlockNo(self.raw.s_mmp_block.get());
        let has_mmp = self.raw.features().incompat.contains(IncompatFeatures::MMP);
        (has_mmp && self.geometry.contains(block, 1)).then_some(block)
    }

    /// Reads the MMP block without verifying it.
    ///
    /// # Errors
    /// The device failed, or the block is too short.
    pub fn read_mmp(&self, block: BlockNo) -> Result<RawMmp, OfflineError> {
        Ok(RawMmp::from_bytes(&self.read(block)?, block)?)
    }

    /// As [`MmpBlock::write`].
    ///
    /// # Errors
    /// The device failed.
    pub fn write_mmp(&self, block: BlockNo, raw: RawMmp, mmp: &Mmp) -> Result<(), OfflineError> {
        MmpBlock { device: &*self.device, geometry: &self.geometry, block }.write(raw, mmp)
    }

    /// Marks the volume as not in use, at the time `now` in seconds since 1970. Has no effect
    /// without the feature.
    ///
    /// # Errors
    /// The device failed.
    pub fn release_mmp(&self, now: u64) -> Result<(), OfflineError> {
        self.change_mmp(|mmp| (mmp.sequence, mmp.time) = (MmpSequence::Clean, now))
    }

    /// Updates the checksum of the MMP block after the volume's checksum seed or feature changed.
    ///
    /// # Errors
    /// The device failed.
    pub fn reseal_mmp(&self) -> Result<(), OfflineError> {
        self.change_mmp(|_| ())
    }

    fn change_mmp(&self, change: impl FnOnce(&mut Mmp)) -> Result<(), OfflineError> {
        let Some(block) = self.mmp_block() else { return Ok(()) };
        let raw = self.read_mmp(block)?;
        let mut mmp = Mmp::decode(&raw);
        change(&mut mmp);
        self.write_mmp(block, raw, &mmp)
    }
}
