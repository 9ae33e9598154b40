//! The classes and functions of the Python package as text, with their types. No more of Python is
//! understood here than the declarations of a typed module need.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::Failure;

/// Modules whose names the package gives on, and the one that is imported by its own name.
const MODULES: [&str; 3] = ["_files.py", "_images.py", "_rescue.py"];
const OWN_MODULE: &str = "fsspec.py";
const PACKAGE: &str = "extant_ext4";

/// The lines of all modules.
///
/// # Errors
/// A module is missing, or a name of `__all__` is not found.
pub(super) fn text(dir: &Path) -> Result<String, Failure> {
    let read =
        |name: &str| fs::read_to_string(dir.join(name)).map_err(|error| format!("{name}: {error}"));
    let initial = read("__init__.py")?;
    let mut wanted: BTreeSet<String> = logical_lines(&initial)
        .into_iter()
        .filter_map(|(_, line)| line.strip_prefix("__all__ = ").map(str::to_owned))
        .flat_map(|list| list.split('"').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>())
        .collect();
    let mut declared = Vec::new();
    for module in MODULES {
        declared.extend(declarations(&read(module)?, PACKAGE));
    }
    // Types that have a name for the signatures are not given on.
    declared.retain(|it| wanted.contains(&it.name) || it.is_alias);
    for found in &declared {
        wanted.remove(&found.name);
    }
    wanted.retain(|name| !name.starts_with("__"));
    if let Some(name) = wanted.first() {
        return Err(format!("{PACKAGE}.{name} is in __all__ and in no module").into());
    }
    let own = format!("{PACKAGE}.{}", OWN_MODULE.trim_end_matches(".py"));
    declared.extend(declarations(&read(OWN_MODULE)?, &own));
    declared.sort_by(|one, other| one.lines.cmp(&other.lines));
    Ok(declared.iter().flat_map(|it| &it.lines).map(|line| format!("{line}\n")).collect())
}

/// A class, a function or a name of a type.
struct Declaration {
    name: String,
    is_alias: bool,
    /// The head, and the members of a class.
    lines: Vec<String>,
}

/// The public declarations of a module.
fn declarations(source: &str, package: &str) -> Vec<Declaration> {
    let mut found = Vec::<Declaration>::new();
    let mut decorators = String::new();
    let mut is_in_class = false;
    for (indent, line) in logical_lines(source) {
        if line.starts_with('@') {
            decorators = format!("{decorators}{line} ");
            continue;
        }
        let before = std::mem::take(&mut decorators);
        let head = line.strip_suffix(':').unwrap_or(&line);
        let function = head.strip_prefix("def ");
        let class = head.strip_prefix("class ");
        match (indent, function.or(class)) {
            (0, Some(rest)) => {
                let name = name_at(rest);
                is_in_class = class.is_some() && !name.starts_with('_');
                let kind = if class.is_some() { "class" } else { "def" };
                if !name.starts_with('_') {
                    let lines = vec![format!("{before}{kind} {package}.{rest}")];
                    found.push(Declaration { name, is_alias: false, lines });
                }
            }
            (0, None) => {
                is_in_class = false;
                let name = name_at(&line);
                let is_type = line[name.len()..].starts_with(" = ")
                    && name.starts_with(char::is_uppercase)
                    && name.contains(char::is_lowercase);
                if is_type {
                    let lines = vec![format!("type {package}.{line}")];
                    found.push(Declaration { name, is_alias: true, lines });
                }
            }
            (4, member) if is_in_class => {
                let name = name_at(member.unwrap_or(head));
                let after = &head[head.len().min(name.len())..];
                let is_field = after.starts_with(": ") || after.starts_with(" = ");
                let is_shown = match member {
                    Some(_) => !name.starts_with('_') || name.starts_with("__"),
                    None => is_field && !name.starts_with('_'),
                };
                let current = found.last_mut().filter(|_| is_shown);
                if let Some(current) = current {
                    current.lines.push(format!("    {before}{head}"));
                }
            }
            _ => {}
        }
    }
    for declaration in &mut found {
        // The order of fields is that of a constructor; of methods it means nothing.
        declaration.lines[1..].sort_by_key(|line| match line.contains("def ") {
            true => line.clone(),
            false => String::new(),
        });
    }
    found
}

fn name_at(text: &str) -> String {
    text.chars().take_while(|it| it.is_alphanumeric() || *it == '_').collect()
}

/// The statements of a source, each on one line, with its indent; without strings that are
/// statements, and without comments.
fn logical_lines(source: &str) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    let (mut line, mut depth) = (String::new(), 0_u32);
    let mut rest = source;
    while let Some(sign) = rest.chars().next() {
        let mut taken = sign.len_utf8();
        match sign {
            '#' => {
                taken = rest.find('\n').unwrap_or(rest.len());
            }
            '"' | '\'' => {
                taken = string_length(rest);
                line.push_str(&rest[..taken]);
            }
            '\n' if depth == 0 => add_line(&mut line, &mut lines),
            '\n' => line.push(' '),
            _ => {
                match sign {
                    '(' | '[' | '{' => depth += 1,
                    ')' | ']' | '}' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                line.push(sign);
            }
        }
        rest = &rest[taken..];
    }
    add_line(&mut line, &mut lines);
    lines
}

fn add_line(line: &mut String, lines: &mut Vec<(usize, String)>) {
    let text = std::mem::take(line);
    let indent = text.len() - text.trim_start().len();
    let mut text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let tight = [("( ", "("), ("[ ", "["), (", )", ")"), (", ]", "]"), (" )", ")"), (" ]", "]")];
    for (loose, tight) in tight {
        text = text.replace(loose, tight);
    }
    if !text.is_empty() && !text.starts_with(['"', '\'']) && !text.starts_with("r\"") {
        lines.push((indent, text));
    }
}

/// The length of the string that a text begins with, its quotes included.
fn string_length(text: &str) -> usize {
    let quote = &text[..1];
    let triple = quote.repeat(3);
    let quote = if text.starts_with(&triple) { &triple[..] } else { quote };
    let mut at = quote.len();
    while at < text.len() {
        if text[at..].starts_with('\\') {
            at += 1 + text[at + 1..].chars().next().map_or(0, char::len_utf8);
        } else if text[at..].starts_with(quote) {
            return at + quote.len();
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}
