//! Requests: each is decoded, passed to the server, and answered.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use extant_engine::ErrorSample;
use extant_ondisk::InodeNo;
use extant_ondisk::inode::FileType;
use extant_ondisk::time::Timestamp;
use rustix::fs::{OFlags, SeekFrom};
use rustix::io::Errno;

use super::abi::{self, opcode, open_flags};
use super::encode::{attr_out, entry_out, kind_of, kind_of_mode, no_entry, put_listed, statx_out};
use super::init::Negotiated;
use super::message::{Reply, Request, node};
use super::notice;
use super::open_files::OpenFiles;
use super::space_events::{SpaceEvents, wants_space};
use super::stale::Stale;
use super::writeback_errors::WritebackErrors;
use super::writers::Writers;
use crate::attr::{decode_device, inode_of, node_of};
use crate::server::{Cached, Change, LookedUp, OpenFor, WriteBy, is_long_ioctl};
use crate::service::FileService;

/// SEEK_DATA and SEEK_HOLE of lseek(2).
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

/// Whether a request is answered now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum DispatchResult {
    /// Now, with the reply under construction.
    Reply,
    /// Never.
    NoReply,
    /// After the kernel has written back its cache of the file: a SEEK_DATA or SEEK_HOLE.
    AfterWriteback(SeekFrom),
}

/// Decodes requests and calls the server.
#[derive(Debug)]
pub(super) struct Dispatcher {
    pub(super) server: Arc<dyn FileService>,
    pub(super) writers: Writers,
    pub(super) space_events: SpaceEvents,
    pub(super) writeback_errors: WritebackErrors,
    pub(super) open_files: OpenFiles,
    pub(super) stale: Stale,
    /// The descriptor for notifications to the kernel.
    pub(super) connection: Arc<OwnedFd>,
    pub(super) negotiated: Negotiated,
}

/// Numbers of open files: the allowed operations, in bits.
mod open_file {
    /// It can be written.
    pub(super) const WRITING: u64 = 1 << 0;
    /// Writes bypass the kernel's cache.
    pub(super) const GOING_AROUND: u64 = 1 << 1;
}

/// Whether a file is opened so that it can be written.
fn writes(flags: u32) -> bool {
    !(open_flags(flags) & OFlags::RWMODE).is_empty()
}

impl Dispatcher {
    /// Carries out a request.
    ///
    /// # Errors
    /// The error for the program in place of a reply.
    pub(super) fn dispatch(
        &self,
        request: &Request<'_>,
        to: &mut Reply<'_>,
    ) -> Result<DispatchResult, Errno> {
        match request.header.opcode {
            opcode::LOOKUP => self.lookup(request, to)?,
            opcode::FORGET | opcode::BATCH_FORGET => {
                // The kernel waits neither for a reply nor for an error.
                let _ = self.each_forgotten(request, |file, count| self.forget(file, count));
                return Ok(DispatchResult::NoReply);
            }
            opcode::INTERRUPT | opcode::NOTIFY_REPLY => return Ok(DispatchResult::NoReply),
            opcode::GETATTR => self.get_attr(request, to)?,
            opcode::STATX => to.put(&statx_out(&self.server.attributes(request.inode()?)?))?,
            opcode::SETATTR => self.set_attr(request, to)?,
            opcode::READLINK => to.put_bytes(&self.server.read_link(request.inode()?)?)?,
            opcode::SYMLINK => {
                let mut arguments = request.arguments();
                let (name, target) = (arguments.name()?, arguments.name()?);
                let caller = request.caller();
                put_entry(to, self.server.symlink(request.inode()?, name, target, caller)?)?;
            }
            opcode::MKNOD => {
                let mut arguments = request.arguments();
                let given: abi::MknodIn = arguments.take()?;
                let (mode, device) = ((given.mode, given.umask), decode_device(given.rdev));
                let (dir, caller) = (request.inode()?, request.caller());
                put_entry(to, self.server.make(dir, arguments.name()?, mode, device, caller)?)?;
            }
            opcode::MKDIR => {
                let mut arguments = request.arguments();
                let given: abi::MkdirIn = arguments.take()?;
                let mode = given.mode & 0o7777 | u32::from(FileType::Directory.mode());
                let (dir, caller) = (request.inode()?, request.caller());
                let mode = (mode, given.umask);
                put_entry(to, self.server.make(dir, arguments.name()?, mode, (0, 0), caller)?)?;
            }
            opcode::UNLINK => {
                self.space_events.removal();
                self.server.unlink(request.inode()?, request.arguments().name()?)?;
            }
            opcode::RMDIR => self.server.rmdir(request.inode()?, request.arguments().name()?)?,
            opcode::RENAME | opcode::RENAME2 => self.rename(request)?,
            opcode::LINK => {
                let mut arguments = request.arguments();
                let file = node(arguments.take::<u64>()?)?;
                put_entry(to, self.server.link(file, request.inode()?, arguments.name()?)?)?;
            }
            opcode::OPEN => self.open(request, to)?,
            opcode::RELEASE => {
                let _ending = self.space_events.ending();
                let released: abi::ReleaseIn = request.arguments().take()?;
                let file = request.inode()?;
                self.open_files.close(released.fh);
                if writes(released.flags) && self.writers.leave(file) {
                    self.writeback_errors.take(file);
                    self.server.last_writer_closed(file);
                }
            }
            opcode::CREATE | opcode::TMPFILE => self.create(request, to)?,
            opcode::READ => self.read(request, to)?,
            opcode::WRITE => self.write(request, to)?,
            opcode::STATFS => self.stat_fs(request, to)?,
            opcode::FSYNC | opcode::FSYNCDIR => {
                let given: abi::FsyncIn = request.arguments().take()?;
                let data_only = given.fsync_flags & abi::FSYNC_FDATASYNC != 0;
                let mut sample = self.open_files.sample(given.fh);
                let synced = self.server.fsync(request.inode()?, data_only, &mut sample);
                self.open_files.advance(given.fh, sample);
                synced?;
            }
            opcode::SYNCFS => self.server.sync()?,
            opcode::SETXATTR => self.set_xattr(request)?,
            opcode::GETXATTR => {
                let mut arguments = request.arguments();
                let given: abi::GetXattrIn = arguments.take()?;
                let value = self.server.xattr(request.inode()?, arguments.name()?)?;
                put_sized(to, &value, given.size)?;
            }
            opcode::LISTXATTR => {
                let given: abi::GetXattrIn = request.arguments().take()?;
                let names = self.server.xattr_names(request.inode()?, request.caller())?;
                put_sized(to, &names, given.size)?;
            }
            opcode::REMOVEXATTR => {
                self.server.remove_xattr(request.inode()?, request.arguments().name()?)?;
            }
            opcode::READDIR => self.read_dir(request, to)?,
            opcode::READDIRPLUS => self.read_dir_plus(request, to)?,
            opcode::IOCTL => self.ioctl(request, to)?,
            opcode::FALLOCATE => {
                let given: abi::FallocateIn = request.arguments().take()?;
                let (mode, offset, len) = (given.mode, given.offset, given.length);
                let (file, caller) = (request.inode()?, request.caller());
                self.notifying_of_lost_set_ids(file, || {
                    self.server.fallocate(file, mode, offset, len, caller)
                })?;
            }
            opcode::LSEEK => return self.seek(request, to),
            opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => self.copy(request, to)?,
            opcode::BMAP => {
                let given: abi::BmapIn = request.arguments().take()?;
                let file = request.inode()?;
                to.put(&self.server.block_at(file, given.block, given.blocksize)?)?;
            }
            opcode::DESTROY => self.server.end(),
            // FLUSH, OPENDIR and ACCESS among them: after ENOSYS the kernel does without and does
            // not send them again.
            _ => return Err(Errno::NOSYS),
        }
        Ok(DispatchResult::Reply)
    }

    /// A reply did not reach the kernel, or was an error: its lookup counts are undone.
    pub(super) fn undo_lookups(&self, inodes: &[InodeNo]) {
        for inode in inodes {
            self.server.forget(*inode, 1);
        }
    }

    fn lookup(&self, request: &Request<'_>, to: &mut Reply<'_>) -> Result<(), Errno> {
        match self.server.lookup(request.inode()?, request.arguments().name()?)? {
            Some(entry) => put_entry(to, entry),
            None => to.put(&no_entry()),
        }
    }

    /// Gives holds of a file back that the kernel had.
    pub(super) fn forget(&self, file: InodeNo, count: u64) {
        let _ending = self.space_events.ending();
        self.server.forget(file, count);
    }

    /// Calls `forget` with each file and count of a FORGET request.
    pub(super) fn each_forgotten(
        &self,
        request: &Request<'_>,
        mut forget: impl FnMut(InodeNo, u64),
    ) -> Result<(), Errno> {
        let mut forget = |number: u64, count| {
            // The root is entry by the mount itself.
            if let Some(inode) = inode_of(number).filter(|inode| *inode != InodeNo::ROOT) {
                forget(inode, count);
            }
        };
        let mut arguments = request.arguments();
        if request.header.opcode == opcode::FORGET {
            forget(request.header.nodeid, arguments.take()?);
            return Ok(());
        }
        let given: abi::BatchForgetIn = arguments.take()?;
        for _ in 0..given.count {
            let one: abi::ForgetOne = arguments.take()?;
            forget(one.nodeid, one.nlookup);
        }
        Ok(())
    }

    fn set_attr(&self, request: &Request<'_>, to: &mut Reply<'_>) -> Result<(), Errno> {
        use abi::fattr;
        let given: abi::SetAttrIn = request.arguments().take()?;
        let has = |flag| given.valid & flag != 0;
        let time = |flag, now, seconds, nanoseconds| {
            has(flag).then(|| {
                if has(now) { self.server.now() } else { Timestamp::new(seconds, nanoseconds) }
            })
        };
        // The request that the kernel makes of the times it has kept; `touch -m -d` makes the same.
        let others = fattr::MODE | fattr::UID | fattr::GID | fattr::SIZE | fattr::ATIME;
        let is_of_cache = has(fattr::MTIME)
            && has(fattr::CTIME)
            && given.valid & (others | fattr::MTIME_NOW | fattr::KILL_SUIDGID) == 0;
        let atime = time(fattr::ATIME, fattr::ATIME_NOW, given.atime, given.atimensec);
        let mtime = time(fattr::MTIME, fattr::MTIME_NOW, given.mtime, given.mtimensec);
        let change = Change {
            mode: has(fattr::MODE).then_some(given.mode),
            uid: has(fattr::UID).then_some(given.uid),
            gid: has(fattr::GID).then_some(given.gid),
            size: has(fattr::SIZE).then_some(given.size),
            atime,
            mtime,
            ctime: has(fattr::CTIME).then(|| Timestamp::new(given.ctime, given.ctimensec)),
            sets_time: has(fattr::ATIME) && !has(fattr::ATIME_NOW),
            is_of_cache,
            drops_set_ids: has(fattr::KILL_SUIDGID),
        };
        let changed = self.server.change(request.inode()?, &change, request.caller())?;
        to.put(&attr_out(&changed))
    }

    fn rename(&self, request: &Request<'_>) -> Result<(), Errno> {
        let mut arguments = request.arguments();
        let (to_dir, flags) = if request.header.opcode == opcode::RENAME {
            (arguments.take::<u64>()?, 0)
        } else {
            let given: abi::Rename2In = arguments.take()?;
            (given.newdir, given.flags)
        };
        let from = (request.inode()?, arguments.name()?);
        let to = (node(to_dir)?, arguments.name()?);
        self.space_events.removal();
        self.server.rename(from, to, (flags, request.caller()))
    }

    fn open(&self, request: &Request<'_>, to: &mut Reply<'_>) -> Result<(), Errno> {
        let given: abi::OpenIn = request.arguments().take()?;
        let wanted = OpenFor {
            drops_set_ids: given.open_flags & abi::OPEN_KILL_SUIDGID != 0,
            ..self.opened_for(given.flags)
        };
        let file = request.inode()?;
        let open = || self.server.open(file, wanted, request.caller());
        let cached = if wanted.truncates && wanted.drops_set_ids {
            self.notifying_of_lost_set_ids(file, open)
        } else {
            open()
        }?;
        if wanted.writes {
            self.writers.enter(file);
        }
        to.put(&self.opened(self.server.error_sample(file), cached, wanted.writes))
    }

    fn opened_for(&self, flags: u32) -> OpenFor {
        let has = |flag| open_flags(flags).contains(flag);
        OpenFor {
            writes: writes(flags),
            appends: has(OFlags::APPEND),
            truncates: has(OFlags::TRUNC),
            drops_set_ids: false,
            // A program that may read too may map, and uses the cache; O_DIRECT bypasses it in any
            // case.
            reports_space: self.negotiated.mixes_direct_and_cached
                && open_flags(flags) & (OFlags::RWMODE | OFlags::DIRECT) == OFlags::WRONLY,
        }
    }

    fn create(&self, request: &Request<'_>, to: &mut Reply<'_>) -> Result<(), Errno> {
        let mut arguments = request.arguments();
        let given: abi::CreateIn = arguments.take()?;
        let mode = given.mode & 0o7777 | u32::from(FileType::Regular.mode());
        let (dir, caller) = (request.inode()?, request.caller());
        let mode = (mode, given.umask);
        let wanted = self.opened_for(given.flags);
        let (entry, cached, sample) = if request.header.opcode == opcode::TMPFILE {
            self.space_events.removal();
            let entry = self.server.make_tmpfile(dir, mode, caller)?;
            let file = entry.attributes.inode;
            let cached = self.server.cached_when_made(file, wanted);
            (entry, cached, self.server.error_sample(file))
        } else {
            self.server.create(dir, arguments.name()?, mode, wanted, caller)?
        };
        if wanted.writes {
            self.writers.enter(entry.attributes.inode);
        }
        put_entry(to, entry)?;
        to.put(&self.opened(sample, cached, wanted.writes))
    }

    /// The reply to an open.
    fn opened(&self, sample: ErrorSample, cached: Cached, writes: bool) -> abi::OpenOut {
        let writing = if writes { open_file::WRITING } else { 0 };
        let (open_flags, bits) = match cached {
            Cached::Kept => (abi::FOPEN_KEEP_CACHE, writing),
            Cached::GoneAround => (abi::FOPEN_DIRECT_IO, writing | open_file::GOING_AROUND),
        };
        let fh = self.open_files.number(sample, bits);
        abi::OpenOut { fh, open_flags, ..abi::OpenOut::default() }
    }

    fn read(&self, request: &Request<'_>, to: &mut Reply<'_>) -> Result<(), Errno> {
        let given: abi::ReadIn = request.arguments().take()?;
        let keeps_atime = open_flags(given.flags).contains(OFlags::NOATIME);
        let file = request.inode()?;
        if !open_flags(given.flags).contains(OFlags::DIRECT) {
            self.writers.read_for_cache(file);
        }
        let room = to.room(given.size as usize);
        let count = self.server.read(file, given.offset, room, keeps_atime)?;
        to.advance(count);
        Ok(())
    }

    fn write(&self, request: &Request<'_>, to: &mut Reply<'_>) -> Result<(), Errno> {
        let mut arguments = request.arguments();
        let given: abi::WriteIn = arguments.take()?;
        let data = arguments.bytes(given.size)?;
        let by = if given.write_flags & abi::WRITE_CACHE != 0 {
            WriteBy::Cache
        } else {
            let drops_set_ids = given.write_flags & abi::WRITE_KILL_SUIDGID != 0;
            WriteBy::Caller { caller: request.caller(), drops_set_ids }
        };
        let file = request.inode()?;
        let goes_around = given.fh & open_file::GOING_AROUND != 0;
        let is_direct = open_flags(given.flags).contains(OFlags::DIRECT);
        let write = || match by {
            WriteBy::Caller { .. } if goes_around => {
                match self.write_some(file, given.offset, data, by) {
                    (0, Some(errno)) => Err(errno),
                    (count, _) => Ok(count),
                }
            }
            WriteBy::Caller { caller, .. } if !is_direct => {
                let before = self.server.attributes(file)?.size;
                let has_grown = || self.server.attributes(file).is_ok_and(|now| now.size > before);
                self.write_all(file, given.offset, data, by).inspect_err(|_| {
                    // The kernel does not read the new size: the next append would miss it.
                    if has_grown() {
                        let cut = Change { size: Some(before), ..Change::default() };
                        let _ = self.server.change(file, &cut, caller);
                    }
                })
            }
            // With O_DIRECT the kernel cuts itself, and pages of its cache lie before the end that
            // it knows.
            _ => self.write_all(file, given.offset, data, by),
        };
        let count = match by {
            WriteBy::Caller { drops_set_ids: true, .. } => {
                self.notifying_of_lost_set_ids(file, write)
            }
            WriteBy::Caller { .. } => write(),
            WriteBy::Cache => self.recording_space_errors(file, write()),
        }?;
        let passes_cache = by != WriteBy::Cache && (is_direct || goes_around);
        if passes_cache && self.writers.are_cached(file) {
            let end = given.offset.saturating_add(count as u64);
            self.stale.note(request.header.nodeid, given.offset..end);
        }
        // A request carries less than 4 GiB.
        to.put(&abi::SizeOut { size: count as u32, padding: 0 })
    }

    /// Writes as many bytes as there is space for: how many, and why no more.
    fn write_some(
        &self,
        file: InodeNo,
        offset: u64,
        data: &[u8],
        by: WriteBy,
    ) -> (usize, Option<Errno>) {
        let mut count = 0;
        while count < data.len() {
            let Some(at) = offset.checked_add(count as u64) else {
                return (count, Some(Errno::FBIG));
            };
            match self.server.write(file, at, &data[count..], by) {
                Ok(more) => count += more,
                Err(errno) => return (count, Some(errno)),
            }
        }
        (count, None)
    }

    /// Writes all bytes. The kernel takes a short reply for a failure of the device; so the error
    /// that ended it is reported instead.
    fn write_all(
        &self,
        file: InodeNo,
        offset: u64,
        data: &[u8],
        by: WriteBy,
    ) -> Result<usize, Errno> {
        match self.write_some(file, offset, data, by) {
            (count, None) => Ok(count),
            (_, Some(errno)) => Err(errno),
        }
    }

    /// Does work that may clear setuid and setgid of a file. The kernel uses its cached mode when
    /// the file is run: it is notified if they were cleared, before the program continues. It does
    /// not expect that its own reply changes the mode.
    fn notifying_of_lost_set_ids<T>(
        &self,
        file: InodeNo,
        work: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let before = self.server.set_ids(file)?;
        let done = work();
        if before != 0 && self.server.set_ids(file) != Ok(before) {
            // If the kernel no longer knows the file, it reads the attributes in any case.
            let _ = notice::forget_attributes(&self.connection, node_of(file));
        }
        done
    }

    /// Records whether data from the kernel's cache fitted: if not, the next writer gets the error.
    fn recording_space_errors<T>(&self, file: InodeNo, done: Result<T, Errno>) -> Result<T, Errno> {
        match done {
            Err(errno) if wants_space(errno) => {
                self.writeback_errors.note(file, errno);
                // If the kernel no longer knows the file, it has no writers.
                let _ = notice::forget_attributes(&self.connection, node_of(file));
            }
            _ => _ = self.writeback_errors.take(file),
        }
        done
    }

    fn get_attr(&self, request: &Request<'_>, to: &mut Reply<'_>) -> Result<(), Errno> {
        let given: abi::GetattrIn = request.arguments().take()?;
        let file = request.inode()?;
        // A request without an open file is for information, not by a writer.
        if given.getattr_flags & abi::GETATTR_FH != 0
            && given.fh & open_file::WRITING != 0
            && let Some(errno) = self.writeback_errors.take(file)
        {
            return Err(errno);
        }
        to.put(&attr_out(&self.server.attributes(file)?))
    }

    fn stat_fs(&self, request: &Request<'_>, to: &mut Reply<'_>) -> Result<(), Errno> {
        let stat = self.server.stat_fs(request.inode()?)?;
        to.put(&abi::StatfsOut {
            blocks: stat.blocks,
            bfree: stat.free_blocks,
            bavail: stat.available_blocks,
            files: u64::from(stat.inodes),
            ffree: stat.free_inodes,
            bsize: stat.block_size,
            namelen: stat.max_name_len,
            frsize: stat.block_size,
            ..abi::StatfsOut::default()
        })
    }

    fn set_xattr(&self, request: &Request<'_>) -> Result<(), Errno> {
        let mut arguments = request.arguments();
        let given = if self.negotiated.has_long_setxattr {
            arguments.take::<abi::SetXattrIn>()?
        } else {
            let abi::ShortSetXattrIn { size, flags } = arguments.take()?;
            abi::SetXattrIn { size, flags, setxattr_flags: 0, padding: 0 }
        };
        let (name, file) = (arguments.name()?, request.inode()?);
        let value = arguments.bytes(given.size)?;
        let drops_setgid = given.setxattr_flags & abi::SETXATTR_ACL_KILL_SGID != 0;
        self.server.set_xattr(file, name, value, given.flags, drops_setgid)
    }

    fn read_dir(&self, request: &Request<'_>, to: &mut Reply<'_>) -> Result<(), Errno> {
        let given: abi::ReadIn = request.arguments().take()?;
        let mut outcome = Ok(true);
        self.server.list(request.inode()?, given.offset, &mut |listing, listed| {
            let kind = kind_of(listed.file_type).or_else(|| {
                // ext2's first directories store no kinds.
                Some(kind_of_mode(listing.attributes(listed.inode)?.mode))
            });
            outcome = put_listed(to, given.size as usize, &listed, kind.unwrap_or_default(), None);
            outcome == Ok(true)
        })?;
        outcome.map(|_| ())
    }

    fn read_dir_plus(&self, request: &Request<'_>, to: &mut Reply<'_>) -> Result<(), Errno> {
        let given: abi::ReadIn = request.arguments().take()?;
        let mut outcome = Ok(true);
        self.server.list(request.inode()?, given.offset, &mut |listing, listed| {
            // The kernel takes no hold of these two, nor of an entry without a number.
            let is_dot = matches!(&listed.name[..], b"." | b"..");
            let looked_up = if is_dot { None } else { listing.look_up(listed.inode) };
            let (kind, entry) = match &looked_up {
                Some(LookedUp { attributes }) => {
                    (kind_of_mode(attributes.mode), entry_out(attributes))
                }
                None => (kind_of(listed.file_type).unwrap_or_default(), abi::EntryOut::default()),
            };
            outcome = put_listed(to, given.size as usize, &listed, kind, Some(&entry));
            match (&looked_up, &outcome) {
                (Some(_), Ok(true)) => to.count_lookup(listed.inode),
                (Some(_), _) => listing.forget(listed.inode),
                (None, _) => {}
            }
            outcome == Ok(true)
        })?;
        outcome.map(|_| ())
    }

    fn ioctl(&self, request: &Request<'_>, to: &mut Reply<'_>) -> Result<(), Errno> {
        let mut arguments = request.arguments();
        let given: abi::IoctlIn = arguments.take()?;
        let input = arguments.bytes(given.in_size)?;
        let answer = self.server.ioctl(request.inode()?, given.cmd, input, request.caller())?;
        to.put(&abi::IoctlOut::default())?;
        to.put_bytes(&answer[..answer.len().min(given.out_size as usize)])
    }

    fn seek(&self, request: &Request<'_>, to: &mut Reply<'_>) -> Result<DispatchResult, Errno> {
        let given: abi::LseekIn = request.arguments().take()?;
        let file = request.inode()?;
        let wanted = match given.whence {
            SEEK_DATA => SeekFrom::Data(given.offset),
            SEEK_HOLE => SeekFrom::Hole(given.offset),
            _ => return Err(Errno::INVAL),
        };
        if !self.writers.has(file) {
            to.put(&self.server.seek(file, wanted)?)?;
            return Ok(DispatchResult::Reply);
        }
        Ok(DispatchResult::AfterWriteback(wanted))
    }

    fn copy(&self, request: &Request<'_>, to: &mut Reply<'_>) -> Result<(), Errno> {
        let given: abi::CopyIn = request.arguments().take()?;
        let from = (request.inode()?, given.off_in);
        let target = (node(given.nodeid_out)?, given.off_out);
        let count = self.notifying_of_lost_set_ids(target.0, || {
            self.server.copy(from, target, given.len, request.caller())
        })?;
        if request.header.opcode == opcode::COPY_FILE_RANGE_64 {
            return to.put(&count);
        }
        // One request copies 64 MiB at most.
        to.put(&abi::SizeOut { size: count as u32, padding: 0 })
    }
}

/// Bytes from which on reading and writing are long.
const LONG: u32 = 64 << 10;
/// Files from which on forgetting is: the last links of some may be gone.
const MANY: u32 = 16;

/// Whether much is read or written.
pub(super) fn is_bulk(request: &Request<'_>) -> bool {
    let mut arguments = request.arguments();
    match request.header.opcode {
        opcode::WRITE => request.header.len > LONG,
        opcode::READ => arguments.take::<abi::ReadIn>().is_ok_and(|read| read.size > LONG),
        _ => false,
    }
}

/// Whether a request may take so long that others should not wait for its thread.
pub(super) fn is_long(request: &Request<'_>) -> bool {
    let mut arguments = request.arguments();
    match request.header.opcode {
        opcode::FSYNC
        | opcode::FSYNCDIR
        | opcode::SYNCFS
        | opcode::FALLOCATE
        | opcode::COPY_FILE_RANGE
        | opcode::COPY_FILE_RANGE_64
        | opcode::DESTROY => true,
        opcode::IOCTL => {
            arguments.take::<abi::IoctlIn>().is_ok_and(|given| is_long_ioctl(given.cmd))
        }
        opcode::BATCH_FORGET => {
            arguments.take::<abi::BatchForgetIn>().is_ok_and(|given| given.count > MANY)
        }
        opcode::SETATTR => arguments
            .take::<abi::SetAttrIn>()
            .is_ok_and(|given| given.valid & abi::fattr::SIZE != 0),
        _ => is_bulk(request),
    }
}

/// An entry of which the kernel has a hold now.
fn put_entry(to: &mut Reply<'_>, entry: LookedUp) -> Result<(), Errno> {
    to.put(&entry_out(&entry.attributes))?;
    to.count_lookup(entry.attributes.inode);
    Ok(())
}

/// `getxattr` and `listxattr` first request the length.
fn put_sized(to: &mut Reply<'_>, bytes: &[u8], room: u32) -> Result<(), Errno> {
    match room {
        // Values and lists of names are bounded far below 4 GiB.
        0 => to.put(&abi::SizeOut { size: bytes.len() as u32, padding: 0 }),
        room if bytes.len() > room as usize => Err(Errno::RANGE),
        _ => to.put_bytes(bytes),
    }
}
