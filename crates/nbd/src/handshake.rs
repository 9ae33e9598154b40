//! The client's side of the handshake.

use std::io::{Read, Write};

use crate::error::NbdError;
use crate::proto::{
    ALLOCATION, FIXED_NEWSTYLE, INFO_BLOCK_SIZE, INFO_EXPORT, INIT_MAGIC, NO_ZEROES,
    OLD_STYLE_MAGIC, OPTION_MAGIC, OPTION_MAX, OPTION_REPLY_MAGIC, PAYLOAD_MAX, export, option,
    push_name, read_bytes, read_u16, read_u32, read_u64, reply, skip,
};

/// An export as its server describes it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ExportInfo {
    /// Bytes.
    pub(crate) size: u64,
    /// Of [`export`].
    pub(crate) flags: u16,
    /// Places and lengths are multiples of this number of bytes.
    pub(crate) block_min: u32,
    /// The most bytes of data in a request.
    pub(crate) payload_max: u32,
    /// Whether replies are structured.
    pub(crate) is_structured: bool,
    /// The number of the context `base:allocation`, where the server has it.
    pub(crate) allocation: Option<u32>,
}

/// The most parts that the reply to an option has: more are an endless loop.
const PARTS_MAX: usize = 1024;
/// The largest minimum of a block that the protocol has.
const BLOCK_MIN_MAX: u32 = 64 << 10;
/// Bytes of zeroes after the reply to `NBD_OPT_EXPORT_NAME`.
const OLD_ZEROES: u64 = 124;

/// One part of the reply to an option.
struct OptionReply {
    kind: u32,
    data: Vec<u8>,
}

struct Handshake<S> {
    stream: S,
}

/// Greets the server; returns the flags of both sides.
pub(crate) fn greet(stream: impl Read + Write) -> Result<u16, NbdError> {
    Handshake { stream }.greet()
}

/// Makes the server ready for an encrypted connection.
#[cfg(feature = "tls")]
pub(crate) fn start_tls(stream: impl Read + Write) -> Result<(), NbdError> {
    let mut handshake = Handshake { stream };
    handshake.send(option::STARTTLS, &[])?;
    match handshake.receive(option::STARTTLS)?.kind {
        reply::ACK => Ok(()),
        kind if kind >= reply::FIRST_ERROR => Err(NbdError::NoTls),
        kind => Err(NbdError::protocol(format!("reply {kind} to NBD_OPT_STARTTLS"))),
    }
}

/// Agrees with a server that was greeted on an export.
pub(crate) fn run<S: Read + Write>(
    stream: S,
    flags: u16,
    name: &str,
) -> Result<ExportInfo, NbdError> {
    let mut handshake = Handshake { stream };
    let is_structured = handshake.is_acknowledged(option::STRUCTURED_REPLY, &[])?;
    let allocation = if is_structured { handshake.allocation(name)? } else { None };
    let usual = ExportInfo {
        size: 0,
        flags: 0,
        block_min: 1,
        payload_max: PAYLOAD_MAX,
        is_structured,
        allocation,
    };
    let info = match handshake.go(name, usual)? {
        Some(info) => info,
        None => handshake.export_name(name, flags, usual)?,
    };
    if info.size > i64::MAX as u64 {
        return Err(NbdError::protocol(format!("an export of {} bytes", info.size)));
    }
    Ok(info)
}

impl<S: Read + Write> Handshake<S> {
    /// The flags of both sides.
    fn greet(&mut self) -> Result<u16, NbdError> {
        if read_u64(&mut self.stream)? != INIT_MAGIC {
            return Err(NbdError::protocol("it is not an NBD server"));
        }
        match read_u64(&mut self.stream)? {
            OPTION_MAGIC => {}
            OLD_STYLE_MAGIC => return Err(NbdError::OldStyle),
            _ => return Err(NbdError::protocol("unknown handshake")),
        }
        let theirs = read_u16(&mut self.stream)?;
        if theirs & FIXED_NEWSTYLE == 0 {
            return Err(NbdError::OldStyle);
        }
        let ours = theirs & (FIXED_NEWSTYLE | NO_ZEROES);
        self.stream.write_all(&u32::from(ours).to_be_bytes())?;
        Ok(ours)
    }

    fn send(&mut self, option: u32, data: &[u8]) -> Result<(), NbdError> {
        let mut bytes = Vec::with_capacity(16 + data.len());
        bytes.extend(OPTION_MAGIC.to_be_bytes());
        bytes.extend(option.to_be_bytes());
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend(data);
        Ok(self.stream.write_all(&bytes)?)
    }

    fn receive(&mut self, option: u32) -> Result<OptionReply, NbdError> {
        let magic = read_u64(&mut self.stream)?;
        let to = read_u32(&mut self.stream)?;
        let kind = read_u32(&mut self.stream)?;
        let length = read_u32(&mut self.stream)?;
        if magic != OPTION_REPLY_MAGIC || to != option {
            return Err(NbdError::protocol("the reply to an option is of another"));
        }
        if length > OPTION_MAX {
            return Err(NbdError::protocol(format!("a reply of {length} bytes to an option")));
        }
        Ok(OptionReply { kind, data: read_bytes(&mut self.stream, length)? })
    }

    /// Sends an option without which a server works too.
    fn is_acknowledged(&mut self, option: u32, data: &[u8]) -> Result<bool, NbdError> {
        self.send(option, data)?;
        let reply = self.receive(option)?;
        match reply.kind {
            reply::ACK => Ok(true),
            reply::TLS_REQUIRED => Err(NbdError::Tls),
            kind if kind >= reply::FIRST_ERROR => Ok(false),
            kind => Err(NbdError::protocol(format!("reply {kind} to option {option}"))),
        }
    }

    /// Chooses the context `base:allocation`.
    fn allocation(&mut self, name: &str) -> Result<Option<u32>, NbdError> {
        let mut data = Vec::new();
        push_name(&mut data, name.as_bytes());
        data.extend(1_u32.to_be_bytes());
        push_name(&mut data, ALLOCATION);
        self.send(option::SET_META_CONTEXT, &data)?;
        let mut chosen = None;
        for _ in 0..PARTS_MAX {
            let OptionReply { kind, data } = self.receive(option::SET_META_CONTEXT)?;
            match kind {
                reply::ACK => return Ok(chosen),
                reply::META_CONTEXT if data.len() >= 4 && &data[4..] == ALLOCATION => {
                    chosen = Some(read_u32(&mut &data[..])?);
                }
                reply::META_CONTEXT => {}
                // The export is looked for below, with a message of its own.
                kind if kind >= reply::FIRST_ERROR => return Ok(None),
                kind => return Err(NbdError::protocol(format!("reply {kind} to a context"))),
            }
        }
        Err(NbdError::protocol("too many contexts"))
    }

    /// Asks for the export; `None` where the server does not know the option.
    fn go(&mut self, name: &str, usual: ExportInfo) -> Result<Option<ExportInfo>, NbdError> {
        let mut data = Vec::new();
        push_name(&mut data, name.as_bytes());
        data.extend(1_u16.to_be_bytes());
        data.extend(INFO_BLOCK_SIZE.to_be_bytes());
        self.send(option::GO, &data)?;
        let (mut info, mut has_export) = (usual, false);
        for _ in 0..PARTS_MAX {
            let OptionReply { kind, data } = self.receive(option::GO)?;
            let mut rest = &data[..];
            match kind {
                reply::ACK if has_export => return Ok(Some(info)),
                reply::ACK => return Err(NbdError::protocol("an export without its size")),
                reply::INFO => match read_u16(&mut rest)? {
                    INFO_EXPORT if rest.len() == 10 => {
                        (info.size, info.flags) = (read_u64(&mut rest)?, read_u16(&mut rest)?);
                        has_export = true;
                    }
                    INFO_BLOCK_SIZE if rest.len() == 12 => {
                        let (min, preferred) = (read_u32(&mut rest)?, read_u32(&mut rest)?);
                        let max = read_u32(&mut rest)?;
                        let is_valid = min.is_power_of_two()
                            && min <= BLOCK_MIN_MAX
                            && preferred >= min
                            && max >= min;
                        if !is_valid {
                            return Err(NbdError::protocol(format!(
                                "blocks of {min} to {max} bytes"
                            )));
                        }
                        info.block_min = min;
                        info.payload_max = (max.min(PAYLOAD_MAX) / min * min).max(min);
                    }
                    _ => {}
                },
                reply::UNSUPPORTED => return Ok(None),
                kind if kind >= reply::FIRST_ERROR => return Err(refused(kind, name, &data)),
                kind => return Err(NbdError::protocol(format!("reply {kind} to NBD_OPT_GO"))),
            }
        }
        Err(NbdError::protocol("too much information about an export"))
    }

    /// The older way, which has no reply for an export that is not there.
    fn export_name(
        &mut self,
        name: &str,
        flags: u16,
        usual: ExportInfo,
    ) -> Result<ExportInfo, NbdError> {
        self.send(option::EXPORT_NAME, name.as_bytes())?;
        let size = read_u64(&mut self.stream)?;
        let export_flags = read_u16(&mut self.stream)?;
        if flags & NO_ZEROES == 0 {
            skip(&mut self.stream, OLD_ZEROES)?;
        }
        if export_flags & export::HAS_FLAGS == 0 {
            return Err(NbdError::protocol("an export without flags"));
        }
        Ok(ExportInfo { size, flags: export_flags, ..usual })
    }
}

fn refused(number: u32, name: &str, data: &[u8]) -> NbdError {
    let message = String::from_utf8_lossy(data).escape_debug().to_string();
    match number {
        reply::TLS_REQUIRED => NbdError::Tls,
        reply::UNKNOWN => NbdError::NoExport { name: name.to_owned(), message },
        _ => NbdError::Refused { number, message },
    }
}
