//! Help: groups of commands, and examples of each command.

use clap::{Arg, ArgAction, Command};

/// The commands by what people do with them: a heading, and names in the order of the table.
const GROUPS: [(&str, &[&str]); 8] = [
    ("Make an image", &["mkfs", "build"]),
    (
        "Look into an image",
        &[
            "ls", "cat", "stat", "tree", "find", "diff", "df", "du", "quota", "getfattr", "lsattr",
            "export", "undelete", "history", "timeline", "clone", "info", "journal", "frag", "map",
        ],
    ),
    (
        "Change an image",
        &[
            "cp", "import", "rm", "rmdir", "mkdir", "ln", "mv", "chattr", "chmod", "chown",
            "touch", "truncate", "mknod", "setfattr", "sh", "tune", "resize", "trim", "defrag",
            "commit", "debugfs",
        ],
    ),
    ("Check an image", &["fsck", "recover", "undo"]),
    ("Mount an image", &["mount", "umount", "shutdown", "freeze", "thaw"]),
    ("Serve an image", &["serve"]),
    ("Measure file systems", &["lab"]),
    ("Set up extant", &["install-links", "man", "completions"]),
];

/// Examples of each command, by its words. `tests/help.rs` runs them.
const EXAMPLES: [(&str, &[&str]); 65] = [
    ("mkfs", &["extant mkfs new.img 64M", "extant mkfs -t ext3 -L data new.img 1G"]),
    (
        "build",
        &["extant build -o new.img rootfs", "extant build --size 256M -o new.img base.tar rootfs"],
    ),
    ("ls", &["extant ls -l disk.img:/etc", "extant ls -R disk.img"]),
    ("cat", &["extant cat disk.img:/etc/hostname", "extant cat --salvage disk.img:/etc/hostname"]),
    ("stat", &["extant stat disk.img:/etc/passwd", "extant stat --json disk.img:/etc"]),
    ("tree", &["extant tree -L 2 disk.img"]),
    (
        "find",
        &[
            "extant find disk.img:/var -name '*.log'",
            "extant find disk.img -type f -size +1M",
            "extant find disk.img:/var -mtime +7 -delete",
        ],
    ),
    ("diff", &["extant diff old.img disk.img", "extant diff --contents disk.img:/etc etc-copy"]),
    ("df", &["extant df -h disk.img", "extant df -i disk.img"]),
    ("du", &["extant du -s -h disk.img", "extant du -a -d 1 disk.img:/var"]),
    (
        "quota",
        &[
            "extant quota disk.img",
            "extant quota --set user:1000 --block-soft 1G --block-hard 2G disk.img",
        ],
    ),
    (
        "getfattr",
        &[
            "extant getfattr -d disk.img:/etc/hostname",
            "extant getfattr -d -m '^user' disk.img:/etc",
        ],
    ),
    ("lsattr", &["extant lsattr disk.img:/etc", "extant lsattr -d -l disk.img:/etc"]),
    (
        "export",
        &[
            "extant export -o files.tar disk.img",
            "extant export disk.img:/etc | tar -tf -",
            "extant export --salvage --salvage-report damage.json -o files.tar disk.img",
        ],
    ),
    ("undelete", &["extant undelete disk.img", "extant undelete --all -o found disk.img"]),
    ("history", &["extant history disk.img:/etc/hostname"]),
    ("timeline", &["extant timeline disk.img", "extant timeline --bodyfile disk.img"]),
    (
        "clone",
        &[
            "extant clone disk.img copy.img",
            "extant clone --metadata --format qcow2 disk.img report.qcow2",
        ],
    ),
    ("info", &["extant info disk.img", "extant info -h disk.img"]),
    ("journal", &["extant journal disk.img", "extant journal --json disk.img"]),
    ("frag", &["extant frag -v disk.img:/etc/passwd"]),
    ("map", &["extant map -o map.svg disk.img"]),
    (
        "cp",
        &[
            "extant cp notes.txt disk.img:/home/",
            "extant cp -r disk.img:/etc copy",
            "extant cp disk.img:/etc/motd -",
            "extant cp -r --salvage disk.img:/etc salvaged",
        ],
    ),
    (
        "import",
        &[
            "extant import base.tar disk.img:/mnt",
            "extant import -p --owner 0:0 base.tar disk.img:/srv/base",
        ],
    ),
    ("rm", &["extant rm disk.img:/etc/motd", "extant rm -r disk.img:/var/log"]),
    ("rmdir", &["extant rmdir disk.img:/mnt"]),
    ("mkdir", &["extant mkdir -p disk.img:/srv/www/html"]),
    (
        "ln",
        &["extant ln -s usr/bin disk.img:/bin", "extant ln disk.img:/etc/motd disk.img:/etc/issue"],
    ),
    ("mv", &["extant mv disk.img:/etc/motd disk.img:/etc/issue"]),
    ("chattr", &["extant chattr +i disk.img:/etc/passwd", "extant chattr -R -dA disk.img:/etc"]),
    ("chmod", &["extant chmod 600 disk.img:/etc/passwd", "extant chmod -R go-w disk.img:/etc"]),
    ("chown", &["extant chown -R 1000:1000 disk.img:/home"]),
    ("touch", &["extant touch -d 2024-01-31 disk.img:/etc/motd"]),
    ("truncate", &["extant truncate -s 1G disk.img:/swapfile"]),
    ("mknod", &["extant mknod disk.img:/console c 5 1", "extant mknod disk.img:/queue p"]),
    ("setfattr", &["extant setfattr -n user.comment -v draft disk.img:/etc/motd"]),
    ("sh", &["extant sh -c 'ls;df' disk.img", "extant sh -e disk.img < commands"]),
    ("tune", &["extant tune -L root -m 1 disk.img", "extant tune -z tune.undo -U random disk.img"]),
    (
        "resize",
        &["extant resize disk.img 1G", "extant resize -P disk.img", "extant resize -b disk.img"],
    ),
    ("trim", &["extant trim disk.img", "extant trim -n -m 1M disk.img"]),
    ("defrag", &["extant defrag disk.img", "extant defrag -c -v disk.img:/etc"]),
    ("commit", &["extant commit 'overlay:disk.img?upper=changes'"]),
    ("debugfs", &["extant debugfs -R list_requests disk.img", "extant debugfs -R stats disk.img"]),
    (
        "fsck",
        &[
            "extant fsck -p disk.img",
            "extant fsck -f -n disk.img",
            "extant fsck -f -n --json --jobs 4 disk.img old.img",
        ],
    ),
    ("recover", &["extant recover disk.img", "extant recover --json disk.img"]),
    ("undo", &["extant undo tune.undo disk.img"]),
    ("mount", &["extant mount disk.img mnt", "extant mount -o ro disk.img mnt"]),
    ("umount", &["extant umount mnt"]),
    ("shutdown", &["extant shutdown mnt"]),
    ("freeze", &["extant freeze mnt"]),
    ("thaw", &["extant thaw mnt"]),
    (
        "serve nbd",
        &[
            "extant serve nbd --socket disk.sock disk.img",
            "extant serve nbd --read-only --listen 127.0.0.1:10809 disk.img:/srv/inner.img",
        ],
    ),
    ("lab list", &["extant lab list"]),
    ("lab run", &["extant lab run --sizes 0.1 --counts 0.1 --targets engine,ext4 copy-remove"]),
    ("lab quick", &["extant lab quick --targets engine,ext4"]),
    ("lab large", &["extant lab large copy-remove check-time"]),
    ("lab report", &["extant lab report --out lab-results"]),
    ("lab summary", &["extant lab summary lab-quick/copy-remove lab-quick/check-time"]),
    ("lab compare", &["extant lab compare engine ext4", "extant lab compare old new"]),
    ("lab ffsb", &["extant lab ffsb --list"]),
    ("lab vm prepare", &["extant lab vm prepare"]),
    ("lab vm run", &["extant lab vm run --targets ext4,jfs hard-links"]),
    ("install-links", &["extant install-links bin"]),
    ("man", &["extant man man1"]),
    ("completions", &["extant completions bash"]),
];

/// The lines of examples of a command, such as `lab run`.
fn examples(words: &str) -> Option<String> {
    let (_, lines) = EXAMPLES.iter().find(|(name, _)| *name == words)?;
    Some(lines.iter().fold("Examples:".to_owned(), |text, line| text + "\n  " + line))
}

/// Adds `--help`, `-h` where the command gives it no other meaning, and the examples.
pub(crate) fn with_help(command: Command, words: &str) -> Command {
    let has_h = command.get_arguments().any(|it| it.get_short() == Some('h'));
    let help = Arg::new("help").long("help").help("Print help").action(ArgAction::HelpLong);
    let command = command.arg(if has_h { help } else { help.short('h') });
    let notes = command.get_after_help().map(ToString::to_string);
    match (notes, examples(words)) {
        (Some(notes), Some(examples)) => command.after_help(notes + "\n\n" + &examples),
        (None, Some(examples)) => command.after_help(examples),
        (_, None) => command,
    }
}

/// The same for all commands below one.
pub(crate) fn with_help_of_all(command: Command, words: &str) -> Command {
    let command = command.mut_subcommands(|inner| {
        let name = inner.get_name();
        let words = if words.is_empty() { name.to_owned() } else { format!("{words} {name}") };
        with_help_of_all(inner, &words)
    });
    with_help(command, words)
}

/// The help of the program itself: commands stand in groups.
pub(crate) fn template(table: &Command) -> String {
    let about = |name: &&str| table.find_subcommand(name)?.get_about().map(ToString::to_string);
    let mut groups = String::new();
    for (heading, names) in GROUPS {
        // A command that this build lacks has no line.
        let lines =
            names.iter().filter_map(|name| Some(format!("  {name:<12} {}\n", about(name)?)));
        let lines: String = lines.collect();
        if !lines.is_empty() {
            groups += &format!("{heading}:\n{lines}\n");
        }
    }
    format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}{{after-help}}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{table, unimplemented};

    #[test]
    fn every_command_is_in_one_group_in_the_order_of_the_table() {
        let table = table::command();
        let grouped: Vec<_> = GROUPS.iter().flat_map(|it| it.1).copied().collect();
        let names: Vec<_> = table.get_subcommands().map(Command::get_name).collect();
        let is_built = |name: &&str| unimplemented::refusal(name).is_none();
        assert_eq!(grouped.into_iter().filter(is_built).collect::<Vec<_>>(), names);
    }

    #[test]
    fn every_line_of_the_list_of_commands_fits_a_terminal() {
        let wide = template(&table::command());
        let wide: Vec<_> = wide.lines().take_while(|it| *it != "Options:").collect();
        assert!(wide.iter().all(|it| it.len() <= 80), "{wide:#?}");
    }

    /// The commands without commands of their own that are not hidden, by their words.
    fn leaves(command: &Command, words: &str) -> Vec<String> {
        let inner: Vec<_> = command.get_subcommands().filter(|it| !it.is_hide_set()).collect();
        if inner.is_empty() {
            return vec![words.to_owned()];
        }
        let below = |it: &&Command| leaves(it, format!("{words} {}", it.get_name()).trim());
        inner.iter().flat_map(below).collect()
    }

    #[test]
    fn every_command_has_examples_and_they_parse() {
        let mut seen = 0;
        for words in leaves(&table::command(), "") {
            let (_, lines) = EXAMPLES
                .iter()
                .find(|(name, _)| *name == words)
                .unwrap_or_else(|| panic!("{words} has no example"));
            for line in *lines {
                assert!(
                    line.starts_with(&format!("extant {words} "))
                        || *line == format!("extant {words}")
                );
                table::parse_line(line);
                seen += 1;
            }
        }
        assert!(seen > 40, "{seen} examples");
    }
}
