//! The layers of a device URL: `crypt:`, `linear:`, `lvm:`, `model:NAME:`, and their options.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::{DeviceUrl, Found, Part, Run, UrlError, parse_bytes};
use crate::crypt::{CipherSpec, Hash, KeySource, Limits, Plain};
use extant_sim::model::{ModelOptions, Preset};

/// What stands between the files and the device that is meant.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Layer {
    /// `linear:`, the files' runs joined.
    Linear,
    /// `lvm:`, a logical volume on physical volumes.
    Lvm {
        /// Its volume group; the only one if not given.
        group: Option<String>,
        /// Its name; the only one if not given.
        volume: Option<String>,
    },
    /// `crypt:`, deciphered.
    Crypt {
        /// The cipher of a plain device; a LUKS header tells it otherwise.
        plain: Option<Plain>,
        /// Where its key is.
        key: KeySource,
        /// Whether discards are passed on.
        passes_discards: bool,
        /// What a LUKS header may cost.
        limits: Limits,
    },
    /// `model:NAME:`, a simulated drive with the file's contents.
    Model {
        /// The kind of drive.
        preset: &'static Preset,
        /// How it is simulated.
        options: ModelOptions,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Scheme {
    Crypt,
    Linear,
    Lvm,
    /// The kind of drive, if there is one of that name.
    Model(Option<&'static Preset>),
}

impl Scheme {
    const ALL: [Self; 4] = [Self::Crypt, Self::Linear, Self::Lvm, Self::Model(None)];

    /// Whether it is the innermost: nothing but files below.
    fn comes_last(self) -> Option<&'static str> {
        match self {
            Self::Linear => Some("linear: joins files and comes last, as in crypt:linear:A,B"),
            Self::Model(_) => Some("model: is a drive and comes last, as in crypt:model:hdd7200:A"),
            Self::Crypt | Self::Lvm => None,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Crypt => "crypt:",
            Self::Linear => "linear:",
            Self::Lvm => "lvm:",
            Self::Model(_) => "model:",
        }
    }

    fn options(self) -> &'static str {
        match self {
            Self::Crypt => {
                "key-file=FILE, key-fd=N, allow-discards, kdf-memory=SIZE, cipher=NAME, key-size=BITS, hash=NAME, \
                 skip=SECTORS, sector-size=BYTES, iv-large-sectors"
            }
            Self::Linear => "offset=N, size=N",
            Self::Lvm => "vg=NAME, lv=NAME",
            Self::Model(_) => "seed=N, memory=SIZE, processors=N",
        }
    }
}

/// Takes the schemes of layers off, the outermost first.
pub(super) fn take_schemes(text: &[u8]) -> (Vec<Scheme>, &[u8]) {
    let (mut schemes, mut rest) = (Vec::new(), text);
    // Each is taken twice at most: the second time is a mistake that is told of.
    while schemes.len() <= Scheme::ALL.len() {
        let found = Scheme::ALL
            .iter()
            .find_map(|scheme| Some((*scheme, rest.strip_prefix(scheme.text().as_bytes())?)));
        let Some((scheme, after)) = found else { break };
        (schemes, rest) = match scheme {
            Scheme::Model(_) => {
                let end = after.iter().position(|byte| *byte == b':').unwrap_or(after.len());
                let name = str::from_utf8(&after[..end]).unwrap_or_default();
                let preset = Preset::named(name).filter(|_| end < after.len());
                schemes.push(Scheme::Model(preset));
                let taken = if preset.is_some() { end + 1 } else { 0 };
                (schemes, &after[taken..])
            }
            _ => {
                schemes.push(scheme);
                (schemes, after)
            }
        };
    }
    (schemes, rest)
}

/// Reads what follows the schemes.
pub(super) fn parse(
    text: &OsStr,
    schemes: &[Scheme],
    rest: &[u8],
    look: &impl Fn(&Path) -> Found,
) -> Result<DeviceUrl, UrlError> {
    let malformed = |problem| UrlError::Malformed { text: text.to_owned(), problem };
    for (index, scheme) in schemes.iter().enumerate() {
        if schemes[..index].iter().any(|before| before.text() == scheme.text()) {
            return Err(malformed(format!("{} is given twice", scheme.text())));
        }
    }
    for (index, scheme) in schemes.iter().enumerate() {
        if let Some(problem) = scheme.comes_last().filter(|_| index + 1 < schemes.len()) {
            return Err(malformed(problem.to_owned()));
        }
        if *scheme == Scheme::Model(None) {
            let names = Preset::names();
            return Err(malformed(format!("model:NAME:PATH needs the name of a drive: {names}")));
        }
    }
    let pieces = match schemes.last() {
        Some(Scheme::Linear | Scheme::Lvm) => split_at_commas(rest, look)?,
        _ => vec![rest],
    };
    let mut parts = Vec::new();
    let mut layers = Vec::new();
    let last = pieces.len() - 1;
    for (index, piece) in pieces.into_iter().enumerate() {
        let (path, query) = split_query(piece, look)?;
        let (path, partition) = match DeviceUrl::parse_plain(path, look)?.parts.pop() {
            Some(Part { path, partition, .. }) if !path.as_os_str().is_empty() => (path, partition),
            _ => return Err(malformed("a file's name is missing".to_owned())),
        };
        let mut options = Options::parse(query).map_err(malformed)?;
        let run = options.run().map_err(malformed)?;
        parts.push(Part { path, partition, run });
        if index == last {
            let read = schemes.iter().map(|scheme| options.layer(*scheme));
            layers = read.collect::<Result<_, _>>().map_err(malformed)?;
        }
        options.finish(if index == last { schemes } else { &[] }).map_err(malformed)?;
    }
    Ok(DeviceUrl { parts, layers })
}

/// The pieces between commas; a file that is named like the whole is one, unless a file is named like the first piece too.
fn split_at_commas<'a>(
    text: &'a [u8],
    look: &impl Fn(&Path) -> Found,
) -> Result<Vec<&'a [u8]>, UrlError> {
    let pieces: Vec<&[u8]> = text.split(|byte| *byte == b',').collect();
    if pieces.len() == 1 || look(path(text)) != Found::Device {
        return Ok(pieces);
    }
    if look(path(pieces[0])) != Found::Device {
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
    look: &impl Fn(&Path) -> Found,
) -> Result<(&'a OsStr, &'a [u8]), UrlError> {
    let marks: Vec<usize> = (0..piece.len()).filter(|at| piece[*at] == b'?').collect();
    let is_device = |text: &[u8]| {
        let named = DeviceUrl::parse_plain(OsStr::from_bytes(text), look);
        named.is_ok_and(|named| look(named.path()) == Found::Device)
    };
    let found = marks.iter().find(|at| is_device(&piece[..**at])).copied();
    if look(path(piece)) == Found::Device {
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

/// Options as they were given, taken out one by one.
struct Options<'a> {
    given: Vec<(&'a [u8], Option<&'a [u8]>)>,
}

impl<'a> Options<'a> {
    fn parse(query: &'a [u8]) -> Result<Self, String> {
        let mut given: Vec<(&[u8], Option<&[u8]>)> = Vec::new();
        for option in query.split(|byte| *byte == b'&').filter(|option| !option.is_empty()) {
            let equals = option.iter().position(|byte| *byte == b'=');
            let (name, value) = match equals {
                Some(at) => (&option[..at], Some(&option[at + 1..])),
                None => (option, None),
            };
            if given.iter().any(|(known, _)| *known == name) {
                return Err(format!("`{}` is given twice", option.escape_ascii()));
            }
            given.push((name, value));
        }
        Ok(Self { given })
    }

    fn take(&mut self, name: &str) -> Option<Option<&'a [u8]>> {
        let at = self.given.iter().position(|(known, _)| *known == name.as_bytes())?;
        Some(self.given.swap_remove(at).1)
    }

    fn value(&mut self, name: &str) -> Result<Option<&'a [u8]>, String> {
        match self.take(name) {
            Some(Some(value)) if !value.is_empty() => Ok(Some(value)),
            Some(_) => Err(format!("`{name}` needs a value")),
            None => Ok(None),
        }
    }

    fn text(&mut self, name: &str) -> Result<Option<&'a str>, String> {
        let Some(value) = self.value(name)? else { return Ok(None) };
        str::from_utf8(value).map(Some).map_err(|_| format!("`{name}` is no text"))
    }

    fn number<N: std::str::FromStr>(&mut self, name: &str) -> Result<Option<N>, String> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let wrong = || format!("`{name}={}` is no number", text.escape_debug());
        if !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(wrong());
        }
        text.parse().map(Some).map_err(|_| wrong())
    }

    fn flag(&mut self, name: &str) -> Result<bool, String> {
        match self.take(name) {
            Some(Some(_)) => Err(format!("`{name}` takes no value")),
            given => Ok(given.is_some()),
        }
    }

    fn bytes(&mut self, name: &str) -> Result<Option<u64>, String> {
        let Some(value) = self.value(name)? else { return Ok(None) };
        let wrong = || format!("`{name}={}` is no number of bytes", value.escape_ascii());
        parse_bytes(value).map(Some).ok_or_else(wrong)
    }

    fn run(&mut self) -> Result<Option<Run>, String> {
        let (offset, size) = (self.bytes("offset")?, self.bytes("size")?);
        Ok(match (offset, size) {
            (None, None) => None,
            (offset, size) => Some(Run { offset: offset.unwrap_or(0), size }),
        })
    }

    fn layer(&mut self, scheme: Scheme) -> Result<Layer, String> {
        match scheme {
            Scheme::Linear => Ok(Layer::Linear),
            Scheme::Lvm => Ok(Layer::Lvm {
                group: self.text("vg")?.map(str::to_owned),
                volume: self.text("lv")?.map(str::to_owned),
            }),
            Scheme::Crypt => self.crypt(),
            Scheme::Model(preset) => {
                let preset = preset.ok_or("no drive of that name")?;
                let mut options = ModelOptions::default();
                if let Some(seed) = self.number("seed")? {
                    options.seed = seed;
                }
                if let Some(memory) = self.bytes("memory")? {
                    options.memory = memory;
                }
                if let Some(processors) = self.number("processors")? {
                    let problem = "`processors` is 1 to 1024";
                    options.processors = Some(processors)
                        .filter(|count| (1..=1024).contains(count))
                        .ok_or(problem)?;
                }
                Ok(Layer::Model { preset, options })
            }
        }
    }

    fn crypt(&mut self) -> Result<Layer, String> {
        let key = match (self.value("key-file")?, self.number("key-fd")?) {
            (None, None) => KeySource::Prompt,
            (Some(file), None) => KeySource::File(PathBuf::from(OsStr::from_bytes(file))),
            (None, Some(number)) => KeySource::Descriptor(number),
            (Some(_), Some(_)) => return Err("key-file and key-fd do not go together".to_owned()),
        };
        let passes_discards = self.flag("allow-discards")?;
        let mut limits = Limits::default();
        let Some(cipher) = self.text("cipher")? else {
            if let Some(memory) = self.bytes("kdf-memory")? {
                if memory > Limits::MOST_MEMORY {
                    return Err("kdf-memory is 4 GiB at most".to_owned());
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

    /// What nobody took is a mistake.
    fn finish(self, schemes: &[Scheme]) -> Result<(), String> {
        let Some((name, _)) = self.given.first() else { return Ok(()) };
        let name = name.escape_ascii();
        let of_plain = ["key-size", "hash", "skip", "sector-size", "iv-large-sectors"];
        if schemes.contains(&Scheme::Crypt) && of_plain.contains(&&*name.to_string()) {
            return Err(format!("`{name}` belongs to a plain device: cipher=NAME is missing"));
        }
        if schemes.contains(&Scheme::Crypt) && name.to_string() == "kdf-memory" {
            return Err(format!("`{name}` belongs to a LUKS header: cipher=NAME has none"));
        }
        let mut known = vec![Scheme::Linear.options()];
        let others = schemes.iter().filter(|scheme| **scheme != Scheme::Linear);
        known.extend(others.map(|scheme| scheme.options()));
        Err(format!("`{name}` is no option here: {}", known.join(", ")))
    }
}
