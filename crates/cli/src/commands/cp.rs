//! `extant cp`: files out of an image.

mod copier;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use extant_device::url::{Target, look};
use extant_ondisk::inode::FileType;
use extant_volume::{Follow, LoadedInode};

use crate::failure::{At, Failure};
use crate::inside::inside_of;
use crate::reader::{Image, Images};
use crate::session::Session;
use copier::{Copier, FirstCopies, Rules};

/// Copy files out of an image
///
/// Holes stay holes. Copying into an image is not built yet.
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
    /// IMAGE:/path
    #[arg(value_name = "SOURCE", required = true)]
    sources: Vec<OsString>,
    /// A directory of this machine, or a new name
    #[arg(value_name = "TARGET")]
    target: OsString,
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        if let Ok(Target::Inside { .. }) = Target::parse(&self.target, look) {
            return Err(Failure::not_built("copying into an image"));
        }
        let rules = Rules {
            preserve: self.preserve || self.archive,
            links: self.archive,
            no_clobber: self.no_clobber,
            verbose: self.verbose,
        };
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
