//! The input of `extant build`, and of `extant import` the archives: directories, tar archives and
//! OCI layouts, laid over each other into one [`Tree`].

mod acl;
mod archive;
mod blobs;
mod builder;
mod content;
mod contexts;
mod dir;
mod error;
mod exclude;
mod faked_type;
mod fakeroot;
mod file_type;
mod fs_config;
mod lines;
mod node;
mod oci;
mod open_archive;
mod options;
mod override_stat;
mod owner;
mod prefetch;
mod split_path;
mod store;
mod tar;
mod tree;
mod unpack;
mod unreadable;
mod xattr;

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::str::FromStr;

use blobs::Blobs;
use builder::{Assignments, TreeBuilder};
use dir::OutputDirectories;
use fakeroot::Fakeroot;
use open_archive::{input_of, opened, standard_input};
use tar::Flavor;
use tar::input::Input;

pub use archive::{
    Archive, ContentChunk, Contents, Each, Halt, Halted, Member, MemberKind, Unpacking,
};
pub use content::Content;
pub use error::{AclError, EntryName, Flaw, SourceError};
pub use exclude::Excludes;
pub use node::{DeviceNumber, Dirent, FileTime, Node, NodeId, NodeKind, OtherTimes, Segment};
pub use options::{Platform, ReadOptions, RootAttributes};
pub use owner::{OwnerMap, Owners, parse_owner};
pub use prefetch::SourcePrefetch;
pub use split_path::split_path;
pub use tree::Tree;
pub use xattr::{ACL_ACCESS, ACL_DEFAULT, Xattr, XattrSetId, Xattrs};

/// One source of a build.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Source {
    /// The contents of the directory; its own attributes become the root's.
    Directory(PathBuf),
    /// A tar archive, plain or packed by gzip, zstd or xz: a file, a block device or a named pipe.
    Archive(PathBuf),
    /// A tar archive from standard input.
    StandardInput,
    /// An OCI image layout, or a directory of skopeo's `dir:`: all layers of one image.
    OciLayout {
        /// The directory with `oci-layout` and `index.json`, or with `version` and `manifest.json`.
        path: PathBuf,
        /// The image's name in the index, where it has several.
        reference: Option<String>,
    },
    /// A tar archive of images, as `docker save` and `skopeo copy` write it: all layers of one.
    ImageArchive {
        /// A file.
        path: PathBuf,
        /// The image's name, where the archive has several.
        reference: Option<String>,
    },
}

impl FromStr for Source {
    type Err = SourceError;

    fn from_str(text: &str) -> Result<Self, SourceError> {
        Self::of(OsStr::new(text))
    }
}

impl Source {
    /// The source that an argument means: `-` is standard input; `dir:PATH`, `tar:PATH`,
    /// `oci:PATH[:REFERENCE]`, `oci-archive:FILE[:REFERENCE]` and `docker-archive:FILE[:REFERENCE]`
    /// name the kind; else a directory with an `oci-layout`, or one that skopeo's `dir:` made, is
    /// an image, any other a directory, and all else an archive, which may contain an image too.
    ///
    /// # Errors
    /// [`SourceError::Io`] if there is nothing of that name.
    pub fn of(argument: &OsStr) -> Result<Self, SourceError> {
        let bytes = argument.as_bytes();
        let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
        if bytes == b"-" {
            return Ok(Self::StandardInput);
        }
        if let Some(rest) = bytes.strip_prefix(b"dir:") {
            return Ok(Self::Directory(path(rest)));
        }
        if let Some(rest) = bytes.strip_prefix(b"tar:") {
            return Ok(Self::Archive(path(rest)));
        }
        if let Some(rest) = bytes.strip_prefix(b"oci:") {
            return Ok(Self::layout(rest));
        }
        for prefix in [&b"oci-archive:"[..], b"docker-archive:"] {
            if let Some(rest) = bytes.strip_prefix(prefix) {
                return Ok(Self::image_archive(rest));
            }
        }
        let found = path(bytes);
        let metadata = std::fs::metadata(&found)
            .map_err(|error| SourceError::io(found.as_path(), "open", error))?;
        Ok(match metadata.is_dir() {
            true if blobs::is_layout(&found) || blobs::is_flat(&found) => {
                Self::OciLayout { path: found, reference: None }
            }
            true => Self::Directory(found),
            false => Self::Archive(found),
        })
    }

    /// The part after the last colon is the reference, unless the whole is a layout.
    fn layout(bytes: &[u8]) -> Self {
        let whole = PathBuf::from(OsStr::from_bytes(bytes));
        let colon = bytes.iter().rposition(|&byte| byte == b':');
        if let Some(colon) = colon.filter(|_| !blobs::is_layout(&whole))
            && let Ok(reference) = std::str::from_utf8(&bytes[colon + 1..])
        {
            let path = PathBuf::from(OsStr::from_bytes(&bytes[..colon]));
            return Self::OciLayout { path, reference: Some(reference.to_owned()) };
        }
        Self::OciLayout { path: whole, reference: None }
    }
}

impl Source {
    /// A reference has colons of its own (`debian:12`): it begins after the first part that is a
    /// file.
    fn image_archive(bytes: &[u8]) -> Self {
        let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
        let colons = bytes.iter().enumerate().filter(|(_, byte)| **byte == b':');
        for (colon, _) in colons {
            let file = path(&bytes[..colon]);
            if let (true, Ok(reference)) =
                (file.is_file(), std::str::from_utf8(&bytes[colon + 1..]))
                && !path(bytes).exists()
            {
                return Self::ImageArchive { path: file, reference: Some(reference.to_owned()) };
            }
        }
        Self::ImageArchive { path: path(bytes), reference: None }
    }
}

/// Reads all sources, each laid over those before it. Directories are read on the current rayon
/// pool.
///
/// # Errors
/// The first [`SourceError`], in an order that does not depend on threads.
pub fn read_sources(sources: &[Source], options: &ReadOptions) -> Result<Tree, SourceError> {
    let output = options
        .output
        .as_deref()
        .map(|output| OutputDirectories::of(output, &options.schemes))
        .transpose()?
        .unwrap_or_default();
    let assignments = Assignments::of(options)?;
    let faked = options.fakeroot.as_deref().map(Fakeroot::read).transpose()?;
    let mut builder = TreeBuilder::new(options);
    for source in sources {
        match source {
            Source::Directory(path) => {
                let rules = dir::Rules {
                    output: &output,
                    excludes: &options.excludes,
                    faked: faked.as_ref(),
                    override_stat: options.override_stat,
                };
                dir::read(&mut builder, path, rules)?;
            }
            Source::Archive(path) => {
                let (name, file) = opened(path)?;
                read_archive(&mut builder, &name, file, Holds::Any, options)?;
            }
            Source::ImageArchive { path, reference } => {
                let (name, file) = opened(path)?;
                let holds = Holds::Image(reference.as_deref());
                read_archive(&mut builder, &name, file, holds, options)?;
            }
            Source::StandardInput => {
                let (name, file) = standard_input()?;
                read_archive(&mut builder, &name, file, Holds::Any, options)?;
            }
            Source::OciLayout { path, reference } => {
                let blobs = Blobs::of_directory(path);
                oci::read(&mut builder, blobs, reference.as_deref(), options)?;
            }
        }
    }
    if let Some(warning) = faked.as_ref().and_then(Fakeroot::warning) {
        builder.warn(warning);
    }
    builder.exclude(&options.excludes);
    builder.finish(assignments.as_ref())
}

/// Requirements on an archive.
#[derive(Clone, Copy)]
enum Holds<'r> {
    /// A tree, or the only image.
    Any,
    /// An image, of this name.
    Image(Option<&'r str>),
}

fn read_archive(
    builder: &mut TreeBuilder,
    name: &EntryName,
    file: File,
    holds: Holds<'_>,
    options: &ReadOptions,
) -> Result<(), SourceError> {
    let name_text = name.to_string();
    let mut input = input_of(name, file, |stream| Input::stream(stream, &options.spool))?;
    let expected = matches!(holds, Holds::Image(_));
    let images = Blobs::of_archive(&name_text, &mut input, expected)?;
    match (images, holds) {
        (Some(images), Holds::Any) => oci::read(builder, images, None, options),
        (Some(images), Holds::Image(reference)) => oci::read(builder, images, reference, options),
        (None, Holds::Any) => {
            builder.begin_source();
            tar::read(builder, &name_text, &mut input, Flavor::Archive)
        }
        (None, Holds::Image(_)) => Err(SourceError::Oci {
            layout: name.clone(),
            problem: "not an archive of images: neither index.json nor manifest.json".to_owned(),
        }),
    }
}
