//! The outcome of a check in one word, and the replay of a journal alone.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use extant::rooms::check::run::{End, RunOptions, run};
use extant::rooms::check::{AutoPolicy, CheckOptions, Code, Observer};
use extant::rooms::device::{DeviceError, Request};
use extant::rooms::image::resize::Resize;
use extant::{
    Checker, Device, Env, FileSystem, Formatter, MemoryDevice, Opened, Repairs, Verdict, inspect,
    recover,
};

fn verdict(device: &MemoryDevice, repairs: Repairs) -> Verdict {
    let checker = Checker::new().repair(repairs).force(true);
    Verdict::of(&checker.check(Arc::new(device.fork())))
}

fn formatted() -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(8 << 20));
    Formatter::new().format(&*device).expect("it is made");
    device
}

/// A copy of a volume at a moment when the journal holds a committed transaction.
fn with_a_log_that_waits() -> MemoryDevice {
    let device = formatted();
    let fs = FileSystem::on_device(device.clone()).expect("it is opened");
    fs.write("/file", "text").expect("it is written");
    fs.sync().expect("it is committed");
    device.fork()
}

#[test]
fn a_log_that_waits_is_no_damage() {
    assert_eq!(verdict(&formatted(), Repairs::No), Verdict::Clean);
    let waiting = with_a_log_that_waits();
    assert_eq!(verdict(&waiting, Repairs::No), Verdict::NeedsJournal);
    assert!(matches!(verdict(&waiting, Repairs::Preen), Verdict::Clean | Verdict::Repaired));
}

/// The inode table of group 0 begins with the inodes 1 to 10; the root directory is 2.
#[test]
fn damage_is_damage_until_it_is_repaired() {
    let device = formatted();
    let summary = inspect::summary(device.clone()).expect("it is read");
    let table = summary.groups.expect("groups")[0].inode_table * summary.block_size;
    device.write_at(table + 256, &[0x5a; 128]).expect("it is damaged");
    assert_eq!(verdict(&device, Repairs::No), Verdict::Damaged);
    assert_eq!(verdict(&device, Repairs::Preen), Verdict::Damaged);
    assert_eq!(verdict(&device, Repairs::Yes), Verdict::Repaired);
}

#[test]
fn a_device_without_a_superblock_is_unreadable() {
    let device = MemoryDevice::new(8 << 20);
    for repairs in [Repairs::No, Repairs::Preen, Repairs::Yes] {
        assert_eq!(verdict(&device, repairs), Verdict::Unreadable);
    }
}

#[test]
fn what_was_committed_is_on_the_volume_after_a_recovery() {
    let cut: Arc<dyn Device> = Arc::new(with_a_log_that_waits());
    let recovered = recover(&Opened::real(cut.clone())).expect("recovered").expect("a journal");
    assert!(recovered.transactions > 0 && recovered.damage.is_empty(), "{recovered:?}");
    let again = recover(&Opened::real(cut.clone())).expect("recovered").expect("a journal");
    assert_eq!((again.transactions, again.blocks), (0, 0));
    let read = FileSystem::on_device_read_only(cut).expect("it is opened");
    assert_eq!(read.read_to_string("/file").expect("it is read"), "text");
}

#[test]
fn a_volume_that_is_only_read_is_not_written() {
    let waiting = Arc::new(with_a_log_that_waits());
    let before = waiting.to_vec();
    let fs = FileSystem::on_device_read_only(waiting.clone()).expect("it is opened");
    assert_eq!(fs.read_to_string("/file").expect("it is read"), "text");
    assert_eq!(fs.write("/other", "text").unwrap_err().errno(), 30);
    fs.close().expect("it is closed");
    assert!(waiting.to_vec() == before);
}

/// Carries out a number of changes, and loses those after them: a power cut.
#[derive(Debug)]
struct Cut {
    inner: MemoryDevice,
    left: AtomicUsize,
}

impl Cut {
    fn new(inner: MemoryDevice, left: usize) -> Self {
        Self { inner, left: AtomicUsize::new(left) }
    }

    fn is_cut(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }
}

impl Device for Cut {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        for request in batch {
            let is_change = request.is_change();
            if is_change && self.is_cut() {
                continue;
            }
            if is_change {
                self.left.fetch_sub(1, Ordering::Relaxed);
            }
            self.inner.submit(std::slice::from_mut(request))?;
        }
        Ok(())
    }

    fn next_data(&self, range: Range<u64>) -> Result<Option<Range<u64>>, DeviceError> {
        self.inner.next_data(range)
    }

    fn is_read_only(&self) -> bool {
        false
    }
}

struct Quiet;
impl Observer for Quiet {}

/// Descriptors of another size come with the log: until it is replayed, a backup does not take the
/// place of the superblock.
#[test]
fn preening_replays_the_log_of_a_resize_that_was_cut() {
    let kinds: [&[&str]; 5] = [
        &["-b", "1024", "-g", "1024", "-O", "^resize_inode,^64bit"],
        &["-b", "1024", "-g", "1024", "-O", "^resize_inode,^flex_bg,^64bit"],
        &["-b", "1024", "-g", "1024", "-O", "^resize_inode,meta_bg,^64bit"],
        &["-b", "1024", "-g", "1024", "-O", "^resize_inode,^sparse_super,^64bit"],
        &["-b", "1024", "-g", "1024", "-O", "^resize_inode,^metadata_csum,uninit_bg,^64bit"],
    ];
    for kind in kinds {
        let words = ["-t", "ext4"].iter().chain(kind);
        let formatter = Formatter::mke2fs_args(words).expect("valid words");
        let device = Arc::new(MemoryDevice::new(16 << 20));
        formatter.format(&*device).expect("it is made");
        let fs = FileSystem::on_device(device.clone()).expect("it is opened");
        for at in 0..40 {
            fs.write(format!("/file-{at}"), vec![at; 3000]).expect("it is written");
        }
        fs.close().expect("it is closed");
        for is_on in [true, false] {
            let (cuts, replays) = preened_at_cuts(&device, is_on, kind);
            assert!(cuts > 10 && replays > 5, "{kind:?}: {cuts} cuts, {replays} replays");
            let shared: Arc<dyn Device> = device.clone();
            Resize::new(&shared, &Env::threads()).set_64bit(is_on).expect("it is switched");
        }
    }
}

/// Cuts a switch of 64bit at each change and preens: numbers of cuts, and of logs that waited.
fn preened_at_cuts(device: &MemoryDevice, is_on: bool, kind: &[&str]) -> (usize, usize) {
    let (env, mut cuts, mut replays) = (Env::threads(), 0, 0);
    for left in 0.. {
        let shown = format!("{kind:?}, {is_on}, {left}");
        let cut = Arc::new(Cut::new(device.fork(), left));
        let shared: Arc<dyn Device> = cut.clone();
        drop(Resize::new(&shared, &env).set_64bit(is_on));
        let left_over: Arc<dyn Device> = Arc::new(cut.inner.fork());
        let options = RunOptions {
            passes: CheckOptions { threads: 1, ..CheckOptions::default() },
            force: true,
            ..RunOptions::default()
        };
        let report = run(&left_over, &options, &AutoPolicy::Preen, &Quiet);
        let report = report.unwrap_or_else(|error| panic!("{shown}: {error}"));
        let found: Vec<_> = report.findings.iter().map(|it| it.finding.code).collect();
        assert_eq!(report.end, End::Checked, "{shown}: {found:?}");
        assert!(!report.errors_left, "{shown}: {found:?}");
        assert!(!found.contains(&Code::SuperblockInvalid), "{shown}: {found:?}");
        replays += usize::from(found.contains(&Code::JournalRecovered));
        let again = run(&left_over, &options, &AutoPolicy::No, &Quiet).expect("it is checked");
        assert!(again.findings.is_empty(), "{shown}: {:?}", again.findings);
        cuts += 1;
        if !cut.is_cut() {
            break;
        }
    }
    (cuts, replays)
}
