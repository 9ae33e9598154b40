//! Case-insensitive names: the folding of names in directories with the casefold flag.
//!
//! Encoding 1 of the superblock is UTF-8 of Unicode 12.1. A name is folded by removing
//! default-ignorable characters, full case folding, and canonical decomposition; the result is
//! compared and hashed. A character that is unassigned in Unicode 12.1 is kept. A name that is not
//! UTF-8 is invalid on a strict volume, and on others is compared and hashed as bytes.
//!
//! Checked for every character against the hashes of e2fsprogs (`dx_hash -c -e utf8` of debugfs).
//! Decomposition is from a crate and case mapping from the standard library, both of a later
//! Unicode version. Unicode's stability policy keeps the mappings of characters of 12.1, and
//! `assigned` excludes later characters.

mod assigned;

use crate::superblock::Superblock;
use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use unicode_normalization::UnicodeNormalization;

/// `s_encoding` of UTF-8 12.1, the only defined encoding.
pub const ENCODING_UTF8_12_1: u16 = 1;
/// Bit of `s_encoding_flags`: invalid names are rejected.
pub const STRICT: u16 = 1;

/// Name comparison on a volume with casefold.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Casefold {
    /// Whether names that are not UTF-8 are rejected.
    pub is_strict: bool,
}

impl Casefold {
    /// The rules of a volume; `None` for an unknown encoding.
    pub fn of_volume(superblock: &Superblock) -> Option<Self> {
        (superblock.encoding == ENCODING_UTF8_12_1)
            .then_some(Self { is_strict: superblock.encoding_flags & STRICT != 0 })
    }

    /// Whether a name is valid in a directory.
    pub fn admits(self, name: &[u8]) -> bool {
        !self.is_strict || core::str::from_utf8(name).is_ok()
    }

    /// The bytes of a name that are compared and hashed.
    pub fn key(self, name: &[u8]) -> Cow<'_, [u8]> {
        fold(name).map_or(Cow::Borrowed(name), Cow::Owned)
    }

    /// Whether two names are equal.
    pub fn is_same(self, a: &[u8], b: &[u8]) -> bool {
        a == b || self.key(a) == self.key(b)
    }
}

/// The folded name, `None` when it is not UTF-8.
pub fn fold(name: &[u8]) -> Option<Vec<u8>> {
    if name.is_ascii() {
        return Some(name.to_ascii_lowercase());
    }
    let name = core::str::from_utf8(name).ok()?;
    let mut folded = String::with_capacity(name.len());
    // An unassigned or ignorable character ends a sequence of combining marks, even though an
    // ignorable one is removed.
    let mut rest = name;
    loop {
        let end = rest.find(|c| is_ignorable(c) || !is_assigned(c)).unwrap_or(rest.len());
        let (known, divided) = rest.split_at(end);
        folded.extend(known.chars().flat_map(case_fold).nfd());
        let mut divided = divided.chars();
        let Some(c) = divided.next() else { break };
        if !is_ignorable(c) {
            folded.push(c);
        }
        rest = divided.as_str();
    }
    Some(folded.into_bytes())
}

fn is_assigned(c: char) -> bool {
    c.is_ascii()
        || assigned::ASSIGNED
            .binary_search_by(|&(first, last)| {
                if last < u32::from(c) {
                    core::cmp::Ordering::Less
                } else if first > u32::from(c) {
                    core::cmp::Ordering::Greater
                } else {
                    core::cmp::Ordering::Equal
                }
            })
            .is_ok()
}

/// The property Default_Ignorable_Code_Point, including code points reserved for later characters.
fn is_ignorable(c: char) -> bool {
    matches!(
        u32::from(c),
        0xad
            | 0x34f
            | 0x61c
            | 0x115f..=0x1160
            | 0x17b4..=0x17b5
            | 0x180b..=0x180e
            | 0x200b..=0x200f
            | 0x202a..=0x202e
            | 0x2060..=0x206f
            | 0x3164
            | 0xfe00..=0xfe0f
            | 0xfeff
            | 0xffa0
            | 0xfff0..=0xfff8
            | 0x1bca0..=0x1bca3
            | 0x1d173..=0x1d17a
            | 0xe0000..=0xe0fff
    )
}

/// Full case folding of a character: the lower case of its upper case, with two exceptions.
fn case_fold(c: char) -> impl Iterator<Item = char> {
    // The dotless i has an upper case and folds to itself; Cherokee folds to its upper case, which
    // is older.
    let as_it_is = match c {
        'ı' | '\u{13a0}'..='\u{13f5}' => Some(c),
        '\u{13f8}'..='\u{13fd}' | '\u{ab70}'..='\u{abbf}' => c.to_uppercase().next(),
        _ => None,
    };
    let folded = as_it_is
        .is_none()
        .then(|| c.to_lowercase().flat_map(char::to_uppercase).flat_map(char::to_lowercase));
    as_it_is.into_iter().chain(folded.into_iter().flatten())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dx_hash::{DirHasher, HashVersion};
    use alloc::format;
    use proptest::prelude::*;

    fn folded(name: &str) -> String {
        String::from_utf8(fold(name.as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn case_and_composition_do_not_matter() {
        assert_eq!(folded("Straße"), "strasse");
        assert_eq!(folded("STRASSE"), "strasse");
        assert_eq!(folded("\u{c5}ngstr\u{f6}m"), "a\u{30a}ngstro\u{308}m");
        assert_eq!(folded("\u{212b}"), "a\u{30a}"); // the Ångström sign
        assert_eq!(folded("ΣΊΣΥΦΟΣ"), folded("σίσυφος"));
        assert_eq!(folded("\u{1fb3}"), "\u{3b1}\u{3b9}"); // iota below
        assert_eq!(folded("İı"), "i\u{307}ı");
        assert_eq!(folded("\u{ab70}\u{13f8}"), "\u{13a0}\u{13f0}"); // Cherokee
        assert_eq!(folded("\u{ac01}"), "\u{1100}\u{1161}\u{11a8}"); // Hangul
    }

    #[test]
    fn ignorable_characters_do_not_matter() {
        assert_eq!(folded("a\u{ad}b\u{200d}\u{e0100}"), "ab");
        // But they keep marks from changing places.
        assert_eq!(folded("a\u{301}\u{34f}\u{323}"), "a\u{301}\u{323}");
        assert_eq!(folded("a\u{301}\u{323}"), "a\u{323}\u{301}");
    }

    #[test]
    fn later_characters_stay_as_they_are() {
        assert_eq!(folded("A\u{a7c7}"), "a\u{a7c7}"); // Unicode 13, with a lower case
        assert_eq!(folded("A\u{11938}"), "a\u{11938}"); // Unicode 13, with a decomposition
        assert_eq!(folded("a\u{301}\u{1ac1}\u{323}"), "a\u{301}\u{1ac1}\u{323}"); // Unicode 14, a mark
    }

    #[test]
    fn bytes_that_are_not_utf8_are_compared_as_they_are_unless_the_volume_is_strict() {
        let (strict, lax) = (Casefold { is_strict: true }, Casefold { is_strict: false });
        assert!(!strict.admits(b"A\xff") && lax.admits(b"A\xff"));
        assert!(lax.is_same(b"A\xff", b"A\xff") && !lax.is_same(b"A\xff", b"a\xff"));
        assert!(strict.admits("Ä".as_bytes()) && strict.is_same("Ä".as_bytes(), "ä".as_bytes()));
    }

    proptest! {
        #[test]
        fn folding_twice_changes_nothing_more(name in any::<String>()) {
            let once = folded(&name);
            prop_assert_eq!(folded(&once), once);
        }

        #[test]
        fn any_bytes_have_a_key(name in prop::collection::vec(any::<u8>(), 0..40)) {
            let casefold = Casefold { is_strict: false };
            prop_assert!(casefold.is_same(&name, &casefold.key(&name)));
        }
    }

    /// Every character after an `A`, in one run of debugfs on a volume with the seed and hash
    /// version used here.
    #[test]
    fn every_character_folds_as_in_e2fsprogs() {
        use extant_testkit::{TempImage, skip, tool};
        extern crate std;
        let Some(debugfs) = tool("debugfs") else { skip!("debugfs is not installed") };
        let image = match TempImage::by_mke2fs(4 << 20, &["-t", "ext4", "-O", "casefold"]) {
            Ok(image) => image,
            Err(why) => skip!("no casefold here: {why}"),
        };
        let mut names: Vec<_> = ('\u{80}'..=char::MAX).map(|c| format!("A{c}")).collect();
        // Marks of several classes in every order, with ignorable and unassigned characters between
        // them.
        let marks = ['\u{301}', '\u{323}', '\u{345}', '\u{34f}', '\u{1ac1}', '\u{5b0}', '\u{30d}'];
        for code in 0..marks.len().pow(3) {
            let mark = |digit: u32| marks[code / marks.len().pow(digit) % marks.len()];
            names.push(format!("\u{1f88}{}{}{}", mark(0), mark(1), mark(2)));
        }
        let commands = image.path().with_extension("commands");
        let lines: String =
            names.iter().map(|name| format!("dx_hash -h legacy -e utf8 -c {name}\n")).collect();
        std::fs::write(&commands, lines).unwrap();
        let output = debugfs.run([
            std::ffi::OsStr::new("-f"),
            commands.as_os_str(),
            image.path().as_os_str(),
        ]);
        let said = String::from_utf8_lossy(&output.stdout);
        let found: Vec<_> = said
            .lines()
            .filter_map(|line| line.split_once(" is 0x")?.1.split(' ').next())
            .map(|hash| u32::from_str_radix(hash, 16).unwrap())
            .collect();
        assert_eq!(found.len(), names.len());
        let hasher = DirHasher::new(HashVersion::Legacy, [0; 4]).unwrap();
        let differ: Vec<_> = names
            .iter()
            .zip(found)
            .filter(|(name, found)| hasher.hash(&fold(name.as_bytes()).unwrap()).hash != *found)
            .map(|(name, _)| name.escape_unicode().collect::<String>())
            .collect();
        assert!(
            differ.is_empty(),
            "{} differ, first {:?}",
            differ.len(),
            &differ[..differ.len().min(20)]
        );
    }
}
