//! POSIX access control lists: ext4's compact on-disk format, the kernel's xattr format, and the
//! equivalent file modes.
//!
//! Source: the kernel's `attributes.rst` ("version 1, `e_id` only for named entries"), acl(5) for
//! order, mask and equivalence, POSIX.1e draft 17 section 23.1.5 for inheritance. Both formats were
//! checked against those that a kernel wrote.

use crate::{Flaw, FormatError, Location};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// Version of the on-disk format.
const DISK_VERSION: u32 = 1;
/// Version of the xattr format.
const XATTR_VERSION: u32 = 2;
const HEADER: usize = 4;
/// Size in bytes of an on-disk entry without an ID.
const SHORT_ENTRY: usize = 4;
/// Size in bytes of an entry with an ID, and of every entry of the xattr format.
const LONG_ENTRY: usize = 8;
/// The ID of entries without one in the xattr format.
const NO_ID: u32 = u32::MAX;
/// Read, write, execute.
const ALL: u8 = 7;

/// The users or groups to which an entry applies.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Subject {
    /// The file's owner.
    Owner,
    /// The user with this ID.
    User(u32),
    /// The file's group.
    OwningGroup,
    /// The group with this ID.
    Group(u32),
    /// Limits the permissions of named users and all groups.
    Mask,
    /// All other users.
    Other,
}

impl Subject {
    fn tag(self) -> u16 {
        match self {
            Self::Owner => 0x01,
            Self::User(_) => 0x02,
            Self::OwningGroup => 0x04,
            Self::Group(_) => 0x08,
            Self::Mask => 0x10,
            Self::Other => 0x20,
        }
    }

    fn id(self) -> Option<u32> {
        match self {
            Self::User(id) | Self::Group(id) => Some(id),
            _ => None,
        }
    }

    /// `id` is called only if the tag has an ID.
    fn of_tag(tag: u16, id: impl FnOnce() -> Result<u32, Flaw>) -> Result<Self, Flaw> {
        Ok(match tag {
            0x01 => Self::Owner,
            0x02 => Self::User(id()?),
            0x04 => Self::OwningGroup,
            0x08 => Self::Group(id()?),
            0x10 => Self::Mask,
            0x20 => Self::Other,
            _ => return Err(Flaw::bad_value("e_tag", tag)),
        })
    }
}

/// An entry: its subject and the permissions.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AclEntry {
    /// The subject of the permissions.
    pub subject: Subject,
    /// Bitmap: 4 read, 2 write, 1 execute.
    pub permissions: u8,
}

/// A valid list: owner, named users, owning group, named groups, mask, others, in this order; there
/// is a mask if there are named entries. Named entries keep the order in which they were read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Acl {
    entries: Vec<AclEntry>,
}

impl Acl {
    /// Creates a list of these entries.
    ///
    /// # Errors
    /// The rule that they violate.
    pub fn new(entries: Vec<AclEntry>) -> Result<Self, FormatError> {
        validate(&entries).map_err(|flaw| flaw.at(Location::Acl))?;
        Ok(Self { entries })
    }

    /// The list of three entries that is equivalent to a mode.
    pub fn of_mode(mode: u16) -> Self {
        let entry = |subject, shift: u16| AclEntry { subject, permissions: class(mode, shift) };
        Self {
            entries: [
                entry(Subject::Owner, 6),
                entry(Subject::OwningGroup, 3),
                entry(Subject::Other, 0),
            ]
            .into(),
        }
    }

    /// The entries in order.
    pub fn entries(&self) -> &[AclEntry] {
        &self.entries
    }

    /// Decodes the on-disk format; `None` for a list without entries, which is no ACL.
    ///
    /// # Errors
    /// A wrong version, a truncated entry, or a violated rule.
    pub fn decode_disk(bytes: &[u8]) -> Result<Option<Self>, FormatError> {
        decode(bytes, Form::Disk).map_err(|flaw| flaw.at(Location::Acl))
    }

    /// Decodes the format of `getxattr` and `setxattr`; `None` for a list without entries, with
    /// which `setxattr` removes the ACL.
    ///
    /// # Errors
    /// A wrong version, a truncated entry, or a violated rule.
    pub fn decode_xattr(bytes: &[u8]) -> Result<Option<Self>, FormatError> {
        decode(bytes, Form::Xattr).map_err(|flaw| flaw.at(Location::Acl))
    }

    /// Encodes the on-disk format.
    pub fn encode_disk(&self) -> Vec<u8> {
        let mut bytes = DISK_VERSION.to_le_bytes().to_vec();
        for entry in &self.entries {
            bytes.extend(entry.subject.tag().to_le_bytes());
            bytes.extend(u16::from(entry.permissions).to_le_bytes());
            if let Some(id) = entry.subject.id() {
                bytes.extend(id.to_le_bytes());
            }
        }
        bytes
    }

    /// Encodes the format of `getxattr` and `setxattr`.
    pub fn encode_xattr(&self) -> Vec<u8> {
        let mut bytes = XATTR_VERSION.to_le_bytes().to_vec();
        for entry in &self.entries {
            bytes.extend(entry.subject.tag().to_le_bytes());
            bytes.extend(u16::from(entry.permissions).to_le_bytes());
            bytes.extend(entry.subject.id().unwrap_or(NO_ID).to_le_bytes());
        }
        bytes
    }

    /// The nine permission bits for this list: the group bits are those of the mask if there is
    /// one.
    pub fn mode(&self) -> u16 {
        let group = self.get(Subject::Mask).or_else(|| self.get(Subject::OwningGroup));
        [self.get(Subject::Owner), group, self.get(Subject::Other)]
            .into_iter()
            .fold(0, |mode, permissions| mode << 3 | u16::from(permissions.unwrap_or(0)))
    }

    /// Whether the list is equivalent to its mode, so that it need not be stored.
    pub fn is_only_a_mode(&self) -> bool {
        self.entries.len() == 3
    }

    /// The list of a file after chmod.
    #[must_use]
    pub fn with_mode(&self, mode: u16) -> Self {
        self.changed_by_mode(mode, |_, class| class)
    }

    /// The permission bits of a new file in a directory with this default list and, if they are not
    /// equivalent, its access list. `mode` is the mode given to the call; the umask is ignored. A
    /// new directory also inherits the default list itself; a symbolic link inherits nothing.
    pub fn inherited(&self, mode: u16) -> (u16, Option<Self>) {
        let acl = self.changed_by_mode(mode, |permissions, class| permissions & class);
        let mode = mode & !0o777 | acl.mode();
        (mode, (!acl.is_only_a_mode()).then_some(acl))
    }

    /// A copy whose entries that a mode has bits for get new permissions: `change` makes them of
    /// the old ones and those bits.
    fn changed_by_mode(&self, mode: u16, change: impl Fn(u8, u8) -> u8) -> Self {
        let mut acl = self.clone();
        let group =
            if self.get(Subject::Mask).is_some() { Subject::Mask } else { Subject::OwningGroup };
        for entry in &mut acl.entries {
            let shift = match entry.subject {
                Subject::Owner => 6,
                Subject::Other => 0,
                subject if subject == group => 3,
                _ => continue,
            };
            entry.permissions = change(entry.permissions, class(mode, shift));
        }
        acl
    }

    fn get(&self, subject: Subject) -> Option<u8> {
        self.entries.iter().find(|entry| entry.subject == subject).map(|entry| entry.permissions)
    }
}

/// Three permission bits of a mode.
fn class(mode: u16, shift: u16) -> u8 {
    (mode >> shift) as u8 & ALL
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Form {
    Disk,
    Xattr,
}

fn decode(bytes: &[u8], form: Form) -> Result<Option<Acl>, Flaw> {
    let (version, mut rest) =
        bytes.split_first_chunk::<HEADER>().ok_or(Flaw::truncated(bytes.len(), HEADER))?;
    let expected = if form == Form::Disk { DISK_VERSION } else { XATTR_VERSION };
    let found = u32::from_le_bytes(*version);
    if found != expected {
        return Err(Flaw::bad_value("a_version", found));
    }
    let mut entries = Vec::new();
    while !rest.is_empty() {
        let cut = |needed| Flaw::truncated(rest.len(), needed);
        let fixed = rest.first_chunk::<SHORT_ENTRY>().ok_or(cut(SHORT_ENTRY))?;
        let [tag_lo, tag_hi, permissions_lo, permissions_hi] = *fixed;
        let (tag, permissions) = (
            u16::from_le_bytes([tag_lo, tag_hi]),
            u16::from_le_bytes([permissions_lo, permissions_hi]),
        );
        let id_bytes = rest.get(SHORT_ENTRY..).and_then(|rest| rest.first_chunk::<4>());
        let subject = Subject::of_tag(tag, || {
            id_bytes.map(|id| u32::from_le_bytes(*id)).ok_or(cut(LONG_ENTRY))
        })?;
        let len =
            if form == Form::Xattr || subject.id().is_some() { LONG_ENTRY } else { SHORT_ENTRY };
        rest = rest.get(len..).ok_or(cut(len))?;
        let permissions = u8::try_from(permissions)
            .ok()
            .filter(|&permissions| permissions <= ALL)
            .ok_or(Flaw::above_limit("e_perm", permissions, ALL))?;
        entries.push(AclEntry { subject, permissions });
    }
    if entries.is_empty() {
        return Ok(None);
    }
    validate(&entries)?;
    Ok(Some(Acl { entries }))
}

fn validate(entries: &[AclEntry]) -> Result<(), Flaw> {
    if !entries.is_sorted_by_key(|entry| entry.subject.tag()) {
        return Err(Flaw::Rule("entries are out of order"));
    }
    let mut seen = BTreeSet::new();
    for entry in entries {
        if entry.permissions > ALL {
            return Err(Flaw::above_limit("e_perm", entry.permissions, ALL));
        }
        if entry.subject.id() == Some(NO_ID) {
            return Err(Flaw::bad_value("e_id", NO_ID));
        }
        if !seen.insert(entry.subject) {
            return Err(Flaw::Rule("duplicate entry for a user or group"));
        }
    }
    for needed in [Subject::Owner, Subject::OwningGroup, Subject::Other] {
        if !seen.contains(&needed) {
            return Err(Flaw::Rule("required entry of owner, owning group or others missing"));
        }
    }
    let names_somebody = entries.iter().any(|entry| entry.subject.id().is_some());
    if names_somebody && !seen.contains(&Subject::Mask) {
        return Err(Flaw::Rule("named entries require a mask entry"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `setfacl -m u:1000:rw,g:5:r` on a file of mode 644, as the kernel stored it.
    const STORED: &[u8] = &[
        1, 0, 0, 0, 1, 0, 6, 0, 2, 0, 6, 0, 0xe8, 3, 0, 0, 4, 0, 4, 0, 8, 0, 4, 0, 5, 0, 0, 0, 16,
        0, 6, 0, 32, 0, 4, 0,
    ];

    fn sample() -> Acl {
        Acl::decode_disk(STORED).unwrap().unwrap()
    }

    fn entry(subject: Subject, permissions: u8) -> AclEntry {
        AclEntry { subject, permissions }
    }

    #[test]
    fn the_stored_form_of_the_kernel_reads_and_writes_back() {
        use Subject::*;
        let expected = [
            entry(Owner, 6),
            entry(User(1000), 6),
            entry(OwningGroup, 4),
            entry(Group(5), 4),
            entry(Mask, 6),
            entry(Other, 4),
        ];
        assert_eq!(sample().entries(), expected);
        assert_eq!(sample().encode_disk(), STORED);
        let xattr = sample().encode_xattr();
        assert_eq!(xattr.len(), 4 + 6 * 8);
        assert_eq!(Acl::decode_xattr(&xattr), Ok(Some(sample())));
    }

    #[test]
    fn the_invalid_id_cannot_be_named() {
        use Subject::*;
        let entries = [Owner, OwningGroup, Group(NO_ID), Mask, Other];
        let acl = Acl::new(entries.map(|subject| entry(subject, 4)).into());
        assert_eq!(acl, Err(Flaw::bad_value("e_id", NO_ID).at(Location::Acl)));
    }

    #[test]
    fn one_form_is_not_taken_for_the_other() {
        let error = Flaw::bad_value("a_version", 2_u32).at(Location::Acl);
        assert_eq!(Acl::decode_disk(&sample().encode_xattr()), Err(error));
    }

    #[test]
    fn a_list_without_entries_is_none() {
        assert_eq!(Acl::decode_disk(&[1, 0, 0, 0]), Ok(None));
        assert_eq!(Acl::decode_xattr(&[2, 0, 0, 0]), Ok(None));
    }

    #[test]
    fn a_cut_entry_is_refused() {
        let cut = Acl::decode_disk(&STORED[..STORED.len() - 1]);
        assert_eq!(cut, Err(Flaw::truncated(3, 4).at(Location::Acl)));
        let no_id = Acl::decode_disk(&STORED[..14]);
        assert_eq!(no_id, Err(Flaw::truncated(6, 8).at(Location::Acl)));
    }

    #[test]
    fn each_broken_rule_is_named() {
        use Subject::*;
        let mode = [entry(Owner, 7), entry(OwningGroup, 5), entry(Other, 5)];
        let cases: [(Vec<AclEntry>, Flaw); 5] = [
            ([mode[1], mode[0], mode[2]].into(), Flaw::Rule("entries are out of order")),
            (
                [mode[0], entry(User(1), 7), mode[1], mode[2]].into(),
                Flaw::Rule("named entries require a mask entry"),
            ),
            (
                [mode[0], entry(User(1), 7), entry(User(1), 6), mode[1], mode[2]].into(),
                Flaw::Rule("duplicate entry for a user or group"),
            ),
            (
                mode[..2].into(),
                Flaw::Rule("required entry of owner, owning group or others missing"),
            ),
            ([entry(Owner, 8), mode[1], mode[2]].into(), Flaw::above_limit("e_perm", 8_u32, 7_u32)),
        ];
        for (entries, flaw) in cases {
            assert_eq!(Acl::new(entries), Err(flaw.at(Location::Acl)));
        }
    }

    #[test]
    fn a_list_of_three_is_only_a_mode() {
        assert!(Acl::of_mode(0o754).is_only_a_mode());
        assert_eq!(Acl::of_mode(0o754).mode(), 0o754);
        assert!(!sample().is_only_a_mode());
        assert_eq!(sample().mode(), 0o664); // the mask speaks for the group
    }

    #[test]
    fn chmod_changes_the_mask_and_not_the_group() {
        let acl = sample().with_mode(0o700);
        assert_eq!(acl.mode(), 0o700);
        assert_eq!(acl.get(Subject::OwningGroup), Some(4));
        assert_eq!(acl.get(Subject::Mask), Some(0));
        assert_eq!(acl.get(Subject::User(1000)), Some(6));
        assert_eq!(Acl::of_mode(0o777).with_mode(0o640), Acl::of_mode(0o640));
    }

    #[test]
    fn a_new_file_inherits_no_more_than_the_requested_mode() {
        let (mode, acl) = sample().inherited(0o100_600);
        assert_eq!(mode, 0o100_600);
        let acl = acl.unwrap();
        assert_eq!(acl.get(Subject::Mask), Some(0));
        assert_eq!(acl.get(Subject::User(1000)), Some(6));
        assert_eq!(acl.get(Subject::OwningGroup), Some(4));

        let (mode, acl) = Acl::of_mode(0o750).inherited(0o100_666);
        assert_eq!((mode, acl), (0o100_640, None));
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_write_back(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            for version in [1, 2] {
                let mut bytes = bytes.clone();
                if let Some(head) = bytes.first_chunk_mut::<4>() {
                    *head = u32::to_le_bytes(version);
                }
                if let Ok(Some(acl)) = Acl::decode_disk(&bytes) {
                    prop_assert_eq!(acl.encode_disk(), bytes);
                } else if let Ok(Some(acl)) = Acl::decode_xattr(&bytes) {
                    prop_assert_eq!(Acl::decode_xattr(&acl.encode_xattr()), Ok(Some(acl)));
                }
            }
        }

        #[test]
        fn every_valid_list_survives_both_forms(
            permissions in prop::collection::vec(0_u8..8, 6),
            users in prop::collection::btree_set(0..u32::MAX, 0..5),
            groups in prop::collection::btree_set(0..u32::MAX, 0..5),
        ) {
            let mut entries = Vec::from([entry(Subject::Owner, permissions[0])]);
            entries.extend(users.into_iter().map(|id| entry(Subject::User(id), permissions[1])));
            entries.push(entry(Subject::OwningGroup, permissions[2]));
            entries.extend(groups.into_iter().map(|id| entry(Subject::Group(id), permissions[3])));
            entries.push(entry(Subject::Mask, permissions[4]));
            entries.push(entry(Subject::Other, permissions[5]));
            let acl = Acl::new(entries).unwrap();
            prop_assert_eq!(Acl::decode_disk(&acl.encode_disk()), Ok(Some(acl.clone())));
            prop_assert_eq!(Acl::decode_xattr(&acl.encode_xattr()), Ok(Some(acl)));
        }
    }
}
