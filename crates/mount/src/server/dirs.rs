//! Reading directories.

use extant_ondisk::InodeNo;
use extant_ondisk::dirent::FileType as EntryType;
use extant_volume::DirEntry;
use rustix::io::Errno;

use super::{Held, Server};

/// An entry of a directory.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Listed {
    /// The file.
    pub inode: InodeNo,
    /// Its kind, where the directory stores it.
    pub file_type: EntryType,
    /// The name.
    pub name: Vec<u8>,
    /// Reading goes on behind this entry from here.
    pub cookie: u64,
}

impl From<DirEntry> for Listed {
    fn from(entry: DirEntry) -> Self {
        let DirEntry { inode, file_type, name, cookie } = entry;
        Self { inode, file_type, name, cookie }
    }
}

impl Server {
    /// Reads a directory from a cookie on, until `take` says that it has enough. A broken block ends the list: what came before
    /// it is taken, and the next call from there fails.
    ///
    /// # Errors
    /// Not a directory, nothing could be read, or the device failed.
    pub fn list(
        &self,
        dir: InodeNo,
        from: u64,
        mut take: impl FnMut(Listed) -> bool,
    ) -> Result<(), Errno> {
        self.with(|volume| {
            if from == 0 {
                self.touch(volume, &volume.inode(dir)?);
            }
            let mut is_first = true;
            for entry in volume.read_dir(dir, from)? {
                match entry {
                    Ok(entry) => {
                        if !take(entry.into()) {
                            break;
                        }
                    }
                    Err(error) if is_first => return Err(error.into()),
                    Err(_) => break,
                }
                is_first = false;
            }
            Ok(())
        })
    }

    /// Takes hold of a file that was listed; `None` for one that is broken or gone: it is listed without its attributes.
    pub fn hold_listed(&self, inode: InodeNo) -> Option<Held> {
        self.with(|volume| Self::hold(volume, inode)).ok()
    }
}
