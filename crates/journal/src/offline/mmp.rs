//! The block of multiple-mount protection, for checkers and tuners: where it is, and saying who has the volume.

use super::{Offline, OfflineError};
use extant_ondisk::mmp::{Mmp, RawMmp};
use extant_ondisk::{BlockNo, IncompatFeatures};
use zerocopy::IntoBytes;

impl Offline {
    /// The MMP block, where the volume has one that lies on it.
    pub fn mmp_block(&self) -> Option<BlockNo> {
        let block = BlockNo(self.raw.s_mmp_block.get());
        let has_mmp = self.raw.features().incompat.contains(IncompatFeatures::MMP);
        (has_mmp && self.geometry.contains(block, 1)).then_some(block)
    }

    /// What stands in the MMP block, not verified.
    ///
    /// # Errors
    /// The device failed, or the block is too short.
    pub fn read_mmp(&self, block: BlockNo) -> Result<RawMmp, OfflineError> {
        Ok(RawMmp::from_bytes(&self.read(block)?, block)?)
    }

    /// Seals `mmp`, writes it over `raw`, and has it on the medium: others who look must see it.
    ///
    /// # Errors
    /// The device failed.
    pub fn write_mmp(
        &self,
        block: BlockNo,
        mut raw: RawMmp,
        mmp: &Mmp,
    ) -> Result<(), OfflineError> {
        mmp.encode_into(&mut raw);
        raw.seal(&self.geometry);
        let mut bytes = self.read(block)?;
        bytes[..size_of::<RawMmp>()].copy_from_slice(raw.as_bytes());
        self.write(block, &bytes)?;
        Ok(self.device.flush()?)
    }
}
