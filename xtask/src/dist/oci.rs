//! An OCI layout of one layer: the program and its licences.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::{Release, hex, put, time_of};
use crate::Failure;

/// Makes the layout in a new directory.
pub(super) fn make(release: &Release, dir: &Path) -> Result<(), Failure> {
    let blobs = dir.join("blobs/sha256");
    fs::create_dir_all(&blobs)?;
    let store = |media_type: &str, bytes: &[u8]| -> Result<Value, Failure> {
        let digest = hex(bytes);
        put(&blobs.join(&digest), bytes, 0o644)?;
        let digest = format!("sha256:{digest}");
        Ok(json!({"mediaType": media_type, "digest": digest, "size": bytes.len()}))
    };
    let layer = store("application/vnd.oci.image.layer.v1.tar", &layer(release)?)?;
    let config = json!({
        "created": time_of(release.epoch)?,
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "Entrypoint": ["/usr/bin/extant"],
            "Env": ["PATH=/usr/bin"],
            "Labels": {"org.opencontainers.image.licenses": "MIT OR Apache-2.0"},
        },
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
        "history": [{"created": time_of(release.epoch)?, "created_by": "cargo xtask dist"}],
    });
    let config = store("application/vnd.oci.image.config.v1+json", &serde_json::to_vec(&config)?)?;
    let media_type = "application/vnd.oci.image.manifest.v1+json";
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": media_type,
        "config": config,
        "layers": [layer],
    });
    let mut manifest = store(media_type, &serde_json::to_vec(&manifest)?)?;
    manifest["platform"] = json!({"architecture": "amd64", "os": "linux"});
    manifest["annotations"] = json!({"org.opencontainers.image.ref.name": release.version});
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [manifest],
    });
    put(&dir.join("oci-layout"), br#"{"imageLayoutVersion":"1.0.0"}"#, 0o644)?;
    put(&dir.join("index.json"), &serde_json::to_vec(&index)?, 0o644)
}

/// The layer as a tar archive.
fn layer(release: &Release) -> Result<Vec<u8>, Failure> {
    let mut archive = tar::Builder::new(Vec::new());
    let header = |kind, mode, size| {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(size);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(release.epoch);
        header
    };
    let dirs = [
        ("tmp/", 0o1777),
        ("usr/", 0o755),
        ("usr/bin/", 0o755),
        ("usr/share/", 0o755),
        ("usr/share/doc/", 0o755),
        ("usr/share/doc/extant/", 0o755),
    ];
    for (dir, mode) in dirs {
        let mut header = header(tar::EntryType::Directory, mode, 0);
        archive.append_data(&mut header, dir, std::io::empty())?;
    }
    let program = fs::read(&release.program)?;
    let files: [(&str, u32, &[u8]); 2] = [
        ("usr/bin/extant", 0o755, &program),
        ("usr/share/doc/extant/copyright", 0o644, release.licences.as_bytes()),
    ];
    for (name, mode, bytes) in files {
        let mut header = header(tar::EntryType::Regular, mode, bytes.len() as u64);
        archive.append_data(&mut header, name, bytes)?;
    }
    Ok(archive.into_inner()?)
}
