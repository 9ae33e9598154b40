//! The command line of mke2fs(8): every letter, as one value.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

use extant_ondisk::superblock::ErrorPolicy;

use super::error::{MkfsError, UsageError, ValueError};
use super::numbers;

/// The name under which the command was called: it decides the default type.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Program {
    /// `extant mkfs`: ext4 unless `-t` is given.
    Extant,
    /// `mke2fs`: the configuration's type, else ext3 with a journal option, else ext2.
    Mke2fs,
    /// `mkfs.ext2`
    MkfsExt2,
    /// `mkfs.ext3`
    MkfsExt3,
    /// `mkfs.ext4`
    MkfsExt4,
}

impl Program {
    /// The program of a name that a link was called by, without its directory.
    pub fn of_name(name: &str) -> Option<Self> {
        match name {
            "mke2fs" => Some(Self::Mke2fs),
            "mkfs.ext2" => Some(Self::MkfsExt2),
            "mkfs.ext3" => Some(Self::MkfsExt3),
            "mkfs.ext4" => Some(Self::MkfsExt4),
            _ => None,
        }
    }

    /// The type that the name implies.
    pub fn fs_type(self) -> Option<&'static str> {
        match self {
            Self::Mke2fs => None,
            Self::MkfsExt2 => Some("ext2"),
            Self::MkfsExt3 => Some("ext3"),
            Self::MkfsExt4 | Self::Extant => Some("ext4"),
        }
    }

    /// As it calls itself in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Extant => "extant mkfs",
            Self::Mke2fs => "mke2fs",
            Self::MkfsExt2 => "mkfs.ext2",
            Self::MkfsExt3 => "mkfs.ext3",
            Self::MkfsExt4 => "mkfs.ext4",
        }
    }
}

/// `-b`, in bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BlockSize {
    /// Exactly this.
    Exactly(u32),
    /// `-b -N`: chosen as by default, but no smaller.
    AtLeast(u32),
}

/// `-e`: the kernel's reaction to an error, by the names of mke2fs(8).
pub(crate) fn error_policy(name: &str) -> Option<ErrorPolicy> {
    match name {
        "continue" => Some(ErrorPolicy::Continue),
        "remount-ro" => Some(ErrorPolicy::RemountReadOnly),
        "panic" => Some(ErrorPolicy::Panic),
        _ => None,
    }
}

/// `-U`
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum UuidChoice {
    /// A new one, version 4.
    #[default]
    Random,
    /// A new one made of the time, version 1.
    Time,
    /// All zero.
    Clear,
    /// This one.
    Given(uuid::Uuid),
}

impl UuidChoice {
    /// Reads the option's value.
    ///
    /// # Errors
    /// [`ValueError::Uuid`] for text that is neither a UUID nor a word for one.
    pub fn parse(text: &str) -> Result<Self, MkfsError> {
        match text {
            "random" => Ok(Self::Random),
            "time" => Ok(Self::Time),
            "clear" | "null" => Ok(Self::Clear),
            // In one form only: other forms name the same UUID, but not to other programs.
            text => match uuid::Uuid::try_parse(text) {
                Ok(uuid) if text.len() == uuid::fmt::Hyphenated::LENGTH => Ok(Self::Given(uuid)),
                _ => Err(ValueError::Uuid(text.to_owned()).into()),
            },
        }
    }
}

/// `-J`, and `-j` for a default journal.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct JournalOptions {
    /// Whether `-j` or `-J` was there at all.
    pub wanted: bool,
    /// MiB; 0 or none: the default for the file system's size.
    pub megabytes: Option<u32>,
    /// KiB.
    pub fast_commit_kilobytes: Option<u32>,
    /// As written: its unit is the block.
    pub location: Option<String>,
    /// A path, `UUID=...` or `LABEL=...`.
    pub device: Option<OsString>,
}

/// The whole command line; `None` or false for options not given.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// `-b`
    pub block_size: Option<BlockSize>,
    /// `-c`: 1 reads every block, 2 writes and reads them.
    pub check_blocks: u8,
    /// `-C`, bytes.
    pub cluster_size: Option<u32>,
    /// `-d`: a directory or a tar archive to fill the file system with.
    pub source: Option<PathBuf>,
    /// `-D`
    pub direct_io: bool,
    /// `-e`
    pub errors: Option<ErrorPolicy>,
    /// `-E`, as written: it is read after the configuration's `options`.
    pub extended: Vec<String>,
    /// `-F`, counted.
    pub force: u8,
    /// `-g`: blocks (with bigalloc: clusters) in a group.
    pub blocks_per_group: Option<u32>,
    /// `-G`: groups in a flex group.
    pub flex_bg_size: Option<u32>,
    /// `-i`: bytes an inode.
    pub inode_ratio: Option<u32>,
    /// `-I`, bytes.
    pub inode_size: Option<u32>,
    /// `-j`, `-J`
    pub journal: JournalOptions,
    /// `-l`: a file with the numbers of bad blocks.
    pub bad_blocks_file: Option<PathBuf>,
    /// `-L`
    pub label: Option<Vec<u8>>,
    /// `-m`, per cent.
    pub reserved_ratio: Option<f64>,
    /// `-M`
    pub last_mounted: Option<Vec<u8>>,
    /// `-n`
    pub dry_run: bool,
    /// `-N`
    pub inodes: Option<u64>,
    /// `-o`
    pub creator_os: Option<String>,
    /// `-O`, as written.
    pub features: Option<String>,
    /// `-q`
    pub quiet: bool,
    /// `-s`: whether backups of the superblock are sparse, overriding `-O`.
    pub sparse_super: Option<bool>,
    /// `-S`
    pub super_only: bool,
    /// `-t`
    pub fs_type: Option<String>,
    /// `-T`
    pub usage_types: Option<String>,
    /// `-U`; `None` where the option is not given.
    pub uuid: Option<String>,
    /// `-v`
    pub verbose: bool,
    /// `-V`
    pub version: bool,
    /// `--wait`, our own: how long use of the device by others is waited for.
    pub wait: Option<Duration>,
    /// `-z`
    pub undo_file: Option<PathBuf>,
    /// The file or block device.
    pub device: PathBuf,
    /// The size after it, as written: its unit depends on the block size.
    pub size: Option<String>,
    /// Accepted options that are deprecated.
    pub warnings: Vec<String>,
}

/// How long `--wait=SECONDS` waits; without a number it waits without end. `None`: not a number.
pub fn wait_of(seconds: &str) -> Option<Duration> {
    match seconds {
        "" => Some(Duration::MAX),
        _ => Some(Duration::from_secs(seconds.parse().ok()?)),
    }
}

/// Letters that take an argument, in the order of mke2fs(8).
const WITH_ARGUMENT: &[u8] = b"bCdeEgGiIJlLmMNoOrRstTUz";

impl Options {
    /// Reads an argument vector without the program's name. Options and operands may be mixed; `--`
    /// ends the options.
    pub fn parse<I>(arguments: I) -> Result<Self, MkfsError>
    where
        I: IntoIterator<Item = OsString>,
    {
        let mut options = Self::default();
        let mut operands = Vec::new();
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let bytes = argument.as_bytes();
            if bytes == b"--" {
                operands.extend(arguments.by_ref());
            } else if let Some(rest) = bytes.strip_prefix(b"--wait") {
                let wait = match rest.strip_prefix(b"=") {
                    None if rest.is_empty() => wait_of(""),
                    None => return Err(UsageError::UnknownOption('-').into()),
                    Some(seconds) => std::str::from_utf8(seconds).ok().and_then(wait_of),
                };
                options.wait = Some(wait.ok_or_else(|| ValueError::Wait(argument.clone()))?);
            } else if bytes.len() < 2 || bytes[0] != b'-' {
                operands.push(argument);
            } else {
                options.take_cluster(&bytes[1..], &mut arguments)?;
            }
        }
        options.take_operands(operands)?;
        Ok(options)
    }

    /// `-qF`, `-b1024`, `-b 1024`: letters up to one that takes the rest, or the next word.
    fn take_cluster(
        &mut self,
        letters: &[u8],
        more: &mut impl Iterator<Item = OsString>,
    ) -> Result<(), MkfsError> {
        for (at, letter) in letters.iter().enumerate() {
            if !WITH_ARGUMENT.contains(letter) {
                self.flag(*letter)?;
                continue;
            }
            let rest = &letters[at + 1..];
            let value = match rest {
                [] => more.next().ok_or(UsageError::MissingArgument(char::from(*letter)))?,
                rest => OsStr::from_bytes(rest).to_owned(),
            };
            return self.with_argument(*letter, value);
        }
        Ok(())
    }

    fn flag(&mut self, letter: u8) -> Result<(), MkfsError> {
        match letter {
            b'c' => self.check_blocks = self.check_blocks.saturating_add(1).min(2),
            b'D' => self.direct_io = true,
            b'F' => self.force = self.force.saturating_add(1),
            b'j' => self.journal.wanted = true,
            b'K' => {
                self.warnings.push("-K is deprecated: use -E nodiscard".to_owned());
                self.extended.push("nodiscard".to_owned());
            }
            b'n' => self.dry_run = true,
            b'q' => self.quiet = true,
            b'S' => self.super_only = true,
            b'v' => self.verbose = true,
            b'V' => self.version = true,
            other => return Err(UsageError::UnknownOption(char::from(other)).into()),
        }
        Ok(())
    }

    fn with_argument(&mut self, letter: u8, value: OsString) -> Result<(), MkfsError> {
        match letter {
            b'd' => self.source = Some(value.into()),
            b'l' => self.bad_blocks_file = Some(value.into()),
            b'L' => self.label = Some(value.into_vec()),
            b'M' => self.last_mounted = Some(value.into_vec()),
            b'z' => self.undo_file = Some(value.into()),
            b'J' => return self.journal.apply(&value),
            _ => {
                let letter_given = char::from(letter);
                let text = value
                    .into_string()
                    .map_err(|value| ValueError::NotText { letter: letter_given, value })?;
                return self.with_text(letter, text);
            }
        }
        Ok(())
    }

    fn with_text(&mut self, letter: u8, text: String) -> Result<(), MkfsError> {
        match letter {
            b'b' => self.block_size = Some(block_size(&text)?),
            b'C' => self.cluster_size = Some(cluster_size(&text)?),
            b'e' => {
                let behavior = error_policy(&text);
                self.errors =
                    Some(behavior.ok_or_else(|| UsageError::ErrorBehavior(text.clone()))?);
            }
            b'E' => self.extended.push(text),
            b'R' => {
                self.warnings.push("-R is deprecated: use -E".to_owned());
                self.extended.push(text);
            }
            b'g' => self.blocks_per_group = Some(blocks_per_group(&text)?),
            b'G' => self.flex_bg_size = Some(flex_bg_size(&text)?),
            b'i' => self.inode_ratio = Some(inode_ratio(&text)?),
            b'I' => self.inode_size = Some(narrow(&text, ValueError::InodeSize)?),
            b'm' => self.reserved_ratio = Some(reserved_ratio(&text)?),
            b'N' => {
                let count = numbers::number(&text);
                self.inodes = Some(count.ok_or(ValueError::InodeCount(text))?);
            }
            b'o' => self.creator_os = Some(text),
            b'O' => match &mut self.features {
                // Given more than once, the lists are one.
                Some(list) => *list = format!("{list},{text}"),
                none => *none = Some(text),
            },
            // As `-E revision=`, which took its place.
            b'r' => {
                let revision = numbers::number(&text);
                let revision = revision.ok_or(ValueError::Revision(text))?;
                // As mke2fs 1.47.4: a user who needs the first revision uses the longer name.
                if revision == 0 {
                    return Err(ValueError::RevisionZero.into());
                }
                self.extended.push(format!("revision={revision}"));
            }
            b's' => {
                self.warnings.push("-s is deprecated: use -O sparse_super".to_owned());
                // As atoi(3) reads it: text without digits is 0.
                let number = text.trim_start().trim_start_matches(['+', '-']);
                let mut digits = number.bytes().take_while(u8::is_ascii_digit);
                self.sparse_super = Some(digits.any(|digit| digit != b'0'));
            }
            b't' => self.fs_type = Some(text),
            b'T' => self.usage_types = Some(text),
            _ => self.uuid = Some(text), // -U, the last of WITH_ARGUMENT
        }
        Ok(())
    }

    fn take_operands(&mut self, operands: Vec<OsString>) -> Result<(), MkfsError> {
        let mut operands = operands.into_iter();
        match operands.next() {
            Some(device) => self.device = device.into(),
            None if self.version => return Ok(()),
            None => return Err(UsageError::NoDevice.into()),
        }
        if let Some(size) = operands.next() {
            let size = size.into_string();
            self.size = Some(size.map_err(ValueError::BlocksNotText)?);
        }
        match operands.next() {
            Some(surplus) => Err(UsageError::Surplus(surplus).into()),
            None => Ok(()),
        }
    }

    /// The choice that `-U` makes.
    pub fn uuid_choice(&self) -> Result<UuidChoice, MkfsError> {
        self.uuid.as_deref().map_or(Ok(UuidChoice::Random), UuidChoice::parse)
    }
}

impl JournalOptions {
    /// Reads a list of `-J`.
    pub(crate) fn apply(&mut self, list: &OsStr) -> Result<(), MkfsError> {
        for item in list.as_bytes().split(|byte| *byte == b',').filter(|item| !item.is_empty()) {
            let mut parts = item.splitn(2, |byte| *byte == b'=');
            let (name, value) = (parts.next().unwrap_or_default(), parts.next());
            self.set(name, value).map_err(|why| MkfsError::BadJournal {
                option: String::from_utf8_lossy(item).into_owned(),
                why,
            })?;
        }
        // The other options are about a journal that is made in any case.
        self.wanted |= self.device.is_some() || self.megabytes.is_some();
        if self.device.is_some() && self.megabytes.is_some() {
            return Err(MkfsError::BadJournal {
                option: list.to_string_lossy().into_owned(),
                why: "only one of size and device can be given",
            });
        }
        Ok(())
    }

    fn set(&mut self, name: &[u8], value: Option<&[u8]>) -> Result<(), &'static str> {
        let value = value.filter(|value| !value.is_empty()).ok_or("an argument is needed")?;
        if name == b"device" {
            self.device = Some(OsStr::from_bytes(value).to_owned());
            return Ok(());
        }
        let text = std::str::from_utf8(value).map_err(|_| "not a number")?;
        let count = || numbers::number(text).and_then(|count| u32::try_from(count).ok());
        match name {
            b"size" => self.megabytes = Some(count().ok_or("not a number of megabytes")?),
            b"fast_commit_size" => {
                self.fast_commit_kilobytes = Some(count().ok_or("not a number of kilobytes")?);
            }
            b"location" => self.location = Some(text.to_owned()),
            _ => return Err("no such journal option"),
        }
        Ok(())
    }
}

fn narrow(text: &str, wrong: fn(String) -> ValueError) -> Result<u32, ValueError> {
    let value = numbers::number(text).and_then(|value| u32::try_from(value).ok());
    value.ok_or_else(|| wrong(text.to_owned()))
}

/// From mke2fs(8): powers of two from 1024 to 65536.
fn block_size(text: &str) -> Result<BlockSize, ValueError> {
    let wrong = || ValueError::BlockSize(text.to_owned());
    let (digits, at_least) = match text.strip_prefix('-') {
        Some(digits) => (digits, true),
        None => (text, false),
    };
    let bytes = numbers::size(digits, 1).ok_or_else(wrong)?;
    let bytes = u32::try_from(bytes).ok().filter(|bytes| (1024..=65536).contains(bytes));
    match bytes.filter(|bytes| at_least || bytes.is_power_of_two()) {
        Some(bytes) if at_least => Ok(BlockSize::AtLeast(bytes)),
        Some(bytes) => Ok(BlockSize::Exactly(bytes)),
        None => Err(wrong()),
    }
}

/// From mke2fs(8): 2048 bytes to 256 MiB.
fn cluster_size(text: &str) -> Result<u32, ValueError> {
    let bytes = numbers::size(text, 1).and_then(|bytes| u32::try_from(bytes).ok());
    bytes
        .filter(|bytes| (2048..=256 << 20).contains(bytes) && bytes.is_power_of_two())
        .ok_or_else(|| ValueError::ClusterSize(text.to_owned()))
}

fn blocks_per_group(text: &str) -> Result<u32, ValueError> {
    let count = narrow(text, ValueError::BlocksPerGroup)?;
    if !count.is_multiple_of(8) {
        return Err(ValueError::BlocksPerGroupMultiple);
    }
    Ok(count)
}

fn flex_bg_size(text: &str) -> Result<u32, ValueError> {
    let count = narrow(text, ValueError::FlexBgSize)?;
    if !count.is_power_of_two() {
        return Err(ValueError::FlexBgSizePower);
    }
    Ok(count)
}

/// The bounds of `-i`, bytes: the smallest block and 1024 times the largest.
const INODE_RATIO: std::ops::RangeInclusive<u32> = 1024..=67_108_864;

fn inode_ratio(text: &str) -> Result<u32, ValueError> {
    let bytes = numbers::number(text).and_then(|bytes| u32::try_from(bytes).ok());
    bytes.filter(|bytes| INODE_RATIO.contains(bytes)).ok_or_else(|| {
        let (min, max) = INODE_RATIO.into_inner();
        ValueError::InodeRatio { text: text.to_owned(), min, max }
    })
}

fn reserved_ratio(text: &str) -> Result<f64, ValueError> {
    let percent = text.parse().ok().filter(|percent| (0.0..=50.0).contains(percent));
    percent.ok_or_else(|| ValueError::ReservedRatio(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Options, MkfsError> {
        Options::parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn letters_cluster_take_attached_values_and_mix_with_operands() {
        let options = parsed("-Fq -b1024 IMAGE -N 12 2M -E stride=4 -E test_fs").expect("valid");
        assert_eq!(options.force, 1);
        assert!(options.quiet);
        assert_eq!(options.block_size, Some(BlockSize::Exactly(1024)));
        assert_eq!(options.inodes, Some(12));
        assert_eq!(options.extended, ["stride=4", "test_fs"]);
        assert_eq!(options.device, PathBuf::from("IMAGE"));
        assert_eq!(options.size.as_deref(), Some("2M"));
    }

    #[test]
    fn a_double_dash_ends_the_options() {
        let options = parsed("-q -- -b 1M").expect("valid");
        assert_eq!(options.device, PathBuf::from("-b"));
    }

    #[test]
    fn journal_options_are_read() {
        let options =
            parsed("-J size=32,fast_commit_size=1024,location=2000 IMAGE").expect("valid");
        let expected = JournalOptions {
            wanted: true,
            megabytes: Some(32),
            fast_commit_kilobytes: Some(1024),
            location: Some("2000".to_owned()),
            device: None,
        };
        assert_eq!(options.journal, expected);
        assert!(parsed("-J size=1,device=/dev/x IMAGE").is_err());
        assert!(parsed("-J sise=1 IMAGE").is_err());
    }

    #[test]
    fn values_out_of_range_are_refused() {
        for line in [
            "",
            "-b 512 I",
            "-b 1000 I",
            "-b 3000 I",
            "-b 131072 I",
            "-b",
            "-C 1024 I",
            "-C 3000 I",
            "-e foo I",
            "-g 100 I",
            "-g x I",
            "-G 3 I",
            "-G 0 I",
            "-i 512 I",
            "-i x I",
            "-m 51 I",
            "-m -1 I",
            "-m nan I",
            "-N x I",
            "-W I",
            "-r 0 I",
            "I -s",
            "-f 1024 I",
            "I 1M surplus",
        ] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }

    /// The last option holds, and text without digits is 0.
    #[test]
    fn sparse_backups_are_requested_by_a_number() {
        let sparse = |line| parsed(line).expect("valid").sparse_super;
        assert_eq!(sparse("I"), None);
        for (line, expected) in
            [("-s 0 I", false), ("-s1 I", true), ("-s -2 I", true), ("-s 1 -s x I", false)]
        {
            assert_eq!(sparse(line), Some(expected), "{line}");
        }
    }

    #[test]
    fn uuid_is_parsed_if_requested() {
        let choice = |line| parsed(line).expect("valid").uuid_choice();
        assert_eq!(choice("I").expect("valid"), UuidChoice::Random);
        assert_eq!(choice("-U clear I").expect("valid"), UuidChoice::Clear);
        assert!(choice("-U bogus I").is_err());
    }
}
