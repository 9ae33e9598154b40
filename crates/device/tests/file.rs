//! Files and block devices of the system: who may write, what is done around the page cache, what
//! is discarded.

use std::fs::{self, File};
use std::io::{self, IoSlice};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use extant_device::{
    AlignedBuffer, Cause, Device, Direct, FileDevice, FileDeviceOptions, FileError, LoopBacking,
    Request, RequestStatus, SliceDevice,
};
use extant_testkit::{LoopDevice, skip};

const MIB: u64 = 1 << 20;

/// A directory on the file system of the build, which does direct access; the temporary one may lie
/// in memory.
fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a place for the test")
}

fn writing() -> FileDeviceOptions {
    FileDeviceOptions::new().write(true)
}

#[test]
fn a_file_is_written_by_one_at_a_time() {
    let scratch = scratch();
    let path = scratch.path().join("d.img");
    let first = FileDevice::create_new(&path, MIB).expect("a new file");
    assert!(matches!(writing().open(&path), Err(FileError::InUse { mounted: false, .. })));
    let shared = FileDeviceOptions::new().shared_lock(true);
    assert!(matches!(shared.open(&path), Err(FileError::InUse { mounted: false, .. })));
    FileDevice::open(&path).expect("reading needs no lock");
    drop(first);
    let readers = [shared.open(&path).expect("free"), shared.open(&path).expect("shared")];
    assert!(matches!(writing().open(&path), Err(FileError::InUse { mounted: false, .. })));
    drop(readers);
    writing().open(&path).expect("free again");
}

#[test]
fn a_locked_file_is_not_emptied() {
    let scratch = scratch();
    let path = scratch.path().join("d.img");
    let _first = FileDevice::create_new(&path, MIB).expect("a new file");
    writing().truncate(true).size(5).open(&path).expect_err("in use");
    assert_eq!(fs::metadata(&path).expect("it is there").len(), MIB);
}

#[test]
fn a_device_opened_for_reading_refuses_changes() {
    let scratch = scratch();
    let path = scratch.path().join("d.img");
    fs::write(&path, [7; 4096]).expect("written");
    let device = FileDevice::open(&path).expect("it is there");
    assert!(device.is_read_only());
    for result in [
        device.write_at(0, b"a"),
        device.discard(0..512),
        device.write_zeroes(0..512),
        device.set_len(1),
    ] {
        assert!(matches!(result.expect_err("read-only").cause, Cause::ReadOnly));
    }
    device.flush().expect("nothing to do");
    assert_eq!(fs::read(&path).expect("it is there"), [7; 4096]);
}

#[test]
fn what_holds_no_blocks_is_refused() {
    let scratch = scratch();
    let refused = |path: &Path| matches!(FileDevice::open(path), Err(FileError::NotADevice { .. }));
    assert!(refused(scratch.path()));
    assert!(refused(Path::new("/dev/null")));
    let missing = FileDevice::open(scratch.path().join("missing")).expect_err("not there");
    assert!(
        matches!(missing, FileError::Open { source, .. } if source.kind() == io::ErrorKind::NotFound)
    );
}

#[test]
fn a_file_grows_and_shrinks() {
    let scratch = scratch();
    let device = FileDevice::create_new(scratch.path().join("d.img"), 1000).expect("a new file");
    device.write_at(998, b"abc").expect_err("past the end");
    device.set_len(1 << 40).expect("a hole");
    assert_eq!(device.size(), 1 << 40);
    device.write_at((1 << 40) - 3, b"end").expect("it fits");
    device.set_len(10).expect("shorter");
    assert_eq!(
        device.read_at(8, &mut [0; 3]).expect_err("past the end").kind(),
        io::ErrorKind::UnexpectedEof
    );
    assert_eq!(fs::metadata(device.path()).expect("it is there").len(), 10);
}

#[test]
fn a_file_cut_behind_our_back_is_an_error_and_no_zeroes() {
    let scratch = scratch();
    let path = scratch.path().join("d.img");
    let device = FileDevice::create_new(&path, MIB).expect("a new file");
    File::options().write(true).open(&path).expect("it is there").set_len(100).expect("shorter");
    let error = device.read_at(0, &mut [0; 4096]).expect_err("the bytes are gone");
    assert_eq!(error.to_string(), "read of 4096 bytes at byte 0: the file became shorter");
}

/// Terabytes of hole with three runs of data: what is asked is answered run by run, nothing is
/// read.
#[test]
fn holes_of_a_sparse_file_are_found() {
    let scratch = scratch();
    let device = FileDevice::create_new(scratch.path().join("d.img"), 8 << 40).expect("a new file");
    for at in [0, 3 << 40, (8 << 40) - 4096] {
        device.write_at(at, &[1; 4096]).expect("it fits");
    }
    let runs = device.data_ranges(0..8 << 40).expect("known");
    if runs.len() == 1 && runs[0] == (0..8 << 40) {
        skip!("the file system here does not tell its holes");
    }
    assert_eq!(runs.len(), 3, "{runs:?}");
    for (run, at) in runs.iter().zip([0, 3 << 40, (8 << 40) - 4096]) {
        assert!(run.contains(&at) && run.end - run.start <= MIB, "{run:?}");
    }
    assert_eq!(device.next_data(1 << 40..2 << 40).expect("known"), None);
    let inside = device.next_data((3 << 40) + 100..(3 << 40) + 200).expect("known");
    assert_eq!(inside, Some((3 << 40) + 100..(3 << 40) + 200));
}

#[test]
fn a_discard_gives_space_back() {
    let scratch = scratch();
    let device = FileDevice::create_new(scratch.path().join("d.img"), 4 * MIB).expect("a new file");
    if !device.discard_reads_zero() {
        skip!("the file system here punches no holes");
    }
    device.write_at(0, &vec![7; 4 * MIB as usize]).expect("it fits");
    device.flush().expect("flushed");
    let before = device.file().metadata().expect("it is open").blocks();
    device.discard(MIB..3 * MIB).expect("it fits");
    device.write_zeroes(3 * MIB..4 * MIB - 1).expect("it fits");
    device.flush().expect("flushed");
    let after = device.file().metadata().expect("it is open").blocks();
    assert!(
        after * 512 <= before * 512 - 2 * MIB - MIB / 2,
        "{before} blocks before, {after} after"
    );
    let mut bytes = vec![9; 4 * MIB as usize];
    device.read_at(0, &mut bytes).expect("it fits");
    let expected =
        |at: usize| if (MIB as usize..4 * MIB as usize - 1).contains(&at) { 0 } else { 7 };
    assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == expected(at)));
}

#[test]
fn direct_requests_agree_with_the_page_cache() {
    let scratch = scratch();
    let path = scratch.path().join("d.img");
    // Ends inside a sector and inside a page.
    let size = MIB + 5 * 4096 + 700;
    let device = match writing().create_new(true).size(size).direct(Direct::Required).open(&path) {
        Err(FileError::NoDirect { .. }) => skip!("the file system here has no direct access"),
        result => result.expect("a new file"),
    };
    let alignment = device.direct_alignment();
    assert!(alignment >= 512 && alignment.is_power_of_two(), "{alignment}");
    let mut data = AlignedBuffer::new(64 * 1024, alignment);
    assert!((data.as_ptr() as usize).is_multiple_of(alignment));
    data.fill(3);
    let odd = vec![5; 1234];
    let end = vec![6; 1500];
    device
        .submit(&mut [
            Request::write(4096, &data),
            Request::write(200_001, &odd),
            Request::write(size - 1500, &end),
            Request::flush(),
        ])
        .expect("it fits");
    let mut expected = vec![0; size as usize];
    expected[4096..][..data.len()].fill(3);
    expected[200_001..][..1234].fill(5);
    expected[size as usize - 1500..].fill(6);
    let through_cache = fs::read(&path).expect("it is there");
    assert!(through_cache == expected);
    let mut back = vec![1; size as usize - 1];
    device.read_at(1, &mut back).expect("it fits");
    assert!(back == expected[1..]);
}

/// Blocks all over a file, alone and adjacent, in batches of two threads, mixed with requests that
/// are not batched: long ones, ones inside a sector, and ones after the last whole sector.
#[test]
fn scattered_direct_writes_agree_with_the_page_cache() {
    const BLOCK: usize = 4096;
    const BLOCKS: usize = 1024; // of each thread
    let scratch = scratch();
    let path = scratch.path().join("d.img");
    let size = (2 * BLOCKS * BLOCK + 700) as u64;
    let device = match writing().create_new(true).size(size).direct(Direct::Required).open(&path) {
        Err(FileError::NoDirect { .. }) => skip!("the file system here has no direct access"),
        result => result.expect("a new file"),
    };
    // Not aligned.
    let block_of = |block: usize, round: usize| vec![(block * 7 + round) as u8; BLOCK + 1];
    let write = |first: usize| {
        for round in 0..3 {
            // Runs of one to twenty blocks with a block between them; 41 is no part of 1024, so
            // that each comes once.
            let mut blocks: Vec<usize> = (0..BLOCKS)
                .map(|at| at * 41 % BLOCKS)
                .filter(|at| at % 50 < 20 || at % 2 == round % 2)
                .map(|at| first + at)
                .collect();
            blocks.rotate_left(round * 100);
            let contents: Vec<_> = blocks.iter().map(|block| block_of(*block, round)).collect();
            let mut batch: Vec<_> = (blocks.iter().zip(&contents))
                .map(|(block, bytes)| Request::write((block * BLOCK) as u64, &bytes[1..]))
                .collect();
            device.submit(&mut batch).expect("it fits");
            assert!(batch.iter().all(|request| request.status.is_done()));
        }
    };
    extant_runtime::sync::thread::scope(|scope| {
        scope.spawn(|| write(0));
        scope.spawn(|| write(BLOCKS));
    });
    let mut odd: Vec<_> =
        (0..40).map(|at| Request::write(at * 40_960 + 5000, b"inside a sector")).collect();
    odd.push(Request::write(size - 900, &[9; 900]));
    device.submit(&mut odd).expect("it fits");
    let mut expected = vec![0; size as usize];
    for block in 0..2 * BLOCKS {
        let at = block % BLOCKS;
        let last = (0..3).rev().find(|round| at % 50 < 20 || at % 2 == round % 2);
        let bytes = block_of(block, last.expect("written"));
        expected[block * BLOCK..][..BLOCK].copy_from_slice(&bytes[1..]);
    }
    for request in &odd[..40] {
        expected[request.offset() as usize..][..15].copy_from_slice(b"inside a sector");
    }
    expected[size as usize - 900..].fill(9);
    assert!(fs::read(&path).expect("it is there") == expected);
}

#[test]
fn where_possible_falls_back_to_the_page_cache() {
    let directory = Path::new("/dev/shm");
    if !directory.is_dir() {
        skip!("no /dev/shm here");
    }
    let scratch = tempfile::tempdir_in(directory).expect("a place for the test");
    let options = writing().create_new(true).size(8192).direct(Direct::WherePossible);
    let device = options.open(scratch.path().join("d.img")).expect("a new file, either way");
    device.write_at(1, b"any").expect("it fits");
    let mut bytes = [0; 3];
    device.read_at(1, &mut bytes).expect("it fits");
    assert_eq!(&bytes, b"any");
}

#[test]
fn a_file_that_backs_a_loop_device_is_not_written() {
    let scratch = scratch();
    let path = scratch.path().join("d.img");
    fs::write(&path, vec![7; MIB as usize]).expect("written");
    let used = match LoopDevice::with_sectors(&path, 512) {
        Ok(used) => used,
        Err(why) => skip!("{why}"),
    };
    // Found by another name too.
    let link = scratch.path().join("link.img");
    fs::hard_link(&path, &link).expect("linked");
    for name in [&path, &link] {
        match writing().truncate(true).open(name) {
            Err(FileError::BacksLoopDevice { loop_device, .. }) => {
                assert_eq!(loop_device, used.path())
            }
            other => panic!("{other:?}"),
        }
    }
    let error = writing().open(&path).expect_err("in use");
    assert!(error.to_string().contains("backs the loop device /dev/loop"), "{error}");
    assert_eq!(fs::metadata(&path).expect("it is there").len(), MIB, "it is not emptied");
    FileDevice::open(&path).expect("reading is allowed");
    let unclaimed = writing().loop_backing(LoopBacking::Unclaimed);
    unclaimed.open(&path).expect("it is not mounted");
    drop(used);
    writing().open(&path).expect("free again");
}

#[test]
fn a_block_device_is_had_alone_and_does_all_a_file_does() {
    for sector_size in [512, 4096] {
        let scratch = scratch();
        let path = scratch.path().join("d.img");
        fs::write(&path, vec![7; 4 * MIB as usize]).expect("written");
        let block = match LoopDevice::with_sectors(&path, sector_size) {
            Ok(block) => block,
            Err(why) => skip!("{why}"),
        };
        for direct in [Direct::Off, Direct::Required] {
            let options = writing().direct(direct);
            let device = options.open(block.path()).expect("a block device");
            assert!(device.is_block_device());
            assert_eq!((device.size(), device.sector_size()), (4 * MIB, sector_size));
            assert!(
                matches!(writing().open(block.path()), Err(FileError::InUse { .. })),
                "{direct:?}"
            );
            // Not on sector borders: the edges are written, the middle is the device's own.
            device.write_at(0, &vec![7; 4 * MIB as usize]).expect("it fits");
            device.write_at(5001, b"some bytes").expect("it fits");
            device.write_zeroes(MIB + 3..2 * MIB + 5).expect("it fits");
            device.write_zeroes(100..200).expect("it fits");
            device.discard(3 * MIB + 1..4 * MIB).expect("it fits");
            device.flush().expect("flushed");
            let mut bytes = vec![1; 3 * MIB as usize];
            device.read_at(0, &mut bytes).expect("it fits");
            let mut expected = vec![7; 3 * MIB as usize];
            expected[5001..5011].copy_from_slice(b"some bytes");
            expected[MIB as usize + 3..2 * MIB as usize + 5].fill(0);
            expected[100..200].fill(0);
            assert!(bytes == expected, "{direct:?}");
            let mut kept = [0];
            device.read_at(3 * MIB, &mut kept).expect("it fits");
            assert_eq!(kept, [7], "outside the discarded range");
            device.set_len(1).expect_err("cannot resize a block device");
            assert_eq!(device.next_data(5..10).expect("unknown"), Some(5..10));
        }
        let error = writing().size(5).open(block.path()).expect_err("cannot resize a block device");
        assert!(matches!(error, FileError::FixedSize { .. }));
    }
}

#[test]
fn many_buffers_are_one_request() {
    let scratch = scratch();
    let path = scratch.path().join("d.img");
    let device = FileDevice::create_new(&path, MIB).expect("a new file");
    // More than the system takes at once, and some of them empty.
    let parts: Vec<Vec<u8>> =
        (0..3000_u32).map(|part| vec![part as u8; part as usize % 50]).collect();
    let slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
    device.write_vectored_at(11, &slices).expect("it fits");
    let expected = parts.concat();
    let mut bytes = vec![0; expected.len()];
    File::open(&path).expect("it is there").read_exact_at(&mut bytes, 11).expect("written");
    assert!(bytes == expected);
    let mut back: Vec<Vec<u8>> = parts.iter().map(|part| vec![0xaa; part.len()]).collect();
    let mut slices: Vec<_> = back.iter_mut().map(|part| io::IoSliceMut::new(part)).collect();
    device.read_vectored_at(11, &mut slices).expect("it fits");
    assert!(back == parts);
}

#[test]
fn neighbours_of_a_batch_go_together_and_fail_alone() {
    let scratch = scratch();
    let path = scratch.path().join("d.img");
    let device = FileDevice::create_new(&path, 8 * 4096).expect("a new file");
    let blocks: Vec<Vec<u8>> = (0..8).map(|block| vec![block; 4096]).collect();
    // Out of order, with a hole in the middle and a discard between.
    let mut batch: Vec<_> =
        [5, 1, 0, 7, 2, 6].map(|block| Request::write(block as u64 * 4096, &blocks[block])).into();
    batch.insert(2, Request::discard(3 * 4096..4 * 4096));
    device.submit(&mut batch).expect("it fits");
    assert!(batch.iter().all(|request| request.status.is_done()));
    let expected: Vec<u8> =
        [0, 1, 2, 0, 0, 5, 6, 7].iter().flat_map(|block| vec![*block; 4096]).collect();
    assert!(fs::read(&path).expect("it is there") == expected);

    File::options()
        .write(true)
        .open(&path)
        .expect("it is there")
        .set_len(4096 + 10)
        .expect("shorter");
    let mut buffers = vec![vec![9; 4096]; 3];
    let mut reads: Vec<_> = buffers
        .iter_mut()
        .zip([4096, 0, 8192])
        .map(|(buffer, at)| Request::read(at, buffer))
        .collect();
    let error = device.submit(&mut reads).expect_err("two of them reach past the end");
    assert_eq!(error.offset, 4096, "the first failure in the order of the batch");
    assert_eq!(
        reads.iter().map(|read| read.status.is_done()).collect::<Vec<_>>(),
        [false, true, false]
    );
    drop(reads);
    assert!(buffers[1] == blocks[0]);
}

#[test]
fn what_follows_a_failure_and_a_flush_is_not_tried_on_a_file() {
    let scratch = scratch();
    let path = scratch.path().join("d.img");
    let device = FileDevice::create_new(&path, 8192).expect("a new file");
    File::options().write(true).open(&path).expect("it is there").set_len(10).expect("shorter");
    let mut buffer = [0; 100];
    let mut batch = [Request::read(0, &mut buffer), Request::flush(), Request::write(0, b"commit")];
    device.submit(&mut batch).expect_err("the bytes are gone");
    for request in &batch[1..] {
        assert!(
            matches!(&request.status, RequestStatus::Failed(error) if matches!(error.cause, Cause::NotTried))
        );
    }
    assert_eq!(fs::read(&path).expect("it is there"), [0; 10]);
}

#[test]
fn what_is_not_cached_is_read_around_the_cache() {
    let scratch = scratch();
    let path = scratch.path().join("d.img");
    let bytes: Vec<u8> = (0..MIB).map(|at| (at / 4096) as u8 ^ at as u8).collect();
    fs::write(&path, &bytes).expect("written");
    let mut buffer = AlignedBuffer::new(MIB as usize, 4096);

    let usual = FileDevice::open(&path).expect("it is there");
    assert_eq!(usual.uncached(0..MIB), None, "reads around the cache are not enabled");
    assert!(!usual.read_around(0, &mut buffer));

    let device = FileDeviceOptions::new().around_cache(true).open(&path).expect("it is there");
    let Some(uncached) = device.uncached(0..MIB) else {
        skip!("the file system has no direct access");
    };
    assert_eq!(uncached, 0, "it was just written");
    rustix::fs::fsync(device.file()).expect("on the medium");
    let advice = rustix::fs::Advice::DontNeed;
    rustix::fs::fadvise(device.file(), 0, None, advice).expect("dropped");
    let uncached = device.uncached(0..MIB);
    assert!(uncached > Some(0));
    assert!(device.read_around(0, &mut buffer));
    assert!(buffer[..] == bytes[..]);
    assert_eq!(device.uncached(0..MIB), uncached, "no page was made");
    assert_eq!(device.uncached(0..MIB + 1), None);
    assert!(!device.read_around(1, &mut buffer[..4096]), "not at a sector");

    let slice = SliceDevice::new(Arc::new(device), 4096, MIB - 8192).expect("it fits");
    assert!(slice.read_around(4096, &mut buffer[..8192]));
    assert!(buffer[..8192] == bytes[8192..16384]);
    assert!(!slice.read_around(MIB - 12288, &mut buffer[..8192]), "past the end of the slice");
    assert_eq!(slice.uncached(0..MIB), None);
}

#[test]
fn what_is_written_around_the_cache_is_read_through_it() {
    let scratch = scratch();
    let path = scratch.path().join("d.img");
    fs::write(&path, vec![7; MIB as usize]).expect("written");
    let mut buffer = AlignedBuffer::new(16384, 4096);
    buffer.fill(9);
    let at_once = [IoSlice::new(&buffer[..4096]), IoSlice::new(&buffer[4096..])];

    let usual = FileDeviceOptions::new().write(true).open(&path).expect("it is there");
    assert!(!usual.write_around(0, &at_once), "writes around the cache are not enabled");
    drop(usual);
    let device = FileDeviceOptions::new().write(true).around_cache(true);
    let device = device.open(&path).expect("it is there");
    if device.uncached(0..MIB).is_none() {
        skip!("the file system has no direct access");
    }
    // Its pages are in memory, some of them dirty.
    device.write_at(8192, &[8; 20000]).expect("written");
    assert!(device.write_around(4096, &at_once));
    let mut bytes = vec![0; MIB as usize];
    device.read_at(0, &mut bytes).expect("read");
    assert!(bytes[..4096].iter().all(|byte| *byte == 7));
    assert!(bytes[4096..20480].iter().all(|byte| *byte == 9));
    assert!(bytes[20480..28192].iter().all(|byte| *byte == 8));
    assert!(bytes[28192..].iter().all(|byte| *byte == 7));
    assert!(!device.write_around(100, &at_once), "not at a sector");
    assert!(!device.write_around(MIB - 8192, &at_once), "past the end");

    let slice = SliceDevice::new(Arc::new(device), 4096, MIB - 8192).expect("it fits");
    assert!(slice.write_around(MIB - 24576, &at_once));
    assert!(!slice.write_around(MIB - 20480, &at_once), "past the end of the slice");
    drop(slice);
    let reader = FileDeviceOptions::new().around_cache(true).open(&path).expect("it is there");
    assert!(!reader.write_around(0, &at_once), "opened for reading");
    assert_eq!(fs::read(&path).expect("it is there").len() as u64, MIB);
}
