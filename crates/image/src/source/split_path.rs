//! Paths of entries, taken apart.

/// The last component, and the path before it; no component for the root. `None` if the last one
/// is `..`.
pub fn split_path(path: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let mut end = path.len();
    loop {
        let start = path[..end].iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
        match &path[start..end] {
            [] | b"." if start == 0 => return Some((&[], None)),
            [] | b"." => end = start - 1,
            b".." => return None,
            name => return Some((&path[..start], Some(name))),
        }
    }
}
