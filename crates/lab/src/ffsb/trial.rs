//! The results of a run, and FFSB's tables of them.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::profile::{Call, Operation, Stats};
use crate::cpu::Cpu;

/// A whole run.
#[derive(Clone, Debug, Serialize)]
pub struct TrialResult {
    /// How long making the files took, ageing included.
    pub setup_seconds: f64,
    /// The measurements; `None` if the profile's time is zero.
    pub measured: Option<Measured>,
}

/// The measured phase.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// From the common start until the last sync has ended: the divisor of all rates.
    pub elapsed_seconds: f64,
    /// Processor times during it.
    pub cpu: Cpu,
    /// One for each thread group, in the profile's order.
    pub groups: Vec<Group>,
}

/// Counts of the threads of a group.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Group {
    /// By operation, those that were done.
    pub operations: BTreeMap<&'static str, Counts>,
    /// By system call, if the profile requires it.
    pub calls: Option<BTreeMap<&'static str, Times>>,
}

/// How much was done.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Counts {
    /// Operations done to the end.
    pub operations: u64,
    /// FFSB's count: blocks for operations that read or write, else operations.
    pub transactions: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

impl Counts {
    /// Adds another's.
    pub fn add(&mut self, other: Self) {
        self.operations += other.operations;
        self.transactions += other.transactions;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
    }
}

/// How long calls took, in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Times {
    /// How many there were, at least one.
    pub count: u64,
    /// The shortest.
    pub min: f64,
    /// The longest.
    pub max: f64,
    /// All together.
    pub total: f64,
    /// How many fell into each of the profile's ranges.
    pub in_ranges: Vec<u64>,
}

impl Times {
    fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.total += other.total;
        for (range, more) in self.in_ranges.iter_mut().zip(&other.in_ranges) {
            *range += more;
        }
    }
}

impl Group {
    /// An empty one.
    pub(super) fn new(stats: Option<&Stats>) -> Self {
        Self { operations: BTreeMap::new(), calls: stats.map(|_| BTreeMap::new()) }
    }

    pub(super) fn count(&mut self, operation: Operation, counts: Counts) {
        self.operations.entry(operation.name()).or_default().add(counts);
    }

    pub(super) fn time(&mut self, stats: &Stats, call: Call, took: Duration) {
        let Some(calls) = self.calls.as_mut().filter(|_| !stats.ignored.contains(&call)) else {
            return;
        };
        let took = took.as_secs_f64() * 1000.0;
        let mut in_ranges = vec![0; stats.ranges.len()];
        let fits = |(from, to): &(f64, f64)| (*from..=*to).contains(&took);
        if let Some(range) = stats.ranges.iter().position(fits) {
            in_ranges[range] = 1;
        }
        let one = Times { count: 1, min: took, max: took, total: took, in_ranges };
        calls.entry(call.name()).and_modify(|times| times.add(&one)).or_insert(one);
    }

    /// Adds the counts of another thread, or another group.
    pub(super) fn add(&mut self, other: &Self) {
        for (name, counts) in &other.operations {
            self.operations.entry(name).or_default().add(*counts);
        }
        if let (Some(own), Some(calls)) = (&mut self.calls, &other.calls) {
            for (name, times) in calls {
                let known = own.entry(name).and_modify(|own| own.add(times));
                known.or_insert_with(|| times.clone());
            }
        }
    }

    /// All operations together.
    pub fn total(&self) -> Counts {
        self.operations.values().fold(Counts::default(), |mut total, counts| {
            total.add(*counts);
            total
        })
    }
}

impl Measured {
    /// All groups together; calls are left to each.
    pub fn total(&self) -> Group {
        let mut total = Group::default();
        self.groups.iter().for_each(|group| total.add(group));
        total
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, group) in self.groups.iter().enumerate() {
            heading(f, &format!("ThreadGroup {number}"))?;
            self.group(f, group)?;
        }
        if self.groups.len() > 1 {
            heading(f, "Total Results")?;
            self.group(f, &self.total())?;
        }
        let percent = |seconds: f64| 100.0 * seconds / self.elapsed_seconds;
        let Cpu { user_seconds: user, system_seconds: system, machine_seconds } = self.cpu;
        writeln!(f, "{:.1}% User   Time", percent(user))?;
        writeln!(f, "{:.1}% System Time", percent(system))?;
        writeln!(f, "{:.1}% CPU Utilization", percent(user + system))?;
        if let Some(machine) = machine_seconds {
            writeln!(f, "{:.1}% CPU Utilization of the whole machine", percent(machine))?;
        }
        Ok(())
    }
}

fn heading(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    writeln!(f, "{text}\n{}", "=".repeat(15))
}

impl Measured {
    fn group(&self, f: &mut fmt::Formatter<'_>, group: &Group) -> fmt::Result {
        let total = group.total();
        let share = |part: u64, all: u64| 100.0 * part as f64 / all.max(1) as f64;
        let rate = |bytes: u64| bytes as f64 / self.elapsed_seconds;
        let columns =
            ["Op Name", "Transactions", "Trans/sec", "% Trans", "% Op Weight", "Throughput"];
        for line in [columns, columns.map(|column| &"============"[..column.len().min(12)])] {
            let [name, transactions, per_second, trans, weight, throughput] = line;
            writeln!(
                f,
                "{name:>20} {transactions:>14} {per_second:>14} {trans:>12} {weight:>15} {throughput:>13}"
            )?;
        }
        for operation in Operation::ALL {
            let Some(counts) = group.operations.get(operation.name()) else { continue };
            let throughput = match counts.read_bytes + counts.written_bytes {
                0 => "NA".to_owned(),
                bytes => per_second(rate(bytes)),
            };
            writeln!(
                f,
                "{:>20} {:>14} {:>14.2} {:>11.3}% {:>14.3}% {throughput:>13}",
                operation.name(),
                counts.transactions,
                counts.transactions as f64 / self.elapsed_seconds,
                share(counts.transactions, total.transactions),
                share(counts.operations, total.operations),
            )?;
        }
        let transactions = total.transactions as f64 / self.elapsed_seconds;
        writeln!(f, "-\n{transactions:.1} Transactions per Second\n")?;
        if total.read_bytes + total.written_bytes > 0 {
            heading(f, "Throughput Results")?;
        }
        for (what, bytes) in [("Read", total.read_bytes), ("Write", total.written_bytes)] {
            if bytes > 0 {
                writeln!(f, "{what} Throughput: {}", per_second(rate(bytes)))?;
            }
        }
        writeln!(f)?;
        group.calls.as_ref().map_or(Ok(()), |calls| times(f, calls))
    }
}

fn times(f: &mut fmt::Formatter<'_>, calls: &BTreeMap<&str, Times>) -> fmt::Result {
    writeln!(f, "System Call Latency statistics in millisecs\n=====")?;
    writeln!(f, "{:>10} {:>12} {:>12} {:>12} {:>12}", "", "Min", "Avg", "Max", "Total Calls")?;
    for call in Call::ALL {
        let Some(times) = calls.get(call.name()) else { continue };
        let average = times.total / times.count as f64;
        let Times { count, min, max, .. } = times;
        writeln!(f, "{:>10} {min:>12.6} {average:>12.6} {max:>12.6} {count:>12}", call.name())?;
        if !times.in_ranges.is_empty() {
            let counts: Vec<String> = times.in_ranges.iter().map(u64::to_string).collect();
            writeln!(f, "{:>10} in ranges: {}", "", counts.join(" "))?;
        }
    }
    writeln!(f)
}

/// Bytes a second with three significant digits, in units of 1024.
fn per_second(rate: f64) -> String {
    let (mut rate, mut unit) = (rate, "B");
    for next in ["KB", "MB", "GB"] {
        if rate < 1024.0 {
            break;
        }
        (rate, unit) = (rate / 1024.0, next);
    }
    let digits = match rate {
        rate if rate >= 99.95 => 0,
        rate if rate >= 9.995 => 1,
        _ => 2,
    };
    format!("{rate:.digits$}{unit}/sec")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_three_digits_and_units_of_1024() {
        for (rate, expected) in [
            (0.0, "0.00B/sec"),
            (1023.0, "1023B/sec"),
            (1024.0, "1.00KB/sec"),
            (75.7 * 1048576.0, "75.7MB/sec"),
            (756.9 * 1048576.0, "757MB/sec"),
            (5.0 * 1073741824.0, "5.00GB/sec"),
        ] {
            assert_eq!(per_second(rate), expected);
        }
    }

    #[test]
    fn the_table_has_shares_of_what_was_done() {
        let mut group = Group::new(None);
        let mib = 1 << 20;
        let create =
            Counts { operations: 1, transactions: 3, read_bytes: 0, written_bytes: 30 * mib };
        group.count(Operation::Create, create);
        group.count(
            Operation::Delete,
            Counts { operations: 3, transactions: 1, ..Counts::default() },
        );
        let cpu = Cpu { user_seconds: 1.0, system_seconds: 4.0, machine_seconds: Some(8.0) };
        let shown = Measured { elapsed_seconds: 10.0, cpu, groups: vec![group] }.to_string();
        let words: Vec<Vec<&str>> =
            shown.lines().map(|line| line.split_whitespace().collect()).collect();
        for expected in [
            &["create", "3", "0.30", "75.000%", "25.000%", "3.00MB/sec"][..],
            &["delete", "1", "0.10", "25.000%", "75.000%", "NA"],
            &["0.4", "Transactions", "per", "Second"],
            &["Write", "Throughput:", "3.00MB/sec"],
            &["50.0%", "CPU", "Utilization"],
        ] {
            assert!(words.iter().any(|line| line == expected), "{expected:?} in\n{shown}");
        }
    }

    #[test]
    fn calls_are_sorted_into_the_first_range_that_fits() {
        let stats = Stats { ranges: vec![(0.0, 1.0), (1.0, 5.0)], ignored: vec![Call::Close] };
        let mut group = Group::new(Some(&stats));
        for millis in [1, 2, 9] {
            group.time(&stats, Call::Read, Duration::from_millis(millis));
        }
        group.time(&stats, Call::Close, Duration::from_millis(1));
        let calls = group.calls.expect("they are timed");
        let read = &calls["read"];
        assert_eq!((calls.len(), read.count, read.min, read.max), (1, 3, 1.0, 9.0));
        assert_eq!((read.total, &read.in_ranges[..]), (12.0, &[1, 1][..]));
    }
}
