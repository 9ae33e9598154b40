//! The state between requests: the volume that is open, and where in it we are.

use std::ffi::OsString;

use extant::InodeNo;
use extant::debug::{DebugVolume, RawRecord};

use super::image::OpenImage;
use super::words::{Word, text};
use crate::err_line;
use crate::failure::Failure;
use crate::session::Session;

/// Why a request was not done.
#[derive(Debug)]
pub(super) enum Refusal {
    /// Lines for standard error.
    Line(String),
    /// Standard output failed.
    Output(Failure),
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self::Output(failure)
    }
}

/// The outcome of a request.
pub(super) type Done = Result<(), Refusal>;

/// `COMMAND: what`.
pub(super) fn refuse(words: &[Word], what: impl std::fmt::Display) -> Refusal {
    let name = text(words.first().map_or(&[][..], |name| name));
    Refusal::Line(format!("{name}: {what}"))
}

/// `COMMAND: error while doing`.
pub(super) fn failed(
    words: &[Word],
    error: impl std::fmt::Display,
    doing: impl std::fmt::Display,
) -> Refusal {
    refuse(words, format_args!("{error} while {doing}"))
}

/// `FILE: error`, as for a file that is not there.
pub(super) fn at_file(spec: &[u8], error: impl std::fmt::Display) -> Refusal {
    // The blank is theirs.
    Refusal::Line(format!("{}: {error} ", text(spec)))
}

/// Requests in order, with what they leave for the next.
pub(super) struct Shell<'s> {
    pub(super) session: &'s mut Session,
    pub(super) image: Option<OpenImage>,
    /// Number of requests that were not done.
    pub(super) failures: u32,
    /// Number of lines that are no request at all: those that end debugfs itself with 1.
    pub(super) unknown: u32,
    /// Whether a request ended the input.
    pub(super) has_quit: bool,
}

impl<'s> Shell<'s> {
    pub(super) fn new(session: &'s mut Session) -> Self {
        Self { session, image: None, failures: 0, unknown: 0, has_quit: false }
    }

    /// Prints why a request was not done, and counts it.
    pub(super) fn report(&mut self, refusal: Refusal) -> Result<(), Failure> {
        match refusal {
            Refusal::Line(lines) => {
                self.session.out.flush()?;
                err_line!("{lines}");
                self.failures += 1;
                Ok(())
            }
            Refusal::Output(failure) => Err(failure),
        }
    }

    /// Prints what a request found wrong but goes on with: it has failed all the same.
    pub(super) fn complain_and_go_on(&mut self, refusal: Refusal) -> Done {
        self.report(refusal).map_err(Refusal::Output)
    }

    /// The volume that is open.
    pub(super) fn image(&mut self, words: &[Word]) -> Result<&mut OpenImage, Refusal> {
        let image = self.open_image(words)?;
        // The engine may have it.
        image.settle().map_err(|why| refuse(words, why))?;
        Ok(image)
    }

    /// Refuses where a volume is open.
    pub(super) fn none_is_open(&self, words: &[Word]) -> Done {
        let Some(image) = &self.image else { return Ok(()) };
        let open = image.name.display();
        Err(refuse(words, format_args!("Filesystem {open} is still open.  Close it first.\n")))
    }

    fn open_image(&mut self, words: &[Word]) -> Result<&mut OpenImage, Refusal> {
        self.image.as_mut().ok_or_else(|| refuse(words, "Filesystem not open"))
    }

    /// The volume where it may be changed.
    pub(super) fn writable(&mut self, words: &[Word]) -> Result<&mut OpenImage, Refusal> {
        self.writable_live(words)?;
        self.image(words)
    }

    /// The same; the engine may go on with it.
    pub(super) fn writable_live(&mut self, words: &[Word]) -> Result<&mut OpenImage, Refusal> {
        let image = self.open_image(words)?;
        match image.is_writable {
            true => Ok(image),
            false => Err(refuse(words, "Filesystem opened read/only")),
        }
    }

    /// Its structures.
    pub(super) fn volume(&mut self, words: &[Word]) -> Result<&mut DebugVolume, Refusal> {
        Ok(&mut self.image(words)?.volume)
    }

    /// The same where the request uses bitmaps.
    pub(super) fn with_bitmaps(&mut self, words: &[Word]) -> Result<&mut DebugVolume, Refusal> {
        let volume = self.volume(words)?;
        match volume.has_bitmaps() {
            true => Ok(volume),
            false => Err(refuse(words, "Filesystem bitmaps not loaded")),
        }
    }

    /// The inode that a word names: `<N>` or a path.
    pub(super) fn inode_of(&mut self, words: &[Word], spec: &[u8]) -> Result<InodeNo, Refusal> {
        self.image(words)?.inode_of(spec).map_err(|error| at_file(spec, error))
    }

    /// Its record.
    pub(super) fn record_of(&mut self, words: &[Word], spec: &[u8]) -> Result<RawRecord, Refusal> {
        let number = self.inode_of(words, spec)?;
        self.record(words, number)
    }

    /// The record of an inode.
    pub(super) fn record(&mut self, words: &[Word], number: InodeNo) -> Result<RawRecord, Refusal> {
        let read = self.volume(words)?.inode(number);
        read.map_err(|error| failed(words, error, format_args!("reading inode {number}")))
    }

    /// The only operand of a request.
    pub(super) fn one_file<'w>(
        &mut self,
        words: &'w [Word],
        usage: &str,
    ) -> Result<&'w [u8], Refusal> {
        let [_, spec] = words else {
            return Err(refuse(words, format_args!("Usage: {usage}")));
        };
        self.image(words)?;
        Ok(spec)
    }

    /// Writes bytes to standard output.
    pub(super) fn print(&mut self, text: impl AsRef<[u8]>) -> Done {
        Ok(self.session.out.bytes(text.as_ref())?)
    }

    /// The name of the volume.
    pub(super) fn name(&self) -> OsString {
        self.image.as_ref().map(|image| image.name.clone()).unwrap_or_default()
    }
}
