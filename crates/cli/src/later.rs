//! Commands of the design that this version lacks: refused by name, never guessed at.

use crate::failure::Failure;

/// Name, what it will do, exit code until then.
const LATER: [(&str, &str, u8); 15] = [
    ("mount", "mounting an image", 1),
    ("umount", "unmounting an image", 1),
    ("rm", "removing files in an image", 1),
    ("mkdir", "making directories in an image", 1),
    ("rmdir", "removing directories in an image", 1),
    ("ln", "making links in an image", 1),
    ("mv", "renaming in an image", 1),
    ("chmod", "changing modes in an image", 1),
    ("chown", "changing owners in an image", 1),
    ("touch", "changing times in an image", 1),
    ("truncate", "changing file sizes in an image", 1),
    ("setfattr", "changing extended attributes in an image", 1),
    ("getfattr", "showing extended attributes", 1),
    ("lab", "running experiments", 1),
    ("resize", "growing and shrinking a volume", 1),
];

/// The refusal of a command that is not there yet.
pub(crate) fn refusal(command: &str) -> Option<Failure> {
    let (_, does, code) = LATER.iter().find(|(name, _, _)| *name == command)?;
    Some(Failure::not_built(does).with_code(*code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn no_command_is_both_built_and_refused() {
        let table = crate::table::Extant::command();
        for (name, _, _) in LATER {
            assert!(table.find_subcommand(name).is_none(), "{name}");
        }
    }
}
