//! `extant cp`: files out of an image, and into one.

mod copier;
mod importer;
mod overwrite;

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use extant::rooms::device::FileDevice;
use extant::rooms::image::mkfs::probe::is_ext;
use extant::rooms::ondisk::inode::FileType;
use extant::rooms::reader::{Follow, LoadedInode, VolumeRead};
use extant::rooms::storage::{DeviceUrl, PathTarget, stat_host};

use crate::failure::{At, Failure};
use crate::image_path::{ImagePath, image_paths, inside_or_host, missing_slash};
use crate::output_file::FileId;
use crate::reader::{Image, Images};
use crate::salvage::SalvageArgs;
use crate::session::Session;
use crate::sources::{HostSource, ImageSource, STANDARD_INPUT, Source as _};
use crate::writable_image::{OpenArgs, WritableImage, edit_each};
use copier::{Copied, Copier, FirstCopies, IS_THE_IMAGE, Rules};
use importer::Importer;

/// Copy files into an image, out of one, or between two
///
/// Sources and target are in images or on this machine. Holes are kept. A file gets its name, or
/// replaces an existing file, when the copy is complete. If the target is a symbolic link to a file
/// of this machine, that file is truncated and written in place, as by cp(1): a copy that fails
/// leaves it incomplete.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Copy directories recursively, and symbolic links and device files as such
    #[arg(short, visible_short_alias = 'R')]
    recursive: bool,
    /// Preserve mode, times, extended attributes and ACLs, and ownership if permitted
    #[arg(short)]
    preserve: bool,
    /// Same as -r -p, and preserve hard links among the copied files
    #[arg(short)]
    archive: bool,
    /// Do not overwrite existing files
    #[arg(short)]
    no_clobber: bool,
    /// Print the name of each file copied
    #[arg(short)]
    verbose: bool,
    /// Image; the sources are then paths in it
    #[arg(long, value_name = "IMAGE")]
    image: Option<OsString>,
    /// IMAGE:/path, or a file of this machine; - is standard input
    #[arg(value_name = "SOURCE", required = true)]
    sources: Vec<OsString>,
    /// IMAGE:/path, or a directory or new name on this machine; - is standard output
    #[arg(value_name = "TARGET")]
    target: OsString,
    #[command(flatten)]
    open_args: OpenArgs,
    #[command(flatten)]
    salvage: SalvageArgs,
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        let rules = Rules {
            preserve: self.preserve || self.archive,
            links: self.archive,
            no_clobber: self.no_clobber,
            verbose: self.verbose,
        };
        match PathTarget::parse(&self.target, extant::schemes(), stat_host) {
            Ok(PathTarget::Inside { .. }) if self.salvage.salvage => {
                return Err(Failure::usage("--salvage: only valid for copies out of an image"));
            }
            Ok(PathTarget::Inside { .. }) => return self.copy_in(rules, session),
            Ok(PathTarget::Host(_)) => {}
            Err(error) => return Err(Failure::usage(error)),
        }
        let is_of_host = self.target.as_bytes().starts_with(b"./");
        if let Some(failure) = missing_slash(&self.target).filter(|_| !is_of_host) {
            return Err(failure);
        }
        if self.target == "-" {
            return self.copy_to_stdout(session);
        }
        if let Some(option) = self.open_args.given() {
            let text = format_args!("{option}: only valid for copies into an image");
            return Err(Failure::usage(text));
        }
        let target = Path::new(&self.target);
        self.refuse_image_as_file(target)?;
        self.refuse_files_of_host()?;
        let is_directory = target.is_dir();
        if self.sources.len() > 1 && !is_directory {
            return Err(Failure::at(target, "target is not a directory"));
        }
        let operands = image_paths(self.image.as_deref(), &self.sources)?;
        let mut images = Images::salvaging(&operands, true, &self.salvage, session)?;
        let mut copies: Vec<(Arc<Image>, FirstCopies)> = Vec::new();
        // Files that were copied by the names of operands: a second one of the same name would
        // replace or, through a link that came from the image, overwrite something else.
        let mut made = HashSet::new();
        let mut sources = Vec::new();
        for source in &operands {
            match images.named(source) {
                Ok((image, paths)) => {
                    sources.extend(paths.into_iter().map(|path| (image.clone(), path)));
                }
                Err(failure) => session.error(failure)?,
            }
        }
        if sources.len() > 1 && !is_directory {
            return Err(Failure::at(target, "target is not a directory"));
        }
        for (image, path) in sources {
            let outcome = {
                let known = copies.iter().position(|(of, _)| Arc::ptr_eq(of, &image));
                let at = known.unwrap_or_else(|| {
                    copies.push((image, FirstCopies::new()));
                    copies.len() - 1
                });
                let (image, copies) = &mut copies[at];
                let place = Destination { target, is_directory }.of(&path);
                let copier = Copier::new(image, rules, copies);
                self.copy_one(copier, image, &path, &place, &mut made, session)
            };
            if let Err(failure) = outcome {
                session.error(failure)?;
            }
        }
        images.report_salvage(session)
    }

    /// The arguments of a command of `extant sh`: paths are in its image, and `host:PATH` is a file
    /// of this machine.
    pub(crate) fn in_shell(mut self, image: &OsStr) -> Result<Self, Failure> {
        if self.image.is_some() {
            return Err(Failure::usage("--image: the image is open already"));
        }
        let place = |path: &mut OsString| {
            let bytes = path.as_bytes();
            if bytes == STANDARD_INPUT.as_bytes() {
                return;
            }
            *path = match bytes.strip_prefix(b"host:") {
                Some(host) => OsStr::from_bytes(host).to_owned(),
                None => {
                    let slash: &[u8] = if bytes.starts_with(b"/") { b"" } else { b"/" };
                    OsString::from_vec([image.as_bytes(), b":", slash, bytes].concat())
                }
            };
        };
        self.sources.iter_mut().for_each(place);
        place(&mut self.target);
        Ok(self)
    }

    /// `cp IMAGE:/file -`: the contents of one file.
    fn copy_to_stdout(&self, session: &mut Session) -> Result<(), Failure> {
        let refused = [
            (self.recursive, "-r"),
            (self.preserve, "-p"),
            (self.archive, "-a"),
            (self.no_clobber, "-n"),
            (self.verbose, "-v"),
            (self.open_args.given().is_some(), "an option for changes"),
        ];
        if let Some((_, option)) = refused.iter().find(|(is_given, _)| *is_given) {
            let why = format_args!("{option}: invalid for a copy to standard output");
            return Err(Failure::usage(why));
        }
        let several = || {
            let why = "standard output takes one file: use 'extant cat' for several";
            Err(Failure::usage(format_args!("-: {why}")))
        };
        let sources = image_paths(self.image.as_deref(), &self.sources)?;
        let [source] = &sources[..] else { return several() };
        let mut images = Images::salvaging(&sources, true, &self.salvage, session)?;
        let (image, paths) = images.named(source)?;
        let [path] = &paths[..] else { return several() };
        let file = image.resolve(path, Follow::Yes)?;
        match file.file_type() {
            FileType::Regular => {}
            FileType::Directory => {
                return Err(image.failure(path, "cannot copy a directory to standard output"));
            }
            _ => return Err(image.failure(path, "-r not specified; omitting special file")),
        }
        session.out.flush()?;
        let out = std::io::stdout().as_fd().try_clone_to_owned().at("standard output")?;
        write_to(&image, path, &file, out.into(), Path::new("standard output"))?;
        images.report_salvage(session)
    }

    /// `cp FILE disk.img`: meant is a copy into the image, whose root directory is to be named.
    fn refuse_image_as_file(&self, target: &Path) -> Result<(), Failure> {
        let is_of_host = |source: &OsString| {
            matches!(
                PathTarget::parse(source, extant::schemes(), stat_host),
                Ok(PathTarget::Host(_))
            )
        };
        if self.image.is_some() || !self.sources.iter().all(is_of_host) {
            return Ok(());
        }
        let is_ext = FileDevice::open(target).ok().and_then(|device| is_ext(&device).ok());
        match is_ext {
            None | Some(false) => Ok(()),
            Some(true) => {
                let target = target.display();
                let why = format_args!("{target}: to copy into this image write {target}:/");
                Err(Failure::usage(why))
            }
        }
    }

    /// `cp FILE FILE`: one of them was meant to be inside an image. A source may be an image
    /// without a path: its root.
    fn refuse_files_of_host(&self) -> Result<(), Failure> {
        let is_file = |source: &OsString| {
            let is_ext = |device| is_ext(&device).unwrap_or(true);
            matches!(
                PathTarget::parse(source, extant::schemes(), stat_host),
                Ok(PathTarget::Host(_))
            ) && Path::new(source).exists()
                && !FileDevice::open(Path::new(source)).is_ok_and(is_ext)
        };
        if self.image.is_some() || !self.sources.iter().all(is_file) {
            return Ok(());
        }
        let target = self.target.display();
        let why = format_args!("{target}: no operand is in an image: write IMAGE:/path");
        Err(Failure::usage(why))
    }

    /// Copies files of this machine, of other images, or of the same one into an image.
    fn copy_in(&self, rules: Rules, session: &mut Session) -> Result<(), Failure> {
        let target = ImagePath::parse(&self.target)?;
        self.check_stdin(&target)?;
        // An image is changed by being opened: mistakes are told before.
        self.sources
            .iter()
            .try_for_each(|source| inside_or_host(self.image.as_deref(), source).map(drop))?;
        let missing = self.missing_on_host()?;
        if missing.len() == self.sources.len() {
            return missing.into_iter().try_for_each(|failure| session.error(failure));
        }
        let is_recursive = self.recursive || self.archive;
        let mut images = Images::new(session);
        edit_each(
            std::slice::from_ref(&target),
            self.open_args,
            session,
            |image, place, session| {
                let is_directory = image.fs.metadata(place).is_ok_and(|found| found.is_dir());
                let not_a_directory = || Err(image.failure(place, "target is not a directory"));
                if self.sources.len() > 1 && !is_directory {
                    return not_a_directory();
                }
                if is_directory && self.has_stdin() {
                    let why = "is a directory: standard input needs the name of a file";
                    return Err(image.failure(place, why));
                }
                let mut of_host = Importer::new(image, HostSource, rules, is_recursive);
                let mut of_images: Vec<(DeviceUrl, Importer<'_, ImageSource<'_>>)> = Vec::new();
                // Each with the index of its importer; patterns are matched before the first copy.
                let mut sources: Vec<(Option<usize>, PathBuf)> = Vec::new();
                for source in &self.sources {
                    match inside_or_host(self.image.as_deref(), source)? {
                        None => sources.push((None, source.into())),
                        Some(inside) => {
                            let known = of_images.iter().position(|(url, _)| *url == inside.image);
                            let at = match known {
                                Some(at) => at,
                                None => {
                                    let within = within(&inside, &target, image, &mut images)?;
                                    let importer =
                                        Importer::new(image, within, rules, is_recursive);
                                    of_images.push((inside.image.clone(), importer));
                                    of_images.len() - 1
                                }
                            };
                            match of_images[at].1.named(Path::new(&inside.path)) {
                                Ok(paths) => {
                                    sources.extend(paths.into_iter().map(|it| (Some(at), it)));
                                }
                                Err(failure) => session.error(failure)?,
                            }
                        }
                    }
                }
                if sources.len() > 1 && !is_directory {
                    return not_a_directory();
                }
                let place = Destination { target: place, is_directory };
                for (importer, source) in sources {
                    let place = place.of(source.as_os_str().as_bytes());
                    let copied = match importer {
                        None => of_host.copy(&source, &place, session),
                        Some(at) => of_images[at].1.copy(&source, &place, session),
                    };
                    if let Err(failure) = copied {
                        session.error(failure)?;
                    }
                }
                Ok(())
            },
        )
    }

    /// Whether a source is standard input.
    fn has_stdin(&self) -> bool {
        self.image.is_none() && self.sources.iter().any(|source| source == STANDARD_INPUT)
    }

    /// Refuses standard input next to other sources, and with options about attributes that it
    /// does not have.
    fn check_stdin(&self, target: &ImagePath) -> Result<(), Failure> {
        if !self.has_stdin() {
            return Ok(());
        }
        let why = match () {
            () if self.sources.len() > 1 => "standard input cannot be copied with other files",
            () if self.preserve || self.archive => {
                "-p and -a: standard input has no attributes to preserve"
            }
            () if !target.is_path_given => "standard input needs the name of a file",
            () => return Ok(()),
        };
        Err(Failure::usage(format_args!("-: {why}")))
    }

    /// A failure for each source that this machine does not have.
    fn missing_on_host(&self) -> Result<Vec<Failure>, Failure> {
        let mut missing = Vec::new();
        for source in &self.sources {
            if inside_or_host(self.image.as_deref(), source)?.is_none()
                && let Err(failure) = HostSource.attributes(Path::new(source), Follow::No)
            {
                missing.push(failure);
            }
        }
        Ok(missing)
    }

    fn copy_one(
        &self,
        mut copier: Copier<'_>,
        image: &Image,
        path: &[u8],
        place: &Path,
        made: &mut HashSet<PathBuf>,
        session: &mut Session,
    ) -> Result<(), Failure> {
        let is_recursive = self.recursive || self.archive;
        let file = image.resolve(path, if is_recursive { Follow::No } else { Follow::Yes })?;
        if file.is_dir() && !is_recursive {
            return Err(image.failure(path, "-r not specified; omitting directory"));
        }
        let is_plain = matches!(file.file_type(), FileType::Regular | FileType::Directory);
        if !is_plain && !is_recursive {
            return Err(image.failure(path, "-r not specified; omitting special file"));
        }
        if !file.is_dir() && !made.insert(place.to_owned()) {
            return Err(Failure::at(place, "will not overwrite just-created file"));
        }
        if file.file_type() != FileType::Regular {
            return copier.copy(file, path, place, session);
        }
        if self.no_clobber && place.symlink_metadata().is_ok() {
            return Ok(());
        }
        if place.metadata().is_ok_and(|found| image.lies_in(FileId::of(&found))) {
            return Err(Failure::at(place, IS_THE_IMAGE));
        }
        match HostTarget::of(place)? {
            HostTarget::Name => copier.copy(file, path, place, session),
            HostTarget::Link => copier.through(Copied { file: &file, path, place }, session),
            HostTarget::Stream(out) => {
                session.out.flush()?;
                write_to(image, path, &file, out, place)
            }
        }
    }
}

/// Where copies go.
#[derive(Clone, Copy)]
struct Destination<'t> {
    target: &'t Path,
    is_directory: bool,
}

impl Destination<'_> {
    /// Where a source goes. The root, and `DIR/.`, have no name of their own: what they hold goes
    /// into the target.
    fn of(&self, source: &[u8]) -> PathBuf {
        let name = source.rsplit(|&byte| byte == b'/').next();
        let name = match name.filter(|name| !matches!(*name, b"." | b"..")) {
            Some(b"") => source.split(|&byte| byte == b'/').rfind(|name| !name.is_empty()),
            name => name,
        };
        match name.filter(|_| self.is_directory) {
            Some(name) => self.target.join(OsStr::from_bytes(name)),
            None => self.target.to_owned(),
        }
    }
}

/// The volume that files are copied from into `image`, which is open for changes as `target` names
/// it.
fn within<'i>(
    source: &ImagePath,
    target: &ImagePath,
    image: &'i WritableImage,
    images: &mut Images,
) -> Result<ImageSource<'i>, Failure> {
    if source.image == target.image {
        return Ok(ImageSource::Same(image));
    }
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    let changed: Vec<PathBuf> = target.image.files_written().filter_map(real).collect();
    if source.image.files_read().filter_map(real).any(|path| changed.contains(&path)) {
        // An image that is being changed cannot also be read.
        return Err(Failure::at(&source.name, "source and target are the same image"));
    }
    images.of(source).map(ImageSource::Other)
}

/// The file that a copy is written to, with links followed as by cp(1).
enum HostTarget {
    /// A name to be made, or to be made another file's.
    Name,
    /// A link to a regular file, which is written through it.
    Link,
    /// Something to write to: `/dev/stdout`, a pipe.
    Stream(File),
}

impl HostTarget {
    fn of(place: &Path) -> Result<Self, Failure> {
        let Ok(named) = place.symlink_metadata() else { return Ok(Self::Name) };
        let found = match place.metadata() {
            Err(error) if named.is_symlink() && error.kind() == ErrorKind::NotFound => {
                return Err(Failure::at(place, "not writing through dangling symlink"));
            }
            found => found.at(place)?,
        };
        if found.is_dir() {
            return match named.is_symlink() {
                true => Err(Failure::at(place, "cannot overwrite directory")),
                false => Ok(Self::Name),
            };
        }
        if !named.is_symlink() && found.is_file() {
            return Ok(Self::Name);
        }
        if found.is_file() {
            return Ok(standard_stream(&found).at(place)?.map_or(Self::Link, Self::Stream));
        }
        Ok(Self::Stream(File::options().write(true).open(place).at(place)?))
    }
}

/// Standard output or error, where a link leads to their file: what was written there before stays.
fn standard_stream(found: &Metadata) -> std::io::Result<Option<File>> {
    let streams = [
        std::io::stdout().as_fd().try_clone_to_owned(),
        std::io::stderr().as_fd().try_clone_to_owned(),
    ];
    for stream in streams {
        let stream = File::from(stream?);
        let own = stream.metadata()?;
        if (own.dev(), own.ino()) == (found.dev(), found.ino()) {
            return Ok(Some(stream));
        }
    }
    Ok(None)
}

fn write_to(
    image: &Image,
    path: &[u8],
    file: &LoadedInode,
    mut out: File,
    place: &Path,
) -> Result<(), Failure> {
    if file.is_encrypted() {
        return Err(image.failure(path, "cannot read encrypted contents"));
    }
    let mut buffer = vec![0; 1 << 20];
    let mut at = 0;
    loop {
        let read = image.volume.read_loaded(file, at, &mut buffer);
        let count = read.map_err(|error| image.failure(path, error))?;
        if count == 0 {
            return Ok(());
        }
        match out.write_all(&buffer[..count]) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                return Err(Failure::broken_pipe());
            }
            outcome => outcome.at(place)?,
        }
        at += count as u64;
    }
}
