//! Multiple-mount protection: taken while we work, switched on and off.

use extant_offline::OfflineVolume;
use extant_offline::mmp::{MmpBlock, Taken, interval};
use extant_ondisk::mmp::{Mmp, MmpSequence, RawMmp};
use extant_ondisk::{BlockNo, IncompatFeatures};
use extant_runtime::env::Env;

use super::error::{ChangeError, TuneError};
use super::request::Request;
use super::work::Tune;
use crate::mkfs::Prompt;
use crate::mkfs::identity::cut;

/// Default seconds between updates, from mmp.rst.
const DEFAULT_INTERVAL: u16 = 5;

/// The MMP block and its bytes, to be put back after a refusal.
pub(super) fn bytes(volume: &OfflineVolume) -> Result<Option<(BlockNo, Vec<u8>)>, TuneError> {
    let Some(block) = volume.mmp_block() else { return Ok(None) };
    Ok(Some((block, volume.read(block)?)))
}

/// Marks the volume as in use in the MMP block, once no other host can be taking it at the same
/// time. It does not wait for a host that has it: the volume is in use, or was not closed, and then
/// a check is due.
pub(super) fn claim(
    volume: &mut OfflineVolume,
    env: &Env,
    request: &Request,
    now: u64,
    prompt: &mut dyn Prompt,
) -> Result<(), TuneError> {
    let Some(block) = volume.mmp_block() else {
        return match request.extended.clear_mmp {
            true => Err(ChangeError::NoMmp.into()),
            false => Ok(()),
        };
    };
    let raw = volume.read_mmp(block)?;
    let mut mmp = Mmp::decode(&raw);
    if !request.extended.clear_mmp {
        raw.verify(block, volume.geometry())?;
        if mmp.sequence != MmpSequence::Clean {
            return Err(in_use(&mmp));
        }
        let interval = interval(volume.raw.s_mmp_interval.get(), mmp.check_interval);
        let device = volume.device().clone();
        let on_device = MmpBlock { device: &*device, geometry: volume.geometry(), block };
        let ours = Mmp { time: now, check_interval: interval, ..mmp.clone() };
        let mut report_wait = |seconds| {
            prompt.say(&format!("MMP: waiting for {seconds} seconds\n"));
        };
        if let Taken::Theirs(other) = on_device.take(&ours, env, &mut report_wait)? {
            return Err(in_use(&other));
        }
    }
    (mmp.sequence, mmp.time) = (MmpSequence::Fsck, now);
    Ok(volume.write_mmp(block, raw, &mmp)?)
}

fn in_use(mmp: &Mmp) -> TuneError {
    let end = mmp.node_name.iter().position(|byte| *byte == 0).unwrap_or(mmp.node_name.len());
    TuneError::InUse { node: mmp.node_name[..end].escape_ascii().to_string() }
}

impl Tune<'_> {
    pub(super) fn set_mmp_interval(&mut self, seconds: u16) -> Result<(), TuneError> {
        let seconds = if seconds == 0 { DEFAULT_INTERVAL } else { seconds };
        let unit = if seconds == 1 { "second" } else { "seconds" };
        self.say(&format!("Setting multiple mount protection update interval to {seconds} {unit}"));
        self.change(|raw| raw.s_mmp_interval.set(seconds))
    }

    pub(super) fn add_mmp(&mut self) -> Result<(), TuneError> {
        let goal = self.volume.geometry().first_data_block;
        let taken = self.volume.take_blocks(goal, 1)?;
        let block = BlockNo(taken.first().map_or(0, |run| run.start));
        let interval = match self.volume.raw.s_mmp_interval.get() {
            0 => DEFAULT_INTERVAL,
            seconds => seconds,
        };
        self.change(|raw| {
            let mut features = raw.features();
            features.incompat |= IncompatFeatures::MMP;
            raw.set_features(features);
            raw.s_mmp_block.set(block.0);
            raw.s_mmp_interval.set(interval);
        })?;
        let raw = RawMmp::from_bytes(&[0; 1024], block)?;
        let mut mmp = Mmp::new(interval, self.now);
        mmp.node_name = cut(rustix::system::uname().nodename().to_bytes());
        self.volume.write_mmp(block, raw, &mmp)?;
        self.say(&format!(
            "Multiple mount protection has been enabled with update interval {interval}s."
        ));
        Ok(())
    }

    pub(super) fn remove_mmp(&mut self) -> Result<(), TuneError> {
        if let Some(block) = self.volume.mmp_block() {
            self.volume.free_blocks_of(std::iter::once(block.0..block.0 + 1))?;
        }
        self.change(|raw| {
            let mut features = raw.features();
            features.incompat -= IncompatFeatures::MMP;
            raw.set_features(features);
            raw.s_mmp_block.set(0);
            raw.s_mmp_interval.set(0);
        })
    }
}
