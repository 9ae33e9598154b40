//! Files of sources that are left out, by patterns of `tar --exclude`.

use crate::glob;

/// Patterns of files that are left out of the tree, with all below them.
///
/// They mean what they mean to `tar --create --exclude=PATTERN --directory=SOURCE .`: a pattern
/// matches a whole path, which begins with `./`, or the part of it after any slash, and `*`, `?`
/// and `[...]` match slashes too. One that begins with `/` is taken as one that begins with `./`,
/// and slashes at its end are ignored. A backslash takes a character as it is.
#[derive(Clone, Debug, Default)]
pub struct Excludes {
    patterns: Vec<Vec<u8>>,
}

impl Excludes {
    /// Of these patterns; empty ones match nothing.
    pub fn new(patterns: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Self {
        let mut excludes = Self::default();
        patterns.into_iter().for_each(|pattern| excludes.add(pattern.as_ref()));
        excludes
    }

    /// Adds a pattern.
    pub fn add(&mut self, pattern: &[u8]) {
        let end = pattern.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
        let mut pattern = pattern[..end].to_vec();
        if pattern.first() == Some(&b'/') {
            pattern.insert(0, b'.');
        }
        if !pattern.is_empty() {
            self.patterns.push(pattern);
        }
    }

    /// Whether there is no pattern.
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Whether a pattern matches the file at `path`, which begins at the root without a slash.
    /// Files below one that is matched are left out too, and are not asked for.
    pub fn matches(&self, path: &[u8]) -> bool {
        if self.patterns.is_empty() {
            return false;
        }
        let whole = [b"./", path].concat();
        let slashes = whole.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let starts: Vec<usize> =
            std::iter::once(0).chain(slashes.map(|(slash, _)| slash + 1)).collect();
        self.patterns.iter().any(|pattern| {
            starts.iter().any(|&start| glob::matches(pattern, &whole[start..], false))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Excludes;

    #[test]
    fn patterns_begin_at_any_name() {
        let cases = [
            ("etc", "etc", true),
            ("etc", "usr/etc", true),
            ("etc", "usr/etcetera", false),
            ("./etc", "etc", true),
            ("./etc", "usr/etc", false),
            ("/etc", "etc", true),
            ("/etc/", "etc", true),
            ("/etc", "usr/etc", false),
            ("*.o", "src/deep/a.o", true),
            ("src/*.o", "src/deep/a.o", true),
            ("./*.o", "src/a.o", true),
            ("c/d", "b/c/d", true),
            (".git", "a/.git", true),
            ("", "a", false),
            ("/", "a", false),
            ("a\\*", "a*", true),
            ("a\\*", "ab", false),
        ];
        for (pattern, path, expected) in cases {
            let found = Excludes::new([pattern]).matches(path.as_bytes());
            assert_eq!(found, expected, "{pattern} {path}");
        }
    }
}
