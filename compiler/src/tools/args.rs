//! The command line.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ErrorKind};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use mcc_kernel::BranchProtection;
use mcc_support::error::similar;
use mcc_support::tensor::Number;
use mcc_support::{DType, Error, Result, Shape, Tensor, TensorType, bail, ensure};

use crate::decisions::Decisions;
use crate::driver::{Options, ShapeSet, Stage};
use crate::import::declared_inputs;
use crate::npy;
use crate::onnx::{DeclaredDim, DeclaredType, Model};
use crate::passes;

use super::memory::Limits;

const EXAMPLES: &str = "\
Examples:
  mcc digits.onnx                                     digits.o, digits.h and digits.json for this machine
  mcc digits.onnx --target aarch64 -o build/          for 64-bit ARM, into a folder
  mcc digits.onnx --target aarch64-none --cpu cortex-a53
  mcc detect.onnx --shape image=1,3,320,320 --dim batch=1
  mcc detect.onnx --emit staticlib,header
  mcc run digits.onnx --input image=seven.npy         its outputs, without any toolchain
  mcc bench digits.onnx                               how long a run takes
  mcc check digits.onnx                               all that stops a compile";

#[derive(Parser, Debug)]
#[command(
    name = "mcc",
    version,
    about = "Ahead-of-time compiler for neural networks: an ONNX model becomes an object file and a C header"
)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    _command: Option<Command>,
    /// Print where a build system finds what it needs; written to the user's cache where it is not there
    #[arg(long = "print", value_name = "WHAT", exclusive = true)]
    _print: Option<Printed>,
    #[command(flatten)]
    _compile: CompileArgs,
}

/// What the process was started to do.
#[derive(Debug)]
pub enum Invocation {
    Compile(CompileArgs),
    Print(Printed),
    Command(Command),
}

impl Invocation {
    /// Ends the process where the command line is wrong or asks for help.
    pub fn parse() -> Self {
        let matches = Cli::command().try_get_matches().unwrap_or_else(|error| explained(error).exit());
        if let Some(what) = matches.get_one("_print") {
            return Invocation::Print(*what);
        }
        let parsed = match matches.subcommand_name() {
            Some(_) => Command::from_arg_matches(&matches).map(Invocation::Command),
            None => CompileArgs::from_arg_matches(&matches).map(Invocation::Compile),
        };
        parsed.unwrap_or_else(|error| error.exit())
    }
}

/// What is taken for a model may have been meant for a command.
fn explained(error: clap::Error) -> clap::Error {
    let Some(first) = std::env::args().nth(1).filter(|word| !word.starts_with('-')) else { return error };
    let mut cli = Cli::command();
    let is_word = error.kind() == ErrorKind::ArgumentConflict && error.get(ContextKind::InvalidSubcommand).is_some();
    if !is_word || cli.find_subcommand(&first).is_some() {
        return error;
    }
    let commands: Vec<String> = cli.get_subcommands().map(|command| command.get_name().to_string()).collect();
    let message = match similar(&first, commands.iter().map(String::as_str)) {
        Some(command) => format!("there is no command '{first}'; did you mean '{command}'?"),
        None if Path::new(&first).exists() => "one model is compiled at a time".to_string(),
        None => format!("there is no command '{first}', and one model is compiled at a time"),
    };
    cli.error(ErrorKind::InvalidSubcommand, message)
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Run a model in this process and print its outputs
    Run(RunArgs),
    /// Time the runs of a model in this process
    Bench(BenchArgs),
    /// List the kernels of a model, or show the machine code of one
    Inspect(InspectArgs),
    /// Name everything that stops a model from being compiled
    Check(CheckArgs),
    /// Compare the values inside of a model, layer by layer, with what they should be
    Diff(CompareArgs),
    /// Find the rewrite, fusion, layout or schedule step that makes a result wrong
    Bisect(CompareArgs),
    /// Run passes on a graph in its text form and print the result
    Opt(OptArgs),
    /// List the operators that can be compiled
    Ops,
    /// List the targets and CPUs that can be compiled for
    Targets,
    /// Write what build systems need, as a CMake package, below a folder (see also --print)
    InstallFiles(InstallArgs),
}

#[derive(Args, Debug)]
pub struct CompileArgs {
    /// The model
    #[arg(value_name = "MODEL.onnx")]
    pub model: PathBuf,
    #[command(flatten)]
    pub build: BuildArgs,
    /// What to compile for: a triple, x86_64, aarch64, aarch64-none or host (see `mcc targets`)
    #[arg(long, default_value = "host")]
    pub target: String,
    /// The object file to write, or the folder for all files (with a / at the end, or one that exists) [default: ./NAME.o]
    #[arg(short, long, value_name = "PATH")]
    pub output: Option<PathBuf>,
    /// Prefix of the symbols [default: from the name of the file]
    #[arg(long, value_name = "IDENT")]
    pub name: Option<String>,
    /// What to write
    #[arg(long, value_name = "KIND", value_delimiter = ',', default_values = ["object", "header", "manifest"])]
    pub emit: Vec<EmitKind>,
    /// Print what a stage or pass makes, to the standard output
    #[arg(long, value_name = "STAGE|PASS|all", value_parser = print_after)]
    pub print_after: Vec<PrintAfter>,
    /// End after this stage and write nothing
    #[arg(long, value_name = "STAGE")]
    pub stop_after: Option<Stage>,
    /// Make a run tell `mcc_call.profile` of each kernel before and after it
    #[arg(long)]
    pub profile: bool,
    /// Fail, with what dominates, where the model takes more: of arena, stack, code, weights, as arena=64KiB,code=32KiB
    #[arg(long, value_name = "KIND=SIZE,…")]
    pub limit: Option<Limits>,
    /// Of aarch64: mark where indirect branches may lead (bti), sign return addresses in memory (pac-ret), or both (standard)
    #[arg(long, value_name = "KIND", default_value = "none")]
    pub branch_protection: BranchProtectionKind,
    /// Put the weights into a section of this name, which a linker script places (in Mach-O: SEGMENT,SECTION)
    #[arg(long, value_name = "NAME", conflicts_with = "weights_file")]
    pub weights_section: Option<String>,
    /// Leave the weights out of the object and write them to this file, whose bytes each run is passed: for memory that is flashed
    /// apart, and to change the weights without linking again
    #[arg(long, value_name = "PATH")]
    pub weights_file: Option<PathBuf>,
    /// Write the files that the result depends on, for make and ninja
    #[arg(long, value_name = "PATH")]
    pub depfile: Option<PathBuf>,
    /// Print no summary, warnings or progress
    #[arg(short, long)]
    pub quiet: bool,
}

/// What each command that compiles takes besides the model.
#[derive(Args, Debug)]
pub struct BuildArgs {
    /// The CPU to compile for, with single features after + signs [default: x86-64-v3 or armv8-a]. Several, as in
    /// x86-64-v2,x86-64-v4 or armv8-a,+dotprod: a run takes the best that its CPU has
    #[arg(long, value_name = "NAME")]
    pub cpu: Option<String>,
    /// Fix the shape of an input. Given again for the same input, for further sets of shapes in the same object, of which a
    /// run takes the one that fits; what is given once holds in every set. An extent may be a range, 1..128: a run is told which
    #[arg(long, value_name = "INPUT=1,3,224,224", value_parser = shape)]
    pub shape: Vec<(String, Vec<Bounds>)>,
    /// Fix the extent of a dimension that the model names, or its range, 1..128; again for further sets, as --shape
    #[arg(long, value_name = "NAME=EXTENT|LEAST..MOST", value_parser = dim)]
    pub dim: Vec<(String, Bounds)>,
    /// Of a value that is as long as the data say, its greatest length; of one that determines extents, the greatest value of each
    /// element
    #[arg(long, value_name = "VALUE=N,…", value_parser = most_elements)]
    pub max_elements: Vec<(String, Vec<usize>)>,
    /// Make an input a constant: of numbers, as 1 or 0.5,0.5 or of a .npy file
    #[arg(long, value_name = "INPUT=VALUE|FILE.npy", value_parser = pair)]
    pub constant: Vec<(String, String)>,
    /// Verify after each stage
    #[arg(long)]
    pub verify: bool,
    /// Print the time that each stage takes
    #[arg(long)]
    pub time: bool,
    /// 0: take the graph as imported, a kernel of plain loops for each op: no rewrite, fusion, layout or schedule that is not needed;
    /// 1: all of them
    #[arg(short = 'O', value_name = "LEVEL", value_parser = clap::value_parser!(u8).range(0..=1), default_value_t = 1)]
    pub optimize: u8,
    /// Do only so many rewrites of the graph, fusions, transformed convolutions, layouts and schedule steps, in this order, to find a
    /// wrong one (-O0 is --fuel 0)
    #[arg(long, value_name = "N", conflicts_with = "optimize")]
    pub fuel: Option<u64>,
    /// Whether convolutions of 3 × 3 may be computed by Winograd's transforms: faster, with more weights, and sums that err more
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub winograd: When,
    /// Of aarch64: whether every access is aligned to its size, as it must be with the memory management unit off [default: on
    /// where the target has no operating system]
    #[arg(long, value_name = "SWITCH")]
    pub strict_align: Option<Switch>,
    /// Fusions, order, layouts and schedules to take, as --emit decisions writes them
    #[arg(long, value_name = "FILE.json")]
    pub decisions: Option<PathBuf>,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Switch {
    On,
    Off,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// Where that is faster
    Auto,
    /// Nowhere
    Off,
}

#[derive(Args, Debug)]
pub struct RunArgs {
    /// The model
    #[arg(value_name = "MODEL.onnx")]
    pub model: PathBuf,
    #[command(flatten)]
    pub build: BuildArgs,
    /// The value of an input, or an archive with those of all inputs; inputs without one are random
    #[arg(long, short, value_name = "INPUT=FILE.npy|FILE.npz")]
    pub input: Vec<String>,
    /// Write each output to a .npy file in this folder
    #[arg(long, short, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Which form of the model to run: an interpreter's, or machine code
    #[arg(long, default_value = "machine")]
    pub at: Level,
    /// Seed of random inputs
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Print nothing
    #[arg(short, long)]
    pub quiet: bool,
}

#[derive(Args, Debug)]
pub struct BenchArgs {
    /// The model
    #[arg(value_name = "MODEL.onnx")]
    pub model: PathBuf,
    #[command(flatten)]
    pub build: BuildArgs,
    /// Threads that a run uses
    #[arg(long, default_value_t = 1)]
    pub threads: usize,
    /// Print JSON
    #[arg(long, conflicts_with = "worker")]
    pub json: bool,
    /// How long to measure, in seconds
    #[arg(long, default_value_t = 2.0)]
    pub seconds: f64,
    /// Answer lines on the standard input until `quit`: `run SECONDS` with the nanoseconds of every run, as a JSON list, and
    /// `rates LEVEL…` with what this machine can do, of these levels of its memory (L1, L2, L3, memory)
    #[arg(long)]
    pub worker: bool,
    /// A folder with index.json, a list of {name, file} for the inputs, and these .npy files [default: random inputs]
    #[arg(long, value_name = "DIR")]
    pub inputs: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub struct InspectArgs {
    /// The model
    #[arg(value_name = "MODEL.onnx")]
    pub model: PathBuf,
    #[command(flatten)]
    pub build: BuildArgs,
    /// What to compile for, as when compiling
    #[arg(long, default_value = "host")]
    pub target: String,
    /// Show the machine code of this kernel, by its name or a part of it or of a node's, with its loops marked
    #[arg(long, value_name = "KERNEL")]
    pub asm: Option<String>,
    /// Show what the model takes: the arena over time, the tensors that make its peak, stack, code and weights of each kernel
    #[arg(long, conflicts_with = "asm")]
    pub memory: bool,
    /// Draw the arena over time into this file
    #[arg(long, value_name = "FILE.svg")]
    pub svg: Option<PathBuf>,
    /// Fail where the model takes more, as when compiling
    #[arg(long, value_name = "KIND=SIZE,…")]
    pub limit: Option<Limits>,
    /// Print JSON, with every loop
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct CheckArgs {
    /// The model
    #[arg(value_name = "MODEL.onnx")]
    pub model: PathBuf,
    #[command(flatten)]
    pub build: BuildArgs,
    /// What to compile for, as when compiling
    #[arg(long, default_value = "host")]
    pub target: String,
    /// How to tell: for people, on the standard error, or for programs, on the standard output
    #[arg(long, default_value = "text")]
    pub format: Format,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    Text,
    Json,
}

/// A model, what its results are compared with, and where.
#[derive(Args, Debug)]
pub struct CompareArgs {
    /// The model
    #[arg(value_name = "MODEL.onnx")]
    pub model: PathBuf,
    #[command(flatten)]
    pub build: BuildArgs,
    /// The value of an input, or an archive with those of all inputs; inputs without one are random
    #[arg(long, short, value_name = "INPUT=FILE.npy|FILE.npz")]
    pub input: Vec<String>,
    /// An archive of what is right, by the names of values or as out_NAME; inputs that are not given are taken from it, too
    /// [default: the graph as imported, interpreted]
    #[arg(long, value_name = "FILE.npz")]
    pub against: Option<PathBuf>,
    /// Which form of the model is judged: an interpreter's, or machine code
    #[arg(long, default_value = "machine")]
    pub at: Level,
    /// Largest error that is right, as a part of the largest magnitude of a tensor
    #[arg(long, default_value_t = 1e-4)]
    pub tolerance: f64,
    /// Seed of random inputs
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
}

#[derive(Args, Debug)]
pub struct OptArgs {
    /// Passes in the order in which they run, or `deployment` or `canonical` for all of a list
    #[arg(long, value_name = "PASS", value_delimiter = ',', required = true)]
    pub run: Vec<String>,
    /// Do only so many rewrites
    #[arg(long, value_name = "N")]
    pub fuel: Option<u64>,
    /// The graph
    #[arg(value_name = "FILE.graph")]
    pub file: PathBuf,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum BranchProtectionKind {
    None,
    Bti,
    PacRet,
    Standard,
}

impl BranchProtectionKind {
    pub fn protection(self) -> BranchProtection {
        BranchProtection {
            targets: matches!(self, Self::Bti | Self::Standard),
            returns: matches!(self, Self::PacRet | Self::Standard),
        }
    }
}

#[derive(Args, Debug)]
pub struct InstallArgs {
    /// The prefix, as /usr/local: files go to DIR/include, DIR/lib and DIR/share
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Printed {
    /// The folder that all else is in, as an installed prefix: for CMAKE_PREFIX_PATH
    Prefix,
    /// The CMake package: for mcc_DIR
    CmakeDir,
    /// The folder of mcc.h
    IncludeDir,
    /// The folder of mcc.pc: for PKG_CONFIG_PATH
    PkgConfigDir,
    /// The sources of the Rust crate mcc-runtime
    RuntimeSource,
    /// The Zephyr module: for EXTRA_ZEPHYR_MODULES
    ZephyrModule,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum EmitKind {
    /// NAME.o
    Object,
    /// libNAME.a
    Staticlib,
    /// NAME.h, and mcc.h that it includes
    Header,
    /// NAME.json: sizes, tensors, kernels
    Manifest,
    /// NAME.rs: a module of Rust, for programs with mcc-runtime
    Rust,
    /// NAME.graph: the graph that is compiled
    Graph,
    /// NAME.loops: loops as fused and scheduled
    Loops,
    /// NAME.decisions.json: what was chosen, to be edited and given back by --decisions
    Decisions,
    /// NAME.plan: where each buffer lives
    Plan,
    /// NAME.kernel: kernels before they become machine code
    Kernel,
    /// NAME.asm: a listing of the machine code
    Asm,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    Graph,
    Loops,
    Kernel,
    Machine,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PrintAfter {
    All,
    Stage(Stage),
    Pass(&'static str),
}

impl ValueEnum for Stage {
    fn value_variants<'a>() -> &'a [Self] {
        Stage::ALL
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        Some(clap::builder::PossibleValue::new(self.name()))
    }
}

fn print_after(text: &str) -> std::result::Result<PrintAfter, String> {
    if text == "all" {
        return Ok(PrintAfter::All);
    }
    if let Some(stage) = Stage::ALL.iter().find(|stage| stage.name() == text) {
        return Ok(PrintAfter::Stage(*stage));
    }
    let names = || Stage::ALL.iter().map(|stage| stage.name()).collect::<Vec<_>>().join(", ");
    passes::find(text)
        .map(|pass| PrintAfter::Pass(pass.name))
        .ok_or_else(|| format!("neither a pass nor one of the stages {}, nor all", names()))
}

/// The least and the greatest extent of a dimension.
pub type Bounds = (usize, usize);

/// Names may hold an equals sign; values do not.
fn pair(text: &str) -> std::result::Result<(String, String), String> {
    match text.rsplit_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_string(), value.to_string())),
        _ => Err("a name, an equals sign and a value are needed".to_string()),
    }
}

fn shape(text: &str) -> std::result::Result<(String, Vec<Bounds>), String> {
    let (name, value) = pair(text)?;
    let dims = value.split(',').filter(|_| !value.is_empty());
    let dims: std::result::Result<Vec<Bounds>, _> = dims.map(|dim| bounds(dim.trim())).collect();
    Ok((name, dims.map_err(|error| format!("'{value}' is not a list of extents: {error}"))?))
}

fn most_elements(text: &str) -> std::result::Result<(String, Vec<usize>), String> {
    let (name, value) = pair(text)?;
    let most: std::result::Result<Vec<usize>, _> = value.split(',').map(|most| most.trim().parse()).collect();
    Ok((name, most.map_err(|error| format!("'{value}' is not a list of numbers: {error}"))?))
}

fn dim(text: &str) -> std::result::Result<(String, Bounds), String> {
    let (name, value) = pair(text)?;
    Ok((name, bounds(&value).map_err(|error| format!("'{value}' is not an extent: {error}"))?))
}

/// An extent, or the least and the greatest one.
fn bounds(text: &str) -> std::result::Result<Bounds, String> {
    let number = |text: &str| text.parse::<usize>().map_err(|error| error.to_string());
    let (least, most) = match text.split_once("..") {
        Some((least, most)) => (number(least)?, number(most)?),
        None => (number(text)?, number(text)?),
    };
    if least <= most { Ok((least, most)) } else { Err(format!("{least} is more than {most}")) }
}

impl BuildArgs {
    /// The options of the driver; reads the files of constants.
    pub fn options(&self, model: &Path, target: &str) -> Result<Options> {
        let mut options = Options::new(model);
        options.target = target.to_string();
        options.cpu.clone_from(&self.cpu);
        options.fuel = if self.optimize == 0 { Some(0) } else { self.fuel };
        options.winograd = self.winograd == When::Auto;
        options.strict_align = self.strict_align.map(|switch| switch == Switch::On);
        options.verify = self.verify;
        options.decisions = self.decisions.as_deref().map(read_decisions).transpose()?.unwrap_or_default();
        options.files.extend(self.decisions.clone());
        options.files.extend(self.constant.iter().filter(|(_, value)| is_file(value)).map(|(_, file)| PathBuf::from(file)));
        let mut sets = self.shape_sets()?;
        let (first, ranges) = sets.remove(0);
        ensure!(
            sets.is_empty() || ranges.is_empty() && sets.iter().all(|(_, ranges)| ranges.is_empty()),
            "ranges of extents and several sets of shapes exclude each other"
        );
        (options.import.shapes, options.import.dims) = (first.shapes, first.dims);
        (options.import.ranges, options.import.axis_ranges) = (ranges.dims, ranges.axes);
        unique("max-elements", &self.max_elements, &mut options.import.max_elements)?;
        options.further_shapes = sets.into_iter().map(|(set, _)| set).collect();
        if !self.constant.is_empty() {
            let declared: BTreeMap<String, Option<DeclaredType>> = declared_inputs(&Model::open(model)?)?.into_iter().collect();
            let constants = self.constant.iter().map(|(name, value)| {
                let known = || declared.keys().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ");
                if !declared.contains_key(name) {
                    let error = Error::new(format!("--constant names '{name}', which is not an input of the model"));
                    return Err(error.help(format!("its inputs are {}", known())));
                }
                let ty = declared.get(name).and_then(Option::as_ref);
                let shape = options.import.shapes.get(name).map(|dims| Shape::new(dims.clone()));
                let tensor = constant(value, ty, shape).map_err(|error| error.context(format!("in --constant {name}")))?;
                Ok((name.clone(), tensor))
            });
            unique("constant", &constants.collect::<Result<Vec<_>>>()?, &mut options.import.constants)?;
        }
        Ok(options)
    }
}

impl BuildArgs {
    /// The sets of shapes, at least one. What is given once holds in each; what is given several times, in one after the other.
    fn shape_sets(&self) -> Result<Vec<(ShapeSet, Ranges)>> {
        let (shapes, dims) = (grouped(&self.shape), grouped(&self.dim));
        let counts = shapes.values().map(Vec::len).chain(dims.values().map(Vec::len));
        let count = counts.max().unwrap_or(1);
        let wrong = |option: &str, name: &str, given: usize| {
            Error::new(format!("--{option} is given {given} times for '{name}', but there are {count} sets of shapes"))
                .help("give it once for all sets, or once for each")
        };
        for (name, values) in &shapes {
            ensure_count(values.len(), count, || wrong("shape", name, values.len()))?;
        }
        for (name, values) in &dims {
            ensure_count(values.len(), count, || wrong("dim", name, values.len()))?;
        }
        Ok((0..count).map(|index| shape_set(at(&shapes, index), at(&dims, index))).collect())
    }
}

/// Extents that a run is told, as [`ImportOptions`](crate::import::ImportOptions) has them.
#[derive(Debug, Default)]
struct Ranges {
    dims: BTreeMap<String, Bounds>,
    axes: BTreeMap<(String, usize), Bounds>,
}

impl Ranges {
    fn is_empty(&self) -> bool {
        self.dims.is_empty() && self.axes.is_empty()
    }
}

fn shape_set(shapes: BTreeMap<String, Vec<Bounds>>, dims: BTreeMap<String, Bounds>) -> (ShapeSet, Ranges) {
    let (mut set, mut ranges) = (ShapeSet::default(), Ranges::default());
    for (name, (least, most)) in dims {
        if least == most {
            set.dims.insert(name, most);
        } else {
            ranges.dims.insert(name, (least, most));
        }
    }
    for (name, shape) in shapes {
        let told = shape.iter().enumerate().filter(|(_, (least, most))| least != most);
        ranges.axes.extend(told.map(|(axis, &bounds)| ((name.clone(), axis), bounds)));
        set.shapes.insert(name, shape.into_iter().map(|(_, most)| most).collect());
    }
    (set, ranges)
}

/// The values of each name, in the order in which they are given.
fn grouped<T: Clone>(pairs: &[(String, T)]) -> BTreeMap<String, Vec<T>> {
    let mut groups: BTreeMap<String, Vec<T>> = BTreeMap::new();
    for (name, value) in pairs {
        groups.entry(name.clone()).or_default().push(value.clone());
    }
    groups
}

fn ensure_count(given: usize, count: usize, error: impl FnOnce() -> Error) -> Result<()> {
    if given == 1 || given == count { Ok(()) } else { Err(error()) }
}

/// The values of one set.
fn at<T: Clone>(groups: &BTreeMap<String, Vec<T>>, index: usize) -> BTreeMap<String, T> {
    groups.iter().map(|(name, values)| (name.clone(), values[index.min(values.len() - 1)].clone())).collect()
}

/// Whether the value of `--constant` is a file's name, not a number.
fn is_file(value: &str) -> bool {
    Path::new(value).extension().is_some_and(|extension| extension == "npy")
}

/// One value, or a list of one for each set of shapes.
fn read_decisions(path: &Path) -> Result<Vec<Decisions>> {
    let place = |error: Error| error.context(format!("in file '{}'", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| place(Error::new(format!("cannot read the file: {error}"))))?;
    let read = if text.trim_start().starts_with('[') {
        serde_json::from_str(&text)
    } else {
        serde_json::from_str(&text).map(|decisions| vec![decisions])
    };
    read.map_err(|error| place(Error::new(format!("these are no decisions: {error}"))))
}

fn unique<T: Clone>(option: &str, pairs: &[(String, T)], map: &mut BTreeMap<String, T>) -> Result<()> {
    for (name, value) in pairs {
        ensure!(map.insert(name.clone(), value.clone()).is_none(), "--{option} is given twice for '{name}'");
    }
    Ok(())
}

/// The value of `--constant` for an input of this declared type, whose shape `--shape` may give.
fn constant(text: &str, declared: Option<&DeclaredType>, given: Option<Shape>) -> Result<Tensor> {
    if is_file(text) {
        let tensor = npy::read(Path::new(text))?;
        return match declared {
            Some(declared) => npy::as_dtype(tensor, declared.dtype),
            None => Ok(tensor),
        };
    }
    let Some(declared) = declared else { bail!("numbers need the input's type, which the model does not declare") };
    let list = text.trim().trim_start_matches('[').trim_end_matches(']');
    let numbers: Vec<Number> =
        list.split(',').filter(|_| !list.is_empty()).map(|word| number(word.trim(), declared.dtype)).collect::<Result<_>>()?;
    let shape = match given.or_else(|| declared.known().map(|ty| ty.shape)) {
        Some(shape) if shape.checked_count() == Some(numbers.len()) => shape,
        Some(shape) => bail!("the input is {}{shape}, {} numbers are given", declared.dtype, numbers.len()),
        None => match declared.dims.as_deref() {
            Some([_]) => Shape::new([numbers.len()]),
            Some(dims)
                if numbers.len() == 1 && dims.iter().all(|dim| !matches!(dim, DeclaredDim::Known(known) if *known != 1)) =>
            {
                Shape::new(vec![1; dims.len()])
            }
            _ => {
                return Err(
                    Error::new(format!("the shape of the input, {declared}, is not known")).help("give a --shape or a .npy file")
                );
            }
        },
    };
    Ok(Tensor::from_numbers(TensorType::new(declared.dtype, shape), numbers))
}

fn number(word: &str, dtype: DType) -> Result<Number> {
    let wrong = || Error::new(format!("'{word}' is not a value of type {dtype}"));
    if dtype == DType::Bool {
        return match word {
            "true" | "1" => Ok(Number::Int(1)),
            "false" | "0" => Ok(Number::Int(0)),
            _ => Err(wrong()),
        };
    }
    if dtype.is_float() {
        return word.parse().map(Number::Float).map_err(|_| wrong());
    }
    let value: i128 = word.parse().map_err(|_| wrong())?;
    let (low, high) = dtype.integer_range();
    if !(low..=high).contains(&value) {
        return Err(wrong());
    }
    Ok(i64::try_from(value).map_or(Number::UInt(value as u64), Number::Int))
}
