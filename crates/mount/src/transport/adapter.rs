//! Requests as `fuser` reads them, and the server's answers as it writes them.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use extant_ondisk::InodeNo;
use extant_ondisk::dirent::FileType as EntryType;
use extant_ondisk::inode::FileType;
use extant_ondisk::time::Timestamp;
use fuser::{
    BsdFileFlags, CopyFileRangeFlags, FileAttr, FileHandle, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, RenameFlags,
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow,
    WriteFlags,
};
use rustix::io::Errno;

use crate::attr::{
    Attributes, decode_device, inode_of, node_of, system_time, timestamp_from_fuser,
};
use crate::mountpoint::MAX_REQUEST;
use crate::server::{Caller, Change, Held, OpenFor, Server, WriteBy};

/// How long the kernel may keep names and attributes: nobody else changes the volume.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// Requests of the kernel's own, as readahead and writeback, that may wait.
const BACKGROUND: u16 = 64;
const O_APPEND: i32 = 0o2000;
const O_TRUNC: i32 = 0o1000;
const O_NOATIME: i32 = 0o1_000_000;

thread_local! {
    /// What is read before it is sent: one buffer for each event loop.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A server as `fuser` calls it.
pub(super) struct Adapter {
    server: Arc<Server>,
}

impl Adapter {
    pub(super) fn new(server: Arc<Server>) -> Self {
        Self { server }
    }
}

fn fuse_errno(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno.raw_os_error())
}

fn caller(request: &Request) -> Caller {
    Caller { uid: request.uid(), gid: request.gid() }
}

/// The inode of a request. The kernel sends numbers only that it was given; another one is stale.
fn inode(node: INodeNo) -> Result<InodeNo, Errno> {
    inode_of(node.0).ok_or(Errno::STALE)
}

fn fuse_type(file_type: FileType) -> fuser::FileType {
    match file_type {
        FileType::Regular => fuser::FileType::RegularFile,
        FileType::Directory => fuser::FileType::Directory,
        FileType::CharDevice => fuser::FileType::CharDevice,
        FileType::BlockDevice => fuser::FileType::BlockDevice,
        FileType::Fifo => fuser::FileType::NamedPipe,
        FileType::Socket => fuser::FileType::Socket,
        FileType::Symlink => fuser::FileType::Symlink,
    }
}

/// The kind that a directory stores; `None` where it stores none.
fn listed_type(file_type: EntryType) -> Option<fuser::FileType> {
    Some(match file_type {
        EntryType::Regular => fuser::FileType::RegularFile,
        EntryType::Directory => fuser::FileType::Directory,
        EntryType::CharDevice => fuser::FileType::CharDevice,
        EntryType::BlockDevice => fuser::FileType::BlockDevice,
        EntryType::Fifo => fuser::FileType::NamedPipe,
        EntryType::Socket => fuser::FileType::Socket,
        EntryType::Symlink => fuser::FileType::Symlink,
        _ => return None,
    })
}

/// What stat shows. `number` is what the kernel takes for the node's number where the answer makes one.
fn file_attr(attributes: &Attributes, number: u64) -> FileAttr {
    FileAttr {
        ino: INodeNo(number),
        size: attributes.size,
        blocks: attributes.sectors,
        atime: system_time(attributes.atime),
        mtime: system_time(attributes.mtime),
        ctime: system_time(attributes.ctime),
        crtime: SystemTime::UNIX_EPOCH,
        kind: fuse_type(attributes.file_type),
        perm: attributes.mode & 0o7777,
        nlink: attributes.links,
        uid: attributes.uid,
        gid: attributes.gid,
        rdev: attributes.rdev,
        blksize: attributes.block_size,
        flags: 0,
    }
}

fn entry_attr(attributes: &Attributes) -> FileAttr {
    file_attr(attributes, node_of(attributes.inode))
}

/// The answer that there is no such name, which the kernel keeps.
fn no_entry() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: SystemTime::UNIX_EPOCH,
        mtime: SystemTime::UNIX_EPOCH,
        ctime: SystemTime::UNIX_EPOCH,
        crtime: SystemTime::UNIX_EPOCH,
        kind: fuser::FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

fn generation(attributes: &Attributes) -> Generation {
    Generation(u64::from(attributes.generation))
}

fn reply_entry(result: Result<Held, Errno>, reply: ReplyEntry) {
    match result {
        Ok(Held { attributes }) => {
            reply.entry(&FOREVER, &entry_attr(&attributes), generation(&attributes));
        }
        Err(errno) => reply.error(fuse_errno(errno)),
    }
}

fn reply_attr(result: Result<Attributes, Errno>, reply: ReplyAttr) {
    match result {
        Ok(attributes) => {
            reply.attr(&FOREVER, &file_attr(&attributes, u64::from(attributes.inode.0)));
        }
        Err(errno) => reply.error(fuse_errno(errno)),
    }
}

fn reply_empty(result: Result<(), Errno>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(fuse_errno(errno)),
    }
}

/// `getxattr` and `listxattr` ask for the length first.
fn reply_xattr(result: Result<Vec<u8>, Errno>, room: u32, reply: ReplyXattr) {
    match result {
        // Values and lists of names are bounded far below 4 GiB.
        Ok(bytes) if room == 0 => reply.size(bytes.len() as u32),
        Ok(bytes) if bytes.len() > room as usize => reply.error(fuse_errno(Errno::RANGE)),
        Ok(bytes) => reply.data(&bytes),
        Err(errno) => reply.error(fuse_errno(errno)),
    }
}

impl Filesystem for Adapter {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let mut wanted = vec![
            InitFlags::FUSE_EXPORT_SUPPORT,
            InitFlags::FUSE_DONT_MASK,
            InitFlags::FUSE_HAS_IOCTL_DIR,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_WRITEBACK_CACHE,
            InitFlags::FUSE_NO_OPENDIR_SUPPORT,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_CACHE_SYMLINKS,
        ];
        if self.server.has_acls() {
            wanted.push(InitFlags::FUSE_POSIX_ACL);
        }
        for flag in wanted {
            // One that the kernel lacks is done without: all are matters of speed, but for lists, which it then does not check.
            let _ = config.add_capabilities(flag);
        }
        // The largest that the kernel takes is taken instead.
        if let Err(limit) = config.set_max_write(MAX_REQUEST) {
            let _ = config.set_max_write(limit);
        }
        if let Err(limit) = config.set_max_readahead(MAX_REQUEST) {
            let _ = config.set_max_readahead(limit);
        }
        let _ = config.set_max_background(BACKGROUND);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match inode(parent).and_then(|dir| self.server.lookup(dir, name.as_bytes())) {
            Ok(Some(held)) => reply_entry(Ok(held), reply),
            Ok(None) => reply.entry(&FOREVER, &no_entry(), Generation(0)),
            Err(errno) => reply.error(fuse_errno(errno)),
        }
    }

    fn forget(&self, _: &Request, node: INodeNo, count: u64) {
        // The root is held by the mount itself.
        if let Some(inode) = inode_of(node.0).filter(|inode| *inode != InodeNo::ROOT) {
            self.server.forget(inode, count);
        }
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply_attr(inode(node).and_then(|file| self.server.attributes(file)), reply);
    }

    fn setattr(
        &self,
        request: &Request,
        node: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let time = |time: TimeOrNow| -> Timestamp {
            match time {
                TimeOrNow::SpecificTime(time) => timestamp_from_fuser(time),
                TimeOrNow::Now => self.server.now(),
            }
        };
        let change = Change {
            mode,
            uid,
            gid,
            size,
            atime: atime.map(time),
            mtime: mtime.map(time),
            ctime: ctime.map(timestamp_from_fuser),
        };
        let changed =
            inode(node).and_then(|file| self.server.change(file, &change, caller(request)));
        reply_attr(changed, reply);
    }

    fn readlink(&self, _: &Request, node: INodeNo, reply: ReplyData) {
        match inode(node).and_then(|link| self.server.read_link(link)) {
            Ok(target) => reply.data(&target),
            Err(errno) => reply.error(fuse_errno(errno)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let device = decode_device(rdev);
        let made = inode(parent).and_then(|dir| {
            self.server.make(dir, name.as_bytes(), (mode, umask), device, caller(request))
        });
        reply_entry(made, reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let mode = mode & 0o7777 | u32::from(FileType::Directory.mode());
        let made = inode(parent).and_then(|dir| {
            self.server.make(dir, name.as_bytes(), (mode, umask), (0, 0), caller(request))
        });
        reply_entry(made, reply);
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        let mode = mode & 0o7777 | u32::from(FileType::Regular.mode());
        let made = inode(parent).and_then(|dir| {
            self.server.make(dir, name.as_bytes(), (mode, umask), (0, 0), caller(request))
        });
        match made {
            Ok(Held { attributes }) => reply.created(
                &FOREVER,
                &entry_attr(&attributes),
                generation(&attributes),
                FileHandle(0),
                FopenFlags::FOPEN_KEEP_CACHE,
            ),
            Err(errno) => reply.error(fuse_errno(errno)),
        }
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(inode(parent).and_then(|dir| self.server.unlink(dir, name.as_bytes())), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(inode(parent).and_then(|dir| self.server.rmdir(dir, name.as_bytes())), reply);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let target = target.as_os_str().as_bytes();
        let made = inode(parent)
            .and_then(|dir| self.server.symlink(dir, name.as_bytes(), target, caller(request)));
        reply_entry(made, reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let renamed = inode(parent).and_then(|dir| {
            let to = (inode(new_parent)?, new_name.as_bytes());
            self.server.rename((dir, name.as_bytes()), to, flags.bits())
        });
        reply_empty(renamed, reply);
    }

    fn link(
        &self,
        _: &Request,
        node: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        let linked = inode(node)
            .and_then(|file| self.server.link(file, inode(new_parent)?, new_name.as_bytes()));
        reply_entry(linked, reply);
    }

    fn open(&self, _: &Request, node: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let wanted = OpenFor {
            writes: flags.acc_mode() != OpenAccMode::O_RDONLY,
            appends: flags.0 & O_APPEND != 0,
            truncates: flags.0 & O_TRUNC != 0,
        };
        let opened = inode(node).and_then(|file| self.server.open(file, wanted));
        match opened {
            Ok(()) => reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE),
            Err(errno) => reply.error(fuse_errno(errno)),
        }
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // The kernel does not ask again, and keeps what it reads of directories.
        reply.error(fuser::Errno::ENOSYS);
    }

    fn read(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let size = size.min(MAX_REQUEST) as usize;
        BUFFER.with_borrow_mut(|buffer| {
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            let room = &mut buffer[..size];
            let keeps_atime = flags.0 & O_NOATIME != 0;
            match inode(node).and_then(|file| self.server.read(file, offset, room, keeps_atime)) {
                Ok(count) => reply.data(&buffer[..count]),
                Err(errno) => reply.error(fuse_errno(errno)),
            }
        });
    }

    fn write(
        &self,
        request: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let by = if write_flags.contains(WriteFlags::FUSE_WRITE_CACHE) {
            WriteBy::Cache
        } else {
            WriteBy::Caller(caller(request))
        };
        match inode(node).and_then(|file| self.server.write(file, offset, data, by)) {
            // A request carries less than 4 GiB.
            Ok(count) => reply.written(count as u32),
            Err(errno) => reply.error(fuse_errno(errno)),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // Nothing is to be done when a file is closed; the kernel does not ask again.
        reply.error(fuser::Errno::ENOSYS);
    }

    fn fsync(&self, _: &Request, node: INodeNo, _: FileHandle, data_only: bool, reply: ReplyEmpty) {
        reply_empty(inode(node).and_then(|file| self.server.fsync(file, data_only)), reply);
    }

    fn fsyncdir(&self, _: &Request, node: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply_empty(inode(node).and_then(|dir| self.server.fsync(dir, false)), reply);
    }

    fn readdir(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listed = inode(node).and_then(|dir| {
            self.server.list(dir, offset, |entry| {
                let file_type = listed_type(entry.file_type).or_else(|| {
                    // ext2's first directories store no kinds.
                    let attributes = self.server.attributes(entry.inode).ok()?;
                    Some(fuse_type(attributes.file_type))
                });
                let file_type = file_type.unwrap_or(fuser::FileType::RegularFile);
                let number = INodeNo(u64::from(entry.inode.0));
                !reply.add(number, entry.cookie, file_type, OsStr::from_bytes(&entry.name))
            })
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(fuse_errno(errno)),
        }
    }

    fn readdirplus(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let listed = inode(node).and_then(|dir| {
            self.server.list(dir, offset, |entry| {
                let name = OsStr::from_bytes(&entry.name);
                // The kernel takes no hold of these two, nor of an entry without a number.
                let is_dot = matches!(&entry.name[..], b"." | b"..");
                let held = if is_dot { None } else { self.server.hold_listed(entry.inode) };
                let Some(Held { attributes }) = held else {
                    let kind = listed_type(entry.file_type).unwrap_or(fuser::FileType::RegularFile);
                    let shown = INodeNo(u64::from(entry.inode.0));
                    let attr = FileAttr { ino: shown, kind, ..no_entry() };
                    let zero = Duration::ZERO;
                    return !reply.add(INodeNo(0), entry.cookie, name, &zero, &attr, Generation(0));
                };
                let attr = entry_attr(&attributes);
                let is_full = reply.add(
                    attr.ino,
                    entry.cookie,
                    name,
                    &FOREVER,
                    &attr,
                    generation(&attributes),
                );
                if is_full {
                    self.server.forget(entry.inode, 1);
                }
                !is_full
            })
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(fuse_errno(errno)),
        }
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        match self.server.stat_fs() {
            Ok(stat) => reply.statfs(
                stat.blocks,
                stat.free_blocks,
                stat.available_blocks,
                u64::from(stat.inodes),
                stat.free_inodes,
                stat.block_size,
                stat.max_name_len,
                stat.block_size,
            ),
            Err(errno) => reply.error(fuse_errno(errno)),
        }
    }

    fn setxattr(
        &self,
        _: &Request,
        node: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let set = inode(node).and_then(|file| {
            self.server.set_xattr(file, name.as_bytes(), value, flags.cast_unsigned())
        });
        reply_empty(set, reply);
    }

    fn getxattr(&self, _: &Request, node: INodeNo, name: &OsStr, room: u32, reply: ReplyXattr) {
        let value = inode(node).and_then(|file| self.server.xattr(file, name.as_bytes()));
        reply_xattr(value, room, reply);
    }

    fn listxattr(&self, request: &Request, node: INodeNo, room: u32, reply: ReplyXattr) {
        let names = inode(node).and_then(|file| self.server.xattr_names(file, caller(request)));
        reply_xattr(names, room, reply);
    }

    fn removexattr(&self, _: &Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = inode(node).and_then(|file| self.server.remove_xattr(file, name.as_bytes()));
        reply_empty(removed, reply);
    }

    fn ioctl(
        &self,
        request: &Request,
        node: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        command: u32,
        input: &[u8],
        room: u32,
        reply: ReplyIoctl,
    ) {
        let answer =
            inode(node).and_then(|file| self.server.ioctl(file, command, input, caller(request)));
        match answer {
            Ok(bytes) => reply.ioctl(0, &bytes[..bytes.len().min(room as usize)]),
            Err(errno) => reply.error(fuse_errno(errno)),
        }
    }

    fn fallocate(
        &self,
        request: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let done = inode(node).and_then(|file| {
            self.server.fallocate(file, mode.cast_unsigned(), offset, len, caller(request))
        });
        reply_empty(done, reply);
    }

    fn lseek(&self, _: &Request, _: INodeNo, _: FileHandle, _: i64, _: i32, reply: ReplyLseek) {
        // The kernel asks without having written what its cache holds: a hole here may have data there. Without us it takes the
        // whole file for data, which is never wrong.
        reply.error(fuser::Errno::ENOSYS);
    }

    fn copy_file_range(
        &self,
        request: &Request,
        from: INodeNo,
        _: FileHandle,
        from_offset: u64,
        to: INodeNo,
        _: FileHandle,
        to_offset: u64,
        len: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let copied = inode(from).and_then(|source| {
            let target = (inode(to)?, to_offset);
            self.server.copy((source, from_offset), target, len, caller(request))
        });
        match copied {
            // One request copies 64 MiB at most.
            Ok(count) => reply.written(count as u32),
            Err(errno) => reply.error(fuse_errno(errno)),
        }
    }
}
