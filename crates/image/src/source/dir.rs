//! A directory of the host as a source: walked by several threads, with the same tree whatever
//! their order.
//!
//! Directories are read level by level in batches; the names of a batch are sorted, read with stat
//! in parallel pieces, and put into the tree in order. Like `cp -a`, the walk crosses mount points.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use extant_storage::{DeviceUrl, Schemes, stat_host};
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, SeekFrom, Stat, fstat, lgetxattr, llistxattr, major,
    minor, open, readlinkat, seek, statat,
};
use rustix::io::Errno;

use super::builder::{Attributes, DataPlace, NewNode, TreeBuilder};
use super::error::{Flaw, SourceError};
use super::exclude::Excludes;
use super::fakeroot::Fakeroot;
use super::node::{FileTime, NameRef, Names, NodeId, Segment};
use super::override_stat;
use super::store::{HostDirectory, HostTree, Store, open_regular};
use super::unreadable;
use super::xattr::XattrList;

/// Directories whose names are held at a time, each with a descriptor.
const BATCH_DIRECTORIES: usize = 32;
/// Entries that are read before they go into the tree.
const BATCH_ENTRIES: usize = 8192;

/// Device and inode number: a file, whatever its name.
type Identity = (u64, u64);

/// A directory that is still to be read.
#[derive(Clone, Copy)]
struct Pending {
    node: NodeId,
    /// Its number in the [`HostTree`].
    directory: u32,
}

/// A directory's names, read and sorted.
struct Listing {
    pending: Pending,
    fd: OwnedFd,
    names: Vec<Box<[u8]>>,
}

/// Attributes of one name from the system.
struct DirListing {
    stat: Stat,
    /// Further links of a known file are not read again.
    known: Option<NodeId>,
    xattrs: XattrList,
    target: Vec<u8>,
    sparse: Option<Vec<Segment>>,
}

/// The directories that the files of the image are or will be in must not be a source: the image
/// would become part of itself.
#[derive(Clone, Debug, Default)]
pub(super) struct OutputDirectories(Vec<Identity>);

impl OutputDirectories {
    /// None for an output that is no file in a directory: a block device.
    pub(super) fn of(output: &Path, schemes: &Schemes) -> Result<Self, SourceError> {
        let layered = DeviceUrl::parse(output.as_os_str(), schemes, stat_host)
            .ok()
            .filter(DeviceUrl::is_part);
        let files = match &layered {
            Some(url) => url.parts.iter().map(|part| part.path.as_path()).collect(),
            None => vec![output],
        };
        let mut directories = Vec::new();
        for file in files {
            if let Ok(stat) = rustix::fs::stat(file)
                && FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile
            {
                continue;
            }
            let parent = match file.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent,
                _ => Path::new("."),
            };
            let stat = rustix::fs::stat(parent)
                .map_err(|error| SourceError::io(parent, "access", error.into()))?;
            directories.push(identity(&stat));
        }
        Ok(Self(directories))
    }
}

/// Rules for the walk of a directory.
#[derive(Clone, Copy)]
pub(super) struct Rules<'r> {
    pub(super) output: &'r OutputDirectories,
    pub(super) excludes: &'r Excludes,
    /// Owners, modes and types that the files have under fakeroot.
    pub(super) faked: Option<&'r Fakeroot>,
    /// Whether they are as the attribute of containers says.
    pub(super) override_stat: bool,
}

impl Rules<'_> {
    /// Changes the attributes of a file into those that it has in the image.
    fn apply(&self, stat: &mut Stat, xattrs: &mut XattrList) -> Result<(), Flaw> {
        if let Some(faked) = self.faked {
            faked.apply(stat)?;
        }
        if self.override_stat
            && let Some(value) = xattrs.take(override_stat::NAME)
        {
            override_stat::apply(&value, stat)?;
            xattrs.set_permissions((stat.st_mode & 0o7777) as u16);
        }
        Ok(())
    }
}

/// Reads the directory `path` into the tree, without what is excluded.
pub(super) fn read(
    builder: &mut TreeBuilder,
    path: &Path,
    rules: Rules<'_>,
) -> Result<(), SourceError> {
    let failed = |action, error: Errno| SourceError::io(path, action, error.into());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = open(path, flags, Mode::empty()).map_err(|error| failed("open", error))?;
    let mut stat = fstat(&root).map_err(|error| failed("access", error))?;
    let mut xattrs = XattrList::default();
    read_xattrs(&format!("/proc/self/fd/{}/.", root.as_raw_fd()).into_bytes(), &mut xattrs)
        .map_err(|error| failed("read extended attributes", error))?;
    let applied = rules.apply(&mut stat, &mut xattrs);
    applied.map_err(|flaw| SourceError::path(path, flaw))?;
    // The root's own name is not used.
    let directories = vec![HostDirectory { parent: 0, name: NameRef(0) }];
    let host = HostTree { path: path.to_owned(), root, directories };
    builder.begin_source();
    builder
        .add_store(Store::Directory(host))
        .and_then(|()| builder.insert(b"", &mut attributes(&stat, xattrs), NewNode::Directory))
        .map_err(|flaw| SourceError::path(path, flaw))?;
    check_output(&stat, rules.output).map_err(|flaw| SourceError::path(path, flaw))?;
    let mut walk = Walk { builder, links: HashMap::new(), open: VecDeque::new(), rules };
    walk.open.push_back(Pending { node: NodeId::ROOT, directory: 0 });
    walk.run()
}

struct Walk<'b> {
    builder: &'b mut TreeBuilder,
    /// Files with several names.
    links: HashMap<Identity, NodeId>,
    open: VecDeque<Pending>,
    rules: Rules<'b>,
}

impl Walk<'_> {
    fn run(&mut self) -> Result<(), SourceError> {
        while !self.open.is_empty() {
            let count = self.open.len().min(BATCH_DIRECTORIES);
            let batch: Vec<Pending> = self.open.drain(..count).collect();
            let excludes = self.rules.excludes;
            let (host, names) = self.host();
            let listings: Vec<Listing> = batch
                .par_iter()
                .map(|&pending| {
                    list(host, pending, names, excludes).map_err(|error| {
                        let path = host.display(pending.directory, b"", names);
                        SourceError::io(path, "read directory", error)
                    })
                })
                .collect::<Result<_, _>>()?;
            let entries: Vec<(usize, usize)> = listings
                .iter()
                .enumerate()
                .flat_map(|(list, listing)| (0..listing.names.len()).map(move |name| (list, name)))
                .collect();
            for piece in entries.chunks(BATCH_ENTRIES) {
                self.add_piece(&listings, piece)?;
            }
        }
        Ok(())
    }

    fn host(&mut self) -> (&HostTree, &Names) {
        let (store, names) = self.builder.last_store();
        match store {
            Some(Store::Directory(host)) => (host, names),
            _ => unreachable!("the walk began by adding its store"),
        }
    }

    fn error(&mut self, listing: &Listing, name: &[u8], flaw: Flaw) -> SourceError {
        let (host, names) = self.host();
        SourceError::path(host.display(listing.pending.directory, name, names), flaw)
    }

    fn add_piece(
        &mut self,
        listings: &[Listing],
        piece: &[(usize, usize)],
    ) -> Result<(), SourceError> {
        let links = &self.links;
        let found: Vec<Result<DirListing, (&'static str, Errno)>> = piece
            .par_iter()
            .map(|&(list, name)| {
                let listing = &listings[list];
                read_entry(listing.fd.as_fd(), &listing.names[name], links)
            })
            .collect();
        for (&(list, name), found) in piece.iter().zip(found) {
            let listing = &listings[list];
            let name = &listing.names[name];
            let found = found.map_err(|(action, error)| {
                let (host, names) = self.host();
                let path = host.display(listing.pending.directory, name, names);
                SourceError::io(path, action, error.into())
            })?;
            self.add(listing.pending, name, found)
                .map_err(|flaw| self.error(listing, name, flaw))?;
        }
        Ok(())
    }

    fn add(&mut self, parent: Pending, name: &[u8], found: DirListing) -> Result<(), Flaw> {
        let DirListing { mut stat, known, mut xattrs, target, sparse } = found;
        self.rules.apply(&mut stat, &mut xattrs)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        let has_links = stat.st_nlink > 1 && kind != FileType::Directory;
        // The file may have occurred earlier in this very piece.
        let known = known
            .or_else(|| has_links.then(|| self.links.get(&identity(&stat)).copied()).flatten());
        if let Some(node) = known {
            return self.builder.link_at(parent.node, name, node);
        }
        let (major, minor) = (major(stat.st_rdev).into(), minor(stat.st_rdev).into());
        let data = DataPlace::Host { directory: parent.directory };
        let new = match kind {
            FileType::RegularFile => {
                NewNode::Regular { size: stat.st_size as u64, data, sparse: sparse.as_deref() }
            }
            FileType::Directory => {
                check_output(&stat, self.rules.output)?;
                NewNode::Directory
            }
            FileType::Symlink => NewNode::Symlink(&target),
            FileType::CharacterDevice => NewNode::CharDevice { major, minor },
            FileType::BlockDevice => NewNode::BlockDevice { major, minor },
            FileType::Fifo => NewNode::Fifo,
            FileType::Socket => NewNode::Socket,
            FileType::Unknown => return Err(Flaw::Replaced),
        };
        let mut attributes = attributes(&stat, xattrs);
        let placed = self.builder.insert_at(parent.node, name, &mut attributes, new)?;
        if kind == FileType::Directory {
            let directory =
                self.add_directory(HostDirectory { parent: parent.directory, name: placed.name })?;
            self.open.push_back(Pending { node: placed.node, directory });
        } else if has_links {
            self.links.insert(identity(&stat), placed.node);
        }
        Ok(())
    }

    fn add_directory(&mut self, directory: HostDirectory) -> Result<u32, Flaw> {
        let Some(Store::Directory(host)) = self.builder.last_store_mut() else {
            unreachable!("the walk began by adding its store");
        };
        let limit = Flaw::TreeLimit { what: "directories", limit: u64::from(u32::MAX) };
        let number = u32::try_from(host.directories.len()).map_err(|_| limit)?;
        host.directories.push(directory);
        Ok(number)
    }
}

fn check_output(stat: &Stat, output: &OutputDirectories) -> Result<(), Flaw> {
    match output.0.contains(&identity(stat)) {
        true => Err(Flaw::OutputInside),
        false => Ok(()),
    }
}

fn identity(stat: &Stat) -> Identity {
    (stat.st_dev, stat.st_ino)
}

fn attributes(stat: &Stat, xattrs: XattrList) -> Attributes {
    Attributes {
        mode: (stat.st_mode & 0o7777) as u16,
        uid: stat.st_uid.into(),
        gid: stat.st_gid.into(),
        mtime: FileTime { seconds: stat.st_mtime, nanoseconds: stat.st_mtime_nsec as u32 },
        atime: Some(FileTime { seconds: stat.st_atime, nanoseconds: stat.st_atime_nsec as u32 }),
        ctime: Some(FileTime { seconds: stat.st_ctime, nanoseconds: stat.st_ctime_nsec as u32 }),
        xattrs,
    }
}

fn list(
    host: &HostTree,
    pending: Pending,
    names: &Names,
    excludes: &Excludes,
) -> io::Result<Listing> {
    let fd = host.open_directory(pending.directory, names)?;
    let mut path = match excludes.is_empty() {
        true => Vec::new(),
        false => host.path_below_root(pending.directory, names),
    };
    let path_len = path.len();
    let mut found = Vec::new();
    for entry in Dir::read_from(&fd)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        if !excludes.is_empty() {
            path.truncate(path_len);
            path.extend_from_slice(name);
            if excludes.matches(&path) {
                continue;
            }
        }
        found.push(Box::from(name));
    }
    found.sort_unstable();
    Ok(Listing { pending, fd, names: found })
}

fn read_entry(
    directory: BorrowedFd<'_>,
    name: &[u8],
    links: &HashMap<Identity, NodeId>,
) -> Result<DirListing, (&'static str, Errno)> {
    let stat =
        statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|error| ("access", error))?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    let has_links = stat.st_nlink > 1 && kind != FileType::Directory;
    let known = has_links.then(|| links.get(&identity(&stat)).copied()).flatten();
    let mut found =
        DirListing { stat, known, xattrs: XattrList::default(), target: Vec::new(), sparse: None };
    if known.is_some() {
        return Ok(found);
    }
    // By the descriptor: lgetxattrat is not available, and a full path may be too long for the
    // kernel.
    let mut path = format!("/proc/self/fd/{}/", directory.as_raw_fd()).into_bytes();
    path.extend_from_slice(name);
    read_xattrs(&path, &mut found.xattrs).map_err(|error| ("read extended attributes", error))?;
    if kind == FileType::Symlink {
        let target = readlinkat(directory, name, Vec::new());
        found.target = target.map_err(|error| ("read symbolic link", error))?.into_bytes();
    }
    // Fewer blocks than the size needs: there may be holes.
    let allocated = (stat.st_blocks as u64).saturating_mul(512);
    if kind == FileType::RegularFile && allocated < stat.st_size as u64 {
        found.sparse = match sparse_map(directory, name, stat.st_size as u64) {
            // It is copied when it is read, without holes.
            Err(Errno::ACCESS) if unreadable::is_own(directory, name) => None,
            map => map.map_err(|error| ("find holes", error))?,
        };
    }
    Ok(found)
}

/// The data of a file; `None` if it has no holes.
fn sparse_map(
    directory: BorrowedFd<'_>,
    name: &[u8],
    size: u64,
) -> Result<Option<Vec<Segment>>, Errno> {
    let file = open_regular(directory, name)?;
    let mut segments = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match seek(&file, SeekFrom::Data(at)) {
            Ok(start) if start < size => start,
            Ok(_) | Err(Errno::NXIO) => break,
            Err(error) => return Err(error),
        };
        let end = match seek(&file, SeekFrom::Hole(start)) {
            Ok(end) => end.min(size),
            Err(Errno::NXIO) => size,
            Err(error) => return Err(error),
        };
        if end <= start {
            break;
        }
        segments.push(Segment { offset: start, length: end - start, position: start });
        at = end;
    }
    let is_dense = matches!(segments[..], [Segment { offset: 0, length, .. }] if length == size);
    Ok((!is_dense).then_some(segments))
}

/// Attributes of the file at `path`, which may be a symlink. File systems without any have none.
fn read_xattrs(path: &[u8], list: &mut XattrList) -> Result<(), Errno> {
    let names = match grow(|buffer| llistxattr(path, buffer)) {
        Ok(names) if names.is_empty() => return Ok(()),
        Ok(names) => names,
        Err(Errno::NOTSUP | Errno::NOSYS) => return Ok(()),
        Err(error) => return Err(error),
    };
    for name in names.split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        match grow(|buffer| lgetxattr(path, name, buffer)) {
            Ok(value) => list.add(name, &value),
            // Removed since, or listed by a file system that has no value for it.
            Err(Errno::NODATA | Errno::NOTSUP) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Calls with a larger buffer until the result fits; the kernel limits both kinds of result to 64
/// KiB. Most files have no attributes: the first try allocates nothing on the heap.
fn grow(mut call: impl FnMut(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    const FIRST: usize = 512;
    const LIMIT: usize = 1 << 17;
    let mut first = [0; FIRST];
    match call(&mut first) {
        Ok(length) => return Ok(first[..length].to_vec()),
        Err(Errno::RANGE) => {}
        Err(error) => return Err(error),
    }
    let mut buffer = vec![0; 4 * FIRST];
    loop {
        match call(&mut buffer) {
            Ok(length) => {
                buffer.truncate(length);
                return Ok(buffer);
            }
            Err(Errno::RANGE) if buffer.len() < LIMIT => buffer.resize(buffer.len() * 4, 0),
            Err(error) => return Err(error),
        }
    }
}
