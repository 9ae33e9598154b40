//! The list of bad blocks, before the passes see it.

use crate::recorder::{BlockTest, Observer};
use crate::store::CheckError;
use extant_device::Device;
use extant_layout::RunSet;
use extant_offline::OfflineVolume;
use extant_offline::bad_blocks::{by_reading, by_rewriting};
use std::sync::Arc;

/// Which blocks the new list has.
#[derive(Clone, Debug, Default)]
pub struct BadBlocks {
    /// All blocks are tested, and the list has those that fail (`-c`).
    pub test: Option<BlockTest>,
    /// Blocks that it has whatever a test finds (`-l`, `-L`); those past the volume's end are left
    /// out.
    pub listed: RunSet,
    /// It has what is listed so far too (`-k`, `-l`).
    pub keeps: bool,
}

impl BadBlocks {
    /// Writes the list. The volume's superblock, descriptors and journal are valid.
    pub(super) fn write(
        &self,
        device: &Arc<dyn Device>,
        observer: &dyn Observer,
    ) -> Result<(), CheckError> {
        let mut volume = OfflineVolume::open(device.clone())?;
        let (block_size, blocks) = (volume.geometry().block_size, volume.geometry().blocks_count);
        let old = volume.bad_blocks()?;
        let mut bad = RunSet::new();
        if let Some(test) = self.test {
            observer.testing_blocks(test);
            let found = match test {
                BlockTest::Read => by_reading(&**device, 0, block_size, blocks)?,
                BlockTest::Rewrite => by_rewriting(&**device, block_size, blocks, |work| {
                    observer.uninterrupted(work);
                })?,
            };
            insert(&mut bad, &found, blocks);
        }
        insert(&mut bad, &self.listed, blocks);
        if self.keeps {
            insert(&mut bad, &old, u64::MAX);
        }
        if bad.iter().eq(old.iter()) {
            return Ok(());
        }
        observer.bad_blocks_change();
        volume.set_bad_blocks(&bad)?;
        Ok(volume.commit()?)
    }
}

/// Adds what is below `end`.
fn insert(bad: &mut RunSet, more: &RunSet, end: u64) {
    for run in more.iter().filter(|run| run.start < end) {
        bad.insert(run.start..run.end.min(end));
    }
}
