//! Multiple-mount protection: the volume is taken before anything is written, the mark is kept alive while it is open, and
//! given back at the end.
//!
//! Source: `mmp.rst`. Whoever finds that somebody else has taken the volume writes nothing more.

use super::status::Status;
use crate::error::Error;
use extant_device::env::{Env, Next};
use extant_device::sync::atomic::{AtomicU32, Ordering};
use extant_device::sync::{Arc, Condvar, Mutex};
use extant_device::{Device, DeviceError, Operation};
use extant_ondisk::mmp::{MAX_SEQUENCE, Mmp, MmpSequence, RawMmp};
use extant_ondisk::superblock::RawSuperblock;
use extant_ondisk::{BlockNo, Flaw, Geometry, Place};
use std::io;
use std::time::Duration;
use zerocopy::IntoBytes;

/// Seconds between updates where the superblock says none.
const DEFAULT_INTERVAL: u16 = 5;
/// The longest that anybody is waited for.
const LONGEST_INTERVAL: u16 = 300;

/// The mark that the volume is ours.
#[derive(Debug)]
pub(crate) struct MmpMark {
    device: Arc<dyn Device>,
    geometry: Geometry,
    block: BlockNo,
    interval: u16,
    /// The number that the block has, if it is still ours.
    sequence: AtomicU32,
}

impl MmpMark {
    /// Takes a volume with the feature: waits where somebody may have it open.
    pub(crate) fn take(
        device: &Arc<dyn Device>,
        superblock: &RawSuperblock,
        geometry: &Geometry,
        env: &Env,
    ) -> Result<Self, Error> {
        let block = BlockNo(superblock.s_mmp_block.get());
        if !geometry.contains(block, 1) {
            return Err(Flaw::bad_value("s_mmp_block", block.0).at(Place::Mmp(block)).into());
        }
        let interval = match superblock.s_mmp_interval.get() {
            0 => DEFAULT_INTERVAL,
            seconds => seconds.min(LONGEST_INTERVAL),
        };
        let sequence = AtomicU32::new(0);
        let mark =
            Self { device: device.clone(), geometry: geometry.clone(), block, interval, sequence };
        let (raw, before) = mark.read()?;
        match before.sequence {
            MmpSequence::Clean => {}
            MmpSequence::Fsck => return Err(in_use(&before)),
            MmpSequence::Mounted(_) => mark.wait_for_silence(&before, env)?,
        }
        let now = env.now();
        let mixed = u64::from(now.nanoseconds) << 32 ^ now.seconds.cast_unsigned();
        // A number of those that mounts have, and not 0.
        let first = (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32 % MAX_SEQUENCE + 1;
        mark.write(raw, first, env)?;
        Ok(mark)
    }

    /// Somebody who lives counts the number up within the interval: it is watched for twice as long and a second more.
    fn wait_for_silence(&self, before: &Mmp, env: &Env) -> Result<(), Error> {
        let interval = self.interval.max(before.check_interval).min(LONGEST_INTERVAL);
        let (lock, nobody) = (Mutex::<()>::default(), Condvar::default());
        for _ in 0..2 * u32::from(interval) + 1 {
            let mut guard = lock.lock();
            env.wait_while_for(&nobody, &mut guard, Duration::from_secs(1), |()| true);
            drop(guard);
            let (_, now) = self.read()?;
            if now.sequence != before.sequence {
                return Err(in_use(&now));
            }
        }
        Ok(())
    }

    fn read(&self) -> Result<(RawMmp, Mmp), Error> {
        let mut bytes = vec![0; self.geometry.block_len()];
        self.device.read_at(self.geometry.byte_of(self.block), &mut bytes)?;
        let raw = RawMmp::from_bytes(&bytes, self.block)?;
        raw.verify(self.block, &self.geometry)?;
        let mmp = Mmp::decode(&raw);
        Ok((raw, mmp))
    }

    fn write(&self, mut raw: RawMmp, sequence: u32, env: &Env) -> Result<(), Error> {
        let mut mmp = Mmp::decode(&raw);
        mmp.sequence = MmpSequence::decode(sequence);
        mmp.time = env.now().seconds.max(0).cast_unsigned();
        mmp.check_interval = self.interval;
        let host = rustix::system::uname();
        put(&mut mmp.node_name, host.nodename().to_bytes());
        put(&mut mmp.device_name, b"extant");
        mmp.encode_into(&mut raw);
        raw.seal(&self.geometry);
        self.device.write_at(self.geometry.byte_of(self.block), raw.as_bytes())?;
        self.device.flush()?;
        self.sequence.store(sequence, Ordering::Relaxed);
        Ok(())
    }

    /// One turn of the worker that keeps the mark alive.
    pub(crate) fn keep(&self, status: &Status, env: &Env) -> Next {
        if status.is_lost() {
            return Next::Done;
        }
        let counted = self.own().and_then(|raw| {
            let next = self.sequence.load(Ordering::Relaxed) % MAX_SEQUENCE + 1;
            self.write(raw, next, env)
        });
        match counted {
            Ok(()) => Next::After(Duration::from_secs(u64::from(self.interval))),
            Err(error) => {
                tracing::error!(%error, "multiple-mount protection: nothing is written any more");
                status.set_lost();
                Next::Done
            }
        }
    }

    /// The block as it is, which must be as we left it.
    fn own(&self) -> Result<RawMmp, Error> {
        let (raw, found) = self.read()?;
        if found.sequence != MmpSequence::decode(self.sequence.load(Ordering::Relaxed)) {
            return Err(in_use(&found));
        }
        Ok(raw)
    }

    /// Gives the volume back.
    pub(crate) fn give_back(&self, env: &Env) -> Result<(), Error> {
        let raw = self.own()?;
        self.write(raw, MmpSequence::Clean.encode(), env)
    }
}

/// What the journal is told once somebody else has the volume.
pub(super) fn lost() -> DeviceError {
    let cause = io::Error::other("somebody else has taken the volume");
    DeviceError::io(Operation::Write, 0, 0, cause)
}

fn in_use(mmp: &Mmp) -> Error {
    let name: Vec<u8> = mmp.node_name.iter().copied().take_while(|byte| *byte != 0).collect();
    if mmp.sequence == MmpSequence::Fsck {
        return Error::InUse(format!("it is being checked on {}", name.escape_ascii()));
    }
    Error::InUse(format!("it is open on {}", name.escape_ascii()))
}

/// As much of a text as fits, zeros behind it.
fn put(field: &mut [u8], text: &[u8]) {
    field.fill(0);
    let len = text.len().min(field.len() - 1);
    field[..len].copy_from_slice(&text[..len]);
}
