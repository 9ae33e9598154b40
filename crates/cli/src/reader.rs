//! Images opened for reading, and walks through their trees.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;
use std::sync::Arc;

use extant::rescue::{Salvage, SalvageReport};
use extant::rooms::device::Device;
use extant::rooms::ondisk::InodeNo;
use extant::rooms::ondisk::inode::FileType;
use extant::rooms::reader::{
    BrokenIndex, Error, Follow, Journal, LoadedInode, Reader, ReaderOptions, VolumeRead,
};
use extant::rooms::runtime::sync::Mutex;
use extant::rooms::storage::{DeviceUrl, Files, Keys, Opened};

use crate::commands::Operands;
use crate::failure::Failure;
use crate::image_glob;
use crate::image_path::ImagePath;
use crate::journal_device::{self, Purpose};
use crate::output_file::FileId;
use crate::salvage::{self, SalvageArgs, Salvaging};
use crate::sandbox;
use crate::session::Session;
use crate::writable_image::HeldImage;

/// An image opened for reading.
pub(crate) struct Image {
    /// As it was named.
    name: String,
    pub(crate) volume: Reader,
    /// Files and devices of the image; known if it was opened without restrictions.
    holders: Vec<FileId>,
    /// Directories with bad blocks that were reported.
    reported: Mutex<HashSet<InodeNo>>,
    /// Where it is damaged and read by its repair.
    salvage: Option<Salvaged>,
}

/// A salvage, and what was asked for of it.
struct Salvaged {
    salvage: Salvage,
    /// The files that operands named.
    named: Mutex<Vec<InodeNo>>,
}

impl Image {
    /// Opens the image of an operand. A dirty journal is replayed in memory.
    pub(crate) fn open(inside: &ImagePath) -> Result<Self, Failure> {
        let (holders, device) = (inside.holders(), inside.open()?);
        let journal = journal_device::for_reading(&*device)?;
        Ok(Self { holders, ..Self::on(inside, device, journal)? })
    }

    /// Opens the image of an operand as its repair leaves it.
    fn open_salvaged(inside: &ImagePath, salvaging: &Salvaging) -> Result<Self, Failure> {
        let (files, keys) = inside.open_files()?;
        let journal = salvage::journal(&inside.image, &files);
        let opened =
            inside.image.without_superblock().device(&files, keys).map_err(Failure::new)?;
        Self::salvaged(inside, &opened, journal, salvaging)
    }

    /// The image that `extant sh` has open, as its commands have left it.
    fn of_held(inside: &ImagePath, held: &HeldImage) -> Result<Self, Failure> {
        held.sync()?;
        let (holders, device) = (inside.holders(), held.device());
        let journal = journal_device::for_reading(&*device)?;
        Ok(Self { holders, ..Self::on(inside, device, journal)? })
    }

    /// The image of an operand on its device.
    fn on(inside: &ImagePath, device: Arc<dyn Device>, journal: Journal) -> Result<Self, Failure> {
        let name = inside.name.display().to_string();
        let on_broken_index = BrokenIndex::Scan;
        let superblock = inside.superblock();
        let options =
            ReaderOptions { superblock, journal, on_broken_index, ..ReaderOptions::default() };
        let volume = options.open(device.clone()).map_err(|error| {
            journal_device::not_opened(&name, &*device, &error, Purpose::Reading)
        })?;
        Ok(Self { name, volume, holders: Vec::new(), reported: Mutex::default(), salvage: None })
    }

    /// The image of an operand on its device, which begins at a byte of its file, as its repair
    /// leaves it.
    fn salvaged(
        inside: &ImagePath,
        opened: &Opened,
        journal: Journal,
        salvaging: &Salvaging,
    ) -> Result<Self, Failure> {
        let salvage = salvaging.open(inside, opened, journal)?;
        // The repair has renewed the superblock.
        let image = ImagePath { image: inside.image.without_superblock(), ..inside.clone() };
        let image = Self::on(&image, salvage.device(), Journal::Replay)?;
        let salvage = Some(Salvaged { salvage, named: Mutex::default() });
        Ok(Self { holders: inside.holders(), salvage, ..image })
    }

    /// Whether the image lies in this file of the machine: to write it would destroy what is read.
    pub(crate) fn lies_in(&self, file: FileId) -> bool {
        self.holders.contains(&file)
    }

    /// `IMAGE:/path`, as messages begin.
    pub(crate) fn place(&self, path: &[u8]) -> String {
        let slash = if path.starts_with(b"/") { "" } else { "/" };
        format!("{}:{slash}{}", self.name, crate::output::printable(path))
    }

    /// The same for a pipe: bytes as they are.
    pub(crate) fn raw_place(&self, path: &[u8]) -> Vec<u8> {
        let slash: &[u8] = if path.starts_with(b"/") { b"" } else { b"/" };
        [self.name.as_bytes(), b":", slash, path].concat()
    }

    /// The image as it was named.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// A failure at a path of the image.
    pub(crate) fn failure(&self, path: &[u8], error: impl std::fmt::Display) -> Failure {
        Failure::new(format_args!("{}: {error}", self.place(path)))
    }

    /// The file of a path. Missing names read as the shell tells them.
    pub(crate) fn resolve(&self, path: &[u8], follow: Follow) -> Result<LoadedInode, Failure> {
        let found = self.volume.resolve(path, follow).map_err(|error| match error {
            Error::NotFound => self.failure(path, "no such file or directory"),
            error => self.failure(path, error),
        })?;
        if let Some(salvaged) = &self.salvage {
            let mut named = salvaged.named.lock();
            named.push(found.number);
            // A link that leads to another file is damage too.
            named.extend(self.volume.resolve(path, Follow::No).ok().map(|link| link.number));
        }
        Ok(found)
    }

    /// The report on the files that operands named; `None` where the image is not salvaged.
    fn salvage_report(&self) -> Result<Option<SalvageReport>, Failure> {
        let Some(salvaged) = &self.salvage else { return Ok(None) };
        let named = salvaged.named.lock().clone();
        let report =
            salvaged.salvage.report(&named).map_err(|error| Failure::at(&self.name, error))?;
        Ok(Some(report))
    }

    /// The names of a directory in byte order, without `.` and `..`, and a failure for each block
    /// of it that cannot be read.
    pub(crate) fn names(&self, dir: InodeNo, path: &[u8]) -> (Vec<Name>, Vec<Failure>) {
        let mut names = Vec::new();
        let mut failures = Vec::new();
        match self.volume.read_dir(dir, 0) {
            Ok(entries) => {
                for entry in entries {
                    match entry {
                        Ok(entry) if matches!(&entry.name[..], b"." | b"..") => {}
                        Ok(entry) => names.push(Name { name: entry.name, inode: entry.inode }),
                        Err(error) => {
                            let what = self.volume.read_dir_message(dir, &error);
                            failures.push(self.failure(path, what));
                        }
                    }
                }
            }
            Err(error) => failures.push(self.failure(path, error)),
        }
        names.sort_by(|a, b| a.name.cmp(&b.name));
        (names, failures)
    }

    /// Reports what [`Self::names`] could not read of a directory, once.
    pub(crate) fn report(
        &self,
        dir: InodeNo,
        failures: Vec<Failure>,
        session: &mut Session,
    ) -> Result<(), Failure> {
        if failures.is_empty() || !self.reported.lock().insert(dir) {
            return Ok(());
        }
        failures.into_iter().try_for_each(|failure| session.error(failure))
    }

    /// Walks a tree from a file on, directories before what they hold, names in byte order. What
    /// cannot be read is reported and left out; so is a directory that was seen before, so that
    /// loops end.
    pub(crate) fn walk(
        &self,
        start: LoadedInode,
        path: &[u8],
        session: &mut Session,
        visit: &mut dyn FnMut(&Walked, &mut Session) -> Result<Descend, Failure>,
    ) -> Result<(), Failure> {
        self.walk_some(start, path, session, &|_| true, visit)
    }

    /// Like [`Self::walk`], past all names that `keeps` does not keep.
    pub(crate) fn walk_some(
        &self,
        start: LoadedInode,
        path: &[u8],
        session: &mut Session,
        keeps: &dyn Fn(&Name) -> bool,
        visit: &mut dyn FnMut(&Walked, &mut Session) -> Result<Descend, Failure>,
    ) -> Result<(), Failure> {
        let mut seen = HashSet::new();
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default().to_vec();
        let mut waiting = vec![Waiting::File(Box::new(Walked {
            path: path.to_vec(),
            name,
            depth: 0,
            is_last: true,
            file: start,
        }))];
        while let Some(next) = waiting.pop() {
            let walked = match next {
                Waiting::File(walked) => *walked,
                Waiting::Name { parent, name, depth, is_last } => {
                    let path = join(&parent, &name.name);
                    match self.volume.inode(name.inode) {
                        Ok(file) => Walked { path, name: name.name, depth, is_last, file },
                        Err(error) => {
                            session.error(self.failure(&path, error))?;
                            continue;
                        }
                    }
                }
            };
            let is_dir = walked.file.is_dir();
            if is_dir && !seen.insert(walked.file.number) {
                let why = "directory already visited under another name; skipped";
                session.error(self.failure(&walked.path, why))?;
                continue;
            }
            if visit(&walked, session)? == Descend::No || !is_dir {
                continue;
            }
            let (mut names, failures) = self.names(walked.file.number, &walked.path);
            names.retain(keeps);
            self.report(walked.file.number, failures, session)?;
            let parent: Arc<[u8]> = walked.path.into();
            let last = names.len().saturating_sub(1);
            waiting.extend(names.into_iter().enumerate().rev().map(|(at, name)| Waiting::Name {
                parent: parent.clone(),
                name,
                depth: walked.depth + 1,
                is_last: at == last,
            }));
        }
        Ok(())
    }
}

/// A name of a directory.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    pub(crate) name: Vec<u8>,
    pub(crate) inode: InodeNo,
}

/// A file that a walk comes by.
pub(crate) struct Walked {
    /// The path, as the operand began it.
    pub(crate) path: Vec<u8>,
    /// Its last part.
    pub(crate) name: Vec<u8>,
    /// Steps below the operand.
    pub(crate) depth: u32,
    /// Whether it is its directory's last name.
    pub(crate) is_last: bool,
    pub(crate) file: LoadedInode,
}

/// Whether a walk goes into a directory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Descend {
    Yes,
    No,
}

enum Waiting {
    File(Box<Walked>),
    Name { parent: Arc<[u8]>, name: Name, depth: u32, is_last: bool },
}

/// `parent/name`, with one slash between.
pub(crate) fn join(parent: &[u8], name: &[u8]) -> Vec<u8> {
    let separator: &[u8] = if parent.ends_with(b"/") { b"" } else { b"/" };
    [parent, separator, name].concat()
}

/// State of an image from before the process restricted itself: its files, its key, and what to
/// do with its journal; or why they were not had.
type HadBefore = Result<(Files, Keys, Journal), String>;

/// The images of a command's operands, each opened once.
#[derive(Default)]
pub(crate) struct Images {
    opened: Vec<(DeviceUrl, Arc<Image>)>,
    /// Files that were opened while paths could be.
    files: Vec<(DeviceUrl, HadBefore)>,
    /// The image that is open already.
    held: Option<Rc<HeldImage>>,
    salvaging: Option<Salvaging>,
}

impl Images {
    /// None yet, but for one that is held for the commands of the session.
    pub(crate) fn new(session: &Session) -> Self {
        Self { held: HeldImage::of_session(session), ..Self::default() }
    }

    /// Opens the files of all operands, and restricts the process before it reads more of them than
    /// superblocks. A shell, whose image is open for changes, is not restricted.
    pub(crate) fn restricted(
        operands: &[ImagePath],
        no_sandbox: bool,
        session: &Session,
    ) -> Result<Self, Failure> {
        Self::salvaging(operands, no_sandbox, &SalvageArgs::default(), session)
    }

    /// The same for a command with `--salvage`.
    pub(crate) fn salvaging(
        operands: &[ImagePath],
        no_sandbox: bool,
        salvage: &SalvageArgs,
        session: &Session,
    ) -> Result<Self, Failure> {
        let images = Self::new(session);
        let salvaging = salvage.prepare(operands, images.held.is_some())?;
        let mut images = Self { salvaging, ..images };
        if no_sandbox || images.held.is_some() {
            return Ok(images);
        }
        let is_salvaged = images.salvaging.is_some();
        let had = |inside: &ImagePath| -> Result<_, Failure> {
            let (files, keys) = inside.open_files()?;
            let journal = match is_salvaged {
                true => salvage::journal(&inside.image, &files),
                false => journal_device::for_reading_of(&inside.image, &files)?,
            };
            Ok((files, keys, journal))
        };
        for inside in operands {
            if !images.files.iter().any(|(url, _)| *url == inside.image) {
                let had = had(inside).map_err(Failure::sentence);
                images.files.push((inside.image.clone(), had));
            }
        }
        sandbox::enter(no_sandbox, &[])?;
        Ok(images)
    }

    /// The image of an operand.
    pub(crate) fn of(&mut self, inside: &ImagePath) -> Result<Arc<Image>, Failure> {
        if let Some((_, image)) = self.opened.iter().find(|(url, _)| *url == inside.image) {
            return Ok(image.clone());
        }
        let image = Arc::new(match self.files.iter_mut().find(|(url, _)| *url == inside.image) {
            Some((url, had)) => {
                // The key is wiped when it has been used. A second operand of an image that did not
                // open hears the same.
                let (files, keys, journal) = match std::mem::replace(had, Err(String::new())) {
                    Ok(had) => had,
                    Err(why) => {
                        *had = Err(why.clone());
                        return Err(Failure::new(why));
                    }
                };
                let opened = url.without_superblock().device(&files, keys).map_err(Failure::new);
                let opened = opened.and_then(|opened| match &self.salvaging {
                    Some(salvaging) => Image::salvaged(inside, &opened, journal, salvaging),
                    None => Image::on(inside, opened.device, journal),
                });
                opened.map_err(|failure| {
                    let why = failure.sentence();
                    *had = Err(why.clone());
                    Failure::new(why)
                })?
            }
            None => match self.held.as_deref().filter(|held| held.is(inside)) {
                Some(held) => Image::of_held(inside, held)?,
                None => match &self.salvaging {
                    Some(salvaging) => Image::open_salvaged(inside, salvaging)?,
                    None => Image::open(inside)?,
                },
            },
        });
        self.opened.push((inside.image.clone(), image.clone()));
        Ok(image)
    }
}

impl Images {
    /// Says what the files of salvaged images lack, and writes the report.
    pub(crate) fn report_salvage(&mut self, session: &mut Session) -> Result<(), Failure> {
        let Some(salvaging) = &mut self.salvaging else { return Ok(()) };
        let mut reports = Vec::new();
        for (_, image) in &self.opened {
            if let Some(report) = image.salvage_report()? {
                reports.push((image.clone(), report));
            }
        }
        salvaging.write(reports.iter().map(|(image, report)| (image.name(), report)))?;
        for (image, report) in &reports {
            tell_lost(image, report, session)?;
        }
        Ok(())
    }
}

/// Says what an image lacks: a failure for each file that may not be whole.
fn tell_lost(image: &Image, report: &SalvageReport, session: &mut Session) -> Result<(), Failure> {
    if !report.journal.is_empty() {
        let what = salvage::describe_journal(&report.journal);
        session.error(Failure::at(&image.name, what))?;
    }
    for file in &report.files {
        session.error(image.failure(&file.path, salvage::describe(file)))?;
    }
    if !report.is_partly {
        return Ok(());
    }
    for lost in &report.lost {
        let path = join(lost.dir.as_deref().unwrap_or(b"?"), &lost.name);
        session.error(image.failure(&path, "lost: its inode is damaged"))?;
    }
    Ok(())
}

/// A file that an operand names, by its path or as one of those that its pattern matches.
pub(crate) struct NamedFile {
    pub(crate) image: Arc<Image>,
    pub(crate) path: Vec<u8>,
    /// Which of the operands it is from.
    pub(crate) operand: usize,
    /// Whether the operands name no other file.
    pub(crate) is_only: bool,
}

impl Operands {
    /// Runs `work` for each file that the operands name, in the sandbox. One that fails does not
    /// stop the next.
    pub(crate) fn each(
        &self,
        session: &mut Session,
        mut work: impl FnMut(&Image, &[u8], &mut Session) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.each_named(session, |named, session| work(&named.image, &named.path, session))
    }

    /// As [`Self::each`], with where each file is from.
    pub(crate) fn each_named(
        &self,
        session: &mut Session,
        work: impl FnMut(&NamedFile, &mut Session) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.each_salvaged(&SalvageArgs::default(), session, work)
    }

    /// As [`Self::each_named`] for a command with `--salvage`.
    pub(crate) fn each_salvaged(
        &self,
        salvage: &SalvageArgs,
        session: &mut Session,
        mut work: impl FnMut(&NamedFile, &mut Session) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let operands = self.inside()?;
        let mut images = Images::salvaging(&operands, self.no_sandbox, salvage, session)?;
        let mut files = Vec::new();
        for (operand, inside) in operands.iter().enumerate() {
            match images.named(inside) {
                Ok((image, paths)) => files.extend(paths.into_iter().map(|path| {
                    let image = image.clone();
                    Ok(NamedFile { image, path, operand, is_only: false })
                })),
                Err(failure) => files.push(Err(failure)),
            }
        }
        let is_only = files.len() == 1;
        for file in files {
            let outcome = file.and_then(|named| work(&NamedFile { is_only, ..named }, session));
            if let Err(failure) = outcome {
                session.error(failure)?;
            }
        }
        images.report_salvage(session)
    }
}

impl Images {
    /// The image of an operand, and the paths that it names there: at least one.
    pub(crate) fn named(
        &mut self,
        inside: &ImagePath,
    ) -> Result<(Arc<Image>, Vec<Vec<u8>>), Failure> {
        let image = self.of(inside)?;
        let path = bytes_of(&inside.path);
        let paths = image_glob::matches(&image.volume, path);
        let paths = paths.map_err(|error| image.failure(path, error))?;
        match paths.is_empty() {
            true => Err(image.failure(path, "no such file or directory")),
            false => Ok((image, paths)),
        }
    }
}

fn bytes_of(path: &OsStr) -> &[u8] {
    path.as_bytes()
}

/// The letter of a file type, as `ls -l` and `find -type` have it (`-` is `f` there).
pub(crate) fn type_letter(file_type: FileType) -> char {
    match file_type {
        FileType::Regular => '-',
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        FileType::BlockDevice => 'b',
        FileType::CharDevice => 'c',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
    }
}
