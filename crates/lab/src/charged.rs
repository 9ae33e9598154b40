//! A volume on a simulated drive: each call uses processor time of the virtual clock, by the table
//! of costs.

use std::io;
use std::path::{Path, PathBuf};

use extant::costs::{self, CREATE, LINK, LOOK, UNLINK};
use extant::{Env, FileSystem};

use crate::files::{Access, Files, Intent, OpenFile, Space, remove_tree};

/// A volume whose calls are charged.
#[derive(Clone, Debug)]
pub struct Charged {
    fs: FileSystem,
    env: Env,
}

struct ChargedFile {
    file: Box<dyn OpenFile>,
    env: Env,
}

impl Charged {
    /// The volume, with the environment of its drive.
    pub fn new(fs: FileSystem, env: Env) -> Self {
        Self { fs, env }
    }
}

impl Files for Charged {
    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn OpenFile>> {
        self.env.spend(if access.intent == Intent::Create { CREATE } else { LOOK });
        let file = Files::open(&self.fs, path, access)?;
        Ok(Box::new(ChargedFile { file, env: self.env.clone() }))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.env.spend(UNLINK);
        Files::remove_file(&self.fs, path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.env.spend(CREATE);
        Files::create_dir(&self.fs, path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.env.spend(UNLINK);
        Files::remove_dir(&self.fs, path)
    }

    fn remove_tree(&self, path: &Path) -> io::Result<()> {
        remove_tree(self, path, |_, error| error, |path| self.remove_file(path))
    }

    fn hard_link(&self, file: &Path, name: &Path) -> io::Result<()> {
        self.env.spend(LINK);
        Files::hard_link(&self.fs, file, name)
    }

    fn symlink(&self, target: &Path, name: &Path) -> io::Result<()> {
        self.env.spend(CREATE);
        Files::symlink(&self.fs, target, name)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.env.spend(LINK);
        Files::rename(&self.fs, from, to)
    }

    fn size(&self, path: &Path) -> io::Result<u64> {
        self.env.spend(LOOK);
        Files::size(&self.fs, path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<(PathBuf, bool)>> {
        let found = Files::list(&self.fs, path)?;
        self.env.spend(LOOK.saturating_mul(1 + u32::try_from(found.len()).unwrap_or(u32::MAX)));
        Ok(found)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        self.env.spend(LOOK);
        Files::space(&self.fs, path)
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        Files::sync(&self.fs, path)
    }
}

impl OpenFile for ChargedFile {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        self.env.spend(costs::file_bytes(bytes.len() as u64));
        self.file.read_at(bytes, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.env.spend(costs::file_bytes(bytes.len() as u64));
        self.file.write_at(bytes, offset)
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.env.spend(costs::file_bytes(bytes.len() as u64));
        self.file.append(bytes)
    }

    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
}
