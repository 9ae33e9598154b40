//! qcow2 images that are written, judged by qemu-img: random histories against bytes in memory,
//! power cuts at any write, damaged images.

use std::fs;
use std::ops::Range;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use extant_device::{Device, DeviceError, FileDeviceOptions, MemoryDevice, data_runs};
use extant_runtime::Random;
use extant_sim::{Recorder, Sweep};
use extant_storage::{Access, Opened, Schemes, UrlError, open, open_qcow2_on};
use extant_testkit::{Scratch, Tool, skip, tool};

const SIZE: usize = 3 << 20;
const SECTOR: usize = 512;

fn opened(name: &str, access: Access) -> Result<Opened, UrlError> {
    open(name, &Schemes::default(), access, &FileDeviceOptions::new())
}

fn refused(name: &str) -> String {
    opened(name, Access::ReadWrite).expect_err("refused").to_string()
}

/// Bytes with runs of zeroes and of other bytes.
fn disk(seed: u64, size: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut bytes = vec![0; size];
    for _ in 0..30 {
        let start = random.below(size / SECTOR) * SECTOR;
        let end = size.min(start + (1 + random.below(size / 8192)) * SECTOR);
        bytes[start..end].fill(random.below(255) as u8 + 1);
    }
    bytes
}

struct Images {
    scratch: Scratch,
    qemu: Tool,
}

impl Images {
    fn new() -> Option<Self> {
        Some(Self { scratch: Scratch::new(), qemu: tool("qemu-img")? })
    }

    fn path(&self, name: &str) -> String {
        self.scratch.join(name).display().to_string()
    }

    /// Runs qemu-img; `@NAME` is a file of the scratch directory.
    fn qemu(&self, words: &str) -> String {
        let words = words.split_whitespace().map(|word| match word.split_once('@') {
            Some((before, name)) => format!("{before}{}", self.path(name)),
            None => word.to_owned(),
        });
        self.qemu.text(words).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The exit code of `qemu-img check`: 0 for a sound image, 3 for clusters that are counted and
    /// not used.
    fn check(&self, name: &str) -> Option<i32> {
        let output = Command::new(self.qemu.path())
            .args(["check", "-q", "-f", "qcow2", &self.path(name)])
            .output()
            .expect("it runs");
        output.status.code()
    }

    fn assert_holds(&self, name: &str, expected: &[u8], what: &str) {
        assert_eq!(self.check(name), Some(0), "{what}");
        fs::write(self.path("expected"), expected).unwrap();
        self.qemu(&format!("compare -q -f qcow2 -F raw @{name} @expected"));
    }
}

/// One change of a disk.
#[derive(Clone, Debug)]
enum Step {
    Write(Range<usize>, u8),
    Zero(Range<usize>),
    Discard(Range<usize>),
    Flush,
}

impl Step {
    fn random(random: &mut Random, size: usize, unit: usize) -> Self {
        let units = size / unit;
        let start = random.below(units);
        let most = [3, 40, 300][random.below(3)].min(units - start);
        let length = 1 + random.below(most);
        let range = start * unit..(start + length) * unit;
        match random.below(10) {
            0..=5 => Self::Write(range, random.below(255) as u8 + 1),
            6 => Self::Zero(range),
            7 => Self::Discard(range),
            _ => Self::Flush,
        }
    }

    fn of_device(&self, device: &dyn Device) -> Result<(), DeviceError> {
        match self {
            Self::Write(range, byte) => {
                device.write_at(range.start as u64, &vec![*byte; range.len()])
            }
            Self::Zero(range) => device.write_zeroes(range.start as u64..range.end as u64),
            Self::Discard(range) => device.discard(range.start as u64..range.end as u64),
            Self::Flush => device.flush(),
        }
    }

    /// The same for bytes in memory. What a discard leaves is what the device says.
    fn of_bytes(&self, bytes: &mut [u8], device: &dyn Device) {
        match self {
            Self::Write(range, byte) => bytes[range.clone()].fill(*byte),
            Self::Zero(range) => bytes[range.clone()].fill(0),
            Self::Discard(range) => {
                let mut found = vec![0xff; range.len()];
                device.read_at(range.start as u64, &mut found).expect("read");
                for (byte, found) in bytes[range.clone()].iter_mut().zip(found) {
                    assert!(found == 0 || found == *byte, "{range:?}: a discard makes bytes");
                    *byte = found;
                }
            }
            Self::Flush => {}
        }
    }
}

fn bytes_of(device: &dyn Device) -> Vec<u8> {
    let mut bytes = vec![0xff; device.size() as usize];
    device.read_at(0, &mut bytes).expect("read");
    bytes
}

/// Random changes, with the image closed and opened in between; `expected` follows.
fn use_it(images: &Images, url: &str, name: &str, expected: &mut [u8], seed: u64) {
    let mut random = Random::new(seed);
    for round in 0..3 {
        let what = format!("{url}, seed {seed}, round {round}");
        let opened = opened(url, Access::ReadWrite).unwrap_or_else(|error| panic!("{error}"));
        let device = &*opened.device;
        assert!(!device.is_read_only() && device.can_discard());
        for _ in 0..50 {
            let unit = [1, 512, 4096][random.below(3)];
            let step = Step::random(&mut random, expected.len(), unit);
            step.of_device(device).unwrap_or_else(|error| panic!("{what}: {step:?}: {error}"));
            step.of_bytes(expected, device);
            if random.below(8) == 0 {
                assert!(bytes_of(device) == expected, "{what}: {step:?}");
            }
        }
        assert!(bytes_of(device) == expected, "{what}");
        let mut told = vec![0; expected.len()];
        for run in data_runs(device, 0..device.size()) {
            let run = run.expect("told");
            let run = run.start as usize..run.end as usize;
            told[run.clone()].copy_from_slice(&expected[run]);
        }
        assert!(told == expected, "{what}: a hole that is told has data");
        match round {
            // Writes that were not flushed are there too where the device is closed.
            1 => drop(opened),
            _ => opened.finish().expect("flushed"),
        }
        images.assert_holds(name, expected, &what);
    }
}

#[test]
fn images_of_qemu_are_changed_as_a_raw_disk_is() {
    let Some(images) = Images::new() else { skip!("qemu-img is missing") };
    for (seed, options) in [
        "",
        "-o cluster_size=512",
        "-o cluster_size=512,refcount_bits=64",
        "-o cluster_size=4k,refcount_bits=1",
        "-o cluster_size=2M",
        "-o compat=0.10",
        "-o compat=0.10,cluster_size=1k",
        "-o lazy_refcounts=on,refcount_bits=8",
        "-o preallocation=metadata",
        "-c",
        "-c -o cluster_size=4k",
        "-c -o compression_type=zstd",
        "-c -o compat=0.10,cluster_size=512",
        "-o extended_l2=on",
        "-o extended_l2=on,cluster_size=16k",
        "-c -o extended_l2=on",
    ]
    .into_iter()
    .enumerate()
    {
        // The disk ends inside a cluster.
        let mut expected = disk(seed as u64, SIZE - 3 * SECTOR);
        fs::write(images.path("raw"), &expected).unwrap();
        images.qemu(&format!("convert -f raw -O qcow2 {options} @raw @a.qcow2"));
        let url = format!("qcow2:{}", images.path("a.qcow2"));
        use_it(&images, &url, "a.qcow2", &mut expected, seed as u64);
    }
}

#[test]
fn an_image_on_backing_files_is_changed_and_these_stay() {
    let Some(images) = Images::new() else { skip!("qemu-img is missing") };
    let base = disk(1, SIZE - (200 << 10));
    fs::write(images.path("base.raw"), &base).unwrap();
    for (seed, options) in
        ["", "-o cluster_size=4k", "-o extended_l2=on", "-o compat=0.10"].into_iter().enumerate()
    {
        images.qemu("create -q -f qcow2 -F raw -b @base.raw @middle.qcow2");
        let middle = fs::read(images.path("middle.qcow2")).unwrap();
        let create = "create -q -f qcow2 -F qcow2 -b @middle.qcow2";
        images.qemu(&format!("{create} {options} @top.qcow2 {SIZE}"));
        let url = format!("qcow2:{}?backing=yes", images.path("top.qcow2"));
        let mut expected = base.clone();
        expected.resize(SIZE, 0);
        use_it(&images, &url, "top.qcow2", &mut expected, 40 + seed as u64);
        assert!(fs::read(images.path("base.raw")).unwrap() == base);
        assert!(fs::read(images.path("middle.qcow2")).unwrap() == middle);
    }
}

#[test]
fn internal_snapshots_keep_what_they_had() {
    let Some(images) = Images::new() else { skip!("qemu-img is missing") };
    for (seed, options) in
        ["-o cluster_size=4k", "-c", "-o compat=0.10", "-o extended_l2=on"].into_iter().enumerate()
    {
        let mut expected = disk(seed as u64, SIZE);
        let first = expected.clone();
        fs::write(images.path("raw"), &expected).unwrap();
        images.qemu(&format!("convert -f raw -O qcow2 {options} @raw @a"));
        images.qemu("snapshot -c first @a");
        let url = format!("qcow2:{}", images.path("a"));
        use_it(&images, &url, "a", &mut expected, 60 + seed as u64);
        images.qemu("snapshot -c second @a");
        let second = expected.clone();
        use_it(&images, &url, "a", &mut expected, 70 + seed as u64);
        for (name, kept) in [("first", &first), ("second", &second)] {
            images.qemu(&format!("convert -l {name} -f qcow2 -O raw @a @snapshot"));
            assert!(fs::read(images.path("snapshot")).unwrap() == *kept, "{options}: {name}");
            assert!(refused(&format!("{url}?snapshot={name}")).contains("writing a snapshot"));
        }
        images.qemu("snapshot -d first @a");
        images.qemu("snapshot -a second @a");
        images.assert_holds("a", &second, options);
        expected = second;
        use_it(&images, &url, "a", &mut expected, 80 + seed as u64);
    }
}

/// Tables of counts and of blocks grow: small clusters have them often.
#[test]
fn an_image_grows_and_uses_again_what_was_discarded() {
    let Some(images) = Images::new() else { skip!("qemu-img is missing") };
    images.qemu("create -q -f qcow2 -o cluster_size=512,refcount_bits=64 @a 24M");
    let url = format!("qcow2:{}", images.path("a"));
    let mut expected = vec![0; 24 << 20];
    let opened = opened(&url, Access::ReadWrite).expect("opened");
    for round in 0..4_u8 {
        for at in (0..expected.len()).step_by(1 << 20) {
            let bytes = vec![round * 50 + (at >> 20) as u8; 1 << 20];
            opened.device.write_at(at as u64, &bytes).expect("written");
            expected[at..at + (1 << 20)].copy_from_slice(&bytes);
        }
        opened.device.flush().expect("flushed");
        if round < 3 {
            opened.device.discard(1 << 20..20 << 20).expect("discarded");
            opened.device.flush().expect("flushed");
            let mut zeroes = vec![1; 19 << 20];
            opened.device.read_at(1 << 20, &mut zeroes).expect("read");
            assert!(zeroes.iter().all(|byte| *byte == 0));
        }
    }
    opened.finish().expect("flushed");
    images.assert_holds("a", &expected, "grown");
    let bytes = fs::metadata(images.path("a")).unwrap().len();
    assert!(bytes < 32 << 20, "{bytes}: discarded clusters are used again");
}

#[test]
fn a_new_image_is_made_in_the_size_that_is_asked_for() {
    let Some(images) = Images::new() else { skip!("qemu-img is missing") };
    for size in [512, 1 << 20, 5 << 30, 40_u64 << 40] {
        let _ = fs::remove_file(images.path("new"));
        let url = format!("qcow2:{}", images.path("new"));
        let options = FileDeviceOptions::new().create(true).size(size);
        let made = open(&url, &Schemes::default(), Access::ReadWrite, &options).expect("made");
        assert_eq!(made.device.size(), size);
        made.device.write_at(size - 512, &[7; 512]).expect("written");
        made.finish().expect("flushed");
        assert_eq!(images.check("new"), Some(0));
        let info: serde_json::Value =
            serde_json::from_str(&images.qemu("info --output=json @new")).expect("JSON");
        assert_eq!(info["virtual-size"].as_u64(), Some(size));
        let read = opened(&url, Access::ReadOnly).expect("opened").device;
        let mut end = [0; 512];
        read.read_at(size - 512, &mut end).expect("read");
        assert_eq!(end, [7; 512]);
        // One that is there keeps its size and its contents.
        let again = open(&url, &Schemes::default(), Access::ReadWrite, &options.size(99 << 20));
        assert_eq!(again.expect("opened").device.size(), size);
    }
}

/// After a power cut at any write each sector is old or new, and the file has at most clusters that
/// are counted and not used.
#[test]
fn after_a_power_cut_an_image_has_no_errors() {
    const DISK: usize = 320 << 10;
    let Some(images) = Images::new() else { skip!("qemu-img is missing") };
    let is_slow = std::env::var_os("EXTANT_SLOW").is_some();
    let (mut leaks, mut cuts) = (0, 0);
    for (seed, options) in [
        "-o cluster_size=512,refcount_bits=64",
        "-o cluster_size=4k",
        "-o cluster_size=16k,extended_l2=on",
        "-c -o cluster_size=4k",
        "",
    ]
    .into_iter()
    .enumerate()
    {
        let before = disk(seed as u64, DISK);
        fs::write(images.path("raw"), &before).unwrap();
        images.qemu(&format!("convert -f raw -O qcow2 {options} @raw @a"));
        if seed % 2 == 1 {
            images.qemu("snapshot -c kept @a");
        }
        let mut file = fs::read(images.path("a")).unwrap();
        // Room to grow.
        file.resize(file.len().next_multiple_of(1 << 16) + (4 << 20), 0);
        let recorder = Arc::new(Recorder::new(Arc::new(MemoryDevice::from_bytes(&file))));
        let device = open_qcow2_on(recorder.clone(), None).expect("opened");
        let mut random = Random::new(seed as u64 + 9);
        let mut states = vec![before.clone()];
        let mut steps = Vec::new();
        recorder.mark(0);
        for index in 0..40 {
            let step = Step::random(&mut random, DISK, SECTOR);
            step.of_device(&*device).expect("done");
            let mut state = states[index].clone();
            step.of_bytes(&mut state, &*device);
            states.push(state);
            steps.push(step);
            recorder.mark(index as u64 + 1);
        }
        drop(device);
        let all: Vec<_> =
            recorder.cuts(Sweep { prefixes: 6, subsets: 2, torn: 2, seed: seed as u64 }).collect();
        let most = if is_slow { all.len() } else { 45 };
        let step = all.len().div_ceil(most).max(1);
        for cut in all.into_iter().skip(seed % step).step_by(step) {
            let Some(&done) = cut.marks.last() else { continue };
            let done = done as usize;
            let is_flush = |step: &Step| matches!(step, Step::Flush);
            let flushed = steps[..done].iter().rposition(is_flush).map_or(0, |at| at + 1);
            let possible = &states[flushed..states.len().min(done + 2)];
            let what = format!("{options}: {cut}");
            fs::write(images.path("cut"), bytes_of(&cut.image)).unwrap();
            match images.check("cut") {
                Some(0) => {}
                Some(3) => leaks += 1,
                code => {
                    let said = Command::new(images.qemu.path())
                        .args(["check", "-f", "qcow2", &images.path("cut")])
                        .output()
                        .unwrap();
                    panic!("{what}: {code:?}: {}", String::from_utf8_lossy(&said.stderr));
                }
            }
            cuts += 1;
            images.qemu("convert -f qcow2 -O raw @cut @found");
            let found = fs::read(images.path("found")).unwrap();
            let discarded = |sector: &Range<usize>| {
                steps[flushed..steps.len().min(done + 1)].iter().any(|step| {
                    matches!(step, Step::Discard(range)
                        if range.start <= sector.start && sector.end <= range.end)
                })
            };
            for at in (0..DISK).step_by(SECTOR) {
                let sector = at..at + SECTOR;
                let bytes = &found[sector.clone()];
                let is_known = possible.iter().any(|state| state[sector.clone()] == *bytes)
                    || discarded(&sector) && bytes.iter().all(|byte| *byte == 0);
                assert!(is_known, "{what}: sector {}", at / SECTOR);
            }
            if seed % 2 == 1 && cuts % 5 == 0 {
                images.qemu("convert -l kept -f qcow2 -O raw @cut @found");
                assert!(fs::read(images.path("found")).unwrap() == before, "{what}");
            }
            // It is used on as it is.
            let again = open_qcow2_on(
                Arc::new(MemoryDevice::from_bytes(&fs::read(images.path("cut")).unwrap())),
                None,
            );
            let again = again.unwrap_or_else(|error| panic!("{what}: {error}"));
            again.write_at(0, &[1; 70_000]).expect("written");
            again.flush().expect("flushed");
        }
    }
    eprintln!("{cuts} cuts, {leaks} with clusters that are counted and not used");
    assert!(leaks > 0 && cuts > 100);
}

#[test]
fn what_is_not_written_of_qcow2_is_refused_by_name() {
    let Some(images) = Images::new() else { skip!("qemu-img is missing") };
    let url = format!("qcow2:{}", images.path("a"));
    images.qemu("create -q -f qcow2 -o data_file=@data @a 3M");
    let said = refused(&format!("{url}?data-file=yes"));
    assert!(said.contains("not supported: writing an image with a data file"), "{said}");
    images.qemu("create -q -f qcow2 @a 3M");
    images.qemu("bitmap --add @a marks");
    let said = refused(&url);
    assert!(said.contains("not supported: writing an image with bitmaps"), "{said}");
    images.qemu("create -q -f qcow2 @a 3M");
    let sound = fs::read(images.path("a")).unwrap();
    for (bit, text) in [(1, "marked dirty"), (2, "marked corrupt"), (64, "unknown features")] {
        let mut bytes = sound.clone();
        bytes[79] |= bit;
        fs::write(images.path("a"), bytes).unwrap();
        assert!(refused(&url).contains(text), "{text}");
    }
    fs::write(images.path("a"), sound).unwrap();

    // An image that a virtual machine writes is in use, and so is ours for it.
    let Some(qemu_nbd) = tool("qemu-nbd") else { skip!("qemu-nbd is missing") };
    // With --fork it returns when it listens, or fails.
    let start = || {
        let mut command = Command::new(qemu_nbd.path());
        command.args(["--fork", "-t", "-f", "qcow2", "-k", &images.path("socket")]);
        command.arg(format!("--pid-file={}", images.path("pid"))).arg(images.path("a"));
        command.output().unwrap()
    };
    let started = start();
    assert!(started.status.success(), "{started:?}");
    let said = refused(&url);
    let pid = fs::read_to_string(images.path("pid")).unwrap();
    let killed = Command::new("kill").arg(pid.trim()).status().unwrap();
    assert!(killed.success());
    assert!(said.contains("in use: locked"), "{said}");
    // It has ended when its lock is gone.
    let options = FileDeviceOptions::new().wait(Duration::from_secs(60));
    let ours = open(&url, &Schemes::default(), Access::ReadWrite, &options).expect("opened");
    let ended = start();
    assert!(!ended.status.success());
    assert!(String::from_utf8_lossy(&ended.stderr).contains("lock"), "{ended:?}");
    drop(ours);
}

/// A damaged image is refused, or fails with an error, or is used: never anything else.
#[test]
fn a_damaged_image_is_an_error_or_is_used() {
    let Some(images) = Images::new() else { skip!("qemu-img is missing") };
    let (mut refused, mut failed, mut used) = (0, 0, 0);
    for (seed, options) in ["-o cluster_size=512", "-c -o cluster_size=4k", "-o extended_l2=on"]
        .into_iter()
        .enumerate()
    {
        fs::write(images.path("raw"), disk(5, 256 << 10)).unwrap();
        images.qemu(&format!("convert -f raw -O qcow2 {options} @raw @a"));
        let sound = fs::read(images.path("a")).unwrap();
        let mut random = Random::new(seed as u64);
        // Bytes that are not zero are those of the header and of the tables, mostly.
        let places: Vec<usize> =
            (0..sound.len()).filter(|at| *at < 120 || sound[*at] != 0).collect();
        for _ in 0..300 {
            let mut bytes = sound.clone();
            for _ in 0..1 + random.below(3) {
                let at = match random.below(3) {
                    0 => random.below(112),
                    _ => places[random.below(places.len().min(4000))],
                };
                bytes[at] = [bytes[at] ^ (1 << random.below(8)), 0xff, 0][random.below(3)];
            }
            let Ok(device) = open_qcow2_on(Arc::new(MemoryDevice::from_bytes(&bytes)), None) else {
                refused += 1;
                continue;
            };
            let size = device.size().min(256 << 10);
            let done = || -> Result<(), DeviceError> {
                let mut read = vec![0; size as usize];
                device.read_at(0, &mut read)?;
                device.next_data(0..size)?;
                device.write_at(0, &read[..read.len().min(70_000)])?;
                device.discard(0..size)?;
                device.flush()
            };
            match done() {
                Ok(()) => used += 1,
                Err(error) => {
                    assert!(!error.to_string().is_empty());
                    failed += 1;
                }
            }
        }
    }
    eprintln!("{refused} refused, {failed} failed, {used} used");
    assert!(refused > 0 && failed > 0 && used > 0);
}
