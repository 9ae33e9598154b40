//! Modes as chmod(1) takes them: octal, or what to change in words of letters.

use extant::rooms::ondisk::inode::{SETGID, SETUID};

use crate::failure::Failure;

const STICKY: u16 = 0o1000;
/// Octal digits from which on a directory's setuid and setgid are meant too.
const EXPLICIT_DIGITS: usize = 5;

/// A mode, or changes of one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum ModeChange {
    /// These bits. Directories keep setuid and setgid unless `is_explicit`.
    Exact { bits: u16, is_explicit: bool },
    /// One after the other.
    Steps(Vec<Step>),
}

/// One change: `u+x`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Step {
    /// Classes as bits of 0o777, with setuid, setgid and sticky; `None` if no class is given: all,
    /// but for the umask.
    who: Option<u16>,
    operation: Operation,
    what: What,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Operation {
    Add,
    Remove,
    Set,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum What {
    /// Bits of `rwx` for everybody, setuid and setgid, sticky; and `X`.
    Bits { bits: u16, execute_if_any: bool },
    /// Permissions copied from a class: the shift of that class.
    Copied(u16),
}

impl ModeChange {
    /// Reads `644`, `u+rwX,go=`, `g=u`.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let refused = || Failure::usage(format_args!("invalid mode: '{text}'"));
        if text.starts_with(|first: char| first.is_ascii_digit()) {
            let bits = u16::from_str_radix(text, 8).ok().filter(|bits| *bits <= 0o7777);
            let is_explicit = text.len() >= EXPLICIT_DIGITS;
            return Ok(Self::Exact { bits: bits.ok_or_else(refused)?, is_explicit });
        }
        let mut steps = Vec::new();
        for clause in text.split(',') {
            let at = clause.find(['+', '-', '=']).ok_or_else(refused)?;
            let (who, mut rest) = clause.split_at(at);
            let who = parse_who(who).ok_or_else(refused)?;
            while let Some(operation) = rest.chars().next() {
                let operation = match operation {
                    '+' => Operation::Add,
                    '-' => Operation::Remove,
                    _ => Operation::Set,
                };
                let end = rest[1..].find(['+', '-', '=']).map_or(rest.len(), |at| at + 1);
                let what = parse_what(&rest[1..end]).ok_or_else(refused)?;
                steps.push(Step { who, operation, what });
                rest = &rest[end..];
            }
        }
        Ok(Self::Steps(steps))
    }

    /// The permissions that a file has afterwards.
    pub(crate) fn applied(&self, permissions: u16, is_dir: bool, umask: u16) -> u16 {
        match self {
            Self::Exact { bits, is_explicit } => {
                let kept = if is_dir && !is_explicit { SETUID | SETGID } else { 0 };
                bits | permissions & kept
            }
            Self::Steps(steps) => steps
                .iter()
                .fold(permissions, |permissions, step| step.applied(permissions, is_dir, umask)),
        }
    }
}

impl Step {
    fn applied(self, permissions: u16, is_dir: bool, umask: u16) -> u16 {
        let bits = match self.what {
            What::Bits { bits, execute_if_any } => {
                let executes = execute_if_any && (is_dir || permissions & 0o111 != 0);
                bits | if executes { 0o111 } else { 0 }
            }
            What::Copied(shift) => (permissions >> shift & 7) * 0o111,
        };
        let reach = self.who.unwrap_or(0o7777 & !(umask & 0o777));
        let bits = bits & reach;
        match self.operation {
            Operation::Add => permissions | bits,
            Operation::Remove => permissions & !bits,
            Operation::Set => {
                // Directories keep setuid and setgid unless they are given.
                let cleared = self.who.unwrap_or(0o7777);
                let kept = if is_dir { (SETUID | SETGID) & !bits } else { 0 };
                permissions & !(cleared & !kept) | bits
            }
        }
    }
}

fn parse_who(text: &str) -> Option<Option<u16>> {
    if text.is_empty() {
        return Some(None);
    }
    let mut who = 0;
    for letter in text.chars() {
        who |= match letter {
            'u' => 0o700 | SETUID,
            'g' => 0o070 | SETGID,
            'o' => 0o007 | STICKY,
            'a' => 0o7777,
            _ => return None,
        };
    }
    Some(Some(who))
}

fn parse_what(text: &str) -> Option<What> {
    match text {
        "u" => return Some(What::Copied(6)),
        "g" => return Some(What::Copied(3)),
        "o" => return Some(What::Copied(0)),
        _ => {}
    }
    let (mut bits, mut execute_if_any) = (0, false);
    for letter in text.chars() {
        match letter {
            'r' => bits |= 0o444,
            'w' => bits |= 0o222,
            'x' => bits |= 0o111,
            'X' => execute_if_any = true,
            's' => bits |= SETUID | SETGID,
            't' => bits |= STICKY,
            _ => return None,
        }
    }
    Some(What::Bits { bits, execute_if_any })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(text: &str, permissions: u16, is_dir: bool) -> u16 {
        ModeChange::parse(text).unwrap().applied(permissions, is_dir, 0o022)
    }

    /// Each row as chmod(1) of GNU coreutils does it, with a umask of 022.
    #[test]
    fn modes_change_as_chmod_changes_them() {
        for (text, before, is_dir, after) in [
            ("644", 0o4755, false, 0o644),
            ("755", 0o2700, true, 0o2755),
            ("00755", 0o2700, true, 0o755),
            ("u+x", 0o644, false, 0o744),
            ("a-x,u=rwX", 0o755, false, 0o644),
            ("a+X", 0o644, false, 0o644),
            ("a+X", 0o744, false, 0o755),
            ("a+X", 0o600, true, 0o711),
            ("+w", 0o444, false, 0o644),
            ("-w", 0o666, false, 0o466),
            ("go=", 0o777, false, 0o700),
            ("g=u", 0o750, false, 0o770),
            ("o=g,g-w", 0o760, false, 0o746),
            ("u+s,g+s,o+t", 0o755, false, 0o7755),
            ("+t", 0o777, true, 0o1777),
            ("g=", 0o2775, true, 0o2705),
            ("u=rw-w+x", 0o000, false, 0o500),
            ("a=rx", 0o7777, false, 0o555),
            ("=rx", 0o7777, false, 0o555),
            ("o=x", 0o1777, true, 0o771),
            ("a=x", 0o7777, true, 0o6111),
            ("u=x", 0o4777, true, 0o4177),
        ] {
            assert_eq!(changed(text, before, is_dir), after, "{text} on {before:o}");
        }
    }

    #[test]
    fn what_is_no_mode_is_refused() {
        for text in ["", "8", "77777", "u", "u+y", "q+x", "u+x,", "0o644", "+é"] {
            assert!(ModeChange::parse(text).is_err(), "{text}");
        }
    }
}
