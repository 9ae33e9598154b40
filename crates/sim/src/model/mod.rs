//! A simulated drive: real contents, and times of a drive that is not there.
//!
//! A [`ModelDevice`] runs in a stepped runtime ([`Env::stepped`]): the time of a request passes on
//! that runtime's clock, and the host's is never read. The same requests at the same times take the
//! same durations, on every machine and at any speed of the simulation. Times are those of a
//! [`Preset`], by a seek curve, rotation, zones, memory for reading ahead and a write cache
//! (rotating drives), or by latency, requests at once and a rate (flash).
//!
//! A batch is queued whole, as far as flushes allow, in the order of places; the drive then takes
//! the nearest first. Callers that submit at the same time share the queue. A request costs a
//! processor [`costs::REQUEST`] and the copying of its bytes. The drive cannot tell holes: to it,
//! zeroes are data.

mod contents;
pub mod costs;
mod disk;
mod flash;
mod geometry;
mod pattern_file;
mod preset;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use extant_device::DeviceError;
use extant_device::FileDevice;
use extant_device::{Device, Request, RequestKind, check_batch, check_range, run_batch};
use extant_runtime::env::{Env, WallTime};
use extant_runtime::sync::Mutex;

pub use pattern_file::{PatternFile, PatternFileError};
pub use preset::{DriveKind, Flash, PRESETS, Preset, Rotating};

use contents::Contents;
use disk::{Command, Disk, Standing};
use flash::FlashDrive;

/// Number of bytes of the largest request that the drive gets: longer ones of the host are split.
const MOST_AT_ONCE: u64 = 512 << 10;
/// Number of bytes that were read ahead and not read yet that are kept at most.
const MOST_FETCHED: u64 = 64 << 20;

/// The wall clock of a simulated world begins on 2037-01-01: nothing that an image of today holds
/// lies beyond it, and times of 32 bits do not end soon.
const BEGIN: WallTime = WallTime { seconds: 2_114_380_800, nanoseconds: 0 };

/// How a drive is simulated.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ModelOptions {
    /// Chooses among the events of the runtime at one time.
    pub seed: u64,
    /// Bytes of the contents in memory at most, aside from long runs that repeat a word.
    pub memory: u64,
    /// Processors of the world.
    pub processors: usize,
}

impl Default for ModelOptions {
    fn default() -> Self {
        Self { seed: 1, memory: 1 << 30, processors: 2 }
    }
}

/// A simulated drive with the contents of an image. See the [module](self).
pub struct ModelDevice {
    preset: &'static Preset,
    env: Env,
    size: u64,
    read_only: bool,
    contents: Mutex<Contents>,
    drive: Mutex<Drive>,
}

struct Drive {
    state: State,
    /// Ranges that were prefetched, with their tickets; the oldest first.
    fetched: Vec<(Range<u64>, Fetch)>,
    /// Requests that have several waiters, or were prefetched by several: the number beyond the
    /// first.
    shared: BTreeMap<disk::Ticket, usize>,
}

enum State {
    Rotating(Box<Disk>),
    Flash(FlashDrive),
}

/// A request that was put in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fetch {
    Queued(disk::Ticket),
    Done(u64),
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl ModelDevice {
    /// The pattern file of `image`, to be opened while paths are reachable, and before the image is
    /// opened.
    ///
    /// # Errors
    /// The system refused, or the image was changed since.
    pub fn open_pattern_file(
        image: &Path,
        write: bool,
    ) -> Result<Option<PatternFile>, PatternFileError> {
        PatternFile::open(image, write)
    }

    /// A drive with the contents of `image`, to which they go back when the device is dropped.
    ///
    /// # Errors
    /// `words` are not those of the image.
    pub fn new(
        preset: &'static Preset,
        image: Arc<FileDevice>,
        words: Option<PatternFile>,
        options: &ModelOptions,
    ) -> Result<Self, PatternFileError> {
        let size = image.size();
        let state = match &preset.kind {
            DriveKind::Rotating(figures) => {
                State::Rotating(Box::new(Disk::new(preset, figures, size)))
            }
            DriveKind::Flash(figures) => State::Flash(FlashDrive::new(preset, figures)),
        };
        Ok(Self {
            preset,
            env: Env::stepped_at(options.seed, BEGIN).with_processors(options.processors),
            size,
            read_only: image.is_read_only(),
            contents: Mutex::new(Contents::new(image, words, options.memory)?),
            drive: Mutex::new(Drive { state, fetched: Vec::new(), shared: BTreeMap::new() }),
        })
    }

    /// The kind of drive.
    pub fn preset(&self) -> &'static Preset {
        self.preset
    }

    /// Bytes of the contents that are in memory and repeat no word.
    pub fn held(&self) -> u64 {
        self.contents.lock().held()
    }

    /// Runs of blocks in memory that repeat a word each.
    pub fn runs(&self) -> usize {
        self.contents.lock().runs()
    }

    /// The clock that the drive runs on, and the background work for its user.
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// Writes the contents to the image. Dropping the device does so too, and logs a failure.
    ///
    /// # Errors
    /// The system failed.
    pub fn finish(&self) -> Result<(), DeviceError> {
        self.contents.lock().finish()
    }

    fn now(&self) -> u64 {
        nanos(self.env.elapsed())
    }

    fn perform(&self, request: &mut Request<'_>) -> Result<(), DeviceError> {
        let (offset, length) = (request.offset(), request.length());
        let mut contents = self.contents.lock();
        match &mut request.kind {
            RequestKind::Read { buffers, .. } => {
                buffers.fill(offset, |at, buffer| contents.read(at, buffer))
            }
            RequestKind::Write { buffers, .. } => {
                buffers.store(offset, |at, buffer| contents.write(at, buffer))
            }
            RequestKind::WriteZeroes { .. } => contents.zero(offset..offset + length),
            RequestKind::Discard { .. } if self.discard_reads_zero() => {
                contents.zero(offset..offset + length)
            }
            RequestKind::Discard { .. } | RequestKind::Flush => Ok(()),
        }
    }

    /// Lets the times of requests pass that were carried out; `None` is a flush.
    fn pass(&self, commands: Vec<Option<Command>>) {
        for part in commands.split_inclusive(Option::is_none) {
            let mut asked: Vec<Command> = part.iter().flatten().cloned().collect();
            asked.sort_by_key(|command| match command {
                Command::Read(range) | Command::Write(range) => range.start,
                Command::Flush => u64::MAX,
            });
            let cost: u64 = asked.iter().map(length_of).sum();
            self.env.spend(costs::REQUEST * part.len() as u32 + costs::bytes(cost));
            self.wait(asked);
            if part.last().is_some_and(Option::is_none) {
                self.wait(vec![Command::Flush]);
            }
        }
    }

    /// Puts requests in and waits until all are done.
    fn wait(&self, commands: Vec<Command>) {
        let now = self.now();
        let mut last = now;
        let mut tickets = BTreeSet::new();
        {
            let mut drive = self.drive.lock();
            let mut open: Vec<Fetch> = Vec::with_capacity(commands.len());
            for command in commands {
                match command {
                    Command::Read(range) => drive.read(now, range, &mut open),
                    other => drive.put(now, other, &mut open),
                }
            }
            for fetch in open {
                match fetch {
                    Fetch::Queued(ticket) if tickets.insert(ticket) => {}
                    // Two requests of a batch wait for one piece that was fetched ahead: one asks.
                    Fetch::Queued(_) => drive.release(fetch),
                    Fetch::Done(at) => last = last.max(at),
                }
            }
        }
        while !tickets.is_empty() {
            let now = self.now();
            let until = self.drive.lock().settle(now, &mut tickets, &mut last);
            if !tickets.is_empty() {
                self.env.sleep_until(Duration::from_nanos(until));
            }
        }
        self.env.sleep_until(Duration::from_nanos(last));
    }
}

fn length_of(command: &Command) -> u64 {
    match command {
        Command::Read(range) | Command::Write(range) => range.end - range.start,
        Command::Flush => 0,
    }
}

impl Drive {
    /// Puts a request in, in pieces that a drive takes at once.
    fn put(&mut self, now: u64, command: Command, open: &mut Vec<Fetch>) {
        let range = match &command {
            Command::Read(range) => range.clone(),
            Command::Write(range) => {
                let range = range.clone();
                self.forget(&range);
                range
            }
            Command::Flush => return open.push(self.put_one(now, Command::Flush)),
        };
        let mut at = range.start;
        while at < range.end {
            let end = range.end.min(at + MOST_AT_ONCE);
            let piece = match command {
                Command::Read(_) => Command::Read(at..end),
                _ => Command::Write(at..end),
            };
            open.push(self.put_one(now, piece));
            at = end;
        }
    }

    fn put_one(&mut self, now: u64, command: Command) -> Fetch {
        match (&mut self.state, command) {
            (State::Rotating(disk), command) => Fetch::Queued(disk.submit(now, command)),
            (State::Flash(flash), Command::Read(part)) => Fetch::Done(flash.read(now, &part)),
            (State::Flash(flash), Command::Write(part)) => Fetch::Done(flash.write(now, &part)),
            (State::Flash(flash), Command::Flush) => Fetch::Done(flash.flush(now)),
        }
    }

    /// Reads what was not fetched ahead, and waits for what was.
    fn read(&mut self, now: u64, range: Range<u64>, open: &mut Vec<Fetch>) {
        let mut at = range.start;
        while at < range.end {
            let holds = |(held, _): &(Range<u64>, Fetch)| held.start <= at && at < held.end;
            if let Some(index) = self.fetched.iter().position(holds) {
                let (held, fetch) = self.fetched[index].clone();
                open.push(match self.standing(now, fetch) {
                    Standing::Done(moment) => Fetch::Done(moment),
                    Standing::Until(_) => {
                        self.hold(fetch);
                        fetch
                    }
                });
                at = held.end;
                // Data that were read are not kept: another read asks the drive again.
                if held.end <= range.end {
                    let (_, fetch) = self.fetched.remove(index);
                    self.release(fetch);
                }
                continue;
            }
            let later = self.fetched.iter().map(|(held, _)| held.start);
            let next = later.filter(|start| *start > at).min().unwrap_or(u64::MAX).min(range.end);
            self.put(now, Command::Read(at..next), open);
            at = next;
        }
    }

    /// Asks for a range that has no waiter yet.
    fn fetch(&mut self, now: u64, range: Range<u64>) {
        let is_there =
            |(held, _): &(Range<u64>, Fetch)| held.start < range.end && range.start < held.end;
        if range.is_empty() || self.fetched.iter().any(is_there) {
            return;
        }
        let mut at = range.start;
        while at < range.end {
            let end = range.end.min(at + MOST_AT_ONCE);
            let mut open = Vec::with_capacity(1);
            self.put(now, Command::Read(at..end), &mut open);
            self.fetched.extend(open.into_iter().map(|fetch| (at..end, fetch)));
            at = end;
        }
        let mut held: u64 = self.fetched.iter().map(|(held, _)| held.end - held.start).sum();
        while held > MOST_FETCHED {
            let (oldest, fetch) = self.fetched.remove(0);
            held -= oldest.end - oldest.start;
            // The drive decides what it can before the next request comes.
            let _ = self.standing(now, fetch);
            self.release(fetch);
        }
    }

    /// Prefetched data are stale now. A waiter that waits for it already continues to wait.
    fn forget(&mut self, range: &Range<u64>) {
        let is_changed =
            |(held, _): &(Range<u64>, Fetch)| held.start < range.end && range.start < held.end;
        while let Some(index) = self.fetched.iter().position(is_changed) {
            let (_, fetch) = self.fetched.remove(index);
            self.release(fetch);
        }
    }

    /// One more asks about a request.
    fn hold(&mut self, fetch: Fetch) {
        if let Fetch::Queued(ticket) = fetch {
            *self.shared.entry(ticket).or_default() += 1;
        }
    }

    /// A waiter of a request gives up. With the last one the drive forgets it.
    fn release(&mut self, fetch: Fetch) {
        let (Fetch::Queued(ticket), State::Rotating(disk)) = (fetch, &mut self.state) else {
            return;
        };
        let Some(others) = self.shared.get_mut(&ticket) else { return disk.forget(ticket) };
        *others -= 1;
        if *others == 0 {
            self.shared.remove(&ticket);
        }
    }

    fn standing(&mut self, now: u64, fetch: Fetch) -> Standing {
        let standing = match (fetch, &mut self.state) {
            (Fetch::Queued(ticket), State::Rotating(disk)) => disk.standing(now, ticket),
            (Fetch::Done(at), _) => return Standing::Done(at),
            (Fetch::Queued(_), State::Flash(_)) => Standing::Done(now),
        };
        if let Standing::Done(at) = standing {
            self.notify(fetch, at);
        }
        standing
    }

    /// The prefetched data have arrived: their future readers do not wait for the request.
    fn notify(&mut self, fetch: Fetch, at: u64) {
        while let Some((_, held)) = self.fetched.iter_mut().find(|(_, held)| *held == fetch) {
            *held = Fetch::Done(at);
            self.release(fetch);
        }
    }

    /// Takes out of `tickets` what is done now, the last of it at `last`. Nothing is decided about
    /// the rest before the returned time.
    fn settle(&mut self, now: u64, tickets: &mut BTreeSet<disk::Ticket>, last: &mut u64) -> u64 {
        let State::Rotating(disk) = &mut self.state else {
            tickets.clear();
            return now;
        };
        let (done, until) = disk.done_of(now, tickets);
        for (ticket, at) in done {
            tickets.remove(&ticket);
            *last = (*last).max(at);
            self.notify(Fetch::Queued(ticket), at);
            self.release(Fetch::Queued(ticket));
        }
        until
    }
}

impl Device for ModelDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        check_batch(self, batch)?;
        let mut commands = Vec::with_capacity(batch.len());
        let result = run_batch(batch, |request| {
            self.perform(request)?;
            let range = request.offset()..request.offset() + request.length();
            match &request.kind {
                RequestKind::Read { .. } => commands.push(Some(Command::Read(range))),
                RequestKind::Write { .. } | RequestKind::WriteZeroes { .. } => {
                    commands.push(Some(Command::Write(range)));
                }
                RequestKind::Discard { .. } => {}
                RequestKind::Flush => commands.push(None),
            }
            Ok(())
        });
        self.pass(commands);
        result
    }

    /// A drive cannot tell what was never written.
    fn next_data(&self, range: Range<u64>) -> Result<Option<Range<u64>>, DeviceError> {
        check_range(self.size, &range)?;
        Ok((!range.is_empty()).then_some(range))
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn will_need(&self, range: Range<u64>) {
        let range = range.start.min(self.size)..range.end.min(self.size);
        self.env.spend(costs::REQUEST);
        self.drive.lock().fetch(self.now(), range);
    }

    fn discard_reads_zero(&self) -> bool {
        matches!(self.preset.kind, DriveKind::Flash(_))
    }
}

impl Drop for ModelDevice {
    fn drop(&mut self) {
        if let Err(error) = self.finish() {
            tracing::error!("cannot write the data of the simulated drive to its image: {error}");
        }
    }
}

impl fmt::Debug for ModelDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelDevice")
            .field("preset", &self.preset.name)
            .field("size", &self.size)
            .finish()
    }
}

#[cfg(test)]
mod tests;
