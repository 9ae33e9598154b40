//! Work on randomly damaged images: ends, and never panics. `cargo xtask fuzz` runs it for longer.

mod common;

use common::bases::{Contents, bases};
use common::worked::{Work, work, work_on_damaged};
use extant_device::OverlayDevice;
use extant_reader::Error;
use extant_testkit::{fuzz::FUZZ_TIME, skip, tool};
use std::sync::Arc;

/// Images with the work that is done on them.
const SIZES: [(Contents, Work); 2] =
    [(Contents::Large, Work::LONG), (Contents::Small, Work::SHORT)];

/// Opened for changes, walked, written, closed; and what is left is walked once more.
#[test]
fn work_on_a_damaged_image_ends() {
    if tool("mke2fs").is_none() {
        skip!("no mke2fs here");
    }
    let sound = SIZES.iter().flat_map(|(contents, length)| {
        let bases = bases(*contents);
        bases[..bases.len() - 1].iter().map(move |base| (base, *length))
    });
    for (base, length) in sound {
        let device = Arc::new(OverlayDevice::new(base.device.clone()));
        let wrong = work(device, length).unwrap();
        // mke2fs 1.47.0 leaves sparse files of any size in their inodes.
        let is_sparse = |error: &Error| error.to_string().contains("inline data");
        let is_wrong = |error: &&Error| error.is_corruption() && !is_sparse(error);
        assert!(wrong.iter().find(is_wrong).is_none(), "before any damage: {wrong:?}");
    }
    bolero::check!()
        .with_type::<(u8, Vec<(u32, u8, u8)>)>()
        .with_test_time(FUZZ_TIME)
        .with_max_len(200)
        .for_each(|(base, damage)| {
            // Few inputs get a large image: they take ten times as long.
            let (contents, length) = SIZES[usize::from(*base < 250)];
            let bases = bases(contents);
            work_on_damaged(&bases[usize::from(*base) % bases.len()], damage, length);
        });
}
