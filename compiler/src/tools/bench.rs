//! `mcc bench`: how long a run takes.

use std::io::{BufRead, stdin};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use mcc_kernel::Cpu;
use mcc_support::{Error, Result, ensure};

use crate::driver;

use super::args::BenchArgs;
use super::exec::{Binding, Executable, finished};
use super::rates::Meter;
use super::report::Reporter;
use super::{inputs, print};

const LONGEST_SECONDS: f64 = 1e6;
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
    inputs::fix_shapes(&given, &mut options);
    let mut reporter = Reporter::new(!args.worker, Vec::new());
    let compilation = driver::compile(&options, &mut reporter)?;
    reporter.finish();
    let mut executable = Executable::load(compilation.linked())?;
    let specialization = inputs::specialization(&compilation, &given)?;
    let tensors = inputs::complete(specialization, given, 0)?;
    let mut binding = executable.bind(&tensors)?;
    finished(executable.run(&mut binding))?;
    if args.worker {
        work(&mut executable, &mut binding, &compilation.machine.cpu)
    } else {
        report(&mut executable, &mut binding, args.seconds)
    }
}

/// The nanoseconds of each run, until the time is over; at least one. Runs that are short beside the clock's resolution are timed in
/// groups, and each stands for the mean of its group.
fn measure(executable: &mut Executable, binding: &mut Binding, time: Duration) -> Vec<f64> {
    let end = Instant::now() + time;
    let mut group = 1;
    let mut times = Vec::new();
    loop {
        let start = Instant::now();
        (0..group).for_each(|_| {
            executable.run(binding);
        });
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

fn report(executable: &mut Executable, binding: &mut Binding, seconds: f64) -> Result<ExitCode> {
    // The first runs find cold caches.
    measure(executable, binding, Duration::from_secs_f64(seconds / 10.0));
    let mut times = measure(executable, binding, Duration::from_secs_f64(seconds));
    times.sort_unstable_by(f64::total_cmp);
    let at = |part: f64| times[((times.len() - 1) as f64 * part).round() as usize] / 1e6;
    print(&format!("median {:.4} ms, p95 {:.4} ms, least {:.4} ms, {} runs\n", at(0.5), at(0.95), at(0.0), times.len()));
    Ok(ExitCode::SUCCESS)
}
