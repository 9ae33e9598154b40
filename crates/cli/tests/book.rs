//! The shell blocks of the README and of the book run as they stand.
//!
//! A block that begins with "```sh" is run by bash in a directory of its page, one after the other;
//! it must succeed. "```sh,root" needs root, "```sh,fuse" a kernel that lets us mount. A block
//! "```text,output" after it has lines that its output must contain, in that order.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use extant_testkit::{Scratch, is_root, skip, tool};

/// Programs of others that blocks may call; blocks that call one that is missing are skipped.
const OTHERS: [&str; 4] = ["cryptsetup", "debugfs", "qemu-img", "sfdisk"];

/// A block of a page: its info string, the line at which it begins, and its text.
struct Block {
    info: String,
    line: usize,
    text: String,
}

/// A block of shell that is run, with the lines that its output has.
struct Example {
    needs: Vec<String>,
    line: usize,
    script: String,
    output: Vec<String>,
}

fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The README and every page of the book that is a file of its own.
fn pages() -> Vec<PathBuf> {
    let (mut pages, mut waiting) =
        (vec![workspace().join("README.md")], vec![workspace().join("docs/src")]);
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(&dir).expect("the book is there") {
            let path = entry.expect("a readable entry").path();
            if path.is_dir() {
                waiting.push(path);
            } else if path.extension().is_some_and(|it| it == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages
}

/// The blocks between lines of three backticks, with the indentation of a list taken off.
fn blocks(page: &str) -> Vec<Block> {
    let (mut blocks, mut open): (Vec<Block>, Option<Block>) = (Vec::new(), None);
    for (line, text) in (1..).zip(page.lines()) {
        match (text.trim_start().strip_prefix("```"), open.take()) {
            (Some(_), Some(block)) => blocks.push(block),
            (Some(info), None) => {
                open = Some(Block { info: info.trim().to_owned(), line, text: String::new() });
            }
            (None, Some(mut block)) => {
                block.text += text;
                block.text += "\n";
                open = Some(block);
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block is not closed");
    blocks
}

fn examples(page: &str) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    for Block { info, line, text } in blocks(page) {
        let mut words = info.split(',').map(str::to_owned);
        match words.next().as_deref() {
            Some("sh") => {
                let needs = words.collect();
                examples.push(Example { needs, line, script: text, output: Vec::new() });
            }
            Some("text") if words.next().as_deref() == Some("output") => {
                let example = examples.last_mut().expect("output of the block before it");
                example.output = text.lines().map(str::to_owned).collect();
            }
            _ => {}
        }
    }
    examples
}

/// Why a block cannot run here.
fn missing(example: &Example) -> Option<String> {
    for need in &example.needs {
        let is_there = match need.as_str() {
            "root" => is_root(),
            "fuse" => {
                Path::new("/dev/fuse").exists() && (is_root() || tool("fusermount3").is_some())
            }
            unknown => panic!("line {}: {unknown} is not known", example.line),
        };
        if !is_there {
            return Some(need.clone());
        }
    }
    let is_called = |name: &str| example.script.split_whitespace().any(|word| word == name);
    let absent = OTHERS.iter().find(|name| is_called(name) && tool(name).is_none());
    absent.map(|it| (*it).to_owned())
}

/// Runs a block; what went wrong.
fn run(example: &Example, dir: &Path, bin: &Path) -> Result<(), String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let log = fs::File::create(dir.join(".output")).map_err(|it| it.to_string())?;
    let errors = log.try_clone().map_err(|it| it.to_string())?;
    let status = Command::new("timeout")
        .args(["-k", "5", "120", "bash", "-euo", "pipefail", "-c", &example.script])
        .current_dir(dir)
        .env("PATH", format!("{}:{path}:/usr/local/sbin:/usr/sbin:/sbin", bin.display()))
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        .status()
        .map_err(|it| it.to_string())?;
    let output = fs::read(dir.join(".output")).map_err(|it| it.to_string())?;
    let output = String::from_utf8_lossy(&output);
    if !status.success() {
        return Err(format!("{status}\n{output}"));
    }
    let mut rest = &*output;
    for line in &example.output {
        let at = rest.find(line.trim()).ok_or_else(|| format!("no {line:?} in\n{output}"))?;
        rest = &rest[at + line.trim().len()..];
    }
    Ok(())
}

#[test]
fn every_shell_block_of_the_book_runs() {
    let bin = Scratch::new();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_extant"), bin.join("extant")).expect("a link");
    let (mut ran, mut failed, mut skipped) = (0, Vec::new(), Vec::new());
    for page in pages() {
        let text = fs::read_to_string(&page).expect("a page is text");
        let shown = page.strip_prefix(workspace()).unwrap_or(&page).display().to_string();
        let scratch = Scratch::new();
        for example in examples(&text) {
            let place = format!("{shown}:{}", example.line);
            match missing(&example) {
                Some(what) => skipped.push(format!("{place} ({what})")),
                None => {
                    ran += 1;
                    if let Err(what) = run(&example, scratch.path(), bin.path()) {
                        failed.push(format!("{place}: {what}"));
                    }
                }
            }
        }
    }
    assert!(failed.is_empty(), "\n{}", failed.join("\n"));
    assert!(ran > 30, "{ran} blocks ran");
    if !skipped.is_empty() {
        skip!("blocks of the book: {}", skipped.join(", "));
    }
}

#[test]
fn an_example_that_fails_or_prints_something_else_is_found() {
    let (scratch, bin) = (Scratch::new(), Scratch::new());
    let page = "```sh\necho one; echo two\n```\n```text,output\none\ntwo\n```\n1. x\n   ```sh\n   false\n   ```\n```text\nnot run\n```\n```sh\necho one\n```\n```text,output\ntwo\n```\n";
    let examples = examples(page);
    let results = examples.iter().map(|it| run(it, scratch.path(), bin.path()).is_ok());
    assert_eq!(results.collect::<Vec<_>>(), [true, false, false]);
}
