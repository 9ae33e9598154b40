//! The calls by which a transport carries out requests.
//!
//! [`Server`] answers them from a volume. A program that measures the transport by itself answers
//! them with less: most calls have an answer here for a file system that lacks them.

use std::fmt::Debug;
use std::sync::RwLockReadGuard;

use extant_engine::ErrorSample;
use extant_ondisk::InodeNo;
use extant_ondisk::time::Timestamp;
use extant_reader::StatFs;
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::attr::Attributes;
use crate::server::{Cached, Caller, Change, Listed, Listing, LookedUp, OpenFor, Server, WriteBy};

/// A change in progress: while it lives the files are not frozen.
#[derive(Debug)]
pub struct OngoingChange<'a>(
    #[expect(dead_code, reason = "held")] Option<RwLockReadGuard<'a, bool>>,
);

impl<'a> OngoingChange<'a> {
    /// A change of files that are never frozen.
    pub fn unguarded() -> Self {
        Self(None)
    }

    pub(crate) fn of(guard: RwLockReadGuard<'a, bool>) -> Self {
        Self(Some(guard))
    }
}

/// The files of a directory that is being read.
pub trait ListedFiles {
    /// The attributes of a listed file; `None` if it is corrupt or gone.
    fn attributes(&self, file: InodeNo) -> Option<Attributes>;

    /// Takes a lookup count on a listed file; `None` if it is corrupt or gone.
    fn look_up(&self, file: InodeNo) -> Option<LookedUp>;

    /// Drops one lookup count of a file.
    fn forget(&self, file: InodeNo);
}

/// Takes the entries of a directory one by one; `false` ends the reading.
pub type TakeEntry<'a> = dyn FnMut(&dyn ListedFiles, Listed) -> bool + 'a;

/// Files that are served to the kernel. Any number of threads may call it at once; each call
/// returns the error of the request.
#[allow(clippy::missing_errors_doc, reason = "every error is the errno of the request")]
pub trait FileService: Debug + Send + Sync {
    /// Looks up a name and takes a lookup count on its file; `None` if the name does not exist.
    fn lookup(&self, dir: InodeNo, name: &[u8]) -> Result<Option<LookedUp>, Errno>;

    /// Drops lookup counts.
    fn forget(&self, inode: InodeNo, count: u64);

    /// The attributes of a file.
    fn attributes(&self, file: InodeNo) -> Result<Attributes, Errno>;

    /// The bits setuid and setgid of a file's mode.
    fn set_ids(&self, _file: InodeNo) -> Result<u16, Errno> {
        Ok(0)
    }

    /// Changes the attributes of a file, and returns them.
    fn change(&self, file: InodeNo, change: &Change, by: Caller) -> Result<Attributes, Errno>;

    /// The target of a symbolic link.
    fn read_link(&self, link: InodeNo) -> Result<Vec<u8>, Errno>;

    /// Makes a symbolic link and takes a lookup count on it.
    fn symlink(
        &self,
        dir: InodeNo,
        name: &[u8],
        target: &[u8],
        by: Caller,
    ) -> Result<LookedUp, Errno>;

    /// Makes a file of any kind but a symbolic link, and takes a lookup count on it. `mode` is its
    /// mode with the type, and the caller's umask.
    fn make(
        &self,
        dir: InodeNo,
        name: &[u8],
        mode: (u32, u32),
        device: (u32, u32),
        by: Caller,
    ) -> Result<LookedUp, Errno>;

    /// Makes a regular file, takes a lookup count on it and opens it: its caching, and its sample
    /// for [`Self::fsync`].
    fn create(
        &self,
        dir: InodeNo,
        name: &[u8],
        mode: (u32, u32),
        flags: OpenFor,
        by: Caller,
    ) -> Result<(LookedUp, Cached, ErrorSample), Errno> {
        let made = self.make(dir, name, mode, (0, 0), by)?;
        let file = made.attributes.inode;
        Ok((made, self.cached_when_made(file, flags), self.error_sample(file)))
    }

    /// Makes a regular file without a name, with one lookup count.
    fn make_tmpfile(
        &self,
        _dir: InodeNo,
        _mode: (u32, u32),
        _by: Caller,
    ) -> Result<LookedUp, Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// Gives a file another name, and takes a lookup count on it.
    fn link(&self, file: InodeNo, dir: InodeNo, name: &[u8]) -> Result<LookedUp, Errno>;

    /// Removes a name of a file other than a directory.
    fn unlink(&self, dir: InodeNo, name: &[u8]) -> Result<(), Errno>;

    /// Removes an empty directory.
    fn rmdir(&self, dir: InodeNo, name: &[u8]) -> Result<(), Errno>;

    /// Renames a file. `flags` are those of `renameat2`; `by` owns the whiteout that it leaves.
    fn rename(
        &self,
        from: (InodeNo, &[u8]),
        to: (InodeNo, &[u8]),
        flags_and_caller: (u32, Caller),
    ) -> Result<(), Errno>;

    /// Opens a file, if it may be opened with these flags.
    fn open(&self, _file: InodeNo, _flags: OpenFor, _by: Caller) -> Result<Cached, Errno> {
        Ok(Cached::Kept)
    }

    /// The caching of a file that was just made.
    fn cached_when_made(&self, _file: InodeNo, _flags: OpenFor) -> Cached {
        Cached::Kept
    }

    /// The sample of a file that is opened now, for [`Self::fsync`].
    fn error_sample(&self, _file: InodeNo) -> ErrorSample {
        ErrorSample::default()
    }

    /// The last open file with write access was closed.
    fn last_writer_closed(&self, _file: InodeNo) {}

    /// Reads from a file: the number of bytes, fewer than requested only at its end. `keeps_atime`
    /// is `O_NOATIME`.
    fn read(
        &self,
        file: InodeNo,
        offset: u64,
        buffer: &mut [u8],
        keeps_atime: bool,
    ) -> Result<usize, Errno>;

    /// Writes to a file: the number of bytes.
    fn write(&self, file: InodeNo, offset: u64, bytes: &[u8], by: WriteBy) -> Result<usize, Errno>;

    /// Makes the changes of a file durable; with `data_only` not its times.
    fn fsync(&self, file: InodeNo, data_only: bool, sample: &mut ErrorSample) -> Result<(), Errno>;

    /// Makes everything durable.
    fn sync(&self) -> Result<(), Errno>;

    /// Changes how a range of a file is allocated; `mode` is that of `fallocate(2)`.
    fn fallocate(
        &self,
        _file: InodeNo,
        _mode: u32,
        _offset: u64,
        _len: u64,
        _by: Caller,
    ) -> Result<(), Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// The next offset of data or of a hole.
    fn seek(&self, _file: InodeNo, _wanted: SeekFrom) -> Result<u64, Errno> {
        Err(Errno::NOSYS)
    }

    /// The block of the device that holds a block of a file (FIBMAP).
    fn block_at(&self, _file: InodeNo, _block: u64, _unit: u32) -> Result<u64, Errno> {
        Err(Errno::NOSYS)
    }

    /// Copies from one file to another: the number of bytes.
    fn copy(
        &self,
        _from: (InodeNo, u64),
        _to: (InodeNo, u64),
        _len: u64,
        _by: Caller,
    ) -> Result<u64, Errno> {
        Err(Errno::NOSYS)
    }

    /// The value of an extended attribute.
    fn xattr(&self, _file: InodeNo, _name: &[u8]) -> Result<Vec<u8>, Errno> {
        Err(Errno::NODATA)
    }

    /// The names of a file's extended attributes, each followed by a zero byte.
    fn xattr_names(&self, _file: InodeNo, _by: Caller) -> Result<Vec<u8>, Errno> {
        Ok(Vec::new())
    }

    /// Sets an extended attribute; `flags` are those of `setxattr(2)`.
    fn set_xattr(
        &self,
        _file: InodeNo,
        _name: &[u8],
        _value: &[u8],
        _flags: u32,
        _drops_setgid: bool,
    ) -> Result<(), Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// Removes an extended attribute.
    fn remove_xattr(&self, _file: InodeNo, _name: &[u8]) -> Result<(), Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// Reads a directory from a cookie on, until `take` has enough.
    fn list(&self, dir: InodeNo, from: u64, take: &mut TakeEntry<'_>) -> Result<(), Errno>;

    /// The figures of `statfs`.
    fn stat_fs(&self, file: InodeNo) -> Result<StatFs, Errno>;

    /// An ioctl and its answer.
    fn ioctl(
        &self,
        _file: InodeNo,
        _command: u32,
        _input: &[u8],
        _by: Caller,
    ) -> Result<Vec<u8>, Errno> {
        Err(Errno::NOTTY)
    }

    /// The current time.
    fn now(&self) -> Timestamp;

    /// Whether access control lists count.
    fn has_acls(&self) -> bool {
        false
    }

    /// Number of unlinked files in use, whose space is freed when the kernel forgets them.
    fn open_unlinked_count(&self) -> usize {
        0
    }

    /// Begins a change; `None` if the files are frozen.
    fn begin_change(&self) -> Option<OngoingChange<'_>> {
        Some(OngoingChange::unguarded())
    }

    /// Waits until the files are not frozen, and begins a change.
    fn wait_for_change(&self) -> OngoingChange<'_> {
        OngoingChange::unguarded()
    }

    /// The mount has ended: changes continue if they were blocked.
    fn end_freeze(&self) {}

    /// The kernel sends no more requests.
    fn end(&self) {}
}

impl ListedFiles for Listing<'_> {
    fn attributes(&self, file: InodeNo) -> Option<Attributes> {
        Listing::attributes(self, file)
    }

    fn look_up(&self, file: InodeNo) -> Option<LookedUp> {
        Listing::look_up(self, file)
    }

    fn forget(&self, file: InodeNo) {
        Listing::forget(self, file);
    }
}

impl FileService for Server {
    fn lookup(&self, dir: InodeNo, name: &[u8]) -> Result<Option<LookedUp>, Errno> {
        Server::lookup(self, dir, name)
    }

    fn forget(&self, inode: InodeNo, count: u64) {
        Server::forget(self, inode, count);
    }

    fn attributes(&self, file: InodeNo) -> Result<Attributes, Errno> {
        Server::attributes(self, file)
    }

    fn set_ids(&self, file: InodeNo) -> Result<u16, Errno> {
        Server::set_ids(self, file)
    }

    fn change(&self, file: InodeNo, change: &Change, by: Caller) -> Result<Attributes, Errno> {
        Server::change(self, file, change, by)
    }

    fn read_link(&self, link: InodeNo) -> Result<Vec<u8>, Errno> {
        Server::read_link(self, link)
    }

    fn symlink(
        &self,
        dir: InodeNo,
        name: &[u8],
        target: &[u8],
        by: Caller,
    ) -> Result<LookedUp, Errno> {
        Server::symlink(self, dir, name, target, by)
    }

    fn make(
        &self,
        dir: InodeNo,
        name: &[u8],
        mode: (u32, u32),
        device: (u32, u32),
        by: Caller,
    ) -> Result<LookedUp, Errno> {
        Server::make(self, dir, name, mode, device, by)
    }

    fn create(
        &self,
        dir: InodeNo,
        name: &[u8],
        mode: (u32, u32),
        flags: OpenFor,
        by: Caller,
    ) -> Result<(LookedUp, Cached, ErrorSample), Errno> {
        Server::create(self, dir, name, mode, flags, by)
    }

    fn make_tmpfile(&self, dir: InodeNo, mode: (u32, u32), by: Caller) -> Result<LookedUp, Errno> {
        Server::make_tmpfile(self, dir, mode, by)
    }

    fn link(&self, file: InodeNo, dir: InodeNo, name: &[u8]) -> Result<LookedUp, Errno> {
        Server::link(self, file, dir, name)
    }

    fn unlink(&self, dir: InodeNo, name: &[u8]) -> Result<(), Errno> {
        Server::unlink(self, dir, name)
    }

    fn rmdir(&self, dir: InodeNo, name: &[u8]) -> Result<(), Errno> {
        Server::rmdir(self, dir, name)
    }

    fn rename(
        &self,
        from: (InodeNo, &[u8]),
        to: (InodeNo, &[u8]),
        flags_and_caller: (u32, Caller),
    ) -> Result<(), Errno> {
        Server::rename(self, from, to, flags_and_caller)
    }

    fn open(&self, file: InodeNo, flags: OpenFor, by: Caller) -> Result<Cached, Errno> {
        Server::open(self, file, flags, by)
    }

    fn cached_when_made(&self, file: InodeNo, flags: OpenFor) -> Cached {
        Server::cached_when_made(self, file, flags)
    }

    fn error_sample(&self, file: InodeNo) -> ErrorSample {
        Server::error_sample(self, file)
    }

    fn last_writer_closed(&self, file: InodeNo) {
        Server::last_writer_closed(self, file);
    }

    fn read(
        &self,
        file: InodeNo,
        offset: u64,
        buffer: &mut [u8],
        keeps_atime: bool,
    ) -> Result<usize, Errno> {
        Server::read(self, file, offset, buffer, keeps_atime)
    }

    fn write(&self, file: InodeNo, offset: u64, bytes: &[u8], by: WriteBy) -> Result<usize, Errno> {
        Server::write(self, file, offset, bytes, by)
    }

    fn fsync(&self, file: InodeNo, data_only: bool, sample: &mut ErrorSample) -> Result<(), Errno> {
        Server::fsync(self, file, data_only, sample)
    }

    fn sync(&self) -> Result<(), Errno> {
        Server::sync(self)
    }

    fn fallocate(
        &self,
        file: InodeNo,
        mode: u32,
        offset: u64,
        len: u64,
        by: Caller,
    ) -> Result<(), Errno> {
        Server::fallocate(self, file, mode, offset, len, by)
    }

    fn seek(&self, file: InodeNo, wanted: SeekFrom) -> Result<u64, Errno> {
        Server::seek(self, file, wanted)
    }

    fn block_at(&self, file: InodeNo, block: u64, unit: u32) -> Result<u64, Errno> {
        Server::block_at(self, file, block, unit)
    }

    fn copy(
        &self,
        from: (InodeNo, u64),
        to: (InodeNo, u64),
        len: u64,
        by: Caller,
    ) -> Result<u64, Errno> {
        Server::copy(self, from, to, len, by)
    }

    fn xattr(&self, file: InodeNo, name: &[u8]) -> Result<Vec<u8>, Errno> {
        Server::xattr(self, file, name)
    }

    fn xattr_names(&self, file: InodeNo, by: Caller) -> Result<Vec<u8>, Errno> {
        Server::xattr_names(self, file, by)
    }

    fn set_xattr(
        &self,
        file: InodeNo,
        name: &[u8],
        value: &[u8],
        flags: u32,
        drops_setgid: bool,
    ) -> Result<(), Errno> {
        Server::set_xattr(self, file, name, value, flags, drops_setgid)
    }

    fn remove_xattr(&self, file: InodeNo, name: &[u8]) -> Result<(), Errno> {
        Server::remove_xattr(self, file, name)
    }

    fn list(&self, dir: InodeNo, from: u64, take: &mut TakeEntry<'_>) -> Result<(), Errno> {
        Server::list(self, dir, from, |listing, listed| take(listing, listed))
    }

    fn stat_fs(&self, file: InodeNo) -> Result<StatFs, Errno> {
        Server::stat_fs(self, file)
    }

    fn ioctl(
        &self,
        file: InodeNo,
        command: u32,
        input: &[u8],
        by: Caller,
    ) -> Result<Vec<u8>, Errno> {
        Server::ioctl(self, file, command, input, by)
    }

    fn now(&self) -> Timestamp {
        Server::now(self)
    }

    fn has_acls(&self) -> bool {
        Server::has_acls(self)
    }

    fn open_unlinked_count(&self) -> usize {
        Server::open_unlinked_count(self)
    }

    fn begin_change(&self) -> Option<OngoingChange<'_>> {
        Server::begin_change(self)
    }

    fn wait_for_change(&self) -> OngoingChange<'_> {
        Server::wait_for_change(self)
    }

    fn end_freeze(&self) {
        Server::end_freeze(self);
    }

    fn end(&self) {
        Server::end(self);
    }
}
