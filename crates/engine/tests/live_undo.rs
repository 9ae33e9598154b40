//! Operations that fail: what they had changed is taken back, and what cannot be is never
//! committed.

mod common;

use common::snapshot;
use extant_device::{Device, DeviceError, MemoryDevice, Request, RequestKind};
use extant_engine::ops::FallocateMode;
use extant_engine::{Credentials, RenameFlags, Volume, VolumeOptions, XattrSet};
use extant_ondisk::superblock::{ErrorPolicy, State};
use extant_ondisk::{BlockNo, InodeNo};
use extant_reader::{Error, Reader, VolumeRead};
use extant_runtime::env::Env;
use extant_runtime::sync::Mutex;
use extant_runtime::sync::thread::scope;
use extant_testkit::{TempImage, TreeSnapshot, differences, skip, tool};
use std::ops::Range;
use std::sync::{Arc, mpsc};
use std::time::Duration;

const ROOT: InodeNo = InodeNo::ROOT;

fn open(device: &Arc<dyn Device>) -> Volume {
    let errors = Some(ErrorPolicy::Continue);
    let options = VolumeOptions { errors, delalloc: Some(false), ..VolumeOptions::default() };
    Volume::open(device.clone(), &Env::stepped(1), &options).unwrap()
}

fn fresh(args: &[&str]) -> Result<MemoryDevice, String> {
    let image = TempImage::by_mke2fs(16 << 20, args)?;
    Ok(MemoryDevice::from_bytes(&std::fs::read(image.path()).unwrap()))
}

/// The report of e2fsck on a device, and its exit code.
fn e2fsck(device: &dyn Device, how: &str) -> (Vec<String>, Option<i32>, TempImage) {
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(0, &mut bytes).unwrap();
    let image = TempImage::of_size(device.size()).unwrap();
    std::fs::write(image.path(), bytes).unwrap();
    let said = tool("e2fsck").unwrap().run([how.as_ref(), image.path().as_os_str()]);
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    let lines = text.lines().filter(|line| !line.contains("disk.img")).map(str::to_owned);
    (lines.collect(), said.status.code(), image)
}

#[test]
fn a_deletion_that_meets_a_broken_attribute_block_leaves_the_file_whole() {
    let device: Arc<dyn Device> =
        match fresh(&["-t", "ext4", "-b", "4096", "-I", "128", "-O", "^metadata_csum"]) {
            Ok(device) => Arc::new(device),
            Err(why) => skip!("{why}"),
        };
    let volume = open(&device);
    let mut damaged = Vec::new();
    // Each of another size: one that goes in one step, and one with blocks of the map.
    for (name, runs) in [(&b"one"[..], 1), (b"many", 400)] {
        let file = volume.create(ROOT, name, 0o644, &Credentials::ROOT).unwrap().number;
        for at in 0..runs {
            volume.write(file, at * 8192, &[(at % 200) as u8 + 1; 4096]).unwrap();
        }
        let value = [name, b" value"].concat();
        volume.set_xattr(file, b"user.note", &value, XattrSet::Any).unwrap();
        damaged.push(volume.inode(file).unwrap().file_acl);
    }
    let before = snapshot(&volume).unwrap();
    volume.close().unwrap();
    for BlockNo(block) in damaged {
        device.write_at(block * 4096, &[0; 4]).unwrap();
    }
    let (damage, _, _) = e2fsck(&*device, "-fn");

    let volume = open(&device);
    for name in [&b"one"[..], b"many"] {
        let answer = volume.unlink(ROOT, name).unwrap_err();
        assert!(answer.is_corruption(), "{answer}");
        let found = volume.lookup(ROOT, name).unwrap().inode;
        assert_eq!(volume.inode(found).unwrap().links, 1);
        let mut byte = [0];
        volume.read(found, 0, &mut byte).unwrap();
        assert_eq!(byte, [1]);
    }
    assert!(!volume.is_read_only());
    volume.close().unwrap();
    let (after, _, _) = e2fsck(&*device, "-fn");
    assert_eq!(after, damage, "nothing is lost, and nothing is left over");
    assert!(before.entries.contains_key(&b"many"[..]));
}

/// One call of each kind, on what [`fill`] has made.
type Calls = [(&'static str, fn(&Volume) -> Result<(), Error>); 9];

fn found(volume: &Volume, name: &[u8]) -> Result<InodeNo, Error> {
    Ok(volume.lookup(ROOT, name)?.inode)
}

const CALLS: Calls = [
    ("create", |volume| volume.create(ROOT, b"new", 0o644, &Credentials::ROOT).map(drop)),
    ("mkdir", |volume| volume.mkdir(ROOT, b"new", 0o755, &Credentials::ROOT).map(drop)),
    ("link", |volume| volume.link(found(volume, b"file")?, ROOT, b"new").map(drop)),
    ("unlink", |volume| volume.unlink(ROOT, b"file")),
    ("rmdir", |volume| volume.rmdir(ROOT, b"dir")),
    ("rename", |volume| volume.rename(ROOT, b"file", ROOT, b"other", RenameFlags::empty())),
    ("setxattr", |volume| {
        volume.set_xattr(found(volume, b"file")?, b"user.x", &[7; 300], XattrSet::Any)
    }),
    ("truncate", |volume| volume.truncate(found(volume, b"file")?, 100)),
    ("fallocate", |volume| {
        volume.fallocate(found(volume, b"file")?, FallocateMode::PunchHole, 0, 8192)
    }),
];

fn fill(volume: &Volume) {
    volume.mkdir(ROOT, b"dir", 0o755, &Credentials::ROOT).unwrap();
    for name in [&b"file"[..], b"other"] {
        let file = volume.create(ROOT, name, 0o644, &Credentials::ROOT).unwrap().number;
        volume.write(file, 0, &[1; 20_000]).unwrap();
        volume.set_xattr(file, b"user.y", &[2; 500], XattrSet::Any).unwrap();
    }
}

fn assert_same(before: &TreeSnapshot, device: &dyn Device, what: &str) {
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(0, &mut bytes).unwrap();
    let after = snapshot(&Reader::open(common::memory(&bytes)).unwrap()).unwrap();
    let lines = differences(before, &after);
    assert!(lines.is_empty(), "{what}: {lines:?}");
}

/// From one step on all fail, those of taking back too: the volume is read-only then, and nothing
/// of the call is on it.
#[test]
fn what_cannot_be_taken_back_is_never_committed() {
    let kinds: [&[&str]; 2] =
        [&["-t", "ext4", "-b", "1024", "-I", "128"], &["-t", "ext2", "-b", "1024"]];
    let mut latched = 0;
    for args in kinds {
        let base = match fresh(args) {
            Ok(base) => base,
            Err(why) => skip!("{why}"),
        };
        for (name, call) in CALLS {
            for passes in (0..).step_by(3) {
                let device: Arc<dyn Device> = Arc::new(base.fork());
                let volume = open(&device);
                fill(&volume);
                volume.sync().unwrap();
                let before = snapshot(&volume).unwrap();
                volume.fail_steps(None, passes, u64::MAX);
                let answer = call(&volume);
                let failed = volume.steps_failed();
                if failed == 0 {
                    answer.unwrap();
                    break;
                }
                answer.unwrap_err();
                let is_latched = volume.is_read_only();
                latched += usize::from(is_latched);
                let _ = volume.sync();
                drop(volume);
                let what = format!("{args:?}, {name}, {passes}");
                if args.contains(&"ext2") {
                    let raw = Reader::open(device.clone()).unwrap();
                    let has_errors = raw.superblock().state.contains(State::ERRORS);
                    assert_eq!(has_errors, is_latched, "{what}");
                    assert_same(&before, &*device, &what);
                    continue;
                }
                open(&device).close().unwrap();
                assert_same(&before, &*device, &what);
                if passes % 9 == 0 {
                    let (said, code, _) = e2fsck(&*device, "-fn");
                    // Only the note of the failure is left.
                    assert!(code == Some(0), "{what}: {said:?}");
                }
            }
        }
    }
    assert!(latched > 20, "only {latched} calls could not be taken back");
}

/// A device on which one read waits until it is let through.
#[derive(Debug)]
struct Gate {
    inner: Arc<dyn Device>,
    state: Mutex<GateState>,
}

#[derive(Debug, Default)]
struct GateState {
    /// For the next read: tells that it has arrived, and lets it pass.
    pass: Option<(mpsc::Sender<()>, mpsc::Receiver<()>)>,
    was_left: bool,
}

impl Device for Gate {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        let reads = batch.iter().any(|it| matches!(it.kind, RequestKind::Read { .. }));
        let pass = if reads { self.state.lock().pass.take() } else { None };
        if let Some((arrived, pass)) = pass {
            arrived.send(()).expect("the test waits for it");
            // Where nothing lets it through the test ends, and fails.
            let was_left = pass.recv_timeout(Duration::from_secs(20)).is_err();
            self.state.lock().was_left = was_left;
        }
        self.inner.submit(batch)
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn next_data(&self, range: Range<u64>) -> Result<Option<Range<u64>>, DeviceError> {
        self.inner.next_data(range)
    }
}

#[test]
fn a_link_to_a_directory_is_refused_while_another_has_it_locked() {
    let device: Arc<dyn Device> = match fresh(&["-t", "ext4", "-b", "1024"]) {
        Ok(device) => Arc::new(device),
        Err(why) => skip!("{why}"),
    };
    let volume = open(&device);
    let dir = volume.mkdir(ROOT, b"dir", 0o755, &Credentials::ROOT).unwrap().number;
    volume.close().unwrap();
    let gate = Arc::new(Gate { inner: device, state: Mutex::default() });
    let device: Arc<dyn Device> = gate.clone();
    let volume = open(&device);
    // All but the directory's block is in memory.
    assert_eq!(volume.lookup(ROOT, b"dir").unwrap().inode, dir);
    volume.inode(dir).unwrap();
    let ((opens, pass), (tells, arrived)) = (mpsc::channel(), mpsc::channel());
    gate.state.lock().pass = Some((tells, pass));
    scope(|threads| {
        let reader = threads.spawn(|| volume.lookup(dir, b"none"));
        // Not by a condition: to this thread, which runs the workers, only they can change one.
        arrived.recv().expect("it reads the directory's block");
        let answer = volume.link(dir, ROOT, b"again");
        assert!(matches!(answer, Err(Error::LinksDirectory)), "{answer:?}");
        opens.send(()).expect("the link has not waited for the directory");
        assert!(matches!(reader.join().unwrap(), Err(Error::NotFound)));
    });
    assert!(!gate.state.lock().was_left, "the link has waited for the directory");
    volume.close().unwrap();
}
