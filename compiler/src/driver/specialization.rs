//! What the stages made for one set of shapes and one CPU.

use mcc_kernel::{Code, Facts};
use mcc_runtime::ARENA_ALIGN;
use mcc_support::error::NodeRef;
use mcc_support::{Error, Result, bug};

use super::Stage;
use crate::codegen;
use crate::decisions::Decisions;
use crate::emit::{self, BufferPlace, CompiledKernel, Staged};
use crate::graph::lengths::Length;
use crate::graph::{self, Graph};
use crate::import::NamedValue;
use crate::loops::regions::Item;
use crate::loops::{self, BufferId, Program, RegionKind};
use crate::plan::{self, Place};
use crate::realize::Realized;

/// What the stages made for one set of shapes and one CPU.
#[derive(Clone, Default)]
pub struct Specialization {
    /// Which of [`Compilation::levels`](super::Compilation::levels) it is for.
    pub level: usize,
    /// The outputs of the model's nodes, in their order.
    pub values: Vec<Value>,
    /// One line for each rewrite of the graph.
    pub rewrites: Vec<String>,
    /// Those that fuel is spent on.
    pub(super) passes_steps: Vec<String>,
    /// What the passes left of the fuel.
    pub(super) fuel: Option<u64>,
    pub(super) graph: Option<Graph>,
    pub(super) program: Option<Program>,
    pub(super) decisions: Option<Decisions>,
    pub(super) realized: Option<Realized>,
    pub(super) kernels: Vec<codegen::Compiled>,
    pub(super) codes: Vec<Code>,
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
    pub(super) fn new(named: NamedValue) -> Self {
        Self { name: named.name, node: named.node, id: Some(named.value), buffer: None }
    }
}

impl std::fmt::Debug for Specialization {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Specialization").field("rewrites", &self.rewrites).finish_non_exhaustive()
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

    pub(super) fn plan_text(&self) -> String {
        format!("{}\n", plan::text::print(&self.realized().program, &self.realized().plan).trim_end())
    }

    pub(super) fn verify(&self, stage: Stage, facts: &Facts) -> Result<()> {
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

    pub(super) fn text(&self, stage: Stage) -> String {
        match stage {
            Stage::Import | Stage::Passes => self.graph().to_string(),
            Stage::Lower => self.program().to_string(),
            Stage::Realize => format!("{}{}", self.realized().program, self.plan_text()),
            Stage::Codegen => self.kernels.iter().map(|compiled| mcc_kernel::text::print(&compiled.kernel)).collect(),
            Stage::Decode | Stage::Decide | Stage::Target | Stage::Emit => String::new(),
        }
    }

    /// What `emit` is given, without the extents that tell it from others.
    pub(super) fn compiled(&self) -> emit::Specialization {
        let Realized { program, plan } = self.realized();
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
        let kernels = program.kernels.iter().zip(&self.kernels).zip(&self.codes);
        let kernels = kernels.map(|((kernel, compiled), code)| CompiledKernel {
            name: kernel.name.clone(),
            origins: kernel.origins.clone(),
            winograd: self.decisions().winograd.get(&kernel.name).map(|winograd| winograd.outputs),
            code: code.clone(),
            args: compiled.buffers.iter().map(|&buffer| place(buffer_place(plan.places[buffer]))).collect(),
            extent: compiled.extent as i64,
        });
        let count = |(symbol, &arena_offset): (&graph::lengths::Symbol, &u64)| emit::Count::Found {
            arena_offset,
            min: symbol.min as i64,
            max: symbol.max as i64,
        };
        let shapes = |tensors: &[(String, BufferId)]| {
            tensors.iter().map(|(_, buffer)| program.buffers[*buffer].ty.shape.clone()).collect()
        };
        emit::Specialization {
            level: self.level,
            dims: Vec::new(),
            counts: lengths.counts.iter().zip(&found).map(count).collect(),
            checks: lengths.checks.iter().zip(&found[lengths.counts.len()..]).map(count).collect(),
            inputs: shapes(inputs),
            outputs: shapes(outputs),
            kernels: kernels.collect(),
            runs: runs(program, plan, &program.items()),
            staged_inputs: staged_inputs.into_iter().flatten().collect(),
            staged_outputs: staged_outputs.into_iter().flatten().collect(),
            arena_bytes,
            arena_lower_bound_bytes: plan.lower_bound_bytes as u64,
            status_offset: plan.status_offset.map(|offset| offset as u64),
        }
    }
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

fn buffer_place(place: Place) -> BufferPlace {
    match place {
        Place::Unused => bug!("a kernel refers to a buffer that has no place"),
        Place::Input(index) => BufferPlace::Input(index),
        Place::Output(index) => BufferPlace::Output(index),
        Place::Weights { offset, .. } => BufferPlace::Weights(offset as u64),
        Place::Arena { offset, .. } => BufferPlace::Arena(offset as u64),
    }
}
