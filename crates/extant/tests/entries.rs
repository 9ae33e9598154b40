//! Images of what a program describes, and of archives that it has open.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io::{self, Cursor, Read, Write};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, UNIX_EPOCH};

use extant::source::Source;
use extant::{DeviceNumber, Entry, FileSystem, FileType, ImageBuilder};
use extant_testkit::{Scratch, e2fsck_fn, tool};

fn builder(image: &Path) -> ImageBuilder {
    ImageBuilder::new(image).source_date_epoch(1_700_000_000)
}

fn entries() -> Vec<Entry> {
    let long = format!("/deep/{}/{}", "d".repeat(200), "n".repeat(255));
    let number = DeviceNumber { major: 259, minor: 1_048_575 };
    let time = UNIX_EPOCH + Duration::from_secs(1_600_000_000);
    vec![
        Entry::directory("/").permissions(0o750),
        Entry::directory("/srv/user").owner(3_000_000_000, 70_000).permissions(0o2700),
        Entry::file("/etc/hostname", "example\n").modified(time),
        Entry::file("etc/empty", ""),
        Entry::file_with("/data", 3_000_000, || Ok(io::repeat(7).take(3_000_000))),
        Entry::hard_link("/same", "/data"),
        Entry::symlink("/link", "etc/hostname"),
        Entry::symlink("/far", format!("/{}", "t".repeat(300))),
        Entry::char_device("/dev/char", number),
        Entry::block_device("/dev/block", DeviceNumber { major: 8, minor: 1 }).permissions(0o660),
        Entry::fifo("/pipe"),
        Entry::file(long, "long").xattr("user.note", vec![0, 10, 255]),
        Entry::file("/old", "x").modified(UNIX_EPOCH - Duration::from_secs(86_400)),
    ]
}

#[test]
fn every_kind_of_entry_is_in_the_image() {
    let scratch = Scratch::new();
    let image = scratch.join("tree.img");
    let built = builder(&image).entries(entries()).expect("they are read").build();
    assert_eq!(built.expect("it is built").files, 10);
    if tool("e2fsck").is_some() {
        e2fsck_fn(&image).expect("nothing is wrong");
    }
    let fs = FileSystem::open_read_only(&image).expect("it opens");
    let of = |path: &str| fs.symlink_metadata(path).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((of("/").permissions(), of("/etc").permissions()), (0o750, 0o755));
    let home = of("/srv/user");
    let owner = (home.uid(), home.gid(), home.permissions());
    assert_eq!(owner, (3_000_000_000, 70_000, 0o2700));
    assert_eq!(fs.read_to_string("/link").expect("it is read"), "example\n");
    let modified = of("/etc/hostname").modified().duration_since(UNIX_EPOCH).expect("a time");
    assert_eq!(modified.as_secs(), 1_600_000_000);
    assert_eq!(UNIX_EPOCH.duration_since(of("/old").modified()).expect("it").as_secs(), 86_400);
    assert_eq!(of("/etc/empty").len(), 0);
    assert!(fs.read("/data").expect("it is read") == vec![7; 3_000_000]);
    assert_eq!((of("/same").inode(), of("/data").links()), (of("/data").inode(), 2));
    assert_eq!(fs.read_link("/far").expect("a target").as_os_str().len(), 301);
    let number = |path: &str| of(path).device().expect("a device");
    assert_eq!(number("/dev/char"), DeviceNumber { major: 259, minor: 1_048_575 });
    assert_eq!(number("/dev/block"), DeviceNumber { major: 8, minor: 1 });
    assert_eq!(of("/dev/block").permissions(), 0o660);
    assert_eq!(of("/pipe").file_type(), FileType::Fifo);
    let long = format!("/deep/{}/{}", "d".repeat(200), "n".repeat(255));
    let note = fs.xattr(&long, OsStr::new("user.note")).expect("an attribute");
    assert_eq!((note, fs.read(&long).expect("it is read")), (vec![0, 10, 255], b"long".to_vec()));
}

/// The same entries give the same bytes, a second source lies over the first, and nothing is left
/// next to the image.
#[test]
fn entries_are_a_source_as_others_are() {
    let scratch = Scratch::new();
    let images = ["one.img", "two.img"].map(|name| scratch.join(name));
    for image in &images {
        let with_entries = builder(image).entries(entries()).expect("they are read");
        let over = [Entry::file("/etc/hostname", "second\n")];
        with_entries.entries(over).expect("it is read").build().expect("it is built");
    }
    let [one, two] = images.each_ref().map(|image| std::fs::read(image).expect("an image"));
    assert!(one == two);
    let fs = FileSystem::open_read_only(&images[0]).expect("it opens");
    assert_eq!(fs.read_to_string("/etc/hostname").expect("it is read"), "second\n");
    let left = std::fs::read_dir(scratch.path()).expect("it is read").count();
    assert_eq!(left, 2);
}

/// Contents are opened in their turn and once, and a wrong length is an error with the path.
#[test]
fn contents_are_opened_when_they_are_needed() {
    let scratch = Scratch::new();
    let opened = Rc::new(RefCell::new(Vec::new()));
    let lazy = (0..3).map(|number| {
        let opened = opened.clone();
        assert_eq!(opened.borrow().len(), number);
        Entry::file_with(format!("/{number}"), 1, move || {
            opened.borrow_mut().push(number);
            Ok(Cursor::new([b'0' + number as u8]))
        })
    });
    let image = scratch.join("lazy.img");
    builder(&image).entries(lazy).expect("they are read").build().expect("it is built");
    assert_eq!(*opened.borrow(), [0, 1, 2]);

    for (given, length) in [("four", 5), ("four", 3), ("four", 0)] {
        let entry = Entry::file_with("/etc/wrong", length, move || Ok(Cursor::new(given)));
        let error = builder(&image).entries([entry]).expect_err("the length is wrong");
        let said = error.to_string();
        let wanted =
            format!("/etc/wrong: cannot read: the contents do not have the {length} bytes");
        assert!(said.starts_with(&wanted), "{said}");
    }
    let refused = || Err::<io::Empty, _>(io::Error::from_raw_os_error(13));
    let error = builder(&image).entries([Entry::file_with("/secret", 1, refused)]);
    let error = error.expect_err("it is not opened");
    assert_eq!((error.kind(), error.errno()), (io::ErrorKind::PermissionDenied, 13));
    // A path that an image cannot have, and a link to nothing.
    for entry in [Entry::file("/a/../b", "x"), Entry::hard_link("/b", "/missing")] {
        builder(&image).entries([entry]).expect("it is read").build().expect_err("it is refused");
    }
}

#[test]
fn an_archive_that_is_open_gives_the_same_image_as_a_file() {
    let scratch = Scratch::new();
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(5);
    header.set_mode(0o644);
    header.set_mtime(1_600_000_000);
    archive.append_data(&mut header, "etc/file", &b"hello"[..]).expect("it is added");
    let bytes = archive.into_inner().expect("an archive");
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&bytes).expect("it is packed");
    let packed = packed.finish().expect("it is packed");
    std::fs::write(scratch.join("a.tar"), &bytes).expect("a file");

    let image = |name: &str| scratch.join(name);
    let source = Source::Archive(scratch.join("a.tar"));
    builder(&image("file.img")).source(source).build().expect("it is built");
    let from = |name: &str, bytes: &[u8]| {
        let with_archive = builder(&image(name)).archive(bytes).expect("it is read");
        with_archive.build().expect("it is built");
        std::fs::read(image(name)).expect("an image")
    };
    let wanted = std::fs::read(image("file.img")).expect("an image");
    assert!(from("plain.img", &bytes) == wanted);
    assert!(from("packed.img", &packed) == wanted);
    let error = builder(&image("bad.img")).archive(&b"no archive"[..]).expect("it is read").build();
    error.expect_err("it is not an archive");
}
