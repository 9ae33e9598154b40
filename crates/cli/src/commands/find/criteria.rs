//! The tests of `find`.

use std::cmp::Ordering;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::time::UNIX_EPOCH;

use extant::rooms::image::glob;
use extant::rooms::ondisk::inode::FileType;
use extant::rooms::ondisk::time::Timestamp;
use extant::rooms::reader::{Follow, LoadedInode};

use crate::failure::Failure;
use crate::owners::Owners;
use crate::reader::{Image, Walked};
use crate::time;

/// The tests of a command line.
#[derive(Debug, clap::Args)]
pub(super) struct CriteriaArgs {
    /// The base name matches the shell pattern
    #[arg(long, value_name = "PATTERN")]
    name: Vec<OsString>,
    /// Like -name, ignoring case
    #[arg(long, value_name = "PATTERN")]
    iname: Vec<OsString>,
    /// The whole path matches the shell pattern
    #[arg(long, value_name = "PATTERN")]
    path: Vec<OsString>,
    /// The type is one of these, separated by commas: b c d f l p s
    #[arg(long = "type", value_name = "TYPES")]
    types: Option<String>,
    /// The size is N units, rounded up: c (bytes), w, b (512 bytes, the default), k, M or G
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    size: Vec<String>,
    /// Modified after this file of the same image
    #[arg(long, value_name = "/PATH")]
    newer: Option<OsString>,
    /// Modified N days ago (whole days, the rest is ignored)
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    mtime: Vec<String>,
    /// Read N days ago
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    atime: Vec<String>,
    /// Changed (the inode) N days ago
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    ctime: Vec<String>,
    /// Modified N minutes ago (rounded up)
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    mmin: Vec<String>,
    /// Read N minutes ago
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    amin: Vec<String>,
    /// Changed (the inode) N minutes ago
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    cmin: Vec<String>,
    /// The file has N hard links
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    links: Option<String>,
    /// The inode number is N
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    inum: Option<String>,
    /// The numeric user ID is N
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    uid: Option<String>,
    /// The numeric group ID is N
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    gid: Option<String>,
    /// Owned by this user: a number, or a name in the image's /etc/passwd
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// Of this group: a number, or a name in the image's /etc/group
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// The permission bits are exactly MODE; -MODE: all of them are set; /MODE: any of them; octal
    #[arg(long, value_name = "MODE", allow_hyphen_values = true)]
    perm: Option<String>,
    /// The file or directory is empty
    #[arg(long)]
    empty: bool,
}

/// The tests of a command line, parsed.
pub(super) struct Criteria<'a> {
    args: &'a CriteriaArgs,
    types: Vec<FileType>,
    sizes: Vec<Size>,
    links: Option<Number>,
    inum: Option<Number>,
    uid: Option<Number>,
    gid: Option<Number>,
    perm: Option<Permissions>,
    ages: Vec<Age>,
}

/// The values that tests compare with, in one image.
pub(super) struct Compared {
    newer: Option<Timestamp>,
    user: Option<u32>,
    group: Option<u32>,
}

impl<'a> Criteria<'a> {
    pub(super) fn of(args: &'a CriteriaArgs) -> Result<Self, Failure> {
        let number = |test: &str, text: &Option<String>| match text {
            Some(text) => Number::parse(text)
                .map(Some)
                .ok_or_else(|| Failure::usage(format_args!("-{test}: invalid number '{text}'"))),
            None => Ok(None),
        };
        let sizes = args.size.iter().map(|text| {
            Size::parse(text)
                .ok_or_else(|| Failure::usage(format_args!("-size: invalid size '{text}'")))
        });
        let perm = args.perm.as_deref().map(|text| {
            Permissions::parse(text).ok_or_else(|| {
                Failure::usage(format_args!("-perm: invalid mode '{text}' (expected octal)"))
            })
        });
        Ok(Self {
            args,
            types: parse_types(args.types.as_deref().unwrap_or_default())?,
            sizes: sizes.collect::<Result<_, _>>()?,
            links: number("links", &args.links)?,
            inum: number("inum", &args.inum)?,
            uid: number("uid", &args.uid)?,
            gid: number("gid", &args.gid)?,
            perm: perm.transpose()?,
            ages: Age::all(args)?,
        })
    }

    /// Reads what the tests compare with.
    pub(super) fn compared(&self, image: &Image) -> Result<Compared, Failure> {
        let newer = match &self.args.newer {
            Some(path) => Some(image.resolve(path.as_bytes(), Follow::No)?.mtime),
            None => None,
        };
        let number = |of: Owners, name: &Option<String>| match name {
            Some(name) => of.number_in(name, image).map(Some),
            None => Ok(None),
        };
        let user = number(Owners::Users, &self.args.user)?;
        let group = number(Owners::Groups, &self.args.group)?;
        Ok(Compared { newer, user, group })
    }

    pub(super) fn hold(&self, image: &Image, walked: &Walked, compared: &Compared) -> bool {
        let file = &walked.file;
        let all = |patterns: &[OsString], text: &[u8], ignores_case| {
            patterns.iter().all(|it| glob::matches(it.as_bytes(), text, ignores_case))
        };
        let is = |test: &Option<Number>, value: u64| test.is_none_or(|it| it.is(value));
        let name = if walked.name.is_empty() { b"/" } else { &walked.name[..] };
        let holds = all(&self.args.name, name, false)
            && all(&self.args.iname, name, true)
            && all(&self.args.path, &walked.path, false)
            && (self.types.is_empty() || self.types.contains(&file.file_type()))
            && self.sizes.iter().all(|it| it.is(file.size))
            && is(&self.links, file.links.into())
            && is(&self.inum, file.number.0.into())
            && is(&self.uid, file.uid.into())
            && is(&self.gid, file.gid.into())
            && self.perm.is_none_or(|it| it.is(file.permissions()))
            && compared.newer.is_none_or(|time| file.mtime > time)
            && compared.user.is_none_or(|uid| file.uid == uid)
            && compared.group.is_none_or(|gid| file.gid == gid)
            && self.ages.iter().all(|it| it.is(file));
        if !holds || !self.args.empty {
            return holds;
        }
        match file.file_type() {
            FileType::Regular => file.size == 0,
            FileType::Directory => {
                // The walk reports a directory that cannot be read.
                let (names, failures) = image.names(file.number, &walked.path);
                names.is_empty() && failures.is_empty()
            }
            _ => false,
        }
    }
}

fn parse_types(text: &str) -> Result<Vec<FileType>, Failure> {
    text.split(',')
        .filter(|letter| !letter.is_empty())
        .map(|letter| match letter {
            "f" => Ok(FileType::Regular),
            "d" => Ok(FileType::Directory),
            "l" => Ok(FileType::Symlink),
            "b" => Ok(FileType::BlockDevice),
            "c" => Ok(FileType::CharDevice),
            "p" => Ok(FileType::Fifo),
            "s" => Ok(FileType::Socket),
            _ => Err(Failure::usage(format_args!(
                "-type: unknown type '{letter}' (expected b, c, d, f, l, p or s)"
            ))),
        })
        .collect()
}

/// `N`, `+N` or `-N`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Number {
    order: Ordering,
    value: u64,
}

impl Number {
    fn parse(text: &str) -> Option<Self> {
        let (order, digits) = match text.as_bytes().first()? {
            b'+' => (Ordering::Greater, &text[1..]),
            b'-' => (Ordering::Less, &text[1..]),
            _ => (Ordering::Equal, text),
        };
        let is_number = digits.starts_with(|it: char| it.is_ascii_digit());
        Some(Self { order, value: digits.parse().ok().filter(|_| is_number)? })
    }

    fn is(self, value: u64) -> bool {
        value.cmp(&self.value) == self.order
    }

    /// The same for a value that may be below zero, as the age of a file of the future.
    fn is_signed(self, value: i128) -> bool {
        match u64::try_from(value) {
            Ok(value) => self.is(value),
            Err(_) => self.order == Ordering::Less,
        }
    }
}

/// A number of units, sizes rounded up to them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Size {
    number: Number,
    unit: u64,
}

impl Size {
    fn parse(text: &str) -> Option<Self> {
        let (digits, unit) = match text.as_bytes().last()? {
            b'c' => (&text[..text.len() - 1], 1),
            b'w' => (&text[..text.len() - 1], 2),
            b'b' => (&text[..text.len() - 1], 512),
            b'k' => (&text[..text.len() - 1], 1 << 10),
            b'M' => (&text[..text.len() - 1], 1 << 20),
            b'G' => (&text[..text.len() - 1], 1 << 30),
            _ => (text, 512),
        };
        Some(Self { number: Number::parse(digits)?, unit })
    }

    fn is(self, size: u64) -> bool {
        self.number.is(size.div_ceil(self.unit))
    }
}

/// Permission bits: exactly, all of, any of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Permissions {
    Exactly(u16),
    All(u16),
    Any(u16),
}

impl Permissions {
    fn parse(text: &str) -> Option<Self> {
        let octal = |digits: &str| {
            let is_number = !digits.starts_with('+');
            u16::from_str_radix(digits, 8).ok().filter(|&bits| is_number && bits <= 0o7777)
        };
        match text.as_bytes().first()? {
            b'-' => octal(&text[1..]).map(Self::All),
            b'/' => octal(&text[1..]).map(Self::Any),
            _ => octal(text).map(Self::Exactly),
        }
    }

    fn is(self, bits: u16) -> bool {
        match self {
            Self::Exactly(wanted) => bits == wanted,
            Self::All(wanted) => bits & wanted == wanted,
            Self::Any(wanted) => wanted == 0 || bits & wanted != 0,
        }
    }
}

/// Nanoseconds of a second.
const SECOND: i128 = 1_000_000_000;

/// A time of a file compared with the clock.
struct Age {
    time: fn(&LoadedInode) -> Timestamp,
    /// Nanoseconds since 1970, as all numbers here.
    now: i128,
    /// Days are rounded down.
    is_minutes: bool,
    unit: i128,
    number: Number,
}

impl Age {
    fn all(args: &CriteriaArgs) -> Result<Vec<Self>, Failure> {
        const MINUTE: i128 = 60 * SECOND;
        const DAY: i128 = 24 * 60 * MINUTE;
        let mut all = Vec::new();
        let now = time::now()?.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let mut add = |test: &str, texts: &[String], unit, time: fn(&LoadedInode) -> Timestamp| {
            for text in texts {
                let number = Number::parse(text).ok_or_else(|| {
                    Failure::usage(format_args!("-{test}: invalid number '{text}'"))
                })?;
                let is_minutes = unit == MINUTE;
                all.push(Self { time, now: now.cast_signed(), is_minutes, unit, number });
            }
            Ok::<_, Failure>(())
        };
        add("mtime", &args.mtime, DAY, |file| file.mtime)?;
        add("atime", &args.atime, DAY, |file| file.atime)?;
        add("ctime", &args.ctime, DAY, |file| file.ctime)?;
        add("mmin", &args.mmin, MINUTE, |file| file.mtime)?;
        add("amin", &args.amin, MINUTE, |file| file.atime)?;
        add("cmin", &args.cmin, MINUTE, |file| file.ctime)?;
        Ok(all)
    }

    fn is(&self, file: &LoadedInode) -> bool {
        let time = (self.time)(file);
        let age = self.now - i128::from(time.seconds) * SECOND - i128::from(time.nanoseconds);
        // Less than N minutes is exact; else a part of a minute counts as one.
        let is_rounded_up = self.is_minutes && self.number.order != Ordering::Less;
        let rest = if is_rounded_up { self.unit - 1 } else { 0 };
        self.number.is_signed((age + rest).div_euclid(self.unit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_in_find() {
        assert!(Number::parse("5").is_some_and(|it| it.is(5) && !it.is(6)));
        assert!(Number::parse("+5").is_some_and(|it| it.is(6) && !it.is(5)));
        assert!(Number::parse("-5").is_some_and(|it| it.is(4) && !it.is(5)));
        assert_eq!(
            (Number::parse("+-5"), Number::parse(""), Number::parse("x")),
            (None, None, None)
        );
        // Sizes are rounded up: a byte is a whole block, and less than one block is nothing.
        assert!(Size::parse("1").is_some_and(|it| it.is(1) && it.is(512) && !it.is(513)));
        assert!(Size::parse("-1k").is_some_and(|it| it.is(0) && !it.is(1)));
        assert!(Permissions::parse("/022").is_some_and(|it| it.is(0o620) && !it.is(0o600)));
        assert!(Permissions::parse("-022").is_some_and(|it| it.is(0o622) && !it.is(0o620)));
        assert_eq!(Permissions::parse("89"), None);
    }
}
