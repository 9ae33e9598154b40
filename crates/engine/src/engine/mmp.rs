//! Multiple-mount protection: the volume is taken before anything is written, the mark is kept
//! alive while it is open, and given back at the end.
//!
//! Source: `mmp.rst`. A host that finds that another host has taken the volume writes nothing more.

use super::health::Health;
use extant_device::Device;
use extant_offline::mmp::{MmpBlock, Taken, interval};
use extant_ondisk::mmp::{MAX_SEQUENCE, Mmp, MmpSequence, RawMmp};
use extant_ondisk::superblock::RawSuperblock;
use extant_ondisk::{BlockNo, Flaw, Geometry, Location};
use extant_reader::{Error, OtherHost};
use extant_runtime::env::{Env, Next};
use extant_runtime::sync::Arc;
use extant_runtime::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

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
    /// Takes a volume with the feature: waits where another host may have it open, and until no
    /// other host can be taking it at the same time.
    pub(crate) fn take(
        device: &Arc<dyn Device>,
        superblock: &RawSuperblock,
        geometry: &Geometry,
        env: &Env,
    ) -> Result<Self, Error> {
        let block = BlockNo(superblock.s_mmp_block.get());
        if !geometry.contains(block, 1) {
            return Err(Flaw::bad_value("s_mmp_block", block.0).at(Location::Mmp(block)).into());
        }
        let mark = Self {
            device: device.clone(),
            geometry: geometry.clone(),
            block,
            interval: interval(superblock.s_mmp_interval.get(), 0),
            sequence: AtomicU32::new(0),
        };
        let mut report_wait =
            |seconds| tracing::info!(seconds, "multiple-mount protection: waiting");
        match mark.on_device().take(&mark.says(env), env, &mut report_wait)? {
            Taken::Theirs(other) => Err(in_use(&other)),
            Taken::Ours(sequence) => {
                mark.sequence.store(sequence, Ordering::Relaxed);
                Ok(mark)
            }
        }
    }

    fn on_device(&self) -> MmpBlock<'_> {
        MmpBlock { device: &*self.device, geometry: &self.geometry, block: self.block }
    }

    /// The contents of the block for this mount, except the number.
    fn says(&self, env: &Env) -> Mmp {
        let mut mmp = Mmp::new(self.interval, env.now().seconds.max(0).cast_unsigned());
        let host = rustix::system::uname();
        put(&mut mmp.node_name, host.nodename().to_bytes());
        put(&mut mmp.device_name, b"extant");
        mmp
    }

    fn write(&self, raw: RawMmp, sequence: u32, env: &Env) -> Result<(), Error> {
        let sequence_of = MmpSequence::decode(sequence);
        self.on_device().write(raw, &Mmp { sequence: sequence_of, ..self.says(env) })?;
        self.sequence.store(sequence, Ordering::Relaxed);
        Ok(())
    }

    /// One turn of the worker that keeps the mark alive.
    pub(crate) fn keep(&self, health: &Health, env: &Env) -> Next {
        if health.refusal().is_some() {
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
                health.set_lost();
                Next::Done
            }
        }
    }

    /// The block as it is, which must be as we left it.
    fn own(&self) -> Result<RawMmp, Error> {
        let (raw, found) = self.on_device().read()?;
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

fn in_use(mmp: &Mmp) -> Error {
    let name: Vec<u8> = mmp.node_name.iter().copied().take_while(|byte| *byte != 0).collect();
    let is_check = mmp.sequence == MmpSequence::Fsck;
    Error::InUse(OtherHost { node: name.escape_ascii().to_string(), is_check })
}

/// The part of a text that fits, followed by zeros.
fn put(field: &mut [u8], text: &[u8]) {
    field.fill(0);
    let len = text.len().min(field.len() - 1);
    field[..len].copy_from_slice(&text[..len]);
}
