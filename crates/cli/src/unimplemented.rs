//! Commands of the design that this version or this build lacks: refused by name, never guessed at.

use crate::failure::Failure;

/// Name, what it will do, exit code until then.
const LATER: [(&str, &str, u8); 1] = [("resize", "growing and shrinking a volume", 1)];

/// Commands of cargo features that this build lacks.
#[cfg(not(feature = "lab"))]
const LEFT_OUT: [&str; 1] = ["lab"];
#[cfg(feature = "lab")]
const LEFT_OUT: [&str; 0] = [];

/// The refusal of a command that is not there.
pub(crate) fn refusal(command: &str) -> Option<Failure> {
    if LEFT_OUT.contains(&command) {
        let sentence =
            format!("{command}: not included in this build of extant (cargo feature {command})");
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
        for name in LATER.map(|(name, _, _)| name).iter().chain(&LEFT_OUT) {
            assert!(table.find_subcommand(name).is_none(), "{name}");
        }
    }
}
