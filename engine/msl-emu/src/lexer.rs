//! Tokens of C++ text, just enough to find the words of the language.

use std::ops::Range;

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Word,
    Number,
    Text,
    Mark,
    /// The newline that ends a preprocessor directive.
    DirectiveEnd,
}

/// A token and its place in the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    pub kind: Kind,
    pub range: Range<usize>,
    /// Whether it belongs to a preprocessor directive.
    pub directive: bool,
}

/// Splits `text`; comments and blanks are left out.
pub(crate) fn tokens(text: &str) -> Vec<Token> {
    let mut lexer = Lexer {
        bytes: text.as_bytes(),
        at: 0,
        directive: false,
        line_start: true,
        found: Vec::new(),
    };
    while lexer.at < lexer.bytes.len() {
        lexer.step();
    }
    lexer.found
}

struct Lexer<'a> {
    bytes: &'a [u8],
    at: usize,
    directive: bool,
    line_start: bool,
    found: Vec<Token>,
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn step(&mut self) {
        match (self.peek(0), self.peek(1)) {
            (b'\\', b'\n') => self.at += 2,
            (b'\n', _) => self.newline(),
            (b'/', b'/') => self.skip_until(b"\n", false),
            (b'/', b'*') => self.skip_until(b"*/", true),
            (b'R', b'"') => self.raw_string(),
            (b'"' | b'\'', _) => self.quoted(),
            (byte, _) if byte.is_ascii_whitespace() => self.at += 1,
            (byte, next) if byte.is_ascii_digit() || (byte == b'.' && next.is_ascii_digit()) => {
                self.number();
            }
            (byte, _) if is_word(byte) => self.run(Kind::Word, is_word),
            (byte, _) => self.mark(byte),
        }
    }

    fn push(&mut self, kind: Kind, from: usize) {
        self.line_start = false;
        self.found.push(Token { kind, range: from..self.at, directive: self.directive });
    }

    fn newline(&mut self) {
        self.at += 1;
        if self.directive {
            let end = self.at - 1;
            self.found.push(Token { kind: Kind::DirectiveEnd, range: end..end, directive: true });
        }
        self.directive = false;
        self.line_start = true;
    }

    fn skip_until(&mut self, end: &[u8], include: bool) {
        let rest = &self.bytes[self.at..];
        let length = rest.windows(end.len()).position(|window| window == end);
        let after = if include { end.len() } else { 0 };
        self.at = length.map_or(self.bytes.len(), |length| self.at + length + after);
    }

    fn raw_string(&mut self) {
        let from = self.at;
        let rest = &self.bytes[from + 2..];
        let Some(open) = rest.iter().position(|&byte| byte == b'(') else {
            return self.run(Kind::Word, is_word);
        };
        let close = [b")", &rest[..open], b"\""].concat();
        self.skip_until(&close, true);
        self.push(Kind::Text, from);
    }

    fn quoted(&mut self) {
        let from = self.at;
        let quote = self.peek(0);
        self.at += 1;
        while self.at < self.bytes.len() && self.peek(0) != quote && self.peek(0) != b'\n' {
            self.at += if self.peek(0) == b'\\' { 2 } else { 1 };
        }
        self.at = (self.at + usize::from(self.peek(0) == quote)).min(self.bytes.len());
        self.push(Kind::Text, from);
    }

    /// Digits, suffixes, exponents with their sign, digit separators.
    fn number(&mut self) {
        let from = self.at;
        loop {
            let signed = matches!(self.peek(0), b'e' | b'E' | b'p' | b'P')
                && matches!(self.peek(1), b'+' | b'-');
            let separated = self.peek(0) == b'\'' && is_word(self.peek(1));
            if signed || separated {
                self.at += 2;
            } else if is_word(self.peek(0)) || self.peek(0) == b'.' {
                self.at += 1;
            } else {
                break;
            }
        }
        self.push(Kind::Number, from);
    }

    fn run(&mut self, kind: Kind, belongs: fn(u8) -> bool) {
        let from = self.at;
        while belongs(self.peek(0)) {
            self.at += 1;
        }
        self.push(kind, from);
    }

    fn mark(&mut self, byte: u8) {
        let from = self.at;
        self.directive |= byte == b'#' && self.line_start;
        self.at += 1;
        self.push(Kind::Mark, from);
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<&str> {
        tokens(text)
            .iter()
            .filter(|token| token.kind == Kind::Word)
            .map(|token| &text[token.range.clone()])
            .collect()
    }

    #[test]
    fn comments_strings_and_numbers_hold_no_words() {
        assert_eq!(
            words("a // device\n/* thread */ b \"constant\" 'c' 1e-5f 0x1p+3 1'000u d"),
            ["a", "b", "d"]
        );
        assert_eq!(words("R\"x( device )\" )x\" e"), ["e"]);
    }

    #[test]
    fn a_directive_goes_on_after_a_backslash() {
        let found = tokens("#define A \\\n b\nc");
        let inside: Vec<_> = found.iter().map(|token| token.directive).collect();
        assert_eq!(inside, [true, true, true, true, true, false]);
    }

    #[test]
    fn unclosed_text_ends_with_the_file() {
        for text in ["/* a", "\"a", "'", "R\"(a", "R\"", "\\", "\"\\"] {
            tokens(text);
        }
    }
}
