use super::*;
use crate::crypt::{CipherSpec, Hash, Iv, Limits, Mode, Plain};
use crate::key::KeySource;
use crate::partition::PartitionError;
use std::os::unix::fs::symlink;

fn look_in<'a>(
    files: &'a [&'a str],
    directories: &'a [&'a str],
) -> impl Fn(&Path) -> HostFile + 'a {
    |path| match path.to_str() {
        Some(path) if files.contains(&path) => HostFile::Device,
        Some(path) if directories.contains(&path) => HostFile::Other,
        _ => HostFile::Nothing,
    }
}

fn device(text: &str, files: &[&str]) -> Result<DeviceUrl, String> {
    DeviceUrl::parse(OsStr::new(text), &Schemes::default(), look_in(files, &[]))
        .map_err(|error| error.to_string())
}

fn target(text: &str, files: &[&str], directories: &[&str]) -> Result<PathTarget, String> {
    PathTarget::parse(OsStr::new(text), &Schemes::default(), look_in(files, directories))
        .map_err(|error| error.to_string())
}

fn inside(image: DeviceUrl, path: &str) -> Result<PathTarget, String> {
    Ok(PathTarget::Inside { image, path: path.into() })
}

#[test]
fn a_path_is_a_device() {
    assert_eq!(device("/dev/sda", &["/dev/sda"]), Ok(DeviceUrl::plain("/dev/sda")));
    assert_eq!(device("new.img", &[]), Ok(DeviceUrl::plain("new.img")));
}

#[test]
fn a_partition_and_a_run_are_read() {
    let part = Part { path: "d.img".into(), partition: Some(2), run: None };
    assert_eq!(device("d.img#p2", &["d.img"]), Ok(DeviceUrl::of_part(part.clone())));
    let run = ByteRange { offset: 1 << 20, size: Some(3 << 30) };
    let slice = Part { path: "d.img".into(), partition: None, run: Some(run) };
    assert_eq!(device("d.img?offset=1M&size=3G", &["d.img"]), Ok(DeviceUrl::of_part(slice)));
    let by_backup = DeviceUrl { superblock: Some(32768), ..DeviceUrl::plain("d.img") };
    assert_eq!(device("d.img?sb=32768", &["d.img"]), Ok(by_backup.clone()));
    assert_eq!(by_backup.without_superblock(), DeviceUrl::plain("d.img"));
    let both = Part { run: Some(ByteRange { offset: 512, size: None }), ..part };
    assert_eq!(device("d.img#p2?offset=512", &["d.img"]), Ok(DeviceUrl::of_part(both)));
}

#[test]
fn a_suffix_is_read_where_no_file_is_there_yet() {
    let part = Part { path: "d.img".into(), partition: Some(2), run: None };
    assert_eq!(device("d.img#p2", &[]), Ok(DeviceUrl::of_part(part)));
}

#[test]
fn a_file_named_like_the_whole_text_is_meant() {
    assert_eq!(device("a#p1", &["a#p1"]), Ok(DeviceUrl::plain("a#p1")));
    assert_eq!(device("what?", &["what?"]), Ok(DeviceUrl::plain("what?")));
    assert_eq!(device("new#1?", &[]), Ok(DeviceUrl::plain("new#1?")));
}

#[test]
fn a_hash_in_a_directory_is_no_partition() {
    assert_eq!(device("a#p1/disk", &["a#p1/disk"]), Ok(DeviceUrl::plain("a#p1/disk")));
}

#[test]
fn two_files_that_fit_a_device_are_an_error() {
    assert_eq!(
        device("a#p1", &["a#p1", "a"]),
        Err("a#p1: ambiguous, could be a#p1 or a (use ./ for a host path, or --image)".into())
    );
}

#[test]
fn mistakes_after_an_existing_file_are_named() {
    let files = ["d.img"];
    let problem = |text: &str| device(text, &files).expect_err(text);
    assert_eq!(problem("d.img#2"), "d.img#2: invalid partition `#2` (expected #p1, #p2, ...)");
    assert_eq!(problem("d.img#p0"), "d.img#p0: invalid partition `#p0` (expected #p1, #p2, ...)");
    assert_eq!(
        problem("d.img#p99999999999"),
        "d.img#p99999999999: invalid partition `#p99999999999` (expected #p1, #p2, ...)"
    );
    assert_eq!(
        problem("d.img?ofset=1"),
        "d.img?ofset=1: unknown option `ofset=1` (expected offset=N, size=N, sb=N)"
    );
    assert_eq!(problem("d.img?offset=1X"), "d.img?offset=1X: invalid size `offset=1X`");
    assert_eq!(problem("d.img?offset=k"), "d.img?offset=k: invalid size `offset=k`");
    assert_eq!(
        problem("d.img?size=1&size=2"),
        "d.img?size=1&size=2: `size=2` given more than once"
    );
    assert_eq!(
        problem("d.img?offset=99999999999G"),
        "d.img?offset=99999999999G: invalid size `offset=99999999999G`"
    );
}

#[cfg(not(feature = "remote"))]
#[test]
fn schemes_of_a_feature_that_is_left_out_are_refused_by_its_name() {
    let said = |scheme: &str| {
        format!("{scheme} not included in this build of extant (cargo feature remote)")
    };
    for scheme in ["https://", "http://", "s3://", "gs://", "az://", "nbds://"] {
        let name = format!("{scheme}host/d.img");
        assert_eq!(device(&name, &[]), Err(said(scheme)));
        let inside = target(&format!("{name}:/etc"), &[], &[]);
        assert_eq!(inside.map(|_| ()), Err(said(scheme)));
    }
}

#[test]
fn unknown_schemes_are_refused() {
    assert_eq!(device("ftp://host/d.img", &[]), Err("unknown scheme: ftp://".into()));
}

#[test]
fn passwords_and_signatures_in_urls_are_not_shown() {
    let error = |text: &str| {
        let error = UrlError::Malformed { text: text.into(), problem: "wrong".to_owned() };
        error.to_string()
    };
    assert_eq!(error("https://user:SECRET@host/d.img"), "https://host/d.img: wrong");
    assert_eq!(error("overlay:https://host/d?X-Sig=SECRET"), "overlay:https://host/d: wrong");
    assert_eq!(error("nbd://host/a?x=1"), "nbd://host/a?x=1: wrong");
    assert_eq!(error("dir/d.img?x"), "dir/d.img?x: wrong");
}

#[test]
fn a_path_inside_an_image_is_split_off() {
    assert_eq!(
        target("d.img:/etc/fstab", &["d.img"], &[]),
        inside(DeviceUrl::plain("d.img"), "/etc/fstab")
    );
    assert_eq!(target("../d.img:/", &["../d.img"], &[]), inside(DeviceUrl::plain("../d.img"), "/"));
    let part = Part { path: "d.img".into(), partition: Some(2), run: None };
    assert_eq!(target("d.img#p2:/etc", &["d.img"], &[]), inside(DeviceUrl::of_part(part), "/etc"));
}

#[test]
fn the_longest_existing_prefix_is_the_image() {
    let both = ["a", "a:/b"];
    assert_eq!(target("a:/b:/c", &both, &[]), inside(DeviceUrl::plain("a:/b"), "/c"));
    assert_eq!(target("a:/b:/c", &["a"], &[]), inside(DeviceUrl::plain("a"), "/b:/c"));
}

#[test]
fn a_directory_is_no_image() {
    assert_eq!(target("d:/etc", &[], &["d"]), Err("d:/etc: no file or block device d".into()));
}

#[test]
fn dot_slash_forces_a_host_path() {
    assert_eq!(
        target("./d.img:/etc", &["./d.img", "d.img"], &[]),
        Ok(PathTarget::Host("./d.img:/etc".into()))
    );
}

#[test]
fn names_without_an_image_are_host_paths() {
    assert_eq!(target("dir/new", &[], &[]), Ok(PathTarget::Host("dir/new".into())));
    assert_eq!(
        target("odd:/file", &["odd:/file"], &["odd:"]),
        Ok(PathTarget::Host("odd:/file".into()))
    );
    assert_eq!(target("a:b", &["a"], &[]), Ok(PathTarget::Host("a:b".into())));
}

#[test]
fn two_readings_of_a_target_are_an_error() {
    let result = target("d:/etc", &["d"], &["d:", "d:/etc"]);
    assert_eq!(
        result,
        Err("d:/etc: ambiguous, could be d:/etc or d (use ./ for a host path, or --image)".into())
    );
}

#[test]
fn names_need_not_be_text() {
    let text = OsStr::from_bytes(b"d\xff:/\xfe");
    let stat_host = |path: &Path| {
        if path.as_os_str().as_bytes() == b"d\xff" { HostFile::Device } else { HostFile::Nothing }
    };
    let expected = PathTarget::Inside {
        image: DeviceUrl::plain(OsStr::from_bytes(b"d\xff")),
        path: OsString::from_vec(b"/\xfe".to_vec()),
    };
    assert_eq!(
        PathTarget::parse(text, &Schemes::default(), stat_host).expect("one reading"),
        expected
    );
}

#[test]
fn a_named_run_of_a_file_is_opened() {
    let directory = tempfile::tempdir().expect("a place for the test");
    let path = directory.path().join("d.img");
    fs::write(&path, [[1; 512], [2; 512], [3; 512]].concat()).expect("written");
    let mut name = path.clone().into_os_string();
    name.push("?offset=512&size=1k");
    let device = open(&name, &Schemes::default(), Access::ReadOnly, &FileDeviceOptions::new())
        .expect("opened")
        .device;
    let mut bytes = [0; 1024];
    device.read_at(0, &mut bytes).expect("read");
    assert_eq!((device.size(), bytes[0], bytes[1023]), (1024, 2, 3));
    assert!(device.is_read_only());

    let mut name = path.clone().into_os_string();
    name.push("?offset=2k");
    let error = open(&name, &Schemes::default(), Access::ReadOnly, &FileDeviceOptions::new())
        .expect_err("past the end");
    assert!(matches!(error, UrlError::Slice { .. }), "{error}");

    let mut name = path.into_os_string();
    name.push("#p1");
    let error = open(&name, &Schemes::default(), Access::ReadOnly, &FileDeviceOptions::new())
        .expect_err("no table");
    assert!(matches!(error, UrlError::Partition { error: PartitionError::NoTable, .. }), "{error}");
}

fn part(path: &str) -> Part {
    Part { path: path.into(), partition: None, run: None }
}

fn luks(key: KeySource) -> Layer {
    Layer::Crypt { plain: None, key, passes_discards: false, limits: Limits::default() }
}

#[test]
fn runs_are_joined_in_their_order() {
    let first = Part { run: Some(ByteRange { offset: 512, size: Some(1024) }), ..part("/a") };
    let second = Part { partition: Some(2), ..part("b,c") };
    let third = Part { run: Some(ByteRange { offset: 0, size: Some(1 << 20) }), ..part("/d") };
    let joined = |parts| DeviceUrl { parts, layers: vec![Layer::Linear], superblock: None };
    assert_eq!(
        device("linear:/a?offset=512&size=1k,/d?size=1M", &["/a", "/d"]),
        Ok(joined(vec![first, third]))
    );
    assert_eq!(
        device("linear:b,c#p2", &["b,c"]),
        Ok(joined(vec![part("b"), Part { path: "c".into(), ..second }]))
    );
    assert_eq!(device("linear:b,c", &["b,c"]), Ok(joined(vec![part("b,c")])));
    assert_eq!(
        device("linear:b,c", &["b,c", "b"]),
        Err("b,c: ambiguous, could be b,c or b (use ./ for a host path, or --image)".into())
    );
}

#[test]
fn layers_share_the_options_behind_the_last_path() {
    let volume = Layer::Lvm { group: Some("vg0".into()), volume: Some("root".into()) };
    let stacked = DeviceUrl {
        superblock: None,
        parts: vec![part("/dev/a"), part("/dev/b")],
        layers: vec![luks(KeySource::File("/k".into())), volume.clone()],
    };
    let text = "crypt:lvm:/dev/a,/dev/b?vg=vg0&lv=root&key-file=/k";
    assert_eq!(device(text, &["/dev/a", "/dev/b"]), Ok(stacked.clone()));
    assert_eq!(
        target(&format!("{text}:/etc/fstab"), &["/dev/a", "/dev/b"], &[]),
        inside(stacked, "/etc/fstab")
    );
    let on_luks = DeviceUrl {
        superblock: None,
        parts: vec![Part { partition: Some(3), ..part("d.img") }],
        layers: vec![volume, luks(KeySource::Descriptor(3))],
    };
    let text = "lvm:crypt:d.img#p3?key-fd=3&vg=vg0&lv=root";
    assert_eq!(device(text, &["d.img"]), Ok(on_luks));
    let limits = Limits { memory: 3 << 30 };
    let key = KeySource::Prompt;
    let large = Layer::Crypt { plain: None, key, passes_discards: false, limits };
    assert_eq!(
        device("crypt:d.img?kdf-memory=3G", &["d.img"]),
        Ok(DeviceUrl { parts: vec![part("d.img")], layers: vec![large], superblock: None })
    );
}

#[test]
fn a_plain_device_is_described_by_its_options() {
    let text = "crypt:d.img?cipher=aes-cbc-essiv:sha256&key-file=k&key-size=128&skip=8&sector-size=4096\
                &iv-large-sectors&allow-discards&hash=ripemd160&offset=1M";
    let cipher = CipherSpec { mode: Mode::Cbc, iv: Iv::Essiv(Hash::Sha256) };
    let plain = Plain {
        key_bits: Some(128),
        hash: Some(Hash::Ripemd160),
        skip: 8,
        sector_size: 4096,
        iv_large_sectors: true,
        ..Plain::new(cipher)
    };
    let expected = DeviceUrl {
        superblock: None,
        parts: vec![Part { run: Some(ByteRange { offset: 1 << 20, size: None }), ..part("d.img") }],
        layers: vec![Layer::Crypt {
            plain: Some(plain),
            key: KeySource::File("k".into()),
            passes_discards: true,
            limits: Limits::default(),
        }],
    };
    assert_eq!(device(text, &["d.img"]), Ok(expected));
}

#[test]
fn mistakes_in_layers_are_named() {
    let problem = |text: &str| device(text, &["d.img"]).expect_err(text);
    assert_eq!(problem("crypt:crypt:d.img"), "crypt:crypt:d.img: crypt: given more than once");
    assert_eq!(
        problem("linear:crypt:d.img"),
        "linear:crypt:d.img: linear: must be the innermost layer (for example crypt:linear:A,B)"
    );
    assert_eq!(
        problem("lvm:d.img?key-file=k"),
        "lvm:d.img?key-file=k: unknown option `key-file` (expected offset=N, size=N, vg=NAME, lv=NAME)"
    );
    assert_eq!(
        problem("crypt:d.img?key-size=256"),
        "crypt:d.img?key-size=256: `key-size` requires cipher=NAME (a plain device)"
    );
    assert_eq!(
        problem("crypt:d.img?cipher=aes-xts-plain64&kdf-memory=1G"),
        "crypt:d.img?cipher=aes-xts-plain64&kdf-memory=1G: `kdf-memory` cannot be combined with cipher=NAME (it is for LUKS)"
    );
    assert_eq!(
        problem("crypt:d.img?cipher=aes-gcm-plain"),
        "crypt:d.img?cipher=aes-gcm-plain: not supported: mode of cipher aes-gcm-plain (expected xts or cbc)"
    );
    assert_eq!(
        problem("crypt:d.img?key-file=a&key-fd=3"),
        "crypt:d.img?key-file=a&key-fd=3: key-file and key-fd are mutually exclusive"
    );
    assert_eq!(problem("linear:d.img,"), "linear:d.img,: missing file name");
    assert_eq!(
        target("crypt:no.img?key-file=k:/etc", &[], &[]),
        Err("crypt:no.img?key-file=k:/etc: no file or block device crypt:no.img?key-file=k".into())
    );
}

/// Files with any names.
#[test]
fn parts_that_lie_on_each_other_are_refused() {
    let dir = tempfile::tempdir().expect("a place for the test");
    let at = |name: &str| dir.path().join(name).display().to_string();
    for name in ["a", "b"] {
        fs::write(at(name), vec![0; 64 << 10]).expect("written");
    }
    symlink("a", at("symbolic")).expect("a link");
    fs::hard_link(at("a"), at("hard")).expect("a link");
    let opened = |text: String| {
        let opened = open(text, &Schemes::default(), Access::ReadWrite, &FileDeviceOptions::new());
        opened.map(|opened| opened.device.size()).map_err(|error| error.to_string())
    };
    let [a, b] = ["a", "b"].map(at);
    assert_eq!(opened(format!("linear:{a}?offset=4k&size=8k,{a}?size=4k,{b}")), Ok(76 << 10));
    for other in ["a", "symbolic", "hard"].map(at) {
        for text in
            [format!("linear:{a},{b},{other}"), format!("linear:{a}?size=8k,{other}?offset=4k")]
        {
            let error = opened(text.clone()).expect_err(&text);
            assert!(error.starts_with("linear: segments overlap: "), "{error}");
        }
    }
}
