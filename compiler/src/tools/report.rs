//! What the command tells its user: errors, progress, and faults of its own.

use std::fmt;
use std::io::{IsTerminal, Write, stderr};
use std::panic::PanicHookInfo;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use mcc_support::Error;
use miette::{Diagnostic, GraphicalReportHandler};

use crate::driver::{Compilation, Observer, Stage};
use crate::graph::Graph;

use super::args::PrintAfter;
use super::print;

/// Prints an error: as a diagnostic on a terminal, plainly elsewhere.
pub fn error(error: &Error) {
    let mut text = String::new();
    if stderr().is_terminal() && GraphicalReportHandler::new().render_report(&mut text, &Report(error.clone())).is_ok() {
        let _ = stderr().write_all(text.as_bytes());
    } else {
        let _ = writeln!(stderr(), "error: {error}");
    }
}

pub fn warning(text: &str) {
    let _ = writeln!(stderr(), "warning: {text}");
}

/// A line of a summary.
pub fn note(text: &str) {
    let _ = writeln!(stderr(), "{text}");
}

/// An error as miette takes it.
#[derive(Debug)]
struct Report(Error);

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut error = self.0.clone();
        error.help = None;
        write!(f, "{error}")
    }
}

impl std::error::Error for Report {}

impl Diagnostic for Report {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.0.help.as_ref().map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }
}

/// The stage that is running, for reports of faults.
static STAGE: Mutex<Option<Stage>> = Mutex::new(None);

/// Follows a compile: progress on a terminal, times, dumps.
#[derive(Debug)]
pub struct Reporter {
    progress: ProgressBar,
    print_after: Vec<PrintAfter>,
    times: Vec<(Stage, Duration)>,
}

impl Reporter {
    pub fn new(progress: bool, print_after: Vec<PrintAfter>) -> Self {
        let progress = if progress && stderr().is_terminal() { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        progress.set_style(ProgressStyle::with_template("{spinner} {msg}").expect("a template"));
        progress.enable_steady_tick(Duration::from_millis(100));
        Self { progress, print_after, times: Vec::new() }
    }

    /// Ends the progress and returns the time of each stage.
    pub fn finish(self) -> Vec<(Stage, Duration)> {
        self.progress.finish_and_clear();
        self.times
    }

    fn dump(&self, place: &str, text: &str) {
        self.progress.suspend(|| print(&format!("; after {place}\n{text}\n")));
    }
}

impl Observer for Reporter {
    fn before(&mut self, stage: Stage) {
        *STAGE.lock().expect("no panic while it is held") = Some(stage);
        self.progress.set_message(stage.name());
    }

    fn after(&mut self, stage: Stage, elapsed: Duration, compilation: &Compilation) {
        self.times.push((stage, elapsed));
        if self.print_after.iter().any(|wanted| *wanted == PrintAfter::All || *wanted == PrintAfter::Stage(stage)) {
            self.dump(stage.name(), &compilation.text(stage));
        }
    }

    fn after_pass(&mut self, pass: &str, graph: &Graph) {
        if self.print_after.iter().any(|wanted| matches!(wanted, PrintAfter::Pass(name) if *name == pass)) {
            self.dump(pass, &graph.to_string());
        }
    }
}

/// The times of the stages as a table.
pub fn times(times: &[(Stage, Duration)]) {
    let total: Duration = times.iter().map(|(_, time)| *time).sum();
    for (name, time) in times.iter().map(|(stage, time)| (stage.name(), *time)).chain([("total", total)]) {
        let _ = writeln!(stderr(), "{name:<10}{:>10.3} ms", time.as_secs_f64() * 1e3);
    }
}

/// Tells a fault of mcc itself, and writes what is needed to find it to a file.
pub fn fault(info: &PanicHookInfo<'_>) {
    let payload = info.payload();
    let text = payload.downcast_ref::<String>().map(String::as_str).or_else(|| payload.downcast_ref::<&str>().copied());
    let text = text.unwrap_or("a panic without a message");
    let stage = STAGE.try_lock().ok().and_then(|stage| *stage).map_or("none", Stage::name);
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    let command: Vec<String> = std::env::args().map(|arg| format!("{arg:?}")).collect();
    let folder = std::env::current_dir().unwrap_or_default();
    let report = format!(
        "mcc {} ended by a fault of its own\n\ncommand: {}\nin folder: {}\nstage: {stage}\nat: {place}\nmessage: {text}\n\nbacktrace:\n{}\n",
        env!("CARGO_PKG_VERSION"),
        command.join(" "),
        folder.display(),
        std::backtrace::Backtrace::force_capture(),
    );
    let path = write_report(&report);
    let first = text.lines().next().unwrap_or_default();
    let _ = writeln!(stderr(), "error: a fault of mcc itself, in stage {stage}: {first}");
    let _ = match path {
        Some(path) => writeln!(stderr(), "  help: please report it, with the model and the file {}", path.display()),
        None => writeln!(stderr(), "{report}"),
    };
}

fn write_report(report: &str) -> Option<PathBuf> {
    let mut file = tempfile::Builder::new().prefix("mcc-fault-").suffix(".txt").tempfile().ok()?;
    file.write_all(report.as_bytes()).ok()?;
    file.keep().ok().map(|(_, path)| path)
}
