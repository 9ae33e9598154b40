//! Lines of a profile, sorted into their sections.

use super::error::{Flaw, ProfileError};

/// The subject of a section.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum SectionKind {
    /// The whole profile.
    Root,
    FileSystem,
    ThreadGroup,
    Stats,
}

impl SectionKind {
    /// The sections allowed within this one.
    fn inner(self, name: &str) -> Option<Self> {
        match (self, name) {
            (Self::Root, "filesystem") => Some(Self::FileSystem),
            (Self::Root | Self::FileSystem, "threadgroup") => Some(Self::ThreadGroup),
            (Self::ThreadGroup, "stats") => Some(Self::Stats),
            _ => None,
        }
    }
}

/// A section: its settings and subsections, in order.
#[derive(Clone, Debug)]
pub(super) struct Section {
    pub(super) kind: SectionKind,
    pub(super) line: usize,
    /// `[filesystem0]`: the older form.
    pub(super) is_numbered: bool,
    pub(super) items: Vec<Item>,
    pub(super) sections: Vec<Section>,
}

/// A setting. An item of a list has words, any other a text.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) line: usize,
    pub(super) key: String,
    text: String,
    words: Vec<String>,
}

impl Item {
    pub(super) fn words(&self) -> &[String] {
        &self.words
    }

    pub(super) fn wrong(&self, expected: &'static str) -> ProfileError {
        let (key, value) = (self.key.clone(), self.text.clone());
        Flaw::Value { key, value, expected }.at(self.line)
    }
}

/// Keys that may be there several times, each time with one more item.
const LISTS: [&str; 3] = ["size_weight", "msec_range", "ignore"];

impl Section {
    fn new(kind: SectionKind, line: usize, is_numbered: bool) -> Self {
        Self { kind, line, is_numbered, items: Vec::new(), sections: Vec::new() }
    }

    /// Refuses a key that the section does not know.
    pub(super) fn check_keys(&self, is_known: impl Fn(&str) -> bool) -> Result<(), ProfileError> {
        let unknown = self.items.iter().find(|item| !is_known(&item.key));
        unknown.map_or(Ok(()), |item| Err(Flaw::Key(item.key.clone()).at(item.line)))
    }

    /// The last value of a key, and its line.
    pub(super) fn text(&self, key: &str) -> Option<(usize, &str)> {
        let item = self.items.iter().rfind(|item| item.key == key)?;
        Some((item.line, &item.text))
    }

    /// All items of a list.
    pub(super) fn list(&self, key: &'static str) -> impl Iterator<Item = &Item> {
        self.items.iter().filter(move |item| item.key == key)
    }

    pub(super) fn children(&self, kind: SectionKind) -> impl Iterator<Item = &Self> {
        self.sections.iter().filter(move |section| section.kind == kind)
    }
}

/// The whole text as one section.
pub(super) fn sections(text: &str) -> Result<Section, ProfileError> {
    let mut open = vec![Section::new(SectionKind::Root, 1, false)];
    for (line, whole) in (1..).zip(text.lines()) {
        let text = whole.split('#').next().unwrap_or_default().trim();
        let Some(section) = open.last_mut() else { break };
        if text.is_empty() {
            continue;
        }
        let Some(header) = text.strip_prefix('[') else {
            section.items.push(item(text, line)?);
            continue;
        };
        let header: String = header.split_whitespace().collect();
        let name = header.strip_suffix(']').ok_or_else(|| Flaw::Line(text.into()).at(line))?;
        let bare = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
        if bare == "end" {
            // The last one is the profile itself.
            let ended = open.pop_if(|section| section.kind != SectionKind::Root);
            let ended = ended.ok_or(Flaw::End.at(line))?;
            if let Some(outer) = open.last_mut() {
                outer.sections.push(ended);
            }
            continue;
        }
        let kind = section.kind.inner(bare).ok_or_else(|| Flaw::Section(name.into()).at(line))?;
        open.push(Section::new(kind, line, bare != name));
    }
    match open.pop() {
        Some(root) if root.kind == SectionKind::Root => Ok(root),
        other => Err(Flaw::Open.at(other.map_or(1, |section| section.line))),
    }
}

fn item(text: &str, line: usize) -> Result<Item, ProfileError> {
    let list = LISTS.into_iter().find(|key| {
        let rest = text.strip_prefix(key);
        rest.is_some_and(|rest| rest.starts_with(|next: char| next.is_whitespace() || next == '='))
    });
    let (key, value) = match (list, text.split_once('=')) {
        // An equals sign in front of an item is ignored.
        (Some(list), _) => (list, text[list.len()..].trim_start().trim_start_matches('=')),
        (None, Some((key, value))) => (key, value),
        (None, None) => return Err(Flaw::Line(text.into()).at(line)),
    };
    let key: String = key.split_whitespace().collect();
    let words = value.split_whitespace().map(str::to_owned).collect();
    Ok(Item { line, key, text: value.trim().to_owned(), words })
}
