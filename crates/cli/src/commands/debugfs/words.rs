//! The words of a request, split as debugfs splits them.

/// A word of a request: bytes, since paths need not be UTF-8.
pub(super) type Word = Vec<u8>;

/// Splits a line at blanks and tabs. Double quotes keep blanks together, and two of them within
/// quotes are one; `None` where they are not balanced.
pub(super) fn split(line: &[u8]) -> Option<Vec<Word>> {
    let mut words = Vec::new();
    let mut word: Option<Word> = None;
    let mut is_quoted = false;
    let mut bytes = line.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' if is_quoted && bytes.peek() == Some(&b'"') => {
                bytes.next();
                word.get_or_insert_default().push(b'"');
            }
            b'"' => {
                is_quoted = !is_quoted;
                word.get_or_insert_default();
            }
            b' ' | b'\t' if !is_quoted => words.extend(word.take()),
            byte => word.get_or_insert_default().push(byte),
        }
    }
    if is_quoted {
        return None;
    }
    words.extend(word);
    Some(words)
}

/// A word for a message.
pub(super) fn text(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}

/// A number as strtoul(3) reads it with base 0: decimal, octal after `0`, hexadecimal after `0x`.
/// `None` unless the whole word is one.
pub(super) fn number(word: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(word).ok()?;
    let hexadecimal = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let (digits, radix) = match (hexadecimal, digits.strip_prefix('0')) {
        (Some(digits), _) => (digits, 16),
        (None, Some(digits)) if !digits.is_empty() => (digits, 8),
        _ => (digits, 10),
    };
    let is_number = digits.bytes().all(|digit| char::from(digit).is_digit(radix));
    u64::from_str_radix(digits, radix).ok().filter(|_| is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_keep_blanks_and_two_of_them_are_one() {
        let split = |line: &str| {
            let words = split(line.as_bytes())?;
            Some(words.iter().map(|word| text(word)).collect::<Vec<_>>())
        };
        let words = |words: &[&str]| Some(words.iter().map(|it| (*it).to_owned()).collect());
        assert_eq!(split("  ls\t-l  /a "), words(&["ls", "-l", "/a"]));
        assert_eq!(split("stat \"sp ace\""), words(&["stat", "sp ace"]));
        assert_eq!(split("dx_hash \"a\"\"b\""), words(&["dx_hash", "a\"b"]));
        assert_eq!(split("dx_hash a\"b c\"d"), words(&["dx_hash", "ab cd"]));
        assert_eq!(split("stat \"\""), words(&["stat", ""]));
        assert_eq!(split("stat 'a b'"), words(&["stat", "'a", "b'"]));
        assert_eq!(split("stat \"a"), None);
        assert_eq!(split(""), words(&[]));
    }

    #[test]
    fn numbers_are_those_of_strtoul() {
        for (word, value) in [
            ("12", Some(12)),
            ("012", Some(10)),
            ("0x1F", Some(31)),
            ("0", Some(0)),
            ("", None),
            ("1x", None),
            ("-1", None),
            ("+1", None),
            ("0x", None),
            ("08", None),
        ] {
            assert_eq!(number(word.as_bytes()), value, "{word}");
        }
    }
}
