//! The profile file format of mke2fs.conf(5): sections, relations and subsections, as text into a
//! tree.
//!
//! Cases that the manual page leaves open are as tried with mke2fs 1.47: an unquoted value ends at
//! white space and only a comment may follow it; a quoted one may be followed by anything; `tag =`
//! alone waits for a `{` on the next line; a group left open at the file's end is closed there; a
//! `*` after a name (the "final" mark) changes nothing in a single file; of two subsections of one
//! name only the first is used, while a section that is opened twice is one section.

/// A line that is not in the format.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("syntax error in mke2fs config, line {line}: {what}")]
pub struct ProfileError {
    /// Counted from 1.
    pub line: usize,
    /// The flaw.
    pub what: &'static str,
}

/// The file's tree: sections at the top, relations below.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Profile {
    sections: Vec<Relation>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
struct Relation {
    name: String,
    value: Value,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Value {
    Text(String),
    Group(Vec<Relation>),
}

/// The content of a line, without comments and white space.
enum Line {
    Blank,
    Section(String),
    /// `tag = value`
    Text(String, String),
    /// `tag = {`
    Open(String),
    /// `tag =`: the brace must follow
    Pending(String),
    /// `{` alone
    Brace,
    Close,
}

impl Profile {
    /// Reads the text of a configuration file.
    pub fn parse(text: &str) -> Result<Self, ProfileError> {
        let mut profile = Self::default();
        let mut section: Option<usize> = None;
        let mut open: Vec<Relation> = Vec::new();
        let mut pending: Option<String> = None;
        for (index, line) in text.lines().enumerate() {
            let flaw = |what| ProfileError { line: index + 1, what };
            let line = read_line(line).map_err(flaw)?;
            match (pending.take(), line) {
                (tag, Line::Blank) => pending = tag,
                (Some(tag), Line::Brace) => open.push(group(tag)),
                (Some(_), _) => return Err(flaw("a value or { was expected")),
                (None, Line::Brace) => return Err(flaw("{ without a tag")),
                (None, Line::Section(_)) if !open.is_empty() => {
                    return Err(flaw("a section inside a subsection"));
                }
                (None, Line::Section(name)) => section = Some(profile.section(name)),
                (None, Line::Close) => {
                    let closed = open.pop().ok_or_else(|| flaw("} without {"))?;
                    profile.add(section, &mut open, closed);
                }
                // Relations before the first section belong to none and are passed over.
                (None, Line::Text(name, value)) => {
                    profile.add(section, &mut open, Relation { name, value: Value::Text(value) });
                }
                (None, Line::Open(tag)) => open.push(group(tag)),
                (None, Line::Pending(tag)) => pending = Some(tag),
            }
        }
        while let Some(closed) = open.pop() {
            profile.add(section, &mut open, closed);
        }
        Ok(profile)
    }

    /// The text at the end of a path of names: `["defaults", "blocksize"]`,
    /// `["fs_types", "ext4", "features"]`.
    pub fn text(&self, path: &[&str]) -> Option<&str> {
        let (last, groups) = path.split_last()?;
        self.group(groups)?.iter().find_map(|relation| match &relation.value {
            Value::Text(text) if relation.name == *last => Some(text.as_str()),
            _ => None,
        })
    }

    /// Whether the subsection at this path exists and is not empty.
    pub fn has_group(&self, path: &[&str]) -> bool {
        self.group(path).is_some_and(|relations| !relations.is_empty())
    }

    fn group(&self, path: &[&str]) -> Option<&[Relation]> {
        let mut relations = self.sections.as_slice();
        for name in path {
            relations = relations.iter().find_map(|relation| match &relation.value {
                Value::Group(inner) if relation.name == *name => Some(inner.as_slice()),
                _ => None,
            })?;
        }
        Some(relations)
    }

    fn section(&mut self, name: String) -> usize {
        let known = self.sections.iter().position(|section| section.name == name);
        known.unwrap_or_else(|| {
            self.sections.push(group(name));
            self.sections.len() - 1
        })
    }

    fn add(&mut self, section: Option<usize>, open: &mut [Relation], relation: Relation) {
        let top = section.and_then(|at| self.sections.get_mut(at));
        if let Some(Value::Group(inner)) = open.last_mut().or(top).map(|group| &mut group.value) {
            inner.push(relation);
        }
    }
}

fn group(name: String) -> Relation {
    Relation { name, value: Value::Group(Vec::new()) }
}

fn read_line(line: &str) -> Result<Line, &'static str> {
    let line = line.trim();
    match line.chars().next() {
        None | Some('#' | ';') => return Ok(Line::Blank),
        Some('[') => {
            let (name, _) = line[1..].split_once(']').ok_or("a section without ]")?;
            if name.is_empty() {
                return Err("a section without a name");
            }
            return Ok(Line::Section(name.to_owned()));
        }
        Some('{') => return Ok(Line::Brace),
        Some('}') => return Ok(Line::Close),
        Some(_) => {}
    }
    let (tag, rest) = read_tag(line)?;
    let rest = rest.trim_start().strip_prefix('=').ok_or("= was expected after the tag")?;
    let rest = rest.trim_start();
    if rest.is_empty() {
        return Ok(Line::Pending(tag));
    }
    if let Some(after) = rest.strip_prefix('{') {
        return only_comment(after).then_some(Line::Open(tag)).ok_or("text after {");
    }
    if let Some(quoted) = rest.strip_prefix('"') {
        return Ok(Line::Text(tag, unquote(quoted).0));
    }
    let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
    let (value, after) = rest.split_at(end);
    if !only_comment(after) {
        return Err("text after the value: quote a value that holds spaces");
    }
    Ok(Line::Text(tag, value.to_owned()))
}

/// The tag and the rest of the line.
fn read_tag(line: &str) -> Result<(String, &str), &'static str> {
    if let Some(quoted) = line.strip_prefix('"') {
        let (tag, rest) = unquote(quoted);
        return Ok((tag, rest));
    }
    let end = line.find(|c: char| c.is_whitespace() || c == '=').unwrap_or(line.len());
    let (tag, rest) = line.split_at(end);
    match tag.trim_end_matches('*') {
        "" => Err("a relation without a tag"),
        tag => Ok((tag.to_owned(), rest)),
    }
}

fn only_comment(text: &str) -> bool {
    matches!(text.trim_start().chars().next(), None | Some('#' | ';'))
}

/// The text up to the closing quote (or the line's end), its escapes resolved, and the rest.
fn unquote(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, &text[at + 1..]),
            '\\' => match chars.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, 't')) => value.push('\t'),
                Some((_, 'b')) => value.push('\u{8}'),
                Some((_, other)) => value.push(other),
                None => {}
            },
            c => value.push(c),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line_of(text: &str) -> Result<(), usize> {
        Profile::parse(text).map(drop).map_err(|error| error.line)
    }

    #[test]
    fn first_subsection_of_a_name_counts_and_sections_merge() {
        let text = "[defaults]\n a = 1\n[fs_types]\n x = {\n r = 2\n }\n x = {\n r = 3\n s = 4\n }\n\
                    [defaults]\n a = 5\n b = 6\n";
        let profile = Profile::parse(text).expect("valid");
        assert_eq!(profile.text(&["defaults", "a"]), Some("1"));
        assert_eq!(profile.text(&["defaults", "b"]), Some("6"));
        assert_eq!(profile.text(&["fs_types", "x", "r"]), Some("2"));
        assert_eq!(profile.text(&["fs_types", "x", "s"]), None);
    }

    #[test]
    fn quotes_comments_final_marks_and_late_braces_are_read() {
        let text = "; c\n[s]*\n a* = \"x \\\"y\\\\\" rest\n \"b\" = 2 # c\n c=3 ; d\n t =\n\n {\n u=1\n } x\n";
        let profile = Profile::parse(text).expect("valid");
        assert_eq!(profile.text(&["s", "a"]), Some("x \"y\\"));
        assert_eq!(profile.text(&["s", "b"]), Some("2"));
        assert_eq!(profile.text(&["s", "c"]), Some("3"));
        assert_eq!(profile.text(&["s", "t", "u"]), Some("1"));
    }

    #[test]
    fn flaws_name_their_line() {
        assert_eq!(line_of("[a\n"), Err(1));
        assert_eq!(line_of("[]\n"), Err(1));
        assert_eq!(line_of("[a]\nb c\n"), Err(2));
        assert_eq!(line_of("[a]\nb = c d\n"), Err(2));
        assert_eq!(line_of("[a]\nb =\nc = 1\n"), Err(3));
        assert_eq!(line_of("[a]\n}\n"), Err(2));
        assert_eq!(line_of("[a]\nb = {\n[c]\n"), Err(3));
        assert_eq!(line_of("[a]\nb = { c = 1\n"), Err(2));
        assert_eq!(line_of("[a]\n= 1\n"), Err(2));
        assert_eq!(line_of("a = 1\n[b]\nc = {\n"), Ok(()));
    }
}
