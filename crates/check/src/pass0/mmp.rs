//! Multiple-mount protection: a volume that another host has open is left alone, and one that we
//! have open says so.

use super::{OpenError, Pass0, has, superblock_search};
use crate::finding::{Code, Finding};
use crate::store::CheckError;
use extant_layout::groups::leading;
use extant_offline::mmp::{MmpBlock, Taken, interval};
use extant_ondisk::mmp::{Mmp, MmpSequence, RawMmp};
use extant_ondisk::{BlockNo, Flaw, FormatError, IncompatFeatures};
use zerocopy::FromZeros;

impl Pass0<'_> {
    /// Reads the MMP block, waits if another host may have the volume open, and claims it.
    pub(super) fn claim_mmp(&mut self) -> Result<(), OpenError> {
        if !has(&self.volume.raw, IncompatFeatures::MMP) {
            return Ok(());
        }
        let block = BlockNo(self.volume.raw.s_mmp_block.get());
        if !self.can_be_mmp_block(block) {
            return Ok(self.clear_mmp(block)?);
        }
        let raw = self.volume.read_mmp(block)?;
        match raw.verify(block, self.volume.geometry()) {
            Ok(()) => {}
            Err(FormatError::Corrupt { flaw: Flaw::Magic { found, .. }, .. }) => {
                if !self.is_mmp_block_of_backup(block)? {
                    return Ok(self.clear_mmp(block)?);
                }
                let finding = Finding::new(Code::MmpMagic).block(block).found(u64::from(found));
                return self.renew_mmp(finding, block, RawMmp::new_zeroed());
            }
            Err(_) => {
                return self.renew_mmp(Finding::new(Code::MmpChecksum).block(block), block, raw);
            }
        }
        let mmp = Mmp::decode(&raw);
        if !self.may_repair() {
            // A read-only check disturbs no other host, and the data that it reads may change.
            return Ok(());
        }
        let of_superblock = self.volume.raw.s_mmp_interval.get();
        let ours = Mmp {
            time: self.now(),
            check_interval: interval(of_superblock, mmp.check_interval),
            ..mmp
        };
        let waiting = self.options.waiting.clone();
        let mut report_wait = |seconds| waiting.iter().for_each(|waiting| waiting(seconds));
        let device = self.volume.device().clone();
        let on_device = MmpBlock { device: &*device, geometry: self.volume.geometry(), block };
        match on_device.take(&ours, &self.options.env, &mut report_wait)? {
            Taken::Ours(_) => {}
            Taken::Theirs(other) => return Err(in_use(&other)),
        }
        // Read-only users need not wait for a check.
        self.write_mmp(block, raw, MmpSequence::Fsck)?;
        self.state.mmp_claimed = true;
        Ok(())
    }

    /// Whether a block lies on the volume, outside of superblocks and group descriptors.
    fn can_be_mmp_block(&self, block: BlockNo) -> bool {
        let geometry = self.volume.geometry();
        let is_leading = |group| leading(geometry, group).blocks().contains(&block.0);
        block.0 != 0
            && geometry.contains(block, 1)
            && geometry.group_of(block).is_some_and(|group| !is_leading(group))
    }

    /// Whether the first backup superblock has the same MMP block. A block without the magic number
    /// may be a file's, so the superblock alone is no reason to write there.
    fn is_mmp_block_of_backup(&self, block: BlockNo) -> Result<bool, CheckError> {
        let size = self.options.superblock.block_size;
        let backups = superblock_search::backups(&**self.volume.device(), &self.volume.raw, size)?;
        let first = backups.first();
        Ok(first.is_some_and(|(raw, ..)| {
            has(raw, IncompatFeatures::MMP) && raw.s_mmp_block.get() == block.0
        }))
    }

    fn clear_mmp(&mut self, block: BlockNo) -> Result<(), CheckError> {
        if self.should_fix(Finding::new(Code::MmpBlockInvalid).block(block))? {
            self.volume.update_superblock(|raw| {
                let mut features = raw.features();
                features.incompat -= IncompatFeatures::MMP;
                raw.set_features(features);
                raw.s_mmp_block.set(0);
            })?;
        }
        Ok(())
    }

    fn renew_mmp(
        &mut self,
        finding: Finding,
        block: BlockNo,
        raw: RawMmp,
    ) -> Result<(), OpenError> {
        if self.should_fix(finding)? {
            self.write_mmp(block, raw, MmpSequence::Fsck)?;
            self.state.mmp_claimed = true;
        }
        Ok(())
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

fn in_use(mmp: &Mmp) -> OpenError {
    let (node, device) = (shown(&mmp.node_name), shown(&mmp.device_name));
    match mmp.sequence {
        MmpSequence::Fsck => OpenError::InCheck { node },
        _ => OpenError::InUse { node, device },
    }
}

fn shown(name: &[u8]) -> String {
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    match &name[..end] {
        [] => "another host".to_owned(),
        name => name.escape_ascii().to_string(),
    }
}
