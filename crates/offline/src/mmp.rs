//! Multiple-mount protection: the volume is taken before anything is written.
//!
//! Source: `mmp.rst`. Two who take a volume at once may both find it free: so each writes a number
//! of its own, waits as long as another may take to write its, and goes on only if its own is still
//! there.

use std::time::Duration;

use extant_device::Device;
use extant_ondisk::mmp::{MAX_SEQUENCE, Mmp, MmpSequence, RawMmp};
use extant_ondisk::{BlockNo, Geometry, IncompatFeatures};
use extant_runtime::env::Env;
use extant_runtime::sync::{Condvar, Mutex};
use zerocopy::IntoBytes;

use crate::{OfflineError, OfflineVolume};

/// Seconds between updates where the superblock says none.
const DEFAULT_INTERVAL: u16 = 5;
/// The longest that anybody is waited for.
const LONGEST_INTERVAL: u16 = 300;

/// The MMP block of a volume.
#[derive(Clone, Copy, Debug)]
pub struct MmpBlock<'a> {
    /// The volume's device.
    pub device: &'a dyn Device,
    /// Its geometry.
    pub geometry: &'a Geometry,
    /// Where the block lies, on the volume.
    pub block: BlockNo,
}

/// How an attempt to take a volume ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Taken {
    /// It is ours: the number that the block has.
    Ours(u32),
    /// Another host has it, or is just taking it.
    Theirs(Mmp),
}

/// Seconds between updates: what the superblock says, or the block, where that is longer.
pub fn interval(of_superblock: u16, of_block: u16) -> u16 {
    match of_superblock.max(of_block) {
        0 => DEFAULT_INTERVAL,
        seconds => seconds.min(LONGEST_INTERVAL),
    }
}

/// Seconds to wait for others: one who lives counts the number up within the interval.
pub fn patience(interval: u16) -> u64 {
    2 * u64::from(interval) + 1
}

impl MmpBlock<'_> {
    /// The block, verified.
    ///
    /// # Errors
    /// It is broken, or the device failed.
    pub fn read(&self) -> Result<(RawMmp, Mmp), OfflineError> {
        let mut bytes = vec![0; self.geometry.block_len()];
        self.device.read_at(self.geometry.byte_of(self.block), &mut bytes)?;
        let raw = RawMmp::from_bytes(&bytes, self.block)?;
        raw.verify(self.block, self.geometry)?;
        let mmp = Mmp::decode(&raw);
        Ok((raw, mmp))
    }

    /// Seals `mmp`, writes it over `raw`, and has it on the medium: others who look must see it.
    ///
    /// # Errors
    /// The device failed.
    pub fn write(&self, mut raw: RawMmp, mmp: &Mmp) -> Result<(), OfflineError> {
        mmp.encode_into(&mut raw);
        raw.seal(self.geometry);
        self.device.write_at(self.geometry.byte_of(self.block), raw.as_bytes())?;
        Ok(self.device.flush()?)
    }

    /// Takes the volume: waits where another host may have it, writes a number of its own with what
    /// `mmp` says of us, and waits whether it stays. `waiting` is told how many seconds each wait
    /// takes.
    ///
    /// # Errors
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
        // A number of those that mounts have, and not 0.
        let ours = (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32 % MAX_SEQUENCE + 1;
        let sequence = MmpSequence::Mounted(ours);
        self.write(raw, &Mmp { sequence, ..mmp.clone() })?;
        waiting(seconds);
        let other = self.watch(sequence, seconds, env)?;
        Ok(other.map_or(Taken::Ours(ours), Taken::Theirs))
    }

    /// Watches the block for so many seconds: what it says as soon as that has another number.
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
    /// The MMP block, where the volume has one that lies on it.
    pub fn mmp_block(&self) -> Option<BlockNo> {
        let block = BlockNo(self.raw.s_mmp_block.get());
        let has_mmp = self.raw.features().incompat.contains(IncompatFeatures::MMP);
        (has_mmp && self.geometry.contains(block, 1)).then_some(block)
    }

    /// The content of the MMP block, not verified.
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

    /// Marks the volume as not in use, at the time `now` in seconds since 1970. Nothing is done
    /// without the feature.
    ///
    /// # Errors
    /// The device failed.
    pub fn release_mmp(&self, now: u64) -> Result<(), OfflineError> {
        self.change_mmp(|mmp| (mmp.sequence, mmp.time) = (MmpSequence::Clean, now))
    }

    /// Seals the MMP block again, after the volume's checksums changed.
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
