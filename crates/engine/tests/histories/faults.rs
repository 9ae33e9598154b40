//! A device that fails at any request, and volumes that run full: nothing panics, a call that fails
//! has done nothing, nothing is acknowledged after a failed commit, the volume turns read-only, and
//! all that was acknowledged before is there when it is opened again.

use crate::devices::Devices;
use crate::engine::Engine;
use crate::power::{Failures, Recorded, recover};
use crate::random::{SIZE, fresh, on_volumes};
use crate::volumes::{self, Kind};
use extant_device::{Device, MemoryDevice, Operation};
use extant_engine::{Credentials, DataMode, Volume, VolumeOptions};
use extant_ondisk::InodeNo;
use extant_ondisk::superblock::State;
use extant_reader::{Follow, VolumeRead};
use extant_runtime::env::Env;
use extant_sim::{Effect, Fault, FaultyDevice};
use extant_testkit::history::{Family, History, Profile, Rules, generate, shrink};
use extant_testkit::skip;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Failures that a long history is run with, spread over its requests.
const PLACES: u64 = 12;
/// e2fsck verifies the result of one failure in this number.
const E2FSCK_EVERY: usize = 12;

/// Data are not delayed: the call that writes them is the one that fails.
fn at_once() -> VolumeOptions {
    VolumeOptions { delalloc: Some(false), ..VolumeOptions::default() }
}

/// Data wait for their blocks: a caller that waits for them gets the error.
fn delayed() -> VolumeOptions {
    VolumeOptions { delalloc: Some(true), ..VolumeOptions::default() }
}

/// The histories that are run with failures.
struct Subject<'a> {
    kind: Kind,
    base: &'a MemoryDevice,
    options: &'a VolumeOptions,
}

impl Subject<'_> {
    /// Runs a history with a failure to come, heals the device, opens the volume again and verifies
    /// it.
    fn verify(&self, history: &History, fault: &Fault, with_e2fsck: bool) -> Result<bool, String> {
        let kind = self.kind;
        let inner: Arc<dyn Device> = Arc::new(self.base.fork());
        let devices = Devices::of(kind, inner.clone());
        let faulty = Arc::new(FaultyDevice::new(inner));
        let env = Env::stepped(3);
        let on_faulty = Devices::of(kind, faulty.clone());
        let mut engine = Engine::open(on_faulty, &env, self.options.clone())
            .map_err(|error| format!("open: {error}"))?;
        faulty.inject(fault.clone());
        let failures = Failures::OfTheDevice(&faulty);
        let recorded = Recorded::replay(kind, &mut engine, history.clone(), failures, |_| {})?;
        let was_met = faulty.faults_met() > 0;
        says_so(engine.volume(), &faulty)?;
        let keeps_errors = engine.volume().is_read_only() && takes_writes(&faulty);
        drop(engine);
        faulty.heal();
        if keeps_errors && !devices.state().is_some_and(|state| state.contains(State::ERRORS)) {
            return Err("the superblock does not say that there was an error".into());
        }
        if !kind.has_journal() {
            return repaired(&devices, &recorded, with_e2fsck).map(|()| was_met);
        }
        let volume = recover(&devices).map_err(|error| format!("not opened again: {error}"))?;
        recorded.verify(&recorded.marks, &volume)?;
        volume.close().map_err(|error| format!("not closed: {error}"))?;
        if with_e2fsck && was_met {
            devices.to_files().is_clean()?;
        }
        Ok(was_met)
    }

    /// The same; a panic is a failure too.
    fn fails(&self, history: &History, fault: &Fault, with_e2fsck: bool) -> Result<bool, String> {
        let run = || self.verify(history, fault, with_e2fsck);
        catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err("panic".into()))
    }

    /// How many writes, flushes and reads a history makes.
    fn requests(&self, history: &History) -> Result<[u64; 3], String> {
        let mut counts = [0; 3];
        for (count, operation) in
            counts.iter_mut().zip([Operation::Write, Operation::Flush, Operation::Read])
        {
            let faulty = Arc::new(FaultyDevice::new(Arc::new(self.base.fork())));
            let devices = Devices::of(self.kind, faulty.clone());
            let mut engine = Engine::open(devices, &Env::stepped(3), self.options.clone())
                .map_err(|error| error.to_string())?;
            // Changes nothing, and is counted; a flush that is left out harms no device in memory.
            faulty.inject(match operation {
                Operation::Flush => Fault::new(Effect::Ignored).on(operation),
                _ => Fault::new(Effect::FlippedBits { at: 0, mask: 0 }).on(operation),
            });
            Recorded::replay(self.kind, &mut engine, history.clone(), Failures::None, |_| {})?;
            *count = faulty.faults_met();
        }
        Ok(counts)
    }

    /// Runs a history with each of the failures; how many were met. The first failed history is
    /// reduced to the shortest one that still fails.
    fn survives(&self, history: &History, faults: &[Fault]) -> Result<usize, String> {
        let mut met = 0;
        for (number, fault) in faults.iter().enumerate() {
            let with_e2fsck = number % E2FSCK_EVERY == 0;
            match self.fails(history, fault, with_e2fsck) {
                Ok(was_met) => met += usize::from(was_met),
                Err(what) => {
                    let still =
                        |history: &History| self.fails(history, fault, with_e2fsck).is_err();
                    let least = shrink(history, 60, still);
                    let now = self.fails(&least, fault, with_e2fsck);
                    return Err(format!("{fault:?}: {what}\nleast:\n{least:?}{now:?}"));
                }
            }
        }
        Ok(met)
    }
}

/// Whether a device that takes no changes any more has made the volume read-only: at the latest at
/// the next change that must be durable. The calls under test work in a directory that the history
/// does not read.
fn says_so(volume: &Volume, faulty: &FaultyDevice) -> Result<(), String> {
    let before = faulty.faults_met();
    if before == 0 {
        return Ok(());
    }
    let lost_and_found = volume.lookup(InodeNo::ROOT, b"lost+found").map(|found| found.inode);
    let dir = lost_and_found.map_err(|error| format!("lost+found: {error}"))?;
    let make = |name: &[u8]| volume.create(dir, name, 0o644, &Credentials::ROOT);
    if !volume.is_read_only() {
        let made = make(b"one").and_then(|made| volume.fsync(made.number));
        if made.is_ok() || faulty.faults_met() == before {
            // The failure has passed, or it met data, or reading alone.
            return Ok(());
        }
    }
    if !volume.is_read_only() {
        return Err("a failed commit did not make the volume read-only".into());
    }
    match make(b"other") {
        Ok(_) => Err("a read-only volume was changed".into()),
        Err(_) => Ok(()),
    }
}

/// Whether a device takes writes: it gets a sector as it is.
fn takes_writes(device: &dyn Device) -> bool {
    let mut sector = [0; 512];
    device.read_at(0, &mut sector).and_then(|()| device.write_at(0, &sector)).is_ok()
}

/// A volume without a journal after a failure: it does not say that it is clean; what e2fsck
/// repairs is whole, and has the files that were complete before.
fn repaired(devices: &Devices, recorded: &Recorded, is_preened: bool) -> Result<(), String> {
    if devices.state() == Some(State::CLEAN) {
        return Err("it says that it is clean".into());
    }
    let files = devices.to_files();
    if is_preened {
        let output = files.e2fsck("-p")?;
        let said = String::from_utf8_lossy(&output.stdout);
        if !["not cleanly unmounted", "with errors"].iter().any(|word| said.contains(word)) {
            return Err(format!("e2fsck takes it for clean: {said}"));
        }
    }
    let output = files.e2fsck("-fy")?;
    if is_preened || output.status.code().is_none_or(|code| code > 1) {
        files.is_clean()?;
    }
    let repaired = files.devices().open().map_err(|error| format!("after e2fsck: {error}"))?;
    recorded.judge_kept(&repaired).map_err(|lost| {
        format!("after e2fsck: {lost}\n{}", String::from_utf8_lossy(&output.stdout))
    })
}

const BROKEN: Effect = Effect::Error(io::ErrorKind::Other);

/// A write that fails after a number of writes: with all that follow, alone, at its end, and for
/// lack of space.
fn failing_writes(after: u64) -> [Fault; 4] {
    let on_write = |effect| Fault::new(effect).on(Operation::Write).after(after);
    [
        on_write(BROKEN),
        on_write(BROKEN).times(1),
        on_write(Effect::Short(700)).times(1),
        Fault::full().after(after),
    ]
}

fn failing_flushes(after: u64) -> [Fault; 2] {
    let on_flush = || Fault::new(BROKEN).on(Operation::Flush).after(after);
    [on_flush(), on_flush().times(1)]
}

fn failing_read(after: u64) -> Fault {
    Fault::new(BROKEN).on(Operation::Read).after(after).times(1)
}

/// Failures spread over a long history.
fn spread([writes, flushes, reads]: [u64; 3]) -> Vec<Fault> {
    let places = PLACES * volumes::count();
    let faults = (0..places).flat_map(|place| {
        let at = |requests: u64| requests * place / places;
        failing_writes(at(writes))
            .into_iter()
            .chain(failing_flushes(at(flushes)))
            .chain([failing_read(at(reads))])
    });
    faults.collect()
}

/// Each request of a short history fails: for good and once; the forms of failing writes take
/// turns.
fn at_each([writes, flushes, reads]: [u64; 3]) -> Vec<Fault> {
    let forms = |at: u64| {
        let [for_good, once, short, full] = failing_writes(at);
        if at.is_multiple_of(2) { [for_good, short] } else { [full, once] }
    };
    let writes = (0..writes).flat_map(forms);
    writes
        .chain((0..flushes).flat_map(failing_flushes))
        .chain((0..reads).map(failing_read))
        .collect()
}

fn every_failure(profile: &Profile, kinds: &[&str], seed: u64, options: &VolumeOptions) {
    let kinds = volumes::all().into_iter().filter(|kind| kinds.contains(&kind.name));
    let (mut failed, mut met) = (Vec::new(), 0);
    for (number, kind) in (0..).zip(kinds) {
        let base = match fresh(kind, SIZE / 3) {
            Ok(base) => base,
            Err(why) => skip!("{why}"),
        };
        let seed = seed + number;
        let history = generate(seed, profile, &kind.rules());
        let subject = Subject { kind, base: &base, options };
        let faults = spread(subject.requests(&history).unwrap());
        match subject.survives(&history, &faults) {
            Ok(count) => met += count,
            Err(what) => failed.push(format!("{}, seed {seed}, {what}", kind.name)),
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
    assert!(met > 50, "only {met} failures were met");
}

/// Families of calls that change something, with the kind of volume that their short histories run
/// on.
const CHANGING: [(Family, &str); 19] = [
    (Family::Creates, "ext4-1k"),
    (Family::Nodes, "ext4-1k"),
    (Family::Directories, "ext4-1k"),
    (Family::Symlinks, "ext3-4k"),
    (Family::TempFiles, "orphan-file"),
    (Family::Links, "ext4-1k"),
    (Family::Removals, "ext4-1k"),
    (Family::Renames, "ext4-1k"),
    (Family::Holds, "orphan-file"),
    (Family::Writes, "ext4-1k"),
    (Family::Truncates, "bigalloc"),
    (Family::Fallocates, "ext4-1k"),
    (Family::Attributes, "ext4-1k"),
    (Family::Xattrs, "ea-inode"),
    (Family::Acls, "inline-data"),
    (Family::Flags, "ext4-1k"),
    (Family::Projects, "quota"),
    (Family::Crowds, "no-checksums"),
    (Family::Freezes, "external"),
];

/// Short histories of each family, each request of them failing once, on the kind of volume that
/// `on` makes of the family's own.
fn every_request(seed: u64, options: &VolumeOptions, on: impl Fn(&'static str) -> &'static str) {
    use Family::{Creates, Directories, Removals, Syncs, Writes};
    let mut failed = Vec::new();
    for (number, (family, name)) in (0..).zip(CHANGING) {
        let kind = volumes::all().into_iter().find(|kind| kind.name == on(name)).unwrap();
        let base = match fresh(kind, SIZE / 3) {
            Ok(base) => base,
            Err(why) => skip!("{why}"),
        };
        let few = Profile::names().only(&[]);
        let others = [(Creates, 4), (Directories, 2), (Writes, 3), (Removals, 1), (Syncs, 4)];
        let profile = few.with(&others).with(&[(family, 10)]).steps(16);
        let profile = Profile { crowd: 12, farthest: 1 << 20, longest_write: 9000, ..profile };
        for (_, seed) in volumes::rounds(seed + number) {
            let history = generate(seed, &profile, &kind.rules());
            let subject = Subject { kind, base: &base, options };
            let faults = at_each(subject.requests(&history).unwrap());
            match subject.survives(&history, &faults) {
                // A failed read may be one ahead; all others are met.
                Ok(met) if met * 2 > faults.len() => {}
                Ok(met) => failed.push(format!("{family:?}: {met} of {} were met", faults.len())),
                Err(what) => failed.push(format!("{family:?}, seed {seed}, {what}")),
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

#[test]
fn each_request_of_each_kind_of_call_may_fail() {
    every_request(600, &at_once(), |own| own);
}

#[test]
fn each_request_of_each_kind_of_call_may_fail_with_delayed_data() {
    every_request(700, &delayed(), |own| own);
}

#[test]
fn each_request_may_fail_in_the_other_data_modes() {
    for (seed, mode) in [(640, DataMode::Writeback), (660, DataMode::Journal)] {
        every_request(seed, &VolumeOptions { data: Some(mode), ..at_once() }, |own| own);
    }
}

#[test]
fn each_request_may_fail_without_a_journal() {
    let without = |own| if own == "ext3-4k" { "ext2-1k" } else { "no-journal" };
    every_request(680, &at_once(), without);
    every_request(720, &delayed(), without);
}

#[test]
fn a_failing_device_loses_nothing_that_was_acknowledged() {
    let profile = Profile { crowd: 30, ..Profile::attributes().steps(140) };
    every_failure(&profile, &["ext4-1k", "ext2-1k", "no-checksums"], 200, &at_once());
}

#[test]
fn a_failing_device_loses_no_contents_that_were_acknowledged() {
    let profile = Profile { farthest: 4 << 20, ..Profile::data().steps(100) };
    let kinds = ["ext4-1k", "ext3-4k", "bigalloc"];
    for (options, seed) in [(at_once(), 240), (delayed(), 250)] {
        every_failure(&profile, &kinds, seed, &options);
    }
}

#[test]
fn a_full_volume_says_so_and_stays_whole() {
    let profile = Profile { crowd: 400, ..Profile::all().steps(1500) };
    // So small a volume has no journal where blocks are large.
    let rules = |kind: Kind| Rules { may_fill: true, journalled_files: false, ..kind.rules() };
    on_volumes(&volumes::all(), &profile, 4 << 20, 300, rules, Env::stepped);
}

fn file_name(number: usize) -> String {
    format!("name-{number:04}-{}", "n".repeat(50))
}

/// A directory whose blocks are split in one commit, each write of which fails: the names that were
/// in them before stay.
#[test]
fn names_stay_when_their_blocks_are_split_without_a_journal() {
    let mut met = 0;
    for name in ["no-journal", "ext2-1k"] {
        let kind = volumes::all().into_iter().find(|kind| kind.name == name).unwrap();
        let base = match fresh(kind, SIZE / 3) {
            Ok(base) => base,
            Err(why) => skip!("{why}"),
        };
        let open = |device| Volume::open(device, &Env::stepped(1), &at_once());
        // One block without an index, and some with one.
        for names in [14, 30, 60] {
            let filled = Arc::new(base.fork());
            let volume = open(filled.clone()).unwrap();
            let dir =
                volume.mkdir(InodeNo::ROOT, b"dir", 0o755, &Credentials::ROOT).unwrap().number;
            let create = |volume: &Volume, number| {
                let name = file_name(number);
                let made = volume.create(dir, name.as_bytes(), 0o644, &Credentials::ROOT).unwrap();
                volume.write(made.number, 0, name.as_bytes()).unwrap();
            };
            (0..names).for_each(|number| create(&volume, number));
            volume.close().unwrap();
            for fault in (0..12).flat_map(failing_writes) {
                let inner = Arc::new(filled.fork());
                let devices = Devices::of(kind, inner.clone());
                let faulty = Arc::new(FaultyDevice::new(inner));
                let volume = open(faulty.clone()).unwrap();
                (names..names + 40).for_each(|number| create(&volume, number));
                faulty.inject(fault.clone());
                let synced = volume.sync();
                if faulty.faults_met() == 0 {
                    continue;
                }
                met += 1;
                let what = format!("{name}, {names} names, {fault:?}");
                assert!(synced.is_err() && volume.is_read_only(), "{what}");
                drop(volume);
                let files = devices.to_files();
                files.e2fsck("-fy").unwrap();
                let repaired = files.devices().open().unwrap();
                for file in (0..names).map(file_name) {
                    let path = format!("/dir/{file}");
                    let found = repaired.resolve(path.as_bytes(), Follow::No);
                    let number =
                        found.unwrap_or_else(|error| panic!("{what}: {file}: {error}")).number;
                    let mut bytes = vec![0; file.len()];
                    repaired.read(number, 0, &mut bytes).unwrap();
                    assert_eq!(bytes, file.as_bytes(), "{what}");
                }
            }
        }
    }
    assert!(met > 100, "only {met} failures were met");
}
