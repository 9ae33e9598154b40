//! The content of files.

use super::Model;
use crate::history::{CAPABILITY, Call, Expected, Fallocate, FileId, Stamp, Step};
use rustix::io::Errno;
use std::ops::Range;

impl Model {
    pub(super) fn wrote(&mut self, now: u32, id: FileId, offset: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let file = self.get_mut(id);
        file.xattrs.remove(CAPABILITY);
        file.content.write(offset, bytes);
        file.size = file.size.max(offset + bytes.len() as u64);
        self.touch_content(id, now);
    }

    pub(super) fn truncated(&mut self, now: u32, id: FileId, size: u64) {
        let file = self.get_mut(id);
        file.xattrs.remove(CAPABILITY);
        let old = std::mem::replace(&mut file.size, size);
        if size < old {
            file.content.zero(size..old);
        }
        self.touch_content(id, now);
        if size == old {
            // ftruncate sets the times anyway, truncate does not.
            let file = self.get_mut(id);
            (file.mtime, file.ctime) = (Stamp::Unknown, Stamp::Unknown);
        }
    }

    /// Records a call that failed as expected.
    pub fn refused(&mut self, step: &Step) {
        if let Call::Fallocate { file, .. } = &step.call
            && self.rules.refusals_touch
        {
            let by_the_map = self.expect(step) == Expected::Failure(vec![Errno::OPNOTSUPP]);
            let file = self.get_mut(*file);
            (file.mtime, file.ctime) = (Stamp::Unknown, Stamp::Unknown);
            if by_the_map {
                // Checked when the file is marked as changed already.
                file.xattrs.remove(CAPABILITY);
            }
        }
    }

    pub(super) fn fallocated(
        &mut self,
        now: u32,
        id: FileId,
        how: Fallocate,
        offset: u64,
        len: u64,
    ) {
        let file = self.get_mut(id);
        file.xattrs.remove(CAPABILITY);
        let (size, end) = (file.size, offset + len);
        match how {
            Fallocate::Allocate => file.size = size.max(end),
            Fallocate::KeepSize => {}
            Fallocate::Punch | Fallocate::ZeroKeepSize => {
                file.content.zero(offset.min(size)..end.min(size));
            }
            Fallocate::Zero => {
                file.content.zero(offset.min(size)..end.min(size));
                file.size = size.max(end);
            }
            Fallocate::Collapse => {
                file.content.collapse(offset..end);
                file.size = size - len;
            }
            Fallocate::Insert => {
                file.content.insert(offset, len);
                file.size = size + len;
            }
        }
        self.touch_content(id, now);
    }

    pub(super) fn check_read(
        &self,
        id: FileId,
        offset: u64,
        len: u64,
        found: &[u8],
    ) -> Result<(), String> {
        let file = self.get(id);
        let end = file.size.min(offset.saturating_add(len)).max(offset);
        let expected = file.content.read(offset..end);
        if expected.len() != found.len() {
            return Err(format!("expected {} bytes, found {}", expected.len(), found.len()));
        }
        match expected.iter().zip(found).position(|(expected, found)| expected != found) {
            None => Ok(()),
            Some(at) => Err(format!(
                "byte {} is {:#04x}, not {:#04x}",
                offset + at as u64,
                found[at],
                expected[at]
            )),
        }
    }

    /// Only zeros may be skipped. The volume decides which zeros are stored.
    pub(super) fn check_data_at(&self, id: FileId, offset: u64, found: u64) -> Result<(), String> {
        let file = self.get(id);
        let is_right = found >= offset && found < file.size;
        match is_right && file.content.is_zero(offset..found) {
            true => Ok(()),
            false => Err(format!("data passed over up to {found} of {}", file.size)),
        }
    }

    /// A reported hole must read as zeros to the end of the block.
    pub(super) fn check_hole_at(&self, id: FileId, offset: u64, found: u64) -> Result<(), String> {
        let file = self.get(id);
        let block_end = (found + 1).next_multiple_of(self.rules.block_size).min(file.size);
        let is_right = found >= offset && found <= file.size;
        match is_right && (found == file.size || file.content.is_zero(found..block_end)) {
            true => Ok(()),
            false => Err(format!("data in the hole at {found} of {}", file.size)),
        }
    }

    /// Ranges must be in order, and all bytes that are not zero must be in one with data.
    pub(super) fn check_extents(
        &self,
        id: FileId,
        found: &[(Range<u64>, bool)],
    ) -> Result<(), String> {
        let is_in_order = found.windows(2).all(|pair| pair[0].0.end <= pair[1].0.start)
            && found.iter().all(|(range, _)| range.start < range.end);
        if !is_in_order {
            return Err(format!("ranges out of order: {found:?}"));
        }
        let file = self.get(id);
        let mut from = 0;
        let written = found.iter().filter(|(_, is_written)| *is_written);
        for range in
            written.map(|(range, _)| range.clone()).chain(std::iter::once(u64::MAX..u64::MAX))
        {
            let hole = from..range.start.min(file.size);
            if !hole.is_empty() && !file.content.is_zero(hole.clone()) {
                return Err(format!("data in {hole:?}, where no block holds any: {found:?}"));
            }
            from = range.end;
        }
        Ok(())
    }

    /// Whether SEEK_DATA may find nothing: all further bytes are zeros.
    pub(super) fn is_all_hole_from(&self, id: FileId, offset: u64) -> bool {
        let file = self.get(id);
        offset >= file.size || file.content.is_zero(offset..file.size)
    }
}
