//! `stats`, `features`, `params` and the like: the volume as a whole.

use extant::inspect::Described;
use extant::rooms::ondisk::group_desc::GroupFlags;
use extant::rooms::ondisk::jbd2::{JournalCompat, JournalIncompat};
use extant::rooms::ondisk::{CompatFeatures, Features, IncompatFeatures, RoCompatFeatures};

use super::options::Options;
use super::shell::{Done, Refusal, Shell, refuse};
use super::words::{Word, text};
use crate::commands::info;

pub(super) fn stats(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let usage = "stats: Usage: show_super_stats [-h]";
    let options = Options::read(words, "h", usage)?;
    if !options.operands.is_empty() {
        return Err(Refusal::Line(usage.to_owned()));
    }
    let image = shell.image(words)?;
    let view = image.view();
    let geometry = image.volume.geometry().clone();
    let mut text = info::superblock_lines(&view).join("\n");
    let described: Vec<Described> = view
        .descriptors(&geometry)
        .collect::<Result<_, _>>()
        .map_err(|error| refuse(words, error))?;
    let directories: u64 = described.iter().map(|it| u64::from(it.desc.used_dirs)).sum();
    text += &format!("\n{:<26}{directories}\n", "Directories:");
    if options.has('h') {
        return shell.print(text);
    }
    let has_flags = geometry.has_uninit_groups();
    let is_bigalloc = geometry.has_ro_compat(RoCompatFeatures::BIGALLOC);
    for it in &described {
        text += &group(it, has_flags, is_bigalloc);
    }
    shell.print(text)
}

fn group(it: &Described, has_flags: bool, is_bigalloc: bool) -> String {
    let desc = &it.desc;
    let mut text = format!(
        " Group {:>2}: block bitmap at {}, inode bitmap at {}, inode table at {}\n",
        it.group.0, desc.block_bitmap, desc.inode_bitmap, desc.inode_table
    );
    let plural = |count: u32, one: &str, many: &str| match count {
        1 => format!("{count} {one}"),
        _ => format!("{count} {many}"),
    };
    text += &format!(
        "           {}, {}, {}",
        match is_bigalloc {
            true => plural(desc.free_clusters, "free cluster", "free clusters"),
            false => plural(desc.free_clusters, "free block", "free blocks"),
        },
        plural(desc.free_inodes, "free inode", "free inodes"),
        plural(desc.used_dirs, "used directory", "used directories"),
    );
    if !has_flags {
        return text + "\n";
    }
    text += ", ";
    text += &plural(desc.itable_unused, "unused inode", "unused inodes");
    let names = [
        (GroupFlags::INODE_UNINIT, "Inode not init"),
        (GroupFlags::BLOCK_UNINIT, "Block not init"),
    ];
    let mut facts: Vec<String> = names
        .into_iter()
        .filter(|(flag, _)| desc.flags.contains(*flag))
        .map(|(_, name)| name.to_owned())
        .collect();
    facts.push(format!("Checksum {:#06x}", it.checksum));
    text + &format!("\n           [{}]\n", facts.join(", "))
}

pub(super) fn params(shell: &mut Shell<'_>, _: &[Word]) -> Done {
    let text = match &shell.image {
        Some(image) => {
            let mode = if image.is_writable { "read-write" } else { "read-only" };
            format!("Open mode: {mode}\nFilesystem in use: {}\n", image.name.display())
        }
        None => "Filesystem in use: --none--\n".to_owned(),
    };
    shell.print(text)
}

/// The line of the features that are set.
pub(super) fn feature_line(features: Features) -> String {
    let names = features.names();
    // The missing blank is theirs.
    let names =
        if names.is_empty() { "(none)".to_owned() } else { format!(" {}", names.join(" ")) };
    format!("Filesystem features:{names}\n")
}

pub(super) fn supported_features(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    if words.len() > 2 {
        return Err(refuse(words, "Usage: supported_features [feature]"));
    }
    // Names of features that were never merged into the kernel are left out.
    let never = ["lazy_bg", "snapshot_bitmap", "btree_dir", "snapshot", "replica"];
    let known = |names: &mut dyn Iterator<Item = &'static str>| {
        names.filter(|name| !never.contains(name)).collect::<Vec<_>>()
    };
    let readable = IncompatFeatures::READABLE;
    let volume = [
        known(&mut CompatFeatures::KNOWN.iter().map(|(_, name)| *name)),
        known(
            &mut IncompatFeatures::KNOWN
                .iter()
                .filter(|(flag, _)| readable.contains(*flag))
                .map(|(_, name)| *name),
        ),
        known(&mut RoCompatFeatures::KNOWN.iter().map(|(_, name)| *name)),
    ]
    .concat();
    let journal = [
        JournalCompat::all().difference(JournalCompat::all().unknown()).names(),
        JournalIncompat::all().difference(JournalIncompat::all().unknown()).names(),
    ]
    .concat();
    if let [_, name] = words {
        let name = text(name);
        let is_known = volume.contains(&&*name) || journal.contains(&name);
        return match is_known {
            true => shell.print(format!("Supported feature: {name}\n")),
            false => Err(refuse(words, format_args!("Unknown feature: {name}"))),
        };
    }
    shell.print(format!("Supported features: {}\n {}\n", volume.join(" "), journal.join(" ")))
}

pub(super) fn features(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    if words.len() > 1 {
        shell.writable(words)?;
    }
    let before = shell.volume(words)?.raw().features();
    let mut features = before;
    for word in words.iter().skip(1) {
        let word = text(word);
        match word.strip_prefix('^') {
            Some(name) => match Features::named(name) {
                Some(feature) => features = features.difference(feature),
                None => shell.complain_and_go_on(unknown_feature(words, name))?,
            },
            None => match Features::named(&word) {
                Some(feature) => features = features.union(feature),
                None => shell.complain_and_go_on(unknown_feature(words, &word))?,
            },
        }
    }
    if features != before {
        let changed = shell.writable(words)?.change(|volume| {
            volume.editor_mut().update_superblock(|raw| raw.set_features(features))?;
            Ok(())
        });
        changed.map_err(|why| refuse(words, why))?;
    }
    let features = shell.volume(words)?.raw().features();
    shell.print(feature_line(features))
}

fn unknown_feature(words: &[Word], name: &str) -> Refusal {
    refuse(words, format_args!("Unknown feature: {name}\n"))
}
