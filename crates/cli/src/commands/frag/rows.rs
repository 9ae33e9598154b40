//! The rows of filefrag: an extent each, counted in the unit of the output.

use extant::inspect::Extent;

/// Least columns of a number of the file, and of the device.
const COLUMNS: (usize, usize) = (8, 10);
/// Columns of a number of the file where ext4's cache is shown: its last hole ends far out.
const CACHE_COLUMNS: usize = 10;

/// How rows are printed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows {
    /// Of the unit, the power of two.
    pub(super) shift: u32,
    pub(super) is_hexadecimal: bool,
    /// ext4's cache of extents is shown.
    pub(super) is_cache: bool,
    /// Bytes of the file.
    pub(super) size: u64,
}

/// An extent in bytes, with the place at which it would continue the one before it.
pub(super) struct Row<'e> {
    pub(super) extent: &'e Extent,
    pub(super) expected: Option<u64>,
    /// It has no place on the device.
    pub(super) is_nowhere: bool,
}

/// Where each extent would have to lie: the first one as if the device began with the file.
pub(super) fn expected(extents: &[Extent]) -> Vec<Option<u64>> {
    let first = extents.first().map(|first| {
        let is_missed = first.logical != 0 && first.physical != first.logical;
        is_missed.then_some(first.logical)
    });
    let others = extents.windows(2).map(|pair| pair[0].missed_by(&pair[1]));
    first.into_iter().chain(others).collect()
}

impl Rows {
    fn columns(&self) -> (usize, usize) {
        match self.is_cache {
            true => (CACHE_COLUMNS, COLUMNS.1),
            false => COLUMNS,
        }
    }

    /// The line over the rows.
    pub(super) fn title(&self) -> String {
        let (logical, physical) = self.columns();
        format!(
            " ext: {:>logical$} {:>physical$} length: {:>expected$} flags:",
            "logical_offset:",
            "physical_offset:",
            "expected:",
            logical = 2 * logical + 3,
            physical = 2 * physical + 3,
            expected = physical + 1,
        )
    }

    /// The line of a row.
    pub(super) fn line(&self, at: usize, row: &Row<'_>) -> String {
        let extent = row.extent;
        let shift = if extent.is_in_bytes { 0 } else { self.shift };
        let number = |number: u64, width: usize| match self.is_hexadecimal {
            true => format!("{number:>width$x}"),
            false => format!("{number:>width$}"),
        };
        let last = |start: u64, length: u64| start.saturating_add(length.saturating_sub(1));
        let (logical, length) = (extent.logical >> shift, extent.length >> shift);
        let (physical, stored) = match row.is_nowhere {
            true => (0, 0),
            false => (extent.physical >> shift, length),
        };
        let (wide, place) = self.columns();
        let expected = match row.expected {
            Some(expected) => number(expected >> shift, place) + ":",
            None => " ".repeat(place + 1),
        };
        let end = extent.logical.saturating_add(extent.length);
        let flags = extent.flags.join(",") + if end >= self.size { ",eof" } else { "" };
        let space = if extent.flags.is_empty() { "" } else { " " };
        format!(
            "{at:>4}: {}..{}: {}..{}: {}: {expected}{space}{flags}",
            number(logical, wide),
            number(last(logical, length), wide),
            number(physical, place),
            number(last(physical, stored), place),
            number(stored, 6),
        )
    }
}
