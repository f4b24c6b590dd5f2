//! The lexer that the text of every IR shares, and how numbers are written.
//!
//! One family of notation: `%value`, `@name`, words, numbers, `"strings"`, punctuation, and `;` comments to the end of the line.
//! Printing is canonical, and parsing what was printed gives the same IR.

use crate::error::{Error, Result};

#[derive(Clone, Debug, PartialEq)]
pub enum Token {
    /// `word`, also with dots inside: `add.f32`.
    Word(String),
    /// `%name`, without the sign.
    Value(String),
    /// `@name`, without the sign.
    Name(String),
    Int(i128),
    Float(f64),
    Str(String),
    /// One of `( ) [ ] { } < > , : ; = + - * / | ! ? & ^ ~ #` or `->`.
    Punct(&'static str),
    End,
}

const PUNCTUATION: [&str; 24] =
    ["->", "..", "(", ")", "[", "]", "{", "}", "<", ">", ",", ":", "=", "+", "-", "*", "/", "|", "!", "?", "&", "^", "~", "#"];

/// Splits text into tokens and reads them one by one.
#[derive(Clone, Debug)]
pub struct Lexer<'a> {
    text: &'a str,
    position: usize,
    token: Token,
    /// Where the current token starts.
    start: usize,
}

impl<'a> Lexer<'a> {
    pub fn new(text: &'a str) -> Result<Self> {
        let mut lexer = Self { text, position: 0, token: Token::End, start: 0 };
        lexer.advance()?;
        Ok(lexer)
    }

    /// The next token, not yet taken.
    pub fn peek(&self) -> &Token {
        &self.token
    }

    /// Takes the next token.
    #[expect(clippy::should_implement_trait, reason = "it fails on what is no token")]
    pub fn next(&mut self) -> Result<Token> {
        let token = self.token.clone();
        self.advance()?;
        Ok(token)
    }

    pub fn at_end(&self) -> bool {
        self.token == Token::End
    }

    /// Line (from 1) of the next token.
    pub fn line(&self) -> usize {
        1 + self.text[..self.start].matches('\n').count()
    }

    pub fn error(&self, message: impl std::fmt::Display) -> Error {
        Error::new(format!("line {}: {message}", self.line()))
    }

    pub fn is_punct(&self, punct: &str) -> bool {
        matches!(&self.token, Token::Punct(found) if *found == punct)
    }

    pub fn is_word(&self, word: &str) -> bool {
        matches!(&self.token, Token::Word(found) if found == word)
    }

    /// Takes the punctuation if it is next.
    pub fn eat(&mut self, punct: &str) -> Result<bool> {
        let found = self.is_punct(punct);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    pub fn eat_word(&mut self, word: &str) -> Result<bool> {
        let found = self.is_word(word);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    pub fn expect(&mut self, punct: &str) -> Result<()> {
        if self.eat(punct)? { Ok(()) } else { Err(self.expected(&format!("'{punct}'"))) }
    }

    pub fn expect_word(&mut self, word: &str) -> Result<()> {
        if self.eat_word(word)? { Ok(()) } else { Err(self.expected(&format!("'{word}'"))) }
    }

    pub fn word(&mut self) -> Result<String> {
        match self.next()? {
            Token::Word(word) => Ok(word),
            other => Err(self.error(format!("expected a word, found {other:?}"))),
        }
    }

    pub fn value(&mut self) -> Result<String> {
        match self.next()? {
            Token::Value(name) => Ok(name),
            other => Err(self.error(format!("expected a %value, found {other:?}"))),
        }
    }

    pub fn name(&mut self) -> Result<String> {
        match self.next()? {
            Token::Name(name) => Ok(name),
            other => Err(self.error(format!("expected a @name, found {other:?}"))),
        }
    }

    pub fn string(&mut self) -> Result<String> {
        match self.next()? {
            Token::Str(text) => Ok(text),
            other => Err(self.error(format!("expected a string, found {other:?}"))),
        }
    }

    /// An integer with an optional sign.
    pub fn int<T: TryFrom<i128>>(&mut self) -> Result<T> {
        let negative = self.eat("-")?;
        match self.next()? {
            Token::Int(value) => {
                T::try_from(if negative { -value } else { value }).map_err(|_| self.error(format!("{value} does not fit here")))
            }
            other => Err(self.error(format!("expected an integer, found {other:?}"))),
        }
    }

    fn expected(&self, what: &str) -> Error {
        self.error(format!("expected {what}, found {:?}", self.token))
    }

    fn advance(&mut self) -> Result<()> {
        let rest = loop {
            let rest = &self.text[self.position..];
            let trimmed = rest.trim_start();
            self.position += rest.len() - trimmed.len();
            if !trimmed.starts_with(';') {
                break trimmed;
            }
            self.position += trimmed.find('\n').unwrap_or(trimmed.len());
        };
        self.start = self.position;
        let Some(first) = rest.chars().next() else {
            self.token = Token::End;
            return Ok(());
        };
        let word_length = |text: &str| {
            let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
            let length = text.find(|c| !is_part(c)).unwrap_or(text.len());
            // A range `0..n` ends the word or number before its dots.
            text[..length].find("..").unwrap_or(length)
        };
        let length = match first {
            '%' | '@' => {
                let length = word_length(&rest[1..]);
                let name = rest[1..=length].to_string();
                self.token = if first == '%' { Token::Value(name) } else { Token::Name(name) };
                1 + length
            }
            '"' => {
                let (text, length) = self.quoted(rest)?;
                self.token = Token::Str(text);
                length
            }
            c if c.is_ascii_digit() => {
                let mut length = word_length(rest);
                // The sign of an exponent belongs to the number: `1.5e-7`.
                if rest[..length].ends_with(['e', 'E']) && !rest.starts_with("0x") && rest[length..].starts_with(['+', '-']) {
                    length += 1 + word_length(&rest[length + 1..]);
                }
                self.token = number(&rest[..length]).ok_or_else(|| self.error(format!("not a number: {}", &rest[..length])))?;
                length
            }
            c if c.is_alphabetic() || c == '_' => {
                let length = word_length(rest);
                self.token = Token::Word(rest[..length].to_string());
                length
            }
            _ => match PUNCTUATION.into_iter().find(|punct| rest.starts_with(punct)) {
                Some(punct) => {
                    self.token = Token::Punct(punct);
                    punct.len()
                }
                None => return Err(self.error(format!("unexpected character {first:?}"))),
            },
        };
        self.position += length;
        Ok(())
    }

    fn quoted(&self, rest: &str) -> Result<(String, usize)> {
        let mut text = String::new();
        let mut chars = rest.char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => return Ok((text, at + 1)),
                '\\' => match chars.next() {
                    Some((_, 'n')) => text.push('\n'),
                    Some((_, c @ ('"' | '\\'))) => text.push(c),
                    _ => return Err(self.error("unknown escape in a string")),
                },
                c => text.push(c),
            }
        }
        Err(self.error("a string without end"))
    }
}

fn number(text: &str) -> Option<Token> {
    if let Some(hex) = text.strip_prefix("0x") {
        return i128::from_str_radix(hex, 16).ok().map(Token::Int);
    }
    if let Ok(value) = text.parse() {
        return Some(Token::Int(value));
    }
    text.parse().ok().map(Token::Float)
}

/// Writes a string as the lexer reads it.
pub fn quote(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_each_kind_of_token() {
        let mut lexer = Lexer::new("%a = add.f32 @k, 1.5e-7 0x1f -3 0..8 \"q\\\"\" ; comment\n->").unwrap();
        let mut tokens = Vec::new();
        while !lexer.at_end() {
            tokens.push(lexer.next().unwrap());
        }
        let expected = [
            Token::Value("a".into()),
            Token::Punct("="),
            Token::Word("add.f32".into()),
            Token::Name("k".into()),
            Token::Punct(","),
            Token::Float(1.5e-7),
            Token::Int(31),
            Token::Punct("-"),
            Token::Int(3),
            Token::Int(0),
            Token::Punct(".."),
            Token::Int(8),
            Token::Str("q\"".into()),
            Token::Punct("->"),
        ];
        assert_eq!(tokens, expected);
    }
}
