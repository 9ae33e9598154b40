//! `extant find`: paths below a directory that pass every test.

use std::cmp::Ordering;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use extant::rooms::ondisk::inode::FileType;
use extant::rooms::ondisk::time::Timestamp;
use extant::rooms::reader::{Follow, VolumeRead};

use super::Operands;
use crate::describe::{JsonFile, device_of, mode_text};
use crate::failure::Failure;
use crate::reader::{Descend, Image, Walked};
use crate::session::Session;
use crate::{glob, time};

/// Find files by name, type, size and time
///
/// As in find(1), each test may be written with one dash; N means exactly N, +N more, -N less. A
/// file is shown if all tests hold; `!`, `-o` and parentheses are not supported.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
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
    /// The permission bits are exactly MODE; -MODE: all of them are set; /MODE: any of them; octal
    #[arg(long, value_name = "MODE", allow_hyphen_values = true)]
    perm: Option<String>,
    /// The file or directory is empty
    #[arg(long)]
    empty: bool,
    /// Skip files at levels less than this; 0 is the operand itself
    #[arg(long, value_name = "LEVELS")]
    mindepth: Option<u32>,
    /// Descend at most this many levels
    #[arg(long, value_name = "LEVELS")]
    maxdepth: Option<u32>,
    /// Print a NUL after each path, not a newline
    #[arg(long)]
    print0: bool,
    /// Print in the format of `ls -l -i`
    #[arg(long, conflicts_with_all = ["print0", "json"])]
    ls: bool,
    /// Print JSON
    #[arg(long, conflicts_with = "print0")]
    json: bool,
    #[command(flatten)]
    operands: Operands,
}

/// Tests of find(1) that are written with one dash.
const TESTS: [&str; 16] = [
    "name", "iname", "path", "type", "size", "newer", "links", "inum", "uid", "gid", "perm",
    "empty", "mindepth", "maxdepth", "print0", "ls",
];

/// Whether a test of find(1) may have this name; an unknown one is reported by its whole name.
fn is_word(test: &str) -> bool {
    test.len() > 1 && test.bytes().all(|byte| byte.is_ascii_lowercase())
}

/// The command line with `-name` and its kin as `--name`, which is how the table knows them.
pub(crate) fn with_long_options(arguments: Vec<OsString>) -> Vec<OsString> {
    let long = |argument: OsString| match argument.to_str().and_then(|it| it.strip_prefix('-')) {
        Some(test) if TESTS.contains(&test) || is_word(test) => format!("--{test}").into(),
        _ => argument,
    };
    arguments.into_iter().map(long).collect()
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        let tests = Tests::of(&self)?;
        let mut found = Vec::new();
        let mut rows = Vec::new();
        self.operands.each(session, |image, path, session| {
            let newer = match &self.newer {
                Some(path) => Some(image.resolve(path.as_bytes(), Follow::No)?.mtime),
                None => None,
            };
            let start = image.resolve(path, Follow::No)?;
            image.walk(start, path, session, &mut |walked, session| {
                if self.mindepth.is_none_or(|depth| walked.depth >= depth)
                    && tests.hold(image, walked, newer)
                {
                    if self.json {
                        found.push(JsonFile::new(image, &walked.path, &walked.file));
                    } else if self.ls {
                        rows.push(row(image, walked));
                    } else {
                        session.out.name(&walked.path)?;
                        session.out.bytes(if self.print0 { b"\0" } else { b"\n" })?;
                    }
                }
                let is_deep = self.maxdepth.is_some_and(|depth| walked.depth >= depth);
                Ok(if is_deep { Descend::No } else { Descend::Yes })
            })
        })?;
        if self.json {
            session.out.json_array(|element| found.iter().try_for_each(element))?;
        }
        show_rows(&rows, session)
    }
}

/// The tests of a command line, ready to be asked.
struct Tests<'a> {
    args: &'a Args,
    types: Vec<FileType>,
    sizes: Vec<Size>,
    links: Option<Number>,
    inum: Option<Number>,
    uid: Option<Number>,
    gid: Option<Number>,
    perm: Option<Permissions>,
}

impl<'a> Tests<'a> {
    fn of(args: &'a Args) -> Result<Self, Failure> {
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
        })
    }

    fn hold(&self, image: &Image, walked: &Walked, newer: Option<Timestamp>) -> bool {
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
            && newer.is_none_or(|time| file.mtime > time);
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

/// A found file as `-ls` shows it: what is put in columns, and the name.
type Row = ([String; 7], Vec<u8>);

fn row(image: &Image, walked: &Walked) -> Row {
    let file = &walked.file;
    let size = match device_of(file) {
        Some((major, minor)) => format!("{major}, {minor}"),
        None => file.size.to_string(),
    };
    let mut name = walked.path.clone();
    if file.file_type() == FileType::Symlink
        && let Ok(target) = image.volume.read_link(file.number)
    {
        name.extend(b" -> ");
        name.extend(target);
    }
    let cells = [
        file.number.to_string(),
        mode_text(file),
        file.links.to_string(),
        file.uid.to_string(),
        file.gid.to_string(),
        size,
        time::short(file.mtime.seconds),
    ];
    (cells, name)
}

fn show_rows(rows: &[Row], session: &mut Session) -> Result<(), Failure> {
    let width = |column: usize| rows.iter().map(|(cells, _)| cells[column].len()).max();
    let widths: [usize; 7] = std::array::from_fn(|column| width(column).unwrap_or(0));
    for (cells, name) in rows {
        for (cell, width) in cells.iter().zip(widths) {
            session.out.bytes(format!("{cell:>width$} ").as_bytes())?;
        }
        session.out.name(name)?;
        session.out.bytes(b"\n")?;
    }
    Ok(())
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

    #[test]
    fn tests_may_be_written_as_in_find() {
        let words = ["find", "disk.img:/", "-name", "-name*", "-size", "-5k", "-x"];
        let words = words.map(OsString::from).to_vec();
        let long = ["find", "disk.img:/", "--name", "-name*", "--size", "-5k", "-x"];
        assert_eq!(with_long_options(words), long.map(OsString::from).to_vec());
    }
}
