//! Damaged images of known kinds: repaired, e2fsck finds nothing more, and the tree is the one that
//! e2fsck makes of them.

mod common;

use common::{Walker, findings, fsck, open, tree_sha};
use extant_check::{AutoPolicy, Store};
use extant_testkit::{TempImage, corpora, e2fsck_fn, skip};
use std::path::Path;

/// Where our tree is another, and as good.
const OTHER_CHOICES: &[(&str, &str)] = &[
    ("f_badsymlinks2", "libext2fs could not read inline targets that are read here"),
    ("f_idata_and_extents", "libext2fs could not read inline files that are read here"),
    ("f_inlinedata_repair", "libext2fs could not read inline targets that are read here"),
    (
        "f_dup_de",
        "three entries of one name and one inode become one, not one and another of a new name",
    ),
    (
        "f_dupsuper",
        "the file's copy of the superblock was made after the volume was marked as not clean",
    ),
    ("f_dir_bad_csum", "the log still holds a directory's block, and its file keeps its name"),
    ("f_ind_inode_collision", "a file whose map lies on metadata keeps its name"),
    ("f_lotsbad", "a file keeps its direct blocks next to an invalid indirect block"),
    ("f_write_ea_no_extra_isize", "a directory without a block gets one and keeps its name"),
    (
        "f_write_ea_toosmall_extra_isize",
        "the directory in the inode is found once the extra size is repaired, and kept",
    ),
];

/// A row of expected.tsv.
struct Row {
    case: String,
    options: String,
    exit_y: String,
    exit_n: String,
    tree_sha: String,
    /// Findings of this machine's e2fsck on volumes that e2fsck 1.47.4 repaired.
    deb_n: String,
}

fn rows(corpus: &Path) -> Vec<Row> {
    let text =
        std::fs::read_to_string(corpus.join("expected.tsv")).expect("the corpus has its table");
    let mut lines = text.lines();
    let columns: Vec<&str> = lines.next().expect("a line of column names").split('\t').collect();
    let at =
        |name: &str| columns.iter().position(|column| *column == name).expect("a known column");
    let (case, options, exit_n, exit_y, tree, deb_n) =
        (at("case"), at("opts"), at("exit_n"), at("exit_y1"), at("tree_sha"), at("deb_n"));
    lines
        .map(|line| {
            let cells: Vec<&str> = line.split('\t').collect();
            Row {
                case: cells[case].into(),
                options: cells[options].into(),
                exit_n: cells[exit_n].into(),
                exit_y: cells[exit_y].into(),
                tree_sha: cells[tree].into(),
                deb_n: cells[deb_n].into(),
            }
        })
        .collect()
}

#[test]
fn images_of_the_corpus_are_repaired() {
    let Some(corpus) = corpora().map(|corpora| corpora.join("fsck-images")) else {
        skip!("no corpora here");
    };
    let only = std::env::var("EXTANT_CASE").ok();
    let mut wrong = Vec::new();
    let (mut repaired, mut same, mut unopened) = (0, 0, 0);
    for row in rows(&corpus) {
        if only.as_ref().is_some_and(|only| *only != row.case) {
            continue;
        }
        let image =
            TempImage::gunzipped(&corpus.join(format!("{}.img.gz", row.case))).expect("unpacks");
        let before = match fsck(&image.path(), &common::options(), AutoPolicy::No) {
            Ok(report) => report,
            Err(error) => {
                unopened += 1;
                if only.is_some() {
                    println!("{}: {error}", row.case);
                }
                continue;
            }
        };
        let is_healthy = row.exit_y == "0" && row.exit_n == "0" && row.options == "-";
        if is_healthy && before.errors_left {
            wrong.push(format!("{}: healthy, but found\n{}", row.case, findings(&before)));
        }
        let options = extant_check::CheckOptions {
            optimize_directories: row.options.contains("-D"),
            unshare_blocks: row.options.contains("unshare_blocks"),
            bmap_to_extent: row.options.contains("bmap2extent"),
            ..common::options()
        };
        let report = match fsck(&image.path(), &options, AutoPolicy::Yes) {
            Ok(report) => report,
            Err(error) => {
                wrong.push(format!("{}: {error}", row.case));
                continue;
            }
        };
        let after = fsck(&image.path(), &common::options(), AutoPolicy::No).expect("still opens");
        let mut flaws = Vec::new();
        if after.errors_left && row.exit_y != "4" {
            flaws.push(format!("left:\n{}", findings(&after)));
        }
        if row.deb_n != "0" {
            // Not silent even on what e2fsck itself repaired.
        } else if let Err(said) = e2fsck_fn(&image.path()) {
            flaws.push(format!("e2fsck says:\n{said}"));
        } else {
            repaired += 1;
        }
        let store = Store::open(open(&image.path(), false)).expect("opens");
        let tree = Walker::tree(&store);
        if tree_sha(&tree) == row.tree_sha {
            same += 1;
        } else if row.tree_sha != "-" && !OTHER_CHOICES.iter().any(|(case, _)| *case == row.case) {
            let expected = std::fs::read_to_string(corpus.join(format!("trees/{}.tree", row.case)))
                .unwrap_or_default();
            flaws.push(format!("tree differs:\n{}", differences(&expected, &tree)));
        }
        if !flaws.is_empty() || only.is_some() {
            let first = row.case.clone();
            wrong.push(format!("==== {first}\n{}\ndone:\n{}", flaws.join("\n"), findings(&report)));
        }
    }
    println!("{repaired} silent, {same} same trees, {unopened} not opened");
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

fn differences(expected: &str, found: &str) -> String {
    let cut = |text: &str| -> std::collections::BTreeSet<String> {
        text.lines().map(|line| line.split('\t').take(4).collect::<Vec<_>>().join(" ")).collect()
    };
    let (expected, found) = (cut(expected), cut(found));
    let mut text = String::new();
    for line in expected.difference(&found).take(10) {
        text += &format!("  - {line}\n");
    }
    for line in found.difference(&expected).take(10) {
        text += &format!("  + {line}\n");
    }
    text
}
