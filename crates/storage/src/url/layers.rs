//! The layers of a device URL: `overlay:`, `crypt:`, `linear:`, `lvm:`, and those of backends; and
//! their options.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

use super::error::UrlError;
use super::layer::{Backed, Layer};
use super::name::{ByteRange, DeviceUrl, HostFile, Part};
use super::options::UrlOptions;
#[cfg(feature = "crypt")]
use crate::crypt::{CipherSpec, Hash, Limits, Plain};
#[cfg(feature = "crypt")]
use crate::key::KeySource;
use crate::schemes::{Backend, Location, Schemes};

#[derive(Clone, Debug)]
pub(super) enum Scheme<'s> {
    Overlay,
    #[cfg(feature = "crypt")]
    Crypt,
    Linear,
    Lvm,
    /// A backend, and a name of it.
    Backend(&'s Arc<dyn Backend>, Option<&'s str>),
}

impl<'s> Scheme<'s> {
    #[cfg(feature = "crypt")]
    const OWN: [Self; 4] = [Self::Overlay, Self::Crypt, Self::Linear, Self::Lvm];
    #[cfg(not(feature = "crypt"))]
    const OWN: [Self; 3] = [Self::Overlay, Self::Linear, Self::Lvm];

    /// Takes the first scheme off, with the backend's name.
    fn take(text: &'s [u8], schemes: &'s Schemes) -> Option<(Self, &'s [u8])> {
        let strip = |scheme: &Self| text.strip_prefix(scheme.text().as_bytes());
        let mut own = Self::OWN.into_iter();
        if let Some(found) = own.find_map(|scheme| strip(&scheme).map(|rest| (scheme, rest))) {
            return Some(found);
        }
        let mut backends = schemes.backends();
        backends.find_map(|backend| {
            let after = strip(&Self::Backend(backend, None))?;
            if backend.location() != Location::NamedFile {
                return Some((Self::Backend(backend, Some("")), after));
            }
            let end = after.iter().position(|byte| *byte == b':').unwrap_or(after.len());
            let name = str::from_utf8(&after[..end]).unwrap_or_default();
            let name = Some(name).filter(|name| end < after.len() && backend.knows(name));
            let taken = if name.is_some() { end + 1 } else { 0 };
            Some((Self::Backend(backend, name), &after[taken..]))
        })
    }

    /// Whether it is the innermost: nothing but files below.
    fn comes_last(&self) -> Option<&'static str> {
        match self {
            Self::Linear => {
                Some("linear: must be the innermost layer (for example crypt:linear:A,B)")
            }
            Self::Backend(backend, _) => Some(backend.comes_last()),
            _ => None,
        }
    }

    fn text(&self) -> &'static str {
        match self {
            Self::Overlay => "overlay:",
            #[cfg(feature = "crypt")]
            Self::Crypt => "crypt:",
            Self::Linear => "linear:",
            Self::Lvm => "lvm:",
            Self::Backend(backend, _) => backend.scheme(),
        }
    }

    /// Whether what follows is no path of this machine.
    fn is_remote(&self) -> bool {
        matches!(self, Self::Backend(backend, _) if backend.location() == Location::Remote)
    }

    fn options(&self) -> &'static str {
        match self {
            Self::Overlay => "upper=FILE",
            #[cfg(feature = "crypt")]
            Self::Crypt => {
                "key-file=FILE, key-fd=N, allow-discards, kdf-memory=SIZE, cipher=NAME, key-size=BITS, hash=NAME, \
                 skip=SECTORS, sector-size=BYTES, iv-large-sectors"
            }
            Self::Linear => "offset=N, size=N",
            Self::Lvm => "vg=NAME, lv=NAME",
            Self::Backend(backend, _) => backend.options(),
        }
    }
}

/// Takes the schemes of layers off, the outermost first.
pub(super) fn take_schemes<'s>(text: &'s [u8], known: &'s Schemes) -> (Vec<Scheme<'s>>, &'s [u8]) {
    let (mut schemes, mut rest) = (Vec::new(), text);
    // Each is taken twice at most: the second time is a mistake that is reported.
    while schemes.len() <= Scheme::OWN.len() + known.backends().count() {
        let Some((scheme, after)) = Scheme::take(rest, known) else { break };
        schemes.push(scheme);
        rest = after;
    }
    (schemes, rest)
}

/// Whether the innermost of the schemes is followed by something else than a path.
pub(super) fn is_remote(schemes: &[Scheme<'_>]) -> bool {
    schemes.last().is_some_and(Scheme::is_remote)
}

/// Reads what follows the schemes.
pub(super) fn parse(
    text: &OsStr,
    schemes: &[Scheme<'_>],
    rest: &[u8],
    stat_host: &impl Fn(&Path) -> HostFile,
) -> Result<DeviceUrl, UrlError> {
    let malformed = |problem| UrlError::Malformed { text: text.to_owned(), problem };
    if schemes.iter().skip(1).any(|scheme| matches!(scheme, Scheme::Overlay)) {
        let problem = "overlay: must be the outermost layer (for example overlay:linear:A,B)";
        return Err(malformed(problem.to_owned()));
    }
    for (index, scheme) in schemes.iter().enumerate() {
        if schemes[..index].iter().any(|before| before.text() == scheme.text()) {
            return Err(malformed(format!("{} given more than once", scheme.text())));
        }
    }
    for (index, scheme) in schemes.iter().enumerate() {
        if let Some(problem) = scheme.comes_last().filter(|_| index + 1 < schemes.len()) {
            return Err(malformed(problem.to_owned()));
        }
        if let Scheme::Backend(backend, None) = scheme {
            return Err(malformed(backend.name_is_missing()));
        }
    }
    let remote = schemes.last().filter(|scheme| scheme.is_remote());
    let stat_host = &|path: &Path| match remote {
        Some(_) => HostFile::Nothing,
        None => stat_host(path),
    };
    let pieces = match schemes.last() {
        Some(Scheme::Linear | Scheme::Lvm) => split_at_commas(rest, stat_host)?,
        _ => vec![rest],
    };
    let mut parts = Vec::new();
    let mut layers = Vec::new();
    let mut superblock = None;
    let last = pieces.len() - 1;
    for (index, piece) in pieces.into_iter().enumerate() {
        let (path, query) = split_query(piece, stat_host)?;
        let (path, partition) = match DeviceUrl::parse_plain(path, stat_host)?.parts.pop() {
            Some(Part { path, partition, .. }) if remote.is_some() => {
                let mut whole = OsString::from(remote.map_or("", Scheme::text));
                whole.push(path);
                (PathBuf::from(whole), partition)
            }
            Some(Part { path, partition, .. }) if !path.as_os_str().is_empty() => (path, partition),
            _ => return Err(malformed("missing file name".to_owned())),
        };
        let mut options = UrlOptions::parse(query).map_err(malformed)?;
        let run = options.run().map_err(malformed)?;
        parts.push(Part { path, partition, run });
        if index == last {
            superblock = options.number("sb").map_err(malformed)?;
            let read = schemes.iter().map(|scheme| options.layer(scheme));
            layers = read.collect::<Result<_, _>>().map_err(malformed)?;
        }
        options.finish(if index == last { schemes } else { &[] }).map_err(malformed)?;
    }
    Ok(DeviceUrl { parts, layers, superblock })
}

/// The pieces between commas; a file that is named like the whole is one, unless a file is named
/// like the first piece too.
fn split_at_commas<'a>(
    text: &'a [u8],
    stat_host: &impl Fn(&Path) -> HostFile,
) -> Result<Vec<&'a [u8]>, UrlError> {
    let pieces: Vec<&[u8]> = text.split(|byte| *byte == b',').collect();
    if pieces.len() == 1 || stat_host(path(text)) != HostFile::Device {
        return Ok(pieces);
    }
    if stat_host(path(pieces[0])) != HostFile::Device {
        return Ok(vec![text]);
    }
    Err(ambiguous(text, pieces[0]))
}

fn path(text: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(text))
}

fn ambiguous(one: &[u8], other: &[u8]) -> UrlError {
    UrlError::Ambiguous {
        text: OsStr::from_bytes(one).to_owned(),
        one: path(one).to_owned(),
        other: path(other).to_owned(),
    }
}

/// A piece's path, and what follows its question mark: the first one that has a file before it.
fn split_query<'a>(
    piece: &'a [u8],
    stat_host: &impl Fn(&Path) -> HostFile,
) -> Result<(&'a OsStr, &'a [u8]), UrlError> {
    let marks: Vec<usize> = (0..piece.len()).filter(|at| piece[*at] == b'?').collect();
    let is_device = |text: &[u8]| {
        let named = DeviceUrl::parse_plain(OsStr::from_bytes(text), stat_host);
        named.is_ok_and(|named| stat_host(named.path()) == HostFile::Device)
    };
    let found = marks.iter().find(|at| is_device(&piece[..**at])).copied();
    if stat_host(path(piece)) == HostFile::Device {
        return match found {
            Some(at) => Err(ambiguous(piece, &piece[..at])),
            None => Ok((OsStr::from_bytes(piece), &[])),
        };
    }
    match found.or(marks.first().copied()) {
        Some(at) => Ok((OsStr::from_bytes(&piece[..at]), &piece[at + 1..])),
        None => Ok((OsStr::from_bytes(piece), &[])),
    }
}

impl UrlOptions<'_> {
    fn run(&mut self) -> Result<Option<ByteRange>, String> {
        let (offset, size) = (self.bytes("offset")?, self.bytes("size")?);
        Ok(match (offset, size) {
            (None, None) => None,
            (offset, size) => Some(ByteRange { offset: offset.unwrap_or(0), size }),
        })
    }

    fn layer(&mut self, scheme: &Scheme<'_>) -> Result<Layer, String> {
        match scheme {
            Scheme::Overlay => {
                let upper = self.value("upper")?;
                Ok(Layer::Overlay {
                    upper: upper.map(|upper| PathBuf::from(OsStr::from_bytes(upper))),
                })
            }
            Scheme::Linear => Ok(Layer::Linear),
            Scheme::Lvm => Ok(Layer::Lvm {
                group: self.text("vg")?.map(str::to_owned),
                volume: self.text("lv")?.map(str::to_owned),
            }),
            #[cfg(feature = "crypt")]
            Scheme::Crypt => self.crypt(),
            Scheme::Backend(backend, name) => {
                let name = name.ok_or_else(|| backend.name_is_missing())?;
                let given = self.given.clone();
                let place = backend.read(name, self)?;
                let taken = given.into_iter().filter(|option| !self.given.contains(option));
                let owned = |(name, value): (&[u8], Option<&[u8]>)| {
                    (name.to_owned(), value.map(<[u8]>::to_owned))
                };
                let mut options: Vec<_> = taken.map(owned).collect();
                options.sort();
                let (name, is_remote) = (name.to_owned(), scheme.is_remote());
                let scheme = backend.scheme();
                Ok(Layer::Backend(Backed { scheme, name, options, place, is_remote }))
            }
        }
    }

    #[cfg(feature = "crypt")]
    fn crypt(&mut self) -> Result<Layer, String> {
        let key = match (self.value("key-file")?, self.number("key-fd")?) {
            (None, None) => KeySource::Prompt,
            (Some(file), None) => KeySource::File(PathBuf::from(OsStr::from_bytes(file))),
            (None, Some(number)) => KeySource::Descriptor(number),
            (Some(_), Some(_)) => {
                return Err("key-file and key-fd are mutually exclusive".to_owned());
            }
        };
        let passes_discards = self.flag("allow-discards")?;
        let mut limits = Limits::default();
        let Some(cipher) = self.text("cipher")? else {
            if let Some(memory) = self.bytes("kdf-memory")? {
                if memory > Limits::MOST_MEMORY {
                    return Err("kdf-memory: at most 4 GiB".to_owned());
                }
                limits.memory = memory;
            }
            return Ok(Layer::Crypt { plain: None, key, passes_discards, limits });
        };
        let error = |error: crate::crypt::CryptError| error.to_string();
        let mut plain = Plain::new(CipherSpec::parse(cipher).map_err(error)?);
        plain.key_bits = self.number("key-size")?;
        plain.hash = match self.text("hash")? {
            Some("plain") => None,
            Some(name) => Some(Hash::parse(name).map_err(error)?),
            // As cryptsetup: what is typed is hashed, a file's bytes are the key.
            None if key == KeySource::Prompt => Some(Hash::Sha256),
            None => None,
        };
        plain.skip = self.number("skip")?.unwrap_or(0);
        plain.sector_size = self.number("sector-size")?.unwrap_or(512);
        plain.iv_large_sectors = self.flag("iv-large-sectors")?;
        Ok(Layer::Crypt { plain: Some(plain), key, passes_discards, limits })
    }

    /// An option that no layer took is a mistake.
    fn finish(self, schemes: &[Scheme<'_>]) -> Result<(), String> {
        let Some((name, _)) = self.given.first() else { return Ok(()) };
        let name = name.escape_ascii();
        let has_crypt = schemes.iter().any(|scheme| scheme.text() == "crypt:");
        let of_plain = ["key-size", "hash", "skip", "sector-size", "iv-large-sectors"];
        if has_crypt && of_plain.contains(&&*name.to_string()) {
            return Err(format!("`{name}` requires cipher=NAME (a plain device)"));
        }
        if has_crypt && name.to_string() == "kdf-memory" {
            return Err(format!("`{name}` cannot be combined with cipher=NAME (it is for LUKS)"));
        }
        let mut known = vec![Scheme::Linear.options()];
        let others = schemes.iter().filter(|scheme| !matches!(scheme, Scheme::Linear));
        known.extend(others.map(|scheme| scheme.options()));
        Err(format!("unknown option `{name}` (expected {})", known.join(", ")))
    }
}
