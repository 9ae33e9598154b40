use super::*;
use crate::RoCompatFeatures;
use crate::superblock::RawSuperblock;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;
use zerocopy::FromZeros;

/// A volume with inodes of `inode_size` bytes and today's default features.
fn geometry(inode_size: u16) -> Geometry {
    let mut raw = RawSuperblock::new_zeroed();
    raw.s_log_block_size.set(2);
    raw.s_log_cluster_size.set(2);
    raw.s_blocks_count_lo.set(1 << 20);
    raw.s_blocks_per_group.set(32768);
    raw.s_clusters_per_group.set(32768);
    raw.s_inodes_per_group.set(8192);
    raw.s_inodes_count.set(8192 * 32);
    raw.s_rev_level.set(1);
    raw.s_inode_size.set(inode_size);
    raw.s_first_ino.set(11);
    raw.s_desc_size.set(64);
    raw.s_feature_incompat.set((IncompatFeatures::BIT64 | IncompatFeatures::EXTENTS).bits());
    raw.s_feature_ro_compat
        .set((RoCompatFeatures::METADATA_CSUM | RoCompatFeatures::HUGE_FILE).bits());
    Geometry::new(&raw).expect("a possible volume")
}

const INODE: InodeNo = InodeNo(12);

fn record(inode_size: u16, extra_isize: u16) -> Vec<u8> {
    let mut record: Vec<u8> = (0..inode_size).map(|at| (at * 7 % 251) as u8).collect();
    if inode_size > 128 {
        record[128..130].copy_from_slice(&extra_isize.to_le_bytes());
    }
    record
}

#[test]
fn a_field_past_i_extra_isize_does_not_exist() {
    let geometry = geometry(256);
    let inode = |extra| Inode::decode(&record(256, extra), INODE, &geometry).unwrap();
    assert_eq!(inode(32).project, Some(u32::from_le_bytes([88, 95, 102, 109])));
    assert_eq!(inode(28).project, None);
    assert!(inode(20).crtime.is_some());
    assert_eq!(inode(20).crtime.unwrap().nanoseconds, 0);
    assert_eq!(inode(16).crtime, None);
    assert_ne!(inode(8).ctime.nanoseconds, 0);
    assert_eq!(inode(4).ctime.nanoseconds, 0);
}

#[test]
fn an_extra_size_past_the_record_is_refused() {
    let location = Location::Inode(INODE);
    let decode = |extra| Inode::decode(&record(256, extra), INODE, &geometry(256));
    assert_eq!(decode(132), Err(Flaw::above_limit("i_extra_isize", 132_u16, 128_u16).at(location)));
    assert_eq!(decode(30), Err(Flaw::bad_value("i_extra_isize", 30_u16).at(location)));
    assert!(decode(128).is_ok());
}

#[test]
fn records_of_128_bytes_keep_16_bits_of_the_checksum() {
    for (size, extra, changed) in [(128, 0, 2), (256, 32, 4), (256, 0, 2), (1024, 32, 4)] {
        let geometry = geometry(size);
        let before = record(size, extra);
        let mut sealed = before.clone();
        seal(&mut sealed, INODE, &geometry);
        assert_eq!(verify(&sealed, INODE, &geometry), Ok(()));
        assert!(verify(&sealed, InodeNo(13), &geometry).is_err());
        let differing = sealed.iter().zip(&before).filter(|(a, b)| a != b).count();
        assert!(differing <= changed, "{size}: {differing} bytes changed");
        *sealed.last_mut().unwrap() ^= 1;
        assert!(verify(&sealed, INODE, &geometry).is_err(), "{size}");
    }
}

#[test]
fn the_size_of_a_symlink_has_32_bits() {
    let geometry = geometry(256);
    let mut record = record(256, 32);
    record[..2].copy_from_slice(&0xa1ff_u16.to_le_bytes());
    let inode = Inode::decode(&record, INODE, &geometry).unwrap();
    assert!(inode.size <= u64::from(u32::MAX));
    record[..2].copy_from_slice(&0x81ff_u16.to_le_bytes());
    let inode = Inode::decode(&record, INODE, &geometry).unwrap();
    assert!(inode.size > u64::from(u32::MAX));
}

#[test]
fn space_counts_blocks_with_the_huge_file_flag() {
    let geometry = geometry(256);
    let mut inode = Inode::decode(&record(256, 32), INODE, &geometry).unwrap();
    inode.blocks = 3;
    inode.flags = InodeFlags::EXTENTS;
    assert_eq!(inode.space(&geometry), 1536);
    inode.flags |= InodeFlags::HUGE_FILE;
    assert_eq!(inode.space(&geometry), 12288);
}

#[test]
fn device_numbers_have_an_old_and_a_new_form() {
    let encoded = |major, minor| DeviceNumber { major, minor }.encode();
    assert_eq!(encoded(8, 1).unwrap()[..8], [1, 8, 0, 0, 0, 0, 0, 0]);
    assert_eq!(encoded(259, 0x1234).unwrap()[..8], [0, 0, 0, 0, 0x34, 0x03, 0x21, 0x01]);
    assert_eq!(encoded(4096, 0), None);
    assert_eq!(encoded(0, 1 << 20), None);
}

#[test]
fn letters_stand_in_lsattrs_order() {
    assert_eq!(InodeFlags::all().letters(), "suSDiadAcEjItTeCxFNPVm");
    let flags = InodeFlags::EXTENTS | InodeFlags::IMMUTABLE | InodeFlags::HUGE_FILE;
    assert_eq!(flags.letters(), "----i---------e-------");
    assert_eq!(flags.names(), ["Immutable", "Extents"]);
}

#[test]
fn references_of_an_ea_inode_are_ctime_and_version() {
    let mut inode = Inode::decode(&vec![0; 256], INODE, &geometry(256)).unwrap();
    inode.set_ea_inode_references(0xffff_fffe_0000_0003);
    assert_eq!(inode.version, 3);
    assert_eq!(inode.ctime.seconds, -2);
    assert_eq!(inode.ea_inode_references(), 0xffff_fffe_0000_0003);
}

proptest! {
    #[test]
    fn what_was_decoded_encodes_to_the_same_bytes(
        size in prop::sample::select(&[128_u16, 256, 512, 4096]),
        bytes in prop::collection::vec(any::<u8>(), 4096),
        extra in 0_u16..40,
        mode in any::<u16>(),
    ) {
        let geometry = geometry(size);
        let mut record = bytes[..usize::from(size)].to_vec();
        record[..2].copy_from_slice(&mode.to_le_bytes());
        if size > 128 {
            record[128..130].copy_from_slice(&(extra * 4 % 130).to_le_bytes());
        }
        let Ok(inode) = Inode::decode(&record, INODE, &geometry) else { return Ok(()) };
        let before = record.clone();
        inode.encode_into(&mut record, &geometry);
        prop_assert_eq!(record, before);
    }

    #[test]
    fn any_bytes_are_checked_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let geometry = geometry(256);
        let _ = verify(&bytes, INODE, &geometry);
        let _ = xattr_area(&bytes, INODE, &geometry);
        if let Ok(inode) = Inode::decode(&bytes, INODE, &geometry) {
            let _ = (inode.file_type(), inode.space(&geometry), inode.device());
            let _ = (inode.is_fast_symlink(&geometry), inode.ea_inode_references());
        }
    }

    #[test]
    fn device_numbers_come_back(major in 0_u32..4096, minor in 0_u32..1 << 20) {
        let device = DeviceNumber { major, minor };
        let encoded = device.encode();
        prop_assert_eq!(encoded.map(|i_block| DeviceNumber::decode(&i_block)), Some(device));
    }
}
