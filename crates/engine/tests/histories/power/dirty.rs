//! Images that the kernel left dirty, recovered by us: copies taken after a sync, and volumes that
//! were shut down in mid-work, with files open that have no name any more.

use super::verify::recover;
use crate::common;
use crate::devices::{Devices, Files};
use crate::kernel::{model_of_the_kernel, rules_of_the_kernel};
use crate::random::{closed, fresh};
use crate::volumes::{self, Kind};
use extant_testkit::history::{Call, Family, Model, Mounted, Profile, Step, advance, generate};
use extant_testkit::{Flush, differences, is_root, skip, tool};
use std::sync::Arc;

/// Opens dirty files, which recovers them; the tree found must be one of those that the models
/// have, and e2fsck has nothing to say of what closing leaves. The number of the model.
fn found_in(dirty: &Files, models: &[Model]) -> Result<usize, String> {
    let volume = recover(&dirty.devices()).map_err(|error| error.to_string())?;
    if volume.recovered().is_none() {
        return Err("there was nothing to recover".into());
    }
    let found = common::snapshot(&volume).map_err(|error| error.to_string())?;
    let found = found.without("lost+found");
    volume.close().map_err(|error| error.to_string())?;
    dirty.is_silent()?;
    let mut nearest = Vec::new();
    for (number, model) in models.iter().enumerate().rev() {
        let lines = differences(&closed(model).snapshot(&found), &found);
        if lines.is_empty() {
            return Ok(number);
        }
        if nearest.is_empty() || lines.len() < nearest.len() {
            nearest = lines;
        }
    }
    Err(format!("no tree of {} models, the nearest:\n{}", models.len(), nearest.join("\n")))
}

/// Runs a history on a kernel mount with such options, copies the device as power loss would leave
/// it, and has us recover it.
fn recovered(kind: Kind, options: &str, seed: u64) -> Result<(), String> {
    let files = Devices::of(kind, Arc::new(fresh(kind, 32 << 20)?)).to_files();
    let history = generate(seed, &Profile::all().steps(250), &rules_of_the_kernel(kind));
    let mut model = model_of_the_kernel(kind);
    let dirty = files.left_dirty(options, |root| {
        let mut subject = Mounted::new(root);
        let sync = Step { number: u32::MAX - 1, call: Call::Sync };
        for step in history.steps.iter().chain([&sync]) {
            advance(&mut model, &mut subject, step).unwrap_or_else(|wrong| panic!("{wrong}"));
        }
    })?;
    found_in(&dirty, &[model]).map(drop)
}

/// Runs a history on a kernel mount, shuts it down while files are held open, and has us recover
/// it. With the log committed the tree must be the last one, without it one since the last sync.
fn shut_down(
    kind: Kind,
    options: &str,
    profile: &Profile,
    flush: Flush,
    seed: u64,
) -> Result<(), String> {
    let files = Devices::of(kind, Arc::new(fresh(kind, 32 << 20)?)).to_files();
    let history = generate(seed, profile, &rules_of_the_kernel(kind));
    let mut models = vec![model_of_the_kernel(kind)];
    let mount = files.mount(options)?;
    let mut subject = Mounted::new(mount.path());
    for step in &history.steps {
        let mut model = models.last().expect("one is there from the start").clone();
        advance(&mut model, &mut subject, step).map_err(|wrong| wrong.to_string())?;
        if step.call == Call::Sync {
            models.clear();
        }
        models.push(model);
    }
    mount.shut_down(flush)?;
    drop(subject);
    mount.unmount()?;
    let last = models.len() - 1;
    let found = found_in(&files, &models)?;
    match flush {
        Flush::Log if found != last => Err(format!("the tree is {} steps old", last - found)),
        _ => Ok(()),
    }
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

#[test]
fn what_the_kernel_shut_down_in_mid_work_is_recovered_and_goes_on() {
    if !is_root() {
        skip!("a loop mount needs root");
    }
    if tool("xfs_io").is_none() {
        skip!("no xfs_io here, which shuts a mount down");
    }
    let names = volumes::names().with(&[(Family::Xattrs, 10), (Family::Holds, 10)]).steps(250);
    let all = Profile::all().with(&[(Family::Holds, 10)]).steps(250);
    let both: &[Flush] = &[Flush::Log, Flush::Nothing];
    // Data of calls that are not committed are verified at the cut.
    let committed: &[Flush] = &[Flush::Log];
    let rows = [
        ("ext4-1k", "", &names, both),
        ("ext3-4k", "", &names, both),
        ("orphan-file", "", &names, both),
        ("bigalloc", "journal_checksum", &names, both),
        ("external", "", &names, both),
        ("no-checksums", "journal_async_commit,data=writeback", &names, both),
        ("ext4-4k", "data=journal", &all, committed),
        ("ext3-1k", "data=journal", &all, committed),
        ("ext4-1k", "nodelalloc", &all, committed),
    ];
    for (seed, (name, options, profile, flushes)) in (90..).zip(rows) {
        let kind = volumes::all().into_iter().find(|kind| kind.name == name).unwrap();
        if let Err(why) = fresh(kind, 32 << 20) {
            skip!("{why}");
        }
        for flush in flushes.iter().copied() {
            shut_down(kind, options, profile, flush, seed)
                .unwrap_or_else(|what| panic!("{name}, {options}, {flush:?}, seed {seed}: {what}"));
        }
    }
}
