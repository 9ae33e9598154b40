//! How a user names a device, and a file inside it.
//!
//! A device is named by a path, by `PATH#p2` (partition 2) or by `PATH?offset=N&size=N` (a run of bytes; `k`, `M`, `G`
//! and `T` multiply by powers of 1024), or by both, the partition first. Layers are named before it, the outermost first:
//! `linear:A?offset=N&size=N,B` joins runs, `lvm:A,B?vg=NAME&lv=NAME` is a linear logical volume, and
//! `crypt:PATH?key-file=F` is deciphered, by its LUKS header or, with `cipher=NAME`, as a plain device; `model:NAME:PATH` is a
//! simulated drive with the contents of PATH. Their options follow the last path. Other schemes (`qcow2:`, `s3://`, `https://`) are known by name and refused until they
//! are built.
//!
//! `IMAGE:/path` names a file inside a device. Schemes are taken off first; then the longest prefix before a `:/` that
//! names an existing file or block device is the image. `./` in front makes the whole a path of the host. A text that
//! can be read in two ways is refused.

mod layers;
#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::crypt::{CryptDevice, CryptError, KeyError, KeySource, Secret};
use crate::lvm::{self, LvmError};
use crate::opened::{FinishError, Opened};
use crate::partition::{self, PartitionError};
use extant_device::ByteSize;
use extant_device::Device;
use extant_device::{Direct, FileDevice, FileError, OpenOptions};
use extant_device::{LinearDevice, LinearPart};
use extant_device::{SliceDevice, SliceError};
use extant_runtime::sync::Mutex;
use extant_sim::model::{ModelDevice, Words, WordsError};

pub use layers::Layer;

/// A device as named.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DeviceUrl {
    /// Where its bytes lie: at least one part, and several only for layers that join.
    pub parts: Vec<Part>,
    /// What stands on the parts, the outermost first.
    pub layers: Vec<Layer>,
}

/// A file or block device, or a part of it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Part {
    /// The file or block device.
    pub path: PathBuf,
    /// Its partition.
    pub partition: Option<u32>,
    /// A run of that.
    pub run: Option<Run>,
}

/// A run of bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Run {
    /// First byte.
    pub offset: u64,
    /// Bytes; up to the end if not given.
    pub size: Option<u64>,
}

/// Where a name leads: to the host or into an image.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Target {
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

/// What is there under a path of the host.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Found {
    /// A regular file or a block device.
    Device,
    /// A directory or something else that holds no image.
    Other,
    /// Nothing, as far as we may look.
    Nothing,
}

/// How a device is to be used.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Access {
    /// Never written.
    ReadOnly,
    /// Written, and had for oneself.
    ReadWrite,
}

/// A name that leads nowhere.
#[derive(Debug, thiserror::Error)]
pub enum UrlError {
    /// A scheme of the design that this version does not have.
    #[error("{scheme} is not supported yet")]
    NotBuilt {
        /// The scheme, with its colon.
        scheme: String,
    },
    /// The text before `://` is no scheme we know.
    #[error("unknown scheme {scheme}")]
    UnknownScheme {
        /// The scheme, with its colon and slashes.
        scheme: String,
    },
    /// What follows `#` or `?` has a mistake.
    #[error("{}: {problem}", text.display())]
    Malformed {
        /// The name.
        text: OsString,
        /// What is wrong.
        problem: String,
    },
    /// Two files fit the name.
    #[error("{}: may mean {} or {}", text.display(), one.display(), other.display())]
    Ambiguous {
        /// The name.
        text: OsString,
        /// One file.
        one: PathBuf,
        /// The other.
        other: PathBuf,
    },
    /// No prefix of `IMAGE:/path` names a file or block device.
    #[error("{}: no file or block device {}", text.display(), image.display())]
    NoImage {
        /// The name.
        text: OsString,
        /// The longest prefix that was tried.
        image: PathBuf,
    },
    /// Two parts that are joined have bytes of one file in common.
    #[error("{} and {}: parts that are joined lie on each other", one.display(), other.display())]
    Overlap {
        /// The file of the first part.
        one: PathBuf,
        /// That of the second, perhaps under another name.
        other: PathBuf,
    },
    /// The file was not opened.
    #[error(transparent)]
    File(#[from] FileError),
    /// The partition was not found.
    #[error("{}: {error}", path.display())]
    Partition {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: PartitionError,
    },
    /// The key was not had.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The device was not deciphered.
    #[error("{}: {error}", path.display())]
    Crypt {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: CryptError,
    },
    /// The logical volume was not found.
    #[error("{}: {error}", path.display())]
    Lvm {
        /// The first file.
        path: PathBuf,
        /// Why not.
        error: LvmError,
    },
    /// What a simulated drive keeps beside its image was not had.
    #[error(transparent)]
    Words(#[from] WordsError),
    /// The device was used, and not ended well.
    #[error(transparent)]
    Finish(#[from] FinishError),
    /// The run does not fit.
    #[error("{}: {error}", path.display())]
    Slice {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: SliceError,
    },
}

/// The files of a URL, opened. Nothing of them was read.
#[derive(Clone, Debug)]
pub struct Files {
    parts: Vec<Arc<FileDevice>>,
    /// Of a simulated drive; taken by the device.
    words: Arc<Mutex<Option<Words>>>,
}

/// The key of a URL that needs one. Wiped when it is dropped.
pub struct Keys(Option<Secret>);

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Keys").field(&self.0.is_some()).finish()
    }
}

/// Schemes that the design has and this version has not.
const NOT_BUILT: [&[u8]; 3] = [b"qcow2:", b"s3://", b"https://"];

/// What the host has under `path`.
pub fn look(path: &Path) -> Found {
    match fs::metadata(path).map(|metadata| metadata.file_type()) {
        Ok(kind) if kind.is_file() || kind.is_block_device() => Found::Device,
        Ok(_) => Found::Other,
        Err(_) => Found::Nothing,
    }
}

/// Opens the device named by `text`. `options` say the rest; those that make a file or change its size hold for a plain
/// path only.
///
/// # Errors
/// See [`UrlError`].
pub fn open(
    text: impl AsRef<OsStr>,
    access: Access,
    options: &OpenOptions,
) -> Result<Opened, UrlError> {
    DeviceUrl::parse(text.as_ref(), look)?.open(access, options)
}

impl DeviceUrl {
    /// The device whose whole is the file at `path`.
    pub fn plain(path: impl Into<PathBuf>) -> Self {
        Self::of_part(Part { path: path.into(), partition: None, run: None })
    }

    fn of_part(part: Part) -> Self {
        Self { parts: vec![part], layers: Vec::new() }
    }

    /// The first file or block device.
    pub fn path(&self) -> &Path {
        &self.parts[0].path
    }

    /// Whether a whole file or block device is meant, with nothing between.
    pub fn is_whole(&self) -> bool {
        matches!((&self.parts[..], &self.layers[..]), ([part], []) if part.partition.is_none() && part.run.is_none())
    }

    /// Whether a part of what is there is meant, or what layers show: it keeps its size. A name with `#` or `?` that no file stands
    /// behind is none: it may be the name of a file to be made.
    pub fn is_part(&self) -> bool {
        !self.is_whole() && (!self.layers.is_empty() || look(self.path()) != Found::Nothing)
    }

    /// Reads a device's name; `look` says what the host has ([`look`], outside tests). A file that is named exactly like
    /// the whole text is meant, unless the part before `#` or `?` is a file too. Where neither is there, a well-formed
    /// `#` or `?` is read as such, and anything else as the name of a file to be made.
    ///
    /// # Errors
    /// A scheme that is not built, a mistake after `#` or `?`, or two files that may be meant.
    pub fn parse(text: &OsStr, look: impl Fn(&Path) -> Found) -> Result<Self, UrlError> {
        let (schemes, rest) = layers::take_schemes(text.as_bytes());
        refuse_schemes(rest)?;
        match schemes.is_empty() {
            true => Self::parse_plain(text, &look),
            false => layers::parse(text, &schemes, rest, &look),
        }
    }

    fn parse_plain(text: &OsStr, look: &impl Fn(&Path) -> Found) -> Result<Self, UrlError> {
        let whole = Path::new(text);
        let (path, suffix) = split_suffix(text.as_bytes());
        if suffix.is_empty() {
            return Ok(Self::plain(whole));
        }
        let path = Path::new(OsStr::from_bytes(path));
        match (look(whole), look(path)) {
            (Found::Device, Found::Device) => Err(UrlError::Ambiguous {
                text: text.to_owned(),
                one: whole.to_owned(),
                other: path.to_owned(),
            }),
            (Found::Device, _) => Ok(Self::plain(whole)),
            (_, found) => match parse_suffix(suffix) {
                Ok((partition, run)) => {
                    Ok(Self::of_part(Part { path: path.to_owned(), partition, run }))
                }
                Err(_) if found != Found::Device => Ok(Self::plain(whole)),
                Err(problem) => Err(UrlError::Malformed { text: text.to_owned(), problem }),
            },
        }
    }

    /// Opens the device.
    ///
    /// # Errors
    /// A file, a partition, a run, a key or a layer was not had.
    pub fn open(&self, access: Access, options: &OpenOptions) -> Result<Opened, UrlError> {
        let files = self.open_files(&options.clone().write(access == Access::ReadWrite))?;
        self.device(&files, self.keys()?)
    }

    /// Opens the files and reads nothing of them. One that is named twice is opened once.
    ///
    /// # Errors
    /// A file was not had.
    pub fn open_files(&self, options: &OpenOptions) -> Result<Files, UrlError> {
        let options = match self.is_whole() {
            true => options.clone(),
            // Memory of a simulated drive is a page cache of its own.
            false if self.is_simulated() => options.clone().without_changes().direct(Direct::Off),
            false => options.clone().without_changes(),
        };
        let words = match self.drive() {
            Some(_) => ModelDevice::words_of(self.path(), options.writes())?,
            None => None,
        };
        let mut opened: Vec<(Option<Identity>, Arc<FileDevice>)> = Vec::new();
        for part in &self.parts {
            // Where it cannot be told, opening it tells why.
            let identity = Identity::of(&part.path);
            let known = opened.iter().find(|(known, _)| known.is_some() && *known == identity);
            let file = match known {
                Some((_, file)) => file.clone(),
                None => Arc::new(options.open(&part.path)?),
            };
            opened.push((identity, file));
        }
        let parts = opened.into_iter().map(|(_, file)| file).collect();
        Ok(Files { parts, words: Arc::new(Mutex::new(words)) })
    }

    /// The layer that is a simulated drive.
    fn drive(&self) -> Option<&Layer> {
        self.layers.iter().find(|layer| matches!(layer, Layer::Model { .. }))
    }

    /// Whether the device is simulated and runs on a clock of its own.
    pub fn is_simulated(&self) -> bool {
        self.drive().is_some()
    }

    /// Where the key comes from, where one is needed.
    pub fn key_source(&self) -> Option<&KeySource> {
        self.layers.iter().find_map(|layer| match layer {
            Layer::Crypt { key, .. } => Some(key),
            Layer::Linear | Layer::Lvm { .. } | Layer::Model { .. } => None,
        })
    }

    /// Reads the key, where one is needed: it may be asked for at the terminal.
    ///
    /// # Errors
    /// The key was not had.
    pub fn keys(&self) -> Result<Keys, UrlError> {
        self.key_source().map_or(Ok(Keys(None)), |source| self.keys_from(source))
    }

    /// Reads the key from elsewhere than the URL says.
    ///
    /// # Errors
    /// The key was not had.
    pub fn keys_from(&self, source: &KeySource) -> Result<Keys, UrlError> {
        Ok(Keys(Some(source.read(&self.path().display().to_string())?)))
    }

    /// The device that is meant, on the files that were opened before. Partition tables, metadata and headers are read, and
    /// no more. The keys are wiped in the end.
    ///
    /// # Errors
    /// A partition, a run or a layer was not had.
    pub fn device(&self, files: &Files, keys: Keys) -> Result<Opened, UrlError> {
        let (mut devices, mut runs) = (Vec::new(), Vec::new());
        let mut innermost = None;
        for (part, file) in self.parts.iter().zip(&files.parts) {
            let held = self.held_by(file, files)?;
            let (device, run) = part.of(held.device.clone())?;
            devices.push(device);
            runs.push((part, file, run));
            innermost.get_or_insert(held);
        }
        if self.layers.contains(&Layer::Linear) {
            refuse_overlaps(&runs)?;
        }
        let write = files.parts.iter().all(|file| !file.is_read_only());
        for layer in self.layers.iter().rev() {
            devices = vec![self.layer(layer, devices, &keys, write)?];
        }
        // Only layers that join have several parts, all of them on the machine's clock.
        let device = devices.swap_remove(0);
        Ok(match innermost {
            Some(held) => held.with_device(device),
            None => Opened::real(device),
        })
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

    /// The file itself, or the simulated drive that has its contents.
    fn held_by(&self, file: &Arc<FileDevice>, files: &Files) -> Result<Opened, UrlError> {
        Ok(match self.drive() {
            Some(Layer::Model { preset, options }) => {
                let words = files.words.lock().take();
                let drive = Arc::new(ModelDevice::new(preset, file.clone(), words, options)?);
                let env = drive.env().clone();
                Opened::simulated(drive.clone(), env, move || drive.finish())
            }
            _ => Opened::real(file.clone()),
        })
    }

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
            // Below the partition table already.
            Layer::Model { .. } => devices.swap_remove(0),
        })
    }
}

impl Files {
    /// The first file.
    pub fn first(&self) -> &Arc<FileDevice> {
        &self.parts[0]
    }
}

impl Part {
    /// The part that is meant of the file or block device, and which bytes of that it is. The partition table is read, and no more.
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
            let slice = SliceDevice::new(device, run.offset, size)
                .map_err(|error| UrlError::Slice { path: self.path.clone(), error })?;
            // Within the file.
            start += slice.start();
            device = Arc::new(slice);
        }
        let end = start + device.size();
        Ok((device, start..end))
    }
}

impl Target {
    /// Reads a name that may lead into an image; `look` says what the host has ([`look`], outside tests).
    ///
    /// # Errors
    /// As [`DeviceUrl::parse`]; or there is a `:/` and neither an image before it nor a file of the whole name; or there
    /// are both.
    pub fn parse(text: &OsStr, look: impl Fn(&Path) -> Found) -> Result<Self, UrlError> {
        let bytes = text.as_bytes();
        if bytes.starts_with(b"./") {
            return Ok(Self::Host(PathBuf::from(text)));
        }
        let (schemes, rest) = layers::take_schemes(bytes);
        refuse_schemes(rest)?;
        let first = bytes.len() - rest.len();
        let Some(last) = colons(bytes, first).next_back() else {
            return Ok(Self::Host(PathBuf::from(text)));
        };
        let whole_is_there = schemes.is_empty() && look(Path::new(text)) != Found::Nothing;
        match (Self::inside(bytes, first, &look)?, whole_is_there) {
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

    /// As [`Self::parse`], where a path of the host is of no use: `./IMAGE:/path` is inside too, unless a file has the whole name.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub fn parse_inside(text: &OsStr, look: impl Fn(&Path) -> Found) -> Result<Self, UrlError> {
        match Self::parse(text, &look)? {
            Self::Host(path) if look(&path) == Found::Nothing => {
                let inside = Self::inside(text.as_bytes(), 0, &look)?;
                Ok(inside.map_or(Self::Host(path), |(image, path)| Self::Inside { image, path }))
            }
            target => Ok(target),
        }
    }

    /// The longest prefix before a `:/` from byte `first` on that is an image, and what follows.
    fn inside(
        bytes: &[u8],
        first: usize,
        look: &impl Fn(&Path) -> Found,
    ) -> Result<Option<(DeviceUrl, OsString)>, UrlError> {
        for at in colons(bytes, first).rev() {
            let image = DeviceUrl::parse(OsStr::from_bytes(&bytes[..at]), look)?;
            if image.parts.iter().all(|part| look(&part.path) == Found::Device) {
                return Ok(Some((image, OsString::from_vec(bytes[at + 1..].to_vec()))));
            }
        }
        Ok(None)
    }
}

/// Where `:/` stands, from byte `first` on.
fn colons(bytes: &[u8], first: usize) -> impl DoubleEndedIterator<Item = usize> {
    (first..bytes.len()).filter(|at| bytes[*at..].starts_with(b":/"))
}

/// Refuses runs of one file that lie on each other: writing one would change the other.
fn refuse_overlaps(runs: &[(&Part, &Arc<FileDevice>, Range<u64>)]) -> Result<(), UrlError> {
    for (at, (part, file, run)) in runs.iter().enumerate() {
        let lies_here = |(_, other, before): &&(_, &Arc<FileDevice>, Range<u64>)| {
            Arc::ptr_eq(file, other) && before.start < run.end && run.start < before.end
        };
        if let Some((other, ..)) = runs[..at].iter().find(lies_here) {
            let (one, other) = (other.path.clone(), part.path.clone());
            return Err(UrlError::Overlap { one, other });
        }
    }
    Ok(())
}

/// What tells a file or block device from all others, under whatever name.
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

fn refuse_schemes(text: &[u8]) -> Result<(), UrlError> {
    if let Some(scheme) = NOT_BUILT.iter().find(|scheme| text.starts_with(scheme)) {
        return Err(UrlError::NotBuilt { scheme: String::from_utf8_lossy(scheme).into_owned() });
    }
    let name = text.iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
    if name > 0 && text[name..].starts_with(b"://") {
        let scheme = String::from_utf8_lossy(&text[..name + 3]).into_owned();
        return Err(UrlError::UnknownScheme { scheme });
    }
    Ok(())
}

/// The path, and what begins with the `#` or `?` of the last component: directories may have them in their names.
fn split_suffix(text: &[u8]) -> (&[u8], &[u8]) {
    let name = text.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    let query =
        text[name..].iter().rposition(|byte| *byte == b'?').map_or(text.len(), |at| name + at);
    let hash = text[name..query].iter().rposition(|byte| *byte == b'#').map(|at| name + at);
    let at = match hash {
        Some(hash) if partition_number(&text[hash..query]).is_some() || query == text.len() => hash,
        _ => query,
    };
    text.split_at(at)
}

/// The number of `#pN`.
fn partition_number(text: &[u8]) -> Option<u32> {
    let digits = text.strip_prefix(b"#p")?;
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    str::from_utf8(digits).ok()?.parse().ok().filter(|number| *number > 0)
}

fn parse_suffix(suffix: &[u8]) -> Result<(Option<u32>, Option<Run>), String> {
    let query = suffix.iter().position(|byte| *byte == b'?').unwrap_or(suffix.len());
    let (hash, query) = suffix.split_at(query);
    let partition = match hash {
        [] => None,
        _ => {
            let number = partition_number(hash);
            Some(number.ok_or_else(|| {
                format!("`{}` is no partition: #p1, #p2, ...", hash.escape_ascii())
            })?)
        }
    };
    let run = match query.split_first() {
        None => None,
        Some((_, query)) => Some(parse_run(query)?),
    };
    Ok((partition, run))
}

fn parse_run(query: &[u8]) -> Result<Run, String> {
    let (mut offset, mut size) = (None, None);
    for option in query.split(|byte| *byte == b'&') {
        let shown = option.escape_ascii();
        let (to, value) = if let Some(value) = option.strip_prefix(b"offset=") {
            (&mut offset, value)
        } else if let Some(value) = option.strip_prefix(b"size=") {
            (&mut size, value)
        } else {
            return Err(format!("`{shown}` is no option: offset=N, size=N"));
        };
        let value = parse_bytes(value).ok_or_else(|| format!("`{shown}` is no number of bytes"))?;
        if to.replace(value).is_some() {
            return Err(format!("`{shown}` is given twice"));
        }
    }
    Ok(Run { offset: offset.unwrap_or(0), size })
}

/// A number of bytes, or one with a unit.
fn parse_bytes(text: &[u8]) -> Option<u64> {
    let size = str::from_utf8(text).ok()?.parse::<ByteSize>();
    size.ok().map(|size| size.0)
}
