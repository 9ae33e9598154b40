//! Packed archives: gzip, zstd and xz, found by their first bytes.

use std::io::{self, BufRead, BufReader, Cursor, Read};

use flate2::bufread::GzDecoder;
use liblzma::read::XzDecoder;
use liblzma::stream::{CONCATENATED, Stream};

use super::error::Flaw;

/// Memory limit of an unpacker, whatever the archive requires: xz -9 needs 65 MiB, zstd without
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

/// The last byte of the marks below is that of an ext superblock.
const MAGIC_LEN: usize = EXT_MAGIC + 2;
/// Where an ext image has its magic number.
const EXT_MAGIC: usize = 1080;
/// A tar archive that begins with a block of zeros has no entries.
const BLOCK: usize = 512;

impl Packing {
    /// Recognises the packing by the archive's first bytes.
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
            _ if start.get(EXT_MAGIC..) == Some(&[0x53, 0xef])
                && start.iter().take(BLOCK).all(|&byte| byte == 0) =>
            {
                Err(Flaw::FileSystem)
            }
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
        Packing::Gzip => Box::new(Members::new(BufReader::with_capacity(BUFFER, reader))),
        Packing::Zstd => Box::new(zstd::stream::read::Decoder::new(reader).map_err(Flaw::Read)?),
        Packing::Xz => {
            let stream = Stream::new_stream_decoder(XZ_MEMORY, CONCATENATED);
            let stream = stream.map_err(|error| Flaw::Read(error.into()))?;
            Box::new(XzDecoder::new_stream(BufReader::with_capacity(BUFFER, reader), stream))
        }
    })
}

/// Concatenated members of gzip, with the zeroes after the last that tapes leave: gzip takes both.
struct Members<R> {
    /// `None` only while it is changed.
    member: Option<GzDecoder<R>>,
}

impl<R: BufRead> Members<R> {
    fn new(reader: R) -> Self {
        Self { member: Some(GzDecoder::new(reader)) }
    }

    /// Advances to the next member; `false` at the end.
    fn next(&mut self) -> io::Result<bool> {
        let Some(mut reader) = self.member.take().map(GzDecoder::into_inner) else {
            return Ok(false);
        };
        loop {
            let bytes = reader.fill_buf()?;
            if bytes.is_empty() {
                return Ok(false);
            }
            let zeroes = bytes.iter().take_while(|byte| **byte == 0).count();
            let is_zero = zeroes == bytes.len();
            let is_member = bytes.get(zeroes) == Some(&0x1f);
            reader.consume(zeroes);
            if is_member {
                self.member = Some(GzDecoder::new(reader));
                return Ok(true);
            }
            if !is_zero {
                let what = "unexpected data after the archive";
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
        }
    }
}

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let count = member.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            if !self.next()? {
                break;
            }
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(bytes).expect("memory takes it");
        packer.finish().expect("memory takes it")
    }

    fn read(packed: Vec<u8>) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        // A small buffer, so that every end of one falls everywhere.
        let reader = BufReader::with_capacity(7, Cursor::new(packed));
        Members::new(reader).read_to_end(&mut bytes).map(|_| bytes)
    }

    #[test]
    fn members_and_zeroes_after_them_are_one_archive() {
        let whole = [packed(b"one, "), packed(b""), packed(b"two"), vec![0; 1000]].concat();
        assert_eq!(read(whole).expect("it is whole"), b"one, two");
    }

    #[test]
    fn other_bytes_after_the_archive_are_named() {
        let followed = [packed(b"one"), vec![0; 10], b"tail".to_vec()].concat();
        let error = read(followed).expect_err("it is no archive");
        assert!(error.to_string().contains("unexpected data after the archive"), "{error}");
        let mut cut = packed(b"some bytes that are packed");
        cut.truncate(cut.len() - 3);
        assert_eq!(read(cut).expect_err("it is cut").kind(), io::ErrorKind::UnexpectedEof);
    }
}
