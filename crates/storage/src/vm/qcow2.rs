//! qcow2: what of its header is needed to know which files it names, and that imago is not led to
//! allocate by an unchecked number.

use std::io;
use std::path::Path;
use std::sync::Arc;

use extant_device::{Device, FileDevice};
use imago::qcow2::Qcow2;
use imago::raw::Raw;
use imago::{DenyImplicitOpenGate, FormatAccess, FormatDriverBuilder};

use super::error::VmImageError;
use super::files::{Access, Allowed, NamedFile, OpenFile, Role, in_directory_of};
use crate::url::UrlError;

use imago::file::File as ImageFile;

const MAGIC: &[u8; 4] = b"QFI\xfb";
/// Bytes of a header of version 2, and of the fields of version 3 that have a meaning.
const HEADER_V2: usize = 72;
const HEADER_V3: usize = 104;
/// The limits of qemu: a name of a backing file, an L1 table.
const NAME_MAX: u32 = 1023;
const L1_MAX: u64 = 32 << 20;
/// Files of a chain.
const CHAIN_MAX: usize = 64;
/// Bits of `incompatible_features`.
const FEATURES: [(u64, &str); 2] = [
    (1 << 0, "an image marked dirty (run qemu-img check -r leaks)"),
    (1 << 1, "an image marked corrupt (run qemu-img check)"),
];
const EXTERNAL_DATA: u64 = 1 << 2;
const COMPRESSION: u64 = 1 << 3;
const EXTENDED: u64 = 1 << 4;
const KNOWN: u64 = (1 << 5) - 1;
/// The width of a count in version 2: 16 bits.
const COUNTS_ORDER_V2: u32 = 4;
/// The bit of `autoclear_features` that says that the bitmaps of the image are as its data.
const BITMAPS: u64 = 1;
const ZSTD: u8 = 1;
/// Types of header extensions.
const END_OF_EXTENSIONS: u32 = 0;
const BACKING_FORMAT: u32 = 0xe279_2aca;
const DATA_FILE_NAME: u32 = 0x4441_5441;

/// The other files that a header names.
#[derive(Debug, Default, Eq, PartialEq)]
struct References {
    backing: Option<String>,
    backing_format: Option<String>,
    has_data_file: bool,
    data_file: Option<String>,
}

/// The fields of a header that say how the disk is read.
#[derive(Clone, Debug)]
pub(super) struct Header {
    pub(super) cluster_bits: u32,
    pub(super) size: u64,
    pub(super) l1_at: u64,
    pub(super) l1_entries: u64,
    pub(super) snapshots: u32,
    pub(super) snapshots_at: u64,
    pub(super) has_data_file: bool,
    pub(super) is_extended: bool,
    pub(super) is_zstd: bool,
    pub(super) version: u32,
    /// Where the table of reference counts is, its clusters, and the width of a count.
    pub(super) counts_at: u64,
    pub(super) counts_clusters: u32,
    pub(super) counts_order: u32,
    autoclear: u64,
    /// Bytes of the header, and where the name of a backing file is.
    header_size: u64,
    backing: (u64, u32),
}

pub(super) fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(bytes[at..at + 2].try_into().expect("2 bytes"))
}

pub(super) fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

pub(super) fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

impl Header {
    pub(super) fn read(file: &dyn Device) -> Result<Self, VmImageError> {
        let damaged = |what| VmImageError::Damaged { what };
        let unsupported = |what: &str| VmImageError::Unsupported { what: what.to_owned() };
        // One byte more: the type of compression.
        let mut header = [0; HEADER_V3 + 1];
        let length = file.size().min(header.len() as u64) as usize;
        file.read_at(0, &mut header[..length])?;
        if !header.starts_with(MAGIC) || length < HEADER_V2 {
            return Err(VmImageError::OtherFormat { format: "qcow2" });
        }
        let version = be32(&header, 4);
        let cluster_bits = be32(&header, 20);
        if !(9..=21).contains(&cluster_bits) {
            return Err(damaged("invalid cluster size"));
        }
        if be32(&header, 32) != 0 {
            return Err(unsupported("encryption"));
        }
        let (features, header_size) = match version {
            2 => (0, HEADER_V2 as u64),
            3 if length >= HEADER_V3 => (be64(&header, 72), u64::from(be32(&header, 100))),
            3 => return Err(damaged("the header is cut off")),
            _ => return Err(unsupported(&format!("qcow2 version {version}"))),
        };
        if features & !KNOWN != 0 {
            let unknown = features & !KNOWN;
            return Err(unsupported(&format!("unknown features of qcow2 ({unknown:#x})")));
        }
        if let Some((_, what)) = FEATURES.iter().find(|(bit, _)| features & bit != 0) {
            return Err(unsupported(what));
        }
        let compression = if features & COMPRESSION == 0 { 0 } else { header[HEADER_V3] };
        if compression > ZSTD {
            return Err(unsupported(&format!("compression of type {compression}")));
        }
        let found = Self {
            cluster_bits,
            size: be64(&header, 24),
            l1_at: be64(&header, 40),
            l1_entries: u64::from(be32(&header, 36)),
            snapshots: be32(&header, 60),
            snapshots_at: be64(&header, 64),
            has_data_file: features & EXTERNAL_DATA != 0,
            is_extended: features & EXTENDED != 0,
            is_zstd: compression == ZSTD,
            version,
            counts_at: be64(&header, 48),
            counts_clusters: be32(&header, 56),
            counts_order: if version == 2 { COUNTS_ORDER_V2 } else { be32(&header, 96) },
            autoclear: if version == 2 { 0 } else { be64(&header, 88) },
            header_size,
            backing: (be64(&header, 8), be32(&header, 16)),
        };
        if found.is_extended && cluster_bits < 14 {
            return Err(damaged("invalid cluster size"));
        }
        found.check_l1(found.l1_entries, found.size)?;
        Ok(found)
    }

    /// Refuses an L1 table that does not fit the size of its disk.
    pub(super) fn check_l1(&self, entries: u64, size: u64) -> Result<(), VmImageError> {
        let cluster = 1_u64 << self.cluster_bits;
        // An entry of the L1 table is for a cluster of entries, each for a cluster.
        let per_table = cluster / if self.is_extended { 16 } else { 8 };
        let needed = size.div_ceil(cluster * per_table);
        match entries * 8 > L1_MAX || entries < needed {
            true => {
                let what = "the L1 table does not fit the size of the disk";
                Err(VmImageError::Damaged { what })
            }
            false => Ok(()),
        }
    }

    /// Refuses an image that is not written.
    pub(super) fn check_writable(&self) -> Result<(), VmImageError> {
        let what = match self.autoclear {
            _ if self.has_data_file => "writing an image with a data file",
            0 => return Ok(()),
            BITMAPS => "writing an image with bitmaps (remove them: qemu-img bitmap --remove)",
            _ => "writing an image with unknown features",
        };
        Err(VmImageError::Unsupported { what: what.to_owned() })
    }

    /// Whether imago does not read the image.
    pub(super) fn is_ours(&self) -> bool {
        self.is_extended || self.is_zstd
    }
}

impl References {
    fn read(file: &dyn Device) -> Result<Self, VmImageError> {
        let damaged = |what| VmImageError::Damaged { what };
        let header = Header::read(file)?;
        let cluster = 1_u64 << header.cluster_bits;
        let mut found = Self { has_data_file: header.has_data_file, ..Self::default() };
        let header_size = header.header_size;
        let (name_at, name_length) = header.backing;
        // Header, extensions and name are in the first cluster.
        let mut first = vec![0; cluster.min(file.size()) as usize];
        file.read_at(0, &mut first)?;
        let text = |at: u64, length: u32| -> Result<String, VmImageError> {
            let end = at.checked_add(u64::from(length)).filter(|end| *end <= first.len() as u64);
            let bytes = end.map(|end| &first[at as usize..end as usize]);
            let text = bytes.and_then(|bytes| str::from_utf8(bytes).ok());
            text.map(str::to_owned).ok_or(damaged("the name of another file is not valid"))
        };
        if name_at != 0 {
            if name_length > NAME_MAX {
                return Err(damaged("the name of the backing file is too long"));
            }
            found.backing = Some(text(name_at, name_length)?);
        }
        let mut at = header_size;
        while at.checked_add(8).is_some_and(|end| end <= first.len() as u64) {
            let (kind, length) = (be32(&first, at as usize), be32(&first, at as usize + 4));
            at += 8;
            match kind {
                END_OF_EXTENSIONS => break,
                BACKING_FORMAT => found.backing_format = Some(text(at, length)?),
                DATA_FILE_NAME => found.data_file = Some(text(at, length)?),
                _ => {}
            }
            at += u64::from(length).next_multiple_of(8);
        }
        Ok(found)
    }
}

/// A name of the host's files: not one of qemu's protocols (`nbd:...`, `json:...`).
fn check_name(name: &str) -> Result<(), VmImageError> {
    let protocol = name.split('/').next().is_some_and(|first| first.contains(':'));
    match protocol || name.is_empty() {
        true => {
            let what = format!("a file named '{name}': only paths of this machine are opened");
            Err(VmImageError::Unsupported { what })
        }
        false => Ok(()),
    }
}

/// Opens the files that belong to an image, as far as they are allowed.
pub(super) fn open_chain(
    path: &Path,
    file: Arc<FileDevice>,
    allowed: Allowed,
    open: OpenFile<'_>,
) -> Result<Vec<NamedFile>, UrlError> {
    let mut files = vec![NamedFile { path: path.to_owned(), file, role: Role::Qcow2 }];
    let mut at = 0;
    loop {
        let NamedFile { path, file, .. } = files[at].clone();
        let failed = |error| UrlError::VmImage { path: path.clone(), error };
        let found = References::read(&*file).map_err(failed)?;
        let mut add = |name: &str, role| {
            check_name(name).map_err(failed)?;
            let other = in_directory_of(&path, name);
            let file = open(&other)?;
            files.push(NamedFile { path: other, file, role });
            Ok::<_, UrlError>(files.len() - 1)
        };
        if found.has_data_file {
            let name = found.data_file.ok_or_else(|| {
                failed(VmImageError::Damaged { what: "the name of its data file is missing" })
            })?;
            if !allowed.data_file {
                let (what, option) = ("data file", "data-file");
                return Err(failed(VmImageError::NeedsFile { what, name, option }));
            }
            add(&name, Role::DataFile)?;
        }
        let Some(name) = found.backing else { return Ok(files) };
        if !allowed.backing {
            let (what, option) = ("backing file", "backing");
            return Err(failed(VmImageError::NeedsFile { what, name, option }));
        }
        match found.backing_format.as_deref() {
            Some("raw") => {
                add(&name, Role::Raw)?;
                return Ok(files);
            }
            Some("qcow2") => at = add(&name, Role::Qcow2)?,
            Some(format) => {
                let what = format!("a backing file of the format {format}");
                return Err(failed(VmImageError::Unsupported { what }));
            }
            // A raw disk can hold a header of qcow2 that names any file.
            None => {
                let what = "a backing file of unknown format (name it: qemu-img rebase -u -F)";
                return Err(failed(VmImageError::Unsupported { what: what.to_owned() }));
            }
        }
        if files.len() > CHAIN_MAX {
            return Err(failed(VmImageError::LongChain { limit: CHAIN_MAX }));
        }
    }
}

/// Whether an image or one of its backing files is one that imago does not read.
pub(super) fn is_ours(files: &[NamedFile]) -> Result<bool, VmImageError> {
    for named in files.iter().filter(|named| named.role == Role::Qcow2) {
        if Header::read(&*named.file)?.is_ours() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The image on its files, from the innermost backing file outwards.
pub(super) fn open(files: &[NamedFile]) -> io::Result<Access> {
    let mut below: Option<Access> = None;
    let mut data_file = None;
    for named in files.iter().rev() {
        let file = named.for_imago()?;
        match named.role {
            Role::DataFile => data_file = Some(file),
            Role::Raw | Role::Descriptor | Role::Sparse | Role::Alone => {
                let raw = Raw::builder(file).open(DenyImplicitOpenGate::default())?;
                below = Some(FormatAccess::new(raw));
            }
            Role::Qcow2 => {
                let mut builder = Qcow2::<ImageFile>::builder(file).backing(below.take());
                if let Some(data_file) = data_file.take() {
                    builder = builder.data_file(Some(data_file));
                }
                below = Some(FormatAccess::new(builder.open(DenyImplicitOpenGate::default())?));
            }
        }
    }
    below.ok_or_else(|| io::Error::other("no image"))
}
