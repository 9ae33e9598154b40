//! A device that fails at any request, and volumes that run full: nothing panics, a call that fails has done nothing, nothing
//! is acknowledged after a failed commit, and what was acknowledged before is there when the volume is opened again.

use crate::devices::Devices;
use crate::engine::Engine;
use crate::power::{Failures, Recorded, recover};
use crate::random::{SIZE, fresh, on_volumes};
use crate::volumes::{self, Kind};
use extant_device::env::Env;
use extant_device::{
    Device, Effect, Event, Fault, FaultyDevice, MemoryDevice, Operation, Recorder,
};
use extant_testkit::history::{History, Profile, Rules, generate, shrink};
use extant_testkit::skip;
use extant_volume::LiveOptions;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Failures that a history is run with, spread over its requests.
const PLACES: u64 = 12;

/// Data are not delayed: the call that writes them is the one that fails.
fn at_once() -> LiveOptions {
    LiveOptions { delalloc: Some(false), ..LiveOptions::default() }
}

/// Runs a history with a failure to come, heals the device, opens the volume again and judges it.
fn judge(
    kind: Kind,
    base: &MemoryDevice,
    history: &History,
    fault: &Fault,
    with_e2fsck: bool,
) -> Result<bool, String> {
    let inner: Arc<dyn Device> = Arc::new(base.fork());
    let devices = Devices::of(kind, inner.clone());
    let faulty = Arc::new(FaultyDevice::new(inner));
    let env = Env::stepped(3);
    let mut engine = Engine::open(Devices::of(kind, faulty.clone()), &env, at_once())
        .map_err(|error| format!("open: {error}"))?;
    faulty.inject(fault.clone());
    let recorded =
        Recorded::replay(kind, &mut engine, history.clone(), Failures::OfTheDevice, |_| {})?;
    drop(engine);
    let was_met = faulty.faults_met() > 0;
    faulty.heal();
    if !kind.has_journal() {
        // What was lost on the way is lost; the volume says that it must be checked, and can be repaired.
        return repaired(&devices, was_met).map(|()| was_met);
    }
    let volume = recover(&devices).map_err(|error| format!("not opened again: {error}"))?;
    recorded.judge(&recorded.marks, &volume)?;
    volume.close().map_err(|error| format!("not closed: {error}"))?;
    if with_e2fsck && was_met {
        devices.to_files().is_clean()?;
    }
    Ok(was_met)
}

/// A volume without a journal after a failure: e2fsck knows that it was not closed, and what it repairs is whole.
fn repaired(devices: &Devices, was_met: bool) -> Result<(), String> {
    let files = devices.to_files();
    let preened = files.e2fsck("-p")?;
    let said = String::from_utf8_lossy(&preened.stdout);
    if was_met && !said.contains("not cleanly unmounted") {
        return Err(format!("e2fsck takes it for clean: {said}"));
    }
    files.e2fsck("-fy")?;
    files.is_clean()
}

fn fails(
    kind: Kind,
    base: &MemoryDevice,
    history: &History,
    fault: &Fault,
    with_e2fsck: bool,
) -> Result<bool, String> {
    let run = || judge(kind, base, history, fault, with_e2fsck);
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err("panic".into()))
}

/// How many writes and flushes a history makes.
fn requests(kind: Kind, base: &MemoryDevice, history: &History) -> Result<(u64, u64), String> {
    let recorder = Arc::new(Recorder::new(Arc::new(base.fork())));
    let devices = Devices::of(kind, recorder.clone());
    let mut engine =
        Engine::open(devices, &Env::stepped(3), at_once()).map_err(|error| error.to_string())?;
    let opened = recorder.events().len();
    Recorded::replay(kind, &mut engine, history.clone(), Failures::None, |_| {})?;
    drop(engine);
    let events = &recorder.events()[opened..];
    let flushes = events.iter().filter(|event| **event == Event::Flush).count();
    Ok(((events.len() - flushes) as u64, flushes as u64))
}

fn every_failure(profile: &Profile, kinds: &[&str], seed: u64) {
    let kinds = volumes::all().into_iter().filter(|kind| kinds.contains(&kind.name));
    let (mut failed, mut met) = (Vec::new(), 0);
    for (number, kind) in (0..).zip(kinds) {
        let base = match fresh(kind, SIZE / 3) {
            Ok(base) => base,
            Err(why) => skip!("{why}"),
        };
        let seed = seed + number;
        let history = generate(seed, profile, &kind.rules());
        let (writes, flushes) = requests(kind, &base, &history).unwrap();
        let broken = Effect::Error(io::ErrorKind::Other);
        let faults = (0..PLACES * volumes::rounds()).flat_map(|place| {
            let spread = |requests: u64| requests * place / (PLACES * volumes::rounds());
            let on_write = |effect| Fault::new(effect).on(Operation::Write).after(spread(writes));
            [
                on_write(broken),
                on_write(broken).times(1),
                on_write(Effect::Short(700)).times(1),
                Fault::full().after(spread(writes)),
                Fault::new(broken).on(Operation::Flush).after(spread(flushes)),
                Fault::new(broken).on(Operation::Flush).after(spread(flushes)).times(1),
                Fault::new(broken).on(Operation::Read).after(spread(60)).times(1),
            ]
        });
        for (number, fault) in faults.enumerate() {
            let with_e2fsck = number % 5 == 0;
            match fails(kind, &base, &history, &fault, with_e2fsck) {
                Ok(was_met) => met += usize::from(was_met),
                Err(what) => {
                    let still = |history: &History| {
                        fails(kind, &base, history, &fault, with_e2fsck).is_err()
                    };
                    let least = shrink(&history, 60, still);
                    let now = fails(kind, &base, &least, &fault, with_e2fsck);
                    failed.push(format!(
                        "{}, seed {seed}, {fault:?}: {what}\nleast:\n{least:?}{now:?}",
                        kind.name
                    ));
                    break;
                }
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
    assert!(met > 50, "only {met} failures were met");
}

#[test]
fn a_failing_device_loses_nothing_that_was_acknowledged() {
    let profile = Profile { crowd: 30, ..Profile::attributes().steps(140) };
    every_failure(&profile, &["ext4-1k", "ext2-1k", "no-checksums"], 200);
}

#[test]
fn a_failing_device_loses_no_contents_that_were_acknowledged() {
    let profile = Profile { farthest: 4 << 20, ..Profile::data().steps(100) };
    every_failure(&profile, &["ext4-1k", "ext3-4k", "bigalloc"], 240);
}

#[test]
fn a_full_volume_says_so_and_stays_whole() {
    let profile = Profile { crowd: 400, ..Profile::all().steps(1500) };
    let rules = |kind: Kind| Rules { may_fill: true, ..kind.rules() };
    on_volumes(&volumes::all(), &profile, 4 << 20, 300, rules, Env::stepped);
}
