//! The options of a request, as getopt(3) reads them.

use super::shell::Refusal;
use super::words::{Word, text};

/// Options and operands of a request.
pub(super) struct Options<'w> {
    /// Letters with their values, in order.
    given: Vec<(u8, Option<&'w [u8]>)>,
    /// The words that are no options.
    pub(super) operands: Vec<&'w [u8]>,
}

impl<'w> Options<'w> {
    /// Reads the words after the first. A colon after a letter of `known` says that it has a value.
    /// Options may follow operands; `--` ends them.
    pub(super) fn read(words: &'w [Word], known: &str, usage: &str) -> Result<Self, Refusal> {
        let name = text(words.first().map_or(&[][..], |name| name));
        let known = known.as_bytes();
        let (mut given, mut operands) = (Vec::new(), Vec::new());
        let mut rest = words.iter().skip(1);
        while let Some(word) = rest.next() {
            if word == b"--" {
                operands.extend(rest.by_ref().map(Vec::as_slice));
                break;
            }
            let Some(mut letters) = word.strip_prefix(b"-").filter(|it| !it.is_empty()) else {
                operands.push(word.as_slice());
                continue;
            };
            while let Some((letter, after)) = letters.split_first() {
                letters = after;
                let shown = char::from(*letter);
                let at = known.iter().position(|it| it == letter && *letter != b':');
                let Some(at) = at else {
                    let what = format!("{name}: invalid option -- '{shown}'\n{usage}");
                    return Err(Refusal::Line(what));
                };
                if known.get(at + 1) != Some(&b':') {
                    given.push((*letter, None));
                    continue;
                }
                let value = match letters {
                    [] => rest.next().map(Vec::as_slice),
                    value => Some(value),
                };
                let Some(value) = value else {
                    let what = format!("{name}: option requires an argument -- '{shown}'\n{usage}");
                    return Err(Refusal::Line(what));
                };
                given.push((*letter, Some(value)));
                break;
            }
        }
        Ok(Self { given, operands })
    }

    /// Whether a letter was given.
    pub(super) fn has(&self, letter: char) -> bool {
        self.given.iter().any(|(it, _)| char::from(*it) == letter)
    }

    /// The last value of a letter.
    pub(super) fn value(&self, letter: char) -> Option<&'w [u8]> {
        self.given.iter().rev().find(|(it, _)| char::from(*it) == letter)?.1
    }
}
