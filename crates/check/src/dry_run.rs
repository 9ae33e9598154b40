//! Findings of a repair where nothing may be written: it is made in memory.

use crate::finding::Code;
use crate::lost_directories::{can_be_found, has_directory_blocks};
use crate::policy::AutoPolicy;
use crate::recorder::Recorder;
use crate::report::{CheckOptions, PassReport};
use crate::rounds::repair;
use crate::store::{CheckError, Store};
use extant_device::OverlayDevice;
use std::sync::Arc;

/// Bytes of changes that are kept in memory.
const MOST_BYTES: u64 = 1 << 30;

/// Reports the directories that `-y` would restore from their blocks. `scanned` is the report of a
/// scan. Nothing is reported where the repair takes more memory than allowed, or fails.
///
/// # Errors
/// The device failed, or the policy ended the run.
pub(crate) fn report_lost_directories(
    store: &Store,
    options: &CheckOptions,
    scanned: &PassReport,
    recorder: &Recorder<'_>,
) -> Result<(), CheckError> {
    if scanned.windows > 1
        || !can_be_found(store.geometry())
        || !has_directory_blocks(store, &scanned.unclaimed)?
    {
        return Ok(());
    }
    let most = options.memory.unwrap_or(MOST_BYTES);
    let overlay = OverlayDevice::new(store.device().clone()).with_limit(most);
    let mut changed = store.on(Arc::new(overlay))?;
    let options = CheckOptions { progress: None, on_work: None, ..options.clone() };
    let found = Recorder::new(&AutoPolicy::Yes);
    if let Err(error) = repair(&mut changed, &options, &found) {
        tracing::warn!(%error, "lost directories are not reported");
    }
    for outcome in found.into_findings() {
        let is_lost =
            matches!(outcome.finding.code, Code::DirectoryInodeLost | Code::DirectoryBlocksLost);
        if is_lost && outcome.repaired {
            recorder.should_fix(outcome.finding)?;
        }
    }
    Ok(())
}
