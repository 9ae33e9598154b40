//! The fault model, and the recorder that builds its power cuts.
//!
//! **Power.** A device has a volatile cache. Writes before a flush that returned are on the medium.
//! When power goes, of all that was written, zeroed or discarded since, any part survives:
//! - each change may be there or not, in any order (a later one may survive an earlier one);
//! - of changes to the same sector, the last survivor in the order of submission is what the sector
//!   holds;
//! - a sector ([`Device::sector_size`]) is never torn, a change of several sectors may be: any of
//!   its sectors may survive;
//! - a flush that had not returned guarantees nothing;
//! - nothing else on the medium changes, and what was there before stays.
//!
//! **Failures** ([`FaultyDevice`](crate::FaultyDevice)). A request may fail with nothing done, fail
//! with its first part done, report success with nothing done (a lost write, a flush that lies), or
//! read with a flipped bit; at a chosen call, from one on, or on a range. A device may be full:
//! writes fail, the rest works. After a failed flush nothing written since the last good one is
//! sure to be on the medium.
//!
//! Not modelled: sectors that decay by themselves, writes that go to the wrong place, and caches
//! that tear a sector. These the checksums of the format meet, where they do.
//!
//! A [`Recorder`] is used as the device of a test. Then [`Recorder::cuts`] gives the images that
//! power cuts could have left, each as a cheap overlay, to be recovered and verified.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use extant_device::{
    Device, DeviceError, OverlayDevice, Request, RequestKind, SliceDevice, SliceError, check_batch,
    run_batch,
};
use extant_runtime::Random;
use extant_runtime::sync::Mutex;

/// One thing that happened to a recorded device.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Event {
    /// Bytes were written.
    Write {
        /// First byte, at the start of a sector.
        offset: u64,
        /// The contents of the sectors at that point.
        data: Arc<[u8]>,
    },
    /// A range was discarded; it reads as zeroes where the discard survives.
    Discard(Range<u64>),
    /// A range was zeroed.
    WriteZeroes(Range<u64>),
    /// A flush returned.
    Flush,
    /// The flush of a part returned ([`Recorder::part`]): nothing outside is sure by it.
    FlushOf(Range<u64>),
    /// A mark of the test ([`Recorder::mark`]).
    Mark(u64),
}

impl Event {
    fn is_change(&self) -> bool {
        !matches!(self, Self::Flush | Self::FlushOf(_) | Self::Mark(_))
    }

    fn is_flush(&self) -> bool {
        matches!(self, Self::Flush | Self::FlushOf(_))
    }

    fn range(&self) -> Range<u64> {
        match self {
            Self::Write { offset, data } => *offset..*offset + data.len() as u64,
            Self::Discard(range) | Self::WriteZeroes(range) => range.clone(),
            Self::Flush | Self::FlushOf(_) | Self::Mark(_) => 0..0,
        }
    }
}

/// A device that keeps a log of what changes it, over a base that it never writes. Requests are
/// taken one batch at a time, so that the log has an order.
pub struct Recorder {
    base: Arc<dyn Device>,
    live: OverlayDevice,
    events: Mutex<Vec<Event>>,
}

impl Recorder {
    /// A recorder over `base`, which must not change while the recorder and its images exist.
    pub fn new(base: Arc<dyn Device>) -> Self {
        Self { live: OverlayDevice::new(base.clone()), base, events: Mutex::new(Vec::new()) }
    }

    /// Marks a point in the log, such as "this fsync returned". A cut has the marks before it.
    pub fn mark(&self, mark: u64) {
        self.events.lock().push(Event::Mark(mark));
    }

    /// The events so far.
    pub fn events(&self) -> Vec<Event> {
        self.events.lock().clone()
    }

    /// The images that power cuts during the recorded history could have left, as far as `sweep`
    /// goes: see [`Sweep`].
    pub fn cuts(&self, sweep: Sweep) -> Cuts {
        let events = self.events();
        let plan = plan(&events, &sweep, self.base.sector_size());
        Cuts { medium: Medium::new(self.base.clone(), events), plan: plan.into_iter() }
    }

    /// The image after the first `events` events and a power cut that `survivors` survive.
    pub fn image(&self, events: usize, survivors: Survivors) -> OverlayDevice {
        let all = self.events();
        assert!(events <= all.len(), "{events} events of {}", all.len());
        Medium::new(self.base.clone(), all).after(events, survivors)
    }

    /// The tag of a request in the log. A write is widened to whole sectors by what these hold: no
    /// device changes less.
    fn event(&self, request: &Request<'_>) -> Result<Option<Event>, DeviceError> {
        let range = request.offset()..request.offset() + request.length();
        Ok(match &request.kind {
            RequestKind::Flush => Some(Event::Flush),
            RequestKind::Read { .. } => None,
            _ if range.is_empty() => None,
            RequestKind::Write { offset, buffers } => {
                let sector = u64::from(self.sector_size());
                let start = offset / sector * sector;
                let end = range.end.next_multiple_of(sector).min(self.size()).max(range.end);
                let written = buffers.slices().iter().flat_map(|buffer| buffer.iter().copied());
                let mut data = vec![0; (offset - start) as usize];
                self.live.read_at(start, &mut data)?;
                data.extend(written);
                let mut after = vec![0; (end - range.end) as usize];
                self.live.read_at(range.end, &mut after)?;
                data.append(&mut after);
                Some(Event::Write { offset: start, data: data.into() })
            }
            RequestKind::Discard { .. } => Some(Event::Discard(range)),
            RequestKind::WriteZeroes { .. } => Some(Event::WriteZeroes(range)),
        })
    }
}

impl Device for Recorder {
    fn size(&self) -> u64 {
        self.live.size()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        check_batch(self, batch)?;
        let mut events = self.events.lock();
        run_batch(batch, |request| {
            let event = self.event(request)?;
            self.live.submit(std::slice::from_mut(request))?;
            events.extend(event);
            Ok(())
        })
    }

    fn next_data(&self, range: Range<u64>) -> Result<Option<Range<u64>>, DeviceError> {
        self.live.next_data(range)
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn sector_size(&self) -> u32 {
        self.live.sector_size()
    }

    fn discard_reads_zero(&self) -> bool {
        true
    }
}

/// A part of a recorded device that has a cache of its own, as one of two disks: see
/// [`Recorder::part`].
#[derive(Debug)]
pub struct RecordedPart {
    recorder: Arc<Recorder>,
    part: SliceDevice,
}

impl Recorder {
    /// A part of the device with a cache of its own: its flushes make sure what was changed in it,
    /// and nothing else.
    ///
    /// # Errors
    /// The part reaches past the end of the device.
    pub fn part(self: &Arc<Self>, range: Range<u64>) -> Result<RecordedPart, SliceError> {
        let size = range.end.saturating_sub(range.start);
        let part = SliceDevice::new(self.clone(), range.start, size)?;
        Ok(RecordedPart { recorder: self.clone(), part })
    }
}

impl Device for RecordedPart {
    fn size(&self) -> u64 {
        self.part.size()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        check_batch(self, batch)?;
        run_batch(batch, |request| {
            if matches!(request.kind, RequestKind::Flush) {
                let range = self.part.start()..self.part.start() + self.part.size();
                self.recorder.events.lock().push(Event::FlushOf(range));
                return Ok(());
            }
            self.part.submit(std::slice::from_mut(request))
        })
    }

    fn next_data(&self, range: Range<u64>) -> Result<Option<Range<u64>>, DeviceError> {
        self.part.next_data(range)
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn sector_size(&self) -> u32 {
        self.part.sector_size()
    }

    fn discard_reads_zero(&self) -> bool {
        true
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("base", &self.base).finish_non_exhaustive()
    }
}

/// How many cuts to build. Between two flushes: nothing survived; every prefix of the changes
/// survived; seeded subsets; seeded subsets with torn changes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Sweep {
    /// Repeats the choices.
    pub seed: u64,
    /// Prefixes between two flushes, at most; where there are more changes, they are spread evenly.
    pub prefixes: usize,
    /// Subsets of whole changes between two flushes.
    pub subsets: usize,
    /// Subsets of sectors between two flushes.
    pub torn: usize,
}

impl Sweep {
    /// Every prefix, four subsets and two torn ones between any two flushes.
    pub fn seeded(seed: u64) -> Self {
        Self { seed, prefixes: usize::MAX, subsets: 4, torn: 2 }
    }
}

/// The changes since the last flush that survived a power cut.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Survivors {
    /// Nothing.
    None,
    /// All of them.
    All,
    /// Whole changes, chosen by the seed.
    Subset(u64),
    /// Sectors of changes, chosen by the seed.
    Torn(u64),
}

/// One power cut.
#[derive(Debug)]
pub struct Cut {
    /// Events that had happened: [`Recorder::image`] builds the image again.
    pub events: usize,
    /// The changes since the last flush that survived.
    pub survivors: Survivors,
    /// The marks that had been made.
    pub marks: Vec<u64>,
    /// The contents of the medium.
    pub image: OverlayDevice,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "power cut after {} events, surviving: {:?}", self.events, self.survivors)
    }
}

/// The cuts of a [`Sweep`], in the order of the history.
#[derive(Debug)]
pub struct Cuts {
    medium: Medium,
    plan: std::vec::IntoIter<(usize, Survivors)>,
}

impl Iterator for Cuts {
    type Item = Cut;

    fn next(&mut self) -> Option<Cut> {
        let (events, survivors) = self.plan.next()?;
        let image = self.medium.after(events, survivors);
        let mark = |event: &Event| match event {
            Event::Mark(mark) => Some(*mark),
            _ => None,
        };
        let marks = self.medium.events[..events].iter().filter_map(mark).collect();
        Some(Cut { events, survivors, marks, image })
    }
}

/// Which cuts to make, with events and survivors that do not fall back in the history.
fn plan(events: &[Event], sweep: &Sweep, sector_size: u32) -> Vec<(usize, Survivors)> {
    let mut random = Random::new(sweep.seed);
    let mut plan = Vec::new();
    let mut start = 0;
    while start <= events.len() {
        let flush = events[start..].iter().position(Event::is_flush);
        let end = flush.map_or(events.len(), |at| start + at);
        plan.push((start, Survivors::None));
        let changes: Vec<usize> = (start..end).filter(|at| events[*at].is_change()).collect();
        let step = changes.len().div_ceil(sweep.prefixes.max(1)).max(1);
        for (count, at) in (1..).zip(&changes) {
            if sweep.prefixes > 0 && (count % step == 0 || count == changes.len()) {
                plan.push((at + 1, Survivors::All));
            }
        }
        // Of two disks the other one may lose more.
        let is_part = start > 0 && matches!(events[start - 1], Event::FlushOf(_));
        if changes.len() > 1 || is_part {
            plan.extend((0..sweep.subsets).map(|_| (end, Survivors::Subset(random.draw()))));
        }
        let can_tear = |at: &usize| {
            let range = events[*at].range();
            let sector = u64::from(sector_size);
            range.end.div_ceil(sector) - range.start / sector > 1
        };
        if changes.iter().any(can_tear) {
            plan.extend((0..sweep.torn).map(|_| (end, Survivors::Torn(random.draw()))));
        }
        start = end + 1;
    }
    plan
}

/// The medium under a volatile cache, moved forward through a history.
#[derive(Debug)]
struct Medium {
    events: Vec<Event>,
    /// The state that the last flush before `flushed_to` made durable. Images are layers on it, so
    /// it stays as it is while they exist.
    flushed: Arc<OverlayDevice>,
    flushed_to: usize,
    /// `flushed` and all changes up to `written_to`.
    written: OverlayDevice,
    written_to: usize,
}

impl Medium {
    fn new(base: Arc<dyn Device>, events: Vec<Event>) -> Self {
        let flushed = Arc::new(OverlayDevice::new(base));
        Self {
            events,
            written: OverlayDevice::new(flushed.clone()),
            flushed,
            flushed_to: 0,
            written_to: 0,
        }
    }

    fn restart_written(&mut self) {
        self.written = OverlayDevice::new(self.flushed.clone());
        self.written_to = self.flushed_to;
    }

    /// Moves the flushed state on, as far as flushes before `events` have made all changes sure.
    /// Which of the later ones are sure too.
    fn go_to(&mut self, events: usize) -> Vec<bool> {
        assert!(events >= self.flushed_to, "cuts go forward");
        let mut sure = made_sure(&self.events[self.flushed_to..events]);
        let unsure = sure.iter().position(|is_sure| !is_sure).unwrap_or(sure.len());
        let flush = self.events[self.flushed_to..][..unsure].iter().rposition(Event::is_flush);
        let Some(flush) = flush else { return sure };
        let flushed_to = self.flushed_to + flush + 1;
        sure.drain(..=flush);
        let flushed = self.flushed.fork();
        apply_all(&flushed, &self.events[self.flushed_to..flushed_to]);
        (self.flushed, self.flushed_to) = (Arc::new(flushed), flushed_to);
        self.restart_written();
        sure
    }

    /// The image after a cut. Cuts are requested in the order of the history.
    fn after(&mut self, events: usize, survivors: Survivors) -> OverlayDevice {
        let sure = self.go_to(events);
        let since = self.events[self.flushed_to..events].iter().zip(sure);
        let since = since.filter(|(event, _)| event.is_change());
        let image: OverlayDevice = OverlayDevice::new(self.flushed.clone());
        match survivors {
            Survivors::None => {
                for (event, _) in since.filter(|(_, is_sure)| *is_sure) {
                    apply(&image, event, event.range());
                }
                image
            }
            Survivors::All => {
                if events < self.written_to {
                    self.restart_written();
                }
                apply_all(&self.written, &self.events[self.written_to..events]);
                self.written_to = events;
                self.written.fork()
            }
            Survivors::Subset(seed) => {
                let mut random = Random::new(seed);
                // Few or most of them: either extreme finds other bugs than the middle.
                let eighths = 1 + random.below(7);
                for (event, is_sure) in since {
                    if random.below(8) < eighths || is_sure {
                        apply(&image, event, event.range());
                    }
                }
                image
            }
            Survivors::Torn(seed) => {
                let mut random = Random::new(seed);
                for (event, is_sure) in since {
                    match is_sure {
                        true => apply(&image, event, event.range()),
                        false => tear(&image, event, &mut random),
                    }
                }
                image
            }
        }
    }
}

/// For each event, whether it is not a change, or a change that a later flush made durable.
fn made_sure(events: &[Event]) -> Vec<bool> {
    let mut flushed: Vec<Range<u64>> = Vec::new();
    let mut sure: Vec<bool> = Vec::with_capacity(events.len());
    for event in events.iter().rev() {
        let range = event.range();
        sure.push(match event {
            Event::Flush => {
                flushed.push(0..u64::MAX);
                true
            }
            Event::FlushOf(part) => {
                if !flushed.contains(part) {
                    flushed.push(part.clone());
                }
                true
            }
            Event::Mark(_) => true,
            _ => flushed.iter().any(|part| part.start <= range.start && range.end <= part.end),
        });
    }
    sure.reverse();
    sure
}

fn apply_all(image: &OverlayDevice, events: &[Event]) {
    for event in events {
        apply(image, event, event.range());
    }
}

/// Applies the part of a change that lies in `survives`.
fn apply(image: &OverlayDevice, event: &Event, survives: Range<u64>) {
    let result = match event {
        Event::Write { offset, data } => {
            let part = (survives.start - offset) as usize..(survives.end - offset) as usize;
            image.write_at(survives.start, &data[part])
        }
        Event::Discard(_) | Event::WriteZeroes(_) => image.write_zeroes(survives),
        Event::Flush | Event::FlushOf(_) | Event::Mark(_) => Ok(()),
    };
    result.expect("the base was read while it was recorded");
}

/// One change survives wholly, not at all, or by some of its sectors.
fn tear(image: &OverlayDevice, event: &Event, random: &mut Random) {
    let range = event.range();
    let sector = u64::from(image.sector_size());
    match random.below(4) {
        0 => {}
        1 => apply(image, event, range),
        // The device had come so far.
        2 => {
            let sectors = range.end.div_ceil(sector) - range.start / sector;
            let cut = (range.start / sector + random.below(sectors as usize) as u64) * sector;
            if cut > range.start {
                apply(image, event, range.start..cut.min(range.end));
            }
        }
        _ => {
            // Long discards are cut into 64 pieces of whole sectors, so that the work stays
            // bounded.
            let piece = (range.end - range.start).div_ceil(64).next_multiple_of(sector);
            let piece = if matches!(event, Event::Write { .. }) { sector } else { piece };
            let mut at = range.start;
            while at < range.end {
                let end = ((at / piece + 1) * piece).min(range.end);
                if random.below(2) == 0 {
                    apply(image, event, at..end);
                }
                at = end;
            }
        }
    }
}
