//! Random histories on every kind of volume: call by call, then the whole tree as we, e2fsck and
//! the kernel see it.

use crate::common;
use crate::devices::Devices;
use crate::engine::{Engine, check_flags};
use crate::volumes::{self, Kind};
use extant_device::MemoryDevice;
use extant_engine::{AllocatorKind, DataMode, VolumeOptions};
use extant_ondisk::CompatFeatures;
use extant_reader::Reader;
use extant_runtime::env::Env;
use extant_testkit::history::{
    Answer, Call, Family, History, Model, Profile, Rules, Step, generate, replay, shrink,
};
use extant_testkit::{TreeSnapshot, differences, is_root, skip};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Bytes of the volumes.
pub(crate) const SIZE: u64 = 48 << 20;

/// Number of failures that are reduced; the others are only reported.
const SHOWN: usize = 4;

/// A fresh volume of a kind, in memory.
pub(crate) fn fresh(kind: Kind, size: u64) -> Result<MemoryDevice, String> {
    if kind.external_journal {
        return kind.with_journal(size);
    }
    let image = kind.image(size)?;
    Ok(MemoryDevice::from_bytes(&std::fs::read(image.path()).unwrap()))
}

/// A model for a kind of volume.
pub(crate) fn model_of(kind: Kind) -> Model {
    let mut model = Model::new(kind.rules());
    model.clock.whole_seconds = kind.old_inodes;
    model
}

/// The model after the volume was closed: held files without names are gone.
pub(crate) fn closed(model: &Model) -> Model {
    let mut model = model.clone();
    let step = Step { number: u32::MAX - 1, call: Call::Reopen };
    model.apply(&step, &Answer::Done).expect("reopening has no answer to check");
    model
}

fn compare(model: &Model, found: &TreeSnapshot, who: &str) -> Result<(), String> {
    let lines = differences(&model.snapshot(found), found);
    if lines.is_empty() { Ok(()) } else { Err(format!("{who}:\n{}", lines.join("\n"))) }
}

/// Replays a history on a copy of `base` and verifies the result.
fn verify(
    kind: Kind,
    base: &MemoryDevice,
    env: &Env,
    with_kernel: bool,
    rules: &Rules,
    options: &VolumeOptions,
    history: &History,
) -> Result<(), String> {
    let devices = Devices::of(kind, Arc::new(base.fork()));
    let mut model = model_of(kind);
    model.rules = rules.clone();
    let mut engine = Engine::open(devices.clone(), env, options.clone())
        .map_err(|error| format!("open: {error}"))?;
    replay(history, &mut model, &mut engine).map_err(|mismatch| mismatch.to_string())?;
    let live = engine.tree().map_err(|error| format!("live tree: {error}"))?;
    compare(&model, &live, "live tree")?;
    engine.close().map_err(|error| format!("close: {error}"))?;
    let files = devices.to_files();
    files.is_silent()?;
    let model = closed(&model);
    let wrong = |error| format!("opened again: {error}");
    let reopened = devices.open().map_err(wrong)?;
    let again = common::snapshot(&reopened).map_err(wrong)?;
    compare(&model, &again.without("lost+found"), "opened again")?;
    check_flags(&reopened, &model, &model.outline().1)?;
    if with_kernel && kind.kernel && is_root() {
        let mount = files.mount("ro")?;
        let found = TreeSnapshot::of_dir(mount.path()).map_err(|error| error.to_string())?;
        compare(&model, &found.without("lost+found"), "kernel")?;
    }
    Ok(())
}

/// The error of a history, a panic too.
fn fails(
    kind: Kind,
    base: &MemoryDevice,
    env: &Env,
    with_kernel: bool,
    rules: &Rules,
    options: &VolumeOptions,
    history: &History,
) -> Option<String> {
    let verified = catch_unwind(AssertUnwindSafe(|| {
        verify(kind, base, env, with_kernel, rules, options, history)
    }));
    match verified {
        Ok(outcome) => outcome.err(),
        Err(panic) => Some(format!("panic: {}", said(&*panic))),
    }
}

fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default()
}

/// Options by a number: each allocator in each data mode, with and without delayed allocation, as
/// far as the volume has it.
fn options_of(has_journal: bool, number: u64) -> VolumeOptions {
    let modes = [DataMode::Ordered, DataMode::Writeback, DataMode::Journal];
    let allocators = [AllocatorKind::MultiBlock, AllocatorKind::Plain];
    // A history's seed goes up with the kind of volume: each combination comes to each of them
    // sooner or later.
    let data = modes[(number / 2 % 3) as usize];
    VolumeOptions {
        data: has_journal.then_some(data),
        allocator: allocators[(number % 2) as usize],
        delalloc: (number / 6 % 2 == 1).then_some(false),
        ..VolumeOptions::default()
    }
}

/// Whether there is one: a small volume has none, with any options of mke2fs.
fn has_journal(base: &MemoryDevice) -> bool {
    let volume = Reader::open(Arc::new(base.fork())).expect("a fresh volume is opened");
    volume.geometry().has_compat(CompatFeatures::HAS_JOURNAL)
}

fn named(options: &VolumeOptions) -> String {
    format!("{:?} {:?} delalloc {:?}", options.allocator, options.data, options.delalloc)
}

/// Histories of a profile on all kinds of volumes.
fn on_every_volume(profile: &Profile, seed: u64, env: impl Fn(u64) -> Env) {
    on_volumes(&volumes::all(), profile, SIZE, seed, |kind| kind.rules(), env);
}

/// Histories on volumes of a size under rules of their own; a failure comes with the least history
/// that still fails.
pub(crate) fn on_volumes(
    kinds: &[Kind],
    profile: &Profile,
    size: u64,
    seed: u64,
    rules: impl Fn(Kind) -> Rules,
    env: impl Fn(u64) -> Env,
) {
    let (mut failed, mut histories) = (Vec::new(), 0);
    for (number, kind) in (0..).zip(kinds.iter().copied()) {
        let base = match fresh(kind, size) {
            Ok(base) => base,
            Err(why) => skip!("{why}"),
        };
        let rules = rules(kind);
        for (round, seed) in volumes::rounds(seed + number) {
            histories += 1;
            let history = generate(seed, profile, &rules);
            let options = options_of(has_journal(&base), seed + round);
            let run = |with_kernel, history: &History| {
                fails(kind, &base, &env(seed), with_kernel, &rules, &options, history)
            };
            let Some(what) = run(round % 8 == 0, &history) else { continue };
            if failed.len() >= SHOWN {
                failed.push(format!("{}, {}, seed {seed}: {what}", kind.name, named(&options)));
                continue;
            }
            let least = shrink(&history, 400, |history| run(false, history).is_some());
            let now = run(false, &least).unwrap_or_else(|| "passes when replayed".into());
            let options = named(&options);
            failed.push(format!(
                "{}, {options}, seed {seed}: {what}\nleast:\n{least:?}{now}",
                kind.name
            ));
        }
    }
    assert!(failed.is_empty(), "{} failures\n{}", failed.len(), failed.join("\n\n"));
    volumes::report(histories, "");
}

#[test]
fn names_are_what_the_model_says() {
    on_every_volume(&volumes::names().by_anybody().steps(400), 1, Env::stepped);
}

#[test]
fn attributes_are_what_the_model_says() {
    on_every_volume(&Profile::attributes().by_anybody().steps(400), 1000, Env::stepped);
}

#[test]
fn names_are_what_the_model_says_with_threads() {
    on_every_volume(&volumes::names().steps(200), 500, |_| Env::threads());
}

#[test]
fn contents_are_what_the_model_says() {
    on_every_volume(&Profile::data().steps(250), 2000, Env::stepped);
}

#[test]
fn every_call_does_what_the_model_says_with_reopening() {
    let profile = Profile::all().by_anybody().with(&[(Family::Reopens, 2)]).steps(400);
    on_every_volume(&profile, 3000, Env::stepped);
}

#[test]
fn crowded_directories_are_what_the_model_says() {
    let named = ["ext4-1k", "ext2-1k", "no-dir-index", "large-dir", "inline-data", "casefold"];
    let kinds: Vec<Kind> =
        volumes::all().into_iter().filter(|kind| named.contains(&kind.name)).collect();
    use Family::{Creates, Queries, Readings, Removals, Renames};
    let families = [Creates, Renames, Removals, Queries, Readings];
    let profile = Profile { crowd: 2000, ..Profile::names().only(&families) };
    let profile = profile.with(&[(Family::Crowds, 6), (Family::Syncs, 1)]).steps(6000);
    on_volumes(&kinds, &profile, SIZE, 4000, |kind| kind.rules(), Env::stepped);
}
