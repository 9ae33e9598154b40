//! The metadata of a file.

use extant_ondisk::InodeNo;
use extant_ondisk::inode::{DeviceNumber, FileType, InodeFlags};
use extant_ondisk::time::Timestamp;
use extant_reader::LoadedInode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The fields of a file's inode, as they were when it was asked for.
#[derive(Clone, Debug)]
pub struct Metadata {
    inode: LoadedInode,
    space: u64,
}

impl Metadata {
    pub(crate) fn new(inode: LoadedInode, space: u64) -> Self {
        Self { inode, space }
    }

    /// The file type.
    pub fn file_type(&self) -> FileType {
        self.inode.file_type()
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.file_type() == FileType::Directory
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.file_type() == FileType::Regular
    }

    /// Whether it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.file_type() == FileType::Symlink
    }

    /// Bytes of its contents.
    #[expect(clippy::len_without_is_empty, reason = "as std's Metadata")]
    pub fn len(&self) -> u64 {
        self.inode.size
    }

    /// Bytes of the volume that it takes: data, its map, its attributes.
    pub fn space(&self) -> u64 {
        self.space
    }

    /// Permissions, setuid, setgid and sticky: the mode's low twelve bits.
    pub fn permissions(&self) -> u16 {
        self.inode.permissions()
    }

    /// Type and permissions, as `st_mode`.
    pub fn mode(&self) -> u16 {
        self.inode.mode
    }

    /// Owner.
    pub fn uid(&self) -> u32 {
        self.inode.uid
    }

    /// Owning group.
    pub fn gid(&self) -> u32 {
        self.inode.gid
    }

    /// Project, where the inode has room for one.
    pub fn project(&self) -> Option<u32> {
        self.inode.project
    }

    /// Hard links; a directory with more subdirectories than can be counted has 1.
    pub fn links(&self) -> u16 {
        self.inode.links
    }

    /// Number of the inode.
    pub fn inode(&self) -> InodeNo {
        self.inode.number
    }

    /// Flags of the inode, as lsattr shows them.
    pub fn flags(&self) -> InodeFlags {
        self.inode.flags
    }

    /// Number of a device file.
    pub fn device(&self) -> Option<DeviceNumber> {
        self.inode.device()
    }

    /// Last change of the contents.
    pub fn modified(&self) -> SystemTime {
        moment(self.inode.mtime)
    }

    /// Last time that the contents were read.
    pub fn accessed(&self) -> SystemTime {
        moment(self.inode.atime)
    }

    /// Last change of the inode.
    pub fn changed(&self) -> SystemTime {
        moment(self.inode.ctime)
    }

    /// When the file was made, where the inode has room for it.
    pub fn created(&self) -> Option<SystemTime> {
        self.inode.crtime.map(moment)
    }
}

/// A time of an inode. Those lie between 1901 and 2446, which every system's clock has.
fn moment(time: Timestamp) -> SystemTime {
    let nanoseconds = Duration::from_nanos(time.nanoseconds.into());
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    if time.seconds < 0 {
        UNIX_EPOCH - seconds + nanoseconds
    } else {
        UNIX_EPOCH + seconds + nanoseconds
    }
}

/// A time as an inode stores it.
pub(crate) fn timestamp(time: SystemTime) -> Timestamp {
    let seconds = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Timestamp::new(seconds(after), after.subsec_nanos()),
        Err(error) => {
            let before = error.duration();
            match before.subsec_nanos() {
                0 => Timestamp::new(-seconds(before), 0),
                nanoseconds => Timestamp::new(-seconds(before) - 1, 1_000_000_000 - nanoseconds),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_keep_their_nanoseconds() {
        for (seconds, nanoseconds) in [(-1, 999_999_999), (-1, 0), (-5, 1), (0, 0), (7, 5)] {
            let time = Timestamp::new(seconds, nanoseconds);
            assert_eq!(timestamp(moment(time)), time);
        }
    }
}
