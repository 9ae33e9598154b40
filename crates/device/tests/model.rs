//! Every device agrees with a vector of bytes, for all requests.

use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;

use extant_device::{
    Cause, Device, Direct, FileDeviceOptions, MemoryDevice, OverlayDevice, Request, SliceDevice,
    data_runs,
};
use extant_sim::model::Preset;
use extant_sim::{FaultyDevice, ModelDevice, ModelOptions, Recorder};
use proptest::collection::vec;
use proptest::prelude::*;

/// Not a multiple of a chunk, a page or a direct sector, but of 512.
const SIZE: u64 = 5 * 16384 + 3 * 512;

#[derive(Clone, Debug)]
enum Step {
    Write {
        offset: u64,
        parts: Vec<Vec<u8>>,
    },
    Read {
        range: Range<u64>,
        cut: u64,
    },
    Discard(Range<u64>),
    WriteZeroes(Range<u64>),
    Flush,
    /// Changes of disjoint ranges and reads of others, in one batch.
    Batch {
        seed: u8,
    },
}

fn range() -> impl Strategy<Value = Range<u64>> {
    let any = (0..=SIZE, 0..=SIZE).prop_map(|(a, b)| a.min(b)..a.max(b));
    let aligned =
        (0..=SIZE / 512, 0..=SIZE / 512).prop_map(|(a, b)| a.min(b) * 512..a.max(b) * 512);
    prop_oneof![any, aligned]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let write = (0..SIZE, vec(vec(any::<u8>(), 0..9000), 0..4))
        .prop_map(|(offset, parts)| Step::Write { offset, parts });
    let step = prop_oneof![
        4 => write,
        3 => (range(), 0..SIZE).prop_map(|(range, cut)| Step::Read { range, cut }),
        1 => range().prop_map(Step::Discard),
        1 => range().prop_map(Step::WriteZeroes),
        1 => Just(Step::Flush),
        1 => any::<u8>().prop_map(|seed| Step::Batch { seed }),
    ];
    vec(step, 1..24)
}

/// Carries the steps out on both and compares.
fn agrees(device: &dyn Device, mut model: Vec<u8>, steps: &[Step]) {
    assert_eq!(device.size(), model.len() as u64);
    for step in steps {
        match step {
            Step::Write { offset, parts } => {
                let slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
                let data = parts.concat();
                let end = *offset as usize + data.len();
                let result = device.write_vectored_at(*offset, &slices);
                if end <= model.len() {
                    result.expect("a write that fits");
                    model[*offset as usize..end].copy_from_slice(&data);
                } else {
                    let error = result.expect_err("a write past the end");
                    assert!(matches!(error.cause, Cause::PastEnd { size: SIZE }), "{error}");
                }
            }
            Step::Read { range, cut } => {
                let mut bytes = vec![0xaa; (range.end - range.start) as usize];
                let cut = (*cut as usize).min(bytes.len());
                let (first, second) = bytes.split_at_mut(cut);
                device
                    .read_vectored_at(
                        range.start,
                        &mut [IoSliceMut::new(first), IoSliceMut::new(second)],
                    )
                    .expect("a read that fits");
                assert!(
                    bytes == model[range.start as usize..range.end as usize],
                    "read of {range:?}"
                );
            }
            Step::Discard(range) => {
                device.discard(range.clone()).expect("a discard that fits");
                let range = range.start as usize..range.end as usize;
                if device.discard_reads_zero() {
                    model[range].fill(0);
                } else {
                    device
                        .read_at(range.start as u64, &mut model[range])
                        .expect("a read that fits");
                }
            }
            Step::WriteZeroes(range) => {
                device.write_zeroes(range.clone()).expect("a write of zeroes that fits");
                model[range.start as usize..range.end as usize].fill(0);
            }
            Step::Flush => device.flush().expect("a flush"),
            Step::Batch { seed } => batch(device, &mut model, *seed),
        }
    }
    let mut bytes = vec![0xaa; model.len()];
    device.read_at(0, &mut bytes).expect("a read of the whole device");
    assert!(bytes == model, "the whole device");

    // Outside the runs with data there are zeroes.
    let mut at = 0;
    for run in data_runs(device, 0..SIZE) {
        let run = run.expect("a run");
        assert!(at <= run.start && run.start < run.end && run.end <= SIZE, "{run:?} after {at}");
        assert!(
            model[at as usize..run.start as usize].iter().all(|byte| *byte == 0),
            "hole before {run:?}"
        );
        at = run.end;
    }
    assert!(model[at as usize..].iter().all(|byte| *byte == 0), "hole at the end");
}

/// Three writes, a flush, and the reads of two of them.
fn batch(device: &dyn Device, model: &mut [u8], seed: u8) {
    let step = 1000 + u64::from(seed);
    let writes = [[seed; 700], [seed ^ 1; 700], [seed ^ 2; 700]];
    let mut back = [[0; 700], [0; 700]];
    let [first, second] = &mut back;
    let mut requests = [
        Request::write(2 * step, &writes[2]),
        Request::write(0, &writes[0]),
        Request::write(step, &writes[1]),
        Request::flush(),
        Request::read(step, first),
        Request::read(2 * step, second),
    ];
    device.submit(&mut requests).expect("a batch that fits");
    assert!(requests.iter().all(|request| request.status.is_done()));
    for (index, data) in (0..).zip(writes) {
        let at = (index * step) as usize;
        model[at..at + data.len()].copy_from_slice(&data);
    }
    assert!(back == [writes[1], writes[2]], "reads after the flush of a batch");

    // Neighbours in falling order, in pieces of any size.
    let pieces: Vec<Vec<u8>> =
        (0..40_u8).map(|piece| vec![piece ^ seed; usize::from(piece) * 13 % 300]).collect();
    let data = pieces.concat();
    let mut end = 3 * step + data.len() as u64;
    let mut requests: Vec<_> = pieces
        .iter()
        .rev()
        .map(|piece| {
            end -= piece.len() as u64;
            Request::write(end, piece)
        })
        .collect();
    device.submit(&mut requests).expect("a batch that fits");
    model[3 * step as usize..][..data.len()].copy_from_slice(&data);
    let mut back: Vec<Vec<u8>> = pieces.iter().map(|piece| vec![0; piece.len()]).collect();
    let mut at = 3 * step;
    let mut requests: Vec<_> = back
        .iter_mut()
        .map(|piece| {
            at += piece.len() as u64;
            Request::read(at - piece.len() as u64, piece)
        })
        .collect();
    device.submit(&mut requests).expect("a batch that fits");
    assert!(back == pieces, "reads of neighbours");
}

fn pattern() -> Vec<u8> {
    (0..SIZE).map(|at| (at / 97) as u8).collect()
}

fn file(direct: Direct, size: u64) -> Option<(tempfile::TempDir, extant_device::FileDevice)> {
    // Not in the system's temporary directory, which may be in memory.
    let directory =
        tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a place for the test");
    let options = FileDeviceOptions::new().write(true).create_new(true).size(size).direct(direct);
    match options.open(directory.path().join("d.img")) {
        Ok(device) => Some((directory, device)),
        Err(error) => {
            extant_testkit::skipped(error);
            None
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn memory(steps in steps()) {
        agrees(&MemoryDevice::new(SIZE), vec![0; SIZE as usize], &steps);
    }

    #[test]
    fn a_fork_of_memory_is_independent(before in steps(), one in steps()) {
        let device = MemoryDevice::from_bytes(&pattern());
        let fork = device.fork();
        agrees(&fork, pattern(), &before);
        agrees(&device, pattern(), &one);
    }

    #[test]
    fn a_file_through_the_page_cache(steps in steps()) {
        let (_directory, device) = file(Direct::Off, SIZE).expect("a file");
        agrees(&device, vec![0; SIZE as usize], &steps);
    }

    #[test]
    fn a_file_around_the_page_cache(steps in steps()) {
        if let Some((_directory, device)) = file(Direct::Required, SIZE) {
            prop_assert!(device.is_direct());
            agrees(&device, vec![0; SIZE as usize], &steps);
        }
    }

    #[test]
    fn a_file_around_the_page_cache_that_ends_inside_a_sector(steps in steps()) {
        if let Some((directory, device)) = file(Direct::Required, SIZE + 77) {
            let odd = SliceDevice::new(Arc::new(device), 77, SIZE).expect("it fits");
            agrees(&odd, vec![0; SIZE as usize], &steps);
            let length = std::fs::metadata(directory.path().join("d.img")).expect("it is there").len();
            prop_assert_eq!(length, SIZE + 77);
        }
    }

    #[test]
    fn a_simulated_drive(steps in steps(), more in steps(), memory in 0..60_000_u64) {
        let (directory, image) = file(Direct::Off, SIZE).expect("a file");
        let path = directory.path().join("d.img");
        drop(image);
        let drive = |name| {
            let words = ModelDevice::open_pattern_file(&path, true).expect("words");
            let image = FileDeviceOptions::new().write(true).open(&path).expect("the image");
            let preset = Preset::named(name).expect("a preset");
            let options = ModelOptions { memory, ..ModelOptions::default() };
            ModelDevice::new(preset, Arc::new(image), words, &options).expect("a drive")
        };
        let device = drive("hdd7200");
        agrees(&device, vec![0; SIZE as usize], &steps);
        let mut bytes = vec![0; SIZE as usize];
        device.read_at(0, &mut bytes).expect("read");
        drop(device);
        prop_assert!(std::fs::read(&path).expect("the image") == bytes);
        agrees(&drive("nvme"), bytes, &more);
    }

    #[test]
    fn a_slice_changes_nothing_around_it(steps in steps(), start in 0..40_000_u64) {
        let whole = Arc::new(MemoryDevice::from_bytes(&[pattern(), pattern(), pattern()].concat()));
        let slice = SliceDevice::new(whole.clone(), start, SIZE).expect("it fits");
        let mut bytes = whole.to_vec();
        let part = start as usize..start as usize + SIZE as usize;
        agrees(&slice, bytes[part.clone()].to_vec(), &steps);
        let after = whole.to_vec();
        bytes[part.clone()].copy_from_slice(&after[part]);
        prop_assert!(bytes == after);
    }

    #[test]
    fn an_overlay_never_writes_its_base(steps in steps(), more in steps()) {
        let base = Arc::new(MemoryDevice::from_bytes(&pattern()));
        let overlay = OverlayDevice::new(base.clone());
        agrees(&overlay, pattern(), &steps);
        prop_assert!(base.to_vec() == pattern());
        let mut bytes = vec![0; SIZE as usize];
        overlay.read_at(0, &mut bytes).expect("read");
        // Where it did not change, it reads as its base.
        let mut end = 0;
        for run in overlay.changed() {
            prop_assert!(end <= run.start && run.start < run.end);
            let same = end as usize..run.start as usize;
            prop_assert!(bytes[same.clone()] == pattern()[same]);
            end = run.end;
        }
        prop_assert!(end <= SIZE && bytes[end as usize..] == pattern()[end as usize..]);
        // An overlay of it, and a fork, see its bytes and keep their own.
        let fork = overlay.fork();
        let second = OverlayDevice::new(Arc::new(overlay));
        agrees(&second, bytes.clone(), &more);
        agrees(&fork, bytes.clone(), &steps);
        let mut after = vec![0; SIZE as usize];
        second.base().read_at(0, &mut after).expect("read");
        prop_assert!(bytes == after);
    }

    #[test]
    fn a_recorder_and_a_faulty_device_without_faults(steps in steps()) {
        let recorder = Recorder::new(Arc::new(MemoryDevice::from_bytes(&pattern())));
        agrees(&FaultyDevice::new(Arc::new(recorder)), pattern(), &steps);
    }
}

#[test]
fn a_memory_device_of_64_tib_holds_only_what_was_written() {
    const SIZE: u64 = 64 << 40;
    let device = MemoryDevice::new(SIZE);
    device.write_at(SIZE - 5, b"other").expect("it fits");
    device.write_at(33 << 40, &[7; 40_000]).expect("it fits");
    device.write_zeroes(1 << 30..32 << 40).expect("it fits");
    let mut end = [0; 5];
    device.read_at(SIZE - 5, &mut end).expect("it fits");
    assert_eq!(&end, b"other");
    let runs = device.data_ranges(0..SIZE).expect("known");
    let edges = runs.iter().map(|run| (run.start, run.end)).collect::<Vec<_>>();
    assert_eq!(edges, [(33 << 40, (33 << 40) + 3 * 16384), (SIZE - 16384, SIZE)]);
    assert!(device.held() < 100_000, "{}", device.held());
    device.discard(0..SIZE).expect("it fits");
    assert_eq!(device.held(), 0);
}

#[test]
fn an_overlay_zeroes_terabytes_without_memory() {
    const SIZE: u64 = 64 << 40;
    let base = MemoryDevice::new(SIZE);
    base.write_at(20 << 40, b"old").expect("it fits");
    let overlay = OverlayDevice::new(Arc::new(base));
    overlay.write_zeroes(0..SIZE).expect("it fits");
    assert_eq!(overlay.data_ranges(0..SIZE).expect("known"), []);
    overlay.write_at(SIZE - 3, b"new").expect("it fits");
    let mut bytes = [1; 3];
    overlay.read_at(20 << 40, &mut bytes).expect("it fits");
    assert_eq!(bytes, [0; 3]);
    assert_eq!(overlay.next_data(0..SIZE).expect("known"), Some(SIZE - 16384..SIZE));
    assert!(overlay.held() < 100_000);
}

#[test]
fn threads_that_write_parts_of_one_sector_do_not_lose_each_others_bytes() {
    let Some((_directory, device)) = file(Direct::Required, 1 << 20) else { return };
    let overlay = OverlayDevice::new(Arc::new(MemoryDevice::new(1 << 20)));
    for device in [&device as &dyn Device, &overlay] {
        extant_runtime::sync::thread::scope(|scope| {
            for thread in 0..4_u8 {
                scope.spawn(move || {
                    for round in 0..64 {
                        let at = (round * 4 + u64::from(thread)) * 100;
                        device.write_at(at, &[thread + 1; 100]).expect("it fits");
                    }
                });
            }
        });
        let mut bytes = vec![0; 64 * 400];
        device.read_at(0, &mut bytes).expect("it fits");
        let expected: Vec<u8> = (0..64 * 4).flat_map(|part| [part as u8 % 4 + 1; 100]).collect();
        assert!(bytes == expected, "{device:?}");
    }
}
