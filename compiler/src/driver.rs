//! The stages, in order. Nothing else knows the order, and a stage sees nothing but what the one before it made.

mod options;
mod specialization;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use mcc_kernel::{Code, Cpu, Facts, Target};
use mcc_support::{Error, Result, Shape, bug, ensure};
use sha2::{Digest, Sha256};
use target_lexicon::Triple;

use crate::codegen;
use crate::decide::{self, Question};
use crate::decisions::Decisions;
use crate::emit::extents::Extents;
use crate::emit::{self, CompiledModel, DimRange, Linked, Port, WeightsPlace};
use crate::graph::lengths::{Length, Lengths};
use crate::graph::{self, Graph};
use crate::import::{self, Imported, WarningKind};
use crate::loops::{self, BufferId, Program};
use crate::onnx::Model;
use crate::parallel;
use crate::passes;
use crate::realize::{self, Realized};
use crate::targets::{self, Machine};

pub use options::{Options, ShapeSet};
pub use specialization::{Specialization, Value};

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
    pub triple: Triple,
    /// At least one, the best first: each has all that those behind it have.
    pub levels: Vec<CpuLevel>,
    /// Prefix of the symbols.
    pub name: String,
    /// The options that the result depends on.
    pub options: serde_json::Value,
    pub warnings: Vec<String>,
    profile: bool,
    weights_place: WeightsPlace,
    source_sha256: [u8; 32],
    model: Option<Model>,
    specializations: Vec<Specialization>,
    /// In what they differ.
    extents: Extents,
    linked: Option<Linked>,
}

/// A CPU that is compiled for, and what compiles the kernels for it.
#[derive(Clone)]
pub struct CpuLevel {
    pub cpu: Cpu,
    pub target: &'static dyn Target,
}

impl std::fmt::Debug for CpuLevel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CpuLevel").field("cpu", &self.cpu).field("target", &self.target.name()).finish()
    }
}

impl std::fmt::Debug for Compilation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compilation").field("name", &self.name).field("triple", &self.triple).finish_non_exhaustive()
    }
}

impl Compilation {
    pub fn model(&self) -> &Model {
        self.model.as_ref().expect("the model was decoded")
    }

    /// One for each set of shapes, first that of [`Options::import`]; once it is decided on, such for each CPU, the best first.
    pub fn specializations(&self) -> &[Specialization] {
        &self.specializations
    }

    /// The best level that this machine has, or the last.
    pub fn level_here(&self) -> &CpuLevel {
        let has = mcc_runtime::detect_cpu_features();
        let fits = |level: &&CpuLevel| emit::required_bits(&level.cpu) & !has == 0;
        self.levels.iter().find(fits).unwrap_or_else(|| self.levels.last().expect("at least one"))
    }

    /// One for each set of shapes: those that run on this machine.
    pub fn specializations_here(&self) -> &[Specialization] {
        let here = self.level_here();
        let mut levels = self.specializations.chunk_by(|one, next| one.level == next.level);
        let of_here = |sets: &&[Specialization]| std::ptr::eq(&self.levels[sets[0].level], here);
        levels.find(of_here).unwrap_or_else(|| self.sets())
    }

    /// One for each set of shapes: those for the best CPU.
    fn sets(&self) -> &[Specialization] {
        self.specializations.chunk_by(|one, next| one.level == next.level).next().unwrap_or_default()
    }

    /// As `--cpu` takes them.
    pub fn cpu_names(&self) -> String {
        emit::cpu_names(self.levels.iter().map(|level| &level.cpu))
    }

    /// Of the first set of shapes for the best CPU, as everything that stands for one specialization.
    pub fn graph(&self) -> &Graph {
        self.specializations[0].graph()
    }

    pub fn program(&self) -> &Program {
        self.specializations[0].program()
    }

    pub fn decisions(&self) -> &Decisions {
        self.specializations[0].decisions()
    }

    pub fn realized(&self) -> &Realized {
        self.specializations[0].realized()
    }

    pub fn rewrites(&self) -> &[String] {
        &self.specializations[0].rewrites
    }

    pub fn plan_text(&self) -> String {
        self.specializations.iter().map(Specialization::plan_text).collect()
    }

    /// Of the target that compiles the kernels.
    pub fn facts(&self) -> Facts {
        self.levels[0].facts()
    }

    pub fn target_name(&self) -> &'static str {
        self.levels[0].target.name()
    }

    /// One for each kernel of the realized program, in its order.
    pub fn kernels(&self) -> &[codegen::Compiled] {
        self.specializations[0].kernels()
    }

    pub fn linked(&self) -> &Linked {
        self.linked.as_ref().expect("the model was compiled")
    }

    /// The files that the result depends on.
    pub fn dependencies(&self) -> Vec<PathBuf> {
        [self.path.clone()].into_iter().chain(self.model().files().paths()).chain(self.files.iter().cloned()).collect()
    }

    fn new(options: &Options) -> Result<Self> {
        let machines = Machine::levels(&options.target, options.cpu.as_deref())?;
        let machines =
            machines.into_iter().map(|machine| machine.align(options.strict_align)?.protect(options.branch_protection));
        let machines: Vec<Machine> = machines.collect::<Result<_>>()?;
        let triple = machines[0].triple.clone();
        let levels: Vec<CpuLevel> = machines.into_iter().map(CpuLevel::new).collect();
        let stem = options.model.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let name = match &options.name {
            Some(name) => emit::given_model_name(name)?,
            None => emit::model_name(&stem),
        };
        let weights_place = match &options.weights {
            WeightsPlace::Section(name) => WeightsPlace::section(name, &triple)?,
            other => other.clone(),
        };
        let record = options.record(&triple, &emit::cpu_names(levels.iter().map(|level| &level.cpu)));
        Ok(Self {
            path: options.model.clone(),
            profile: options.profile,
            weights_place,
            files: options.files.clone(),
            triple,
            levels,
            name,
            options: record,
            warnings: Vec::new(),
            source_sha256: [0; 32],
            model: None,
            specializations: Vec::new(),
            extents: Extents::default(),
            linked: None,
        })
    }

    fn import(&mut self, options: &Options) -> Result<()> {
        let imports = options.imports(&self.name);
        for (index, import) in imports.iter().enumerate() {
            let place = |error: Error| if index > 0 { error.context(format!("in set {} of shapes", index + 1)) } else { error };
            let file = format!("in file '{}'", self.path.display());
            let first = |mut errors: Vec<Error>| {
                let more = errors.len() - 1;
                let first = place(errors.swap_remove(0)).context(file.clone());
                if more == 0 { first } else { first.context(format!("and {more} more: `mcc check` names all of them")) }
            };
            let Imported { graph, warnings, values } = import::import_named(self.model(), import).map_err(first)?;
            // What does not change results is for those who ask.
            let warnings = warnings.iter().filter(|warning| warning.kind != WarningKind::Dropped).map(ToString::to_string);
            import::add_new(&mut self.warnings, warnings);
            let values = values.into_iter().map(Value::new).collect();
            self.specializations.push(Specialization { values, graph: Some(graph), ..Specialization::default() });
        }
        self.extents = self.compare_shapes()?;
        Ok(())
    }

    fn run_passes(&mut self, options: &Options, observer: &mut dyn Observer) {
        for specialization in &mut self.specializations {
            let graph = specialization.graph.take().expect("the model was imported");
            let mut dump = |pass: &'static str, graph: &Graph| observer.after_pass(pass, graph);
            let mut pass_options = passes::Options {
                fuel: options.fuel,
                verify: options.verify,
                dump: Some(&mut dump),
                tracked: specialization.values.iter().map(|value| value.id).collect(),
                ..passes::Options::default()
            };
            specialization.graph = Some(passes::run(graph, passes::DEPLOYMENT, &mut pass_options));
            specialization.rewrites = pass_options.log;
            specialization.passes_steps = pass_options.steps;
            specialization.fuel = pass_options.fuel;
            for (value, id) in specialization.values.iter_mut().zip(pass_options.tracked) {
                value.id = id;
            }
        }
    }

    fn lower(&mut self) {
        for specialization in &mut self.specializations {
            let (program, places) = loops::lower::lower_with_places(specialization.graph());
            for value in &mut specialization.values {
                let buffer = value.id.and_then(|id| places[id]);
                value.buffer = buffer.map(|buffer| program.buffers[buffer].name.clone());
            }
            specialization.program = Some(program);
        }
    }

    /// What was made for each set of shapes so far is the same for each CPU.
    fn multiply(&mut self) {
        let sets = std::mem::take(&mut self.specializations);
        let of = |level: usize| sets.iter().map(move |set| Specialization { level, ..set.clone() });
        self.specializations = (0..self.levels.len()).flat_map(of).collect();
    }

    fn decide(&mut self, options: &Options) -> Result<()> {
        self.multiply();
        let decisions = if options.decisions.is_empty() {
            let facts: Vec<Facts> = self.levels.iter().map(CpuLevel::facts).collect();
            let mut questions = Vec::new();
            for one in &self.specializations {
                let (facts, target) = (&facts[one.level], self.levels[one.level].target.name());
                let may_transform = options.winograd;
                questions.push(Question {
                    program: one.program(),
                    target,
                    facts,
                    level: one.level,
                    may_transform,
                    fuel: one.fuel,
                });
            }
            decide::decide(&questions)
        } else {
            let (given, needed) = (options.decisions.len(), self.specializations.len());
            let each = if self.levels.len() == 1 { "" } else { " for each CPU" };
            ensure!(given == needed, "decisions for {given} sets of shapes are given, there are {needed}{each}");
            for (decisions, one) in options.decisions.iter().zip(&self.specializations) {
                let target = self.levels[one.level].target.name();
                for (kernel, decision) in &decisions.kernels {
                    ensure!(
                        decision.target == target,
                        "the target of kernel '{kernel}' is '{}', not '{target}'",
                        decision.target
                    );
                }
            }
            options.decisions.clone()
        };
        for (specialization, decisions) in self.specializations.iter_mut().zip(decisions) {
            specialization.decisions = Some(decisions);
        }
        Ok(())
    }

    fn realize(&mut self, options: &Options) -> Result<()> {
        let programs: Vec<(&Program, &Decisions)> =
            self.specializations.iter().map(|one| (one.program(), one.decisions())).collect();
        let realized = realize::realize_all(&programs, options.keep_values)?;
        for (realized, one) in realized.iter().zip(&self.specializations) {
            let facts = self.levels[one.level].facts();
            for kernel in &realized.program.kernels {
                codegen::check_lanes(&realized.program, kernel, &facts)?;
            }
        }
        for (specialization, realized) in self.specializations.iter_mut().zip(realized) {
            specialization.realized = Some(realized);
        }
        Ok(())
    }

    fn codegen(&mut self) {
        for specialization in &mut self.specializations {
            let facts = self.levels[specialization.level].facts();
            let Realized { program, plan } = specialization.realized();
            specialization.kernels =
                parallel::map(&program.kernels, |kernel| codegen::kernel(program, &plan.layouts, kernel, &facts));
        }
    }

    fn target(&mut self) {
        for specialization in &mut self.specializations {
            let CpuLevel { cpu, target } = &self.levels[specialization.level];
            specialization.codes = parallel::map(&specialization.kernels, |compiled| target.compile(&compiled.kernel, cpu));
        }
    }

    fn emit(&mut self) -> Result<()> {
        let extents = &self.extents;
        let program = &self.realized().program;
        let ranges = |values: &[i64]| values.iter().map(|&extent| DimRange { min: extent, max: extent }).collect();
        let specialization = |(index, specialization): (usize, &Specialization)| {
            let compiled = specialization.compiled();
            if specialization.graph().lengths.any() {
                return emit::Specialization { dims: extents.dims.iter().map(|dim| dim.range).collect(), ..compiled };
            }
            emit::Specialization {
                dims: extents.dim_values.get(index).map(|values| ranges(values)).unwrap_or_default(),
                counts: extents.count_values.get(index).into_iter().flatten().map(|&count| emit::Count::Known(count)).collect(),
                ..compiled
            }
        };
        let sets = self.sets().len();
        let numbered = self.specializations.iter().enumerate().map(|(index, one)| (index % sets, one));
        let specializations = numbered.map(specialization);
        let ports = |kind, tensors: &[(String, BufferId)], symbols: &[Vec<Option<usize>>]| -> Vec<Port> {
            let mut ports = ports(&self.name, kind, program, tensors);
            let all: Vec<&emit::Symbol> = extents.dims.iter().chain(&extents.counts).collect();
            for (port, symbols) in ports.iter_mut().zip(symbols) {
                port.set_symbols(symbols.clone(), &all);
            }
            ports
        };
        let model = CompiledModel {
            name: self.name.clone(),
            triple: self.triple.clone(),
            cpus: self.levels.iter().map(|level| level.cpu.clone()).collect(),
            inputs: ports("input", &program.inputs[..self.graph().tensor_inputs().len()], &extents.inputs),
            outputs: ports("output", &program.outputs[..self.graph().tensor_outputs().len()], &extents.outputs),
            dims: extents.dims.clone(),
            counts: extents.counts.clone(),
            specializations: specializations.collect(),
            profile: self.profile,
            weights_place: self.weights_place.clone(),
            weights: self.realized().plan.weights.clone(),
            model_sha256: self.source_sha256,
            options_sha256: Sha256::digest(self.options.to_string()).into(),
            options: self.options.clone(),
            warnings: self.warnings.clone(),
        };
        emit::weights_file::expect_some(&model)?;
        let linked = emit::link(model, targets::ENTRY);
        let weights_bytes = if linked.model.weights_place == WeightsPlace::File { 0 } else { linked.sizes.weights_bytes };
        ensure!(
            weights_bytes + linked.sizes.code_bytes < 1 << 31,
            "the model has {} bytes of weights: more than the 2 GiB that code can address in one object; --weights-file keeps them out of it",
            linked.sizes.weights_bytes
        );
        self.linked = Some(linked);
        Ok(())
    }

    /// What of the shapes is known only at run time.
    fn compare_shapes(&self) -> Result<Extents> {
        if let [one] = &self.specializations[..]
            && one.graph().lengths.any()
        {
            return Ok(run_extents(&self.name, &one.graph().lengths));
        }
        self.compare_sets()
    }

    /// In what the sets of shapes differ.
    fn compare_sets(&self) -> Result<Extents> {
        let graphs: Vec<&Graph> = self.specializations.iter().map(Specialization::graph).collect();
        let mut names = match &self.model {
            Some(model) => import::declared_dims(model)?,
            None => BTreeMap::new(),
        };
        let mut tensor = |name: &String, values: Vec<graph::ValueId>| emit::extents::Tensor {
            name: name.clone(),
            dim_names: names.remove(name).unwrap_or_default(),
            shapes: graphs.iter().zip(values).map(|(graph, value)| graph.ty(value).shape.clone()).collect(),
        };
        let mut all = |of: fn(&Graph) -> &[(String, graph::ValueId)]| -> Vec<emit::extents::Tensor> {
            let values = |index: usize| graphs.iter().map(|graph| of(graph)[index].1).collect();
            of(graphs[0]).iter().enumerate().map(|(index, (name, _))| tensor(name, values(index))).collect()
        };
        let inputs = all(|graph| &graph.inputs);
        let outputs = all(|graph| &graph.outputs);
        let shapes = |tensors: &[emit::extents::Tensor], set: usize| -> Vec<Shape> {
            tensors.iter().map(|tensor| tensor.shapes[set].clone()).collect()
        };
        for set in 1..graphs.len() {
            for earlier in 0..set {
                ensure!(
                    shapes(&inputs, set) != shapes(&inputs, earlier),
                    "sets {} and {} of shapes are the same",
                    earlier + 1,
                    set + 1
                );
            }
            for tensor in inputs.iter().chain(&outputs) {
                let (rank, first) = (tensor.shapes[set].rank(), tensor.shapes[0].rank());
                ensure!(
                    rank == first,
                    "tensor '{}' has {first} dimensions in the first set of shapes, {rank} in set {}",
                    tensor.name,
                    set + 1
                );
            }
        }
        Ok(emit::extents::extents(&self.name, &inputs, &outputs))
    }

    fn run_from(&mut self, first: Stage, options: &Options, observer: &mut dyn Observer) -> Result<()> {
        for &stage in Stage::ALL.iter().filter(|&&stage| stage >= first) {
            observer.before(stage);
            let start = Instant::now();
            match stage {
                Stage::Decode => self.decode(options)?,
                Stage::Import => self.import(options)?,
                Stage::Passes => self.run_passes(options, observer),
                Stage::Lower => self.lower(),
                Stage::Decide => self.decide(options)?,
                Stage::Realize => self.realize(options)?,
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
        let verify = |one: &Specialization| one.verify(stage, &self.levels[one.level].facts());
        if let Err(error) = self.specializations.iter().try_for_each(verify) {
            bug!("what stage '{}' made is wrong: {error}\n{}", stage.name(), self.text(stage));
        }
    }

    /// What a stage made, as text.
    pub fn text(&self, stage: Stage) -> String {
        match stage {
            Stage::Decode => self.model_text(),
            Stage::Decide => {
                let all: Vec<&Decisions> = self.specializations.iter().map(Specialization::decisions).collect();
                let text =
                    if let [one] = all[..] { serde_json::to_string_pretty(one) } else { serde_json::to_string_pretty(&all) };
                text.expect("decisions are plain data") + "\n"
            }
            Stage::Emit => self.listing(self.linked().functions.iter().map(|(symbol, code)| (symbol.as_str(), code))),
            Stage::Target => {
                let codes = |one: &Specialization| {
                    self.listing(one.kernels.iter().map(|compiled| compiled.kernel.name.as_str()).zip(&one.codes))
                };
                self.specializations.iter().map(codes).collect()
            }
            Stage::Import | Stage::Passes | Stage::Lower => self.sets().iter().map(|one| one.text(stage)).collect(),
            Stage::Realize | Stage::Codegen => self.specializations.iter().map(|one| one.text(stage)).collect(),
        }
    }
}

impl CpuLevel {
    fn new(machine: Machine) -> Self {
        let (target, _) = targets::target_for(&machine.cpu);
        Self { cpu: machine.cpu, target }
    }

    fn facts(&self) -> Facts {
        self.target.facts(&self.cpu)
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
            let text = targets::disassemble(self.levels[0].cpu.arch, code);
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
    compilation.extents = run_extents(&compilation.name, &graph.lengths);
    compilation.specializations = vec![Specialization { graph: Some(graph), ..Specialization::default() }];
    compilation.run_from(Stage::Passes, options, observer)?;
    Ok(compilation)
}

fn ports(model: &str, kind: &str, program: &Program, tensors: &[(String, BufferId)]) -> Vec<Port> {
    let names = emit::tensor_names(model, kind, tensors.iter().map(|(name, _)| name.as_str()));
    let port = |((name, buffer), c_name): (&(String, BufferId), String)| Port {
        name: name.clone(),
        c_name,
        ty: program.buffers[*buffer].ty.clone(),
        symbols: Vec::new(),
    };
    tensors.iter().zip(names).map(port).collect()
}

/// The extents that a run is told or finds.
fn run_extents(model: &str, lengths: &Lengths) -> Extents {
    let symbols = |kind: &str, symbols: &[graph::lengths::Symbol]| {
        let names = emit::tensor_names(model, kind, symbols.iter().map(|symbol| symbol.name.as_str()));
        let symbol = |(symbol, c_name): (&graph::lengths::Symbol, String)| emit::Symbol {
            name: symbol.name.clone(),
            c_name,
            range: DimRange { min: symbol.min as i64, max: symbol.max as i64 },
        };
        symbols.iter().zip(names).map(symbol).collect()
    };
    let places = |list: &[Vec<Option<Length>>]| {
        list.iter().map(|axes| axes.iter().map(|axis| axis.map(|length| lengths.symbol(length))).collect()).collect()
    };
    Extents {
        dims: symbols("dim", &lengths.dims),
        counts: symbols("count", &lengths.counts),
        inputs: places(&lengths.inputs),
        outputs: places(&lengths.outputs),
        dim_values: Vec::new(),
        count_values: Vec::new(),
    }
}
