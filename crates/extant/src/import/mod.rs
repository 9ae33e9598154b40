//! A tar archive unpacked into a file system.
//!
//! One thread reads the archive and finds the directories, which it makes itself; several make the
//! files. What has a name is whole: contents of more than one chunk are written to a file without a
//! name, which gets it at the end, and a file in its place is replaced by a rename.

mod lane;
mod outcome;
mod place;
mod worker;

use std::fmt;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use extant_engine::{Credentials, Engine};
use extant_image::source::{
    Archive, Contents, EntryName, Flaw, Halt, Halted, Member, MemberKind, Owners, Unpacking,
};
use extant_ondisk::InodeNo;
use extant_ondisk::inode::{DeviceNumber, FileType};
use extant_ondisk::time::Timestamp;
use extant_reader::{Error as Cause, Follow, VolumeRead};

use crate::fs::FileSystem;
use crate::path_error::PathError;
use lane::{BATCHES, Lane};
use outcome::is_of_path;
pub use outcome::{
    ExtractCause, ExtractError, Extracted, ExtractedCounts, MemberError, MemberProblem,
};
use place::{Dir, Places, ResolvedPath};
use worker::{Attributes, Content, Directory, Job, Leaf, Shared, Worker};

/// Bytes that are handed on at once; a file up to this size is made in one step.
const CHUNK: usize = 256 * 1024;
/// Most threads that make files by default.
const MOST_THREADS: usize = 4;

type OnProgress = Arc<dyn Fn(u64) + Send + Sync>;

/// Unpacks a tar archive into a directory, as `tar x` does for root: with owners, modes, times,
/// extended attributes, access control lists, hard links, device files and holes.
///
/// A file that is there is replaced, a directory is filled. A path with `..`, along a symbolic link
/// of the archive, or along one that leads out of the directory is refused; the entries after it
/// are unpacked.
///
/// # Costs
/// The archive is read once, from its beginning to its end, by the caller; [`Self::threads`] others
/// make the files, as many as processors and four at most unless that is set. Between them are up
/// to 4 MiB for each thread. Contents reach the device as those of [`FileSystem::write`] do.
///
/// ```
/// use extant::source::Archive;
/// use extant::{FileSystem, Formatter, MemoryDevice, TarExtractor, TarWriter};
/// use std::sync::Arc;
///
/// let make = || -> Result<FileSystem, Box<dyn std::error::Error>> {
///     let device = Arc::new(MemoryDevice::new(8 << 20));
///     Formatter::new().format(&*device)?;
///     Ok(FileSystem::on_device(device)?)
/// };
/// let (from, to) = (make()?, make()?);
/// from.create_dir("/etc")?;
/// from.write("/etc/hostname", "example\n")?;
/// let mut bytes = Vec::new();
/// TarWriter::new(&from).start("/etc").write(&mut bytes)?;
///
/// let archive = Archive::of_reader("etc.tar", std::io::Cursor::new(bytes))?;
/// let extracted = TarExtractor::new(&to).extract(archive)?;
/// assert_eq!(extracted.counts.files, 1);
/// assert_eq!(to.read_to_string("/hostname")?, "example\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct TarExtractor {
    fs: FileSystem,
    into: PathBuf,
    unpacking: Unpacking,
    threads: usize,
    on_progress: Option<OnProgress>,
}

impl fmt::Debug for TarExtractor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("TarExtractor");
        shown.field("fs", &self.fs).field("into", &self.into).field("unpacking", &self.unpacking);
        shown.field("threads", &self.threads).finish_non_exhaustive()
    }
}

impl TarExtractor {
    /// Unpacks into the root directory of a file system.
    pub fn new(fs: &FileSystem) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self {
            fs: fs.clone(),
            into: PathBuf::from("/"),
            unpacking: Unpacking::default(),
            threads: processors.min(MOST_THREADS),
            on_progress: None,
        }
    }

    /// The directory to unpack into, which must be there.
    #[must_use]
    pub fn into_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.into = dir.into();
        self
    }

    /// Owners of the files; without it those in the archive.
    #[must_use]
    pub fn owners(mut self, owners: Owners) -> Self {
        self.unpacking.owners = owners;
        self
    }

    /// `SOURCE_DATE_EPOCH`, in seconds since 1970: later times of files become this one.
    #[must_use]
    pub fn source_date_epoch(mut self, seconds: i64) -> Self {
        self.unpacking.latest = Some(seconds);
        self
    }

    /// Number of threads that make files. With one the thread that reads the archive makes them.
    #[must_use]
    pub fn threads(mut self, threads: NonZeroUsize) -> Self {
        self.threads = threads.get();
        self
    }

    /// A function that is told how many bytes of the unpacked archive have been read.
    #[must_use]
    pub fn on_progress(mut self, call: impl Fn(u64) + Send + Sync + 'static) -> Self {
        self.on_progress = Some(Arc::new(call));
        self
    }

    /// Unpacks the archive. Changes are on the device after [`FileSystem::sync`] or
    /// [`FileSystem::close`].
    ///
    /// # Errors
    /// There is no such directory, the archive is damaged, the volume is full, or the device
    /// failed.
    pub fn extract(&self, archive: Archive) -> Result<Extracted, ExtractError> {
        let volume = self.fs.volume();
        let at_start = |cause| ExtractError {
            cause: ExtractCause::Path(Box::new(PathError::at(&self.into, cause))),
            extracted: Box::default(),
        };
        let engine = volume.engine().map_err(at_start)?;
        let into = volume.resolve(self.into.as_os_str().as_bytes(), Follow::Yes);
        let into = into.and_then(|into| into.as_dir().map(|dir| dir.number)).map_err(at_start)?;
        let places = Places::new(volume, into).map_err(at_start)?;
        let shared = Shared::new(volume, engine);
        let halted = self.run(archive, places, &shared);
        let (extracted, stopped) = shared.finish();
        let cause = match (stopped, halted) {
            (Some((path, cause)), _) => {
                let path = Path::new(std::ffi::OsStr::from_bytes(&path));
                let below = path.strip_prefix("/").unwrap_or(path);
                ExtractCause::Path(Box::new(PathError::at(&self.into.join(below), cause)))
            }
            (None, Err(Halted::Archive(error))) => ExtractCause::Archive(Box::new(error)),
            (None, Ok(()) | Err(Halted::Caller(()))) => return Ok(extracted),
        };
        Err(ExtractError { cause, extracted: Box::new(extracted) })
    }

    fn run(
        &self,
        archive: Archive,
        places: Places<'_>,
        shared: &Shared<'_>,
    ) -> Result<(), Halted<()>> {
        std::thread::scope(|scope| {
            // The last number is that of the thread that reads.
            let worker = |number| Worker::new(shared, number, self.threads + 1);
            let lane = |number| {
                if self.threads == 1 {
                    return Lane::here(worker(number));
                }
                let (to, jobs) = sync_channel(BATCHES);
                let mut worker = worker(number);
                let lane = Lane::of_thread(to, worker.done());
                scope.spawn(move || jobs.into_iter().flatten().for_each(|job| worker.take(job)));
                lane
            };
            let mut extraction = Extraction {
                shared,
                engine: shared.engine,
                by: *self.fs.credentials(),
                lanes: (0..self.threads).map(lane).collect(),
                own: worker(self.threads),
                places,
                directories: Vec::new(),
            };
            let halted = archive.unpack(&self.unpacking, &mut |member, contents| {
                if let Some(call) = &self.on_progress {
                    call(contents.position());
                }
                extraction.member(member, contents)
            });
            extraction.finish();
            halted
        })
    }
}

/// The work of the thread that reads the archive.
struct Extraction<'e> {
    shared: &'e Shared<'e>,
    engine: &'e Engine,
    /// The caller's credentials.
    by: Credentials,
    lanes: Vec<Lane<'e>>,
    /// For what this thread makes itself.
    own: Worker<'e>,
    places: Places<'e>,
    /// Attributes of directories are set when nothing more is made in them.
    directories: Vec<Directory>,
}

impl Extraction<'_> {
    /// Takes one entry. A refused one is noted, and the next is taken.
    fn member(
        &mut self,
        mut member: Member<'_>,
        contents: &mut Contents<'_>,
    ) -> Result<(), Halt<()>> {
        if self.shared.is_stopped() {
            return Err(Halt::Caller(()));
        }
        for name in std::mem::take(&mut member.ignored_xattrs) {
            self.shared.failed(member.path, MemberError::IgnoredXattr(EntryName(name)));
        }
        let path = member.path;
        match self.put(member, contents) {
            Ok(()) => Ok(()),
            Err(Halt::Archive(flaw)) => Err(Halt::Archive(flaw)),
            Err(Halt::Caller(why)) => {
                self.shared.failed(path, why);
                Ok(())
            }
        }
    }

    fn put(
        &mut self,
        mut member: Member<'_>,
        contents: &mut Contents<'_>,
    ) -> Result<(), Halt<MemberError>> {
        let path = member.path;
        let attributes = Attributes {
            permissions: member.permissions,
            uid: member.uid,
            gid: member.gid,
            mtime: Timestamp::new(member.mtime.seconds, member.mtime.nanoseconds),
            atime: member.atime.map(|time| Timestamp::new(time.seconds, time.nanoseconds)),
            xattrs: std::mem::take(&mut member.xattrs),
        };
        let place = self.places.parent(path, &mut self.lanes, Some(&self.by));
        let place = place.map_err(Halt::Caller)?;
        let content = match member.kind {
            MemberKind::Directory => {
                return self.directory(path, place, attributes).map_err(Halt::Caller);
            }
            MemberKind::HardLink(target) => {
                return self.hard_link(place, target).map_err(Halt::Caller);
            }
            MemberKind::Regular { size } => Content::File { size, chunks: Vec::new() },
            MemberKind::Symlink(target) => Content::Symlink(target.to_vec()),
            MemberKind::CharDevice(number) => Content::node(FileType::CharDevice, number),
            MemberKind::BlockDevice(number) => Content::node(FileType::BlockDevice, number),
            MemberKind::Fifo => Content::Node(FileType::Fifo, DeviceNumber { major: 0, minor: 0 }),
        };
        let ResolvedPath::Name(dir, name) = place else {
            return Err(Halt::Caller(MemberError::Root));
        };
        self.places.note(dir.inode, name, matches!(content, Content::Symlink(_)));
        let leaf = Leaf {
            path: path.to_vec(),
            dir: dir.inode,
            name: name.to_vec(),
            drops_lists: dir.has_default_list,
            by: self.by,
            attributes,
            content,
        };
        Ok(self.send(leaf, contents)?)
    }

    /// Hands a file to a lane, and its contents chunk by chunk.
    fn send(&mut self, mut leaf: Leaf, contents: &mut Contents<'_>) -> Result<(), Flaw> {
        let lane = Lane::of(leaf.dir, &leaf.name, self.lanes.len());
        let lane = &mut self.lanes[lane];
        let first = contents.next(CHUNK)?;
        let mut next = match first {
            Some(_) => contents.next(CHUNK)?,
            None => None,
        };
        if let Content::File { chunks, .. } = &mut leaf.content {
            chunks.extend(first);
        }
        if next.is_none() {
            lane.send_leaf(Job::Leaf(Box::new(leaf)));
            return Ok(());
        }
        lane.send_leaf(Job::Begin(Box::new(leaf)));
        while let Some(chunk) = next {
            lane.send(Job::Chunk(chunk));
            next = contents.next(CHUNK).inspect_err(|_| lane.send(Job::Abandon))?;
        }
        lane.send(Job::End);
        Ok(())
    }

    /// Makes a directory, or takes one that is there.
    fn directory(
        &mut self,
        path: &[u8],
        place: ResolvedPath<'_>,
        attributes: Attributes,
    ) -> Result<(), MemberError> {
        let inode = match place {
            ResolvedPath::Root(inode) => inode,
            ResolvedPath::Name(dir, name) => {
                Lane::wait_for(&mut self.lanes, dir.inode, name);
                let by = attributes.credentials(&self.by);
                match self.engine.mkdir(dir.inode, name, attributes.permissions, &by) {
                    Ok(made) => made.number,
                    Err(Cause::Exists) => {
                        let found = self.shared.volume.lookup(dir.inode, name)?;
                        let found = self.shared.volume.inode(found.inode)?;
                        found.as_dir().map_err(|_| MemberError::OverFile)?.number
                    }
                    Err(cause) => return Err(cause.into()),
                }
            }
        };
        self.shared.count(|counts| &counts.directories, 1);
        self.directories.push(Directory { path: path.to_vec(), inode, attributes });
        Ok(())
    }

    fn hard_link(&mut self, place: ResolvedPath<'_>, target: &[u8]) -> Result<(), MemberError> {
        let ResolvedPath::Name(dir, name) = place else { return Err(MemberError::Root) };
        let linked = self.linked(dir, name, target);
        self.shared.note_name(dir.inode, name, linked.is_ok());
        linked
    }

    fn linked(&mut self, dir: Dir, name: &[u8], target: &[u8]) -> Result<(), MemberError> {
        let file = self.target(target).map_err(|why| match why {
            MemberError::Volume(cause) if !is_of_path(&cause) => MemberError::Volume(cause),
            why => MemberError::Link { target: target.into(), why: Box::new(why) },
        })?;
        Lane::wait_for(&mut self.lanes, dir.inode, name);
        self.places.note(dir.inode, name, false);
        self.own.link(file, dir.inode, name)
    }

    /// The file of a path in the archive.
    fn target(&mut self, path: &[u8]) -> Result<InodeNo, MemberError> {
        let place = self.places.parent(path, &mut self.lanes, None)?;
        let ResolvedPath::Name(dir, name) = place else { return Err(Cause::IsADirectory.into()) };
        Lane::wait_for(&mut self.lanes, dir.inode, name);
        let is_refused = self.shared.is_refused(dir.inode, name);
        let found = match self.shared.volume.lookup(dir.inode, name) {
            Err(Cause::NotFound) if is_refused => return Err(MemberError::TargetRefused),
            found => found?,
        };
        match self.shared.volume.inode(found.inode)?.is_dir() {
            true => Err(Cause::IsADirectory.into()),
            false if is_refused => Err(MemberError::TargetRefused),
            false => Ok(found.inode),
        }
    }

    /// Waits for the files, and sets the attributes of the directories.
    fn finish(mut self) {
        self.lanes.iter_mut().for_each(Lane::drain);
        for directory in self.directories {
            // Of two entries of one directory the last counts.
            let lane = directory.inode.0 as usize % self.lanes.len();
            self.lanes[lane].send(Job::Directory(Box::new(directory)));
        }
        self.lanes.iter_mut().for_each(Lane::flush);
    }
}
