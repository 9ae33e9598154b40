//! POSIX ACLs: the text that archives hold, and the kernel's binary form of the attribute (version
//! 2).

use super::error::{AclError, Flaw};
use super::owner::Owners;

/// Version of the attribute's form: le32 before the entries of le16 tag, le16 permissions, le32 id.
const VERSION: u32 = 2;
/// The id of entries that have none.
const NO_ID: u32 = u32::MAX;

/// The subject of an ACL entry, with the kernel's numbers, in the kernel's order.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Tag {
    UserObj = 0x01,
    User = 0x02,
    GroupObj = 0x04,
    Group = 0x08,
    Mask = 0x10,
    Other = 0x20,
}

impl Tag {
    const ALL: [Self; 6] =
        [Self::UserObj, Self::User, Self::GroupObj, Self::Group, Self::Mask, Self::Other];

    fn from_number(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|&tag| tag as u16 == number)
    }

    const fn has_id(self) -> bool {
        matches!(self, Self::User | Self::Group)
    }
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Entry {
    tag: Tag,
    id: u32,
    perm: u16,
}

/// A valid ACL: entries sorted by tag and id, the three base entries once each, a mask where one is
/// needed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Acl(Vec<Entry>);

impl Acl {
    fn checked(mut entries: Vec<Entry>) -> Result<Self, Flaw> {
        entries.sort_unstable();
        let count = |tag| entries.iter().filter(|entry| entry.tag == tag).count();
        for (tag, name) in
            [(Tag::UserObj, "user::"), (Tag::GroupObj, "group::"), (Tag::Other, "other::")]
        {
            if count(tag) != 1 {
                return Err(AclError::Base(name).into());
            }
        }
        let named = count(Tag::User) + count(Tag::Group);
        if count(Tag::Mask) > 1 || (named > 0 && count(Tag::Mask) == 0) {
            return Err(AclError::Mask.into());
        }
        if entries.windows(2).any(|pair| (pair[0].tag, pair[0].id) == (pair[1].tag, pair[1].id)) {
            return Err(AclError::Twice.into());
        }
        Ok(Self(entries))
    }

    /// Reads the attribute's value, as lgetxattr gives it. `None` if it has no entries.
    pub(super) fn from_kernel(value: &[u8]) -> Result<Option<Self>, Flaw> {
        let (version, entries) = value.split_first_chunk().ok_or(AclError::NoHeader)?;
        if u32::from_le_bytes(*version) != VERSION {
            return Err(AclError::Version(u32::from_le_bytes(*version)).into());
        }
        let (entries, rest) = entries.as_chunks::<8>();
        if !rest.is_empty() {
            return Err(AclError::Truncated.into());
        }
        if entries.is_empty() {
            return Ok(None);
        }
        let entries = entries.iter().map(|&[t0, t1, p0, p1, a, b, c, d]| {
            let number = u16::from_le_bytes([t0, t1]);
            let perm = u16::from_le_bytes([p0, p1]);
            let tag = Tag::from_number(number).ok_or(AclError::Tag(number))?;
            if perm > 7 {
                return Err(AclError::Bits(perm).into());
            }
            let id = if tag.has_id() { u32::from_le_bytes([a, b, c, d]) } else { NO_ID };
            Ok(Entry { tag, id, perm })
        });
        Self::checked(entries.collect::<Result<_, Flaw>>()?).map(Some)
    }

    /// The attribute's value, as lsetxattr takes it.
    pub(super) fn to_kernel(&self) -> Vec<u8> {
        let mut value = VERSION.to_le_bytes().to_vec();
        for entry in &self.0 {
            value.extend_from_slice(&(entry.tag as u16).to_le_bytes());
            value.extend_from_slice(&entry.perm.to_le_bytes());
            value.extend_from_slice(&entry.id.to_le_bytes());
        }
        value
    }

    /// Whether the permission bits are equivalent.
    pub(super) fn is_minimal(&self) -> bool {
        self.0.len() == 3
    }

    /// The corresponding permission bits: the group's are the mask's if there is one.
    pub(super) fn permissions(&self) -> u16 {
        let of = |tag| self.0.iter().find(|entry| entry.tag == tag).map(|entry| entry.perm);
        let group = of(Tag::Mask).or(of(Tag::GroupObj)).unwrap_or(0);
        of(Tag::UserObj).unwrap_or(0) << 6 | group << 3 | of(Tag::Other).unwrap_or(0)
    }

    /// Applies the owner mapping to the ids.
    pub(super) fn map_owners(&mut self, owners: &Owners) -> Result<(), Flaw> {
        for entry in &mut self.0 {
            match entry.tag {
                Tag::User => entry.id = owners.map_uid(entry.id.into())?,
                Tag::Group => entry.id = owners.map_gid(entry.id.into())?,
                _ => {}
            }
        }
        *self = Self::checked(std::mem::take(&mut self.0))?;
        Ok(())
    }
}

/// Reads the text form: entries `tag:qualifier:permissions`, separated by newlines or commas, with
/// the number of a named qualifier in a fourth field where the archiver wrote it. `None` if there
/// are no entries.
pub(super) fn from_text(text: &[u8]) -> Result<Option<Acl>, Flaw> {
    let text = std::str::from_utf8(text).map_err(|_| AclError::NotText)?;
    let mut entries = Vec::new();
    for line in text.split(['\n', ',']) {
        let line = line.split('#').next().unwrap_or_default().trim_matches([' ', '\t', '\0', '\r']);
        if !line.is_empty() {
            entries.push(entry_from_text(line)?);
        }
    }
    if entries.is_empty() {
        return Ok(None);
    }
    Acl::checked(entries).map(Some)
}

fn entry_from_text(line: &str) -> Result<Entry, Flaw> {
    let mut fields = line.split(':').map(str::trim);
    let kind = fields.next().unwrap_or_default();
    let second = fields.next().ok_or_else(|| AclError::NoFields(line.to_owned()))?;
    let third = fields.next();
    // "mask:rwx" and "other:r--" are allowed to leave out their empty qualifier.
    let (qualifier, perm) = match third {
        Some(perm) => (second, perm),
        None if matches!(kind, "mask" | "m" | "other" | "o") => ("", second),
        None => return Err(AclError::NoPermissions(line.to_owned()).into()),
    };
    let number = fields.next();
    if fields.next().is_some() {
        return Err(AclError::TooManyFields(line.to_owned()).into());
    }
    let tag = match (kind, qualifier.is_empty()) {
        ("user" | "u", true) => Tag::UserObj,
        ("user" | "u", false) => Tag::User,
        ("group" | "g", true) => Tag::GroupObj,
        ("group" | "g", false) => Tag::Group,
        ("mask" | "m", true) => Tag::Mask,
        ("other" | "o", true) => Tag::Other,
        _ => return Err(AclError::Kind(line.to_owned()).into()),
    };
    let id = if tag.has_id() { id_from_text(line, qualifier, number)? } else { NO_ID };
    Ok(Entry { tag, id, perm: perm_from_text(line, perm)? })
}

fn id_from_text(line: &str, qualifier: &str, number: Option<&str>) -> Result<u32, Flaw> {
    let text = number.filter(|number| !number.is_empty()).unwrap_or(qualifier);
    match text.parse() {
        Ok(id) => Ok(id),
        Err(_) if text == "root" => Ok(0),
        Err(_) => Err(AclError::NoNumber(line.to_owned()).into()),
    }
}

fn perm_from_text(line: &str, text: &str) -> Result<u16, Flaw> {
    let bad = || AclError::Permissions(line.to_owned()).into();
    if let [digit @ b'0'..=b'7'] = text.as_bytes() {
        return Ok(u16::from(digit - b'0'));
    }
    text.bytes().try_fold(0, |perm, byte| match byte {
        b'r' => Ok(perm | 4),
        b'w' => Ok(perm | 2),
        b'x' => Ok(perm | 1),
        b'-' => Ok(perm),
        _ => Err(bad()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_with_blanks_comments_and_short_words_is_understood() {
        let long = b"user::rwx\nuser:1000:r-x\ngroup::r-x\nmask::r-x\nother::---\n";
        let short = b"u::7, u:lisa:5:1000 ,g::rx,m:rx\t#effective:r-x\no:-\n#comment";
        assert_eq!(from_text(short).unwrap(), from_text(long).unwrap());
        assert_eq!(from_text(b"\n \n").unwrap(), None);
    }

    #[test]
    fn the_binary_form_is_read_as_it_was_written_whatever_the_order() {
        let acl = from_text(b"o::r,u::rwx,g:9:w,g:3:x,m::rwx,g::rx").unwrap().unwrap();
        let value = acl.to_kernel();
        assert_eq!(value.len(), 4 + 6 * 8);
        assert_eq!(&value[4 + 2 * 8..][..8], [8, 0, 1, 0, 3, 0, 0, 0]);
        assert_eq!(Acl::from_kernel(&value).unwrap(), Some(acl.clone()));
        assert_eq!(acl.permissions(), 0o774);
        assert!(!acl.is_minimal());
    }

    #[test]
    fn acls_that_the_kernel_would_refuse_are_refused() {
        for text in [
            "u::rwx,g::rx",
            "u::rwx,g::rx,o::r,u::r",
            "u::rwx,g::rx,o::r,u:1:r",
            "u::rwx,g::rx,o::r,u:1:r,u:1:w,m::r",
            "u::rwq,g::rx,o::r",
            "u::8,g::rx,o::r",
            "x::r,g::rx,o::r",
            "u:lisa:r,u::r,g::r,o::r,m::r",
            "u:1:r:2:3,u::r,g::r,o::r,m::r",
            "nonsense",
        ] {
            assert!(from_text(text.as_bytes()).is_err(), "{text}");
        }
        assert!(Acl::from_kernel(&[2, 0, 0]).is_err());
        assert!(Acl::from_kernel(&[1, 0, 0, 0]).is_err());
        assert!(Acl::from_kernel(&[2, 0, 0, 0, 1, 0]).is_err());
        assert_eq!(Acl::from_kernel(&[2, 0, 0, 0]).unwrap(), None);
    }
}
