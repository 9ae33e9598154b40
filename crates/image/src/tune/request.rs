//! The requests: tune2fs's options as values.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use extant_ondisk::superblock::ErrorPolicy;

use super::error::{ExtendedError, RequestError, TuneError};
use super::names::{id_of, parse_time};
use crate::mkfs::extended::mmp_interval;
use crate::mkfs::numbers;
use crate::mkfs::options::error_policy;
use crate::mkfs::params::{encoding, encoding_flags, hash_version};
use crate::mkfs::{JournalOptions, UuidChoice};

/// `-c`
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MaxMounts {
    /// A number of mounts; 0 and -1 mean never.
    Count(i32),
    /// 20 to 39, at random.
    Random,
}

/// `-E`
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[allow(missing_docs, reason = "the names are those of tune2fs(8)")]
pub struct Extended {
    pub clear_mmp: bool,
    /// Seconds.
    pub mmp_update_interval: Option<u16>,
    /// Blocks.
    pub stride: Option<u16>,
    /// Blocks.
    pub stripe_width: Option<u32>,
    /// `s_def_hash_version` and its name.
    pub hash_alg: Option<(u8, String)>,
    pub encoding: Option<u16>,
    pub encoding_flags: Option<u16>,
    pub mount_opts: Option<String>,
    /// As written: its unit is the block.
    pub orphan_file_size: Option<String>,
    pub force_fsck: bool,
    pub test_fs: Option<bool>,
}

/// All requests; `None` or empty for those that were not made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    /// `-c`
    pub max_mounts: Option<MaxMounts>,
    /// `-C`
    pub mount_count: Option<u16>,
    /// `-e`
    pub errors: Option<ErrorPolicy>,
    /// `-E`
    pub extended: Extended,
    /// `-f`, counted.
    pub force: u8,
    /// `-g`
    pub reserved_gid: Option<u32>,
    /// `-i`, seconds.
    pub interval: Option<u32>,
    /// `-I`, bytes.
    pub inode_size: Option<u16>,
    /// `-j`, `-J`
    pub journal: JournalOptions,
    /// `-L`
    pub label: Option<Vec<u8>>,
    /// `-m`, per cent.
    pub reserved_ratio: Option<f64>,
    /// `-M`
    pub last_mounted: Option<Vec<u8>>,
    /// `-o`, as written.
    pub mount_options: Option<String>,
    /// `-O`, as written.
    pub features: Option<String>,
    /// `-Q`, as written.
    pub quota: Option<String>,
    /// `-r`, blocks.
    pub reserved_blocks: Option<u64>,
    /// `-T`, seconds since 1970.
    pub last_check: Option<u64>,
    /// `-T` as it is reported; without this the number is.
    pub last_check_text: Option<String>,
    /// `-u`
    pub reserved_uid: Option<u32>,
    /// `-U`
    pub uuid: Option<UuidChoice>,
    /// The image's name where a change of `64bit` is answered as by tune2fs: by naming resize2fs,
    /// and without an error.
    pub name_for_resize2fs: Option<String>,
}

impl Request {
    /// Whether the request is answered as by tune2fs.
    pub(super) fn is_of_tune2fs(&self) -> bool {
        self.name_for_resize2fs.is_some()
    }
}

fn bad<T>(what: &'static str, text: &str) -> Result<T, TuneError> {
    Err(RequestError::Value { what, text: text.to_owned() }.into())
}

impl Request {
    /// Whether anything is requested.
    pub fn is_empty(&self) -> bool {
        let empty = Self { force: self.force, ..Self::default() };
        *self == empty
    }

    /// Whether only features, the journal and quotas are requested, which may be there already.
    pub(super) fn is_about_features(&self) -> bool {
        let list = |text: &Option<String>| text.as_deref().is_none_or(|text| !text.contains('^'));
        let only = Self {
            force: self.force,
            features: self.features.clone(),
            journal: self.journal.clone(),
            quota: self.quota.clone().filter(|_| list(&self.quota)),
            name_for_resize2fs: self.name_for_resize2fs.clone(),
            ..Self::default()
        };
        *self == only
    }

    /// Takes an option by its letter, with its value as the command line has it.
    ///
    /// # Errors
    /// A value that makes no sense.
    ///
    /// # Panics
    /// For a letter that takes no value: the caller's table is wrong.
    pub fn set(&mut self, letter: char, value: &OsStr, now: u64) -> Result<(), TuneError> {
        match letter {
            'L' => {
                self.label = Some(value.as_bytes().to_vec());
                return Ok(());
            }
            'M' => {
                self.last_mounted = Some(value.as_bytes().to_vec());
                return Ok(());
            }
            'J' => return Ok(self.journal.apply(value)?),
            _ => {}
        }
        let Some(text) = value.to_str() else {
            return Err(RequestError::NotText { letter, value: value.to_owned() }.into());
        };
        self.set_text(letter, text, now)
    }

    fn set_text(&mut self, letter: char, text: &str, now: u64) -> Result<(), TuneError> {
        match letter {
            'c' => self.max_mounts = Some(max_mounts(text)?),
            // As the field has it: -1 is 65,535.
            'C' => self.mount_count = Some(count(text)? as u16),
            'e' => match error_policy(text) {
                Some(policy) => self.errors = Some(policy),
                None => return bad("error behavior", text),
            },
            'E' => return self.extended.apply(text),
            'g' => match id_of(text, "/etc/group") {
                Some(id) => self.reserved_gid = Some(id),
                None => return bad("gid/group name", text),
            },
            'i' => self.interval = Some(interval(text)?),
            'I' => {
                let size = numbers::number(text).and_then(|size| u16::try_from(size).ok());
                match size.filter(|size| size.is_power_of_two()) {
                    Some(size) => self.inode_size = Some(size),
                    None => {
                        return Err(RequestError::InodeSize(text.to_owned()).into());
                    }
                }
            }
            'm' => match text.parse().ok().filter(|per_cent| (0.0..=50.0).contains(per_cent)) {
                Some(per_cent) => self.reserved_ratio = Some(per_cent),
                None => return bad("reserved block ratio", text),
            },
            'o' => join(&mut self.mount_options, text),
            'O' => join(&mut self.features, text),
            'Q' => join(&mut self.quota, text),
            'r' => match numbers::number(text) {
                Some(blocks) => self.reserved_blocks = Some(blocks),
                None => return bad("reserved blocks count", text),
            },
            'T' => match parse_time(text, now) {
                Some(time) => self.last_check = Some(time),
                None => {
                    return Err(RequestError::Time(text.to_owned()).into());
                }
            },
            'u' => match id_of(text, "/etc/passwd") {
                Some(id) => self.reserved_uid = Some(id),
                None => return bad("uid/user name", text),
            },
            'U' => self.uuid = Some(UuidChoice::parse(text)?),
            _ => panic!("-{letter} takes no value"),
        }
        Ok(())
    }

    /// Requests that contradict each other on any volume.
    pub(super) fn check(&self) -> Result<(), TuneError> {
        let extended = &self.extended;
        if extended.clear_mmp && self.force == 0 {
            return Err(RequestError::ClearMmpWithoutForce.into());
        }
        if extended.encoding_flags.is_some() && extended.encoding.is_none() {
            return Err(RequestError::EncodingFlagsAlone.into());
        }
        Ok(())
    }
}

/// Given more than once, the lists are one.
fn join(list: &mut Option<String>, text: &str) {
    match list {
        Some(list) => *list = format!("{list},{text}"),
        none => *none = Some(text.to_owned()),
    }
}

fn max_mounts(text: &str) -> Result<MaxMounts, TuneError> {
    if text == "random" {
        return Ok(MaxMounts::Random);
    }
    count(text).map(MaxMounts::Count)
}

/// Mounts, in C's bases, as far as tune2fs counts; -1 for none.
fn count(text: &str) -> Result<i32, TuneError> {
    const MOST: u64 = 16_000;
    match numbers::number(text) {
        _ if text == "-1" => Ok(-1),
        // Below 2^14.
        Some(count @ 0..=MOST) => Ok(count as i32),
        _ => bad("mounts count", text),
    }
}

/// Days, or a number with a unit: d, w, m (of 30 days), and as old versions took them, s.
fn interval(text: &str) -> Result<u32, TuneError> {
    const DAY: u64 = 86_400;
    // The letters of a hexadecimal number are digits.
    let is_letter = |letter: char| letter.is_ascii_alphabetic();
    let digits = if text.starts_with("0x") { text } else { text.trim_end_matches(is_letter) };
    let unit = match &text[digits.len()..] {
        "s" => 1,
        "" | "d" => DAY,
        "w" => 7 * DAY,
        "m" => 30 * DAY,
        _ => return bad("interval", text),
    };
    let seconds = numbers::number(digits).and_then(|count| count.checked_mul(unit));
    match seconds.and_then(|seconds| u32::try_from(seconds).ok()) {
        Some(seconds) => Ok(seconds),
        None => bad("interval", text),
    }
}

impl Extended {
    fn apply(&mut self, list: &str) -> Result<(), TuneError> {
        for item in list.split(',').filter(|item| !item.is_empty()) {
            let (name, value) = match item.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (item, None),
            };
            self.set(name, value)
                .map_err(|problem| RequestError::Extended { item: item.to_owned(), problem })?;
        }
        Ok(())
    }

    fn set(&mut self, name: &str, value: Option<&str>) -> Result<(), ExtendedError> {
        let needed = || value.ok_or(ExtendedError::NoArgument);
        let number = || numbers::number(needed()?).ok_or(ExtendedError::NotANumber);
        let wrong = |_| ExtendedError::OutOfRange;
        match (name, value) {
            ("clear_mmp", None) => self.clear_mmp = true,
            ("force_fsck", None) => self.force_fsck = true,
            ("test_fs", None) => self.test_fs = Some(true),
            ("^test_fs", None) => self.test_fs = Some(false),
            ("mmp_update_interval", _) => {
                let seconds = mmp_interval(needed()?).map_err(ExtendedError::MmpInterval)?;
                self.mmp_update_interval = Some(seconds);
            }
            ("stride", _) => self.stride = Some(u16::try_from(number()?).map_err(wrong)?),
            ("stripe_width" | "stripe-width", _) => {
                self.stripe_width = Some(u32::try_from(number()?).map_err(wrong)?);
            }
            ("hash_alg" | "hash-alg", _) => {
                let name = needed()?;
                let version = hash_version(name);
                let version = version.ok_or(ExtendedError::HashAlgorithm)?;
                self.hash_alg = Some((version, name.to_owned()));
            }
            ("mount_opts", _) => {
                const ROOM: usize = 64;
                let options = needed()?;
                if options.len() >= ROOM {
                    return Err(ExtendedError::MountOptions);
                }
                self.mount_opts = Some(options.to_owned());
            }
            ("encoding", _) => {
                self.encoding = Some(encoding(needed()?)?);
            }
            ("encoding_flags", _) => {
                self.encoding_flags = Some(encoding_flags(needed()?)?);
            }
            ("orphan_file_size", _) => self.orphan_file_size = Some(needed()?.to_owned()),
            _ => return Err(ExtendedError::Unknown),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(letter: char, value: &str) -> Result<Request, TuneError> {
        let mut request = Request::default();
        request.set(letter, OsStr::new(value), 1_000).map(|()| request)
    }

    #[test]
    fn intervals_have_units() {
        let seconds = |text| request('i', text).expect("valid").interval;
        assert_eq!(seconds("10"), Some(864_000));
        assert_eq!(seconds("2w"), Some(1_209_600));
        assert_eq!(seconds("3m"), Some(7_776_000));
        assert_eq!(seconds("0"), Some(0));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let cases = [
            ('c', "x"),
            ('C', "-2"),
            ('e', "bogus"),
            ('i', "5y"),
            ('i', "x"),
            ('I', "200"),
            ('m', "51"),
            ('m', "nan"),
            ('r', "x"),
            ('T', "bogus"),
            ('u', "no such user"),
            ('g', "no such group"),
            ('U', "bogus"),
            ('J', "sise=1"),
            ('E', "bogus"),
            ('E', "stride"),
            ('E', "hash_alg=bogus"),
            ('E', "mmp_update_interval=300"),
            ('E', "encoding=bogus"),
        ];
        for (letter, value) in cases {
            assert!(request(letter, value).is_err(), "-{letter} {value}");
        }
    }

    #[test]
    fn lists_given_twice_are_one() {
        let mut request = request('O', "quota").expect("valid");
        request.set('O', OsStr::new("^mmp"), 0).expect("valid");
        assert_eq!(request.features.as_deref(), Some("quota,^mmp"));
        assert!(!request.is_empty() && Request::default().is_empty());
    }
}
