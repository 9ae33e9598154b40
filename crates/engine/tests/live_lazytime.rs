//! `lazytime`: changes of nothing but times wait in memory, are seen at once, and are stored as in
//! mount(8).

mod common;

use extant_device::{Device, MemoryDevice};
use extant_engine::ops::TimesOfUse;
use extant_engine::{Credentials, DataMode, SetAttributes, Volume, VolumeOptions};
use extant_ondisk::InodeNo;
use extant_ondisk::time::Timestamp;
use extant_reader::{Reader, VolumeRead};
use extant_runtime::env::Env;
use extant_sim::{Event, Recorder};
use extant_testkit::{TempImage, debugfs, e2fsck_fn, skip, tool};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

const ROOT: InodeNo = InodeNo::ROOT;
/// With a journal, and without.
const KINDS: [&[&str]; 2] = [&["-t", "ext4"], &["-t", "ext4", "-O", "^has_journal"]];
const SECOND: Duration = Duration::from_secs(1);

fn lazy() -> VolumeOptions {
    VolumeOptions { lazytime: true, commit_interval: SECOND, ..VolumeOptions::default() }
}

/// A volume whose writes are counted.
struct Counted {
    recorder: Arc<Recorder>,
    env: Env,
    volume: Volume,
}

impl Counted {
    fn new(kind: &[&str], options: &VolumeOptions) -> Result<Self, String> {
        tool("mke2fs").ok_or("mke2fs is not installed")?;
        let image = TempImage::by_mke2fs(16 << 20, kind)?;
        let device = Arc::new(MemoryDevice::from_bytes(&std::fs::read(image.path()).unwrap()));
        let recorder = Arc::new(Recorder::new(device));
        let env = Env::stepped(1);
        let volume = Volume::open(recorder.clone(), &env, options).unwrap();
        Ok(Self { recorder, env, volume })
    }

    /// A file with data, all of it on the device, some time ago.
    fn file(&self, name: &str) -> InodeNo {
        let made = self.volume.create(ROOT, name.as_bytes(), 0o644, &Credentials::ROOT).unwrap();
        self.volume.write(made.number, 0, &[7; 8192]).unwrap();
        self.volume.fsync(made.number).unwrap();
        self.env.advance(60 * SECOND);
        made.number
    }

    fn writes(&self) -> usize {
        self.recorder.events().iter().filter(|event| matches!(event, Event::Write { .. })).count()
    }

    fn read_at(&self, file: InodeNo, seconds: i64) {
        let read = TimesOfUse { atime: Some(time(seconds)), ..TimesOfUse::default() };
        let seen = self.volume.set_times_of_use(file, &read).unwrap();
        assert_eq!(seen.atime.seconds, seconds);
        assert_eq!(self.volume.inode(file).unwrap().atime.seconds, seconds, "seen at once");
    }
}

/// The time of the last read that debugfs finds.
fn stored_atime(device: &dyn Device, file: InodeNo) -> i64 {
    let image = written_out(device);
    let said = debugfs(&image.path(), &format!("stat <{}>", file.0)).unwrap();
    let field = said.lines().find_map(|line| line.trim().strip_prefix("atime: 0x")).unwrap();
    let digits: String = field.chars().take_while(char::is_ascii_hexdigit).collect();
    i64::from_str_radix(&digits, 16).unwrap()
}

fn time(seconds: i64) -> Timestamp {
    Timestamp::new(seconds, 0)
}

/// The device as an image whose log e2fsck has replayed.
fn written_out(device: &dyn Device) -> TempImage {
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(0, &mut bytes).unwrap();
    let image = TempImage::of_size(device.size()).unwrap();
    std::fs::write(image.path(), bytes).unwrap();
    let words = ["-k", "5", "60", "e2fsck", "-y", "-E", "journal_only"];
    let replayed = Command::new("timeout").args(words).arg(image.path()).output().unwrap();
    assert!(matches!(replayed.status.code(), Some(0 | 1)), "{replayed:?}");
    image
}

/// Counts the writes of a thousand reads, a second apart.
fn writes_of_reads(kind: &[&str], options: &VolumeOptions) -> Result<usize, String> {
    let counted = Counted::new(kind, options)?;
    let file = counted.file("file");
    let before = counted.writes();
    for read in 0..1000 {
        counted.read_at(file, 2_000_000_000 + read);
        counted.env.advance(SECOND);
    }
    let writes = counted.writes() - before;
    counted.volume.close().unwrap();
    assert_eq!(stored_atime(&*counted.recorder, file), 2_000_000_999);
    e2fsck_fn(&written_out(&*counted.recorder).path()).unwrap();
    Ok(writes)
}

#[test]
fn a_thousand_reads_write_nothing_until_the_volume_is_closed() {
    for kind in KINDS {
        let usual = VolumeOptions { lazytime: false, ..lazy() };
        let usual = match writes_of_reads(kind, &usual) {
            Ok(writes) => writes,
            Err(why) => skip!("{why}"),
        };
        assert!(usual >= 500, "{kind:?}: {usual} writes without lazytime");
        assert_eq!(writes_of_reads(kind, &lazy()), Ok(0), "{kind:?}");
    }
}

/// Data that are overwritten in place change times alone, in every data mode.
#[test]
fn writes_in_place_leave_the_inode_table_alone() {
    let modes: [(&[&str], Option<DataMode>); 4] = [
        (KINDS[1], None),
        (KINDS[0], Some(DataMode::Ordered)),
        (KINDS[0], Some(DataMode::Writeback)),
        (KINDS[0], Some(DataMode::Journal)),
    ];
    for (kind, data) in modes {
        let counted = match Counted::new(kind, &VolumeOptions { data, ..lazy() }) {
            Ok(counted) => counted,
            Err(why) => skip!("{why}"),
        };
        let file = counted.file("file");
        let record = |counted: &Counted| {
            let image = written_out(&*counted.recorder);
            debugfs(&image.path(), &format!("stat <{}>", file.0)).unwrap()
        };
        let before = record(&counted);
        counted.volume.write(file, 100, &[8; 5000]).unwrap();
        let seen = counted.volume.inode(file).unwrap();
        counted.env.advance(60 * SECOND);
        assert_eq!(record(&counted), before, "{data:?}: the inode was written");
        let mut bytes = [0; 5100];
        assert_eq!(counted.volume.read(file, 0, &mut bytes).unwrap(), 5100);
        assert!(bytes[..100] == [7; 100] && bytes[100..] == [8; 5000], "{data:?}");
        counted.volume.fsync(file).unwrap();
        counted.env.advance(60 * SECOND);
        let stored = record(&counted);
        let word = format!("mtime: 0x{:08x}", seen.mtime.seconds);
        assert!(stored.contains(&word), "{data:?}: no {word} in {stored}");
        counted.volume.close().unwrap();
        e2fsck_fn(&written_out(&*counted.recorder).path()).unwrap();
    }
}

/// The events that store waiting times.
type Reason = (&'static str, fn(&Counted, InodeNo));

#[test]
fn times_are_stored_for_each_of_the_reasons() {
    let reasons: [Reason; 6] = [
        ("fsync", |counted, file| counted.volume.fsync(file).unwrap()),
        ("sync", |counted, _| counted.volume.sync().unwrap()),
        ("freezing", |counted, _| {
            counted.volume.freeze().unwrap();
            counted.volume.thaw().unwrap();
        }),
        ("a day", |counted, _| counted.env.advance(Duration::from_secs(24 * 60 * 60 + 60))),
        ("chmod", |counted, file| {
            let set = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
            counted.volume.set_attributes(file, &set).unwrap();
        }),
        ("a link", |counted, file| {
            counted.volume.link(file, ROOT, b"second").unwrap();
        }),
    ];
    for kind in KINDS {
        for (name, reason) in reasons {
            let counted = match Counted::new(kind, &lazy()) {
                Ok(counted) => counted,
                Err(why) => skip!("{why}"),
            };
            let file = counted.file("file");
            counted.read_at(file, 2_000_000_000);
            counted.volume.fdatasync(file).unwrap();
            counted.env.advance(Duration::from_secs(23 * 60 * 60));
            assert_ne!(
                stored_atime(&*counted.recorder, file),
                2_000_000_000,
                "{name}: stored before"
            );
            reason(&counted, file);
            counted.env.advance(60 * SECOND);
            assert_eq!(stored_atime(&*counted.recorder, file), 2_000_000_000, "{name}, {kind:?}");
            counted.volume.close().unwrap();
        }
    }
}

/// More files than memory has room for: the times of each are seen, and stored when it is given up.
#[test]
fn times_survive_that_inodes_are_given_up() {
    const FILES: u32 = 7000;
    for kind in KINDS {
        let options = VolumeOptions { memory: 16 << 20, ..lazy() };
        let kind = [kind, &["-N", "8192"]].concat();
        let counted = match Counted::new(&kind, &options) {
            Ok(counted) => counted,
            Err(why) => skip!("{why}"),
        };
        let make = |number: u32| {
            let name = format!("f{number}");
            counted.volume.create(ROOT, name.as_bytes(), 0o644, &Credentials::ROOT).unwrap().number
        };
        let files: Vec<InodeNo> = (0..FILES).map(make).collect();
        counted.volume.sync().unwrap();
        for (file, seconds) in files.iter().zip(2_000_000_000..) {
            counted.read_at(*file, seconds);
        }
        for (file, seconds) in files.iter().zip(2_000_000_000..) {
            assert_eq!(counted.volume.inode(*file).unwrap().atime.seconds, seconds);
        }
        // Some of those that wait are deleted.
        for number in 0..100 {
            counted.volume.unlink(ROOT, format!("f{}", 60 * number).as_bytes()).unwrap();
        }
        counted.volume.close().unwrap();
        e2fsck_fn(&written_out(&*counted.recorder).path()).unwrap();
        let read = Reader::open(counted.recorder.clone()).unwrap();
        for (number, (file, seconds)) in files.iter().zip(2_000_000_000..).enumerate() {
            if number % 60 != 0 || number >= 6000 {
                assert_eq!(read.inode(*file).unwrap().atime.seconds, seconds, "file {number}");
            }
        }
    }
}

/// A volume that is dropped is left as by power loss: times are lost, and nothing else.
#[test]
fn power_loss_takes_times_and_nothing_else() {
    for kind in KINDS {
        let counted = match Counted::new(kind, &lazy()) {
            Ok(counted) => counted,
            Err(why) => skip!("{why}"),
        };
        let file = counted.file("file");
        let before = counted.volume.inode(file).unwrap();
        counted.read_at(file, 2_000_000_000);
        counted.volume.write(file, 0, &[9; 100]).unwrap();
        let other = counted.file("other");
        let Counted { recorder, volume, .. } = counted;
        drop(volume);
        let image = written_out(&*recorder);
        let words = ["-k", "5", "60", "e2fsck", "-fy"];
        let repaired = Command::new("timeout").args(words).arg(image.path()).output().unwrap();
        assert!(matches!(repaired.status.code(), Some(0 | 1)), "{repaired:?}");
        e2fsck_fn(&image.path()).unwrap();
        let bytes = std::fs::read(image.path()).unwrap();
        let read = Reader::open(Arc::new(MemoryDevice::from_bytes(&bytes))).unwrap();
        let after = read.inode(file).unwrap();
        assert_eq!((after.atime, after.mtime), (before.atime, before.mtime), "{kind:?}");
        let mut contents = [0; 8192];
        assert_eq!(read.read(file, 0, &mut contents).unwrap(), 8192);
        assert!(contents[..100] == [9; 100] && contents[100..] == [7; 8092], "{kind:?}");
        assert_eq!(read.inode(other).unwrap().size, 8192);
    }
}
