//! Time that the processors spent, by kind of work.

use std::fs;

use serde::Serialize;

/// Processor time, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Cpu {
    /// Of this process and of its ended children, in user mode.
    pub user_seconds: f64,
    /// The same, in the kernel.
    pub system_seconds: f64,
    /// Of the whole machine, kernel threads and servers included, minus that of an idle machine.
    /// `None` if /proc/stat cannot be read.
    pub machine_seconds: Option<f64>,
}

impl Cpu {
    /// Time used so far, to a hundredth of a second.
    pub fn now() -> Self {
        let per_second = rustix::param::clock_ticks_per_second() as f64;
        let text = |path| fs::read_to_string(path).unwrap_or_default();
        let [user, system] = of_process(&text("/proc/self/stat")).unwrap_or_default();
        Self {
            user_seconds: user as f64 / per_second,
            system_seconds: system as f64 / per_second,
            machine_seconds: of_machine(&text("/proc/stat")).map(|ticks| ticks as f64 / per_second),
        }
    }

    /// Time used since `before`.
    pub fn since(self, before: Self) -> Self {
        let machine = self.machine_seconds.zip(before.machine_seconds);
        Self {
            user_seconds: self.user_seconds - before.user_seconds,
            system_seconds: self.system_seconds - before.system_seconds,
            machine_seconds: machine.map(|(now, before)| now - before),
        }
    }
}

/// User and system ticks of a process and its ended children: fields 14 to 17 of proc_pid_stat(5).
/// The name before them may have blanks and parentheses in it.
fn of_process(stat: &str) -> Option<[u64; 2]> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut ticks = after_name.split_whitespace().skip(11).map_while(|field| field.parse().ok());
    let mut next = || ticks.next();
    let own: [u64; 2] = [next()?, next()?];
    let children: [u64; 2] = [next()?, next()?];
    Some([own[0] + children[0], own[1] + children[1]])
}

/// Ticks of all processors that they were neither idle nor waiting for a disk, nor given to other
/// guests: the first line of proc_stat(5) is user, nice, system, idle, iowait, irq, softirq, steal.
/// Guests of ours count as user already.
fn of_machine(stat: &str) -> Option<u64> {
    let fields = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
    let ticks: Vec<u64> = fields.map_while(|field| field.parse().ok()).collect();
    let [user, nice, system, _, _, irq, softirq, ..] = ticks[..] else { return None };
    Some(user + nice + system + irq + softirq)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_counted_with_its_children_whatever_its_name() {
        let stat = "17 (a b) c) S 1 17 17 0 -1 4194560 90 8 0 0 300 200 30 20 20 0 1 0 5 6 7";
        assert_eq!(of_process(stat), Some([330, 220]));
        assert_eq!(of_process("17 (a) S 1"), None);
    }

    #[test]
    fn a_machine_is_busy_when_it_neither_idles_nor_waits() {
        assert_eq!(of_machine("cpu  1 2 4 800 900 8 16 999 1 0\ncpu0 5 5 5\n"), Some(31));
        assert_eq!(of_machine(""), None);
    }

    #[test]
    fn work_is_seen() {
        let before = Cpu::now();
        let mut sum = 0_u64;
        while Cpu::now().since(before).user_seconds + Cpu::now().since(before).system_seconds < 0.03
        {
            sum = sum.wrapping_add(std::hint::black_box(1));
        }
        assert!(sum > 0 && Cpu::now().since(before).machine_seconds.is_some_and(|busy| busy > 0.0));
    }
}
