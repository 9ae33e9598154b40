//! Commands of the design that this version or this build lacks: refused by name, never guessed at.

use crate::failure::Failure;

/// Name, what it will do, exit code until then.
const LATER: [(&str, &str, u8); 1] = [("resize", "growing and shrinking a volume", 1)];

/// Commands, the cargo feature that each belongs to, and whether this build has it.
const OPTIONAL: [(&str, &str, bool); 6] = [
    ("lab", "lab", cfg!(feature = "lab")),
    ("mount", "mount", cfg!(feature = "mount")),
    ("umount", "mount", cfg!(feature = "mount")),
    ("shutdown", "mount", cfg!(feature = "mount")),
    ("freeze", "mount", cfg!(feature = "mount")),
    ("thaw", "mount", cfg!(feature = "mount")),
];

/// The refusal of a command that is not there.
pub(crate) fn refusal(command: &str) -> Option<Failure> {
    let mut left_out = OPTIONAL.iter().filter(|(_, _, is_built)| !is_built);
    if let Some((_, feature, _)) = left_out.find(|(name, _, _)| *name == command) {
        let sentence = format!("not included in this build of extant (cargo feature {feature})");
        return Some(Failure::new(sentence));
    }
    let (_, does, code) = LATER.iter().find(|(name, _, _)| *name == command)?;
    Some(Failure::not_built(does).with_code(*code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_command_is_both_built_and_refused() {
        let table = crate::table::command();
        for (name, _, _) in LATER {
            assert!(table.find_subcommand(name).is_none() && refusal(name).is_some(), "{name}");
        }
        for (name, feature, is_built) in OPTIONAL {
            assert_eq!(table.find_subcommand(name).is_some(), is_built, "{name}");
            let refused = refusal(name).map(Failure::sentence);
            let sentence =
                format!("not included in this build of extant (cargo feature {feature})");
            assert_eq!(refused, (!is_built).then_some(sentence), "{name}");
        }
    }
}
