//! Every cut of recorded histories, recovered by us and by e2fsck.

use super::preen::Left;
use super::verify::{OPENED, Recorded, recover};
use crate::devices::Devices;
use crate::false_positives;
use crate::random::{SIZE, fresh};
use crate::volumes::{self, Kind};
use extant_device::{MemoryDevice, OverlayDevice};
use extant_engine::{DataMode, VolumeOptions};
use extant_reader::Reader;
use extant_sim::{Cut, Event, Survivors, Sweep};
use extant_testkit::history::{Family, History, Profile, generate, shrink};
use extant_testkit::{TempImage, is_root, skip, tool};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Output;
use std::sync::Arc;

/// Skips the test if there is no mke2fs.
macro_rules! needs_mke2fs {
    () => {
        if tool("mke2fs").is_none() {
            skip!("no mke2fs here");
        }
    };
}

/// The cuts tried in one history.
#[derive(Clone, Copy)]
struct Effort {
    sweep: Sweep,
    /// e2fsck verifies one cut in this number, and recovers it itself.
    e2fsck_every: usize,
    /// The kernel recovers one cut in this number.
    kernel_every: usize,
}

/// The devices of a cut, to be changed.
fn devices_of(kind: Kind, cut: &Cut) -> Devices {
    Devices::of(kind, Arc::new(OverlayDevice::new(Arc::new(cut.image.fork()))))
}

/// Recovers a cut by our journal and verifies it; the state that was found.
fn ours(recorded: &Recorded, cut: &Cut, with_e2fsck: bool) -> Result<usize, String> {
    let devices = devices_of(recorded.kind, cut);
    let volume = recover(&devices).map_err(|error| format!("not opened: {error}"))?;
    let state = recorded.verify(&cut.marks, &volume)?;
    volume.close().map_err(|error| format!("not closed: {error}"))?;
    if with_e2fsck {
        devices.to_files().is_clean()?;
    }
    Ok(state)
}

/// Whether e2fsck has replayed a part of a torn transaction, which can happen where the commit
/// block does not wait for the rest: it leaves out single blocks whose checksums are wrong. Our
/// recovery leaves the transaction out.
fn is_replayed_in_part(options: &VolumeOptions, output: &Output) -> bool {
    options.journal_async_commit
        && String::from_utf8_lossy(&output.stdout).contains("Journal checksum error found")
}

/// Whether e2fsck 1.47.0 has given up a log since the fast commits of its last transaction are not
/// cleared yet. It does so on volumes of the kernel too.
fn has_met_stale_fast_commits(kind: Kind, output: &Output) -> bool {
    kind.name.starts_with("fast-commit")
        && String::from_utf8_lossy(&output.stderr)
            .contains("Invalid argument while recovering journal")
}

/// Recovers a cut by e2fsck and verifies it.
fn theirs(recorded: &Recorded, cut: &Cut, options: &VolumeOptions) -> Result<(), String> {
    let files = devices_of(recorded.kind, cut).to_files();
    let output = files.e2fsck("-fy")?;
    if is_replayed_in_part(options, &output) || has_met_stale_fast_commits(recorded.kind, &output) {
        return Ok(());
    }
    if output.status.code().is_none_or(|code| code > 1) {
        let said = [&output.stdout, &output.stderr].map(|said| String::from_utf8_lossy(said));
        return Err(format!("e2fsck: {}", said.join("")));
    }
    verify_file(recorded, cut, &files.image).map_err(|what| {
        format!("after e2fsck: {what}\n{}", String::from_utf8_lossy(&output.stdout))
    })
}

/// Recovers a cut by a kernel mount and verifies it.
fn kernels(recorded: &Recorded, cut: &Cut) -> Result<(), String> {
    let devices = devices_of(recorded.kind, cut);
    // The kernel mounts no volume whose superblock is torn, and reads no backup by itself.
    if devices.state().is_none() {
        return Ok(());
    }
    let files = devices.to_files();
    files.mount("")?.unmount()?;
    files.is_clean()?;
    verify_file(recorded, cut, &files.image).map_err(|what| format!("after a kernel mount: {what}"))
}

/// Recovers a cut by `e2fsck -p`, which checks nothing more if the volume is marked clean, and
/// verifies it.
fn preened(recorded: &Recorded, cut: &Cut, options: &VolumeOptions) -> Result<(), String> {
    let devices = devices_of(recorded.kind, cut);
    if devices.state().is_none() {
        return Ok(());
    }
    let files = devices.to_files();
    let output = files.e2fsck("-p")?;
    if is_replayed_in_part(options, &output) || has_met_stale_fast_commits(recorded.kind, &output) {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stdout);
    if output.status.code().is_none_or(|code| code > 1) {
        return Err(format!("e2fsck -p: {said}"));
    }
    let in_context = |what: String| format!("after e2fsck -p: {what}\n{said}");
    if let Err(found) = files.is_clean() {
        let found_by_it = devices_of(recorded.kind, cut);
        let left = Left::by(&found_by_it, &files.devices(), &said).map_err(in_context)?;
        if !left.is_all_of(&found) {
            return Err(in_context(found));
        }
    }
    verify_file(recorded, cut, &files.image).map_err(in_context)
}

fn verify_file(recorded: &Recorded, cut: &Cut, image: &TempImage) -> Result<(), String> {
    let device = extant_device::FileDeviceOptions::new().open(image.path());
    let volume = Reader::open(Arc::new(device.map_err(|error| error.to_string())?));
    recorded.verify(&cut.marks, &volume.map_err(|error| error.to_string())?).map(drop)
}

/// The counts of verified histories.
#[derive(Debug, Default)]
struct Judged {
    histories: usize,
    cuts: usize,
    /// The calls that were carried out, by what they do.
    calls: BTreeSet<String>,
}

impl Judged {
    fn add(&mut self, other: Self) {
        self.histories += other.histories;
        self.cuts += other.cuts;
        self.calls.extend(other.calls);
    }
}

/// Runs a history and verifies its cuts.
fn judge_history(
    kind: Kind,
    base: &MemoryDevice,
    options: &VolumeOptions,
    history: &History,
    effort: Effort,
) -> Result<Judged, String> {
    let seed = effort.sweep.seed;
    let (recorded, recorder) = Recorded::run(kind, base, options.clone(), history.clone(), seed)?;
    let mut count = 0;
    for cut in recorder.cuts(effort.sweep) {
        if !cut.marks.contains(&OPENED) {
            continue;
        }
        count += 1;
        let with_e2fsck = count % effort.e2fsck_every == 0;
        let in_context = |what: String| format!("{cut}: {what}");
        ours(&recorded, &cut, with_e2fsck).map_err(in_context)?;
        if with_e2fsck
            && false_positives::reason(&devices_of(kind, &cut)).map_err(in_context)?.is_none()
        {
            theirs(&recorded, &cut, options).map_err(in_context)?;
            preened(&recorded, &cut, options).map_err(in_context)?;
        }
        if count % effort.kernel_every == 0 && kind.kernel && is_root() {
            kernels(&recorded, &cut).map_err(in_context)?;
        }
    }
    Ok(Judged { histories: 1, cuts: count, calls: recorded.calls() })
}

fn fails(
    kind: Kind,
    base: &MemoryDevice,
    options: &VolumeOptions,
    history: &History,
    effort: Effort,
) -> Result<Judged, String> {
    let run = || judge_history(kind, base, options, history, effort);
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err("panic".into()))
}

/// Histories of a profile on volumes of some kinds in a data mode, all their cuts verified.
fn every_cut(profile: &Profile, kinds: &[&str], mode: DataMode, seed: u64) -> Judged {
    every_cut_with(profile, kinds, &with_data(mode), seed)
}

fn with_data(mode: DataMode) -> VolumeOptions {
    VolumeOptions { data: Some(mode), ..VolumeOptions::default() }
}

/// The same with other options.
fn every_cut_with(profile: &Profile, kinds: &[&str], options: &VolumeOptions, seed: u64) -> Judged {
    let kinds = volumes::all().into_iter().filter(|kind| kinds.contains(&kind.name));
    let (mut failed, mut verified) = (Vec::new(), Judged::default());
    for (number, kind) in (0..).zip(kinds) {
        let base = fresh(kind, SIZE / 3).expect("mke2fs was asked for");
        for (_, seed) in volumes::rounds(seed + number) {
            let sweep = Sweep { seed, prefixes: 4, subsets: 2, torn: 1 };
            let effort = Effort { sweep, e2fsck_every: 25, kernel_every: 120 };
            let history = generate(seed, profile, &kind.rules());
            match fails(kind, &base, options, &history, effort) {
                Ok(more) => verified.add(more),
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
    assert!(verified.cuts > 20, "only {} cuts", verified.cuts);
    volumes::report(verified.histories, &format!("cuts={}", verified.cuts));
    verified
}

/// A profile with enough commits.
pub(super) fn committed(profile: Profile) -> Profile {
    Profile { crowd: 20, farthest: 4 << 20, ..profile.with(&[(Family::Syncs, 15)]).steps(120) }
}

#[test]
fn calls_on_names_survive_power_loss_whole() {
    needs_mke2fs!();
    let kinds = ["ext4-1k", "ext3-4k", "uninit-bg", "no-checksums", "inline-data", "orphan-file"];
    every_cut(&committed(volumes::names().by_anybody()), &kinds, DataMode::Ordered, 10);
}

#[test]
fn calls_on_attributes_survive_power_loss_whole() {
    needs_mke2fs!();
    let profile = committed(Profile::attributes().by_anybody());
    every_cut(&profile, &["ext4-1k", "ext3-4k", "ea-inode", "inline-data"], DataMode::Ordered, 40);
}

#[test]
fn contents_survive_power_loss_and_nothing_stale_is_shown() {
    needs_mke2fs!();
    let kinds = ["ext4-1k", "ext3-4k", "ext4-4k", "bigalloc", "inline-data"];
    for (mode, seed) in
        [(DataMode::Ordered, 70), (DataMode::Writeback, 80), (DataMode::Journal, 90)]
    {
        every_cut(&committed(Profile::data()), &kinds, mode, seed);
    }
}

/// The calls that histories must contain: those that change something, and those of one name by
/// their effect.
const CHANGING: [&str; 44] = [
    "create",
    "mknod Fifo",
    "mknod Socket",
    "mknod CharDevice",
    "mknod BlockDevice",
    "mkdir",
    "symlink",
    "tmpfile",
    "link",
    "link of a nameless file",
    "unlink",
    "unlink of a held file",
    "rmdir",
    "rename Replace",
    "rename Replace of a directory",
    "rename over another",
    "rename NoReplace",
    "rename Exchange",
    "hold",
    "release",
    "write",
    "truncate down",
    "truncate up",
    "fallocate Allocate",
    "fallocate KeepSize",
    "fallocate Punch",
    "fallocate Zero",
    "fallocate ZeroKeepSize",
    "fallocate Collapse",
    "fallocate Insert",
    "fsync",
    "fdatasync",
    "sync",
    "chmod",
    "chown",
    "utimes",
    "setxattr",
    "removexattr",
    "setacl access",
    "setacl default",
    "chattr",
    "chattr +j",
    "set_project",
    "freeze",
];

#[test]
fn every_call_survives_power_loss_in_every_mode() {
    needs_mke2fs!();
    use Family::{
        Creates, Fallocates, Flags, Freezes, Holds, Links, Removals, Renames, Syncs, TempFiles,
        Writes, Xattrs,
    };
    let all = Profile { crowd: 10, farthest: 2 << 20, ..Profile::all().by_anybody() };
    let all = all.with(&[(Syncs, 10), (Freezes, 2)]).steps(150);
    // The calls that are rare.
    let rare = [(TempFiles, 8), (Links, 12), (Renames, 15), (Fallocates, 40), (Writes, 20)];
    let rare = Profile::names().only(&[Creates, Removals, Syncs]).with(&rare);
    let rare = rare.with(&[(Flags, 10), (Holds, 4), (Syncs, 10), (Xattrs, 20)]);
    let rare = Profile { farthest: 1 << 20, ..rare.steps(150) };
    let modes = [DataMode::Ordered, DataMode::Writeback, DataMode::Journal];
    let mut seen = Judged::default();
    for (number, mode) in (0..).zip(modes) {
        for delalloc in [None, Some(false)] {
            // Journalled data are not delayed in any case.
            if mode == DataMode::Journal && delalloc.is_some() {
                continue;
            }
            let options = VolumeOptions { delalloc, ..with_data(mode) };
            let seed = 140 + 20 * number + if delalloc.is_some() { 10 } else { 0 };
            let kinds =
                ["ext4-1k", "external", "quota", ["meta-bg", "orphan-file"][number as usize % 2]];
            seen.add(every_cut_with(&all, &kinds, &options, seed));
            seen.add(every_cut_with(&rare, &["ext4-1k", "bigalloc"], &options, seed + 5));
        }
    }
    for call in CHANGING.into_iter().filter(|_| !volumes::are_others()) {
        assert!(seen.calls.contains(call), "no {call} in any history, but {:?}", seen.calls);
    }
}

/// Without a journal nothing is whole by itself; what sync has made sure is there once e2fsck has
/// looked.
#[test]
fn what_was_synced_without_a_journal_is_there_after_a_check() {
    needs_mke2fs!();
    if tool("e2fsck").is_none() {
        skip!("no e2fsck here");
    }
    for (seed, name) in (170..).zip(["ext2-1k", "no-journal", "ext2-4k"]) {
        let kind = volumes::all().into_iter().find(|kind| kind.name == name).unwrap();
        let base = fresh(kind, SIZE / 3).expect("mke2fs was asked for");
        for delalloc in [None, Some(false)] {
            let profile = committed(Profile::all()).with(&[(Family::Syncs, 20)]);
            let history = generate(seed, &profile, &kind.rules());
            let options = VolumeOptions { delalloc, ..VolumeOptions::default() };
            let (recorded, recorder) = Recorded::run(kind, &base, options.clone(), history, seed)
                .unwrap_or_else(|e| panic!("{e}"));
            let (mut marks, mut count) = (Vec::new(), 0);
            for (at, event) in recorder.events().into_iter().enumerate() {
                let Event::Mark(mark) = event else { continue };
                marks.push(mark);
                // No step has begun since.
                if recorded.is_sync(mark) {
                    let (events, survivors) = (at + 1, Survivors::None);
                    let image = recorder.image(events, survivors);
                    let cut = Cut { events, survivors, marks: marks.clone(), image };
                    theirs(&recorded, &cut, &options)
                        .unwrap_or_else(|what| panic!("{name}, {cut}: {what}"));
                    count += 1;
                }
            }
            assert!(count > 1, "{name}: {count} syncs in the history");
        }
    }
}

#[test]
fn contents_that_are_not_delayed_survive_power_loss_too() {
    needs_mke2fs!();
    let kinds = ["ext4-1k", "ext3-4k", "bigalloc"];
    for (mode, seed) in [(DataMode::Ordered, 75), (DataMode::Writeback, 85)] {
        let options = VolumeOptions { delalloc: Some(false), ..with_data(mode) };
        every_cut_with(&committed(Profile::data()), &kinds, &options, seed);
    }
}

#[test]
fn other_ways_to_commit_survive_power_loss_too() {
    needs_mke2fs!();
    let checksums = VolumeOptions { journal_checksum: true, ..with_data(DataMode::Ordered) };
    every_cut_with(&committed(Profile::all()), &["no-checksums"], &checksums, 110);
    let asynchronous =
        VolumeOptions { journal_async_commit: true, ..with_data(DataMode::Writeback) };
    every_cut_with(&committed(Profile::names()), &["ext4-1k", "no-checksums"], &asynchronous, 120);
    every_cut_with(&committed(Profile::all()), &["external"], &asynchronous, 125);
}

#[test]
fn fast_commits_survive_power_loss() {
    needs_mke2fs!();
    let kinds = ["fast-commit", "fast-commit-4k"];
    let names = Profile::names().by_anybody().with(&[(Family::Syncs, 60), (Family::Writes, 40)]);
    for (profile, seed) in [(names, 200), (Profile::data().with(&[(Family::Syncs, 40)]), 210)] {
        let profile = Profile { crowd: 20, ..profile.steps(120) };
        every_cut(&profile, &kinds, DataMode::Ordered, seed);
        let options = VolumeOptions { delalloc: Some(false), ..with_data(DataMode::Writeback) };
        every_cut_with(&profile, &kinds, &options, seed + 5);
    }
}

/// A test of the verification: without flushes a power cut may break a volume, and that is noticed.
#[test]
fn what_a_volume_without_barriers_loses_is_noticed() {
    let kind = volumes::all().into_iter().find(|kind| kind.name == "ext4-1k").unwrap();
    let base = match fresh(kind, SIZE / 3) {
        Ok(base) => base,
        Err(why) => skip!("{why}"),
    };
    let options = VolumeOptions { barriers: false, ..with_data(DataMode::Ordered) };
    let noticed = (130..134).any(|seed| {
        let history = generate(seed, &committed(Profile::all()), &kind.rules());
        let sweep = Sweep { seed, prefixes: 4, subsets: 8, torn: 1 };
        let effort = Effort { sweep, e2fsck_every: usize::MAX, kernel_every: usize::MAX };
        fails(kind, &base, &options, &history, effort).is_err()
    });
    assert!(noticed, "no cut of a volume without barriers lost anything");
}
