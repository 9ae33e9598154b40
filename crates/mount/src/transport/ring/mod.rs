//! FUSE by io_uring: a queue for each processor, whose requests are answered there.
//!
//! The kernel puts a request into the queue of the processor that its caller runs on; a thread that
//! is bound to the same processor takes it, and one system call returns the reply and waits for the
//! next request. No thread is woken on another processor. Helpers do long work during that. FORGET
//! and requests made before all queues existed still come by `/dev/fuse`.
//!
//! A request keeps its slot until its reply, and the kernel puts its own requests into the same
//! queue: also the writes that a request waits for. So some slots of each queue are never given to
//! requests that wait for others ([`Inbox::begins_to_wait`]).
//!
//! A ring is made and restricted to the two commands that are needed here before the sandbox is
//! closed, in which no further one can be made.

mod inbox;
mod slot;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use io_uring::cqueue::Entry as Completion;
use io_uring::register::Restriction;
use io_uring::squeue::Entry128;
use io_uring::{IoUring, opcode, types};
use rustix::io::Errno;
use rustix::thread::CpuSet;
use zerocopy::IntoBytes;

use super::abi::{URING_COMMIT_AND_FETCH, URING_REGISTER, UringCommand};
use super::deferred::{DeferQueues, DeferredRequest};
use super::dispatch::{Dispatcher, is_bulk, is_long};
use super::handle::{Disposition, handle};
use super::message::{ReplyBuffer, Request};
use super::readers::Readers;
use super::threads::{spawn, spawn_loop};
use inbox::Inbox;
pub(super) use inbox::RingRequest;
use slot::Slot;

/// Requests that each queue has room for, and all queues together while that leaves each the least:
/// each takes up to a MiB.
const DEPTH: usize = 16;
const MOST: usize = 64;
/// One may wait for another then.
const LEAST_DEPTH: usize = 2;
/// Processors from which on it is not done.
const MAX_PROCESSORS: usize = 64;
/// Flag of an entry: its descriptor is one of the ring's own (linux/io_uring.h).
const IOSQE_FIXED_FILE: u8 = 1;
/// The connection among the ring's own descriptors.
const CONNECTION: types::Fixed = types::Fixed(0);
/// The token of completions of the inbox; others have their slot's.
const INBOX: u64 = u64::MAX;

/// Rings for all processors, made and not used yet.
#[derive(Debug)]
pub(crate) struct Rings(Vec<Prepared>);

struct Prepared {
    ring: IoUring<Entry128>,
    slots: Vec<Slot>,
    inbox: Arc<Inbox>,
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared").field("slots", &self.slots.len()).finish_non_exhaustive()
    }
}

impl Rings {
    /// Rings for `processors` processors. Call it before the sandbox is closed.
    ///
    /// # Errors
    /// The kernel lacks something of it, or this process may not.
    pub(crate) fn prepare(connection: &OwnedFd, processors: usize) -> io::Result<Self> {
        if processors == 0 || processors > MAX_PROCESSORS {
            return Err(io::Error::other("too many processors"));
        }
        let depth = (MOST / processors).clamp(LEAST_DEPTH, DEPTH);
        let ring = || Prepared::new(connection, depth);
        Ok(Self((0..processors).map(|_| ring()).collect::<io::Result<_>>()?))
    }

    /// Answers the requests of the rings, on a thread each, which sends its result to `ended`, and
    /// on `helpers` more, which go to `others`. Returns the number of the former.
    pub(super) fn start(
        self,
        dispatcher: &Arc<Dispatcher>,
        queues: &DeferQueues,
        (helpers, readers): (usize, &Arc<Readers>),
        (ended, others): (&Sender<io::Result<()>>, &mut Vec<JoinHandle<()>>),
    ) -> io::Result<usize> {
        let (sender, jobs) = channel();
        let jobs = Arc::new(Mutex::new(jobs));
        for _ in 0..helpers {
            let (dispatcher, queues, jobs) = (dispatcher.clone(), queues.clone(), jobs.clone());
            others.push(spawn("fuse-help", move || help(&dispatcher, &queues, &jobs))?);
        }
        let (dispatcher, queues) = (dispatcher.clone(), queues.clone());
        let readers = readers.clone();
        let shared = Arc::new(Shared { dispatcher, queues, readers, helpers: sender });
        let count = self.0.len();
        for (queue, prepared) in self.0.into_iter().enumerate() {
            let shared = shared.clone();
            // No other thread takes requests of this ring.
            let work = move || {
                let served = catch_unwind(AssertUnwindSafe(|| serve(prepared, queue, &shared)));
                served.unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
            };
            spawn_loop("fuse-ring", ended, work)?;
        }
        Ok(count)
    }
}

impl Prepared {
    fn new(connection: &OwnedFd, depth: usize) -> io::Result<Self> {
        let mut builder = IoUring::<Entry128>::builder();
        builder.setup_r_disabled().setup_single_issuer().setup_defer_taskrun();
        let ring = builder.build((depth as u32 + 1).next_power_of_two())?;
        ring.submitter().register_files(&[connection.as_raw_fd()])?;
        let mut allowed = [
            Restriction::sqe_op(opcode::UringCmd80::CODE),
            Restriction::sqe_op(opcode::PollAdd::CODE),
            Restriction::sqe_flags_allowed(IOSQE_FIXED_FILE),
        ];
        ring.submitter().register_restrictions(&mut allowed)?;
        let slots = (0..depth).map(|_| Slot::new()).collect::<rustix::io::Result<_>>()?;
        Ok(Self { ring, slots, inbox: Arc::new(Inbox::new(depth)?) })
    }
}

/// State shared by the threads of rings.
#[derive(Debug)]
struct Shared {
    dispatcher: Arc<Dispatcher>,
    queues: DeferQueues,
    readers: Arc<Readers>,
    /// The helpers for long work.
    helpers: Sender<RingRequest>,
}

/// Does long work, until the last ring has ended.
fn help(dispatcher: &Dispatcher, queues: &DeferQueues, jobs: &Mutex<Receiver<RingRequest>>) {
    let mut buffer = ReplyBuffer::new();
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(RingRequest { index, slot, inbox }) = job else { return };
        if let Some(slot) = answer(dispatcher, queues, (index, slot), &inbox, &mut buffer) {
            inbox.put(index, slot);
        }
    }
}

/// Handles the request in a slot; `None` if another thread replies.
fn answer(
    dispatcher: &Dispatcher,
    queues: &DeferQueues,
    (index, mut slot): (usize, Slot),
    inbox: &Arc<Inbox>,
    buffer: &mut ReplyBuffer,
) -> Option<Slot> {
    // After a panic the call of one program fails, and the others continue.
    let handled = catch_unwind(AssertUnwindSafe(|| {
        if let Some((header, first, room)) = slot.take_apart() {
            let mut reply = buffer.reply_into(room);
            let disposition = handle(dispatcher, &Request::split(header, &first, &[]), &mut reply);
            return (disposition, reply.len());
        }
        let mut reply = buffer.reply();
        let disposition = handle(dispatcher, &slot.request(), &mut reply);
        let len = reply.len();
        slot.fill(buffer.content(len));
        (disposition, len)
    }));
    let (disposition, len) = handled.unwrap_or((Disposition::Reply(Err(Errno::IO)), 0));
    let disposition = match disposition {
        Disposition::Defer(reason) if !inbox.begins_to_wait(reason) => {
            Disposition::Reply(Err(reason.at_once()))
        }
        disposition => disposition,
    };
    match disposition {
        Disposition::Reply(outcome) => {
            if outcome.is_err() {
                dispatcher.undo_lookups(buffer.looked_up());
            }
            slot.finish(outcome, len);
            Some(slot)
        }
        // All requests of rings have a reply.
        Disposition::NoReply => {
            slot.finish(Err(Errno::NOSYS), 0);
            Some(slot)
        }
        Disposition::Defer(reason) => {
            let deferred = DeferredRequest::Ring(RingRequest { index, slot, inbox: inbox.clone() });
            queues.defer(dispatcher, deferred, reason, buffer);
            None
        }
    }
}

/// A ring that is used, by its thread.
struct Ring {
    ring: IoUring<Entry128>,
    queue: u16,
    /// Slots that the kernel has.
    lent: Vec<Option<Slot>>,
}

/// Completions of a ring for its thread.
enum Event {
    /// The slot of this index has a request.
    Request(usize, Slot),
    /// Other threads have completed replies.
    Inbox,
    /// The mount has gone.
    End,
}

impl Ring {
    /// Gives a slot to the kernel, by a command: for the first time, or with a reply in it.
    fn lend(&mut self, index: usize, slot: Slot, command: u32) -> io::Result<()> {
        let is_first = command == URING_REGISTER;
        let commit_id = if is_first { 0 } else { slot.commit_id() };
        let argument = UringCommand { commit_id, queue: self.queue, ..UringCommand::default() };
        let mut bytes = [0; 80];
        bytes[..size_of_val(&argument)].copy_from_slice(argument.as_bytes());
        let entry = opcode::UringCmd80::new(CONNECTION, command).cmd(bytes).build();
        let mut entry = entry.user_data(index as u64);
        if is_first {
            set_parts(&mut entry, &slot);
        }
        self.lent[index] = Some(slot);
        self.push(&entry)
    }

    /// Requests a completion for the inbox.
    fn listen(&mut self, inbox: &Inbox) -> io::Result<()> {
        let readable = rustix::event::PollFlags::IN.bits();
        let entry = opcode::PollAdd::new(types::Fd(inbox.bell.as_raw_fd()), readable.into());
        self.push(&entry.build().user_data(INBOX).into())
    }

    #[allow(unsafe_code)]
    fn push(&mut self, entry: &Entry128) -> io::Result<()> {
        // SAFETY: an entry gives the kernel a slot, which stays mapped and which no thread accesses
        // while it is in `lent`, or nothing (a poll); the ring owns the connection, and polls a
        // descriptor that outlives it.
        let pushed = unsafe { self.ring.submission().push(entry) };
        // Each slot and the inbox have at most one entry at a time, and the ring has room for all.
        pushed.map_err(|full| io::Error::other(full.to_string()))
    }

    /// Hands the entries over and waits until something has happened.
    fn wait(&mut self) -> io::Result<()> {
        match self.ring.submit_and_wait(1) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }

    fn next(&mut self) -> io::Result<Option<Event>> {
        let Some(completion) = self.ring.completion().next() else { return Ok(None) };
        self.event(&completion).map(Some)
    }

    fn event(&mut self, completion: &Completion) -> io::Result<Event> {
        if completion.user_data() == INBOX {
            return Ok(Event::Inbox);
        }
        if completion.result() < 0 {
            let errno = Errno::from_raw_os_error(-completion.result());
            let is_end = matches!(
                errno,
                Errno::NOTCONN | Errno::NODEV | Errno::CANCELED | Errno::CONNABORTED
            );
            return if is_end { Ok(Event::End) } else { Err(errno.into()) };
        }
        let index = completion.user_data() as usize;
        let slot = self.lent.get_mut(index).and_then(Option::take);
        let slot = slot.ok_or_else(|| io::Error::other("a completion of nothing"))?;
        Ok(Event::Request(index, slot))
    }
}

/// Gives the kernel the addresses of a slot's header and payload.
#[allow(unsafe_code)]
fn set_parts(entry: &mut Entry128, slot: &Slot) {
    // Of `struct io_uring_sqe` (linux/io_uring.h).
    const ADDRESS_AT: usize = 16;
    const COUNT_AT: usize = 24;
    const _: () = assert!(size_of::<Entry128>() == 128);
    let at = std::ptr::from_mut(entry).cast::<u8>();
    let address = slot.parts().addr() as u64;
    // SAFETY: an entry is those 128 bytes as the kernel reads them, numbers all, and both places
    // lie within.
    unsafe {
        at.add(ADDRESS_AT).cast::<u64>().write_unaligned(address);
        at.add(COUNT_AT).cast::<u32>().write_unaligned(2);
    }
}

/// Answers the requests of one queue until the mount has gone.
fn serve(prepared: Prepared, queue: usize, shared: &Shared) -> io::Result<()> {
    // A processor that is off, or not ours, has a queue all the same.
    let mut own = CpuSet::new();
    if queue < CpuSet::MAX_CPU {
        own.set(queue);
        let _ = rustix::thread::sched_setaffinity(None, &own);
    }
    let Prepared { ring, slots, inbox } = prepared;
    ring.submitter().register_enable_rings()?;
    let lent = slots.iter().map(|_| None).collect();
    // At most MAX_PROCESSORS.
    let mut ring = Ring { ring, queue: queue as u16, lent };
    for (index, slot) in slots.into_iter().enumerate() {
        ring.lend(index, slot, URING_REGISTER)?;
    }
    ring.listen(&inbox)?;
    let mut buffer = ReplyBuffer::new();
    loop {
        ring.wait()?;
        while let Some(event) = ring.next()? {
            match event {
                Event::End => return Ok(()),
                Event::Inbox => {
                    ring.listen(&inbox)?;
                    for (index, slot) in inbox.take() {
                        ring.lend(index, slot, URING_COMMIT_AND_FETCH)?;
                    }
                }
                Event::Request(index, slot) => {
                    if let Some(slot) = shared.take(index, slot, &inbox, &mut buffer) {
                        ring.lend(index, slot, URING_COMMIT_AND_FETCH)?;
                    }
                }
            }
        }
    }
}

impl Shared {
    /// Answers a request, or defers it.
    fn take(
        &self,
        index: usize,
        slot: Slot,
        inbox: &Arc<Inbox>,
        buffer: &mut ReplyBuffer,
    ) -> Option<Slot> {
        let request = slot.request();
        self.readers.has_come(request.header.pid);
        let is_away = is_bulk(&request) || is_long(&request) && self.readers.are_several();
        if !is_away {
            return answer(&self.dispatcher, &self.queues, (index, slot), inbox, buffer);
        }
        let job = RingRequest { index, slot, inbox: inbox.clone() };
        match self.helpers.send(job) {
            Ok(()) => None,
            // No helper is left.
            Err(refused) => {
                let RingRequest { index, slot, inbox } = refused.0;
                answer(&self.dispatcher, &self.queues, (index, slot), &inbox, buffer)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::handle::Reason;
    use super::*;
    use rustix::fs::SeekFrom;

    #[test]
    fn a_queue_of_any_depth_keeps_slots_for_requests_that_do_not_wait() {
        for depth in LEAST_DEPTH..=DEPTH {
            let inbox = Inbox::new(depth).expect("an eventfd");
            let (cache, space) = (Reason::Cache(SeekFrom::Data(0)), Reason::Space(Errno::NOSPC));
            let for_cache = (0..depth).take_while(|_| inbox.begins_to_wait(cache)).count();
            assert!(for_cache > 0 && for_cache <= depth / 2, "{for_cache} of {depth}");
            let for_space = (0..depth).take_while(|_| inbox.begins_to_wait(space)).count();
            assert_eq!(for_cache + for_space, depth - 1);
            inbox.has_waited();
            assert!(inbox.begins_to_wait(space) && !inbox.begins_to_wait(space));
        }
    }
}
