//! `Model` over a description made by hand: x, y: f32[n,2] → sum: f32[n,2] and the positions of positive sums, i64[m].

#![allow(unsafe_code, reason = "a description and a function as a compiled model has them")]

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::mem::offset_of;
use std::sync::Once;

use mcc_runtime::abi::{self, Call, Offset, Symbol, TensorInfo};
use mcc_runtime::{ARENA_ALIGN, DType, Error, Model, TensorMut, TensorRef, align};

const MAX: usize = 4;
/// Extents of n and m; all but n = 3.
const SETS: [[i64; 2]; 3] = [[1, 2], [2, 4], [4, 8]];

#[repr(C)]
struct Description {
    model: abi::Model,
    inputs: [TensorInfo; 2],
    outputs: [TensorInfo; 2],
    symbols: [Symbol; 2],
    pair_dims: [i64; 2],
    pair_symbols: [i32; 2],
    list_dims: [i64; 1],
    list_symbols: [i32; 1],
    sets: [[i64; 2]; 3],
    texts: [[u8; 16]; 7],
}

struct Place(UnsafeCell<Description>);
// SAFETY: written once, in `description`, before anyone reads it.
unsafe impl Sync for Place {}
static PLACE: Place = Place(UnsafeCell::new(unsafe { std::mem::zeroed() }));

const HOST: u32 = if cfg!(target_arch = "x86_64") { abi::arch::X86_64 } else { abi::arch::AARCH64 };

unsafe extern "C" fn call(call: *const Call) -> c_int {
    unsafe {
        let call = &*call;
        assert_eq!(call.size as usize, size_of::<Call>());
        let n = *call.dims;
        if !SETS.iter().any(|set| set[0] == n) {
            return abi::status::ERROR_DIMS;
        }
        let [x, y] = [0, 1].map(|i| (*call.inputs.add(i)).cast::<f32>());
        let sum = (*call.outputs).cast::<f32>();
        let list = (*call.outputs.add(1)).cast::<i64>();
        call.arena.cast::<[u8; 100]>().write([0xff; 100]);
        let mut count = 0;
        for i in 0..2 * n as usize {
            *sum.add(i) = *x.add(i) + *y.add(i);
            if *sum.add(i) > 0.0 {
                *list.add(count) = i as i64;
                count += 1;
            }
        }
        *call.counts = count as i64;
        if count == 0 { abi::status::CLAMPED } else { abi::status::OK }
    }
}

fn tensor(dtype: u32, rank: u32, size_bytes: usize) -> TensorInfo {
    TensorInfo { name: 0, dtype, rank, dims: 0, size_bytes: size_bytes as u64, symbols: 0, quantization: 0 }
}

/// Sets an offset to lead to another place.
fn lead<T>(field: &mut Offset, to: *const T) {
    *field = (to.addr() as isize - std::ptr::from_mut(field).addr() as isize).try_into().unwrap();
}

fn description() -> *const abi::Model {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let d = unsafe { &mut *PLACE.0.get() };
        for (text, name) in d.texts.iter_mut().zip(["pairs", "x", "y", "sum", "positive", "n", "m"]) {
            text[..name.len()].copy_from_slice(name.as_bytes());
        }
        d.pair_dims = [MAX as i64, 2];
        d.pair_symbols = [0, -1];
        d.list_dims = [2 * MAX as i64];
        d.list_symbols = [1];
        d.sets = SETS;
        d.symbols = [(1, MAX), (0, 2 * MAX)].map(|(min, max)| Symbol { min, max: max as i64, name: 0, reserved: 0 });
        let pair = || tensor(abi::dtype::F32, 2, MAX * 8);
        d.inputs = [pair(), pair()];
        d.outputs = [pair(), tensor(abi::dtype::I64, 1, MAX * 16)];
        let (pairs, lists) =
            ((&raw const d.pair_dims, &raw const d.pair_symbols), (&raw const d.list_dims, &raw const d.list_symbols));
        for (index, info) in d.inputs.iter_mut().chain(&mut d.outputs).enumerate() {
            lead(&mut info.name, &raw const d.texts[1 + index]);
            let dims = if index < 3 { pairs.0.cast::<i64>() } else { lists.0.cast() };
            lead(&mut info.dims, dims);
            lead(&mut info.symbols, if index < 3 { pairs.1.cast::<i32>() } else { lists.1.cast() });
        }
        for (index, symbol) in d.symbols.iter_mut().enumerate() {
            lead(&mut symbol.name, &raw const d.texts[5 + index]);
        }
        let m = &mut d.model;
        (m.size, m.abi_version, m.arch, m.cpu_features) = (size_of::<abi::Model>() as u32, abi::ABI_VERSION, HOST, 1);
        (m.input_count, m.output_count, m.dim_count, m.count_count) = (2, 2, 1, 1);
        (m.symbol_bytes, m.tensor_info_bytes) = (size_of::<Symbol>() as u32, size_of::<TensorInfo>() as u32);
        (m.arena_bytes, m.max_workers) = (100, 1);
        lead(&mut m.name, &raw const d.texts[0]);
        lead(&mut m.call, call as *const u8);
        lead(&mut m.inputs, &raw const d.inputs);
        lead(&mut m.outputs, &raw const d.outputs);
        lead(&mut m.symbols, &raw const d.symbols);
        m.shape_set_count = SETS.len() as u32;
        lead(&mut m.shape_sets, &raw const d.sets);
    });
    assert_eq!(offset_of!(Description, model), 0);
    PLACE.0.get().cast()
}

fn model() -> Model {
    unsafe { Model::from_raw(description(), 1) }.unwrap()
}

#[test]
fn describes_the_tensors() {
    let model = model();
    assert_eq!((model.name(), model.compiler()), ("pairs", ""));
    let names: Vec<_> = model.inputs().chain(model.outputs()).map(|info| info.name()).collect();
    assert_eq!(names, ["x", "y", "sum", "positive"]);
    let sum = model.outputs().next().unwrap();
    assert_eq!((sum.dtype(), sum.rank(), sum.dims(), sum.size_bytes()), (Some(DType::F32), 2, &[4, 2][..], 32));
    let n = sum.symbol(0).unwrap();
    assert_eq!((n.name(), n.min(), n.max()), ("n", 1, MAX));
    assert!(sum.symbol(1).is_none());
    assert_eq!(model.shape_sets().collect::<Vec<_>>(), SETS);
}

#[test]
fn runs_with_the_extents_of_the_inputs() {
    let model = model();
    let mut memory = vec![0u8; model.arena_bytes() + ARENA_ALIGN];
    let (x, y) = ([1.0f32, -2.0, 3.0, 4.0], [1.0f32, 1.0, -5.0, 1.0]);
    let (mut sum, mut positive) = ([0.0f32; 4], [-1i64; 2 * MAX]);
    let (mut sum_shape, mut positive_shape) = ([0; 2], [0; 1]);
    let inputs = [TensorRef::new(&x).shape(&[2, 2]), TensorRef::new(&y).shape(&[2, 2])];
    let mut outputs = [TensorMut::new(&mut sum).shape(&mut sum_shape), TensorMut::new(&mut positive).shape(&mut positive_shape)];
    model.run(&inputs, &mut outputs, align(&mut memory)).unwrap();
    assert_eq!((sum, sum_shape), ([2.0, -1.0, -2.0, 5.0], [2, 2]));
    assert_eq!((&positive[..2], positive_shape), (&[0, 3][..], [2]));
}

#[test]
fn refuses_what_does_not_fit() {
    let model = model();
    let bytes = model.arena_bytes();
    let mut memory = vec![0u8; bytes + 2 * ARENA_ALIGN];
    let memory = align(&mut memory);
    let data = [0.0f32; 16];
    let wide = [0.0f64; 8];
    let (x, n5) = (TensorRef::new(&data[..4]).shape(&[2, 2]), TensorRef::new(&data[..10]).shape(&[5, 2]));
    let unaligned: &[u8] = unsafe { std::slice::from_raw_parts(data.as_ptr().cast::<u8>().add(1), 16) };
    let mut refuse = |inputs: &[TensorRef], skip: usize, arena: usize, sum_count: usize, error: Error| {
        let (mut sum, mut positive) = ([0.0f32; 8], [0i64; 2 * MAX]);
        let mut outputs = [TensorMut::new(&mut sum[..sum_count]), TensorMut::new(&mut positive)];
        assert_eq!(model.run(inputs, &mut outputs, &mut memory[skip..skip + arena]), Err(error), "{error}");
    };
    refuse(&[x], 0, bytes, 4, Error::InputCount { given: 1, needed: 2 });
    refuse(&[x, x], 0, bytes - 1, 4, Error::Arena { given: bytes - 1, needed: bytes });
    refuse(&[x, x], 8, bytes, 4, Error::ArenaAlign);
    refuse(&[x, x], 0, bytes, 5, Error::Size { tensor: "sum", given: 20, needed: 16 });
    refuse(&[x, TensorRef::new(&data[..4])], 0, bytes, 4, Error::ShapeNeeded { tensor: "y" });
    refuse(&[x, x.shape(&[4])], 0, bytes, 4, Error::Shape { tensor: "y" });
    refuse(&[x, x.shape(&[2, 1])], 0, bytes, 4, Error::Shape { tensor: "y" });
    refuse(&[x, x.shape(&[1, 2])], 0, bytes, 4, Error::Extent { symbol: "n" });
    refuse(&[n5, n5], 0, bytes, 4, Error::Extent { symbol: "n" });
    refuse(&[x, TensorRef::new(&wide[..4])], 0, bytes, 4, Error::DType { tensor: "y", given: DType::F64, needed: 1 });
    refuse(&[x, TensorRef::from_bytes(DType::F32, unaligned).shape(&[2, 2])], 0, bytes, 4, Error::Align { tensor: "y" });
    let n3 = TensorRef::new(&data[..6]).shape(&[3, 2]);
    refuse(&[n3, n3], 0, bytes, 6, Error::ShapeSet);
    // The function clamps where no sum is positive.
    refuse(&[x, x], 0, bytes, 4, Error::Clamped);
}

#[test]
fn refuses_a_cpu_without_the_features() {
    assert_eq!(unsafe { Model::from_raw(description(), 2) }.unwrap_err(), Error::Cpu { missing: 1 });
}
