//! `extant lab ffsb`: a profile of FFSB on a directory or on a volume in process.

use std::ffi::OsString;
use std::path::PathBuf;

use extant_lab::ffsb::{self, Profile};
use extant_lab::files::{Files, Mounted};

use crate::failure::Failure;
use crate::session::Session;

/// Run a profile of the Flexible File System Benchmark (FFSB 5 or 6)
///
/// The files are made below the profile's location, which must be a directory; `data` and `meta` in it are removed first.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run on the volume in this image, in this process: the profile's locations are paths inside it
    #[arg(long, value_name = "IMAGE")]
    image: Option<OsString>,
    /// Print all counts and times as JSON
    #[arg(long)]
    json: bool,
    /// The profile; - is standard input
    #[arg(value_name = "PROFILE")]
    profile: PathBuf,
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        let named = |what: &dyn std::fmt::Display| Failure::at(&self.profile, what);
        let text = match self.profile.as_os_str() == "-" {
            true => std::io::read_to_string(std::io::stdin()),
            false => std::fs::read_to_string(&self.profile),
        };
        let text = text.map_err(|error| named(&error))?;
        let profile: Profile = text.parse().map_err(|error| named(&error))?;
        for warning in &profile.warnings {
            session.remark(format_args!("{}: {warning}", self.profile.display()))?;
        }
        let outcome = match &self.image {
            None => run(&profile, &Mounted)?,
            Some(image) => {
                let fs = extant::FileSystem::open(image).map_err(Failure::new)?;
                let outcome = run(&profile, &fs);
                let closed = fs.close().map_err(|error| Failure::at(image, error));
                let outcome = outcome?;
                closed?;
                outcome
            }
        };
        if self.json {
            return session.out.json(&outcome);
        }
        session.out.line(format_args!("fs setup took {:.1} secs", outcome.setup_seconds))?;
        match outcome.measured {
            Some(measured) => session.out.line(format_args!("{}", measured.to_string().trim_end())),
            None => Ok(()),
        }
    }
}

fn run(profile: &Profile, files: &dyn Files) -> Result<ffsb::Outcome, Failure> {
    ffsb::run(profile, files).map_err(Failure::new)
}
