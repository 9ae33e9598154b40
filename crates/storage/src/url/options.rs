//! The options of a URL.

use extant_device::ByteSize;

/// The options of a URL as they were given, taken out one by one. Mistakes are sentences.
#[derive(Debug)]
pub struct UrlOptions<'a> {
    pub(super) given: Vec<(&'a [u8], Option<&'a [u8]>)>,
}

impl<'a> UrlOptions<'a> {
    pub(super) fn parse(query: &'a [u8]) -> Result<Self, String> {
        let mut given: Vec<(&[u8], Option<&[u8]>)> = Vec::new();
        for option in query.split(|byte| *byte == b'&').filter(|option| !option.is_empty()) {
            let equals = option.iter().position(|byte| *byte == b'=');
            let (name, value) = match equals {
                Some(at) => (&option[..at], Some(&option[at + 1..])),
                None => (option, None),
            };
            if given.iter().any(|(known, _)| *known == name) {
                return Err(format!("`{}` given more than once", option.escape_ascii()));
            }
            given.push((name, value));
        }
        Ok(Self { given })
    }

    fn take(&mut self, name: &str) -> Option<Option<&'a [u8]>> {
        let at = self.given.iter().position(|(known, _)| *known == name.as_bytes())?;
        Some(self.given.swap_remove(at).1)
    }

    /// The bytes of a value.
    ///
    /// # Errors
    /// It is missing.
    pub fn value(&mut self, name: &str) -> Result<Option<&'a [u8]>, String> {
        match self.take(name) {
            Some(Some(value)) if !value.is_empty() => Ok(Some(value)),
            Some(_) => Err(format!("`{name}` requires a value")),
            None => Ok(None),
        }
    }

    /// A value that is text.
    ///
    /// # Errors
    /// It is not, or is missing.
    pub fn text(&mut self, name: &str) -> Result<Option<&'a str>, String> {
        let Some(value) = self.value(name)? else { return Ok(None) };
        str::from_utf8(value).map(Some).map_err(|_| format!("`{name}`: not valid UTF-8"))
    }

    /// A number in digits.
    ///
    /// # Errors
    /// The value is not one, or is missing.
    pub fn number<N: std::str::FromStr>(&mut self, name: &str) -> Result<Option<N>, String> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let wrong = || format!("invalid number `{name}={}`", text.escape_debug());
        if !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(wrong());
        }
        text.parse().map(Some).map_err(|_| wrong())
    }

    #[cfg(feature = "crypt")]
    pub(super) fn flag(&mut self, name: &str) -> Result<bool, String> {
        match self.take(name) {
            Some(Some(_)) => Err(format!("`{name}` takes no value")),
            given => Ok(given.is_some()),
        }
    }

    /// Whether an option says `yes`; `no` is what it means if it is not given.
    ///
    /// # Errors
    /// The value is another one, or is missing.
    pub fn yes_or_no(&mut self, name: &str) -> Result<bool, String> {
        match self.text(name)? {
            Some("yes") => Ok(true),
            Some("no") | None => Ok(false),
            Some(_) => Err(format!("`{name}` is yes or no")),
        }
    }

    /// A number of bytes, or one with a unit: `64M`.
    ///
    /// # Errors
    /// The value is not one, or is missing.
    pub fn bytes(&mut self, name: &str) -> Result<Option<u64>, String> {
        let Some(value) = self.value(name)? else { return Ok(None) };
        let wrong = || format!("invalid size `{name}={}`", value.escape_ascii());
        parse_bytes(value).map(Some).ok_or_else(wrong)
    }
}

/// A number of bytes, or one with a unit.
pub(super) fn parse_bytes(text: &[u8]) -> Option<u64> {
    let size = str::from_utf8(text).ok()?.parse::<ByteSize>();
    size.ok().map(|size| size.0)
}
