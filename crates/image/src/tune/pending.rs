//! Changes that stay in memory until all of a request can be done: a request that is refused leaves
//! the device as it was.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use extant_device::{Device, DeviceError, Request, check_batch, check_range, run_in_memory};
use extant_layout::RunSet;
use extant_runtime::sync::RwLock;

/// Bytes that are compared and kept together.
const CHUNK: u64 = 4096;
/// Bytes read or written at once; whole chunks.
const PIECE: u64 = 1 << 20;

/// A device that reads as its base with the changes that were written to it. Only bytes that differ
/// from the base take memory: about 12 for each inode that gets another checksum. An
/// [`OverlayDevice`](extant_device::OverlayDevice) would keep whole blocks of the inode tables.
pub(super) struct Pending<D> {
    base: D,
    changes: RwLock<Changes>,
}

#[derive(Default)]
struct Changes {
    /// Chunks that were filled with zeroes.
    zeroed: RunSet,
    /// Changes to chunks, on top of their zeroes or of the base.
    edits: BTreeMap<u64, Edit>,
}

/// Runs of bytes in a chunk. Each has its place and its length, of two bytes each, in front of it.
struct Edit(Box<[u8]>);

impl Edit {
    /// The bytes of `now` that `before` has not; `None` if there are none.
    fn between(before: &[u8], now: &[u8]) -> Option<Self> {
        /// A shorter run of equal bytes takes more room as a border than as bytes.
        const BORDER: usize = 4;
        let mut runs: Vec<Range<usize>> = Vec::new();
        for at in (0..now.len()).filter(|&at| before[at] != now[at]) {
            match runs.last_mut() {
                Some(last) if at - last.end <= BORDER => last.end = at + 1,
                _ => runs.push(at..at + 1),
            }
        }
        let mut bytes = Vec::new();
        for run in &runs {
            // Within a chunk.
            bytes.extend_from_slice(&(run.start as u16).to_le_bytes());
            bytes.extend_from_slice(&(run.len() as u16).to_le_bytes());
            bytes.extend_from_slice(&now[run.clone()]);
        }
        (!runs.is_empty()).then(|| Self(bytes.into()))
    }

    fn runs(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let mut rest = &self.0[..];
        std::iter::from_fn(move || {
            let (head, after) = rest.split_first_chunk::<4>()?;
            let [at, len] = [[head[0], head[1]], [head[2], head[3]]].map(u16::from_le_bytes);
            let (bytes, after) = after.split_at(usize::from(len));
            rest = after;
            Some((usize::from(at), bytes))
        })
    }
}

impl Changes {
    /// Fills in the zeroes of a range that was read from the base.
    fn zero(&self, range: &Range<u64>, bytes: &mut [u8]) {
        for run in self.zeroed.runs_in(range.start / CHUNK..range.end.div_ceil(CHUNK)) {
            let part = cut(&(run.start * CHUNK..run.end * CHUNK), range);
            bytes[within(&part, range)].fill(0);
        }
    }

    /// Fills in the edits of a range.
    fn edit(&self, range: &Range<u64>, bytes: &mut [u8]) {
        for (chunk, edit) in self.edits.range(range.start / CHUNK..range.end.div_ceil(CHUNK)) {
            for (at, run) in edit.runs() {
                let start = chunk * CHUNK + at as u64;
                let part = cut(&(start..start + run.len() as u64), range);
                if part.start < part.end {
                    let from = (part.start - start) as usize;
                    let target = within(&part, range);
                    bytes[target.clone()].copy_from_slice(&run[from..from + target.len()]);
                }
            }
        }
    }
}

/// The part of `run` that lies in `range`.
fn cut(run: &Range<u64>, range: &Range<u64>) -> Range<u64> {
    run.start.max(range.start)..run.end.min(range.end)
}

/// The parts of `run` in front of `except` and after it.
pub(super) fn outside(
    run: &Range<u64>,
    except: &Range<u64>,
) -> impl Iterator<Item = Range<u64>> + use<> {
    let front = run.start..run.end.min(except.start);
    let rest = run.start.max(except.end)..run.end;
    [front, rest].into_iter().filter(|part| !part.is_empty())
}

/// The indexes of a part in the bytes of a range.
fn within(part: &Range<u64>, range: &Range<u64>) -> Range<usize> {
    (part.start - range.start) as usize..(part.end - range.start) as usize
}

/// Cuts a range at borders of [`PIECE`].
fn pieces(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let piece = at..((at / PIECE + 1) * PIECE).min(range.end);
        at = piece.end;
        (piece.start < piece.end).then_some(piece)
    })
}

impl<D: Device> Pending<D> {
    pub(super) fn new(base: D) -> Self {
        Self { base, changes: RwLock::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        let changes = self.changes.read();
        changes.edits.is_empty() && changes.zeroed.count() == 0
    }

    /// Whether all changes lie in runs of `length` bytes that begin at these places.
    pub(super) fn lies_in(&self, starts: &[u64], length: u64) -> bool {
        let changes = self.changes.read();
        let is_inside =
            |start: u64, end: u64| starts.iter().any(|&run| run <= start && end <= run + length);
        changes.zeroed.count() == 0
            && changes.edits.iter().all(|(chunk, edit)| {
                edit.runs().all(|(at, bytes)| {
                    let start = chunk * CHUNK + at as u64;
                    is_inside(start, start + bytes.len() as u64)
                })
            })
    }

    /// Writes the edited bytes, and no others, whose runs begin at the places that are `wanted`.
    pub(super) fn write_edits_to(
        &self,
        device: &dyn Device,
        wanted: impl Fn(u64) -> bool,
    ) -> Result<(), DeviceError> {
        let changes = self.changes.read();
        for (chunk, edit) in &changes.edits {
            for (at, bytes) in edit.runs() {
                let start = chunk * CHUNK + at as u64;
                if wanted(start) {
                    device.write_at(start, bytes)?;
                }
            }
        }
        Ok(())
    }

    /// The blocks that hold changes.
    pub(super) fn blocks(&self, block_size: u32) -> RunSet {
        let size = u64::from(block_size);
        let changes = self.changes.read();
        let mut blocks = RunSet::new();
        for run in changes.zeroed.iter() {
            let bytes = self.bytes_of(&run);
            blocks.insert(bytes.start / size..bytes.end.div_ceil(size));
        }
        for (chunk, edit) in &changes.edits {
            for (at, bytes) in edit.runs() {
                let start = chunk * CHUNK + at as u64;
                blocks.insert(start / size..(start + bytes.len() as u64).div_ceil(size));
            }
        }
        blocks
    }

    /// Writes all changes outside of `except`, in the order of the device.
    pub(super) fn write_to(
        &self,
        device: &dyn Device,
        except: &Range<u64>,
    ) -> Result<(), DeviceError> {
        for part in outside(&(0..self.base.size()), except) {
            self.write_range(device, &part)?;
        }
        Ok(())
    }

    /// Writes the changes in a range, in the order of the device.
    pub(super) fn write_range(
        &self,
        device: &dyn Device,
        range: &Range<u64>,
    ) -> Result<(), DeviceError> {
        let chunks = range.start / CHUNK..range.end.div_ceil(CHUNK);
        let (zeroed, edited) = {
            let changes = self.changes.read();
            let mut edited = RunSet::new();
            for (chunk, _) in changes.edits.range(chunks.clone()) {
                edited.insert(*chunk..chunk + 1);
            }
            (changes.zeroed.runs_in(chunks).collect::<Vec<_>>(), edited)
        };
        for part in zeroed.iter().map(|run| cut(&self.bytes_of(run), range)) {
            if part.start < part.end {
                device.write_zeroes(part)?;
            }
        }
        for piece in edited.iter().flat_map(|run| pieces(cut(&self.bytes_of(&run), range))) {
            let mut bytes = vec![0; (piece.end - piece.start) as usize];
            self.read_at(piece.start, &mut bytes)?;
            device.write_at(piece.start, &bytes)?;
        }
        Ok(())
    }

    /// The bytes of chunks; the end of the device may cut the last one.
    fn bytes_of(&self, chunks: &Range<u64>) -> Range<u64> {
        chunks.start * CHUNK..(chunks.end * CHUNK).min(self.base.size())
    }

    fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), DeviceError> {
        let range = offset..offset + to.len() as u64;
        self.base.read_at(offset, to)?;
        let changes = self.changes.read();
        changes.zero(&range, to);
        changes.edit(&range, to);
        Ok(())
    }

    fn write(&self, offset: u64, from: &[u8]) -> Result<(), DeviceError> {
        let range = offset..offset + from.len() as u64;
        let mut changes = self.changes.write();
        for piece in pieces(range.clone()) {
            let chunks = piece.start / CHUNK..piece.end.div_ceil(CHUNK);
            let whole = self.bytes_of(&chunks);
            let mut before = vec![0; (whole.end - whole.start) as usize];
            self.base.read_at(whole.start, &mut before)?;
            changes.zero(&whole, &mut before);
            let mut now = before.clone();
            changes.edit(&whole, &mut now);
            now[within(&piece, &whole)].copy_from_slice(&from[within(&piece, &range)]);
            let parts = before.chunks(CHUNK as usize).zip(now.chunks(CHUNK as usize));
            for (chunk, (before, now)) in chunks.zip(parts) {
                match Edit::between(before, now) {
                    Some(edit) => changes.edits.insert(chunk, edit),
                    None => changes.edits.remove(&chunk),
                };
            }
        }
        Ok(())
    }

    fn zero(&self, range: Range<u64>) -> Result<(), DeviceError> {
        // The end of the device completes its last chunk.
        let end = match range.end == self.base.size() {
            true => range.end.div_ceil(CHUNK),
            false => range.end / CHUNK,
        };
        let whole = range.start.div_ceil(CHUNK)..end;
        if whole.is_empty() {
            return self.write(range.start, &vec![0; (range.end - range.start) as usize]);
        }
        {
            let mut changes = self.changes.write();
            let mut after = changes.edits.split_off(&whole.start);
            changes.edits.append(&mut after.split_off(&whole.end));
            changes.zeroed.insert(whole.clone());
        }
        let bytes = self.bytes_of(&whole);
        for rest in [range.start..bytes.start, bytes.end..range.end] {
            self.write(rest.start, &vec![0; (rest.end - rest.start) as usize])?;
        }
        Ok(())
    }
}

impl<D: Device> Device for Pending<D> {
    fn size(&self) -> u64 {
        self.base.size()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        check_batch(self, batch)?;
        run_in_memory(
            batch,
            |offset, to| self.read(offset, to),
            |offset, from| self.write(offset, from),
            |range| self.zero(range),
        )
    }

    fn next_data(&self, range: Range<u64>) -> Result<Option<Range<u64>>, DeviceError> {
        check_range(self.size(), &range)?;
        let changes = self.changes.read();
        let mut at = range.start;
        while at < range.end {
            let chunk = at / CHUNK;
            let (next, end) = (chunk + 1, range.end.div_ceil(CHUNK));
            if changes.edits.contains_key(&chunk) {
                return Ok(Some(at..(next * CHUNK).min(range.end)));
            }
            let mut limit =
                changes.edits.range(next..end.max(next)).next().map_or(end, |(at, _)| *at);
            if let Some(zeroes) = changes.zeroed.run_at(chunk) {
                at = zeroes.end.min(limit) * CHUNK;
                continue;
            }
            if let Some(zeroes) = changes.zeroed.runs_in(chunk..limit).next() {
                limit = zeroes.start;
            }
            let limit = (limit * CHUNK).min(range.end);
            if let Some(run) = self.base.next_data(at..limit)? {
                return Ok(Some(run));
            }
            at = limit;
        }
        Ok(None)
    }

    fn is_read_only(&self) -> bool {
        self.base.is_read_only()
    }

    fn sector_size(&self) -> u32 {
        self.base.sector_size()
    }

    fn discard_reads_zero(&self) -> bool {
        true
    }

    fn will_need(&self, range: Range<u64>) {
        self.base.will_need(range);
    }
}

impl<D: Device> fmt::Debug for Pending<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("base", &self.base).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use extant_device::MemoryDevice;
    use extant_testkit::tree::Random;

    use super::*;

    /// Random changes read as on a device that is written at once; the base changes only by
    /// [`Pending::write_to`], and then has all of them.
    #[test]
    fn changes_read_as_on_a_device_until_they_are_written() {
        // The last chunk is cut.
        const SIZE: u64 = (2 << 20) + 1024;
        for seed in 1..20 {
            let mut random = Random::new(seed);
            let first = random.bytes(SIZE as usize);
            let base = Arc::new(MemoryDevice::from_bytes(&first));
            let (pending, twin) = (Pending::new(base.clone()), MemoryDevice::from_bytes(&first));
            let (mut now, mut kept) = (vec![0; SIZE as usize], vec![0; SIZE as usize]);
            for _ in 0..40 {
                let start = random.below(SIZE);
                let most = if random.below(4) == 0 { SIZE } else { 9000 };
                let len = random.below(most);
                let range = start..(start + len).min(SIZE);
                match random.below(3) {
                    0 => {
                        pending.write_zeroes(range.clone()).unwrap();
                        twin.write_zeroes(range).unwrap();
                    }
                    _ => {
                        let bytes = random.bytes((range.end - range.start) as usize);
                        pending.write_at(range.start, &bytes).unwrap();
                        twin.write_at(range.start, &bytes).unwrap();
                    }
                }
                pending.read_at(0, &mut now).unwrap();
                twin.read_at(0, &mut kept).unwrap();
                assert!(now == kept, "seed {seed}");
                let (from, to) = (random.below(SIZE), SIZE);
                let mut read = vec![0; (to - from) as usize];
                pending.read_at(from, &mut read).unwrap();
                assert!(read == kept[from as usize..], "seed {seed}, from {from}");
                let mut at = 0;
                for run in pending.data_ranges(0..SIZE).unwrap() {
                    let hole = &kept[at as usize..run.start as usize];
                    assert!(hole.iter().all(|byte| *byte == 0), "seed {seed}");
                    at = run.end;
                }
            }
            base.read_at(0, &mut now).unwrap();
            assert!(now == first, "seed {seed}");
            pending.write_to(&*base, &(1024..2048)).unwrap();
            base.read_at(0, &mut now).unwrap();
            kept[1024..2048].copy_from_slice(&first[1024..2048]);
            assert!(now == kept, "seed {seed}");
        }
    }

    #[test]
    fn bytes_written_as_they_were_are_no_change() {
        let base = Arc::new(MemoryDevice::from_bytes(&[7; 3 * CHUNK as usize]));
        let pending = Pending::new(base);
        pending.write_at(100, &[7; 5000]).unwrap();
        assert!(pending.is_empty());
        pending.write_at(CHUNK - 2, &[1; 4]).unwrap();
        assert!(pending.lies_in(&[CHUNK - 2], 4) && !pending.lies_in(&[CHUNK - 2], 3));
        pending.write_at(CHUNK - 2, &[7; 4]).unwrap();
        assert!(pending.is_empty());
    }
}
