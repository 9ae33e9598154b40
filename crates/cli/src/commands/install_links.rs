//! `extant install-links`: a link for each name of another tool that the program answers to.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::compat;
use crate::failure::{At, Failure};
use crate::session::Session;

/// Make links named after the tools that extant replaces
///
/// Called through such a link, extant takes the tool's options, prints its messages and returns its
/// exit codes. Links that lead to this program already are made again; other files are kept, and
/// then no link is made.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Replace other files of these names; directories are never replaced
    #[arg(long)]
    force: bool,
    /// An existing directory
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        let program = std::env::current_exe().and_then(fs::canonicalize);
        let program = program.map_err(|error| {
            Failure::new(format_args!("cannot find the program's own file: {error}"))
        })?;
        let dir = fs::canonicalize(&self.dir).at(&self.dir)?;
        let target = target_of_links(&program, &dir);
        let links = || compat::names().map(|name| self.dir.join(name));
        // Nothing is changed if a name is refused.
        let mut are_free = true;
        for link in links() {
            if let Err(failure) = self.check(&link, &program, &target) {
                session.error(failure)?;
                are_free = false;
            }
        }
        if !are_free {
            return Ok(());
        }
        links().try_for_each(|link| put_link(&target, &link).at(&link))
    }

    /// Refuses a name that is taken by something else.
    fn check(&self, link: &Path, program: &Path, target: &Path) -> Result<(), Failure> {
        let found = match fs::symlink_metadata(link) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            found => found.at(link)?,
        };
        if found.is_dir() {
            return Err(Failure::at(link, "is a directory"));
        }
        if fs::canonicalize(link).is_ok_and(|file| file == program && found.is_file()) {
            return Err(Failure::at(link, "is the program itself"));
        }
        let is_ours = fs::read_link(link).is_ok_and(|text| text == target)
            || fs::canonicalize(link).is_ok_and(|file| file == program);
        if is_ours || self.force {
            return Ok(());
        }
        Err(Failure::at(link, "file exists and is not a link to extant: use --force to replace it"))
    }
}

/// The text of the links: a relative name from the program's own directory and from one next to it,
/// such as `/usr/sbin` for `/usr/bin`, so that both can be packed and moved together.
fn target_of_links(program: &Path, dir: &Path) -> PathBuf {
    let (Some(home), Some(file)) = (program.parent(), program.file_name()) else {
        return program.to_owned();
    };
    match (dir.parent(), home.file_name(), home.parent()) {
        _ if dir == home => file.into(),
        (Some(above), Some(name), Some(above_home)) if above == above_home => {
            Path::new("..").join(name).join(file)
        }
        _ => program.to_owned(),
    }
}

/// Makes a link in one step, in place of what has its name.
fn put_link(target: &Path, link: &Path) -> std::io::Result<()> {
    match symlink(target, link) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        done => return done,
    }
    let mut new = link.as_os_str().to_owned();
    new.push(format!(".{}", std::process::id()));
    symlink(target, &new)?;
    fs::rename(&new, link).inspect_err(|_| {
        let _ = fs::remove_file(&new);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_relative_where_they_can_be_moved_with_the_program() {
        let target = |dir| target_of_links(Path::new("/usr/bin/extant"), Path::new(dir));
        assert_eq!(target("/usr/bin"), Path::new("extant"));
        assert_eq!(target("/usr/sbin"), Path::new("../bin/extant"));
        assert_eq!(target("/usr/local/sbin"), Path::new("/usr/bin/extant"));
        assert_eq!(target("/"), Path::new("/usr/bin/extant"));
    }
}
