//! New sparse images of Android: a disk is written to a file without a name, and when it is
//! complete its blocks are stored as chunks. Blocks that were written are bytes, or four bytes
//! again and again; others are "don't care": a program that stores the image on a device leaves the
//! old bytes there.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use extant_device::{
    AtomicFile, Device, DeviceError, FileDevice, FileDeviceOptions, Operation, Request, RequestKind,
};
use extant_runtime::sync::Mutex;

use super::android::{CHUNK_HEADER, DONT_CARE, FILL, HEADER, MAGIC, RAW};
use super::error::VmImageError;
use crate::opened::Opened;

/// Sizes of a block, the usual one first.
const BLOCKS: [u64; 4] = [4096, 2048, 1024, 512];
/// Bytes that are read at once, a multiple of each size of a block.
const PIECE: u64 = 1 << 20;
/// The most bytes of a chunk: its length has 32 bits, which some programs take as a signed number.
const CHUNK_MAX: u64 = 256 << 20;

/// A disk that becomes a sparse image.
#[derive(Debug)]
struct NewDisk {
    disk: FileDevice,
    /// The file of the disk, which never has a name.
    _unnamed: AtomicFile,
    block: u64,
    /// Runs that were written, by their starts: their ends.
    written: Mutex<BTreeMap<u64, u64>>,
}

/// Begins an image of `size` bytes at `path`, where there is no file.
pub(super) fn create(path: &Path, size: u64) -> Result<Opened, VmImageError> {
    let is_size = |block: &&u64| size.is_multiple_of(**block) && size / **block <= u32::MAX.into();
    let Some(&block) = BLOCKS.iter().find(is_size).filter(|_| size > 0) else {
        let what = format!("a sparse image of {size} bytes (its size is of blocks of 512 bytes)");
        return Err(VmImageError::Unsupported { what });
    };
    let unnamed = AtomicFile::create(path).map_err(VmImageError::Image)?;
    let options = FileDeviceOptions::new().write(true).size(size);
    let open = || options.open(unnamed.proc_path()).map_err(io::Error::other);
    let disk = open().map_err(VmImageError::Image)?;
    let written = Mutex::default();
    let disk = Arc::new(NewDisk { disk, _unnamed: unnamed, block, written });
    let (device, path): (_, PathBuf) = (disk.clone(), path.to_owned());
    let opened = Opened::staged(device, move || {
        let stored = disk.store(&path);
        stored.map_err(|error| DeviceError::io(Operation::Write, 0, disk.size(), error))
    });
    Ok(opened)
}

impl NewDisk {
    fn note(&self, request: &Request<'_>) {
        if !request.is_change() || request.length() == 0 {
            return;
        }
        let (start, end) = (request.offset(), request.offset() + request.length());
        let mut written = self.written.lock();
        match request.kind {
            RequestKind::Discard { .. } => {
                // Whole blocks only.
                let inner = start.next_multiple_of(self.block)..end / self.block * self.block;
                remove(&mut written, inner);
            }
            _ => {
                let whole = start / self.block * self.block..end.next_multiple_of(self.block);
                add(&mut written, whole);
            }
        }
    }

    /// Writes the image, and gives it its name.
    fn store(&self, path: &Path) -> io::Result<()> {
        let new = AtomicFile::create(path)?;
        let mut image = Image::new(new.file(), self.block);
        let written = self.written.lock();
        let mut at = 0;
        for (&start, &end) in written.iter() {
            image.add(Kind::DontCare, (start - at) / self.block, &[])?;
            at = start;
            while at < end {
                let mut bytes = vec![0; PIECE.min(end - at) as usize];
                self.disk.read_at(at, &mut bytes)?;
                for block in bytes.chunks(self.block as usize) {
                    let first: [u8; 4] = block[..4].try_into().expect("4 bytes");
                    let is_fill = block.chunks(4).all(|part| part == first);
                    let kind = if is_fill { Kind::Fill(first) } else { Kind::Raw };
                    image.add(kind, 1, block)?;
                }
                at += bytes.len() as u64;
            }
        }
        image.add(Kind::DontCare, (self.disk.size() - at) / self.block, &[])?;
        image.close()?;
        new.file().sync_all()?;
        let directory = new.directory().to_owned();
        new.persist()?;
        File::open(directory)?.sync_all()
    }
}

/// Adds a run to runs that neither touch nor overlap.
fn add(runs: &mut BTreeMap<u64, u64>, run: Range<u64>) {
    let (mut start, mut end) = (run.start, run.end);
    while let Some((&from, &to)) = runs.range(..=end).next_back().filter(|(_, to)| **to >= start) {
        (start, end) = (start.min(from), end.max(to));
        runs.remove(&from);
    }
    runs.insert(start, end);
}

fn remove(runs: &mut BTreeMap<u64, u64>, run: Range<u64>) {
    if run.start >= run.end {
        return;
    }
    while let Some((&from, &to)) =
        runs.range(..run.end).next_back().filter(|(_, to)| **to > run.start)
    {
        runs.remove(&from);
        if to > run.end {
            runs.insert(run.end, to);
        }
        if from < run.start {
            runs.insert(from, run.start);
        }
    }
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Kind {
    Raw,
    Fill([u8; 4]),
    DontCare,
}

/// An image that is written forwards.
struct Image<'f> {
    file: &'f File,
    block: u64,
    /// The end of the file.
    at: u64,
    /// Blocks and chunks so far.
    blocks: u64,
    chunks: u32,
    /// The chunk that is not complete: its place, kind and blocks.
    open: Option<(u64, Kind, u64)>,
}

impl<'f> Image<'f> {
    fn new(file: &'f File, block: u64) -> Self {
        Self { file, block, at: HEADER, blocks: 0, chunks: 0, open: None }
    }

    /// Adds blocks, with their bytes where they are not alike.
    fn add(&mut self, kind: Kind, blocks: u64, bytes: &[u8]) -> io::Result<()> {
        if blocks == 0 {
            return Ok(());
        }
        let limit = match kind {
            Kind::Raw => CHUNK_MAX / self.block,
            _ => u32::MAX.into(),
        };
        let fits = |(_, of, have): &(u64, Kind, u64)| *of == kind && have + blocks <= limit;
        if !self.open.as_ref().is_some_and(fits) {
            self.end_chunk()?;
            self.open = Some((self.at, kind, 0));
            self.at += CHUNK_HEADER;
        }
        if let Some((_, _, have)) = &mut self.open {
            *have += blocks;
        }
        if kind == Kind::Raw {
            self.file.write_all_at(bytes, self.at)?;
            self.at += bytes.len() as u64;
        }
        Ok(())
    }

    fn end_chunk(&mut self) -> io::Result<()> {
        let Some((at, kind, blocks)) = self.open.take() else { return Ok(()) };
        let (number, data, pattern) = match kind {
            Kind::Raw => (RAW, blocks * self.block, None),
            Kind::Fill(pattern) => (FILL, 4, Some(pattern)),
            Kind::DontCare => (DONT_CARE, 0, None),
        };
        let mut header = number.to_le_bytes().to_vec();
        header.extend([0; 2]);
        header.extend((blocks as u32).to_le_bytes());
        header.extend(((CHUNK_HEADER + data) as u32).to_le_bytes());
        self.file.write_all_at(&header, at)?;
        if let Some(pattern) = pattern {
            self.file.write_all_at(&pattern, self.at)?;
            self.at += 4;
        }
        self.blocks += blocks;
        self.chunks += 1;
        Ok(())
    }

    /// Writes the header.
    fn close(mut self) -> io::Result<()> {
        self.end_chunk()?;
        let mut header = MAGIC.to_le_bytes().to_vec();
        // Version 1.0, and the lengths of both headers.
        for number in [1, 0, HEADER as u16, CHUNK_HEADER as u16] {
            header.extend(number.to_le_bytes());
        }
        // No checksum, as img2simg has none.
        for number in [self.block as u32, self.blocks as u32, self.chunks, 0] {
            header.extend(number.to_le_bytes());
        }
        self.file.write_all_at(&header, 0)
    }
}

impl Device for NewDisk {
    fn size(&self) -> u64 {
        self.disk.size()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        self.disk.submit(batch)?;
        for request in batch {
            self.note(request);
        }
        Ok(())
    }

    fn next_data(&self, range: Range<u64>) -> Result<Option<Range<u64>>, DeviceError> {
        self.disk.next_data(range)
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn can_discard(&self) -> bool {
        true
    }
}
