//! The map file of GNU ddrescue: which areas of a copy were read.

use std::ops::Range;

use extant_device::c_number;

/// A text that is not a map file.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct MapFileError {
    line: usize,
    what: &'static str,
}

/// The map file of a copy that GNU ddrescue made.
///
/// ```
/// use extant::rescue::MapFile;
///
/// let map = MapFile::parse("0x00010000 + 1\n0 0x8000 +\n0x8000 0x200 -\n0x8200 0x7e00 +\n")?;
/// assert_eq!(map.unread(0..0x10000), [0x8000..0x8200]);
/// assert_eq!(map.unread(0x8000..0x9000), [0..0x200]);
/// # Ok::<(), extant::rescue::MapFileError>(())
/// ```
#[derive(Clone, Debug)]
pub struct MapFile {
    /// The areas that were read.
    read: rangemap::RangeSet<u64>,
}

impl MapFile {
    /// Reads a map file.
    ///
    /// # Errors
    /// It is not one, or its areas overlap.
    pub fn parse(text: &str) -> Result<Self, MapFileError> {
        let (mut read, mut end, mut has_status) = (rangemap::RangeSet::new(), 0, false);
        for (line, text) in (1..).zip(text.lines()) {
            let wrong = |what| MapFileError { line, what };
            let words: Vec<&str> =
                text.split_whitespace().take_while(|word| !word.starts_with('#')).collect();
            match words[..] {
                [] => {}
                // The current position, what is done there, and the pass.
                [position, status] | [position, status, _] if !has_status => {
                    let is_known = ["?", "*", "/", "-", "F", "G", "+"].contains(&status);
                    if c_number(position).is_none() || !is_known {
                        return Err(wrong("invalid status line (expected POSITION STATUS PASS)"));
                    }
                    has_status = true;
                }
                [position, size, status] => {
                    let numbers = c_number(position).zip(c_number(size));
                    let area =
                        numbers.and_then(|(start, size)| Some(start..start.checked_add(size)?));
                    let area = area.ok_or(wrong("invalid number"))?;
                    if area.start < end {
                        return Err(wrong("area overlaps the one before it"));
                    }
                    end = area.end;
                    match status {
                        "+" if !area.is_empty() => read.insert(area),
                        "+" | "?" | "*" | "/" | "-" => {}
                        _ => return Err(wrong("invalid status (expected ?, *, /, - or +)")),
                    }
                }
                _ => return Err(wrong("invalid line (expected POSITION SIZE STATUS)")),
            }
        }
        match has_status {
            true => Ok(Self { read }),
            false => Err(MapFileError { line: 1, what: "the status line is missing" }),
        }
    }

    /// The areas within a range that were not read, counted from its start. An area that the map
    /// does not name was not read.
    pub fn unread(&self, within: Range<u64>) -> Vec<Range<u64>> {
        let from_start = |area: Range<u64>| area.start - within.start..area.end - within.start;
        self.read.gaps(&within).map(from_start).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_file_of_ddrescue_is_read() {
        let text = "\
# Mapfile. Created by GNU ddrescue version 1.27
# Command line: ddrescue -d /dev/sdb copy.img copy.map
# current_pos  current_status  current_pass
0x00120000     ?               1
#      pos        size  status
0x00000000  0x00010000  +
0x00010000  0x00000200  -
0x00010200  0x00000E00  /
0x00011000  0x000EF000  +
0x00100000  0x00020000  *
0x00120000  0x00030000  ?
";
        let map = MapFile::parse(text).expect("it is one");
        assert_eq!(map.unread(0..0x150000), [0x10000..0x11000, 0x100000..0x150000]);
        assert_eq!(map.unread(0x10800..0x20000), vec![0..0x800; 1]);
        assert_eq!(map.unread(0x150000..0x150200), vec![0..0x200; 1]);
    }

    #[test]
    fn other_texts_are_refused_by_their_line() {
        let cases = [
            ("", 1),
            ("some text\n", 1),
            ("0 + 1\n0 10\n", 2),
            ("0 + 1\n0 10 x\n", 2),
            ("0 + 1\n0 10 +\n5 10 +\n", 3),
            ("0 + 1\n10 0xffffffffffffffff +\n", 2),
        ];
        for (text, line) in cases {
            assert_eq!(MapFile::parse(text).map(drop).expect_err(text).line, line, "{text}");
        }
    }
}
