//! The stages, in order. Nothing else knows the order, and a stage sees nothing but what the one before it made.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use mcc_kernel::{Code, Facts, Target};
use mcc_runtime::ARENA_ALIGN;
use mcc_support::{Error, Result, bug, ensure};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::codegen;
use crate::decide;
use crate::decisions::Decisions;
use crate::emit::manifest::hex;
use crate::emit::{self, BufferPlace, CompiledKernel, CompiledModel, Linked, Port};
use crate::graph::lengths::Length;
use crate::graph::{self, Graph};
use crate::import::{self, ImportOptions};
use crate::loops::{self, BufferId, Program};
use crate::onnx::Model;
use crate::parallel;
use crate::passes;
use crate::plan::{self, Place};
use crate::realize::{self, Realized};
use crate::targets::{self, Machine};

macro_rules! stages {
    ($($(#[$doc:meta])* $stage:ident = $name:literal,)*) => {
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Stage {
            $($(#[$doc])* $stage,)*
        }

        impl Stage {
            pub const ALL: &[Stage] = &[$(Stage::$stage),*];

            /// As `--print-after` spells it.
            pub fn name(self) -> &'static str {
                match self { $(Stage::$stage => $name,)* }
            }
        }
    };
}

stages! {
    /// The file becomes a model.
    Decode = "decode",
    /// Operators become core ops; every value has a type.
    Import = "import",
    /// The graph becomes canonical.
    Passes = "passes",
    /// Each node becomes loops over logical tensors.
    Lower = "lower",
    /// What is fused, in which order it runs, how it lies in memory and is scheduled.
    Decide = "decide",
    /// The program as decided, and where each buffer lives.
    Realize = "realize",
    /// Loops become kernels: virtual registers, no shapes.
    Codegen = "codegen",
    /// Kernels become machine code.
    Target = "target",
    /// The entry function joins them.
    Emit = "emit",
}

/// All that a compile depends on.
#[derive(Clone, Debug)]
pub struct Options {
    pub model: PathBuf,
    /// As `--target` and `--cpu` spell them; without a CPU, the default one of the target.
    pub target: String,
    pub cpu: Option<String>,
    /// Prefix of the symbols; made from the name of the file where it is not given.
    pub name: Option<String>,
    pub import: ImportOptions,
    /// Rewrites of the graph that are done; `None`: all.
    pub fuel: Option<u64>,
    /// Verify after each stage; builds with debug assertions always do.
    pub verify: bool,
    /// Taken in place of those that would be made.
    pub decisions: Option<Decisions>,
    /// Files that the constants and decisions were read from: the result depends on them too.
    pub files: Vec<PathBuf>,
    pub stop_after: Option<Stage>,
}

impl Options {
    /// For this machine, with everything at its default.
    pub fn new(model: impl Into<PathBuf>) -> Self {
        Self {
            model: model.into(),
            target: "host".to_string(),
            cpu: None,
            name: None,
            import: ImportOptions::default(),
            fuel: None,
            verify: false,
            decisions: None,
            files: Vec::new(),
            stop_after: None,
        }
    }

    /// What the result depends on besides the model, as the manifest states it.
    fn record(&self, machine: &Machine) -> serde_json::Value {
        let constants = self.import.constants.iter().map(|(name, tensor)| {
            let value = json!({ "type": tensor.ty().to_string(), "sha256": hex(&Sha256::digest(tensor.data())) });
            (name.clone(), value)
        });
        json!({
            "target": machine.triple.to_string(),
            "cpu": machine.cpu.name,
            "shapes": self.import.shapes,
            "dims": self.import.dims,
            "ranges": self.import.ranges,
            "axis_ranges": self.import.axis_ranges.iter().collect::<Vec<_>>(),
            "constants": constants.collect::<serde_json::Map<_, _>>(),
            "fuel": self.fuel,
            "decisions": self.decisions.as_ref().map(|decisions| hex(&Sha256::digest(json!(decisions).to_string()))),
        })
    }
}

/// Told of each stage: progress, times and dumps.
pub trait Observer {
    fn before(&mut self, _stage: Stage) {}
    fn after(&mut self, _stage: Stage, _elapsed: Duration, _compilation: &Compilation) {}
    /// Told of the graph after each pass that changed it.
    fn after_pass(&mut self, _pass: &str, _graph: &Graph) {}
}

/// Wants to know nothing.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl Observer for Silent {}

/// What the stages made. What a stage makes is there once it ran.
pub struct Compilation {
    pub path: PathBuf,
    /// As in [`Options::files`].
    files: Vec<PathBuf>,
    pub machine: Machine,
    /// Prefix of the symbols.
    pub name: String,
    /// The options that the result depends on.
    pub options: serde_json::Value,
    pub warnings: Vec<String>,
    /// One line for each rewrite of the graph.
    pub rewrites: Vec<String>,
    target: &'static dyn Target,
    source_sha256: [u8; 32],
    model: Option<Model>,
    graph: Option<Graph>,
    program: Option<Program>,
    decisions: Option<Decisions>,
    realized: Option<Realized>,
    kernels: Vec<codegen::Compiled>,
    codes: Vec<Code>,
    linked: Option<Linked>,
}

impl std::fmt::Debug for Compilation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compilation").field("name", &self.name).field("machine", &self.machine).finish_non_exhaustive()
    }
}

impl Compilation {
    pub fn model(&self) -> &Model {
        self.model.as_ref().expect("the model was decoded")
    }

    pub fn graph(&self) -> &Graph {
        self.graph.as_ref().expect("the model was imported")
    }

    pub fn program(&self) -> &Program {
        self.program.as_ref().expect("the graph was lowered")
    }

    pub fn decisions(&self) -> &Decisions {
        self.decisions.as_ref().expect("the program was decided on")
    }

    pub fn realized(&self) -> &Realized {
        self.realized.as_ref().expect("the decisions were carried out")
    }

    pub fn plan_text(&self) -> String {
        format!("{}\n", plan::text::print(&self.realized().program, &self.realized().plan).trim_end())
    }

    /// Of the target that compiles the kernels.
    pub fn facts(&self) -> Facts {
        self.target.facts(&self.machine.cpu)
    }

    pub fn target_name(&self) -> &'static str {
        self.target.name()
    }

    /// One for each kernel of the realized program, in its order.
    pub fn kernels(&self) -> &[codegen::Compiled] {
        &self.kernels
    }

    pub fn linked(&self) -> &Linked {
        self.linked.as_ref().expect("the model was compiled")
    }

    /// The files that the result depends on.
    pub fn dependencies(&self) -> Vec<PathBuf> {
        [self.path.clone()].into_iter().chain(self.model().files().paths()).chain(self.files.iter().cloned()).collect()
    }

    fn new(options: &Options) -> Result<Self> {
        let machine = Machine::new(&options.target, options.cpu.as_deref())?;
        let stem = options.model.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let name = match &options.name {
            Some(name) => emit::given_model_name(name)?,
            None => emit::model_name(&stem),
        };
        let record = options.record(&machine);
        Ok(Self {
            path: options.model.clone(),
            files: options.files.clone(),
            machine,
            name,
            options: record,
            warnings: Vec::new(),
            rewrites: Vec::new(),
            target: targets::TARGETS[0],
            source_sha256: [0; 32],
            model: None,
            graph: None,
            program: None,
            decisions: None,
            realized: None,
            kernels: Vec::new(),
            codes: Vec::new(),
            linked: None,
        })
    }

    fn import(&mut self, options: &Options) -> Result<()> {
        let import_options = ImportOptions { name: Some(self.name.clone()), ..options.import.clone() };
        let (graph, warnings) = import::import(self.model(), &import_options)?;
        self.warnings.extend(warnings.iter().map(ToString::to_string));
        self.graph = Some(graph);
        Ok(())
    }

    fn run_passes(&mut self, options: &Options, observer: &mut dyn Observer) {
        let graph = self.graph.take().expect("the model was imported");
        let mut dump = |pass: &'static str, graph: &Graph| observer.after_pass(pass, graph);
        let mut pass_options =
            passes::Options { fuel: options.fuel, verify: options.verify, dump: Some(&mut dump), ..passes::Options::default() };
        self.graph = Some(passes::run(graph, passes::DEPLOYMENT, &mut pass_options));
        self.rewrites = pass_options.log;
    }

    fn decide(&mut self, options: &Options) -> Result<()> {
        let facts = self.facts();
        let decisions = match options.decisions.clone() {
            Some(given) => {
                for (kernel, decision) in &given.kernels {
                    let target = self.target.name();
                    ensure!(
                        decision.target == target,
                        "the target of kernel '{kernel}' is '{}', not '{target}'",
                        decision.target
                    );
                }
                given
            }
            None => decide::decide(self.program(), self.target.name(), &facts),
        };
        self.decisions = Some(decisions);
        Ok(())
    }

    fn realize(&mut self) -> Result<()> {
        let realized = realize::realize(self.program(), self.decisions())?;
        let vector_bits = self.facts().vector_bytes as usize * 8;
        for kernel in &realized.program.kernels {
            for axis in kernel.axes.values().filter(|axis| axis.mode == loops::AxisMode::Vector) {
                let fits = [8, 16, 32, 64].iter().any(|bits| axis.extent * bits == vector_bits);
                ensure!(
                    fits,
                    "axis {} of kernel {} has {} rounds: vectors have no such number of lanes",
                    axis.name,
                    kernel.name,
                    axis.extent
                );
            }
        }
        self.realized = Some(realized);
        Ok(())
    }

    fn codegen(&mut self) {
        let Realized { program, plan } = self.realized();
        let facts = self.target.facts(&self.machine.cpu);
        self.kernels = parallel::map(&program.kernels, |kernel| codegen::kernel(program, &plan.layouts, kernel, &facts));
    }

    fn target(&mut self) {
        self.codes = parallel::map(&self.kernels, |compiled| self.target.compile(&compiled.kernel, &self.machine.cpu));
    }

    fn emit(&mut self) -> Result<()> {
        let Realized { program, plan } = self.realized();
        let kernels =
            program.kernels.iter().zip(&self.kernels).zip(&self.codes).map(|((kernel, compiled), code)| CompiledKernel {
                name: kernel.name.clone(),
                origins: kernel.origins.clone(),
                code: code.clone(),
                args: compiled.buffers.iter().map(|&buffer| buffer_place(plan.places[buffer])).collect(),
                extent: compiled.extent as i64,
            });
        let lengths = &self.graph().lengths;
        let mut arena_bytes = plan.arena_bytes as u64;
        let tensors = |list: &[(String, BufferId)], symbols: usize| list[..list.len() - symbols].to_vec();
        let mut port = |kind: &str, tensors: &[(String, BufferId)], symbols: &[Vec<Option<Length>>]| {
            let mut ports = ports(&self.name, kind, program, tensors);
            for (port, symbols) in ports.iter_mut().zip(symbols).filter(|(_, symbols)| symbols.iter().any(Option::is_some)) {
                port.symbols = symbols.iter().map(|length| length.map(|length| lengths.symbol(length))).collect();
                port.staged = Some(arena_bytes.next_multiple_of(ARENA_ALIGN as u64));
                arena_bytes = arena_bytes.next_multiple_of(ARENA_ALIGN as u64) + port.ty.size_bytes() as u64;
            }
            ports
        };
        let inputs = port("input", &tensors(&program.inputs, lengths.dims.len()), &lengths.inputs);
        let outputs = port("output", &tensors(&program.outputs, lengths.counts.len()), &lengths.outputs);
        let place = |place: BufferPlace| match place {
            BufferPlace::Input(at) if at >= inputs.len() => BufferPlace::Dim(at - inputs.len()),
            BufferPlace::Output(at) if at >= outputs.len() => BufferPlace::Count(at - outputs.len()),
            BufferPlace::Input(at) => inputs[at].staged.map_or(place, BufferPlace::Arena),
            BufferPlace::Output(at) => outputs[at].staged.map_or(place, BufferPlace::Arena),
            other => other,
        };
        let kernels: Vec<CompiledKernel> = kernels
            .map(|kernel| CompiledKernel { args: kernel.args.iter().map(|&arg| place(arg)).collect(), ..kernel })
            .collect();
        let model = CompiledModel {
            name: self.name.clone(),
            triple: self.machine.triple.clone(),
            cpu: self.machine.cpu.clone(),
            dims: symbols(&self.name, "dim", &lengths.dims),
            counts: symbols(&self.name, "count", &lengths.counts),
            kernels,
            weights: plan.weights.clone(),
            arena_bytes,
            arena_lower_bound_bytes: plan.lower_bound_bytes as u64,
            status_offset: plan.status_offset.map(|offset| offset as u64),
            inputs,
            outputs,
            model_sha256: self.source_sha256,
            options_sha256: Sha256::digest(self.options.to_string()).into(),
            options: self.options.clone(),
            warnings: self.warnings.clone(),
        };
        let linked = emit::link(model, self.target);
        ensure!(
            linked.sizes.weights_bytes + linked.sizes.code_bytes < 1 << 31,
            "the model has {} bytes of weights: more than the 2 GiB that code can address in one object",
            linked.sizes.weights_bytes
        );
        self.linked = Some(linked);
        Ok(())
    }

    fn run_from(&mut self, first: Stage, options: &Options, observer: &mut dyn Observer) -> Result<()> {
        for &stage in Stage::ALL.iter().filter(|&&stage| stage >= first) {
            observer.before(stage);
            let start = Instant::now();
            match stage {
                Stage::Decode => self.decode(options)?,
                Stage::Import => self.import(options)?,
                Stage::Passes => self.run_passes(options, observer),
                Stage::Lower => self.program = Some(loops::lower::lower(self.graph())),
                Stage::Decide => self.decide(options)?,
                Stage::Realize => self.realize()?,
                Stage::Codegen => self.codegen(),
                Stage::Target => self.target(),
                Stage::Emit => self.emit()?,
            }
            let elapsed = start.elapsed();
            if options.verify || cfg!(debug_assertions) {
                self.verify(stage);
            }
            observer.after(stage, elapsed, self);
            if options.stop_after == Some(stage) {
                break;
            }
        }
        Ok(())
    }

    fn decode(&mut self, options: &Options) -> Result<()> {
        let model = Model::open(&options.model)?;
        self.source_sha256 = *model.sha256();
        self.model = Some(model);
        Ok(())
    }

    /// Checks what a stage made.
    fn verify(&self, stage: Stage) {
        let result = match stage {
            Stage::Decode => Ok(()),
            Stage::Import | Stage::Passes => graph::verify::verify(self.graph()),
            Stage::Codegen => {
                let facts = self.facts();
                let verify = |compiled: &codegen::Compiled| mcc_kernel::verify::verify(&compiled.kernel, Some(&facts));
                self.kernels().iter().try_for_each(verify).map_err(Error::new)
            }
            Stage::Realize => {
                let Realized { program, plan } = self.realized();
                let problems = plan::check::check(program, plan);
                if problems.is_empty() { loops::verify::verify(program) } else { Err(Error::new(problems.join("\n"))) }
            }
            Stage::Lower => loops::verify::verify(self.program()),
            Stage::Decide | Stage::Target | Stage::Emit => Ok(()),
        };
        if let Err(error) = result {
            bug!("what stage '{}' made is wrong: {error}\n{}", stage.name(), self.text(stage));
        }
    }

    /// What a stage made, as text.
    pub fn text(&self, stage: Stage) -> String {
        match stage {
            Stage::Decode => self.model_text(),
            Stage::Import | Stage::Passes => self.graph().to_string(),
            Stage::Lower => self.program().to_string(),
            Stage::Decide => {
                let mut text = serde_json::to_string_pretty(self.decisions()).expect("decisions are plain data");
                text.push('\n');
                text
            }
            Stage::Realize => format!("{}{}", self.realized().program, self.plan_text()),
            Stage::Codegen => self.kernels().iter().map(|compiled| mcc_kernel::text::print(&compiled.kernel)).collect(),
            Stage::Target => self.listing(self.kernels.iter().map(|compiled| compiled.kernel.name.as_str()).zip(&self.codes)),
            Stage::Emit => self.listing(self.linked().functions.iter().map(|(symbol, code)| (symbol.as_str(), code))),
        }
    }
}

impl Compilation {
    fn model_text(&self) -> String {
        let proto = &self.model().proto;
        let imports = proto.opset_import.iter().map(|import| format!(", opset {} {}", import.domain(), import.version()));
        let count = proto.graph.as_ref().map_or(0, |graph| graph.node.len());
        format!("; {count} nodes, IR version {}{}\n", proto.ir_version(), imports.collect::<String>())
    }

    fn listing<'a>(&self, functions: impl Iterator<Item = (&'a str, &'a Code)>) -> String {
        let listed = |(symbol, code): (&str, &Code)| {
            let text = targets::disassemble(self.machine.cpu.arch, code);
            format!("{symbol}: ; {} bytes, {} of stack\n{text}\n", code.bytes.len(), code.stack_bytes)
        };
        functions.map(listed).collect()
    }
}

/// Runs the stages, to the end or to where the options say.
pub fn compile(options: &Options, observer: &mut dyn Observer) -> Result<Compilation> {
    let mut compilation = Compilation::new(options)?;
    compilation.run_from(Stage::Decode, options, observer)?;
    Ok(compilation)
}

/// Runs the stages from a graph on; the options' model only names the result.
pub fn compile_graph(graph: Graph, options: &Options, observer: &mut dyn Observer) -> Result<Compilation> {
    let mut compilation = Compilation::new(options)?;
    compilation.source_sha256 = Sha256::digest(graph.to_string()).into();
    compilation.graph = Some(graph);
    compilation.run_from(Stage::Passes, options, observer)?;
    Ok(compilation)
}

fn symbols(model: &str, kind: &str, symbols: &[graph::lengths::Symbol]) -> Vec<emit::Symbol> {
    let names = emit::tensor_names(model, kind, symbols.iter().map(|symbol| symbol.name.as_str()));
    let symbol = |(symbol, c_name): (&graph::lengths::Symbol, String)| emit::Symbol {
        name: symbol.name.clone(),
        c_name,
        min: symbol.min,
        max: symbol.max,
    };
    symbols.iter().zip(names).map(symbol).collect()
}

fn ports(model: &str, kind: &str, program: &Program, tensors: &[(String, BufferId)]) -> Vec<Port> {
    let names = emit::tensor_names(model, kind, tensors.iter().map(|(name, _)| name.as_str()));
    let port = |((name, buffer), c_name): (&(String, BufferId), String)| Port {
        name: name.clone(),
        c_name,
        ty: program.buffers[*buffer].ty.clone(),
        symbols: Vec::new(),
        staged: None,
    };
    tensors.iter().zip(names).map(port).collect()
}

fn buffer_place(place: Place) -> BufferPlace {
    match place {
        Place::Unused => bug!("a kernel refers to a buffer that has no place"),
        Place::Input(index) => BufferPlace::Input(index),
        Place::Output(index) => BufferPlace::Output(index),
        Place::Weights { offset, .. } => BufferPlace::Weights(offset as u64),
        Place::Arena { offset, .. } => BufferPlace::Arena(offset as u64),
    }
}
