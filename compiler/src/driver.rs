//! The stages, in order. Nothing else knows the order, and a stage sees nothing but what the one before it made.

mod options;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use mcc_kernel::{Code, Facts, Target};
use mcc_runtime::ARENA_ALIGN;
use mcc_support::error::NodeRef;
use mcc_support::{Error, Result, Shape, bug, ensure};
use sha2::{Digest, Sha256};

use crate::codegen;
use crate::decide;
use crate::decisions::Decisions;
use crate::emit::extents::Extents;
use crate::emit::{self, BufferPlace, CompiledKernel, CompiledModel, DimRange, Linked, Port, Staged, WeightsPlace};
use crate::graph::lengths::{Length, Lengths};
use crate::graph::{self, Graph};
use crate::import::{self, Imported, NamedValue, WarningKind};
use crate::loops::regions::Item;
use crate::loops::{self, BufferId, Program, RegionKind};
use crate::onnx::Model;
use crate::parallel;
use crate::passes;
use crate::plan::{self, Place};
use crate::realize::{self, Realized};
use crate::targets::{self, Machine};

pub use options::{Options, ShapeSet};

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
    pub machine: Machine,
    /// Prefix of the symbols.
    pub name: String,
    /// The options that the result depends on.
    pub options: serde_json::Value,
    pub warnings: Vec<String>,
    profile: bool,
    weights_place: WeightsPlace,
    target: &'static dyn Target,
    source_sha256: [u8; 32],
    model: Option<Model>,
    specializations: Vec<Specialization>,
    /// In what they differ.
    extents: Extents,
    linked: Option<Linked>,
}

/// What the stages made for one set of shapes.
#[derive(Default)]
pub struct Specialization {
    /// The outputs of the model's nodes, in their order.
    pub values: Vec<Value>,
    /// One line for each rewrite of the graph.
    pub rewrites: Vec<String>,
    /// Those that fuel is spent on.
    passes_steps: Vec<String>,
    /// What the passes left of the fuel.
    fuel: Option<u64>,
    graph: Option<Graph>,
    program: Option<Program>,
    decisions: Option<Decisions>,
    realized: Option<Realized>,
    kernels: Vec<codegen::Compiled>,
    codes: Vec<Code>,
}

/// An output of a node of the model, and what became of it.
#[derive(Clone, Debug)]
pub struct Value {
    pub name: String,
    pub node: NodeRef,
    /// In the graph as it is now; `None` where passes did away with it.
    pub id: Option<graph::ValueId>,
    /// In the lowered program, where it is stored.
    pub buffer: Option<String>,
}

impl Value {
    fn new(named: NamedValue) -> Self {
        Self { name: named.name, node: named.node, id: Some(named.value), buffer: None }
    }
}

impl std::fmt::Debug for Compilation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compilation").field("name", &self.name).field("machine", &self.machine).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Specialization {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Specialization").field("rewrites", &self.rewrites).finish_non_exhaustive()
    }
}

impl Compilation {
    pub fn model(&self) -> &Model {
        self.model.as_ref().expect("the model was decoded")
    }

    /// One for each set of shapes: first that of [`Options::import`].
    pub fn specializations(&self) -> &[Specialization] {
        &self.specializations
    }

    /// Of the first set of shapes, as everything that stands for one specialization.
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
        self.target.facts(&self.machine.cpu)
    }

    pub fn target_name(&self) -> &'static str {
        self.target.name()
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
        let machine = Machine::new(&options.target, options.cpu.as_deref())?.protect(options.branch_protection)?;
        let stem = options.model.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let name = match &options.name {
            Some(name) => emit::given_model_name(name)?,
            None => emit::model_name(&stem),
        };
        let weights_place = match &options.weights {
            WeightsPlace::Section(name) => WeightsPlace::section(name, &machine.triple)?,
            other => other.clone(),
        };
        let record = options.record(&machine);
        let (target, _) = targets::target_for(&machine.cpu);
        Ok(Self {
            path: options.model.clone(),
            profile: options.profile,
            weights_place,
            files: options.files.clone(),
            machine,
            name,
            options: record,
            warnings: Vec::new(),
            target,
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
            let first = |errors: Vec<Error>| place(errors.into_iter().next().expect("a failure has an error"));
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

    fn decide(&mut self, options: &Options) -> Result<()> {
        let target = self.target.name();
        let decisions = if options.decisions.is_empty() {
            let programs: Vec<&Program> = self.specializations.iter().map(Specialization::program).collect();
            let fuel: Vec<Option<u64>> = self.specializations.iter().map(|specialization| specialization.fuel).collect();
            decide::decide(&programs, target, &self.facts(), options.winograd, &fuel)
        } else {
            let (given, needed) = (options.decisions.len(), self.specializations.len());
            ensure!(given == needed, "decisions for {given} sets of shapes are given, there are {needed}");
            for (kernel, decision) in options.decisions.iter().flat_map(|decisions| &decisions.kernels) {
                ensure!(decision.target == target, "the target of kernel '{kernel}' is '{}', not '{target}'", decision.target);
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
        let facts = self.facts();
        for realized in &realized {
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
        let facts = self.facts();
        for specialization in &mut self.specializations {
            let Realized { program, plan } = specialization.realized();
            specialization.kernels =
                parallel::map(&program.kernels, |kernel| codegen::kernel(program, &plan.layouts, kernel, &facts));
        }
    }

    fn target(&mut self) {
        let (target, cpu) = (self.target, &self.machine.cpu);
        for specialization in &mut self.specializations {
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
        let specializations = self.specializations.iter().enumerate().map(specialization);
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
            triple: self.machine.triple.clone(),
            cpu: self.machine.cpu.clone(),
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
        emit::weights::expect_some(&model)?;
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
        let facts = self.facts();
        if let Err(error) = self.specializations.iter().try_for_each(|specialization| specialization.verify(stage, &facts)) {
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
            _ => self.specializations.iter().map(|specialization| specialization.text(stage)).collect(),
        }
    }
}

impl Specialization {
    /// What fuel is spent on, one line each, in order: rewrites, then decisions.
    pub fn steps(&self) -> Vec<String> {
        self.passes_steps.iter().cloned().chain(self.decisions().lines()).collect()
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

    /// One for each kernel of the realized program, in its order.
    pub fn kernels(&self) -> &[codegen::Compiled] {
        &self.kernels
    }

    fn plan_text(&self) -> String {
        format!("{}\n", plan::text::print(&self.realized().program, &self.realized().plan).trim_end())
    }

    fn verify(&self, stage: Stage, facts: &Facts) -> Result<()> {
        match stage {
            Stage::Import | Stage::Passes => graph::verify::verify(self.graph()),
            Stage::Codegen => {
                let verify = |compiled: &codegen::Compiled| mcc_kernel::verify::verify(&compiled.kernel, Some(facts));
                self.kernels.iter().try_for_each(verify).map_err(Error::new)
            }
            Stage::Realize => {
                let Realized { program, plan } = self.realized();
                let problems = plan::check::check(program, plan);
                if problems.is_empty() { loops::verify::verify(program) } else { Err(Error::new(problems.join("\n"))) }
            }
            Stage::Lower => loops::verify::verify(self.program()),
            Stage::Decode | Stage::Decide | Stage::Target | Stage::Emit => Ok(()),
        }
    }

    fn text(&self, stage: Stage) -> String {
        match stage {
            Stage::Import | Stage::Passes => self.graph().to_string(),
            Stage::Lower => self.program().to_string(),
            Stage::Realize => format!("{}{}", self.realized().program, self.plan_text()),
            Stage::Codegen => self.kernels.iter().map(|compiled| mcc_kernel::text::print(&compiled.kernel)).collect(),
            Stage::Decode | Stage::Decide | Stage::Target | Stage::Emit => String::new(),
        }
    }

    /// What `emit` is given, without the extents that tell it from others.
    fn compiled(&self) -> emit::Specialization {
        let Realized { program, plan } = self.realized();
        let kernels =
            program.kernels.iter().zip(&self.kernels).zip(&self.codes).map(|((kernel, compiled), code)| CompiledKernel {
                name: kernel.name.clone(),
                origins: kernel.origins.clone(),
                winograd: self.decisions().winograd.get(&kernel.name).map(|winograd| winograd.outputs),
                code: code.clone(),
                args: compiled.buffers.iter().map(|&buffer| buffer_place(plan.places[buffer])).collect(),
                extent: compiled.extent as i64,
            });
        let lengths = &self.graph().lengths;
        let inputs = &program.inputs[..program.inputs.len() - lengths.dims.len()];
        let found = lengths.counts.len() + lengths.checks.len();
        let outputs = &program.outputs[..program.outputs.len() - found];
        let mut arena_bytes = plan.arena_bytes as u64;
        let mut reserve = |size_bytes: u64| {
            let offset = arena_bytes.next_multiple_of(ARENA_ALIGN as u64);
            // Also what has no element has a place.
            arena_bytes = offset + size_bytes.max(1);
            offset
        };
        let mut staged = |tensors: &[(String, BufferId)], list: &[Vec<Option<Length>>]| -> Vec<Option<Staged>> {
            let stage = |(place, (_, buffer)): (usize, &(String, BufferId))| {
                let axes = list.get(place).filter(|axes| axes.iter().any(Option::is_some))?;
                let symbols: Vec<_> = axes.iter().map(|axis| axis.map(|length| lengths.symbol(length))).collect();
                let ty = &program.buffers[*buffer].ty;
                Some(Staged::new(place, ty, &symbols, reserve(ty.size_bytes() as u64)))
            };
            tensors.iter().enumerate().map(stage).collect()
        };
        let (staged_inputs, staged_outputs) = (staged(inputs, &lengths.inputs), staged(outputs, &lengths.outputs));
        let found: Vec<u64> = (0..found).map(|_| reserve(8)).collect();
        let staged_place = |staged: &[Option<Staged>], at: usize, place: BufferPlace| {
            staged[at].as_ref().map_or(place, |staged| BufferPlace::Arena(staged.arena_offset()))
        };
        // Dims and counts come behind the tensors.
        let place = |place: BufferPlace| match place {
            BufferPlace::Input(at) if at >= inputs.len() => BufferPlace::Dim(at - inputs.len()),
            BufferPlace::Output(at) if at >= outputs.len() => BufferPlace::Arena(found[at - outputs.len()]),
            BufferPlace::Input(at) => staged_place(&staged_inputs, at, place),
            BufferPlace::Output(at) => staged_place(&staged_outputs, at, place),
            other => other,
        };
        let kernels = kernels
            .map(|kernel| CompiledKernel { args: kernel.args.iter().map(|&arg| place(arg)).collect(), ..kernel })
            .collect();
        let count = |(symbol, &arena_offset): (&graph::lengths::Symbol, &u64)| emit::Count::Found {
            arena_offset,
            min: symbol.min as i64,
            max: symbol.max as i64,
        };
        let shapes = |tensors: &[(String, BufferId)]| {
            tensors.iter().map(|(_, buffer)| program.buffers[*buffer].ty.shape.clone()).collect()
        };
        emit::Specialization {
            dims: Vec::new(),
            counts: lengths.counts.iter().zip(&found).map(count).collect(),
            checks: lengths.checks.iter().zip(&found[lengths.counts.len()..]).map(count).collect(),
            inputs: shapes(inputs),
            outputs: shapes(outputs),
            kernels,
            runs: runs(program, plan, &program.items()),
            staged_inputs: staged_inputs.into_iter().flatten().collect(),
            staged_outputs: staged_outputs.into_iter().flatten().collect(),
            arena_bytes,
            arena_lower_bound_bytes: plan.lower_bound_bytes as u64,
            status_offset: plan.status_offset.map(|offset| offset as u64),
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
    compilation.extents = run_extents(&compilation.name, &graph.lengths);
    compilation.specializations = vec![Specialization { graph: Some(graph), ..Specialization::default() }];
    compilation.run_from(Stage::Passes, options, observer)?;
    Ok(compilation)
}

/// What a run does, with kernels by place.
fn runs(program: &Program, plan: &plan::MemoryPlan, items: &[Item]) -> Vec<emit::Step<usize>> {
    let run = |item: &Item| match item {
        Item::Kernel(place) => emit::Step::Call(*place),
        Item::Region(region, items) => {
            let (kind, body) = (program.regions[*region].kind, runs(program, plan, items));
            let condition = buffer_place(plan.places[kind.condition()]);
            match kind {
                RegionKind::Loop { .. } => emit::Step::Loop { go: condition, body },
                RegionKind::Branch { taken, .. } => emit::Step::Branch { cond: condition, taken, body },
            }
        }
    };
    items.iter().map(run).collect()
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

fn buffer_place(place: Place) -> BufferPlace {
    match place {
        Place::Unused => bug!("a kernel refers to a buffer that has no place"),
        Place::Input(index) => BufferPlace::Input(index),
        Place::Output(index) => BufferPlace::Output(index),
        Place::Weights { offset, .. } => BufferPlace::Weights(offset as u64),
        Place::Arena { offset, .. } => BufferPlace::Arena(offset as u64),
    }
}
