//! Packed archives: gzip, zstd and xz, found by their first bytes.

use std::io::{self, BufReader, Cursor, Read};

use flate2::bufread::MultiGzDecoder;
use liblzma::read::XzDecoder;
use liblzma::stream::{CONCATENATED, Stream};

use super::error::Flaw;

/// More memory than this is not given to an unpacker, whatever the archive asks for: xz -9 needs 65 MiB, zstd without
/// `--long` 128 MiB (its own limit).
const XZ_MEMORY: u64 = 256 << 20;

/// How an archive is packed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Packing {
    Plain,
    Gzip,
    Zstd,
    Xz,
}

/// The longest of the marks below.
pub(super) const MAGIC_LEN: usize = 6;

impl Packing {
    /// Tells the packing by the archive's first bytes.
    pub(super) fn of(start: &[u8]) -> Result<Self, Flaw> {
        let is = |magic: &[u8]| start.starts_with(magic);
        let unknown = |name| Err(Flaw::UnknownPacking(name));
        match start {
            _ if is(&[0x1f, 0x8b]) => Ok(Self::Gzip),
            _ if is(&[0x28, 0xb5, 0x2f, 0xfd]) => Ok(Self::Zstd),
            // A skippable frame may come first, as pzstd writes it.
            [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Ok(Self::Zstd),
            _ if is(b"\xfd7zXZ\0") => Ok(Self::Xz),
            _ if is(b"BZh") => unknown("bzip2"),
            _ if is(&[0x04, 0x22, 0x4d, 0x18]) => unknown("lz4"),
            _ if is(b"LZIP") => unknown("lzip"),
            _ if is(&[0x89, b'L', b'Z', b'O']) => unknown("lzop"),
            _ if is(&[0x1f, 0x9d]) => unknown("compress"),
            _ if is(&[0x5d, 0x00, 0x00]) => unknown("lzma"),
            _ if is(b"PK\x03\x04") => unknown("zip"),
            _ => Ok(Self::Plain),
        }
    }
}

/// Reads the first bytes and gives them with a reader that begins with them again.
pub(super) fn peek(
    mut reader: impl Read + Send + 'static,
) -> io::Result<(Vec<u8>, impl Read + Send + 'static)> {
    let mut start = Vec::new();
    reader.by_ref().take(MAGIC_LEN as u64).read_to_end(&mut start)?;
    Ok((start.clone(), Cursor::new(start).chain(reader)))
}

/// The unpacked bytes of `reader`. Several members or frames after each other are one archive.
pub(super) fn unpacked(
    packing: Packing,
    reader: impl Read + Send + 'static,
) -> Result<Box<dyn Read + Send>, Flaw> {
    const BUFFER: usize = 256 * 1024;
    Ok(match packing {
        Packing::Plain => Box::new(reader),
        Packing::Gzip => Box::new(MultiGzDecoder::new(BufReader::with_capacity(BUFFER, reader))),
        Packing::Zstd => Box::new(zstd::stream::read::Decoder::new(reader).map_err(Flaw::Read)?),
        Packing::Xz => {
            let stream = Stream::new_stream_decoder(XZ_MEMORY, CONCATENATED);
            let stream = stream.map_err(|error| Flaw::Read(error.into()))?;
            Box::new(XzDecoder::new_stream(BufReader::with_capacity(BUFFER, reader), stream))
        }
    })
}
