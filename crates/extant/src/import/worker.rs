//! Files made of an archive's entries.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use extant_engine::{Credentials, Engine, OpenVolume, RenameFlags, SetAttributes, XattrSet};
use extant_image::source::{
    ACL_ACCESS, ACL_DEFAULT, ContentChunk, DeviceNumber as ArchiveDevice, EntryName,
};
use extant_ondisk::InodeNo;
use extant_ondisk::inode::{DeviceNumber, FileType};
use extant_ondisk::time::Timestamp;
use extant_reader::{AclKind, Error as Cause, LoadedInode, VolumeRead};

use super::outcome::{Extracted, ExtractedCounts, MemberError, MemberProblem, is_of_path};

/// Attributes that a file is given.
#[derive(Debug)]
pub(super) struct Attributes {
    pub(super) permissions: u16,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) mtime: Timestamp,
    pub(super) atime: Option<Timestamp>,
    pub(super) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Attributes {
    /// Those of the owner, who may do what the caller may.
    pub(super) fn credentials(&self, caller: &Credentials) -> Credentials {
        Credentials { uid: self.uid, gid: self.gid, umask: 0, keeps_set_ids: true, ..*caller }
    }

    fn has(&self, name: &[u8]) -> bool {
        self.xattrs.iter().any(|(own, _)| own == name)
    }
}

/// A file that is no directory.
#[derive(Debug)]
pub(super) struct Leaf {
    /// As the archive has it.
    pub(super) path: Vec<u8>,
    pub(super) dir: InodeNo,
    pub(super) name: Vec<u8>,
    /// Whether the directory gives new files an access control list.
    pub(super) drops_lists: bool,
    /// The caller.
    pub(super) by: Credentials,
    pub(super) attributes: Attributes,
    pub(super) content: Content,
}

#[derive(Debug)]
pub(super) enum Content {
    /// Size with the holes, and the first contents.
    File {
        size: u64,
        chunks: Vec<ContentChunk>,
    },
    Symlink(Vec<u8>),
    Node(FileType, DeviceNumber),
}

impl Content {
    pub(super) fn node(file_type: FileType, number: ArchiveDevice) -> Self {
        Self::Node(file_type, DeviceNumber { major: number.major, minor: number.minor })
    }
}

/// A directory whose attributes are to be set.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) path: Vec<u8>,
    pub(super) inode: InodeNo,
    pub(super) attributes: Attributes,
}

#[derive(Debug)]
pub(super) enum Job {
    /// A file with all of its contents.
    Leaf(Box<Leaf>),
    /// A regular file with its first contents.
    Begin(Box<Leaf>),
    /// More of its contents.
    Chunk(ContentChunk),
    /// It is whole.
    End,
    /// It will not be whole.
    Abandon,
    Directory(Box<Directory>),
    /// All jobs before are done.
    Tell(SyncSender<()>),
}

impl Job {
    /// Bytes of contents.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Leaf(leaf) | Self::Begin(leaf) => match &leaf.content {
                Content::File { chunks, .. } => chunks.iter().map(|chunk| chunk.bytes.len()).sum(),
                Content::Symlink(_) | Content::Node(..) => 0,
            },
            Self::Chunk(chunk) => chunk.bytes.len(),
            Self::End | Self::Abandon | Self::Directory(_) | Self::Tell(_) => 0,
        }
    }
}

/// Counters as the workers change them.
#[derive(Debug, Default)]
pub(super) struct Counts {
    files: AtomicU64,
    pub(super) directories: AtomicU64,
    symlinks: AtomicU64,
    hard_links: AtomicU64,
    special_files: AtomicU64,
    bytes: AtomicU64,
}

/// The path of an entry, and why nothing after it can be made.
type Stop = (Vec<u8>, Cause);

/// The volume, and the outcome so far, for all threads.
pub(super) struct Shared<'v> {
    pub(super) volume: &'v OpenVolume,
    pub(super) engine: &'v Engine,
    counts: Counts,
    problems: Mutex<Vec<MemberProblem>>,
    stop: Mutex<Option<Stop>>,
    is_stopped: AtomicBool,
    /// Names whose last entry was refused: what has them is not of the archive.
    refused: Mutex<HashSet<(InodeNo, Vec<u8>)>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'v> Shared<'v> {
    pub(super) fn new(volume: &'v OpenVolume, engine: &'v Engine) -> Self {
        Self {
            volume,
            engine,
            counts: Counts::default(),
            problems: Mutex::default(),
            stop: Mutex::default(),
            is_stopped: AtomicBool::new(false),
            refused: Mutex::default(),
        }
    }

    /// Notes whether the entry of a name was unpacked, before it counts as done.
    pub(super) fn note_name(&self, dir: InodeNo, name: &[u8], is_unpacked: bool) {
        let mut refused = locked(&self.refused);
        if !is_unpacked {
            refused.insert((dir, name.to_vec()));
        } else if !refused.is_empty() {
            refused.remove(&(dir, name.to_vec()));
        }
    }

    /// Whether the last entry of a name was refused.
    pub(super) fn is_refused(&self, dir: InodeNo, name: &[u8]) -> bool {
        let refused = locked(&self.refused);
        !refused.is_empty() && refused.contains(&(dir, name.to_vec()))
    }

    /// Whether the volume takes no more.
    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    pub(super) fn count(&self, which: impl Fn(&Counts) -> &AtomicU64, by: u64) {
        which(&self.counts).fetch_add(by, Ordering::Relaxed);
    }

    /// Notes the error of an entry. One of the volume ends the extraction; what fails after it is
    /// not told.
    pub(super) fn failed(&self, path: &[u8], why: MemberError) {
        if self.is_stopped() {
            return;
        }
        match why {
            MemberError::Volume(cause) if !is_of_path(&cause) => {
                locked(&self.stop).get_or_insert_with(|| (path.to_vec(), cause));
                self.is_stopped.store(true, Ordering::Relaxed);
            }
            why => locked(&self.problems).push(MemberProblem { path: path.to_vec(), why }),
        }
    }

    /// The outcome, and the error that ended it.
    pub(super) fn finish(self) -> (Extracted, Option<Stop>) {
        let Counts { files, directories, symlinks, hard_links, special_files, bytes } = self.counts;
        let counts = ExtractedCounts {
            files: files.into_inner(),
            directories: directories.into_inner(),
            symlinks: symlinks.into_inner(),
            hard_links: hard_links.into_inner(),
            special_files: special_files.into_inner(),
            bytes: bytes.into_inner(),
        };
        let problems = self.problems.into_inner().unwrap_or_else(PoisonError::into_inner);
        let stop = self.stop.into_inner().unwrap_or_else(PoisonError::into_inner);
        (Extracted { counts, problems }, stop)
    }
}

/// A file without a name that is being written.
struct Open {
    leaf: Box<Leaf>,
    made: LoadedInode,
    /// End of the contents so far.
    end: u64,
    bytes: u64,
}

/// Makes files, one after the other.
pub(super) struct Worker<'e> {
    shared: &'e Shared<'e>,
    /// Number of this worker, and of all: no two use the same temporary name.
    number: usize,
    workers: usize,
    done: Arc<AtomicU64>,
    open: Option<Open>,
}

impl<'e> Worker<'e> {
    pub(super) fn new(shared: &'e Shared<'e>, number: usize, workers: usize) -> Self {
        Self { shared, number, workers, done: Arc::default(), open: None }
    }

    /// Counts files that were made or refused.
    pub(super) fn done(&self) -> Arc<AtomicU64> {
        self.done.clone()
    }

    pub(super) fn take(&mut self, job: Job) {
        match job {
            Job::Leaf(leaf) => {
                // One that came before the error of another worker is made after it, too.
                let outcome = self.leaf(&leaf);
                self.note(&leaf, outcome);
                self.is_done();
            }
            Job::Begin(leaf) => self.open = self.begin(leaf),
            Job::Chunk(chunk) => {
                if let Some(open) = &mut self.open
                    && let Err(cause) = write(self.shared.engine, open, &chunk)
                    && let Some(open) = self.open.take()
                {
                    self.note(&open.leaf, Err(cause.into()));
                    self.release(open.made.number);
                }
            }
            Job::End => {
                if let Some(open) = self.open.take() {
                    self.end(&open);
                }
                self.is_done();
            }
            Job::Abandon => {
                self.abandon();
                self.is_done();
            }
            Job::Directory(directory) => self.directory(&directory),
            // The asking thread waits for it.
            Job::Tell(to) => drop(to.send(())),
        }
    }

    fn is_done(&self) {
        self.done.fetch_add(1, Ordering::Release);
    }

    /// Notes the outcome of a file.
    fn note(&self, leaf: &Leaf, outcome: Result<(), MemberError>) {
        self.shared.note_name(leaf.dir, &leaf.name, outcome.is_ok());
        if let Err(why) = outcome {
            self.shared.failed(&leaf.path, why);
        }
    }

    fn abandon(&mut self) {
        if let Some(open) = self.open.take() {
            self.shared.note_name(open.leaf.dir, &open.leaf.name, false);
            self.release(open.made.number);
        }
    }

    fn release(&self, inode: InodeNo) {
        if let Err(error) = self.shared.engine.release(inode, 1) {
            tracing::warn!("a file without a name was not released: {error}");
        }
    }

    /// Makes a file in one step.
    fn leaf(&mut self, leaf: &Leaf) -> Result<(), MemberError> {
        let engine = self.shared.engine;
        let by = leaf.attributes.credentials(&leaf.by);
        let permissions = leaf.attributes.permissions;
        match &leaf.content {
            Content::File { size, chunks } => {
                let made = match engine.create(leaf.dir, &leaf.name, permissions, &by) {
                    Err(Cause::Exists) => return self.over_another(leaf),
                    made => made?,
                };
                let bytes = self.whole(leaf, &made, *size, chunks).inspect_err(|_| {
                    // The first error is the one reported.
                    let _ = engine.unlink(leaf.dir, &leaf.name);
                })?;
                self.shared.count(|counts| &counts.bytes, bytes);
                self.shared.count(|counts| &counts.files, 1);
            }
            Content::Symlink(target) => {
                let made = |name: &[u8]| engine.symlink(leaf.dir, name, target, &by);
                self.named(leaf, made)?;
                self.shared.count(|counts| &counts.symlinks, 1);
            }
            Content::Node(file_type, number) => {
                let mode = file_type.mode() | permissions;
                let made = |name: &[u8]| engine.mknod(leaf.dir, name, mode, *number, &by);
                self.named(leaf, made)?;
                self.shared.count(|counts| &counts.special_files, 1);
            }
        }
        Ok(())
    }

    /// Makes a file by `make`, and sets its attributes before it takes the name of another.
    fn named(
        &self,
        leaf: &Leaf,
        make: impl Fn(&[u8]) -> Result<LoadedInode, Cause>,
    ) -> Result<(), MemberError> {
        self.take_name(leaf.dir, &leaf.name, &mut |name| {
            let made = make(name)?;
            self.describe(&leaf.path, &made, &leaf.attributes, leaf.drops_lists).inspect_err(|_| {
                let _ = self.shared.engine.unlink(leaf.dir, name);
            })
        })
    }

    /// Makes a file at its name, or where another one is, at a temporary name and renames it.
    fn take_name(
        &self,
        dir: InodeNo,
        name: &[u8],
        make: &mut dyn FnMut(&[u8]) -> Result<(), Cause>,
    ) -> Result<(), MemberError> {
        match make(name) {
            Err(Cause::Exists) => {}
            made => return Ok(made?),
        }
        self.check_replaceable(dir, name)?;
        let temporary = self.unused_name(dir)?;
        make(&temporary)?;
        let engine = self.shared.engine;
        let renamed = engine.rename(dir, &temporary, dir, name, RenameFlags::default());
        renamed.inspect_err(|_| {
            let _ = engine.unlink(dir, &temporary);
        })?;
        Ok(())
    }

    fn check_replaceable(&self, dir: InodeNo, name: &[u8]) -> Result<(), MemberError> {
        let found = self.shared.volume.lookup(dir, name)?;
        match self.shared.volume.inode(found.inode)?.is_dir() {
            true => Err(MemberError::OverDirectory),
            false => Ok(()),
        }
    }

    /// A name that no file of the directory has.
    fn unused_name(&self, dir: InodeNo) -> Result<Vec<u8>, Cause> {
        for number in (self.number..).step_by(self.workers) {
            let name = format!(".extant-{number}").into_bytes();
            match self.shared.volume.lookup(dir, &name) {
                Err(Cause::NotFound) => return Ok(name),
                found => found.map(drop)?,
            }
        }
        Err(Cause::Exists)
    }

    /// Writes all of a new file and sets its attributes; the number of bytes written.
    fn whole(
        &self,
        leaf: &Leaf,
        made: &LoadedInode,
        size: u64,
        chunks: &[ContentChunk],
    ) -> Result<u64, Cause> {
        let engine = self.shared.engine;
        let by = leaf.attributes.credentials(&leaf.by);
        let (mut end, mut bytes) = (0, 0);
        for chunk in chunks {
            end = write_all(engine, made.number, chunk, &by)?;
            bytes += chunk.bytes.len() as u64;
        }
        if end < size {
            engine.truncate_by(made.number, size, &by)?;
        }
        if size > 0 {
            engine.last_writer_closed(made.number);
        }
        self.describe(&leaf.path, made, &leaf.attributes, leaf.drops_lists)?;
        Ok(bytes)
    }

    /// Makes a file without a name, which takes the place of another when it is whole.
    fn over_another(&mut self, leaf: &Leaf) -> Result<(), MemberError> {
        self.check_replaceable(leaf.dir, &leaf.name)?;
        let Content::File { size, chunks } = &leaf.content else { return Ok(()) };
        let by = leaf.attributes.credentials(&leaf.by);
        let made = self.shared.engine.tmpfile(leaf.dir, leaf.attributes.permissions, &by)?;
        let bytes = self.whole(leaf, &made, *size, chunks).map_err(MemberError::from);
        let outcome = bytes.and_then(|bytes| self.put_in_place(leaf, made.number, bytes));
        self.release(made.number);
        outcome
    }

    /// Gives a whole file its name.
    fn put_in_place(&self, leaf: &Leaf, inode: InodeNo, bytes: u64) -> Result<(), MemberError> {
        let link = |name: &[u8]| self.shared.engine.link(inode, leaf.dir, name).map(drop);
        self.take_name(leaf.dir, &leaf.name, &mut { link })?;
        self.shared.count(|counts| &counts.bytes, bytes);
        self.shared.count(|counts| &counts.files, 1);
        Ok(())
    }

    fn begin(&self, leaf: Box<Leaf>) -> Option<Open> {
        let engine = self.shared.engine;
        let by = leaf.attributes.credentials(&leaf.by);
        let made = match engine.tmpfile(leaf.dir, leaf.attributes.permissions, &by) {
            Ok(made) => made,
            Err(cause) => {
                self.note(&leaf, Err(cause.into()));
                return None;
            }
        };
        let mut open = Open { leaf, made, end: 0, bytes: 0 };
        let first = match &mut open.leaf.content {
            Content::File { chunks, .. } => std::mem::take(chunks),
            Content::Symlink(_) | Content::Node(..) => Vec::new(),
        };
        for chunk in first {
            if let Err(cause) = write(engine, &mut open, &chunk) {
                self.note(&open.leaf, Err(cause.into()));
                self.release(open.made.number);
                return None;
            }
        }
        Some(open)
    }

    fn end(&self, open: &Open) {
        self.note(&open.leaf, self.finish(open));
        self.release(open.made.number);
    }

    fn finish(&self, open: &Open) -> Result<(), MemberError> {
        let Open { leaf, made, end, bytes } = open;
        if let Content::File { size, .. } = leaf.content
            && *end < size
        {
            let by = leaf.attributes.credentials(&leaf.by);
            self.shared.engine.truncate_by(made.number, size, &by)?;
        }
        self.describe(&leaf.path, made, &leaf.attributes, leaf.drops_lists)?;
        self.put_in_place(leaf, made.number, *bytes)
    }

    /// Gives a file a further name.
    pub(super) fn link(&self, file: InodeNo, dir: InodeNo, name: &[u8]) -> Result<(), MemberError> {
        let engine = self.shared.engine;
        let is_same = || {
            let found = self.shared.volume.lookup(dir, name);
            found.is_ok_and(|found| found.inode == file)
        };
        let mut link = |as_name: &[u8]| match engine.link(file, dir, as_name) {
            // A rename would leave both names.
            Err(Cause::Exists) if is_same() => Ok(()),
            linked => linked.map(drop),
        };
        self.take_name(dir, name, &mut link)?;
        self.shared.count(|counts| &counts.hard_links, 1);
        Ok(())
    }

    fn directory(&self, directory: &Directory) {
        let described =
            self.shared.volume.inode(directory.inode).and_then(|found| {
                self.describe(&directory.path, &found, &directory.attributes, true)
            });
        if let Err(cause) = described {
            self.shared.failed(&directory.path, cause.into());
        }
    }

    /// Sets the attributes that a file does not have yet, its times last.
    fn describe(
        &self,
        path: &[u8],
        made: &LoadedInode,
        attributes: &Attributes,
        drops_lists: bool,
    ) -> Result<(), Cause> {
        let (volume, engine, inode) = (self.shared.volume, self.shared.engine, made.number);
        let is_link = made.file_type() == FileType::Symlink;
        let mut permissions = made.permissions();
        if drops_lists && !is_link {
            let lists = [(AclKind::Access, ACL_ACCESS), (AclKind::Default, ACL_DEFAULT)];
            for (kind, name) in lists {
                let may_have = kind == AclKind::Access || made.is_dir();
                if may_have && !attributes.has(name) && volume.acl(inode, kind)?.is_some() {
                    engine.set_acl(inode, kind, None)?;
                }
            }
            permissions = volume.inode(inode)?.permissions();
        }
        let owner = SetAttributes {
            uid: (made.uid != attributes.uid).then_some(attributes.uid),
            gid: (made.gid != attributes.gid).then_some(attributes.gid),
            mode: (!is_link && permissions != attributes.permissions)
                .then_some(attributes.permissions),
            ..SetAttributes::default()
        };
        if owner != SetAttributes::default() {
            engine.set_attributes(inode, &owner)?;
        }
        for (name, value) in &attributes.xattrs {
            match engine.set_xattr(inode, name, value, XattrSet::Any) {
                Err(cause) if is_of_path(&cause) => {
                    let name = EntryName(name.clone());
                    self.shared.failed(path, MemberError::Xattr { name, cause });
                }
                set => set?,
            }
        }
        let times = SetAttributes {
            atime: attributes.atime,
            mtime: Some(attributes.mtime),
            ..SetAttributes::default()
        };
        engine.set_attributes(inode, &times).map(drop)
    }
}

fn write(engine: &Engine, open: &mut Open, chunk: &ContentChunk) -> Result<(), Cause> {
    let by = open.leaf.attributes.credentials(&open.leaf.by);
    open.end = write_all(engine, open.made.number, chunk, &by)?;
    open.bytes += chunk.bytes.len() as u64;
    Ok(())
}

/// Writes a chunk; where it ends in the file.
fn write_all(
    engine: &Engine,
    inode: InodeNo,
    chunk: &ContentChunk,
    by: &Credentials,
) -> Result<u64, Cause> {
    let mut at = chunk.offset;
    let mut left = &chunk.bytes[..];
    while !left.is_empty() {
        let count = engine.write_by(inode, at, left, by)?;
        left = &left[count..];
        at += count as u64;
    }
    Ok(at)
}
