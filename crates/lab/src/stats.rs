//! Statistics of repeated runs: the mean of one target, and the difference of two.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};
use statrs::function::gamma::ln_gamma;

/// The confidence of every interval here.
pub const CONFIDENCE: f64 = 0.95;

/// The normal distribution's quantile that leaves 2.5% above it, as document 002 rounds it.
const NORMAL_QUANTILE: f64 = 1.96;

/// Runs of one target, in the unit of the samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// How many there are, at least one.
    pub count: usize,
    /// Their arithmetic mean.
    pub mean: f64,
    /// The least of them.
    pub min: f64,
    /// The greatest of them.
    pub max: f64,
    /// The sample standard deviation, with n - 1 below the line; `None` for a single run.
    pub deviation: Option<f64>,
}

impl Summary {
    /// Sums up the samples; `None` without samples, or if one is not a number.
    pub fn of(samples: &[f64]) -> Option<Self> {
        if samples.is_empty() || samples.iter().any(|sample| !sample.is_finite()) {
            return None;
        }
        let count = samples.len();
        let mean = samples.iter().sum::<f64>() / count as f64;
        let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
        let deviation = (count > 1).then(|| (squares / (count - 1) as f64).sqrt());
        let min = samples.iter().copied().fold(f64::INFINITY, f64::min);
        let max = samples.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Some(Self { count, mean, min, max, deviation })
    }

    /// The deviation in per cent of the mean.
    pub fn deviation_percent(&self) -> Option<f64> {
        self.deviation.map(|deviation| self.percent(deviation))
    }

    /// Half the width of the mean's 95% interval by Student's t: the ± to print.
    pub fn student_interval(&self) -> Option<f64> {
        let deviation = self.deviation?;
        Some(student_quantile((self.count - 1) as f64)? * deviation / (self.count as f64).sqrt())
    }

    /// Half the width as document 002 has it: 1.96 s / (c4 sqrt n), for comparison with its tables.
    /// It is too narrow for few runs, as the deviation is not known but estimated.
    pub fn published_interval(&self) -> Option<f64> {
        let deviation = self.deviation?;
        Some(NORMAL_QUANTILE * deviation / (c4(self.count) * (self.count as f64).sqrt()))
    }

    /// A figure of the unit in per cent of the mean.
    pub fn percent(&self, figure: f64) -> f64 {
        100.0 * figure / self.mean
    }
}

/// How the second of two targets differs from the first.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Of the means, in per cent of the first's.
    pub percent: f64,
    /// Half the width of its 95% interval, in per cent of the first's mean: Welch's, which takes no
    /// equal deviations for granted. `None` where one of them has a single run.
    pub interval_percent: Option<f64>,
}

impl Difference {
    /// Compares two targets; `None` where the first's mean is zero.
    pub fn between(first: &Summary, second: &Summary) -> Option<Self> {
        if first.mean == 0.0 {
            return None;
        }
        let percent = first.percent(second.mean - first.mean);
        Some(Self {
            percent,
            interval_percent: welch(first, second).map(|half| first.percent(half)),
        })
    }

    /// Whether the interval leaves zero out.
    pub fn is_significant(&self) -> bool {
        self.interval_percent.is_some_and(|half| self.percent.abs() > half)
    }
}

/// Half the width of the interval of the difference of two means.
fn welch(first: &Summary, second: &Summary) -> Option<f64> {
    let part = |one: &Summary| Some(one.deviation?.powi(2) / one.count as f64);
    let (a, b) = (part(first)?, part(second)?);
    if a + b == 0.0 {
        return Some(0.0);
    }
    let below = a.powi(2) / (first.count - 1) as f64 + b.powi(2) / (second.count - 1) as f64;
    Some(student_quantile((a + b).powi(2) / below)? * (a + b).sqrt())
}

/// The t that leaves 2.5% above it.
fn student_quantile(freedom: f64) -> Option<f64> {
    let student = StudentsT::new(0.0, 1.0, freedom).ok()?;
    Some(student.inverse_cdf(0.5 + CONFIDENCE / 2.0))
}

/// Ratio of the expected sample deviation of `count` normal values to the true one.
fn c4(count: usize) -> f64 {
    let n = count as f64;
    (2.0 / (n - 1.0)).sqrt() * (ln_gamma(n / 2.0) - ln_gamma((n - 1.0) / 2.0)).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, expected: f64, within: f64) {
        assert!((found - expected).abs() <= within, "{found}, expected {expected}");
    }

    fn with(count: usize, mean: f64, deviation: f64) -> Summary {
        Summary { count, mean, min: mean, max: mean, deviation: Some(deviation) }
    }

    /// Document 002's tables: samples, average, deviation, interval, interval in per cent. Its
    /// captions claim five samples of btrfs; its intervals are those of four.
    #[test]
    fn the_published_intervals_come_out() {
        for (count, mean, deviation, interval, percent) in [
            (9, 20638.0, 2137.86, 1440.96, 6.982),
            (9, 17518.11, 2060.71, 1388.96, 7.929),
            (7, 19475.7, 738.341, 570.136, 2.927),
            (7, 13634.6, 763.391, 589.479, 4.323),
            (5, 25541.4, 2315.48, 2159.19, 8.454),
            (5, 15690.4, 1687.58, 1573.67, 10.030),
            (4, 13514.0, 1186.96, 1262.56, 9.343),
            (4, 8805.75, 623.663, 663.39, 7.534),
        ] {
            let summary = with(count, mean, deviation);
            let found = summary.published_interval().expect("there are several runs");
            close(found, interval, 0.01);
            close(summary.percent(found), percent, 0.001);
        }
    }

    #[test]
    fn deviations_have_n_minus_1_below_the_line() {
        let summary = Summary::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).expect("numbers");
        assert_eq!((summary.count, summary.mean, summary.min, summary.max), (8, 5.0, 2.0, 9.0));
        close(summary.deviation.expect("several"), 2.138_089_935, 1e-8);
        close(summary.deviation_percent().expect("several"), 42.761_798_7, 1e-6);
    }

    /// Table values: t for 95% and 1, 4, 8, 30 degrees of freedom.
    #[test]
    fn students_t_is_that_of_the_tables() {
        for (count, t) in [(2, 12.7062), (5, 2.7764), (9, 2.3060), (31, 2.0423)] {
            let n = count as f64;
            let half = with(count, 1.0, 1.0).student_interval().expect("several");
            close(half * n.sqrt(), t, 1e-4);
        }
    }

    #[test]
    fn a_single_run_has_no_interval() {
        let one = Summary::of(&[3.0]).expect("a number");
        assert_eq!(
            (one.deviation, one.student_interval(), one.published_interval()),
            (None, None, None)
        );
        let two = Summary::of(&[6.0, 6.0]).expect("numbers");
        let difference = Difference::between(&one, &two).expect("a mean");
        assert_eq!((difference.percent, difference.interval_percent), (100.0, None));
        assert!(!difference.is_significant());
    }

    #[test]
    fn what_is_no_number_is_not_summed_up() {
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[1.0, f64::NAN]), None);
    }

    /// Computed apart: t = -2.85295 with 27.8873 degrees of freedom, for which tables give 2.0488.
    #[test]
    fn differences_are_welchs() {
        let first = [
            27.5, 21.0, 19.0, 23.6, 17.0, 17.9, 16.9, 20.1, 21.9, 22.6, 23.1, 19.6, 19.0, 21.7,
            21.4,
        ];
        let second = [
            27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8, 22.0, 24.8, 20.2, 21.9, 22.1, 22.9, 30.5,
            24.4,
        ];
        let [first, second] =
            [first, second].map(|samples| Summary::of(&samples).expect("numbers"));
        let half = welch(&first, &second).expect("several");
        close((first.mean - second.mean) / half, -2.85295 / 2.0488, 1e-4);
        assert!(Difference::between(&first, &second).expect("a mean").is_significant());
    }
}
