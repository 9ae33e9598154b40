//! One thread, and the operations that it draws.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use extant::AlignedBuffer;
use fastrand::Rng;

use super::names::{Choice, Names, Use, UsedFile};
use super::profile::{
    Call, FileSet, Fill, Operation, Profile, ReadOrder, Sizes, Stats, ThreadGroup,
};
use super::trial::{Counts, Group};
use super::{RunError, failed};
use crate::files::{Access, Files, Intent, OpenFile};

/// Alignment of memory, offsets and lengths of direct requests.
const ALIGNMENT: usize = 4096;

/// How often a waiting thread tests whether the run has ended.
const POLL: Duration = Duration::from_millis(50);

/// A file set while it is used.
#[derive(Debug)]
pub(super) struct LiveSet<'p> {
    pub(super) spec: &'p FileSet,
    pub(super) data: Names,
    pub(super) meta: Names,
    /// Files that only ageing uses.
    pub(super) fill: Names,
}

impl<'p> LiveSet<'p> {
    pub(super) fn new(spec: &'p FileSet) -> Self {
        let data = spec.location.join("data");
        Self {
            spec,
            fill: Names::new(data.clone(), "fillfile", 0),
            data: Names::new(data, "datafile", 0),
            meta: Names::new(spec.location.join("meta"), "metafile", 0),
        }
    }
}

/// Whether a run continues.
#[derive(Debug, Default)]
pub(super) struct End(AtomicBool);

impl End {
    /// Ends the run: operations in flight are finished.
    pub(super) fn call(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_here(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Waits so long, or until the end.
    pub(super) fn wait(&self, delay: Duration) {
        let until = Instant::now() + delay;
        while !self.is_here() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            thread::sleep(left.min(POLL));
        }
    }
}

/// Counts and times of one thread.
pub(super) struct Record<'p> {
    pub(super) group: Group,
    stats: Option<&'p Stats>,
}

impl<'p> Record<'p> {
    pub(super) fn new(stats: Option<&'p Stats>) -> Self {
        Self { group: Group::new(stats), stats }
    }

    fn timed<T>(&mut self, call: Call, work: impl FnOnce() -> T) -> T {
        let Some(stats) = self.stats else { return work() };
        let start = Instant::now();
        let result = work();
        self.group.time(stats, call, start.elapsed());
        result
    }
}

/// A thread of a group.
pub(super) struct Worker<'p> {
    pub(super) files: &'p dyn Files,
    pub(super) group: &'p ThreadGroup,
    pub(super) sets: &'p [LiveSet<'p>],
    pub(super) end: &'p End,
    pub(super) direct: bool,
    pub(super) aligned: bool,
    /// It works on the files of ageing.
    pub(super) ages: bool,
    pub(super) random: Rng,
    pub(super) buffer: AlignedBuffer,
    pub(super) record: Record<'p>,
}

/// Memory for calls of `len` bytes.
pub(super) fn buffer(len: u64, profile: &Profile, random: &mut Rng) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::new(len as usize, ALIGNMENT);
    match profile.fill {
        Fill::Zero => {}
        Fill::Random => random.fill(&mut buffer),
        Fill::Pattern => {
            for (number, word) in (0_u64..).zip(buffer.chunks_mut(8)) {
                word.copy_from_slice(&number.to_le_bytes()[..word.len()]);
            }
        }
    }
    buffer
}

/// A size for a new file.
pub(super) fn draw_size(sizes: &Sizes, random: &mut Rng) -> u64 {
    match sizes {
        Sizes::Uniform { min, max } if min == max => *min,
        Sizes::Uniform { min, max } => random.u64(*min..*max),
        Sizes::Weighted(weighted) => {
            let total = weighted.iter().map(|(_, weight)| u64::from(*weight)).sum();
            let drawn = draw(weighted.iter().map(|(_, weight)| *weight), total, random);
            weighted[drawn].0
        }
    }
}

/// The number of the drawn weight; `total` is their sum, and not zero.
fn draw(weights: impl Iterator<Item = u32>, total: u64, random: &mut Rng) -> usize {
    let mut left = random.u64(..total);
    for (number, weight) in weights.enumerate() {
        let weight = u64::from(weight);
        if left < weight {
            return number;
        }
        left -= weight;
    }
    unreachable!("less than the sum of the weights was drawn")
}

/// Fills a new file, whose number of writes it returns.
pub(super) fn fill_file(
    file: &dyn OpenFile,
    size: u64,
    bytes: &[u8],
    mut write: impl FnMut(&dyn OpenFile, &[u8], u64) -> io::Result<()>,
) -> io::Result<u64> {
    let mut writes = 0;
    let mut at = 0;
    while at < size {
        let count = (size - at).min(bytes.len() as u64);
        write(file, &bytes[..count as usize], at)?;
        at += count;
        writes += 1;
    }
    Ok(writes)
}

impl Worker<'_> {
    /// Works until the end.
    pub(super) fn run(&mut self) -> Result<(), RunError> {
        while !self.end.is_here() {
            let total = self.group.total_weight();
            let drawn = draw(self.group.weights.into_iter(), total, &mut self.random);
            let operation = Operation::ALL[drawn];
            let set = self.group.bound.unwrap_or_else(|| self.random.usize(..self.sets.len()));
            if let Some(counts) = self.operate(operation, &self.sets[set])? {
                self.record.group.count(operation, counts);
            }
            if !self.group.delay.is_zero() {
                self.end.wait(self.group.delay);
            }
        }
        Ok(())
    }

    /// Does one operation; `None` if the run ended while it waited for a file.
    fn operate(
        &mut self,
        operation: Operation,
        set: &LiveSet<'_>,
    ) -> Result<Option<Counts>, RunError> {
        let names = if self.ages { &set.fill } else { &set.data };
        let one = Counts { operations: 1, transactions: 1, ..Counts::default() };
        let how = if operation == Operation::Delete { Use::Alone } else { Use::Shared };
        let file = match operation {
            Operation::Create | Operation::CreateFsync => {
                return self.create(operation, set, names).map(Some);
            }
            Operation::Meta => return Ok(self.meta(set)?.then_some(one)),
            Operation::CreateDir => {
                let (files, record) = (self.files, &mut self.record);
                let make = |path: &Path| {
                    let made = record.timed(Call::Mkdir, || files.create_dir(path));
                    made.map_err(failed("make", path))
                };
                return names.add_dir(make).map(|()| Some(one));
            }
            _ => match self.choose(names, how, operation)? {
                Some(file) => file,
                None => return Ok(None),
            },
        };
        let path = file.path.clone();
        let counts = match operation {
            Operation::Delete => {
                let removed = self.record.timed(Call::Unlink, || self.files.remove_file(&path));
                removed.map_err(failed("remove", &path))?;
                names.removed(file);
                return Ok(Some(one));
            }
            Operation::Stat => {
                let found = self.record.timed(Call::Stat, || self.files.size(&path));
                return found.map(|_| Some(one)).map_err(failed("stat", &path));
            }
            Operation::OpenClose => {
                let opened = self.open(&path, Intent::Read)?;
                self.close(opened);
                return Ok(Some(one));
            }
            Operation::Read => self.read(&path),
            Operation::ReadAll => self.read_all(&path),
            Operation::Write | Operation::WriteFsync => self.write(operation, &path),
            Operation::WriteAll | Operation::WriteAllFsync => self.write_all(operation, &path),
            // The file is released as soon as it is open.
            _ => return self.append(operation, file).map(Some),
        };
        drop(file);
        counts.map(Some)
    }

    /// A file for an operation; `None` if the run ends before one is free.
    fn choose(
        &mut self,
        names: &Names,
        how: Use,
        operation: Operation,
    ) -> Result<Option<UsedFile>, RunError> {
        while !self.end.is_here() {
            match names.choose(&mut self.random, how) {
                Choice::File(file) => return Ok(Some(file)),
                Choice::AllInUse => thread::yield_now(),
                // In ageing everything may be deleted for a while.
                Choice::NoFile if self.ages => return Ok(None),
                Choice::NoFile => {
                    let path = names.root().to_owned();
                    return Err(RunError::NoFile { operation: operation.name(), path });
                }
            }
        }
        Ok(None)
    }

    fn open(&mut self, path: &Path, intent: Intent) -> Result<Box<dyn OpenFile>, RunError> {
        let access = Access { intent, direct: self.direct };
        let call = if intent == Intent::Create { Call::Create } else { Call::Open };
        let opened = self.record.timed(call, || self.files.open(path, access));
        opened.map_err(failed("open", path))
    }

    fn close(&mut self, file: Box<dyn OpenFile>) {
        self.record.timed(Call::Close, || drop(file));
    }

    /// The end of every writing operation.
    fn finish(
        &mut self,
        operation: Operation,
        file: Box<dyn OpenFile>,
        path: &Path,
    ) -> Result<(), RunError> {
        let syncs = matches!(
            operation,
            Operation::WriteFsync
                | Operation::WriteAllFsync
                | Operation::CreateFsync
                | Operation::AppendFsync
        );
        if syncs || self.group.write.fsync {
            let synced = self.record.timed(Call::Fsync, || file.sync());
            synced.map_err(failed("fsync", path))?;
        }
        self.close(file);
        Ok(())
    }

    /// A place for `len` bytes in a file of `size`, which has them.
    fn place(&mut self, size: u64, len: u64) -> u64 {
        let place = self.random.u64(..=size - len);
        if self.aligned { place - place % ALIGNMENT as u64 } else { place }
    }

    fn check_size(
        operation: Operation,
        file: &dyn OpenFile,
        path: &Path,
        wanted: u64,
    ) -> Result<u64, RunError> {
        let size = file.size().map_err(failed("stat", path))?;
        if size < wanted {
            let path = path.to_owned();
            return Err(RunError::TooSmall { operation: operation.name(), path, size, wanted });
        }
        Ok(size)
    }

    fn read(&mut self, path: &Path) -> Result<Counts, RunError> {
        let reading = self.group.read;
        let blocks = reading.size.div_ceil(reading.block);
        let step = match reading.order {
            ReadOrder::Strided(skip) => reading.block.saturating_add(skip),
            _ => reading.block,
        };
        // From the first byte to the last.
        let last = reading.size - (blocks - 1) * reading.block;
        let span = (blocks - 1).saturating_mul(step).saturating_add(last);
        let file = self.open(path, Intent::Read)?;
        let wanted = if reading.order == ReadOrder::Random { reading.size } else { span };
        let size = Self::check_size(Operation::Read, &*file, path, wanted)?;
        let first = match reading.order {
            ReadOrder::Sequential => self.place(size, span),
            ReadOrder::Random | ReadOrder::Strided(_) => 0,
        };
        for number in 0..blocks {
            let len = if number + 1 == blocks { last } else { reading.block };
            let at = match reading.order {
                ReadOrder::Random => self.place(size, len),
                _ => first + number * step,
            };
            self.read_block(&*file, path, at, len)?;
        }
        self.close(file);
        let transactions = reading.size / reading.block;
        Ok(Counts { operations: 1, transactions, read_bytes: reading.size, written_bytes: 0 })
    }

    fn read_all(&mut self, path: &Path) -> Result<Counts, RunError> {
        let block = self.group.read.block;
        let file = self.open(path, Intent::Read)?;
        let size = file.size().map_err(failed("stat", path))?;
        let mut at = 0;
        while at < size {
            let len = block.min(size - at);
            self.read_block(&*file, path, at, len)?;
            at += len;
        }
        self.close(file);
        Ok(Counts { operations: 1, transactions: size / block, read_bytes: size, written_bytes: 0 })
    }

    fn read_block(
        &mut self,
        file: &dyn OpenFile,
        path: &Path,
        at: u64,
        len: u64,
    ) -> Result<(), RunError> {
        // Direct requests are whole sectors: the read at the end of a file requests the bytes after
        // it too.
        let whole = if self.direct { len.next_multiple_of(ALIGNMENT as u64) } else { len } as usize;
        let bytes = &mut self.buffer[..whole];
        let read = self.record.timed(Call::Read, || file.read_at(bytes, at));
        let count = read.map_err(failed("read", path))?;
        if (count as u64) < len {
            return Err(RunError::Short { path: path.to_owned() });
        }
        Ok(())
    }

    fn write_block(
        &mut self,
        file: &dyn OpenFile,
        path: &Path,
        at: u64,
        len: u64,
    ) -> Result<(), RunError> {
        let bytes = &self.buffer[..len as usize];
        let written = self.record.timed(Call::Write, || file.write_at(bytes, at));
        written.map_err(failed("write", path))
    }

    fn write(&mut self, operation: Operation, path: &Path) -> Result<Counts, RunError> {
        let writing = self.group.write;
        let file = self.open(path, Intent::Write)?;
        let size = Self::check_size(operation, &*file, path, writing.size)?;
        let first = self.place(size, writing.size);
        let mut done = 0;
        while done < writing.size {
            let len = writing.block.min(writing.size - done);
            let at = if writing.is_random { self.place(size, len) } else { first + done };
            self.write_block(&*file, path, at, len)?;
            done += len;
        }
        self.finish(operation, file, path)?;
        let transactions = writing.size.div_ceil(writing.block);
        Ok(Counts { operations: 1, transactions, read_bytes: 0, written_bytes: done })
    }

    fn write_all(&mut self, operation: Operation, path: &Path) -> Result<Counts, RunError> {
        let file = self.open(path, Intent::Write)?;
        let size = file.size().map_err(failed("stat", path))?;
        let transactions = self.fill(&*file, path, size)?;
        self.finish(operation, file, path)?;
        Ok(Counts { operations: 1, transactions, read_bytes: 0, written_bytes: size })
    }

    /// Writes a file from its start on.
    fn fill(&mut self, file: &dyn OpenFile, path: &Path, size: u64) -> Result<u64, RunError> {
        let bytes = &self.buffer[..self.group.write.block as usize];
        let record = &mut self.record;
        let write = |file: &dyn OpenFile, bytes: &[u8], at| {
            record.timed(Call::Write, || file.write_at(bytes, at))
        };
        fill_file(file, size, bytes, write).map_err(failed("write", path))
    }

    fn create(
        &mut self,
        operation: Operation,
        set: &LiveSet<'_>,
        names: &Names,
    ) -> Result<Counts, RunError> {
        let used = names.next(&mut self.random);
        let size = draw_size(&set.spec.sizes, &mut self.random);
        let file = self.open(&used.path, Intent::Create)?;
        let transactions = self.fill(&*file, &used.path, size)?;
        self.finish(operation, file, &used.path)?;
        names.made(&used);
        Ok(Counts { operations: 1, transactions, read_bytes: 0, written_bytes: size })
    }

    fn append(&mut self, operation: Operation, used: UsedFile) -> Result<Counts, RunError> {
        let writing = self.group.write;
        let path = used.path.clone();
        let mut file = self.open(&path, Intent::Append)?;
        drop(used);
        let mut done = 0;
        while done < writing.size {
            let len = writing.block.min(writing.size - done);
            let bytes = &self.buffer[..len as usize];
            let written = self.record.timed(Call::Write, || file.append(bytes));
            written.map_err(failed("append to", &path))?;
            done += len;
        }
        self.finish(operation, file, &path)?;
        let transactions = writing.size.div_ceil(writing.block);
        Ok(Counts { operations: 1, transactions, read_bytes: 0, written_bytes: done })
    }

    /// Makes two directories, removes one and renames one; `false` if the run ended during it.
    fn meta(&mut self, set: &LiveSet<'_>) -> Result<bool, RunError> {
        let files = self.files;
        for _ in 0..2 {
            let used = set.meta.next(&mut self.random);
            let made = self.record.timed(Call::Mkdir, || files.create_dir(&used.path));
            made.map_err(failed("make", &used.path))?;
            set.meta.made(&used);
        }
        let Some(used) = self.choose(&set.meta, Use::Alone, Operation::Meta)? else {
            return Ok(false);
        };
        let removed = self.record.timed(Call::Rmdir, || files.remove_dir(&used.path));
        removed.map_err(failed("remove", &used.path))?;
        set.meta.removed(used);
        let Some(used) = self.choose(&set.meta, Use::Alone, Operation::Meta)? else {
            return Ok(false);
        };
        let record = &mut self.record;
        set.meta.rename(&used, |from, to| {
            let renamed = record.timed(Call::Rename, || files.rename(from, to));
            renamed.map_err(failed("rename", from))
        })?;
        Ok(true)
    }
}
