//! `extant undo`: puts an image back that was changed with an undo file (`-z`).

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use extant::rooms::device::undo::{
    Applied, ApplyOptions, Check, DIRECTORY_VARIABLE, FsOffset, UndoDevice, UndoRequest, apply,
};
use extant::rooms::device::{Device, FileDeviceOptions, c_number};
use extant::rooms::storage::{Access, Opened, open};

pub(crate) use extant::rooms::device::undo::announcement;

use crate::failure::Failure;
use crate::say;
use crate::session::Session;
use crate::waiting::Waiting;

/// Restore an image to its state before a command run with -z
///
/// The whole undo file is checked before anything is written. Applying it twice is safe. Undo files
/// have the format of e2undo.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Force: skip the check that the image is unchanged since the undo file was written
    #[arg(short)]
    force: bool,
    /// Dry run: only check the undo file
    #[arg(short = 'n')]
    dry_run: bool,
    /// Where the file system begins in IMAGE, in bytes, in place of what the undo file says
    #[arg(short, value_name = "OFFSET")]
    offset: Option<String>,
    /// Print what was restored
    #[arg(short)]
    verbose: bool,
    /// Save overwritten blocks in another undo file
    #[arg(short = 'z', value_name = "UNDO_FILE")]
    undo: Option<OsString>,
    #[command(flatten)]
    waiting: Waiting,
    /// Undo file
    #[arg(value_name = "FILE")]
    undo_file: PathBuf,
    /// Image
    #[arg(value_name = "IMAGE")]
    image: OsString,
}

/// Where `-z PATH` goes; `None` where nothing is to be kept.
pub(crate) fn path(
    path: &OsStr,
    image: &OsStr,
    program: &str,
    is_compat: bool,
) -> Result<Option<PathBuf>, Failure> {
    path_in(None, path, image, program, is_compat)
}

/// The same with the directory of a configuration file, which the environment's goes before.
pub(crate) fn path_in(
    configured: Option<&OsStr>,
    path: &OsStr,
    image: &OsStr,
    program: &str,
    is_compat: bool,
) -> Result<Option<PathBuf>, Failure> {
    let directory = std::env::var_os(DIRECTORY_VARIABLE);
    let directory = directory.as_deref().or(configured);
    UndoRequest { path, directory, image, program, is_compat }.path().map_err(Failure::new)
}

/// The undo file of `-z`, if that is given, which by a name of e2fsprogs is announced.
pub(crate) fn announced_path(
    asked: Option<&OsStr>,
    image: &OsStr,
    program: &str,
    session: &mut Session,
) -> Result<Option<PathBuf>, Failure> {
    let Some(asked) = asked else { return Ok(None) };
    let found = path(asked, image, program, session.is_compat)?;
    if let Some(path) = found.as_ref().filter(|_| session.is_compat) {
        say!(session, "{}", announcement(path, image))?;
    }
    Ok(found)
}

/// The opened device with an undo file.
pub(crate) fn keep(opened: &Opened, path: PathBuf) -> Result<UndoDevice, Failure> {
    let volume = FsOffset { on_device: 0, in_file: opened.start };
    UndoDevice::open(opened.device.clone(), path, volume).map_err(Failure::new)
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        let offset = self.offset.as_deref().map(|text| {
            let wrong = || Failure::new(format_args!("invalid offset: {text}"));
            c_number(text).ok_or_else(wrong)
        });
        let offset = offset.transpose()?;
        let access = if self.dry_run { Access::ReadOnly } else { Access::ReadWrite };
        if session.is_compat {
            self.need_undo_file()?;
        }
        let options = self.waiting.on(FileDeviceOptions::new());
        let opened =
            open(&self.image, extant::schemes(), access, &options).map_err(Failure::new)?;
        let check = match (self.force, session.is_compat) {
            (true, _) => Check::SizeOnly,
            (false, true) => Check::Exact,
            (false, false) => Check::Same,
        };
        let kept = self.kept(&opened, offset, session)?;
        let device: Arc<dyn Device> = match &kept {
            Some(kept) => kept.clone(),
            None => opened.device.clone(),
        };
        let options =
            ApplyOptions { check, dry_run: self.dry_run, offset, device_start: opened.start };
        let applied = apply(&self.undo_file, &*device, &options).map_err(Failure::new)?;
        kept.map_or(Ok(()), |kept| kept.finish()).map_err(Failure::new)?;
        opened.finish().map_err(Failure::new)?;
        self.tell(&applied, session)
    }

    /// A missing undo file is reported first, in the words of e2undo.
    fn need_undo_file(&self) -> Result<(), Failure> {
        let opened = std::fs::File::open(&self.undo_file);
        opened.map(|_| ()).map_err(|error| {
            let path = self.undo_file.display();
            Failure::new(format_args!("{error} while opening undo file `{path}'\n"))
        })
    }

    /// The device with the undo file of `-z`.
    fn kept(
        &self,
        opened: &Opened,
        offset: Option<u64>,
        session: &mut Session,
    ) -> Result<Option<Arc<UndoDevice>>, Failure> {
        let Some(asked) = self.undo.as_deref().filter(|_| !self.dry_run) else { return Ok(None) };
        if Path::new(asked) == self.undo_file {
            return Err(Failure::at(
                &self.undo_file,
                "cannot apply this undo file and write it with -z",
            ));
        }
        let Some(path) = path(asked, &self.image, "e2undo", session.is_compat)? else {
            return Ok(None);
        };
        let in_file = offset.unwrap_or(opened.start);
        let volume = FsOffset { on_device: in_file.saturating_sub(opened.start), in_file };
        let kept = UndoDevice::open(opened.device.clone(), path, volume);
        Ok(Some(Arc::new(kept.map_err(Failure::new)?)))
    }

    fn tell(&self, applied: &Applied, session: &mut Session) -> Result<(), Failure> {
        if let Some(problem) = applied.mismatch {
            let file = self.undo_file.display();
            session.warn(format_args!(
                "{file}: the undo file does not belong to this image: {problem}: ignored because of -f"
            ))?;
        }
        if !applied.is_finished && applied.restored.is_empty() {
            // As e2undo ends with a file that a failed command left.
            return Err(Failure::at(&self.undo_file, "undo file is empty: nothing is undone"));
        }
        if !applied.is_finished {
            session.warn("undo file is incomplete: the recorded command was interrupted")?;
        }
        if session.is_compat {
            for piece in applied.restored.iter().filter(|_| self.verbose) {
                let (size, from, to) = (piece.length, piece.undo_block, piece.block);
                say!(session, "Replayed block of size {size} from {from} to {to}")?;
            }
        } else if self.verbose || self.dry_run {
            let done = if self.dry_run { "would be restored" } else { "restored" };
            let (records, bytes) = (applied.restored.len(), applied.bytes());
            say!(session, "{records} pieces, {bytes} bytes {done}")?;
        }
        Ok(())
    }
}
