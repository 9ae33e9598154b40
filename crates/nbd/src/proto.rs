//! Numbers of the protocol, and the structures that both sides read. All are big-endian.

use std::io::{self, Read};

pub(crate) const INIT_MAGIC: u64 = 0x4e42_444d_4147_4943;
pub(crate) const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
pub(crate) const OLD_STYLE_MAGIC: u64 = 0x0000_4202_8186_1253;
pub(crate) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
pub(crate) const REQUEST_MAGIC: u32 = 0x2560_9513;
pub(crate) const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
pub(crate) const CHUNK_MAGIC: u32 = 0x668e_33ef;

/// Flags of the handshake, of both sides.
pub(crate) const FIXED_NEWSTYLE: u16 = 1;
pub(crate) const NO_ZEROES: u16 = 2;

/// Options of the handshake.
pub(crate) mod option {
    pub(crate) const EXPORT_NAME: u32 = 1;
    pub(crate) const ABORT: u32 = 2;
    pub(crate) const LIST: u32 = 3;
    #[cfg(feature = "tls")]
    pub(crate) const STARTTLS: u32 = 5;
    pub(crate) const INFO: u32 = 6;
    pub(crate) const GO: u32 = 7;
    pub(crate) const STRUCTURED_REPLY: u32 = 8;
    pub(crate) const LIST_META_CONTEXT: u32 = 9;
    pub(crate) const SET_META_CONTEXT: u32 = 10;
}

/// Replies to options. Those from [`FIRST_ERROR`](reply::FIRST_ERROR) on are errors.
pub(crate) mod reply {
    pub(crate) const ACK: u32 = 1;
    pub(crate) const SERVER: u32 = 2;
    pub(crate) const INFO: u32 = 3;
    pub(crate) const META_CONTEXT: u32 = 4;
    pub(crate) const FIRST_ERROR: u32 = 1 << 31;
    pub(crate) const UNSUPPORTED: u32 = FIRST_ERROR + 1;
    pub(crate) const INVALID: u32 = FIRST_ERROR + 3;
    pub(crate) const TLS_REQUIRED: u32 = FIRST_ERROR + 5;
    pub(crate) const UNKNOWN: u32 = FIRST_ERROR + 6;
    pub(crate) const TOO_BIG: u32 = FIRST_ERROR + 9;
}

/// Kinds of information about an export.
pub(crate) const INFO_EXPORT: u16 = 0;
pub(crate) const INFO_BLOCK_SIZE: u16 = 3;

/// Flags of an export.
pub(crate) mod export {
    pub(crate) const HAS_FLAGS: u16 = 1;
    pub(crate) const READ_ONLY: u16 = 1 << 1;
    pub(crate) const SEND_FLUSH: u16 = 1 << 2;
    pub(crate) const SEND_FUA: u16 = 1 << 3;
    pub(crate) const SEND_TRIM: u16 = 1 << 5;
    pub(crate) const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub(crate) const SEND_DF: u16 = 1 << 7;
    pub(crate) const CAN_MULTI_CONN: u16 = 1 << 8;
}

/// Commands of a request.
pub(crate) mod command {
    pub(crate) const READ: u16 = 0;
    pub(crate) const WRITE: u16 = 1;
    pub(crate) const DISCONNECT: u16 = 2;
    pub(crate) const FLUSH: u16 = 3;
    pub(crate) const TRIM: u16 = 4;
    pub(crate) const WRITE_ZEROES: u16 = 6;
    pub(crate) const BLOCK_STATUS: u16 = 7;
}

/// Flags of a command.
pub(crate) const FLAG_FUA: u16 = 1;
pub(crate) const FLAG_REQ_ONE: u16 = 1 << 3;

/// Kinds of chunks of a structured reply. Those with the highest bit are errors.
pub(crate) mod chunk {
    pub(crate) const NONE: u16 = 0;
    pub(crate) const OFFSET_DATA: u16 = 1;
    pub(crate) const OFFSET_HOLE: u16 = 2;
    pub(crate) const BLOCK_STATUS: u16 = 5;
    pub(crate) const FIRST_ERROR: u16 = 1 << 15;
    pub(crate) const ERROR: u16 = FIRST_ERROR + 1;
}
pub(crate) const CHUNK_DONE: u16 = 1;

/// The context with what is allocated, and its flags.
pub(crate) const ALLOCATION: &[u8] = b"base:allocation";
pub(crate) const STATE_HOLE: u32 = 1;
pub(crate) const STATE_ZERO: u32 = 2;

/// Numbers of errors on the wire: those of Linux.
pub(crate) mod errors {
    pub(crate) const EPERM: u32 = 1;
    pub(crate) const EIO: u32 = 5;
    pub(crate) const ENOMEM: u32 = 12;
    pub(crate) const EINVAL: u32 = 22;
    pub(crate) const ENOSPC: u32 = 28;
    pub(crate) const EOVERFLOW: u32 = 75;
    pub(crate) const ENOTSUP: u32 = 95;
    pub(crate) const ESHUTDOWN: u32 = 108;
}

/// The longest name of an export that the protocol has.
pub(crate) const NAME_MAX: usize = 4096;
/// The most bytes that an option or a reply to one has here.
pub(crate) const OPTION_MAX: u32 = 64 << 10;
/// The most bytes of data in one request, unless the server says less: what every server takes.
pub(crate) const PAYLOAD_MAX: u32 = 32 << 20;

/// A request, without its data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestHeader {
    pub(crate) flags: u16,
    pub(crate) command: u16,
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
    pub(crate) length: u32,
}

impl RequestHeader {
    const SIZE: usize = 28;

    pub(crate) fn bytes(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.command.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes[24..].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }

    /// The next request; `None` where the other side has closed before one.
    pub(crate) fn read(from: &mut impl Read) -> io::Result<Option<Self>> {
        let mut bytes = [0; Self::SIZE];
        let mut have = 0;
        while have < bytes.len() {
            match from.read(&mut bytes[have..]) {
                Ok(0) if have == 0 => return Ok(None),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => have += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let mut rest = &bytes[..];
        if read_u32(&mut rest)? != REQUEST_MAGIC {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "wrong magic of a request"));
        }
        Ok(Some(Self {
            flags: read_u16(&mut rest)?,
            command: read_u16(&mut rest)?,
            cookie: read_u64(&mut rest)?,
            offset: read_u64(&mut rest)?,
            length: read_u32(&mut rest)?,
        }))
    }
}

pub(crate) fn read_u16(from: &mut impl Read) -> io::Result<u16> {
    let mut bytes = [0; 2];
    from.read_exact(&mut bytes).map(|()| u16::from_be_bytes(bytes))
}

pub(crate) fn read_u32(from: &mut impl Read) -> io::Result<u32> {
    let mut bytes = [0; 4];
    from.read_exact(&mut bytes).map(|()| u32::from_be_bytes(bytes))
}

pub(crate) fn read_u64(from: &mut impl Read) -> io::Result<u64> {
    let mut bytes = [0; 8];
    from.read_exact(&mut bytes).map(|()| u64::from_be_bytes(bytes))
}

/// Reads bytes whose count is checked.
pub(crate) fn read_bytes(from: &mut impl Read, count: u32) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; count as usize];
    from.read_exact(&mut bytes).map(|()| bytes)
}

/// Reads and drops bytes.
pub(crate) fn skip(from: &mut impl Read, count: u64) -> io::Result<()> {
    match io::copy(&mut from.take(count), &mut io::sink())? {
        read if read == count => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// A name with its length before it.
pub(crate) fn push_name(to: &mut Vec<u8>, name: &[u8]) {
    to.extend((name.len() as u32).to_be_bytes());
    to.extend(name);
}
