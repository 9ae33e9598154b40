//! `extant chmod` and `extant chown`: permissions and owners.

use std::path::Path;

use extant::Metadata;
use extant::rooms::reader::Error as Cause;

use crate::failure::Failure;
use crate::mode::ModeChange;
use crate::owners::Owners;
use crate::session::Session;
use crate::writable_image::{ChangedFiles, In, NoMatch, WritableImage, umask};

/// Change file modes
///
/// An access control list is changed accordingly.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Recurse into directories; symbolic links are not changed
    #[arg(short = 'R')]
    recursive: bool,
    /// Octal, such as 644, or symbolic, such as u+rwX,go=
    #[arg(value_name = "MODE", allow_hyphen_values = true)]
    mode: String,
    #[command(flatten)]
    files: ChangedFiles,
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        let mode = ModeChange::parse(&self.mode)?;
        let umask = umask();
        self.files.edit_each(NoMatch::Fails, session, |image, path, session| {
            let change = |path: &Path, found: &Metadata| {
                if found.is_symlink() {
                    return Ok(());
                }
                let permissions = mode.applied(found.permissions(), found.is_dir(), umask);
                image.fs.set_permissions(path, permissions).within(image)
            };
            if self.recursive {
                return each_below(image, path, session, change);
            }
            let found = image.fs.metadata(path).within(image)?;
            change(path, &found)
        })
    }
}

/// Change file owners and groups
#[derive(Debug, clap::Args)]
pub(crate) struct ChownArgs {
    /// Recurse into directories
    #[arg(short = 'R')]
    recursive: bool,
    /// Change symbolic links themselves, not their targets; implied by -R
    #[arg(short = 'h')]
    no_dereference: bool,
    /// USER, USER:GROUP or :GROUP: numbers, or names in the image's /etc/passwd and /etc/group
    #[arg(value_name = "OWNER")]
    owner: String,
    #[command(flatten)]
    files: ChangedFiles,
}

impl ChownArgs {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        let (user, group) = match self.owner.split_once(':') {
            Some((user, group)) => (user, group),
            None => (&self.owner[..], ""),
        };
        if user.is_empty() && group.is_empty() {
            return Err(Failure::usage(format_args!("invalid owner: '{}'", self.owner)));
        }
        self.files.edit_each(NoMatch::Fails, session, |image, path, session| {
            let uid = number(image, Owners::Users, user)?;
            let gid = number(image, Owners::Groups, group)?;
            let change =
                |path: &Path, _: &Metadata| image.fs.set_owner(path, uid, gid).within(image);
            if self.recursive {
                return each_below(image, path, session, change);
            }
            if self.no_dereference {
                return image.fs.set_owner(path, uid, gid).within(image);
            }
            let set = extant::SetAttributes { uid, gid, ..extant::SetAttributes::default() };
            image.fs.set_attributes(path, extant::Follow::Yes, &set).within(image)
        })
    }
}

/// The number of a user or group, by number or by a name that a file of the image knows; `None` for
/// no name.
pub(super) fn number(
    image: &WritableImage,
    of: Owners,
    name: &str,
) -> Result<Option<u32>, Failure> {
    if name.is_empty() {
        return Ok(None);
    }
    if let Some(number) = of.number(name)? {
        return Ok(Some(number));
    }
    let unknown = || of.unknown(name, &image.place(Path::new(of.table())));
    let table = match image.fs.read(of.table()) {
        Err(error) if matches!(error.cause(), Cause::NotFound) => return Err(unknown()),
        table => table.within(image)?,
    };
    Owners::find(&table, name).map(Some).ok_or_else(unknown)
}

/// Runs `change` for a file and, when it is a directory, for all below it. One that fails does not
/// stop the next.
fn each_below(
    image: &WritableImage,
    path: &Path,
    session: &mut Session,
    change: impl Fn(&Path, &Metadata) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let found = image.fs.symlink_metadata(path).within(image)?;
    let mut seen = std::collections::HashSet::new();
    let mut waiting = vec![(path.to_owned(), found)];
    while let Some((path, found)) = waiting.pop() {
        if let Err(failure) = change(&path, &found) {
            session.error(failure)?;
        }
        // A damaged volume may hold loops.
        if !found.is_dir() || !seen.insert(found.inode()) {
            continue;
        }
        for entry in image.fs.read_dir(&path).within(image)? {
            let outcome = entry.and_then(|entry| Ok((entry.path(), entry.metadata()?)));
            match outcome.within(image) {
                Ok(next) => waiting.push(next),
                Err(failure) => session.error(failure)?,
            }
        }
    }
    Ok(())
}
