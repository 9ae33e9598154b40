//! Damaged and hostile archives: one error that names archive, entry and byte.

use std::io::Write;

use extant_image::source::*;
use extant_testkit::Scratch;

use crate::shown::{options, read};
use crate::written::{Written, file_of};

fn failure_of(bytes: &[u8]) -> String {
    let scratch = Scratch::new();
    let source = file_of(&scratch, "a.tar", bytes);
    let error = read(&[source]).expect_err("the archive is wrong").to_string();
    error.strip_prefix(&format!("{}/a.tar: ", scratch.path().display())).unwrap().to_owned()
}

fn failure(archive: Written) -> String {
    failure_of(&archive.ended())
}

#[test]
fn an_archive_cut_off_anywhere_is_an_error() {
    let whole = Written::default().file("a", &[1; 700]).directory("d/").0;
    for length in 0..whole.len() {
        let padding = 512 + 700..512 + 1024;
        let expected = match length {
            0 => "byte 0: unexpected end of archive: no end-of-archive block",
            1..512 => "unexpected end of archive in a header",
            512..1212 => "entry a, byte ",
            _ if padding.contains(&length) => "no end-of-archive block",
            1537..2048 => "unexpected end of archive in a header",
            _ => "no end-of-archive block",
        };
        let found = failure_of(&whole[..length]);
        assert!(found.contains(expected), "at {length}: {found}");
    }
}

#[test]
fn damaged_headers_are_named_with_their_place() {
    let mut flipped = Written::default().file("a", b"1").file("b", b"2").ended();
    flipped[1024] ^= 1;
    let found = failure_of(&flipped);
    assert!(found.starts_with("byte 1024: header checksum is "), "{found}");

    let new = Written::default;
    let with = |at: usize, bytes: &'static [u8]| {
        new().changed_entry("a", b'0', "", b"", move |block| {
            block[at..at + bytes.len()].copy_from_slice(bytes);
        })
    };
    let cases = [
        (with(124, b"9"), "entry a, byte 0: invalid size: 90000000000\\0"),
        (
            with(124, b"77777777777"),
            "entry a, byte 512: unexpected end of archive in the contents of a file",
        ),
        (
            with(108, b"\xff\xff\xff\xff\xff\xff\xff\xff"),
            "entry a, byte 0: invalid uid: \\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xff",
        ),
        (
            with(156, b"M"),
            "entry a, byte 0: entry type 'M' (continued from another volume) is not supported",
        ),
        (with(156, b"Q"), "entry a, byte 0: entry type 'Q' (unknown) is not supported"),
        (
            new().entry("c", b'2', "", b""),
            "entry c, byte 0: symbolic link target of 0 bytes: it must have 1 to 4095",
        ),
        (
            new().changed_entry("c", b'3', "", b"", |block| {
                block[329..337].copy_from_slice(b"0010000\0");
            }),
            "entry c, byte 0: device number 4096:0: ext4 stores at most 4095:1048575",
        ),
        (
            new().pax(&[("path", &[b'n'; 256])]).file("a", b""),
            "byte 0: name of 256 bytes: ext4 stores at most 255",
        ),
        (new().pax(&[("path", b"a\0b")]).file("a", b""), "byte 0: name has a NUL byte"),
        (new().pax(&[("uid", b"-1")]).file("a", b""), "byte 0: invalid pax uid: -1"),
        (
            new().pax(&[("uid", b"4294967295")]).file("a", b""),
            "entry a, byte 0: invalid uid 4294967295",
        ),
        (new().pax(&[("mtime", b"1e9")]).file("a", b""), "byte 0: invalid pax mtime: 1e9"),
        (
            new().entry("x", b'x', "", b"12 path=ab\n").file("a", b""),
            "byte 0: pax record at byte 0 of the extended header is malformed",
        ),
        (
            new().pax(&[("path", b"a")]),
            "entry a, byte 0: an extension header is not followed by an entry",
        ),
        (
            new().entry("././@LongLink", b'L', "", b"\0").file("", b""),
            "byte 0: the entry has no name",
        ),
        (
            new().pax(&[("SCHILY.xattr.user.big", &[0; 65_537])]).file("a", b""),
            "entry a, byte 0: extended attribute user.big: the value is larger than 65536 bytes",
        ),
        (
            new().pax(&[("SCHILY.xattr.system.posix_acl_access", b"junk!")]).file("a", b""),
            "entry a, byte 0: ACL: version 1802401130 is unknown",
        ),
        (
            new().pax(&[("SCHILY.acl.access", b"user::rwx")]).file("a", b""),
            "byte 0: ACL: exactly one group:: entry is required",
        ),
    ];
    for (archive, expected) in cases {
        let found = failure(archive);
        assert!(found.ends_with(expected), "{found}\nis not\n{expected}");
    }
}

#[test]
fn a_huge_extension_is_refused_before_it_is_read() {
    let archive = Written::default().changed_entry("x", b'x', "", b"", |block| {
        block[124..136].copy_from_slice(b"77777777777\0");
    });
    let expected = "byte 0: pax header of 8589934591 bytes is larger than the limit of 67108864";
    assert_eq!(failure(archive), expected);
}

#[test]
fn sparse_maps_that_do_not_describe_the_file_are_refused() {
    let sparse = |map: &'static str, size: &'static str| {
        let records: [(&str, &[u8]); 2] =
            [("GNU.sparse.map", map.as_bytes()), ("GNU.sparse.size", size.as_bytes())];
        failure(Written::default().pax(&records).file("a", &[1; 10]))
    };
    let cases = [
        ("0,5,3,5", "100", "its segments overlap or are not in order"),
        ("0,10", "9", "it goes past the file's size"),
        ("0,11", "100", "it has more bytes than the entry"),
        ("0,9", "100", "it has fewer bytes than the entry"),
        ("0", "100", "GNU.sparse.map is not a list of pairs"),
        ("0,x", "100", "GNU.sparse.map is not a list of pairs"),
        ("18446744073709551615,10", "18446744073709551615", "it goes past the file's size"),
    ];
    for (map, size, problem) in cases {
        let found = sparse(map, size);
        assert!(found.ends_with(&format!("invalid sparse map: {problem}")), "{map}: {found}");
    }
}

#[test]
fn what_is_no_archive_is_said_to_be_none() {
    let cases: [(&[u8], &str); 4] = [
        (
            &[b'x'; 2048],
            "byte 0: not a directory, tar archive (plain, gzip, zstd, xz) or OCI layout",
        ),
        (b"BZh91AY&SY", "byte 0: compression bzip2 is not supported (decompress it first)"),
        (b"short", "byte 5: unexpected end of archive in a header"),
        (b"", "byte 0: unexpected end of archive: no end-of-archive block"),
    ];
    for (bytes, expected) in cases {
        assert_eq!(failure_of(bytes), expected);
    }
    // An image begins with zeros, as an archive without entries does.
    let mut image = vec![0; 4096];
    image[1080..1082].copy_from_slice(&[0x53, 0xef]);
    let expected = "byte 0: is an ext2, ext3 or ext4 image, not an archive (use extant export)";
    assert_eq!(failure_of(&image), expected);
}

#[test]
fn packed_archives_that_are_cut_off_or_damaged_are_errors() {
    let archive = Written::default().file("a", &[7; 100_000]).ended();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&archive).unwrap();
    let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 1);
    xz.write_all(&archive).unwrap();
    let zstd = zstd::encode_all(archive.as_slice(), 1).unwrap();
    for (name, packed) in
        [("gzip", gzip.finish().unwrap()), ("zstd", zstd), ("xz", xz.finish().unwrap())]
    {
        for length in [packed.len() / 2, packed.len() - 1] {
            let found = failure_of(&packed[..length]);
            assert!(found.contains("cannot read: "), "{name} cut off at {length}: {found}");
        }
    }
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&archive).unwrap();
    let mut damaged = gzip.finish().unwrap();
    let checksum = damaged.len() - 8;
    damaged[checksum] ^= 1;
    let found = failure_of(&damaged);
    assert!(found.contains("cannot read: "), "{found}");
}

#[test]
fn a_spool_without_its_directory_is_an_error_that_names_it() {
    let scratch = Scratch::new();
    let packed = zstd::encode_all(Written::default().ended().as_slice(), 1).unwrap();
    let source = file_of(&scratch, "a.tar.zst", &packed);
    let options = ReadOptions { spool: "/nowhere/at/all".into(), ..options() };
    let error = read_sources(&[source], &options).unwrap_err().to_string();
    assert!(error.contains("cannot write the unpacked contents to /nowhere/at/all"), "{error}");
}
