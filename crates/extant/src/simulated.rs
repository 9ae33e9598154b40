//! The scheme `model:NAME:PATH`: a simulated drive with the contents of PATH.
//!
//! `sim` knows drives and no names of images, `storage` knows names and no drives: this is what
//! stands between them.

use std::path::Path;
use std::sync::Arc;

use extant_device::{Device, Direct, FileDevice, FileDeviceOptions};
use extant_runtime::sync::Mutex;
use extant_sim::model::{ModelDevice, ModelOptions, PatternFile, PatternFileError, Preset};
use extant_storage::{Backend, BackendUrl, Location, OpenBackend, Opened, UrlError, UrlOptions};

/// The scheme.
#[derive(Debug)]
pub(crate) struct Model;

/// A drive as a URL names it.
#[derive(Debug)]
struct Drive {
    preset: &'static Preset,
    options: ModelOptions,
}

/// Its image, opened.
#[derive(Debug)]
struct Image {
    preset: &'static Preset,
    options: ModelOptions,
    file: Arc<FileDevice>,
    /// The file next to the image; taken by the device.
    words: Mutex<Option<PatternFile>>,
}

impl Backend for Model {
    fn scheme(&self) -> &'static str {
        "model:"
    }

    fn location(&self) -> Location {
        Location::NamedFile
    }

    fn knows(&self, name: &str) -> bool {
        Preset::named(name).is_some()
    }

    fn name_is_missing(&self) -> String {
        format!("model:NAME:PATH: unknown drive (expected {})", Preset::names())
    }

    fn comes_last(&self) -> &'static str {
        "model: must be the innermost layer (for example crypt:model:hdd7200:A)"
    }

    fn options(&self) -> &'static str {
        "seed=N, memory=SIZE, processors=N"
    }

    fn read(&self, name: &str, given: &mut UrlOptions<'_>) -> Result<Arc<dyn BackendUrl>, String> {
        let preset = Preset::named(name).ok_or_else(|| self.name_is_missing())?;
        Ok(Arc::new(Drive { preset, options: options(given)? }))
    }
}

fn options(given: &mut UrlOptions<'_>) -> Result<ModelOptions, String> {
    let mut options = ModelOptions::default();
    if let Some(seed) = given.number("seed")? {
        options.seed = seed;
    }
    if let Some(memory) = given.bytes("memory")? {
        options.memory = memory;
    }
    if let Some(processors) = given.number("processors")? {
        let problem = "`processors` is 1 to 1024";
        options.processors =
            Some(processors).filter(|count| (1..=1024).contains(count)).ok_or(problem)?;
    }
    Ok(options)
}

fn failed(error: PatternFileError) -> UrlError {
    UrlError::Backend(Box::new(error))
}

impl BackendUrl for Drive {
    fn is_simulated(&self) -> bool {
        true
    }

    fn open(
        &self,
        path: &Path,
        options: &FileDeviceOptions,
    ) -> Result<Arc<dyn OpenBackend>, UrlError> {
        let words = ModelDevice::open_pattern_file(path, options.writes()).map_err(failed)?;
        // Memory of a simulated drive is a page cache of its own.
        let file = Arc::new(options.clone().direct(Direct::Off).open(path)?);
        let (preset, options) = (self.preset, self.options.clone());
        Ok(Arc::new(Image { preset, options, file, words: Mutex::new(words) }))
    }
}

impl OpenBackend for Image {
    fn files(&self) -> Vec<Arc<FileDevice>> {
        vec![self.file.clone()]
    }

    fn device(&self) -> Result<Opened, UrlError> {
        let words = self.words.lock().take();
        let drive = ModelDevice::new(self.preset, self.file.clone(), words, &self.options);
        let drive = Arc::new(drive.map_err(failed)?);
        let (device, env): (Arc<dyn Device>, _) = (drive.clone(), drive.env().clone());
        Ok(Opened::simulated(device, env, move || drive.finish()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schemes;
    use extant_storage::{Access, DeviceUrl, HostFile, open};
    use std::ffi::OsStr;

    fn stat_host(path: &Path) -> HostFile {
        if path == Path::new("d.img") { HostFile::Device } else { HostFile::Nothing }
    }

    fn device(text: &str) -> Result<DeviceUrl, String> {
        let read = DeviceUrl::parse(OsStr::new(text), schemes(), stat_host);
        read.map_err(|error| error.to_string())
    }

    #[cfg(feature = "crypt")]
    #[test]
    fn a_simulated_drive_is_named_before_its_image() {
        use extant_storage::PathTarget;

        let plain = device("model:hdd7200:d.img").expect("a drive");
        assert_eq!(plain.path(), Path::new("d.img"));
        assert!(plain.is_simulated() && plain.is_part() && !plain.is_whole());
        assert_ne!(device("model:nvme:d.img").expect("a drive"), plain);
        assert_eq!(
            PathTarget::parse(OsStr::new("model:hdd7200:d.img:/etc"), schemes(), stat_host)
                .expect("a file"),
            PathTarget::Inside { image: plain, path: "/etc".into() }
        );
        let text = "crypt:model:nvme:d.img#p1?key-file=k&seed=7&memory=3M&processors=4";
        let stacked = device(text).expect("a drive below a layer");
        assert_eq!((stacked.layers.len(), stacked.parts[0].partition), (2, Some(1)));
        let other = "crypt:model:nvme:d.img#p1?key-file=k&memory=3M&processors=4&seed=7";
        assert_eq!(device(other).expect("the same"), stacked);
        assert_ne!(device(&text.replace("seed=7", "seed=8")).expect("another"), stacked);
        let problem = |text: &str| device(text).expect_err(text);
        let names = "hdd7200, hdd7200-2005, ssd-sata, nvme";
        for text in ["model:tape:d.img", "model:hdd7200", "model:d.img"] {
            let expected = format!("{text}: model:NAME:PATH: unknown drive (expected {names})");
            assert_eq!(problem(text), expected);
        }
        assert_eq!(
            problem("model:nvme:crypt:d.img"),
            "model:nvme:crypt:d.img: model: must be the innermost layer (for example crypt:model:hdd7200:A)"
        );
        assert_eq!(
            problem("model:nvme:model:nvme:d.img"),
            "model:nvme:model:nvme:d.img: model: given more than once"
        );
        assert_eq!(
            problem("model:nvme:d.img?processors=0"),
            "model:nvme:d.img?processors=0: `processors` is 1 to 1024"
        );
        assert_eq!(
            problem("model:nvme:d.img?speed=2"),
            "model:nvme:d.img?speed=2: unknown option `speed` (expected offset=N, size=N, seed=N, memory=SIZE, processors=N)"
        );
    }

    #[test]
    fn options_of_a_drive_are_read() {
        for (text, expected) in [
            ("model:nvme:d.img", "seed: 1, memory: 1073741824, processors: 2"),
            (
                "model:nvme:d.img?seed=7&memory=3M&processors=4",
                "seed: 7, memory: 3145728, processors: 4",
            ),
        ] {
            let url = device(text).expect("a drive");
            let shown = format!("{:?}", url.layers[0]);
            assert!(shown.contains("nvme") && shown.contains(expected), "{shown}");
        }
    }

    #[test]
    fn an_opened_drive_runs_on_its_clock_and_keeps_what_is_written() {
        let scratch = extant_testkit::Scratch::new();
        let path = scratch.join("d.img");
        FileDevice::create_new(&path, 1 << 20).expect("an image");
        let url = format!("model:hdd7200:{}?offset=64k", path.display());
        let options = FileDeviceOptions::default();
        let opened = open(&url, schemes(), Access::ReadWrite, &options).expect("a drive");
        assert!(opened.is_simulated() && opened.env.is_stepped());
        opened.device.write_at(4096, b"kept").expect("written");
        assert!(!opened.env.elapsed().is_zero());
        opened.finish().expect("the image is written");
        let bytes = std::fs::read(&path).expect("the image");
        assert_eq!(&bytes[(64 << 10) + 4096..][..4], b"kept");
    }
}
