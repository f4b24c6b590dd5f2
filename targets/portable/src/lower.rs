//! Kernel IR to Cranelift IR: registers, blocks, loops and calls.
//!
//! Kernel registers are SSA already, so each is one Cranelift value; carried values are block parameters. A scalar mask is an `i8` of
//! 0 or 1, a vector mask a vector of integers of its width, all ones where set.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{
    self, AbiParam, BlockArg, ExtFuncData, ExternalName, FuncRef, GlobalValueData, InstBuilder, Signature, StackSlot,
    StackSlotData, StackSlotKind, UserExternalName, Value, types,
};
use cranelift_codegen::isa::{CallConv, TargetFrontendConfig};
use cranelift_frontend::FunctionBuilder;
use mcc_kernel::{Block, Carried, Cpu, If, Kernel, Lane, Loop, Node, Op, Operand, Type, VReg, While};
use mcc_support::{EntityId, bug};

/// Namespaces of symbols: called, or whose address is taken.
pub(crate) const CALLED: u32 = 0;
const ADDRESSED: u32 = 1;

/// The symbols that a kernel mentions, by index.
#[derive(Default)]
pub(crate) struct Symbols(Vec<String>);

impl Symbols {
    pub(crate) fn name(&self, index: u32) -> &str {
        &self.0[index as usize]
    }

    fn index(&mut self, name: &str) -> u32 {
        let found = self.0.iter().position(|known| known == name);
        let index = found.unwrap_or_else(|| {
            self.0.push(name.to_string());
            self.0.len() - 1
        });
        index as u32
    }
}

pub(crate) fn signature(kernel: &Kernel, call_conv: CallConv) -> Signature {
    let params: Vec<_> = kernel.params.iter().map(|&param| kernel.types[param]).collect();
    abi(&params, kernel.result.is_some(), call_conv)
}

fn abi(params: &[Type], has_result: bool, call_conv: CallConv) -> Signature {
    let mut signature = Signature::new(call_conv);
    signature.params = params.iter().map(|&ty| AbiParam::new(clif_type(ty))).collect();
    signature.returns = if has_result { vec![AbiParam::new(types::I32)] } else { Vec::new() };
    signature
}

pub(crate) fn clif_lane(lane: Lane) -> ir::Type {
    match lane {
        Lane::I8 => types::I8,
        Lane::I16 => types::I16,
        Lane::I32 => types::I32,
        Lane::I64 => types::I64,
        Lane::F32 => types::F32,
        Lane::F64 => types::F64,
    }
}

pub(crate) fn clif_type(ty: Type) -> ir::Type {
    let (lane, lanes) = match ty {
        Type::Ptr => (types::I64, 1),
        Type::Data { lane, lanes } => (clif_lane(lane), lanes),
        Type::Mask { lanes: 1, .. } => (types::I8, 1),
        Type::Mask { bits, lanes } => (ir::Type::int(u16::from(bits)).expect("masks have the width of a lane"), lanes),
    };
    if lanes == 1 {
        return lane;
    }
    match lane.by(u32::from(lanes)) {
        Some(vector) if vector.bits() == 128 => vector,
        _ => bug!("the portable target has no {ty}"),
    }
}

/// What lowering knows of a kernel while it goes through it.
pub(crate) struct Lower<'a, 'b> {
    pub kernel: &'a Kernel,
    pub cpu: &'a Cpu,
    pub builder: FunctionBuilder<'b>,
    call_conv: CallConv,
    values: Vec<Option<Value>>,
    /// The bits of registers that are scalar constants.
    constants: Vec<Option<u64>>,
    slots: Vec<StackSlot>,
    symbols: Symbols,
}

/// Lowers a kernel into an empty function.
pub(crate) fn lower(
    kernel: &Kernel,
    cpu: &Cpu,
    frontend: TargetFrontendConfig,
    call_conv: CallConv,
    builder: FunctionBuilder,
) -> Symbols {
    let count = kernel.types.len();
    let mut lower = Lower {
        kernel,
        cpu,
        builder,
        call_conv,
        values: vec![None; count],
        constants: vec![None; count],
        slots: Vec::new(),
        symbols: Symbols::default(),
    };
    lower.function();
    lower.builder.finalize(frontend);
    lower.symbols
}

impl Lower<'_, '_> {
    fn function(&mut self) {
        let entry = self.builder.create_block();
        self.builder.append_block_params_for_function_params(entry);
        self.builder.switch_to_block(entry);
        for (index, &param) in self.kernel.params.iter().enumerate() {
            let value = self.builder.block_params(entry)[index];
            self.set(param, value);
        }
        for slot in &self.kernel.slots {
            let shift = slot.align_bytes.trailing_zeros() as u8;
            let data = StackSlotData::new(StackSlotKind::ExplicitSlot, slot.size_bytes, shift);
            self.slots.push(self.builder.create_sized_stack_slot(data));
        }
        self.block(&self.kernel.body);
        let results: Vec<_> = self.kernel.result.iter().map(|&result| self.value(result)).collect();
        self.builder.ins().return_(&results);
        self.builder.seal_all_blocks();
    }

    pub fn value(&self, reg: VReg) -> Value {
        self.values[reg.index()].unwrap_or_else(|| bug!("kernel {}: {reg} is used before it is defined", self.kernel.name))
    }

    pub fn set(&mut self, reg: VReg, value: Value) {
        self.values[reg.index()] = Some(value);
    }

    pub fn ty(&self, reg: VReg) -> Type {
        self.kernel.types[reg]
    }

    /// The bits of a scalar constant.
    pub fn constant(&self, reg: VReg) -> Option<u64> {
        self.constants[reg.index()]
    }

    pub fn int(&mut self, value: i64) -> Value {
        self.builder.ins().iconst(types::I64, value)
    }

    fn block(&mut self, block: &Block) {
        for node in block {
            match node {
                Node::Inst { result, op, args } => self.node(*result, op, args),
                Node::Loop(node) => self.counted(node),
                Node::If(node) => self.branch(node),
                Node::While(node) => self.repeat(node),
            }
        }
    }

    fn node(&mut self, result: Option<VReg>, op: &Op, args: &[VReg]) {
        match (op, result) {
            (Op::Store { address, align }, _) => self.store(args[0], address, *align),
            (Op::StorePtr(address), _) => self.store(args[0], address, 8),
            // Cranelift has no prefetch.
            (Op::Prefetch(_), _) => {}
            (Op::Call(name), _) => {
                let callee = self.function_ref(name, args, result.is_some());
                let args: Vec<_> = args.iter().map(|&arg| self.value(arg)).collect();
                let call = self.builder.ins().call(callee, &args);
                self.call_result(result, call);
            }
            (Op::CallPtr, _) => {
                let types: Vec<_> = args[1..].iter().map(|&arg| self.ty(arg)).collect();
                let signature = self.builder.import_signature(abi(&types, result.is_some(), self.call_conv));
                let values: Vec<_> = args.iter().map(|&arg| self.value(arg)).collect();
                let call = self.builder.ins().call_indirect(signature, values[0], &values[1..]);
                self.call_result(result, call);
            }
            (_, Some(result)) => {
                if let (Op::Const(bits), 1) = (op, self.ty(result).lanes()) {
                    self.constants[result.index()] = Some(*bits);
                }
                let value = self.compute(self.ty(result), op, args);
                self.set(result, value);
            }
            (_, None) => bug!("kernel {}: {op:?} without a result", self.kernel.name),
        }
    }

    fn call_result(&mut self, result: Option<VReg>, call: ir::Inst) {
        if let Some(result) = result {
            let value = self.builder.inst_results(call)[0];
            self.set(result, value);
        }
    }

    fn function_ref(&mut self, name: &str, args: &[VReg], has_result: bool) -> FuncRef {
        let types: Vec<_> = args.iter().map(|&arg| self.ty(arg)).collect();
        let signature = self.builder.import_signature(abi(&types, has_result, self.call_conv));
        let name = self.symbol(CALLED, name);
        self.builder.import_function(ExtFuncData { name, signature, colocated: true, patchable: false })
    }

    fn symbol(&mut self, namespace: u32, name: &str) -> ExternalName {
        let name = UserExternalName::new(namespace, self.symbols.index(name));
        ExternalName::user(self.builder.func.declare_imported_user_function(name))
    }

    pub fn symbol_address(&mut self, name: &str) -> Value {
        let name = self.symbol(ADDRESSED, name);
        let data = GlobalValueData::Symbol { name, offset: 0.into(), colocated: true, tls: false };
        let global = self.builder.create_global_value(data);
        self.builder.ins().symbol_value(types::I64, global)
    }

    pub fn slot_address(&mut self, slot: u32) -> Value {
        let slot = self.slots[slot as usize];
        self.builder.ins().stack_addr(types::I64, slot, 0)
    }

    fn operand(&mut self, operand: Operand) -> Value {
        match operand {
            Operand::Const(value) => self.int(value),
            Operand::Reg(reg) => self.value(reg),
        }
    }

    /// A block that takes the carried values as parameters.
    fn block_with(&mut self, carried: &[Carried]) -> ir::Block {
        let block = self.builder.create_block();
        for carried in carried {
            let ty = clif_type(self.ty(carried.param));
            self.builder.append_block_param(block, ty);
        }
        block
    }

    fn args(&self, regs: impl Iterator<Item = VReg>) -> Vec<BlockArg> {
        regs.map(|reg| BlockArg::Value(self.value(reg))).collect()
    }

    /// Tests before the first round and at the end of each, so that a round has one jump.
    fn counted(&mut self, node: &Loop) {
        let begin = self.operand(node.begin);
        let end = self.operand(node.end);
        let exit = self.block_with(&node.carried);
        let body = self.block_with(&node.carried);
        let index = self.builder.append_block_param(body, types::I64);
        let init = self.args(node.carried.iter().map(|carried| carried.init));
        let mut first = init.clone();
        first.push(BlockArg::Value(begin));
        match (node.begin, node.end) {
            (Operand::Const(begin), Operand::Const(end)) if begin < end => self.builder.ins().jump(body, &first),
            _ => {
                let runs = self.builder.ins().icmp(IntCC::SignedLessThan, begin, end);
                self.builder.ins().brif(runs, body, &first, exit, &init)
            }
        };
        self.builder.switch_to_block(body);
        self.set(node.index, index);
        self.set_params(body, node.carried.iter().map(|carried| carried.param));
        self.block(&node.body);
        let step = self.int(node.step);
        let next_index = self.builder.ins().iadd(index, step);
        let last = self.args(node.carried.iter().map(|carried| carried.next));
        let mut next = last.clone();
        next.push(BlockArg::Value(next_index));
        let goes_on = self.builder.ins().icmp(IntCC::SignedLessThan, next_index, end);
        self.builder.ins().brif(goes_on, body, &next, exit, &last);
        self.builder.switch_to_block(exit);
        self.set_params(exit, node.carried.iter().map(|carried| carried.result));
    }

    fn set_params(&mut self, block: ir::Block, regs: impl Iterator<Item = VReg>) {
        for (index, reg) in regs.enumerate() {
            let value = self.builder.block_params(block)[index];
            self.set(reg, value);
        }
    }

    fn repeat(&mut self, node: &While) {
        let header = self.block_with(&node.carried);
        let body = self.builder.create_block();
        let exit = self.block_with(&node.carried);
        let init = self.args(node.carried.iter().map(|carried| carried.init));
        self.builder.ins().jump(header, &init);
        self.builder.switch_to_block(header);
        self.set_params(header, node.carried.iter().map(|carried| carried.param));
        self.block(&node.test);
        let cond = self.value(node.cond);
        let params = self.args(node.carried.iter().map(|carried| carried.param));
        self.builder.ins().brif(cond, body, &[], exit, &params);
        self.builder.switch_to_block(body);
        self.block(&node.body);
        let next = self.args(node.carried.iter().map(|carried| carried.next));
        self.builder.ins().jump(header, &next);
        self.builder.switch_to_block(exit);
        self.set_params(exit, node.carried.iter().map(|carried| carried.result));
    }

    fn branch(&mut self, node: &If) {
        let then = self.builder.create_block();
        let otherwise = self.builder.create_block();
        let exit = self.builder.create_block();
        for &(result, ..) in &node.results {
            let ty = clif_type(self.ty(result));
            self.builder.append_block_param(exit, ty);
        }
        let cond = self.value(node.cond);
        self.builder.ins().brif(cond, then, &[], otherwise, &[]);
        self.builder.switch_to_block(then);
        self.block(&node.then);
        let values = self.args(node.results.iter().map(|&(_, value, _)| value));
        self.builder.ins().jump(exit, &values);
        self.builder.switch_to_block(otherwise);
        self.block(&node.otherwise);
        let values = self.args(node.results.iter().map(|&(.., value)| value));
        self.builder.ins().jump(exit, &values);
        self.builder.switch_to_block(exit);
        self.set_params(exit, node.results.iter().map(|&(result, ..)| result));
    }
}
