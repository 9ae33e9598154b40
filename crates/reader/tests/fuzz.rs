//! Open and walk of randomly damaged images: ends, and never panics. `cargo xtask fuzz` runs it for
//! longer.

mod common;

use common::bases::{Contents, bases};
use extant_device::OverlayDevice;
use extant_reader::Reader;
use extant_testkit::{fuzz::FUZZ_TIME, skip, tool};
use std::sync::Arc;

#[test]
fn open_and_walk_of_a_damaged_image_ends() {
    if tool("mke2fs").is_none() {
        skip!("no mke2fs here");
    }
    // The journal of the last overwrites what the rest has.
    for base in &bases(Contents::Large)[..bases(Contents::Large).len() - 1] {
        let volume = Reader::open(base.device.clone()).unwrap();
        let (files, errors) = common::walk(&volume);
        assert!(files > 250 && errors.is_empty(), "{files} files, before any damage: {errors:?}");
    }
    bolero::check!()
        .with_type::<(u8, Vec<(u32, u8, u8)>)>()
        .with_test_time(FUZZ_TIME)
        .with_max_len(200)
        .for_each(|(base, damage)| {
            // Few inputs get a large image: they take ten times as long.
            let bases = bases(if *base < 250 { Contents::Small } else { Contents::Large });
            let base = &bases[usize::from(*base) % bases.len()];
            let device = OverlayDevice::new(base.device.clone());
            base.damage(&device, damage);
            if let Ok(volume) = Reader::open(Arc::new(device)) {
                common::walk(&volume);
            }
        });
}
