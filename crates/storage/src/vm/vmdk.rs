//! VMDK: a descriptor, which is a text, and the extents that it names.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use extant_device::{Device, FileDevice};
use imago::file::File as ImageFile;
use imago::format::gate::ImplicitOpenGate;
use imago::vmdk::Vmdk;
use imago::{FormatAccess, FormatDriverBuilder, StorageOpenOptions};

use super::error::VmImageError;
use super::files::{Access, Allowed, NamedFile, OpenFile, Role, in_directory_of};
use super::sparse;
use crate::url::UrlError;

/// The most extents.
const EXTENTS_MAX: usize = 4096;

/// The parent of an image that has none.
const NO_PARENT: &str = "ffffffff";

/// The text of a descriptor of its own; `None` for a sparse extent, which may have it inside.
fn text_of(file: &dyn Device) -> Result<Option<String>, VmImageError> {
    let mut start = [0; 4];
    if file.size() >= 4 {
        file.read_at(0, &mut start)?;
    }
    if start == *sparse::MAGIC {
        return Ok(None);
    }
    let other = VmImageError::OtherFormat { format: "vmdk" };
    if file.size() > sparse::DESCRIPTOR_MAX {
        return Err(other);
    }
    let mut bytes = vec![0; file.size() as usize];
    file.read_at(0, &mut bytes)?;
    let text = String::from_utf8(bytes).ok().filter(|text| text.contains("createType"));
    text.map(Some).ok_or(other)
}

/// Refuses the descriptor of a disk that has only what differs from another.
fn refuse_parent(descriptor: &str) -> Result<(), VmImageError> {
    let mut lines = descriptor.lines().filter_map(|line| line.split_once('='));
    let parent = lines.find(|(name, _)| name.trim() == "parentCID");
    match parent.map(|(_, value)| value.trim().trim_matches('"')) {
        Some(value) if !value.eq_ignore_ascii_case(NO_PARENT) => {
            Err(VmImageError::Unsupported { what: "a link to a parent disk".to_owned() })
        }
        _ => Ok(()),
    }
}

/// The names of extents in a descriptor, and whether they are sparse.
fn extents(text: &str) -> Result<(Vec<String>, bool), VmImageError> {
    let damaged = |what| VmImageError::Damaged { what };
    let (mut names, mut sparse) = (Vec::new(), None);
    for line in text.lines() {
        let mut words = line.split_whitespace();
        if !["RW", "RDONLY", "NOACCESS"].contains(&words.next().unwrap_or_default()) {
            continue;
        }
        let is_sparse = match words.nth(1) {
            Some("FLAT") => false,
            Some("SPARSE") => true,
            // imago reads these, or refuses them.
            _ => continue,
        };
        if *sparse.get_or_insert(is_sparse) != is_sparse {
            let what = "sparse and flat extents in one disk".to_owned();
            return Err(VmImageError::Unsupported { what });
        }
        let name = line.split('"').nth(1).ok_or(damaged("an extent has no name"))?;
        // They lie next to the descriptor: one that leads elsewhere is not of this disk.
        if name.is_empty() || name.contains('/') || name == ".." {
            return Err(damaged("an extent is not in the directory of the descriptor"));
        }
        names.push(name.to_owned());
        if names.len() > EXTENTS_MAX {
            return Err(damaged("too many extents"));
        }
    }
    Ok((names, sparse == Some(true)))
}

/// Opens the extents of a descriptor, if that is allowed.
pub(super) fn open_extents(
    path: &Path,
    file: Arc<FileDevice>,
    allowed: Allowed,
    open: OpenFile<'_>,
) -> Result<Vec<NamedFile>, UrlError> {
    let failed = |error| UrlError::VmImage { path: path.to_owned(), error };
    let Some(text) = text_of(&*file).map_err(failed)? else {
        let inside = sparse::descriptor(&*file).map_err(failed)?;
        refuse_parent(&String::from_utf8_lossy(&inside)).map_err(failed)?;
        return Ok(vec![NamedFile { path: path.to_owned(), file, role: Role::Sparse }]);
    };
    refuse_parent(&text).map_err(failed)?;
    let (names, is_sparse) = extents(&text).map_err(failed)?;
    let role = if is_sparse { Role::Sparse } else { Role::Raw };
    let mut files = vec![NamedFile { path: path.to_owned(), file, role: Role::Descriptor }];
    for name in names {
        if !allowed.extents {
            let (what, option) = ("extent", "extents");
            return Err(failed(VmImageError::NeedsFile { what, name, option }));
        }
        let path = in_directory_of(path, &name);
        // A flat file may have several extents.
        if is_sparse || !files.iter().any(|known| known.path == path) {
            let file = open(&path)?;
            files.push(NamedFile { path, file, role });
        }
    }
    Ok(files)
}

/// Gives imago the files that were opened before, and no other.
struct Opened(HashMap<PathBuf, NamedFile>);

impl ImplicitOpenGate<ImageFile> for Opened {
    fn open_format<F: FormatDriverBuilder<ImageFile>>(&mut self, _: F) -> io::Result<Access> {
        Err(io::Error::from(io::ErrorKind::PermissionDenied))
    }

    fn open_storage(&mut self, options: StorageOpenOptions) -> io::Result<ImageFile> {
        let name = options.get_filename().and_then(Path::file_name);
        let known = name.and_then(|name| self.0.get(Path::new(name)));
        known.ok_or(io::ErrorKind::PermissionDenied)?.for_imago()
    }
}

/// The disk that a descriptor describes.
pub(super) fn open(files: &[NamedFile]) -> io::Result<Access> {
    let (descriptor, extents) = files.split_first().ok_or(io::ErrorKind::NotFound)?;
    let named = |file: &NamedFile| Some((PathBuf::from(file.path.file_name()?), file.clone()));
    let gate = Opened(extents.iter().filter_map(named).collect());
    let vmdk = Vmdk::<ImageFile>::builder(descriptor.for_imago()?).open(gate)?;
    Ok(FormatAccess::new(vmdk))
}
