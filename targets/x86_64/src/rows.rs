//! The instructions that are used, one row each: how they are encoded and what they are called.

/// The bytes that an instruction's displacement of 8 bits counts in, in EVEX.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tuple {
    /// The vector, or one lane where that is broadcast from memory.
    Full,
    /// So many bytes whatever the vector.
    Bytes(u8),
}

/// The two prefixes of vector instructions. Only EVEX has 512 bits, registers 16 to 31, masks and broadcasts from memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prefix {
    Vex,
    Evex,
    Both,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// An instruction on general registers; opcodes of two bytes begin with 0F.
    General {
        is_two_bytes: bool,
    },
    Vector {
        prefix: Prefix,
        pp: u8,
        map: u8,
        vex_w: bool,
        evex_w: bool,
        tuple: Tuple,
    },
    /// On two mask registers: as vectors of 256 bits are in VEX.
    Masks,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    pub name: &'static str,
    /// Its name with the prefix EVEX, where that is another.
    pub evex_name: &'static str,
    pub form: Form,
    pub opcode: u8,
}

// The numbers that prefixes have in VEX and EVEX.
pub const NP: u8 = 0;
pub const P66: u8 = 1;
pub const PF3: u8 = 2;
pub const PF2: u8 = 3;

// And the tables of opcodes.
pub const M0F: u8 = 1;
pub const M38: u8 = 2;
pub const M3A: u8 = 3;

pub const fn general(name: &'static str, opcode: u8) -> Row {
    Row { name, evex_name: name, form: Form::General { is_two_bytes: false }, opcode }
}

pub const fn general_0f(name: &'static str, opcode: u8) -> Row {
    Row { name, evex_name: name, form: Form::General { is_two_bytes: true }, opcode }
}

/// In both encodings, with W clear in VEX.
pub const fn vector(name: &'static str, pp: u8, map: u8, opcode: u8) -> Row {
    let form = Form::Vector { prefix: Prefix::Both, pp, map, vex_w: false, evex_w: false, tuple: Tuple::Full };
    Row { name, evex_name: name, form, opcode }
}

/// On two mask registers of 64 bits.
const fn masks(name: &'static str, opcode: u8) -> Row {
    Row { name, evex_name: name, form: Form::Masks, opcode }
}

impl Row {
    const fn with(self, prefix: Prefix, vex_w: bool, evex_w: bool, tuple: Tuple) -> Row {
        match self.form {
            Form::Vector { pp, map, .. } => Row { form: Form::Vector { prefix, pp, map, vex_w, evex_w, tuple }, ..self },
            Form::General { .. } | Form::Masks => self,
        }
    }

    /// With W set in EVEX: lanes of 64 bits.
    pub const fn wide(self) -> Row {
        match self.form {
            Form::Vector { prefix, vex_w, tuple, .. } => self.with(prefix, vex_w, true, tuple),
            Form::General { .. } | Form::Masks => self,
        }
    }

    /// With W set in both encodings.
    pub const fn w1(self) -> Row {
        match self.form {
            Form::Vector { prefix, tuple, .. } => self.with(prefix, true, true, tuple),
            Form::General { .. } | Form::Masks => self,
        }
    }

    pub const fn vex(self) -> Row {
        match self.form {
            Form::Vector { vex_w, evex_w, tuple, .. } => self.with(Prefix::Vex, vex_w, evex_w, tuple),
            Form::General { .. } | Form::Masks => self,
        }
    }

    pub const fn evex(self) -> Row {
        match self.form {
            Form::Vector { vex_w, evex_w, tuple, .. } => self.with(Prefix::Evex, vex_w, evex_w, tuple),
            Form::General { .. } | Form::Masks => self,
        }
    }

    pub const fn bytes(self, count: u8) -> Row {
        match self.form {
            Form::Vector { prefix, vex_w, evex_w, .. } => self.with(prefix, vex_w, evex_w, Tuple::Bytes(count)),
            Form::General { .. } | Form::Masks => self,
        }
    }

    pub const fn called(self, evex_name: &'static str) -> Row {
        Row { evex_name, ..self }
    }
}

// General registers.
pub const MOV: Row = general("mov", 0x8b);
pub const MOV_STORE: Row = general("mov", 0x89);
pub const MOV_STORE_8: Row = general("mov", 0x88);
/// A constant of 32 bits, its sign copied.
pub const MOV_IMM: Row = general("mov", 0xc7);
pub const MOVZX_8: Row = general_0f("movzx", 0xb6);
pub const MOVZX_16: Row = general_0f("movzx", 0xb7);
pub const MOVSX_8: Row = general_0f("movsx", 0xbe);
pub const MOVSX_16: Row = general_0f("movsx", 0xbf);
pub const MOVSXD: Row = general("movsxd", 0x63);
pub const LEA: Row = general("lea", 0x8d);
pub const ADD: Row = general("add", 0x03);
pub const OR: Row = general("or", 0x0b);
pub const AND: Row = general("and", 0x23);
pub const SUB: Row = general("sub", 0x2b);
pub const XOR: Row = general("xor", 0x33);
pub const CMP: Row = general("cmp", 0x3b);
pub const TEST_8: Row = general("test", 0x84);
pub const TEST: Row = general("test", 0x85);
pub const IMUL: Row = general_0f("imul", 0xaf);
pub const IMUL_IMM: Row = general("imul", 0x69);
/// `not` /2, `neg` /3, `div` /6, `idiv` /7.
pub const NOT: Row = general("not", 0xf7);
pub const NEG: Row = general("neg", 0xf7);
pub const DIV: Row = general("div", 0xf7);
pub const IDIV: Row = general("idiv", 0xf7);
/// `cdq`, with 64 bits `cqo`.
pub const CDQ: Row = general("cdq", 0x99);
pub const PREFETCHT0: Row = general_0f("prefetcht0", 0x18);

/// Names by the number of the condition.
const fn conditional(names: [&'static str; 16], opcode: u8) -> [Row; 16] {
    let mut rows = [general_0f("", opcode); 16];
    let mut index = 0;
    while index < 16 {
        rows[index] = general_0f(names[index], opcode + index as u8);
        index += 1;
    }
    rows
}

pub const SET: [Row; 16] = conditional(
    [
        "seto", "setno", "setb", "setae", "sete", "setne", "setbe", "seta", "sets", "setns", "setp", "setnp", "setl", "setge",
        "setle", "setg",
    ],
    0x90,
);
pub const CMOV: [Row; 16] = conditional(
    [
        "cmovo", "cmovno", "cmovb", "cmovae", "cmove", "cmovne", "cmovbe", "cmova", "cmovs", "cmovns", "cmovp", "cmovnp",
        "cmovl", "cmovge", "cmovle", "cmovg",
    ],
    0x40,
);

// Shifts by a register that leave the flags alone (BMI2).
pub const SHLX: Row = vector("shlx", P66, M38, 0xf7).vex();
pub const SARX: Row = vector("sarx", PF3, M38, 0xf7).vex();
pub const SHRX: Row = vector("shrx", PF2, M38, 0xf7).vex();

// Moves.
pub const VMOVAPS: Row = vector("vmovaps", NP, M0F, 0x28);
pub const VMOVUPS: Row = vector("vmovups", NP, M0F, 0x10);
pub const VMOVUPS_STORE: Row = vector("vmovups", NP, M0F, 0x11);
pub const VMOVUPD: Row = vector("vmovupd", P66, M0F, 0x10).wide();
pub const VMOVUPD_STORE: Row = vector("vmovupd", P66, M0F, 0x11).wide();
pub const VMOVSS: Row = vector("vmovss", PF3, M0F, 0x10).bytes(4);
pub const VMOVSS_STORE: Row = vector("vmovss", PF3, M0F, 0x11).bytes(4);
pub const VMOVSD: Row = vector("vmovsd", PF2, M0F, 0x10).wide().bytes(8);
pub const VMOVSD_STORE: Row = vector("vmovsd", PF2, M0F, 0x11).wide().bytes(8);
pub const VMOVD: Row = vector("vmovd", P66, M0F, 0x6e).bytes(4);
pub const VMOVQ: Row = vector("vmovq", P66, M0F, 0x6e).w1().bytes(8);
pub const VMOVD_STORE: Row = vector("vmovd", P66, M0F, 0x7e).bytes(4);
pub const VMOVQ_STORE: Row = vector("vmovq", P66, M0F, 0x7e).w1().bytes(8);
pub const VBROADCASTSS: Row = vector("vbroadcastss", P66, M38, 0x18).bytes(4);
pub const VBROADCASTSD: Row = vector("vbroadcastsd", P66, M38, 0x19).wide().bytes(8);
pub const VMOVDDUP: Row = vector("vmovddup", PF2, M0F, 0x12).wide().bytes(8);
pub const VPBROADCAST: [Row; 4] = [
    vector("vpbroadcastb", P66, M38, 0x78).bytes(1),
    vector("vpbroadcastw", P66, M38, 0x79).bytes(2),
    vector("vpbroadcastd", P66, M38, 0x58).bytes(4),
    vector("vpbroadcastq", P66, M38, 0x59).wide().bytes(8),
];
/// From a general register.
pub const VPBROADCAST_GENERAL: [Row; 4] = [
    vector("vpbroadcastb", P66, M38, 0x7a).evex(),
    vector("vpbroadcastw", P66, M38, 0x7b).evex(),
    vector("vpbroadcastd", P66, M38, 0x7c).evex(),
    vector("vpbroadcastq", P66, M38, 0x7c).evex().wide(),
];

// Lanes.
pub const VINSERT_128: Row = vector("vinsertf128", P66, M3A, 0x18).called("vinsertf32x4").bytes(16);
pub const VINSERT_256: Row = vector("vinsertf64x4", P66, M3A, 0x1a).evex().wide().bytes(32);
pub const VEXTRACT_128: Row = vector("vextractf128", P66, M3A, 0x19).called("vextractf32x4").bytes(16);
pub const VEXTRACT_256: Row = vector("vextractf64x4", P66, M3A, 0x1b).evex().wide().bytes(32);
pub const VPEXTR: [Row; 4] = [
    vector("vpextrb", P66, M3A, 0x14).bytes(1),
    vector("vpextrw", P66, M3A, 0x15).bytes(2),
    vector("vpextrd", P66, M3A, 0x16).bytes(4),
    vector("vpextrq", P66, M3A, 0x16).w1().bytes(8),
];
pub const VINSERTPS: Row = vector("vinsertps", P66, M3A, 0x21).bytes(4);
pub const VPINSRD: Row = vector("vpinsrd", P66, M3A, 0x22).bytes(4);
pub const VPINSRQ: Row = vector("vpinsrq", P66, M3A, 0x22).w1().bytes(8);
pub const VMOVLHPS: Row = vector("vmovlhps", NP, M0F, 0x16);
/// Under the highest bit of each lane of another register.
pub const VPMASKMOV: [Row; 2] = [vector("vpmaskmovd", P66, M38, 0x8c).vex(), vector("vpmaskmovq", P66, M38, 0x8c).vex().w1()];
pub const VPERMILPS: Row = vector("vpermilps", P66, M3A, 0x04);
pub const VPERMILPD: Row = vector("vpermilpd", P66, M3A, 0x05).wide();

/// An operation on packed and scalar floats: f32, f64, one f32, one f64.
const fn floats(names: [&'static str; 4], opcode: u8) -> [Row; 4] {
    [
        vector(names[0], NP, M0F, opcode),
        vector(names[1], P66, M0F, opcode).wide(),
        vector(names[2], PF3, M0F, opcode).bytes(4),
        vector(names[3], PF2, M0F, opcode).wide().bytes(8),
    ]
}

pub const VADD: [Row; 4] = floats(["vaddps", "vaddpd", "vaddss", "vaddsd"], 0x58);
pub const VMUL: [Row; 4] = floats(["vmulps", "vmulpd", "vmulss", "vmulsd"], 0x59);
pub const VSUB: [Row; 4] = floats(["vsubps", "vsubpd", "vsubss", "vsubsd"], 0x5c);
pub const VMIN: [Row; 4] = floats(["vminps", "vminpd", "vminss", "vminsd"], 0x5d);
pub const VDIV: [Row; 4] = floats(["vdivps", "vdivpd", "vdivss", "vdivsd"], 0x5e);
pub const VMAX: [Row; 4] = floats(["vmaxps", "vmaxpd", "vmaxss", "vmaxsd"], 0x5f);
pub const VSQRT: [Row; 4] = floats(["vsqrtps", "vsqrtpd", "vsqrtss", "vsqrtsd"], 0x51);
pub const VCMP: [Row; 4] = floats(["vcmpps", "vcmppd", "vcmpss", "vcmpsd"], 0xc2);
/// On scalars, too: what they do to other lanes does not matter.
pub const VANDPS: Row = vector("vandps", NP, M0F, 0x54);
pub const VXORPS: Row = vector("vxorps", NP, M0F, 0x57);
pub const VANDPD: Row = vector("vandpd", P66, M0F, 0x54).wide();
pub const VXORPD: Row = vector("vxorpd", P66, M0F, 0x57).wide();
/// Compares and sets the flags.
pub const VUCOMI: [Row; 2] = [vector("vucomiss", NP, M0F, 0x2e).bytes(4), vector("vucomisd", P66, M0F, 0x2e).wide().bytes(8)];

/// Packed f32 and f64, one f32, one f64.
const fn fused(names: [&'static str; 4], opcode: u8) -> [Row; 4] {
    [
        vector(names[0], P66, M38, opcode),
        vector(names[1], P66, M38, opcode).w1(),
        vector(names[2], P66, M38, opcode + 1).bytes(4),
        vector(names[3], P66, M38, opcode + 1).w1().bytes(8),
    ]
}

pub const VFMADD132: [Row; 4] = fused(["vfmadd132ps", "vfmadd132pd", "vfmadd132ss", "vfmadd132sd"], 0x98);
pub const VFMADD213: [Row; 4] = fused(["vfmadd213ps", "vfmadd213pd", "vfmadd213ss", "vfmadd213sd"], 0xa8);
pub const VFMADD231: [Row; 4] = fused(["vfmadd231ps", "vfmadd231pd", "vfmadd231ss", "vfmadd231sd"], 0xb8);

pub const VROUND: [Row; 4] = [
    vector("vroundps", P66, M3A, 0x08).called("vrndscaleps"),
    vector("vroundpd", P66, M3A, 0x09).called("vrndscalepd").wide(),
    vector("vroundss", P66, M3A, 0x0a).called("vrndscaless").bytes(4),
    vector("vroundsd", P66, M3A, 0x0b).called("vrndscalesd").wide().bytes(8),
];

// Packed integers of 8, 16, 32 and 64 bits.
pub const VPADD: [Row; 4] = [
    vector("vpaddb", P66, M0F, 0xfc),
    vector("vpaddw", P66, M0F, 0xfd),
    vector("vpaddd", P66, M0F, 0xfe),
    vector("vpaddq", P66, M0F, 0xd4).wide(),
];
pub const VPSUB: [Row; 4] = [
    vector("vpsubb", P66, M0F, 0xf8),
    vector("vpsubw", P66, M0F, 0xf9),
    vector("vpsubd", P66, M0F, 0xfa),
    vector("vpsubq", P66, M0F, 0xfb).wide(),
];
pub const VPMULLW: Row = vector("vpmullw", P66, M0F, 0xd5);
pub const VPMULLD: Row = vector("vpmulld", P66, M38, 0x40);
pub const VPMULLQ: Row = vector("vpmullq", P66, M38, 0x40).evex().wide();
/// The product of the low halves of 64-bit lanes.
pub const VPMULUDQ: Row = vector("vpmuludq", P66, M0F, 0xf4).wide();
pub const VPMINS: [Row; 4] = [
    vector("vpminsb", P66, M38, 0x38),
    vector("vpminsw", P66, M0F, 0xea),
    vector("vpminsd", P66, M38, 0x39),
    vector("vpminsq", P66, M38, 0x39).evex().wide(),
];
pub const VPMAXS: [Row; 4] = [
    vector("vpmaxsb", P66, M38, 0x3c),
    vector("vpmaxsw", P66, M0F, 0xee),
    vector("vpmaxsd", P66, M38, 0x3d),
    vector("vpmaxsq", P66, M38, 0x3d).evex().wide(),
];
pub const VPMINU: [Row; 4] = [
    vector("vpminub", P66, M0F, 0xda),
    vector("vpminuw", P66, M38, 0x3a),
    vector("vpminud", P66, M38, 0x3b),
    vector("vpminuq", P66, M38, 0x3b).evex().wide(),
];
pub const VPMAXU: [Row; 4] = [
    vector("vpmaxub", P66, M0F, 0xde),
    vector("vpmaxuw", P66, M38, 0x3e),
    vector("vpmaxud", P66, M38, 0x3f),
    vector("vpmaxuq", P66, M38, 0x3f).evex().wide(),
];
pub const VPABS: [Row; 4] = [
    vector("vpabsb", P66, M38, 0x1c),
    vector("vpabsw", P66, M38, 0x1d),
    vector("vpabsd", P66, M38, 0x1e),
    vector("vpabsq", P66, M38, 0x1f).evex().wide(),
];
pub const VPAND: [Row; 2] =
    [vector("vpand", P66, M0F, 0xdb).called("vpandd"), vector("vpand", P66, M0F, 0xdb).called("vpandq").wide()];
pub const VPOR: [Row; 2] =
    [vector("vpor", P66, M0F, 0xeb).called("vpord"), vector("vpor", P66, M0F, 0xeb).called("vporq").wide()];
pub const VPXOR: [Row; 2] =
    [vector("vpxor", P66, M0F, 0xef).called("vpxord"), vector("vpxor", P66, M0F, 0xef).called("vpxorq").wide()];
/// By the low 64 bits of a vector register; 16, 32 and 64 bits.
pub const VPSLL: [Row; 3] = [
    vector("vpsllw", P66, M0F, 0xf1).bytes(16),
    vector("vpslld", P66, M0F, 0xf2).bytes(16),
    vector("vpsllq", P66, M0F, 0xf3).wide().bytes(16),
];
pub const VPSRL: [Row; 3] = [
    vector("vpsrlw", P66, M0F, 0xd1).bytes(16),
    vector("vpsrld", P66, M0F, 0xd2).bytes(16),
    vector("vpsrlq", P66, M0F, 0xd3).wide().bytes(16),
];
pub const VPSRA: [Row; 3] = [
    vector("vpsraw", P66, M0F, 0xe1).bytes(16),
    vector("vpsrad", P66, M0F, 0xe2).bytes(16),
    vector("vpsraq", P66, M0F, 0xe2).evex().wide().bytes(16),
];
/// By a constant; `/2` is to the right, `/4` with the sign, `/6` to the left.
pub const VPSHIFT_IMM: [Row; 3] =
    [vector("shift", P66, M0F, 0x71), vector("shift", P66, M0F, 0x72), vector("shift", P66, M0F, 0x73).wide()];
/// By a bit of a constant for each lane.
pub const VBLEND: [Row; 2] = [vector("vblendps", P66, M3A, 0x0c).vex(), vector("vblendpd", P66, M3A, 0x0d).vex()];

// Comparisons to vectors (VEX) and to masks (EVEX).
pub const VPCMPEQ: [Row; 4] = [
    vector("vpcmpeqb", P66, M0F, 0x74).vex(),
    vector("vpcmpeqw", P66, M0F, 0x75).vex(),
    vector("vpcmpeqd", P66, M0F, 0x76).vex(),
    vector("vpcmpeqq", P66, M38, 0x29).vex(),
];
pub const VPCMPGT: [Row; 4] = [
    vector("vpcmpgtb", P66, M0F, 0x64).vex(),
    vector("vpcmpgtw", P66, M0F, 0x65).vex(),
    vector("vpcmpgtd", P66, M0F, 0x66).vex(),
    vector("vpcmpgtq", P66, M38, 0x37).vex(),
];
pub const VPCMP_MASK: [Row; 4] = [
    vector("vpcmpb", P66, M3A, 0x3f).evex(),
    vector("vpcmpw", P66, M3A, 0x3f).evex().wide(),
    vector("vpcmpd", P66, M3A, 0x1f).evex(),
    vector("vpcmpq", P66, M3A, 0x1f).evex().wide(),
];
pub const VPCMPU_MASK: [Row; 4] = [
    vector("vpcmpub", P66, M3A, 0x3e).evex(),
    vector("vpcmpuw", P66, M3A, 0x3e).evex().wide(),
    vector("vpcmpud", P66, M3A, 0x1e).evex(),
    vector("vpcmpuq", P66, M3A, 0x1e).evex().wide(),
];
pub const VPTESTM: [Row; 4] = [
    vector("vptestmb", P66, M38, 0x26).evex(),
    vector("vptestmw", P66, M38, 0x26).evex().wide(),
    vector("vptestmd", P66, M38, 0x27).evex(),
    vector("vptestmq", P66, M38, 0x27).evex().wide(),
];
pub const VPBLENDM: [Row; 4] = [
    vector("vpblendmb", P66, M38, 0x66).evex(),
    vector("vpblendmw", P66, M38, 0x66).evex().wide(),
    vector("vpblendmd", P66, M38, 0x64).evex(),
    vector("vpblendmq", P66, M38, 0x64).evex().wide(),
];
pub const VPMOVM2: [Row; 4] = [
    vector("vpmovm2b", PF3, M38, 0x28).evex(),
    vector("vpmovm2w", PF3, M38, 0x28).evex().wide(),
    vector("vpmovm2d", PF3, M38, 0x38).evex(),
    vector("vpmovm2q", PF3, M38, 0x38).evex().wide(),
];
pub const VPBLENDVB: Row = vector("vpblendvb", P66, M3A, 0x4c).vex();
pub const VPTERNLOGD: Row = vector("vpternlogd", P66, M3A, 0x25).evex();

// Mask registers, 64 bits of them.
pub const KMOV: Row = vector("kmovq", NP, M0F, 0x90).vex().w1();
pub const KMOV_STORE: Row = vector("kmovq", NP, M0F, 0x91).vex().w1();
pub const KMOV_FROM: Row = vector("kmovq", PF2, M0F, 0x92).vex().w1();
pub const KMOV_TO: Row = vector("kmovq", PF2, M0F, 0x93).vex().w1();
pub const KAND: Row = masks("kandq", 0x41);
pub const KNOT: Row = vector("knotq", NP, M0F, 0x44).vex().w1();
pub const KOR: Row = masks("korq", 0x45);
pub const KXOR: Row = masks("kxorq", 0x47);

// Conversions.
pub const VCVTDQ2PS: Row = vector("vcvtdq2ps", NP, M0F, 0x5b);
pub const VCVTUDQ2PS: Row = vector("vcvtudq2ps", PF2, M0F, 0x7a).evex();
pub const VCVTTPS2DQ: Row = vector("vcvttps2dq", PF3, M0F, 0x5b);
pub const VCVTTPS2UDQ: Row = vector("vcvttps2udq", NP, M0F, 0x78).evex();
pub const VCVTQQ2PD: Row = vector("vcvtqq2pd", PF3, M0F, 0xe6).evex().wide();
pub const VCVTUQQ2PD: Row = vector("vcvtuqq2pd", PF3, M0F, 0x7a).evex().wide();
pub const VCVTTPD2QQ: Row = vector("vcvttpd2qq", P66, M0F, 0x7a).evex().wide();
pub const VCVTTPD2UQQ: Row = vector("vcvttpd2uqq", P66, M0F, 0x78).evex().wide();
/// From a general register to f32 and f64, from 32 and 64 bits.
pub const VCVTSI2S: [[Row; 2]; 2] = [
    [vector("vcvtsi2ss", PF3, M0F, 0x2a).bytes(4), vector("vcvtsi2ss", PF3, M0F, 0x2a).w1().bytes(8)],
    [vector("vcvtsi2sd", PF2, M0F, 0x2a).bytes(4), vector("vcvtsi2sd", PF2, M0F, 0x2a).w1().bytes(8)],
];
/// From f32 and f64 to a general register of 32 and 64 bits.
pub const VCVTTS2SI: [[Row; 2]; 2] = [
    [vector("vcvttss2si", PF3, M0F, 0x2c).bytes(4), vector("vcvttss2si", PF3, M0F, 0x2c).w1().bytes(4)],
    [vector("vcvttsd2si", PF2, M0F, 0x2c).bytes(8), vector("vcvttsd2si", PF2, M0F, 0x2c).w1().bytes(8)],
];
pub const VCVTSS2SD: Row = vector("vcvtss2sd", PF3, M0F, 0x5a).bytes(4);
pub const VCVTSD2SS: Row = vector("vcvtsd2ss", PF2, M0F, 0x5a).wide().bytes(8);

pub const VZEROUPPER: Row = vector("vzeroupper", NP, M0F, 0x77).vex();
