//! Regular expressions of file_contexts: the part of PCRE's syntax that is regular, translated for
//! the crate `regex`, on bytes.
//!
//! The two syntaxes differ where both accept a text: `\<` is a plain character to PCRE, `[[]` is a
//! class of one bracket, `a*+` gives nothing back. Therefore the whole text is parsed here, and
//! another one is made of it. All else that PCRE has is refused (pcre2pattern(3)).

use regex::bytes::{Regex, RegexBuilder};

/// Memory that one compiled expression may take.
const SIZE_LIMIT: usize = 1 << 20;
/// PCRE admits more, which such a limit of memory does not.
const REPEAT_MAX: u32 = 1000;
const NESTING_MAX: usize = 100;
const CLASS_NAMES: [&[u8]; 14] = [
    b"alnum", b"alpha", b"ascii", b"blank", b"cntrl", b"digit", b"graph", b"lower", b"print",
    b"punct", b"space", b"upper", b"word", b"xdigit",
];

/// An expression that a whole path must match.
#[derive(Debug)]
pub(super) struct Pattern {
    /// Bytes that every such path begins with; all of them, where there is no expression.
    pub(super) prefix: Vec<u8>,
    /// `None`: the prefix is the whole path.
    regex: Option<Regex>,
    /// Whether the text has none of the characters of an expression, unless quoted: such
    /// specifications come after all others.
    pub(super) is_exact: bool,
}

impl Pattern {
    pub(super) fn parse(text: &[u8]) -> Result<Self, String> {
        let mut parser = Parser { text, at: 0, regex: r"\A(?:".to_owned(), prefix: Some(vec![]) };
        let (prefix, is_literal) = parser.run()?;
        parser.regex.push_str(r")\z");
        let is_exact = !has_meta(text);
        if is_literal {
            return Ok(Self { prefix, regex: None, is_exact });
        }
        let mut builder = RegexBuilder::new(&parser.regex);
        builder.unicode(false).dot_matches_new_line(true).size_limit(SIZE_LIMIT);
        match builder.build() {
            Ok(regex) => Ok(Self { prefix, regex: Some(regex), is_exact }),
            Err(regex::Error::CompiledTooBig(_)) => {
                Err("the regular expression is too large".to_owned())
            }
            Err(_) => Err("the regular expression is not supported".to_owned()),
        }
    }

    pub(super) fn matches(&self, path: &[u8]) -> bool {
        match &self.regex {
            Some(regex) => path.starts_with(&self.prefix) && regex.is_match(path),
            None => path == self.prefix,
        }
    }
}

/// As setfiles sorts, observed: a quoted character makes no expression.
fn has_meta(text: &[u8]) -> bool {
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => drop(bytes.next()),
            b'.' | b'^' | b'$' | b'?' | b'*' | b'+' | b'|' | b'[' | b'(' | b'{' => return true,
            _ => {}
        }
    }
    false
}

/// The part of the expression that was read last.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Last {
    /// Nothing that could be repeated.
    Nothing,
    Literal,
    Atom,
    Repeated,
}

struct Parser<'t> {
    text: &'t [u8],
    at: usize,
    regex: String,
    /// The literal bytes from the beginning on, until something else follows.
    prefix: Option<Vec<u8>>,
}

impl Parser<'_> {
    /// The prefix, and whether it is all.
    fn run(&mut self) -> Result<(Vec<u8>, bool), String> {
        let mut prefix = Vec::new();
        let mut depth = 0;
        let mut last = Last::Nothing;
        while let Some(byte) = self.next() {
            last = match byte {
                b'\\' => match self.escape()? {
                    Escape::Byte(byte) => self.literal(byte),
                    Escape::Class(letter) => {
                        self.end_prefix(&mut prefix);
                        self.regex.extend(['\\', letter]);
                        Last::Atom
                    }
                    Escape::Boundary(letter) => {
                        self.end_prefix(&mut prefix);
                        self.regex.extend(['\\', letter]);
                        Last::Nothing
                    }
                },
                b'[' => {
                    self.end_prefix(&mut prefix);
                    self.class()?;
                    Last::Atom
                }
                b'(' => {
                    self.end_prefix(&mut prefix);
                    depth += 1;
                    if depth > NESTING_MAX {
                        return Err(format!("more than {NESTING_MAX} nested groups"));
                    }
                    self.group()?;
                    Last::Nothing
                }
                b')' => {
                    depth = usize::checked_sub(depth, 1).ok_or("unmatched )")?;
                    self.regex.push(')');
                    Last::Atom
                }
                b'|' if depth == 0 => {
                    return Err("| outside of a group is anchored at one end only by setfiles: \
                                put the expression in parentheses"
                        .to_owned());
                }
                b'|' => {
                    self.regex.push('|');
                    Last::Nothing
                }
                b'*' | b'+' | b'?' => self.repeat(byte, last, &mut prefix)?,
                b'{' => match self.counts()? {
                    Some(counts) => {
                        if !matches!(last, Last::Literal | Last::Atom) {
                            return Err("{ has nothing to repeat".to_owned());
                        }
                        self.cut_prefix(last, &mut prefix);
                        self.regex.push_str(&counts);
                        Last::Repeated
                    }
                    None => self.literal(b'{'),
                },
                b'.' | b'^' | b'$' => {
                    self.end_prefix(&mut prefix);
                    self.regex.push(char::from(byte));
                    if byte == b'.' { Last::Atom } else { Last::Nothing }
                }
                byte => self.literal(byte),
            };
        }
        if depth > 0 {
            return Err("unmatched (".to_owned());
        }
        match self.prefix.take() {
            Some(all) => Ok((all, true)),
            None => Ok((prefix, false)),
        }
    }

    fn next(&mut self) -> Option<u8> {
        let byte = *self.text.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn literal(&mut self, byte: u8) -> Last {
        push_byte(&mut self.regex, byte);
        if let Some(prefix) = &mut self.prefix {
            prefix.push(byte);
        }
        Last::Literal
    }

    /// Something else than a literal byte follows.
    fn end_prefix(&mut self, prefix: &mut Vec<u8>) {
        if let Some(found) = self.prefix.take() {
            *prefix = found;
        }
    }

    /// The last byte is repeated, perhaps no time.
    fn cut_prefix(&mut self, last: Last, prefix: &mut Vec<u8>) {
        if let (Some(found), Last::Literal) = (&mut self.prefix, last) {
            found.pop();
        }
        self.end_prefix(prefix);
    }

    fn repeat(&mut self, byte: u8, last: Last, prefix: &mut Vec<u8>) -> Result<Last, String> {
        match last {
            Last::Nothing => Err(format!("{} has nothing to repeat", char::from(byte))),
            // The shortest match first: the same paths match.
            Last::Repeated if byte == b'?' => Ok(Last::Nothing),
            Last::Repeated => Err(format!("{} after a repetition", char::from(byte))),
            Last::Literal | Last::Atom => {
                self.cut_prefix(last, prefix);
                self.regex.push(char::from(byte));
                Ok(Last::Repeated)
            }
        }
    }

    /// `{N}`, `{N,}` or `{N,M}`; any other brace is a plain character.
    fn counts(&mut self) -> Result<Option<String>, String> {
        let rest = &self.text[self.at..];
        let Some(end) = rest.iter().position(|&byte| byte == b'}') else { return Ok(None) };
        let inside = &rest[..end];
        let is_count = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
        let (least, most) = match inside.iter().position(|&byte| byte == b',') {
            Some(comma) => (&inside[..comma], Some(&inside[comma + 1..])),
            None => (inside, None),
        };
        let is_open = most.is_some_and(<[u8]>::is_empty);
        if least.is_empty() && most.is_some_and(is_count) {
            return Err("a repetition without its least number".to_owned());
        }
        if !is_count(least) || !(is_open || most.is_none_or(is_count)) {
            return Ok(None);
        }
        let number = |text: &[u8]| {
            let number = std::str::from_utf8(text).ok().and_then(|text| text.parse::<u32>().ok());
            number.filter(|number| *number <= REPEAT_MAX)
        };
        let limit = || format!("more than {REPEAT_MAX} repetitions");
        let least = number(least).ok_or_else(limit)?;
        self.at += end + 1;
        Ok(Some(match most {
            None => format!("{{{least}}}"),
            Some([]) => format!("{{{least},}}"),
            Some(most) => {
                let most = number(most).ok_or_else(limit)?;
                if most < least {
                    return Err("the numbers of a repetition are out of order".to_owned());
                }
                format!("{{{least},{most}}}")
            }
        }))
    }

    fn group(&mut self) -> Result<(), String> {
        match (self.peek(), self.text.get(self.at + 1)) {
            (Some(b'?'), Some(b':')) => self.at += 2,
            (Some(b'?'), _) => {
                return Err("groups of the form (?...) are not supported, except (?:".to_owned());
            }
            (Some(b'*'), _) => return Err("verbs (*...) are not supported".to_owned()),
            _ => {}
        }
        self.regex.push_str("(?:");
        Ok(())
    }

    fn escape(&mut self) -> Result<Escape, String> {
        let byte = self.next().ok_or("a backslash at the end")?;
        Ok(match byte {
            b'd' | b'D' | b'w' | b'W' | b's' | b'S' => Escape::Class(char::from(byte)),
            b'b' | b'B' => Escape::Boundary(char::from(byte)),
            b't' => Escape::Byte(b'\t'),
            b'n' => Escape::Byte(b'\n'),
            b'r' => Escape::Byte(b'\r'),
            b'f' => Escape::Byte(0x0c),
            b'a' => Escape::Byte(0x07),
            b'e' => Escape::Byte(0x1b),
            b'x' => {
                let digits = self.text.get(self.at..self.at + 2);
                let digits = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
                let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
                let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
                self.at += 2;
                Escape::Byte(byte.ok_or(r"\x without two hexadecimal digits")?)
            }
            byte if byte.is_ascii_alphanumeric() => {
                return Err(format!(r"\{} is not supported", char::from(byte)));
            }
            byte => Escape::Byte(byte),
        })
    }

    /// A class; its first bracket was read.
    fn class(&mut self) -> Result<(), String> {
        self.regex.push('[');
        if self.peek() == Some(b'^') {
            self.at += 1;
            self.regex.push('^');
        }
        let mut is_first = true;
        loop {
            let byte = self.next().ok_or("unmatched [")?;
            if byte == b']' && !is_first {
                break;
            }
            is_first = false;
            let Some(low) = self.class_item(byte)? else { continue };
            let is_range = self.peek() == Some(b'-')
                && self.text.get(self.at + 1).is_some_and(|&byte| byte != b']');
            push_hex(&mut self.regex, low);
            if is_range {
                self.at += 1;
                let byte = self.next().ok_or("unmatched [")?;
                let high = self.class_item(byte)?.ok_or("a range that ends with a class")?;
                if high < low {
                    return Err("a range of characters is out of order".to_owned());
                }
                self.regex.push('-');
                push_hex(&mut self.regex, high);
            }
        }
        self.regex.push(']');
        Ok(())
    }

    /// One byte of a class; `None` if it was a class itself.
    fn class_item(&mut self, byte: u8) -> Result<Option<u8>, String> {
        match (byte, self.peek()) {
            (b'[', Some(b':')) => {
                let rest = &self.text[self.at + 1..];
                let end = rest.windows(2).position(|pair| pair == b":]");
                let name = end.map(|end| &rest[..end]);
                let (sign, name) = match name.unwrap_or_default() {
                    [b'^', name @ ..] => ("^", name),
                    name => ("", name),
                };
                let known = CLASS_NAMES.into_iter().find(|known| *known == name);
                let known = known.ok_or("[: without a known name and :]")?;
                self.at += 1 + sign.len() + known.len() + 2;
                self.regex.push_str("[:");
                self.regex.push_str(sign);
                self.regex.extend(known.iter().map(|&byte| char::from(byte)));
                self.regex.push_str(":]");
                Ok(None)
            }
            (b'[', Some(b'.' | b'=')) => Err("[. and [= are not supported".to_owned()),
            (b'\\', _) => match self.escape()? {
                Escape::Byte(byte) => Ok(Some(byte)),
                Escape::Boundary('b') => Ok(Some(0x08)),
                Escape::Boundary(letter) => Err(format!(r"\{letter} in a class")),
                Escape::Class(letter) => {
                    self.regex.extend(['\\', letter]);
                    Ok(None)
                }
            },
            (byte, _) => Ok(Some(byte)),
        }
    }
}

/// The meaning of a backslash and what follows it.
enum Escape {
    Byte(u8),
    Class(char),
    Boundary(char),
}

fn push_byte(regex: &mut String, byte: u8) {
    match byte {
        b'/' | b'_' => regex.push(char::from(byte)),
        byte if byte.is_ascii_alphanumeric() => regex.push(char::from(byte)),
        byte => push_hex(regex, byte),
    }
}

fn push_hex(regex: &mut String, byte: u8) {
    regex.push_str(&format!(r"\x{byte:02x}"));
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    fn matches(pattern: &str, path: &str) -> bool {
        Pattern::parse(pattern.as_bytes()).unwrap().matches(path.as_bytes())
    }

    #[test]
    fn expressions_mean_what_they_mean_to_pcre() {
        let cases = [
            ("/etc(/.*)?", "/etc", true),
            ("/etc(/.*)?", "/etc/a\nb", true),
            ("/etc(/.*)?", "/etcetera", false),
            ("/etc", "/etc/", false),
            (r"/a\.b", "/a.b", true),
            (r"/a\.b", "/acb", false),
            ("/a[[]", "/a[", true),
            ("/a[]x]", "/a]", true),
            ("/a[^/-]", "/a-", false),
            ("/a[^/-]", "/a\u{e9}", false),
            ("/a[a&&b]", "/a&", true),
            ("/a[+--]", "/a,", true),
            ("/a[[:digit:]x]+", "/a7x", true),
            ("/a{", "/a{", true),
            ("/a{2,3}", "/aaa", true),
            ("/ab?c", "/ac", true),
            ("/ab{0}c", "/ac", true),
            ("/a.*?b", "/axxb", true),
            (r"/a\<b", "/a<b", true),
            (r"/\x41\d", "/A5", true),
            ("/(a|b)c", "/bc", true),
            ("/(?:a|b)c", "/bc", true),
            ("/\u{e9}", "/\u{e9}", true),
        ];
        for (pattern, path, expected) in cases {
            assert_eq!(matches(pattern, path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn expressions_of_another_meaning_are_refused() {
        let texts = [
            "/a|/b",
            "/a*+",
            "/a**",
            "*",
            "/(?!a)b",
            "/(?i)a",
            r"/(a)\1",
            "/(a",
            "/a)",
            "/a[b",
            "/a[",
            "/a\\",
            r"/\Qa\E",
            "/a[z-a]",
            "/a{3,2}",
            "/a{,2}",
            "/a{9999}",
            "/(*F)",
            "/^*",
            "/a[[:nope:]]",
            "/a[[.x.]]",
            "/((a{900}){900}){900}",
            r"/\x4",
            "/a[b-\\d]",
        ];
        for text in texts {
            assert!(Pattern::parse(text.as_bytes()).is_err(), "{text}");
        }
        assert!(Pattern::parse("(".repeat(10_000).as_bytes()).is_err());
    }

    #[test]
    fn prefixes_are_what_every_match_begins_with() {
        for (text, prefix, is_exact) in [
            ("/etc(/.*)?", "/etc", false),
            ("/etcs?", "/etc", false),
            ("/etcs{1}", "/etc", false),
            (r"/a\.b", "/a.b", true),
            ("/a[.]b", "/a", false),
            (".*", "", false),
        ] {
            let found = Pattern::parse(text.as_bytes()).unwrap();
            assert_eq!((&found.prefix[..], found.is_exact), (prefix.as_bytes(), is_exact));
        }
    }
}
