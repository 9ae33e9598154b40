//! Words and sentences that CONTRIBUTING.md asks not to use: their numbers may only fall.

use std::fs;
use std::path::{Path, PathBuf};

use extant_testkit::CataloguePart;

/// A line of `words.txt`.
struct Word {
    word: String,
    instead: String,
    known: usize,
}

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace")
}

/// The Rust files and documents of the project.
fn texts() -> Vec<(PathBuf, String)> {
    let (mut texts, mut waiting) = (Vec::new(), vec![workspace().to_owned()]);
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(&dir).expect("a readable directory") {
            let path = entry.expect("a readable entry").path();
            let name = path.file_name().and_then(|it| it.to_str()).unwrap_or_default();
            if path.is_dir() && !matches!(name, ".git" | "target" | "report") {
                waiting.push(path);
            } else if path.extension().is_some_and(|it| it == "rs" || it == "md") {
                let text = fs::read_to_string(&path).expect("text");
                texts.push((path, text));
            }
        }
    }
    texts
}

fn words() -> Vec<Word> {
    let list = fs::read_to_string(workspace().join("xtask/words.txt")).expect("the list of words");
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    let read = |line: &str| {
        let mut parts = line.split('|').map(str::trim);
        let mut next = || parts.next().expect("WORD | INSTEAD | COUNT").to_owned();
        let (word, instead) = (next(), next());
        Word { word, instead, known: next().parse().expect("a number") }
    };
    lines.map(read).collect()
}

/// How often a word stands in a text as a word of its own, in either case.
fn count(text: &str, word: &str) -> usize {
    let is_letter = |it: Option<char>| it.is_some_and(|it| it.is_alphanumeric() || it == '_');
    let is_word = |at: usize| {
        let (before, after) = (&text[..at], &text[at + word.len()..]);
        !is_letter(before.chars().next_back()) && !is_letter(after.chars().next())
    };
    text.match_indices(word).filter(|(at, _)| is_word(*at)).count()
}

/// The text of a comment line.
fn comment(line: &str) -> Option<&str> {
    let comment = line.trim_start().strip_prefix("//")?;
    Some(comment.trim_start_matches(['/', '!']).trim_start())
}

fn begins_with_a_clause(comment: &str) -> bool {
    let first = comment.split(|it: char| !it.is_alphabetic()).next().unwrap_or_default();
    matches!(first.to_ascii_lowercase().as_str(), "who" | "what")
}

#[test]
fn words_that_are_not_used_become_fewer() {
    let texts: Vec<_> = texts().into_iter().map(|it| it.1.to_lowercase()).collect();
    let mut complaints = Vec::new();
    for Word { word, instead, known } in words() {
        let found: usize = texts.iter().map(|text| count(text, &word)).sum();
        if found > known {
            complaints.push(format!("{word}: {found} times, {known} known; better: {instead}"));
        }
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

/// Texts for users have none of the words, except for these lines: the file, a part of the line,
/// and why it stays.
const STAYS: [(&str, &str, &str); 0] = [];

/// The pages of the book, the README, and the catalogue of messages and help.
fn texts_for_users() -> Vec<(String, String)> {
    let is_page = |path: &Path| path.starts_with("docs/src") || path == Path::new("README.md");
    let pages = texts().into_iter().filter_map(|(path, text)| {
        let path = path.strip_prefix(workspace()).ok()?.to_owned();
        is_page(&path).then(|| (path.display().to_string(), text))
    });
    let catalogues = [CataloguePart::Help, CataloguePart::Messages]
        .map(|part| (format!("{part:?} of the catalogue"), part.text()));
    pages.chain(catalogues).collect()
}

#[test]
fn users_read_none_of_the_words() {
    let words = words();
    let (mut complaints, mut stays) = (Vec::new(), vec![false; STAYS.len()]);
    for (name, text) in texts_for_users() {
        // In the catalogue of messages a line that is not indented is the name of a source file.
        let is_name = |line: &str| name.starts_with("Messages") && !line.starts_with(' ');
        for (number, line) in (1..).zip(text.lines()).filter(|it| !is_name(it.1)) {
            let lower = line.to_lowercase();
            for word in words.iter().filter(|it| count(&lower, &it.word) > 0) {
                match STAYS.iter().position(|it| it.0 == name && line.contains(it.1)) {
                    Some(at) => stays[at] = true,
                    None => complaints
                        .push(format!("{name}:{number}: {}; better: {}", word.word, word.instead)),
                }
            }
        }
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
    let gone = STAYS.iter().zip(stays).find(|it| !it.1);
    assert!(gone.is_none(), "no such line any more: {gone:?}");
}

/// The lines of Rust with a comment for which `matches(line, comment)` holds,
/// as `PATH:LINE: TEXT`.
fn comment_lines(matches: impl Fn(&str, &str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in texts() {
        if path.extension().is_none_or(|it| it != "rs") {
            continue;
        }
        for (index, line) in text.lines().enumerate() {
            if comment(line).is_some_and(|text| matches(line, text)) {
                found.push(format!("{}:{}: {}", path.display(), index + 1, line.trim()));
            }
        }
    }
    found
}

#[test]
fn no_comment_begins_with_a_clause_for_a_name() {
    let found = comment_lines(|_, text| begins_with_a_clause(text));
    assert!(found.is_empty(), "comment lines begin with who or what:\n{}", found.join("\n"));
}

#[test]
fn no_comment_is_wider_than_100_columns() {
    let found = comment_lines(|line, _| line.chars().count() > 100);
    assert!(found.is_empty(), "comment lines are wider than 100 columns:\n{}", found.join("\n"));
}

/// Words that once named up to twelve types each: a type says of what it is the place or the part.
const NO_TYPE: [&str; 4] = ["Found", "Outcome", "Piece", "Place"];

#[test]
fn no_type_has_a_name_that_fits_any() {
    let rust = texts().into_iter().filter(|it| it.0.extension().is_some_and(|it| it == "rs"));
    let mut found = Vec::new();
    for (path, text) in rust {
        let mut words = text.split(|it: char| !it.is_alphanumeric() && it != '_').peekable();
        while let Some(word) = words.next() {
            let is_type = ["struct", "enum", "trait", "type"].contains(&word);
            if let Some(name) = words.peek().filter(|name| is_type && NO_TYPE.contains(name)) {
                found.push(format!("{}: {word} {name}", path.display()));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}
