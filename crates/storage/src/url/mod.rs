//! How a user names a device, and a file inside it.
//!
//! A device is named by a path, by `PATH#p2` (partition 2) or by `PATH?offset=N&size=N` (a run of
//! bytes; `k`, `M`, `G` and `T` multiply by powers of 1024), or by both, the partition first.
//! Layers are named before it, the outermost first: `linear:A?offset=N&size=N,B` joins runs,
//! `lvm:A,B?vg=NAME&lv=NAME` is a linear logical volume, `crypt:PATH?key-file=F` is deciphered, by
//! its LUKS header or, with `cipher=NAME`, as a plain device, and `overlay:PATH?upper=FILE` is
//! changed in a file of its own. `sb=N` reads the volume by the backup superblock in block N. A
//! backend ([`Schemes`]) replaces a file: `model:NAME:PATH`, `qcow2:PATH`, `nbd://HOST/EXPORT`.
//! Options follow the last path. A scheme that the build lacks is refused by the cargo feature that
//! would add it.
//!
//! `LABEL=NAME` and `UUID=...` name the block device whose file system has that label or UUID,
//! where there is no file of that name.
//!
//! `IMAGE:/path` names a file inside a device. Schemes are taken off first; then the longest prefix
//! before a `:/` that names an existing file or block device is the image. `./` in front makes the
//! whole a path of the host. A text that can be read in two ways is refused.

mod error;
mod layer;
mod layers;
mod name;
mod options;
mod tag;
#[cfg(all(test, feature = "crypt"))]
mod tests;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[cfg(feature = "crypt")]
use crate::crypt::CryptDevice;
use crate::key::{KeySource, Secret};
use crate::lvm;
use crate::opened::Opened;
use crate::overlay::{self, Committed, FileOverlay, OverlayError};
use crate::partition;
use crate::schemes::{OpenBackend, Schemes};
use extant_device::{
    Device, FileDevice, FileDeviceOptions, LinearDevice, LinearPart, OverlayDevice, SliceDevice,
};

pub use error::UrlError;
pub use layer::{Backed, Layer};
pub use name::{ByteRange, DeviceUrl, HostFile, Part, stat_host};
pub use options::UrlOptions;

/// Where a name leads: to the host or into an image.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PathTarget {
    /// A path of the host.
    Host(PathBuf),
    /// A path, beginning with `/`, inside a device.
    Inside {
        /// The device.
        image: DeviceUrl,
        /// The path in its file system; any bytes but NUL.
        path: OsString,
    },
}

/// How a device is to be used.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Access {
    /// Never written.
    ReadOnly,
    /// Written, and locked exclusively.
    ReadWrite,
}

/// The files of a URL, opened. Nothing of them was read.
#[derive(Clone, Debug)]
pub struct Files {
    parts: Vec<Arc<FileDevice>>,
    /// For a backend, which has one part and perhaps several files.
    held: Option<Arc<dyn OpenBackend>>,
    /// The changes of an overlay; none are read where the file is not there yet.
    upper: Option<Arc<FileDevice>>,
    /// Whether the device is written.
    write: bool,
}

/// The key of a URL that needs one. Wiped when it is dropped.
pub struct Keys(Option<Secret>);

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Keys").field(&self.0.is_some()).finish()
    }
}

/// Opens the device named by `text`, which may have the `schemes`. `options` are used for the file;
/// those that make a file or change its size hold for a plain path only.
///
/// # Errors
/// See [`UrlError`].
pub fn open(
    text: impl AsRef<OsStr>,
    schemes: &Schemes,
    access: Access,
    options: &FileDeviceOptions,
) -> Result<Opened, UrlError> {
    DeviceUrl::parse(text.as_ref(), schemes, stat_host)?.open(access, options)
}

impl DeviceUrl {
    /// Reads a device's name; `stat_host` returns the kind of a host file ([`stat_host`], outside
    /// tests). A file that is named exactly like the whole text is meant, unless the part before
    /// `#` or `?` is a file too. If neither exists, a well-formed `#` or `?` is read as such, and
    /// anything else as the name of a file to be made.
    ///
    /// # Errors
    /// A scheme that the build lacks, a mistake after `#` or `?`, or an ambiguous name.
    pub fn parse(
        text: &OsStr,
        schemes: &Schemes,
        stat_host: impl Fn(&Path) -> HostFile,
    ) -> Result<Self, UrlError> {
        if stat_host(Path::new(text)) == HostFile::Nothing
            && let Some(device) = tag::device_of(text)
        {
            return Ok(Self::plain(device?));
        }
        let (taken, rest) = layers::take_schemes(text.as_bytes(), schemes);
        refuse_schemes(rest, schemes)?;
        match taken.is_empty() {
            true => Self::parse_plain(text, &stat_host),
            false => layers::parse(text, &taken, rest, &stat_host),
        }
    }

    /// Opens the device.
    ///
    /// # Errors
    /// A file, a partition, a run, a key or a layer was not had.
    pub fn open(&self, access: Access, options: &FileDeviceOptions) -> Result<Opened, UrlError> {
        let files = self.open_files(&options.clone().write(access == Access::ReadWrite))?;
        self.device(&files, self.keys()?)
    }

    /// Opens the files and reads nothing of them. One that is named twice is opened once.
    ///
    /// # Errors
    /// A file was not had, or the name has a backup superblock: then the device alone is not what
    /// is meant.
    pub fn open_files(&self, options: &FileDeviceOptions) -> Result<Files, UrlError> {
        if let Some(block) = self.superblock {
            return Err(UrlError::Superblock { path: self.path().to_owned(), block });
        }
        let options = match self.is_whole() || self.can_be_made() {
            true => options.clone(),
            false => options.clone().without_changes(),
        };
        let write = options.writes();
        let upper = self.open_upper(&options)?;
        // The base of an overlay is not written, and does not change while the overlay is.
        let options = match self.overlay() {
            Some(_) => options.write(false).shared_lock(write),
            None => options,
        };
        if let Some(backed) = self.backed() {
            let held = backed.place.open(self.path(), &options)?;
            return Ok(Files { parts: held.files(), held: Some(held), upper, write });
        }
        let mut opened: Vec<(Option<Identity>, Arc<FileDevice>)> = Vec::new();
        for part in &self.parts {
            // If it is unknown, opening it gives the error.
            let identity = Identity::of(&part.path);
            let known = opened.iter().find(|(known, _)| known.is_some() && *known == identity);
            let file = match known {
                Some((_, file)) => file.clone(),
                None => Arc::new(options.open(&part.path)?),
            };
            opened.push((identity, file));
        }
        let parts = opened.into_iter().map(|(_, file)| file).collect();
        Ok(Files { parts, held: None, upper, write })
    }

    /// The file with an overlay's changes. One that is not there is made to be written, and is not
    /// needed to be read.
    fn open_upper(&self, options: &FileDeviceOptions) -> Result<Option<Arc<FileDevice>>, UrlError> {
        let Some(Some(path)) = self.overlay() else { return Ok(None) };
        let identity = Identity::of(path);
        let error = match identity {
            Some(Identity::Block { .. }) => Some(OverlayError::NotAFile),
            Some(_) if self.parts.iter().any(|part| Identity::of(&part.path) == identity) => {
                Some(OverlayError::IsBase)
            }
            None if !options.writes() && stat_host(path) == HostFile::Nothing => return Ok(None),
            _ => None,
        };
        match error {
            Some(error) => Err(UrlError::Overlay { path: path.to_owned(), error }),
            None => Ok(Some(Arc::new(options.clone().create(options.writes()).open(path)?))),
        }
    }

    /// Brings the changes of an overlay into its base, which is written for that, and empties its
    /// file. One that was interrupted is repeated.
    ///
    /// # Errors
    /// It is not an overlay with a file, or its base is another, has changed or cannot be written;
    /// or a device failed, and the changes are still in the file.
    pub fn commit(&self, options: &FileDeviceOptions) -> Result<Committed, UrlError> {
        let path = self.overlay().flatten().unwrap_or(self.path()).to_owned();
        let failed = |error| UrlError::Overlay { path: path.clone(), error };
        if self.overlay().flatten().is_none() {
            return Err(failed(OverlayError::NoFile));
        }
        let options = options.clone().without_changes().write(true);
        if Identity::of(&path).is_none() {
            // The error of a file that is not there, before the base is locked.
            options.open(&path)?;
        }
        let Some(upper) = self.open_upper(&options)? else {
            return Err(failed(OverlayError::NoFile));
        };
        let (base, keys) = (self.base(), self.keys()?);
        let files = base.open_files(&options.keeps_times(true))?;
        let opened = base.device(&files, keys)?;
        let times = || files.identity();
        let committed = overlay::commit(&*opened.device, &times, &*upper);
        let committed = committed.map_err(failed)?;
        opened.finish()?;
        Ok(committed)
    }

    /// The layer that a backend has read.
    fn backed(&self) -> Option<&Backed> {
        self.layers.iter().find_map(|layer| match layer {
            Layer::Backend(backed) => Some(backed),
            _ => None,
        })
    }

    /// Whether the device is simulated and runs on a clock of its own.
    pub fn is_simulated(&self) -> bool {
        self.backed().is_some_and(|backed| backed.place.is_simulated())
    }

    /// Where the key comes from, where one is needed.
    #[cfg(feature = "crypt")]
    pub fn key_source(&self) -> Option<&KeySource> {
        self.layers.iter().find_map(|layer| match layer {
            Layer::Crypt { key, .. } => Some(key),
            _ => None,
        })
    }

    /// Where the key comes from: without the feature `crypt` none is needed.
    #[cfg(not(feature = "crypt"))]
    pub fn key_source(&self) -> Option<&KeySource> {
        None
    }

    /// Reads the key, if one is needed, perhaps at the terminal.
    ///
    /// # Errors
    /// The key was not had.
    pub fn keys(&self) -> Result<Keys, UrlError> {
        self.key_source().map_or(Ok(Keys(None)), |source| self.keys_from(source))
    }

    /// Reads the key from another source than the URL's.
    ///
    /// # Errors
    /// The key was not had.
    pub fn keys_from(&self, source: &KeySource) -> Result<Keys, UrlError> {
        Ok(Keys(Some(source.read(&self.path().display().to_string())?)))
    }

    /// The device that is meant, on the files that were opened before. Partition tables, metadata
    /// and headers are read, and no more. The keys are wiped in the end.
    ///
    /// # Errors
    /// A partition, a run or a layer was not had.
    pub fn device(&self, files: &Files, keys: Keys) -> Result<Opened, UrlError> {
        let (mut devices, mut runs) = (Vec::new(), Vec::new());
        let mut innermost = None;
        for (index, part) in self.parts.iter().enumerate() {
            let held = match &files.held {
                Some(held) => held.device()?,
                None => Opened::real(files.parts[index].clone()),
            };
            let (device, run) = part.of(held.device.clone())?;
            devices.push(device);
            runs.push((part, index, run));
            innermost.get_or_insert(held);
        }
        if self.layers.contains(&Layer::Linear) {
            refuse_overlaps(&runs, &files.parts)?;
        }
        let write = files.write && self.overlay().is_none();
        for layer in self.layers.iter().rev() {
            devices = vec![match layer {
                Layer::Overlay { upper } => {
                    let path = upper.as_deref().unwrap_or(self.path());
                    let opened = overlaid(devices.swap_remove(0), files);
                    let path = || path.to_owned();
                    opened.map_err(|error| UrlError::Overlay { path: path(), error })?
                }
                layer => self.layer(layer, devices, &keys, write)?,
            }];
        }
        // Only layers that join have several parts, all of them on the machine's clock.
        let device = devices.swap_remove(0);
        let mut opened = match innermost {
            Some(held) => held.with_device(device),
            None => Opened::real(device),
        };
        if self.layers.is_empty() {
            opened.start = runs[0].2.start;
        }
        Ok(opened)
    }

    /// The same where nothing of the files has to be read for it but partition tables: for a look
    /// before the process restricts itself. `None` for layers that have headers, are deciphered or
    /// have a clock of their own.
    ///
    /// # Errors
    /// As [`Self::device`].
    pub fn plain_device(&self, files: &Files) -> Option<Result<Arc<dyn Device>, UrlError>> {
        let is_plain = self.layers.iter().all(|layer| *layer == Layer::Linear);
        is_plain.then(|| self.device(files, Keys(None)).map(|opened| opened.device))
    }

    #[cfg_attr(not(feature = "crypt"), expect(unused_variables, reason = "no layer has keys"))]
    fn layer(
        &self,
        layer: &Layer,
        mut devices: Vec<Arc<dyn Device>>,
        keys: &Keys,
        write: bool,
    ) -> Result<Arc<dyn Device>, UrlError> {
        let path = || self.path().to_owned();
        Ok(match layer {
            Layer::Linear => {
                let whole =
                    |device: Arc<dyn Device>| LinearPart { offset: 0, size: device.size(), device };
                let parts = devices.into_iter().map(whole).collect();
                let joined = LinearDevice::new(parts)
                    .map_err(|error| UrlError::Slice { path: path(), error })?;
                Arc::new(joined)
            }
            Layer::Lvm { group, volume } => {
                let opened = lvm::open(&devices, group.as_deref(), volume.as_deref(), write)
                    .map_err(|error| UrlError::Lvm { path: path(), error })?;
                Arc::new(opened)
            }
            #[cfg(feature = "crypt")]
            Layer::Crypt { plain, passes_discards, limits, .. } => {
                let inner = devices.swap_remove(0);
                let secret: &[u8] = keys.0.as_ref().map_or(&[], |secret| secret);
                let opened = match plain {
                    Some(plain) => CryptDevice::plain(inner, plain, secret),
                    None => CryptDevice::luks_within(inner, secret, limits),
                };
                let opened = opened.map_err(|error| UrlError::Crypt { path: path(), error })?;
                Arc::new(opened.pass_discards(*passes_discards))
            }
            // Below the partition table already; above everything.
            Layer::Backend(_) | Layer::Overlay { .. } => devices.swap_remove(0),
        })
    }
}

/// The overlay of files on its base.
fn overlaid(base: Arc<dyn Device>, files: &Files) -> Result<Arc<dyn Device>, OverlayError> {
    if files.write {
        overlay::refuse_external_journal(&*base)?;
    }
    let Some(upper) = &files.upper else {
        return Ok(match files.write {
            true => Arc::new(OverlayDevice::new(base)),
            false => base,
        });
    };
    let times = files.identity();
    if overlay::is_new(&**upper)? {
        if !files.write {
            return Ok(base);
        }
        upper.set_len(overlay::new_file_size(&*base, &times)?)?;
    }
    Ok(Arc::new(FileOverlay::open(base, &times, upper.clone())?))
}

/// The sizes and modification times of regular files.
fn times_of(files: &[Arc<FileDevice>]) -> Vec<u8> {
    let files = files.iter().filter(|file| !file.is_block_device());
    let found = files.filter_map(|file| file.file().metadata().ok());
    let numbers = found.flat_map(|found| {
        [found.len(), found.mtime().cast_unsigned(), found.mtime_nsec().cast_unsigned()]
    });
    numbers.flat_map(u64::to_le_bytes).collect()
}

impl Files {
    /// The version of the contents: times of files, the version of an object.
    fn identity(&self) -> Vec<u8> {
        let mut bytes = times_of(&self.parts);
        bytes.extend(self.held.iter().flat_map(|held| held.identity()));
        bytes
    }

    /// The first file; `None` where the device is remote.
    pub fn first(&self) -> Option<&Arc<FileDevice>> {
        self.parts.first()
    }
}

impl Part {
    /// The part that is meant of the file or block device, and which bytes of that it is. The
    /// partition table is read, and no more.
    fn of(&self, mut device: Arc<dyn Device>) -> Result<(Arc<dyn Device>, Range<u64>), UrlError> {
        let mut start = 0;
        if let Some(number) = self.partition {
            let part = partition::open(device, number)
                .map_err(|error| UrlError::Partition { path: self.path.clone(), error })?;
            start = part.start();
            device = Arc::new(part);
        }
        if let Some(run) = self.run {
            let size = run.size.unwrap_or(device.size().saturating_sub(run.offset));
            let mut slice = SliceDevice::new(device, run.offset, size)
                .map_err(|error| UrlError::Slice { path: self.path.clone(), error })?;
            if run.size.is_none() && self.partition.is_none() {
                slice = slice.with_end(partition::ImageEnd);
            }
            // Within the file.
            start += slice.start();
            device = Arc::new(slice);
        }
        let end = start + device.size();
        Ok((device, start..end))
    }
}

impl PathTarget {
    /// Reads a name that may lead into an image; `stat_host` returns the kind of a host file
    /// ([`stat_host`], outside tests).
    ///
    /// # Errors
    /// As [`DeviceUrl::parse`]; or there is a `:/` and neither an image before it nor a file of the
    /// whole name; or there are both.
    pub fn parse(
        text: &OsStr,
        schemes: &Schemes,
        stat_host: impl Fn(&Path) -> HostFile,
    ) -> Result<Self, UrlError> {
        let bytes = text.as_bytes();
        if bytes.starts_with(b"./") {
            return Ok(Self::Host(PathBuf::from(text)));
        }
        let (taken, rest) = layers::take_schemes(bytes, schemes);
        refuse_schemes(rest, schemes)?;
        let first = bytes.len() - rest.len();
        let Some(last) = colons(bytes, first).next_back() else {
            return Ok(Self::Host(PathBuf::from(text)));
        };
        let whole_is_there = taken.is_empty() && stat_host(Path::new(text)) != HostFile::Nothing;
        match (Self::inside(bytes, first, schemes, &stat_host)?, whole_is_there) {
            (Some((image, _)), true) => {
                let (one, other) = (PathBuf::from(text), image.path().to_owned());
                Err(UrlError::Ambiguous { text: text.to_owned(), one, other })
            }
            (Some((image, path)), false) => Ok(Self::Inside { image, path }),
            (None, true) => Ok(Self::Host(PathBuf::from(text))),
            (None, false) => {
                let image = PathBuf::from(OsStr::from_bytes(&bytes[..last]));
                Err(UrlError::NoImage { text: text.to_owned(), image })
            }
        }
    }

    /// As [`Self::parse`], where a path of the host is of no use: `./IMAGE:/path` is inside too,
    /// unless a file has the whole name.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub fn parse_inside(
        text: &OsStr,
        schemes: &Schemes,
        stat_host: impl Fn(&Path) -> HostFile,
    ) -> Result<Self, UrlError> {
        match Self::parse(text, schemes, &stat_host)? {
            Self::Host(path) if stat_host(&path) == HostFile::Nothing => {
                let inside = Self::inside(text.as_bytes(), 0, schemes, &stat_host)?;
                Ok(inside.map_or(Self::Host(path), |(image, path)| Self::Inside { image, path }))
            }
            target => Ok(target),
        }
    }

    /// The longest prefix before a `:/` from byte `first` on that is an image, and what follows.
    fn inside(
        bytes: &[u8],
        first: usize,
        schemes: &Schemes,
        stat_host: &impl Fn(&Path) -> HostFile,
    ) -> Result<Option<(DeviceUrl, OsString)>, UrlError> {
        let (taken, _) = layers::take_schemes(bytes, schemes);
        let mut places: Vec<usize> = colons(bytes, first).collect();
        // A remote image cannot be looked for: the first of them ends it.
        match layers::is_remote(&taken) {
            true => places.truncate(1),
            false => places.reverse(),
        }
        for at in places {
            let image = DeviceUrl::parse(OsStr::from_bytes(&bytes[..at]), schemes, stat_host)?;
            if image.is_there(stat_host) {
                return Ok(Some((image, OsString::from_vec(bytes[at + 1..].to_vec()))));
            }
        }
        Ok(None)
    }
}

/// The position of `:/`, from byte `first` on.
fn colons(bytes: &[u8], first: usize) -> impl DoubleEndedIterator<Item = usize> {
    (first..bytes.len()).filter(|at| bytes[*at..].starts_with(b":/"))
}

/// Refuses runs of one file that lie on each other: writing one would change the other.
fn refuse_overlaps(
    runs: &[(&Part, usize, Range<u64>)],
    files: &[Arc<FileDevice>],
) -> Result<(), UrlError> {
    for (at, (part, file, run)) in runs.iter().enumerate() {
        let lies_here = |(_, other, before): &&(_, usize, Range<u64>)| {
            Arc::ptr_eq(&files[*file], &files[*other])
                && before.start < run.end
                && run.start < before.end
        };
        if let Some((other, ..)) = runs[..at].iter().find(lies_here) {
            let (one, other) = (other.path.clone(), part.path.clone());
            return Err(UrlError::Overlap { one, other });
        }
    }
    Ok(())
}

/// The identity of a file or block device, which is the same under each of its names.
#[derive(Clone, Copy, PartialEq)]
enum Identity {
    Block { device: u64 },
    File { device: u64, inode: u64 },
}

impl Identity {
    fn of(path: &Path) -> Option<Self> {
        let found = fs::metadata(path).ok()?;
        Some(match found.file_type().is_block_device() {
            true => Self::Block { device: found.rdev() },
            false => Self::File { device: found.dev(), inode: found.ino() },
        })
    }
}

fn refuse_schemes(text: &[u8], schemes: &Schemes) -> Result<(), UrlError> {
    schemes.refuse_left_out(text)?;
    let name = text.iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
    if name > 0 && text[name..].starts_with(b"://") {
        let scheme = String::from_utf8_lossy(&text[..name + 3]).into_owned();
        return Err(UrlError::UnknownScheme { scheme });
    }
    Ok(())
}
