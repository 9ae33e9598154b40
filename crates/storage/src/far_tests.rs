//! Pages of a device whose requests are counted, and fail.

use super::*;
use std::io;

use extant_device::{MemoryDevice, Operation};
use extant_runtime::Random;

/// A device that counts requests, and fails where it is told to.
#[derive(Debug)]
struct Counted {
    inner: MemoryDevice,
    requests: Mutex<Vec<Range<u64>>>,
    broken: Range<u64>,
    error: fn() -> io::Error,
}

impl Device for Counted {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        run_batch(batch, |request| {
            let range = request.offset()..request.offset() + request.length();
            self.requests.lock().push(range.clone());
            if range.start < self.broken.end && self.broken.start < range.end {
                return Err(request.error(Cause::Io(Arc::new((self.error)()))));
            }
            self.inner.submit(std::slice::from_mut(request))
        })
    }

    fn next_data(&self, range: Range<u64>) -> Result<Option<Range<u64>>, DeviceError> {
        self.inner.next_data(range)
    }

    fn is_read_only(&self) -> bool {
        true
    }
}

const SIZE: usize = (40 * PAGE + 1000) as usize;

fn lost() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}

fn made(broken: Range<u64>, error: fn() -> io::Error) -> (Arc<Counted>, FarDevice, Vec<u8>) {
    let mut random = Random::new(1);
    let bytes: Vec<u8> = (0..SIZE).map(|_| random.below(256) as u8).collect();
    let inner = MemoryDevice::new(SIZE as u64);
    inner.write_at(0, &bytes).expect("memory");
    let counted = Arc::new(Counted { inner, requests: Mutex::new(Vec::new()), broken, error });
    let far = FarDevice::new(counted.clone(), &[]);
    (counted, far, bytes)
}

#[test]
fn any_part_has_the_bytes_of_the_device() {
    let (_, far, bytes) = made(0..0, lost);
    let mut random = Random::new(2);
    for _ in 0..300 {
        let start = random.below(SIZE);
        let end = SIZE.min(start + random.below(600_000));
        if random.below(3) == 0 {
            far.will_need(start as u64..end as u64);
        }
        let mut found = vec![0; end - start];
        far.read_at(start as u64, &mut found).expect("read");
        assert!(found == bytes[start..end], "{start}..{end}");
    }
    let mut whole = vec![0; SIZE];
    far.read_at(0, &mut whole).expect("read");
    assert!(whole == bytes);
    assert!(far.read_at(SIZE as u64 - 1, &mut [0; 2]).is_err());
}

#[test]
fn a_sequence_is_read_in_few_requests_and_a_page_once() {
    let (counted, far, _) = made(0..0, lost);
    let mut block = [0; 4096];
    for at in (0..SIZE as u64 - 4096).step_by(4096) {
        far.read_at(at, &mut block).expect("read");
    }
    let requests = counted.requests.lock().clone();
    assert!(requests.len() <= 8, "{requests:?}");
    let read: u64 = requests.iter().map(|range| range.end - range.start).sum();
    assert_eq!(read, SIZE as u64);
    far.read_at(0, &mut block).expect("read");
    assert_eq!(counted.requests.lock().len(), requests.len());
}

#[test]
fn the_start_that_is_known_is_not_read() {
    let (counted, _, bytes) = made(0..0, lost);
    let far = FarDevice::new(counted.clone(), &bytes[..PAGE as usize]);
    let mut found = vec![0; 5000];
    far.read_at(100, &mut found).expect("read");
    assert!(found == bytes[100..5100] && counted.requests.lock().is_empty());
}

#[test]
fn an_error_is_that_of_the_request_and_the_next_one_tries_again() {
    let (counted, far, _) = made(2 * PAGE..2 * PAGE + 1, lost);
    let mut block = [0; 512];
    for _ in 0..2 {
        let error = far.read_at(2 * PAGE + 7, &mut block).expect_err("broken");
        assert_eq!(
            (error.operation, error.offset, error.length),
            (Operation::Read, 2 * PAGE + 7, 512)
        );
    }
    assert_eq!(counted.requests.lock().len(), 2);
    far.will_need(0..SIZE as u64);
    far.read_at(5 * PAGE, &mut block).expect("another page");
    assert!(far.write_at(0, &block).is_err());
}

#[test]
fn a_bad_place_of_the_medium_does_not_make_its_neighbours_bad() {
    let bad = || io::Error::from_raw_os_error(5);
    let (_, far, bytes) = made(2 * PAGE + 4096..2 * PAGE + 8192, bad);
    let mut block = [0; 4096];
    far.read_at(2 * PAGE, &mut block).expect("in front of it");
    assert!(block[..] == bytes[2 * PAGE as usize..][..4096]);
    assert!(far.read_at(2 * PAGE + 4096, &mut block).is_err());
    far.read_at(2 * PAGE + 8192, &mut block).expect("after it");
}
