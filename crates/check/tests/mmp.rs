//! Multiple-mount protection: of two who take a volume at once, one gives way.

use extant_check::pass0::{CheckOpenOptions, OpenError, open};
use extant_check::{AutoPolicy, Recorder};
use extant_device::{Device, DeviceError, MemoryDevice, Request, RequestKind};
use extant_runtime::env::Env;
use extant_testkit::{TempImage, dumpe2fs_h, skip, tool};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A device on which another opener writes its mark right after the first one that is written
/// through it.
#[derive(Debug)]
struct Rival {
    inner: MemoryDevice,
    /// The MMP block's first byte.
    mark: u64,
    has_come: AtomicBool,
}

impl Device for Rival {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        self.inner.submit(batch)?;
        let is_mark = |request: &Request<'_>| match &request.kind {
            RequestKind::Write { offset, .. } => *offset == self.mark,
            _ => false,
        };
        if batch.iter().any(is_mark) && !self.has_come.swap(true, Ordering::Relaxed) {
            self.inner.write_at(self.mark + 4, &77_u32.to_le_bytes())?;
        }
        Ok(())
    }

    fn next_data(&self, range: Range<u64>) -> Result<Option<Range<u64>>, DeviceError> {
        self.inner.next_data(range)
    }

    fn is_read_only(&self) -> bool {
        false
    }
}

#[test]
fn a_check_gives_way_to_another_that_takes_the_volume_at_once() {
    if tool("mke2fs").is_none() || tool("dumpe2fs").is_none() {
        skip!("no e2fsprogs here");
    }
    let args = ["-t", "ext4", "-b", "1024", "-O", "mmp,^metadata_csum"];
    let image = TempImage::by_mke2fs(16 << 20, &args).unwrap();
    let mark: u64 = dumpe2fs_h(&image.path()).unwrap()["MMP block number"].parse().unwrap();
    let mark = mark * 1024;
    let inner = MemoryDevice::from_bytes(&std::fs::read(image.path()).unwrap());
    let mut before = inner.to_vec();
    let rival = Arc::new(Rival { inner, mark, has_come: AtomicBool::new(false) });
    let options = CheckOpenOptions { env: Env::stepped(1), ..CheckOpenOptions::default() };
    let recorder = Recorder::new(&AutoPolicy::Yes);
    let refused = open(rival.clone(), &options, &recorder).map(drop).unwrap_err();
    assert!(matches!(refused, OpenError::InUse { .. }), "{refused}");
    let mut after = rival.inner.to_vec();
    assert_eq!(after[mark as usize + 4..][..4], 77_u32.to_le_bytes());
    let block = mark as usize..mark as usize + 1024;
    before[block.clone()].fill(0);
    after[block].fill(0);
    assert!(before == after, "the volume was changed");
}
