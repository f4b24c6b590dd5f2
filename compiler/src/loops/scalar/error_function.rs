//! The error function.
#![allow(clippy::excessive_precision, reason = "constants as published, to the last digit")]
#![allow(clippy::approx_constant, reason = "a coefficient that is nearly a known constant")]

use mcc_support::DType;

use super::exponential::{ROUND_F32, exp, power_of_two};
use super::value::Value;

/// All of f32 (at most 2.1 ulp) and f64 (at most 2 ulp).
pub fn erf(x: Value<'_>) -> Value<'_> {
    if x.dtype() == DType::F32 { erf_single(x) } else { erf_double(x) }
}

/// `1 − 2^u` with `u = log2(1 − erf a)`, which is `a` times a polynomial: that whose error shows least in the result, its coefficients
/// rounded one after the other. From 3.92 on the result is 1.
fn erf_single(x: Value<'_>) -> Value<'_> {
    let a = x.abs().at_most(3.92);
    let rest = a.polynomial(&[
        -0.918_447_43, -0.148_279_25, 0.027_641_58, 0.000_211_478_69, -0.002_383_203_2, 0.000_900_205_34, -0.000_165_940_16,
        0.000_012_913_265,
    ]);
    let u = a.mul_add(-1.627_907, rest * a * a);
    let magic = ROUND_F32 + 127.0;
    let biased = u + magic;
    let r = u - (biased - magic);
    // 1 − 2^r with the least relative error; `u = n + r`.
    let q = r * r.polynomial(&[-0.693_147_2, -0.240_226_49, -0.055_503_573, -0.009_618_238, -0.001_339_080_4, -0.000_154_035_11]);
    let power = power_of_two(biased.to_bits());
    q.mul_add(power, 1.0 - power).with_sign_of(x)
}

/// The rational functions of fdlibm (Sun Microsystems, freely granted).
fn erf_double(x: Value<'_>) -> Value<'_> {
    let a = x.abs();
    let z = x * x;
    let p = z.polynomial(&[
        1.283_791_670_955_125_585_61e-1,
        -3.250_421_072_470_014_993_70e-1,
        -2.848_174_957_559_851_047_66e-2,
        -5.770_270_296_489_441_591_57e-3,
        -2.376_301_665_665_016_260_84e-5,
    ]);
    let q = z.polynomial(&[
        1.0,
        3.979_172_239_591_553_528_19e-1,
        6.502_224_998_876_729_444_85e-2,
        5.081_306_281_875_765_627_76e-3,
        1.324_947_380_043_216_445_26e-4,
        -3.960_228_278_775_368_123_20e-6,
    ]);
    let small = x + x * (p / q);
    let s = a - 1.0;
    let p = s.polynomial(&[
        -2.362_118_560_752_659_440_77e-3,
        4.148_561_186_837_483_316_66e-1,
        -3.722_078_760_357_013_238_47e-1,
        3.183_466_199_011_617_536_74e-1,
        -1.108_946_942_823_966_774_76e-1,
        3.547_830_432_561_823_593_71e-2,
        -2.166_375_594_868_790_843_00e-3,
    ]);
    let q = s.polynomial(&[
        1.0,
        1.064_208_804_008_442_282_86e-1,
        5.403_979_177_021_710_489_37e-1,
        7.182_865_441_419_626_628_68e-2,
        1.261_712_198_087_616_421_12e-1,
        1.363_708_391_202_905_073_62e-2,
        1.198_449_984_679_910_741_70e-2,
    ]);
    let near_one = 8.450_629_115_104_675_292_97e-1 + p / q;
    let far = 1.0 - complement(a.at_most(6.0));
    let large = a.lt(1.25).then(near_one, far).with_sign_of(x);
    a.lt(0.843_75).then(small, large)
}

/// `1 − erf(x)` for `x` from 1.25 to 28.
fn complement(x: Value<'_>) -> Value<'_> {
    let s = 1.0 / (x * x);
    let near = x.lt(1.0 / 0.35);
    let ra = s.polynomial(&[
        -9.864_944_034_847_148_227_05e-3,
        -6.938_585_727_071_817_643_72e-1,
        -1.055_862_622_532_329_098_14e1,
        -6.237_533_245_032_600_603_96e1,
        -1.623_966_694_625_734_703_55e2,
        -1.846_050_929_067_110_359_94e2,
        -8.128_743_550_630_659_342_46e1,
        -9.814_329_344_169_145_485_92,
    ]);
    let sa = s.polynomial(&[
        1.0,
        1.965_127_166_743_925_712_92e1,
        1.376_577_541_435_190_426_00e2,
        4.345_658_774_752_292_288_21e2,
        6.453_872_717_332_678_803_36e2,
        4.290_081_400_275_678_333_86e2,
        1.086_350_055_417_794_351_34e2,
        6.570_249_770_319_281_701_35,
        -6.042_441_521_485_809_874_38e-2,
    ]);
    let rb = s.polynomial(&[
        -9.864_942_924_700_099_285_97e-3,
        -7.992_832_376_805_230_065_74e-1,
        -1.775_795_491_775_475_198_89e1,
        -1.606_363_848_558_219_160_62e2,
        -6.375_664_433_683_896_277_22e2,
        -1.025_095_131_611_077_249_54e3,
        -4.835_191_916_086_513_970_19e2,
    ]);
    let sb = s.polynomial(&[
        1.0,
        3.033_806_074_348_245_829_24e1,
        3.257_925_129_965_739_188_26e2,
        1.536_729_586_084_436_959_94e3,
        3.199_858_219_508_595_539_08e3,
        2.553_050_406_433_164_425_83e3,
        4.745_285_412_069_553_672_15e2,
        -2.244_095_244_658_581_833_62e1,
    ]);
    let ratio = near.then(ra, rb) / near.then(sa, sb);
    let high = x.to_bits().and(!0xffff_ffff_i64).bitcast(DType::F64);
    exp(-(high * high) - 0.5625) * exp((high - x) * (high + x) + ratio) / x
}
