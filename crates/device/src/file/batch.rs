//! A batch on a file: requests of one kind that lie side by side are carried out as one.
//!
//! Between two flushes the order is free (the device's rules), so the requests are sorted by place;
//! sixteen log blocks or a stretch of an inode table are then one system call. Short stretches that
//! go around the page cache are written many at a time.

use std::io::{IoSlice, IoSliceMut};

use super::access::FileDevice;
use super::ring::Write;
use crate::device::{Request, RequestKind, RequestStatus};
use crate::error::{Cause, DeviceError, Operation};

/// Number of runs that are written at the same time at least.
const SEVERAL: usize = 4;

/// Carries out a checked batch.
pub(super) fn run(device: &FileDevice, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
    let mut rest = &mut *batch;
    let mut failed = false;
    while !rest.is_empty() {
        let flush = rest.iter().position(|request| request.operation() == Operation::Flush);
        let (stretch, tail) = rest.split_at_mut(flush.unwrap_or(rest.len()));
        run_stretch(device, stretch);
        failed |= stretch.iter().any(|request| !request.status.is_done());
        let Some((flush, tail)) = tail.split_first_mut() else { break };
        if !failed {
            run_one(device, flush);
            failed = !flush.status.is_done();
        } else {
            flush.status = RequestStatus::Failed(flush.error(Cause::NotTried));
        }
        if failed {
            for request in tail.iter_mut() {
                request.status = RequestStatus::Failed(request.error(Cause::NotTried));
            }
            break;
        }
        rest = tail;
    }
    let failure = batch.iter().find_map(|request| match &request.status {
        RequestStatus::Failed(error) => Some(error.clone()),
        RequestStatus::Pending | RequestStatus::Done => None,
    });
    failure.map_or(Ok(()), Err)
}

fn run_one(device: &FileDevice, request: &mut Request<'_>) {
    request.status = match device.perform(request) {
        Ok(()) => RequestStatus::Done,
        Err(source) => RequestStatus::Failed(request.error(Cause::Io(source.into()))),
    };
}

/// Carries out requests between two flushes, in any order.
fn run_stretch(device: &FileDevice, stretch: &mut [Request<'_>]) {
    if let [request] = stretch {
        return run_one(device, request);
    }
    let mut sorted: Vec<&mut Request<'_>> = stretch.iter_mut().collect();
    sorted.sort_by_key(|request| (request.operation() == Operation::Read, request.offset()));
    let mut runs = Vec::new();
    let mut rest = sorted.as_mut_slice();
    while !rest.is_empty() {
        let (run, tail) = rest.split_at_mut(side_by_side(rest));
        runs.push(run);
        rest = tail;
    }
    write_at_once(device, &mut runs);
    for run in runs {
        if run.iter().all(|request| request.status.is_done()) {
            continue;
        }
        let done = run.len() > 1 && run_as_one(device, run);
        for request in run {
            if done {
                request.status = RequestStatus::Done;
            } else {
                run_one(device, request);
            }
        }
    }
}

/// Writes short runs at the same time, where the device can and there are several. Requests that it
/// does not handle stay as they are.
fn write_at_once(device: &FileDevice, runs: &mut [&mut [&mut Request<'_>]]) {
    let mut short: Vec<_> = runs.iter_mut().filter(|run| device.is_short_write(run)).collect();
    if short.len() < SEVERAL {
        return;
    }
    let mut writes: Vec<Write<'_>> = short.iter().map(|run| write_of(run)).collect();
    device.write_at_once(&mut writes);
    let done: Vec<bool> = writes.iter().map(|write| write.is_done).collect();
    for (run, is_done) in short.iter_mut().zip(done) {
        for request in run.iter_mut().filter(|_| is_done) {
            request.status = RequestStatus::Done;
        }
    }
}

/// Writes that lie side by side, as one.
fn write_of<'a>(run: &'a [&mut Request<'_>]) -> Write<'a> {
    let pieces = run.iter().flat_map(|request| match &request.kind {
        RequestKind::Write { buffers, .. } => buffers.slices(),
        _ => &[],
    });
    Write {
        offset: run[0].offset(),
        pieces: pieces.map(|piece| &**piece).collect(),
        is_done: false,
    }
}

/// How many of the first requests are reads, or writes, that each begin where the one before ends.
fn side_by_side(requests: &[&mut Request<'_>]) -> usize {
    let operation = requests[0].operation();
    if !matches!(operation, Operation::Read | Operation::Write) {
        return 1;
    }
    let mut end = requests[0].offset() + requests[0].length();
    let joins = |request: &&&mut Request<'_>| {
        let joined = request.operation() == operation && request.offset() == end;
        end += request.length();
        joined
    };
    1 + requests[1..].iter().take_while(joins).count()
}

/// False where it failed: then each request is tried alone, so that each one's status is its own.
fn run_as_one(device: &FileDevice, run: &mut [&mut Request<'_>]) -> bool {
    let offset = run[0].offset();
    if run[0].operation() == Operation::Write {
        let buffers = run.iter().flat_map(|request| match &request.kind {
            RequestKind::Write { buffers, .. } => buffers.slices(),
            _ => &[],
        });
        let buffers: Vec<IoSlice<'_>> = buffers.copied().collect();
        device.write_buffers(offset, &buffers).is_ok()
    } else {
        let buffers = run.iter_mut().flat_map(|request| match &mut request.kind {
            RequestKind::Read { buffers, .. } => buffers.slices_mut(),
            _ => &mut [],
        });
        let mut buffers: Vec<IoSliceMut<'_>> =
            buffers.map(|buffer| IoSliceMut::new(buffer)).collect();
        device.read_buffers(offset, &mut buffers).is_ok()
    }
}
