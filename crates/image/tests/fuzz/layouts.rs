//! OCI layouts: damaged documents, and layers of any entries over each other.

use std::fs;

use extant_image::source::{ReadOptions, Source, read_sources};
use extant_testkit::Scratch;
use extant_testkit::fuzz::{Damage, FUZZ_TIME};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::archives::{Entry, INPUT_BYTES, archive, walk};
use crate::shown::options;

/// A layout of one image; each blob passes through `change` before its digest is made, and
/// `index.json` at last.
fn layout(scratch: &Scratch, layers: &[&[Entry]], mut change: impl FnMut(Vec<u8>) -> Vec<u8>) {
    fs::create_dir_all(scratch.join("blobs/sha256")).unwrap();
    fs::write(scratch.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
    let hex = |bytes: &[u8]| -> String {
        Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
    };
    let mut blob = |kind: &str, bytes: Vec<u8>| -> Value {
        let bytes = change(bytes);
        let digest = hex(&bytes);
        fs::write(scratch.join("blobs/sha256").join(&digest), &bytes).unwrap();
        json!({"mediaType": format!("application/vnd.oci.image.{kind}"),
               "digest": format!("sha256:{digest}"), "size": bytes.len()})
    };
    let mut descriptors = Vec::new();
    let mut diff_ids = Vec::new();
    for layer in layers {
        let bytes = archive(layer).ended();
        diff_ids.push(format!("sha256:{}", hex(&bytes)));
        descriptors.push(blob("layer.v1.tar", bytes));
    }
    let config = json!({"architecture": "amd64", "os": "linux",
                        "rootfs": {"type": "layers", "diff_ids": diff_ids}});
    let config = blob("config.v1+json", config.to_string().into());
    let manifest = json!({"schemaVersion": 2, "config": config, "layers": descriptors,
                          "mediaType": "application/vnd.oci.image.manifest.v1+json"});
    let manifest = blob("manifest.v1+json", manifest.to_string().into());
    let index = json!({"schemaVersion": 2, "manifests": [manifest],
                       "mediaType": "application/vnd.oci.image.index.v1+json"});
    fs::write(scratch.join("index.json"), change(index.to_string().into())).unwrap();
}

fn read(scratch: &Scratch) {
    let source = Source::OciLayout { path: scratch.path().to_owned(), reference: None };
    let platform = Some("linux/amd64".parse().unwrap());
    if let Ok(tree) = read_sources(&[source], &ReadOptions { platform, ..options() }) {
        walk(&tree);
    }
}

#[test]
fn layers_of_odd_entries() {
    type Input = (Vec<Entry>, Vec<Entry>);
    bolero::check!()
        .with_type::<Input>()
        .with_test_time(FUZZ_TIME)
        .with_max_len(INPUT_BYTES)
        .for_each(|(lower, upper)| {
            let scratch = Scratch::new();
            layout(&scratch, &[lower, upper], |bytes| bytes);
            read(&scratch);
        });
}

#[test]
fn damaged_documents_of_a_layout() {
    type Input = (Vec<Entry>, Damage, u8);
    bolero::check!()
        .with_type::<Input>()
        .with_test_time(FUZZ_TIME)
        .with_max_len(INPUT_BYTES)
        .for_each(|(layer, damage, which)| {
            let scratch = Scratch::new();
            let mut written = 0;
            // Digests are right whatever the document says.
            layout(&scratch, &[layer], |bytes| {
                written += 1;
                if written == which % 4 + 1 { damage.to(&bytes) } else { bytes }
            });
            read(&scratch);
        });
}
