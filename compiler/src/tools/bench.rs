//! `mcc bench`: how long a run takes, and each kernel of it.

use std::fmt::Write as _;
use std::io::{BufRead, stdin};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use mcc_kernel::Cpu;
use mcc_support::{Error, Result, Tensor, ensure};
use serde_json::json;

use crate::driver::{self, Compilation, Specialization};
use crate::emit::{self, CompiledModel};
use crate::targets;

use super::args::BenchArgs;
use super::exec::{Binding, Executable, finished};
use super::rates::{Bandwidth, Level, Meter, Rates};
use super::report::Reporter;
use super::table::{self, Row};
use super::{inputs, print};

const LONGEST_SECONDS: f64 = 1e6;
/// Of runs whose kernels are timed: their times are kept.
const MOST_RUNS: usize = 5000;
/// What is timed at once takes at least so long, that reading the clock does not count.
const SHORTEST: Duration = Duration::from_micros(4);

pub fn bench(args: &BenchArgs) -> Result<ExitCode> {
    if args.threads != 1 {
        return Err(Error::new(format!("models run on one thread, not on {}", args.threads)));
    }
    ensure!(args.seconds > 0.0 && args.seconds < LONGEST_SECONDS, "--seconds {} is no time to measure", args.seconds);
    let mut options = args.build.options(&args.model, "host")?;
    let given = match &args.inputs {
        Some(folder) => inputs::from_folder(folder)?,
        None => Default::default(),
    };
    inputs::fix_shapes(&given, &mut options)?;
    let mut reporter = Reporter::new(!args.worker, Vec::new());
    let compilation = driver::compile(&options, &mut reporter)?;
    reporter.finish();
    let mut executable = Executable::load(compilation.linked())?;
    let specialization = inputs::specialization(&compilation, &given)?;
    let tensors = inputs::complete(specialization, given, 0)?;
    let mut binding = executable.bind(&tensors)?;
    finished(executable.run(&mut binding))?;
    if args.worker {
        return work(&mut executable, &mut binding, &compilation.level_here().cpu);
    }
    let times = sorted_times(&mut executable, &mut binding, args.seconds);
    let (rows, rates) = kernels(&compilation, specialization, &tensors, args.seconds / 2.0)?;
    print(&if args.json { to_json(&compilation, &times, &rates, &rows) } else { to_text(&times, &rates, &rows) });
    Ok(ExitCode::SUCCESS)
}

/// The nanoseconds of each run, until the time is over; at least one. Runs that are short beside the clock's resolution are timed in
/// groups, and each stands for the mean of its group.
fn measure(executable: &mut Executable, binding: &mut Binding, time: Duration) -> Vec<f64> {
    let end = Instant::now() + time;
    let mut group = 1;
    let mut times = Vec::new();
    loop {
        let start = Instant::now();
        executable.run_often(binding, group);
        let now = Instant::now();
        let elapsed = now - start;
        if elapsed >= SHORTEST || now >= end {
            times.push(elapsed.as_nanos() as f64 / f64::from(group));
        } else {
            group *= 2;
        }
        if now >= end {
            return times;
        }
    }
}

fn work(executable: &mut Executable, binding: &mut Binding, cpu: &Cpu) -> Result<ExitCode> {
    print("READY {}\n");
    let mut meter = None;
    for line in stdin().lock().lines() {
        let line = line.map_err(|error| Error::new(format!("cannot read the standard input: {error}")))?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let answer = match words[..] {
            [] | ["quit"] => break,
            ["rates", ref levels @ ..] => meter.get_or_insert_with(|| Meter::new(cpu)).measure(levels)?.to_json().to_string(),
            ["run", seconds] => {
                let seconds = seconds.parse::<f64>().ok().filter(|seconds| (0.0..LONGEST_SECONDS).contains(seconds));
                let seconds = seconds.ok_or_else(|| Error::new(format!("'{line}': this is no time to measure")))?;
                let times = measure(executable, binding, Duration::from_secs_f64(seconds));
                serde_json::to_string(&times).expect("numbers")
            }
            _ => return Err(Error::new(format!("the line '{line}' is none of `run SECONDS`, `rates LEVEL…` and `quit`"))),
        };
        print(&format!("{answer}\n"));
    }
    Ok(ExitCode::SUCCESS)
}

/// The nanoseconds of runs, in rising order.
fn sorted_times(executable: &mut Executable, binding: &mut Binding, seconds: f64) -> Vec<f64> {
    // The first runs find cold caches.
    measure(executable, binding, Duration::from_secs_f64(seconds / 10.0));
    let mut times = measure(executable, binding, Duration::from_secs_f64(seconds));
    times.sort_unstable_by(f64::total_cmp);
    times
}

/// What each kernel takes, of the same model linked with profiling, and the machine's rates.
fn kernels(
    compilation: &Compilation,
    specialization: &Specialization,
    inputs: &[Tensor],
    seconds: f64,
) -> Result<(Vec<Row>, Rates)> {
    let linked = compilation.linked();
    let profiled = emit::link(CompiledModel { profile: true, ..linked.model.clone() }, targets::ENTRY);
    let mut executable = Executable::load(&profiled)?;
    let mut binding = executable.bind(inputs)?;
    let mut runs = Vec::new();
    let mut meter = Meter::new(&compilation.level_here().cpu);
    let before = meter.measure(&[])?;
    executable.run_profiled(&mut binding, &mut Vec::new());
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    while runs.is_empty() || Instant::now() < end && runs.len() < MOST_RUNS {
        let mut stamps = Vec::new();
        executable.run_profiled(&mut binding, &mut stamps);
        runs.push(stamps);
    }
    let rates = meter.measure(&[])?.best(&before);
    let all = compilation.specializations();
    let at = all.iter().position(|one| std::ptr::eq(one, specialization)).expect("it is one of the compilation's");
    let first: usize = linked.model.specializations[..at].iter().map(|one| one.kernels.len()).sum();
    let model_bytes = (linked.sizes.weights_bytes + linked.sizes.arena_bytes) as usize;
    let mut rows = table::rows(specialization, &linked.model.specializations[at].kernels, first, &runs, &rates, model_bytes);
    table::without_clock(&mut rows, clock_seconds());
    Ok((rows, rates))
}

/// What reading the clock takes, the median.
fn clock_seconds() -> f64 {
    let mut times: Vec<Duration> = (0..1000).map(|_| Instant::now()).map(|start| start.elapsed()).collect();
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64()
}

fn milliseconds(times: &[f64], part: f64) -> f64 {
    times[((times.len() - 1) as f64 * part).round() as usize] / 1e6
}

fn to_text(times: &[f64], rates: &Rates, rows: &[Row]) -> String {
    let [least, median, p95] = [0.0, 0.5, 0.95].map(|part| milliseconds(times, part));
    let mut out = format!("median {median:.4} ms, p95 {p95:.4} ms, least {least:.4} ms, {} runs\n\n", times.len());
    let _ = write!(out, "{:.0} GFLOP/s in vectors of {}; GB/s read, written, copied: ", 2e-9 * rates.fma, rates.lanes);
    let level = |(level, rate): &(Level, Bandwidth)| {
        format!("{} {:.0}, {:.0}, {:.0}", level.name, 1e-9 * rate.read, 1e-9 * rate.write, 1e-9 * rate.copy)
    };
    let _ = writeln!(out, "{}\n", rates.levels.iter().map(level).collect::<Vec<_>>().join("; "));
    out + &table::to_text(rows)
}

fn to_json(compilation: &Compilation, times: &[f64], rates: &Rates, rows: &[Row]) -> String {
    let value = json!({
        "model": compilation.name,
        "cpu": compilation.level_here().cpu.name,
        "runs": times.len(),
        "median_ms": milliseconds(times, 0.5),
        "p95_ms": milliseconds(times, 0.95),
        "least_ms": milliseconds(times, 0.0),
        "rates": rates.to_json(),
        "kernels": table::to_json(rows),
    });
    serde_json::to_string_pretty(&value).expect("numbers and texts") + "\n"
}
