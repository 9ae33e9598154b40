//! The log in tests of the checker.

use std::path::Path;

use extant_check::Store;
use extant_device::Device;
use extant_journal::JournalLocation;
use extant_ondisk::jbd2::RawJournalSuperblock;
use zerocopy::IntoBytes;

use super::common::open;

/// Has the next mount begin the log at its first block again, as kernels did that do not record
/// where it ended.
pub(crate) fn forget_head(image: &Path) {
    let (device, store) = (open(image, true), Store::open(open(image, false)));
    let store = store.unwrap();
    let place =
        JournalLocation::internal(&*device, &store.raw_superblock(), store.geometry()).unwrap();
    let start = store.geometry().byte_of(place.runs.runs()[0].start);
    let mut bytes = [0; 1024];
    device.read_at(start, &mut bytes).unwrap();
    let mut raw = RawJournalSuperblock::from_bytes(&bytes).unwrap();
    raw.s_head.set(0);
    raw.seal();
    device.write_at(start, raw.as_bytes()).unwrap();
}
