//! The catalogue of all texts that users read: `docs/texts.txt`, with a part for each of the two
//! tests that make it.

use std::fs;

use crate::scratch::workspace;

const FILE: &str = "docs/texts.txt";
/// The line between the parts.
const RULE: &str = "\n################################ Messages\n";

/// A part of the catalogue.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CataloguePart {
    /// The output of `--help` of each command.
    Help,
    /// The messages, by the source files that hold them.
    Messages,
}

impl CataloguePart {
    /// The text of this part in the file.
    pub fn text(self) -> String {
        self.pick(&halves()).to_owned()
    }

    fn pick(self, (help, messages): &(String, String)) -> &str {
        match self {
            Self::Help => help,
            Self::Messages => messages,
        }
    }

    /// Compares the part with what the program has now; with EXTANT_BLESS it is written instead.
    ///
    /// # Panics
    /// They differ, or the file cannot be written.
    pub fn check(self, page: &str, command: &str) {
        let mut kept = halves();
        if std::env::var_os("EXTANT_BLESS").is_some() {
            match self {
                Self::Help => kept.0 = page.to_owned(),
                Self::Messages => kept.1 = page.to_owned(),
            }
            let all = [kept.0, kept.1].join(RULE);
            return fs::write(workspace().join(FILE), all).expect("the catalogue is written");
        }
        let kept = self.pick(&kept);
        let changed = page.lines().zip(kept.lines()).find(|(new, old)| new != old);
        let how = format!("EXTANT_BLESS=1 {command}");
        assert!(page == kept, "{FILE} is not up to date, first at {changed:?}: {how}");
    }
}

/// Both parts as they are in the file.
fn halves() -> (String, String) {
    let text = fs::read_to_string(workspace().join(FILE)).unwrap_or_default();
    let (help, messages) = text.split_once(RULE).unwrap_or_default();
    (help.to_owned(), messages.to_owned())
}
