//! Data are copied to their new places in windows: one is read while the one before it is written,
//! in the order of its new places.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;

use crossbeam::channel::bounded;
use extant_device::{AlignedBuffer, Device, DeviceError, Request, data_runs};

/// Bytes of a window. Three are in memory at most.
const WINDOW: u64 = 8 << 20;
/// Longer writes go around the system's cache, in which nothing reads these bytes again.
const AROUND: u64 = 128 << 10;
/// Such writes need this alignment.
const ALIGNMENT: usize = 4096;

/// Bytes that move.
#[derive(Clone, Copy, Debug)]
struct MovedBytes {
    from: u64,
    to: u64,
    length: u64,
}

impl MovedBytes {
    fn source(&self) -> Range<u64> {
        self.from..self.from + self.length
    }

    fn target(&self) -> Range<u64> {
        self.to..self.to + self.length
    }
}

/// Pieces with their bytes.
struct Window {
    /// In the order of their sources.
    pieces: Vec<MovedBytes>,
    /// The bytes of the pieces, one after another.
    bytes: AlignedBuffer,
    /// Whether a piece may hold something other than zeros.
    has_data: Vec<bool>,
    /// Number of moves that begin here.
    begun: usize,
}

/// Copies runs of bytes to other places of a device; no target overlaps a source. `on_moves` gets
/// the number of the `moves` (a run and its new place, in the order of the runs) that come next.
pub(super) fn copy(
    device: &dyn Device,
    moves: impl Iterator<Item = (Range<u64>, u64)> + Send,
    mut on_moves: impl FnMut(usize),
) -> Result<(), DeviceError> {
    let (to_writer, read) = bounded::<Result<Window, DeviceError>>(1);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for mut window in windows(moves) {
                let window = window.read(device).map(|()| window);
                let is_last = window.is_err();
                // The writer ends at its first error.
                if to_writer.send(window).is_err() || is_last {
                    return;
                }
            }
        });
        for window in read {
            let window = window?;
            on_moves(window.begun);
            window.write(device)?;
        }
        Ok(())
    })
}

/// Cuts moves into windows.
fn windows(moves: impl Iterator<Item = (Range<u64>, u64)>) -> impl Iterator<Item = Window> {
    let mut moves = moves.fuse();
    let mut rest: VecDeque<MovedBytes> = VecDeque::new();
    std::iter::from_fn(move || {
        let (mut window, mut left) = (Window::new(), WINDOW);
        while left > 0 {
            let Some(mut piece) = rest.pop_front() else {
                let Some((run, to)) = moves.next() else { break };
                window.begun += 1;
                if !run.is_empty() {
                    rest.push_back(MovedBytes { from: run.start, to, length: run.end - run.start });
                }
                continue;
            };
            if piece.length > left {
                let MovedBytes { from, to, length } = piece;
                rest.push_front(MovedBytes {
                    from: from + left,
                    to: to + left,
                    length: length - left,
                });
                piece.length = left;
            }
            left -= piece.length;
            window.pieces.push(piece);
        }
        (!window.pieces.is_empty() || window.begun > 0).then_some(window)
    })
}

impl Window {
    fn new() -> Self {
        let bytes = AlignedBuffer::new(0, ALIGNMENT);
        Self { pieces: Vec::new(), bytes, has_data: Vec::new(), begun: 0 }
    }

    /// Reads the sources: neighbours in one request, holes not at all.
    fn read(&mut self, device: &dyn Device) -> Result<(), DeviceError> {
        let length: u64 = self.pieces.iter().map(|piece| piece.length).sum();
        self.bytes = AlignedBuffer::new(length as usize, ALIGNMENT); // at most WINDOW
        let mut rest = &mut self.bytes[..];
        let mut requests = Vec::new();
        for run in self.pieces.chunk_by(|one, next| one.source().end == next.from) {
            let range = run[0].from..run[run.len() - 1].source().end;
            let (bytes, after) = rest.split_at_mut((range.end - range.start) as usize);
            rest = after;
            let data = data_runs(device, range.clone()).collect::<Result<Vec<_>, _>>()?;
            let mut data = data.into_iter().peekable();
            for piece in run {
                while data.next_if(|data| data.end <= piece.from).is_some() {}
                let is_data = |data: &Range<u64>| data.start < piece.source().end;
                self.has_data.push(data.peek().is_some_and(is_data));
            }
            let read = &self.has_data[self.has_data.len() - run.len()..];
            if read.contains(&true) {
                requests.push(Request::read_vectored(range.start, vec![IoSliceMut::new(bytes)]));
            }
        }
        device.submit(&mut requests)
    }

    /// Writes the bytes to their targets: neighbours in one request.
    fn write(&self, device: &dyn Device) -> Result<(), DeviceError> {
        let mut rest = &self.bytes[..];
        let mut placed = Vec::new();
        for (piece, has_data) in self.pieces.iter().zip(&self.has_data) {
            let (bytes, after) = rest.split_at(piece.length as usize);
            rest = after;
            placed.push((piece.target(), bytes, *has_data));
        }
        placed.sort_by_key(|(target, ..)| target.start);
        let is_one_request = |one: &(Range<u64>, &[u8], bool), next: &(Range<u64>, &[u8], bool)| {
            one.0.end == next.0.start && one.2 == next.2
        };
        let mut requests = Vec::new();
        for run in placed.chunk_by(is_one_request) {
            let target = run[0].0.start..run[run.len() - 1].0.end;
            if !run[0].2 {
                requests.push(Request::write_zeroes(target));
                continue;
            }
            let slices: Vec<_> = run.iter().map(|(_, bytes, _)| IoSlice::new(bytes)).collect();
            let is_long = target.end - target.start >= AROUND;
            if !(is_long && device.write_around(target.start, &slices)) {
                requests.push(Request::write_vectored(target.start, slices));
            }
        }
        device.submit(&mut requests)
    }
}

#[cfg(test)]
mod tests {
    use extant_device::MemoryDevice;

    use super::*;

    /// A device of 64 MiB with runs of random bytes and holes, and its bytes.
    fn filled() -> (MemoryDevice, Vec<u8>) {
        let device = MemoryDevice::new(64 << 20);
        let mut bytes = vec![0; 64 << 20];
        let mut state = 7_u64;
        for block in 0..(48 << 20) / 4096 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            if state >> 62 > 0 {
                bytes[block * 4096..(block + 1) * 4096].fill((state >> 40) as u8 | 1);
                let range = block * 4096..(block + 1) * 4096;
                device.write_at(range.start as u64, &bytes[range]).unwrap();
            }
        }
        // The targets hold what is overwritten, by zeros too.
        bytes[48 << 20..].fill(0xee);
        device.write_at(48 << 20, &bytes[48 << 20..]).unwrap();
        (device, bytes)
    }

    #[test]
    fn all_runs_are_at_their_new_places() {
        let (device, mut expected) = filled();
        // Runs longer than a window and of one block, to places that alternate.
        let (mut low, mut high) = (48 << 20, 60 << 20);
        let mut moves = vec![(0..9 << 20, low)];
        low += 9 << 20;
        for number in 0..1400 {
            let from = (10 << 20) + number * 8192;
            let to = if number % 2 == 0 { &mut low } else { &mut high };
            moves.push((from..from + 4096, *to));
            *to += 4096;
            if number % 3 == 0 {
                moves.push((from + 4096..from + 6144, high));
                high += 2048;
            }
        }
        let before = expected.clone();
        for (run, to) in &moves {
            let (from, to) = (run.start as usize..run.end as usize, *to as usize);
            expected[to..to + from.len()].copy_from_slice(&before[from]);
        }
        let mut told = 0;
        copy(&device, moves.iter().cloned(), |count| told += count).unwrap();
        let mut found = vec![0; 64 << 20];
        device.read_at(0, &mut found).unwrap();
        assert!(found == expected);
        assert_eq!(told, moves.len());
    }

    #[test]
    fn an_error_of_a_read_ends_the_copy() {
        let (device, _) = filled();
        let moves = [(0..4096, 48 << 20), ((64 << 20)..(64 << 20) + 4096, 50 << 20)];
        copy(&device, moves.into_iter(), |_| ()).unwrap_err();
    }
}
