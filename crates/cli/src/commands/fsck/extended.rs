//! e2fsck's extended options (-E): each works or is refused by name.

/// The options given.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Extended {
    pub(super) journal_only: bool,
    pub(super) discard: bool,
    pub(super) bmap_to_extent: bool,
    pub(super) unshare_blocks: bool,
    pub(super) fixes_only: bool,
    pub(super) check_encoding: bool,
    pub(super) list_discontinuities: bool,
    pub(super) in_parts: bool,
    pub(super) placeholders: bool,
    pub(super) carve: bool,
    no_optimize_extents: bool,
    /// Damaged blocks are not restored from the log.
    without_evidence: bool,
    /// Bytes to be fetched before they are checked.
    pub(super) read_ahead: Option<u64>,
}

impl Extended {
    /// Reads the lists.
    pub(super) fn parse(lists: &[String]) -> Result<Self, String> {
        let mut found = Self::default();
        for option in lists.iter().flat_map(|list| list.split(',')).filter(|it| !it.is_empty()) {
            let (name, value) = match option.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (option, None),
            };
            found.set(name, value)?;
        }
        Ok(found)
    }

    fn set(&mut self, name: &str, value: Option<&str>) -> Result<(), String> {
        match (name, value) {
            // The only version that volumes of this century have.
            ("ea_ver", Some("2")) => {}
            ("ea_ver", _) => {
                return Err("-E ea_ver: only version 2 of extended attributes is supported".into());
            }
            ("journal_only", None) => self.journal_only = true,
            ("discard", None) => self.discard = true,
            ("nodiscard", None) => self.discard = false,
            ("no_optimize_extents", None) => self.no_optimize_extents = true,
            ("optimize_extents", None) => self.no_optimize_extents = false,
            ("journal_evidence", Some("on")) => self.without_evidence = false,
            ("journal_evidence", Some("off")) => self.without_evidence = true,
            ("placeholders", None) => self.placeholders = true,
            ("carve", None) => self.carve = true,
            ("bmap2extent", None) => self.bmap_to_extent = true,
            ("unshare_blocks", None) => self.unshare_blocks = true,
            ("fixes_only", None) => self.fixes_only = true,
            ("fragcheck", None) => self.list_discontinuities = true,
            ("check_encoding", None) => self.check_encoding = true,
            // A full map of the counts of names is the usual way here; without it the counts are
            // taken in two parts.
            ("inode_count_fullmap", None) => self.in_parts = false,
            ("no_inode_count_fullmap", None) => self.in_parts = true,
            ("readahead_kb", Some(value)) => {
                let bytes = value.parse::<u64>().ok().and_then(|value| value.checked_mul(1024));
                self.read_ahead =
                    Some(bytes.ok_or_else(|| format!("-E readahead_kb={value}: not a number"))?);
            }
            _ => return Err(format!("-E {name}: unknown option or invalid value")),
        }
        Ok(())
    }

    /// Whether damaged blocks are restored from copies in the log.
    pub(super) fn journal_evidence(&self) -> bool {
        !self.without_evidence
    }

    /// Whether extent trees are left as they are.
    pub(super) fn keep_extents(&self) -> bool {
        self.no_optimize_extents || self.fixes_only
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Extended, String> {
        Extended::parse(&[text.to_owned()])
    }

    #[test]
    fn every_option_of_the_manual_works_or_is_refused_by_name() {
        let works = [
            "ea_ver=2",
            "journal_only",
            "discard",
            "nodiscard",
            "no_optimize_extents",
            "optimize_extents",
            "journal_evidence=off",
            "journal_evidence=on",
            "placeholders",
            "carve",
            "bmap2extent",
            "fixes_only",
            "unshare_blocks",
            "check_encoding",
            "fragcheck",
            "inode_count_fullmap",
            "no_inode_count_fullmap",
            "readahead_kb=64",
            "readahead_kb=0",
        ];
        for option in works {
            assert!(parse(option).is_ok(), "{option}");
        }
        let refused = [
            "ea_ver=1",
            "readahead_kb",
            "readahead_kb=many",
            "nonsense",
            "discard=1",
            "carve=1",
            "journal_evidence",
        ];
        for option in refused {
            let name = option.split('=').next().unwrap();
            assert!(parse(option).unwrap_err().contains(name), "{option}");
        }
    }
}
