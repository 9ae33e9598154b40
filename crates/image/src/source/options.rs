//! Options of the readers of sources.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use extant_storage::Schemes;

use super::error::SourceError;
use super::exclude::Excludes;
use super::owner::Owners;

/// How sources are read.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// Owners of the files.
    pub owners: Owners,
    /// SOURCE_DATE_EPOCH: seconds since 1970; later modification times become this one.
    pub latest: Option<i64>,
    /// The image to be written, so that it does not become part of itself.
    pub output: Option<PathBuf>,
    /// The schemes that its name may have.
    pub schemes: Schemes,
    /// Where archives that are not seekable are unpacked to, in an unlinked file: the directory of
    /// the image.
    pub spool: PathBuf,
    /// Times of access and of change are read too; [`Tree::other_times`](super::Tree::other_times)
    /// gives them.
    pub all_times: bool,
    /// The root directory's attributes that are not those of the sources.
    pub root: Option<RootAttributes>,
    /// For which machine an OCI layout's image is to be, where it has several.
    pub platform: Option<Platform>,
    /// Files that are left out, whichever source has them. In a directory they are not looked at;
    /// those of archives are read and checked, and a hard link to one of them is a file of its own.
    pub excludes: Excludes,
    /// A file_contexts file (selabel_file(5)): the label of each file that a specification of it
    /// gives one, in place of that of the source. Files next to it with the same name and
    /// `.homedirs`, `.local`, `.subs` or `.subs_dist` are read too.
    pub file_contexts: Option<PathBuf>,
    /// Android's list of owners, modes and capabilities, in its text form: they replace those of
    /// the source, and what `owners` makes of them.
    pub fs_config: Option<PathBuf>,
    /// A database of fakeroot: owners, modes, types and device numbers of the files of source
    /// directories are as under fakeroot.
    pub fakeroot: Option<PathBuf>,
    /// The attribute `user.containers.override_stat` of the files of source directories gives their
    /// owners, modes, types and device numbers, and is left out itself.
    pub override_stat: bool,
    /// Where the volume will be mounted, for the paths of `file_contexts` and `fs_config`; empty
    /// for the root.
    pub mount_point: Vec<u8>,
}

/// Attributes of the root directory that replace those of the source. Its other extended attributes
/// are those of the source.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RootAttributes {
    /// Permission bits.
    pub permissions: u16,
    /// User and group.
    pub owner: (u32, u32),
    /// All of its times, in seconds since 1970.
    pub time: i64,
    /// The attribute `security.selinux`.
    pub selinux: Option<String>,
}

/// Operating system and processor of an image, in the words of Go: `linux/arm64/v8`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Platform {
    /// Such as `linux`.
    pub os: String,
    /// Such as `amd64`.
    pub architecture: String,
    /// Such as `v8`; without it any will do.
    pub variant: Option<String>,
}

impl FromStr for Platform {
    type Err = SourceError;

    fn from_str(text: &str) -> Result<Self, SourceError> {
        let mut parts = text.split('/').map(str::to_owned);
        let platform = (parts.next(), parts.next(), parts.next(), parts.next());
        let is_empty = text.split('/').any(str::is_empty);
        match platform {
            (Some(os), Some(architecture), variant, None) if !is_empty => {
                Ok(Self { os, architecture, variant })
            }
            _ => Err(SourceError::Platform(text.to_owned())),
        }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        self.variant.as_ref().map_or(Ok(()), |variant| write!(f, "/{variant}"))
    }
}

impl Platform {
    pub(super) fn admits(&self, other: &Self) -> bool {
        self.os == other.os
            && self.architecture == other.architecture
            && (self.variant.is_none() || self.variant == other.variant)
    }
}
