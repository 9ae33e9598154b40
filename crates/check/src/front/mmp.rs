//! Multiple-mount protection: a volume that another host has open is left alone, and one that we have open says so.

use super::{Front, OpenError, has};
use crate::finding::{Code, Finding};
use crate::store::CheckError;
use extant_device::sync::{Condvar, Mutex};
use extant_ondisk::mmp::{Mmp, MmpSequence, RawMmp};
use extant_ondisk::{BlockNo, Flaw, FormatError, IncompatFeatures};
use std::time::Duration;
use zerocopy::FromZeros;

/// Seconds between updates where the superblock says none, from mmp.rst.
const DEFAULT_INTERVAL: u64 = 5;
/// The longest that anybody is waited for.
const LONGEST_INTERVAL: u64 = 300;

impl Front<'_> {
    /// Reads the MMP block, waits where somebody may have the volume open, and claims it.
    pub(super) fn claim_mmp(&mut self) -> Result<(), OpenError> {
        if !has(&self.volume.raw, IncompatFeatures::MMP) {
            return Ok(());
        }
        let block = BlockNo(self.volume.raw.s_mmp_block.get());
        if !self.volume.geometry().contains(block, 1) {
            let finding = Finding::new(Code::MmpBlockInvalid).block(block);
            if self.ask(finding)? {
                self.volume.update_superblock(|raw| {
                    let mut features = raw.features();
                    features.incompat -= IncompatFeatures::MMP;
                    raw.set_features(features);
                    raw.s_mmp_block.set(0);
                })?;
            }
            return Ok(());
        }
        let raw = self.volume.read_mmp(block)?;
        match raw.verify(block, self.volume.geometry()) {
            Ok(()) => {}
            Err(FormatError::Corrupt { flaw: Flaw::Magic { found, .. }, .. }) => {
                let finding = Finding::new(Code::MmpMagic).block(block).found(u64::from(found));
                return self.renew_mmp(finding, block, RawMmp::new_zeroed());
            }
            Err(_) => {
                return self.renew_mmp(Finding::new(Code::MmpChecksum).block(block), block, raw);
            }
        }
        let mmp = Mmp::decode(&raw);
        if !self.may_repair() {
            // Looking disturbs nobody, and what is seen may be in motion.
            return Ok(());
        }
        match mmp.sequence {
            MmpSequence::Clean => {}
            MmpSequence::Fsck => {
                return Err(OpenError::InUse(format!(
                    "MMP: another check is running on {}, or was interrupted; when it is certain that none is, clear it with tune -f -E clear_mmp",
                    shown(&mmp.node_name)
                )));
            }
            MmpSequence::Mounted(_) => self.wait_for_silence(block, &mmp)?,
        }
        self.write_mmp(block, raw, MmpSequence::Fsck)?;
        self.facts.mmp_claimed = true;
        Ok(())
    }

    fn renew_mmp(
        &mut self,
        finding: Finding,
        block: BlockNo,
        raw: RawMmp,
    ) -> Result<(), OpenError> {
        if self.ask(finding)? {
            self.write_mmp(block, raw, MmpSequence::Fsck)?;
            self.facts.mmp_claimed = true;
        }
        Ok(())
    }

    /// A mount that lives counts its number up within the interval.
    fn wait_for_silence(&mut self, block: BlockNo, before: &Mmp) -> Result<(), OpenError> {
        let of_super = u64::from(self.volume.raw.s_mmp_interval.get());
        let interval = match u64::from(before.check_interval).max(of_super) {
            0 => DEFAULT_INTERVAL,
            seconds => seconds.min(LONGEST_INTERVAL),
        };
        // Twice the interval and one second, as every opener waits.
        let seconds = 2 * interval + 1;
        if let Some(waiting) = &self.options.waiting {
            waiting(seconds);
        }
        for _ in 0..seconds {
            self.sleep(Duration::from_secs(1));
            let now = Mmp::decode(&self.volume.read_mmp(block)?);
            if now.sequence != before.sequence {
                return Err(OpenError::InUse(format!(
                    "MMP: the volume is in use on {} (device {})",
                    shown(&now.node_name),
                    shown(&now.device_name)
                )));
            }
        }
        Ok(())
    }

    /// Nobody wakes it: the time runs out on the environment's clock.
    fn sleep(&self, time: Duration) {
        let (lock, nobody) = (Mutex::<()>::default(), Condvar::default());
        let mut guard = lock.lock();
        self.options.env.wait_while_for(&nobody, &mut guard, time, |()| true);
    }

    fn write_mmp(
        &mut self,
        block: BlockNo,
        raw: RawMmp,
        sequence: MmpSequence,
    ) -> Result<(), CheckError> {
        let mut mmp = Mmp::decode(&raw);
        (mmp.sequence, mmp.time) = (sequence, self.now());
        if mmp.check_interval == 0 {
            mmp.check_interval = self.volume.raw.s_mmp_interval.get();
        }
        Ok(self.volume.write_mmp(block, raw, &mmp)?)
    }
}

fn shown(name: &[u8]) -> String {
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    match &name[..end] {
        [] => "another host".to_owned(),
        name => name.escape_ascii().to_string(),
    }
}
