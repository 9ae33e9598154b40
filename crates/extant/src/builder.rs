//! Images built from directories, archives and OCI layouts.

use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, io};

use extant_device::errno;
use extant_image::build::{BuildError, BuildOptions, Progress, Report, Size, build};
use extant_image::source::{
    OwnerMap, Owners, Platform, ReadOptions, Source, SourceError, read_sources,
};

use crate::entry::{Entry, write_end};
use crate::formatter::Formatter;
use crate::schemes::schemes;
use tempfile::NamedTempFile;

/// An image was not built.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// A source cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The image cannot be laid out or written.
    #[error(transparent)]
    Build(#[from] BuildError),
}

impl ImageError {
    /// The number that a system call returns for it (`ENOENT` is 2).
    pub fn errno(&self) -> i32 {
        match self {
            Self::Source(error) => error.errno(),
            Self::Build(error) => error.errno(),
        }
    }

    /// The kind of error in std's words.
    pub fn kind(&self) -> io::ErrorKind {
        errno::kind(self.errno())
    }
}

/// Bytes of an archive that are written at once.
const SPOOL_BUFFER: usize = 1 << 20;

type OnProgress = Arc<dyn Fn(Progress) + Send + Sync>;

/// Builds an image: the same sources and settings give the same bytes, whatever the threads and the
/// machine. The file gets its name when it is whole.
///
/// # Costs
/// Each block of the image is written once, and holes are not. [`Self::threads`] threads read and
/// write, one for each processor unless that is set. Contents stay in their sources: memory grows
/// with the number of files, names and extents, 71 MiB for 138,000 files of 5.8 GB. A compressed or
/// streamed archive is unpacked next to the image first, and needs room there.
///
/// ```
/// use extant::{FileSystem, ImageBuilder};
/// use extant::source::Source;
///
/// let dir = tempfile::tempdir()?;
/// let tree = dir.path().join("tree");
/// std::fs::create_dir_all(tree.join("etc"))?;
/// std::fs::write(tree.join("etc/hostname"), "example\n")?;
///
/// let image = dir.path().join("exact.img");
/// let report = ImageBuilder::new(&image).source(Source::Directory(tree)).owner(0, 0).build()?;
/// assert_eq!(report.bytes, std::fs::metadata(&image)?.len());
///
/// let fs = FileSystem::open_read_only(&image)?;
/// assert_eq!(fs.read_to_string("/etc/hostname")?, "example\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct ImageBuilder {
    options: BuildOptions,
    reading: ReadOptions,
    sources: Vec<Source>,
    /// Archives among the sources that were made for this builder, and go with it.
    spools: Vec<Arc<NamedTempFile>>,
    on_progress: Option<OnProgress>,
}

impl fmt::Debug for ImageBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("ImageBuilder");
        shown.field("options", &self.options).field("sources", &self.sources);
        shown.finish_non_exhaustive()
    }
}

impl ImageBuilder {
    /// An image at `output`, as small as its sources admit.
    pub fn new(output: impl Into<PathBuf>) -> Self {
        let output = output.into();
        let reading = ReadOptions {
            output: Some(output.clone()),
            spool: directory_of(&output),
            schemes: schemes().clone(),
            ..ReadOptions::default()
        };
        let options =
            BuildOptions { output, schemes: schemes().clone(), ..BuildOptions::default() };
        let (sources, spools) = (Vec::new(), Vec::new());
        Self { options, reading, sources, spools, on_progress: None }
    }

    /// Adds a source. It is laid over those before it: files replace files, directories join.
    #[must_use]
    pub fn source(mut self, source: Source) -> Self {
        self.sources.push(source);
        self
    }

    /// Adds the files that a program describes: a tree in memory, or an iterator that makes one.
    /// Their contents are read one after the other and wait in a file next to the image, not in
    /// memory.
    ///
    /// ```
    /// use extant::{Entry, FileSystem, ImageBuilder};
    /// use std::fs::File;
    ///
    /// let dir = tempfile::tempdir()?;
    /// let image = dir.path().join("init.img");
    /// let program = std::env::current_exe()?;
    /// let length = program.metadata()?.len();
    /// let entries = [
    ///     Entry::file("/etc/hostname", "example\n"),
    ///     Entry::file_with("/sbin/init", length, move || File::open(program)).permissions(0o755),
    ///     Entry::symlink("/init", "sbin/init"),
    /// ];
    /// ImageBuilder::new(&image).entries(entries)?.build()?;
    ///
    /// let fs = FileSystem::open_read_only(&image)?;
    /// assert_eq!(fs.read_to_string("/etc/hostname")?, "example\n");
    /// assert_eq!(fs.metadata("/init")?.len(), length);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Contents cannot be read or do not have their length, or there is no room for them. The paths
    /// themselves are checked by [`Self::build`].
    pub fn entries(self, entries: impl IntoIterator<Item = Entry>) -> Result<Self, ImageError> {
        self.spooled(|file| {
            for entry in entries {
                let path = entry.path().to_owned();
                entry.write_to(file).map_err(|error| (path, error))?;
            }
            write_end(file).map_err(|error| (PathBuf::from("/"), error))
        })
    }

    /// Adds a tar archive that a program has open, plain or packed. It is copied to a file next to
    /// the image first.
    ///
    /// # Errors
    /// It cannot be read, or there is no room for it. Its contents are checked by [`Self::build`].
    pub fn archive(self, mut archive: impl Read) -> Result<Self, ImageError> {
        self.spooled(|file| {
            let copied = io::copy(&mut archive, file).map(drop);
            copied.map_err(|error| (PathBuf::from("(archive)"), error))
        })
    }

    /// Adds an archive that a call writes.
    fn spooled(
        mut self,
        write: impl FnOnce(&mut BufWriter<&NamedTempFile>) -> Result<(), (PathBuf, io::Error)>,
    ) -> Result<Self, ImageError> {
        let failed =
            |path: &Path, action, source| SourceError::Io { path: path.into(), action, source };
        let dir = &self.reading.spool;
        let file = NamedTempFile::new_in(dir).map_err(|error| failed(dir, "write", error))?;
        let mut buffered = BufWriter::with_capacity(SPOOL_BUFFER, &file);
        let written = write(&mut buffered);
        written.map_err(|(path, error)| failed(&path, "read", error))?;
        buffered.flush().map_err(|error| failed(dir, "write", error))?;
        drop(buffered);
        self.sources.push(Source::Archive(file.path().to_owned()));
        self.spools.push(Arc::new(file));
        Ok(self)
    }

    /// The file system's settings. Its UUID and hash seed come from the content unless they are
    /// set.
    #[must_use]
    pub fn format(mut self, formatter: Formatter) -> Self {
        self.options.format = formatter.options;
        self
    }

    /// The size of the volume.
    #[must_use]
    pub fn size(mut self, size: Size) -> Self {
        self.options.size = size;
        self
    }

    /// Gives all files to one user and group.
    #[must_use]
    pub fn owner(mut self, uid: u32, gid: u32) -> Self {
        self.reading.owners = Owners { all: Some((uid, gid)), ..self.reading.owners };
        self
    }

    /// Maps ranges of owners in the sources to those of the image.
    #[must_use]
    pub fn map_owners(mut self, map: OwnerMap) -> Self {
        self.reading.owners.map = map;
        self
    }

    /// Leaves out the files that a pattern of `tar --exclude` matches, with all below them
    /// ([`Excludes`](crate::source::Excludes)).
    #[must_use]
    pub fn exclude(mut self, pattern: impl AsRef<[u8]>) -> Self {
        self.reading.excludes.add(pattern.as_ref());
        self
    }

    /// Gives the files the SELinux labels of a file_contexts file, as setfiles would.
    #[must_use]
    pub fn file_contexts(mut self, file: impl Into<PathBuf>) -> Self {
        self.reading.file_contexts = Some(file.into());
        self
    }

    /// Gives the files the owners, modes and capabilities of Android's fs_config in its text form.
    #[must_use]
    pub fn fs_config(mut self, file: impl Into<PathBuf>) -> Self {
        self.reading.fs_config = Some(file.into());
        self
    }

    /// Gives the files of source directories the owners, modes, types and device numbers that they
    /// have under fakeroot, by a database that `fakeroot -s` has saved.
    #[must_use]
    pub fn fakeroot(mut self, database: impl Into<PathBuf>) -> Self {
        self.reading.fakeroot = Some(database.into());
        self
    }

    /// Gives the files of source directories the owners, modes, types and device numbers of their
    /// attribute `user.containers.override_stat`, which is left out itself.
    #[must_use]
    pub fn override_stat(mut self) -> Self {
        self.reading.override_stat = true;
        self
    }

    /// Where the volume will be mounted: the paths of [`Self::file_contexts`] and
    /// [`Self::fs_config`] begin with it. It is the root unless it is set.
    #[must_use]
    pub fn mount_point(mut self, path: impl AsRef<Path>) -> Self {
        self.reading.mount_point = path.as_ref().as_os_str().as_encoded_bytes().to_vec();
        self
    }

    /// The platform of an OCI layout's image, where the layout has several.
    #[must_use]
    pub fn platform(mut self, platform: Platform) -> Self {
        self.reading.platform = Some(platform);
        self
    }

    /// `SOURCE_DATE_EPOCH`, in seconds since 1970: the volume's own times; later times of files
    /// become this one.
    #[must_use]
    pub fn source_date_epoch(mut self, seconds: i64) -> Self {
        (self.options.epoch, self.reading.latest) = (Some(seconds), Some(seconds));
        self
    }

    /// Number of threads that read and write; the image does not depend on it.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.options.threads = Some(threads);
        self
    }

    /// A function that is called while the image is written, by several threads.
    #[must_use]
    pub fn on_progress(mut self, call: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.on_progress = Some(Arc::new(call));
        self
    }

    /// Reads the sources and writes the image.
    ///
    /// # Errors
    /// A source cannot be read, the tree does not fit, or the output cannot be written. An image
    /// that was there before stays then.
    pub fn build(&self) -> Result<Report, ImageError> {
        let tree = read_sources(&self.sources, &self.reading)?;
        let on_progress = self.on_progress.as_deref();
        let report = build(&self.options, &tree, &|at| {
            if let Some(call) = on_progress {
                call(at);
            }
        })?;
        Ok(report)
    }
}

/// Archives that cannot be read twice are unpacked next to the image.
fn directory_of(output: &Path) -> PathBuf {
    let parent = output.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new(".")).to_owned()
}
