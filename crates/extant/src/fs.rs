//! A file system by paths.

use crate::dir::ReadDir;
use crate::file::{File, OpenOptions};
use crate::metadata::{Metadata, timestamp};
use crate::named_device::journal_device;
use crate::open_error::OpenError;
use crate::path::{self, ParentAndName};
use crate::path_error::PathError;
use crate::schemes;
use extant_device::{Device, Direct};
use extant_engine::{
    Credentials, OpenVolume, RenameFlags, SetAttributes, Volume, VolumeOptions, XattrSet,
};
use extant_ondisk::InodeNo;
use extant_ondisk::acl::Acl;
use extant_ondisk::inode::{DeviceNumber, FileType};
use extant_reader::{
    AclKind, BrokenIndex, Error as Cause, ExternalJournal, Follow, Journal, LoadedInode,
    ReaderOptions, StatFs, SuperblockAt, VolumeRead, XattrInfo,
};
use extant_runtime::env::Env;
use extant_storage::{Access, DeviceUrl, FinishError, Opened, stat_host};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// Bytes copied at once.
const PIECE: usize = 1 << 20;
/// Permissions of new directories before the umask.
const DIR_PERMISSIONS: u16 = 0o777;

/// A volume, and what ends it.
#[derive(Debug)]
pub(crate) struct Inner {
    /// There until the last user is gone.
    volume: Option<OpenVolume>,
    /// The device below, where it was opened by its name.
    opened: Option<Opened>,
}

impl Inner {
    pub(crate) fn volume(&self) -> &OpenVolume {
        self.volume.as_ref().expect("the volume is there until it is dropped")
    }

    pub(crate) fn metadata(&self, inode: InodeNo) -> Result<Metadata, Cause> {
        Ok(self.metadata_of(self.volume().inode(inode)?))
    }

    pub(crate) fn metadata_of(&self, inode: LoadedInode) -> Metadata {
        let space = inode.space(self.volume().geometry());
        Metadata::new(inode, space)
    }
}

impl Drop for Inner {
    /// Closes the volume if the owner did not. A caller that wants to know of failures calls
    /// [`FileSystem::close`].
    fn drop(&mut self) {
        if let Some(Err(error)) = self.volume.take().map(OpenVolume::close) {
            tracing::warn!("the volume was not closed well: {error}");
        }
    }
}

/// A file system, with calls as in [`std::fs`]. It may be used by many threads at once; clones are
/// the same file system.
///
/// Paths start at the root, with or without a slash. Permissions are not checked: a process that
/// has the image may do everything. New files belong to the [`Credentials`] of [`Self::acting_as`].
///
/// Changes are on the device after [`Self::sync`], [`File::sync_all`] or [`Self::close`];
/// after power loss each call has happened as a whole or not at all.
///
/// # Costs
/// - To open reads the superblock and what the journal holds, whatever the size of the volume; the
///   groups' metadata are read when they are needed.
/// - A volume that is opened for changes has three threads of its own, which commit, write back and
///   empty the journal; a call runs in the thread of its caller. It has at most
///   [`VolumeOptions::memory`] of metadata and of data that wait, 256 MiB unless that is set.
/// - A volume that is opened for reading has no thread, 64 MiB of cached metadata at most, and the
///   blocks that a replay of its journal changes.
/// - A call looks up each name of its path in memory, or reads a block or two for it from the
///   device. Contents of files are not cached: the host's page cache has them, or the device.
/// - Writing copies the bytes into memory; they get their blocks later, so that it takes no time of
///   the device unless the memory is used up. A call on names changes blocks in memory alone.
/// - [`Self::sync`], [`File::sync_all`] and [`Self::close`] wait for the data, a commit of the
///   journal and two flushes of the device; calls that run at once share a commit.
///
/// ```
/// use extant::{FileSystem, MemoryDevice};
/// use std::io::Write;
/// use std::sync::Arc;
///
/// let device = Arc::new(MemoryDevice::new(8 << 20));
/// extant::format(&*device, ["-t", "ext4"])?;
/// let fs = FileSystem::on_device(device)?;
/// fs.create_dir_all("/etc/network")?;
/// fs.write("/etc/hostname", "example\n")?;
/// let mut file = fs.create("/etc/network/interfaces")?;
/// writeln!(file, "auto lo")?;
/// assert_eq!(fs.read_to_string("/etc/hostname")?, "example\n");
/// let names: Vec<_> = fs.read_dir("/etc")?.map(|entry| entry.unwrap().path()).collect();
/// assert_eq!(names.len(), 2);
/// drop(file);
/// fs.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct FileSystem {
    inner: Arc<Inner>,
    credentials: Credentials,
}

impl FileSystem {
    /// Opens an image for reading and changing, and has it alone: a file is locked, a block device
    /// opened exclusively. `image` is a path or a device URL. The default [`VolumeOptions`] hold. A
    /// journal on a device of its own is found among the machine's block devices.
    ///
    /// # Errors
    /// The image is not there or in use, or holds no volume that can be changed.
    pub fn open(image: impl AsRef<OsStr>) -> Result<Self, OpenError> {
        Self::open_with(image, &VolumeOptions::default(), Direct::Off)
    }

    /// As [`Self::open`], with options of one's own. A limit of memory is true where the image is
    /// opened around the host's page cache ([`Direct::WherePossible`]): pages there would be memory
    /// too.
    ///
    /// # Errors
    /// As [`Self::open`]; options that do not go together or with the volume.
    pub fn open_with(
        image: impl AsRef<OsStr>,
        options: &VolumeOptions,
        direct: Direct,
    ) -> Result<Self, OpenError> {
        let files = extant_device::FileDeviceOptions::default().direct(direct);
        let url = DeviceUrl::parse(image.as_ref(), schemes(), stat_host)?;
        let opened = url.open(Access::ReadWrite, &files)?;
        Self::read_write_on(opened, options, &files)
    }

    /// The same on an opened device; the journal's device is opened as `files` says.
    pub(crate) fn read_write_on(
        opened: Opened,
        options: &VolumeOptions,
        files: &extant_device::FileDeviceOptions,
    ) -> Result<Self, OpenError> {
        let mut options = options.clone();
        if options.external_journal.is_none() {
            let journal = ExternalJournal::of_volume(&*opened.device);
            options.external_journal = journal_device(journal, &files.clone().write(true))?;
        }
        let volume = Volume::open(opened.device.clone(), &opened.env, &options)?;
        Ok(Self::of_volume_on(volume, opened))
    }

    /// Opens an image for reading: it is never written. A journal that must be replayed is replayed
    /// in memory.
    ///
    /// # Errors
    /// The image is not there, or holds no volume that can be read.
    pub fn open_read_only(image: impl AsRef<OsStr>) -> Result<Self, OpenError> {
        let url = DeviceUrl::parse(image.as_ref(), schemes(), stat_host)?;
        Self::read_only_url(&url, Direct::Off)
    }

    pub(crate) fn read_only_url(url: &DeviceUrl, direct: Direct) -> Result<Self, OpenError> {
        let files = extant_device::FileDeviceOptions::default().direct(direct);
        let opened = url.without_superblock().open(Access::ReadOnly, &files)?;
        let superblock = url.superblock.map_or(SuperblockAt::Primary, SuperblockAt::Block);
        Self::read_only_at(opened.device, superblock)
    }

    fn read_only_at(device: Arc<dyn Device>, superblock: SuperblockAt) -> Result<Self, OpenError> {
        let files = extant_device::FileDeviceOptions::default();
        let journal = journal_device(ExternalJournal::needed_to_read(&*device), &files)?;
        let journal = journal.map_or(Journal::Replay, Journal::ReplayExternal);
        let on_broken_index = BrokenIndex::Scan;
        let options =
            ReaderOptions { superblock, journal, on_broken_index, ..ReaderOptions::default() };
        Ok(Self::of_volume(options.open(device)?))
    }

    /// Opens the volume on a device for reading and changing, on the clock of the machine.
    ///
    /// # Errors
    /// No volume that can be changed, or the device failed.
    pub fn on_device(device: Arc<dyn Device>) -> Result<Self, Cause> {
        let volume = Volume::open(device, &Env::threads(), &VolumeOptions::default())?;
        Ok(Self::of_volume(volume))
    }

    /// Opens the volume on a device for reading: it is never written, as with
    /// [`Self::open_read_only`].
    ///
    /// # Errors
    /// No volume that can be read, or the device failed.
    pub fn on_device_read_only(device: Arc<dyn Device>) -> Result<Self, OpenError> {
        Self::read_only_at(device, SuperblockAt::Primary)
    }

    /// The file system of a volume that was opened with options of its own.
    pub fn of_volume(volume: impl Into<OpenVolume>) -> Self {
        Self::of_inner(Inner { volume: Some(volume.into()), opened: None })
    }

    /// The same of a volume on a device that was opened for it, and that [`Self::close`] ends.
    pub fn of_volume_on(volume: impl Into<OpenVolume>, opened: Opened) -> Self {
        Self::of_inner(Inner { volume: Some(volume.into()), opened: Some(opened) })
    }

    fn of_inner(inner: Inner) -> Self {
        Self { inner: Arc::new(inner), credentials: Credentials::ROOT }
    }

    /// The same file system, where new files belong to `credentials`.
    #[must_use]
    pub fn acting_as(&self, credentials: Credentials) -> Self {
        Self { inner: self.inner.clone(), credentials }
    }

    /// The volume, for calls by inode: those of [`VolumeRead`] read, those of
    /// [`OpenVolume::engine`] change.
    pub fn volume(&self) -> &OpenVolume {
        self.inner.volume()
    }

    /// Puts everything that was changed so far on the device.
    ///
    /// # Errors
    /// The device failed, now or before.
    pub fn sync(&self) -> Result<(), Cause> {
        self.volume().sync()
    }

    /// Ends the file system well. Where clones or open files are left, it ends with the last of
    /// them, and what was changed so far is on the device.
    ///
    /// # Errors
    /// The device failed, now or before: the volume needs recovery then.
    pub fn close(self) -> Result<(), Cause> {
        match Arc::try_unwrap(self.inner) {
            Ok(mut inner) => {
                inner.volume.take().map_or(Ok(()), OpenVolume::close)?;
                let finished = inner.opened.take().map_or(Ok(()), Opened::finish);
                finished.map_err(|error| FinishError::into_device_error(error).into())
            }
            Err(shared) => shared.volume().sync(),
        }
    }

    /// Space and inodes, used and free.
    ///
    /// # Errors
    /// The device failed.
    pub fn stat_fs(&self) -> Result<StatFs, Cause> {
        self.volume().stat_fs()
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    pub(crate) fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// Runs a call and names the path where it fails.
    fn at<T>(
        &self,
        path: &Path,
        call: impl FnOnce(&OpenVolume) -> Result<T, Cause>,
    ) -> Result<T, PathError> {
        call(self.volume()).map_err(|cause| PathError::at(path, cause))
    }

    fn found(&self, path: &Path, follow: Follow) -> Result<LoadedInode, PathError> {
        self.at(path, |volume| volume.resolve(path.as_os_str().as_bytes(), follow))
    }

    /// Where a name is to be made or taken away.
    fn place<'p>(&self, path: &'p Path) -> Result<ParentAndName<'p>, PathError> {
        self.at(path, |volume| path::place(volume, path))
    }

    /// A file's metadata, through symbolic links.
    ///
    /// # Errors
    /// The path leads nowhere, or something on it is broken.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata, PathError> {
        let found = self.found(path.as_ref(), Follow::Yes)?;
        Ok(self.inner.metadata_of(found))
    }

    /// A file's metadata; a symbolic link's own.
    ///
    /// # Errors
    /// As [`Self::metadata`].
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata, PathError> {
        let found = self.found(path.as_ref(), Follow::No)?;
        Ok(self.inner.metadata_of(found))
    }

    /// Whether the path leads to a file.
    ///
    /// # Errors
    /// A directory of the path cannot be read.
    pub fn exists(&self, path: impl AsRef<Path>) -> Result<bool, PathError> {
        match self.metadata(path) {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.cause(), Cause::NotFound | Cause::NotADirectory) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn open_file(&self, path: impl AsRef<Path>) -> Result<File, PathError> {
        OpenOptions::new().read(true).open(self, path)
    }

    /// Opens a file for writing: it is made, or emptied.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn create(&self, path: impl AsRef<Path>) -> Result<File, PathError> {
        OpenOptions::new().write(true).create(true).truncate(true).open(self, path)
    }

    /// The whole contents of a file.
    ///
    /// # Errors
    /// The file cannot be opened or read.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>, PathError> {
        let path = path.as_ref();
        let file = self.open_file(path)?;
        self.at(path, |_| file.read_whole())
    }

    /// The whole contents of a file that holds text.
    ///
    /// # Errors
    /// As [`Self::read`], or the file is not UTF-8.
    pub fn read_to_string(&self, path: impl AsRef<Path>) -> Result<String, PathError> {
        let path = path.as_ref();
        String::from_utf8(self.read(path)?)
            .map_err(|_| PathError::at(path, Cause::Invalid("the file is not UTF-8")))
    }

    /// Makes a file of these bytes, or replaces what it holds.
    ///
    /// # Errors
    /// The file cannot be made or written.
    pub fn write(
        &self,
        path: impl AsRef<Path>,
        contents: impl AsRef<[u8]>,
    ) -> Result<(), PathError> {
        let path = path.as_ref();
        let file = self.create(path)?;
        self.at(path, |_| file.put_all(contents.as_ref(), 0))
    }

    /// Copies contents and permissions of a file to a file that is made or replaced; holes stay
    /// holes. The bytes of the file.
    ///
    /// # Errors
    /// One of the files cannot be opened, read or written.
    pub fn copy(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<u64, PathError> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let source = self.open_file(from)?;
        let metadata = self.at(from, |_| self.inner.metadata(source.inode()))?;
        let target = OpenOptions::new().write(true).create(true).open(self, to)?;
        if source.inode() == target.inode() {
            return Err(PathError::at(to, Cause::Invalid("source and target are the same file")));
        }
        target.set_len(0)?;
        let mut buffer = vec![0; PIECE];
        let segments = self.volume().data_segments(source.inode());
        let segments = segments.map_err(|cause| PathError::at(from, cause))?;
        for segment in segments {
            let segment = self.at(from, |_| segment)?;
            let mut at = segment.start;
            while at < segment.end {
                let len = (segment.end - at).min(PIECE as u64) as usize;
                let piece = &mut buffer[..len];
                let count = self.at(from, |volume| volume.read(source.inode(), at, piece))?;
                if count == 0 {
                    break;
                }
                target.write_all_at(&piece[..count], at)?;
                at += count as u64;
            }
        }
        target.set_len(metadata.len())?;
        self.set_permissions(to, metadata.permissions())?;
        Ok(metadata.len())
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// The name is taken, its directory is not there, or there is no room.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<(), PathError> {
        self.create_dir_with(path, DIR_PERMISSIONS)
    }

    /// As [`Self::create_dir`] with other permissions than rwx for all, before the umask.
    ///
    /// # Errors
    /// As [`Self::create_dir`].
    pub fn create_dir_with(
        &self,
        path: impl AsRef<Path>,
        permissions: u16,
    ) -> Result<(), PathError> {
        let path = path.as_ref();
        let place = self.place(path)?;
        self.at(path, |volume| {
            volume.engine()?.mkdir(place.dir, place.name, permissions, &self.credentials).map(drop)
        })
    }

    /// Makes a directory and those above it that are missing.
    ///
    /// # Errors
    /// Something on the path is no directory, or there is no room.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<(), PathError> {
        let path = path.as_ref();
        for above in path.ancestors().collect::<Vec<_>>().into_iter().rev() {
            if above.as_os_str().is_empty() || above == Path::new("/") {
                continue;
            }
            match self.metadata(above) {
                Ok(found) if found.is_dir() => {}
                Ok(_) => return Err(PathError::at(above, Cause::NotADirectory)),
                Err(error) if matches!(error.cause(), Cause::NotFound) => {
                    match self.create_dir(above) {
                        // Another thread was faster.
                        Err(_) if self.metadata(above).is_ok_and(|found| found.is_dir()) => {}
                        outcome => outcome?,
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The entries of a directory.
    ///
    /// # Errors
    /// The path leads to no directory.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir, PathError> {
        let path = path.as_ref();
        let found = self.found(path, Follow::Yes)?;
        self.at(path, |_| found.as_dir().map(drop))?;
        Ok(ReadDir::new(self.inner.clone(), found.number, path))
    }

    /// Removes a name of a file, and with its last one the file, once it is not open any more.
    ///
    /// # Errors
    /// There is no such name, or it is a directory's.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<(), PathError> {
        let path = path.as_ref();
        let place = self.place(path)?;
        self.at(path, |volume| volume.engine()?.unlink(place.dir, place.name))
    }

    /// Takes an empty directory away.
    ///
    /// # Errors
    /// There is no such directory, or it is not empty.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<(), PathError> {
        let path = path.as_ref();
        let place = self.place(path)?;
        self.at(path, |volume| volume.engine()?.rmdir(place.dir, place.name))
    }

    /// Takes a directory and all below it away. Symbolic links are not followed: one that the path
    /// ends in goes itself.
    ///
    /// # Errors
    /// There is no such directory, or something in it cannot be removed; what was removed before
    /// stays so.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<(), PathError> {
        let path = path.as_ref();
        let place = self.place(path)?;
        let top = self.at(path, |volume| volume.lookup(place.dir, place.name))?;
        let top = self.at(path, |volume| volume.inode(top.inode))?;
        if top.file_type() == FileType::Symlink {
            return self.at(path, |volume| volume.engine()?.unlink(place.dir, place.name));
        }
        self.at(path, |_| top.as_dir().map(drop))?;
        // Directories that are being emptied, and the path of the last.
        let mut levels = vec![top.number];
        let mut at = path.to_owned();
        while let Some(&dir) = levels.last() {
            match self.empty_until_dir(dir, &at)? {
                Some((name, below)) => {
                    at.push(OsStr::from_bytes(&name));
                    if levels.contains(&below) {
                        let why = Cause::Invalid("directory contains itself");
                        return Err(PathError::at(&at, why));
                    }
                    levels.push(below);
                }
                None => {
                    levels.pop();
                    let (parent, name) = match levels.last() {
                        Some(parent) => (*parent, at.file_name().unwrap_or_default().as_bytes()),
                        None => (place.dir, place.name),
                    };
                    self.at(&at, |volume| volume.engine()?.rmdir(parent, name))?;
                    at.pop();
                }
            }
        }
        Ok(())
    }

    /// Removes the files of a directory up to the first directory in it that is not empty.
    fn empty_until_dir(
        &self,
        dir: InodeNo,
        at: &Path,
    ) -> Result<Option<(Vec<u8>, InodeNo)>, PathError> {
        for entry in ReadDir::new(self.inner.clone(), dir, at) {
            let entry = entry?;
            let path = entry.path();
            let (name, inode) = (entry.as_bytes(), entry.inode());
            if !self.at(&path, |volume| volume.inode(inode))?.is_dir() {
                self.at(&path, |volume| volume.engine()?.unlink(dir, name))?;
                continue;
            }
            match self.volume().engine().and_then(|engine| engine.rmdir(dir, name)) {
                Err(Cause::NotEmpty) => return Ok(Some((name.to_vec(), inode))),
                outcome => self.at(&path, |_| outcome)?,
            }
        }
        Ok(None)
    }

    /// Renames a file. One that has the new name already is replaced.
    ///
    /// # Errors
    /// There is no such file, the new place is below it or a directory that is not empty.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<(), PathError> {
        self.rename_with(from, to, RenameFlags::default())
    }

    /// As [`Self::rename`], but the new name must be free, or both are exchanged.
    ///
    /// # Errors
    /// As [`Self::rename`].
    pub fn rename_with(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        flags: RenameFlags,
    ) -> Result<(), PathError> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let (old, new) = (self.place(from)?, self.place(to)?);
        self.at(from, |volume| volume.engine()?.rename(old.dir, old.name, new.dir, new.name, flags))
    }

    /// Gives a file another name. A symbolic link is not followed.
    ///
    /// # Errors
    /// There is no such file, it is a directory, or the name is taken.
    pub fn hard_link(
        &self,
        file: impl AsRef<Path>,
        name: impl AsRef<Path>,
    ) -> Result<(), PathError> {
        let name = name.as_ref();
        let file = self.found(file.as_ref(), Follow::No)?;
        let place = self.place(name)?;
        self.at(name, |volume| volume.engine()?.link(file.number, place.dir, place.name).map(drop))
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// The name is taken, or the target too long.
    pub fn symlink(
        &self,
        target: impl AsRef<Path>,
        name: impl AsRef<Path>,
    ) -> Result<(), PathError> {
        let (target, name) = (target.as_ref().as_os_str().as_bytes(), name.as_ref());
        let place = self.place(name)?;
        self.at(name, |volume| {
            volume.engine()?.symlink(place.dir, place.name, target, &self.credentials).map(drop)
        })
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// There is no such file, or it is no symbolic link.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf, PathError> {
        let path = path.as_ref();
        let link = self.found(path, Follow::No)?;
        let target = self.at(path, |volume| volume.read_link(link.number))?;
        Ok(OsString::from_vec(target).into())
    }

    /// Makes a device file, a named pipe or a socket. `device` is the number of a device file.
    ///
    /// # Errors
    /// The name is taken, or the number cannot be stored.
    pub fn create_node(
        &self,
        path: impl AsRef<Path>,
        file_type: FileType,
        permissions: u16,
        device: DeviceNumber,
    ) -> Result<(), PathError> {
        let path = path.as_ref();
        let place = self.place(path)?;
        self.at(path, |volume| {
            let mode = file_type.mode() | permissions;
            volume.engine()?.mknod(place.dir, place.name, mode, device, &self.credentials).map(drop)
        })
    }

    /// Sets permissions, with setuid, setgid and sticky. An access control list follows.
    ///
    /// # Errors
    /// There is no such file, or it may not be changed.
    pub fn set_permissions(
        &self,
        path: impl AsRef<Path>,
        permissions: u16,
    ) -> Result<(), PathError> {
        let set = SetAttributes { mode: Some(permissions), ..SetAttributes::default() };
        self.set_attributes(path, Follow::Yes, &set)
    }

    /// Sets owner and group, of a symbolic link its own.
    ///
    /// # Errors
    /// There is no such file, or it may not be changed.
    pub fn set_owner(
        &self,
        path: impl AsRef<Path>,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<(), PathError> {
        let set = SetAttributes { uid, gid, ..SetAttributes::default() };
        self.set_attributes(path, Follow::No, &set)
    }

    /// Sets the times of reading and of change, of a symbolic link its own.
    ///
    /// # Errors
    /// There is no such file, or it may not be changed.
    pub fn set_times(
        &self,
        path: impl AsRef<Path>,
        accessed: Option<SystemTime>,
        modified: Option<SystemTime>,
    ) -> Result<(), PathError> {
        let set = SetAttributes {
            atime: accessed.map(timestamp),
            mtime: modified.map(timestamp),
            ..SetAttributes::default()
        };
        self.set_attributes(path, Follow::No, &set)
    }

    /// Sets whatever of a file can be set at once.
    ///
    /// # Errors
    /// There is no such file, or it may not be changed.
    pub fn set_attributes(
        &self,
        path: impl AsRef<Path>,
        follow: Follow,
        set: &SetAttributes,
    ) -> Result<(), PathError> {
        let path = path.as_ref();
        let file = self.found(path, follow)?;
        self.at(path, |volume| volume.engine()?.set_attributes(file.number, set).map(drop))
    }

    /// The extended attributes of a file, of a symbolic link its own.
    ///
    /// # Errors
    /// There is no such file, or its attributes are broken.
    pub fn xattrs(&self, path: impl AsRef<Path>) -> Result<Vec<XattrInfo>, PathError> {
        let path = path.as_ref();
        let file = self.found(path, Follow::No)?;
        self.at(path, |volume| volume.xattrs(file.number))
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// There is no such file or attribute.
    pub fn xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
    ) -> Result<Vec<u8>, PathError> {
        let path = path.as_ref();
        let file = self.found(path, Follow::No)?;
        self.at(path, |volume| volume.xattr(file.number, name.as_ref().as_bytes()))
    }

    /// Sets an extended attribute, of a symbolic link its own.
    ///
    /// # Errors
    /// There is no such file, the attribute cannot be set, or there is no room.
    pub fn set_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
        value: &[u8],
        how: XattrSet,
    ) -> Result<(), PathError> {
        let path = path.as_ref();
        let file = self.found(path, Follow::No)?;
        self.at(path, |volume| {
            volume.engine()?.set_xattr(file.number, name.as_ref().as_bytes(), value, how)
        })
    }

    /// Removes an extended attribute, of a symbolic link its own.
    ///
    /// # Errors
    /// There is no such file or attribute.
    pub fn remove_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
    ) -> Result<(), PathError> {
        let path = path.as_ref();
        let file = self.found(path, Follow::No)?;
        self.at(path, |volume| volume.engine()?.remove_xattr(file.number, name.as_ref().as_bytes()))
    }

    /// An access control list of a file.
    ///
    /// # Errors
    /// There is no such file, or its list is broken.
    pub fn acl(&self, path: impl AsRef<Path>, kind: AclKind) -> Result<Option<Acl>, PathError> {
        let path = path.as_ref();
        let file = self.found(path, Follow::Yes)?;
        self.at(path, |volume| volume.acl(file.number, kind))
    }

    /// Gives a file an access control list, or takes it away. The permissions follow an access
    /// list.
    ///
    /// # Errors
    /// There is no such file, or no room.
    pub fn set_acl(
        &self,
        path: impl AsRef<Path>,
        kind: AclKind,
        list: Option<&Acl>,
    ) -> Result<(), PathError> {
        let path = path.as_ref();
        let file = self.found(path, Follow::Yes)?;
        self.at(path, |volume| volume.engine()?.set_acl(file.number, kind, list))
    }
}
