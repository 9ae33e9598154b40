//! Images that the kernel left dirty, recovered by us.

use super::judge::recover;
use crate::common;
use crate::devices::Devices;
use crate::random::{closed, fresh, model_of};
use crate::volumes::{self, Kind};
use extant_testkit::history::{Call, Mounted, Profile, Rules, Step, advance, generate};
use extant_testkit::{differences, is_root, skip};
use std::sync::Arc;

/// Runs a history on a kernel mount with such options, copies the device as power loss would leave it, and has us recover it.
fn recovered(kind: Kind, options: &str, seed: u64) -> Result<(), String> {
    let files = Devices::of(kind, Arc::new(fresh(kind, 32 << 20)?)).to_files();
    let rules = Rules {
        tells_extents: false,
        refusals_touch: true,
        counts_inodes: false,
        journalled_files: false,
        ..kind.rules()
    };
    let history = generate(seed, &Profile::all().steps(250), &rules);
    let mut model = model_of(kind);
    model.rules = rules;
    model.clock.lag = 500_000_000;
    let dirty = files.left_dirty(options, |root| {
        let mut subject = Mounted::new(root);
        let sync = Step { number: u32::MAX - 1, call: Call::Sync };
        for step in history.steps.iter().chain([&sync]) {
            advance(&mut model, &mut subject, step).unwrap_or_else(|wrong| panic!("{wrong}"));
        }
    })?;
    let volume = recover(&dirty.devices()).map_err(|error| error.to_string())?;
    if volume.recovered().is_none() {
        return Err("there was nothing to recover".into());
    }
    let found = common::snapshot(&volume).map_err(|error| error.to_string())?;
    let found = found.without("lost+found");
    let model = closed(&model);
    let lines = differences(&model.snapshot(&found), &found);
    if !lines.is_empty() {
        return Err(lines.join("\n"));
    }
    volume.close().map_err(|error| error.to_string())?;
    dirty.is_silent()
}

#[test]
fn what_the_kernel_left_dirty_is_recovered_and_goes_on() {
    if !is_root() {
        skip!("a loop mount needs root");
    }
    let rows = [
        ("ext4-1k", ""),
        ("ext3-4k", ""),
        ("ext4-4k", ""),
        ("bigalloc", ""),
        ("inline-data", ""),
        ("orphan-file", ""),
        ("external", ""),
        ("ext3-1k", "data=writeback"),
        ("ext4-1k", "data=journal"),
        ("ext4-4k", "data=writeback,nodelalloc"),
        ("no-checksums", "journal_checksum"),
        ("ext4-1k", "data=writeback,journal_async_commit"),
        ("external", "data=journal"),
    ];
    for (seed, (name, options)) in (70..).zip(rows) {
        let kind = volumes::all().into_iter().find(|kind| kind.name == name).unwrap();
        if let Err(why) = fresh(kind, 32 << 20) {
            skip!("{why}");
        }
        recovered(kind, options, seed)
            .unwrap_or_else(|what| panic!("{name}, {options}, seed {seed}: {what}"));
    }
}
