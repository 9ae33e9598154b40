//! The records of an archive before a file's data: a ustar header, preceded by pax records for
//! fields that do not fit into it.

use std::io::Write as _;

use extant_ondisk::acl::{Acl, Subject};
use extant_ondisk::time::Timestamp;

/// Bytes of a record.
pub(super) const RECORD: usize = 512;
/// Largest number in a field of 7 octal digits.
const MAX_7_DIGITS: u64 = 0o7_777_777;
/// Largest number in a field of 11 octal digits.
const MAX_11_DIGITS: u64 = 0o77_777_777_777;
const NAME_LEN: usize = 100;
const PREFIX_LEN: usize = 155;

/// The type of a member.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum MemberKind {
    Regular,
    HardLink,
    Symlink,
    CharDevice,
    BlockDevice,
    Directory,
    Fifo,
}

impl MemberKind {
    fn flag(self) -> u8 {
        match self {
            Self::Regular => b'0',
            Self::HardLink => b'1',
            Self::Symlink => b'2',
            Self::CharDevice => b'3',
            Self::BlockDevice => b'4',
            Self::Directory => b'5',
            Self::Fifo => b'6',
        }
    }
}

/// A member of the archive.
#[derive(Clone, Debug)]
pub(super) struct Member<'a> {
    pub(super) kind: MemberKind,
    /// With a slash at a directory's end.
    pub(super) path: &'a [u8],
    /// The target of a symlink, or the first name of a hard link.
    pub(super) link: &'a [u8],
    pub(super) mode: u16,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) mtime: Timestamp,
    /// Bytes that follow the header, the map of a sparse file among them.
    pub(super) stored_size: u64,
    /// Bytes of a sparse file with its holes.
    pub(super) sparse_size: Option<u64>,
    /// Major and minor number.
    pub(super) device: Option<(u32, u32)>,
    /// Extended attributes but for the access control lists: full name and value.
    pub(super) xattrs: &'a [(Vec<u8>, Vec<u8>)],
    pub(super) access_acl: Option<&'a Acl>,
    pub(super) default_acl: Option<&'a Acl>,
}

impl Member<'_> {
    /// Adds the records to `out`.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let mut pax = Pax::default();
        let sparse_name;
        let mut path = self.path;
        if let Some(size) = self.sparse_size {
            pax.number("GNU.sparse.major", 1);
            pax.number("GNU.sparse.minor", 0);
            pax.bytes(b"GNU.sparse.name", path);
            pax.number("GNU.sparse.realsize", size);
            sparse_name = sibling(path, b"GNUSparseFile.0");
            path = &sparse_name;
        }
        let (prefix, name) = split(path).unwrap_or_else(|| {
            if self.sparse_size.is_none() {
                pax.bytes(b"path", path);
            }
            (&[], cut(path, NAME_LEN))
        });
        if self.link.len() > NAME_LEN {
            pax.bytes(b"linkpath", self.link);
        }
        for (key, number, limit) in [
            ("uid", u64::from(self.uid), MAX_7_DIGITS),
            ("gid", u64::from(self.gid), MAX_7_DIGITS),
            ("size", self.stored_size, MAX_11_DIGITS),
        ] {
            if number > limit {
                pax.number(key, number);
            }
        }
        let Timestamp { seconds, nanoseconds } = self.mtime;
        let whole_seconds = u64::try_from(seconds).ok().filter(|&it| it <= MAX_11_DIGITS);
        if nanoseconds != 0 || whole_seconds.is_none() {
            pax.bytes(b"mtime", moment(self.mtime).as_bytes());
        }
        if let Some(acl) = self.access_acl {
            pax.bytes(b"SCHILY.acl.access", acl_text(acl).as_bytes());
        }
        if let Some(acl) = self.default_acl {
            pax.bytes(b"SCHILY.acl.default", acl_text(acl).as_bytes());
        }
        for (name, value) in self.xattrs {
            pax.bytes(&[b"SCHILY.xattr.", &name[..]].concat(), value);
        }
        pax.write(self.path, out);
        let fields = Fields {
            name,
            prefix,
            mode: self.mode,
            uid: self.uid.into(),
            gid: self.gid.into(),
            size: self.stored_size,
            mtime: whole_seconds.unwrap_or(0),
            flag: self.kind.flag(),
            link: cut(self.link, NAME_LEN),
            device: self.device.unwrap_or_default(),
        };
        out.extend(fields.record());
    }
}

/// The fields of one ustar record.
struct Fields<'a> {
    name: &'a [u8],
    prefix: &'a [u8],
    mode: u16,
    uid: u64,
    gid: u64,
    size: u64,
    mtime: u64,
    flag: u8,
    link: &'a [u8],
    device: (u32, u32),
}

impl Fields<'_> {
    fn record(&self) -> [u8; RECORD] {
        let mut record = [0; RECORD];
        let mut put = |at: usize, bytes: &[u8]| record[at..at + bytes.len()].copy_from_slice(bytes);
        let octal = |number: u64, digits: usize, limit: u64| {
            // A pax record holds a field that does not fit.
            let number = if number > limit { 0 } else { number };
            format!("{number:0digits$o}").into_bytes()
        };
        put(0, self.name);
        put(100, &octal(self.mode.into(), 7, MAX_7_DIGITS));
        put(108, &octal(self.uid, 7, MAX_7_DIGITS));
        put(116, &octal(self.gid, 7, MAX_7_DIGITS));
        put(124, &octal(self.size, 11, MAX_11_DIGITS));
        put(136, &octal(self.mtime, 11, MAX_11_DIGITS));
        put(148, b"        ");
        put(156, &[self.flag]);
        put(157, self.link);
        put(257, b"ustar\x0000");
        put(329, &octal(self.device.0.into(), 7, MAX_7_DIGITS));
        put(337, &octal(self.device.1.into(), 7, MAX_7_DIGITS));
        put(345, self.prefix);
        let sum: u32 = record.iter().map(|&byte| u32::from(byte)).sum();
        record[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        record
    }
}

/// Records of the form `LENGTH KEY=VALUE\n`.
#[derive(Default)]
struct Pax {
    records: Vec<u8>,
    has_bytes: bool,
}

impl Pax {
    fn number(&mut self, key: &str, number: u64) {
        self.bytes(key.as_bytes(), number.to_string().as_bytes());
    }

    fn bytes(&mut self, key: &[u8], value: &[u8]) {
        self.has_bytes |= matches!(key, b"path" | b"linkpath" | b"GNU.sparse.name")
            && std::str::from_utf8(value).is_err();
        add_record(&mut self.records, key, value);
    }

    /// The extended header, if it is needed.
    fn write(&self, path: &[u8], out: &mut Vec<u8>) {
        if self.records.is_empty() {
            return;
        }
        // Names that are not UTF-8 are announced: other readers than GNU tar would translate them.
        let mut records = Vec::new();
        if self.has_bytes {
            add_record(&mut records, b"hdrcharset", b"BINARY");
        }
        records.extend(&self.records);
        let name = sibling(path, b"PaxHeaders");
        let (prefix, name) = split(&name).unwrap_or((&[], cut(&name, NAME_LEN)));
        let fields = Fields {
            name,
            prefix,
            mode: 0o644,
            uid: 0,
            gid: 0,
            size: records.len() as u64,
            mtime: 0,
            flag: b'x',
            link: b"",
            device: (0, 0),
        };
        out.extend(fields.record());
        out.extend(&records);
        pad(out);
    }
}

fn add_record(records: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    // The length counts its own digits.
    let rest = key.len() + value.len() + 3;
    let mut digits = 1;
    while (rest + digits).to_string().len() > digits {
        digits += 1;
    }
    // Writing to a vector does not fail.
    let _ = write!(records, "{} ", rest + digits);
    records.extend(key);
    records.push(b'=');
    records.extend(value);
    records.push(b'\n');
}

/// Fills the last record with zeros.
pub(super) fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(RECORD), 0);
}

/// The map of a sparse file as it precedes the data, padded: number of segments, then start and
/// length of each, in decimal, one a line.
pub(super) fn sparse_map(segments: &[std::ops::Range<u64>], size: u64) -> Vec<u8> {
    // A file that ends in a hole has an empty segment at its end, as GNU tar writes it.
    let ends_in_hole = segments.last().is_none_or(|last| last.end < size);
    let mut map = Vec::new();
    let count = segments.len() + usize::from(ends_in_hole);
    let _ = writeln!(map, "{count}");
    for segment in segments {
        let _ = writeln!(map, "{}\n{}", segment.start, segment.end - segment.start);
    }
    if ends_in_hole {
        let _ = writeln!(map, "{size}\n0");
    }
    pad(&mut map);
    map
}

/// Prefix and name of a ustar header, without the slash between them; `None` when the path does not
/// fit.
fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    if path.len() <= NAME_LEN {
        return Some((&[], path));
    }
    // The slash at a directory's end cannot divide.
    let longest = path.len().min(PREFIX_LEN + 1).min(path.len() - 1);
    let at = path[..longest].iter().rposition(|&byte| byte == b'/')?;
    let (prefix, name) = (&path[..at], &path[at + 1..]);
    (at > 0 && name.len() <= NAME_LEN).then_some((prefix, name))
}

fn cut(bytes: &[u8], len: usize) -> &[u8] {
    &bytes[..bytes.len().min(len)]
}

/// `DIR/between/NAME` of `DIR/NAME`: a name for a header of a member.
fn sibling(path: &[u8], between: &[u8]) -> Vec<u8> {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    let at = path.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
    let (dir, name) = path.split_at(at);
    [dir, between, b"/", name].concat()
}

/// Seconds since 1970 with as many decimals as are needed.
fn moment(time: Timestamp) -> String {
    let (seconds, nanoseconds) = (time.seconds, time.nanoseconds.min(999_999_999));
    if nanoseconds == 0 {
        return seconds.to_string();
    }
    // Nanoseconds count forwards, decimals of a negative number backwards.
    let (sign, whole, fraction) = match seconds < 0 {
        true => ("-", (seconds + 1).unsigned_abs(), 1_000_000_000 - nanoseconds),
        false => ("", seconds.unsigned_abs(), nanoseconds),
    };
    let text = format!("{sign}{whole}.{fraction:09}");
    text.trim_end_matches('0').to_owned()
}

/// `user::rw-,user:1000:r--,group::r--,mask::rw-,other::r--`.
fn acl_text(acl: &Acl) -> String {
    let entry = |subject: Subject, permissions: u8| {
        let name = match subject {
            Subject::Owner => "user:".to_owned(),
            Subject::User(id) => format!("user:{id}"),
            Subject::OwningGroup => "group:".to_owned(),
            Subject::Group(id) => format!("group:{id}"),
            Subject::Mask => "mask:".to_owned(),
            Subject::Other => "other:".to_owned(),
        };
        let may = |bit: u8, letter: char| if permissions & bit != 0 { letter } else { '-' };
        format!("{name}:{}{}{}", may(4, 'r'), may(2, 'w'), may(1, 'x'))
    };
    let entries: Vec<_> =
        acl.entries().iter().map(|it| entry(it.subject, it.permissions)).collect();
    entries.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(path: &[u8]) -> Member<'_> {
        Member {
            kind: MemberKind::Regular,
            path,
            link: b"",
            mode: 0o644,
            uid: 0,
            gid: 0,
            mtime: Timestamp { seconds: 1_000_000_000, nanoseconds: 0 },
            stored_size: 0,
            sparse_size: None,
            device: None,
            xattrs: &[],
            access_acl: None,
            default_acl: None,
        }
    }

    fn written(member: &Member<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        member.write(&mut out);
        out
    }

    #[test]
    fn a_plain_file_needs_one_record() {
        assert_eq!(written(&member(b"./a")).len(), RECORD);
        let long = [&b"./"[..], &[b'd'; 90], b"/", &[b'n'; 90]].concat();
        let out = written(&member(&long));
        assert_eq!((out.len(), &out[..90], &out[345..347]), (RECORD, &[b'n'; 90][..], &b"./"[..]));
    }

    #[test]
    fn what_ustar_cannot_say_is_said_in_pax_records() {
        let path = [b'x'; 200];
        let mut member = member(&path);
        member.uid = 4_000_000_000;
        member.mtime = Timestamp { seconds: -2, nanoseconds: 500_000_000 };
        let out = written(&member);
        assert_eq!(out.len(), 3 * RECORD);
        let records = String::from_utf8_lossy(&out[RECORD..2 * RECORD]).into_owned();
        let expected = format!("210 path={}\n18 uid=4000000000\n14 mtime=-1.5\n", "x".repeat(200));
        assert_eq!(records.trim_end_matches('\0'), expected);
    }

    #[test]
    fn a_records_length_counts_its_own_digits() {
        for (len, total) in [(92, "98"), (93, "99"), (94, "101"), (95, "102")] {
            let mut records = Vec::new();
            add_record(&mut records, b"k", &vec![b'v'; len]);
            assert!(records.starts_with(total.as_bytes()), "{len}");
            assert_eq!(records.len().to_string(), total);
        }
    }

    #[test]
    fn times_are_decimals() {
        let text = |seconds, nanoseconds| moment(Timestamp { seconds, nanoseconds });
        assert_eq!(text(5, 0), "5");
        assert_eq!(text(5, 120_000_000), "5.12");
        assert_eq!(text(-1, 0), "-1");
        assert_eq!(text(-1, 1), "-0.999999999");
    }

    #[test]
    fn a_sparse_map_ends_where_the_file_does() {
        let map = sparse_map(&[0..4096, 8192..8200], 8200);
        assert_eq!(map.len(), RECORD);
        assert!(map.starts_with(b"2\n0\n4096\n8192\n8\n\0"));
        assert!(sparse_map(&[], 100).starts_with(b"1\n100\n0\n\0"));
    }
}
