//! Commands of the design that this version lacks: refused by name, never guessed at.

use crate::failure::Failure;

/// Name, what it will do, exit code until then.
const LATER: [(&str, &str, u8); 1] = [("resize", "growing and shrinking a volume", 1)];

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
