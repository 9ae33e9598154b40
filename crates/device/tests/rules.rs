//! The rules of batches, faults and slices.

use std::io::ErrorKind;
use std::sync::Arc;

use extant_device::{
    Cause, Device, DeviceError, MemoryDevice, Operation, Request, RequestStatus, SliceDevice,
    SliceError, run_reads,
};
use extant_sim::{Effect, Fault, FaultyDevice};

fn failure(request: &Request<'_>) -> Option<String> {
    match &request.status {
        RequestStatus::Failed(error) => Some(error.to_string()),
        RequestStatus::Pending | RequestStatus::Done => None,
    }
}

#[test]
fn a_batch_that_does_not_fit_is_refused_whole() {
    let device = MemoryDevice::new(4096);
    let mut batch = [Request::write(0, b"new"), Request::write(4094, b"end")];
    let error = device.submit(&mut batch).expect_err("it does not fit");
    assert_eq!(
        error.to_string(),
        "write of 3 bytes at byte 4094: past the end of the device (4096 bytes)"
    );
    assert!(matches!(batch[0].status, RequestStatus::Pending));
    assert!(failure(&batch[1]).is_some());
    assert_eq!(device.to_vec(), [0; 4096]);
}

#[test]
fn an_offset_that_overflows_is_past_the_end() {
    let device = MemoryDevice::new(4096);
    let error = device.read_at(u64::MAX - 1, &mut [0; 4]).expect_err("it does not fit");
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn a_failure_stops_what_follows_the_next_flush() {
    let memory = Arc::new(MemoryDevice::new(4096));
    let device = FaultyDevice::new(memory.clone());
    device.inject(Fault::new(Effect::Error(ErrorKind::Other)).on(Operation::Write).times(1));
    let mut batch = [
        Request::write(0, b"a"),
        Request::write(1, b"b"),
        Request::flush(),
        Request::write(2, b"commit"),
    ];
    let error = device.submit(&mut batch).expect_err("the first write fails");
    assert_eq!((error.operation, error.offset), (Operation::Write, 0));
    assert!(batch[1].status.is_done(), "its neighbour is carried out");
    for request in &batch[2..] {
        assert!(
            matches!(&request.status, RequestStatus::Failed(error) if matches!(error.cause, Cause::NotTried))
        );
    }
    assert_eq!(memory.to_vec()[..3], [0, b'b', 0]);
}

#[test]
fn a_failed_flush_stops_the_rest_of_the_batch() {
    let memory = Arc::new(MemoryDevice::new(4096));
    let device = FaultyDevice::new(memory.clone());
    device.inject(Fault::new(Effect::Error(ErrorKind::Other)).on(Operation::Flush));
    let mut batch = [Request::write(0, b"a"), Request::flush(), Request::write(1, b"commit")];
    let error = device.submit(&mut batch).expect_err("the flush fails");
    assert_eq!(error.operation, Operation::Flush);
    assert_eq!(memory.to_vec()[..2], [b'a', 0]);
    device.heal();
    device.submit(&mut batch).expect("a batch may be submitted again");
    assert_eq!(memory.to_vec()[..2], [b'a', b'c']);
}

#[test]
fn a_fault_meets_the_call_it_is_meant_for() {
    let device = FaultyDevice::new(Arc::new(MemoryDevice::new(4096)));
    device.inject(
        Fault::new(Effect::Error(ErrorKind::Other))
            .on(Operation::Read)
            .within(100..200)
            .after(1)
            .times(1),
    );
    let mut byte = [0];
    let mut read = |at| device.read_at(at, &mut byte).is_ok();
    assert_eq!(
        [read(150), read(99), read(200), read(199), read(150)],
        [true, true, true, false, true]
    );
    assert_eq!(device.faults_met(), 1);
}

#[test]
fn a_full_device_refuses_writes_only() {
    let device = FaultyDevice::new(Arc::new(MemoryDevice::new(4096)));
    device.inject(Fault::full());
    assert!(device.write_at(0, b"a").expect_err("it is full").is_no_space());
    device.read_at(0, &mut [0; 4]).expect("reads go on");
    device.flush().expect("flushes go on");
}

#[test]
fn a_short_write_leaves_its_first_part() {
    let memory = Arc::new(MemoryDevice::new(16));
    let device = FaultyDevice::new(memory.clone());
    device.inject(Fault::new(Effect::Short(3)));
    device.write_at(2, b"abcdef").expect_err("it is short");
    assert_eq!(memory.to_vec()[..8], *b"\0\0abc\0\0\0");
}

#[test]
fn a_lost_write_reports_success() {
    let memory = Arc::new(MemoryDevice::new(16));
    let device = FaultyDevice::new(memory.clone());
    device.inject(Fault::new(Effect::Ignored).on(Operation::Write));
    device.write_at(0, b"abc").expect("it lies");
    assert_eq!(memory.to_vec(), [0; 16]);
}

#[test]
fn flipped_bits_are_read_where_they_lie() {
    let device = FaultyDevice::new(Arc::new(MemoryDevice::new(16)));
    device.inject(Fault::new(Effect::FlippedBits { at: 5, mask: 0x81 }).on(Operation::Read));
    let (mut a, mut b) = ([0; 3], [0; 4]);
    device
        .read_vectored_at(
            2,
            &mut [std::io::IoSliceMut::new(&mut a), std::io::IoSliceMut::new(&mut b)],
        )
        .expect("it fits");
    assert_eq!((a, b), ([0; 3], [0x81, 0, 0, 0]));
}

#[test]
fn a_slice_out_of_range_is_refused() {
    let whole: Arc<dyn Device> = Arc::new(MemoryDevice::new(4096));
    let refused = |start, size| SliceDevice::new(whole.clone(), start, size).map(|_| ());
    assert_eq!(refused(0, 4096), Ok(()));
    assert_eq!(refused(4096, 0), Ok(()));
    assert_eq!(refused(1, 4096), Err(SliceError { start: 1, size: 4096, whole: 4096 }));
    assert_eq!(refused(u64::MAX, 2), Err(SliceError { start: u64::MAX, size: 2, whole: 4096 }));
}

#[test]
fn a_slice_counts_errors_from_its_own_start() {
    let whole = FaultyDevice::new(Arc::new(MemoryDevice::new(4096)));
    whole.inject(Fault::new(Effect::Error(ErrorKind::Other)).on(Operation::Write));
    let slice = SliceDevice::new(Arc::new(whole), 1000, 1000).expect("it fits");
    let mut batch = [Request::write(20, b"a")];
    let error = slice.submit(&mut batch).expect_err("injected");
    assert_eq!((error.offset, batch[0].offset()), (20, 20));
    assert_eq!(failure(&batch[0]), Some(error.to_string()));
    let error = slice.read_at(999, &mut [0; 2]).expect_err("past the slice");
    assert_eq!(
        error.to_string(),
        "read of 2 bytes at byte 999: past the end of the device (1000 bytes)"
    );
}

#[test]
fn an_error_keeps_its_kind_as_an_io_error() {
    let device = FaultyDevice::new(Arc::new(MemoryDevice::new(4096)));
    device.inject(Fault::full());
    let error = std::io::Error::from(device.write_at(0, b"a").expect_err("it is full"));
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    assert_eq!(error.to_string(), "write of 1 bytes at byte 0: injected: no storage space");
}

#[test]
fn a_device_that_is_read_fills_each_buffer_from_its_place() {
    let (mut one, mut two, mut bad) = ([0; 2], [0; 3], [0; 1]);
    let buffers = [&mut one[..], &mut two[..]].map(std::io::IoSliceMut::new);
    let mut batch = [
        Request::read_vectored(10, buffers.into()),
        Request::read(99, &mut bad),
        Request::write(5, b"a"),
        Request::flush(),
    ];
    let read = |at: u64, to: &mut [u8]| {
        for (byte, place) in to.iter_mut().zip(at..) {
            *byte = place as u8;
        }
        let below = || DeviceError::io(Operation::Read, 7, 0, ErrorKind::InvalidData.into());
        if at == 99 { Err(below()) } else { Ok(()) }
    };
    let error = run_reads(&mut batch, read).expect_err("one read fails");
    assert_eq!((error.offset, error.length), (99, 1), "the place of the request");
    assert!(batch[0].status.is_done());
    assert!(failure(&batch[2]).is_some_and(|text| text.contains("read-only")));
    assert!(failure(&batch[3]).is_some(), "no flush after a failure");
    drop(batch);
    assert_eq!((one, two), ([10, 11], [12, 13, 14]));
}
