//! Work on the mount that knows what it may find there after a crash: random changes of files,
//! and of names.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use extant_testkit::tree::Random;
use rustix::fs::{FallocateFlags, OFlags};

use super::model::{Contents, Names};
use super::watch::{Calls, locked};

/// The largest size of a file whose changes are random.
const MOST: u64 = 192 << 10;
/// Calls that a failure's message tells.
const CALLS: usize = 60;
/// Names that come and go.
const NAMES: u64 = 24;

/// State shared by the works of a round.
pub(super) struct Shared {
    pub(super) calls: Arc<Calls>,
    /// Where they work, on the mount.
    pub(super) dir: PathBuf,
    pub(super) stop: AtomicBool,
    /// Calls may fail from now on.
    pub(super) trouble: AtomicBool,
    pub(super) failures: Mutex<Vec<String>>,
}

impl Shared {
    /// Makes a call under watch. `None` ends the work; it is a failure where nothing has gone
    /// wrong.
    pub(super) fn call<T>(&self, what: &str, call: impl FnOnce() -> io::Result<T>) -> Option<T> {
        match self.calls.call(what, call) {
            Ok(value) => Some(value),
            Err(error) => {
                self.fail_if_sound(|| format!("{what}: {error}"));
                None
            }
        }
    }

    pub(super) fn fail_if_sound(&self, why: impl FnOnce() -> String) {
        if !self.trouble.load(Ordering::SeqCst) {
            locked(&self.failures).push(why());
        }
    }

    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::SeqCst)
    }
}

/// How a file is made durable.
#[derive(Clone, Copy, Debug)]
enum Way {
    Fsync,
    Fdatasync,
    /// Each write is, by O_DSYNC.
    Dsync,
    /// As [`Way::Fsync`], with writes around the cache.
    Direct,
}

/// Possible contents of a file after a crash.
pub(super) struct Pages {
    name: String,
    contents: Contents,
    /// Whether the file's name is durable.
    is_named: bool,
    way: Way,
    /// The last calls, for a failure's message.
    calls: VecDeque<String>,
}

impl Pages {
    /// Changes a file at random and compares what it reads, until it is stopped or a call fails.
    pub(super) fn work(shared: &Shared, name: &str, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let ways = [Way::Fsync, Way::Fdatasync, Way::Dsync, Way::Direct];
        let way = ways[random.below(4) as usize];
        let contents = Contents::default();
        let (name, calls) = (name.to_owned(), VecDeque::new());
        let mut pages = Self { name, contents, is_named: false, way, calls };
        // How it ended is told where it matters.
        let _ = pages.steps(shared, way, &mut random);
        pages
    }

    fn steps(&mut self, shared: &Shared, way: Way, random: &mut Random) -> Option<()> {
        let flags = match way {
            Way::Dsync => OFlags::DSYNC,
            Way::Direct => OFlags::DIRECT,
            Way::Fsync | Way::Fdatasync => OFlags::empty(),
        };
        let path = shared.dir.join(&self.name);
        let said = |call: &str| format!("{call} of {} ({way:?})", self.name);
        let (written, read, cut) = (said("write"), said("read"), said("ftruncate"));
        let (synced, punched) = (said("sync"), said("fallocate"));
        let file = shared.call(&said("open"), || {
            use std::os::unix::fs::OpenOptionsExt;
            let mut options = File::options();
            options.read(true).write(true).create(true);
            options.custom_flags(flags.bits().cast_signed()).open(&path)
        })?;
        while shared.goes_on() {
            let size = self.contents.bytes().len() as u64;
            match random.below(16) {
                0..7 => {
                    let offset = random.below(MOST.min(size + 20_000));
                    let most = [600, 5000, 40_000][random.below(3) as usize];
                    let length = 1 + random.below(most);
                    let bytes = random.bytes(length.min(MOST - offset) as usize);
                    self.tell(format!("write {offset}+{}", bytes.len()));
                    self.contents.write(offset as usize, &bytes);
                    shared.call(&written, || file.write_all_at(&bytes, offset))?;
                    if let Way::Dsync = way {
                        self.acknowledge();
                    }
                }
                7..11 => {
                    let offset = random.below(size + 1);
                    let length = (1 + random.below(30_000)).min(size - offset);
                    let mut bytes = vec![0; length as usize];
                    shared.call(&read, || file.read_exact_at(&mut bytes, offset))?;
                    let expected = &self.contents.bytes()[offset as usize..][..bytes.len()];
                    if bytes != expected {
                        let at = bytes.iter().zip(expected).position(|(a, b)| a != b);
                        let at = at.map_or(offset, |at| offset + at as u64);
                        shared.fail_if_sound(|| format!("{read}: other bytes from {at} on"));
                        return None;
                    }
                }
                11 => {
                    let size = random.below(MOST);
                    self.tell(format!("truncate {size}"));
                    self.contents.truncate(size as usize);
                    shared.call(&cut, || file.set_len(size))?;
                }
                12 if size > 0 => {
                    let offset = random.below(size);
                    let length = (1 + random.below(30_000)).min(size - offset);
                    self.tell(format!("punch {offset}+{length}"));
                    self.contents.write(offset as usize, &vec![0; length as usize]);
                    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                    shared.call(&punched, || {
                        Ok(rustix::fs::fallocate(&file, flags, offset, length)?)
                    })?;
                }
                _ => {
                    shared.call(&synced, || match way {
                        Way::Fdatasync => file.sync_data(),
                        _ => file.sync_all(),
                    })?;
                    self.acknowledge();
                }
            }
        }
        Some(())
    }

    fn tell(&mut self, call: String) {
        self.calls.truncate(CALLS);
        self.calls.push_front(call);
    }

    fn acknowledge(&mut self) {
        self.tell("durable".to_owned());
        self.contents.acknowledge();
        self.is_named = true;
    }

    /// Sectors that must be as they were.
    pub(super) fn certain(&self) -> u64 {
        self.contents.certain()
    }

    /// Why a crash cannot have left this directory, if it cannot.
    pub(super) fn refuses(&self, dir: &Path, has_failed: bool) -> Option<String> {
        match fs::read(dir.join(&self.name)) {
            Ok(found) => self.contents.refuses(&found, has_failed).map(|why| {
                let (name, way) = (&self.name, self.way);
                format!("{name}: {why}; {way:?}; its calls, the last one first: {:?}", self.calls)
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound && !self.is_named => None,
            Err(error) => Some(format!("{}: {error}", self.name)),
        }
    }
}

/// The names of a directory after a crash.
pub(super) struct Tree {
    name: String,
    names: Names,
}

impl Tree {
    /// Makes, renames and removes files, until it is stopped or a call fails.
    pub(super) fn work(shared: &Shared, name: &str, seed: u64) -> Self {
        let mut tree = Self { name: name.to_owned(), names: Names::default() };
        let _ = tree.steps(shared, &mut Random::new(seed));
        tree
    }

    fn steps(&mut self, shared: &Shared, random: &mut Random) -> Option<()> {
        let dir = shared.dir.join(&self.name);
        shared.call("mkdir", || fs::create_dir(&dir))?;
        let opened = shared.call("open of a directory", || File::open(&dir))?;
        shared.call("fsync of a directory", || opened.sync_all())?;
        while shared.goes_on() {
            let present = self.names.present();
            let some = (!present.is_empty())
                .then(|| present[random.below(present.len() as u64) as usize].clone());
            let name = format!("a file with a name of some length {}", random.below(NAMES));
            match (random.below(8), some) {
                (0..4, _) | (_, None) => {
                    let length = [10, 3000, 70_000][random.below(3) as usize];
                    let bytes = random.bytes(length);
                    self.names.set(&name, Some(bytes.clone()));
                    let file = shared.call("create", || File::create(dir.join(&name)))?;
                    shared.call("write", || file.write_all_at(&bytes, 0))?;
                    shared.call("fsync of a new file", || file.sync_all())?;
                    self.names.acknowledge_one(&name);
                }
                (4..6, Some(from)) if from != name => {
                    let content = self.names.content(&from);
                    self.names.set(&name, content);
                    self.names.set(&from, None);
                    shared.call("rename", || fs::rename(dir.join(&from), dir.join(&name)))?;
                }
                (6, Some(gone)) => {
                    self.names.set(&gone, None);
                    shared.call("unlink", || fs::remove_file(dir.join(&gone)))?;
                }
                _ => {
                    shared.call("fsync of a directory", || opened.sync_all())?;
                    self.names.acknowledge();
                }
            }
        }
        Some(())
    }

    /// Items that must be as they were.
    pub(super) fn certain(&self) -> u64 {
        self.names.certain()
    }

    pub(super) fn refuses(&self, dir: &Path) -> Option<String> {
        let dir = dir.join(&self.name);
        self.names.refuses(|name| fs::read(dir.join(name)).ok())
    }
}
