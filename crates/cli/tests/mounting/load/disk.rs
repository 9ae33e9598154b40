//! A disk that fails when it is told to and loses what was not flushed at a power cut: a file
//! system over FUSE whose only file is an image. The server has it open as it would any image.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use extant_testkit::tree::Random;
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use zerocopy::{FromBytes, IntoBytes};

use super::wire::{self, opcode};

/// Bytes that are remembered together until they are flushed.
const BLOCK: u64 = 4096;
/// Bytes that a power cut keeps or loses whole.
const SECTOR: usize = 512;
const MAX_WRITE: u32 = 1 << 20;
/// Requests answered at the same time.
const THREADS: usize = 4;
const ROOT: u64 = 1;
const IMAGE: u64 = 2;
const NAME: &str = "disk.img";

/// Faults. One request in `one_in` fails.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fault {
    /// Reads get EIO.
    Reads { one_in: u64 },
    /// Writes get EIO and store nothing.
    Writes { one_in: u64 },
    /// Flushes get EIO; a power cut loses a part of what they should have kept, whatever flushes
    /// succeed later.
    Flushes { one_in: u64 },
    /// Every request gets EIO.
    Gone,
    /// Writes to blocks that the image has no space for get ENOSPC: the host is full.
    Full,
    /// Writes store their first half and say so; nothing is wrong with that.
    ShortWrites { one_in: u64 },
    /// Flushes take this many milliseconds longer.
    SlowFlushes { milliseconds: u64 },
}

impl Fault {
    /// Whether a request fails by it.
    pub(super) fn is_failure(self) -> bool {
        !matches!(self, Self::ShortWrites { .. } | Self::SlowFlushes { .. })
    }
}

/// The disk; its mount is gone when this is dropped.
pub(super) struct Disk {
    shared: Arc<Shared>,
    point: PathBuf,
    backing: PathBuf,
}

struct Shared {
    fuse: File,
    /// The image as reads see it.
    image: File,
    size: u64,
    state: Mutex<State>,
    /// Requests that failed, were cut short or were slow.
    injected: AtomicU64,
}

struct State {
    faults: Vec<Fault>,
    random: Random,
    /// Contents of the medium where the image has been written since the last flush, by the number
    /// of a block.
    unflushed: BTreeMap<u64, Vec<u8>>,
    /// Blocks of `unflushed` that later flushes do not keep.
    lost: BTreeSet<u64>,
}

impl Disk {
    /// Mounts a directory with the image `backing` as its file.
    pub(super) fn new(backing: &Path, point: PathBuf, seed: u64) -> io::Result<Self> {
        let fuse = File::options().read(true).write(true).open("/dev/fuse")?;
        let image = File::options().read(true).write(true).open(backing)?;
        let size = image.metadata()?.len();
        fs::create_dir_all(&point)?;
        let data = format!("fd={},rootmode=40755,user_id=0,group_id=0", fuse.as_raw_fd());
        let data = CString::new(data)?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        rustix::mount::mount("extant-test", &point, "fuse", flags, data.as_c_str())?;
        let state = State {
            faults: Vec::new(),
            random: Random::new(seed),
            unflushed: BTreeMap::new(),
            lost: BTreeSet::new(),
        };
        let injected = AtomicU64::new(0);
        let shared = Arc::new(Shared { fuse, image, size, state: Mutex::new(state), injected });
        for _ in 0..THREADS {
            let shared = shared.clone();
            thread::spawn(move || shared.serve());
        }
        Ok(Self { shared, point, backing: backing.to_owned() })
    }

    /// The image, for the server.
    pub(super) fn image(&self) -> PathBuf {
        self.point.join(NAME)
    }

    /// The image, for others, once no server has it.
    pub(super) fn backing(&self) -> &Path {
        &self.backing
    }

    /// From now on these faults happen, and no others.
    pub(super) fn fail_by(&self, faults: &[Fault]) {
        self.shared.state().faults = faults.to_vec();
    }

    /// Requests that a fault has met.
    pub(super) fn injected(&self) -> u64 {
        self.shared.injected.load(Ordering::Relaxed)
    }

    /// Loses what was not flushed: all of it, or each run of sectors by chance. The server is gone.
    pub(super) fn cut_power(&self, loses_all: bool) -> io::Result<u64> {
        let mut state = self.shared.state();
        let lost = std::mem::take(&mut state.lost);
        let mut sectors = 0;
        let mut is_kept = false;
        for (block, old) in std::mem::take(&mut state.unflushed) {
            for (index, old) in old.chunks(SECTOR).enumerate() {
                // Sectors next to each other mostly share their fate.
                if state.random.below(4) == 0 {
                    is_kept = state.random.below(2) == 0;
                }
                if loses_all || lost.contains(&block) || !is_kept {
                    let at = block * BLOCK + (index * SECTOR) as u64;
                    self.shared.image.write_all_at(old, at)?;
                    sectors += 1;
                }
            }
        }
        Ok(sectors)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Threads that wait for an answer get an error and end.
        let _ = rustix::mount::unmount(&self.point, UnmountFlags::FORCE | UnmountFlags::DETACH);
    }
}

/// The answer.
enum Reply {
    Bytes(Vec<u8>),
    Nothing,
}

impl Reply {
    fn of(message: &(impl IntoBytes + zerocopy::Immutable)) -> Result<Self, Errno> {
        Ok(Self::Bytes(message.as_bytes().to_vec()))
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers until the mount is gone.
    fn serve(&self) {
        let mut buffer = vec![0; MAX_WRITE as usize + 4096];
        loop {
            let length = match (&self.fuse).read(&mut buffer) {
                Ok(length) => length,
                Err(error) if error.raw_os_error() == Some(Errno::NODEV.raw_os_error()) => return,
                // A request that was taken back while it was read, or a signal.
                Err(_) => continue,
            };
            let Ok((header, body)) = wire::InHeader::read_from_prefix(&buffer[..length]) else {
                return;
            };
            let (error, bytes) = match self.answer(&header, body) {
                Ok(Reply::Nothing) => continue,
                Ok(Reply::Bytes(bytes)) => (0, bytes),
                Err(errno) => (-errno.raw_os_error(), Vec::new()),
            };
            let len = (size_of::<wire::OutHeader>() + bytes.len()) as u32;
            let out = wire::OutHeader { len, error, unique: header.unique };
            // If this fails, no thread waits for it.
            let _ =
                (&self.fuse).write_vectored(&[IoSlice::new(out.as_bytes()), IoSlice::new(&bytes)]);
        }
    }

    fn answer(&self, header: &wire::InHeader, body: &[u8]) -> Result<Reply, Errno> {
        let range = || {
            let (range, rest) = wire::RangeIn::read_from_prefix(body).map_err(|_| Errno::INVAL)?;
            Ok::<_, Errno>((range, rest))
        };
        match header.opcode {
            opcode::INIT => Reply::of(&wire::InitOut {
                major: 7,
                minor: 31,
                max_readahead: 1 << 17,
                flags: wire::INIT_FLAGS,
                max_background: 64,
                congestion_threshold: 48,
                max_write: MAX_WRITE,
                time_gran: 1,
                max_pages: (u64::from(MAX_WRITE) / BLOCK) as u16,
                ..wire::InitOut::default()
            }),
            opcode::LOOKUP if body.strip_suffix(b"\0") == Some(NAME.as_bytes()) => {
                let (attr, valid) = (self.attributes(IMAGE), [3600, 3600, 0]);
                Reply::of(&wire::EntryOut { nodeid: IMAGE, generation: 0, valid, attr })
            }
            opcode::LOOKUP => Err(Errno::NOENT),
            opcode::GETATTR => {
                let attr = self.attributes(header.nodeid);
                Reply::of(&wire::AttrOut { valid: [3600, 0], attr })
            }
            opcode::OPEN => {
                let open_flags = wire::FOPEN_DIRECT_IO;
                Reply::of(&wire::OpenOut { open_flags, ..wire::OpenOut::default() })
            }
            opcode::READ => {
                let (range, _) = range()?;
                self.read(range.offset, range.size).map(Reply::Bytes)
            }
            opcode::WRITE => {
                let (range, rest) = range()?;
                let bytes = rest.get(..range.size as usize).ok_or(Errno::INVAL)?;
                let size = self.write(range.offset, bytes)? as u32;
                Reply::of(&wire::WriteOut { size, padding: 0 })
            }
            opcode::FSYNC => self.flush().map(|()| Reply::Bytes(Vec::new())),
            opcode::FLUSH | opcode::RELEASE => Ok(Reply::Bytes(Vec::new())),
            opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT => Ok(Reply::Nothing),
            _ => Err(Errno::NOSYS),
        }
    }

    fn attributes(&self, node: u64) -> wire::Attr {
        let is_root = node == ROOT;
        let (mode, nlink) = if is_root { (0o040_755, 2) } else { (0o100_644, 1) };
        let size = if is_root { 0 } else { self.size };
        let blksize = BLOCK as u32;
        wire::Attr { ino: node, size, mode, nlink, blksize, ..wire::Attr::default() }
    }

    fn read(&self, offset: u64, size: u32) -> Result<Vec<u8>, Errno> {
        let mut state = self.state();
        let fails = |fault| match fault {
            Fault::Reads { one_in } => Some(one_in),
            Fault::Gone => Some(1),
            _ => None,
        };
        if self.meets(&mut state, fails) {
            return Err(Errno::IO);
        }
        drop(state);
        let length = u64::from(size).min(self.size.saturating_sub(offset));
        let mut bytes = vec![0; length as usize];
        self.image.read_exact_at(&mut bytes, offset).map_err(|_| Errno::IO)?;
        Ok(bytes)
    }

    /// Bytes that were written.
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<usize, Errno> {
        let mut state = self.state();
        let fails = |fault| match fault {
            Fault::Writes { one_in } => Some(one_in),
            Fault::Gone => Some(1),
            _ => None,
        };
        if self.meets(&mut state, fails) {
            return Err(Errno::IO);
        }
        let is_full = |fault| (fault == Fault::Full).then_some(1);
        let end = offset + bytes.len() as u64;
        if state.faults.contains(&Fault::Full)
            && self.has_hole(offset, end)
            && self.meets(&mut state, is_full)
        {
            return Err(Errno::NOSPC);
        }
        let is_short = |fault| match fault {
            Fault::ShortWrites { one_in } => Some(one_in),
            _ => None,
        };
        let bytes = match bytes.len() >= 2 * SECTOR && self.meets(&mut state, is_short) {
            true => &bytes[..(bytes.len() / 2).next_multiple_of(SECTOR)],
            false => bytes,
        };
        let end = offset + bytes.len() as u64;
        for block in offset / BLOCK..end.div_ceil(BLOCK) {
            state.lost.remove(&block);
            if let Entry::Vacant(unflushed) = state.unflushed.entry(block) {
                let at = block * BLOCK;
                let mut old = vec![0; BLOCK.min(self.size - at) as usize];
                self.image.read_exact_at(&mut old, at).map_err(|_| Errno::IO)?;
                unflushed.insert(old);
            }
        }
        self.image.write_all_at(bytes, offset).map_err(|_| Errno::IO)?;
        Ok(bytes.len())
    }

    fn flush(&self) -> Result<(), Errno> {
        let mut slow = Duration::ZERO;
        {
            let mut state = self.state();
            for fault in state.faults.clone() {
                if let Fault::SlowFlushes { milliseconds } = fault {
                    slow += Duration::from_millis(state.random.below(milliseconds) + 1);
                    self.injected.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        // Others are served while this one waits.
        thread::sleep(slow);
        let mut state = self.state();
        let fails = |fault| match fault {
            Fault::Flushes { one_in } => Some(one_in),
            Fault::Gone => Some(1),
            _ => None,
        };
        let is_failure = self.meets(&mut state, fails);
        let State { unflushed, lost, random, .. } = &mut *state;
        if is_failure {
            lost.extend(unflushed.keys().filter(|_| random.below(2) == 0));
            return Err(Errno::IO);
        }
        unflushed.retain(|block, _| lost.contains(block));
        Ok(())
    }

    /// Whether a fault with this `chance` (one in N) hits this request.
    fn meets(&self, state: &mut State, chance: impl Fn(Fault) -> Option<u64>) -> bool {
        let State { faults, random, .. } = state;
        let met = faults
            .iter()
            .filter_map(|fault| chance(*fault))
            .any(|one_in| random.below(one_in) == 0);
        if met {
            self.injected.fetch_add(1, Ordering::Relaxed);
        }
        met
    }

    /// Whether the image has no space for a part of the range.
    fn has_hole(&self, start: u64, end: u64) -> bool {
        let found = rustix::fs::seek(&self.image, SeekFrom::Hole(start));
        found.is_ok_and(|hole| hole < end)
    }
}

#[test]
fn a_disk_fails_as_it_is_told_and_loses_what_was_not_flushed() {
    if let Err(why) = super::can_mount() {
        extant_testkit::skip!("{why}");
    }
    let scratch = extant_testkit::Scratch::new();
    let backing = scratch.join("disk.img");
    File::create(&backing).and_then(|file| file.set_len(1 << 20)).expect("an image");
    let disk = Disk::new(&backing, scratch.join("disk"), 1).expect("a disk");
    let file = File::options().read(true).write(true).open(disk.image()).expect("open");
    let kind = |result: io::Result<()>| result.expect_err("it fails").raw_os_error();
    file.write_all_at(&[1; 8192], 0).expect("write");
    file.sync_all().expect("flush");
    file.write_all_at(&[2; 8192], 4096).expect("write");
    disk.fail_by(&[Fault::Writes { one_in: 1 }]);
    assert_eq!(kind(file.write_all_at(&[3; 512], 0)), Some(Errno::IO.raw_os_error()));
    disk.fail_by(&[Fault::Full]);
    assert_eq!(kind(file.write_all_at(&[3; 512], 1 << 19)), Some(Errno::NOSPC.raw_os_error()));
    disk.fail_by(&[Fault::Reads { one_in: 1 }]);
    assert_eq!(kind(file.read_exact_at(&mut [0; 512], 0)), Some(Errno::IO.raw_os_error()));
    disk.fail_by(&[Fault::Flushes { one_in: 1 }]);
    assert_eq!(kind(file.sync_all()), Some(Errno::IO.raw_os_error()));
    disk.fail_by(&[Fault::ShortWrites { one_in: 1 }]);
    assert_eq!(file.write_at(&[4; 4096], 1 << 18).expect("a part"), 2048);
    disk.fail_by(&[]);
    assert_eq!(disk.injected(), 5);
    let mut found = [0; 12_288];
    file.read_exact_at(&mut found, 0).expect("read");
    assert_eq!(found, *[[1; 4096], [2; 4096], [2; 4096]].as_flattened());
    drop(file);
    disk.cut_power(true).expect("the backing file is written");
    let found = fs::read(&backing).expect("read");
    assert_eq!(found[..12_288], *[[1; 4096], [1; 4096], [0; 4096]].as_flattened());
    assert!(found[12_288..].iter().all(|byte| *byte == 0));
}
