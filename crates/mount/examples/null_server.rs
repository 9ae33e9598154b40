//! A mount without a volume: it measures the cost of FUSE and of the transport by themselves.
//!
//! `null_server FLAT POINT [OPTIONS]` mounts at POINT until it is unmounted. Names and attributes
//! are in memory; contents are read from the file FLAT and written to it by the preads, pwrites
//! and fsyncs that a file system needs at least. If `FLAT.again` exists when the mount ends, it is
//! removed and the same files are mounted again. `cargo xtask bench` compares mounts with it.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use extant_engine::ErrorSample;
use extant_mount::{
    Attributes, Caller, Change, FileService, Listed, ListedFiles, LookedUp, TakeEntry, WriteBy,
    parse_options, serve_files,
};
use extant_ondisk::dirent::FileType as EntryType;
use extant_ondisk::inode::FileType;
use extant_ondisk::time::Timestamp;
use extant_ondisk::{InodeNo, Uuid};
use extant_reader::StatFs;
use rustix::io::Errno;

/// Contents are mapped in units of this many bytes.
const PAGE: u64 = 4096;
/// The first inode number of files that are made.
const FIRST: u32 = 12;

/// A range of a file and where it is in the flat file.
#[derive(Clone, Copy, Debug)]
struct Extent {
    start: u64,
    len: u64,
    at: u64,
}

impl Extent {
    fn end(&self) -> u64 {
        self.start + self.len
    }
}

/// A file of any kind.
#[derive(Debug)]
struct Node {
    attributes: Attributes,
    lookups: u64,
    /// The target of a symbolic link.
    target: Vec<u8>,
    /// Where the contents are, in the order of the file.
    extents: Vec<Extent>,
    /// The entries of a directory.
    directory: Directory,
}

/// The entries of a directory, by name and by the cookie of their position.
#[derive(Debug, Default)]
struct Directory {
    by_name: HashMap<Vec<u8>, (u64, InodeNo)>,
    by_cookie: BTreeMap<u64, (Vec<u8>, InodeNo)>,
    last: u64,
}

impl Directory {
    fn insert(&mut self, name: &[u8], inode: InodeNo) {
        self.last += 1;
        self.by_name.insert(name.to_vec(), (self.last, inode));
        self.by_cookie.insert(self.last, (name.to_vec(), inode));
    }

    fn remove(&mut self, name: &[u8]) -> Option<InodeNo> {
        let (cookie, inode) = self.by_name.remove(name)?;
        self.by_cookie.remove(&cookie);
        Some(inode)
    }
}

/// The names and attributes of all files.
#[derive(Debug)]
struct Files {
    nodes: HashMap<InodeNo, Node>,
    next: u32,
    /// The end of the used part of the flat file.
    end: u64,
}

impl Files {
    fn node(&mut self, inode: InodeNo) -> Result<&mut Node, Errno> {
        self.nodes.get_mut(&inode).ok_or(Errno::STALE)
    }

    /// Makes a file without a name.
    fn make(&mut self, mode: u16, rdev: u32, by: Caller) -> Result<InodeNo, Errno> {
        let inode = InodeNo(self.next);
        self.next += 1;
        let now = now();
        let file_type = FileType::of_mode(mode).ok_or(Errno::INVAL)?;
        let attributes = Attributes {
            inode,
            generation: 0,
            size: 0,
            sectors: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: Some(now),
            mode,
            file_type,
            links: if file_type == FileType::Directory { 2 } else { 1 },
            uid: by.uid,
            gid: by.gid,
            rdev,
            block_size: PAGE as u32,
        };
        let (target, extents, directory) = (Vec::new(), Vec::new(), Directory::default());
        self.nodes.insert(inode, Node { attributes, lookups: 0, target, extents, directory });
        Ok(inode)
    }

    fn look_up(&mut self, inode: InodeNo) -> Result<LookedUp, Errno> {
        let node = self.node(inode)?;
        node.lookups += 1;
        Ok(LookedUp { attributes: node.attributes })
    }

    /// The directory, whose times change.
    fn changed(&mut self, dir: InodeNo) -> Result<&mut Node, Errno> {
        let now = now();
        let node = self.node(dir)?;
        (node.attributes.mtime, node.attributes.ctime) = (now, now);
        Ok(node)
    }

    fn add(&mut self, dir: InodeNo, name: &[u8], inode: InodeNo) -> Result<(), Errno> {
        let node = self.changed(dir)?;
        if node.directory.by_name.contains_key(name) {
            return Err(Errno::EXIST);
        }
        node.directory.insert(name, inode);
        Ok(())
    }

    fn remove(&mut self, dir: InodeNo, name: &[u8]) -> Result<(), Errno> {
        let inode = self.changed(dir)?.directory.remove(name).ok_or(Errno::NOENT)?;
        let node = self.node(inode)?;
        let is_dir = node.attributes.file_type == FileType::Directory;
        node.attributes.links -= if is_dir { 2 } else { 1 };
        node.attributes.ctime = now();
        if is_dir {
            self.node(dir)?.attributes.links -= 1;
        }
        self.drop_unused(inode);
        Ok(())
    }

    fn drop_unused(&mut self, inode: InodeNo) {
        let is_unused = |node: &Node| node.lookups == 0 && node.attributes.links == 0;
        if self.nodes.get(&inode).is_some_and(is_unused) {
            self.nodes.remove(&inode);
        }
    }

    /// Has the flat file hold all of a range, and sets the size of the file.
    fn map(&mut self, inode: InodeNo, offset: u64, len: u64) -> Result<(), Errno> {
        let mut end = self.end;
        let node = self.node(inode)?;
        let (mut at, until) =
            (offset / PAGE * PAGE, offset.saturating_add(len).next_multiple_of(PAGE));
        while at < until {
            let index = node.extents.partition_point(|extent| extent.end() <= at);
            let next = node.extents.get(index).copied();
            if let Some(extent) = next.filter(|extent| extent.start <= at) {
                at = extent.end();
                continue;
            }
            let new_end = next.map_or(until, |extent| extent.start.min(until));
            let len = new_end - at;
            match index.checked_sub(1).and_then(|before| node.extents.get_mut(before)) {
                Some(before) if before.end() == at && before.at + before.len == end => {
                    before.len += len;
                }
                _ => node.extents.insert(index, Extent { start: at, len, at: end }),
            }
            node.attributes.sectors += len / 512;
            end += len;
            at = new_end;
        }
        node.attributes.size = node.attributes.size.max(offset + len);
        self.end = end;
        Ok(())
    }

    /// The parts of a range: the length of each and where it is in the flat file.
    fn parts(&mut self, inode: InodeNo, offset: u64, len: u64) -> Result<Vec<Part>, Errno> {
        let node = self.node(inode)?;
        let (mut at, until) = (offset, offset + len);
        let mut parts = Vec::with_capacity(1);
        while at < until {
            let index = node.extents.partition_point(|extent| extent.end() <= at);
            let (end, flat) = match node.extents.get(index) {
                Some(extent) if extent.start <= at => {
                    (extent.end(), Some(extent.at + (at - extent.start)))
                }
                Some(extent) => (extent.start, None),
                None => (until, None),
            };
            let end = end.min(until);
            parts.push(Part { len: (end - at) as usize, flat });
            at = end;
        }
        Ok(parts)
    }
}

/// A part of a range; `None` for a hole.
struct Part {
    len: usize,
    flat: Option<u64>,
}

/// Files in memory with their contents in one flat file.
#[derive(Debug)]
struct NullServer {
    flat: File,
    files: Mutex<Files>,
}

fn now() -> Timestamp {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::new(now.as_secs() as i64, now.subsec_nanos())
}

fn errno_of(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

impl NullServer {
    fn new(flat: File) -> Result<Self, Errno> {
        let mut files = Files { nodes: HashMap::new(), next: InodeNo::ROOT.0, end: 0 };
        let root = files.make(0o040_755, 0, Caller { uid: 0, gid: 0 })?;
        files.look_up(root)?;
        files.next = FIRST;
        Ok(Self { flat, files: Mutex::new(files) })
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The files of a directory that is being read, locked.
struct Locked<'a>(RefCell<MutexGuard<'a, Files>>);

impl ListedFiles for Locked<'_> {
    fn attributes(&self, file: InodeNo) -> Option<Attributes> {
        self.0.borrow_mut().node(file).ok().map(|node| node.attributes)
    }

    fn look_up(&self, file: InodeNo) -> Option<LookedUp> {
        self.0.borrow_mut().look_up(file).ok()
    }

    fn forget(&self, file: InodeNo) {
        if let Ok(node) = self.0.borrow_mut().node(file) {
            node.lookups -= 1;
        }
    }
}

impl FileService for NullServer {
    fn lookup(&self, dir: InodeNo, name: &[u8]) -> Result<Option<LookedUp>, Errno> {
        let mut files = self.files();
        let found = files.node(dir)?.directory.by_name.get(name).map(|(_, inode)| *inode);
        found.map(|inode| files.look_up(inode)).transpose()
    }

    fn forget(&self, inode: InodeNo, count: u64) {
        let mut files = self.files();
        if let Ok(node) = files.node(inode) {
            node.lookups = node.lookups.saturating_sub(count);
        }
        files.drop_unused(inode);
    }

    fn attributes(&self, file: InodeNo) -> Result<Attributes, Errno> {
        Ok(self.files().node(file)?.attributes)
    }

    fn change(&self, file: InodeNo, change: &Change, _by: Caller) -> Result<Attributes, Errno> {
        let mut files = self.files();
        let node = files.node(file)?;
        let it = &mut node.attributes;
        if let Some(mode) = change.mode {
            it.mode = it.mode & !0o7777 | (mode & 0o7777) as u16;
        }
        it.uid = change.uid.unwrap_or(it.uid);
        it.gid = change.gid.unwrap_or(it.gid);
        it.atime = change.atime.unwrap_or(it.atime);
        it.mtime = change.mtime.unwrap_or(it.mtime);
        it.ctime = change.ctime.unwrap_or_else(now);
        if let Some(size) = change.size {
            it.size = size;
            let kept = size.next_multiple_of(PAGE);
            node.extents.retain(|extent| extent.start < kept);
            if let Some(last) = node.extents.last_mut() {
                last.len = last.len.min(kept - last.start);
            }
            it.sectors = node.extents.iter().map(|extent| extent.len / 512).sum();
        }
        Ok(*it)
    }

    fn read_link(&self, link: InodeNo) -> Result<Vec<u8>, Errno> {
        Ok(self.files().node(link)?.target.clone())
    }

    fn symlink(
        &self,
        dir: InodeNo,
        name: &[u8],
        target: &[u8],
        by: Caller,
    ) -> Result<LookedUp, Errno> {
        let mut files = self.files();
        let inode = files.make(0o120_777, 0, by)?;
        files.add(dir, name, inode)?;
        let node = files.node(inode)?;
        node.target = target.to_vec();
        node.attributes.size = target.len() as u64;
        files.look_up(inode)
    }

    fn make(
        &self,
        dir: InodeNo,
        name: &[u8],
        (mode, umask): (u32, u32),
        device: (u32, u32),
        by: Caller,
    ) -> Result<LookedUp, Errno> {
        let mut files = self.files();
        let inode = files.make((mode & !(umask & 0o777)) as u16, device.0 << 8 | device.1, by)?;
        files.add(dir, name, inode)?;
        let made = files.look_up(inode)?;
        if made.attributes.file_type == FileType::Directory {
            files.node(dir)?.attributes.links += 1;
        }
        Ok(made)
    }

    fn link(&self, file: InodeNo, dir: InodeNo, name: &[u8]) -> Result<LookedUp, Errno> {
        let mut files = self.files();
        files.add(dir, name, file)?;
        let node = files.node(file)?;
        node.attributes.links += 1;
        node.attributes.ctime = now();
        files.look_up(file)
    }

    fn unlink(&self, dir: InodeNo, name: &[u8]) -> Result<(), Errno> {
        self.files().remove(dir, name)
    }

    fn rmdir(&self, dir: InodeNo, name: &[u8]) -> Result<(), Errno> {
        let mut files = self.files();
        let (_, inode) = *files.node(dir)?.directory.by_name.get(name).ok_or(Errno::NOENT)?;
        if !files.node(inode)?.directory.by_name.is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        files.remove(dir, name)
    }

    fn rename(
        &self,
        (dir, name): (InodeNo, &[u8]),
        (to_dir, to_name): (InodeNo, &[u8]),
        _: (u32, Caller),
    ) -> Result<(), Errno> {
        let mut files = self.files();
        let inode = files.changed(dir)?.directory.remove(name).ok_or(Errno::NOENT)?;
        if files.node(to_dir)?.directory.by_name.contains_key(to_name) {
            files.remove(to_dir, to_name)?;
        }
        files.add(to_dir, to_name, inode)
    }

    fn read(
        &self,
        file: InodeNo,
        offset: u64,
        buffer: &mut [u8],
        _keeps_atime: bool,
    ) -> Result<usize, Errno> {
        let mut files = self.files();
        let left = files.node(file)?.attributes.size.saturating_sub(offset);
        let count = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let parts = files.parts(file, offset, count as u64)?;
        drop(files);
        let mut rest = &mut buffer[..count];
        for Part { len, flat } in parts {
            let (part, others) = rest.split_at_mut(len);
            match flat {
                // The last page of the flat file may be shorter.
                Some(at) => {
                    let read = self.flat.read_at(part, at).map_err(errno_of)?;
                    part[read..].fill(0);
                }
                None => part.fill(0),
            }
            rest = others;
        }
        Ok(count)
    }

    fn write(&self, file: InodeNo, offset: u64, bytes: &[u8], _: WriteBy) -> Result<usize, Errno> {
        let mut files = self.files();
        files.map(file, offset, bytes.len() as u64)?;
        let parts = files.parts(file, offset, bytes.len() as u64)?;
        drop(files);
        let mut rest = bytes;
        for Part { len, flat } in parts {
            let (part, others) = rest.split_at(len);
            self.flat.write_all_at(part, flat.ok_or(Errno::IO)?).map_err(errno_of)?;
            rest = others;
        }
        Ok(bytes.len())
    }

    fn fsync(&self, _: InodeNo, _: bool, _: &mut ErrorSample) -> Result<(), Errno> {
        self.sync()
    }

    fn sync(&self) -> Result<(), Errno> {
        self.flat.sync_data().map_err(errno_of)
    }

    fn list(&self, dir: InodeNo, from: u64, take: &mut TakeEntry<'_>) -> Result<(), Errno> {
        let locked = Locked(RefCell::new(self.files()));
        let mut cookie = from;
        loop {
            let entry = {
                let mut files = locked.0.borrow_mut();
                let entries = &files.node(dir)?.directory.by_cookie;
                entries.range(cookie + 1..).next().map(|(at, entry)| (*at, entry.clone()))
            };
            let Some((at, (name, inode))) = entry else { return Ok(()) };
            let listed = Listed { inode, file_type: EntryType::Unknown, name, cookie: at };
            if !take(&locked, listed) {
                return Ok(());
            }
            cookie = at;
        }
    }

    fn stat_fs(&self, _: InodeNo) -> Result<StatFs, Errno> {
        let (blocks, inodes) = (1 << 24, 1 << 24);
        Ok(StatFs {
            block_size: PAGE as u32,
            blocks,
            free_blocks: blocks,
            available_blocks: blocks,
            inodes,
            free_inodes: u64::from(inodes),
            max_name_len: 255,
            uuid: Uuid::default(),
        })
    }

    fn now(&self) -> Timestamp {
        now()
    }

    /// As on a volume, so that the kernel makes the same requests.
    fn has_acls(&self) -> bool {
        true
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (flat, point, options) = match &args[..] {
        [flat, point] => (flat, point, ""),
        [flat, point, options] => (flat, point, &options[..]),
        _ => return Err("usage: null_server FLAT POINT [OPTIONS]".into()),
    };
    let options = parse_options([options])?;
    let file = File::options().read(true).write(true).create(true).truncate(false).open(flat)?;
    let again = PathBuf::from(format!("{flat}.again"));
    let server: Arc<dyn FileService> = Arc::new(NullServer::new(file)?);
    loop {
        serve_files(server.clone(), Path::new(flat), Path::new(point), &options)?;
        if fs::remove_file(&again).is_err() {
            return Ok(());
        }
    }
}
