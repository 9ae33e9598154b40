//! Files copied into an image, of this machine or of an image.
//!
//! An existing file is replaced atomically: the copy is made next to it and renamed. A regular file
//! that another is copied over keeps the rest ([`overwrite`]).
//! Links of the source are followed only where the command says so, those of the image never at the
//! end of a path.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use extant::rooms::engine::{RenameFlags, XattrSet};
use extant::rooms::ondisk::CompatFeatures;
use extant::rooms::ondisk::inode::FileType;
use extant::rooms::ondisk::time::Timestamp;
use extant::rooms::reader::{Error as Cause, Follow};
use extant::{File, Metadata, OpenOptions, SetAttributes};

use super::copier::Rules;
use super::overwrite;
use crate::failure::Failure;
use crate::say;
use crate::session::Session;
use crate::sources::{Source, SourceAttributes};
use crate::time;
use crate::writable_image::{In, WritableImage};

/// Bytes that are read and written at once.
const PIECE: usize = 1 << 20;

/// Copies files into one image.
pub(super) struct Importer<'i, S> {
    image: &'i WritableImage,
    source: S,
    rules: Rules,
    is_recursive: bool,
    /// Where the first copy of a file with several names is.
    copies: HashMap<(u64, u64), PathBuf>,
    /// Directories that were entered: a damaged volume may hold loops.
    seen: HashSet<(u64, u64)>,
    buffer: Vec<u8>,
}

/// A directory whose contents are being copied.
struct Level {
    source: PathBuf,
    /// In the image.
    place: PathBuf,
    attributes: SourceAttributes,
    /// Still to be copied, the last first.
    names: Vec<OsString>,
}

impl<'i, S: Source> Importer<'i, S> {
    pub(super) fn new(
        image: &'i WritableImage,
        source: S,
        rules: Rules,
        is_recursive: bool,
    ) -> Self {
        let (copies, seen) = (HashMap::new(), HashSet::new());
        Self { image, source, rules, is_recursive, copies, seen, buffer: vec![0; PIECE] }
    }

    /// The paths that one names, which may be a pattern: at least one.
    pub(super) fn named(&self, path: &Path) -> Result<Vec<PathBuf>, Failure> {
        self.source.named(path)
    }

    /// Copies a file, and with `-r` all below it, to `place`.
    pub(super) fn copy(
        &mut self,
        source: &Path,
        place: &Path,
        session: &mut Session,
    ) -> Result<(), Failure> {
        let follow = if self.is_recursive { Follow::No } else { Follow::Yes };
        let attributes = self.source.attributes(source, follow)?;
        if !self.is_recursive {
            self.source.check_plain(source, &attributes)?;
        }
        if attributes.kind != FileType::Directory {
            self.image.check_names_file(place)?;
            return self.one(source, &attributes, place, session);
        }
        self.seen.clear();
        let mut levels = vec![self.enter(source, attributes, place, session)?];
        if self.source.is_target() {
            if place.starts_with(source) {
                // All but the copy is copied.
                session
                    .error(self.source.failure(source, &"cannot copy a directory into itself"))?;
            }
            let made = self.image.fs.symlink_metadata(place).within(self.image)?;
            self.seen.insert((0, u64::from(made.inode().0)));
        }
        while let Some(level) = levels.last_mut() {
            let Some(name) = level.names.pop() else {
                if let Some(done) = levels.pop()
                    && let Err(failure) = self.finish(&done, session)
                {
                    session.error(failure)?;
                }
                continue;
            };
            let (source, place) = (level.source.join(&name), level.place.join(&name));
            let copied = self.source.attributes(&source, Follow::No).and_then(|attributes| {
                if attributes.kind == FileType::Directory {
                    return self.enter(&source, attributes, &place, session).map(Some);
                }
                self.one(&source, &attributes, &place, session).map(|()| None)
            });
            match copied {
                Ok(Some(level)) => levels.push(level),
                Ok(None) => {}
                Err(failure) => session.error(failure)?,
            }
        }
        Ok(())
    }

    /// Makes a directory, or takes one that is there.
    fn enter(
        &mut self,
        source: &Path,
        attributes: SourceAttributes,
        place: &Path,
        session: &mut Session,
    ) -> Result<Level, Failure> {
        if !self.seen.insert(attributes.identity) {
            let why = "copied into itself, or already copied under another name; skipped";
            return Err(self.source.failure(source, &why));
        }
        let fs = &self.image.fs;
        // Before the copy is made, which may lie in it.
        let mut names = self.source.names(source, session)?;
        match fs.create_dir_with(place, attributes.permissions & 0o777 | 0o700) {
            Err(error) if matches!(error.cause(), Cause::Exists | Cause::Invalid(_)) => {
                // The root has no name that could be made.
                if !fs.symlink_metadata(place).within(self.image)?.is_dir() {
                    return Err(self.image.failure(place, "cannot overwrite non-directory"));
                }
            }
            outcome => outcome.within(self.image)?,
        }
        self.tell(source, place, session)?;
        names.sort_by(|a, b| b.cmp(a));
        Ok(Level { source: source.to_owned(), place: place.to_owned(), attributes, names })
    }

    /// Attributes of a directory are set after its files are copied: its time of change, and
    /// permissions that bar nothing before.
    fn finish(&self, level: &Level, session: &mut Session) -> Result<(), Failure> {
        if self.rules.preserve {
            return self.keep(
                &level.source,
                &level.attributes,
                &level.place,
                &level.place,
                session,
            );
        }
        Ok(())
    }

    /// Copies a file that is no directory.
    fn one(
        &mut self,
        source: &Path,
        attributes: &SourceAttributes,
        place: &Path,
        session: &mut Session,
    ) -> Result<(), Failure> {
        let fs = &self.image.fs;
        let mut written_over = None;
        let in_the_way = match fs.symlink_metadata(place) {
            Ok(found) if found.is_dir() => {
                return Err(self.image.failure(place, "cannot overwrite directory"));
            }
            Ok(found)
                if self.source.is_target()
                    && attributes.identity == (0, u64::from(found.inode().0)) =>
            {
                return Err(self.image.failure(place, "source and target are the same file"));
            }
            Ok(_) if self.rules.no_clobber => return Ok(()),
            Ok(found) => {
                let is_written = found.is_file() && self.makes_contents(attributes);
                written_over = is_written.then_some(found);
                true
            }
            Err(error) if matches!(error.cause(), Cause::NotFound) => false,
            Err(error) => return Err(self.image.refusal(&error)),
        };
        let made = match in_the_way {
            true => self.unused_name(place)?,
            false => place.to_owned(),
        };
        let others = match &written_over {
            Some(file) => overwrite::other_names(self.image, file, place)?,
            None => Vec::new(),
        };
        let copied = self.make(source, attributes, place, &made, written_over.as_ref(), session);
        let copied = copied.and_then(|()| {
            overwrite::take_names(self.image, &made, &others, |name| self.unused_name(name))
        });
        let done = copied.and_then(|()| match in_the_way {
            true => fs.rename_with(&made, place, RenameFlags::default()).within(self.image),
            false => Ok(()),
        });
        if let Err(failure) = done {
            // An incomplete copy is removed; if that fails, the first error is the one reported.
            let _ = fs.remove_file(&made);
            return Err(failure);
        }
        if self.rules.links && attributes.links > 1 {
            self.copies.entry(attributes.identity).or_insert_with(|| place.to_owned());
        }
        self.tell(source, place, session)
    }

    /// The first copy, of which the copy of a file with several names is a link.
    fn first_copy(&self, attributes: &SourceAttributes) -> Option<&PathBuf> {
        let has_links = self.rules.links && attributes.links > 1;
        self.copies.get(&attributes.identity).filter(|_| has_links)
    }

    /// Whether the copy is a regular file of its own.
    fn makes_contents(&self, attributes: &SourceAttributes) -> bool {
        let is_read = attributes.kind == FileType::Regular || !self.is_recursive;
        is_read && self.first_copy(attributes).is_none()
    }

    /// Makes the copy at `made`, where nothing is; messages name `place`, where `written_over` is
    /// if the copy writes over a file.
    fn make(
        &mut self,
        source: &Path,
        attributes: &SourceAttributes,
        place: &Path,
        made: &Path,
        written_over: Option<&Metadata>,
        session: &mut Session,
    ) -> Result<(), Failure> {
        let fs = &self.image.fs;
        let refused = |error: extant::PathError| self.image.refusal_at(place, error.cause());
        if let Some(first) = self.first_copy(attributes) {
            return fs.hard_link(first, made).map_err(refused);
        }
        let bits = attributes.permissions & 0o777;
        match attributes.kind {
            _ if self.makes_contents(attributes) => {
                // It comes to its name when it is whole.
                let whole = self.contents(source, bits, place)?;
                // Without a journal nothing else keeps the old names until the contents are there.
                let geometry = fs.volume().geometry();
                if written_over.is_some() && !geometry.has_compat(CompatFeatures::HAS_JOURNAL) {
                    whole.sync_data().map_err(refused)?;
                }
                whole.link(made).map_err(refused)?;
                if let Some(file) = written_over {
                    overwrite::take_over(self.image, file, place, made)?;
                }
            }
            FileType::Symlink => {
                fs.symlink(self.source.target(source)?, made).map_err(refused)?;
            }
            special => fs.create_node(made, special, bits, attributes.device).map_err(refused)?,
        }
        match self.rules.preserve {
            true => self.keep(source, attributes, made, place, session),
            false => Ok(()),
        }
    }

    /// A file without a name yet, with the data of another, its holes left out.
    fn contents(&mut self, source: &Path, bits: u16, place: &Path) -> Result<File, Failure> {
        let image = self.image;
        let options = OpenOptions::new().write(true).mode(bits);
        let dir = place.parent().unwrap_or(Path::new("/"));
        let refused = |error: extant::PathError| image.refusal_at(place, error.cause());
        let to = options.open_tmpfile(&image.fs, dir).map_err(|error| match error.cause() {
            // The directory is missing.
            Cause::NotFound | Cause::NotADirectory => image.refusal(&error),
            _ => refused(error),
        })?;
        let size = self.source.contents(source, &mut self.buffer, &mut |piece, at| {
            to.write_all_at(piece, at).map_err(refused)
        })?;
        to.set_len(size).map_err(refused)?;
        Ok(to)
    }

    /// Sets what `-p` keeps: the owner first, the times last. The copy is at `made`, messages name
    /// `place`.
    fn keep(
        &self,
        source: &Path,
        attributes: &SourceAttributes,
        made: &Path,
        place: &Path,
        session: &mut Session,
    ) -> Result<(), Failure> {
        let (image, fs) = (self.image, &self.image.fs);
        let refused = |error: extant::PathError| image.refusal_at(place, error.cause());
        let owner = SetAttributes {
            uid: Some(attributes.uid),
            gid: Some(attributes.gid),
            mode: (attributes.kind != FileType::Symlink).then_some(attributes.permissions),
            ..SetAttributes::default()
        };
        fs.set_attributes(made, Follow::No, &owner).map_err(refused)?;
        // Attributes that ext4 does not have are reported and left out.
        for (name, value) in self.source.xattrs(source)? {
            let name = OsStr::from_bytes(&name);
            if let Err(error) = fs.set_xattr(made, name, &value, XattrSet::Any) {
                let why = format!("{}: {}", name.display(), error.cause());
                session.error(image.failure(place, why))?;
            }
        }
        let (atime, mtime) = kept_times(attributes, time::epoch()?);
        let times =
            SetAttributes { atime: Some(atime), mtime: Some(mtime), ..SetAttributes::default() };
        fs.set_attributes(made, Follow::No, &times).map_err(refused)
    }

    fn tell(&self, source: &Path, place: &Path, session: &mut Session) -> Result<(), Failure> {
        match self.rules.verbose {
            true => say!(session, "{} -> {}", self.source.shown(source), self.image.place(place)),
            false => Ok(()),
        }
    }

    /// A name in the same directory that no file has: what the copy is called before it takes the
    /// place of another file. The same edits give the same names, whose bytes stay in the
    /// directory.
    fn unused_name(&self, place: &Path) -> Result<PathBuf, Failure> {
        for number in 0..=u32::MAX {
            let name = place.with_file_name(format!(".extant-{number}"));
            match self.image.fs.symlink_metadata(&name) {
                Ok(_) => {}
                Err(error) if matches!(error.cause(), Cause::NotFound) => return Ok(name),
                Err(error) => return Err(self.image.refusal(&error)),
            }
        }
        Err(self.image.failure(place, "cannot find an unused temporary name in its directory"))
    }
}

/// The times that `-p` keeps: of the last read and the last change. Where SOURCE_DATE_EPOCH asks
/// for equal bytes a later time becomes that one, and the last read, which a copy itself may be,
/// the last change: as in `build`.
fn kept_times(attributes: &SourceAttributes, epoch: Option<i64>) -> (Timestamp, Timestamp) {
    let Some(epoch) = epoch else { return (attributes.atime, attributes.mtime) };
    let mtime = match attributes.mtime.seconds >= epoch {
        true => Timestamp::new(epoch, 0),
        false => attributes.mtime,
    };
    (mtime, mtime)
}
