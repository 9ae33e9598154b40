//! OCI layouts: the choice of an image, its layers, whiteouts and digests.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use extant_image::source::*;
use extant_testkit::Scratch;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::shown::{contents, find, options};
use crate::written::Written;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// A layout that is put together blob by blob.
pub(crate) struct Made {
    pub(crate) scratch: Scratch,
}

#[derive(Clone, Copy)]
pub(crate) enum Pack {
    Plain,
    Gzip,
    Zstd,
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Made {
    pub(crate) fn new() -> Self {
        let scratch = Scratch::new();
        fs::create_dir_all(scratch.path().join("blobs/sha256")).unwrap();
        fs::write(scratch.path().join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
        Self { scratch }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.scratch.path().to_owned()
    }

    pub(crate) fn blob(&self, media_type: &str, bytes: &[u8]) -> Value {
        let digest = hex(bytes);
        fs::write(self.path().join("blobs/sha256").join(&digest), bytes).unwrap();
        json!({"mediaType": media_type, "digest": format!("sha256:{digest}"), "size": bytes.len()})
    }

    pub(crate) fn image(&self, layers: &[(Written, Pack)], architecture: &str) -> Value {
        let mut descriptors = Vec::new();
        let mut diff_ids = Vec::new();
        for (layer, pack) in layers {
            let bytes = layer.clone().ended();
            diff_ids.push(format!("sha256:{}", hex(&bytes)));
            let packed = match pack {
                Pack::Plain => bytes,
                Pack::Gzip => {
                    let level = flate2::Compression::fast();
                    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
                    encoder.write_all(&bytes).unwrap();
                    encoder.finish().unwrap()
                }
                Pack::Zstd => zstd::encode_all(bytes.as_slice(), 1).unwrap(),
            };
            descriptors.push(self.blob(LAYER, &packed));
        }
        let config = json!({
            "architecture": architecture, "os": "linux",
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
        });
        let config = self.blob(CONFIG, config.to_string().as_bytes());
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": descriptors,
        });
        self.blob(MANIFEST, manifest.to_string().as_bytes())
    }

    pub(crate) fn index(&self, manifests: &[Value]) {
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests});
        fs::write(self.path().join("index.json"), index.to_string()).unwrap();
    }

    pub(crate) fn read(
        &self,
        reference: Option<&str>,
        platform: Option<&str>,
    ) -> Result<Tree, String> {
        let source =
            Source::OciLayout { path: self.path(), reference: reference.map(str::to_owned) };
        let platform = platform.map(|platform| platform.parse().unwrap());
        read_sources(&[source], &ReadOptions { platform, ..options() }).map_err(|error| {
            error.to_string().replace(&self.path().display().to_string(), "LAYOUT")
        })
    }
}

fn with(mut descriptor: Value, key: &str, value: Value) -> Value {
    descriptor[key] = value;
    descriptor
}

pub(crate) fn named(descriptor: Value, name: &str) -> Value {
    with(descriptor, "annotations", json!({"org.opencontainers.image.ref.name": name}))
}

pub(crate) fn paths(tree: &Tree) -> Vec<String> {
    crate::shown::snapshot(tree)
        .entries
        .into_keys()
        .map(|path| String::from_utf8(path).unwrap())
        .filter(|path| !path.is_empty())
        .collect()
}

#[test]
fn whiteouts_hide_what_lower_layers_have_and_nothing_of_their_own() {
    let lower = Written::default()
        .file("kept", b"1")
        .file("gone", b"1")
        .file("dir/a", b"1")
        .file("dir/deep/b", b"1")
        .file("opaque/old", b"1")
        .file("opaque/sub/old", b"1")
        .file("opaque/sub/kept-by-new", b"1")
        .file("later/old", b"1");
    let upper = Written::default()
        .file(".wh.gone", b"")
        .file(".wh.dir", b"")
        .file("opaque/new", b"2")
        .file("opaque/sub/new", b"2")
        // Its place in the layer does not matter.
        .file("opaque/.wh..wh..opq", b"")
        .file(".wh.later", b"")
        .file("later/new", b"2")
        .file(".wh.never-there", b"")
        .file("missing/.wh.name", b"");
    let made = Made::new();
    made.index(&[made.image(&[(lower, Pack::Gzip), (upper, Pack::Zstd)], "amd64")]);
    let tree = made.read(None, None).unwrap();
    let expected =
        ["kept", "later", "later/new", "opaque", "opaque/new", "opaque/sub", "opaque/sub/new"];
    assert_eq!(paths(&tree), expected);
}

/// They are left out of the whole image, whichever layer has them; a link to one is the file.
#[test]
fn files_of_layers_are_left_out() {
    let lower = Written::default()
        .file("etc/kept", b"1")
        .file("etc/secret", b"1")
        .file("cache/a", b"1")
        .file("first", b"content");
    let upper = Written::default()
        .file("cache/b", b"2")
        .file("srv/secret", b"2")
        .hard_link("second", "first")
        .file(".wh.etc", b"")
        .file("etc/new", b"2");
    let made = Made::new();
    made.index(&[made.image(&[(lower, Pack::Gzip), (upper, Pack::Zstd)], "amd64")]);
    let excludes = Excludes::new(["./cache", "secret", "/first"]);
    let source = Source::OciLayout { path: made.path(), reference: None };
    let options = ReadOptions { excludes, ..options() };
    let tree = read_sources(&[source], &options).unwrap();
    assert_eq!(paths(&tree), ["etc", "etc/new", "second", "srv"]);
    assert_eq!(contents(&tree, find(&tree, "second")), b"content");
    assert_eq!(tree.node(find(&tree, "second")).links(), 1);
}

#[test]
fn layers_of_every_packing_replace_and_link_across_layers() {
    let layers = [
        (Written::default().file("a", b"first").file("b", b"second"), Pack::Plain),
        (Written::default().hard_link("c", "a").file("a", b"third"), Pack::Gzip),
        (Written::default().hard_link("d", "a"), Pack::Zstd),
    ];
    let made = Made::new();
    made.index(&[made.image(&layers, "amd64")]);
    let tree = made.read(None, None).unwrap();
    assert_eq!(contents(&tree, find(&tree, "c")), b"first");
    assert_eq!(contents(&tree, find(&tree, "b")), b"second");
    assert_eq!(find(&tree, "a"), find(&tree, "d"));
}

#[test]
fn an_image_is_chosen_by_name_or_platform_and_never_by_the_machine() {
    let made = Made::new();
    let image = |architecture: &str| {
        let layers = [(Written::default().file(architecture, b""), Pack::Plain)];
        made.image(&layers, architecture)
    };
    let platform = |architecture: &str| json!({"os": "linux", "architecture": architecture});
    let nested = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [
        with(image("amd64"), "platform", platform("amd64")),
        with(image("arm64"), "platform", platform("arm64")),
        with(
            with(image("unknown"), "platform", platform("unknown")),
            "annotations",
            json!({"vnd.docker.reference.type": "attestation-manifest"}),
        ),
    ]});
    let nested = made.blob(INDEX, nested.to_string().as_bytes());
    made.index(&[named(nested, "v1"), named(image("riscv64"), "v2")]);

    assert_eq!(paths(&made.read(Some("v2"), None).unwrap()), ["riscv64"]);
    assert_eq!(paths(&made.read(None, Some("linux/riscv64")).unwrap()), ["riscv64"]);
    assert_eq!(paths(&made.read(Some("v1"), Some("linux/arm64")).unwrap()), ["arm64"]);
    let choices = "LAYOUT: 2 images: choose one by reference (LAYOUT:REF) or platform: \
                   linux/amd64, linux/arm64";
    assert_eq!(made.read(Some("v1"), None).unwrap_err(), choices);
    let missing = "LAYOUT: no image named v3 (available: v1, v2)";
    assert_eq!(made.read(Some("v3"), None).unwrap_err(), missing);
    let missing = "LAYOUT: no image named v2 for linux/arm64 (available: v1, v2)";
    assert_eq!(made.read(Some("v2"), Some("linux/arm64")).unwrap_err(), missing);
}

#[test]
fn blobs_are_compared_with_their_digests() {
    for pack in [Pack::Plain, Pack::Gzip, Pack::Zstd] {
        let made = Made::new();
        let layer = Written::default().file("a", &[3; 5000]);
        let image = made.image(&[(layer, pack)], "amd64");
        let manifest = image["digest"].as_str().unwrap().replace("sha256:", "blobs/sha256/");
        let manifest: Value =
            serde_json::from_slice(&fs::read(made.path().join(manifest)).unwrap()).unwrap();
        let layer = manifest["layers"][0]["digest"].as_str().unwrap().to_owned();
        let path = made.path().join(layer.replace("sha256:", "blobs/sha256/"));
        made.index(&[image]);
        let good = fs::read(&path).unwrap();
        for at in [good.len() / 3, good.len() - 1] {
            let mut bad = good.clone();
            bad[at] ^= 0x40;
            fs::write(&path, bad).unwrap();
            let error = made.read(None, None).unwrap_err();
            assert!(error.starts_with("LAYOUT"), "{error}");
        }
        fs::write(&path, &good[1..]).unwrap();
        let error = made.read(None, None).unwrap_err();
        let expected = format!("has {} bytes, its descriptor says {}", good.len() - 1, good.len());
        assert!(error.ends_with(&expected), "{error}");
        fs::write(&path, &good).unwrap();
        made.read(None, None).unwrap();
    }
}

#[test]
fn a_layer_that_does_not_unpack_to_its_diff_id_is_refused() {
    let made = Made::new();
    let packed = zstd::encode_all(Written::default().ended().as_slice(), 1).unwrap();
    let layer = made.blob(LAYER, &packed);
    let config = json!({
        "architecture": "amd64", "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{}", "0".repeat(64))]},
    });
    let config = made.blob(CONFIG, config.to_string().as_bytes());
    let manifest = json!({"schemaVersion": 2, "config": config, "layers": [layer]});
    made.index(&[made.blob(MANIFEST, manifest.to_string().as_bytes())]);
    let error = made.read(None, None).unwrap_err();
    assert!(error.contains("cannot read: digest is "), "{error}");
    assert!(error.ends_with(&format!("expected sha256:{}", "0".repeat(64))), "{error}");
}

#[test]
fn an_argument_says_what_kind_of_source_it_is() {
    let made = Made::new();
    made.index(&[]);
    let text = made.path().display().to_string();
    let of = |text: &str| text.parse::<Source>().unwrap();
    let layout = |reference: Option<&str>| Source::OciLayout {
        path: made.path(),
        reference: reference.map(str::to_owned),
    };
    assert_eq!(of("-"), Source::StandardInput);
    assert_eq!(of(&text), layout(None));
    assert_eq!(of(&format!("oci:{text}")), layout(None));
    assert_eq!(of(&format!("oci:{text}:v1")), layout(Some("v1")));
    assert_eq!(of(&format!("dir:{text}")), Source::Directory(made.path()));
    assert_eq!(of(&format!("{text}/blobs")), Source::Directory(made.path().join("blobs")));
    assert_eq!(of(&format!("{text}/index.json")), Source::Archive(made.path().join("index.json")));
    assert!("/nowhere/at/all".parse::<Source>().is_err());
}
