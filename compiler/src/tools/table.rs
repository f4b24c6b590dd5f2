//! The table of `mcc bench`: what each kernel does in its time, beside what the machine can do.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::driver::Specialization;
use crate::emit::CompiledKernel;

use super::exec::Stamp;
use super::rates::Rates;
use super::work::{Work, work};

/// A kernel as measured.
#[derive(Clone, Debug)]
pub struct Row {
    pub name: String,
    /// Nodes of the model.
    pub origins: Vec<String>,
    /// Of one run; less where it stands in a branch, more in a loop.
    pub calls: f64,
    /// Of all calls of a run, the median of the runs.
    pub seconds: f64,
    /// Of a run.
    pub work: Work,
    /// Shares of the rate of multiply-adds, and of the bandwidth of the levels that hold what it touches.
    pub fma_share: f64,
    pub bandwidth_share: f64,
    /// The level that holds all that it touches.
    pub level: String,
}

/// The rows of the kernels of a specialization, in their order. `runs` are the stamps of several runs, `first` is the place of its
/// first kernel in the manifest.
pub fn rows(
    specialization: &Specialization,
    kernels: &[CompiledKernel],
    first: usize,
    runs: &[Vec<Stamp>],
    rates: &Rates,
    model_bytes: usize,
) -> Vec<Row> {
    let (seconds, calls) = times(runs, first, kernels.len());
    let realized = specialization.realized();
    let row = |(index, kernel): (usize, &CompiledKernel)| {
        let one = work(&realized.program, &realized.plan, &realized.program.kernels[index]);
        let work = scaled(&one, calls[index]);
        let (level, bandwidth) = rates.level_of(one.bytes() as usize);
        // Weights were last read a run ago.
        let (_, of_weights) = rates.level_of(model_bytes);
        let moved = of_weights.seconds(work.weights_bytes, 0.0) + bandwidth.seconds(work.read_bytes, work.written_bytes);
        let share = |least: f64| if seconds[index] > 0.0 { least / seconds[index] } else { 0.0 };
        Row {
            name: kernel.name.clone(),
            origins: kernel.origins.clone(),
            calls: calls[index],
            seconds: seconds[index],
            fma_share: share(work.slots / rates.fma),
            bandwidth_share: share(moved),
            level: level.name.clone(),
            work,
        }
    };
    kernels.iter().enumerate().map(row).collect()
}

fn scaled(work: &Work, calls: f64) -> Work {
    Work {
        operations: work.operations * calls,
        slots: work.slots * calls,
        read_bytes: work.read_bytes * calls,
        weights_bytes: work.weights_bytes * calls,
        written_bytes: work.written_bytes * calls,
    }
}

/// Seconds of each kernel in a run, the median of the runs, and how often it runs.
fn times(runs: &[Vec<Stamp>], first: usize, count: usize) -> (Vec<f64>, Vec<f64>) {
    let mut seconds = vec![Vec::new(); count];
    let mut calls = vec![0.0; count];
    for run in runs {
        let mut sums = vec![0.0; count];
        for pair in run.chunks_exact(2) {
            let kernel = pair[0].kernel as usize - first;
            sums[kernel] += (pair[1].at - pair[0].at).as_secs_f64();
            calls[kernel] += 1.0;
        }
        seconds.iter_mut().zip(sums).for_each(|(all, sum)| all.push(sum));
    }
    let median = |mut all: Vec<f64>| {
        all.sort_unstable_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or(0.0)
    };
    (seconds.into_iter().map(median).collect(), calls.into_iter().map(|calls| calls / runs.len() as f64).collect())
}

/// Takes the time that two readings of the clock take off each kernel's.
pub fn without_clock(rows: &mut [Row], clock_seconds: f64) {
    for row in rows {
        let least = 0.05 * row.seconds;
        let seconds = (row.seconds - row.calls * clock_seconds).max(least);
        if seconds > 0.0 {
            row.fma_share *= row.seconds / seconds;
            row.bandwidth_share *= row.seconds / seconds;
            row.seconds = seconds;
        }
    }
}

impl Row {
    /// The least time that its arithmetic and its bytes take by the machine's rates.
    fn bound_seconds(&self) -> f64 {
        self.seconds * self.fma_share.max(self.bandwidth_share)
    }
}

pub fn to_text(rows: &[Row]) -> String {
    let total: f64 = rows.iter().map(|row| row.seconds).sum();
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0).max(6);
    let mut out = format!(
        "{:<width$} {:>10} {:>6} {:>10} {:>9} {:>9} {:>6} {:>6} {:<6}  {}\n",
        "kernel", "us", "time", "bound us", "GFLOP/s", "KiB", "FMA", "bytes", "level", "nodes"
    );
    for row in rows {
        let rate = if row.seconds > 0.0 { row.work.operations / row.seconds / 1e9 } else { 0.0 };
        let _ = writeln!(
            out,
            "{:<width$} {:>10.2} {:>5.1}% {:>10.2} {:>9.2} {:>9.1} {:>5.0}% {:>5.0}% {:<6}  {}",
            row.name,
            row.seconds * 1e6,
            if total > 0.0 { 100.0 * row.seconds / total } else { 0.0 },
            row.bound_seconds() * 1e6,
            rate,
            row.work.bytes() / 1024.0,
            100.0 * row.fma_share,
            100.0 * row.bandwidth_share,
            row.level,
            row.origins.join(", "),
        );
    }
    let bound: f64 = rows.iter().map(Row::bound_seconds).sum();
    let _ = writeln!(out, "{:<width$} {:>10.2} {:>6} {:>10.2}", "all", total * 1e6, "", bound * 1e6);
    out
}

pub fn to_json(rows: &[Row]) -> Value {
    let row = |row: &Row| {
        json!({
            "name": row.name,
            "nodes": row.origins,
            "calls": row.calls,
            "us": row.seconds * 1e6,
            "bound_us": row.bound_seconds() * 1e6,
            "operations": row.work.operations,
            "slots": row.work.slots,
            "read_bytes": row.work.read_bytes,
            "weights_bytes": row.work.weights_bytes,
            "written_bytes": row.work.written_bytes,
            "fma_share": row.fma_share,
            "bandwidth_share": row.bandwidth_share,
            "level": row.level,
        })
    };
    rows.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn times_are_medians_of_runs_and_calls_are_means() {
        let start = Instant::now();
        let run = |kernels: &[(u32, u64)]| -> Vec<Stamp> {
            let mut at = start;
            let mut stamps = Vec::new();
            for &(kernel, micros) in kernels {
                stamps.push(Stamp { kernel, is_end: false, at });
                at += Duration::from_micros(micros);
                stamps.push(Stamp { kernel, is_end: true, at });
            }
            stamps
        };
        // Kernel 6 runs twice in each run, kernel 5 in two of three.
        let runs = [run(&[(5, 10), (6, 1), (6, 2)]), run(&[(6, 3), (6, 4)]), run(&[(5, 30), (6, 5), (6, 6)])];
        let (seconds, calls) = times(&runs, 5, 2);
        let micros: Vec<f64> = seconds.iter().map(|seconds| (seconds * 1e6).round()).collect();
        assert_eq!(micros, [10.0, 7.0]);
        assert!((calls[0] - 2.0 / 3.0).abs() < 1e-9 && (calls[1] - 2.0).abs() < 1e-9);
    }
}
