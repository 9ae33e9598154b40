//! Volumes of every row of mkfs-options.tsv, checked by e2fsck, dumpe2fs and the real mke2fs.

mod mkfs_table;

use std::ffi::OsString;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use extant_image::mkfs::{self, Program};
use extant_testkit::{Scratch, dumpe2fs_h, e2fsck_fn, tool};
use mkfs_table::{MACHINE, Row, rows};

/// Drops warnings and prompts.
struct Silent;

impl mkfs::Prompt for Silent {
    fn say(&mut self, _text: &str) {}
    fn warn(&mut self, _text: &str) {}
    fn confirm(&mut self, _question: &str) -> bool {
        false
    }
}

/// Inputs for making a row's volume.
trait Make {
    fn words(&self, image: &Path) -> Vec<OsString>;
    fn environment(&self, corpora: &Path) -> mkfs::Environment;
    fn prepare(&self, image: &Path);
}

impl Make for Row {
    /// The words with the image's path in place of IMAGE, undo files left out.
    fn words(&self, image: &Path) -> Vec<OsString> {
        let mut words = vec![OsString::from("-F")];
        let mut cells = self.cell("opts").split_whitespace();
        while let Some(word) = cells.next() {
            match word {
                "-z" => drop(cells.next()),
                "IMAGE" => words.push(image.into()),
                word => words.push(word.into()),
            }
        }
        words
    }

    /// The environment of the row.
    fn environment(&self, corpora: &Path) -> mkfs::Environment {
        let info = self.device();
        mkfs::Environment {
            schemes: Default::default(),
            config: Some(corpora.join("mkfs-conf").join(self.cell("conf"))),
            logical_sector: Some(info.logical_sector),
            physical_sector: Some(info.physical_sector),
            first_meta_bg: info.first_meta_bg,
            epoch: None,
            fake_time: None,
            undo_dir: None,
        }
    }

    /// Makes the file where the row gives no size.
    fn prepare(&self, image: &Path) {
        let sized = self.cell("opts").split_whitespace().last() != Some("IMAGE");
        if !sized {
            let file = std::fs::File::create(image).expect("a scratch file");
            file.set_len(self.device().size.unwrap_or(0)).expect("a sparse file");
        }
    }
}

/// Names of dumpe2fs -h for the table's columns.
const SHOWN: &[(&str, &str)] = &[
    ("features", "Filesystem features"),
    ("block_size", "Block size"),
    ("blocks", "Block count"),
    ("inodes", "Inode count"),
    ("inode_size", "Inode size"),
    ("first_block", "First block"),
    ("blocks_per_group", "Blocks per group"),
    ("clusters_per_group", "Clusters per group"),
    ("cluster_size", "Cluster size"),
    ("inodes_per_group", "Inodes per group"),
    ("desc_size", "Group descriptor size"),
    ("reserved_gdt", "Reserved GDT blocks"),
    ("flex_bg_size", "Flex block group size"),
    ("reserved_blocks", "Reserved block count"),
    ("overhead", "Overhead clusters"),
    ("free_blocks", "Free blocks"),
    ("free_inodes", "Free inodes"),
    ("first_inode", "First inode"),
    ("journal_inode", "Journal inode"),
    ("journal_blocks", "Total journal blocks"),
    ("journal_size", "Total journal size"),
    ("journal_features", "Journal features"),
    ("first_meta_bg", "First meta block group"),
    ("raid_stride", "RAID stride"),
    ("raid_stripe", "RAID stripe width"),
    ("hash", "Default directory hash"),
    ("checksum_type", "Checksum type"),
    ("errors", "Errors behavior"),
    ("mount_opts", "Default mount options"),
    ("fs_flags", "Filesystem flags"),
    ("revision", "Filesystem revision #"),
];

/// Columns that the suite's files change.
const POPULATED: [&str; 2] = ["free_blocks", "free_inodes"];

/// Made, checked and compared; what deviates.
fn check(row: &Row, image: &Path, corpora: &Path) -> Vec<String> {
    row.prepare(image);
    let words = row.words(image);
    let made = mkfs::Options::parse(words).and_then(|options| {
        mkfs::run(Program::Mke2fs, options, &row.environment(corpora), &mut Silent)
    });
    if let Err(error) = made {
        return vec![format!("not made: {error}")];
    }
    let mut deviations = Vec::new();
    if row.cell("block_size") == "-" {
        return deviations;
    }
    if !row.cell("features").contains("journal_dev")
        && let Err(said) = e2fsck_fn(image)
    {
        deviations.push(format!("e2fsck: {said}"));
    }
    let shown = match dumpe2fs_h(image) {
        Ok(shown) => shown,
        Err(said) => return vec![format!("dumpe2fs: {said}")],
    };
    let populated = row.cell("note").starts_with("populated");
    for (column, name) in SHOWN {
        let found = shown.get(*name).map_or("-", String::as_str);
        let expected = row.cell(column);
        if found != expected && !(populated && POPULATED.contains(column)) {
            deviations.push(format!("{name}: {found}, mke2fs has {expected}"));
        }
    }
    deviations
}

/// Runs a check of all rows on all processors.
fn check_all(
    rows: &[Row],
    corpora: &Path,
    check: impl Fn(&Row, &Path, &Path) -> Vec<String> + Sync,
) -> Vec<String> {
    let (next, all) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(row) = rows.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let scratch = Scratch::new();
                    let found = check(row, &scratch.join("disk.img"), corpora);
                    let head = format!("{} {}", row.cell("conf"), row.cell("opts"));
                    let mut all = all.lock().expect("no judge panics with the lock");
                    all.extend(found.into_iter().map(|what| format!("{head}: {what}")));
                }
            });
        }
    });
    all.into_inner().expect("no judge panics with the lock")
}

/// Rows that were made, small enough for a file here and for e2fsck's patience.
fn made_rows(corpora: &Path, largest: u64) -> Vec<Row> {
    let mut rows = rows(corpora);
    rows.retain(|row| {
        let bytes = row.number("blocks").unwrap_or(0) * row.number("block_size").unwrap_or(0);
        row.cell("exit") == "0" && bytes <= largest && !MACHINE.contains(&row.cell("opts"))
    });
    rows
}

#[test]
fn volumes_of_every_row_are_clean_and_as_mke2fs_has_them() {
    let Some(corpora) = extant_testkit::corpora() else {
        return extant_testkit::skipped("no corpora");
    };
    if tool("e2fsck").is_none() || tool("dumpe2fs").is_none() {
        return extant_testkit::skipped("e2fsprogs is not installed");
    }
    const LARGEST: u64 = 200 << 30;
    let rows = made_rows(&corpora, LARGEST);
    let deviations = check_all(&rows, &corpora, check);
    assert!(deviations.is_empty(), "{} deviations\n{}", deviations.len(), deviations.join("\n"));
    assert!(rows.len() > 290, "only {} rows", rows.len());
}

/// dumpe2fs's list of groups, without checksums (they hang on the UUID) and without the mark of
/// cleared tables (which mke2fs sets only for files that were there before).
fn group_list(image: &Path) -> Result<Vec<String>, String> {
    let text = tool("dumpe2fs").expect("looked for before").text([image])?;
    let groups = text.lines().skip_while(|line| !line.starts_with("Group 0:"));
    Ok(groups
        .map(|line| {
            let line = line.split(", csum ").next().unwrap_or_default();
            let mut words: Vec<&str> = line.split(' ').collect();
            if let Some(at) = words.iter().position(|word| *word == "csum") {
                words.drain(at..at + 2);
            }
            words.join(" ").replace(", ITABLE_ZEROED]", "]").replace(" [ITABLE_ZEROED]", "")
        })
        .collect())
}

/// Deviations from the list of the installed mke2fs. If that one refuses, or knows other features
/// than 1.47.4, there is nothing to compare.
fn check_groups(row: &Row, image: &Path, corpora: &Path) -> Option<Vec<String>> {
    let theirs = image.with_extension("theirs");
    row.prepare(image);
    row.prepare(&theirs);
    let environment = row.environment(corpora);
    let mut command = tool("mke2fs").expect("looked for before").command();
    command
        .args(row.words(&theirs))
        .env("MKE2FS_CONFIG", environment.config.as_ref().expect("set"));
    command.env("MKE2FS_DEVICE_SECTSIZE", environment.logical_sector.unwrap_or(512).to_string());
    let physical = environment.physical_sector.unwrap_or(512).to_string();
    command.env("MKE2FS_DEVICE_PHYS_SECTSIZE", physical);
    if let Some(group) = environment.first_meta_bg {
        command.env("MKE2FS_FIRST_META_BG", group.to_string());
    }
    let made = command.output().expect("mke2fs can be started");
    if !made.status.success() || row.cell("block_size") == "-" {
        return None;
    }
    let made = mkfs::Options::parse(row.words(image))
        .and_then(|options| mkfs::run(Program::Mke2fs, options, &environment, &mut Silent));
    if let Err(error) = made {
        return Some(vec![format!("not made: {error}")]);
    }
    let shown = |image: &Path| {
        let same = ["Filesystem features", "Free blocks", "Free inodes"];
        dumpe2fs_h(image).map(|shown| same.map(|name| shown[name].clone()))
    };
    if shown(image) != shown(&theirs) {
        return None;
    }
    match (group_list(image), group_list(&theirs)) {
        (Ok(ours), Ok(theirs)) => {
            let pairs = ours.iter().zip(&theirs).filter(|(ours, theirs)| ours != theirs);
            let mut deviations: Vec<String> = pairs
                .take(4)
                .map(|(ours, theirs)| format!("\n  ours   {ours}\n  mke2fs {theirs}"))
                .collect();
            if ours.len() != theirs.len() {
                deviations.push(format!("{} lines, mke2fs {}", ours.len(), theirs.len()));
            }
            Some(deviations)
        }
        (ours, theirs) => Some(vec![format!("{:?} {:?}", ours.err(), theirs.err())]),
    }
}

#[test]
fn groups_of_every_row_lie_where_mke2fs_puts_them() {
    let Some(corpora) = extant_testkit::corpora() else {
        return extant_testkit::skipped("no corpora");
    };
    if tool("mke2fs").is_none() || tool("dumpe2fs").is_none() {
        return extant_testkit::skipped("e2fsprogs is not installed");
    }
    const LARGEST: u64 = 16 << 30;
    let mut rows = made_rows(&corpora, LARGEST);
    // Huge files are laid out in another order: their directory comes first.
    rows.retain(|row| !row.cell("opts").contains("ext4h") && !row.cell("opts").contains("ext4m"));
    let compared = AtomicUsize::new(0);
    let check = |row: &Row, image: &Path, corpora: &Path| {
        let deviations = check_groups(row, image, corpora);
        compared.fetch_add(usize::from(deviations.is_some()), Ordering::Relaxed);
        deviations.unwrap_or_default()
    };
    let deviations = check_all(&rows, &corpora, check);
    println!("{} of {} rows compared", compared.load(Ordering::Relaxed), rows.len());
    assert!(deviations.is_empty(), "{} deviations\n{}", deviations.len(), deviations.join("\n"));
}

/// With packed_meta_blocks the rows of bitmaps and tables go around the superblocks and descriptors
/// of other groups.
#[test]
fn packed_tables_lie_where_mke2fs_puts_them() {
    let Some(mke2fs) = tool("mke2fs").filter(|_| tool("dumpe2fs").is_some()) else {
        return extant_testkit::skipped("e2fsprogs is not installed");
    };
    let packed = "-t ext4 -b 1024 -g 256 -E packed_meta_blocks=1,lazy_itable_init=1";
    let sets = ["", "-G 256", "-O meta_bg,^resize_inode", "-O meta_bg,^resize_inode,^sparse_super"];
    let scratch = Scratch::new();
    let (ours, theirs) = (scratch.join("ours"), scratch.join("theirs"));
    let built_in = scratch.join("no.conf");
    for set in sets {
        let words = |image: &Path| -> Vec<OsString> {
            let options = ["-q", "-F"].into_iter().chain(packed.split(' '));
            let options = options.chain(set.split_whitespace()).map(OsString::from);
            options.chain([image.into(), "64M".into()]).collect()
        };
        // The defaults of mke2fs 1.47.0 without a configuration differ from those of 1.47.4.
        let same = ["-O".into(), "has_journal,metadata_csum,64bit,flex_bg,^orphan_file".into()];
        let mut command = mke2fs.command();
        command.args(&same).args(words(&theirs)).env("MKE2FS_CONFIG", &built_in);
        assert!(command.output().expect("mke2fs can be started").status.success(), "{set}");
        let environment =
            mkfs::Environment { config: Some(built_in.clone()), ..Default::default() };
        let words = same.into_iter().chain(words(&ours));
        let options = mkfs::Options::parse(words).unwrap();
        mkfs::run(Program::Mke2fs, options, &environment, &mut Silent).unwrap();
        assert_eq!(group_list(&ours), group_list(&theirs), "{set}");
        assert_eq!(e2fsck_fn(&ours), Ok(()), "{set}");
        std::fs::remove_file(&ours).unwrap();
        std::fs::remove_file(&theirs).unwrap();
    }
}
