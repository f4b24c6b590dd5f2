//! The corpus: kernels with inputs and the outcome that they must have, in `corpus/*.kernel`.
//!
//! After the kernels, of which the first is run, `data @name f32 [1, 2]` defines constant data, and each
//! `run 0..4 -> 7 { f32 [1, 2] f32 [0, 0] -> [3, 4] }` is a case: begin and end, the status if there is one, and the buffers, with
//! what they hold afterwards where that is something else. Floats may be `nan`, `inf` and `-inf`; `x 5` after a list repeats it.

use std::path::Path;

use mcc_kernel::{Lane, text};
use mcc_support::Result;
use mcc_support::text::{Lexer, Token};

use crate::case::{Buffer, Case, Outcome};

/// The cases of the corpus.
pub fn corpus() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("the folder can be read").path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "the corpus is empty");
    let cases = paths.iter().flat_map(|path| {
        let content = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let name = path.file_stem().expect("files have names").to_string_lossy().into_owned();
        parse(&name, &content).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    });
    cases.collect()
}

fn parse(name: &str, content: &str) -> Result<Vec<Case>> {
    let start = ["\ndata ", "\nrun "].iter().filter_map(|word| content.find(word)).min().unwrap_or(content.len());
    let kernels = text::parse_all(&content[..start])?;
    let mut lexer = Lexer::new(&content[start..])?;
    let mut data = Vec::new();
    let mut cases = Vec::new();
    while lexer.eat_word("data")? {
        let symbol = lexer.name()?;
        let lane = lane(&mut lexer)?;
        data.push((symbol, list(&mut lexer, lane)?));
    }
    while !lexer.at_end() {
        lexer.expect_word("run")?;
        let begin = lexer.int()?;
        lexer.expect("..")?;
        let end = lexer.int()?;
        let status = if lexer.eat("->")? { lexer.int()? } else { 0 };
        let (mut buffers, mut outcomes) = (Vec::new(), Vec::new());
        lexer.expect("{")?;
        while !lexer.eat("}")? {
            let lane = lane(&mut lexer)?;
            let bytes = list(&mut lexer, lane)?;
            outcomes.push(if lexer.eat("->")? { list(&mut lexer, lane)? } else { bytes.clone() });
            buffers.push(Buffer { bytes, align_bytes: lane.bytes() as usize, lane });
        }
        let expected = Some(Outcome { status, buffers: outcomes });
        let name = format!("{name}, run {}", cases.len() + 1);
        cases.push(Case { name, kernels: kernels.clone(), data: data.clone(), buffers, begin, end, expected });
    }
    Ok(cases)
}

fn lane(lexer: &mut Lexer) -> Result<Lane> {
    let word = lexer.word()?;
    Lane::ALL.into_iter().find(|lane| lane.name() == word).ok_or_else(|| lexer.error(format!("'{word}' is no lane")))
}

fn list(lexer: &mut Lexer, lane: Lane) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    lexer.expect("[")?;
    while !lexer.eat("]")? {
        if !bytes.is_empty() {
            lexer.expect(",")?;
        }
        bytes.extend(&number(lexer, lane)?.to_le_bytes()[..lane.bytes() as usize]);
    }
    let times = if lexer.eat_word("x")? { lexer.int()? } else { 1 };
    Ok(bytes.repeat(times))
}

/// A number as the bits of a lane.
fn number(lexer: &mut Lexer, lane: Lane) -> Result<u64> {
    let is_negative = lexer.eat("-")?;
    let sign = if is_negative { -1.0 } else { 1.0 };
    let value = match lexer.next()? {
        Token::Int(value) if !lane.is_float() => return Ok(if is_negative { -value } else { value } as u64),
        Token::Int(value) => value as f64,
        Token::Float(value) => value,
        Token::Word(word) if word == "nan" => f64::NAN,
        Token::Word(word) if word == "inf" => f64::INFINITY,
        other => return Err(lexer.error(format!("expected a number, found {other:?}"))),
    };
    match lane {
        Lane::F32 => Ok(u64::from((sign * value as f32).to_bits())),
        Lane::F64 => Ok((f64::from(sign) * value).to_bits()),
        _ => Err(lexer.error("a float among integers")),
    }
}
