//! Checks what is always true of a program:
//!
//! * Names of buffers, of kernels and of the axes of one kernel are distinct; inputs and outputs are the buffers of these roles, in
//!   order; a constant has the type of its tensor; there is one status at most.
//! * Expressions ([`exprs`]): operands have the dtypes that the operation takes, conversions are those of
//!   [`primitive::is_cast`](super::primitive::is_cast), division to below is by a positive constant, no parameter is left. Axes are
//!   used inside of their loops.
//! * Memory: an index has one `i64` for each dimension; it is inside the buffer in every round, as ranges tell it (loaded indices
//!   stand under a clamp or a remainder), unless the load has an `otherwise` or the store a guard. Nothing is stored to inputs and
//!   constants; what is read was stored before by this kernel or an earlier one; local buffers are used by one kernel; every output
//!   is stored.
//! * Regions: their kernels stand side by side, a `bool[]` that was stored before decides, and latches end the rounds of loops: they
//!   alone store in a loop to what is stored before it.
//! * Variables have one dtype and are set before they are read.
//! * Spatial rounds are independent: what they set they set before reading it, and what they store to memory that outlives the
//!   loop they store at an index with the axis in it. Stores to packed buffers are in sequential loops only. Reduce rounds store to
//!   local memory only, and a variable that they carry is updated by [`scalar::combine`](super::scalar::combine) and not read otherwise.

mod exprs;
mod flow;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use mcc_support::{DType, Result, Shape, TensorType, bail, ensure};

use super::sites::accesses;
use super::{AxisKind, AxisMode, Buffer, BufferId, ExprId, Kernel, Program, Role, regions};

/// The first property that does not hold.
pub fn verify(program: &Program) -> Result<()> {
    distinct("buffer", program.buffers.values().map(|buffer| buffer.name.as_str()))?;
    distinct("kernel", program.kernels.iter().map(|kernel| kernel.name.as_str()))?;
    roles(program)?;
    for axis in program.kernels.iter().flat_map(|kernel| kernel.axes.values()) {
        let Some(limit) = axis.limit else { continue };
        let input = program.inputs.get(limit.input).map(|&(_, buffer)| &program.buffers[buffer].ty);
        let is_told = input.is_some_and(|ty| *ty == TensorType::new(DType::I64, Shape::scalar())) && limit.div >= 1;
        let stops = axis.kind == AxisKind::Spatial && axis.mode == AxisMode::Serial;
        ensure!(is_told && stops, "axis {} has a limit that is not an i64[] input, or cannot stop there", axis.name);
    }
    regions::verify(program)?;
    let mut stored: BTreeSet<BufferId> = BTreeSet::new();
    let mut owners: BTreeMap<BufferId, &str> = BTreeMap::new();
    for kernel in &program.kernels {
        verify_kernel(program, kernel).map_err(|error| error.context(format!("in kernel {}", kernel.name)))?;
        let (loads, stores) = accesses(kernel);
        for &buffer in &loads {
            let described = &program.buffers[buffer];
            let given = matches!(described.role, Role::Input(_) | Role::Constant(_)) || described.ty.shape.count() == 0;
            ensure!(
                given || stored.contains(&buffer) || stores.contains(&buffer),
                "kernel {} reads @{}, which no kernel before it stores",
                kernel.name,
                described.name
            );
        }
        for region in program.region_path(kernel.region) {
            let condition = program.regions[region].kind.condition();
            let Buffer { name, ty, .. } = &program.buffers[condition];
            let fits = *ty == TensorType::new(DType::Bool, []) && stored_or_given(program, condition, &stored);
            ensure!(fits, "@{name}, which decides whether kernel {} runs, is not a bool[] stored before", kernel.name);
        }
        for &buffer in loads.union(&stores) {
            let name = &program.buffers[buffer].name;
            if program.buffers[buffer].role == Role::Local
                && let Some(owner) = owners.insert(buffer, &kernel.name)
            {
                bail!("local @{name} is used by {owner} and {}", kernel.name);
            }
        }
        stored.extend(stores);
    }
    carried(program)?;
    for &(ref name, buffer) in &program.outputs {
        let is_stored = stored.contains(&buffer) || program.buffers[buffer].ty.shape.count() == 0;
        ensure!(is_stored, "output '{name}' is never stored");
    }
    Ok(())
}

fn stored_or_given(program: &Program, buffer: BufferId, stored: &BTreeSet<BufferId>) -> bool {
    matches!(program.buffers[buffer].role, Role::Input(_) | Role::Constant(_)) || stored.contains(&buffer)
}

/// That loops store to what was stored before them by latches only.
fn carried(program: &Program) -> Result<()> {
    for (region, first, last) in program.loop_spans() {
        let before: BTreeSet<BufferId> = program.kernels[..first].iter().flat_map(|kernel| accesses(kernel).1).collect();
        for kernel in program.kernels[first..=last].iter().filter(|kernel| !(kernel.latch && kernel.region == Some(region))) {
            let twice = accesses(kernel).1.into_iter().find(|&buffer| {
                before.contains(&buffer) && matches!(program.buffers[buffer].role, Role::Temporary | Role::Local)
            });
            if let Some(buffer) = twice {
                bail!("kernel {} stores in a loop to @{}, which is stored before it", kernel.name, program.buffers[buffer].name);
            }
        }
    }
    Ok(())
}

fn distinct<'n>(what: &str, names: impl Iterator<Item = &'n str>) -> Result<()> {
    let mut seen = BTreeSet::new();
    for name in names {
        ensure!(seen.insert(name), "{what} {name} exists twice");
    }
    Ok(())
}

fn roles(program: &Program) -> Result<()> {
    for (id, buffer) in program.buffers.iter() {
        let name = &buffer.name;
        match &buffer.role {
            Role::Input(place) => {
                let listed = program.inputs.get(*place).is_some_and(|&(_, other)| other == id);
                ensure!(listed, "@{name} is not input {place} of the list");
            }
            Role::Output(place) => {
                let listed = program.outputs.get(*place).is_some_and(|&(_, other)| other == id);
                ensure!(listed, "@{name} is not output {place} of the list");
            }
            Role::Constant(tensor) => ensure!(*tensor.ty() == buffer.ty, "@{name} is a {} made of a {}", buffer.ty, tensor.ty()),
            Role::Status => {
                let is_only = program.buffers.iter().all(|(other, buffer)| other == id || buffer.role != Role::Status);
                ensure!(is_only && buffer.ty == TensorType::new(DType::I32, []), "@{name} is not the one status, an i32[]");
            }
            Role::Temporary | Role::Shared | Role::Local => {}
        }
    }
    for (what, list) in [("input", &program.inputs), ("output", &program.outputs)] {
        for (place, (name, buffer)) in list.iter().enumerate() {
            let Some(buffer) = program.buffers.get(*buffer) else { bail!("{what} '{name}' is {buffer}, which does not exist") };
            let expected = if what == "input" { Role::Input(place) } else { Role::Output(place) };
            ensure!(buffer.role == expected, "{what} '{name}' is @{}, which has another role", buffer.name);
        }
    }
    Ok(())
}

/// Checks one kernel of a program by itself.
pub fn verify_kernel(program: &Program, kernel: &Kernel) -> Result<()> {
    distinct("axis", kernel.axes.values().map(|axis| axis.name.as_str()))?;
    let mut checked = exprs::Checker::new(program, kernel);
    checked.stmts(&kernel.body)?;
    flow::check(program, kernel)
}

/// Visits an expression and its operands that were not seen.
pub(super) fn visit(kernel: &Kernel, root: ExprId, seen: &mut BTreeSet<ExprId>, each: &mut dyn FnMut(ExprId)) {
    if seen.insert(root) {
        each(root);
        kernel.exprs.operands(root).into_iter().for_each(|operand| visit(kernel, operand, seen, each));
    }
}
