//! POSIX access control lists in the model: entries, the kernel's format, and their effect on
//! modes.

/// The subject of an entry, with user and group IDs.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[expect(missing_docs, reason = "the tags of POSIX.1e")]
pub enum AclTag {
    Owner,
    User(u32),
    Group,
    NamedGroup(u32),
    Mask,
    Other,
}

/// An entry: a tag and permissions (rwx as 4, 2, 1).
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct AclEntry {
    /// The subject.
    pub tag: AclTag,
    /// The permissions.
    pub permissions: u16,
}

/// The ID of entries without a user or group.
const NO_ID: u32 = u32::MAX;

/// The value of `system.posix_acl_*`: version 2, then tag, permissions and id of each entry in
/// order.
pub fn to_xattr(acl: &[AclEntry]) -> Vec<u8> {
    let mut sorted = acl.to_vec();
    sorted.sort();
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for entry in sorted {
        let (tag, id) = match entry.tag {
            AclTag::Owner => (1_u16, NO_ID),
            AclTag::User(id) => (2, id),
            AclTag::Group => (4, NO_ID),
            AclTag::NamedGroup(id) => (8, id),
            AclTag::Mask => (16, NO_ID),
            AclTag::Other => (32, NO_ID),
        };
        bytes.extend(tag.to_le_bytes());
        bytes.extend(entry.permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// The entries of a value of `system.posix_acl_*`; `None` if it is not a list.
pub fn from_xattr(bytes: &[u8]) -> Option<Vec<AclEntry>> {
    let entries = bytes.strip_prefix(&2_u32.to_le_bytes())?;
    let entry = |bytes: &[u8]| {
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let id = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        let tag = match half(0) {
            1 => AclTag::Owner,
            2 => AclTag::User(id),
            4 => AclTag::Group,
            8 => AclTag::NamedGroup(id),
            16 => AclTag::Mask,
            32 => AclTag::Other,
            _ => return None,
        };
        Some(AclEntry { tag, permissions: half(2) })
    };
    if entries.len() % 8 != 0 {
        return None;
    }
    entries.chunks(8).map(entry).collect()
}

/// The mode's permission bits for a list: the group bits are those of the mask if there is one.
pub(super) fn mode_of(acl: &[AclEntry]) -> u32 {
    let of =
        |tag| acl.iter().find(|entry| entry.tag == tag).map(|entry| u32::from(entry.permissions));
    let group = of(AclTag::Mask).or(of(AclTag::Group));
    of(AclTag::Owner).unwrap_or(0) << 6 | group.unwrap_or(0) << 3 | of(AclTag::Other).unwrap_or(0)
}

/// Whether a list is equivalent to a mode.
pub(super) fn is_plain(acl: &[AclEntry]) -> bool {
    acl.iter().all(|entry| matches!(entry.tag, AclTag::Owner | AclTag::Group | AclTag::Other))
}

/// The list after chmod: owner, mask (or group) and others as in the mode.
pub(super) fn with_mode(acl: &[AclEntry], mode: u32) -> Vec<AclEntry> {
    let has_mask = acl.iter().any(|entry| entry.tag == AclTag::Mask);
    let changed = |entry: &AclEntry| {
        let permissions = match entry.tag {
            AclTag::Owner => mode >> 6 & 7,
            AclTag::Mask => mode >> 3 & 7,
            AclTag::Group if !has_mask => mode >> 3 & 7,
            AclTag::Other => mode & 7,
            _ => u32::from(entry.permissions),
        };
        AclEntry { permissions: permissions as u16, ..*entry }
    };
    acl.iter().map(changed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_goes_to_the_kernels_form_and_back() {
        let entry = |tag, permissions| AclEntry { tag, permissions };
        let acl = vec![
            entry(AclTag::Owner, 6),
            entry(AclTag::User(7), 5),
            entry(AclTag::Group, 4),
            entry(AclTag::Mask, 3),
            entry(AclTag::Other, 0),
        ];
        assert_eq!(from_xattr(&to_xattr(&acl)), Some(acl.clone()));
        assert_eq!(mode_of(&acl), 0o630);
        assert!(!is_plain(&acl));
        assert_eq!(mode_of(&with_mode(&acl, 0o751)), 0o751);
    }
}
