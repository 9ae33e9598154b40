//! Images opened for changes, each locked exclusively.

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use extant::rooms::device::{ByteSize, Device, Direct, FileDeviceOptions, OverlayDevice};
use extant::rooms::engine::{Volume, VolumeOptions};
use extant::rooms::ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET};
use extant::rooms::ondisk::{CompatFeatures, GroupNo};
use extant::rooms::reader::Error as Cause;
use extant::rooms::runtime::env::{Env, WallTime};
use extant::rooms::storage::{Access, DeviceUrl, Opened};
use extant::{Credentials, FileSystem, PathError};

use crate::commands::Operands;
use crate::failure::Failure;
use crate::image_glob;
use crate::image_path::{ImagePath, image_paths};
use crate::journal_device::{self, Purpose};
use crate::session::Session;
use crate::time;
use crate::waiting::Waiting;

/// How long another program's lock on an image is waited for, as commands of one script have that
/// run side by side.
const PATIENCE: Duration = Duration::from_secs(3);
/// The least memory that a volume works with.
const LEAST_MEMORY: u64 = 16 << 20;

/// How images are opened for changes: what every command takes that makes some.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct OpenArgs {
    /// Limit memory to this size, such as 64M (at least 16M), and bypass the page cache
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    memory: Option<u64>,
    #[command(flatten)]
    waiting: Waiting,
}

impl OpenArgs {
    /// The name of an option that was given: it means nothing where no image is changed.
    pub(crate) fn given(&self) -> Option<&'static str> {
        self.memory.map(|_| "--memory").or(self.waiting.wait.map(|_| "--wait"))
    }
}

fn memory(text: &str) -> Result<u64, &'static str> {
    match text.parse() {
        Ok(ByteSize(bytes)) if bytes >= LEAST_MEMORY => Ok(bytes),
        Ok(_) => Err("at least 16M is required"),
        Err(_) => Err("invalid size"),
    }
}

/// Files that a command changes, with how their images are opened.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ChangedFiles {
    /// Image; the operands are then paths in it
    #[arg(long, value_name = "IMAGE")]
    image: Option<OsString>,
    /// IMAGE:/path
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    files: Vec<OsString>,
    #[command(flatten)]
    open_args: OpenArgs,
}

impl ChangedFiles {
    /// Runs `work` for each file that is named.
    pub(crate) fn edit_each(
        &self,
        no_match: NoMatch,
        session: &mut Session,
        mut work: impl FnMut(&WritableImage, &Path, &mut Session) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let files = image_paths(self.image.as_deref(), &self.files)?;
        edit_each_named(&files, self.open_args, no_match, session, |image, path, _, session| {
            work(image, path, session)
        })
    }
}

/// Whether changes are written to the image.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Changes {
    /// They are written to the image.
    Kept,
    /// They are kept in memory, for a dry run.
    Dropped,
}

/// An image that is being changed.
pub(crate) struct WritableImage {
    /// As it was named.
    name: String,
    /// Its files. New ones belong to the user who runs the command.
    pub(crate) fs: FileSystem,
    /// The device below, opened by name.
    opened: Opened,
}

impl WritableImage {
    fn open(inside: &ImagePath, open_args: OpenArgs, changes: Changes) -> Result<Self, Failure> {
        let name = inside.name.display().to_string();
        // Pages of the host's cache would be memory too.
        let direct = if open_args.memory.is_some() { Direct::WherePossible } else { Direct::Off };
        let options = open_args.waiting.on(FileDeviceOptions::default().direct(direct));
        // Without `--wait` another command of the same script may have it for a moment.
        let options = match open_args.waiting.wait {
            Some(_) => options,
            None => options.patience(PATIENCE),
        };
        // The error names the file already.
        let access = match changes {
            Changes::Kept => Access::ReadWrite,
            Changes::Dropped => Access::ReadOnly,
        };
        let mut opened = inside.image.open(access, &options).map_err(Failure::new)?;
        let is_kept = changes == Changes::Kept;
        let (mut journal, why) = journal_device::of(&*opened.device, &options.write(is_kept))?;
        if let Some(error) = why {
            return Err(journal_device::not_opened(
                &name,
                &*opened.device,
                &error.into(),
                Purpose::Changing,
            ));
        }
        if changes == Changes::Dropped {
            opened.device = Arc::new(OverlayDevice::new(opened.device));
            journal = journal.map(|device| Arc::new(OverlayDevice::new(device)) as Arc<dyn Device>);
        }
        let volume = live(&opened, journal, open_args, &name)?;
        let fs = FileSystem::of_volume(volume).acting_as(creator());
        Ok(Self { name, fs, opened })
    }

    /// The device that holds the volume.
    pub(crate) fn device(&self) -> &dyn Device {
        &*self.opened.device
    }

    /// Whether the image is on a simulated drive, whose clock takes one thread at a time.
    pub(crate) fn is_simulated(&self) -> bool {
        self.opened.is_simulated()
    }

    /// `IMAGE:/path`, as messages begin.
    pub(crate) fn place(&self, path: &Path) -> String {
        let path = path.as_os_str().as_encoded_bytes();
        let slash = if path.starts_with(b"/") { "" } else { "/" };
        format!("{}:{slash}{}", self.name, crate::output::printable(path))
    }

    /// The paths that one names, which may be a pattern.
    pub(crate) fn named(&self, path: &Path, no_match: NoMatch) -> Result<Vec<PathBuf>, Failure> {
        let bytes = path.as_os_str().as_bytes();
        let paths = image_glob::matches(self.fs.volume(), bytes);
        let paths = paths.map_err(|error| self.failure(path, error))?;
        match paths.is_empty() && no_match == NoMatch::Fails {
            true => Err(self.failure(path, "no such file or directory")),
            false => Ok(paths.into_iter().map(|path| OsString::from_vec(path).into()).collect()),
        }
    }

    /// A failure at a path of the image.
    pub(crate) fn failure(&self, path: &Path, why: impl std::fmt::Display) -> Failure {
        Failure::new(format_args!("{}: {why}", self.place(path)))
    }

    /// Refuses a name for a file that can be a directory's only: `/dir/` where no directory is.
    pub(crate) fn check_names_file(&self, place: &Path) -> Result<(), Failure> {
        if !place.as_os_str().as_encoded_bytes().ends_with(b"/") {
            return Ok(());
        }
        // Components have no slash at their end.
        match self.fs.symlink_metadata(place.components().as_path()) {
            Ok(_) => Err(self.failure(place, "not a directory")),
            Err(_) => Err(self.failure(place, "no such directory")),
        }
    }

    /// An error of the engine for a path. Missing files are reported in the shell's words.
    pub(crate) fn refusal(&self, error: &PathError) -> Failure {
        self.refusal_at(error.path(), error.cause())
    }

    /// A failed call of the library, reported for the path given instead of its own.
    pub(crate) fn refusal_at(&self, path: &Path, cause: &Cause) -> Failure {
        match cause {
            Cause::NotFound => self.failure(path, "no such file or directory"),
            Cause::Exists => self.failure(path, "file exists"),
            cause => self.failure(path, cause),
        }
    }

    /// Ends the image well.
    fn close(self) -> Result<(), Failure> {
        let name = self.name;
        self.fs.close().map_err(|cause| Failure::at(name, cause))?;
        self.opened.finish().map_err(Failure::new)
    }
}

/// An image that `extant sh` keeps open for all of its commands.
pub(crate) struct HeldImage {
    url: DeviceUrl,
    image: WritableImage,
    /// Whether a command may have changed it since it was put on the device.
    is_changed: Cell<bool>,
}

impl HeldImage {
    /// Opens the image.
    pub(crate) fn open(inside: &ImagePath, open_args: OpenArgs) -> Result<Self, Failure> {
        let image = WritableImage::open(inside, open_args, Changes::Kept)?;
        Ok(Self { url: inside.image.clone(), image, is_changed: Cell::new(false) })
    }

    /// The image that is held for the commands of a session.
    pub(crate) fn of_session(session: &Session) -> Option<Rc<Self>> {
        session.held.clone()?.downcast().ok()
    }

    /// Whether it is the image of an operand.
    pub(crate) fn is(&self, inside: &ImagePath) -> bool {
        self.url == inside.image
    }

    /// Puts all that was changed on the device, where a reader of [`Self::device`] finds it.
    pub(crate) fn sync(&self) -> Result<(), Failure> {
        if self.is_changed.get() {
            self.image.fs.sync().map_err(|cause| Failure::at(&self.image.name, cause))?;
            self.is_changed.set(false);
        }
        Ok(())
    }

    /// The device that holds the volume.
    pub(crate) fn device(&self) -> Arc<dyn Device> {
        self.image.opened.device.clone()
    }

    /// Ends the image well.
    pub(crate) fn close(self) -> Result<(), Failure> {
        self.image.close()
    }
}

/// The same for outcomes.
pub(crate) trait In<T> {
    /// Names the image where the call failed.
    fn within(self, image: &WritableImage) -> Result<T, Failure>;
}

impl<T> In<T> for Result<T, PathError> {
    fn within(self, image: &WritableImage) -> Result<T, Failure> {
        self.map_err(|error| image.refusal(&error))
    }
}

/// Whether a volume has a journal. A command that changes such a volume aborts the journal where
/// contents cannot be written: names must not be committed without them.
pub(crate) fn has_journal(device: &dyn Device) -> bool {
    let mut bytes = [0; size_of::<RawSuperblock>()];
    let read = device.read_at(SUPERBLOCK_OFFSET, &mut bytes);
    let raw = read.ok().and_then(|()| RawSuperblock::from_bytes(&bytes, GroupNo(0)).ok());
    raw.is_some_and(|raw| raw.features().compat.contains(CompatFeatures::HAS_JOURNAL))
}

fn live(
    opened: &Opened,
    external_journal: Option<Arc<dyn Device>>,
    open_args: OpenArgs,
    name: &str,
) -> Result<Volume, Failure> {
    let default = VolumeOptions::default();
    let memory = open_args.memory.unwrap_or(default.memory);
    let aborts_on_lost_data = has_journal(&*opened.device);
    let live = VolumeOptions { memory, external_journal, aborts_on_lost_data, ..default };
    let env = match time::epoch()? {
        Some(seconds) if !opened.is_simulated() => {
            Env::threads_at(WallTime { seconds, nanoseconds: 0 })
        }
        _ => opened.env.clone(),
    };
    let volume = Volume::open(opened.device.clone(), &env, &live);
    volume.map_err(|error| {
        journal_device::not_opened(name, &*opened.device, &error, Purpose::Changing)
    })
}

/// Owner of new files: the user who runs the command, with the umask of the process.
fn creator() -> Credentials {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    Credentials {
        uid: uid.as_raw(),
        gid: gid.as_raw(),
        umask: umask(),
        is_privileged: uid.is_root(),
        keeps_set_ids: uid.is_root(),
        ..Credentials::default()
    }
}

/// The bits that new files of this process lack.
pub(crate) fn umask() -> u16 {
    let mask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(mask);
    // At most nine bits.
    (mask.as_raw_mode() & 0o777) as u16
}

/// The images of a command's operands, each opened once.
pub(crate) struct WritableImages {
    open_args: OpenArgs,
    changes: Changes,
    opened: Vec<(DeviceUrl, WritableImage)>,
    /// The image that is open already.
    held: Option<Rc<HeldImage>>,
}

impl WritableImages {
    /// None yet, but for one that is held for the commands of the session.
    pub(crate) fn new(open_args: OpenArgs, session: &Session) -> Self {
        let held = HeldImage::of_session(session);
        Self { open_args, changes: Changes::Kept, opened: Vec::new(), held }
    }

    /// None yet. What is changed in them stays in memory, and no image is written.
    pub(crate) fn in_memory(open_args: OpenArgs) -> Self {
        Self { open_args, changes: Changes::Dropped, opened: Vec::new(), held: None }
    }

    /// The image of an operand.
    pub(crate) fn of(&mut self, inside: &ImagePath) -> Result<&WritableImage, Failure> {
        if let Some(held) = self.held.as_deref().filter(|held| held.is(inside)) {
            if let Some(option) = self.open_args.given() {
                let why = "the image is open already: give it to 'extant sh'";
                return Err(Failure::usage(format_args!("{option}: {why}")));
            }
            held.is_changed.set(true);
            return Ok(&held.image);
        }
        let known = self.opened.iter().position(|(url, _)| *url == inside.image);
        let at = match known {
            Some(at) => at,
            None => {
                let image = WritableImage::open(inside, self.open_args, self.changes)?;
                self.opened.push((inside.image.clone(), image));
                self.opened.len() - 1
            }
        };
        Ok(&self.opened[at].1)
    }

    /// Runs `work` for each file, and ends all images well. One that fails does not stop the next.
    pub(crate) fn edit_each(
        mut self,
        files: &[ImagePath],
        session: &mut Session,
        mut work: impl FnMut(&WritableImage, &ImagePath, &mut Session) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let outcome = files.iter().try_for_each(|inside| {
            let done = self.of(inside).and_then(|image| work(image, inside, session));
            done.or_else(|failure| session.error(failure))
        });
        self.close(session)?;
        outcome
    }

    /// Ends all of them: only then everything is on the devices.
    pub(crate) fn close(self, session: &mut Session) -> Result<(), Failure> {
        for (_, image) in self.opened {
            if let Err(failure) = image.close() {
                session.error(failure)?;
            }
        }
        Ok(())
    }
}

/// Runs `work` for each file. One that fails does not stop the next; all images are ended well.
pub(crate) fn edit_each(
    files: &[ImagePath],
    open_args: OpenArgs,
    session: &mut Session,
    mut work: impl FnMut(&WritableImage, &Path, &mut Session) -> Result<(), Failure>,
) -> Result<(), Failure> {
    files.iter().try_for_each(ImagePath::check_path_given)?;
    let images = WritableImages::new(open_args, session);
    images.edit_each(files, session, |image, inside, session| {
        work(image, Path::new(&inside.path), session)
    })
}

/// The meaning of a pattern that matches no file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum NoMatch {
    /// It is an error, as a path of no file is.
    Fails,
    /// Nothing is done.
    Ignored,
}

/// As [`edit_each`] for files that are there: paths may be patterns. `work` is told whether the
/// operands name no other file.
pub(crate) fn edit_each_named(
    files: &[ImagePath],
    open_args: OpenArgs,
    no_match: NoMatch,
    session: &mut Session,
    work: impl FnMut(&WritableImage, &Path, bool, &mut Session) -> Result<(), Failure>,
) -> Result<(), Failure> {
    files.iter().try_for_each(ImagePath::check_path_given)?;
    let mut images = WritableImages::new(open_args, session);
    let outcome = edit_named(files, no_match, &mut images, session, work);
    images.close(session)?;
    outcome
}

/// All patterns are matched before the first change.
fn edit_named(
    files: &[ImagePath],
    no_match: NoMatch,
    images: &mut WritableImages,
    session: &mut Session,
    mut work: impl FnMut(&WritableImage, &Path, bool, &mut Session) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut named = Vec::new();
    for inside in files {
        let path = Path::new(&inside.path);
        if !image_glob::may_be_pattern(inside.path.as_bytes()) {
            named.push((inside, path.to_owned()));
            continue;
        }
        match images.of(inside).and_then(|image| image.named(path, no_match)) {
            Ok(paths) => named.extend(paths.into_iter().map(|path| (inside, path))),
            Err(failure) => session.error(failure)?,
        }
    }
    let is_only = named.len() == 1 && files.len() == 1;
    for (inside, path) in named {
        images
            .of(inside)
            .and_then(|image| work(image, &path, is_only, session))
            .or_else(|failure| session.error(failure))?;
    }
    Ok(())
}

impl Operands {
    /// Runs `work` for each file that the operands name, in images that are opened for changes.
    pub(crate) fn edit_each(
        &self,
        open_args: OpenArgs,
        no_match: NoMatch,
        session: &mut Session,
        mut work: impl FnMut(&WritableImage, &Path, &mut Session) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let files = self.inside()?;
        edit_each_named(&files, open_args, no_match, session, |image, path, _, session| {
            work(image, path, session)
        })
    }
}

/// Two names of one image: where it is, and both paths in it.
pub(crate) fn one_image<'i>(
    first: &'i ImagePath,
    second: &'i ImagePath,
) -> Result<(&'i OsStr, &'i OsStr), Failure> {
    if first.image != second.image {
        let (first, second) = (first.name.display(), second.name.display());
        return Err(Failure::usage(format_args!("{first}: not in the same image as {second}")));
    }
    Ok((&first.path, &second.path))
}
