//! Images that the kernel left dirty, recovered by us.

use super::judge::recover;
use crate::common;
use crate::devices::Devices;
use crate::random::{closed, model_of};
use crate::volumes;
use extant_device::Device;
use extant_testkit::history::{Call, Mounted, Profile, Rules, Step, advance, generate};
use extant_testkit::{differences, e2fsck_is_silent, is_root, left_dirty, skip};
use std::sync::Arc;

#[test]
fn what_the_kernel_left_dirty_is_recovered_and_goes_on() {
    if !is_root() {
        skip!("a loop mount needs root");
    }
    let kinds = ["ext4-1k", "ext3-4k", "ext4-4k", "bigalloc", "inline-data", "orphan-file"];
    for (seed, kind) in (70..).zip(volumes::all()).filter(|(_, kind)| kinds.contains(&kind.name)) {
        let image = match kind.image(32 << 20) {
            Ok(image) => image,
            Err(why) => skip!("{why}"),
        };
        let history = generate(seed, &Profile::all().steps(250), &kind.rules());
        let rules = Rules {
            tells_extents: false,
            refusals_touch: true,
            counts_inodes: false,
            ..kind.rules()
        };
        let mut model = model_of(kind);
        model.rules = rules;
        model.clock.lag = 500_000_000;
        let dirty = left_dirty(&image.path(), "", |root| {
            let mut subject = Mounted::new(root);
            let sync = Step { number: u32::MAX - 1, call: Call::Sync };
            for step in history.steps.iter().chain([&sync]) {
                advance(&mut model, &mut subject, step).unwrap_or_else(|wrong| panic!("{wrong}"));
            }
        });
        let dirty = dirty.unwrap();
        let device: Arc<dyn Device> =
            Arc::new(extant_device::OpenOptions::new().write(true).open(dirty.path()).unwrap());
        let what = format!("{}, seed {seed}", kind.name);
        let devices = Devices { volume: device, journal: None };
        let volume = recover(&devices).unwrap_or_else(|error| panic!("{what}: {error}"));
        let found = common::snapshot(&volume).unwrap().without("lost+found");
        let model = closed(&model);
        let lines = differences(&model.snapshot(&found), &found);
        assert!(lines.is_empty(), "{what}:\n{}", lines.join("\n"));
        volume.close().unwrap();
        e2fsck_is_silent(&dirty.path()).unwrap_or_else(|said| panic!("{what}: {said}"));
    }
}
