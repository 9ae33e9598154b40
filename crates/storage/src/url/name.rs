//! The name of a device: its parts, and the layers on them.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use super::error::UrlError;
use super::layer::Layer;
use super::options::parse_bytes;

/// A device as named.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DeviceUrl {
    /// Where its bytes lie: at least one part, and several only for layers that join.
    pub parts: Vec<Part>,
    /// The layers on the parts, the outermost first.
    pub layers: Vec<Layer>,
    /// The block of the backup superblock (`sb=N`) that the volume is read by. Files are not opened
    /// as long as it is there: see [`Self::without_superblock`].
    pub superblock: Option<u64>,
}

/// A file or block device, or a part of it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Part {
    /// The file or block device.
    pub path: PathBuf,
    /// Its partition.
    pub partition: Option<u32>,
    /// A run of that.
    pub run: Option<ByteRange>,
}

/// A run of bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ByteRange {
    /// First byte.
    pub offset: u64,
    /// Bytes; up to the end if not given.
    pub size: Option<u64>,
}

/// The kind of file under a path of the host.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HostFile {
    /// A regular file or a block device.
    Device,
    /// A directory or something else that holds no image.
    Other,
    /// Nothing, as far as we may look.
    Nothing,
}

/// The kind of file that the host has under `path`.
pub fn stat_host(path: &Path) -> HostFile {
    match fs::metadata(path).map(|metadata| metadata.file_type()) {
        Ok(kind) if kind.is_file() || kind.is_block_device() => HostFile::Device,
        Ok(_) => HostFile::Other,
        Err(_) => HostFile::Nothing,
    }
}

impl DeviceUrl {
    /// The device whose whole is the file at `path`.
    pub fn plain(path: impl Into<PathBuf>) -> Self {
        Self::of_part(Part { path: path.into(), partition: None, run: None })
    }

    pub(super) fn of_part(part: Part) -> Self {
        Self { parts: vec![part], layers: Vec::new(), superblock: None }
    }

    /// The device itself, for a caller that reads the volume by [`Self::superblock`].
    #[must_use]
    pub fn without_superblock(&self) -> Self {
        Self { superblock: None, ..self.clone() }
    }

    /// The first file or block device.
    pub fn path(&self) -> &Path {
        &self.parts[0].path
    }

    /// Whether a whole file or block device is meant, with nothing between.
    pub fn is_whole(&self) -> bool {
        self.superblock.is_none()
            && matches!((&self.parts[..], &self.layers[..]), ([part], []) if part.partition.is_none() && part.run.is_none())
    }

    /// Whether an image in a file is meant that is made where the file is missing: with the options
    /// that make a file and give it a size, which is that of the disk.
    pub fn can_be_made(&self) -> bool {
        let [part] = &self.parts[..] else { return false };
        let is_whole = self.superblock.is_none() && part.partition.is_none() && part.run.is_none();
        let [Layer::Backend(backed)] = &self.layers[..] else { return false };
        is_whole && backed.place.makes_files()
    }

    /// Whether a part of a file or device is meant, or what layers show: it keeps its size, and is
    /// not made if the file is missing.
    pub fn is_part(&self) -> bool {
        !self.is_whole()
    }

    /// The overlay that is meant: the file with its changes, if they are kept. `None` if none is.
    pub fn overlay(&self) -> Option<Option<&Path>> {
        match self.layers.first() {
            Some(Layer::Overlay { upper }) => Some(upper.as_deref()),
            _ => None,
        }
    }

    /// The device below the overlay, or the device itself where none is meant.
    #[must_use]
    pub fn base(&self) -> Self {
        let skipped = usize::from(self.overlay().is_some());
        Self { layers: self.layers[skipped..].to_vec(), ..self.clone() }
    }

    /// Whether the bytes are not in files of this machine: the paths of parts are texts then.
    pub fn is_remote(&self) -> bool {
        let remote = |layer: &Layer| matches!(layer, Layer::Backend(backed) if backed.is_remote);
        self.layers.iter().any(remote)
    }

    /// Whether there are such files or block devices; of a remote device it is not known.
    pub fn is_there(&self, stat_host: impl Fn(&Path) -> HostFile) -> bool {
        self.host_parts().all(|path| stat_host(path) == HostFile::Device)
    }

    fn host_parts(&self) -> impl Iterator<Item = &Path> {
        let parts = (!self.is_remote()).then_some(&self.parts).into_iter().flatten();
        parts.map(|part| &*part.path)
    }

    /// The files and block devices that are read, and that of an overlay's changes.
    pub fn files_read(&self) -> impl Iterator<Item = &Path> {
        self.host_parts().chain(self.overlay().flatten())
    }

    /// The files and block devices that a change of the device changes.
    pub fn files_written(&self) -> impl Iterator<Item = &Path> {
        let parts = self.host_parts().filter(|_| self.overlay().is_none());
        parts.chain(self.overlay().flatten())
    }

    pub(super) fn parse_plain(
        text: &OsStr,
        stat_host: &impl Fn(&Path) -> HostFile,
    ) -> Result<Self, UrlError> {
        let whole = Path::new(text);
        let (path, suffix) = split_suffix(text.as_bytes());
        if suffix.is_empty() {
            return Ok(Self::plain(whole));
        }
        let path = Path::new(OsStr::from_bytes(path));
        match (stat_host(whole), stat_host(path)) {
            (HostFile::Device, HostFile::Device) => Err(UrlError::Ambiguous {
                text: text.to_owned(),
                one: whole.to_owned(),
                other: path.to_owned(),
            }),
            (HostFile::Device, _) => Ok(Self::plain(whole)),
            (_, found) => match parse_suffix(suffix) {
                Ok((partition, Query { run, superblock })) => {
                    let part = Part { path: path.to_owned(), partition, run };
                    Ok(Self { superblock, ..Self::of_part(part) })
                }
                Err(_) if found != HostFile::Device => Ok(Self::plain(whole)),
                Err(problem) => Err(UrlError::Malformed { text: text.to_owned(), problem }),
            },
        }
    }
}

/// The path, and what begins with the `#` or `?` of the last component: directories may have them
/// in their names.
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

/// The options after a question mark.
#[derive(Default)]
struct Query {
    run: Option<ByteRange>,
    superblock: Option<u64>,
}

fn parse_suffix(suffix: &[u8]) -> Result<(Option<u32>, Query), String> {
    let query = suffix.iter().position(|byte| *byte == b'?').unwrap_or(suffix.len());
    let (hash, query) = suffix.split_at(query);
    let partition = match hash {
        [] => None,
        _ => {
            let number = partition_number(hash);
            Some(number.ok_or_else(|| {
                format!("invalid partition `{}` (expected #p1, #p2, ...)", hash.escape_ascii())
            })?)
        }
    };
    let query = match query.split_first() {
        None => Query::default(),
        Some((_, query)) => parse_query(query)?,
    };
    Ok((partition, query))
}

fn parse_query(query: &[u8]) -> Result<Query, String> {
    let (mut offset, mut size, mut superblock) = (None, None, None);
    for option in query.split(|byte| *byte == b'&') {
        let shown = option.escape_ascii();
        let (to, value) = if let Some(value) = option.strip_prefix(b"offset=") {
            (&mut offset, value)
        } else if let Some(value) = option.strip_prefix(b"size=") {
            (&mut size, value)
        } else if let Some(value) = option.strip_prefix(b"sb=") {
            let number = parse_number(value).ok_or_else(|| format!("invalid block `{shown}`"))?;
            if superblock.replace(number).is_some() {
                return Err(format!("`{shown}` given more than once"));
            }
            continue;
        } else {
            return Err(format!("unknown option `{shown}` (expected offset=N, size=N, sb=N)"));
        };
        let value = parse_bytes(value).ok_or_else(|| format!("invalid size `{shown}`"))?;
        if to.replace(value).is_some() {
            return Err(format!("`{shown}` given more than once"));
        }
    }
    let has_run = offset.is_some() || size.is_some();
    let run = has_run.then(|| ByteRange { offset: offset.unwrap_or(0), size });
    Ok(Query { run, superblock })
}

/// A number in digits, without a sign or a unit.
fn parse_number(text: &[u8]) -> Option<u64> {
    let is_number = text.iter().all(u8::is_ascii_digit);
    str::from_utf8(text).ok()?.parse().ok().filter(|_| is_number)
}
