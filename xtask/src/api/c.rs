//! The symbols, types and constants of `extant.h` as text: one line each.

use std::collections::BTreeSet;

/// The lines of a header. `versions` is the linker's script with the version of the symbols.
pub(super) fn text(header: &str, versions: &str) -> String {
    let version = versions.split_whitespace().next().unwrap_or_default();
    let mut plain = String::new();
    let mut found = BTreeSet::new();
    let mut in_comment = false;
    for line in header.lines() {
        let line = line.trim();
        let begins = line.starts_with("/*");
        if in_comment || begins {
            in_comment = !line.ends_with("*/");
        } else if let Some(constant) = line.strip_prefix("#define ") {
            // The guard of the file has no value.
            found.extend(constant.contains(' ').then(|| format!("constant {constant}")));
        } else if !line.starts_with("//") && !line.starts_with('#') && !is_for_cpp(line) {
            plain.push_str(line);
            plain.push(' ');
        }
    }
    let (mut statement, mut depth) = (String::new(), 0_u32);
    for sign in plain.chars() {
        match sign {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ';' if depth == 0 => {
                let line = statement.split_whitespace().collect::<Vec<_>>().join(" ");
                let is_function = line.contains('(') && !line.starts_with("typedef");
                let mark = if is_function { format!(" @@{version}") } else { String::new() };
                found.insert(format!("{line}{mark}"));
                statement.clear();
                continue;
            }
            _ => {}
        }
        statement.push(sign);
    }
    found.into_iter().map(|line| line + "\n").collect()
}

/// The block around the functions that says to C++ that they are C's.
fn is_for_cpp(line: &str) -> bool {
    line == "}" || line.starts_with("extern \"C\"")
}
