//! Extended headers: pax records, and GNU's long names, for fields that exceed the header block.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

use super::super::error::{AclError, Flaw};
use super::super::node::FileTime;
use super::super::xattr::{ACL_ACCESS, ACL_DEFAULT, XattrList};

/// Fields of extended headers for the next entry.
#[derive(Debug, Default)]
pub(super) struct Extended {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link_path: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) uid: Option<u64>,
    pub(super) gid: Option<u64>,
    pub(super) mtime: Option<FileTime>,
    pub(super) atime: Option<FileTime>,
    pub(super) ctime: Option<FileTime>,
    pub(super) dev_major: Option<u64>,
    pub(super) dev_minor: Option<u64>,
    pub(super) xattrs: XattrList,
    pub(super) sparse: SparseRecords,
    /// Whether any extended header came before the entry.
    pub(super) present: bool,
}

/// GNU's records of sparse files, formats 0.0, 0.1 and 1.0.
#[derive(Debug, Default)]
pub(super) struct SparseRecords {
    pub(super) major: Option<u64>,
    pub(super) minor: Option<u64>,
    pub(super) name: Option<Vec<u8>>,
    /// GNU.sparse.size or GNU.sparse.realsize.
    pub(super) real_size: Option<u64>,
    /// Offset and length, of 0.0 and 0.1.
    pub(super) map: Option<Vec<(u64, u64)>>,
    /// An offset of 0.0 whose length has not come yet.
    offset: Option<u64>,
}

/// Keyword and value.
pub(super) type Record = (Vec<u8>, Vec<u8>);
/// The same, in the header's data.
type RawRecord<'d> = (&'d [u8], &'d [u8]);

/// Splits the data of an extended header into its records: "LENGTH KEYWORD=VALUE\n".
pub(super) fn records(data: &[u8]) -> impl Iterator<Item = Result<RawRecord<'_>, Flaw>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        // Some archivers fill up with NULs.
        if at >= data.len() || data[at..].iter().all(|&byte| byte == 0) {
            return None;
        }
        let record = record(&data[at..]);
        let result = record.map(|(length, record)| {
            at += length;
            record
        });
        let failed_at = at;
        if result.is_none() {
            at = data.len();
        }
        Some(result.ok_or(Flaw::PaxRecord { at: failed_at }))
    })
}

/// The record's length, and its keyword and value.
fn record(data: &[u8]) -> Option<(usize, RawRecord<'_>)> {
    /// More digits than any length has.
    const DIGITS_MAX: usize = 20;
    let blank = data.iter().take(DIGITS_MAX).position(|&byte| byte == b' ')?;
    let length = usize::try_from(decimal(&data[..blank])?).ok()?;
    let record = data.get(blank + 1..length)?.strip_suffix(b"\n")?;
    let equals = record.iter().position(|&byte| byte == b'=')?;
    Some((length, (&record[..equals], &record[equals + 1..])))
}

impl Extended {
    /// Adds one record. An empty value cancels a global header's.
    pub(super) fn apply(&mut self, key: &[u8], value: &[u8]) -> Result<(), Flaw> {
        match key {
            b"path" => self.path = non_empty(value),
            b"linkpath" => self.link_path = non_empty(value),
            b"size" => self.size = number("pax size", value)?,
            b"uid" => self.uid = number("pax uid", value)?,
            b"gid" => self.gid = number("pax gid", value)?,
            b"mtime" => self.mtime = time("pax mtime", value)?,
            b"atime" => self.atime = time("pax atime", value)?,
            b"ctime" => self.ctime = time("pax ctime", value)?,
            b"SCHILY.devmajor" => self.dev_major = number("SCHILY.devmajor", value)?,
            b"SCHILY.devminor" => self.dev_minor = number("SCHILY.devminor", value)?,
            b"SCHILY.acl.access" => self.xattrs.add_acl_text(ACL_ACCESS, value)?,
            b"SCHILY.acl.default" => self.xattrs.add_acl_text(ACL_DEFAULT, value)?,
            b"SCHILY.acl.ace" => {
                return Err(AclError::Nfs4.into());
            }
            // GNU tar writes the label without the NUL that the attribute ends with.
            b"RHT.security.selinux" => {
                self.xattrs.add(b"security.selinux", &[value, b"\0"].concat());
            }
            _ => {
                if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                    self.xattrs.add(&gnu_name(name), value);
                } else if let Some(name) = key.strip_prefix(b"LIBARCHIVE.xattr.") {
                    self.apply_libarchive_xattr(name, value)?;
                } else if let Some(key) = key.strip_prefix(b"GNU.sparse.") {
                    self.sparse.apply(key, value)?;
                }
            }
        }
        Ok(())
    }

    /// The name percent-encoded, the value in base 64.
    fn apply_libarchive_xattr(&mut self, name: &[u8], value: &[u8]) -> Result<(), Flaw> {
        let name = percent_decoded(name);
        let padded = value.ends_with(b"=");
        let decoded = match padded {
            true => STANDARD.decode(value),
            false => STANDARD_NO_PAD.decode(value),
        };
        let problem = "the value is not valid base 64";
        let value = decoded.map_err(|_| Flaw::Xattr { name: name.as_slice().into(), problem })?;
        self.xattrs.add(&name, &value);
        Ok(())
    }
}

impl SparseRecords {
    fn apply(&mut self, key: &[u8], value: &[u8]) -> Result<(), Flaw> {
        match key {
            b"major" => self.major = number("GNU.sparse.major", value)?,
            b"minor" => self.minor = number("GNU.sparse.minor", value)?,
            b"name" => self.name = non_empty(value),
            b"size" | b"realsize" => self.real_size = number("GNU.sparse.size", value)?,
            b"numblocks" => {
                self.map.get_or_insert_default();
            }
            b"offset" => self.offset = number("GNU.sparse.offset", value)?,
            b"numbytes" => {
                let offset = self.offset.take();
                let length = number("GNU.sparse.numbytes", value)?;
                let segment = offset.zip(length);
                let segment = segment
                    .ok_or(Flaw::SparseMap("GNU.sparse.numbytes without GNU.sparse.offset"))?;
                self.map.get_or_insert_default().push(segment);
            }
            b"map" => self.map = Some(map_of_pairs(value)?),
            _ => {}
        }
        Ok(())
    }

    /// Whether the map precedes the contents (format 1.0).
    pub(super) fn is_in_data(&self) -> Result<bool, Flaw> {
        match (self.major, self.minor) {
            (None | Some(0), _) => Ok(false),
            (Some(1), None | Some(0)) => Ok(true),
            _ => Err(Flaw::SparseMap("its format is newer than 1.0")),
        }
    }
}

/// "offset,length,offset,length"
fn map_of_pairs(text: &[u8]) -> Result<Vec<(u64, u64)>, Flaw> {
    let bad = || Flaw::SparseMap("GNU.sparse.map is not a list of pairs");
    let mut numbers = text.split(|&byte| byte == b',').map(decimal);
    let mut map = Vec::new();
    if text.is_empty() {
        return Ok(map);
    }
    while let Some(offset) = numbers.next() {
        let length = numbers.next().ok_or_else(bad)?;
        map.push(offset.zip(length).ok_or_else(bad)?);
    }
    Ok(map)
}

fn non_empty(value: &[u8]) -> Option<Vec<u8>> {
    (!value.is_empty()).then(|| value.to_vec())
}

/// Decimal digits only.
pub(super) fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |number, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

fn number(field: &'static str, value: &[u8]) -> Result<Option<u64>, Flaw> {
    if value.is_empty() {
        return Ok(None);
    }
    decimal(value).map(Some).ok_or_else(|| Flaw::Field { field, text: value.into() })
}

/// Seconds with a sign and a fraction; digits past the nanoseconds are cut off, towards the past.
fn time(field: &'static str, value: &[u8]) -> Result<Option<FileTime>, Flaw> {
    let invalid = || Flaw::Field { field, text: value.into() };
    if value.is_empty() {
        return Ok(None);
    }
    let (is_negative, digits) = match value.strip_prefix(b"-") {
        Some(digits) => (true, digits),
        None => (false, value),
    };
    let mut parts = digits.splitn(2, |&byte| byte == b'.');
    let whole = parts.next().and_then(decimal).ok_or_else(invalid)?;
    let mut seconds = i64::try_from(whole).map_err(|_| invalid())?;
    let fraction = parts.next().unwrap_or_default();
    if !fraction.iter().all(u8::is_ascii_digit) {
        return Err(invalid());
    }
    let digit = |index: usize| u32::from(fraction.get(index).map_or(0, |&byte| byte - b'0'));
    let mut nanoseconds = (0..9).fold(0, |number, index| number * 10 + digit(index));
    if is_negative {
        seconds = -seconds;
        let has_more = fraction.iter().skip(9).any(|&byte| byte != b'0');
        let back = nanoseconds + u32::from(has_more);
        if back > 0 {
            seconds = seconds.checked_sub(1).ok_or_else(invalid)?;
            nanoseconds = 1_000_000_000 - back;
        }
    }
    Ok(Some(FileTime { seconds, nanoseconds }))
}

/// GNU tar writes `=` and `%` of a name as %3D and %25, and no other characters.
fn gnu_name(name: &[u8]) -> Vec<u8> {
    decoded(name, |code| matches!(code, b'=' | b'%'))
}

fn percent_decoded(name: &[u8]) -> Vec<u8> {
    decoded(name, |_| true)
}

fn decoded(name: &[u8], wanted: impl Fn(u8) -> bool) -> Vec<u8> {
    let hex = |byte: u8| char::from(byte).to_digit(16);
    let mut out = Vec::with_capacity(name.len());
    let mut at = 0;
    while at < name.len() {
        if let [b'%', high, low, ..] = name[at..]
            && let (Some(high), Some(low)) = (hex(high), hex(low))
            && wanted((high << 4 | low) as u8)
        {
            out.push((high << 4 | low) as u8);
            at += 3;
        } else {
            out.push(name[at]);
            at += 1;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_round_towards_the_past() {
        for (text, seconds, nanoseconds) in [
            ("0", 0, 0),
            ("1.5", 1, 500_000_000),
            ("1.0000000019", 1, 1),
            ("-1", -1, 0),
            ("-1.5", -2, 500_000_000),
            ("-0.000000001", -1, 999_999_999),
            ("-0.0000000001", -1, 999_999_999),
            ("15032385535.999999999", 15_032_385_535, 999_999_999),
        ] {
            let found = time("pax mtime", text.as_bytes()).unwrap();
            assert_eq!(found, Some(FileTime { seconds, nanoseconds }), "{text}");
        }
        for text in ["-", ".5", "1.x", "+1", "1,5", "99999999999999999999", "--1"] {
            assert!(time("pax mtime", text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn records_end_where_their_length_says() {
        let data = b"12 path=a\nb\n9 uid=77\n\0\0";
        let found: Vec<RawRecord<'_>> = records(data).map(Result::unwrap).collect();
        assert_eq!(found, [(&b"path"[..], &b"a\nb"[..]), (b"uid", b"77")]);
        for bad in [
            "5 a=",
            "0 a=b\n",
            "3 a=b\n",
            "99 a=b\n",
            " a=b\n",
            "6 abc\n",
            "18446744073709551616 a=b\n",
        ] {
            assert!(records(bad.as_bytes()).any(|record| record.is_err()), "{bad:?}");
        }
    }

    #[test]
    fn names_are_decoded_as_their_archiver_encoded_them() {
        assert_eq!(gnu_name(b"user.a%3Db%25%20%"), b"user.a=b%%20%");
        assert_eq!(percent_decoded(b"user.%e2%82%AC%zz%4"), "user.\u{20ac}%zz%4".as_bytes());
    }
}
