//! Each step of each call fails in its turn: a read, a credit, a search for space. The changes of a
//! failed call are undone, so the call is repeated on the same volume, with the next step failing,
//! until it succeeds.

use crate::devices::Devices;
use crate::engine::Engine;
use crate::power::recover;
use crate::random::{SIZE, closed, fresh, model_of};
use crate::volumes::{self, Kind};
use extant_device::{Device, MemoryDevice};
use extant_engine::{DataMode, Step as VolumeStep, VolumeOptions};
use extant_runtime::env::Env;
use extant_testkit::history::{
    Answer, Call, Expected, Family, History, Model, Profile, Step, Subject, generate,
};
use extant_testkit::{differences, skip};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Failures of one call at most: far more than any has steps.
const MOST: u64 = 20_000;

/// How steps fail.
#[derive(Clone, Copy, Debug)]
enum Failing {
    /// One alone.
    Once,
    /// All searches for space from one on.
    Space,
}

impl Failing {
    fn inject(self, engine: &Engine, passes: u64) {
        let (only, times) = match self {
            Self::Once => (None, 1),
            Self::Space => (Some(VolumeStep::Space), u64::MAX),
        };
        engine.volume().fail_steps(only, passes, times);
    }
}

/// A history on one volume, each call made with each of its steps failing.
struct Sweep<'a> {
    kind: Kind,
    base: &'a MemoryDevice,
    options: &'a VolumeOptions,
    failing: Failing,
    /// The tree is looked at after each failure, to find the one that left half a change.
    compares: bool,
}

/// Calls whose failures leave something else than nothing, or that end the volume.
fn is_swept(call: &Call) -> bool {
    !matches!(call, Call::Reopen | Call::Freeze | Call::Wait { .. } | Call::StatFs)
}

/// Calls that may have done a part of their work, as POSIX has it, or do it in several operations.
fn may_do_part(call: &Call) -> bool {
    matches!(
        call,
        Call::Write { .. }
            | Call::Truncate { .. }
            | Call::Fallocate { .. }
            | Call::SetFlags { .. }
            | Call::Release { .. }
    )
}

impl Sweep<'_> {
    fn tree(&self, engine: &Engine, model: &Model) -> Result<(), String> {
        let found = engine.tree().map_err(|error| format!("tree: {error}"))?;
        let lines = differences(&model.snapshot(&found), &found);
        if lines.is_empty() { Ok(()) } else { Err(lines.join("\n")) }
    }

    /// Makes a call until none of its steps fails. How many have.
    fn step(&self, engine: &mut Engine, model: &mut Model, step: &Step) -> Result<u64, String> {
        let mut passes = 0;
        loop {
            let expected = model.expect(step);
            if expected == Expected::PassedOver {
                return Ok(passes);
            }
            let start = engine.now();
            if is_swept(&step.call) {
                self.failing.inject(engine, passes);
            }
            let found = engine.perform(step, model);
            let failed = engine.volume().steps_failed();
            model.clock.note(step.number, start, engine.now());
            if engine.volume().is_read_only() {
                return Err(format!("failure {passes}: the volume is read-only"));
            }
            match (&expected, &found) {
                (Expected::Success, Ok(answer)) => {
                    model.apply(step, answer)?;
                    return Ok(passes);
                }
                (Expected::Failure(errnos), Err(errno))
                    if failed == 0 && errnos.contains(errno) =>
                {
                    model.refused(step);
                    return Ok(passes);
                }
                // It is released, whether or not the file still exists.
                (Expected::Success, Err(_))
                    if failed > 0 && matches!(step.call, Call::Release { .. }) =>
                {
                    model.apply(step, &Answer::Done)?;
                    return Ok(passes);
                }
                (Expected::Success, Err(errno)) if failed == 0 && model.may_fail(step, *errno) => {
                    return Ok(passes);
                }
                (_, Err(_)) if failed > 0 && passes < MOST => passes += 1,
                _ => {
                    let said = engine.last_error();
                    return Err(format!("expected {expected:?}, found {found:?}, {said:?}"));
                }
            }
            if self.compares && !may_do_part(&step.call) {
                self.tree(engine, model)
                    .map_err(|what| format!("failure {}: {what}", passes - 1))?;
            }
        }
    }

    fn run(&self, history: &History) -> Result<u64, String> {
        let devices = Devices::of(self.kind, Arc::new(self.base.fork()));
        let mut model = model_of(self.kind);
        model.rules.may_fill = true;
        model.rules.counts_inodes = false;
        let mut engine = Engine::open(devices.clone(), &Env::stepped(5), self.options.clone())
            .map_err(|error| format!("open: {error}"))?;
        let mut failures = 0;
        for step in &history.steps {
            let at = |what| format!("step {} {:?}: {what}", step.number, step.call);
            failures += self.step(&mut engine, &mut model, step).map_err(at)?;
            self.tree(&engine, &model).map_err(at)?;
            if self.compares {
                self.crashed(&engine).map_err(at)?;
            }
        }
        self.crashed(&engine)?;
        engine.close().map_err(|error| format!("close: {error}"))?;
        devices.to_files().is_clean()?;
        let model = closed(&model);
        let reopened = devices.open().map_err(|error| format!("opened again: {error}"))?;
        let found = crate::common::snapshot(&reopened)
            .map_err(|error| format!("opened again: {error}"))?
            .without("lost+found");
        let lines = differences(&model.snapshot(&found), &found);
        if lines.is_empty() { Ok(failures) } else { Err(lines.join("\n")) }
    }

    /// The image after a power loss now is consistent.
    fn crashed(&self, engine: &Engine) -> Result<(), String> {
        engine.volume().sync().map_err(|error| format!("sync: {error}"))?;
        if !self.kind.has_journal() {
            return Ok(());
        }
        let copy: Arc<dyn Device> = Arc::new(self.copy(engine)?);
        let devices = Devices::of(self.kind, copy);
        let volume = recover(&devices).map_err(|error| format!("recovered: {error}"))?;
        volume.close().map_err(|error| format!("recovered and closed: {error}"))?;
        devices.to_files().is_clean()
    }

    fn copy(&self, engine: &Engine) -> Result<MemoryDevice, String> {
        let device = engine.device();
        let mut bytes = vec![0; device.size() as usize];
        device.read_at(0, &mut bytes).map_err(|error| error.to_string())?;
        Ok(MemoryDevice::from_bytes(&bytes))
    }
}

/// The families of calls, few of each.
fn profile(kind: Kind, steps: usize) -> Profile {
    let without =
        [Family::Crowds, Family::Freezes, Family::StatFs, Family::Queries, Family::Readings];
    let mut base = Profile::all().without(&without).steps(steps);
    if kind.ea_inode {
        // e2fsck 1.47.0 takes a short one with a value in an inode for a long one.
        base = base.without(&[Family::Symlinks]);
    }
    Profile { crowd: 12, farthest: 1 << 20, longest_write: 9000, ..base }
}

fn data_modes(kind: Kind) -> Vec<Option<DataMode>> {
    match kind.has_journal() {
        true => [DataMode::Ordered, DataMode::Writeback, DataMode::Journal].map(Some).to_vec(),
        false => vec![None],
    }
}

fn sweep(names: &[&str], steps: usize, seed: u64, every_mode: bool) {
    let (mut failed, mut failures) = (Vec::new(), 0);
    let kinds = volumes::all().into_iter();
    for (number, kind) in (0..).zip(kinds.filter(|kind| names.contains(&kind.name))) {
        let base = match fresh(kind, SIZE / 2) {
            Ok(base) => base,
            Err(why) => skip!("{why}"),
        };
        let modes = data_modes(kind);
        for (_, seed) in volumes::rounds(seed + number) {
            let history = generate(seed, &profile(kind, steps), &kind.rules());
            for (at, data) in modes.iter().enumerate() {
                if !every_mode && at as u64 != seed % modes.len() as u64 {
                    continue;
                }
                let options = VolumeOptions {
                    data: *data,
                    delalloc: Some(false),
                    ..VolumeOptions::default()
                };
                for failing in [Failing::Once, Failing::Space] {
                    let run = |compares| {
                        let sweep =
                            Sweep { kind, base: &base, options: &options, failing, compares };
                        catch_unwind(AssertUnwindSafe(|| sweep.run(&history)))
                            .unwrap_or_else(|_| Err("panic".into()))
                    };
                    match run(false) {
                        Ok(count) => failures += count,
                        Err(what) => {
                            let first = run(true).err().unwrap_or(what);
                            failed.push(format!(
                                "{}, seed {seed}, {data:?}, {failing:?}: {first}",
                                kind.name
                            ));
                        }
                    }
                }
            }
        }
    }
    assert!(failed.is_empty(), "{} of the sweeps:\n{}", failed.len(), failed.join("\n\n"));
    assert!(failures > 100, "only {failures} steps failed");
}

#[test]
fn a_call_that_fails_at_any_step_leaves_nothing_half_done() {
    let slow = std::env::var_os("EXTANT_SLOW").is_some();
    let steps = if slow { 120 } else { 40 };
    sweep(
        &["ext4-1k", "ext2-1k", "ea-inode", "inline-data", "quota", "orphan-file"],
        steps,
        900,
        slow,
    );
}

#[test]
fn a_call_that_fails_at_any_step_leaves_nothing_half_done_on_other_volumes() {
    let slow = std::env::var_os("EXTANT_SLOW").is_some();
    let steps = if slow { 120 } else { 20 };
    sweep(&["no-journal", "ext3-4k", "bigalloc", "casefold", "uninit-bg"], steps, 950, slow);
}
