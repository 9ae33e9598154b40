//! Shell patterns in paths inside images: `/etc/*.conf`.

use extant::rooms::image::glob;
use extant::rooms::reader::{Error, Follow, VolumeRead};

/// Whether a path may be a pattern.
pub(crate) fn may_be_pattern(path: &[u8]) -> bool {
    path.iter().any(|byte| matches!(byte, b'*' | b'?' | b'['))
}

/// Whether a part of a path has a character of patterns that no backslash takes as it is.
fn is_pattern(part: &[u8]) -> bool {
    let mut is_escaped = false;
    part.iter().any(|byte| {
        let is_plain = is_escaped;
        is_escaped = !is_plain && *byte == b'\\';
        !is_plain && matches!(byte, b'*' | b'?' | b'[')
    })
}

/// A part of a path without the backslashes of a pattern.
fn unescaped(part: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(part.len());
    let mut bytes = part.iter();
    while let Some(&byte) = bytes.next() {
        plain.push(if byte == b'\\' { *bytes.next().unwrap_or(&byte) } else { byte });
    }
    plain
}

/// The files that a path names in a volume, in the order of a shell: the path itself if a file has
/// it, else what it matches as a pattern. As in a shell `*`, `?` and `[...]` match no slash, and no
/// dot at the beginning of a name. None if nothing is matched; a path that is no pattern is
/// returned whether a file has it or not.
///
/// # Errors
/// A directory in which the pattern is searched cannot be read.
pub(crate) fn matches<V: VolumeRead>(volume: &V, path: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
    if !may_be_pattern(path) || volume.resolve(path, Follow::No).is_ok() {
        return Ok(vec![path.to_vec()]);
    }
    if !is_pattern(path) {
        return Ok(vec![unescaped(path)]);
    }
    let mut found = vec![Vec::new()];
    for (at, part) in path.split(|&byte| byte == b'/').enumerate() {
        let parents = std::mem::take(&mut found);
        for parent in parents {
            let below = |name: &[u8]| match at {
                0 => name.to_vec(),
                _ => [&parent[..], b"/", name].concat(),
            };
            if !is_pattern(part) {
                found.push(below(&unescaped(part)));
                continue;
            }
            let dir = if parent.is_empty() { b"/" } else { &parent[..] };
            let names = names(volume, dir)?;
            found.extend(names.iter().filter(|name| is_match(part, name)).map(|name| below(name)));
        }
    }
    found.retain(|path| exists(volume, path));
    Ok(found)
}

fn is_match(part: &[u8], name: &[u8]) -> bool {
    let is_hidden = name.starts_with(b".") && !part.starts_with(b".");
    !is_hidden && glob::matches(part, name, false)
}

/// Whether a file has the path; with a slash at its end, a directory.
fn exists<V: VolumeRead>(volume: &V, path: &[u8]) -> bool {
    match path.ends_with(b"/") {
        true => volume.resolve(path, Follow::Yes).is_ok_and(|file| file.is_dir()),
        false => volume.resolve(path, Follow::No).is_ok(),
    }
}

/// The names of a directory in byte order; none of what is not a directory.
fn names<V: VolumeRead>(volume: &V, dir: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
    let file = match volume.resolve(dir, Follow::Yes) {
        Ok(file) if file.is_dir() => file,
        Ok(_) | Err(Error::NotFound | Error::NotADirectory) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut names = Vec::new();
    for entry in volume.read_dir(file.number, 0)? {
        let name = entry?.name;
        // A damaged volume may hold names that are no names.
        let is_name = !name.is_empty() && !name.iter().any(|byte| matches!(byte, b'/' | 0));
        if is_name && !matches!(&name[..], b"." | b"..") {
            names.push(name);
        }
    }
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backslash_takes_a_character_as_it_is() {
        assert!(is_pattern(b"a*") && is_pattern(b"[x") && is_pattern(b"\\\\?"));
        assert!(!is_pattern(b"a\\*b") && !is_pattern(b"plain\\"));
        assert_eq!(unescaped(b"a\\*\\\\b\\"), b"a*\\b\\");
    }
}
