//! The pages of the book as mdBook gets them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use crate::Failure;

/// The page below which the command pages stand.
const COMMANDS: &str = "reference/commands.md";
/// A page that is a file of the project begins so.
const INCLUDE: &str = "{{#include ";

/// A command and its help.
pub(super) struct CommandPage {
    name: String,
    help: String,
}

/// The commands that `extant --help` lists.
pub(super) fn commands(extant: &Path) -> Result<Vec<CommandPage>, Failure> {
    let help = |args: &[&str]| -> Result<String, Failure> {
        let output = Command::new(extant).args(args).arg("--help").output()?;
        if !output.status.success() {
            return Err(format!("extant {} --help failed", args.join(" ")).into());
        }
        Ok(String::from_utf8(output.stdout)?)
    };
    let names = names(&help(&[])?);
    if names.is_empty() {
        return Err("extant --help lists no commands".into());
    }
    names.into_iter().map(|name| Ok(CommandPage { help: help(&[&name])?, name })).collect()
}

/// The first words of the lines between usage and options: groups of commands, each with a heading.
fn names(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| !line.starts_with("Usage:")).skip(1);
    let lines = lines.take_while(|line| *line != "Options:");
    // A line that goes on with the text of the one before it is indented further.
    let own = lines.filter_map(|line| line.strip_prefix("  ").filter(|it| !it.starts_with(' ')));
    own.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

/// Writes mdBook's directory: `book.toml` and `src`.
pub(super) fn write(workspace: &Path, to: &Path, commands: &[CommandPage]) -> Result<(), Failure> {
    let docs = workspace.join("docs");
    let src = docs.join("src");
    let pages = read(&src)?;
    let included = included(&src, &pages);
    fs::create_dir_all(to.join("src"))?;
    fs::copy(docs.join("book.toml"), to.join("book.toml"))?;
    for (page, text) in &pages {
        let (origin, text) = match include_of(&src, page, text) {
            Some(file) => (file.clone(), fs::read_to_string(&file)?),
            None => (src.join(page), text.clone()),
        };
        let mut text = relink(&text, &origin, &src.join(page), &|target| {
            match (included.get(target), target.strip_prefix(&src), target.strip_prefix(&docs)) {
                (Some(page), ..) => Some(src.join(page)),
                (_, Ok(_), _) => Some(target.to_owned()),
                // The results of experiments are copied next to the pages.
                (.., Ok(result)) => Some(src.join(result)),
                _ => None,
            }
        });
        if page == Path::new(COMMANDS) {
            text += "\n";
            for CommandPage { name, help } in commands {
                let about = help.lines().next().unwrap_or_default();
                writeln!(text, "- [{name}](commands/{name}.md): {about}")?;
            }
        }
        if page == Path::new("SUMMARY.md") {
            text = with_commands(&text, commands);
        }
        put(&to.join("src").join(page), &text)?;
    }
    for CommandPage { name, help } in commands {
        let text = format!("# extant {name}\n```text\n{help}```\n");
        put(&to.join("src/reference/commands").join(format!("{name}.md")), &text)?;
    }
    Ok(())
}

/// The summary with a line for each command below the one of all.
fn with_commands(summary: &str, commands: &[CommandPage]) -> String {
    let mut text = String::new();
    for line in summary.lines() {
        text += line;
        text += "\n";
        if line.contains(COMMANDS) {
            for CommandPage { name, .. } in commands {
                text += &format!("  - [{name}](reference/commands/{name}.md)\n");
            }
        }
    }
    text
}

/// All pages below `src`, by their paths there.
fn read(src: &Path) -> Result<BTreeMap<PathBuf, String>, Failure> {
    let (mut pages, mut waiting) = (BTreeMap::new(), vec![src.to_owned()]);
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(&dir)? {
            let path = entry?.path();
            if path.is_dir() {
                waiting.push(path);
            } else {
                let text = fs::read_to_string(&path)?;
                pages.insert(path.strip_prefix(src)?.to_owned(), text);
            }
        }
    }
    Ok(pages)
}

/// The file that a page consists of, if it is one of the project's outside the book.
fn include_of(src: &Path, page: &Path, text: &str) -> Option<PathBuf> {
    let name = text.trim().strip_prefix(INCLUDE)?.strip_suffix("}}")?;
    Some(normal(&src.join(page).parent()?.join(name)))
}

/// The page that each included file is.
fn included(src: &Path, pages: &BTreeMap<PathBuf, String>) -> BTreeMap<PathBuf, PathBuf> {
    let files =
        pages.iter().filter_map(|(page, text)| Some((include_of(src, page, text)?, page.clone())));
    files.collect()
}

/// The text of `origin` with its local links as they are from `page`. A link to what the book has
/// not got becomes its text alone.
fn relink(
    text: &str,
    origin: &Path,
    page: &Path,
    target_in_book: &dyn Fn(&Path) -> Option<PathBuf>,
) -> String {
    let (mut done, mut rest) = (String::new(), text);
    while let Some(at) = rest.find("](") {
        let (before, after) = (&rest[..at], &rest[at + 2..]);
        let end = after.find([')', ' ', '\n']).unwrap_or(after.len());
        let (link, tail) = after.split_at(end);
        rest = tail;
        if link.contains("://") || link.starts_with('#') || !tail.starts_with(')') {
            done += before;
            done += "](";
            done += link;
            continue;
        }
        let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
        let dir = |file: &Path| file.parent().map(Path::to_owned).unwrap_or_default();
        match target_in_book(&normal(&dir(origin).join(path))) {
            Some(target) => {
                done += before;
                done += "](";
                done += &relative(&dir(page), &target).display().to_string();
                if !anchor.is_empty() {
                    done += "#";
                    done += anchor;
                }
            }
            None => {
                let open = before.rfind('[').unwrap_or(0);
                done += &before[..open];
                done += before[open..].trim_start_matches('[');
                rest = tail.strip_prefix(')').unwrap_or(tail);
            }
        }
    }
    done + rest
}

/// The path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(normal.pop()),
            Component::CurDir => {}
            part => normal.push(part),
        }
    }
    normal
}

/// The way from a directory to a path.
fn relative(from: &Path, to: &Path) -> PathBuf {
    let shared = from.components().zip(to.components()).take_while(|(a, b)| a == b).count();
    let up = from.components().skip(shared).map(|_| Component::ParentDir);
    up.chain(to.components().skip(shared)).collect()
}

fn put(path: &Path, text: &str) -> Result<(), Failure> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    Ok(fs::write(path, text)?)
}

/// Links of the finished pages that lead to no file, or to no heading of one.
pub(super) fn dead_links(html: &Path) -> Result<Vec<String>, Failure> {
    let pages = read_html(html)?;
    let mut dead = Vec::new();
    for (page, text) in &pages {
        for link in text.split(" href=\"").skip(1).filter_map(|it| it.split('"').next()) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            if path.contains(':') || path.starts_with("//") {
                continue;
            }
            let target = match path.is_empty() {
                true => page.clone(),
                false => normal(&page.parent().unwrap_or(html).join(path)),
            };
            let has_heading = match pages.get(&target) {
                Some(text) => anchor.is_empty() || text.contains(&format!("id=\"{anchor}\"")),
                None => true,
            };
            if !target.exists() || !has_heading {
                dead.push(format!("{}: {link} leads nowhere", page.display()));
            }
        }
    }
    Ok(dead)
}

fn read_html(html: &Path) -> Result<BTreeMap<PathBuf, String>, Failure> {
    let (mut pages, mut waiting) = (BTreeMap::new(), vec![html.to_owned()]);
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(&dir)? {
            let path = entry?.path();
            // The reports of experiments are finished pages of another program.
            let is_result = path.ends_with("experiments");
            if path.is_dir() && !is_result {
                waiting.push(path);
            } else if path.extension().is_some_and(|it| it == "html") {
                // Links of the page for addresses that do not exist start at the site's root.
                if !path.ends_with("404.html") && !path.ends_with("print.html") {
                    pages.insert(path.clone(), fs::read_to_string(&path)?);
                }
            }
        }
    }
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_an_included_file_are_as_from_its_page() {
        let text = "[a](docs/src/b.md#x) [c](c.rs) [d](https://d) [e](#e) ![f](docs/f.svg)";
        let in_book = |target: &Path| match target.extension()?.to_str()? {
            "md" => Some(target.to_owned()),
            "svg" => Some(Path::new("/w/docs/src").join(target.file_name()?)),
            _ => None,
        };
        let page = Path::new("/w/docs/src/in/page.md");
        let expected = "[a](../b.md#x) c [d](https://d) [e](#e) ![f](../f.svg)";
        assert_eq!(relink(text, Path::new("/w/README.md"), page, &in_book), expected);
    }

    #[test]
    fn commands_are_read_from_the_help() {
        let help = "About\n\nUsage: extant <COMMAND>\n\nMake:\n  mkfs   Make\n  build  Build an\n         image\n\nLook:\n  ls     List\n\nOptions:\n  -V  x";
        assert_eq!(names(help), ["mkfs", "build", "ls"]);
        let commands = [CommandPage { name: "mkfs".into(), help: String::new() }];
        let summary = "- [Commands](reference/commands.md)\n- [Next](next.md)\n";
        let expected = "- [Commands](reference/commands.md)\n  - [mkfs](reference/commands/mkfs.md)\n- [Next](next.md)\n";
        assert_eq!(with_commands(summary, &commands), expected);
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let page = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        page(
            "a.html",
            r##"<a href="b.html#h"></a><a href="b.html#i"></a><a href="c.html"></a><a href="https://x"></a>"##,
        );
        page("b.html", r#"<h2 id="h">h</h2>"#);
        let dead = dead_links(dir.path()).unwrap();
        let ends =
            |link: &str| dead.iter().any(|it| it.ends_with(&format!("{link} leads nowhere")));
        assert_eq!(dead.len(), 2, "{dead:?}");
        assert!(ends("b.html#i") && ends("c.html"), "{dead:?}");
    }
}
