//! Paths of names that are made or taken away.

use extant_engine::OpenVolume;
use extant_ondisk::InodeNo;
use extant_ondisk::inode::FileType;
use extant_reader::{Error as Cause, Follow, VolumeRead};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Symbolic links followed at the end of one path, as on Linux.
const MAX_LINKS: u32 = 40;

/// A name and the directory that it is in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParentAndName<'p> {
    pub(crate) dir: InodeNo,
    pub(crate) name: &'p [u8],
}

/// The same with a name of its own.
#[derive(Clone, Debug)]
pub(crate) struct OwnedParentAndName {
    pub(crate) dir: InodeNo,
    pub(crate) name: Vec<u8>,
}

/// The directory of a path's last name.
pub(crate) fn place<'p>(volume: &OpenVolume, path: &'p Path) -> Result<ParentAndName<'p>, Cause> {
    place_from(volume, InodeNo::ROOT, path.as_os_str().as_bytes())
}

fn place_from<'p>(
    volume: &OpenVolume,
    start: InodeNo,
    path: &'p [u8],
) -> Result<ParentAndName<'p>, Cause> {
    let (above, name) = split(path)?;
    let dir = volume.resolve_from(start, above, Follow::Yes)?;
    Ok(ParentAndName { dir: dir.as_dir()?.number, name })
}

/// The part of a path before its last name, and that name.
fn split(path: &[u8]) -> Result<(&[u8], &[u8]), Cause> {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
    let start = path[..end].iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    let name = &path[start..end];
    if matches!(name, b"" | b"." | b"..") {
        return Err(Cause::Invalid("path has no file name"));
    }
    Ok((&path[..start], name))
}

/// Where the file of a path belongs that is to be made: a symbolic link at its end is followed,
/// though its target is missing.
pub(crate) fn place_through_links(
    volume: &OpenVolume,
    path: &Path,
) -> Result<OwnedParentAndName, Cause> {
    let mut start = InodeNo::ROOT;
    let mut path = path.as_os_str().as_bytes().to_vec();
    for _ in 0..MAX_LINKS {
        if path.ends_with(b"/") {
            return Err(Cause::IsADirectory);
        }
        let place = place_from(volume, start, &path)?;
        let target = match volume.lookup(place.dir, place.name) {
            Err(Cause::NotFound) => None,
            found => {
                let found = volume.inode(found?.inode)?;
                let is_link = found.file_type() == FileType::Symlink;
                Some(found.number).filter(|_| is_link)
            }
        };
        let Some(link) = target else {
            return Ok(OwnedParentAndName { dir: place.dir, name: place.name.to_vec() });
        };
        start = place.dir;
        path = volume.read_link(link)?;
    }
    Err(Cause::SymlinkLoop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_splits_at_its_last_name() {
        assert_eq!(split(b"/a/b").ok(), Some((&b"/a/"[..], &b"b"[..])));
        assert_eq!(split(b"b//").ok(), Some((&b""[..], &b"b"[..])));
        assert_eq!(split(b"/b").ok(), Some((&b"/"[..], &b"b"[..])));
        for path in [&b""[..], b"/", b"a/..", b"."] {
            assert!(split(path).is_err(), "{}", path.escape_ascii());
        }
    }
}
