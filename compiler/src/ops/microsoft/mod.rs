//! The domain `com.microsoft`: operators that ONNX Runtime's tools write into the models they optimize and quantize.

mod attention;
mod fused;
mod norm;
mod products;
mod quant;

use super::OpDef;

const DOMAIN: &str = "com.microsoft";

pub static FAMILIES: &[&[&OpDef]] = &[attention::ALL, fused::ALL, norm::ALL, products::ALL, quant::ALL];
