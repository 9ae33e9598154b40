//! The text of LVM2's metadata: sections in braces, and `name = value`.

/// Sections within sections; real metadata has four.
const MAX_DEPTH: usize = 16;

/// The content of braces, in the order of the text.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct Section {
    values: Vec<(String, Value)>,
    sections: Vec<(String, Section)>,
}

/// The value after an equals sign.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Value {
    Number(u64),
    String(String),
    List(Vec<Value>),
    /// An unsupported number: negative, or with a point.
    Other,
}

impl Section {
    fn value(&self, name: &str) -> Result<&Value, String> {
        let found = self.values.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value).ok_or_else(|| format!("no {name}"))
    }

    pub(super) fn number(&self, name: &str) -> Result<u64, String> {
        match self.value(name)? {
            Value::Number(number) => Ok(*number),
            _ => Err(format!("{name} is not a number")),
        }
    }

    pub(super) fn string(&self, name: &str) -> Result<&str, String> {
        match self.value(name)? {
            Value::String(string) => Ok(string),
            _ => Err(format!("{name} is not a string")),
        }
    }

    pub(super) fn list(&self, name: &str) -> Result<&[Value], String> {
        match self.value(name)? {
            Value::List(list) => Ok(list),
            _ => Err(format!("{name} is not a list")),
        }
    }

    /// Whether a list of strings has this one.
    pub(super) fn has_word(&self, name: &str, word: &str) -> bool {
        let is_word = |value: &Value| matches!(value, Value::String(string) if string == word);
        self.list(name).is_ok_and(|list| list.iter().any(is_word))
    }

    pub(super) fn section(&self, name: &str) -> Result<&Section, String> {
        let found = self.sections.iter().find(|(known, _)| known == name);
        found.map(|(_, section)| section).ok_or_else(|| format!("no section {name:?}"))
    }

    pub(super) fn sections(&self) -> impl Iterator<Item = (&str, &Section)> {
        self.sections.iter().map(|(name, section)| (name.as_str(), section))
    }

    pub(super) fn into_sections(self) -> impl Iterator<Item = (String, Section)> {
        self.sections.into_iter()
    }
}

/// Reads a whole text.
pub(super) fn parse(text: &[u8]) -> Result<Section, String> {
    let mut parser = Parser { text, at: 0 };
    let section = parser.section(0)?;
    match parser.peek() {
        None => Ok(section),
        Some(byte) => Err(parser.unexpected(byte)),
    }
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
}

impl Parser<'_> {
    /// The next byte that is neither space nor comment.
    fn peek(&mut self) -> Option<u8> {
        loop {
            let byte = *self.text.get(self.at)?;
            if byte == b'#' {
                let rest = &self.text[self.at..];
                self.at += rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
            } else if byte.is_ascii_whitespace() {
                self.at += 1;
            } else {
                return Some(byte);
            }
        }
    }

    fn unexpected(&self, byte: u8) -> String {
        format!("`{}` at byte {} of the text", byte.escape_ascii(), self.at)
    }

    /// Takes the byte that must come next.
    fn expect(&mut self, wanted: u8) -> Result<(), String> {
        match self.peek() {
            Some(byte) if byte == wanted => {
                self.at += 1;
                Ok(())
            }
            Some(byte) => Err(self.unexpected(byte)),
            None => Err("the text ends early".to_owned()),
        }
    }

    /// The longest run of bytes that `belongs`.
    fn run(&mut self, belongs: impl Fn(u8) -> bool) -> String {
        let rest = &self.text[self.at..];
        let length = rest.iter().position(|byte| !belongs(*byte)).unwrap_or(rest.len());
        self.at += length;
        String::from_utf8_lossy(&rest[..length]).into_owned()
    }

    /// Up to a closing brace, which is left, or the end.
    fn section(&mut self, depth: usize) -> Result<Section, String> {
        let mut section = Section::default();
        while let Some(byte) = self.peek().filter(|byte| *byte != b'}') {
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_.+-/".contains(&byte);
            let name = self.run(is_name);
            if name.is_empty() {
                return Err(self.unexpected(byte));
            }
            if self.peek() == Some(b'{') {
                if depth == MAX_DEPTH {
                    return Err(format!("sections more than {MAX_DEPTH} deep"));
                }
                self.at += 1;
                let inner = self.section(depth + 1)?;
                self.expect(b'}')?;
                section.sections.push((name, inner));
            } else {
                self.expect(b'=')?;
                let value = self.value(true)?;
                section.values.push((name, value));
            }
        }
        Ok(section)
    }

    fn value(&mut self, may_be_list: bool) -> Result<Value, String> {
        match self.peek() {
            Some(b'"') => self.string().map(Value::String),
            Some(b'[') if may_be_list => self.list().map(Value::List),
            Some(byte) if byte.is_ascii_digit() || b"+-.".contains(&byte) => {
                let digits = self.run(|byte| byte.is_ascii_digit() || b"+-.".contains(&byte));
                Ok(digits.parse().map_or(Value::Other, Value::Number))
            }
            Some(byte) => Err(self.unexpected(byte)),
            None => Err("the text ends early".to_owned()),
        }
    }

    fn list(&mut self) -> Result<Vec<Value>, String> {
        self.expect(b'[')?;
        let mut list = Vec::new();
        while self.peek() != Some(b']') {
            list.push(self.value(false)?);
            if self.peek() == Some(b',') {
                self.at += 1;
            } else {
                break;
            }
        }
        self.expect(b']')?;
        Ok(list)
    }

    fn string(&mut self) -> Result<String, String> {
        self.expect(b'"')?;
        let mut bytes = Vec::new();
        loop {
            let byte = *self.text.get(self.at).ok_or("a string does not end")?;
            self.at += 1;
            match byte {
                b'"' => return Ok(String::from_utf8_lossy(&bytes).into_owned()),
                b'\\' => {
                    bytes.push(*self.text.get(self.at).ok_or("a string does not end")?);
                    self.at += 1;
                }
                _ => bytes.push(byte),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_and_values_are_read() {
        let text = br#"# a comment { "
vg0 { id = "a\"b" seqno=3
  flags = [] status = ["READ", "WRITE"] # another
  lv-1 { stripes = [ "pv0", 8 ] delta = -1 }
}
version = 1"#;
        let top = parse(text).unwrap();
        let group = top.section("vg0").unwrap();
        assert_eq!(group.string("id"), Ok("a\"b"));
        assert_eq!(group.number("seqno"), Ok(3));
        assert_eq!(group.list("flags"), Ok(&[][..]));
        assert!(group.has_word("status", "WRITE") && !group.has_word("status", "VISIBLE"));
        let volume = group.section("lv-1").unwrap();
        let stripes = [Value::String("pv0".into()), Value::Number(8)];
        assert_eq!(volume.list("stripes"), Ok(&stripes[..]));
        assert_eq!(volume.number("delta"), Err("delta is not a number".into()));
        assert_eq!(top.number("version"), Ok(1));
    }

    #[test]
    fn mistakes_are_named() {
        let problem = |text: &str| parse(text.as_bytes()).expect_err(text);
        assert_eq!(problem("a { b = 1"), "the text ends early");
        assert_eq!(problem("a = \"b"), "a string does not end");
        assert_eq!(problem("a }"), "`}` at byte 2 of the text");
        assert_eq!(problem("a = [[1]]"), "`[` at byte 5 of the text");
        assert_eq!(problem(&"a {".repeat(20)), "sections more than 16 deep");
    }
}
