//! Parses kernels.
//!
//! A register's type is known before its uses: parameters state it, instructions state that of their result, and carried values and
//! results of `if` have that of the register that they are given from.

use std::collections::BTreeMap;

use mcc_support::text::{Lexer, Token};
use mcc_support::{EntityId, Result};

use super::{OPERATIONS, parse_type};
use crate::ir::{Address, Block, Carried, If, Kernel, Loop, Node, Op, Operand, Slot, Type, VReg, While};

/// Parses one kernel; it is not verified.
pub fn parse(text: &str) -> Result<Kernel> {
    let mut lexer = Lexer::new(text)?;
    let kernel = kernel(&mut lexer)?;
    if lexer.at_end() { Ok(kernel) } else { Err(lexer.error("text after the kernel")) }
}

/// Parses kernels that follow each other.
pub fn parse_all(text: &str) -> Result<Vec<Kernel>> {
    let mut lexer = Lexer::new(text)?;
    let mut kernels = Vec::new();
    while !lexer.at_end() {
        kernels.push(kernel(&mut lexer)?);
    }
    Ok(kernels)
}

fn kernel(lexer: &mut Lexer) -> Result<Kernel> {
    lexer.expect_word("kernel")?;
    let name = lexer.name()?;
    let mut parser = Parser { lexer, types: BTreeMap::new(), slots: Vec::new() };
    let params = parser.list(|parser| {
        let reg = parser.reg()?;
        parser.lexer.expect(":")?;
        let ty = parser.type_word()?;
        parser.define(reg, ty)?;
        Ok(reg)
    })?;
    parser.lexer.expect("{")?;
    parser.header()?;
    let body = parser.block()?;
    let result = if parser.lexer.eat_word("return")? { Some(parser.reg()?) } else { None };
    parser.lexer.expect("}")?;
    let (types, slots) = (std::mem::take(&mut parser.types), std::mem::take(&mut parser.slots));
    if types.keys().enumerate().any(|(index, &reg)| index != reg.index()) {
        return Err(lexer.error("registers are numbered without gaps; name the others in 'unused v3: i64'"));
    }
    Ok(Kernel { name, params, types: types.into_values().collect(), slots, body, result })
}

struct Parser<'a, 'b> {
    lexer: &'a mut Lexer<'b>,
    types: BTreeMap<VReg, Type>,
    slots: Vec<Slot>,
}

impl Parser<'_, '_> {
    fn define(&mut self, reg: VReg, ty: Type) -> Result<()> {
        match self.types.insert(reg, ty) {
            None => Ok(()),
            Some(_) => Err(self.lexer.error(format!("{reg} is defined twice"))),
        }
    }

    fn ty(&self, reg: VReg) -> Result<Type> {
        self.types.get(&reg).copied().ok_or_else(|| self.lexer.error(format!("{reg} is not defined")))
    }

    fn type_word(&mut self) -> Result<Type> {
        let word = self.lexer.word()?;
        parse_type(&word).ok_or_else(|| self.lexer.error(format!("'{word}' is no type")))
    }

    fn as_reg(word: &str) -> Option<VReg> {
        word.strip_prefix('v')?.parse().ok().map(VReg)
    }

    fn is_reg(&self) -> bool {
        matches!(self.lexer.peek(), Token::Word(word) if Self::as_reg(word).is_some())
    }

    fn reg(&mut self) -> Result<VReg> {
        let word = self.lexer.word()?;
        Self::as_reg(&word).ok_or_else(|| self.lexer.error(format!("expected a register, found '{word}'")))
    }

    /// `(item, item)`.
    fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        self.lexer.expect("(")?;
        let mut items = Vec::new();
        while !self.lexer.eat(")")? {
            if !items.is_empty() {
                self.lexer.expect(",")?;
            }
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// `v1, v2`, possibly none.
    fn regs(&mut self) -> Result<Vec<VReg>> {
        let mut regs = Vec::new();
        if self.is_reg() {
            regs.push(self.reg()?);
            while self.lexer.eat(",")? {
                regs.push(self.reg()?);
            }
        }
        Ok(regs)
    }

    fn header(&mut self) -> Result<()> {
        while self.lexer.eat_word("slot")? {
            let index: usize = self.lexer.int()?;
            if index != self.slots.len() {
                return Err(self.lexer.error("slots are numbered in order"));
            }
            self.lexer.expect(":")?;
            let size_bytes = self.lexer.int()?;
            self.lexer.expect_word("align")?;
            let align_bytes = self.lexer.int()?;
            self.slots.push(Slot { size_bytes, align_bytes });
        }
        while self.lexer.eat_word("unused")? {
            let reg = self.reg()?;
            self.lexer.expect(":")?;
            let ty = self.type_word()?;
            self.define(reg, ty)?;
        }
        Ok(())
    }

    fn block(&mut self) -> Result<Block> {
        let mut block = Block::new();
        while !self.lexer.is_punct("}") && !self.lexer.is_word("yield") && !self.lexer.is_word("return") {
            let node = if self.lexer.eat_word("loop")? {
                self.counted()?
            } else if self.lexer.eat_word("while")? {
                self.repeated()?
            } else if self.lexer.eat_word("if")? {
                self.branch()?
            } else {
                self.inst()?
            };
            block.push(node);
        }
        Ok(block)
    }

    /// A block in braces and what it yields.
    fn region(&mut self) -> Result<(Block, Vec<VReg>)> {
        self.lexer.expect("{")?;
        let block = self.block()?;
        let yields = if self.lexer.eat_word("yield")? { self.regs()? } else { Vec::new() };
        self.lexer.expect("}")?;
        Ok((block, yields))
    }

    fn operand(&mut self) -> Result<Operand> {
        if self.is_reg() { self.reg().map(Operand::Reg) } else { self.lexer.int().map(Operand::Const) }
    }

    /// `carry (v6 = v1)`: parameters and their first values.
    fn carry(&mut self) -> Result<Vec<(VReg, VReg)>> {
        if !self.lexer.eat_word("carry")? {
            return Ok(Vec::new());
        }
        self.list(|parser| {
            let param = parser.reg()?;
            parser.lexer.expect("=")?;
            let init = parser.reg()?;
            let ty = parser.ty(init)?;
            parser.define(param, ty)?;
            Ok((param, init))
        })
    }

    /// `-> (v10, v11)`, of the types of the registers that they are given from.
    fn results(&mut self, from: &[VReg]) -> Result<Vec<VReg>> {
        let results = if self.lexer.eat("->")? { self.list(Self::reg)? } else { Vec::new() };
        if results.len() != from.len() {
            return Err(self.lexer.error(format!("{} values are given and {} named", from.len(), results.len())));
        }
        for (&result, &from) in results.iter().zip(from) {
            let ty = self.ty(from)?;
            self.define(result, ty)?;
        }
        Ok(results)
    }

    fn carried(&mut self, carry: &[(VReg, VReg)], nexts: &[VReg]) -> Result<Vec<Carried>> {
        if carry.len() != nexts.len() {
            return Err(self.lexer.error(format!("{} values are carried and {} yielded", carry.len(), nexts.len())));
        }
        let params: Vec<_> = carry.iter().map(|&(param, _)| param).collect();
        let results = self.results(&params)?;
        let parts = carry.iter().zip(nexts).zip(results);
        Ok(parts.map(|((&(param, init), &next), result)| Carried { param, init, next, result }).collect())
    }

    fn counted(&mut self) -> Result<Node> {
        let index = self.reg()?;
        self.lexer.expect_word("in")?;
        let begin = self.operand()?;
        self.lexer.expect("..")?;
        let end = self.operand()?;
        self.lexer.expect_word("step")?;
        let step = self.lexer.int()?;
        self.define(index, Type::I64)?;
        let carry = self.carry()?;
        let (body, nexts) = self.region()?;
        let carried = self.carried(&carry, &nexts)?;
        Ok(Node::Loop(Loop { index, begin, end, step, carried, body }))
    }

    fn repeated(&mut self) -> Result<Node> {
        let carry = self.carry()?;
        let (test, _) = self.region()?;
        self.lexer.expect_word("test")?;
        let cond = self.reg()?;
        self.lexer.expect_word("do")?;
        let (body, nexts) = self.region()?;
        let carried = self.carried(&carry, &nexts)?;
        Ok(Node::While(While { carried, test, cond, body }))
    }

    fn branch(&mut self) -> Result<Node> {
        let cond = self.reg()?;
        let (then, then_values) = self.region()?;
        self.lexer.expect_word("else")?;
        let (otherwise, else_values) = self.region()?;
        if then_values.len() != else_values.len() {
            return Err(self.lexer.error("the branches yield different numbers of values"));
        }
        let results = self.results(&then_values)?;
        let results = results.into_iter().zip(then_values).zip(else_values).map(|((result, a), b)| (result, a, b)).collect();
        Ok(Node::If(If { cond, then, otherwise, results }))
    }

    fn inst(&mut self) -> Result<Node> {
        let result = if self.is_reg() { Some(self.reg()?) } else { None };
        if result.is_some() {
            self.lexer.expect("=")?;
        }
        let word = self.lexer.word()?;
        let (name, ty) = match word.rsplit_once('.').map(|(name, ty)| (name, parse_type(ty))) {
            Some((name, Some(ty))) => (name, Some(ty)),
            _ => (word.as_str(), None),
        };
        let (op, args) = self.operation(name, ty)?;
        match (result, ty) {
            (Some(result), Some(ty)) => self.define(result, ty)?,
            (Some(_), None) => return Err(self.lexer.error(format!("'{word}' has a result and does not state its type"))),
            (None, _) => {}
        }
        Ok(Node::Inst { result, op, args })
    }

    fn operation(&mut self, name: &str, ty: Option<Type>) -> Result<(Op, Vec<VReg>)> {
        let is_pointer = ty == Some(Type::Ptr);
        let op = match name {
            "const" => {
                let value: i128 = self.lexer.int()?;
                let bits = u64::try_from(value).or_else(|_| i64::try_from(value).map(|value| value as u64));
                Op::Const(bits.map_err(|_| self.lexer.error("a constant has at most 64 bits"))?)
            }
            "extract" => {
                let arg = self.reg_then_comma()?;
                return Ok((Op::Extract(self.lexer.int()?), vec![arg]));
            }
            "splice" => {
                let [first, rest] = [self.reg_then_comma()?, self.reg_then_comma()?];
                return Ok((Op::Splice(self.lexer.int()?), vec![first, rest]));
            }
            "load_first" => {
                let lanes = self.lexer.int()?;
                self.lexer.expect(",")?;
                Op::LoadFirst { lanes, address: self.address()?, align: self.align()? }
            }
            "store_first" => {
                let arg = self.reg_then_comma()?;
                let lanes = self.lexer.int()?;
                self.lexer.expect(",")?;
                return Ok((Op::StoreFirst { lanes, address: self.address()?, align: self.align()? }, vec![arg]));
            }
            "lea" => Op::Lea(self.address()?),
            "load" if is_pointer => Op::LoadPtr(self.address()?),
            "load" => Op::Load { address: self.address()?, align: self.align()? },
            "store" => {
                let arg = self.reg_then_comma()?;
                let address = self.address()?;
                let op = if is_pointer { Op::StorePtr(address) } else { Op::Store { address, align: self.align()? } };
                return Ok((op, vec![arg]));
            }
            "prefetch" => Op::Prefetch(self.address()?),
            "slot_addr" => Op::SlotAddr(self.lexer.int()?),
            "symbol_addr" => Op::SymbolAddr(self.lexer.name()?),
            "call" => {
                let symbol = self.lexer.name()?;
                return Ok((Op::Call(symbol), self.list(Self::reg)?));
            }
            "call_ptr" => {
                let mut args = vec![self.reg()?];
                args.extend(self.list(Self::reg)?);
                return Ok((Op::CallPtr, args));
            }
            _ => {
                let found = OPERATIONS.iter().find(|(known, _)| *known == name);
                let (_, op) = found.ok_or_else(|| self.lexer.error(format!("there is no operation '{name}'")))?;
                return Ok((op.clone(), self.regs()?));
            }
        };
        Ok((op, Vec::new()))
    }

    fn reg_then_comma(&mut self) -> Result<VReg> {
        let reg = self.reg()?;
        self.lexer.expect(",")?;
        Ok(reg)
    }

    fn align(&mut self) -> Result<u32> {
        self.lexer.expect_word("align")?;
        self.lexer.int()
    }

    /// `[v2 + v3*4 + 32]`.
    fn address(&mut self) -> Result<Address> {
        self.lexer.expect("[")?;
        let mut address = Address::new(self.reg()?, 0);
        while !self.lexer.eat("]")? {
            let is_sum = self.lexer.eat("+")?;
            if is_sum && self.is_reg() {
                let reg = self.reg()?;
                let scale = if self.lexer.eat("*")? { self.lexer.int()? } else { 1 };
                address.terms.push((reg, scale));
            } else if is_sum || self.lexer.is_punct("-") {
                // A minus that stays is the number's sign.
                address.displacement = self.lexer.int()?;
            } else {
                return Err(self.lexer.error("expected '+', '-' or ']' in an address"));
            }
        }
        Ok(address)
    }
}
