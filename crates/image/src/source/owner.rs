//! Owners of the image's files: as in the source, one owner for all, or by a map of id ranges.

use std::str::FromStr;

use super::error::{Flaw, SourceError};

/// Rules that turn a source's numeric ids into those of the image. The default keeps them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Owners {
    /// `--owner`: every file belongs to this user and group. ACL entries keep their ids.
    pub all: Option<(u32, u32)>,
    /// `--map-owner`, applied where `all` is not given, and to ACL entries.
    pub map: OwnerMap,
}

impl Owners {
    /// The user and group in the image of a file that has these in its source.
    pub(super) fn apply(&self, uid: u64, gid: u64) -> Result<(u32, u32), Flaw> {
        match self.all {
            Some(owner) => Ok(owner),
            None => Ok((self.map_uid(uid)?, self.map_gid(gid)?)),
        }
    }

    pub(super) fn map_uid(&self, uid: u64) -> Result<u32, Flaw> {
        storable("uid", mapped(&self.map.users, uid))
    }

    pub(super) fn map_gid(&self, gid: u64) -> Result<u32, Flaw> {
        storable("gid", mapped(&self.map.groups, gid))
    }
}

/// `u32::MAX` means "no one" to the kernel: such a file could never be changed.
fn storable(field: &'static str, id: u64) -> Result<u32, Flaw> {
    match u32::try_from(id) {
        Ok(id) if id != u32::MAX => Ok(id),
        _ => Err(Flaw::OwnerId { field, id }),
    }
}

fn mapped(ranges: &[IdRange], id: u64) -> u64 {
    let within = |range: &&IdRange| {
        (u64::from(range.from)..u64::from(range.from) + u64::from(range.count)).contains(&id)
    };
    match ranges.iter().find(within) {
        Some(range) => u64::from(range.to) + (id - u64::from(range.from)),
        None => id,
    }
}

/// Parses `UID[:GID]`, the argument of `--owner`: a user alone is the group too, and `root` is 0.
///
/// # Errors
/// [`SourceError::Owner`] if it is anything else.
pub fn parse_owner(text: &str) -> Result<(u32, u32), SourceError> {
    let id = |text: &str| match text {
        "root" => Some(0),
        number => number.parse().ok().filter(|id| *id != u32::MAX),
    };
    let (uid, gid) = text.split_once(':').unwrap_or((text, text));
    let owner = id(uid).zip(id(gid));
    owner.ok_or_else(|| SourceError::Owner(text.to_owned()))
}

/// Ranges of ids and their replacements; an id in none of them is kept.
///
/// Its text is a list of `[u:|g:|b:]FROM:TO[:COUNT]` separated by commas: users, groups or (the
/// default) both, COUNT ids (default 1) from FROM on. Ranges of one kind may not overlap in FROM.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct OwnerMap {
    users: Vec<IdRange>,
    groups: Vec<IdRange>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct IdRange {
    from: u32,
    to: u32,
    count: u32,
}

impl FromStr for OwnerMap {
    type Err = SourceError;

    fn from_str(text: &str) -> Result<Self, SourceError> {
        let mut map = Self::default();
        for part in text.split(',') {
            let (kind, range) =
                IdRange::parse(part).ok_or_else(|| SourceError::OwnerMap(part.to_owned()))?;
            if kind != 'g' {
                add(&mut map.users, range, part)?;
            }
            if kind != 'u' {
                add(&mut map.groups, range, part)?;
            }
        }
        Ok(map)
    }
}

impl OwnerMap {
    /// Adds the ranges of another map, as if both texts had been given as one.
    ///
    /// # Errors
    /// [`SourceError::OwnerRanges`] if ranges overlap.
    pub fn extend(&mut self, other: &Self) -> Result<(), SourceError> {
        for (own, others) in [(&mut self.users, &other.users), (&mut self.groups, &other.groups)] {
            for &range in others {
                add(own, range, &format!("{}:{}:{}", range.from, range.to, range.count))?;
            }
        }
        Ok(())
    }
}

impl IdRange {
    fn parse(text: &str) -> Option<(char, Self)> {
        let (kind, numbers) = match text.split_once(':')? {
            ("u", rest) => ('u', rest),
            ("g", rest) => ('g', rest),
            ("b", rest) => ('b', rest),
            _ => ('b', text),
        };
        let mut fields = numbers.split(':');
        let from: u32 = fields.next()?.parse().ok()?;
        let to: u32 = fields.next()?.parse().ok()?;
        let count: u32 = fields.next().map_or(Some(1), |count| count.parse().ok())?;
        // The last id of either range must be one that can own a file.
        let last = from.max(to).checked_add(count.checked_sub(1)?)?;
        (fields.next().is_none() && last != u32::MAX).then_some((kind, Self { from, to, count }))
    }

    fn overlaps(&self, other: &Self) -> bool {
        let end = |range: &Self| u64::from(range.from) + u64::from(range.count);
        u64::from(self.from) < end(other) && u64::from(other.from) < end(self)
    }
}

fn add(ranges: &mut Vec<IdRange>, range: IdRange, text: &str) -> Result<(), SourceError> {
    if ranges.iter().any(|other| other.overlaps(&range)) {
        return Err(SourceError::OwnerRanges(text.to_owned()));
    }
    ranges.push(range);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_moves_ranges_of_users_and_groups() {
        let map: OwnerMap = "100000:0:65536,u:5:500,g:5:600:2".parse().unwrap();
        let owners = Owners { all: None, map };
        assert_eq!(owners.apply(165_535, 100_000).unwrap(), (65_535, 0));
        assert_eq!(owners.apply(165_536, 99_999).unwrap(), (165_536, 99_999));
        assert_eq!(owners.apply(5, 6).unwrap(), (500, 601));
    }

    #[test]
    fn maps_that_overlap_or_leave_the_ids_are_refused() {
        for text in [
            "",
            "1",
            "1:2:3:4",
            "x:1:2",
            "1:2:0",
            "-1:0",
            "0:0:4294967296",
            "u:0:4294967295",
            "1:2,1:3",
        ] {
            assert!(text.parse::<OwnerMap>().is_err(), "{text}");
        }
        assert!("u:1:2,g:1:2,0:4294967294".parse::<OwnerMap>().is_ok());
    }

    #[test]
    fn no_one_cannot_own_a_file() {
        let owners = Owners::default();
        assert!(matches!(
            owners.apply(u32::MAX.into(), 0),
            Err(Flaw::OwnerId { field: "uid", id: 0xffff_ffff })
        ));
        assert!(parse_owner("0:4294967295").is_err());
        assert_eq!(parse_owner("1000:100").unwrap(), (1000, 100));
        for root in ["0", "root", "root:root", "0:root"] {
            assert_eq!(parse_owner(root).unwrap(), (0, 0), "{root}");
        }
        for text in ["", ":", "user", "user:0", "0:"] {
            assert!(parse_owner(text).is_err(), "{text}");
        }
    }
}
