//! `extant lab ffsb`: a profile of FFSB on a directory or on a volume in process.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::ffsb::{self, Profile, REFERENCES, Reference};
use crate::files::{Files, Mounted};

use super::console::{CommandError, Console};

/// Run a profile of the Flexible File System Benchmark (FFSB 5 or 6)
///
/// The files are made below the profile's location, which must be a directory; `data` and `meta` in
/// it are removed first. The profile is printed, then the results.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run on the volume in this image, in this process; the profile's locations are paths in it
    #[arg(long, value_name = "IMAGE")]
    image: Option<OsString>,
    /// Directory to use instead of the profile's location; the profile must have one file system
    #[arg(long, value_name = "DIR")]
    location: Option<PathBuf>,
    /// Print all counts and times as JSON
    #[arg(long)]
    json: bool,
    /// List the built-in profiles of published runs
    #[arg(long, conflicts_with_all = ["image", "location", "json", "profile"])]
    list: bool,
    /// Profile: a file, - for standard input, or a name shown by --list
    #[arg(value_name = "PROFILE", required_unless_present = "list")]
    profile: Option<PathBuf>,
}

impl Args {
    pub(crate) fn run(self, console: &mut Console<'_>) -> Result<(), CommandError> {
        let Some(path) = &self.profile else { return list(console) };
        let named = |what: &dyn std::fmt::Display| CommandError::at(path, what);
        let text = read(path).map_err(|error| named(&error))?;
        let mut profile: Profile = text.parse().map_err(|error| named(&error))?;
        if let Some(location) = &self.location {
            let [set] = &mut profile.filesystems[..] else {
                return Err(CommandError::usage(
                    "--location: the profile has several [filesystem]",
                ));
            };
            set.location.clone_from(location);
        }
        for warning in &profile.warnings {
            console.warn(format_args!("{}: {warning}", path.display()))?;
        }
        if !self.json {
            console.line(format_args!("{}", profile.to_string().trim_end()))?;
            console.flush()?;
        }
        let outcome = match &self.image {
            None => run(&profile, &Mounted)?,
            Some(image) => {
                let fs = extant::FileSystem::open(image).map_err(CommandError::new)?;
                let outcome = run(&profile, &fs);
                let closed = fs.close().map_err(|error| CommandError::at(image, error));
                let outcome = outcome?;
                closed?;
                outcome
            }
        };
        if self.json {
            return console.json(&outcome);
        }
        console.line(format_args!("fs setup took {:.1} secs", outcome.setup_seconds))?;
        match outcome.measured {
            Some(measured) => console.line(format_args!("{}", measured.to_string().trim_end())),
            None => Ok(()),
        }
    }
}

/// A file's text, or that of a profile that is shipped.
fn read(path: &Path) -> std::io::Result<String> {
    if path.as_os_str() == "-" {
        return std::io::read_to_string(std::io::stdin());
    }
    match (std::fs::read_to_string(path), path.to_str().and_then(Reference::named)) {
        (Err(error), Some(reference)) if error.kind() == std::io::ErrorKind::NotFound => {
            Ok(reference.text.to_owned())
        }
        (Err(error), _) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(std::io::Error::new(error.kind(), "no such file or built-in profile (see --list)"))
        }
        (text, _) => text,
    }
}

fn list(console: &mut Console<'_>) -> Result<(), CommandError> {
    for Reference { name, about, .. } in REFERENCES {
        console.line(format_args!("{name:<24} {about}"))?;
    }
    Ok(())
}

fn run(profile: &Profile, files: &dyn Files) -> Result<ffsb::TrialResult, CommandError> {
    ffsb::run(profile, files).map_err(CommandError::new)
}
