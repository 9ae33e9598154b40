//! Repairs of randomly damaged images: they end, never panic, and leave nothing for a second check.
//! `cargo xtask fuzz` runs it for longer.

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../../reader/tests/common/bases.rs"]
mod bases;

use bases::{Contents, bases};
use extant_check::run::{CORRECTED, Report, RunError, RunOptions, run};
use extant_check::{AutoPolicy, CheckOptions, Observer, pass0};
use extant_device::{Device, MemoryDevice, OverlayDevice};
use extant_runtime::env::Env;
use extant_sim::Recorder;
use extant_testkit::{fuzz::FUZZ_TIME, skip, tool};
use std::sync::Arc;

/// A device of these bytes.
fn memory(bytes: &[u8]) -> Arc<dyn Device> {
    let device = MemoryDevice::new(bytes.len() as u64);
    device.write_at(0, bytes).unwrap();
    Arc::new(device)
}

/// Ignores all that it is told.
struct Quiet;

impl Observer for Quiet {}

/// All of fsck with `-f`, by one thread.
fn fsck(device: &Arc<dyn Device>, policy: AutoPolicy) -> Result<Report, RunError> {
    // Later than mke2fs has run.
    let env = Env::stepped_at(1, Env::threads().now());
    let options = RunOptions {
        open: pass0::CheckOpenOptions { env: env.clone(), ..pass0::CheckOpenOptions::default() },
        passes: CheckOptions { threads: 1, env, ..CheckOptions::default() },
        force: true,
        ..RunOptions::default()
    };
    run(device, &options, &policy, &Quiet)
}

#[test]
fn a_repair_of_a_damaged_image_is_whole() {
    if tool("mke2fs").is_none() {
        skip!("no mke2fs here");
    }
    bolero::check!()
        .with_type::<(u8, Vec<(u32, u8, u8)>)>()
        .with_test_time(FUZZ_TIME)
        .with_max_len(200)
        .for_each(|(base, damage)| {
            let bases = bases(Contents::Small);
            let base = &bases[usize::from(*base) % bases.len()];
            let damaged = OverlayDevice::new(base.device.clone());
            base.damage(&damaged, damage);
            let device: Arc<dyn Device> = Arc::new(damaged);
            let recorder = Arc::new(Recorder::new(device.clone()));
            let _ = fsck(&(recorder.clone() as Arc<dyn Device>), AutoPolicy::No);
            let writes = recorder.events();
            assert!(writes.is_empty(), "a check without repairs wrote: {} changes", writes.len());
            let Ok(repaired) = fsck(&device, AutoPolicy::Yes) else { return };
            if repaired.exit_code() & !CORRECTED == 0 {
                let second = fsck(&device, AutoPolicy::Yes).expect("it was repaired");
                assert_eq!(second.exit_code(), 0, "{:?}", second.findings);
            }
        });
}
