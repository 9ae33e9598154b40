//! Names for JSON.

use serde::Serialize;

/// A name or target in JSON. Where the bytes are not UTF-8, the text shows them with U+FFFD and
/// `hex` has them exactly.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(untagged)]
pub enum JsonName {
    /// UTF-8, as nearly always.
    Text(String),
    /// Anything else.
    Bytes {
        /// For people.
        text: String,
        /// For programs: two digits a byte.
        hex: String,
    },
}

impl JsonName {
    /// The name as text; bytes that are not UTF-8 are shown as U+FFFD.
    pub fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Bytes { text, .. } => text,
        }
    }
}

impl From<&[u8]> for JsonName {
    fn from(name: &[u8]) -> Self {
        match std::str::from_utf8(name) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Bytes {
                text: String::from_utf8_lossy(name).into_owned(),
                hex: name.iter().map(|byte| format!("{byte:02x}")).collect(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_json_are_exact() {
        let name = |bytes: &[u8]| serde_json::to_string(&JsonName::from(bytes)).unwrap();
        assert_eq!(name("ü".as_bytes()), "\"ü\"");
        assert_eq!(name(b"a\xff"), "{\"text\":\"a\u{fffd}\",\"hex\":\"61ff\"}");
    }
}
