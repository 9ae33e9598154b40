//! The state of a rotating drive: its queue, its caches, its arm. Only times are known here, no
//! bytes.
//!
//! Requests are put in with their arrival times, which never decrease. The drive decides when its
//! arm is free, among the requests that have arrived by then: of the first requests in the queue it
//! takes the one whose place comes under a head first. Writes are done when they are in the write
//! cache, which the arm empties when there is nothing to read, when it is full, or when a flush
//! waits. After a read the drive reads on into a segment of its memory until it has something else
//! to do or the segment is full.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use super::geometry::Places;
use super::preset::{Preset, Rotating};

/// Bytes that are written at once from the cache.
const PIECE: u64 = 512 << 10;
const SECOND: u64 = 1_000_000_000;

/// A request's number.
pub(super) type Ticket = u64;

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Command {
    Read(Range<u64>),
    Write(Range<u64>),
    Flush,
}

#[derive(Clone, Debug)]
struct Waiting {
    ticket: Ticket,
    arrived: u64,
    command: Command,
    /// There was no room in the write cache when it arrived.
    blocked: bool,
}

/// Reading ahead after the requested range.
#[derive(Clone, Debug)]
struct Ahead {
    start: u64,
    /// The end of the bytes that were read by `since`.
    head: u64,
    since: u64,
    /// Where the segment is full.
    limit: u64,
}

/// The state of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Standing {
    /// It is done at this time, which may be in the future.
    Done(u64),
    /// Nothing is decided before this time.
    Until(u64),
}

#[derive(Clone, Debug)]
pub(super) struct Disk {
    figures: Rotating,
    places: Places,
    interface: u64,
    overhead: u64,
    queue: VecDeque<Waiting>,
    done: BTreeMap<Ticket, u64>,
    /// These requests have no waiter.
    unwanted: BTreeSet<Ticket>,
    tickets: Ticket,
    /// When the arm is free.
    free: u64,
    /// The end of the last access.
    head: u64,
    interface_free: u64,
    ahead: Option<Ahead>,
    /// The ranges that were read ahead, the oldest first.
    segments: VecDeque<Range<u64>>,
    /// The ranges that are still to be written: starts and ends, neither touching nor overlapping.
    dirty: BTreeMap<u64, u64>,
    dirty_bytes: u64,
    /// Since when there is something to write.
    dirty_since: u64,
}

impl Disk {
    pub(super) fn new(preset: &Preset, figures: &Rotating, size: u64) -> Self {
        Self {
            places: Places::new(figures, preset.capacity.max(size)),
            figures: figures.clone(),
            interface: preset.interface,
            overhead: preset.overhead,
            queue: VecDeque::new(),
            done: BTreeMap::new(),
            unwanted: BTreeSet::new(),
            tickets: 0,
            free: 0,
            head: 0,
            interface_free: 0,
            ahead: None,
            segments: VecDeque::new(),
            dirty: BTreeMap::new(),
            dirty_bytes: 0,
            dirty_since: 0,
        }
    }

    /// Takes a request that arrives now.
    pub(super) fn submit(&mut self, now: u64, command: Command) -> Ticket {
        self.serve(now);
        self.tickets += 1;
        self.queue.push_back(Waiting {
            ticket: self.tickets,
            arrived: now,
            command,
            blocked: false,
        });
        self.tickets
    }

    /// The state of a request now.
    pub(super) fn standing(&mut self, now: u64, ticket: Ticket) -> Standing {
        self.serve(now);
        match self.done.get(&ticket) {
            Some(at) => Standing::Done(*at),
            None => Standing::Until(self.free.max(now + 1)),
        }
    }

    /// Forgets a request that has no waiter any more, whether or not it is done.
    pub(super) fn forget(&mut self, ticket: Ticket) {
        if self.done.remove(&ticket).is_none() {
            self.unwanted.insert(ticket);
        }
    }

    fn end(&mut self, ticket: Ticket, at: u64) {
        if !self.unwanted.remove(&ticket) {
            self.done.insert(ticket, at);
        }
    }

    /// How many requests are remembered that are done.
    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.done.len()
    }

    /// Which of these requests are done, and when. Nothing is decided about the others before the
    /// time that is returned with them. Many may wait, and few are done at a time: these are
    /// examined.
    pub(super) fn done_of(
        &mut self,
        now: u64,
        tickets: &BTreeSet<Ticket>,
    ) -> (Vec<(Ticket, u64)>, u64) {
        self.serve(now);
        let is_asked = |(ticket, _): &(&Ticket, &u64)| tickets.contains(ticket);
        let done = self.done.iter().filter(is_asked).map(|(ticket, at)| (*ticket, *at)).collect();
        (done, self.free.max(now + 1))
    }

    /// Decides all that is to be decided by now.
    fn serve(&mut self, now: u64) {
        loop {
            self.admit();
            if self.free > now || !self.work() {
                return;
            }
        }
    }

    fn over_interface(&mut self, from: u64, length: u64) -> u64 {
        let passing = u128::from(length) * u128::from(SECOND) / u128::from(self.interface);
        self.interface_free = self.interface_free.max(from) + passing as u64;
        self.interface_free
    }

    /// Ends what needs no arm: reads of what is in memory, writes for which there is room, flushes
    /// with nothing before them.
    fn admit(&mut self) {
        let mut index = 0;
        let mut writes_before = false;
        while index < self.queue.len().min(self.figures.depth) {
            let waiting = self.queue[index].clone();
            let done = match &waiting.command {
                Command::Read(range) => self.read_from_memory(waiting.arrived, range),
                Command::Write(range) => {
                    let done = self.write_to_cache(&waiting, range);
                    writes_before |= done.is_none();
                    done
                }
                Command::Flush => (self.dirty.is_empty() && !writes_before)
                    .then(|| self.free.max(waiting.arrived) + self.overhead),
            };
            match done {
                Some(at) => {
                    self.end(waiting.ticket, at);
                    let _ = self.queue.remove(index);
                }
                None => {
                    self.queue[index].blocked |= matches!(waiting.command, Command::Write(_));
                    index += 1;
                }
            }
        }
    }

    fn read_from_memory(&mut self, arrived: u64, range: &Range<u64>) -> Option<u64> {
        let length = range.end - range.start;
        let is_dirty = |disk: &Self| {
            let before = disk.dirty.range(..=range.start).next_back();
            before.is_some_and(|(_, end)| *end >= range.end)
        };
        let holds = |held: &Range<u64>| held.start <= range.start && held.end >= range.end;
        if length == 0 || is_dirty(self) || self.segments.iter().any(holds) {
            return Some(self.over_interface(arrived + self.overhead, length));
        }
        let ahead = self.ahead.clone()?;
        let reached = self.places.reach(ahead.head, arrived.saturating_sub(ahead.since));
        let has_stopped = reached >= ahead.limit;
        let reached = reached.min(ahead.limit);
        if range.start < ahead.start || range.start > reached {
            return None;
        }
        let room = self.figures.segments.1;
        if range.end <= reached {
            let limit = range.end + room;
            // Where the segment was full, the arm waits for the place to come around again when
            // there is room.
            let (head, since) = match has_stopped {
                true => (reached, self.resumed(arrived, reached)),
                false => (ahead.head, ahead.since),
            };
            self.ahead = Some(Ahead { head, since, limit, ..ahead });
            return Some(self.over_interface(arrived + self.overhead, length));
        }
        let from = if has_stopped { self.resumed(arrived, reached) } else { ahead.since };
        let head = if has_stopped { reached } else { ahead.head };
        let end = from + self.places.transfer(head, range.end);
        let start = ahead.start.max(range.end.saturating_sub(room));
        self.ahead = Some(Ahead { start, head: range.end, since: end, limit: range.end + room });
        (self.free, self.head) = (end, range.end);
        Some(end.max(arrived + self.overhead))
    }

    /// The time at which the place after `head` comes under the head again.
    fn resumed(&self, now: u64, head: u64) -> u64 {
        now + self.places.position(now, head, head, 0)
    }

    fn write_to_cache(&mut self, waiting: &Waiting, range: &Range<u64>) -> Option<u64> {
        let length = range.end - range.start;
        if self.dirty_bytes + length > self.figures.write_cache && !self.dirty.is_empty() {
            return None;
        }
        let from = if waiting.blocked { self.free.max(waiting.arrived) } else { waiting.arrived };
        let done = self.over_interface(from + self.overhead / 4, length);
        if self.dirty.is_empty() {
            self.dirty_since = done;
        }
        self.make_dirty(range.clone());
        self.forget_read(range);
        Some(done)
    }

    fn make_dirty(&mut self, mut range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let near: Vec<(u64, u64)> = self
            .dirty
            .range(..=range.end)
            .rev()
            .take_while(|(_, end)| **end >= range.start)
            .map(|(start, end)| (*start, *end))
            .collect();
        for (start, end) in near {
            self.dirty.remove(&start);
            self.dirty_bytes -= end - start;
            range = range.start.min(start)..range.end.max(end);
        }
        self.dirty_bytes += range.end - range.start;
        self.dirty.insert(range.start, range.end);
    }

    /// Data that were read before are stale now.
    fn forget_read(&mut self, range: &Range<u64>) {
        let apart = |held: &Range<u64>| held.end <= range.start || held.start >= range.end;
        self.segments.retain(apart);
        if self.ahead.as_ref().is_some_and(|ahead| !apart(&(ahead.start..ahead.limit))) {
            self.ahead = None;
        }
    }

    /// Starts the arm's next job; false if there is no job.
    fn work(&mut self) -> bool {
        let first = |matches: fn(&Command) -> bool| {
            self.queue.iter().take(self.figures.depth).find(|it| matches(&it.command))
        };
        let read = first(|command| matches!(command, Command::Read(_)));
        let is_pressed = first(|command| !matches!(command, Command::Read(_))).is_some();
        if read.is_none() && self.dirty.is_empty() {
            return false;
        }
        let since = match read {
            Some(read) => read.arrived,
            None => self.dirty_since,
        };
        let now = self.free.max(since);
        let mut best: Option<(u64, Job)> = None;
        let mut offer = |time: u64, job: Job| {
            if best.as_ref().is_none_or(|(least, _)| time < *least) {
                best = Some((time, job));
            }
        };
        for (index, waiting) in self.queue.iter().take(self.figures.depth).enumerate() {
            if let Command::Read(range) = &waiting.command
                && waiting.arrived <= now
            {
                let begin = self.free.max(waiting.arrived + self.overhead).max(now);
                let moving = self.places.position(begin, self.head, range.start, 0);
                offer(begin - now + moving, Job::Read(index));
            }
        }
        if read.is_none() || is_pressed {
            for start in self.near_dirty() {
                let settle = self.figures.write_settle;
                offer(self.places.position(now, self.head, start, settle), Job::Write(start));
            }
        }
        match best {
            Some((time, Job::Read(index))) => self.read(now + time, index),
            Some((time, Job::Write(start))) => {
                self.leave(now);
                self.write(now + time, start);
            }
            None => return false,
        }
        true
    }

    /// Starts of what is to be written, near the arm on both sides.
    fn near_dirty(&self) -> BTreeSet<u64> {
        let side = self.figures.depth / 2;
        let after = self.dirty.range(self.head..).take(side);
        let before = self.dirty.range(..self.head).rev().take(side);
        after.chain(before).map(|(start, _)| *start).collect()
    }

    /// The arm leaves what it has read ahead.
    fn leave(&mut self, now: u64) {
        let Some(ahead) = self.ahead.take() else { return };
        let reached = self.places.reach(ahead.head, now.saturating_sub(ahead.since));
        self.keep(ahead.start..reached.min(ahead.limit));
    }

    /// Reads the request of the queue whose first byte is under the head at `begin`.
    fn read(&mut self, begin: u64, index: usize) {
        let Some(waiting) = self.queue.remove(index) else { return };
        let Command::Read(range) = waiting.command else { return };
        self.leave(self.free.max(waiting.arrived));
        let end = begin + self.places.transfer(range.start, range.end);
        let room = self.figures.segments.1;
        let start = range.start.max(range.end.saturating_sub(room));
        let limit = range.end + room;
        self.ahead = Some(Ahead { start, head: range.end, since: end, limit });
        (self.free, self.head) = (end, range.end);
        self.end(waiting.ticket, end);
    }

    /// Writes a piece of the cache whose first byte is under the head at `begin`.
    fn write(&mut self, begin: u64, start: u64) {
        let Some(end) = self.dirty.remove(&start) else { return };
        let piece = start..end.min(start + PIECE);
        if piece.end < end {
            self.dirty.insert(piece.end, end);
        }
        self.dirty_bytes -= piece.end - piece.start;
        self.free = begin + self.places.transfer(piece.start, piece.end);
        self.head = piece.end;
        // It is in memory still.
        self.keep(piece);
    }

    fn keep(&mut self, range: Range<u64>) {
        let (most, room) = self.figures.segments;
        if self.segments.len() >= most {
            self.segments.pop_front();
        }
        self.segments.push_back(range.start.max(range.end.saturating_sub(room))..range.end);
    }
}

enum Job {
    Read(usize),
    Write(u64),
}

#[cfg(test)]
mod tests;
