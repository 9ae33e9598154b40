//! Every cut of recorded histories, recovered by us and by e2fsck.

use super::judge::{OPENED, Recorded, recover};
use crate::devices::Devices;
use crate::random::{SIZE, fresh};
use crate::volumes::{self, Kind};
use extant_device::{Cut, MemoryDevice, OverlayDevice, Sweep};
use extant_testkit::history::{Family, History, Profile, Rules, Step, generate, shrink};
use extant_testkit::{LoopMount, TempImage, is_root, skip};
use extant_volume::{DataMode, LiveOptions, Volume};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// What is tried of one history.
#[derive(Clone, Copy)]
struct Effort {
    sweep: Sweep,
    /// e2fsck judges one cut in so many, and recovers it itself.
    e2fsck_every: usize,
    /// The kernel recovers one cut in so many.
    kernel_every: usize,
}

/// The devices of a cut, to be changed.
fn devices_of(kind: Kind, cut: &Cut) -> Devices {
    Devices::of(kind, Arc::new(OverlayDevice::new(Arc::new(cut.image.fork()))))
}

/// Recovers a cut by our journal and judges it; the state that was found.
fn ours(recorded: &Recorded, cut: &Cut, with_e2fsck: bool) -> Result<usize, String> {
    let devices = devices_of(recorded.kind, cut);
    let volume = recover(&devices).map_err(|error| format!("not opened: {error}"))?;
    let state = recorded.judge(&cut.marks, &volume)?;
    volume.close().map_err(|error| format!("not closed: {error}"))?;
    if with_e2fsck {
        devices.to_files().is_clean()?;
    }
    Ok(state)
}

/// Recovers a cut by e2fsck and judges it.
fn theirs(recorded: &Recorded, cut: &Cut) -> Result<(), String> {
    let files = devices_of(recorded.kind, cut).to_files();
    let output = files.e2fsck("-fy")?;
    if output.status.code().is_none_or(|code| code > 1) {
        return Err(format!("e2fsck: {}", String::from_utf8_lossy(&output.stdout)));
    }
    judge_file(recorded, cut, &files.image).map_err(|what| {
        format!("after e2fsck: {what}\n{}", String::from_utf8_lossy(&output.stdout))
    })
}

/// Has a cut recovered by a kernel mount and judges it.
fn kernels(recorded: &Recorded, cut: &Cut) -> Result<(), String> {
    let files = devices_of(recorded.kind, cut).to_files();
    LoopMount::new(&files.image.path(), "")?.unmount()?;
    files.is_clean()?;
    judge_file(recorded, cut, &files.image).map_err(|what| format!("after a kernel mount: {what}"))
}

fn judge_file(recorded: &Recorded, cut: &Cut, image: &TempImage) -> Result<(), String> {
    let device = extant_device::OpenOptions::new().open(image.path());
    let volume = Volume::open(Arc::new(device.map_err(|error| error.to_string())?));
    recorded.judge(&cut.marks, &volume.map_err(|error| error.to_string())?).map(drop)
}

/// Runs a history and judges its cuts; how many there were.
fn judge_history(
    kind: Kind,
    base: &MemoryDevice,
    options: &LiveOptions,
    history: &History,
    effort: Effort,
) -> Result<usize, String> {
    let seed = effort.sweep.seed;
    let (recorded, recorder) = Recorded::run(kind, base, options.clone(), history.clone(), seed)?;
    let mut count = 0;
    for cut in recorder.cuts(effort.sweep) {
        if !cut.marks.contains(&OPENED) {
            continue;
        }
        count += 1;
        let with_e2fsck = count % effort.e2fsck_every == 0;
        let told = |what: String| format!("{cut}: {what}");
        ours(&recorded, &cut, with_e2fsck).map_err(told)?;
        if with_e2fsck {
            theirs(&recorded, &cut).map_err(told)?;
        }
        if count % effort.kernel_every == 0 && kind.kernel && is_root() {
            kernels(&recorded, &cut).map_err(told)?;
        }
    }
    Ok(count)
}

fn fails(
    kind: Kind,
    base: &MemoryDevice,
    options: &LiveOptions,
    history: &History,
    effort: Effort,
) -> Result<usize, String> {
    let run = || judge_history(kind, base, options, history, effort);
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err("panic".into()))
}

/// Histories of a profile on volumes of some kinds in a data mode, all their cuts judged.
fn every_cut(profile: &Profile, kinds: &[&str], mode: DataMode, seed: u64) {
    every_cut_with(profile, kinds, &with_data(mode), seed);
}

fn with_data(mode: DataMode) -> LiveOptions {
    LiveOptions { data: Some(mode), ..LiveOptions::default() }
}

/// The same with other options.
fn every_cut_with(profile: &Profile, kinds: &[&str], options: &LiveOptions, seed: u64) {
    let kinds = volumes::all().into_iter().filter(|kind| kinds.contains(&kind.name));
    let (mut failed, mut cuts) = (Vec::new(), 0);
    for (number, kind) in (0..).zip(kinds) {
        let base = match fresh(kind, SIZE / 3) {
            Ok(base) => base,
            Err(why) => skip!("{why}"),
        };
        for round in 0..volumes::rounds() {
            let seed = seed + number + 1000 * round;
            let sweep = Sweep { seed, prefixes: 4, subsets: 2, torn: 1 };
            let effort = Effort { sweep, e2fsck_every: 25, kernel_every: 120 };
            let history = generate(seed, profile, &kind.rules());
            match fails(kind, &base, options, &history, effort) {
                Ok(count) => cuts += count,
                Err(what) => {
                    let still =
                        |history: &History| fails(kind, &base, options, history, effort).is_err();
                    let least = shrink(&history, 60, still);
                    let now = fails(kind, &base, options, &least, effort);
                    failed.push(format!(
                        "{}, seed {seed}: {what}\nleast:\n{least:?}{now:?}",
                        kind.name
                    ));
                }
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
    assert!(cuts > 20, "only {cuts} cuts");
}

/// A profile with enough commits.
fn committed(profile: Profile) -> Profile {
    Profile { crowd: 20, farthest: 4 << 20, ..profile.with(&[(Family::Syncs, 15)]).steps(120) }
}

#[test]
fn calls_on_names_survive_power_loss_whole() {
    let kinds = ["ext4-1k", "ext3-4k", "uninit-bg", "no-checksums", "inline-data", "orphan-file"];
    every_cut(&committed(volumes::names().by_anybody()), &kinds, DataMode::Ordered, 10);
}

#[test]
fn calls_on_attributes_survive_power_loss_whole() {
    let profile = committed(Profile::attributes().by_anybody());
    every_cut(&profile, &["ext4-1k", "ext3-4k", "ea-inode", "inline-data"], DataMode::Ordered, 40);
}

#[test]
fn contents_survive_power_loss_and_nothing_stale_is_shown() {
    let kinds = ["ext4-1k", "ext3-4k", "ext4-4k", "bigalloc", "inline-data"];
    for (mode, seed) in
        [(DataMode::Ordered, 70), (DataMode::Writeback, 80), (DataMode::Journal, 90)]
    {
        every_cut(&committed(Profile::data()), &kinds, mode, seed);
    }
}

/// The calls of a history by their first words.
fn kinds_of_calls(history: &History) -> impl Iterator<Item = String> {
    let word = |step: &Step| format!("{:?}", step.call).split(' ').next().unwrap_or("").to_owned();
    history.steps.iter().map(word)
}

#[test]
fn every_call_survives_power_loss_in_every_mode() {
    let profile = Profile { crowd: 10, farthest: 2 << 20, ..Profile::all().by_anybody() };
    let profile = profile.with(&[(Family::Syncs, 10), (Family::Freezes, 2)]).steps(150);
    let kinds = ["ext4-1k", "external", "meta-bg"];
    let modes = [(DataMode::Ordered, 140), (DataMode::Writeback, 150), (DataMode::Journal, 160)];
    let mut seen = BTreeSet::new();
    for (mode, seed) in modes {
        every_cut(&profile, &kinds, mode, seed);
        for seed in seed..seed + kinds.len() as u64 {
            seen.extend(kinds_of_calls(&generate(seed, &profile, &Rules::default())));
        }
    }
    let changing = [
        "create",
        "mknod",
        "mkdir",
        "symlink",
        "tmpfile",
        "link",
        "unlink",
        "rmdir",
        "rename",
        "hold",
        "release",
        "write",
        "truncate",
        "fallocate",
        "fsync",
        "fdatasync",
        "sync",
        "chmod",
        "chown",
        "utimes",
        "setxattr",
        "removexattr",
        "setacl",
        "chattr",
        "freeze",
    ];
    for call in changing {
        assert!(seen.contains(call), "no {call} in any history");
    }
}

#[test]
fn contents_that_are_not_delayed_survive_power_loss_too() {
    let kinds = ["ext4-1k", "ext3-4k", "bigalloc"];
    for (mode, seed) in [(DataMode::Ordered, 75), (DataMode::Writeback, 85)] {
        let options = LiveOptions { delalloc: Some(false), ..with_data(mode) };
        every_cut_with(&committed(Profile::data()), &kinds, &options, seed);
    }
}

#[test]
fn other_ways_to_commit_survive_power_loss_too() {
    let checksums = LiveOptions { journal_checksum: true, ..with_data(DataMode::Ordered) };
    every_cut_with(&committed(Profile::all()), &["no-checksums"], &checksums, 110);
    let asynchronous = LiveOptions { journal_async_commit: true, ..with_data(DataMode::Writeback) };
    every_cut_with(&committed(Profile::names()), &["ext4-1k", "no-checksums"], &asynchronous, 120);
    every_cut_with(&committed(Profile::all()), &["external"], &asynchronous, 125);
}

/// The judge itself: without flushes a power cut may break a volume, and that is noticed.
#[test]
fn what_a_volume_without_barriers_loses_is_noticed() {
    let kind = volumes::all().into_iter().find(|kind| kind.name == "ext4-1k").unwrap();
    let base = match fresh(kind, SIZE / 3) {
        Ok(base) => base,
        Err(why) => skip!("{why}"),
    };
    let options = LiveOptions { barriers: false, ..with_data(DataMode::Ordered) };
    let noticed = (130..134).any(|seed| {
        let history = generate(seed, &committed(Profile::all()), &kind.rules());
        let sweep = Sweep { seed, prefixes: 4, subsets: 8, torn: 1 };
        let effort = Effort { sweep, e2fsck_every: usize::MAX, kernel_every: usize::MAX };
        fails(kind, &base, &options, &history, effort).is_err()
    });
    assert!(noticed, "no cut of a volume without barriers lost anything");
}
