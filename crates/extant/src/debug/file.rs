//! The contents of a file, block by block.

use std::ops::ControlFlow;

use extant_ondisk::BlockNo;
use extant_ondisk::xattr::XattrName;

use super::{DebugError, DebugVolume, MapStep, RawRecord};

/// Blocks that are read at once.
const AT_ONCE: u64 = 256;

impl DebugVolume {
    /// Calls `take` for each run of a file's data with its position, up to the file's size. Holes
    /// and unwritten blocks are left out.
    ///
    /// # Errors
    /// The map is damaged, a block cannot be read, or `take` fails.
    pub fn read_data<E: From<DebugError>>(
        &self,
        record: &RawRecord,
        mut take: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let size = record.size();
        if record.is_inline() {
            let bytes = self.inline_data(record)?;
            let len = usize::try_from(size).unwrap_or(usize::MAX).min(bytes.len());
            return take(0, &bytes[..len]);
        }
        let block_size = u64::from(self.geometry().block_size);
        let mut outcome = Ok(());
        let mut run: Option<(u64, u64, u64)> = None;
        let mut flush = |run: Option<(u64, u64, u64)>| -> Result<(), E> {
            let Some((logical, start, len)) = run else { return Ok(()) };
            let mut at = 0;
            while at < len {
                let position = (logical + at).saturating_mul(block_size);
                if position >= size {
                    break;
                }
                let count = (len - at).min(AT_ONCE);
                let bytes = self.blocks_at(start.saturating_add(at), count)?;
                let wanted = usize::try_from(size - position).unwrap_or(usize::MAX);
                take(position, &bytes[..bytes.len().min(wanted)])?;
                at += count;
            }
            Ok(())
        };
        let walked = self.walk_blocks(record, &mut |piece| {
            let MapStep::Data { logical, start, len, is_unwritten: false } = piece else {
                return ControlFlow::Continue(());
            };
            match &mut run {
                Some((first, at, held))
                    if *first + *held == logical && at.checked_add(*held) == Some(start) =>
                {
                    *held += len;
                    ControlFlow::Continue(())
                }
                _ => {
                    outcome = flush(run.replace((logical, start, len)));
                    match outcome {
                        Ok(()) => ControlFlow::Continue(()),
                        Err(_) => ControlFlow::Break(()),
                    }
                }
            }
        });
        outcome?;
        flush(run)?;
        Ok(walked?)
    }

    fn blocks_at(&self, start: u64, count: u64) -> Result<Vec<u8>, DebugError> {
        let size = u64::from(self.geometry().block_size);
        let device = self.editor.device();
        let (at, len) = (start.saturating_mul(size), count * size);
        if at.checked_add(len).is_none_or(|end| end > device.size()) {
            return Err(DebugError::ShortRead);
        }
        // At most AT_ONCE blocks.
        let mut bytes = vec![0; len as usize];
        device.read_at(at, &mut bytes)?;
        Ok(bytes)
    }

    /// All of a small file: directories, values of attributes, quota files. Holes are zeros.
    ///
    /// # Errors
    /// As [`Self::read_data`], and a file larger than the volume.
    pub fn contents(&self, record: &RawRecord) -> Result<Vec<u8>, DebugError> {
        let geometry = self.geometry();
        let most = geometry.blocks_count.saturating_mul(u64::from(geometry.block_size));
        let size = usize::try_from(record.size()).unwrap_or(usize::MAX);
        if record.size() > most {
            return Err(DebugError::Loop);
        }
        let mut contents = vec![0; size];
        self.read_data(record, |position, bytes| {
            // Within the size.
            let at = position as usize;
            contents[at..at + bytes.len()].copy_from_slice(bytes);
            Ok::<_, DebugError>(())
        })?;
        Ok(contents)
    }

    /// The data inside an inode: those of `i_block`, then those of its attribute.
    ///
    /// # Errors
    /// The attribute cannot be read.
    pub fn inline_data(&self, record: &RawRecord) -> Result<Vec<u8>, DebugError> {
        let mut bytes = record.i_block().to_vec();
        let name = XattrName::inline_data();
        let rest = self.xattrs(record)?.into_iter().find(|it| it.is(&name));
        bytes.extend(rest.map(|it| it.value).unwrap_or_default());
        Ok(bytes)
    }

    /// The target of a symlink.
    ///
    /// # Errors
    /// As [`Self::contents`].
    pub fn link_target(&self, record: &RawRecord) -> Result<Vec<u8>, DebugError> {
        if record.is_fast_symlink(self.geometry()) {
            let target = record.i_block();
            // Shorter than `i_block`.
            let len = record.size() as usize;
            return Ok(target[..len].to_vec());
        }
        if record.size() > u64::from(self.geometry().block_size) {
            return Err(DebugError::Loop);
        }
        self.contents(record)
    }

    /// Writes a block through to the device.
    ///
    /// # Errors
    /// It is past the end of the volume, or the device failed.
    pub fn write_block(&mut self, block: BlockNo, bytes: &[u8]) -> Result<(), DebugError> {
        if !self.geometry().contains(block, 1) {
            return Err(DebugError::ShortRead);
        }
        Ok(self.editor.write(block, bytes)?)
    }
}
