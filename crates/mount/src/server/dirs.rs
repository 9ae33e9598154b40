//! Reading directories.

use extant_engine::OpenVolume;
use extant_ondisk::dirent::FileType as EntryType;
use extant_ondisk::{FormatError, InodeNo, Location};
use extant_reader::{DirEntry, Error, VolumeRead};
use rustix::io::Errno;

use super::{LookedUp, RequestError, Server, attributes_of};
use crate::attr::Attributes;

/// An entry of a directory.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Listed {
    /// The file.
    pub inode: InodeNo,
    /// Its kind, where the directory stores it.
    pub file_type: EntryType,
    /// The name.
    pub name: Vec<u8>,
    /// The offset after this entry: reading continues there.
    pub cookie: u64,
}

impl From<DirEntry> for Listed {
    fn from(entry: DirEntry) -> Self {
        let DirEntry { inode, file_type, name, cookie } = entry;
        Self { inode, file_type, name, cookie }
    }
}

/// A directory that is being read. Calls about its files go through this: the volume's lock is
/// already held, and taking it once more would deadlock with a thread that waits to close it.
#[derive(Debug)]
pub struct Listing<'a> {
    server: &'a Server,
    volume: &'a OpenVolume,
}

impl Listing<'_> {
    /// The attributes of a listed file; `None` if it is corrupt or gone.
    pub fn attributes(&self, file: InodeNo) -> Option<Attributes> {
        let inode =
            self.server.errno_of(self.volume.inode(file).map_err(RequestError::from)).ok()?;
        Some(attributes_of(self.volume, &inode))
    }

    /// Takes hold of a file that was listed; `None` for one that is broken or gone: it is listed
    /// without its attributes.
    pub fn look_up(&self, file: InodeNo) -> Option<LookedUp> {
        self.server.errno_of(Server::look_up(self.volume, file)).ok()
    }

    /// Drops one lookup count of a file.
    pub fn forget(&self, file: InodeNo) {
        // No caller is left to get the error; it was logged.
        let _ = self.server.errno_of(self.volume.release(file, 1).map_err(RequestError::from));
    }
}

impl Server {
    /// Reads a directory from a cookie on, until `take` has enough. Corrupt blocks of names are
    /// logged and left out, as the kernel's file system does. Another error ends the list: entries
    /// before it are passed on, and the next call from there fails.
    ///
    /// # Errors
    /// Not a directory, nothing could be read, or the device failed.
    pub fn list(
        &self,
        dir: InodeNo,
        from: u64,
        mut take: impl FnMut(&Listing<'_>, Listed) -> bool,
    ) -> Result<(), Errno> {
        self.with(|volume| {
            if from == 0 {
                self.touch(volume, dir);
            }
            let listing = Listing { server: self, volume };
            let mut is_first = true;
            for entry in volume.read_dir(dir, from)? {
                match entry {
                    Ok(entry) => {
                        if !take(&listing, entry.into()) {
                            break;
                        }
                    }
                    Err(error) if is_of_names(&error) => {
                        self.log(&error);
                        continue;
                    }
                    Err(error) if is_first => return Err(error.into()),
                    Err(_) => break,
                }
                is_first = false;
            }
            Ok(())
        })
    }
}

/// Whether an error is of one block of names, or of one name, and not of the whole directory.
fn is_of_names(error: &Error) -> bool {
    use Location::{DirBlock, DirEntry, Htree};
    matches!(
        error,
        Error::Format(FormatError::Corrupt {
            location: DirBlock(..) | DirEntry(..) | Htree(..),
            ..
        })
    )
}
