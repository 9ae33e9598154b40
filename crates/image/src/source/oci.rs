//! Images: from `index.json` to one manifest, or from `docker save`'s list to one image, and its
//! layers laid over each other.
//!
//! Every blob is compared with its digest, and every unpacked layer with its diff id. The choice
//! among several images must follow from the requested reference or platform, never from the
//! machine.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use oci_spec::image::{
    Descriptor, Digest, DigestAlgorithm, ImageConfiguration, ImageIndex, ImageManifest, MediaType,
    OciLayout,
};
use serde::de::DeserializeOwned;
use sha2::digest::DynDigest;
use sha2::{Sha256, Sha384, Sha512};

use super::blobs::{Blobs, Form};
use super::builder::TreeBuilder;
use super::error::SourceError;
use super::options::{Platform, ReadOptions};
use super::tar::input::Input;
use super::tar::{self, Flavor, archive_error};
use super::unpack::{self, Packing};

/// Index, manifest and config are read into memory: larger ones are invalid.
const JSON_MAX: u64 = 16 << 20;
/// An index may hold indexes, so deep.
const DEPTH_MAX: usize = 8;
/// More images than any layout has.
const IMAGES_MAX: usize = 4096;

const REFERENCE_NAME: &str = "org.opencontainers.image.ref.name";
/// BuildKit's attestations are manifests next to the images.
const ATTESTATION: &str = "vnd.docker.reference.type";
const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";

/// Reads the image that `reference` (a tag) and the options' platform choose, layer by layer.
pub(super) fn read(
    builder: &mut TreeBuilder,
    blobs: Blobs,
    reference: Option<&str>,
    options: &ReadOptions,
) -> Result<(), SourceError> {
    let layout = Layout { path: blobs.shown(), blobs };
    let platform = options.platform.as_ref();
    let image = match layout.blobs.form() {
        Some(Form::Docker) => layout.saved_image(reference, platform)?,
        Some(Form::Flat) => layout.only_image(platform)?,
        _ => layout.image(reference, platform)?,
    };
    if image.diff_ids.len() != image.layers.len() {
        let (layers, ids) = (image.layers.len(), image.diff_ids.len());
        return Err(layout.error(format!("the manifest has {layers} layers, the config {ids}")));
    }
    tracing::debug!(layers = image.layers.len(), "image of {}", layout.path.display());
    builder.begin_source();
    for (layer, diff_id) in image.layers.iter().zip(&image.diff_ids) {
        let diff_id = layout.digest(diff_id)?;
        builder.begin_layer();
        layout.read_layer(builder, layer, &diff_id, &options.spool)?;
    }
    Ok(())
}

struct Layout {
    /// For messages.
    path: PathBuf,
    blobs: Blobs,
}

/// The parts of an image that are read.
struct Image {
    layers: Vec<Layer>,
    /// Digests of the unpacked layers, by its config.
    diff_ids: Vec<String>,
}

/// A layer by its descriptor, or by the name of its file.
enum Layer {
    Described(Box<Descriptor>),
    Named(String),
}

/// A name with the parts that docker leaves out: `debian` is `docker.io/library/debian:latest`.
fn full(name: &str) -> String {
    let short = name.strip_prefix("docker.io/").unwrap_or(name);
    let short = short.strip_prefix("library/").unwrap_or(short);
    let has_tag = short.rsplit('/').next().is_some_and(|last| last.contains(':'));
    format!("docker.io/{short}{}", if has_tag { "" } else { ":latest" })
}

/// An entry of the `manifest.json` that `docker save` writes.
#[derive(serde::Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SavedImage {
    config: String,
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

impl SavedImage {
    fn is_named(&self, reference: &str) -> bool {
        self.tags().any(|tag| full(tag) == full(reference))
    }

    fn tags(&self) -> impl Iterator<Item = &str> {
        self.repo_tags.iter().flatten().map(String::as_str)
    }
}

/// An image of the layout, and its platform, if the index has it.
struct Candidate {
    descriptor: Descriptor,
    platform: Option<Platform>,
}

impl Layout {
    fn error(&self, problem: String) -> SourceError {
        SourceError::Oci { layout: self.path.as_path().into(), problem }
    }

    /// The image of an OCI layout.
    fn image(
        &self,
        reference: Option<&str>,
        platform: Option<&Platform>,
    ) -> Result<Image, SourceError> {
        let version: OciLayout = self.json_file("oci-layout")?;
        if !version.image_layout_version().starts_with("1.") {
            let version = version.image_layout_version();
            return Err(self.error(format!("layout version {version} is not supported")));
        }
        let manifest = self.choose(reference, platform)?;
        self.described(&manifest)
    }

    /// The image of a directory that has one.
    fn only_image(&self, platform: Option<&Platform>) -> Result<Image, SourceError> {
        let manifest: serde_json::Value = self.json_file("manifest.json")?;
        if manifest.get("manifests").is_some() {
            let path = self.path.display();
            return Err(self.error(format!(
                "several images; extract one (skopeo copy dir:{path} oci:LAYOUT)"
            )));
        }
        let manifest: ImageManifest = serde_json::from_value(manifest)
            .map_err(|error| self.error(format!("manifest.json: {error}")))?;
        if let Some(wanted) = platform {
            let config: ImageConfiguration = self.json_blob(manifest.config())?;
            let found = platform_of(&config);
            if !wanted.admits(&found) {
                return Err(self.error(format!("no image for {wanted} (available: {found})")));
            }
        }
        self.described(&manifest)
    }

    fn described(&self, manifest: &ImageManifest) -> Result<Image, SourceError> {
        let config = manifest.config();
        if *config.media_type() == MediaType::EmptyJSON {
            return Err(self.error("not the manifest of an image".into()));
        }
        let config: ImageConfiguration = self.json_blob(config)?;
        let layers =
            manifest.layers().iter().cloned().map(Box::new).map(Layer::Described).collect();
        Ok(Image { layers, diff_ids: config.rootfs().diff_ids().clone() })
    }

    /// An image of an archive that `docker save` wrote.
    fn saved_image(
        &self,
        reference: Option<&str>,
        platform: Option<&Platform>,
    ) -> Result<Image, SourceError> {
        let images: Vec<SavedImage> = self.json_file("manifest.json")?;
        let mut found = Vec::new();
        for image in &images {
            if reference.is_some_and(|reference| !image.is_named(reference)) {
                continue;
            }
            let config: ImageConfiguration = self.named_config(&image.config)?;
            if platform.is_none_or(|wanted| wanted.admits(&platform_of(&config))) {
                found.push((image, config));
            }
        }
        let names = images.iter().flat_map(SavedImage::tags).collect::<Vec<_>>().join(", ");
        match found.as_slice() {
            [(image, config)] => Ok(Image {
                layers: image.layers.iter().cloned().map(Layer::Named).collect(),
                diff_ids: config.rootfs().diff_ids().clone(),
            }),
            [] => Err(self.error(format!("no such image (available: {names})"))),
            several => Err(self.error(format!(
                "{} images: choose one by reference (LAYOUT:REF) or platform: {names}",
                several.len()
            ))),
        }
    }

    /// The config of a saved image: the file is called by its digest.
    fn named_config(&self, name: &str) -> Result<ImageConfiguration, SourceError> {
        let stem = Path::new(name).file_stem().and_then(OsStr::to_str).unwrap_or_default();
        let (_, file) = self.blobs.open(name)?;
        match Digest::from_str(&format!("sha256:{stem}")) {
            Ok(digest) => {
                let file = Verified::new(file, &digest).map_err(|problem| self.error(problem))?;
                self.json(file, name)
            }
            Err(_) => self.json(file, name),
        }
    }

    fn choose(
        &self,
        reference: Option<&str>,
        platform: Option<&Platform>,
    ) -> Result<ImageManifest, SourceError> {
        let index: ImageIndex = self.json_file("index.json")?;
        let mut candidates = Vec::new();
        for descriptor in index.manifests() {
            if reference.is_none() || reference == reference_of(descriptor) {
                self.collect(descriptor, 0, &mut candidates)?;
            }
        }
        if let Some(wanted) = platform {
            for candidate in &mut candidates {
                if candidate.platform.is_none() {
                    candidate.platform = Some(self.platform_by_config(&candidate.descriptor)?);
                }
            }
            candidates.retain(|candidate| {
                candidate.platform.as_ref().is_some_and(|found| wanted.admits(found))
            });
        }
        // One image under several names is one.
        let mut seen = std::collections::BTreeSet::new();
        candidates
            .retain(|candidate| seen.insert(candidate.descriptor.digest().as_ref().to_owned()));
        match candidates.as_slice() {
            [one] => self.json_blob(&one.descriptor),
            [] => Err(self.error(self.nothing_found(&index, reference, platform))),
            several => {
                let list: Vec<String> = several.iter().map(Candidate::shown).collect();
                let list = list.join(", ");
                Err(self.error(format!(
                    "{} images: choose one by reference (LAYOUT:REF) or platform: {list}",
                    several.len()
                )))
            }
        }
    }

    fn nothing_found(
        &self,
        index: &ImageIndex,
        reference: Option<&str>,
        platform: Option<&Platform>,
    ) -> String {
        let wanted = match (reference, platform) {
            (Some(reference), Some(platform)) => format!("named {reference} for {platform}"),
            (Some(reference), None) => format!("named {reference}"),
            (None, Some(platform)) => format!("for {platform}"),
            (None, None) => return "no image".into(),
        };
        let names = index.manifests().iter().filter_map(reference_of);
        format!("no image {wanted} (available: {})", names.collect::<Vec<_>>().join(", "))
    }

    /// Adds the images that a descriptor leads to.
    fn collect(
        &self,
        descriptor: &Descriptor,
        depth: usize,
        candidates: &mut Vec<Candidate>,
    ) -> Result<(), SourceError> {
        let is_attestation = descriptor
            .annotations()
            .as_ref()
            .is_some_and(|annotations| annotations.contains_key(ATTESTATION));
        if is_attestation {
            return Ok(());
        }
        match descriptor.media_type() {
            MediaType::ImageIndex => {}
            MediaType::Other(other) if other == DOCKER_INDEX => {}
            MediaType::ImageManifest => return self.add_candidate(descriptor, candidates),
            MediaType::Other(other) if other == DOCKER_MANIFEST => {
                return self.add_candidate(descriptor, candidates);
            }
            // Signatures and similar manifests.
            _ => return Ok(()),
        }
        if depth == DEPTH_MAX {
            return Err(self.error(format!("indexes nested more than {DEPTH_MAX} deep")));
        }
        let index: ImageIndex = self.json_blob(descriptor)?;
        for descriptor in index.manifests() {
            self.collect(descriptor, depth + 1, candidates)?;
        }
        Ok(())
    }

    fn add_candidate(
        &self,
        descriptor: &Descriptor,
        candidates: &mut Vec<Candidate>,
    ) -> Result<(), SourceError> {
        if candidates.len() == IMAGES_MAX {
            return Err(self.error(format!("more than {IMAGES_MAX} images")));
        }
        let platform = descriptor.platform().as_ref().map(|platform| Platform {
            os: platform.os().to_string(),
            architecture: platform.architecture().to_string(),
            variant: platform.variant().clone(),
        });
        candidates.push(Candidate { descriptor: descriptor.clone(), platform });
        Ok(())
    }

    fn platform_by_config(&self, descriptor: &Descriptor) -> Result<Platform, SourceError> {
        let manifest: ImageManifest = self.json_blob(descriptor)?;
        Ok(platform_of(&self.json_blob(manifest.config())?))
    }

    /// Reads a layer. The verified bytes are the bytes used: they go to the spool once, and nothing
    /// is read from the blob again.
    fn read_layer(
        &self,
        builder: &mut TreeBuilder,
        layer: &Layer,
        diff_id: &Digest,
        spool: &Path,
    ) -> Result<(), SourceError> {
        let (name, shown, blob) = match layer {
            Layer::Described(layer) => {
                let media_type = layer.media_type().as_ref();
                if !media_type.contains("tar") || media_type.contains("encrypted") {
                    let problem = format!("layers of type {media_type} are not supported");
                    return Err(self.error(problem));
                }
                let (blob, name) = self.open_blob(layer)?;
                let blob = Verified::new(blob, layer.digest());
                let blob = blob.map_err(|problem| self.error(problem))?;
                (name, layer.digest().to_string(), Box::new(blob) as Box<dyn Read + Send>)
            }
            Layer::Named(name) => (name.clone(), name.clone(), self.blobs.open(name)?.1),
        };
        let failed = |error| SourceError::io(self.path.join(&name).as_path(), "read", error);
        let name = format!("{}: layer {shown}", self.path.display());
        let in_layer = |flaw| archive_error(&name, None, 0, flaw);
        let (start, blob) = unpack::peek(blob).map_err(failed)?;
        let packing = Packing::of(&start).map_err(in_layer)?;
        let unpacked = unpack::unpacked(packing, blob).map_err(in_layer)?;
        let unpacked = Verified::new(unpacked, diff_id).map_err(|problem| self.error(problem))?;
        let mut input = Input::stream(Box::new(unpacked), spool).map_err(in_layer)?;
        tar::read(builder, &name, &mut input, Flavor::Layer)
    }

    fn digest(&self, text: &str) -> Result<Digest, SourceError> {
        Digest::from_str(text).map_err(|_| self.error(format!("invalid digest '{text}'")))
    }

    /// Opens a blob and compares its size; its bytes and its name.
    fn open_blob(
        &self,
        descriptor: &Descriptor,
    ) -> Result<(Box<dyn Read + Send>, String), SourceError> {
        let digest = self.digest(descriptor.digest().as_ref())?;
        let name = self.blobs.name_of(&digest);
        let (found, file) = self.blobs.open(&name)?;
        let expected = descriptor.size();
        if found != expected {
            let problem =
                format!("blob {digest} has {found} bytes, its descriptor says {expected}");
            return Err(self.error(problem));
        }
        Ok((file, name))
    }

    /// Reads a blob of JSON.
    fn json_blob<T: DeserializeOwned>(&self, descriptor: &Descriptor) -> Result<T, SourceError> {
        let (file, name) = self.open_blob(descriptor)?;
        let blob =
            Verified::new(file, descriptor.digest()).map_err(|problem| self.error(problem))?;
        self.json(blob, &name)
    }

    fn json_file<T: DeserializeOwned>(&self, name: &str) -> Result<T, SourceError> {
        let (_, file) = self.blobs.open(name)?;
        self.json(file, name)
    }

    fn json<T: DeserializeOwned>(&self, reader: impl Read, name: &str) -> Result<T, SourceError> {
        let mut bytes = Vec::new();
        let failed = |error| SourceError::io(self.path.join(name).as_path(), "read", error);
        reader.take(JSON_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > JSON_MAX {
            return Err(self.error(format!("{name} is larger than {JSON_MAX} bytes")));
        }
        serde_json::from_slice(&bytes).map_err(|error| self.error(format!("{name}: {error}")))
    }
}

fn platform_of(config: &ImageConfiguration) -> Platform {
    Platform {
        os: config.os().to_string(),
        architecture: config.architecture().to_string(),
        variant: config.variant().clone(),
    }
}

impl Candidate {
    fn shown(&self) -> String {
        let platform = self.platform.as_ref().map(Platform::to_string);
        let name = reference_of(&self.descriptor).map(str::to_owned);
        let known: Vec<String> = name.into_iter().chain(platform).collect();
        match known.is_empty() {
            true => self.descriptor.digest().to_string(),
            false => known.join(" "),
        }
    }
}

fn reference_of(descriptor: &Descriptor) -> Option<&str> {
    descriptor.annotations().as_ref()?.get(REFERENCE_NAME).map(String::as_str)
}

/// A reader that compares the digest of all its bytes at their end.
struct Verified<R> {
    inner: R,
    hasher: Option<Box<dyn DynDigest + Send>>,
    expected: Digest,
}

impl<R> Verified<R> {
    fn new(inner: R, expected: &Digest) -> Result<Self, String> {
        let hasher: Box<dyn DynDigest + Send> = match expected.algorithm() {
            DigestAlgorithm::Sha256 => Box::new(Sha256::default()),
            DigestAlgorithm::Sha384 => Box::new(Sha384::default()),
            DigestAlgorithm::Sha512 => Box::new(Sha512::default()),
            other => return Err(format!("digests by {other} are not supported")),
        };
        Ok(Self { inner, hasher: Some(hasher), expected: expected.clone() })
    }
}

impl<R: Read> Read for Verified<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        if count > 0 {
            if let Some(hasher) = &mut self.hasher {
                hasher.update(&buffer[..count]);
            }
        } else if !buffer.is_empty()
            && let Some(hasher) = self.hasher.take()
        {
            let computed: String =
                hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
            if computed != self.expected.digest() {
                let expected = &self.expected;
                let problem = format!("digest is {computed}, expected {expected}");
                return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
            }
        }
        Ok(count)
    }
}
