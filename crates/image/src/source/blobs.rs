//! Where the files of an image are: a layout's directory, a directory of skopeo, or a tar archive
//! of either kind that `docker save` and `skopeo copy` write.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use oci_spec::image::Digest;

use super::builder::TreeBuilder;

use super::error::{Flaw, SourceError};
use super::node::{NodeId, NodeKind};
use super::options::ReadOptions;
use super::tar::input::Input;
use super::tar::{self, Flavor};
use super::tree::Tree;

/// Links that are followed to a file of an archive: `docker save` names one layer several times so.
const LINKS_MAX: usize = 8;
/// The content of the file `version` that skopeo's `dir:` writes.
const TRANSPORT: &str = "Directory Transport Version: ";

/// The files of an image, by their names.
#[derive(Debug)]
pub(super) enum Blobs {
    /// An OCI layout: blobs by algorithm and digest.
    Layout(PathBuf),
    /// A directory as skopeo's `dir:` makes it: blobs by digest.
    Flat(PathBuf),
    /// A tar archive, named, that holds an OCI layout or what `docker save` writes.
    Archive(String, Arc<Tree>),
}

/// Names of the files of an image, and how they refer to each other.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Form {
    /// `index.json` and blobs.
    Oci,
    /// `manifest.json` is the manifest of the only image.
    Flat,
    /// `manifest.json` lists images by the names of their files.
    Docker,
}

/// Whether the directory is marked as an OCI layout.
pub(super) fn is_layout(path: &Path) -> bool {
    path.join("oci-layout").is_file() && path.join("index.json").is_file()
}

/// Whether it is a directory of skopeo's `dir:`.
pub(super) fn is_flat(path: &Path) -> bool {
    let mut start = Vec::new();
    let read = File::open(path.join("version"))
        .and_then(|file| file.take(TRANSPORT.len() as u64).read_to_end(&mut start));
    read.is_ok() && start == TRANSPORT.as_bytes() && path.join("manifest.json").is_file()
}

impl Blobs {
    pub(super) fn of_directory(path: &Path) -> Self {
        match is_flat(path) && !is_layout(path) {
            true => Self::Flat(path.to_owned()),
            false => Self::Layout(path.to_owned()),
        }
    }

    /// The files of an archive of images; `None` where the archive is something else. Unless it is
    /// `expected` to be one, it is read for that only where its first entry may be such an
    /// archive's, and again from its start.
    pub(super) fn of_archive(
        name: &str,
        input: &mut Input,
        expected: bool,
    ) -> Result<Option<Self>, SourceError> {
        let in_archive = |flaw| tar::archive_error(name, None, 0, flaw);
        let first = match tar::first_name(input) {
            // Reported once: nothing would report it again.
            Err(flaw @ (Flaw::Read(_) | Flaw::Spool { .. } | Flaw::SpoolFull { .. })) => {
                return Err(in_archive(flaw));
            }
            first => first.unwrap_or_default(),
        };
        input.rewind();
        if !expected && !first.is_some_and(|first| begins_images(&first)) {
            return Ok(None);
        }
        let mut builder = TreeBuilder::new(&ReadOptions::default());
        builder.begin_source();
        tar::read(&mut builder, name, input, Flavor::Archive)?;
        input.rewind();
        let blobs = Self::Archive(name.to_owned(), Arc::new(builder.finish(None)?));
        Ok(blobs.form().map(|_| blobs))
    }

    /// How the files refer to each other; `None` if they are not an image.
    pub(super) fn form(&self) -> Option<Form> {
        let has = |name: &str| self.has(name);
        match self {
            Self::Flat(_) => Some(Form::Flat),
            Self::Layout(_) => Some(Form::Oci),
            // Newer `docker save` writes both.
            Self::Archive(..) if has("oci-layout") && has("index.json") => Some(Form::Oci),
            Self::Archive(..) => has("manifest.json").then_some(Form::Docker),
        }
    }

    fn has(&self, name: &str) -> bool {
        match self {
            Self::Layout(path) | Self::Flat(path) => path.join(name).is_file(),
            Self::Archive(_, tree) => found(tree, name).is_some(),
        }
    }

    /// The image as messages name it.
    pub(super) fn shown(&self) -> PathBuf {
        match self {
            Self::Layout(path) | Self::Flat(path) => path.clone(),
            Self::Archive(name, _) => PathBuf::from(name),
        }
    }

    /// The name of the file that holds a blob. A digest has no slash in it, so that it cannot lead
    /// out of the image.
    pub(super) fn name_of(&self, digest: &Digest) -> String {
        match self {
            Self::Flat(_) => digest.digest().to_owned(),
            _ => format!("blobs/{}/{}", digest.algorithm().as_ref(), digest.digest()),
        }
    }

    /// Opens a file; its size and its bytes.
    pub(super) fn open(&self, name: &str) -> Result<(u64, Box<dyn Read + Send>), SourceError> {
        let failed =
            |error: io::Error| SourceError::io(self.shown().join(name).as_path(), "open", error);
        match self {
            Self::Layout(path) | Self::Flat(path) => {
                let file = File::open(path.join(name)).map_err(failed)?;
                let metadata = file.metadata().map_err(failed)?;
                if !metadata.is_file() {
                    return Err(failed(io::Error::other("not a regular file")));
                }
                Ok((metadata.len(), Box::new(file)))
            }
            Self::Archive(_, tree) => {
                let node =
                    found(tree, name).ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
                let size = tree.node(node).size();
                Ok((size, Box::new(Member { tree: tree.clone(), node, at: 0, size })))
            }
        }
    }
}

/// Whether an archive that begins with this name may be one of images.
fn begins_images(name: &[u8]) -> bool {
    let name = name.strip_prefix(b"./").unwrap_or(name);
    let first = name.split(|byte| *byte == b'/').next().unwrap_or_default();
    // go-containerregistry writes the configuration first, as `sha256:DIGEST`.
    let stem = first.strip_prefix(b"sha256:").unwrap_or(first);
    let stem = stem.split(|byte| *byte == b'.').next().unwrap_or_default();
    let is_digest = stem.len() == 64 && stem.iter().all(u8::is_ascii_hexdigit);
    is_digest
        || matches!(
            first,
            b"blobs" | b"oci-layout" | b"index.json" | b"manifest.json" | b"repositories"
        )
}

/// The regular file of that name in an archive, through links within it.
fn found(tree: &Tree, name: &str) -> Option<NodeId> {
    let mut path = PathBuf::from(name);
    for _ in 0..LINKS_MAX {
        let mut at = NodeId::ROOT;
        for part in path.components() {
            match part {
                Component::Normal(part) => {
                    at = tree.lookup(at, part.as_encoded_bytes())?.node();
                }
                Component::CurDir => {}
                _ => return None,
            }
        }
        match tree.node(at).kind() {
            NodeKind::Regular => return Some(at),
            NodeKind::Symlink => {
                let target = std::str::from_utf8(tree.symlink_target(at)).ok()?;
                path = joined(path.parent()?, Path::new(target))?;
            }
            _ => return None,
        }
    }
    None
}

/// Where a link in a directory leads, within the archive.
fn joined(directory: &Path, target: &Path) -> Option<PathBuf> {
    let mut path = directory.to_owned();
    for part in target.components() {
        match part {
            Component::Normal(part) => path.push(part),
            Component::ParentDir => path.pop().then_some(())?,
            Component::CurDir => {}
            _ => return None,
        }
    }
    Some(path)
}

/// A file of an archive, read from its start.
struct Member {
    tree: Arc<Tree>,
    node: NodeId,
    at: u64,
    size: u64,
}

impl Read for Member {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = (self.size - self.at).min(buffer.len() as u64) as usize;
        let content = self.tree.open(self.node).map_err(io::Error::other)?;
        content.read_exact_at(&mut buffer[..count], self.at).map_err(io::Error::other)?;
        self.at += count as u64;
        Ok(count)
    }
}
