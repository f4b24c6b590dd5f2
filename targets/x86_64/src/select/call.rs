//! Parameters and calls.

use mcc_kernel::VReg;
use mcc_kernel::mach::{Operand as Constraint, Reg};
use mcc_support::bug;

use super::{Context, Selector};
use crate::abi;
use crate::inst::Inst;

impl<const V4: bool> Selector<V4> {
    pub(super) fn define_params(&mut self, cx: &mut Context, params: &[VReg]) {
        let places = self.abi.params;
        if params.len() > places.len() {
            bug!("kernel {} has more than {} parameters", cx.kernel.name, places.len());
        }
        let operands: Vec<_> = params
            .iter()
            .zip(places)
            .map(|(&param, &place)| Constraint::reg_fixed_def(cx.reg(param), abi::general(place)))
            .collect();
        cx.push(Inst::Nothing, &operands);
    }

    /// Calls a function by its name, or by the pointer that is the first argument.
    pub(super) fn call(&mut self, cx: &mut Context, name: Option<&str>, args: &[VReg], to: Option<Reg>) {
        self.has_calls = true;
        let (pointer, args) = match name {
            Some(_) => (None, args),
            None => (Some(cx.reg(args[0])), &args[1..]),
        };
        if args.len() > self.abi.params.len() {
            bug!("kernel {} calls with more than {} arguments", cx.kernel.name, self.abi.params.len());
        }
        // rax is no argument.
        let mut operands: Vec<_> =
            pointer.map(|pointer| Constraint::reg_fixed_use(pointer, abi::general(abi::RAX))).into_iter().collect();
        let passed = args.iter().zip(self.abi.params);
        operands.extend(passed.map(|(&arg, &place)| Constraint::reg_fixed_use(cx.reg(arg), abi::general(place))));
        operands.extend(to.map(|to| Constraint::reg_fixed_def(to, abi::general(abi::RAX))));
        let clobbers = self.abi.clobbers(V4, to.is_some());
        let inst = match name {
            Some(name) => Inst::Call(self.symbol(name)),
            None => Inst::CallRax,
        };
        cx.push_clobbering(inst, &operands, clobbers);
    }
}
