//! The times of all files of a volume, deleted ones too.

use std::collections::HashSet;

use extant_ondisk::InodeNo;
use extant_ondisk::inode::{FileType, Inode};
use extant_reader::{LoadedInode, VolumeRead};

use super::RescueError;
use super::files::DeletedFiles;

/// A name of a file, with its attributes.
#[derive(Clone, Debug)]
pub struct TimelineEntry {
    /// The path from the root, begun by a slash; `None` for a deleted file whose name is not known.
    pub path: Option<Vec<u8>>,
    /// Its inode.
    pub inode: InodeNo,
    /// Its attributes; of a deleted file those that it had. `None` where only its name is known.
    pub attributes: Option<Inode>,
    /// The target of a symbolic link.
    pub target: Option<Vec<u8>>,
    /// Whether it was deleted.
    pub is_deleted: bool,
}

impl TimelineEntry {
    /// The type of the file; `None` where it is not known.
    pub fn file_type(&self) -> Option<FileType> {
        self.attributes.as_ref()?.file_type()
    }
}

/// All names of a volume in the order of its directories, then the deleted files. What cannot be
/// read of a damaged directory is left out.
///
/// # Errors
/// The root directory cannot be read.
pub fn timeline(deleted: &DeletedFiles) -> Result<Vec<TimelineEntry>, RescueError> {
    let reader = deleted.reader();
    let root = reader.inode(InodeNo::ROOT)?;
    let mut found = Vec::new();
    let mut seen = HashSet::from([InodeNo::ROOT]);
    let mut stack = vec![(Vec::new(), reader.read_dir(root.number, 0)?)];
    while let Some((path, entries)) = stack.last_mut() {
        let Some(entry) = entries.next() else {
            stack.pop();
            continue;
        };
        let Ok(entry) = entry else { continue };
        if matches!(&entry.name[..], b"." | b"..") {
            continue;
        }
        let path = [&path[..], b"/", &entry.name].concat();
        let Ok(file) = reader.inode(entry.inode) else { continue };
        found.push(entry_of(&path, &file, reader.read_link(entry.inode).ok()));
        // A damaged volume may have a directory in itself, or by several names.
        if file.is_dir()
            && let Ok(entries) = reader.read_dir(file.number, 0)
            && seen.insert(file.number)
        {
            stack.push((path, entries));
        }
    }
    for file in deleted.files() {
        let is_link = file.file_type() == Some(FileType::Symlink);
        found.push(TimelineEntry {
            path: file.path.clone(),
            inode: file.inode,
            attributes: file.attributes.clone(),
            target: deleted.read_link(file).ok().filter(|_| is_link),
            is_deleted: true,
        });
    }
    Ok(found)
}

fn entry_of(path: &[u8], file: &LoadedInode, target: Option<Vec<u8>>) -> TimelineEntry {
    TimelineEntry {
        path: Some(path.to_vec()),
        inode: file.number,
        attributes: Some(file.inode.clone()),
        target: target.filter(|_| file.file_type() == FileType::Symlink),
        is_deleted: false,
    }
}
