//! `mcc bench`: how long a run takes.

use std::io::{BufRead, stdin};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use mcc_support::{Error, Result, ensure};

use crate::driver;

use super::args::BenchArgs;
use super::exec::{Binding, Executable, finished};
use super::report::Reporter;
use super::{inputs, print};

const LONGEST_SECONDS: f64 = 1e6;

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
    if args.worker { work(&mut executable, &mut binding) } else { report(&mut executable, &mut binding, args.seconds) }
}

/// The nanoseconds of each run, until the time is over; at least one run.
fn measure(executable: &mut Executable, binding: &mut Binding, time: Duration) -> Vec<u64> {
    let end = Instant::now() + time;
    let mut times = Vec::new();
    loop {
        let start = Instant::now();
        executable.run(binding);
        let now = Instant::now();
        times.push((now - start).as_nanos() as u64);
        if now >= end {
            return times;
        }
    }
}

fn work(executable: &mut Executable, binding: &mut Binding) -> Result<ExitCode> {
    print("READY {}\n");
    for line in stdin().lock().lines() {
        let line = line.map_err(|error| Error::new(format!("cannot read the standard input: {error}")))?;
        let mut words = line.split_whitespace();
        let seconds = match (words.next(), words.next().map(str::parse::<f64>)) {
            (Some("run"), Some(Ok(seconds))) if (0.0..LONGEST_SECONDS).contains(&seconds) => seconds,
            (None | Some("quit"), _) => break,
            _ => return Err(Error::new(format!("the line '{line}' is neither `run SECONDS` nor `quit`"))),
        };
        let times = measure(executable, binding, Duration::from_secs_f64(seconds));
        print(&format!("{}\n", serde_json::to_string(&times).expect("numbers")));
    }
    Ok(ExitCode::SUCCESS)
}

fn report(executable: &mut Executable, binding: &mut Binding, seconds: f64) -> Result<ExitCode> {
    // The first runs find cold caches.
    measure(executable, binding, Duration::from_secs_f64(seconds / 10.0));
    let mut times = measure(executable, binding, Duration::from_secs_f64(seconds));
    times.sort_unstable();
    let at = |part: f64| times[((times.len() - 1) as f64 * part).round() as usize] as f64 / 1e6;
    print(&format!("median {:.4} ms, p95 {:.4} ms, least {:.4} ms, {} runs\n", at(0.5), at(0.95), at(0.0), times.len()));
    Ok(ExitCode::SUCCESS)
}
