//! Work on randomly damaged images: ends, and never panics. `cargo xtask fuzz` runs it for longer.

mod common;

use common::bases::bases;
use extant_device::OverlayDevice;
use extant_reader::{Error, Reader};
use extant_testkit::{fuzz::FUZZ_TIME, skip, tool};
use std::sync::Arc;

/// Opened for changes, walked, written, closed; and what is left is walked once more.
#[test]
fn work_on_a_damaged_image_ends() {
    if tool("mke2fs").is_none() {
        skip!("no mke2fs here");
    }
    for base in &bases()[..bases().len() - 1] {
        let device = Arc::new(OverlayDevice::new(base.device.clone()));
        let wrong = common::worked::work(device).unwrap();
        // mke2fs 1.47.0 leaves sparse files in their inodes, whatever their size.
        let is_sparse = |error: &Error| error.to_string().contains("inline data");
        let is_wrong = |error: &&Error| error.is_corruption() && !is_sparse(error);
        assert!(wrong.iter().find(is_wrong).is_none(), "before any damage: {wrong:?}");
    }
    bolero::check!()
        .with_type::<(u8, Vec<(u32, u8, u8)>)>()
        .with_test_time(FUZZ_TIME)
        .with_max_len(200)
        .for_each(|(base, damage)| {
            let base = &bases()[usize::from(*base) % bases().len()];
            let device = Arc::new(OverlayDevice::new(base.device.clone()));
            base.damage(&*device, damage);
            if common::worked::work(device.clone()).is_ok()
                && let Ok(volume) = Reader::open(device)
            {
                common::walk(&volume);
            }
        });
}
