//! Extended attributes, in inodes and in blocks, and access control lists.

use crate::shape::Shape;
use bolero::TypeGenerator;
use extant_ondisk::acl::{Acl, AclEntry, Subject};
use extant_ondisk::xattr::{
    self, EaValue, NameIndex, Value, Xattr, XattrName, XattrRef, XattrSet, decode_block,
    decode_inode, encode_block, encode_inode, is_sorted,
};
use extant_ondisk::{BlockNo, InodeNo};
use extant_testkit::fuzz::{Damage, FUZZ_TIME};

/// Attributes to start from.
#[derive(Clone, Debug, TypeGenerator)]
struct Attribute {
    index: Prefix,
    suffix: u8,
    value: Kept,
}

#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Prefix {
    User,
    Security,
    Trusted,
    AclAccess,
}

#[derive(Clone, Debug, TypeGenerator)]
enum Kept {
    Here(u8),
    InInode(u32, u16, u32),
}

/// Some attributes, each name once.
fn attributes(chosen: &[Attribute]) -> Vec<Xattr> {
    let mut set = XattrSet::default();
    for attribute in chosen {
        let (index, suffix) = match attribute.index {
            Prefix::User => (NameIndex::USER, vec![b'u'; usize::from(attribute.suffix % 9 + 1)]),
            Prefix::Security => (NameIndex::SECURITY, b"capability".to_vec()),
            Prefix::Trusted => (NameIndex::TRUSTED, vec![b't', attribute.suffix]),
            Prefix::AclAccess => (NameIndex::ACL_ACCESS, Vec::new()),
        };
        let value = match attribute.value {
            Kept::Here(len) => Value::Stored(vec![len; usize::from(len % 40)]),
            Kept::InInode(inode, size, hash) => Value::EaInode(EaValue {
                inode: InodeNo(inode.max(1)),
                size: u32::from(size),
                hash,
            }),
        };
        set.set(Xattr { name: XattrName { index, suffix }, value });
    }
    set.entries
}

/// Reads the attributes in every way that callers do.
fn used(found: &[XattrRef<'_>], room: usize) {
    // An entry takes 16 bytes and more.
    assert!(found.len() <= room / 16);
    for xattr in found {
        let _ = (xattr.hash_matches(), xattr.name.full(), xattr.name.to_string());
        let _ = xattr.to_owned().stored_len();
    }
    let _ = is_sorted(found);
    let set = XattrSet::of(found.iter().copied());
    assert!(set.entries.len() <= found.len());
}

#[test]
fn attributes_in_an_inode() {
    type Input = (Shape, Vec<Attribute>, Damage);
    bolero::check!().with_type::<Input>().with_test_time(FUZZ_TIME).for_each(
        |(shape, chosen, damage)| {
            let geometry = shape.geometry();
            let inode = InodeNo(12);
            let mut space = vec![0; 96 + usize::from(geometry.inode_size)];
            let attributes = attributes(chosen);
            if encode_inode(&attributes, &mut space).is_err() {
                return;
            }
            if let Ok(found) = decode_inode(&space, inode, &geometry) {
                let found: Vec<_> = found.iter().map(|xattr| xattr.to_owned()).collect();
                assert_eq!(found, attributes);
            }
            let damaged = damage.to(&space);
            if let Ok(found) = decode_inode(&damaged, inode, &geometry) {
                used(&found, damaged.len());
            }
        },
    );
}

#[test]
fn attributes_in_a_block() {
    type Input = (Shape, Vec<Attribute>, Damage, bool);
    bolero::check!().with_type::<Input>().with_test_time(FUZZ_TIME).for_each(
        |(shape, chosen, damage, is_mended)| {
            let geometry = shape.geometry();
            let no = BlockNo(1234);
            let mut block = vec![0; geometry.block_len()];
            if encode_block(&attributes(chosen), 1, &mut block).is_err() {
                return;
            }
            xattr::seal_block(&mut block, no, &geometry);
            assert_eq!(xattr::verify_block(&block, no, &geometry), Ok(()));
            if let Ok(found) = decode_block(&block, no, &geometry) {
                assert!(is_sorted(&found) && found.iter().all(XattrRef::hash_matches));
            }
            let mut damaged = damage.to(&block);
            if *is_mended && damaged.len() == block.len() {
                xattr::seal_block(&mut damaged, no, &geometry);
            }
            let _ = xattr::verify_block(&damaged, no, &geometry);
            if let Ok(found) = decode_block(&damaged, no, &geometry) {
                used(&found, damaged.len());
            }
        },
    );
}

#[test]
fn attribute_name() {
    bolero::check!().with_type::<(Vec<u8>, u8)>().with_test_time(FUZZ_TIME).for_each(
        |(name, prefix)| {
            let prefix = NameIndex(*prefix).prefix().unwrap_or_default();
            for full in [name.clone(), [prefix.as_bytes(), name].concat()] {
                if let Some(parsed) = XattrName::parse(&full) {
                    assert_eq!(parsed.full(), Some(full));
                }
            }
        },
    );
}

#[test]
fn access_control_list() {
    type Input = (Vec<(bool, u32, u8)>, Damage, u16);
    bolero::check!().with_type::<Input>().with_test_time(FUZZ_TIME).for_each(
        |(named, damage, mode)| {
            let mut entries = Acl::of_mode(*mode & 0o777).entries().to_vec();
            let mut named: Vec<_> = named.clone();
            named.retain(|entry| entry.1 != u32::MAX); // an invalid ID
            named.sort_unstable_by_key(|entry| (entry.0, entry.1));
            named.dedup_by_key(|entry| (entry.0, entry.1));
            let added = named.iter().map(|&(is_group, id, permissions)| AclEntry {
                subject: if is_group { Subject::Group(id) } else { Subject::User(id) },
                permissions: permissions % 8,
            });
            let (users, groups): (Vec<_>, Vec<_>) =
                added.partition(|entry| matches!(entry.subject, Subject::User(_)));
            if !named.is_empty() {
                entries.insert(2, AclEntry { subject: Subject::Mask, permissions: 7 });
            }
            entries.splice(2..2, groups);
            entries.splice(1..1, users);
            let acl = Acl::new(entries).unwrap();
            assert_eq!(Acl::decode_disk(&acl.encode_disk()), Ok(Some(acl.clone())));
            assert_eq!(Acl::decode_xattr(&acl.encode_xattr()), Ok(Some(acl.clone())));

            let found = [
                Acl::decode_disk(&damage.to(&acl.encode_disk())),
                Acl::decode_xattr(&damage.to(&acl.encode_xattr())),
            ];
            for acl in found.into_iter().flatten().flatten() {
                assert_eq!(Acl::decode_disk(&acl.encode_disk()), Ok(Some(acl.clone())));
                assert_eq!(acl.with_mode(*mode).mode(), *mode & 0o777);
                let (new_mode, inherited) = acl.inherited(*mode);
                assert_eq!(new_mode & !0o777, *mode & !0o777);
                assert_eq!(new_mode & !mode, 0, "nothing that was not asked for");
                let _ = inherited.map(|acl| acl.encode_xattr());
            }
        },
    );
}
