//! `extant diff`: two trees compared, each in an image or on this machine.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use extant::rooms::device::FileDevice;
use extant::rooms::image::mkfs::probe::is_ext;
use extant::rooms::ondisk::inode::FileType;
use extant::rooms::reader::Follow;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::failure::Failure;
use crate::file_type::type_name;
use crate::image_path::ImagePath;
use crate::output::JsonName;
use crate::reader::Images;
use crate::session::Session;
use crate::sources::{Attribute, HostSource, ImageSource, Source, SourceAttributes};
use crate::{say, time};

/// The exit code where the trees differ, as of diff(1).
const DIFFERENT: u8 = 1;
/// The exit code where a part of them could not be read.
const TROUBLE: u8 = 2;
/// The name that every image has in its root directory.
const LOST_AND_FOUND: &str = "lost+found";

/// Compare two trees of files
///
/// Compares names, types, contents, permissions, owners, modification times, extended attributes
/// and hard links. The exit code is 0 for equal trees, 1 for different ones, 2 where a part could
/// not be read. An empty lost+found in an image's root directory is no difference to a directory of
/// this machine.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Compare only names, types and contents
    #[arg(long)]
    contents: bool,
    /// Ignore modification times
    #[arg(long)]
    no_times: bool,
    /// Ignore owners and groups
    #[arg(long)]
    no_owners: bool,
    /// Ignore extended attributes and ACLs
    #[arg(long)]
    no_xattrs: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// IMAGE, IMAGE:/path, or a file or directory of this machine
    #[arg(value_name = "FIRST")]
    first: OsString,
    /// The other tree; with an overlay alone, its base is compared with it
    #[arg(value_name = "SECOND")]
    second: Option<OsString>,
    /// Do not restrict this process (landlock, seccomp)
    #[arg(long)]
    no_sandbox: bool,
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        match self.compare(session).map_err(|failure| failure.with_usual_code(TROUBLE))? {
            true => Ok(()),
            false => Err(Failure::silent(DIFFERENT)),
        }
    }

    /// Whether the trees are equal.
    fn compare(&self, session: &mut Session) -> Result<bool, Failure> {
        let trees = match &self.second {
            Some(second) => Operand::both(&self.first, second)?,
            None => Operand::base_and_overlay(&self.first)?,
        };
        let images: Vec<ImagePath> = trees.iter().filter_map(Operand::image).cloned().collect();
        let mut opened = match images.len() == trees.len() {
            true => Images::restricted(&images, self.no_sandbox, session)?,
            // Paths of this machine are opened all the while.
            false => Images::new(session),
        };
        let [first, second] = trees;
        let sides = [first.open(&mut opened)?, second.open(&mut opened)?];
        let mut comparison = Comparison {
            args: self,
            sides,
            found: Vec::new(),
            second_of: HashMap::new(),
            first_of: HashMap::new(),
            compared: HashSet::new(),
        };
        let errors = session.errors();
        comparison.trees(session)?;
        let found = comparison.found;
        if self.json {
            session.out.json_array(|element| found.iter().try_for_each(element))?;
        }
        if session.errors() > errors {
            return Err(Failure::silent(TROUBLE));
        }
        Ok(found.is_empty())
    }
}

/// A tree as it is named.
enum Operand {
    Host(PathBuf),
    Image(ImagePath),
}

impl Operand {
    /// Next to a file or directory below the root of an image, a file of this machine that holds no
    /// volume is a file, too.
    fn both(first: &OsStr, second: &OsStr) -> Result<[Self; 2], Failure> {
        let mut both = [Self::parse(first)?, Self::parse(second)?];
        for (at, text) in [first, second].into_iter().enumerate() {
            let is_below_root = both[1 - at].image().is_some_and(|it| it.path != "/");
            let is_whole = both[at].image().is_some_and(|it| !it.is_path_given);
            if is_below_root && is_whole && is_no_volume(Path::new(text)) {
                both[at] = Self::Host(text.into());
            }
        }
        Ok(both)
    }

    /// The base of an overlay, and the overlay.
    fn base_and_overlay(text: &OsStr) -> Result<[Self; 2], Failure> {
        let overlay = ImagePath::parse(text)?;
        match overlay.in_base() {
            Some(base) => Ok([Self::Image(base), Self::Image(overlay)]),
            None => {
                let text = text.display();
                let why = "missing operand: only an overlay is compared with its own base";
                Err(Failure::usage(format_args!("{text}: {why}")))
            }
        }
    }

    /// A directory of this machine is one; everything else names an image.
    fn parse(text: &OsStr) -> Result<Self, Failure> {
        match Path::new(text).is_dir() {
            true => Ok(Self::Host(text.into())),
            false => ImagePath::parse(text).map(Self::Image),
        }
    }

    fn image(&self) -> Option<&ImagePath> {
        match self {
            Self::Host(_) => None,
            Self::Image(image) => Some(image),
        }
    }

    fn open(self, images: &mut Images) -> Result<Side, Failure> {
        Ok(match self {
            Self::Host(root) => {
                Side { source: Box::new(HostSource), root, is_root_of_image: false }
            }
            Self::Image(inside) => {
                let source = Box::new(ImageSource::Other(images.of(&inside)?));
                let root = PathBuf::from(&inside.path);
                let is_root_of_image = root == Path::new("/");
                Side { source, root, is_root_of_image }
            }
        })
    }
}

/// Whether this is a file of this machine without the superblock of a volume.
fn is_no_volume(path: &Path) -> bool {
    path.is_file()
        && FileDevice::open(path).is_ok_and(|device| matches!(is_ext(&device), Ok(false)))
}

/// One of the two trees.
struct Side {
    source: Box<dyn Source>,
    /// The path of its root.
    root: PathBuf,
    is_root_of_image: bool,
}

impl Side {
    fn path(&self, below: &Path) -> PathBuf {
        match below.as_os_str().is_empty() {
            true => self.root.clone(),
            false => self.root.join(below),
        }
    }

    fn shown(&self, below: &Path) -> String {
        self.source.shown(&self.path(below))
    }

    /// The root is what it leads to, as an operand of a command is.
    fn attributes(&self, below: &Path) -> Result<SourceAttributes, Failure> {
        let follow = if below.as_os_str().is_empty() { Follow::Yes } else { Follow::No };
        self.source.attributes(&self.path(below), follow)
    }

    /// The names of a directory in byte order.
    fn names(&self, below: &Path, session: &mut Session) -> Result<Vec<OsString>, Failure> {
        let mut names = self.source.names(&self.path(below), session)?;
        names.sort_unstable();
        Ok(names)
    }

    fn xattrs(&self, below: &Path) -> Result<Vec<Attribute>, Failure> {
        let mut xattrs = self.source.xattrs(&self.path(below))?;
        xattrs.sort_unstable();
        Ok(xattrs)
    }

    /// The size of a file, and a hash of what it holds wherever its holes are.
    fn contents(&self, below: &Path) -> Result<(u64, [u8; 32]), Failure> {
        let mut hash = ContentsHash::new();
        let mut buffer = vec![0; 1 << 20];
        let mut put = |data: &[u8], at: u64| {
            hash.add(data, at);
            Ok(())
        };
        let size = self.source.contents(&self.path(below), &mut buffer, &mut put)?;
        Ok((size, hash.finish()))
    }
}

/// A hash of contents that does not depend on which zeros are holes: blocks of zeros are left out.
struct ContentsHash {
    hash: Sha256,
    /// The block that is being filled, and its number.
    block: Box<[u8; Self::BLOCK]>,
    number: u64,
}

impl ContentsHash {
    const BLOCK: usize = 1 << 16;

    fn new() -> Self {
        Self { hash: Sha256::new(), block: Box::new([0; Self::BLOCK]), number: 0 }
    }

    /// Adds data. Data come in the order of their places.
    fn add(&mut self, mut data: &[u8], mut at: u64) {
        while !data.is_empty() {
            let number = at / Self::BLOCK as u64;
            if number != self.number {
                self.end_block();
                self.number = number;
            }
            let within = (at % Self::BLOCK as u64) as usize;
            let len = data.len().min(Self::BLOCK - within);
            self.block[within..within + len].copy_from_slice(&data[..len]);
            data = &data[len..];
            at += len as u64;
        }
    }

    fn end_block(&mut self) {
        if self.block.iter().any(|byte| *byte != 0) {
            self.hash.update(self.number.to_le_bytes());
            self.hash.update(&self.block[..]);
            self.block.fill(0);
        }
    }

    fn finish(mut self) -> [u8; 32] {
        self.end_block();
        self.hash.finalize().into()
    }
}

/// A path at which the trees differ.
#[derive(Serialize)]
struct PathDifference {
    /// Below the roots.
    path: JsonName,
    #[serde(skip_serializing_if = "Option::is_none")]
    only_in: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    differences: Vec<Difference>,
}

/// A difference of a file.
#[derive(Debug, Serialize)]
struct Difference {
    what: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    first: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    second: Option<String>,
}

impl Difference {
    /// Of two values that can be shown.
    fn of<T: PartialEq>(
        what: &'static str,
        values: [T; 2],
        show: fn(&T) -> String,
    ) -> Option<Self> {
        let [first, second] = &values;
        let differ = first != second;
        differ.then(|| Self { what, first: Some(show(first)), second: Some(show(second)) })
    }

    fn text(&self) -> String {
        match (&self.first, &self.second) {
            (Some(first), Some(second)) => format!("{} {first}, {second}", self.what),
            _ => self.what.to_owned(),
        }
    }
}

/// A comparison in progress.
struct Comparison<'a> {
    args: &'a Args,
    sides: [Side; 2],
    found: Vec<PathDifference>,
    /// The file of the second tree that has the names of one of the first, and the other way round:
    /// of files with several names.
    second_of: HashMap<(u64, u64), (u64, u64)>,
    first_of: HashMap<(u64, u64), (u64, u64)>,
    /// Pairs of files with several names that were compared.
    compared: HashSet<[(u64, u64); 2]>,
}

impl Comparison<'_> {
    fn trees(&mut self, session: &mut Session) -> Result<(), Failure> {
        let mut waiting = Vec::new();
        if self.files(Path::new(""), session)? {
            waiting.push(PathBuf::new());
        }
        while let Some(dir) = waiting.pop() {
            let names = self.sides.each_ref().map(|side| side.names(&dir, session));
            let [first, second] = match names {
                [Ok(first), Ok(second)] => [first, second],
                [first, second] => {
                    for failure in [first.err(), second.err()].into_iter().flatten() {
                        session.error(failure.with_code(TROUBLE))?;
                    }
                    continue;
                }
            };
            let mut below = Vec::new();
            for (name, sides) in merged(first, second) {
                let path = dir.join(&name);
                match sides {
                    [true, true] => match self.files(&path, session) {
                        Ok(true) => below.push(path),
                        Ok(false) => {}
                        Err(failure) => session.error(failure.with_code(TROUBLE))?,
                    },
                    [is_first, _] => self.only_in(usize::from(!is_first), &dir, &name, session)?,
                }
            }
            waiting.extend(below.into_iter().rev());
        }
        Ok(())
    }

    /// Compares two files of one path; whether both are directories, whose names come next.
    fn files(&mut self, path: &Path, session: &mut Session) -> Result<bool, Failure> {
        let [first, second] = self.sides.each_ref().map(|side| side.attributes(path));
        let pair = [first?, second?];
        let kinds = pair.each_ref().map(|it| it.kind);
        if kinds[0] != kinds[1] {
            let differences = vec![type_difference(kinds)];
            if !self.args.json {
                let [first, second] = self.sides.each_ref().map(|side| side.shown(path));
                let [one, other] = kinds.map(type_name);
                say!(session, "File {first} is a {one} while file {second} is a {other}")?;
            }
            self.found.push(PathDifference { path: json(path), only_in: None, differences });
            return Ok(false);
        }
        let mut differences = Vec::new();
        let is_compared = self.links(&pair, &mut differences);
        if !is_compared {
            self.attributes(path, &pair, &mut differences)?;
        }
        if !differences.is_empty() {
            if !self.args.json {
                let [first, second] = self.sides.each_ref().map(|side| side.shown(path));
                let texts: Vec<_> = differences.iter().map(Difference::text).collect();
                say!(session, "Files {first} and {second} differ: {}", texts.join("; "))?;
            }
            self.found.push(PathDifference { path: json(path), only_in: None, differences });
        }
        Ok(kinds[0] == FileType::Directory)
    }

    /// Compares which names are the same file; whether these two were compared by other names.
    fn links(&mut self, pair: &[SourceAttributes; 2], differences: &mut Vec<Difference>) -> bool {
        let [first, second] = pair;
        let is_linked = first.links > 1 || second.links > 1;
        if first.kind == FileType::Directory || !is_linked {
            return false;
        }
        let [one, other] = [first.identity, second.identity];
        let expected = *self.second_of.entry(one).or_insert(other);
        let back = *self.first_of.entry(other).or_insert(one);
        if (expected != other || back != one) && !self.args.contents {
            differences.push(Difference { what: "hard links", first: None, second: None });
        }
        !self.compared.insert([one, other])
    }

    fn attributes(
        &self,
        path: &Path,
        pair: &[SourceAttributes; 2],
        differences: &mut Vec<Difference>,
    ) -> Result<(), Failure> {
        let of = |get: fn(&SourceAttributes) -> u32| pair.each_ref().map(get);
        let decimal = |value: &u32| value.to_string();
        let kind = pair[0].kind;
        // Every file system gives links a mode of its own.
        if !self.args.contents && kind != FileType::Symlink {
            let modes = of(|it| it.permissions.into());
            differences.extend(Difference::of("mode", modes, |mode| format!("{mode:04o}")));
        }
        if !self.args.contents && !self.args.no_owners {
            differences.extend(Difference::of("uid", of(|it| it.uid), decimal));
            differences.extend(Difference::of("gid", of(|it| it.gid), decimal));
        }
        if !self.args.contents && !self.args.no_times {
            let times = pair.each_ref().map(|it| (it.mtime.seconds, it.mtime.nanoseconds));
            differences.extend(Difference::of("mtime", times, |time| time::long(time.0, time.1)));
        }
        if !self.args.contents && !self.args.no_xattrs {
            let [first, second] = self.sides.each_ref().map(|side| side.xattrs(path));
            if first? != second? {
                let what = "extended attributes";
                differences.push(Difference { what, first: None, second: None });
            }
        }
        match kind {
            FileType::Regular => {
                let [first, second] = self.sides.each_ref().map(|side| side.contents(path));
                let ((size, hash), (other_size, other_hash)) = (first?, second?);
                let sizes = [size, other_size];
                differences.extend(Difference::of("size", sizes, |size| size.to_string()));
                if size == other_size && hash != other_hash {
                    differences.push(Difference { what: "contents", first: None, second: None });
                }
            }
            FileType::Symlink => {
                let target = |side: &Side| side.source.target(&side.path(path));
                let [first, second] = self.sides.each_ref().map(target);
                let targets = [first?, second?];
                differences.extend(Difference::of("target", targets, |it| shown(it)));
            }
            FileType::BlockDevice | FileType::CharDevice => {
                let numbers = pair.each_ref().map(|it| (it.device.major, it.device.minor));
                let show = |it: &(u32, u32)| format!("{}:{}", it.0, it.1);
                differences.extend(Difference::of("device number", numbers, show));
            }
            FileType::Directory | FileType::Fifo | FileType::Socket => {}
        }
        Ok(())
    }

    /// A name that one tree has alone.
    fn only_in(
        &mut self,
        at: usize,
        dir: &Path,
        name: &OsStr,
        session: &mut Session,
    ) -> Result<(), Failure> {
        let side = &self.sides[at];
        let is_made_by_mkfs = side.is_root_of_image
            && !self.sides[1 - at].is_root_of_image
            && dir.as_os_str().is_empty()
            && name == LOST_AND_FOUND;
        if is_made_by_mkfs && side.names(Path::new(name), session).is_ok_and(|it| it.is_empty()) {
            return Ok(());
        }
        if !self.args.json {
            say!(session, "Only in {}: {}", side.shown(dir), shown(Path::new(name)))?;
        }
        let only_in = Some(["first", "second"][at]);
        self.found.push(PathDifference {
            path: json(&dir.join(name)),
            only_in,
            differences: Vec::new(),
        });
        Ok(())
    }
}

fn type_difference(kinds: [FileType; 2]) -> Difference {
    let [first, second] = kinds.map(|kind| Some(type_name(kind).to_owned()));
    Difference { what: "type", first, second }
}

fn json(path: &Path) -> JsonName {
    path.as_os_str().as_encoded_bytes().into()
}

fn shown(path: &Path) -> String {
    crate::output::printable(path.as_os_str().as_encoded_bytes())
}

/// The names of both in order, with whether the first and the second have them.
fn merged(first: Vec<OsString>, second: Vec<OsString>) -> Vec<(OsString, [bool; 2])> {
    let (mut first, mut second) = (first.into_iter().peekable(), second.into_iter().peekable());
    let mut all = Vec::new();
    loop {
        let order = match (first.peek(), second.peek()) {
            (Some(one), Some(other)) => one.cmp(other),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return all,
        };
        let one = if order.is_le() { first.next() } else { None };
        let other = if order.is_ge() { second.next() } else { None };
        let has = [one.is_some(), other.is_some()];
        all.extend(one.or(other).map(|name| (name, has)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_zeros() {
        let hash = |pieces: &[(&[u8], u64)]| {
            let mut hash = ContentsHash::new();
            pieces.iter().for_each(|(data, at)| hash.add(data, *at));
            hash.finish()
        };
        let block = ContentsHash::BLOCK as u64;
        let zeros = vec![0; 3 * ContentsHash::BLOCK];
        let last: (&[u8], u64) = (b"end", 3 * block);
        assert_eq!(hash(&[(&zeros, 0), last]), hash(&[last]));
        assert_eq!(hash(&[(b"ab", 5)]), hash(&[(b"a", 5), (b"b", 6)]));
        assert_eq!(hash(&[(b"\0\0a", block - 2)]), hash(&[(b"a", block)]));
        assert_ne!(hash(&[(b"a", block)]), hash(&[(b"a", 2 * block)]));
        assert_ne!(hash(&[(b"a", 0)]), hash(&[(b"b", 0)]));
    }

    #[test]
    fn names_of_both_come_once() {
        let names = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        let all: Vec<_> = merged(names("a b d"), names("b c"))
            .into_iter()
            .map(|(name, [first, second])| (name.into_string().unwrap(), first, second))
            .collect();
        let expected =
            [("a", true, false), ("b", true, true), ("c", false, true), ("d", true, false)];
        assert_eq!(all, expected.map(|(name, first, second)| (name.to_owned(), first, second)));
    }
}
