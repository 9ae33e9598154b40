//! `extant import`: a tar archive unpacked into an image.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use extant::source::{Archive, Source};
use extant::{ExtractCause, Extracted, ExtractedCounts, MemberProblem, TarExtractor};

use super::owner_args::OwnerArgs;
use crate::failure::Failure;
use crate::image_path::ImagePath;
use crate::progress::Progress;
use crate::say;
use crate::session::Session;
use crate::time;
use crate::writable_image::{In, OpenArgs, WritableImage, edit_each};

/// Unpack a tar archive into an image
///
/// Owners, modes, times, extended attributes, ACLs, hard links, device files and holes are kept, as
/// by root's tar -x. An existing file is replaced when the new one is complete, and an existing
/// directory is filled. A path with '..', through a symbolic link of the archive, or through one
/// that leaves the directory is refused; the rest is unpacked, and the exit code is 1.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Make the directory and its parents as needed
    #[arg(short, long)]
    parents: bool,
    #[command(flatten)]
    owners: OwnerArgs,
    /// Print errors only
    #[arg(short)]
    quiet: bool,
    /// Print a report as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    open_args: OpenArgs,
    /// Tar archive (plain, gzip, zstd, xz; - is standard input)
    #[arg(value_name = "ARCHIVE")]
    archive: OsString,
    /// Directory in an image, which must exist
    #[arg(value_name = "IMAGE:/PATH")]
    target: OsString,
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        let owners = self.owners.parse()?;
        let target = ImagePath::parse(&self.target)?;
        target.check_path_given()?;
        // An image is changed by being opened: mistakes are told before.
        let mut archive = Some(self.open_archive()?);
        let targets = std::slice::from_ref(&target);
        edit_each(targets, self.open_args, session, |image, dir, session| {
            if self.parents {
                image.fs.create_dir_all(dir).within(image)?;
            }
            let Some(archive) = archive.take() else { return Ok(()) };
            let bar = match self.quiet || self.json {
                true => Progress::none(),
                false => Progress::of_bytes("unpacking", archive.size()),
            };
            let bar = Arc::new(bar);
            let shown = bar.clone();
            let mut extractor = TarExtractor::new(&image.fs)
                .into_dir(dir)
                .owners(owners.clone())
                .on_progress(move |done| shown.at(done));
            if let Some(seconds) = time::epoch()? {
                extractor = extractor.source_date_epoch(seconds);
            }
            if image.is_simulated() {
                extractor = extractor.threads(NonZeroUsize::MIN);
            }
            let outcome = extractor.extract(archive);
            drop((extractor, bar));
            match outcome {
                Ok(extracted) => self.tell(image, dir, extracted, session),
                Err(error) => {
                    let failure = match error.cause {
                        ExtractCause::Archive(error) => Failure::new(error),
                        // There is no such directory.
                        ExtractCause::Path(error) if error.path() == dir => {
                            return Err(image.refusal(&error));
                        }
                        ExtractCause::Path(error) => image.failure(error.path(), error.cause()),
                    };
                    tell_problems(image, dir, &error.extracted.problems, session)?;
                    session.error(failure)?;
                    let place = image.place(dir);
                    match error.extracted.counts {
                        none if none == ExtractedCounts::default() => {
                            session.warn(format_args!("{place}: nothing was unpacked"))
                        }
                        counts => {
                            let counts = Counted(counts);
                            session
                                .warn(format_args!("{place}: unpacked before the error: {counts}"))
                        }
                    }
                }
            }
        })
    }

    fn open_archive(&self) -> Result<Archive, Failure> {
        let name = Path::new(&self.archive);
        let opened = match Source::of(&self.archive).map_err(Failure::new)? {
            Source::StandardInput => Archive::standard_input(),
            Source::Archive(path) => Archive::open(&path),
            Source::Directory(_) => {
                let why = "is a directory, not an archive (use extant cp -a)";
                return Err(Failure::at(name, why));
            }
            Source::OciLayout { .. } | Source::ImageArchive { .. } => {
                let why = "is an OCI layout or an archive of images (use extant build)";
                return Err(Failure::at(name, why));
            }
        };
        opened.map_err(Failure::new)
    }

    fn tell(
        &self,
        image: &WritableImage,
        dir: &Path,
        extracted: Extracted,
        session: &mut Session,
    ) -> Result<(), Failure> {
        tell_problems(image, dir, &extracted.problems, session)?;
        if self.json {
            return session.out.json(&Shown::of(&extracted));
        }
        match self.quiet {
            true => Ok(()),
            false => say!(session, "{}: {}", image.place(dir), Counted(extracted.counts)),
        }
    }
}

fn tell_problems(
    image: &WritableImage,
    dir: &Path,
    problems: &[MemberProblem],
    session: &mut Session,
) -> Result<(), Failure> {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    for problem in problems {
        // As the archive has it: with all of its components.
        let start = problem.path.iter().take_while(|&&byte| byte == b'/').count();
        let path = dir.join(OsStr::from_bytes(&problem.path[start..]));
        let failure = image.failure(&path, &problem.why);
        match problem.why.is_loss() {
            true => session.error(failure)?,
            false => session.warn(failure)?,
        }
    }
    Ok(())
}

/// Counts as text.
struct Counted(ExtractedCounts);

impl std::fmt::Display for Counted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ExtractedCounts { files, directories, symlinks, hard_links, special_files, bytes } =
            self.0;
        write!(
            f,
            "{files} files with {bytes} bytes, {directories} directories, {symlinks} symbolic links, {hard_links} hard links, {special_files} special files"
        )
    }
}

/// The report as `--json` shows it.
#[derive(serde::Serialize)]
struct Shown {
    files: u64,
    directories: u64,
    symlinks: u64,
    hard_links: u64,
    special_files: u64,
    content_bytes: u64,
    refused: usize,
}

impl Shown {
    fn of(extracted: &Extracted) -> Self {
        let ExtractedCounts { files, directories, symlinks, hard_links, special_files, bytes } =
            extracted.counts;
        let refused = extracted.problems.iter().filter(|problem| problem.why.is_loss()).count();
        let content_bytes = bytes;
        Self { files, directories, symlinks, hard_links, special_files, content_bytes, refused }
    }
}
