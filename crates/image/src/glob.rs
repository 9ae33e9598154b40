//! Shell patterns on bytes, as find(1) and `tar --exclude` match names: `*` and `?` take slashes
//! and leading dots too.

/// Whether a pattern matches all of a text.
pub fn matches(pattern: &[u8], text: &[u8], ignores_case: bool) -> bool {
    if ignores_case {
        return matches(&folded(pattern), &folded(text), false);
    }
    // Where the last star was met, and how much of the text it takes: it takes more when the rest
    // does not match.
    let (mut at, mut taken) = (0, 0);
    let mut star = None;
    while taken < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, taken));
                at += 1;
                continue;
            }
            Some(_) => {
                if let Some(next) = one(pattern, at, text[taken]) {
                    at = next;
                    taken += 1;
                    continue;
                }
            }
            None => {}
        }
        let Some((star_at, star_taken)) = star else { return false };
        star = Some((star_at, star_taken + 1));
        at = star_at + 1;
        taken = star_taken + 1;
    }
    pattern[at..].iter().all(|&byte| byte == b'*')
}

/// Characters of UTF-8 in lower case; other bytes as they are.
fn folded(bytes: &[u8]) -> Vec<u8> {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_lowercase().into_bytes(),
        Err(_) => bytes.to_ascii_lowercase(),
    }
}

/// Matches one byte against the pattern's element at `at`; where the next element starts.
fn one(pattern: &[u8], at: usize, byte: u8) -> Option<usize> {
    match pattern[at] {
        b'?' => Some(at + 1),
        b'[' => match class(pattern, at, byte) {
            Some((next, is_match)) => is_match.then_some(next),
            // A bracket that nothing closes stands for itself.
            None => (byte == b'[').then_some(at + 1),
        },
        b'\\' => match pattern.get(at + 1) {
            Some(&escaped) => (escaped == byte).then_some(at + 2),
            None => (byte == b'\\').then_some(at + 1),
        },
        plain => (plain == byte).then_some(at + 1),
    }
}

/// A class in brackets: where it ends, and whether the byte is in it.
fn class(pattern: &[u8], start: usize, byte: u8) -> Option<(usize, bool)> {
    let mut at = start + 1;
    let is_negated = matches!(pattern.get(at), Some(b'!' | b'^'));
    at += usize::from(is_negated);
    let first = at;
    let mut is_in = false;
    loop {
        let mut low = *pattern.get(at)?;
        if low == b']' && at > first {
            return Some((at + 1, is_in != is_negated));
        }
        if low == b'['
            && let Some((next, is_of_kind)) = kind(pattern, at, byte)
        {
            is_in |= is_of_kind;
            at = next;
            continue;
        }
        if low == b'\\' {
            at += 1;
            low = *pattern.get(at)?;
        }
        let is_range = pattern.get(at + 1) == Some(&b'-')
            && pattern.get(at + 2).is_some_and(|&high| high != b']');
        let high = if is_range { pattern[at + 2] } else { low };
        is_in |= (low..=high).contains(&byte);
        at += if is_range { 3 } else { 1 };
    }
}

/// `[:alpha:]` within a class, of ASCII: where it ends, and whether the byte is of that kind.
fn kind(pattern: &[u8], start: usize, byte: u8) -> Option<(usize, bool)> {
    let rest = pattern.get(start..)?.strip_prefix(b"[:")?;
    let length = rest.windows(2).position(|end| end == b":]")?;
    let is_of_kind = match &rest[..length] {
        b"alnum" => byte.is_ascii_alphanumeric(),
        b"alpha" => byte.is_ascii_alphabetic(),
        b"blank" => matches!(byte, b' ' | b'\t'),
        b"cntrl" => byte.is_ascii_control(),
        b"digit" => byte.is_ascii_digit(),
        b"graph" => byte.is_ascii_graphic(),
        b"lower" => byte.is_ascii_lowercase(),
        b"print" => byte.is_ascii_graphic() || byte == b' ',
        b"punct" => byte.is_ascii_punctuation(),
        b"space" => byte.is_ascii_whitespace() || byte == 0x0b,
        b"upper" => byte.is_ascii_uppercase(),
        b"xdigit" => byte.is_ascii_hexdigit(),
        _ => return None,
    };
    // The opening, the name and the end.
    Some((start + 2 + length + 2, is_of_kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_find() {
        let cases: [(&str, &str, bool); 27] = [
            ("*", "", true),
            ("*", ".hidden", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxbyy", false),
            ("*.txt", "a.txt.txt", true),
            ("?", "a", true),
            ("?", "", false),
            ("[abc]x", "bx", true),
            ("[a-c]x", "dx", false),
            ("[!a-c]x", "dx", true),
            ("[]]", "]", true),
            ("[a-]", "-", true),
            ("[", "[", true),
            ("[ab", "[ab", true),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("a\\", "a\\", true),
            ("/etc/*", "/etc/a/b", true),
            ("", "", true),
            ("", "a", false),
            ("a", "A", false),
            ("**a", "ba", true),
            ("[[:digit:]_]", "7", true),
            ("[[:digit:]_]", "_", true),
            ("[![:digit:]]", "7", false),
            ("[[:alpha:]]*", "x1", true),
            ("[[:none:]x]", ":x]", true),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(
                matches(pattern.as_bytes(), text.as_bytes(), false),
                expected,
                "{pattern} {text}"
            );
        }
        assert!(matches("ÄX*".as_bytes(), "äxy".as_bytes(), true));
        assert!(matches(b"\xff?", b"\xff\xfe", false));
    }

    #[test]
    fn many_stars_end_soon() {
        let pattern = "*a".repeat(200) + "b";
        assert!(!matches(pattern.as_bytes(), "a".repeat(20_000).as_bytes(), false));
    }
}
