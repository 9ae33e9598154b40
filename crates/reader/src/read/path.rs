//! Paths: from names to inodes.

use super::dir_block::EntryTarget;
use super::inode::LoadedInode;
use crate::error::Error;
use extant_ondisk::inode::FileType;
use extant_ondisk::{InodeNo, dirent};

/// Symbolic links followed on one path, as on Linux.
const MAX_LINKS: u32 = 40;
/// Bytes of a path, as on Linux.
const MAX_PATH: usize = 4096;

/// The treatment of a symbolic link at a path's end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Follow {
    /// Its target is meant.
    Yes,
    /// The link itself is meant. A slash after it means its target in any case.
    No,
}

/// How paths are walked, one step after the other.
pub trait Walk {
    /// An inode in use.
    fn inode(&self, number: InodeNo) -> Result<LoadedInode, Error>;
    /// The entry of a name in a directory; [`Error::NotADirectory`] if the inode is not a
    /// directory.
    fn lookup_in(&self, dir: InodeNo, name: &[u8]) -> Result<EntryTarget, Error>;
    /// The target of a symbolic link.
    fn target(&self, link: &LoadedInode) -> Result<Vec<u8>, Error>;
}

/// The file of a path. Relative paths start at `start`, absolute ones and absolute links at the
/// root.
///
/// # Errors
/// [`Error::NotFound`], [`Error::NotADirectory`], [`Error::SymlinkLoop`], [`Error::NameTooLong`],
/// and what reading directories and links may end in.
pub fn resolve<W: Walk>(
    walk: &W,
    start: InodeNo,
    path: &[u8],
    follow: Follow,
) -> Result<LoadedInode, Error> {
    if path.len() > MAX_PATH {
        return Err(Error::NameTooLong);
    }
    let mut links_left = MAX_LINKS;
    let first = if path.first() == Some(&b'/') { InodeNo::ROOT } else { start };
    let mut at = first;
    // The inode there, if it was loaded during the walk.
    let mut loaded = None;
    // The components that are left, the next one last. A link's target is pushed in front of the
    // rest.
    let mut rest = Vec::new();
    let mut must_be_dir = push_components(&mut rest, path);
    while let Some(name) = rest.pop() {
        if name == b"." {
            walk.inode(at)?.as_dir()?;
            continue;
        }
        let found = walk.lookup_in(at, &name)?;
        if found.file_type == dirent::FileType::Directory {
            (at, loaded) = (found.inode, None);
            continue;
        }
        let next = walk.inode(found.inode)?;
        let is_last = rest.is_empty();
        let is_followed = !is_last || must_be_dir || follow == Follow::Yes;
        if next.file_type() != FileType::Symlink || !is_followed {
            (at, loaded) = (next.number, Some(next));
            continue;
        }
        links_left = links_left.checked_sub(1).ok_or(Error::SymlinkLoop)?;
        let target = walk.target(&next)?;
        if next.is_encrypted() || target.is_empty() {
            return Err(if target.is_empty() {
                Error::NotFound
            } else {
                Error::Encrypted(next.number)
            });
        }
        if target.first() == Some(&b'/') {
            (at, loaded) = (InodeNo::ROOT, None);
        }
        let is_dir = push_components(&mut rest, &target);
        must_be_dir |= is_last && is_dir;
    }
    let end = match loaded {
        Some(inode) => inode,
        None => walk.inode(at)?,
    };
    if must_be_dir {
        end.as_dir()?;
    }
    Ok(end)
}

/// Pushes a path's components, the first one last, and returns whether its end requires a
/// directory.
fn push_components(rest: &mut Vec<Vec<u8>>, path: &[u8]) -> bool {
    let components = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
    rest.extend(components.rev().map(<[u8]>::to_vec));
    matches!(path.last(), Some(b'/')) || path.ends_with(b"/.") || path == b"."
}
