//! A file of an image that a copy writes over: as with cp(1) it keeps its names, owner, mode and
//! attributes.
//!
//! The contents come in a file of their own, which takes over all the rest when it is whole, and
//! then the names, one after the other: a copy that fails at any point, or a crash, leaves each
//! name with the old contents or with the new ones, whole. Only the number of the inode is another.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use extant::rooms::engine::XattrSet;
use extant::rooms::ondisk::InodeNo;
use extant::rooms::ondisk::inode::{FileType, InodeFlags};
use extant::rooms::ondisk::time::Timestamp;
use extant::rooms::reader::{Follow, VolumeRead};
use extant::{Metadata, PathError, SetAttributes};

use crate::failure::Failure;
use crate::writable_image::WritableImage;

/// Flags of chattr that a file keeps. With the others it cannot be written, or they are of its
/// format.
const KEPT_FLAGS: InodeFlags = InodeFlags::SECURE_DELETION
    .union(InodeFlags::UNDELETE)
    .union(InodeFlags::COMPRESSED)
    .union(InodeFlags::SYNC)
    .union(InodeFlags::NODUMP)
    .union(InodeFlags::NOATIME)
    .union(InodeFlags::NO_COMPRESSION)
    .union(InodeFlags::JOURNAL_DATA)
    .union(InodeFlags::NOTAIL)
    .union(InodeFlags::NO_COW)
    .union(InodeFlags::DAX);

/// Capabilities are lost with the contents that they were given to.
const CAPABILITIES: &[u8] = b"security.capability";
const SET_UID: u16 = 0o4000;
const SET_GID: u16 = 0o2000;
const GROUP_EXECUTE: u16 = 0o010;

/// The names of a file but the one at `place`: of a file with several the directories are searched
/// until all are found.
pub(super) fn other_names(
    image: &WritableImage,
    file: &Metadata,
    place: &Path,
) -> Result<Vec<PathBuf>, Failure> {
    let mut names = Vec::new();
    let mut missing = usize::from(file.links()).saturating_sub(1);
    let (mut seen, mut waiting) = (HashSet::from([InodeNo::ROOT]), vec![PathBuf::from("/")]);
    let own = place_of(image, place)?;
    // A directory that cannot be read matters only if a name is missing in the end.
    let mut unread = None;
    while let Some(dir) = waiting.pop().filter(|_| missing > 0) {
        let entries = match image.fs.read_dir(&dir) {
            Ok(entries) => entries,
            Err(error) => {
                unread.get_or_insert(error);
                continue;
            }
        };
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    unread.get_or_insert(error);
                    continue;
                }
            };
            let is_dir = || entry.file_type().is_ok_and(|kind| kind == FileType::Directory);
            if entry.inode() != file.inode() {
                if is_dir() && seen.insert(entry.inode()) {
                    waiting.push(entry.path());
                }
            } else if missing > 0 && place_of(image, &entry.path())? != own {
                names.push(entry.path());
                missing -= 1;
            }
        }
    }
    match unread.filter(|_| missing > 0) {
        None => Ok(names),
        Some(error) => {
            let why = format_args!("cannot find all its names: {}", image.refusal(&error));
            Err(image.failure(place, why))
        }
    }
}

/// The directory and the name of a path: paths may lead there in several ways.
fn place_of(image: &WritableImage, path: &Path) -> Result<(InodeNo, Vec<u8>), Failure> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    let found = image.fs.metadata(dir).map_err(|error| image.refusal(&error))?;
    let name = path.file_name().unwrap_or_default();
    Ok((found.inode(), name.as_bytes().to_vec()))
}

/// Gives the copy at `made` what the file at `place` had besides its contents.
pub(super) fn take_over(
    image: &WritableImage,
    file: &Metadata,
    place: &Path,
    made: &Path,
) -> Result<(), Failure> {
    let fs = &image.fs;
    let refused = |error: PathError| image.refusal_at(place, error.cause());
    let is_root = rustix::process::geteuid().is_root();
    let mut mode = file.permissions();
    if !is_root {
        mode &= !SET_UID;
        if mode & GROUP_EXECUTE != 0 {
            mode &= !SET_GID;
        }
    }
    let owner =
        SetAttributes { uid: Some(file.uid()), gid: Some(file.gid()), ..SetAttributes::default() };
    fs.set_attributes(made, Follow::No, &owner).map_err(refused)?;
    let old = fs.xattrs(place).map_err(refused)?;
    // Of its directory it may have a list.
    for new in fs.xattrs(made).map_err(refused)? {
        if !old.iter().any(|kept| kept.name == new.name) {
            fs.remove_xattr(made, OsStr::from_bytes(&new.name)).map_err(refused)?;
        }
    }
    for kept in old.iter().filter(|kept| kept.name != CAPABILITIES) {
        let name = OsStr::from_bytes(&kept.name);
        let value = fs.xattr(place, name).map_err(refused)?;
        fs.set_xattr(made, name, &value, XattrSet::Any).map_err(refused)?;
    }
    let copy = fs.symlink_metadata(made).map_err(refused)?;
    let failed = |cause| image.refusal_at(place, &cause);
    let engine = fs.volume().engine().map_err(failed)?;
    if let Some(project) = file.project().filter(|_| file.project() != copy.project()) {
        engine.set_project(copy.inode(), project, is_root).map_err(failed)?;
    }
    let flags = (copy.flags() - KEPT_FLAGS) | (file.flags() & KEPT_FLAGS);
    if flags != copy.flags() {
        engine.set_flags(copy.inode(), flags).map_err(failed)?;
    }
    // The mode after the lists, whose masks it would change; the time of the last read is not one
    // of the contents.
    let rest = SetAttributes {
        mode: Some(mode),
        atime: Some(accessed(image, file.inode()).map_err(failed)?),
        ..SetAttributes::default()
    };
    fs.set_attributes(made, Follow::No, &rest).map_err(refused)
}

fn accessed(
    image: &WritableImage,
    file: InodeNo,
) -> Result<Timestamp, extant::rooms::reader::Error> {
    Ok(image.fs.volume().inode(file)?.atime)
}

/// Gives the other names to the copy at `made`, by names next to them that `unused_name` finds.
pub(super) fn take_names(
    image: &WritableImage,
    made: &Path,
    others: &[PathBuf],
    unused_name: impl Fn(&Path) -> Result<PathBuf, Failure>,
) -> Result<(), Failure> {
    let fs = &image.fs;
    for name in others {
        let refused = |error: PathError| image.refusal_at(name, error.cause());
        let link = unused_name(name)?;
        fs.hard_link(made, &link).map_err(refused)?;
        if let Err(error) = fs.rename(&link, name) {
            // The first error is the one reported.
            let _ = fs.remove_file(&link);
            return Err(refused(error));
        }
    }
    Ok(())
}
