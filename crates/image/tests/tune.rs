//! Tune, and a power cut or a failure of the device while its changes are written.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use extant_device::{Device, MemoryDevice};
use extant_image::mkfs::Prompt;
use extant_image::tune::{self, Request, TuneError};
use extant_journal::{Finish, JournalError, recover_volume};
use extant_runtime::env::Env;
use extant_sim::{Effect, Fault, FaultyDevice, Recorder, Sweep};
use extant_testkit::{
    LoopDevice, Scratch, TempImage, debugfs, dumpe2fs_h, is_root, mke2fs, skip, tool,
};

const SIZE: usize = 8 << 20;
/// Seconds since 1970; after the check of the volume.
const NOW: u64 = 1_700_000_000;

struct Silent;

impl Prompt for Silent {
    fn say(&mut self, _: &str) {}
    fn warn(&mut self, _: &str) {}
    fn confirm(&mut self, _: &str) -> bool {
        false
    }
}

fn tuned(
    device: &Arc<dyn Device>,
    journal: Option<&dyn Device>,
    change: &str,
) -> Result<(), TuneError> {
    let mut request = Request::default();
    for word in change.split(' ') {
        let (letter, value) = word.split_at(1);
        request.set(letter.chars().next().unwrap(), value.as_ref(), NOW)?;
    }
    tune::run(device, journal, &Env::threads(), &request, NOW, &mut Silent)
}

fn bytes_of(device: &dyn Device) -> Vec<u8> {
    let mut bytes = vec![0; SIZE];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

/// Options of mke2fs, and changes of more than one block, as letters of tune2fs with their values.
const ROWS: [(&[&str], &[&str]); 6] = [
    (
        &[],
        &[
            "O^metadata_csum",
            "Ometadata_csum_seed,quota",
            "Oproject,quota",
            "Oorphan_file",
            "O^dir_index",
            OTHER_UUID,
            "O^has_journal",
        ],
    ),
    (&["-O", "quota,project"], &["O^quota", "O^project"]),
    (
        &["-O", "^has_journal"],
        &["O^metadata_csum", "Oproject,quota", "O^dir_index", OTHER_UUID, "Ohas_journal"],
    ),
    (&["-O", "^has_journal,quota"], &["O^quota"]),
    (&["-O", "^has_journal,^metadata_csum,uninit_bg"], &["O^uninit_bg", "Ometadata_csum"]),
    (&["-O", "^has_journal,^extent,^64bit,^metadata_csum"], &["Oquota", "O^dir_index"]),
];

const OTHER_UUID: &str = "U00112233-4455-6677-8899-aabbccddeeff";

fn is_slow() -> bool {
    std::env::var_os("EXTANT_SLOW").is_some()
}

/// A volume with an indexed directory, a linear one, attributes and files of other owners.
/// `journal` is the file of its external journal.
fn volume(options: &[&str], journal: Option<&Path>) -> Result<Vec<u8>, String> {
    let tree = Scratch::new();
    let names = tree.path().join("many");
    std::fs::create_dir_all(&names).map_err(|error| error.to_string())?;
    for at in 0..150 {
        let name = format!("a-rather-long-name-for-a-file-{at}");
        std::fs::write(names.join(name), [b'x'; 40]).map_err(|error| error.to_string())?;
    }
    std::fs::write(tree.path().join("large"), vec![7; 90_000])
        .map_err(|error| error.to_string())?;
    let root = tree.path().to_string_lossy().into_owned();
    let mut args = vec!["-t", "ext4", "-b", "1024", "-d", &root];
    args.extend(options);
    let image = TempImage::by_mke2fs(SIZE as u64, &args)?;
    // The directory gets an index.
    repaired(&image.path(), journal, "-fyD")?;
    std::fs::read(image.path()).map_err(|error| error.to_string())
}

/// Runs e2fsck, which must end with 0 or 1.
fn repaired(image: &Path, journal: Option<&Path>, option: &str) -> Result<(), String> {
    match run_e2fsck(image, journal, option)? {
        (Some(0 | 1), _) => Ok(()),
        (code, text) => Err(format!("e2fsck {option}: {code:?}: {text}")),
    }
}

/// The exit status of e2fsck and what it prints.
fn run_e2fsck(
    image: &Path,
    journal: Option<&Path>,
    option: &str,
) -> Result<(Option<i32>, String), String> {
    let e2fsck = tool("e2fsck").ok_or("e2fsck is not installed")?;
    let mut command = e2fsck.command_within(60);
    command.arg(option).arg(image);
    if let Some(journal) = journal {
        command.arg("-j").arg(journal);
    }
    let output = command.output().map_err(|error| error.to_string())?;
    Ok((output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned()))
}

/// Facts of a sound volume that a change makes or leaves.
fn facts(image: &Path, journal: Option<&Path>) -> Result<BTreeMap<String, String>, String> {
    match run_e2fsck(image, journal, "-fn")? {
        (Some(0), _) => {}
        (code, text) => return Err(format!("{code:?}: {text}")),
    }
    let mut facts = dumpe2fs_h(image)?;
    let kept = |name: &str| {
        name == "Filesystem features"
            || name == "Filesystem UUID"
            || name == "Inode count"
            || name == "Free inodes"
            || name == "Free blocks"
            || name.ends_with("quota inode")
    };
    facts.retain(|name, _| kept(name));
    if let Some(features) = facts.get_mut("Filesystem features") {
        // The pair has no order.
        let mut words: Vec<_> = features.split_whitespace().collect();
        words.sort_unstable();
        *features = words.join(" ");
    }
    for directory in ["/", "/many", "/lost+found"] {
        let listed = debugfs(image, &format!("ls -p {directory}"))?;
        let mut names: Vec<_> = listed.lines().map(str::trim).collect();
        // Directories that are packed again have another order.
        names.sort_unstable();
        facts.insert(directory.to_owned(), names.join("\n"));
    }
    Ok(facts)
}

fn opened(journal: &Path) -> MemoryDevice {
    MemoryDevice::from_bytes(&std::fs::read(journal).unwrap())
}

fn image_of(bytes: &[u8]) -> TempImage {
    let image = TempImage::of_size(SIZE as u64).unwrap();
    std::fs::write(image.path(), bytes).unwrap();
    image
}

/// The facts of an image as a power cut left it, after a repair: by e2fsck alone, or after another
/// replay of its journal.
fn facts_after_repair(
    bytes: &[u8],
    is_replayed: bool,
    journal: Option<&Path>,
) -> Result<BTreeMap<String, String>, String> {
    let mut bytes = bytes.to_vec();
    if is_replayed {
        let device = MemoryDevice::from_bytes(&bytes);
        let journal = journal.map(opened);
        let journal = journal.as_ref().map(|device| device as &dyn Device);
        recover_volume(&device, journal, Finish::Reset).map_err(|error| error.to_string())?;
        bytes = bytes_of(&device);
    }
    let image = image_of(&bytes);
    repaired(&image.path(), journal, "-p")?;
    facts(&image.path(), journal)
}

/// Numbers of volumes that were found after cuts.
#[derive(Default)]
struct Outcomes {
    old: usize,
    new: usize,
}

impl Outcomes {
    /// Makes the changes to a volume, each by itself, and repairs what power cuts leave of it: it
    /// must be as it was, or have all of the change.
    fn sweep(&mut self, before: &[u8], changes: &[&str], journal: Option<&Path>) {
        let old = facts(&image_of(before).path(), journal).unwrap();
        let device_of_journal = journal.map(opened);
        for change in changes {
            let recorder = Arc::new(Recorder::new(Arc::new(MemoryDevice::from_bytes(before))));
            let device: Arc<dyn Device> = recorder.clone();
            let journal_device = device_of_journal.as_ref().map(|device| device as &dyn Device);
            tuned(&device, journal_device, change).unwrap();
            let new = facts(&image_of(&bytes_of(&*device)).path(), journal).unwrap();
            assert!(old != new, "{change}");
            // A superblock torn between its two sectors has no valid checksum.
            let whole = Sweep { torn: 0, ..Sweep::seeded(1) };
            let sweep = match is_slow() {
                true => whole,
                false => Sweep { prefixes: 1, subsets: 1, ..whole },
            };
            for (at, cut) in recorder.cuts(sweep).enumerate() {
                let bytes = bytes_of(&cut.image);
                let found = facts_after_repair(&bytes, at % 3 == 2, journal)
                    .unwrap_or_else(|why| panic!("{change}: {cut}: {why}"));
                let is_old = found == old;
                self.old += usize::from(is_old);
                self.new += usize::from(!is_old);
                assert!(is_old || found == new, "{change}: {cut}: {found:#?}");
            }
        }
    }
}

/// After a power cut at any write e2fsck -p repairs the volume: it is as it was, or it has all
/// changes.
#[test]
fn a_power_cut_leaves_the_old_volume_or_the_new_one() {
    let mut found = Outcomes::default();
    for (options, changes) in ROWS {
        println!("{options:?}");
        match volume(options, None) {
            Ok(before) => found.sweep(&before, changes, None),
            Err(why) => skip!("{why}"),
        }
    }
    assert!(found.old > 20 && found.new > 20, "{} old, {} new", found.old, found.new);
}

/// The same of a volume whose journal is on another device, which a change of features does not
/// write.
#[test]
fn a_power_cut_leaves_the_old_volume_with_an_external_journal_or_the_new_one() {
    if !is_root() {
        skip!("loop devices need root");
    }
    let scratch = Scratch::new();
    let file = scratch.join("journal");
    let name = file.to_str().expect("scratch paths are UTF-8");
    let made = mke2fs(["-q", "-F", "-b", "1024", "-O", "journal_dev", name, "2M"]);
    let before = made.and_then(|_| LoopDevice::new(&file)).and_then(|device| {
        volume(&["-J", &format!("device={}", device.path().display())], Some(&file))
    });
    let before = match before {
        Ok(before) => before,
        Err(why) => skip!("{why}"),
    };
    let journal = std::fs::read(&file).unwrap();
    let changes = ["O^metadata_csum", "Ometadata_csum_seed,quota", "Oproject,quota", "O^dir_index"];
    let mut found = Outcomes::default();
    found.sweep(&before, &changes, Some(&file));
    assert!(found.old > 10 && found.new > 10, "{} old, {} new", found.old, found.new);
    assert!(journal == std::fs::read(&file).unwrap(), "the journal is written");
}

/// The same after a write that fails; one that cannot be read while the change is prepared leaves
/// the volume as it was.
#[test]
fn a_failed_write_leaves_the_old_volume_or_the_new_one() {
    for (options, changes) in &ROWS[..3] {
        let before = match volume(options, None) {
            Ok(before) => before,
            Err(why) => skip!("{why}"),
        };
        let old = facts(&image_of(&before).path(), None).unwrap();
        for change in *changes {
            let base: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(&before));
            tuned(&base, None, change).unwrap();
            let new = facts(&image_of(&bytes_of(&*base)).path(), None).unwrap();
            for passes in [0, 2, 5] {
                let base = Arc::new(MemoryDevice::from_bytes(&before));
                let faulty = Arc::new(FaultyDevice::new(base.clone()));
                let device: Arc<dyn Device> = faulty.clone();
                let fault = Fault::new(Effect::Error(std::io::ErrorKind::Other))
                    .on(extant_device::Operation::Write);
                faulty.inject(fault.after(passes));
                let outcome = tuned(&device, None, change);
                if faulty.faults_met() == 0 {
                    assert!(outcome.is_ok() && passes > 2, "{change}: {passes}: {outcome:?}");
                    continue;
                }
                let error = outcome.unwrap_err();
                let is_of_device = matches!(
                    error,
                    TuneError::Device(_) | TuneError::Journal(JournalError::Device(_))
                );
                assert!(is_of_device, "{change}: {error}");
                let found = facts_after_repair(&bytes_of(&*base), false, None)
                    .unwrap_or_else(|why| panic!("{options:?}: {change}: {passes}: {why}"));
                assert!(found == old || found == new, "{change}: {passes}: {found:#?}");
            }
        }
    }
}
