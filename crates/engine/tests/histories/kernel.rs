//! The kernel's ext4 held to the model: what the model says is what ext4 does.

use crate::devices::Devices;
use crate::random::{SIZE, fresh, model_of};
use crate::volumes::{self, Kind};
use extant_testkit::history::{
    Call, History, Model, Mounted, Profile, Rules, Step, advance, generate, replay, shrink,
};
use extant_testkit::{TreeSnapshot, differences, is_root, skip};
use std::sync::Arc;

/// The model's expectations of the kernel's ext4.
pub(crate) fn rules_of_the_kernel(kind: Kind) -> Rules {
    Rules {
        shows_extents: false,
        refusals_touch: true,
        // Directories that are gone count as long as a file that was made in them is held.
        counts_inodes: false,
        // The flag wants a privilege that root may lack.
        journalled_files: false,
        ..kind.rules()
    }
}

/// A model of what the kernel does.
pub(crate) fn model_of_the_kernel(kind: Kind) -> Model {
    let mut model = model_of(kind);
    model.rules = rules_of_the_kernel(kind);
    // It stamps with the time of its last tick, which comes late where a virtual machine waits for
    // its processor.
    model.clock.lag = 500_000_000;
    model
}

fn fails(kind: Kind, history: &History) -> Option<String> {
    let base = fresh(kind, SIZE).expect("mke2fs made one before");
    let files = Devices::of(kind, Arc::new(base)).to_files();
    let mount = files.mount("").expect("the kernel mounts it");
    let mut model = model_of_the_kernel(kind);
    let mut subject = Mounted::new(mount.path());
    if let Err(mismatch) = replay(history, &mut model, &mut subject) {
        return Some(mismatch.to_string());
    }
    // Delayed data of block-mapped files would be taken for holes.
    let sync = Step { number: u32::MAX - 1, call: Call::Sync };
    advance(&mut model, &mut subject, &sync).unwrap();
    let found = TreeSnapshot::of_dir(mount.path()).unwrap().without("lost+found");
    let lines = differences(&model.snapshot(&found), &found);
    (!lines.is_empty()).then(|| lines.join("\n"))
}

#[test]
fn the_kernels_ext4_does_what_the_model_says() {
    if !is_root() {
        skip!("a loop mount needs root");
    }
    let mut failed = Vec::new();
    for (seed, kind) in (1..).zip(volumes::all().into_iter().filter(|kind| kind.kernel)) {
        if let Err(why) = fresh(kind, SIZE) {
            skip!("{why}");
        }
        let rules = rules_of_the_kernel(kind);
        for seed in volumes::rounds(seed).into_iter().map(|(_, seed)| seed) {
            let history = generate(seed, &Profile::all().steps(500), &rules);
            if let Some(what) = fails(kind, &history) {
                let least = shrink(&history, 100, |history| fails(kind, history).is_some());
                let now = fails(kind, &least);
                failed.push(format!("{}, seed {seed}: {what}\n{least:?}{now:?}", kind.name));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}
