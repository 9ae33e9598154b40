use std::collections::BTreeSet;

use extant_device::MemoryDevice;
use extant_runtime::Random;
use extant_sim::{Recorder, Sweep};

use super::header::BITMAP_AT;
use super::*;

const SECTOR: usize = 512;
const SIZE: usize = 75 * SECTOR + 40_960;
const TIMES: &[u8] = b"the base's times";

fn base() -> Arc<dyn Device> {
    // Blocks of bytes that tell their place, and a run of zeroes.
    let byte =
        |at: usize| if (8192..20_480).contains(&at) { 0 } else { (at / SECTOR % 251) as u8 + 1 };
    Arc::new(MemoryDevice::from_bytes(&(0..SIZE).map(byte).collect::<Vec<u8>>()))
}

fn new_upper(base: &Arc<dyn Device>) -> Arc<dyn Device> {
    Arc::new(MemoryDevice::new(new_file_size(&**base, TIMES).expect("a size")))
}

fn bytes_of(device: &dyn Device) -> Vec<u8> {
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(0, &mut bytes).expect("read");
    bytes
}

/// A change of whole sectors, or a flush.
#[derive(Clone, Debug)]
enum Step {
    Write(Range<usize>, u8),
    Zero(Range<usize>),
    Flush,
}

impl Step {
    fn random(random: &mut Random) -> Self {
        let sectors = SIZE / SECTOR;
        let start = random.below(sectors);
        let length = 1 + random.below(24.min(sectors - start));
        let range = start * SECTOR..(start + length) * SECTOR;
        match random.below(8) {
            0..=4 => Self::Write(range, random.below(255) as u8 + 1),
            5 | 6 => Self::Zero(range),
            _ => Self::Flush,
        }
    }

    fn of_device(&self, device: &dyn Device) {
        match self {
            Self::Write(range, byte) => {
                device.write_at(range.start as u64, &vec![*byte; range.len()])
            }
            Self::Zero(range) => device.write_zeroes(range.start as u64..range.end as u64),
            Self::Flush => device.flush(),
        }
        .expect("done");
    }

    fn of_bytes(&self, bytes: &mut [u8]) {
        match self {
            Self::Write(range, byte) => bytes[range.clone()].fill(*byte),
            Self::Zero(range) => bytes[range.clone()].fill(0),
            Self::Flush => {}
        }
    }
}

fn history(seed: u64, steps: usize) -> Vec<Step> {
    let mut random = Random::new(seed);
    (0..steps).map(|_| Step::random(&mut random)).collect()
}

#[test]
fn an_overlay_reads_what_was_written_and_its_base_stays() {
    for seed in 0..20 {
        let base = base();
        let (before, upper) = (bytes_of(&*base), new_upper(&base));
        let mut expected = before.clone();
        for part in history(seed, 60).chunks(20) {
            let overlay = FileOverlay::open(base.clone(), TIMES, upper.clone()).expect("opened");
            for step in part {
                step.of_device(&overlay);
                step.of_bytes(&mut expected);
            }
            assert!(bytes_of(&overlay) == expected, "seed {seed}");
            overlay.flush().expect("flushed");
            let mut told = vec![0; SIZE];
            for run in extant_device::data_runs(&overlay, 0..SIZE as u64) {
                let run = run.expect("told");
                let run = run.start as usize..run.end as usize;
                told[run.clone()].copy_from_slice(&expected[run]);
            }
            assert!(told == expected, "seed {seed}: a hole that is told has data");
        }
        assert!(bytes_of(&*base) == before, "seed {seed}: the base was written");
    }
}

/// Every sector holds what it held at the last flush, or what was written since.
#[test]
fn after_a_power_cut_every_sector_is_old_or_new() {
    for seed in 0..6 {
        let base = base();
        let empty = new_upper(&base);
        let recorder = Arc::new(Recorder::new(empty));
        let overlay = FileOverlay::open(base.clone(), TIMES, recorder.clone()).expect("opened");
        let steps = history(seed, 25);
        let mut states = vec![bytes_of(&*base)];
        recorder.mark(0);
        for (index, step) in steps.iter().enumerate() {
            step.of_device(&overlay);
            let mut state = states[index].clone();
            step.of_bytes(&mut state);
            states.push(state);
            recorder.mark(index as u64 + 1);
        }
        for cut in recorder.cuts(Sweep { prefixes: 12, ..Sweep::seeded(seed) }) {
            let Some(&done) = cut.marks.last() else { continue };
            let done = done as usize;
            let is_flush = |step: &Step| matches!(step, Step::Flush);
            let flushed = steps[..done].iter().rposition(is_flush).map_or(0, |at| at + 1);
            let possible = &states[flushed..states.len().min(done + 2)];
            let what = format!("seed {seed}, {cut}");
            let image = Arc::new(cut.image);
            let found = FileOverlay::open(base.clone(), TIMES, image).expect(&what);
            let found = bytes_of(&found);
            for at in (0..SIZE).step_by(SECTOR) {
                let sector = at..at + SECTOR;
                let is_known =
                    possible.iter().any(|state| state[sector.clone()] == found[sector.clone()]);
                assert!(is_known, "{what}: sector {}", at / SECTOR);
            }
        }
    }
}

#[test]
fn a_commit_that_is_interrupted_anywhere_is_done_again() {
    let before = base();
    let upper = new_upper(&before);
    let overlay = FileOverlay::open(before.clone(), TIMES, upper.clone()).expect("opened");
    for step in history(3, 30) {
        step.of_device(&overlay);
    }
    overlay.flush().expect("flushed");
    let expected = bytes_of(&overlay);
    drop(overlay);

    // Both files on one medium that loses power, the base first.
    let at = (SIZE as u64).next_multiple_of(4096);
    let medium = MemoryDevice::new(at + upper.size());
    medium.write_at(0, &bytes_of(&*before)).expect("written");
    medium.write_at(at, &bytes_of(&*upper)).expect("written");
    let recorder = Arc::new(Recorder::new(Arc::new(medium)));
    let [base, upper] =
        [0..SIZE as u64, at..recorder.size()].map(|range| recorder.part(range).expect("a part"));
    let done = commit(&base, &|| TIMES.to_vec(), &upper).expect("committed");
    assert!(done.copied > 0);
    assert!(bytes_of(&base) == expected);

    let mut seen = BTreeSet::new();
    for cut in recorder.cuts(Sweep { prefixes: 8, ..Sweep::seeded(5) }) {
        let what = cut.to_string();
        let image: Arc<dyn Device> = Arc::new(cut.image);
        let part = |range: Range<u64>| -> Arc<dyn Device> {
            let length = range.end - range.start;
            Arc::new(extant_device::SliceDevice::new(image.clone(), range.start, length).unwrap())
        };
        let (base, upper) = (part(0..SIZE as u64), part(at..image.size()));
        // Not yet begun, or done: used. In between: refused.
        let opened = FileOverlay::open(base.clone(), TIMES, upper.clone());
        match opened {
            Ok(overlay) => {
                assert!(bytes_of(&overlay) == expected, "{what}");
                seen.insert("used");
            }
            Err(OverlayError::CommitInterrupted) => {
                seen.insert("interrupted");
            }
            Err(error) => panic!("{what}: {error}"),
        }
        commit(&*base, &|| TIMES.to_vec(), &*upper).expect(&what);
        assert!(bytes_of(&*base) == expected, "{what}");
        let overlay = FileOverlay::open(base, TIMES, upper).expect(&what);
        assert!(overlay.blocks.read().runs().next().is_none(), "{what}: it is not empty");
    }
    assert_eq!(seen.len(), 2, "{seen:?}");
}

#[test]
fn a_base_that_has_changed_is_refused() {
    let base = base();
    let upper = new_upper(&base);
    let overlay = FileOverlay::open(base.clone(), TIMES, upper.clone()).expect("opened");
    overlay.write_at(4096, &[1; 4096]).expect("written");
    overlay.flush().expect("flushed");
    drop(overlay);
    let refused = |base: Arc<dyn Device>, times: &[u8]| {
        let committed = commit(&*base, &|| times.to_vec(), &*upper);
        let one = FileOverlay::open(base, times, upper.clone()).expect_err("refused").to_string();
        assert_eq!(committed.expect_err("refused").to_string(), one);
        one
    };
    let expected = "the base of the overlay has changed: its file was modified, or copied without its time (use cp -p)";
    assert_eq!(refused(base.clone(), b"other times"), expected);
    let mut bytes = bytes_of(&*base);
    bytes[1024] ^= 1;
    let expected = "the base of the overlay has changed: its first or last 64 KiB are not the same";
    assert_eq!(refused(Arc::new(MemoryDevice::from_bytes(&bytes)), TIMES), expected);
    bytes.push(0);
    let expected = "the base of the overlay has changed: its size is another";
    assert_eq!(refused(Arc::new(MemoryDevice::from_bytes(&bytes)), TIMES), expected);
}

#[test]
fn a_damaged_header_is_refused_and_any_bytes_of_it_are_read() {
    let base = base();
    let upper = new_upper(&base);
    drop(FileOverlay::open(base.clone(), TIMES, upper.clone()).expect("opened"));
    let bytes = bytes_of(&*upper);
    for bit in 0..512 * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let damaged = Arc::new(MemoryDevice::from_bytes(&damaged));
        let error = FileOverlay::open(base.clone(), TIMES, damaged).expect_err("damaged");
        match bit / 8 {
            0..8 => assert!(matches!(error, OverlayError::NotAnOverlay), "{error}"),
            8..12 => assert!(matches!(error, OverlayError::Version { .. }), "{error}"),
            _ => assert!(matches!(error, OverlayError::Corrupt { .. }), "{error}"),
        }
    }
    for length in [1, 511, 512, BITMAP_AT as usize, bytes.len() - 1] {
        let short = Arc::new(MemoryDevice::from_bytes(&bytes[..length]));
        assert!(FileOverlay::open(base.clone(), TIMES, short).is_err(), "{length} bytes");
    }
}

#[test]
fn blocks_grow_with_the_base_so_that_the_bitmap_is_small() {
    let header = |size: u64| {
        let base = MemoryDevice::new(4096);
        let identity = BaseIdentity::of(&base, &[]).expect("read");
        let mut of_size = identity;
        of_size.size = size;
        Header::new(of_size).map(|header| header.block_size)
    };
    assert_eq!(header(1 << 40).ok(), Some(4096));
    assert_eq!(header((1 << 40) + 1).ok(), Some(8192));
    assert_eq!(header(1 << 48).ok(), Some(1 << 20));
    assert!(matches!(header(u64::MAX), Err(OverlayError::TooLarge { .. })));
}
