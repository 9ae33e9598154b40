//! The input of `extant build`: directories, tar archives and OCI layouts, laid over each other into one [`Tree`].

mod acl;
mod builder;
mod dir;
mod error;
mod owner;
mod store;
mod tree;
mod xattr;

use std::path::PathBuf;

use builder::TreeBuilder;
use dir::OutputDirectory;

pub use error::{EntryName, Flaw, SourceError};
pub use owner::{OwnerMap, Owners, parse_owner};
pub use store::Content;
pub use tree::{DeviceNumber, Dirent, Mtime, Node, NodeId, NodeKind, Segment, StoreId, Tree};
pub use xattr::{ACL_ACCESS, ACL_DEFAULT, Xattr, XattrSetId, Xattrs};

/// One source of a build.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Source {
    /// What the directory holds; its own attributes become the root's.
    Directory(PathBuf),
}

/// How sources are read.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// Who owns the files.
    pub owners: Owners,
    /// SOURCE_DATE_EPOCH: seconds since 1970; later modification times become this one.
    pub latest: Option<i64>,
    /// The image to be written, so that it does not become part of itself.
    pub output: Option<PathBuf>,
    /// Where archives that are not seekable are unpacked to, in an unlinked file: the directory of the image.
    pub spool: PathBuf,
}

/// Reads all sources, each laid over those before it. Directories are read on the current rayon pool.
///
/// # Errors
/// The first [`SourceError`], in an order that does not depend on threads.
pub fn read_sources(sources: &[Source], options: &ReadOptions) -> Result<Tree, SourceError> {
    let latest = options.latest.map(|seconds| Mtime { seconds, nanoseconds: 0 });
    let output = options.output.as_deref().map_or(Ok(None), OutputDirectory::of)?;
    let mut builder = TreeBuilder::new(options.owners.clone(), latest);
    for source in sources {
        match source {
            Source::Directory(path) => dir::read(&mut builder, path, output)?,
        }
    }
    builder.finish()
}
