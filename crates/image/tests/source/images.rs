//! Images in archives and in skopeo's directories.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;

use extant_image::source::*;
use extant_testkit::Scratch;
use serde_json::json;

use crate::layout::{Made, Pack, hex, named, paths};
use crate::shown::{contents, find, options, read};
use crate::written::{Written, file_of};

fn lower() -> Written {
    Written::default().file("kept", b"lower").file("gone", b"lower").file("changed", b"lower")
}

fn upper() -> Written {
    Written::default().file(".wh.gone", b"").file("changed", b"upper")
}

fn is_the_image(tree: &Tree) {
    assert_eq!(paths(tree), ["changed", "kept"]);
    assert_eq!(contents(tree, find(tree, "changed")), b"upper");
    assert_eq!(contents(tree, find(tree, "kept")), b"lower");
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(bytes).unwrap();
    packer.finish().unwrap()
}

fn of(text: &str) -> Source {
    Source::of(OsStr::new(text)).unwrap()
}

/// An archive of all files of a layout, by names that begin with `prefix`.
fn archived(made: &Made, prefix: &str) -> Written {
    let mut archive = match prefix {
        "" => Written::default(),
        root => Written::default().directory(root),
    };
    archive = archive.directory(&format!("{prefix}blobs/"));
    archive = archive.directory(&format!("{prefix}blobs/sha256/"));
    for blob in made.path().join("blobs/sha256").read_dir().unwrap() {
        let blob = blob.unwrap();
        let name = blob.file_name().into_string().unwrap();
        archive =
            archive.file(&format!("{prefix}blobs/sha256/{name}"), &fs::read(blob.path()).unwrap());
    }
    for name in ["index.json", "oci-layout"] {
        let bytes = fs::read(made.path().join(name)).unwrap();
        archive = archive.file(&format!("{prefix}{name}"), &bytes);
    }
    archive
}

#[test]
fn an_archive_of_a_layout_is_the_layout() {
    let made = Made::new();
    let image = made.image(&[(lower(), Pack::Plain), (upper(), Pack::Gzip)], "amd64");
    let other = made.image(&[(Written::default().file("other", b""), Pack::Plain)], "arm64");
    made.index(&[named(image.clone(), "base:1")]);
    let scratch = Scratch::new();
    for prefix in ["", "./"] {
        let bytes = archived(&made, prefix).ended();
        for (name, bytes) in [("plain.tar", bytes.clone()), ("packed.tgz", gzipped(&bytes))] {
            is_the_image(&read(&[file_of(&scratch, name, &bytes)]).unwrap());
            let path = scratch.path().join(name).display().to_string();
            is_the_image(&read(&[of(&format!("oci-archive:{path}"))]).unwrap());
            is_the_image(&read(&[of(&format!("oci-archive:{path}:base:1"))]).unwrap());
            let missing = read(&[of(&format!("oci-archive:{path}:other"))]).unwrap_err();
            assert!(missing.to_string().contains("no image named other (available: base:1)"));
        }
    }
    made.index(&[named(image, "base"), named(other, "other")]);
    let several = archived(&made, "").source(&scratch, "several.tar");
    let error = read(std::slice::from_ref(&several)).unwrap_err().to_string();
    assert!(error.contains("several.tar: 2 images: choose one"), "{error}");
    let platform = Some("linux/arm64".parse().unwrap());
    let tree = read_sources(&[several], &ReadOptions { platform, ..options() }).unwrap();
    assert_eq!(paths(&tree), ["other"]);
}

/// The format of `docker save` before it wrote layouts, and of `skopeo copy … docker-archive:`.
fn saved(layers: &[Vec<u8>], diff_ids: &[String], tag: &str) -> (Written, serde_json::Value) {
    let config = json!({
        "architecture": "amd64", "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    });
    let config = config.to_string();
    let name = format!("{}.json", hex(config.as_bytes()));
    let mut archive = Written::default();
    let mut names = Vec::new();
    for layer in layers {
        let name = format!("{}.tar", hex(layer));
        archive = archive.file(&name, layer);
        names.push(name);
    }
    // The same layer by another name, as older versions have it.
    let link = format!("{}/layer.tar", "a".repeat(64));
    archive = archive.symlink(&link, &format!("../{}", names[0]));
    names[0] = link;
    let entry = json!({"Config": name, "RepoTags": [tag], "Layers": names});
    (archive.file(&name, config.as_bytes()), entry)
}

#[test]
fn an_archive_of_docker_is_one_of_its_images() {
    let layers = [lower().ended(), upper().ended()];
    let ids: Vec<String> = layers.iter().map(|it| format!("sha256:{}", hex(it))).collect();
    // skopeo spells names out.
    let (archive, entry) = saved(&layers, &ids, "docker.io/library/debian:12");
    let manifest = json!([entry]).to_string();
    let scratch = Scratch::new();
    let whole = archive.clone().file("manifest.json", manifest.as_bytes()).ended();
    for (name, bytes) in [("plain.tar", whole.clone()), ("packed.tgz", gzipped(&whole))] {
        is_the_image(&read(&[file_of(&scratch, name, &bytes)]).unwrap());
        let path = scratch.path().join(name).display().to_string();
        is_the_image(&read(&[of(&format!("docker-archive:{path}:debian:12"))]).unwrap());
        let missing = read(&[of(&format!("docker-archive:{path}:x"))]).unwrap_err().to_string();
        assert!(
            missing.contains("no such image (available: docker.io/library/debian:12)"),
            "{missing}"
        );
    }
    // As go-containerregistry names and orders the files, and with any first name.
    let config = json!({
        "architecture": "amd64", "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": ids},
    });
    let config = config.to_string();
    let config_name = format!("sha256:{}", hex(config.as_bytes()));
    for first in [None, Some("layers/")] {
        let names = ["layers/0.tar", "layers/1.tar"];
        let manifest = json!([{"Config": config_name, "RepoTags": ["a:1"], "Layers": names}]);
        let mut archive = Written::default();
        if let Some(directory) = first {
            archive = archive.directory(directory);
        }
        archive = archive.file(&config_name, config.as_bytes());
        for (name, layer) in names.iter().zip(&layers) {
            archive = archive.file(name, layer);
        }
        let bytes = archive.file("manifest.json", manifest.to_string().as_bytes()).ended();
        let file = file_of(&scratch, "crane.tar", &bytes);
        let path = scratch.path().join("crane.tar").display().to_string();
        is_the_image(&read(&[of(&format!("docker-archive:{path}"))]).unwrap());
        if first.is_none() {
            is_the_image(&read(&[file]).unwrap());
        }
    }

    let two = json!([entry, entry]).to_string();
    let two = archive.file("manifest.json", two.as_bytes()).source(&scratch, "two.tar");
    let error = read(&[two]).unwrap_err().to_string();
    assert!(error.contains("2 images: choose one"), "{error}");

    // A layer that is not what the config says.
    let wrong = [ids[1].clone(), ids[0].clone()];
    let (archive, entry) = saved(&layers, &wrong, "debian:12");
    let manifest = json!([entry]).to_string();
    let forged = archive.file("manifest.json", manifest.as_bytes()).source(&scratch, "forged.tar");
    let error = read(&[forged]).unwrap_err().to_string();
    assert!(error.contains("digest is"), "{error}");
}

#[test]
fn a_directory_of_skopeo_is_its_image() {
    let made = Made::new();
    let image = made.image(&[(lower(), Pack::Plain), (upper(), Pack::Gzip)], "amd64");
    let blobs = made.path().join("blobs/sha256");
    let scratch = Scratch::new();
    let directory = scratch.path().join("image");
    fs::create_dir(&directory).unwrap();
    let digest = image["digest"].as_str().unwrap().trim_start_matches("sha256:");
    for blob in blobs.read_dir().unwrap() {
        let blob = blob.unwrap();
        let name = blob.file_name().into_string().unwrap();
        let to = if name == digest { "manifest.json".to_owned() } else { name };
        fs::copy(blob.path(), directory.join(to)).unwrap();
    }
    fs::write(directory.join("version"), "Directory Transport Version: 1.1\n").unwrap();
    let path = directory.to_str().unwrap();
    is_the_image(&read(&[of(path)]).unwrap());
    let platform = |text: &str| {
        let platform = Some(text.parse().unwrap());
        read_sources(&[of(path)], &ReadOptions { platform, ..options() })
    };
    is_the_image(&platform("linux/amd64").unwrap());
    let error = platform("linux/arm64").unwrap_err().to_string();
    assert!(error.contains("no image for linux/arm64 (available: linux/amd64)"), "{error}");
    // Unchanged, if requested.
    assert!(paths(&read(&[of(&format!("dir:{path}"))]).unwrap()).contains(&"version".to_owned()));
    fs::write(directory.join("manifest.json"), r#"{"manifests": []}"#).unwrap();
    let error = read(&[of(path)]).unwrap_err().to_string();
    assert!(error.contains("skopeo copy dir:"), "{error}");
}

#[test]
fn an_archive_that_only_begins_like_images_is_a_tree() {
    let scratch = Scratch::new();
    let tree = Written::default().directory("blobs/").file("blobs/x", b"x").file("etc", b"y");
    for (name, bytes) in [("a.tar", tree.clone().ended()), ("a.tgz", gzipped(&tree.ended()))] {
        let read = read(&[file_of(&scratch, name, &bytes)]).unwrap();
        assert_eq!(paths(&read), ["blobs", "blobs/x", "etc"]);
        assert_eq!(contents(&read, find(&read, "blobs/x")), b"x");
    }
    let path = scratch.path().join("a.tar").display().to_string();
    let error = read(&[of(&format!("docker-archive:{path}"))]).unwrap_err().to_string();
    assert!(error.contains("not an archive of images"), "{error}");
    // One that is cut off is named, and not read as if it were whole.
    let cut = Written::default().directory("blobs/").0;
    let error = read(&[file_of(&scratch, "cut.tgz", &gzipped(&cut))]).unwrap_err().to_string();
    assert!(error.contains("cut.tgz"), "{error}");
}

/// The bytes of a layer that were compared with its digest are those that go into the image.
#[test]
fn what_is_verified_of_a_layer_is_what_is_read() {
    let made = Made::new();
    let layer = Written::default().file("file", b"before");
    let bytes = layer.clone().ended();
    made.index(&[made.image(&[(layer, Pack::Plain)], "amd64")]);
    let tree = made.read(None, None).unwrap();
    let forged = Written::default().file("file", b"after!").ended();
    let blob = made.path().join("blobs/sha256").join(hex(&bytes));
    fs::write(blob, &forged).unwrap();
    assert_eq!(contents(&tree, find(&tree, "file")), b"before");
}
