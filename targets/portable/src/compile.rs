//! One kernel through Cranelift: settings, signature, relocations, stack.

use cranelift_codegen::binemit::Reloc as ClifReloc;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::{self, ExternalName, Function, UserFuncName};
use cranelift_codegen::isa::{self, CallConv, OwnedTargetIsa};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_codegen::{Context, FinalizedMachReloc, FinalizedRelocTarget};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use mcc_kernel::{Arch, Code, Cpu, Kernel, Reloc, RelocKind};
use mcc_support::bug;
use target_lexicon::Triple;

use crate::lower::{self, Symbols};

/// The names that Cranelift gives to features, where it knows them.
const CLIF_FEATURES: [(&str, &str); 22] = [
    ("avx", "has_avx"),
    ("avx2", "has_avx2"),
    ("avx512dq", "has_avx512dq"),
    ("avx512f", "has_avx512f"),
    ("avx512vbmi", "has_avx512vbmi"),
    ("avx512vl", "has_avx512vl"),
    ("avx512vnni", "has_avx512vnni"),
    ("avxvnni", "has_avx_vnni"),
    ("bmi1", "has_bmi1"),
    ("bmi2", "has_bmi2"),
    ("cmpxchg16b", "has_cmpxchg16b"),
    ("fma", "has_fma"),
    ("lzcnt", "has_lzcnt"),
    ("popcnt", "has_popcnt"),
    ("sse3", "has_sse3"),
    ("ssse3", "has_ssse3"),
    ("sse4.1", "has_sse41"),
    ("sse4.2", "has_sse42"),
    ("dotprod", "has_dotprod"),
    ("fp16", "has_fp16"),
    ("i8mm", "has_i8mm"),
    ("lse", "has_lse"),
];

/// Bytes above the frame that Cranelift lays out: the return address and the caller's frame pointer.
const LINKAGE_BYTES: u32 = 16;

fn isa(cpu: &Cpu) -> OwnedTargetIsa {
    let mut flags = settings::builder();
    let settings = [
        ("opt_level", "speed"),
        // Everything is in one object: addresses are relative to the place, without a GOT.
        ("is_pic", "false"),
        ("unwind_info", "false"),
        ("preserve_frame_pointers", "false"),
        ("enable_probestack", "false"),
        ("enable_verifier", if cfg!(debug_assertions) { "true" } else { "false" }),
    ];
    for (name, value) in settings {
        flags.set(name, value).unwrap_or_else(|error| bug!("Cranelift has no setting {name}={value}: {error}"));
    }
    let triple = match (cpu.arch, cpu.windows_abi) {
        (Arch::X86_64, false) => "x86_64-unknown-none",
        (Arch::X86_64, true) => "x86_64-pc-windows-msvc",
        (Arch::Aarch64, _) => "aarch64-unknown-none",
    };
    let triple: Triple = triple.parse().unwrap_or_else(|error| bug!("{triple}: {error}"));
    let mut builder = isa::lookup(triple).unwrap_or_else(|error| bug!("Cranelift lacks {:?}: {error}", cpu.arch));
    for (_, name) in CLIF_FEATURES.iter().filter(|(feature, _)| cpu.features.contains(feature)) {
        builder.enable(name).unwrap_or_else(|error| bug!("Cranelift has no feature {name}: {error}"));
    }
    for (is_wanted, name) in [(cpu.protection.targets, "use_bti"), (cpu.protection.returns, "sign_return_address")] {
        if is_wanted {
            builder.enable(name).unwrap_or_else(|error| bug!("Cranelift has no setting {name}: {error}"));
        }
    }
    builder.finish(settings::Flags::new(flags)).unwrap_or_else(|error| bug!("Cranelift's settings for {}: {error}", cpu.name))
}

pub(crate) fn compile(kernel: &Kernel, cpu: &Cpu) -> Code {
    let isa = isa(cpu);
    let call_conv = if cpu.windows_abi { CallConv::WindowsFastcall } else { CallConv::SystemV };
    let signature = lower::signature(kernel, call_conv);
    let mut function = Function::with_name_signature(UserFuncName::user(0, 0), signature);
    let mut function_context = FunctionBuilderContext::new();
    let builder = FunctionBuilder::new(&mut function, &mut function_context);
    let symbols = lower::lower(kernel, cpu, isa.frontend_config(), call_conv, builder);

    let mut context = Context::for_function(function);
    let names = context.func.params.user_named_funcs().clone();
    let compiled = match context.compile(&*isa, &mut ControlPlane::default()) {
        Ok(compiled) => compiled,
        Err(error) => bug!("Cranelift refused kernel {}: {:?}\n{}", kernel.name, error.inner, error.func.display()),
    };
    let bytes = compiled.code_buffer().to_vec();
    let relocs = compiled.buffer.relocs().iter().map(|found| reloc(found, &names, &symbols, &kernel.name)).collect();
    let frame = compiled.buffer.frame_layout().expect("Cranelift states the frame of what it compiled");
    let frame_bytes = frame.frame_to_fp_offset;
    let code_bytes = bytes.len() as u32;
    let align_bytes = compiled.buffer.alignment.max(16);
    Code { bytes, code_bytes, align_bytes, relocs, stack_bytes: frame_bytes + LINKAGE_BYTES }
}

type Names = cranelift_codegen::entity::PrimaryMap<ir::UserExternalNameRef, ir::UserExternalName>;

fn reloc(found: &FinalizedMachReloc, names: &Names, symbols: &Symbols, kernel: &str) -> Reloc {
    let symbol = match &found.target {
        FinalizedRelocTarget::ExternalName(ExternalName::User(name)) => &names[*name],
        other => bug!("kernel {kernel} refers to {other:?}, which the object does not have"),
    };
    let is_call = symbol.namespace == lower::CALLED;
    let kind = match found.kind {
        ClifReloc::X86CallPCRel4 if is_call => RelocKind::X86Call4,
        ClifReloc::X86CallPCRel4 | ClifReloc::X86PCRel4 => RelocKind::X86PcRel4,
        ClifReloc::Arm64Call => RelocKind::Aarch64Call26,
        ClifReloc::Aarch64AdrPrelPgHi21 => RelocKind::Aarch64AdrPage21,
        ClifReloc::Aarch64AddAbsLo12Nc => RelocKind::Aarch64AddLo12,
        other => bug!("kernel {kernel} has a relocation that no object holds: {other:?}"),
    };
    Reloc { offset: found.offset, kind, symbol: symbols.name(symbol.index).to_string(), addend: found.addend }
}
