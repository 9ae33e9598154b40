//! The group descriptor table in memory: all of its blocks, in order.
//!
//! Source: the kernel's `group_descr.rst`. [`Geometry`] gives the location of each block on the
//! volume. Callers check that descriptors are valid.

use std::ops::Range;

use extant_ondisk::group_desc::{self, GroupDesc};
use extant_ondisk::{FormatError, Geometry, GroupNo};

/// The blocks of a descriptor table. The geometry that its methods take is the volume's. Features
/// and seeds in it may change between calls; block size, descriptor size and number of groups may
/// not.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DescriptorTable {
    bytes: Vec<u8>,
}

impl DescriptorTable {
    /// Creates a table of zeros.
    pub fn zeroed(geometry: &Geometry) -> Self {
        Self { bytes: vec![0; geometry.desc_blocks() as usize * geometry.block_len()] }
    }

    /// Creates a table whose blocks `read` fills, each by its index in the table. The table grows
    /// block by block: if the superblock claims too many groups, `read` reaches the end of the
    /// device before much memory is allocated.
    ///
    /// # Errors
    /// The first error of `read`.
    pub fn read<E>(
        geometry: &Geometry,
        mut read: impl FnMut(u32, &mut [u8]) -> Result<(), E>,
    ) -> Result<Self, E> {
        let mut bytes = Vec::new();
        let mut block = vec![0; geometry.block_len()];
        for index in 0..geometry.desc_blocks() {
            read(index, &mut block)?;
            bytes.extend_from_slice(&block);
        }
        Ok(Self { bytes })
    }

    /// All blocks.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// All blocks, writable.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Whether the table has the geometry's number of blocks.
    pub fn fits(&self, geometry: &Geometry) -> bool {
        self.bytes.len() == geometry.desc_blocks() as usize * geometry.block_len()
    }

    /// A block of the table by its index.
    ///
    /// # Panics
    /// If the table has no such block.
    pub fn block(&self, index: u32, geometry: &Geometry) -> &[u8] {
        let start = index as usize * geometry.block_len();
        &self.bytes[start..start + geometry.block_len()]
    }

    /// The descriptor of a group, whose fields are not checked.
    ///
    /// # Panics
    /// If the volume has no such group.
    pub fn get(&self, group: GroupNo, geometry: &Geometry) -> GroupDesc {
        GroupDesc::from_stored(self.stored(group, geometry), group, geometry)
            .expect("the table holds a descriptor of every group")
    }

    /// The descriptors of all groups, in order.
    pub fn iter<'a>(&'a self, geometry: &'a Geometry) -> impl Iterator<Item = GroupDesc> + 'a {
        (0..geometry.groups_count).map(|group| self.get(GroupNo(group), geometry))
    }

    /// Sets the known fields of a group's descriptor. The checksum does not change until
    /// [`Self::seal`].
    ///
    /// # Panics
    /// If the volume has no such group.
    pub fn set(&mut self, group: GroupNo, desc: &GroupDesc, geometry: &Geometry) {
        let range = range(group, geometry);
        desc.store(&mut self.bytes[range], group, geometry)
            .expect("the table holds a descriptor of every group");
    }

    /// The bytes of a group's descriptor.
    ///
    /// # Panics
    /// If the volume has no such group.
    pub fn stored_mut(&mut self, group: GroupNo, geometry: &Geometry) -> &mut [u8] {
        &mut self.bytes[range(group, geometry)]
    }

    /// Computes the checksum of a group's descriptor.
    ///
    /// # Panics
    /// If the volume has no such group.
    pub fn seal(&mut self, group: GroupNo, geometry: &Geometry) {
        group_desc::seal(&mut self.bytes[range(group, geometry)], group, geometry);
    }

    /// [`Self::set`] and [`Self::seal`].
    ///
    /// # Panics
    /// If the volume has no such group.
    pub fn put(&mut self, group: GroupNo, desc: &GroupDesc, geometry: &Geometry) {
        self.set(group, desc, geometry);
        self.seal(group, geometry);
    }

    /// Compares the checksum of a group's descriptor with its bytes.
    ///
    /// # Errors
    /// [`extant_ondisk::Flaw::Checksum`].
    ///
    /// # Panics
    /// If the volume has no such group.
    pub fn verify(&self, group: GroupNo, geometry: &Geometry) -> Result<(), FormatError> {
        group_desc::verify(self.stored(group, geometry), group, geometry)
    }

    /// The bytes of a group's descriptor.
    ///
    /// # Panics
    /// If the volume has no such group.
    pub fn stored(&self, group: GroupNo, geometry: &Geometry) -> &[u8] {
        &self.bytes[range(group, geometry)]
    }
}

fn range(group: GroupNo, geometry: &Geometry) -> Range<usize> {
    let (index, at) = geometry.desc_place(group);
    let start = index as usize * geometry.block_len() + at;
    start..start + usize::from(geometry.desc_size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::sample;
    use extant_ondisk::BlockNo;

    #[test]
    fn a_descriptor_is_verified_once_it_is_sealed() {
        let geometry = sample::geometry(1024, true);
        let mut table = DescriptorTable::zeroed(&geometry);
        assert!(table.fits(&geometry));
        let group = GroupNo(31);
        let desc = GroupDesc { inode_table: BlockNo(77), ..table.get(group, &geometry) };
        table.set(group, &desc, &geometry);
        assert!(table.verify(group, &geometry).is_err());
        table.seal(group, &geometry);
        assert_eq!(table.verify(group, &geometry), Ok(()));
        assert_eq!(
            table.get(group, &geometry),
            GroupDesc::from_stored(table.stored(group, &geometry), group, &geometry,)
                .expect("it is whole")
        );
        assert_eq!(table.get(group, &geometry).inode_table, BlockNo(77));
        assert_eq!(table.iter(&geometry).filter(|desc| desc.inode_table.0 > 0).count(), 1);
    }

    #[test]
    fn a_table_that_ends_too_early_is_the_readers_error() {
        let geometry = sample::geometry(1024, false);
        assert_eq!(geometry.desc_blocks(), 1);
        let read = DescriptorTable::read(&geometry, |index, block| {
            block.fill(1);
            Err(index)
        });
        assert_eq!(read, Err(0));
    }
}
