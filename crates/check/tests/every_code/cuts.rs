//! Power lost half way through a repair: whatever is left, the next run ends clean.

use std::sync::Arc;

use extant_check::{Answers, Code};
use extant_device::{Device, Recorder, Sweep};
use extant_testkit::{Scratch, e2fsck_fn, skip, tool};

use super::damages;
use super::hand::{Hand, device, fsck};

/// Repairs that write in several places: directories made anew, maps cleared, bitmaps moved, files cloned.
const LONG_REPAIRS: &[Code] = &[
    Code::RootMissing,
    Code::MultiplyClaimed,
    Code::UnconnectedDirectory,
    Code::HtreeRootChecksum,
    Code::GroupTablePlace,
    Code::TooManyIllegalBlocks,
];

#[test]
fn a_repair_that_was_cut_off_is_finished_by_the_next() {
    if tool("mke2fs").is_none() || tool("e2fsck").is_none() {
        skip!("mke2fs and e2fsck are not installed");
    }
    for damage in damages().filter(|damage| LONG_REPAIRS.contains(&damage.code)) {
        let image = damage.base.make();
        (damage.spoil)(&mut Hand::on(&image.path()));
        let recorder = Arc::new(Recorder::new(device(&image.path())));
        fsck(recorder.clone(), &Answers::Yes, damage.wish).expect("the repair ends");
        let (mut count, mut last) = (0, None);
        for cut in recorder.cuts(Sweep::seeded(7)) {
            count += 1;
            if count % 5 != 0 {
                continue;
            }
            let left: Arc<dyn Device> = Arc::new(cut.image);
            let done = fsck(left.clone(), &Answers::Yes, damage.wish);
            assert!(done.is_ok(), "{:?}, cut {count}: {done:?}", damage.code);
            let again = fsck(left.clone(), &Answers::No, damage.wish).expect("a look ends");
            assert!(again.is_empty(), "{:?}, cut {count}: {again:?}", damage.code);
            last = Some(left);
        }
        assert!(count > 3, "{:?}: {count} cuts", damage.code);
        // One of them is e2fsck's to judge.
        let Some(left) = last else { continue };
        let mut bytes = vec![0; 1 << 20];
        let scratch = Scratch::new();
        let copy = scratch.join("image");
        std::fs::copy(image.path(), &copy).expect("scratch space takes a copy");
        let target = device(&copy);
        for at in (0..left.size()).step_by(bytes.len()) {
            left.read_at(at, &mut bytes).expect("reads");
            target.write_at(at, &bytes).expect("writes");
        }
        e2fsck_fn(&copy).unwrap_or_else(|said| panic!("{:?}: {said}", damage.code));
    }
}
