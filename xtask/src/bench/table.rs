//! Tables of figures: lines of Markdown, or one JSON document with the machine that they are of.

use std::process::Command;

use serde_json::{Map, Value, json};

use super::Setting;
use crate::Failure;

/// A table; each row has the name of its case first.
pub(super) struct Table {
    columns: &'static [&'static str],
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(columns: &'static [&'static str]) -> Self {
        Self { columns, rows: Vec::new() }
    }

    /// Adds a row, and shows it: a long run is seen to go on. Cells that are left out are empty.
    pub(super) fn add(&mut self, mut cells: Vec<String>) {
        cells.resize(self.columns.len(), String::new());
        eprintln!("{}", line(&cells));
        self.rows.push(cells);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Lines of Markdown.
    fn markdown(&self) -> String {
        let columns: Vec<_> = self.columns.iter().map(|&column| column.to_owned()).collect();
        let rule = format!("|{}", "---|".repeat(columns.len()));
        let rows = self.rows.iter().map(|row| line(row));
        let lines: Vec<_> = [line(&columns), rule].into_iter().chain(rows).collect();
        format!("\n{}\n", lines.join("\n"))
    }

    /// An object a row; a cell that is a number is one.
    fn json(&self) -> Value {
        let value = |cell: &String| {
            let number = cell.parse().ok().and_then(serde_json::Number::from_f64);
            number.map_or_else(|| json!(cell), Value::Number)
        };
        let row = |row: &Vec<String>| {
            let cells = self.columns.iter().zip(row);
            let cells = cells.filter(|(_, cell)| !cell.is_empty());
            Value::Object(
                cells.map(|(name, cell)| (name.to_string(), value(cell))).collect::<Map<_, _>>(),
            )
        };
        self.rows.iter().map(row).collect()
    }
}

fn line(cells: &[String]) -> String {
    format!("| {} |", cells.join(" | "))
}

/// Prints the tables that have rows.
pub(super) fn print(tables: &[Table], setting: &Setting, rounds: usize, is_json: bool) {
    let tables = tables.iter().filter(|table| !table.is_empty());
    if is_json {
        let document = json!({
            "commit": said("git", &["describe", "--always", "--dirty", "--abbrev=40"]),
            "machine": machine(),
            "peers": peers(),
            "rounds": rounds,
            "shrink": setting.shrink,
            "tables": tables.map(Table::json).collect::<Value>(),
        });
        println!("{document:#}");
    } else {
        tables.for_each(|table| print!("{}", table.markdown()));
    }
}

/// The machine, on which all figures depend.
fn machine() -> Value {
    let field = |file: &str, name: &str| {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let line = text.lines().find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()));
        line.map(|line| line.trim_start_matches(':').trim().to_owned())
    };
    json!({
        "kernel": said("uname", &["-rm"]),
        "memory": field("/proc/meminfo", "MemTotal"),
        "processor": field("/proc/cpuinfo", "model name"),
        "processors": std::thread::available_parallelism().map_or(0, usize::from),
    })
}

/// Versions of the programs that are measured next to ours, where they are installed.
fn peers() -> Value {
    let first_line = |program: &str, args: &[&str]| {
        said(program, args).and_then(|text| Some(text.lines().next()?.to_owned()))
    };
    json!({
        "e2fsprogs": first_line("e2fsck", &["-V"]),
        "fuse2fs": first_line("fuse2fs", &["--version"]),
        "tar": first_line("tar", &["--version"]),
    })
}

/// The output of a program; e2fsck prints its version on the other stream.
fn said(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    let bytes = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    let text = String::from_utf8(bytes).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// The row of a case that could not be measured.
pub(super) fn skipped(name: &str, why: &Failure) -> Vec<String> {
    vec![format!("`{name}`"), format!("skipped: {why}")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_lines_or_objects() {
        let mut table = Table::new(&["case", "ours, s", "peer, s"]);
        table.add(["`links`", "2.50", "kernel 15.3"].map(str::to_owned).into());
        table.add(skipped("creates", &"no loop device".into()));
        let text = "\n| case | ours, s | peer, s |\n|---|---|---|\n\
            | `links` | 2.50 | kernel 15.3 |\n| `creates` | skipped: no loop device |  |\n";
        assert_eq!(table.markdown(), text);
        let rows = json!([
            {"case": "`links`", "ours, s": 2.5, "peer, s": "kernel 15.3"},
            {"case": "`creates`", "ours, s": "skipped: no loop device"},
        ]);
        assert_eq!(table.json(), rows);
    }
}
