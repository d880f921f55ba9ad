//! Whether the row filter of a publication is the one that the configuration declares.
//!
//! Postgres stores a filter as a tree and prints it with parentheses, casts and operators of its
//! own: `kind LIKE 'a%'` comes back as `(kind ~~ 'a%'::text)`. So both texts are read into the same
//! tree. What is not understood here (arithmetic, BETWEEN, CASE) is equal only as Postgres prints it.

use std::iter::Peekable;
use std::vec::IntoIter;

/// The first version whose publications have row filters.
pub const KNOWS_ROW_FILTERS: u32 = 150_000;

/// Is `printed`, a filter as Postgres prints it, the declared one? `varchars` are the columns of type
/// varchar.
pub fn is_same(declared: &str, printed: &str, varchars: &[&str]) -> bool {
    if declared.trim() == printed.trim() {
        return true;
    }
    let (Some(declared), Some(printed)) = (tokens(declared), tokens(printed)) else { return false };
    declared == printed
        || Parser::read(declared, varchars)
            .is_some_and(|it| Some(it) == Parser::read(printed, varchars))
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    /// Unquoted, in lower case.
    Word(String),
    Quoted(String),
    Text(String),
    Number(String),
    /// An operator, a bracket, a comma, a dot or `::`.
    Sign(String),
}

const OPERATOR_CHARACTERS: &str = "+-*/<>=~!@#%^&|`?";

/// `None` for a text with what occurs in no filter, like a comment or a parameter.
fn tokens(text: &str) -> Option<Vec<Token>> {
    let mut found = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let (token, length) = match first {
            '\'' | '"' => {
                let (inner, length) = quoted(rest, first)?;
                let token = if first == '"' { Token::Quoted } else { Token::Text };
                (token(inner), length)
            }
            _ if first.is_ascii_digit() => {
                let length = length_of(rest, |it| it.is_ascii_digit() || it == '.');
                (Token::Number(rest[..length].to_owned()), length)
            }
            _ if first.is_alphabetic() || first == '_' => {
                let length = length_of(rest, |it| it.is_alphanumeric() || matches!(it, '_' | '$'));
                (Token::Word(rest[..length].to_ascii_lowercase()), length)
            }
            _ if OPERATOR_CHARACTERS.contains(first) => {
                let length = length_of(rest, |it| OPERATOR_CHARACTERS.contains(it));
                (Token::Sign(rest[..length].to_owned()), length)
            }
            ':' if rest.starts_with("::") => (Token::Sign("::".to_owned()), 2),
            '(' | ')' | '[' | ']' | ',' | '.' => (Token::Sign(first.to_string()), 1),
            _ => return None,
        };
        found.push(token);
        rest = rest[length..].trim_start();
    }
    Some(found)
}

fn length_of(text: &str, belongs: impl Fn(char) -> bool) -> usize {
    text.find(|it| !belongs(it)).unwrap_or(text.len())
}

/// The text between two quotes, a doubled one of which stands for itself, and the length of it all.
fn quoted(text: &str, quote: char) -> Option<(String, usize)> {
    let mut inner = String::new();
    let mut characters = text.char_indices().skip(1).peekable();
    while let Some((at, character)) = characters.next() {
        if character != quote {
            inner.push(character);
        } else if characters.next_if(|(_, next)| *next == quote).is_some() {
            inner.push(quote);
        } else {
            return Some((inner, at + 1));
        }
    }
    None
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Expression {
    Column(Vec<String>),
    Text(String),
    Number(String),
    /// `true`, `false` or `null`.
    Constant(String),
    Call(String, Vec<Expression>),
    Array(Vec<Expression>),
    Cast(Box<Expression>, String),
    Operator(String, Box<Expression>, Box<Expression>),
    /// `= ANY` and `<> ALL` of an array.
    AmongAll(String, Box<Expression>, Box<Expression>),
    Is(Box<Expression>, String),
    Not(Box<Expression>),
    /// Two or more.
    And(Vec<Expression>),
    Or(Vec<Expression>),
}

use Expression::{
    AmongAll, And, Array, Call, Cast, Column, Constant, Is, Not, Number, Operator, Or, Text,
};

struct Parser<'a> {
    tokens: Peekable<IntoIter<Token>>,
    /// The columns of type varchar.
    varchars: &'a [&'a str],
}

impl<'a> Parser<'a> {
    fn read(tokens: Vec<Token>, varchars: &'a [&'a str]) -> Option<Expression> {
        let mut parser = Parser { tokens: tokens.into_iter().peekable(), varchars };
        let expression = parser.or()?;
        parser.tokens.next().is_none().then_some(expression)
    }

    fn takes(&mut self, wanted: &Token) -> bool {
        self.tokens.next_if_eq(wanted).is_some()
    }

    fn takes_word(&mut self, word: &str) -> bool {
        self.takes(&Token::Word(word.to_owned()))
    }

    fn takes_sign(&mut self, sign: &str) -> bool {
        self.takes(&Token::Sign(sign.to_owned()))
    }

    fn or(&mut self) -> Option<Expression> {
        let mut parts = vec![self.and()?];
        while self.takes_word("or") {
            parts.push(self.and()?);
        }
        Some(joined(parts, Or, |it| if let Or(parts) = it { Ok(parts) } else { Err(it) }))
    }

    fn and(&mut self) -> Option<Expression> {
        let mut parts = vec![self.not()?];
        while self.takes_word("and") {
            parts.push(self.not()?);
        }
        Some(joined(parts, And, |it| if let And(parts) = it { Ok(parts) } else { Err(it) }))
    }

    fn not(&mut self) -> Option<Expression> {
        match self.takes_word("not") {
            true => self.not().map(|it| Not(Box::new(it))),
            false => self.comparison(),
        }
    }

    fn comparison(&mut self) -> Option<Expression> {
        let left = self.operation()?;
        if self.takes_word("is") {
            let negated = if self.takes_word("not") { "not " } else { "" };
            let Some(Token::Word(what)) = self.tokens.next() else { return None };
            let known = ["null", "true", "false", "unknown"].contains(&what.as_str());
            return known.then(|| Is(Box::new(left), format!("{negated}{what}")));
        }
        let negated = self.takes_word("not");
        if self.takes_word("like") {
            let sign = if negated { "!~~" } else { "~~" };
            return Some(compared(self.varchars, sign, left, self.operation()?));
        }
        if self.takes_word("in") {
            let varchars = self.varchars;
            return self.takes_sign("(").then(|| self.list(")")).flatten().and_then(|items| {
                let (sign, one) = if negated { ("<>", false) } else { ("=", true) };
                among(varchars, sign, one, left, items)
            });
        }
        if negated {
            return None;
        }
        let is_comparison = |token: &Token| matches!(token, Token::Sign(sign) if ["=", "<>", "!=", "<", ">", "<=", ">="].contains(&sign.as_str()));
        let Some(Token::Sign(sign)) = self.tokens.next_if(is_comparison) else { return Some(left) };
        let sign = if sign == "!=" { "<>" } else { &sign };
        let one = self.takes_word("any");
        if one || self.takes_word("all") {
            let array = self.takes_sign("(").then(|| self.or()).flatten()?;
            // Of `(ARRAY[…])::text[]` the cast has been left out.
            return match (self.takes_sign(")"), array) {
                (true, Array(items)) => among(self.varchars, sign, one, left, items),
                _ => None,
            };
        }
        Some(compared(self.varchars, sign, left, self.operation()?))
    }

    /// Operators of one rank, from the left. Those of arithmetic have others.
    fn operation(&mut self) -> Option<Expression> {
        let mut left = self.value()?;
        let is_operator = |token: &Token| matches!(token, Token::Sign(sign) if sign.contains(['~', '|', '@', '#', '&', '?']) || ["->", "->>"].contains(&sign.as_str()));
        while let Some(Token::Sign(sign)) = self.tokens.next_if(is_operator) {
            left = compared(self.varchars, &sign, left, self.value()?);
        }
        Some(left)
    }

    fn value(&mut self) -> Option<Expression> {
        let mut value = match self.tokens.next()? {
            Token::Text(text) => Text(text),
            Token::Number(number) => Number(number),
            Token::Sign(sign) if sign == "-" => match self.tokens.next()? {
                Token::Number(number) => Number(format!("-{number}")),
                _ => return None,
            },
            Token::Sign(sign) if sign == "(" => {
                let inner = self.or()?;
                self.takes_sign(")").then_some(inner)?
            }
            Token::Word(word) if ["true", "false", "null"].contains(&word.as_str()) => {
                Constant(word)
            }
            Token::Word(word) if word == "array" && self.takes_sign("[") => Array(self.list("]")?),
            Token::Word(word) if self.takes_sign("(") => Call(word, self.list(")")?),
            Token::Word(name) | Token::Quoted(name) => self.column(name)?,
            Token::Sign(_) => return None,
        };
        while self.takes_sign("::") {
            value = cast(value, self.type_name()?);
        }
        Some(value)
    }

    fn column(&mut self, first: String) -> Option<Expression> {
        let mut names = vec![first];
        while self.takes_sign(".") {
            let (Token::Word(name) | Token::Quoted(name)) = self.tokens.next()? else {
                return None;
            };
            names.push(name);
        }
        Some(Column(names))
    }

    /// The values up to the closing sign.
    fn list(&mut self, end: &str) -> Option<Vec<Expression>> {
        let mut items = Vec::new();
        while !self.takes_sign(end) {
            if !items.is_empty() && !self.takes_sign(",") {
                return None;
            }
            items.push(self.or()?);
        }
        Some(items)
    }

    fn type_name(&mut self) -> Option<String> {
        let (Token::Word(mut name) | Token::Quoted(mut name)) = self.tokens.next()? else {
            return None;
        };
        while self.takes_sign(".") {
            let (Token::Word(more) | Token::Quoted(more)) = self.tokens.next()? else {
                return None;
            };
            name += &format!(".{more}");
        }
        for word in ["varying", "precision", "with", "without", "time", "zone"] {
            if self.takes_word(word) {
                name += &format!(" {word}");
            }
        }
        if self.takes_sign("[") {
            self.takes_sign("]").then_some(())?;
            name += "[]";
        }
        Some(name)
    }
}

/// One list of all parts, those of nested lists included: `a AND (b AND c)` is `a AND b AND c`.
fn joined(
    parts: Vec<Expression>,
    join: fn(Vec<Expression>) -> Expression,
    nested: fn(Expression) -> Result<Vec<Expression>, Expression>,
) -> Expression {
    let mut all: Vec<Expression> =
        parts.into_iter().flat_map(|part| nested(part).unwrap_or_else(|part| vec![part])).collect();
    match all.len() {
        1 => all.remove(0),
        _ => join(all),
    }
}

/// The type of a literal follows from what it is compared with, so its cast is left out. A negative
/// number is printed as a text with a cast.
fn cast(value: Expression, name: String) -> Expression {
    match value {
        Text(text) => {
            let is_number = ["integer", "bigint", "smallint", "numeric"].contains(&name.as_str());
            if is_number { Number(text) } else { Text(text) }
        }
        Array(items) => Array(items),
        value => Cast(Box::new(value), name),
    }
}

/// Postgres compares columns of type varchar as text, and prints that. For equality and patterns the
/// cast changes nothing; of another type the text may be another one than that of the value.
fn compared(varchars: &[&str], sign: &str, left: Expression, right: Expression) -> Expression {
    let ignores_cast = ["=", "<>", "~~", "!~~"].contains(&sign);
    let is_varchar = |it: &Expression| matches!(it, Column(path) if path.last().is_some_and(|name| varchars.contains(&name.as_str())));
    let plain = |it: Expression| match it {
        Cast(inner, name) if ignores_cast && name == "text" && is_varchar(&inner) => *inner,
        it => it,
    };
    Operator(sign.to_owned(), Box::new(plain(left)), Box::new(plain(right)))
}

/// `= ANY` or `<> ALL` of the items; no other combination is understood.
fn among(
    varchars: &[&str],
    sign: &str,
    one: bool,
    left: Expression,
    items: Vec<Expression>,
) -> Option<Expression> {
    if !matches!((sign, one), ("=", true) | ("<>", false)) || items.is_empty() {
        return None;
    }
    if let [_] = items.as_slice() {
        return items.into_iter().next().map(|item| compared(varchars, sign, left, item));
    }
    let Operator(sign, left, right) = compared(varchars, sign, left, Array(items)) else {
        return None;
    };
    Some(AmongAll(sign, left, right))
}

#[cfg(test)]
#[path = "row_filter_tests.rs"]
mod tests;
