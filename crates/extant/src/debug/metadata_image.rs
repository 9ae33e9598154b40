//! Files of e2image's own format: superblock, descriptors, inode tables and bitmaps of a volume.
//!
//! No document describes the format; this is what files that e2image 1.47.0 makes are seen to hold.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use extant_device::{Device, DeviceError, Operation, Request, check_batch, check_range, run_reads};
use extant_offline::read_superblock;
use extant_ondisk::bitmap::{self, BitmapKind};
use extant_ondisk::group_desc::{GroupDesc, RawGroupDesc};
use extant_ondisk::superblock::SUPERBLOCK_OFFSET;
use extant_ondisk::{BlockNo, Geometry, GroupNo};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::{DebugError, DebugVolume};

const MAGIC: u32 = 0x7f2b_b710;
const NAME: &[u8; 14] = b"Ext2 Image 1.0";
/// Bytes that are copied at once.
const PIECE: usize = 1 << 20;

/// The first bytes of the file.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Header {
    magic: U32,
    name: [u8; 16],
    host: [u8; 64],
    address: [u8; 32],
    address_kind: U32,
    device: U32,
    device_name: [u8; 64],
    uuid: [u8; 16],
    block_size: U32,
    reserved: [u8; 32],
    file_device: U32,
    file_inode: U32,
    time: U32,
    file_reserved: [u8; 32],
    superblock_at: U32,
    inodes_at: U32,
    inode_bitmaps_at: U32,
    block_bitmaps_at: U32,
}

const _: () = assert!(size_of::<Header>() == 0x12c);

/// Where a file of metadata is from, and which file it is, as its header says.
#[derive(Clone, Copy, Debug)]
pub struct MetadataOrigin<'a> {
    /// The name of the host.
    pub host: &'a [u8],
    /// The number of the block device that holds the volume; 0 for a file.
    pub device: u32,
    /// The volume's name.
    pub device_name: &'a [u8],
    /// The device on which the file is.
    pub file_device: u32,
    /// The inode of the file.
    pub file_inode: u32,
    /// Seconds since 1970.
    pub time: u32,
}

/// Where the parts of a file lie, in bytes.
struct Layout {
    inodes: u64,
    block_bitmaps: u64,
    inode_bitmaps: u64,
    end: u64,
}

impl Layout {
    fn of(geometry: &Geometry) -> Self {
        let block = u64::from(geometry.block_size);
        let groups = u64::from(geometry.groups_count);
        let inodes = (2 + u64::from(geometry.desc_blocks())) * block;
        let block_bitmaps = inodes + groups * u64::from(geometry.itable_blocks()) * block;
        let size = |bits: u32| (groups * u64::from(bits / 8)).next_multiple_of(block);
        let inode_bitmaps = block_bitmaps + size(geometry.clusters_per_group);
        Self {
            inodes,
            block_bitmaps,
            inode_bitmaps,
            end: inode_bitmaps + size(geometry.inodes_per_group),
        }
    }
}

impl DebugVolume {
    /// Writes the metadata of the volume into an empty file, in e2image's own format.
    ///
    /// # Errors
    /// The format has no room for tables of 4 GiB. The device or the file failed.
    pub fn write_metadata(
        &mut self,
        origin: MetadataOrigin<'_>,
        file: &File,
    ) -> Result<(), DebugError> {
        let geometry = self.geometry().clone();
        let layout = Layout::of(&geometry);
        let block = geometry.block_size;
        let at =
            |place: u64| u32::try_from(place).map(U32::new).map_err(|_| DebugError::TablesTooLarge);
        let mut header = Header::new_zeroed();
        header.magic = MAGIC.into();
        fill(&mut header.name, NAME);
        fill(&mut header.host, origin.host);
        header.device = origin.device.into();
        fill(&mut header.device_name, origin.device_name);
        header.uuid = self.raw().s_uuid;
        header.block_size = block.into();
        header.file_device = origin.file_device.into();
        header.file_inode = origin.file_inode.into();
        header.time = origin.time.into();
        header.superblock_at = block.into();
        header.inodes_at = at(layout.inodes)?;
        header.inode_bitmaps_at = at(layout.inode_bitmaps)?;
        header.block_bitmaps_at = at(layout.block_bitmaps)?;
        let failed = |error| DebugError::Device(host_error(error));
        file.set_len(layout.end).map_err(failed)?;
        let put = |bytes: &[u8], at: u64| match bytes.iter().all(|byte| *byte == 0) {
            true => Ok(()),
            false => file.write_all_at(bytes, at).map_err(failed),
        };
        put(header.as_bytes(), 0)?;
        put(self.raw().as_bytes(), u64::from(block))?;
        put(self.editor.table().bytes(), 2 * u64::from(block))?;
        let device = self.editor.device().clone();
        let table = u64::from(geometry.itable_blocks()) * u64::from(block);
        let mut bytes = vec![0; PIECE];
        for group in 0..geometry.groups_count {
            let from = self.editor.desc(GroupNo(group)).inode_table;
            if !geometry.contains(from, u64::from(geometry.itable_blocks())) {
                return Err(DebugError::MissingTable);
            }
            let (from, to) = (geometry.byte_of(from), layout.inodes + u64::from(group) * table);
            for done in (0..table).step_by(PIECE) {
                // A piece at most.
                let len = (table - done).min(PIECE as u64) as usize;
                device.read_at(from + done, &mut bytes[..len])?;
                put(&bytes[..len], to + done)?;
            }
        }
        let kinds = [
            (BitmapKind::Block, layout.block_bitmaps, geometry.clusters_per_group),
            (BitmapKind::Inode, layout.inode_bitmaps, geometry.inodes_per_group),
        ];
        for (kind, start, bits) in kinds {
            for group in 0..geometry.groups_count {
                let mut bitmap = self.bitmap(kind, GroupNo(group))?.to_vec();
                if kind == BitmapKind::Block {
                    // Blocks past the end count as in use.
                    bitmap::pad(&mut bitmap, kind.used_bits(GroupNo(group), &geometry));
                }
                bitmap.truncate(bits as usize / 8);
                put(&bitmap, start + u64::from(group) * bitmap.len() as u64)?;
            }
        }
        Ok(())
    }
}

fn fill(field: &mut [u8], bytes: &[u8]) {
    // The last byte stays zero.
    let len = bytes.len().min(field.len() - 1);
    field[..len].copy_from_slice(&bytes[..len]);
}

fn host_error(error: std::io::Error) -> DeviceError {
    DeviceError::io(Operation::Write, 0, 0, error)
}

/// The metadata of a volume, each byte at its place on the volume; the rest reads as zeros.
#[derive(Debug)]
struct MetadataImage {
    file: Arc<dyn Device>,
    /// Places on the volume, in order, and where they lie in the file.
    parts: Vec<(Range<u64>, u64)>,
    size: u64,
}

/// Opens a file of e2image's own format as the volume that it was made of, of which it has the
/// metadata alone.
///
/// # Errors
/// The file is of another format, or ends early, or it failed.
pub fn open_metadata_image(file: Arc<dyn Device>) -> Result<Arc<dyn Device>, DebugError> {
    if file.size() < size_of::<Header>() as u64 {
        return Err(DebugError::ShortRead);
    }
    let mut header = Header::new_zeroed();
    file.read_at(0, header.as_mut_bytes())?;
    if header.magic.get() != MAGIC {
        return Err(DebugError::ImageMagic);
    }
    let superblock_at = u64::from(header.superblock_at.get());
    if file.size() < superblock_at + 1024 {
        return Err(DebugError::ShortRead);
    }
    let raw = read_superblock(&*file, superblock_at)?;
    let geometry = Geometry::new(&raw).map_err(|_| DebugError::CorruptSuperblock)?;
    let (block, groups) = (u64::from(geometry.block_size), u64::from(geometry.groups_count));
    let descs_at = superblock_at + block;
    let inodes_at = u64::from(header.inodes_at.get());
    let bitmaps = [
        (u64::from(header.block_bitmaps_at.get()), u64::from(geometry.clusters_per_group / 8)),
        (u64::from(header.inode_bitmaps_at.get()), u64::from(geometry.inodes_per_group / 8)),
    ];
    let table = u64::from(geometry.itable_blocks()) * block;
    let ends = [
        descs_at + u64::from(geometry.desc_blocks()) * block,
        inodes_at.saturating_add(groups.saturating_mul(table)),
        bitmaps[0].0.saturating_add(groups.saturating_mul(bitmaps[0].1)),
        bitmaps[1].0.saturating_add(groups.saturating_mul(bitmaps[1].1)),
    ];
    if ends.into_iter().any(|end| end > file.size()) {
        return Err(DebugError::ShortRead);
    }
    let size = geometry.blocks_count.saturating_mul(block);
    let mut parts = vec![(SUPERBLOCK_OFFSET..SUPERBLOCK_OFFSET + 1024, superblock_at)];
    for index in 0..geometry.desc_blocks() {
        let at = geometry.byte_of(geometry.desc_block(index));
        parts.push((at..at + block, descs_at + u64::from(index) * block));
    }
    let mut stored = vec![0; usize::from(geometry.desc_size)];
    for group in 0..geometry.groups_count {
        let index = u64::from(group);
        let place = geometry.desc_place(GroupNo(group));
        let at = descs_at + u64::from(place.0) * block + place.1 as u64;
        file.read_at(at, &mut stored)?;
        let raw = RawGroupDesc::from_bytes(&stored, GroupNo(group), &geometry);
        let desc = GroupDesc::unchecked(&raw.map_err(|_| DebugError::CorruptSuperblock)?);
        let mut push = |first: BlockNo, len: u64, from: u64| {
            if geometry.contains(first, len.div_ceil(block)) {
                let at = geometry.byte_of(first);
                parts.push((at..at + len, from));
            }
        };
        push(desc.block_bitmap, bitmaps[0].1, bitmaps[0].0 + index * bitmaps[0].1);
        push(desc.inode_bitmap, bitmaps[1].1, bitmaps[1].0 + index * bitmaps[1].1);
        push(desc.inode_table, table, inodes_at + index * table);
    }
    parts.sort_by_key(|(place, _)| place.start);
    // Of parts that overlap, those of the first are read.
    let mut end = 0;
    parts.retain(|(place, _)| {
        let is_free = place.start >= end;
        end = if is_free { place.end } else { end };
        is_free
    });
    Ok(Arc::new(MetadataImage { file, parts, size }))
}

impl MetadataImage {
    fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), DeviceError> {
        bytes.fill(0);
        let end = at + bytes.len() as u64;
        let first = self.parts.partition_point(|(place, _)| place.end <= at);
        for (place, from) in self.parts[first..].iter().take_while(|(it, _)| it.start < end) {
            let (start, stop) = (place.start.max(at), place.end.min(end));
            // Within the buffer.
            let held = &mut bytes[(start - at) as usize..(stop - at) as usize];
            self.file.read_at(from + (start - place.start), held)?;
        }
        Ok(())
    }
}

impl Device for MetadataImage {
    fn size(&self) -> u64 {
        self.size
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        check_batch(self, batch)?;
        run_reads(batch, |at, bytes| self.read(at, bytes))
    }

    fn next_data(&self, range: Range<u64>) -> Result<Option<Range<u64>>, DeviceError> {
        check_range(self.size, &range)?;
        Ok((range.start < range.end).then_some(range))
    }

    fn is_read_only(&self) -> bool {
        true
    }
}
