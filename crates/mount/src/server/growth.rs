//! Growth of the mounted volume: `EXT4_IOC_RESIZE_FS`, and our own command, whose reply says why
//! the volume did not grow.

use extant_engine::GrowthError;
use extant_reader::{Error, VolumeRead};
use rustix::io::Errno;

use super::{Caller, Server};
use crate::transport::GROW_LEN;

/// The reply to our own command.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct GrowReply {
    /// Number of blocks of the volume. In the request the number asked for, or 0 for a reply only.
    pub(crate) blocks: u64,
    /// Block size in bytes.
    pub(crate) block_size: u32,
    /// Number of the error, or 0. In the request [`EXTEND`], or 0.
    pub(crate) errno: i32,
    /// Size of the device in bytes. In the request with [`EXTEND`] the least that it is to have.
    pub(crate) device: u64,
    /// Why the volume did not grow.
    pub(crate) what: String,
}

const TEXT_AT: usize = 24;
/// The request is that the partition reaches to the end of its image; the volume stays.
pub(crate) const EXTEND: i32 = 1;

impl GrowReply {
    pub(crate) fn encode(&self) -> [u8; GROW_LEN] {
        let mut bytes = [0; GROW_LEN];
        bytes[..8].copy_from_slice(&self.blocks.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.block_size.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.errno.to_le_bytes());
        bytes[16..TEXT_AT].copy_from_slice(&self.device.to_le_bytes());
        // Text that is too long is cut off; a zero ends it.
        let text = self.what.as_bytes();
        let length = text.len().min(GROW_LEN - TEXT_AT - 1);
        bytes[TEXT_AT..TEXT_AT + length].copy_from_slice(&text[..length]);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; GROW_LEN]) -> Self {
        let long =
            |at: usize| bytes[at..].first_chunk().map_or(0, |part| u64::from_le_bytes(*part));
        let half =
            |at: usize| bytes[at..].first_chunk().map_or(0, |part| u32::from_le_bytes(*part));
        let text = bytes[TEXT_AT..].split(|byte| *byte == 0).next().unwrap_or_default();
        Self {
            blocks: long(0),
            block_size: half(8),
            errno: half(12).cast_signed(),
            device: long(16),
            what: String::from_utf8_lossy(text).into_owned(),
        }
    }
}

impl Server {
    /// Grows the volume to a number of blocks, for root and the mount's owner.
    pub(super) fn grow(&self, blocks: u64, by: Caller) -> Result<(), Errno> {
        self.grow_or_say(blocks, by)?.map_err(|error| Errno::from_raw_os_error(error.errno()))
    }

    /// As [`Self::grow`], with the refusal in the reply. With 0 blocks the volume is not changed.
    pub(super) fn grow_and_reply(&self, request: &GrowReply, by: Caller) -> Result<Vec<u8>, Errno> {
        let grown = match (request.blocks, request.errno) {
            (0, 0) => {
                Self::check_owns_mount(by)?;
                // Another program may have made the device longer.
                self.with(|volume| Ok(volume.engine()?.refresh_device()?))?;
                Ok(())
            }
            (0, EXTEND) => {
                Self::check_owns_mount(by)?;
                self.with(|volume| {
                    let planner = self.planner.as_deref().ok_or(Errno::OPNOTSUPP)?;
                    Ok(volume.engine()?.extend_partition(request.device, planner))
                })?
            }
            (blocks, 0) => self.grow_or_say(blocks, by)?,
            _ => return Err(Errno::INVAL),
        };
        self.with(|volume| {
            let geometry = volume.geometry();
            let mut reply = GrowReply {
                blocks: geometry.blocks_count,
                block_size: geometry.block_size,
                device: volume.device().size(),
                ..GrowReply::default()
            };
            if let Err(error) = grown {
                (reply.errno, reply.what) = (error.errno(), error.to_string());
            }
            Ok(reply.encode().to_vec())
        })
    }

    /// The inner error is that of a volume that was not grown.
    fn grow_or_say(&self, blocks: u64, by: Caller) -> Result<Result<(), GrowthError>, Errno> {
        Self::check_owns_mount(by)?;
        self.with(|volume| {
            let engine = volume.engine()?;
            let planner = self.planner.as_deref().ok_or(Errno::OPNOTSUPP)?;
            match engine.grow(blocks, planner) {
                Ok(blocks) => {
                    tracing::info!(blocks, "the volume has grown");
                    Ok(Ok(()))
                }
                Err(GrowthError::Volume(error @ Error::ReadOnly)) => Err(error.into()),
                Err(GrowthError::Volume(error)) => {
                    self.log(&error);
                    Ok(Err(GrowthError::Volume(error)))
                }
                Err(error) => Ok(Err(error)),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_read_as_it_was_written_and_long_text_is_cut() {
        let reply = GrowReply {
            blocks: 1 << 40,
            block_size: 4096,
            errno: 28,
            device: u64::MAX,
            what: "no space".to_owned(),
        };
        assert_eq!(GrowReply::decode(&reply.encode()), reply);
        let long = GrowReply { what: "x".repeat(1000), ..reply };
        assert_eq!(GrowReply::decode(&long.encode()).what, "x".repeat(231));
    }
}
