//! `extant cp`: files out of an image, and into one.

mod copier;
mod importer;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use extant_device::url::{Target, look};
use extant_ondisk::inode::FileType;
use extant_volume::{Follow, LoadedInode};

use crate::editor::edit_each;
use crate::failure::{At, Failure};
use crate::inside::{Inside, inside_of};
use crate::reader::{Image, Images};
use crate::session::Session;
use copier::{Copier, FirstCopies, Rules};
use importer::Importer;

/// Copy files out of an image, or into one
///
/// One side is inside an image, the other is this machine. Holes stay holes. A file of the image that is replaced has its old
/// contents until the copy is whole.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directories with all they hold; symlinks and devices as such
    #[arg(short, visible_short_alias = 'R')]
    recursive: bool,
    /// Keep modes, owners where allowed, times, extended attributes and ACLs
    #[arg(short)]
    preserve: bool,
    /// All of `-r -p`, and hard links among the copied files stay hard links
    #[arg(short)]
    archive: bool,
    /// Leave files that exist as they are
    #[arg(short)]
    no_clobber: bool,
    /// Name each file that is copied
    #[arg(short)]
    verbose: bool,
    /// The image, spelled out: the sources are then paths inside it
    #[arg(long, value_name = "IMAGE")]
    image: Option<OsString>,
    /// IMAGE:/path, or files of this machine
    #[arg(value_name = "SOURCE", required = true)]
    sources: Vec<OsString>,
    /// A directory of this machine or a new name there, or IMAGE:/path
    #[arg(value_name = "TARGET")]
    target: OsString,
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        let rules = Rules {
            preserve: self.preserve || self.archive,
            links: self.archive,
            no_clobber: self.no_clobber,
            verbose: self.verbose,
        };
        if let Ok(Target::Inside { .. }) = Target::parse(&self.target, look) {
            return self.copy_in(rules, session);
        }
        let target = Path::new(&self.target);
        let is_directory = target.is_dir();
        if self.sources.len() > 1 && !is_directory {
            return Err(Failure::at(target, "not a directory, and there are several sources"));
        }
        let mut images = Images::default();
        let mut copies: Vec<(Arc<Image>, FirstCopies)> = Vec::new();
        for source in inside_of(self.image.as_deref(), &self.sources)? {
            let outcome = images.of(&source).and_then(|image| {
                let known = copies.iter().position(|(of, _)| Arc::ptr_eq(of, &image));
                let at = known.unwrap_or_else(|| {
                    copies.push((image, FirstCopies::new()));
                    copies.len() - 1
                });
                let (image, copies) = &mut copies[at];
                let path = source.path.as_bytes();
                let place = Place { target, is_directory };
                self.copy_one(Copier::new(image, rules, copies), image, path, place, session)
            });
            if let Err(failure) = outcome {
                session.complain(failure)?;
            }
        }
        Ok(())
    }

    /// Copies files of this machine into an image.
    fn copy_in(&self, rules: Rules, session: &mut Session) -> Result<(), Failure> {
        let is_inside = |source: &OsString| {
            let target = Target::parse(source, look);
            self.image.is_some() || matches!(target, Ok(Target::Inside { .. }))
        };
        if self.sources.iter().any(is_inside) {
            return Err(Failure::not_built("copying from an image to an image"));
        }
        let target = Inside::parse(&self.target)?;
        edit_each(&[target], session, |image, target, session| {
            let is_directory = image.fs.metadata(target).is_ok_and(|found| found.is_dir());
            if self.sources.len() > 1 && !is_directory {
                return Err(image.failure(target, "not a directory, and there are several sources"));
            }
            let mut importer = Importer::new(image, rules, self.recursive || self.archive);
            for source in &self.sources {
                let source = Path::new(source);
                // What `DIR/.` holds goes into the target.
                let ends_in_dot = source.as_os_str().as_bytes().ends_with(b"/.");
                let name = source.file_name().filter(|_| is_directory && !ends_in_dot);
                let place = match name {
                    Some(name) => target.join(name),
                    None => target.to_owned(),
                };
                if let Err(failure) = importer.copy(source, &place, session) {
                    session.complain(failure)?;
                }
            }
            Ok(())
        })
    }

    fn copy_one(
        &self,
        mut copier: Copier<'_>,
        image: &Image,
        path: &[u8],
        Place { target, is_directory }: Place<'_>,
        session: &mut Session,
    ) -> Result<(), Failure> {
        let is_recursive = self.recursive || self.archive;
        let file = image.resolve(path, if is_recursive { Follow::No } else { Follow::Yes })?;
        if file.is_dir() && !is_recursive {
            return Err(image.failure(path, "a directory, left out without -r"));
        }
        let is_plain = matches!(file.file_type(), FileType::Regular | FileType::Directory);
        if !is_plain && !is_recursive {
            return Err(image.failure(path, "not a regular file, left out without -r"));
        }
        // The root, and `DIR/.`, have no name of their own: what they hold goes into the target.
        let name = path.rsplit(|&byte| byte == b'/').next().filter(|&name| name != b".");
        let name = match name {
            Some(b"") => path.split(|&byte| byte == b'/').rfind(|name| !name.is_empty()),
            name => name,
        };
        let place = match name.filter(|_| is_directory) {
            Some(name) => target.join(OsStr::from_bytes(name)),
            None => target.to_owned(),
        };
        if !file.is_dir() && place == target && is_stream(target) {
            return write_to(image, path, &file, target);
        }
        copier.copy(file, path, &place, session)
    }
}

/// Where copies go.
struct Place<'t> {
    target: &'t Path,
    is_directory: bool,
}

/// Whether a place is something to write to, rather than a file to be made: `/dev/stdout`, a pipe.
fn is_stream(place: &Path) -> bool {
    let kind = place.metadata().map(|metadata| metadata.file_type());
    kind.is_ok_and(|kind| !kind.is_file() && !kind.is_dir())
}

fn write_to(image: &Image, path: &[u8], file: &LoadedInode, place: &Path) -> Result<(), Failure> {
    let mut out = File::options().write(true).open(place).at(place)?;
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
