//! Commands that this build lacks: refused by name, never guessed at.

use crate::failure::Failure;

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
    let (_, feature, _) = left_out.find(|(name, _, _)| *name == command)?;
    let sentence = format!("not included in this build of extant (cargo feature {feature})");
    Some(Failure::new(sentence))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_command_is_both_built_and_refused() {
        let table = crate::table::command();
        for (name, feature, is_built) in OPTIONAL {
            assert_eq!(table.find_subcommand(name).is_some(), is_built, "{name}");
            let refused = refusal(name).map(Failure::sentence);
            let sentence =
                format!("not included in this build of extant (cargo feature {feature})");
            assert_eq!(refused, (!is_built).then_some(sentence), "{name}");
        }
    }
}
