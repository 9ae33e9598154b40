//! Where entries go: directories below the one that is unpacked into.

use std::collections::{HashMap, HashSet};

use extant_engine::{Credentials, OpenVolume};
use extant_image::source::split_path;
use extant_ondisk::InodeNo;
use extant_ondisk::inode::FileType;
use extant_reader::{AclKind, Error as Cause, LoadedInode, VolumeRead};

use super::lane::Lane;
use super::outcome::MemberError;

/// Symbolic links followed on one path, as on Linux.
const MAX_LINKS: u32 = 40;
/// Permissions of directories that the archive does not have, before the umask.
const DIR_PERMISSIONS: u16 = 0o777;

/// A directory that takes files.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dir {
    pub(super) inode: InodeNo,
    /// Whether new files in it get an access control list.
    pub(super) has_default_list: bool,
}

/// The place that a path of the archive leads to.
#[derive(Clone, Copy, Debug)]
pub(super) enum ResolvedPath<'p> {
    /// The directory that is unpacked into.
    Root(InodeNo),
    /// A name in a directory.
    Name(Dir, &'p [u8]),
}

/// The directories that were found or made.
pub(super) struct Places<'v> {
    volume: &'v OpenVolume,
    /// From the root of the volume to the directory that is unpacked into.
    base: Vec<InodeNo>,
    /// By the path as the archive has it.
    known: HashMap<Vec<u8>, Dir>,
    /// The path that was asked for last.
    last: Option<(Vec<u8>, Dir)>,
    /// Names of symbolic links that the archive made.
    made_links: HashSet<(InodeNo, Vec<u8>)>,
    /// Names of symbolic links that were there and were followed.
    followed: HashSet<(InodeNo, Vec<u8>)>,
}

impl<'v> Places<'v> {
    pub(super) fn new(volume: &'v OpenVolume, into: InodeNo) -> Result<Self, Cause> {
        let mut base = vec![into];
        let mut at = into;
        while at != InodeNo::ROOT {
            at = volume.lookup(at, b"..")?.inode;
            if base.contains(&at) {
                return Err(Cause::Invalid("directory contains itself"));
            }
            base.push(at);
        }
        base.reverse();
        Ok(Self {
            volume,
            base,
            known: HashMap::new(),
            last: None,
            made_links: HashSet::new(),
            followed: HashSet::new(),
        })
    }

    /// Notes that a file of the archive gets this name.
    pub(super) fn note(&mut self, dir: InodeNo, name: &[u8], is_link: bool) {
        if !is_link && self.made_links.is_empty() && self.followed.is_empty() {
            return;
        }
        let key = (dir, name.to_vec());
        if self.followed.remove(&key) {
            // Paths along it lead elsewhere from now on.
            self.known.clear();
            self.last = None;
        }
        match is_link {
            true => self.made_links.insert(key),
            false => self.made_links.remove(&key),
        };
    }

    /// The directory of a path's last name. With `make` missing directories are made, owned so.
    pub(super) fn parent<'p>(
        &mut self,
        path: &'p [u8],
        lanes: &mut [Lane<'_>],
        make: Option<&Credentials>,
    ) -> Result<ResolvedPath<'p>, MemberError> {
        let (above, name) = split_path(path).ok_or(MemberError::DotDot)?;
        let Some(name) = name else { return Ok(ResolvedPath::Root(self.base_dir())) };
        if let Some((last, dir)) = &self.last
            && last == above
        {
            return Ok(ResolvedPath::Name(*dir, name));
        }
        let dir = match self.known.get(above) {
            Some(dir) => *dir,
            None => {
                let inode = self.walk(above, lanes, make)?;
                let default = self.volume.acl(inode, AclKind::Default)?;
                let dir = Dir { inode, has_default_list: default.is_some() };
                self.known.insert(above.to_vec(), dir);
                dir
            }
        };
        self.last = Some((above.to_vec(), dir));
        Ok(ResolvedPath::Name(dir, name))
    }

    fn base_dir(&self) -> InodeNo {
        self.base.last().copied().unwrap_or(InodeNo::ROOT)
    }

    fn walk(
        &mut self,
        path: &[u8],
        lanes: &mut [Lane<'_>],
        make: Option<&Credentials>,
    ) -> Result<InodeNo, MemberError> {
        let mut way = self.base.clone();
        let mut end = 0;
        for part in path.split(|&byte| byte == b'/') {
            end += part.len();
            let so_far = &path[..end];
            end += 1;
            match part {
                b"" | b"." => continue,
                b".." => return Err(MemberError::DotDot),
                _ => {}
            }
            let at = way.last().copied().unwrap_or(InodeNo::ROOT);
            match self.step(at, part, so_far, lanes)? {
                Some(found) if found.is_dir() => way.push(found.number),
                Some(found) if found.file_type() == FileType::Symlink => {
                    self.follow(&found, &mut way, so_far, lanes)?;
                    self.followed.insert((at, part.to_vec()));
                    if !way.starts_with(&self.base) {
                        return Err(MemberError::Outside(so_far.into()));
                    }
                }
                Some(_) => return Err(MemberError::NotADirectory(so_far.into())),
                None => {
                    let by = make.ok_or(Cause::NotFound)?;
                    let engine = self.volume.engine()?;
                    way.push(engine.mkdir(at, part, DIR_PERMISSIONS, by)?.number);
                }
            }
        }
        Ok(way.last().copied().unwrap_or(InodeNo::ROOT))
    }

    /// The file of a name, unless the archive made a symbolic link of it.
    fn step(
        &self,
        at: InodeNo,
        name: &[u8],
        path: &[u8],
        lanes: &mut [Lane<'_>],
    ) -> Result<Option<LoadedInode>, MemberError> {
        if !self.made_links.is_empty() && self.made_links.contains(&(at, name.to_vec())) {
            return Err(MemberError::OwnLink(path.into()));
        }
        Lane::wait_for(lanes, at, name);
        match self.volume.lookup(at, name) {
            Ok(found) => Ok(Some(self.volume.inode(found.inode)?)),
            Err(Cause::NotFound) => Ok(None),
            Err(cause) => Err(cause.into()),
        }
    }

    /// Continues along a symbolic link in the last directory of `way`; `path` led to it.
    fn follow(
        &self,
        link: &LoadedInode,
        way: &mut Vec<InodeNo>,
        path: &[u8],
        lanes: &mut [Lane<'_>],
    ) -> Result<(), MemberError> {
        let mut todo: Vec<Vec<u8>> = Vec::new();
        let mut next = Some(link.number);
        let mut followed = 0;
        loop {
            if let Some(link) = next.take() {
                followed += 1;
                if followed > MAX_LINKS {
                    return Err(Cause::SymlinkLoop.into());
                }
                let target = self.volume.read_link(link)?;
                if target.starts_with(b"/") {
                    way.truncate(1);
                }
                let parts = target.split(|&byte| byte == b'/').rev();
                let parts = parts.filter(|part| !part.is_empty() && *part != b".");
                todo.extend(parts.map(<[u8]>::to_vec));
            }
            let Some(part) = todo.pop() else { return Ok(()) };
            if part == b".." {
                // Of the root it is the root itself.
                if way.len() > 1 {
                    way.pop();
                }
                continue;
            }
            let at = way.last().copied().unwrap_or(InodeNo::ROOT);
            match self.step(at, &part, path, lanes)? {
                Some(found) if found.is_dir() => way.push(found.number),
                Some(found) if found.file_type() == FileType::Symlink => next = Some(found.number),
                _ => return Err(MemberError::NotADirectory(path.into())),
            }
        }
    }
}
